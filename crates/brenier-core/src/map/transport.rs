//! A trained map in both precisions: everything that a posterior needs of it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::batch::rows_of;
use super::convex::{InverseSettings, Precision, Solver};
use super::method::MethodInfo;
use super::{Certificate, ConditionalMap, Inversion, Reference};
use crate::{Error, Result};

/// How draws are computed from reference points. What a method has no use for must be left `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleSettings {
    /// How the equation of a draw is solved.
    pub solver: Option<Solver>,
    /// Largest residual that counts as solved.
    pub tolerance: Option<f64>,
    /// Evaluations of the map that a draw may take.
    pub max_iterations: Option<u32>,
    /// Arithmetic of the solver, or of the integration.
    pub precision: Option<Precision>,
    /// Steps of an integration from the reference to the data; `None` takes the model's evaluation steps.
    pub steps: Option<usize>,
    /// Error of an integration that a draw may have, in standardised units: each takes as few steps as that needs, instead of a
    /// fixed number of [`steps`](Self::steps).
    pub accuracy: Option<f64>,
    /// Whether residuals are computed where they do not come for free.
    pub residuals: bool,
    /// Leave out the draws that could not be computed, and count them, instead of ending in an error.
    pub skip_unsolved: bool,
}

impl SampleSettings {
    /// The settings of a solver.
    pub fn inverse(&self) -> InverseSettings {
        let default = InverseSettings::default();
        InverseSettings {
            solver: self.solver.unwrap_or(default.solver),
            tolerance: self.tolerance.unwrap_or(default.tolerance),
            max_iterations: self.max_iterations.unwrap_or(default.max_iterations),
            precision: self.precision.unwrap_or(default.precision),
        }
    }

    /// An error for the first setting that is set but has no meaning for a method.
    pub(crate) fn only(&self, method: &MethodInfo) -> Result<()> {
        let set = [
            ("solver", self.solver.is_some()),
            ("tolerance", self.tolerance.is_some()),
            ("max_iterations", self.max_iterations.is_some()),
            ("precision", self.precision.is_some()),
            ("steps", self.steps.is_some()),
            ("accuracy", self.accuracy.is_some()),
        ];
        match set.iter().find(|(name, set)| *set && !method.draw_settings.contains(name)) {
            Some((name, _)) => {
                let problem = format!("means nothing to this model ({}): leave it out", method.title);
                Err(Error::setting(name, problem))
            }
            None => Ok(()),
        }
    }
}

/// What the trajectories of a flow cost, per row.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FlowCosts {
    /// ∫½‖∇ₓΦ‖² dt.
    pub transport: Vec<f64>,
    /// ∫|−∂ₜΦ + ½‖∇ₓΦ‖²| dt.
    pub hjb: Vec<f64>,
}

/// A map whose points travel along paths of a differential equation.
pub trait Paths {
    /// Steps of densities and draws.
    fn evaluation_steps(&self) -> usize;

    /// z = g⁻¹(x; y) of every row in `steps` steps, with the costs of every path.
    fn costs(&self, x: &[f64], y: &[f64], steps: usize, z: &mut [f64]) -> Result<FlowCosts>;
}

/// A trained map in the precision it was trained in and in double precision.
pub trait TransportMap: fmt::Debug + Send + Sync {
    /// The map as it was trained.
    fn single(&self) -> &dyn ConditionalMap<f32>;

    /// The map in double precision.
    fn double(&self) -> &dyn ConditionalMap<f64>;

    /// x = g(z; y) for every row z; `observation` says which row of `given` belongs to it.
    ///
    /// Rows that cannot be computed are an error that names the worst of them, unless they are to be skipped: then they
    /// are marked as unsolved. Settings that mean nothing to the method are an error.
    fn draw(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)>;

    /// log π(x | y) in single precision of every row x; `observation` says which row of `given` belongs to it: for
    /// comparisons of very many rows at few observations.
    fn log_density_at(&self, x: &[f64], given: &[f64], observation: &[u32]) -> Result<Vec<f64>> {
        let m = self.single().given_dim();
        let y = narrow(&rows_of(given, observation, m));
        let mut out = vec![0.0; observation.len()];
        self.single().log_density(&narrow(x), &y, &mut out)?;
        match out.iter().position(|density| density.is_nan()) {
            None => Ok(out),
            Some(row) => Err(Error::Numerical(format!(
                "row {}: the density cannot be computed (a value far outside the training data)",
                row + 1
            ))),
        }
    }

    /// The residual that draws are solved to; `None` where no equation is solved.
    fn tolerance(&self, _settings: &SampleSettings) -> Option<f64> {
        None
    }

    /// How many rows are scored for the record of a fit, at most.
    fn scored_rows(&self) -> usize {
        10_000
    }

    /// Its sizes in one line, without the number of parameters.
    fn describe(&self) -> String;

    /// More about the map, as pairs of a heading and a line.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The variables that each z_k depends on besides x_k, by their places in (y, x), where the map leaves some out.
    fn inputs(&self) -> Option<Vec<Vec<usize>>> {
        None
    }

    /// The local stretching of x ↦ z at the rows (x, y), with all the certainty that the method has to offer; in general
    /// by central differences at some of the rows.
    fn certify(&self, x: &[f64], y: &[f64]) -> Result<Certificate> {
        Certificate::by_differences(self.double(), x, y)
    }

    /// Whether draws are integrated, so that a number of steps means something to them.
    fn takes_steps(&self) -> bool {
        self.paths().is_some()
    }

    /// The paths of its points, where the map is a flow along a potential.
    fn paths(&self) -> Option<&dyn Paths> {
        None
    }
}

impl dyn TransportMap + '_ {
    /// n, the number of target variables.
    pub fn target_dim(&self) -> usize {
        self.double().target_dim()
    }

    /// m, the number of given variables.
    pub fn given_dim(&self) -> usize {
        self.double().given_dim()
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        self.double().parameters().len()
    }

    /// The distribution of z.
    pub fn reference(&self) -> Reference {
        self.double().reference()
    }

    /// As [`draw`](TransportMap::draw), but a row that was not solved is returned as it is, with its residual.
    pub fn attempt(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        self.draw(z, given, observation, &SampleSettings { skip_unsolved: true, ..*settings })
    }
}

/// The values in single precision.
pub(crate) fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}
