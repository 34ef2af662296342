//! The sizes of a flow and where each of its tensors is in the flat parameter vector.

use std::ops::Range;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::LEAST;
use super::front;
use super::heads::{self, Head};
use crate::map::embed::{Activation, Embedding};
use crate::map::pcp::Front;
use crate::map::{Constraint, TensorSpec};
use crate::{Error, Result};

/// The kind of transforms that a flow is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FlowKind {
    /// Rational-quadratic splines: couplings and linear layers, or splines alone for one target column.
    #[default]
    Nsf,
    /// Masked affine autoregressive transforms.
    Maf,
}

/// The sizes of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NpeShape {
    /// n, the number of target columns x.
    pub target: usize,
    /// m, the number of given columns y; 0 makes an unconditional map.
    pub given: usize,
    /// The kind of transforms.
    pub flow: FlowKind,
    /// T, the number of transforms.
    pub transforms: usize,
    /// h, the width of every hidden layer.
    pub hidden_width: usize,
    /// Residual blocks of a coupling's network, or hidden layers after the first of an autoregressive one.
    pub blocks: usize,
    /// K, the number of a spline's bins.
    pub bins: usize,
    /// B: splines act on [−B, B] and are the identity outside.
    pub tail_bound: f64,
    /// Widths of the network y ↦ e that the flow reads in place of y; empty for e = y.
    pub embedding: Vec<usize>,
    /// What its hidden layers end in.
    pub embedding_activation: Activation,
    /// The layer before the first transform.
    pub front: Front,
    /// Width of the networks of an autoregressive front.
    #[serde(default)]
    pub front_width: usize,
    /// What the permutations between autoregressive transforms are drawn from.
    pub permutation_seed: u64,
}

/// Largest number of parameters we are willing to hold (4 GiB in single precision).
const MOST_PARAMETERS: u128 = 1 << 30;

impl NpeShape {
    /// sbi's sizes for n target and m given variables.
    pub fn new(flow: FlowKind, target: usize, given: usize) -> Self {
        Self {
            target,
            given,
            flow,
            transforms: 5,
            hidden_width: 50,
            blocks: 2,
            bins: 10,
            tail_bound: 3.0,
            embedding: Vec::new(),
            embedding_activation: Activation::Tanh,
            front: Front::None,
            front_width: 64,
            permutation_seed: 0,
        }
    }

    /// The length of e, or of y where there is no embedding.
    pub fn features(&self) -> usize {
        self.embedding.last().copied().unwrap_or(self.given)
    }

    /// Checks every size, and that the parameters fit in memory.
    pub fn validate(&self) -> Result<()> {
        let sizes = [
            ("target", self.target, 1 << 20),
            ("transforms", self.transforms, 1000),
            ("hidden_width", self.hidden_width, 1 << 16),
            ("blocks", self.blocks, 1000),
        ];
        for (name, value, most) in sizes {
            if value == 0 || value > most {
                return Err(Error::setting(name, format!("{value} is not between 1 and {most}")));
            }
        }
        // Bins of the least width must leave room for others.
        if self.bins < 2 || self.bins > 500 {
            return Err(Error::setting("bins", format!("{} is not between 2 and 500", self.bins)));
        }
        if !(self.tail_bound > 0.0 && self.tail_bound <= 1e3) {
            let problem = format!("{} is not above 0 and at most 1000", self.tail_bound);
            return Err(Error::setting("tail_bound", problem));
        }
        if self.given == 0 && !self.embedding.is_empty() {
            return Err(Error::setting("embedding", "there is no given column to embed; leave it out"));
        }
        if self.front == Front::Autoregressive && !(1..=1 << 12).contains(&self.front_width) {
            return Err(Error::setting(
                "front_width",
                format!("{} is not between 1 and 4096", self.front_width),
            ));
        }
        if self.given == 0 && self.front != Front::None {
            return Err(Error::setting("front", "needs given columns, which place and scale are read from"));
        }
        if self.embedding.contains(&0) || self.embedding.len() > 1000 {
            return Err(Error::setting(
                "embedding",
                "every width must be at least 1, and there are at most 1000",
            ));
        }
        let too_large = || Error::setting("hidden_width", "the flow would have more than 2^30 parameters");
        let largest = self.embedding.iter().copied().chain([self.given]).max().unwrap_or(0);
        if largest as u128 > MOST_PARAMETERS {
            return Err(too_large());
        }
        let (n, h, m) = (self.target as u128, self.hidden_width as u128, self.features() as u128);
        let (blocks, bins) = (self.blocks as u128, self.bins as u128);
        let each = h * (n + 4 + 2 * blocks * (h + 1) + (blocks + 1) * (m + 1))
            + 3 * bins * n * (h + 1)
            + n * (n + 2);
        let mut front = front::width(self.front, self.target, self.front_width) as u128 * (m + 1);
        if self.front == Front::Autoregressive {
            front += heads::count(n, self.front_width as u128);
        }
        let embedding = Embedding::count(self.given, &self.embedding);
        if each * self.transforms as u128 + front + embedding > MOST_PARAMETERS {
            return Err(too_large());
        }
        Ok(())
    }

