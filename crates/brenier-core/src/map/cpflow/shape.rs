//! The sizes of a CP-Flow and where each of its tensors is in the flat parameter vector.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::map::{Constraint, TensorSpec};
use crate::{Error, Result};

/// The sizes of an amortised convex potential flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpFlowShape {
    /// n, the number of target columns x.
    pub target: usize,
    /// m, the number of given columns y; 0 makes an unconditional map.
    pub given: usize,
    /// h, the width of every layer.
    pub width: usize,
    /// K, the number of hidden layers of a potential.
    pub depth: usize,
    /// The number of potentials whose gradients are applied one after the other.
    pub blocks: usize,
}

/// Largest number of parameters we are willing to hold (4 GiB in single precision).
const MOST_PARAMETERS: u128 = 1 << 30;

impl CpFlowShape {
    /// Checks every size, and that the parameters fit in memory.
    pub fn validate(&self) -> Result<()> {
        let least = [
            ("target", self.target),
            ("feature_width", self.width),
            ("depth", self.depth),
            ("blocks", self.blocks),
        ];
        for (name, value) in least {
            if value == 0 {
                return Err(Error::setting(name, "must be at least 1"));
            }
        }
        let most = MOST_PARAMETERS as usize;
        let sizes = [self.target, self.given, self.width, self.depth, self.blocks];
        if sizes.iter().any(|&size| size > most) || self.count() > MOST_PARAMETERS {
            return Err(Error::setting("feature_width", "the network would have more than 2^30 parameters"));
        }
        Ok(())
    }

    /// The number of parameters, sizes checked or not.
    fn count(&self) -> u128 {
        let [n, m, h, depth, blocks] =
            [self.target, self.given, self.width, self.depth, self.blocks].map(|size| size as u128);
        let hidden = 2 * (h * h + h) + h * n + h + 2 * h;
        let gates = (h + n) * (h + 1);
        let block =
            h * (m + 1) + 2 * h + h * (n + 1) + 2 * h + (depth - 1) * hidden + depth * gates + h + n + 4;
        blocks * block + 2 * n * (blocks + 1)
    }

    /// The number of parameters, the shift of the last inner normalisation included, which has no influence.
    pub fn parameters(&self) -> usize {
        Layout::new(*self).parameters
    }
}

/// Places of an activation normalisation v ↦ (v + shift)(exp(scale) + 0.001).
#[derive(Clone, Debug)]
pub(super) struct Norm {
    pub shift: Range<usize>,
    pub scale: Range<usize>,
}

/// Places of hidden layer k = 0..K−1; what layer 0 does not have is empty.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// W_k of P_k, h × h.
    pub feature: Range<usize>,
    /// Bias of P_k.
    pub feature_bias: Range<usize>,
    /// X_k, h × n; A₀ at k = 0.
    pub input: Range<usize>,
    /// bX_k; a₀ at k = 0.
    pub input_bias: Range<usize>,
    pub norm: Norm,
}

/// Places of one potential.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// B, h × m.
    pub context: Range<usize>,
    pub context_bias: Range<usize>,
    pub context_norm: Norm,
    /// All that acts on the context c, one below the other: Wz_1..Wz_K, Wx_1..Wx_K, Wc_1..Wc_{K−1}.
    pub gates: Range<usize>,
    pub gates_bias: Range<usize>,
    pub layers: Vec<Layer>,
    /// W_K of P_K, one row.
    pub head: Range<usize>,
    /// x_K.
    pub head_input: Range<usize>,
    pub head_norm: Norm,
    /// w₀ and w₁.
    pub mixture: Range<usize>,
}

/// Every tensor's place in the flat parameter vector, and every context's place in a row's record.
///
/// A record has a part for each block, which holds AN_c(By + b), then c, then what the gates make of it: p_1..p_K, q_1..q_K, c_1..c_{K−1}.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub shape: CpFlowShape,
    pub blocks: Vec<Block>,
    /// The normalisations before the first, between the, and after the last potential.
    pub outer: Vec<Norm>,
    pub parameters: usize,
    /// Height of the stacked gates.
    pub gate_rows: usize,
    /// Length of one block's part of a row's record.
    pub part: usize,
    /// Length of one row's record, padded so that its stride is not a power of two.
    pub record: usize,
}

impl Layout {
    pub(super) fn new(shape: CpFlowShape) -> Self {
        let CpFlowShape { target: n, given: m, width: h, depth, blocks } = shape;
        let gate_rows = depth * (h + n) + (depth - 1) * h;
        let mut next = 0;
        let mut take = |length: usize| {
            let range = next..next + length;
            next += length;
            range
        };
        let mut outer = vec![Norm { shift: take(n), scale: take(n) }];
        let mut places = Vec::with_capacity(blocks);
        for _ in 0..blocks {
            let context = take(h * m);
            let context_bias = take(h);
            let context_norm = Norm { shift: take(h), scale: take(h) };
            let (gates, gates_bias) = (take(gate_rows * h), take(gate_rows));
            let layers = (0..depth)
                .map(|k| {
                    let above = usize::from(k > 0);
                    Layer {
                        feature: take(above * h * h),
                        feature_bias: take(above * h),
                        input: take(h * n),
                        input_bias: take(h),
                        norm: Norm { shift: take(h), scale: take(h) },
                    }
                })
                .collect();
            places.push(Block {
                context,
                context_bias,
                context_norm,
                gates,
                gates_bias,
                layers,
                head: take(h),
                head_input: take(n),
                head_norm: Norm { shift: take(1), scale: take(1) },
                mixture: take(2),
            });
            outer.push(Norm { shift: take(n), scale: take(n) });
        }
        let part = 2 * h + gate_rows;
        let record = (blocks * part).next_multiple_of(16);
        let record = record + if record % 32 == 0 { 16 } else { 0 };
        Self { shape, blocks: places, outer, parameters: next, gate_rows, part, record }
    }

