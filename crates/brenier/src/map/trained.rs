//! A trained map of either method, in both precisions: what a posterior draws from and scores with.

use serde::{Deserialize, Serialize};

use super::cot::{CotMap, CotSettings, CotShape};
use super::pcp::{InverseSettings, PcpInverter, PcpMap, PcpShape};
use super::{ConditionalMap, Inversion};
use crate::{Error, Result};

/// The transport map to train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The gradient of a partially input-convex network.
    #[default]
    PcpMap,
    /// A flow along the gradient of a potential, penalised towards straight optimal-transport paths.
    CotFlow,
}

impl Method {
    /// As flags, settings and file names have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PcpMap => "pcp-map",
            Self::CotFlow => "cot-flow",
        }
    }

    /// As texts have it.
    pub fn title(self) -> &'static str {
        match self {
            Self::PcpMap => "PCP-Map",
            Self::CotFlow => "COT-Flow",
        }
    }
}

/// The sizes of a network of either method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MapShape {
    /// A PCP-Map's.
    PcpMap(PcpShape),
    /// A COT-Flow's.
    CotFlow(CotShape),
}

impl MapShape {
    /// The method whose network this is.
    pub fn method(&self) -> Method {
        match self {
            Self::PcpMap(_) => Method::PcpMap,
            Self::CotFlow(_) => Method::CotFlow,
        }
    }

    /// Checks every size.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::PcpMap(shape) => shape.validate(),
            Self::CotFlow(shape) => shape.validate(),
        }
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        match self {
            Self::PcpMap(shape) => shape.parameters(),
            Self::CotFlow(shape) => shape.parameters(),
        }
    }

    /// (n, m): the numbers of target and given variables that the map sees.
    pub fn dims(&self) -> (usize, usize) {
        match self {
            Self::PcpMap(shape) => (shape.target, shape.given),
            Self::CotFlow(shape) => (shape.target, shape.given),
        }
    }
}

/// How draws are computed from reference points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleSettings {
    /// PCP-Map: how ∇ₓG(x; y) = z is solved.
    pub inverse: InverseSettings,
    /// COT-Flow: Runge–Kutta steps from the reference to the data; `None` takes the model's evaluation steps.
    pub steps: Option<usize>,
    /// COT-Flow: whether every draw is carried back to the reference to tell its residual, which costs as much again.
    /// (A PCP-Map's draws always come with theirs.)
    pub residuals: bool,
    /// Leave out the draws that could not be computed, and count them, instead of ending in an error.
    pub skip_unsolved: bool,
}

/// A trained map in the precision it was trained in and in double precision.
#[derive(Clone, Debug)]
pub enum TrainedMap {
    /// A PCP-Map.
    PcpMap(Box<PcpInverter>),
    /// A COT-Flow.
    CotFlow {
        /// As trained.
        single: Box<CotMap<f32>>,
        /// The same in double precision.
        double: Box<CotMap<f64>>,
    },
}

impl From<PcpMap<f32>> for TrainedMap {
    fn from(map: PcpMap<f32>) -> Self {
        Self::PcpMap(Box::new(PcpInverter::new(&map)))
    }
}

impl From<CotMap<f32>> for TrainedMap {
    fn from(map: CotMap<f32>) -> Self {
        Self::CotFlow { double: Box::new(map.cast()), single: Box::new(map) }
    }
}

impl TrainedMap {
    /// A map whose parameters `fill` writes into their places.
    pub(crate) fn assemble(
        shape: &MapShape,
        flow: CotSettings,
        fill: impl FnOnce(&mut dyn ConditionalMap<f32>) -> Result<()>,
    ) -> Result<Self> {
        let zeros = vec![0.0; shape.parameters()];
        match shape {
            MapShape::PcpMap(shape) => {
                let mut map = PcpMap::from_parameters(*shape, zeros)?;
                fill(&mut map)?;
                Ok(map.into())
            }
            MapShape::CotFlow(shape) => {
                let mut map = CotMap::from_parameters(shape.clone(), flow, zeros)?;
                fill(&mut map)?;
                Ok(map.into())
            }
        }
    }