    /// The number of parameters, masked ones included.
    pub fn parameters(&self) -> usize {
        Layout::new(self.clone()).parameters
    }
}

/// A layer's place: its bias b, then its weight W column by column, so that both are one matrix \[b | W\].
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub outputs: usize,
    pub inputs: usize,
    pub start: usize,
}

impl Layer {
    pub(super) fn bias(&self) -> Range<usize> {
        self.start..self.start + self.outputs
    }

    pub(super) fn weight(&self) -> Range<usize> {
        self.start + self.outputs..self.end()
    }

    /// \[b | W\].
    pub(super) fn all(&self) -> Range<usize> {
        self.start..self.end()
    }

    pub(super) fn end(&self) -> usize {
        self.start + self.outputs * (self.inputs + 1)
    }
}

/// The linear layer after a coupling: strictly lower and upper triangles by columns, diagonal, bias.
#[derive(Clone, Debug)]
pub(super) struct LinearPlace {
    pub lower: Range<usize>,
    pub upper: Range<usize>,
    pub diagonal: Range<usize>,
    pub bias: Range<usize>,
}

/// Where the tensors of one transform are.
#[derive(Clone, Debug)]
pub(super) enum TransformPlace {
    /// A masked autoregressive transform: its first layer, hidden layers and output, then the permutation.
    Autoregressive { layers: Vec<Layer>, permutation: Vec<usize> },
    /// A spline coupling of the coordinates of one parity, then a linear layer.
    Coupling { parity: usize, input: Range<usize>, layers: Vec<Layer>, output: Layer, linear: LinearPlace },
    /// A spline of one coordinate whose network reads y alone.
    Spline { layers: Vec<Layer>, output: Layer },
}

/// The degrees of an autoregressive network's hidden units, sorted.
///
/// A unit of degree d reads inputs 0..d and units of at most its degree; output i reads units of degree ≤ i.
#[derive(Clone, Debug)]
pub(super) struct Degrees {
    /// The degree of every unit.
    pub of_unit: Vec<usize>,
    /// Number of units of degree ≤ d, for d < n.
    pub ends: Vec<usize>,
    /// Units that are multiplied together, each with the number of units that they read.
    pub groups: Vec<(Range<usize>, usize)>,
}

/// Most features whose products with C are made like those of a hidden layer.
const FEW_FEATURES: usize = 32;

/// Fewest units of a product: smaller ones cost more than the masked weights they save.
const GROUP_UNITS: usize = 16;

impl Degrees {
    pub(super) fn new(n: usize, units: usize) -> Self {
        // As many of each degree as a cycle through 1, …, n − 1 gives; a lone variable has units of degree 0.
        let (least, span) = (1.min(n - 1), (n - 1).max(1));
        let mut of_unit: Vec<usize> = (0..units).map(|unit| unit % span + least).collect();
        of_unit.sort_unstable();
        let ends = (0..n).map(|d| of_unit.partition_point(|&degree| degree <= d)).collect::<Vec<_>>();
        let mut groups = Vec::new();
        let mut start = 0;
        for (d, &end) in ends.iter().enumerate() {
            if end - start >= GROUP_UNITS.min(units - start).max(1) || (d + 1 == n && end > start) {
                groups.push((start..end, end));
                start = end;
            }
        }
        Self { of_unit, ends, groups }
    }

