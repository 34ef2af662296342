//! Neural posterior estimation as a method of the list: settings, defaults, search spaces, training and trained map.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FlowKind, NpeMap, NpeShape, order};
use crate::Result;
use crate::map::batch::{both_precisions, misses, not_finite, refuse};
use crate::map::embed::Activation;
use crate::map::method::{
    Candidate, Fill, ListedMethod, MethodInfo, MethodSpec, Problem, SettingInfo, SettingKind, SizeAdvice,
    Training,
};
use crate::map::narrow;
use crate::map::pcp::Front;
use crate::map::{ConditionalMap, Inversion, SampleSettings, TransportMap};
use crate::train::{Outcome, Schedule, TrainSettings};

/// Whose defaults apply to what is left open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Preset {
    /// Ours.
    #[default]
    Brenier,
    /// Those of the Python package sbi, its training schedule included.
    Sbi,
}

/// The settings of a flow; `None` chooses by the preset and the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NpeSettings {
    /// Whose defaults apply to what is left open.
    pub preset: Preset,
    /// The kind of transforms.
    pub flow: FlowKind,
    /// Number of transforms.
    pub transforms: Option<usize>,
    /// Width of every hidden layer.
    pub hidden_width: Option<usize>,
    /// Residual blocks of a spline's network, or hidden layers after the first of an autoregressive one.
    pub blocks: Option<usize>,
    /// Bins of a spline.
    pub bins: Option<usize>,
    /// Splines act between plus and minus this bound, in standardised units.
    pub tail_bound: Option<f64>,
    /// Widths of a network that embeds y; empty for none.
    pub embedding: Vec<usize>,
    /// What its hidden layers end in.
    pub embedding_activation: Activation,
    /// The layer before the first transform.
    pub front: Front,
    /// Width of the networks of an autoregressive front.
    pub front_width: Option<usize>,
    /// Seed of the permutations between autoregressive transforms.
    pub permutation_seed: u64,
}

impl NpeSettings {
    /// The flow for n target and m given variables.
    fn shape(&self, target: usize, given: usize) -> NpeShape {
        let sbi = NpeShape::new(self.flow, target, given);
        NpeShape {
            transforms: self.transforms.unwrap_or(sbi.transforms),
            hidden_width: self.hidden_width.unwrap_or(sbi.hidden_width),
            blocks: self.blocks.unwrap_or(sbi.blocks),
            bins: self.bins.unwrap_or(sbi.bins),
            tail_bound: self.tail_bound.unwrap_or(sbi.tail_bound),
            // Without given columns, as in the first block of a joint map, there is nothing to embed.
            embedding: if given == 0 { Vec::new() } else { self.embedding.clone() },
            embedding_activation: self.embedding_activation,
            front: if given == 0 { Front::None } else { self.front },
            front_width: self.front_width.unwrap_or(sbi.front_width),
            permutation_seed: self.permutation_seed,
            ..sbi
        }
    }
}

/// λ = 0.1 up to 10⁴ rows, where splines overfit without it, and less, as rows^(−1/2), with more of them.
fn weight_decay(rows: usize) -> f64 {
    0.1 * (1e4 / rows.max(1) as f64).sqrt().min(1.0)
}

impl MethodSpec for NpeSettings {
    fn validate(&self) -> Result<()> {
        self.shape(1, 1).validate()
    }