    /// The network's sizes.
    pub fn shape(&self) -> MapShape {
        match self {
            Self::PcpMap(inverter) => MapShape::PcpMap(inverter.map().shape()),
            Self::CotFlow { double, .. } => MapShape::CotFlow(double.shape()),
        }
    }

    /// The map as it was trained.
    pub fn single(&self) -> &dyn ConditionalMap<f32> {
        match self {
            Self::PcpMap(inverter) => inverter.single(),
            Self::CotFlow { single, .. } => &**single,
        }
    }

    /// The map in double precision.
    pub fn double(&self) -> &dyn ConditionalMap<f64> {
        match self {
            Self::PcpMap(inverter) => inverter.map(),
            Self::CotFlow { double, .. } => &**double,
        }
    }

    /// The flow, where the map is one.
    pub fn flow(&self) -> Option<&CotMap<f64>> {
        match self {
            Self::PcpMap(_) => None,
            Self::CotFlow { double, .. } => Some(double),
        }
    }

    /// x = g(z; y) for every row z, `observation` telling which row of `given` belongs to it.
    ///
    /// Rows that cannot be computed are an error that names the worst of them, unless they are to be skipped: then they
    /// are marked as unsolved.
    pub fn draw(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        match self {
            Self::PcpMap(inverter) => {
                if settings.steps.is_some() {
                    return Err(Error::setting(
                        "steps",
                        "belongs to COT-Flow; this model is a PCP-Map, whose draws are solved to a tolerance",
                    ));
                }
                if settings.skip_unsolved {
                    inverter.attempt(z, given, observation, &settings.inverse)
                } else {
                    inverter.invert(z, given, observation, &settings.inverse)
                }
            }
            Self::CotFlow { single, double } => {
                let steps = settings.steps.unwrap_or(double.settings().evaluation_steps);
                // Single precision rounds far below what the steps leave of the flow.
                let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
                let x = single.draw(&narrow(z), &narrow(given), observation, steps)?;
                let x: Vec<f64> = x.into_iter().map(f64::from).collect();
                let residuals = match settings.residuals {
                    true => double.residuals(&x, z, given, observation, steps)?,
                    false => Vec::new(),
                };
                let iterations = vec![steps as u32; observation.len()];
                Ok((x, Inversion { iterations, residuals, unsolved: Vec::new() }))
            }
        }
    }

    /// As [`draw`](Self::draw), but a PCP-Map's row that was not solved to the tolerance is returned as it is, with its
    /// residual, instead of ending in an error.
    pub(crate) fn attempt(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        match self {
            Self::PcpMap(inverter) => inverter.attempt(z, given, observation, &settings.inverse),
            Self::CotFlow { .. } => self.draw(z, given, observation, settings),
        }
    }

    /// log π(x | y) in single precision of every row x, `observation` telling which row of `given` belongs to it: for
    /// comparisons of very many rows at few observations.
    pub(crate) fn log_density_at(&self, x: &[f64], given: &[f64], observation: &[u32]) -> Result<Vec<f64>> {
        let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
        let (x, given) = (narrow(x), narrow(given));
        let mut out = vec![0.0; observation.len()];
        match self {
            Self::PcpMap(inverter) => {
                inverter.single().log_density_at(&x, &given, observation, &mut out)?;
            }
            Self::CotFlow { single, .. } => {
                let steps = single.settings().evaluation_steps;
                single.log_density_at(&x, &given, observation, steps, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Draws for a search to start from: as [`draw`](Self::draw), but rows that cannot be computed are left out.
    pub(crate) fn candidates(&self, z: &[f64], given: &[f64], observation: &[u32]) -> Result<Vec<f64>> {
        match self {
            Self::PcpMap(inverter) => {
                let settings = InverseSettings::default();
                let (draws, inversion) = inverter.attempt(z, given, observation, &settings)?;
                let n = inverter.map().target_dim();
                Ok(inversion.without_unsolved(draws.chunks_exact(n)).flatten().copied().collect())
            }
            Self::CotFlow { .. } => {
                self.draw(z, given, observation, &SampleSettings::default()).map(|(draws, _)| draws)
            }
        }
    }
}
