//! The sizes of a PCP-Map and where each of its tensors is in the flat parameter vector.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::map::{Constraint, ReferenceKind, TensorSpec};
use crate::{Error, Result};

/// What is applied to the network's scalar output s_K before it enters the potential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OutputActivation {
    /// G = a·s_K + ½b‖x‖².
    #[default]
    Identity,
    /// G = a·softplus(s_K) + ½b‖x‖².
    Softplus,
}

/// In which of its inputs the potential is convex, and what its layers see of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Convexity {
    /// Partially input-convex: convex in x, the layers gated by contexts of y.
    #[default]
    Partial,
    /// Fully input-convex, for a map without given columns: s₀ = X₀ x + b₀ and s_k = A_k w_k + X_k x + b_k with
    /// A_k ≥ 0 and X_k free, as no gate depends on anything (p_k = gate_k = 1).
    Full,
    /// [`Full`](Self::Full) with augmented inputs, as in convex potential flows and the published joint maps: the
    /// lower half of the features of layers 1 ≤ k < K sees x alone, softplus(X_k x + b_k), because the rows of A_k
    /// above it are zero.
    Augmented,
}

/// The layer before the potential, or before the transforms of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Front {
    /// Nothing: potential or flow see x.
    #[default]
    None,
    /// u = L(y)(x − μ(y)): they see x centred and scaled by y.
    Affine,
    /// One coordinate after the other is centred and scaled by y and the coordinates before; for flows alone.
    Autoregressive,
}

impl Front {
    /// The names of all, as in a settings file.
    pub const NAMES: [&'static str; 3] = ["none", "autoregressive", "affine"];
}

/// The sizes of a partially input-convex network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcpShape {
    /// n, the number of target columns x.
    pub target: usize,
    /// m, the number of given columns y; 0 makes an unconditional map.
    pub given: usize,
    /// w, the width of the layers that carry x.
    pub feature_width: usize,
    /// u, the width of the layers that carry y.
    pub context_width: usize,
    /// K, the number of hidden layers.
    pub depth: usize,
    /// The output activation.
    #[serde(default)]
    pub output: OutputActivation,
    /// Whether contexts of y gate the layers; fully convex networks have neither y nor contexts.
    #[serde(default)]
    pub convexity: Convexity,
    /// The layer before the potential; none in a fully convex network.
    #[serde(default)]
    pub front: Front,
    /// The distribution of z.
    #[serde(default)]
    pub reference: ReferenceKind,
}

/// The parameters of a heavy tail, log ε/(1 − ε) and log (ν − 1), and the bounds of their magnitudes: ε between 0.001 and 0.999, so
/// that there is always a tail, and ν between 1.25 and 5, so that it is always heavy.
pub(crate) const TAIL: [(&str, f64); 2] =
    [("tail_logit", 6.906_754_778_648_554), ("log_degrees", 1.386_294_361_119_890_6)];

/// Largest number of parameters we are willing to hold (4 GiB in single precision).
const MOST_PARAMETERS: usize = 1 << 30;

impl PcpShape {
    /// Checks every size, and that the parameters fit in memory.
    pub fn validate(&self) -> Result<()> {
        let least = [
            ("target", self.target),
            ("feature_width", self.feature_width),
            ("context_width", self.context_width),
            ("depth", self.depth),
        ];
        for (name, value) in least {
            if value == 0 {
                return Err(Error::setting(name, "must be at least 1"));
            }
        }
        if self.is_full() && self.given > 0 {
            return Err(Error::setting(
                "convexity",
                format!("a fully convex network has no given columns, but there are {}", self.given),
            ));
        }
        if self.front == Front::Autoregressive {
            return Err(Error::setting("front", "autoregressive is for flows: choose none or affine"));
        }
        if self.front == Front::Affine && self.given == 0 {
            return Err(Error::setting("front", "needs given columns, which place and scale are read from"));
        }
        let sizes = [self.target, self.given, self.feature_width, self.context_width];
        let largest = sizes.into_iter().max().unwrap_or(0);
        let too_large =
            || Error::setting("feature_width", "the network would have more than 2^30 parameters");
        if self.depth > 1000 {
            return Err(Error::setting("depth", format!("{} layers are more than 1000", self.depth)));
        }
        if largest > MOST_PARAMETERS {
            return Err(too_large());
        }
        let (n, m, w, u) =
            (self.target as u128, self.given as u128, self.feature_width as u128, self.context_width as u128);
        let front = self.front_len() as u128;
        let layer = (u + w + n + w + front) * (u.max(m) + 1) + w * (w + n);
        if layer * (self.depth as u128 + 1) > MOST_PARAMETERS as u128 * 4 {
            return Err(too_large());
        }
        if Layout::new(*self).parameters > MOST_PARAMETERS {
            return Err(too_large());
        }
        Ok(())
    }

    /// Whether the network is convex in all it sees.
    pub(crate) fn is_full(&self) -> bool {
        self.convexity != Convexity::Partial
    }

    /// The numbers that make μ and the lower triangle of L.
    pub(crate) fn front_len(&self) -> usize {
        match self.front {
            Front::None | Front::Autoregressive => 0,
            Front::Affine => self.target.saturating_mul(self.target.saturating_add(3)) / 2,
        }
    }