    /// The units of degree d.
    pub(super) fn group(&self, d: usize) -> Range<usize> {
        let start = if d == 0 { 0 } else { self.ends[d - 1] };
        start..self.ends[d]
    }

    /// The first unit that reads unit `unit`, which is the first of its degree.
    pub(super) fn first_reader(&self, unit: usize) -> usize {
        let degree = self.of_unit[unit];
        self.group(degree).start
    }
}

/// Every tensor's place in the flat parameter vector; matrices are column-major.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub shape: NpeShape,
    pub features: usize,
    /// Vectors of h numbers that a transform takes from y.
    pub slots: usize,
    pub transforms: Vec<TransformPlace>,
    /// The networks of an autoregressive front, and its rotation Q, which is not trained.
    pub heads: Vec<Head>,
    pub rotation: Range<usize>,
    /// The end of the transforms' own parameters.
    pub core: usize,
    /// c and C of all transforms and slots, then of the front: vectors and matrices of `record` rows.
    pub context_bias: Range<usize>,
    pub context_weight: Range<usize>,
    pub embedding: Embedding,
    pub parameters: usize,
    /// T · slots · h, and the columns of the front.
    pub record: usize,
    /// For autoregressive transforms.
    pub degrees: Degrees,
}

impl Layout {
    pub(super) fn new(shape: NpeShape) -> Self {
        let NpeShape { target: n, given, flow, transforms: count, hidden_width: h, blocks, .. } = shape;
        let features = shape.features();
        let mut next = 0;
        let mut take = |length: usize| {
            let range = next..next + length;
            next += length;
            range
        };
        let mut rng = ChaCha8Rng::seed_from_u64(shape.permutation_seed);
        let mut transforms = Vec::with_capacity(count);
        for t in 0..count {
            let mut layer = |outputs: usize, inputs: usize| {
                let start = take(outputs * (inputs + 1)).start;
                Layer { outputs, inputs, start }
            };
            transforms.push(match flow {
                FlowKind::Maf => {
                    let mut layers = vec![layer(h, n)];
                    layers.extend((0..blocks).map(|_| layer(h, h)));
                    layers.push(layer(2 * n, h));
                    TransformPlace::Autoregressive { layers, permutation: permutation(n, &mut rng) }
                }
                FlowKind::Nsf if n == 1 => {
                    let layers = (1..blocks).map(|_| layer(h, h)).collect();
                    TransformPlace::Spline { layers, output: layer(shape.spline_parameters(), h) }
                }
                FlowKind::Nsf => {
                    let parity = t % 2;
                    let moved = (n - parity).div_ceil(2);
                    let layers = (0..2 * blocks).map(|_| layer(h, h)).collect();
                    let output = layer(shape.spline_parameters() * moved, h);
                    let triangle = n * (n - 1) / 2;
                    let linear = LinearPlace {
                        lower: take(triangle),
                        upper: take(triangle),
                        diagonal: take(n),
                        bias: take(n),
                    };
                    TransformPlace::Coupling { parity, input: take(h * (n - moved)), layers, output, linear }
                }
            });
        }
        let slots = if flow == FlowKind::Nsf && n > 1 { 1 + blocks } else { 1 };
        let record = count * slots * h + front::width(shape.front, n, shape.front_width);
        let (mut heads, mut rotation) = (Vec::new(), 0..0);
        if shape.front == Front::Autoregressive {
            let width = shape.front_width;
            let mut layer = |outputs: usize, inputs: usize| {
                let start = take(outputs * (inputs + 1)).start;
                Layer { outputs, inputs, start }
            };
            heads.extend((0..n).map(|k| Head {
                open: layer(width, k),
                gates: layer(2 * width, width),
                hidden: layer(width, width),
                output: layer(2, width),
            }));
            rotation = take(n * n);
        }
        let core = take(0).start;
        let (context_bias, context_weight) = (take(record), take(record * features));
        let embedding =
            Embedding::new(given, &shape.embedding, shape.embedding_activation, context_weight.end);
        Self {
            features,
            slots,
            transforms,
            heads,
            rotation,
            core,
            parameters: embedding.end().unwrap_or(context_weight.end),
            context_bias,
            context_weight,
            embedding,
            record,
            degrees: Degrees::new(n, h),
            shape,
        }
    }

