//! The rows of an inversion that are not solved yet: side by side, dropping out as they converge.

use crate::kernel::{Real, spd};

/// Rows evaluated together.
pub(super) const ROWS: usize = 64;
/// Sufficient decrease: φ(t) ≤ φ(0) + DECREASE·t·φ'(0).
const DECREASE: f64 = 1e-4;
/// A trial whose slope along the direction is still this part of the first one fell short: the next step starts longer.
const SHORT: f64 = 0.5;

/// Where the line search of one row stands: φ(t) = G(x + td) − zᵀ(x + td), convex in t.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// φ at x; infinite before x was evaluated.
    pub(super) merit: f64,
    /// φ'(0) = (∇G(x) − z)ᵀd, negative while x can be improved.
    pub(super) slope: f64,
    /// The trial is x + step·d; 0 asks for x itself, NaN says that there is nothing more to try.
    pub(super) step: f64,
    /// ‖∇G(x) − z‖∞.
    pub(super) residual: f64,
    /// Evaluations of the map at this row so far.
    pub(super) evaluations: u32,
}

impl Search {
    /// Nothing is known about x yet.
    pub(super) const NEW: Search =
        Search { merit: f64::INFINITY, slope: 0.0, step: 0.0, residual: f64::INFINITY, evaluations: 0 };

    /// The first step along the next direction if the trial is accepted; otherwise `None`, and a shorter step is set.
    ///
    /// By convexity a slope ≤ 0 at the trial means that φ fell all the way, whatever rounding makes of its value.
    /// `noise` is what rounding may do to φ.
    pub(super) fn judge(&mut self, merit: f64, slope: f64, noise: f64) -> Option<f64> {
        if self.step == 0.0 {
            self.step = f64::NAN;
            return merit.is_finite().then_some(1.0);
        }
        let steep = -self.slope;
        let lower = merit <= self.merit + DECREASE * self.step * self.slope + noise;
        if merit.is_finite() && (slope <= 0.0 || (lower && slope <= 0.9 * steep)) {
            // Where the last direction wanted a short step, the next often does too.
            let longer = if self.step < 1.0 { (4.0 * self.step).min(1.0) } else { 2.0 * self.step };
            return Some(if slope < -SHORT * steep { longer } else { 1.0 });
        }
        // The root of φ' by the secant, within bounds that shorten the step in any case.
        let secant = self.step * steep / (steep + slope);
        let (shortest, longest) = (0.1 * self.step, 0.5 * self.step);
        self.step = if secant.is_finite() { secant.clamp(shortest, longest) } else { shortest };
        None
    }
}

/// The unsolved rows, side by side so that a round can be split over threads.
pub(super) struct Rows {
    pub(super) n: usize,
    /// Place of each row in the answer.
    pub(super) id: Vec<u32>,
    /// Observation of each row.
    pub(super) observation: Vec<u32>,
    pub(super) z: Vec<f64>,
    /// The best point so far.
    pub(super) x: Vec<f64>,
    pub(super) direction: Vec<f64>,
    /// Cholesky factor of H at x.
    pub(super) factor: Vec<f64>,
    pub(super) search: Vec<Search>,
}

