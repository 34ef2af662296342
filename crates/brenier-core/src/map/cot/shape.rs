//! The sizes of a COT-Flow and where each of its tensors is in the flat parameter vector.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::map::embed::{Activation, Embedding};
use crate::map::{Constraint, TensorSpec};
use crate::{Error, Result};

/// The authors' box: network weights stay in [−1.5, 1.5].
pub(super) const BOX: Constraint = Constraint::Within(1.5);

/// The sizes of the potential Φ(t, x; y).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CotShape {
    /// n, the number of target columns x.
    pub target: usize,
    /// m, the number of given columns y; 0 makes an unconditional map.
    pub given: usize,
    /// w, the width of every layer.
    pub width: usize,
    /// The number of layers, the opening one included: L = depth − 1 of them are residual.
    pub depth: usize,
    /// r, the rank of the quadratic term.
    pub rank: usize,
    /// Widths of the tanh network y ↦ e, trained with the potential, which then reads e in place of y: every layer
    /// but the last ends in tanh. Empty: no embedding, e = y.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub embedding: Vec<usize>,
}

/// Largest number of parameters we are willing to hold (4 GiB in single precision).
const MOST_PARAMETERS: u128 = 1 << 30;

impl CotShape {
    /// A shape with the paper's rank, min(10, n + m + 1).
    pub fn new(target: usize, given: usize, width: usize, depth: usize) -> Self {
        let rank = target.saturating_add(given).saturating_add(1).min(10);
        Self { target, given, width, depth, rank, embedding: Vec::new() }
    }

    /// The same with y embedded by layers of the given widths, and the quadratic term's rank to match.
    pub fn with_embedding(mut self, widths: Vec<usize>) -> Self {
        self.embedding = widths;
        self.rank = self.target.saturating_add(self.features()).saturating_add(1).min(10);
        self
    }

    /// The length of e, or of y where there is no embedding.
    pub fn features(&self) -> usize {
        self.embedding.last().copied().unwrap_or(self.given)
    }

    /// Checks every size, and that the parameters fit in memory.
    pub fn validate(&self) -> Result<()> {
        let least = [
            ("target", self.target, 1),
            ("feature_width", self.width, 1),
            ("depth", self.depth, 2),
            ("rank", self.rank, 1),
        ];
        for (name, value, least) in least {
            if value < least {
                return Err(Error::setting(name, format!("must be at least {least}")));
            }
        }
        if self.given == 0 && !self.embedding.is_empty() {
            return Err(Error::setting("embedding", "there is no given column to embed; leave it out"));
        }
        if self.embedding.contains(&0) {
            return Err(Error::setting("embedding", "every width must be at least 1"));
        }
        let sizes = [self.target, self.given, self.width, self.rank];
        let largest = sizes.iter().chain(&self.embedding).copied().max().unwrap_or(0);
        let too_large =
            || Error::setting("feature_width", "the network would have more than 2^30 parameters");
        if self.depth > 1000 {
            return Err(Error::setting("depth", format!("{} layers are more than 1000", self.depth)));
        }
        if self.embedding.len() > 1000 {
            return Err(Error::setting("embedding", "more than 1000 layers"));
        }
        if largest as u128 > MOST_PARAMETERS {
            return Err(too_large());
        }
        let (w, r, depth) = (self.width as u128, self.rank as u128, self.depth as u128);
        let d = self.target as u128 + self.features() as u128 + 1;
        let embedding = Embedding::count(self.given, &self.embedding);
        if w * (d + 2) + (depth - 1) * w * (w + 1) + d * (r + 1) + 1 + embedding > MOST_PARAMETERS {
            return Err(too_large());
        }
        if r > d {
            return Err(Error::setting("rank", format!("{r} is more than the {d} inputs of the potential")));
        }
        Ok(())
    }

    /// The number of parameters, dead ones (c and the y part of b) included.
    pub fn parameters(&self) -> usize {
        Layout::new(self.clone()).parameters
    }
}

/// Every tensor's place in the flat parameter vector; matrices are column-major.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub shape: CotShape,
    /// L, the number of residual layers.
    pub residual: usize,
    /// The length of e = e(y), or m where there is no embedding.
    pub features: usize,
    /// d = n + features + 1, the length of q = (t, x, e).
    pub inputs: usize,
    /// A₀ (w × d), A₁, …, A_L (w × w).
    pub weights: Vec<Range<usize>>,
    /// b₀, …, b_L.
    pub biases: Vec<Range<usize>>,
    /// a.
    pub head: Range<usize>,
    /// A (d × r).
    pub quadratic: Range<usize>,
    /// b.
    pub linear: Range<usize>,
    /// c.
    pub constant: Range<usize>,
    /// y ↦ e.
    pub embedding: Embedding,
    pub parameters: usize,
    /// Length of one observation's record: (A₀ʸe + b₀, ρ = Aʸᵀe, κ = Aᵗˣρ + bᵗˣ).
    pub record: usize,
}

impl Layout {
    pub(crate) fn new(shape: CotShape) -> Self {
        let CotShape { target: n, given: m, width: w, depth, rank, .. } = shape;
        let features = shape.features();
        let inputs = n + features + 1;
        let mut next = 0;
        let mut take = |length: usize| {
            let range = next..next + length;
            next += length;
            range
        };
        let (mut weights, mut biases) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
        for i in 0..depth {
            weights.push(take(w * if i == 0 { inputs } else { w }));
            biases.push(take(w));
        }
        let (head, quadratic, linear, constant) = (take(w), take(inputs * rank), take(inputs), take(1));
        let embedding = Embedding::new(m, &shape.embedding, Activation::Tanh, next);
        Self {
            shape,
            residual: depth - 1,
            features,
            inputs,
            weights,
            biases,
            head,
            quadratic,
            linear,
            constant,
            parameters: embedding.end().unwrap_or(next),
            embedding,
            record: w + rank + n + 1,
        }
    }

    /// ρ's place in a record.
    pub(super) fn rho(&self) -> Range<usize> {
        self.shape.width..self.shape.width + self.shape.rank
    }

    /// κ's place in a record.
    pub(super) fn kappa(&self) -> Range<usize> {
        self.shape.width + self.shape.rank..self.record
    }

    /// The tensors by the names of the printed equations.
    pub(crate) fn tensors(&self) -> Vec<TensorSpec> {
        let (w, d) = (self.shape.width, self.inputs);
        let matrix = |name: String, rows: usize, cols: usize, range: &Range<usize>, constraint| TensorSpec {
            name,
            rows,
            cols: Some(cols),
            offset: range.start,
            stride: rows,
            constraint,
        };
        let vector = |name: String, range: &Range<usize>, constraint| TensorSpec {
            name,
            rows: range.len(),
            cols: None,
            offset: range.start,
            stride: range.len(),
            constraint,
        };
        let mut specs = Vec::with_capacity(2 * self.weights.len() + 4);
        for (i, (weight, bias)) in self.weights.iter().zip(&self.biases).enumerate() {
            specs.push(matrix(format!("A{i}"), w, if i == 0 { d } else { w }, weight, BOX));
            specs.push(vector(format!("b{i}"), bias, BOX));
        }
        specs.push(vector("a".into(), &self.head, BOX));
        specs.push(matrix("A".into(), d, self.shape.rank, &self.quadratic, Constraint::Free));
        specs.push(vector("b".into(), &self.linear, Constraint::Free));
        specs.push(vector("c".into(), &self.constant, Constraint::Free));
        specs.extend(self.embedding.tensors());
        specs
    }
}