    /// Whether the products with y are narrow ones.
    pub(super) fn few_features(&self) -> bool {
        self.features <= FEW_FEATURES
    }

    /// Columns of a record that belong to the transforms.
    pub(super) fn flow_record(&self) -> usize {
        self.transforms.len() * self.slots * self.shape.hidden_width
    }

    /// The column of a transform's slot in a record.
    pub(super) fn slot(&self, transform: usize, slot: usize) -> usize {
        (transform * self.slots + slot) * self.shape.hidden_width
    }

    /// The tensors by the names of the printed equations.
    pub(super) fn tensors(&self) -> Vec<TensorSpec> {
        let h = self.shape.hidden_width;
        let matrix = |name: String, rows: usize, cols: usize, offset: usize, stride: usize| TensorSpec {
            name,
            rows,
            cols: Some(cols),
            offset,
            stride,
            constraint: Constraint::Free,
        };
        let vector = |name: String, offset: usize, rows: usize| TensorSpec {
            name,
            rows,
            cols: None,
            offset,
            stride: rows,
            constraint: Constraint::Free,
        };
        let mut specs = Vec::new();
        let layer = |specs: &mut Vec<TensorSpec>, weight: String, bias: String, layer: &Layer| {
            specs.push(vector(bias, layer.start, layer.outputs));
            specs.push(matrix(weight, layer.outputs, layer.inputs, layer.weight().start, layer.outputs));
        };
        for (t, place) in self.transforms.iter().enumerate() {
            match place {
                TransformPlace::Autoregressive { layers, .. } => {
                    for (l, at) in layers.iter().enumerate() {
                        layer(&mut specs, format!("W{l}.{t}"), format!("b{l}.{t}"), at);
                    }
                }
                TransformPlace::Coupling { input, layers, output, linear, .. } => {
                    for (l, at) in (1..).zip(layers) {
                        layer(&mut specs, format!("W{l}.{t}"), format!("b{l}.{t}"), at);
                    }
                    layer(&mut specs, format!("P.{t}"), format!("p.{t}"), output);
                    let vectors = [
                        ("L", &linear.lower),
                        ("U", &linear.upper),
                        ("d", &linear.diagonal),
                        ("e", &linear.bias),
                    ];
                    for (name, range) in vectors {
                        specs.push(vector(format!("{name}.{t}"), range.start, range.len()));
                    }
                    specs.push(matrix(format!("W0.{t}"), h, input.len() / h, input.start, h));
                }
                TransformPlace::Spline { layers, output } => {
                    for (l, at) in (1..).zip(layers) {
                        layer(&mut specs, format!("W{l}.{t}"), format!("b{l}.{t}"), at);
                    }
                    layer(&mut specs, format!("P.{t}"), format!("p.{t}"), output);
                }
            }
            for slot in 0..self.slots {
                let row = self.slot(t, slot);
                specs.push(vector(format!("c{slot}.{t}"), self.context_bias.start + row, h));
                let start = self.context_weight.start + row;
                specs.push(matrix(format!("C{slot}.{t}"), h, self.features, start, self.record));
            }
        }
        for (k, head) in self.heads.iter().enumerate() {
            for (letter, at) in head.layers() {
                specs.push(vector(format!("f{letter}.{k}"), at.start, at.outputs));
                // The first coordinate reads none.
                if at.inputs > 0 {
                    let start = at.weight().start;
                    specs.push(matrix(format!("F{letter}.{k}"), at.outputs, at.inputs, start, at.outputs));
                }
            }
        }
        if !self.rotation.is_empty() {
            let n = self.shape.target;
            specs.push(matrix("Q".to_owned(), n, n, self.rotation.start, n));
        }
        let (row, own) = (self.flow_record(), self.record - self.flow_record());
        if own > 0 {
            specs.push(vector("cf".to_owned(), self.context_bias.start + row, own));
            let start = self.context_weight.start + row;
            specs.push(matrix("Cf".to_owned(), own, self.features, start, self.record));
        }
        specs.extend(self.embedding.tensors());
        specs
    }