impl Rows {
    /// Rows at x = 0, not yet evaluated.
    pub(super) fn at_rest(n: usize, id: Vec<u32>, observation: Vec<u32>, z: Vec<f64>) -> Rows {
        let count = id.len();
        Rows {
            n,
            id,
            observation,
            z,
            x: vec![0.0; count * n],
            direction: vec![0.0; count * n],
            factor: vec![0.0; count * n * n],
            search: vec![Search::NEW; count],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.id.len()
    }

    /// Forgets what was computed at x, in another precision, but for the number of evaluations.
    pub(super) fn forget(&mut self) {
        for search in &mut self.search {
            *search = Search { evaluations: search.evaluations, ..Search::NEW };
        }
    }

    /// Removes and returns the marked rows.
    pub(super) fn take_where(&mut self, marked: &[bool]) -> Rows {
        let taken = self.copy_where(marked);
        if taken.len() > 0 {
            self.drop_where(marked);
        }
        taken
    }

    /// A copy of the marked rows.
    pub(super) fn copy_where(&self, marked: &[bool]) -> Rows {
        let n = self.n;
        let mut taken = Rows::at_rest(n, Vec::new(), Vec::new(), Vec::new());
        for row in (0..self.len()).filter(|&row| marked[row]) {
            taken.id.push(self.id[row]);
            taken.observation.push(self.observation[row]);
            taken.search.push(self.search[row]);
            taken.z.extend_from_slice(&self.z[row * n..(row + 1) * n]);
            taken.x.extend_from_slice(&self.x[row * n..(row + 1) * n]);
            taken.direction.extend_from_slice(&self.direction[row * n..(row + 1) * n]);
            taken.factor.extend_from_slice(&self.factor[row * n * n..(row + 1) * n * n]);
        }
        taken
    }

    /// Takes over the state of rows that were copied and are further now; `self` is in the order of its ids.
    pub(super) fn replace(&mut self, others: &Rows) {
        let n = self.n;
        for (row, &id) in others.id.iter().enumerate() {
            let id = id as usize;
            self.search[id] = others.search[row];
            self.x[id * n..(id + 1) * n].copy_from_slice(&others.x[row * n..(row + 1) * n]);
            self.direction[id * n..(id + 1) * n].copy_from_slice(&others.direction[row * n..(row + 1) * n]);
            self.factor[id * n * n..(id + 1) * n * n]
                .copy_from_slice(&others.factor[row * n * n..(row + 1) * n * n]);
        }
    }

    /// Puts rows back.
    pub(super) fn append(&mut self, mut other: Rows) {
        self.id.append(&mut other.id);
        self.observation.append(&mut other.observation);
        self.search.append(&mut other.search);
        self.z.append(&mut other.z);
        self.x.append(&mut other.x);
        self.direction.append(&mut other.direction);
        self.factor.append(&mut other.factor);
    }

    /// Removes the marked rows; the others keep their order.
    pub(super) fn drop_where(&mut self, marked: &[bool]) {
        let (n, mut kept) = (self.n, 0);
        for row in (0..self.len()).filter(|&row| !marked[row]) {
            if kept != row {
                self.id[kept] = self.id[row];
                self.observation[kept] = self.observation[row];
                self.search[kept] = self.search[row];
                for vector in [&mut self.z, &mut self.x, &mut self.direction] {
                    vector.copy_within(row * n..(row + 1) * n, kept * n);
                }
                self.factor.copy_within(row * n * n..(row + 1) * n * n, kept * n * n);
            }
            kept += 1;
        }
        self.id.truncate(kept);
        self.observation.truncate(kept);
        self.search.truncate(kept);
        for vector in [&mut self.z, &mut self.x, &mut self.direction] {
            vector.truncate(kept * n);
        }
        self.factor.truncate(kept * n * n);
    }
}

/// One shard's view of the rows during a round.
pub(super) struct Span<'a> {
    pub(super) observation: &'a [u32],
    pub(super) z: &'a [f64],
    pub(super) x: &'a mut [f64],
    pub(super) direction: &'a mut [f64],
    pub(super) factor: &'a mut [f64],
    pub(super) search: &'a mut [Search],
}

impl Span<'_> {
    /// x + step·d of every row, n numbers each.
    pub(super) fn trials<T: Real>(&self, trial: &mut [T], n: usize) {
        let points = self.x.iter().zip(self.direction.iter()).enumerate();
        for (trial, (i, (x, direction))) in trial.iter_mut().zip(points) {
            *trial = T::from_f64(x + self.search[i / n].step * direction);
        }
    }

    /// F = ∇G − z of row b, from ∇G.
    pub(super) fn misfit<T: Real>(&self, b: usize, gradient: &[T], misfit: &mut [f64]) {
        let z = &self.z[b * misfit.len()..];
        for (misfit, (gradient, z)) in misfit.iter_mut().zip(gradient.iter().zip(z)) {
            *misfit = gradient.to_f64() - z;
        }
    }

    /// Row b's next direction from its factor of H, d = −(LLᵀ)⁻¹F, with the first step to try along it.
    pub(super) fn aim(&mut self, b: usize, misfit: &[f64], step: f64) {
        let n = misfit.len();
        let direction = &mut self.direction[b * n..(b + 1) * n];
        for (direction, misfit) in direction.iter_mut().zip(misfit) {
            *direction = -misfit;
        }
        spd::solve(&self.factor[b * n * n..(b + 1) * n * n], direction);
        let search = &mut self.search[b];
        search.slope = direction.iter().zip(misfit).map(|(d, f)| d * f).sum();
        search.residual = largest(misfit);
        search.step = step;
    }
}

impl Rows {
    pub(super) fn spans(&mut self) -> impl Iterator<Item = Span<'_>> {
        let n = self.n;
        let fixed = self.observation.chunks(ROWS).zip(self.z.chunks(ROWS * n));
        let points = self.x.chunks_mut(ROWS * n).zip(self.direction.chunks_mut(ROWS * n));
        let rest = self.factor.chunks_mut(ROWS * n * n).zip(self.search.chunks_mut(ROWS));
        fixed.zip(points).zip(rest).map(|(((observation, z), (x, direction)), (factor, search))| Span {
            observation,
            z,
            x,
            direction,
            factor,
            search,
        })
    }
}

/// ‖v‖∞, NaN where an entry is.
pub(super) fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |most, value| if value.abs() > most || value.is_nan() { value.abs() } else { most })
}