    /// All gates in a block's part of a record.
    pub(super) fn gates(&self) -> Range<usize> {
        2 * self.shape.width..2 * self.shape.width + self.gate_rows
    }

    /// p_k in a block's part, 1 ≤ k ≤ K.
    pub(super) fn p(&self, k: usize) -> Range<usize> {
        let h = self.shape.width;
        (k + 1) * h..(k + 2) * h
    }

    /// q_k in a block's part, 1 ≤ k ≤ K.
    pub(super) fn q(&self, k: usize) -> Range<usize> {
        let CpFlowShape { target: n, width: h, depth, .. } = self.shape;
        let start = (2 + depth) * h + (k - 1) * n;
        start..start + n
    }

    /// The constant of layer k in a block's part, 1 ≤ k < K.
    pub(super) fn c(&self, k: usize) -> Range<usize> {
        let CpFlowShape { target: n, width: h, depth, .. } = self.shape;
        let start = (2 + depth) * h + depth * n + (k - 1) * h;
        start..start + h
    }

    /// The tensors by the names of the printed equations; see `docs/model-file.md`.
    pub(super) fn tensors(&self) -> Vec<TensorSpec> {
        let CpFlowShape { target: n, given: m, width: h, depth, blocks } = self.shape;
        let mut specs = Vec::new();
        let mut push = |name: String, rows: usize, cols: Option<usize>, offset: usize, stride: usize| {
            specs.push(TensorSpec { name, rows, cols, offset, stride, constraint: Constraint::Free });
        };
        for (index, norm) in self.outer.iter().enumerate() {
            push(format!("outer.shift.{index}"), n, None, norm.shift.start, n);
            push(format!("outer.scale.{index}"), n, None, norm.scale.start, n);
        }
        for (index, block) in self.blocks.iter().enumerate() {
            let named = |name: &str| match blocks {
                1 => name.to_owned(),
                _ => format!("block{}.{name}", index + 1),
            };
            push(named("B"), h, Some(m), block.context.start, h);
            push(named("b"), h, None, block.context_bias.start, h);
            push(named("shift.c"), h, None, block.context_norm.shift.start, h);
            push(named("scale.c"), h, None, block.context_norm.scale.start, h);
            for k in 1..=depth {
                for (name, bias, rows) in [("Wz", "bz", self.p(k)), ("Wx", "bx", self.q(k))] {
                    let row = rows.start - 2 * h;
                    let (weight, bias) = (named(&format!("{name}.{k}")), named(&format!("{bias}.{k}")));
                    push(weight, rows.len(), Some(h), block.gates.start + row, self.gate_rows);
                    push(bias, rows.len(), None, block.gates_bias.start + row, rows.len());
                }
            }
            for (k, layer) in block.layers.iter().enumerate() {
                if k > 0 {
                    let row = self.c(k).start - 2 * h;
                    push(named(&format!("P.{k}")), h, Some(h), layer.feature.start, h);
                    push(named(&format!("bP.{k}")), h, None, layer.feature_bias.start, h);
                    push(named(&format!("Wc.{k}")), h, Some(h), block.gates.start + row, self.gate_rows);
                    push(named(&format!("bc.{k}")), h, None, block.gates_bias.start + row, h);
                }
                push(named(&format!("X.{k}")), h, Some(n), layer.input.start, h);
                push(named(&format!("bX.{k}")), h, None, layer.input_bias.start, h);
                push(named(&format!("shift.{k}")), h, None, layer.norm.shift.start, h);
                push(named(&format!("scale.{k}")), h, None, layer.norm.scale.start, h);
            }
            push(named(&format!("P.{depth}")), 1, Some(h), block.head.start, 1);
            push(named(&format!("X.{depth}")), 1, Some(n), block.head_input.start, 1);
            push(named(&format!("shift.{depth}")), 1, None, block.head_norm.shift.start, 1);
            push(named(&format!("scale.{depth}")), 1, None, block.head_norm.scale.start, 1);
            push(named("w"), 2, None, block.mixture.start, 2);
        }
        specs
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shape(target: usize, given: usize, width: usize, depth: usize, blocks: usize) -> CpFlowShape {
        CpFlowShape { target, given, width, depth, blocks }
    }

    #[test]
    fn shallow_water_shapes_have_the_published_numbers_of_parameters() {
        assert_eq!(shape(100, 3500, 512, 5, 1).parameters(), 5_729_260);
        assert_eq!(shape(14, 3500, 256, 3, 1).parameters(), 1_381_492);
    }

    #[test]
    fn tensors_tile_the_parameter_vector_without_overlap() {
        for shape in [shape(1, 0, 3, 1, 1), shape(4, 9, 8, 2, 1), shape(3, 2, 5, 4, 3)] {
            let layout = Layout::new(shape);
            let mut seen = vec![0; layout.parameters];
            for index in layout.tensors().iter().flat_map(TensorSpec::indices) {
                seen[index] += 1;
            }
            assert!(seen.iter().all(|&count| count == 1), "{shape:?}");
            assert_eq!(layout.parameters as u128, shape.count());
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(shape(0, 2, 3, 1, 1).validate().is_err());
        assert!(shape(1, 2, 3, 0, 1).validate().is_err());
        assert!(shape(1, 2, 3, 1, 0).validate().is_err());
        assert!(shape(1, 2, usize::MAX / 2, 1, 1).validate().is_err());
        assert!(shape(1, 0, 1, 1, 1).validate().is_ok());
    }
}
