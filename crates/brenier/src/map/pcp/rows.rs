//! The rows of an inversion that are not solved yet: side by side, dropping out as they converge.

use rayon::prelude::*;

/// Rows evaluated together.
pub(super) const ROWS: usize = 64;

/// The unsolved rows, side by side so that a round can be split over threads.
pub(super) struct Rows {
    pub(super) n: usize,
    /// Place of each row in the answer.
    pub(super) id: Vec<u32>,
    /// Observation of each row.
    pub(super) observation: Vec<u32>,
    pub(super) z: Vec<f64>,
    pub(super) x: Vec<f64>,
    pub(super) direction: Vec<f64>,
    /// Cholesky factor of H at the last accepted point.
    pub(super) factor: Vec<f64>,
    pub(super) step: Vec<f64>,
    pub(super) merit: Vec<f64>,
    pub(super) residual: Vec<f64>,
    pub(super) rounds: Vec<u32>,
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
            step: vec![0.0; count],
            merit: vec![f64::INFINITY; count],
            residual: vec![f64::INFINITY; count],
            rounds: vec![0; count],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.id.len()
    }

    /// Takes the step at hand of every row that came close: it costs nothing.
    pub(super) fn take_free_step(&mut self, tolerance: f64) {
        for (row, &residual) in self.residual.iter().enumerate() {
            if residual <= tolerance {
                for i in row * self.n..(row + 1) * self.n {
                    self.x[i] += self.direction[i];
                }
            }
        }
    }

    /// Removes and returns the marked rows.
    pub(super) fn take_where(&mut self, marked: &[bool]) -> Rows {
        let n = self.n;
        let mut taken = Rows::at_rest(n, Vec::new(), Vec::new(), Vec::new());
        for row in (0..self.len()).filter(|&row| marked[row]) {
            taken.id.push(self.id[row]);
            taken.observation.push(self.observation[row]);
            taken.step.push(self.step[row]);
            taken.merit.push(self.merit[row]);
            taken.residual.push(self.residual[row]);
            taken.rounds.push(self.rounds[row]);
            taken.z.extend_from_slice(&self.z[row * n..(row + 1) * n]);
            taken.x.extend_from_slice(&self.x[row * n..(row + 1) * n]);
            taken.direction.extend_from_slice(&self.direction[row * n..(row + 1) * n]);
            taken.factor.extend_from_slice(&self.factor[row * n * n..(row + 1) * n * n]);
        }
        if taken.len() > 0 {
            self.retain(|row| !marked[row]);
        }
        taken
    }

    /// Puts rows back.
    pub(super) fn append(&mut self, mut other: Rows) {
        self.id.append(&mut other.id);
        self.observation.append(&mut other.observation);
        self.step.append(&mut other.step);
        self.merit.append(&mut other.merit);
        self.residual.append(&mut other.residual);
        self.rounds.append(&mut other.rounds);
        self.z.append(&mut other.z);
        self.x.append(&mut other.x);
        self.direction.append(&mut other.direction);
        self.factor.append(&mut other.factor);
    }

    /// Keeps the rows for which `keep` holds, in order.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let (n, mut kept) = (self.n, 0);
        for row in 0..self.len() {
            if !keep(row) {
                continue;
            }
            if kept != row {
                self.id[kept] = self.id[row];
                self.observation[kept] = self.observation[row];
                self.step[kept] = self.step[row];
                self.merit[kept] = self.merit[row];
                self.residual[kept] = self.residual[row];
                self.rounds[kept] = self.rounds[row];
                for vector in [&mut self.z, &mut self.x, &mut self.direction] {
                    vector.copy_within(row * n..(row + 1) * n, kept * n);
                }
                self.factor.copy_within(row * n * n..(row + 1) * n * n, kept * n * n);
            }
            kept += 1;
        }
        self.id.truncate(kept);
        self.observation.truncate(kept);
        for scalars in [&mut self.step, &mut self.merit, &mut self.residual] {
            scalars.truncate(kept);
        }
        self.rounds.truncate(kept);
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
    pub(super) step: &'a mut [f64],
    pub(super) merit: &'a mut [f64],
    pub(super) residual: &'a mut [f64],
    pub(super) rounds: &'a mut [u32],
}

impl Rows {
    pub(super) fn spans(&mut self) -> impl IndexedParallelIterator<Item = Span<'_>> {
        let n = self.n;
        let fixed = self.observation.par_chunks(ROWS).zip(self.z.par_chunks(ROWS * n));
        let points = self.x.par_chunks_mut(ROWS * n).zip(self.direction.par_chunks_mut(ROWS * n));
        let scalars = self.step.par_chunks_mut(ROWS).zip(self.merit.par_chunks_mut(ROWS));
        let rest = self.residual.par_chunks_mut(ROWS).zip(self.rounds.par_chunks_mut(ROWS));
        let all = fixed.zip(points).zip(self.factor.par_chunks_mut(ROWS * n * n)).zip(scalars).zip(rest);
        all.map(|(((((observation, z), (x, direction)), factor), (step, merit)), (residual, rounds))| Span {
            observation,
            z,
            x,
            direction,
            factor,
            step,
            merit,
            residual,
            rounds,
        })
    }
}
