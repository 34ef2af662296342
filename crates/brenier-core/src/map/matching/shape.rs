//! The sizes of a flow-matching map and where each of its tensors is in the flat parameter vector.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::field::TIME_FEATURES;
use crate::map::embed::{Activation, Embedding};
use crate::map::{Constraint, TensorSpec};
use crate::{Error, Result};

/// The sizes of the field v(t, x; y).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatchingShape {
    /// n, the number of target columns x.
    pub target: usize,
    /// m, the number of given columns y; 0 makes an unconditional map.
    pub given: usize,
    /// w, the width of every layer.
    pub width: usize,
    /// K, the number of residual blocks, two layers each.
    pub blocks: usize,
    /// Widths of the tanh network y ↦ e, trained with the field, which then reads e in place of y. Empty: e = y.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub embedding: Vec<usize>,
}

/// Largest number of parameters we are willing to hold (4 GiB in single precision).
const MOST_PARAMETERS: u128 = 1 << 30;

impl MatchingShape {
    /// The length of e, or of y where there is no embedding.
    pub fn features(&self) -> usize {
        self.embedding.last().copied().unwrap_or(self.given)
    }

    /// Checks every size, and that the parameters fit in memory.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [("target", self.target), ("feature_width", self.width), ("blocks", self.blocks)]
        {
            if value < 1 {
                return Err(Error::setting(name, "must be at least 1"));
            }
        }
        if self.given == 0 && !self.embedding.is_empty() {
            return Err(Error::setting("embedding", "there is no given column to embed; leave it out"));
        }
        if self.embedding.contains(&0) {
            return Err(Error::setting("embedding", "every width must be at least 1"));
        }
        let too_large =
            || Error::setting("feature_width", "the network would have more than 2^30 parameters");
        let sizes = [self.target, self.given, self.width];
        let largest = sizes.iter().chain(&self.embedding).copied().max().unwrap_or(0);
        if self.blocks > 1000 {
            return Err(Error::setting("blocks", format!("{} blocks are more than 1000", self.blocks)));
        }
        if self.embedding.len() > 1000 {
            return Err(Error::setting("embedding", "more than 1000 layers"));
        }
        if largest as u128 > MOST_PARAMETERS {
            return Err(too_large());
        }
        let (n, w, k) = (self.target as u128, self.width as u128, self.blocks as u128);
        let inputs = self.features() as u128 + TIME_FEATURES as u128 + 1;
        let own = (k + 1) * w * inputs + w * n + k * (2 * w * w + w) + n * (w + 1);
        if own + Embedding::count(self.given, &self.embedding) > MOST_PARAMETERS {
            return Err(too_large());
        }
        Ok(())
    }

    /// The number of parameters.
    pub fn parameters(&self) -> usize {
        Layout::new(self.clone()).parameters
    }
}

/// Every tensor's place in the flat parameter vector; matrices are column-major.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub shape: MatchingShape,
    /// The length of e.
    pub features: usize,
    /// (K + 1)w, the length of what a row takes from y and t: w numbers for h₀, then w for each s_i.
    pub record: usize,
    /// C ((K + 1)w × features).
    pub context: Range<usize>,
    /// T ((K + 1)w × time features).
    pub time: Range<usize>,
    /// c ((K + 1)w).
    pub bias: Range<usize>,
    /// W (w × n).
    pub opening: Range<usize>,
    /// A_1, …, A_K and B_1, …, B_K (w × w), b_1, …, b_K.
    pub inner: Vec<Range<usize>>,
    pub outer: Vec<Range<usize>>,
    pub outer_bias: Vec<Range<usize>>,
    /// V (n × w) and d (n).
    pub head: Range<usize>,
    pub head_bias: Range<usize>,
    /// y ↦ e.
    pub embedding: Embedding,
    pub parameters: usize,
}

impl Layout {
    pub(super) fn new(shape: MatchingShape) -> Self {
        let MatchingShape { target: n, given: m, width: w, blocks, .. } = shape;
        let (features, record) = (shape.features(), (blocks + 1) * w);
        let mut next = 0;
        let mut take = |length: usize| {
            let range = next..next + length;
            next += length;
            range
        };
        let (context, time, bias) = (take(record * features), take(record * TIME_FEATURES), take(record));
        let opening = take(w * n);
        let (mut inner, mut outer, mut outer_bias) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..blocks {
            inner.push(take(w * w));
            outer.push(take(w * w));
            outer_bias.push(take(w));
        }
        let (head, head_bias) = (take(n * w), take(n));
        let embedding = Embedding::new(m, &shape.embedding, Activation::Tanh, next);
        Self {
            shape,
            features,
            record,
            context,
            time,
            bias,
            opening,
            inner,
            outer,
            outer_bias,
            head,
            head_bias,
            parameters: embedding.end().unwrap_or(next),
            embedding,
        }
    }

    /// The tensors by the names of the printed equations.
    pub(super) fn tensors(&self) -> Vec<TensorSpec> {
        let (n, w) = (self.shape.target, self.shape.width);
        let tensor = |name: String, rows: usize, cols: Option<usize>, range: &Range<usize>| TensorSpec {
            name,
            rows,
            cols,
            offset: range.start,
            stride: rows,
            constraint: Constraint::Free,
        };
        let mut specs = vec![
            tensor("C".into(), self.record, Some(self.features), &self.context),
            tensor("T".into(), self.record, Some(TIME_FEATURES), &self.time),
            tensor("c".into(), self.record, None, &self.bias),
            tensor("W".into(), w, Some(n), &self.opening),
        ];
        for (i, ((inner, outer), bias)) in (1..).zip(self.inner.iter().zip(&self.outer).zip(&self.outer_bias))
        {
            specs.push(tensor(format!("A{i}"), w, Some(w), inner));
            specs.push(tensor(format!("B{i}"), w, Some(w), outer));
            specs.push(tensor(format!("b{i}"), w, None, bias));
        }
        specs.push(tensor("V".into(), n, Some(w), &self.head));
        specs.push(tensor("d".into(), n, None, &self.head_bias));
        specs.extend(self.embedding.tensors());
        specs
    }
}
