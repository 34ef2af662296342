//! Starting values of the parameters.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::shape::{Layout, TAIL};
use super::{PcpMap, PcpShape};
use crate::Result;
use crate::kernel::Real;
use crate::map::Constraint;

/// How a PCP-Map starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Initialisation {
    /// Ours: as [`Authors`](Self::Authors) for everything that acts on y, gates opened at 1, and non-negative
    /// weights drawn so that a layer's features keep their scale.
    #[default]
    Balanced,
    /// The authors': weights and biases U(±1/√fan-in), A_k clipped at 0, and A_k and bʷ_k of layers k ≥ 1 divided
    /// by the width. They keep that divisor outside the parameters; here it is part of them, and Adam's step on
    /// these tensors is divided by the width instead, which comes to the same.
    Authors,
}

/// log ε/(1 − ε) and log (ν − 1) before training: ε = 0.018, ν = 3.
const START_TAIL: [f64; 2] = [-4.0, std::f64::consts::LN_2];

impl<T: Real> PcpMap<T> {
    /// A map with random parameters, the same for the same seed.
    pub fn initial(shape: PcpShape, how: Initialisation, seed: u64) -> Result<Self> {
        shape.validate()?;
        let layout = Layout::new(shape);
        let mut parameters = vec![T::ZERO; layout.parameters];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for spec in layout.tensors() {
            let (kind, _) = spec.name.split_once('.').unwrap_or((spec.name.as_str(), ""));
            let layer = spec.name.rsplit('.').next().and_then(|k| k.parse::<usize>().ok()).unwrap_or(0);
            if kind == "gamma" {
                for (index, value) in spec.indices().zip([0.0, 0.1, 0.1]) {
                    parameters[index] = T::from_f64(value);
                }
                continue;
            }
            if let Some(tail) = TAIL.iter().position(|(name, _)| *name == kind) {
                parameters[spec.offset] = T::from_f64(START_TAIL[tail]);
                continue;
            }
            if matches!(kind, "Lf" | "bf") {
                // The front starts as the identity, or at a regression.
                continue;
            }
            let inputs = match kind {
                "Lw" | "bw" => {
                    if layer == 0 {
                        shape.target
                    } else {
                        shape.feature_width
                    }
                }
                "Lx" => shape.target,
                _ => layout.layers[layer].cols,
            };
            let bound = 1.0 / (inputs.max(1) as f64).sqrt();
            let scaled = layer > 0 && matches!(kind, "Lw" | "bw") && how == Initialisation::Authors;
            let scale = if scaled { 1.0 / shape.feature_width as f64 } else { 1.0 };
            let bias = kind.starts_with('b');
            for index in spec.indices() {
                let uniform = bound * (2.0 * rng.random::<f64>() - 1.0);
                let value = match spec.constraint {
                    Constraint::NonNegative if how == Initialisation::Balanced && layer > 0 => {
                        uniform.abs() * bound
                    }
                    Constraint::NonNegative => uniform.max(0.0),
                    Constraint::Free if bias && how == Initialisation::Balanced && matches!(kind, "bwv") => {
                        1.0
                    }
                    Constraint::Free | Constraint::Within(_) => uniform,
                };
                parameters[index] = T::from_f64(value * scale);
            }
        }
        Ok(Self { layout, parameters, initialisation: how })
    }
}
