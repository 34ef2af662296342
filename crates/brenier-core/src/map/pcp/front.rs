//! The conditional affine front: u = L(y)(x − μ(y)), so that place and scale of the posterior come straight from y.
//!
//! With L lower triangular, its diagonal positive, and G(x; y) = F(u; y) for a potential F that is strongly convex in u,
//!
//! z = ∇ₓG = Lᵀ∇ᵤF,   H = LᵀF''L,   log det H = 2 log det L + log det F'',
//!
//! so that G is strongly convex in x and z still the gradient of a potential. μ and L are rows of the context network: a
//! direct term in y and one in the last context,
//!
//! (μ, t) = Lf₀ y + bf₀ + Lf_K v_K + bf_K,   L_ii = exp(B tanh(t_ii/B)),   L_ij = t_ij for i > j.

use super::PcpMap;
use super::features::Shard;
use super::shape::Front;
use crate::kernel::{Real, spd};
use crate::map::batch::Contexts;
use crate::map::gaussian::Regression;

/// B: a diagonal entry of L stays between e^−8 and e^8, however far y is from the training rows.
const BOUND: f64 = 8.0;

/// The front of one row: μ, and L column by column from the diagonal down.
#[derive(Clone, Copy)]
pub(super) struct Affine<'a, T> {
    n: usize,
    mean: &'a [T],
    lower: &'a [T],
}

impl<'a, T: Real> Affine<'a, T> {
    fn of(values: &'a [T], n: usize) -> Self {
        let (mean, lower) = values.split_at(n);
        Self { n, mean, lower }
    }

    /// The columns of L from the diagonal down.
    fn columns(self) -> impl Iterator<Item = (usize, &'a [T])> {
        let mut rest = self.lower;
        (0..self.n).map(move |j| {
            let (column, after) = rest.split_at(self.n - j);
            rest = after;
            (j, column)
        })
    }

    /// u = Lc.
    fn multiply(self, c: &[T], u: &mut [T]) {
        u.fill(T::ZERO);
        for (j, column) in self.columns() {
            for (u, &l) in u[j..].iter_mut().zip(column) {
                *u = l.fma(c[j], *u);
            }
        }
    }

    /// z = Lᵀg.
    fn multiply_transposed(self, g: &[T], z: &mut [T]) {
        for (j, column) in self.columns() {
            z[j] = column.iter().zip(&g[j..]).fold(T::ZERO, |sum, (&l, &g)| l.fma(g, sum));
        }
    }

    /// log det L.
    fn log_det(self) -> f64 {
        self.columns().map(|(_, column)| column[0].to_f64().ln()).sum()
    }
}

impl Affine<'_, f64> {
    /// g with Lᵀg = z, in place of z.
    pub(super) fn solve_transposed(self, z: &mut [f64]) {
        let columns: Vec<(usize, &[f64])> = self.columns().collect();
        for &(j, column) in columns.iter().rev() {
            let known: f64 = column[1..].iter().zip(&z[j + 1..]).map(|(l, g)| l * g).sum();
            z[j] = (z[j] - known) / column[0];
        }
    }

    /// x = L⁻¹u + μ, in place of u.
    pub(super) fn leave(self, u: &mut [f64]) {
        for (j, column) in self.columns() {
            u[j] /= column[0];
            let c = u[j];
            for (u, l) in u[j + 1..].iter_mut().zip(&column[1..]) {
                *u -= l * c;
            }
        }
        u.iter_mut().zip(self.mean).for_each(|(u, mean)| *u += mean);
    }

    /// How far Lᵀ may stretch a residual: its largest sum of magnitudes along a row.
    pub(super) fn stretch(self) -> f64 {
        self.columns().map(|(_, column)| column.iter().map(|l| l.abs()).sum()).fold(0.0, f64::max)
    }
}

impl<T: Real> PcpMap<T> {
    pub(super) fn has_front(&self) -> bool {
        self.layout.shape.front == Front::Affine
    }