    /// Rows of A_k, 0 < k < K, that may differ from zero.
    pub(crate) fn fed_width(&self) -> usize {
        match self.convexity {
            Convexity::Augmented => self.feature_width.div_ceil(2),
            Convexity::Partial | Convexity::Full => self.feature_width,
        }
    }

    /// The number of parameters, dead ones (Lvw_K and bw_K under the identity output, the
    /// zero rows of augmented layers) included.
    pub fn parameters(&self) -> usize {
        Layout::new(*self).parameters
    }
}

/// Layer k = 0..=K of the network; k = K is the scalar output layer.
///
/// All maps that act on the context v_k are stacked into one matrix C_k with one bias β_k, so that a layer's
/// contexts cost a single product:
///
/// C_k v_k + β_k = (pre-activation of v_{k+1}; pre-activation of p_k; gate of x; c_k; share of the front, k = 0 and K).
///
/// The block "gate" multiplies x: it is q_k for k ≥ 1, and for k = 0 (where w₀ = x) the rectified p₀. X_k is the
/// matrix behind that gate: Lx_k for k ≥ 1 and the non-negative Lw_0 for k = 0, so that
///
/// s_k = A_k (p_k ⊙ w_k) + X_k (gate_k ⊙ x) + c_k   with A_0 absent.
///
/// A fully convex network has no C_k: its records hold p_k = gate_k = 1 and c_k = β_k, so that everything above the
/// contexts is the same code.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// Height of C_k.
    pub rows: usize,
    /// Width of C_k: m for k = 0, else u.
    pub cols: usize,
    /// Rows of C_k that make v_{k+1}; empty at k = K.
    pub v: Range<usize>,
    /// Rows that make p_k; empty at k = 0.
    pub p: Range<usize>,
    /// Rows that make the gate of x.
    pub gate: Range<usize>,
    /// Rows that make c_k.
    pub c: Range<usize>,
    /// Rows that make the front's share, at k = 0 and k = K; else empty.
    pub front: Range<usize>,
    /// Height of s_k: w, or 1 at k = K.
    pub outputs: usize,
    /// Where the layer's contexts start in a row's context record.
    pub record: usize,
    /// C_k in the parameter vector, column-major.
    pub weight: Range<usize>,
    /// β_k in the parameter vector: as high as C_k, or c_k alone in a fully convex network.
    pub bias: Range<usize>,
    /// X_k in the parameter vector, column-major.
    pub input: Range<usize>,
    /// A_k in the parameter vector, column-major; empty at k = 0.
    pub feature: Range<usize>,
}

impl Layer {
    /// Where the bias of row `row` of the record is in the parameter vector.
    pub(crate) fn bias_at(&self, row: usize) -> usize {
        self.bias.end + row - self.rows
    }
}

/// Every layer's place in the flat parameter vector.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub shape: PcpShape,
    pub layers: Vec<Layer>,
    pub gamma: Range<usize>,
    /// log ε/(1 − ε) and log (ν − 1) of a reference with heavy tails; else empty.
    pub tail: Range<usize>,
    pub parameters: usize,
    /// Length of one row's context record, padded so that its stride is not a power of two.
    pub record: usize,
}

impl Layout {
    pub(crate) fn new(shape: PcpShape) -> Self {
        let PcpShape { target: n, given: m, feature_width: w, context_width: u, depth, .. } = shape;
        let full = shape.is_full();
        let mut next = 0;
        let mut take = |length: usize| {
            let range = next..next + length;
            next += length;
            range
        };
        let mut record = 0;
        let layers = (0..=depth)
            .map(|k| {
                let outputs = if k < depth { w } else { 1 };
                let v = 0..if k < depth && !full { u } else { 0 };
                let p = v.end..v.end + if k > 0 { w } else { 0 };
                let gate = p.end..p.end + n;
                let c = gate.end..gate.end + outputs;
                let share = if k == 0 || k == depth { shape.front_len() } else { 0 };
                let front = c.end..c.end + share;
                let (rows, cols) = (
                    front.end,
                    if full {
                        0
                    } else if k == 0 {
                        m
                    } else {
                        u
                    },
                );
                let layer = Layer {
                    rows,
                    cols,
                    v,
                    p,
                    gate,
                    c,
                    front,
                    outputs,
                    record,
                    weight: take(rows * cols),
                    bias: take(if full { outputs } else { rows }),
                    input: take(outputs * n),
                    feature: take(if k > 0 { outputs * w } else { 0 }),
                };
                record += rows;
                layer
            })
            .collect();
        let gamma = take(3);
        let tail = take(match shape.reference {
            ReferenceKind::Gaussian => 0,
            ReferenceKind::HeavyTailed => 2,
        });
        let record = record.next_multiple_of(16) + if record.next_multiple_of(16) % 32 == 0 { 16 } else { 0 };
        Self { shape, layers, gamma, tail, parameters: next, record }
    }

