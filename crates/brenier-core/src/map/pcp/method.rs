//! PCP-Map as a method of the list: settings, defaults, search spaces, training and trained map.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Convexity, Front, Initialisation, OutputActivation, PcpInverter, PcpMap, PcpShape};
use crate::Result;
use crate::map::batch::both_precisions;
use crate::map::convex::InverseSettings;
use crate::map::gaussian::Regression;
use crate::map::method::{
    Candidate, Fill, ListedMethod, MethodInfo, MethodSpec, Problem, SettingInfo, SettingKind, SizeAdvice,
    Training, default_width,
};
use crate::map::narrow;
use crate::map::{
    Certificate, ConditionalMap, Inversion, Reference, ReferenceKind, SampleSettings, TransportMap,
};
use crate::train::{Outcome, TrainSettings};

/// The settings of a PCP-Map; `None` chooses by the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PcpSettings {
    /// Width of the layers that carry the target.
    pub feature_width: Option<usize>,
    /// Width of the layers that carry the given variables.
    pub context_width: Option<usize>,
    /// Number of hidden layers.
    pub depth: Option<usize>,
    /// Activation of the network's output.
    #[serde(alias = "output")]
    pub output_activation: OutputActivation,
    /// The layer before the potential; none where no column is given.
    pub front: Front,
    /// How the parameters start.
    pub initialisation: Initialisation,
    /// The network where nothing is given, as in the first block of a joint map.
    pub unconditional: Option<Convexity>,
    /// The distribution of z; by default one with heavy tails in joint models and without given variables (but not with
    /// the authors' initialisation), else a Gaussian. Files of older versions say nothing, and their maps have a Gaussian.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceKind>,
}

impl PcpSettings {
    /// The network for n target and m given variables.
    fn shape(&self, target: usize, given: usize) -> PcpShape {
        let width = self.feature_width.unwrap_or(64);
        PcpShape {
            target,
            given,
            feature_width: width,
            context_width: self.context_width.unwrap_or(width),
            depth: self.depth.unwrap_or(2),
            output: self.output_activation,
            front: if given == 0 { Front::None } else { self.front },
            convexity: match given {
                0 => self.unconditional.unwrap_or(Convexity::Full),
                _ => Convexity::Partial,
            },
            reference: self.reference.unwrap_or(ReferenceKind::Gaussian),
        }
    }
}

impl MethodSpec for PcpSettings {
    fn validate(&self) -> Result<()> {
        self.shape(1, 1).validate()
    }

    fn resolve(&mut self, problem: Problem, train: &mut TrainSettings) {
        let width = *self.feature_width.get_or_insert(default_width(problem));
        self.context_width.get_or_insert(width);
        self.depth.get_or_insert(2);
        // Tables of measured columns have rows far out; posteriors of simulators hardly do.
        let far_out = problem.joint || problem.given == 0;
        self.reference.get_or_insert(match self.initialisation {
            Initialisation::Balanced if far_out => ReferenceKind::HeavyTailed,
            _ => ReferenceKind::Gaussian,
        });
        if problem.given == 0 {
            self.unconditional.get_or_insert(Convexity::Full);
        }
        train.resolve(problem.rows, 64);
    }

    fn parameters(&self, target: usize, given: usize) -> Result<usize> {
        let shape = self.shape(target, given);
        shape.validate()?;
        Ok(shape.parameters())
    }

    fn train(&self, training: Training<'_>) -> Result<(Arc<dyn TransportMap>, Outcome)> {
        let shape = self.shape(training.data.target, training.data.given);
        let mut map = PcpMap::<f32>::initial(shape, self.initialisation, training.seed)?;
        if shape.front == Front::Affine
            && let Some(regression) = Regression::fit(&training)?
        {
            map.start_front(&regression);
        }
        let outcome = training.descend(&mut map)?;
        Ok((Arc::new(PcpInverter::new(&map)), outcome))
    }

    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>> {
        let zeros = vec![0.0; self.parameters(target, given)?];
        let mut map = PcpMap::from_parameters(self.shape(target, given), zeros)?;
        fill(&mut map)?;
        Ok(Arc::new(PcpInverter::new(&map)))
    }
}