    /// The front of an observation, from its record.
    pub(super) fn front<'a>(&self, record: &'a [T]) -> Affine<'a, T> {
        let head = &self.layout.layers[self.layout.shape.depth];
        Affine::of(&head.of(record)[head.front.clone()], self.layout.shape.target)
    }

    /// Makes μ and L of the sums in a record.
    pub(super) fn close_front(&self, record: &mut [T]) {
        let (n, layers) = (self.layout.shape.target, &self.layout.layers);
        let (first, head) = (&layers[0], &layers[self.layout.shape.depth]);
        let (low, high) = record.split_at_mut(head.record);
        let own = &mut high[head.front.clone()];
        for (sum, &direct) in own.iter_mut().zip(&first.of(low)[first.front.clone()]) {
            *sum += direct;
        }
        let (bound, mut place) = (T::from_f64(BOUND), n);
        for j in 0..n {
            own[place] = (bound * (own[place] / bound).tanh_vec()).exp_vec();
            place += n - j;
        }
    }

    /// x − μ and u = L(x − μ) of every row, into the shard.
    pub(super) fn enter_front(&self, shard: &mut Shard<T>, contexts: Contexts<'_, T>, x: &[T], rows: usize) {
        let n = self.layout.shape.target;
        for b in 0..rows {
            let (front, row) = (self.front(contexts.row(b)), b * n..(b + 1) * n);
            let centred = &mut shard.centred[row.clone()];
            for ((c, &x), &mean) in centred.iter_mut().zip(&x[row.clone()]).zip(front.mean) {
                *c = x - mean;
            }
            front.multiply(centred, &mut shard.u[row]);
        }
    }

    /// z = Lᵀ∇ᵤF, with ∇ᵤF kept, and the log-determinant of the whole.
    pub(super) fn leave_front(&self, shard: &mut Shard<T>, contexts: Contexts<'_, T>, rows: usize) {
        let n = self.layout.shape.target;
        std::mem::swap(&mut shard.z, &mut shard.inner);
        for b in 0..rows {
            let (front, row) = (self.front(contexts.row(b)), b * n..(b + 1) * n);
            front.multiply_transposed(&shard.inner[row.clone()], &mut shard.z[row]);
            shard.log_det[b] += 2.0 * front.log_det();
        }
    }

    /// The adjoint of the front around that of the potential in u, which `inside` runs with the adjoint of ∇ᵤF, Lz̄, in the
    /// place of z̄ and leaves the adjoint of u behind.
    ///
    /// c̄ = Lᵀū = x̄ = −μ̄,   L̄ = ∇ᵤF z̄ᵀ + ū cᵀ,   and −2 for every entry of log diag L.
    pub(super) fn pull_back_front(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        rows: usize,
        weight: f64,
        records: &mut [T],
        x_bar: Option<&mut [T]>,
        inside: impl FnOnce(&mut Shard<T>, &[T], &mut [T], &mut [T]),
    ) {
        let (n, stride) = (self.layout.shape.target, self.layout.record);
        let mut outer = std::mem::take(&mut shard.outer);
        std::mem::swap(&mut shard.z, &mut outer);
        for b in 0..rows {
            let row = b * n..(b + 1) * n;
            self.front(contexts.row(b)).multiply(&outer[row.clone()], &mut shard.z[row]);
        }
        let (u, mut u_bar) = (std::mem::take(&mut shard.u), std::mem::take(&mut shard.u_bar));
        inside(shard, &u, &mut u_bar[..rows * n], records);
        let (first, head) = (&self.layout.layers[0], &self.layout.layers[self.layout.shape.depth]);
        let share = T::from_f64(weight);
        let bound = T::from_f64(BOUND);
        let mut x_bar = x_bar;
        for b in 0..rows {
            let (front, row) = (self.front(contexts.row(b)), b * n..(b + 1) * n);
            let (u_bar, z) = (&u_bar[row.clone()], &outer[row.clone()]);
            let (inner, centred) = (&shard.inner[row.clone()], &shard.centred[row.clone()]);
            let record = &mut records[b * stride..(b + 1) * stride];
            let bars = &mut head.of_mut(record)[head.front.clone()];
            let (mean_bar, mut lower_bar) = bars.split_at_mut(n);
            front.multiply_transposed(u_bar, mean_bar);
            if let Some(x_bar) = x_bar.as_deref_mut() {
                x_bar[row].copy_from_slice(mean_bar);
            }
            mean_bar.iter_mut().for_each(|bar| *bar = -*bar);
            for (j, column) in front.columns() {
                let (own, rest) = lower_bar.split_at_mut(n - j);
                let z_bar = share * z[j];
                for ((bar, &g), &u_bar) in own.iter_mut().zip(&inner[j..]).zip(&u_bar[j..]) {
                    *bar = g.fma(z_bar, u_bar * centred[j]);
                }
                let log = column[0].ln_vec() / bound;
                own[0] = (own[0] * column[0] - share - share) * (T::ONE - log * log);
                lower_bar = rest;
            }
            let (low, high) = record.split_at_mut(head.record);
            first.of_mut(low)[first.front.clone()].copy_from_slice(&high[head.front.clone()]);
        }
        (shard.u, shard.u_bar, shard.outer) = (u, u_bar, outer);
    }

    /// F'' (n × n, symmetric) of a row turned into H = LᵀF''L.
    pub(super) fn turn_hessian(&self, record: &[T], hessian: &mut [T]) {
        let (n, front) = (self.layout.shape.target, self.front(record));
        let mut half = vec![T::ZERO; n * n];
        // Rows of F''L are columns of its transpose, LᵀF''.
        for (j, column) in hessian.chunks_exact(n).enumerate() {
            front.multiply_transposed(column, &mut half[j * n..(j + 1) * n]);
        }
        for i in 0..n {
            let row: Vec<T> = (0..n).map(|j| half[i + j * n]).collect();
            let mut turned = vec![T::ZERO; n];
            front.multiply_transposed(&row, &mut turned);
            hessian[i * n..(i + 1) * n].copy_from_slice(&turned);
        }
    }

    /// Starts the front at a linear regression of the target on the given variables: with F = ½‖u‖² the map would be
    /// that Gaussian's.
    pub(super) fn start_front(&mut self, regression: &Regression) {
        let (n, m, depth) = (self.layout.shape.target, self.layout.shape.given, self.layout.shape.depth);
        let (first, head) = (self.layout.layers[0].clone(), self.layout.layers[depth].clone());
        let weight = |j: usize, i: usize| first.weight.start + first.front.start + i + j * first.rows;
        for i in 0..n {
            for j in 0..m {
                self.parameters[weight(j, i)] = T::from_f64(regression.slopes[i + j * n]);
            }
            self.parameters[head.bias_at(head.front.start + i)] = T::from_f64(regression.shift[i]);
        }
        // LᵀL = Q = Σ^(−1/2): the Cholesky factor of Q with rows and columns in reverse, turned around.
        let flipped = |i: usize| n - 1 - i;
        let mut factor: Vec<f64> = (0..n * n)
            .map(|place| {
                let (i, j) = (flipped(place % n), flipped(place / n));
                regression.root_precision[i + j * n]
            })
            .collect();
        if spd::cholesky(&mut factor, &mut spd::SpdScratch::new(n)).is_none() {
            return;
        }
        let mut place = head.front.start + n;
        for j in 0..n {
            for i in j..n {
                let value = factor[flipped(j) + flipped(i) * n];
                let limit = BOUND - 1e-3;
                let start = match i == j {
                    true => BOUND * (value.ln().clamp(-limit, limit) / BOUND).atanh(),
                    false => value,
                };
                self.parameters[head.bias_at(place)] = T::from_f64(start);
                place += 1;
            }
        }
    }
}