    /// The tensors by the names of the printed equations; see `docs/model-file.md`.
    pub(crate) fn tensors(&self) -> Vec<TensorSpec> {
        let mut specs = Vec::new();
        for (k, layer) in self.layers.iter().enumerate() {
            let full = self.shape.is_full();
            let mut stacked = |name: &str, bias: &str, rows: &Range<usize>| {
                if rows.is_empty() {
                    return;
                }
                if !full {
                    specs.push(TensorSpec {
                        name: format!("{name}.{k}"),
                        rows: rows.len(),
                        cols: Some(layer.cols),
                        offset: layer.weight.start + rows.start,
                        stride: layer.rows,
                        constraint: Constraint::Free,
                    });
                }
                specs.push(TensorSpec {
                    name: format!("{bias}.{k}"),
                    rows: rows.len(),
                    cols: None,
                    offset: layer.bias_at(rows.start),
                    stride: layer.rows,
                    constraint: Constraint::Free,
                });
            };
            stacked("Lv", "bv", &layer.v);
            stacked("Lvw", "bw", &layer.c);
            if !full && k == 0 {
                stacked("Lwv", "bwv", &layer.gate);
            } else if !full {
                stacked("Lwv", "bwv", &layer.p);
                stacked("Lxv", "bxv", &layer.gate);
            }
            stacked("Lf", "bf", &layer.front);
            let mut dense = |name: &str, range: &Range<usize>, rows: usize, constraint| {
                if range.is_empty() {
                    return;
                }
                specs.push(TensorSpec {
                    name: format!("{name}.{k}"),
                    rows,
                    cols: Some(range.len() / layer.outputs),
                    offset: range.start,
                    stride: layer.outputs,
                    constraint,
                });
            };
            if k == 0 && !full {
                dense("Lw", &layer.input, layer.outputs, Constraint::NonNegative);
            } else {
                let fed = layer.outputs.min(self.shape.fed_width());
                dense("Lw", &layer.feature, fed, Constraint::NonNegative);
                dense("Lx", &layer.input, layer.outputs, Constraint::Free);
            }
        }
        specs.push(TensorSpec {
            name: "gamma".into(),
            rows: 3,
            cols: None,
            offset: self.gamma.start,
            stride: 3,
            constraint: Constraint::Free,
        });
        for ((name, bound), offset) in TAIL.into_iter().zip(self.tail.clone()) {
            specs.push(TensorSpec {
                name: name.into(),
                rows: 1,
                cols: None,
                offset,
                stride: 1,
                constraint: Constraint::Within(bound),
            });
        }
        specs
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shape(target: usize, given: usize, width: usize, depth: usize) -> PcpShape {
        PcpShape {
            target,
            given,
            feature_width: width,
            context_width: width,
            depth,
            output: OutputActivation::Identity,
            convexity: Convexity::Partial,
            front: Front::None,
            reference: ReferenceKind::Gaussian,
        }
    }

    #[test]
    fn shallow_water_shape_has_the_published_number_of_parameters() {
        assert_eq!(shape(14, 3500, 256, 3).parameters(), 2_455_218);
    }

    #[test]
    fn tensors_tile_the_parameter_vector_without_overlap() {
        let fronted = PcpShape { front: Front::Affine, ..shape(3, 2, 5, 1) };
        let heavy = PcpShape { reference: ReferenceKind::HeavyTailed, ..shape(2, 3, 4, 2) };
        for shape in [shape(1, 0, 3, 1), shape(4, 9, 8, 2), shape(3, 2, 5, 4), fronted, heavy] {
            let layout = Layout::new(shape);
            let mut seen = vec![0; layout.parameters];
            for spec in layout.tensors() {
                for index in spec.indices() {
                    seen[index] += 1;
                }
            }
            assert!(seen.iter().all(|&count| count == 1), "{shape:?}");
        }
    }

    #[test]
    fn fully_convex_networks_have_no_contexts_and_augmented_ones_half_the_feeding_weights() {
        let (n, w, depth) = (3, 6, 4);
        let full = PcpShape { convexity: Convexity::Full, ..shape(n, 0, w, depth) };
        let count = depth * w * n + n + (depth - 1) * w * w + w + depth * w + 1 + 3;
        assert_eq!(full.parameters(), count);
        let listed =
            |shape| Layout::new(shape).tensors().iter().map(|spec| spec.indices().count()).sum::<usize>();
        assert_eq!(count, listed(full));
        let augmented = PcpShape { convexity: Convexity::Augmented, ..full };
        assert_eq!(count - (depth - 1) * w * w / 2, listed(augmented));
        assert!(full.validate().is_ok());
        let text = PcpShape { given: 2, ..full }.validate().unwrap_err().to_string();
        assert!(text.contains("convexity") && text.contains("2"), "{text}");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(shape(0, 2, 3, 1).validate().is_err());
        assert!(shape(1, 2, 3, 0).validate().is_err());
        assert!(shape(1, 2, usize::MAX / 2, 1).validate().is_err());
        assert!(shape(1, usize::MAX, 3, 1).validate().is_err());
        assert!(shape(1, 0, 1, 1).validate().is_ok());
        assert!(PcpShape { front: Front::Affine, ..shape(1, 0, 1, 1) }.validate().is_err());
    }
}
