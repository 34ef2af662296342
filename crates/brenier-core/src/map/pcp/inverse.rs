//! A trained PCP-Map in both precisions, and its inversion.

use super::PcpMap;
use super::features::Shard;
use crate::Result;
use crate::kernel::Real;
use crate::map::Inversion;
use crate::map::batch::Contexts;
use crate::map::convex::{
    ConvexPotential, Evaluated, Inverse, InverseSettings, context_records, demand_solved,
};

/// A residual that double precision can still certify.
const LEAST_TOLERANCE: f64 = 1e-13;

/// A trained map in both precisions, ready to be inverted.
#[derive(Clone, Debug)]
pub struct PcpInverter {
    pub(super) coarse: PcpMap<f32>,
    pub(super) fine: PcpMap<f64>,
}

impl PcpInverter {
    /// Both precisions of a trained map.
    pub fn new(map: &PcpMap<f32>) -> Self {
        Self { coarse: map.clone(), fine: map.cast() }
    }

    /// The map as it was trained.
    pub fn single(&self) -> &PcpMap<f32> {
        &self.coarse
    }

    /// The map in double precision.
    pub fn map(&self) -> &PcpMap<f64> {
        &self.fine
    }

    /// x with ∇ₓG(x; y) = z for every row z, `observation` telling which row of `given` belongs to it.
    ///
    /// Contexts are computed once per observation. Rows that cannot be solved to the tolerance are an error that
    /// names the worst of them.
    pub fn invert(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        let (x, inversion) = self.attempt(z, given, observation, settings)?;
        demand_solved(&inversion, observation, settings.tolerance)?;
        Ok((x, inversion))
    }

    /// As [`invert`](Self::invert), but rows that are not solved are returned at their best point and marked.
    pub fn attempt(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        if !self.fine.has_front() {
            return self.inverse().attempt(z, given, observation, settings);
        }
        // Behind the front ∇ᵤF = L⁻ᵀz is solved for u; Lᵀ then stretches its residual.
        settings.validate()?;
        let (n, m) = (self.fine.target(), self.fine.given());
        let observations = observation.iter().max().map_or(0, |&last| last as usize + 1);
        if z.len() != observation.len() * n || given.len() < observations * m {
            // The solver says what is wrong with the sizes.
            return self.inverse().attempt(z, given, observation, settings);
        }
        let records = context_records(&self.fine, &given[..observations * m], observations);
        let front = |row: &u32| self.fine.front(&records[*row as usize * self.fine.record()..]);
        let stretch: Vec<f64> = (0..observations as u32).map(|row| front(&row).stretch()).collect();
        let widest = stretch.iter().copied().fold(1.0, f64::max);
        let inner =
            InverseSettings { tolerance: (settings.tolerance / widest).max(LEAST_TOLERANCE), ..*settings };
        let mut points = z.to_vec();
        for (row, z) in observation.iter().zip(points.chunks_exact_mut(n)) {
            front(row).solve_transposed(z);
        }
        let (mut points, mut inversion) = self.inverse().attempt(&points, given, observation, &inner)?;
        for (row, u) in observation.iter().zip(points.chunks_exact_mut(n)) {
            front(row).leave(u);
        }
        // A bound of the residual in z, which decides what is solved.
        for (row, residual) in observation.iter().zip(&mut inversion.residuals) {
            *residual *= stretch[*row as usize];
        }
        let rows = (0..).zip(&inversion.residuals);
        inversion.unsolved =
            rows.filter(|(_, residual)| !(**residual <= settings.tolerance)).map(|(row, _)| row).collect();
        Ok((points, inversion))
    }

    fn inverse(&self) -> Inverse<'_, PcpMap<f32>, PcpMap<f64>> {
        Inverse { coarse: &self.coarse, fine: &self.fine }
    }
}

impl<T: Real> ConvexPotential<T> for PcpMap<T> {
    type Shard = Shard<T>;

    fn target(&self) -> usize {
        self.layout.shape.target
    }

    fn given(&self) -> usize {
        self.layout.shape.given
    }

    fn record(&self) -> usize {
        self.layout.record
    }

    fn room(&self, rows: usize) -> Shard<T> {
        Shard::new(self, rows, false)
    }

    fn contexts(&self, y: &[T], records: &mut [T], count: usize) {
        PcpMap::contexts(self, y, records, count);
    }

    fn evaluate(&self, shard: &mut Shard<T>, contexts: Contexts<'_, T>, x: &[T], rows: usize) {
        self.evaluate_inside(shard, contexts, x, rows);
    }

    fn gradient(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        with_value: bool,
    ) {
        PcpMap::gradient(self, shard, contexts, x, rows, with_value);
    }

    fn potential(&self, shard: &Shard<T>, b: usize, x: &[T]) -> (f64, f64) {
        PcpMap::potential(self, shard, b, x)
    }

    fn evaluated<'a>(&self, shard: &'a Shard<T>) -> Evaluated<'a, T> {
        Evaluated { gradient: &shard.z, factor: &shard.factor, log_det: &shard.log_det }
    }
}
