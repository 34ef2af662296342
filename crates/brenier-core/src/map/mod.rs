//! The contract every conditional transport map keeps, and the maps themselves.
//!
//! A map g⁻¹(·; y) carries the target x to a reference z for every value of the given variables y. It is monotone and
//! smooth, so that, with the density ϱ of the reference,
//!
//! log π(x | y) = log ϱ(z) + log |det ∂z/∂x|,   z = g⁻¹(x; y),
//!
//! and draws from π(· | y) are x = g(z; y) with z ~ ϱ. The [`Reference`] is N(0, I) unless a map says otherwise.

use std::ops::Range;

use crate::Result;
use crate::kernel::Real;
use crate::train::StepRandom;

pub mod atm;
mod batch;
mod certificate;
mod convex;
pub mod cot;
pub mod cpflow;
mod embed;
pub mod gaussian;
mod lines;
pub mod matching;
pub mod method;
mod methods;
pub mod npe;
mod ode;
pub mod pcp;
mod reference;
mod surrogate;
mod transport;

pub use certificate::Certificate;
pub use convex::{InverseSettings, Precision, Solver};
pub(crate) use methods::BASELINE;
pub use methods::{Method, MethodSettings};
pub use reference::{Reference, ReferenceKind};
pub(crate) use surrogate::Surrogate;
pub(crate) use transport::narrow;
pub use transport::{FlowCosts, Paths, SampleSettings, TransportMap};

/// ½ log 2π, the constant of the Gaussian density per dimension.
pub const HALF_LOG_TWO_PI: f64 = 0.918_938_533_204_672_7;

/// log π(x | y) from z and log |det ∂z/∂x| where the reference is Gaussian.
pub(crate) fn reference_density<T: Real>(z: &[T], log_det: f64) -> f64 {
    log_det - Reference::Gaussian.cost(z.len()).at(z)
}

/// What a tensor must satisfy after every step of training.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Constraint {
    /// Any real number.
    Free,
    /// Entries ≥ 0, kept so by projection.
    NonNegative,
    /// Entries in [−bound, bound], kept so by clamping.
    Within(f64),
}

/// A named tensor's place in the flat parameter vector: element (i, j) is at `offset + i + j · stride`.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// The name used in the printed equations and in the model file.
    pub name: String,
    /// Number of rows, or the length of a vector.
    pub rows: usize,
    /// Number of columns; `None` for a vector.
    pub cols: Option<usize>,
    /// Place of the first element.
    pub offset: usize,
    /// Distance between columns.
    pub stride: usize,
    /// What the entries must satisfy.
    pub constraint: Constraint,
}

impl TensorSpec {
    /// Places of the elements in the parameter vector, row by row.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let cols = self.cols.unwrap_or(1);
        (0..self.rows).flat_map(move |i| (0..cols).map(move |j| self.offset + i + j * self.stride))
    }

    /// The shape as file formats state it.
    pub fn shape(&self) -> Vec<usize> {
        std::iter::once(self.rows).chain(self.cols).collect()
    }
}

/// How draws are computed from reference points.
#[derive(Clone, Debug, PartialEq)]
pub struct Inversion {
    /// The reference points that were inverted took this many solver iterations each.
    pub iterations: Vec<u32>,
    /// ‖g⁻¹(x; y) − z‖∞ of each returned x, evaluated in double precision; empty where they were not asked for.
    pub residuals: Vec<f64>,
    /// The rows that were not solved to the tolerance, in order.
    pub unsolved: Vec<u32>,
}

impl Inversion {
    /// Those of `rows` that were solved.
    pub(crate) fn without_unsolved<I: IntoIterator>(&self, rows: I) -> impl Iterator<Item = I::Item> {
        let mut unsolved = self.unsolved.iter().map(|&row| row as usize).peekable();
        rows.into_iter()
            .enumerate()
            .filter(move |(row, _)| unsolved.next_if_eq(row).is_none())
            .map(|(_, item)| item)
    }
}

/// A conditional transport map with its parameters.
///
/// Batches are slices of rows: `x` holds B rows of [`target_dim`](Self::target_dim) numbers, `y` B rows of
/// [`given_dim`](Self::given_dim).
pub trait ConditionalMap<T: Real>: Send + Sync {
    /// n, the number of target variables.
    fn target_dim(&self) -> usize;

