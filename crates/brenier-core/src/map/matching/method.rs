//! Flow matching as a method of the list: settings, defaults, search spaces, training and trained map.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{MatchingMap, MatchingSettings, MatchingShape};
use crate::Result;
use crate::map::TransportMap;
use crate::map::batch::both_precisions;
use crate::map::method::{
    Candidate, Fill, ListedMethod, MethodInfo, MethodSpec, Problem, SettingInfo, SettingKind, SizeAdvice,
    Training,
};
use crate::map::ode::{self, travels};
use crate::train::{Outcome, Schedule, TrainSettings};

/// The settings of a flow-matching map; `None` chooses by the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowMatchingSettings {
    /// Width of every layer.
    pub feature_width: Option<usize>,
    /// Residual blocks of two layers each.
    pub blocks: Option<usize>,
    /// Widths of a tanh network that embeds y, trained with the field; empty for none.
    pub embedding: Vec<usize>,
    /// The Runge–Kutta steps of validation losses, densities and draws.
    pub evaluation_steps: usize,
}

impl Default for FlowMatchingSettings {
    fn default() -> Self {
        let MatchingSettings { evaluation_steps } = MatchingSettings::default();
        Self { feature_width: None, blocks: None, embedding: Vec::new(), evaluation_steps }
    }
}

impl FlowMatchingSettings {
    fn shape(&self, target: usize, given: usize) -> MatchingShape {
        MatchingShape {
            target,
            given,
            width: self.feature_width.unwrap_or(128),
            blocks: self.blocks.unwrap_or(3),
            // Without given columns, as in the first block of a joint map, there is nothing to embed.
            embedding: if given == 0 { Vec::new() } else { self.embedding.clone() },
        }
    }

    fn integration(&self) -> MatchingSettings {
        MatchingSettings { evaluation_steps: self.evaluation_steps }
    }
}

/// Steps of a training on this many rows: every row is seen with new noise each time, so that more rows need more steps,
/// but not in proportion.
fn steps(rows: usize) -> u64 {
    (10_000.0 * (rows as f64 / 9000.0).powf(0.7)).clamp(3000.0, 100_000.0).round() as u64
}

impl MethodSpec for FlowMatchingSettings {
    fn validate(&self) -> Result<()> {
        self.integration().validate()?;
        self.shape(1, 1).validate()
    }

    fn resolve(&mut self, problem: Problem, train: &mut TrainSettings) {
        self.feature_width.get_or_insert(if problem.rows >= 2000 { 128 } else { 64 });
        self.blocks.get_or_insert(3);
        train.batch_size.get_or_insert(if problem.rows >= 2000 { 256 } else { 128 });
        train.learning_rate.get_or_insert(0.002);
        train.weight_average.get_or_insert(0.999);
        train.clip.get_or_insert(5.0);
        if *train.schedule.get_or_insert(Schedule::Cosine) == Schedule::Cosine {
            train.max_steps.get_or_insert(steps(problem.rows));
        }
    }

    fn embeds(&self) -> bool {
        !self.embedding.is_empty()
    }

    fn parameters(&self, target: usize, given: usize) -> Result<usize> {
        let shape = self.shape(target, given);
        shape.validate()?;
        Ok(shape.parameters())
    }

    fn train(&self, training: Training<'_>) -> Result<(Arc<dyn TransportMap>, Outcome)> {
        let shape = self.shape(training.data.target, training.data.given);
        let mut map = MatchingMap::initial(shape, self.integration(), training.seed)?;
        let outcome = training.descend(&mut map)?;
        Ok((Arc::new(FlowMatching::new(map)), outcome))
    }

    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>> {
        let zeros = vec![0.0; self.parameters(target, given)?];
        let mut map = MatchingMap::from_parameters(self.shape(target, given), self.integration(), zeros)?;
        fill(&mut map)?;
        Ok(Arc::new(FlowMatching::new(map)))
    }
}

impl ListedMethod for FlowMatchingSettings {
    const INFO: MethodInfo = MethodInfo {
        title: "flow-matching map",
        summary: "A flow along a field that was trained by regression on noisy rows: slow to overfit, for sharp and curved posteriors",
        settings: &[
            SettingInfo {
                name: "feature_width",
                kind: SettingKind::Whole,
                help: "width of every layer",
                default: "by the table",
            },
            SettingInfo {
                name: "blocks",
                kind: SettingKind::Whole,
                help: "residual blocks of two layers each",
                default: "3",
            },
            SettingInfo {
                name: "embedding",
                kind: SettingKind::WholeList,
                help: "widths of a tanh network that embeds the given columns, as in 128,128,64",
                default: "none",
            },
            SettingInfo {
                name: "evaluation_steps",
                kind: SettingKind::Whole,
                help: "Runge-Kutta steps of validation, densities and draws",
                default: "16",
            },
        ],
        spaces: &[(
            "default",
            "[method]\n\
             feature_width = [64, 96, 128, 192]\n\
             blocks = [2, 3, 4]\n\
             [train]\n\
             batch_size = [128, 256, 512]\n\
             learning_rate = [0.004, 0.002, 0.001]\n",
        )],
        candidates: &[
            Candidate::PLAIN.tried_wholly(),
            // Less overfitting, and less sharpness: see docs/results/sbibm.md.
            Candidate::always("weight decay", r#"{"train": {"adam": {"weight_decay": 0.1}}}"#)
                .tried_wholly()
                .in_final(),
        ],
        published_pilots: None,
        check_draws: 200,
        draw_settings: ode::DRAW_SETTINGS,
        size: SizeAdvice::NETWORK,
        penalised: true,
    };
}

/// A trained flow in both precisions.
#[derive(Clone, Debug)]
pub struct FlowMatching {
    single: MatchingMap<f32>,
    double: MatchingMap<f64>,
}

impl FlowMatching {
    /// Both precisions of a trained map.
    pub fn new(map: MatchingMap<f32>) -> Self {
        Self { double: map.cast(), single: map }
    }
}

impl TransportMap for FlowMatching {
    both_precisions!(single, double);
    travels!(&FlowMatchingSettings::INFO);

    fn takes_steps(&self) -> bool {
        true
    }

    fn scored_rows(&self) -> usize {
        // Each takes a trajectory in double precision.
        1000
    }

    fn describe(&self) -> String {
        let shape = self.double.shape();
        let embedding = match shape.embedding.is_empty() {
            true => String::new(),
            false => format!(", embedding of the given columns {:?}", shape.embedding),
        };
        format!("{} residual blocks of width {}{embedding}", shape.blocks, shape.width)
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![("flow", format!("{} steps", self.double.settings().evaluation_steps))]
    }
}