impl ListedMethod for PcpSettings {
    const INFO: MethodInfo = MethodInfo {
        title: "PCP-Map",
        summary: "The gradient of a partially input-convex network, with an exact log-determinant",
        settings: &[
            SettingInfo {
                name: "feature_width",
                kind: SettingKind::Whole,
                help: "width of the layers that carry the target",
                default: "by the table",
            },
            SettingInfo {
                name: "context_width",
                kind: SettingKind::Whole,
                help: "width of the layers that carry the given columns",
                default: "the feature width",
            },
            SettingInfo {
                name: "depth",
                kind: SettingKind::Whole,
                help: "number of hidden layers",
                default: "2",
            },
            SettingInfo {
                name: "output_activation",
                kind: SettingKind::Choice(&["identity", "softplus"]),
                help: "activation of the network's output",
                default: "identity",
            },
            SettingInfo {
                name: "front",
                kind: SettingKind::Choice(&Front::NAMES),
                help: "layer before the potential: affine centres and scales the target by the given columns (not autoregressive)",
                default: "none",
            },
            SettingInfo {
                name: "initialisation",
                kind: SettingKind::Choice(&["balanced", "authors"]),
                help: "how the parameters start",
                default: "balanced",
            },
            SettingInfo {
                name: "unconditional",
                kind: SettingKind::Choice(&["full", "augmented", "partial"]),
                help: "network where nothing is given, as in the first block of a joint model",
                default: "full",
            },
            SettingInfo {
                name: "reference",
                kind: SettingKind::Choice(&ReferenceKind::NAMES),
                help: "distribution that the map carries the target to; heavy-tailed adds a share of Student's t, so that no row far out costs much",
                default: "gaussian; heavy-tailed in joint models and without given columns",
            },
        ],
        spaces: &[
            (
                "default",
                "[method]\n\
                 feature_width = [32, 64, 128, 256]\n\
                 context_width = \"halvings\"\n\
                 depth = [2, 3, 4]\n\
                 [train]\n\
                 batch_size = [32, 64, 128]\n\
                 learning_rate = [0.01, 0.005, 0.002, 0.001]\n",
            ),
            (
                "uci",
                "[method]\n\
                 feature_width = [32, 64, 128, 256, 512]\n\
                 context_width = \"halvings\"\n\
                 depth = [2, 3, 4, 5, 6]\n\
                 [train]\n\
                 batch_size = [32, 64]\n\
                 learning_rate = [0.01, 0.005, 0.001]\n",
            ),
            (
                "paper",
                "[method]\n\
                 feature_width = [32, 64, 128, 256, 512]\n\
                 context_width = \"halvings\"\n\
                 depth = [2, 3, 4, 5, 6]\n\
                 [train]\n\
                 batch_size = [32, 64, 128, 256]\n\
                 learning_rate = [0.05, 0.01, 0.001, 0.0001]\n",
            ),
        ],
        candidates: &[
            Candidate::PLAIN,
            Candidate::always("affine front", r#"{"method": {"front": "affine"}}"#),
            Candidate::always(
                "narrow, weight decay",
                r#"{"method": {"feature_width": 32}, "train": {"adam": {"weight_decay": 1}}}"#,
            )
            .for_rows(0, 5000),
        ],
        published_pilots: Some(100),
        check_draws: 1000,
        draw_settings: InverseSettings::NAMES,
        size: SizeAdvice::NETWORK,
        penalised: false,
    };
}

impl TransportMap for PcpInverter {
    both_precisions!(coarse, fine);

    fn draw(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.only(&PcpSettings::INFO)?;
        match settings.skip_unsolved {
            true => self.attempt(z, given, observation, &settings.inverse()),
            false => self.invert(z, given, observation, &settings.inverse()),
        }
    }

    fn log_density_at(&self, x: &[f64], given: &[f64], observation: &[u32]) -> Result<Vec<f64>> {
        let mut out = vec![0.0; observation.len()];
        self.coarse.log_density_at(&narrow(x), &narrow(given), observation, &mut out)?;
        Ok(out)
    }

    fn tolerance(&self, settings: &SampleSettings) -> Option<f64> {
        Some(settings.inverse().tolerance)
    }

    fn describe(&self) -> String {
        let shape = self.fine.shape();
        let output = match shape.output {
            OutputActivation::Identity => "identity",
            OutputActivation::Softplus => "softplus",
        };
        let front = match shape.front {
            Front::None | Front::Autoregressive => "",
            Front::Affine => ", affine front",
        };
        let reference = match self.fine.reference() {
            Reference::Gaussian => String::new(),
            Reference::HeavyTailed { share, degrees } => {
                format!(
                    ", {:.1} % of the reference Student's t with {degrees:.1} degrees of freedom",
                    100.0 * share
                )
            }
        };
        format!(
            "feature width {}, context width {}, depth {}, output {output}{front}{reference}",
            shape.feature_width, shape.context_width, shape.depth
        )
    }

    fn certify(&self, x: &[f64], y: &[f64]) -> Result<Certificate> {
        let (_, hessians) = self.fine.potential_and_hessian(x, y)?;
        Certificate::of_symmetric(&hessians, self.fine.target_dim(), self.fine.strong_convexity())
    }
}