    fn resolve(&mut self, problem: Problem, train: &mut TrainSettings) {
        let sbi = NpeShape::new(self.flow, problem.target, problem.given);
        let (width, tail_bound) = match self.preset {
            Preset::Sbi => (sbi.hidden_width, sbi.tail_bound),
            Preset::Brenier => (if problem.rows >= 5000 { 64 } else { 48 }, 5.0),
        };
        self.hidden_width.get_or_insert(width);
        self.tail_bound.get_or_insert(tail_bound);
        self.transforms.get_or_insert(sbi.transforms);
        self.blocks.get_or_insert(sbi.blocks);
        self.bins.get_or_insert(sbi.bins);
        self.front_width.get_or_insert(sbi.front_width);
        train.clip.get_or_insert(5.0);
        match self.preset {
            Preset::Brenier => {
                train.learning_rate.get_or_insert(0.002);
                train.weight_average.get_or_insert(0.99);
                train.adam.weight_decay.get_or_insert_with(|| weight_decay(problem.rows));
                // With averaged weights, waiting longer brings nothing; see docs/results/sbibm.md.
                train.patience.get_or_insert(10);
                train.drop_factor.get_or_insert(0.3);
                train.max_drops.get_or_insert(3);
                train.resolve(problem.rows, 64);
            }
            Preset::Sbi => {
                // Adam at 5·10⁻⁴ until 20 epochs brought nothing better, the best weights kept.
                train.learning_rate.get_or_insert(5e-4);
                let batch = *train.batch_size.get_or_insert(200);
                train.schedule = Some(Schedule::Plateau);
                train.validate_every = (problem.rows / batch).max(1);
                (train.patience, train.max_drops) = (Some(20), Some(1));
            }
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
        let mut map = NpeMap::initial(shape, training.seed)?;
        if map.shape().front == Front::Autoregressive {
            map.set_order(&order::rotation(&training)?);
        }
        let outcome = training.descend(&mut map)?;
        Ok((Arc::new(FlowPosterior::new(map)), outcome))
    }

    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>> {
        let zeros = vec![0.0; self.parameters(target, given)?];
        let mut map = NpeMap::from_parameters(self.shape(target, given), zeros)?;
        fill(&mut map)?;
        Ok(Arc::new(FlowPosterior::new(map)))
    }
}

/// A spline flow with more weight decay than by default.
const fn decayed(changes: &'static str) -> Candidate {
    Candidate::always("weight decay", changes).tried_for(3000)
}

impl ListedMethod for NpeSettings {
    const INFO: MethodInfo = MethodInfo {
        title: "NPE",
        summary: "Neural posterior estimation with a normalising flow: spline couplings or an autoregressive flow",
        settings: &[
            SettingInfo {
                name: "preset",
                kind: SettingKind::Choice(&["brenier", "sbi"]),
                help: "whose default sizes and training: Brenier's or those of the package sbi",
                default: "brenier",
            },
            SettingInfo {
                name: "flow",
                kind: SettingKind::Choice(&["nsf", "maf"]),
                help: "neural spline flow, or masked autoregressive flow",
                default: "nsf",
            },
            SettingInfo {
                name: "transforms",
                kind: SettingKind::Whole,
                help: "number of transforms",
                default: "5",
            },
            SettingInfo {
                name: "hidden_width",
                kind: SettingKind::Whole,
                help: "width of every hidden layer",
                default: "by the table",
            },
            SettingInfo {
                name: "blocks",
                kind: SettingKind::Whole,
                help: "residual blocks of a spline's network, or hidden layers after the first of an autoregressive one",
                default: "2",
            },
            SettingInfo { name: "bins", kind: SettingKind::Whole, help: "bins of a spline", default: "10" },
            SettingInfo {
                name: "tail_bound",
                kind: SettingKind::Number,
                help: "splines act between plus and minus this bound, in standardised units",
                default: "by the preset",
            },
            SettingInfo {
                name: "embedding",
                kind: SettingKind::WholeList,
                help: "widths of a network that embeds the given columns, as in 128,128,64",
                default: "none",
            },
            SettingInfo {
                name: "embedding_activation",
                kind: SettingKind::Choice(&Activation::NAMES),
                help: "what hidden layers of the embedding end in; relu and elu do not saturate",
                default: "tanh",
            },
            SettingInfo {
                name: "front",
                kind: SettingKind::Choice(&Front::NAMES),
                help: "layer before the transforms: affine centres and scales the target by the given columns, autoregressive does so \
                       one coordinate at a time, by these and the coordinates before it",
                default: "none",
            },
            SettingInfo {
                name: "front_width",
                kind: SettingKind::Whole,
                help: "width of the networks of an autoregressive front",
                default: "64",
            },
            SettingInfo {
                name: "permutation_seed",
                kind: SettingKind::Whole,
                help: "seed of the permutations between autoregressive transforms",
                default: "0",
            },
        ],
        spaces: &[
            (
                "default",
                "[method]\n\
                 flow = [\"nsf\", \"maf\"]\n\
                 hidden_width = [32, 64, 128]\n\
                 transforms = [3, 5, 8]\n\
                 [train]\n\
                 batch_size = [64, 128, 256]\n\
                 learning_rate = [0.005, 0.002, 0.001, 0.0005]\n",
            ),
            (
                "uci",
                "[method]\n\
                 flow = [\"nsf\", \"maf\"]\n\
                 hidden_width = [16, 32, 64, 128]\n\
                 transforms = [2, 3, 5]\n\
                 [train]\n\
                 batch_size = [32, 64]\n\
                 learning_rate = [0.005, 0.002, 0.001, 0.0005]\n",
            ),
        ],
        candidates: &[
            Candidate::PLAIN.tried_for(3000),
            // The fewer the rows, the larger the decay; see docs/results/sbibm.md.
            decayed(r#"{"train": {"adam": {"weight_decay": 1}}}"#).for_rows(0, 3000),
            decayed(r#"{"train": {"adam": {"weight_decay": 0.3}}}"#).for_rows(3001, 30_000),
            decayed(r#"{"train": {"adam": {"weight_decay": 0.1}}}"#).for_rows(30_001, usize::MAX),
            Candidate::always(
                "narrow, weight decay",
                r#"{"method": {"transforms": 3, "hidden_width": 32}, "train": {"adam": {"weight_decay": 1}}}"#,
            )
            .tried_for(3000),
            Candidate::always("autoregressive", r#"{"method": {"flow": "maf"}}"#).tried_for(3000),
        ],
        published_pilots: None,
        check_draws: 1000,
        draw_settings: &[],
        size: SizeAdvice::NETWORK,
        penalised: false,
    };
}

/// A trained flow in both precisions.
#[derive(Clone, Debug)]
pub struct FlowPosterior {
    single: NpeMap<f32>,
    double: NpeMap<f64>,
}

impl FlowPosterior {
    /// Both precisions of a trained map.
    pub fn new(map: NpeMap<f32>) -> Self {
        Self { double: map.cast(), single: map }
    }
}

impl TransportMap for FlowPosterior {
    both_precisions!(single, double);

    fn draw(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.only(&NpeSettings::INFO)?;
        let n = self.double.target_dim();
        let x = self.double.draw(z, given, observation)?;
        let unsolved = not_finite(&x, n);
        if !settings.skip_unsolved {
            refuse(&unsolved)?;
        }
        let residuals = match settings.residuals {
            true => misses(&self.double.forward_at(&x, given, observation)?.0, z, n),
            false => Vec::new(),
        };
        Ok((x, Inversion { iterations: vec![1; observation.len()], residuals, unsolved }))
    }

    fn log_density_at(&self, x: &[f64], given: &[f64], observation: &[u32]) -> Result<Vec<f64>> {
        let density = self.single.forward_at(&narrow(x), &narrow(given), observation)?.1;
        match density.iter().position(|density| !density.is_finite()) {
            None => Ok(density),
            Some(row) => Err(super::broken_row(row)),
        }
    }

    fn describe(&self) -> String {
        let shape = self.double.shape();
        let kind = match shape.flow {
            FlowKind::Nsf => format!("{} spline", shape.transforms),
            FlowKind::Maf => format!("{} autoregressive", shape.transforms),
        };
        let embedding = match shape.embedding.is_empty() {
            true => String::new(),
            false => format!(
                ", embedding of the given columns {:?} ({})",
                shape.embedding,
                shape.embedding_activation.name()
            ),
        };
        let front = match shape.front {
            Front::None => String::new(),
            Front::Affine => ", affine front".to_owned(),
            Front::Autoregressive => format!(", autoregressive front of width {}", shape.front_width),
        };
        format!(
            "{kind} transforms, hidden width {}, {} blocks{embedding}{front}",
            shape.hidden_width, shape.blocks
        )
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let shape = self.double.shape();
        match shape.flow {
            FlowKind::Nsf => {
                vec![("splines", format!("{} bins between ±{}", shape.bins, shape.tail_bound))]
            }
            FlowKind::Maf => vec![("permutations", format!("of seed {}", shape.permutation_seed))],
        }
    }
}
