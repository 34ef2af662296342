//! The linear layer v = L(U u) + e of a coupling flow: L unit lower triangular, U upper triangular with a positive diagonal.

use crate::kernel::Accum;

use super::lanes::{LANES, some};
use super::shape::LinearPlace;
use super::shard::scale;
use crate::kernel::{Real, Store, Weights, columns, columns_mut, product, row_products, row_sums};

/// The layer's matrices, from its parameters.
#[derive(Clone, Debug)]
pub(super) struct Linear<T> {
    n: usize,
    /// L and U, n × n by columns.
    lower: Vec<T>,
    upper: Vec<T>,
    /// \[e | L U\].
    joined: Vec<T>,
    /// Derivatives of U's diagonal in its raw numbers.
    bends: Vec<T>,
    /// Σ log U_ii.
    pub(super) log_det: f64,
}

/// Where the gradient of a linear layer goes.
pub(super) struct LinearGradient<'a, T> {
    pub(super) place: &'a LinearPlace,
    /// That of all parameters.
    pub(super) gradient: &'a mut [T],
    /// Memory for W̄.
    pub(super) whole: &'a mut [T],
    /// Memory of [`row_sums`].
    pub(super) turned: &'a mut Vec<T>,
}

impl<T: Real> Linear<T> {
    pub(super) fn new(n: usize) -> Self {
        let zeros = |count: usize| vec![T::ZERO; count];
        Self {
            n,
            lower: zeros(n * n),
            upper: zeros(n * n),
            joined: zeros(n * (n + 1)),
            bends: zeros(n),
            log_det: 0.0,
        }
    }

    pub(super) fn prepare(&mut self, place: &LinearPlace, parameters: &[T]) {
        let n = self.n;
        let (mut low, mut up) = (place.lower.clone(), place.upper.clone());
        self.log_det = 0.0;
        for j in 0..n {
            for i in 0..j {
                self.upper[i + j * n] = up.next().map_or(T::ZERO, |at| parameters[at]);
            }
            let (diagonal, bend) = scale(parameters[place.diagonal.start + j]);
            (self.upper[j + j * n], self.bends[j]) = (diagonal, bend);
            self.log_det += diagonal.to_f64().ln();
            self.lower[j + j * n] = T::ONE;
            for i in j + 1..n {
                self.lower[i + j * n] = low.next().map_or(T::ZERO, |at| parameters[at]);
            }
        }
        self.joined[..n].copy_from_slice(&parameters[place.bias.clone()]);
        let whole = columns_mut(&mut self.joined[n..], n, n, n);
        product(whole, Accum::Replace, columns(&self.lower, n, n, n), columns(&self.upper, n, n, n));
    }

    /// The columns `out` of `rows` rows, from `input` = \[1 | u\].
    pub(super) fn forward(&self, input: &[T], out: &mut [T], stride: usize, rows: usize) {
        let n = self.n;
        let weights =
            Weights { values: &self.joined, stride: n, by_output: false, inputs: 0..n + 1, outputs: 0..n };
        let padded = rows.next_multiple_of(LANES).min(stride);
        row_products(out, stride, Store::Replace, some(input, stride, 0..n + 1), padded, weights);
    }

    /// ū = (L U)ᵀ v̄, and with W̄ = Σ v̄ uᵀ the gradient of the parameters: L̄ = W̄ Uᵀ below, Ū = Lᵀ W̄ above the diagonal
    /// and on it, where each row's −log U_ii adds `weight` times −1/U_ii.
    pub(super) fn backward(
        &self,
        input: &[T],
        bar: &[T],
        out: &mut [T],
        (stride, rows): (usize, usize),
        weight: T,
        gradient: Option<LinearGradient<'_, T>>,
    ) {
        let n = self.n;
        let bars = some(bar, stride, 0..n);
        let weights =
            Weights { values: &self.joined[n..], stride: n, by_output: true, inputs: 0..n, outputs: 0..n };
        let padded = rows.next_multiple_of(LANES).min(stride);
        row_products(out, stride, Store::Replace, bars, padded, weights);
        let Some(LinearGradient { place, gradient, whole, turned }) = gradient else { return };
        row_sums(whole, n, bars, some(input, stride, 0..n + 1), rows, turned);
        gradient[place.bias.clone()].copy_from_slice(&whole[..n]);
        let whole = &whole[n..];
        let (mut low, mut up) = (place.lower.clone(), place.upper.clone());
        let total = weight * T::from_f64(rows as f64);
        for j in 0..n {
            // Ū_ij = Σ_{k ≥ i} L_ki W̄_kj.
            for i in 0..=j {
                let sum: T = (i..n).map(|k| self.lower[k + i * n] * whole[k + j * n]).sum();
                if i < j {
                    up.next().into_iter().for_each(|at| gradient[at] = sum);
                } else {
                    let inner = sum - total / self.upper[j + j * n];
                    gradient[place.diagonal.start + j] = inner * self.bends[j];
                }
            }
            // L̄_ij = Σ_{k ≥ j} W̄_ik U_jk.
            for i in j + 1..n {
                let sum: T = (j..n).map(|k| whole[i + k * n] * self.upper[j + k * n]).sum();
                low.next().into_iter().for_each(|at| gradient[at] = sum);
            }
        }
    }

    /// The columns u with v = L(U u) + e, in place of v.
    #[inline(always)]
    pub(super) fn inverse(&self, state: &mut [T], stride: usize, padded: usize) {
        let n = self.n;
        for i in 0..n {
            let (before, here) = state.split_at_mut(i * stride);
            let here = &mut here[..padded];
            for value in here.iter_mut() {
                *value -= self.joined[i];
            }
            for j in 0..i {
                let factor = -self.lower[i + j * n];
                for (value, &other) in here.iter_mut().zip(&before[j * stride..]) {
                    *value = other.fma(factor, *value);
                }
            }
        }
        for i in (0..n).rev() {
            let (here, after) = state[i * stride..].split_at_mut(stride);
            let here = &mut here[..padded];
            for j in i + 1..n {
                let factor = -self.upper[i + j * n];
                for (value, &other) in here.iter_mut().zip(&after[(j - i - 1) * stride..]) {
                    *value = other.fma(factor, *value);
                }
            }
            let inverse = T::ONE / self.upper[i + i * n];
            for value in here.iter_mut() {
                *value *= inverse;
            }
        }
    }
}