    /// Makes the masked entries of layer `index` of an autoregressive network zero, in `values` = \[b | W\].
    pub(super) fn mask<T: Copy + Default>(&self, index: usize, values: &mut [T]) {
        let (n, h, degrees) = (self.shape.target, self.shape.hidden_width, &self.degrees);
        let last = self.shape.blocks + 1;
        let outputs = if index == last { 2 * n } else { h };
        for (input, column) in values[outputs..].chunks_exact_mut(outputs).enumerate() {
            if index == 0 {
                column[..degrees.ends[input]].fill(T::default());
            } else if index < last {
                column[..degrees.first_reader(input)].fill(T::default());
            } else {
                let degree = degrees.of_unit[input];
                column[..degree].fill(T::default());
                column[n..n + degree].fill(T::default());
            }
        }
    }
}

impl NpeShape {
    /// 3K − 1, the numbers that make a spline: K widths, K heights and the slopes at the K − 1 inner knots.
    pub(super) fn spline_parameters(&self) -> usize {
        3 * self.bins - 1
    }

    /// The part of the interval that the least widths of a spline's bins leave to choose.
    pub(super) fn free_part(&self) -> f64 {
        1.0 - LEAST * self.bins as f64
    }
}

/// A random order of n > 1 coordinates other than their own; of one, its own.
fn permutation(n: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    while n > 1 && order.is_sorted() {
        order.shuffle(rng);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_counts_are_those_of_sbi() {
        assert_eq!(NpeShape::new(FlowKind::Maf, 3, 9).parameters(), 30_530);
        // The shallow-water flow of the paper's authors.
        let wide = NpeShape { hidden_width: 14, ..NpeShape::new(FlowKind::Nsf, 14, 3500) };
        assert_eq!(wide.parameters(), 756_175);
        // m → 50 → 50 → 29, five times.
        let single = NpeShape::new(FlowKind::Nsf, 1, 8);
        assert_eq!(single.parameters(), 5 * (9 * 50 + 51 * 50 + 51 * 29));
    }

    #[test]
    fn tensors_tile_the_parameter_vector() {
        for (flow, n, m, front) in [
            (FlowKind::Maf, 1, 3, Front::Affine),
            (FlowKind::Maf, 4, 2, Front::Affine),
            (FlowKind::Nsf, 1, 0, Front::None),
            (FlowKind::Nsf, 5, 3, Front::Affine),
            (FlowKind::Maf, 4, 2, Front::Autoregressive),
            (FlowKind::Nsf, 1, 2, Front::Autoregressive),
        ] {
            let shape = NpeShape { hidden_width: 7, front, front_width: 6, ..NpeShape::new(flow, n, m) };
            let layout = Layout::new(shape);
            let mut places: Vec<usize> =
                layout.tensors().iter().flat_map(|spec| spec.indices().collect::<Vec<_>>()).collect();
            places.sort_unstable();
            assert_eq!(places, (0..layout.parameters).collect::<Vec<_>>(), "{flow:?} {n} {m}");
        }
    }

    #[test]
    fn groups_tile_the_units_and_see_all_they_may() {
        for (n, units) in [(1, 9), (2, 50), (3, 50), (4, 50), (9, 50), (60, 50), (5, 3)] {
            let degrees = Degrees::new(n, units);
            let mut next = 0;
            for (group, prefix) in &degrees.groups {
                assert_eq!((group.start, *prefix), (next, group.end));
                next = group.end;
            }
            assert_eq!(next, units, "{n} {units}: {:?}", degrees.groups);
        }
        assert_eq!(Degrees::new(4, 50).ends, [0, 17, 34, 50]);
    }
}