    /// m, the number of given variables.
    fn given_dim(&self) -> usize;

    /// The flat parameter vector.
    fn parameters(&self) -> &[T];

    /// The flat parameter vector, to change.
    fn parameters_mut(&mut self) -> &mut [T];

    /// Names and places of the tensors that make up the parameter vector.
    fn tensors(&self) -> Vec<TensorSpec>;

    /// The distribution of z.
    fn reference(&self) -> Reference {
        Reference::Gaussian
    }

    /// z = g⁻¹(x; y) and log |det ∂z/∂x| for every row.
    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()>;

    /// log π(x | y) of every row.
    fn log_density(&self, x: &[T], y: &[T], out: &mut [f64]) -> Result<()> {
        let n = self.target_dim();
        let mut z = vec![T::ZERO; x.len()];
        self.forward(x, y, &mut z, out)?;
        let cost = self.reference().cost(n);
        for (out, z) in out.iter_mut().zip(z.chunks_exact(n)) {
            *out -= cost.at(z);
        }
        Ok(())
    }

    /// log π(x | y) of every row and its gradient in x.
    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()>;
}

/// A block of the parameter vector that one task updates.
#[derive(Clone, Debug)]
pub struct ParameterBlock {
    /// Its place in the parameter vector.
    pub range: Range<usize>,
    /// Multiplier of the optimiser's step size.
    pub rate: f64,
    /// What its entries must satisfy.
    pub constraint: Constraint,
    /// Whether weight decay applies.
    pub decays: bool,
}

/// A map that can be trained by gradient steps on minibatches.
///
/// A step has two phases. [`adjoints`](Trainable::adjoints) evaluates the loss of the loaded batch and runs the
/// reverse pass, shard by shard; [`block_gradient`](Trainable::block_gradient) then forms one block of the
/// gradient from what the first phase left behind, so that gradient and optimiser update of a block stay in
/// cache. Neither the shards nor the blocks depend on the number of threads, and so neither does any bit.
pub trait Trainable<T: Real>: ConditionalMap<T> {
    /// Memory for batches up to a fixed size.
    type Workspace: Send + Sync;

    /// A workspace for batches of at most `rows` rows.
    fn workspace(&self, rows: usize) -> Self::Workspace;

    /// Room for a batch of `rows` rows of (x, y), to fill before [`adjoints`](Trainable::adjoints).
    fn load<'a>(&self, workspace: &'a mut Self::Workspace, rows: usize) -> (&'a mut [T], &'a mut [T]);

    /// Prepares a step on the loaded batch with random numbers of its own, for losses that need some.
    fn begin_step(&self, _workspace: &mut Self::Workspace, _random: StepRandom) {}

    /// Steps at the start of a training that minimise another, cheaper loss: the first ones by the number in
    /// [`begin_step`](Trainable::begin_step).
    fn warm_steps(&self) -> u64 {
        0
    }

    /// What training minimises on the loaded batch: the mean negative log-likelihood and, where the method has
    /// them, its penalties. Adjoints are left in the workspace.
    fn adjoints(&self, workspace: &mut Self::Workspace) -> Result<f64>;

    /// Mean negative log-likelihood of the loaded batch, values only.
    fn loss(&self, workspace: &mut Self::Workspace) -> Result<f64>;

    /// What a row costs in [`loss`](Trainable::loss), as a part of what it costs in [`adjoints`](Trainable::adjoints).
    fn loss_cost(&self) -> f64 {
        1.0 / 3.0
    }

    /// How many validation rows are worth their time while training; all of them are scored at its end.
    fn validation_rows(&self) -> usize {
        usize::MAX
    }

    /// The blocks that tile the parameter vector.
    fn blocks<'a>(&self, workspace: &'a Self::Workspace) -> &'a [ParameterBlock];

    /// The gradient of block `index`.
    fn block_gradient(&self, workspace: &Self::Workspace, index: usize, gradient: &mut [T]);

    /// Moves the parameter vector out, for an optimiser to change while the map's other parts are read.
    fn take_parameters(&mut self) -> Vec<T>;

    /// Puts the parameter vector back.
    fn restore_parameters(&mut self, parameters: Vec<T>);
}
