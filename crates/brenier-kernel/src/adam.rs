//! One step of Adam on a slice.

use super::Real;

/// The step's constants, with bias corrections folded into `step` and `epsilon`.
pub struct AdamRates<T> {
    /// Decay of the mean of gradients.
    pub beta1: T,
    /// Decay of the mean of their squares.
    pub beta2: T,
    /// The step size, bias corrections included.
    pub step: T,
    /// Added to the root of the squares.
    pub epsilon: T,
    /// What decoupled weight decay leaves of a parameter.
    pub keep: T,
}

/// m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← keep·p − step·m / (√v + ε).
#[inline(always)]
pub fn adam_step<T: Real>(p: &mut [T], m: &mut [T], v: &mut [T], g: &[T], rates: &AdamRates<T>) {
    let length = p.len();
    let (m, v, g) = (&mut m[..length], &mut v[..length], &g[..length]);
    let (fresh1, fresh2) = (T::ONE - rates.beta1, T::ONE - rates.beta2);
    for i in 0..length {
        m[i] = m[i].fma(rates.beta1, g[i] * fresh1);
        v[i] = v[i].fma(rates.beta2, g[i] * g[i] * fresh2);
        let step = rates.step * m[i] / (v[i].square_root() + rates.epsilon);
        p[i] = p[i].fma(rates.keep, -step);
    }
}
