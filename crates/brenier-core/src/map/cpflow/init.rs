//! Starting values: random weights, then normalisations that make the first batch standard at every layer.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::shape::{Layout, Norm};
use super::weights::LEAST_FACTOR;
use super::{CpFlowMap, CpFlowShape, LogDet};
use crate::Result;
use crate::kernel::Real;
use crate::map::Trainable;
use crate::statistics::moments;

/// Added to a standard deviation before its logarithm is taken.
const LEAST_DEVIATION: f64 = 1e-6;
/// Below this a unit has the same value in every row of the batch: its scale is left alone.
const CONSTANT: f64 = 1e-5;

impl<T: Real> CpFlowMap<T> {
    /// A map with random parameters, the same for the same seed, before any normalisation has seen data.
    ///
    /// Weights and biases U(±1/√fan-in), inside softplus too; Wz, Wx and their biases 0, so that the gates start the same
    /// for all y; w₁ = 0 and w₀ = log(e − 1), so that b = 1.
    pub fn initial(shape: CpFlowShape, seed: u64) -> Result<Self> {
        shape.validate()?;
        let layout = Layout::new(shape);
        let mut parameters = vec![T::ZERO; layout.parameters];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for spec in layout.tensors() {
            let name = spec.name.split_once('.').filter(|(first, _)| first.starts_with("block"));
            let name = name.map_or(spec.name.as_str(), |(_, rest)| rest);
            let kind = name.split('.').next().unwrap_or(name);
            let fan_in = match kind {
                "B" | "b" => shape.given.max(1),
                "X" | "bX" => shape.target,
                "P" | "bP" | "Wc" | "bc" => shape.width,
                _ => 0,
            };
            let bound = if fan_in > 0 { 1.0 / (fan_in as f64).sqrt() } else { 0.0 };
            for (place, index) in spec.indices().enumerate() {
                let value = match kind {
                    "w" => [(1.0_f64.exp() - 1.0).ln(), 0.0][place],
                    // Factor 1.
                    "outer" | "scale" if name.contains("scale") => (1.0 - LEAST_FACTOR).ln(),
                    _ if bound > 0.0 => bound * (2.0 * rng.random::<f64>() - 1.0),
                    _ => 0.0,
                };
                parameters[index] = T::from_f64(value);
            }
        }
        Ok(Self { layout, parameters, log_det: LogDet::Exact })
    }

    /// Sets every activation normalisation, from the first to the last, so that its values over the rows of a batch have mean
    /// 0 and variance 1: shift = −mean, scale = −log(deviation + 10⁻⁶), the deviation with divisor B.
    ///
    /// The normalisations of a map as [`initial`](Self::initial) makes it do nothing, so that one evaluation shows the values
    /// that the next of them will see.
    pub fn normalise(&mut self, x: &[T], y: &[T]) -> Result<()> {
        let (n, h, _) = self.sizes();
        let rows = x.len() / n;
        let mut workspace = self.workspace(rows);
        let (batch_x, batch_y) = self.load(&mut workspace, rows);
        batch_x.copy_from_slice(x);
        batch_y.copy_from_slice(y);
        self.set_norm(&self.layout.outer[0].clone(), x);
        for l in 0..self.layout.blocks.len() {
            let block = self.layout.blocks[l].clone();
            self.loss(&mut workspace)?;
            self.set_norm(&block.context_norm, &workspace.raw_contexts(self, l));
            for (k, layer) in block.layers.iter().enumerate() {
                self.loss(&mut workspace)?;
                self.set_norm(&layer.norm, &workspace.gather(h, |shard| &shard.passes[l].hidden[k].s));
            }
            self.loss(&mut workspace)?;
            self.set_norm(&block.head_norm, &workspace.gather(1, |shard| &shard.passes[l].output));
            self.loss(&mut workspace)?;
            let gradients = workspace.gather(n, |shard| &shard.passes[l].gradient);
            self.set_norm(&self.layout.outer[l + 1].clone(), &gradients);
        }
        Ok(())
    }

    /// Shift and scale from the values of some rows.
    fn set_norm(&mut self, norm: &Norm, values: &[T]) {
        let length = norm.shift.len();
        for i in 0..length {
            let column = values.iter().skip(i).step_by(length).map(|value| value.to_f64());
            let (mean, deviation) = moments(column);
            if !(mean.is_finite() && deviation.is_finite()) {
                continue;
            }
            self.parameters[norm.shift.start + i] = T::from_f64(-mean);
            if deviation > CONSTANT {
                self.parameters[norm.scale.start + i] = T::from_f64(-(deviation + LEAST_DEVIATION).ln());
            }
        }
    }
}
