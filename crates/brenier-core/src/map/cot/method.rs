//! COT-Flow as a method of the list: settings, defaults, search spaces, training and trained map.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CotMap, CotSettings, CotShape};
use crate::map::batch::both_precisions;
use crate::map::method::{
    Fill, ListedMethod, MethodInfo, MethodSpec, Problem, SettingInfo, SettingKind, SizeAdvice, Training,
    default_width,
};
use crate::map::ode::{self, travels};
use crate::map::{ConditionalMap, FlowCosts, Paths, TransportMap};
use crate::train::{Outcome, TrainSettings};
use crate::{Error, Result};

/// The settings of a COT-Flow; `None` chooses by the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct FlowSettings {
    /// Width of every layer.
    pub feature_width: Option<usize>,
    /// Number of layers.
    pub depth: Option<usize>,
    /// Widths of a tanh network that embeds y, trained with the potential; empty for none. It pays where there are very
    /// many given columns.
    pub embedding: Vec<usize>,
    /// n_t, the Runge–Kutta steps of a training step.
    pub time_steps: usize,
    /// The Runge–Kutta steps of validation losses, densities and draws.
    pub evaluation_steps: usize,
    /// α₁, the weight of the transport cost beside the mean negative log-likelihood.
    pub alpha_transport: f64,
    /// α₂, the weight of the Hamilton–Jacobi–Bellman penalty.
    pub alpha_hjb: f64,
    /// Bytes that a training workspace may spend to keep activations.
    pub activation_bytes: usize,
    /// Cheap steps of flow matching before those of the likelihood.
    pub warm_steps: u64,
}

/// The settings as files have them: optionally with both weights as the authors' programs state them.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    feature_width: Option<usize>,
    depth: Option<usize>,
    embedding: Vec<usize>,
    time_steps: usize,
    evaluation_steps: usize,
    alpha_transport: f64,
    alpha_hjb: f64,
    authors_alphas: Option<[f64; 2]>,
    activation_bytes: usize,
    warm_steps: u64,
}

impl Default for Written {
    fn default() -> Self {
        let settings = FlowSettings::default();
        Self {
            feature_width: settings.feature_width,
            depth: settings.depth,
            embedding: settings.embedding,
            time_steps: settings.time_steps,
            evaluation_steps: settings.evaluation_steps,
            alpha_transport: settings.alpha_transport,
            alpha_hjb: settings.alpha_hjb,
            authors_alphas: None,
            activation_bytes: settings.activation_bytes,
            warm_steps: settings.warm_steps,
        }
    }
}

impl TryFrom<Written> for FlowSettings {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let mut settings = Self {
            feature_width: written.feature_width,
            depth: written.depth,
            embedding: written.embedding,
            time_steps: written.time_steps,
            evaluation_steps: written.evaluation_steps,
            alpha_transport: written.alpha_transport,
            alpha_hjb: written.alpha_hjb,
            activation_bytes: written.activation_bytes,
            warm_steps: written.warm_steps,
        };
        if let Some([c, r]) = written.authors_alphas {
            if !(c > 0.0 && r >= 0.0) {
                return Err(Error::setting("authors_alphas", "C must be positive and R at least 0"));
            }
            (settings.alpha_transport, settings.alpha_hjb) = CotSettings::from_authors(c, r);
        }
        Ok(settings)
    }
}

impl Default for FlowSettings {
    fn default() -> Self {
        let CotSettings {
            time_steps,
            evaluation_steps,
            alpha_transport,
            alpha_hjb,
            activation_bytes,
            warm_steps,
        } = CotSettings::default();
        Self {
            feature_width: None,
            depth: None,
            embedding: Vec::new(),
            time_steps,
            evaluation_steps,
            alpha_transport,
            alpha_hjb,
            activation_bytes,
            warm_steps,
        }
    }
}

impl FlowSettings {
    fn shape(&self, target: usize, given: usize) -> CotShape {
        // Without given columns, as in the first block of a joint map, there is nothing to embed.
        let embedding = if given == 0 { Vec::new() } else { self.embedding.clone() };
        CotShape::new(target, given, self.feature_width.unwrap_or(64), self.depth.unwrap_or(2))
            .with_embedding(embedding)
    }

    fn integration(&self) -> CotSettings {
        CotSettings {
            time_steps: self.time_steps,
            evaluation_steps: self.evaluation_steps,
            alpha_transport: self.alpha_transport,
            alpha_hjb: self.alpha_hjb,
            activation_bytes: self.activation_bytes,
            warm_steps: self.warm_steps,
        }
    }
}

impl MethodSpec for FlowSettings {
    fn validate(&self) -> Result<()> {
        self.integration().validate()?;
        self.shape(1, 1).validate()
    }

    fn resolve(&mut self, problem: Problem, train: &mut TrainSettings) {
        self.feature_width.get_or_insert(default_width(problem));
        self.depth.get_or_insert(2);
        train.resolve(problem.rows, 32);
    }

    fn embeds(&self) -> bool {
        !self.embedding.is_empty()
    }

    fn parameters(&self, target: usize, given: usize) -> Result<usize> {
        let shape = self.shape(target, given);
        shape.validate()?;
        Ok(shape.parameters())
    }

    fn cost(&self, target: usize, given: usize) -> Result<usize> {
        Ok(self.parameters(target, given)?.saturating_mul(self.time_steps))
    }

