//! Sampling: x from z, block by block from the last to the first.
//!
//! A block with the normalisations around it, z = α(∇F(x') + β) after x' = α'(x + β'), is a gradient in the coordinates
//! u = x'/α: with G(u) = F(αu) + (αβ)ᵀu, which is strongly convex, ∇G(u) = z. It is inverted as a PCP-Map is.

use super::features::{Pass, Scratch};
use super::weights::Effective;
use super::{CpFlowMap, Parts};
use crate::Result;
use crate::kernel::Real;
use crate::map::batch::Contexts;
use crate::map::convex::{ConvexPotential, Evaluated, Inverse, InverseSettings};
use crate::map::{ConditionalMap, Inversion};

/// Inner blocks are solved this much further, as the blocks after them stretch their residuals.
const INNER_TOLERANCE: f64 = 1e-3;
/// A residual that double precision can still certify.
const LEAST_TOLERANCE: f64 = 1e-13;

/// A trained map in both precisions, ready to be inverted.
#[derive(Clone, Debug)]
pub struct CpFlowInverter {
    pub(super) coarse: CpFlowMap<f32>,
    pub(super) fine: CpFlowMap<f64>,
    coarse_weights: Effective<f32>,
    fine_weights: Effective<f64>,
}

/// One block as a convex potential G(u).
struct BlockPotential<'a, T> {
    map: &'a CpFlowMap<T>,
    weights: &'a Effective<T>,
    index: usize,
}

/// Memory for some rows of one block.
struct BlockShard<T> {
    pass: Pass<T>,
    scratch: Scratch<T>,
    /// ∇G.
    gradient: Vec<T>,
}

impl CpFlowInverter {
    /// Both precisions of a trained map.
    pub fn new(map: &CpFlowMap<f32>) -> Self {
        let fine = map.cast();
        Self { coarse_weights: map.weights(), fine_weights: fine.weights(), coarse: map.clone(), fine }
    }

    /// The map as it was trained.
    pub fn single(&self) -> &CpFlowMap<f32> {
        &self.coarse
    }

    /// The map in double precision.
    pub fn map(&self) -> &CpFlowMap<f64> {
        &self.fine
    }

    /// α_out ⊙ α_in of a map with one block.
    pub(super) fn stretch(&self) -> Option<Vec<f64>> {
        match self.fine_weights.outer.as_slice() {
            [before, after] => Some(before.factor.iter().zip(&after.factor).map(|(a, b)| a * b).collect()),
            _ => None,
        }
    }

    /// A lower bound of the eigenvalues of ∂z/∂x for all x and y, where there is one block: b times the smallest of
    /// α_out α_in; NaN with several.
    pub(super) fn strong_convexity(&self) -> f64 {
        let quadratic = self.fine_weights.blocks[0].b;
        self.stretch()
            .map_or(f64::NAN, |stretch| quadratic * stretch.into_iter().fold(f64::INFINITY, f64::min))
    }

    /// x with g⁻¹(x; y) = z for every row z, `observation` telling which row of `given` belongs to it; rows that are not
    /// solved to the tolerance are returned at their best point and marked.
    pub fn attempt(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.validate()?;
        let blocks = self.fine.layout.blocks.len();
        let tolerance = match blocks {
            1 => settings.tolerance,
            _ => (INNER_TOLERANCE * settings.tolerance).max(LEAST_TOLERANCE),
        };
        let inner = InverseSettings { tolerance, ..*settings };
        let n = self.fine.layout.shape.target;
        let mut points = z.to_vec();
        let mut total: Option<Inversion> = None;
        for index in (0..blocks).rev() {
            let coarse = BlockPotential { map: &self.coarse, weights: &self.coarse_weights, index };
            let fine = BlockPotential { map: &self.fine, weights: &self.fine_weights, index };
            let solver = Inverse { coarse: &coarse, fine: &fine };
            let (mut solved, inversion) = solver.attempt(&points, given, observation, &inner)?;
            for row in solved.chunks_exact_mut(n) {
                // From u to x', the normalised input of this block.
                for (value, factor) in row.iter_mut().zip(&self.fine_weights.outer[index + 1].factor) {
                    *value *= factor;
                }
            }
            points = solved;
            match &mut total {
                None => total = Some(inversion),
                Some(total) => {
                    for (sum, own) in total.iterations.iter_mut().zip(&inversion.iterations) {
                        *sum += own;
                    }
                }
            }
        }
        let first = &self.fine_weights.outer[0];
        for row in points.chunks_exact_mut(n) {
            for (i, value) in row.iter_mut().enumerate() {
                *value = *value / first.factor[i] - first.shift[i];
            }
        }
        let mut inversion = total.expect("at least one block");
        if blocks > 1 {
            self.certify(z, given, observation, &points, &mut inversion)?;
            let rows = (0..).zip(&inversion.residuals);
            inversion.unsolved = rows
                .filter(|(_, residual)| !(**residual <= settings.tolerance))
                .map(|(row, _)| row)
                .collect();
        }
        Ok((points, inversion))
    }

