//! CP-Flow as a method of the list: settings, defaults, search spaces, training and trained map.

use std::sync::Arc;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{CpFlowInverter, CpFlowMap, CpFlowShape, LogDet};
use crate::map::batch::both_precisions;
use crate::map::convex::InverseSettings;
use crate::map::convex::demand_solved;
use crate::map::method::{
    Fill, ListedMethod, MethodInfo, MethodSpec, Problem, SettingInfo, SettingKind, SizeAdvice, Training,
    default_width,
};
use crate::map::narrow;
use crate::map::{Certificate, Inversion, SampleSettings, TransportMap};
use crate::train::{Outcome, TrainSettings};
use crate::{Error, Result};

/// The settings of an amortised CP-Flow; `None` chooses by the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CpFlowSettings {
    /// Width of every layer.
    #[serde(alias = "width")]
    pub feature_width: Option<usize>,
    /// Number of hidden layers of a potential.
    pub depth: Option<usize>,
    /// Number of potentials, one after the other.
    pub blocks: Option<usize>,
    /// How the training loss has its log-determinant.
    pub log_det: LogDet,
}

impl CpFlowSettings {
    /// The network for n target and m given variables.
    fn shape(&self, target: usize, given: usize) -> CpFlowShape {
        CpFlowShape {
            target,
            given,
            width: self.feature_width.unwrap_or(64),
            depth: self.depth.unwrap_or(DEPTH),
            blocks: self.blocks.unwrap_or(1),
        }
    }
}

/// Hidden layers by default.
const DEPTH: usize = 3;

impl MethodSpec for CpFlowSettings {
    fn validate(&self) -> Result<()> {
        self.shape(1, 1).validate()
    }

    fn resolve(&mut self, problem: Problem, train: &mut TrainSettings) {
        self.feature_width.get_or_insert(default_width(problem));
        self.depth.get_or_insert(DEPTH);
        self.blocks.get_or_insert(1);
        train.resolve(problem.rows, 64);
    }

    fn parameters(&self, target: usize, given: usize) -> Result<usize> {
        let shape = self.shape(target, given);
        shape.validate()?;
        Ok(shape.parameters())
    }

    fn train(&self, training: Training<'_>) -> Result<(Arc<dyn TransportMap>, Outcome)> {
        let Training { data, train_rows, valid_rows, settings, seed, .. } = &training;
        settings.validate()?;
        if train_rows.is_empty() || valid_rows.is_empty() {
            let problem = "leaves no row to train on or none to validate with";
            return Err(Error::setting("valid_fraction", problem));
        }
        let (n, m) = (data.target, data.given);
        let mut map = CpFlowMap::initial(self.shape(n, m), *seed)?.with_log_det(self.log_det);
        // The first batch of the training, in the order in which its loop draws the rows.
        let mut order = train_rows.to_vec();
        let mut rng = ChaCha8Rng::seed_from_u64(*seed);
        rng.set_stream(1);
        order.shuffle(&mut rng);
        order.truncate(settings.batch_size());
        let gather = |values: &[f32], width: usize| -> Vec<f32> {
            order.iter().flat_map(|&row| &values[row as usize * width..][..width]).copied().collect()
        };
        map.normalise(&gather(&data.x, n), &gather(&data.y, m))?;
        let outcome = training.descend(&mut map)?;
        Ok((Arc::new(CpFlowInverter::new(&map)), outcome))
    }

    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>> {
        let zeros = vec![0.0; self.parameters(target, given)?];
        let mut map = CpFlowMap::from_parameters(self.shape(target, given), zeros)?;
        fill(&mut map)?;
        Ok(Arc::new(CpFlowInverter::new(&map)))
    }
}

impl ListedMethod for CpFlowSettings {
    const INFO: MethodInfo = MethodInfo {
        title: "CP-Flow",
        summary: "The gradient of a convex potential between activation normalisations (amortised CP-Flow)",
        settings: &[
            SettingInfo {
                name: "feature_width",
                kind: SettingKind::Whole,
                help: "width of every layer",
                default: "by the table",
            },
            SettingInfo {
                name: "depth",
                kind: SettingKind::Whole,
                help: "number of hidden layers of a potential",
                default: "3",
            },
            SettingInfo {
                name: "blocks",
                kind: SettingKind::Whole,
                help: "number of potentials, one after the other; with more than one the map is not a gradient",
                default: "1",
            },
            SettingInfo {
                name: "log_det",
                kind: SettingKind::Choice(&["exact", "stochastic"]),
                help: "log-determinant of the training loss: exact, or estimated with random probes",
                default: "exact",
            },
        ],
        spaces: &[
            (
                "default",
                "[method]\n\
                 feature_width = [32, 64, 128, 256]\n\
                 depth = [2, 3, 4, 6]\n\
                 [train]\n\
                 batch_size = [32, 64, 128]\n\
                 learning_rate = [0.01, 0.005, 0.002, 0.001]\n",
            ),
            (
                "uci",
                "[method]\n\
                 feature_width = [32, 64, 128, 256]\n\
                 depth = [2, 3, 4, 5, 6, 10]\n\
                 [train]\n\
                 batch_size = [32, 64]\n\
                 learning_rate = [0.01, 0.005, 0.001]\n",
            ),
            (
                "paper",
                "[method]\n\
                 feature_width = [32, 64, 128, 256, 512]\n\
                 depth = [2, 3, 4, 5, 6]\n\
                 [train]\n\
                 batch_size = [32, 64, 128, 256]\n\
                 learning_rate = [0.005, 0.001, 0.0001]\n",
            ),
        ],
        candidates: &[],
        published_pilots: None,
        check_draws: 1000,
        draw_settings: InverseSettings::NAMES,
        size: SizeAdvice::NETWORK,
        penalised: false,
    };
}

impl TransportMap for CpFlowInverter {
    both_precisions!(coarse, fine);

    fn draw(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.only(&CpFlowSettings::INFO)?;
        let (x, inversion) = self.attempt(z, given, observation, &settings.inverse())?;
        if !settings.skip_unsolved {
            demand_solved(&inversion, observation, settings.inverse().tolerance)?;
        }
        Ok((x, inversion))
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
        let blocks = match shape.blocks {
            1 => String::new(),
            blocks => format!(", {blocks} blocks (one to one, but not a Brenier map)"),
        };
        format!("width {}, depth {}{blocks}", shape.width, shape.depth)
    }

    /// With one block ∂z/∂x = diag(α_out) H diag(α_in) has the eigenvalues of the symmetric R H R, R² = diag(α_out α_in).
    fn certify(&self, x: &[f64], y: &[f64]) -> Result<Certificate> {
        let Some(stretch) = self.stretch() else { return Certificate::by_differences(&self.fine, x, y) };
        let (_, mut jacobians) = self.fine.potential_and_hessian(x, y)?;
        let n = stretch.len();
        for matrix in jacobians.chunks_exact_mut(n * n) {
            for j in 0..n {
                for i in 0..n {
                    matrix[i + j * n] *= (stretch[i] * stretch[j]).sqrt();
                }
            }
        }
        Certificate::of_symmetric(&jacobians, n, Some(self.strong_convexity()))
    }
}