    fn train(&self, training: Training<'_>) -> Result<(Arc<dyn TransportMap>, Outcome)> {
        let shape = self.shape(training.data.target, training.data.given);
        let mut map = CotMap::initial(shape, self.integration(), training.seed)?;
        let outcome = training.descend(&mut map)?;
        Ok((Arc::new(Flow::new(map)), outcome))
    }

    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>> {
        let zeros = vec![0.0; self.parameters(target, given)?];
        let mut map = CotMap::from_parameters(self.shape(target, given), self.integration(), zeros)?;
        fill(&mut map)?;
        Ok(Arc::new(Flow::new(map)))
    }
}

impl ListedMethod for FlowSettings {
    const INFO: MethodInfo = MethodInfo {
        title: "COT-Flow",
        summary: "A flow along the gradient of a potential, penalised towards straight optimal-transport paths",
        settings: &[
            SettingInfo {
                name: "feature_width",
                kind: SettingKind::Whole,
                help: "width of every layer",
                default: "by the table",
            },
            SettingInfo { name: "depth", kind: SettingKind::Whole, help: "number of layers", default: "2" },
            SettingInfo {
                name: "embedding",
                kind: SettingKind::WholeList,
                help: "widths of a tanh network that embeds the given columns, as in 128,128,64",
                default: "none",
            },
            SettingInfo {
                name: "time_steps",
                kind: SettingKind::Whole,
                help: "Runge-Kutta steps from data to reference while training",
                default: "8",
            },
            SettingInfo {
                name: "evaluation_steps",
                kind: SettingKind::Whole,
                help: "Runge-Kutta steps of validation, densities and draws",
                default: "32",
            },
            SettingInfo {
                name: "alpha_transport",
                kind: SettingKind::Number,
                help: "weight of the transport cost beside the mean NLL",
                default: "0.01",
            },
            SettingInfo {
                name: "alpha_hjb",
                kind: SettingKind::Number,
                help: "weight of the Hamilton-Jacobi-Bellman penalty",
                default: "0.1",
            },
            SettingInfo {
                name: "authors_alphas",
                kind: SettingKind::Numbers(2),
                help: "both weights as the paper's programs state them, C,R for transport + C·NLL + R·HJB",
                default: "",
            },
            SettingInfo {
                name: "warm_steps",
                kind: SettingKind::Whole,
                help: "cheap steps of flow matching before those of the likelihood",
                default: "0",
            },
        ],
        spaces: &[
            (
                "default",
                "[method]\n\
                 feature_width = [32, 64, 128]\n\
                 time_steps = [4, 8]\n\
                 authors_alphas = { exp_uniform = [-1, 3], count = 2 }\n\
                 [train]\n\
                 batch_size = [32, 64, 128]\n\
                 learning_rate = [0.01, 0.005, 0.002]\n",
            ),
            (
                "uci",
                "[method]\n\
                 feature_width = [32, 64, 128, 256, 512]\n\
                 time_steps = [8, 16]\n\
                 authors_alphas = { exp_uniform = [-1, 3], count = 2 }\n\
                 [train]\n\
                 batch_size = [32, 64]\n\
                 learning_rate = [0.01, 0.005, 0.001]\n",
            ),
            (
                "paper",
                "[method]\n\
                 feature_width = [32, 64, 128, 256, 512, 1024]\n\
                 time_steps = [8, 16]\n\
                 authors_alphas = { exp_uniform = [-1, 3], count = 2 }\n\
                 [train]\n\
                 batch_size = [32, 64, 128, 256, 512, 1024]\n\
                 learning_rate = [0.05, 0.01, 0.001, 0.0001]\n",
            ),
        ],
        candidates: &[],
        published_pilots: Some(50),
        check_draws: 200,
        draw_settings: ode::DRAW_SETTINGS,
        size: SizeAdvice::NETWORK,
        penalised: true,
    };
}

/// A trained flow in both precisions.
#[derive(Clone, Debug)]
pub struct Flow {
    single: CotMap<f32>,
    double: CotMap<f64>,
}

impl Flow {
    /// Both precisions of a trained map.
    pub fn new(map: CotMap<f32>) -> Self {
        Self { double: map.cast(), single: map }
    }
}

impl TransportMap for Flow {
    both_precisions!(single, double);
    travels!(&FlowSettings::INFO);

    fn describe(&self) -> String {
        let shape = self.double.shape();
        let embedding = match shape.embedding.is_empty() {
            true => String::new(),
            false => format!(", embedding of the given columns {:?}", shape.embedding),
        };
        format!("width {}, depth {}, quadratic of rank {}{embedding}", shape.width, shape.depth, shape.rank)
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let flow = self.double.settings();
        let warm = match flow.warm_steps {
            0 => String::new(),
            steps => format!("; warm start of {steps} steps"),
        };
        let text = format!(
            "{} steps in training, {} in use; weights: transport {}, HJB {}{warm}",
            flow.time_steps, flow.evaluation_steps, flow.alpha_transport, flow.alpha_hjb
        );
        vec![("flow", text)]
    }

    fn paths(&self) -> Option<&dyn Paths> {
        Some(self)
    }
}

impl Paths for Flow {
    fn evaluation_steps(&self) -> usize {
        self.double.settings().evaluation_steps
    }

    fn costs(&self, x: &[f64], y: &[f64], steps: usize, z: &mut [f64]) -> Result<FlowCosts> {
        let mut log_det = vec![0.0; x.len() / self.double.target_dim()];
        self.double.forward_with_costs(x, y, steps, z, &mut log_det)
    }
}