    /// The residuals of the whole composition; infinite where the map cannot be evaluated.
    fn certify(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        x: &[f64],
        inversion: &mut Inversion,
    ) -> Result<()> {
        let (n, m) = (self.fine.layout.shape.target, self.fine.layout.shape.given);
        let rows = observation.len();
        let y: Vec<f64> = observation
            .iter()
            .flat_map(|&row| &given[row as usize * m..(row as usize + 1) * m])
            .copied()
            .collect();
        let (mut back, mut log_det) = (vec![f64::NAN; rows * n], vec![0.0; rows]);
        if self.fine.forward(x, &y, &mut back, &mut log_det).is_err() {
            // Some row is beyond the reach of floating point: one at a time, so that the others keep their answers.
            for row in 0..rows {
                let (own, given) = (row * n..(row + 1) * n, row * m..(row + 1) * m);
                let log_det = &mut log_det[row..row + 1];
                if self.fine.forward(&x[own.clone()], &y[given], &mut back[own.clone()], log_det).is_err() {
                    back[own].fill(f64::NAN);
                }
            }
        }
        inversion.residuals = back
            .chunks_exact(n)
            .zip(z.chunks_exact(n))
            .map(|(back, z)| {
                let missed = |worst: f64, (back, z): (&f64, &f64)| match (back - z).abs() {
                    miss if miss.is_nan() => f64::INFINITY,
                    miss => worst.max(miss),
                };
                back.iter().zip(z).fold(0.0, missed)
            })
            .collect();
        Ok(())
    }
}

impl<T: Real> BlockPotential<'_, T> {
    /// x' = αu into the pass.
    fn enter(&self, shard: &mut BlockShard<T>, u: &[T], rows: usize) {
        let factor = &self.weights.outer[self.index + 1].factor;
        let n = factor.len();
        for (x, u) in shard.pass.x.chunks_exact_mut(n).zip(u.chunks_exact(n)).take(rows) {
            for i in 0..n {
                x[i] = factor[i] * u[i];
            }
        }
    }

    /// ∇G = α(∇F + β) from the pass.
    fn leave(&self, shard: &mut BlockShard<T>, rows: usize) {
        let n = self.map.layout.shape.target;
        let BlockShard { pass, gradient, .. } = shard;
        self.weights.outer[self.index + 1].apply(&pass.gradient[..rows * n], &mut gradient[..rows * n]);
    }

    fn parts<'a>(&self, contexts: Contexts<'a, T>) -> Parts<'a, T> {
        self.map.parts(contexts, self.index)
    }
}

impl<T: Real> ConvexPotential<T> for BlockPotential<'_, T> {
    type Shard = BlockShard<T>;

    fn target(&self) -> usize {
        self.map.layout.shape.target
    }

    fn given(&self) -> usize {
        self.map.layout.shape.given
    }

    fn record(&self) -> usize {
        self.map.layout.record
    }

    fn room(&self, rows: usize) -> BlockShard<T> {
        BlockShard {
            pass: Pass::new(self.map, rows, false),
            scratch: Scratch::new(self.map, rows, false),
            gradient: vec![T::ZERO; rows * self.map.layout.shape.target],
        }
    }

    fn contexts(&self, y: &[T], records: &mut [T], count: usize) {
        self.map.open_contexts(self.index, y, records, count);
        self.map.close_contexts(self.index, &self.weights.blocks[self.index], records, count);
    }

    fn evaluate(&self, shard: &mut BlockShard<T>, contexts: Contexts<'_, T>, x: &[T], rows: usize) {
        self.enter(shard, x, rows);
        let weights = &self.weights.blocks[self.index];
        let parts = self.parts(contexts);
        self.map.evaluate(&mut shard.pass, weights, &mut shard.scratch, parts, rows);
        self.leave(shard, rows);
        // ∇²G = diag(α) H diag(α) has the factor diag(α) L.
        let norm = &self.weights.outer[self.index + 1];
        let (n, stretch) = (norm.factor.len(), 2.0 * norm.log_det());
        for column in shard.pass.factor[..rows * n * n].chunks_exact_mut(n) {
            for (value, factor) in column.iter_mut().zip(&norm.factor) {
                *value *= factor.to_f64();
            }
        }
        shard.pass.log_det[..rows].iter_mut().for_each(|log_det| *log_det += stretch);
    }

    fn gradient(
        &self,
        shard: &mut BlockShard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        _with_value: bool,
    ) {
        self.enter(shard, x, rows);
        self.map.slope(&mut shard.pass, &self.weights.blocks[self.index], self.parts(contexts), rows);
        self.leave(shard, rows);
    }

    fn potential(&self, shard: &BlockShard<T>, b: usize, x: &[T]) -> (f64, f64) {
        let (value, size) = self.map.value(&shard.pass, &self.weights.blocks[self.index], b);
        let norm = &self.weights.outer[self.index + 1];
        let terms = norm.factor.iter().zip(&norm.shift).zip(x);
        let (mut linear, mut largest) = (0.0, 0.0);
        for ((factor, shift), x) in terms {
            let term = factor.to_f64() * shift.to_f64() * x.to_f64();
            linear += term;
            largest += term.abs();
        }
        (value + linear, size + largest)
    }

    fn evaluated<'a>(&self, shard: &'a BlockShard<T>) -> Evaluated<'a, T> {
        Evaluated { gradient: &shard.gradient, factor: &shard.pass.factor, log_det: &shard.pass.log_det }
    }
}
