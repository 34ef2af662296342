//! The stochastic log-determinant of convex potential flows: one random probe a row, in the precision of the map.
//!
//! With v of random signs, E[v vᵀ] = I, so that log det H = E[vᵀ log(H) v] and ∂ log det H = E[vᵀ ∂H H⁻¹v]. The value is
//! estimated by a few steps of Lanczos' method, u = H⁻¹v by conjugate gradients. Both work on H as it is assembled in the
//! map's precision, and both fail where rounding makes H indefinite: the loss is then not finite, and training says so.

use crate::kernel::{Mat, dense};

use super::CpFlowMap;
use super::features::Pass;
use super::weights::Weights;
use crate::kernel::{Real, dot};

/// Relative residual at which conjugate gradients stop.
const RESIDUAL: f64 = 1e-3;
/// Steps of Lanczos' method.
const LANCZOS_STEPS: usize = 10;

/// A random vector v of signs for every row, with u = H⁻¹v.
#[derive(Clone, Debug)]
pub(super) struct Probes<T> {
    n: usize,
    v: Vec<T>,
    u: Vec<T>,
    room: Room<T>,
}

/// Vectors of length n, and one matrix.
#[derive(Clone, Debug)]
struct Room<T> {
    matrix: Vec<T>,
    residual: Vec<T>,
    direction: Vec<T>,
    image: Vec<T>,
}

impl<T: Real> Probes<T> {
    pub(super) fn new(n: usize, rows: usize) -> Self {
        let zeros = |length: usize| vec![T::ZERO; length];
        let room = Room { matrix: zeros(n * n), residual: zeros(n), direction: zeros(n), image: zeros(n) };
        Self { n, v: zeros(n * rows), u: zeros(n * rows), room }
    }

    /// ½(v uᵀ + u vᵀ), whose mean is H⁻¹, of row b.
    pub(super) fn inverse(&self, b: usize, inverse: &mut [f64]) {
        let n = self.n;
        let (v, u) = (&self.v[b * n..(b + 1) * n], &self.u[b * n..(b + 1) * n]);
        for j in 0..n {
            for i in 0..n {
                let (vi, vj, ui, uj) = (v[i].to_f64(), v[j].to_f64(), u[i].to_f64(), u[j].to_f64());
                inverse[i + j * n] = 0.5 * (vi * uj + ui * vj);
            }
        }
    }
}

impl<T: Real> CpFlowMap<T> {
    /// Probes of every row, solved, and the estimate of log det H.
    ///
    /// The signs come from the bits of the row as the potential sees it, which change with every step: no state has to be
    /// kept, and neither threads nor a restart change a bit.
    pub(super) fn estimate(&self, pass: &mut Pass<T>, weights: &Weights<T>, rows: usize) {
        let n = self.layout.shape.target;
        let Pass { probes, x, hessian, log_det, broken, .. } = pass;
        let Some(Probes { v, u, room, .. }) = probes else { return };
        *broken = None;
        for b in 0..rows {
            let row = b * n..(b + 1) * n;
            signs(&x[row.clone()], &mut v[row.clone()]);
            let assembled = &hessian[b * n * n..(b + 1) * n * n];
            for j in 0..n {
                for i in j..n {
                    let diagonal = if i == j { weights.b } else { T::ZERO };
                    let value = weights.a * assembled[i + j * n] + diagonal;
                    room.matrix[i + j * n] = value;
                    room.matrix[j + i * n] = value;
                }
            }
            let (v, u) = (&v[row.clone()], &mut u[row]);
            conjugate_gradients(v, u, room);
            log_det[b] = lanczos(v, room);
        }
    }
}

/// Signs from a hash of the numbers.
fn signs<T: Real>(x: &[T], v: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // SplitMix64's finaliser.
    let mut mix = |bits: u64| {
        state = state.wrapping_add(bits).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state = z ^ (z >> 31);
        state
    };
    for x in x {
        mix(x.to_f64().to_bits());
    }
    for v in v {
        *v = if mix(1) & 1 == 0 { T::ONE } else { -T::ONE };
    }
}

/// image = H · vector, H symmetric.
fn apply<T: Real>(matrix: &[T], vector: &[T], image: &mut [T]) {
    let n = vector.len();
    for (image, column) in image.iter_mut().zip(matrix.chunks_exact(n)) {
        *image = dot(column, vector);
    }
}

/// u with H u ≈ v: at most n steps, to a residual of a thousandth of v.
fn conjugate_gradients<T: Real>(v: &[T], u: &mut [T], room: &mut Room<T>) {
    let Room { matrix, residual, direction, image } = room;
    u.fill(T::ZERO);
    residual.copy_from_slice(v);
    direction.copy_from_slice(v);
    let mut square = dot(residual, residual);
    let goal = T::from_f64(RESIDUAL * RESIDUAL) * square;
    for _ in 0..v.len() {
        if square <= goal {
            break;
        }
        apply(matrix, direction, image);
        let step = square / dot(direction, image);
        for i in 0..v.len() {
            u[i] += step * direction[i];
            residual[i] -= step * image[i];
        }
        let next = dot(residual, residual);
        let ratio = next / square;
        for (direction, &residual) in direction.iter_mut().zip(residual.iter()) {
            *direction = residual + ratio * *direction;
        }
        square = next;
    }
}

/// vᵀ log(H) v ≈ ‖v‖² Σ_i τ_i² log θ_i with the eigenvalues θ_i of Lanczos' tridiagonal matrix and the first components τ_i of
/// its eigenvectors; NaN where an eigenvalue is not positive.
fn lanczos<T: Real>(v: &[T], room: &mut Room<T>) -> f64 {
    let Room { matrix, residual: before, direction: now, image } = room;
    let n = v.len();
    let steps = LANCZOS_STEPS.min(n);
    let length = dot(v, v).square_root();
    before.fill(T::ZERO);
    for (now, &v) in now.iter_mut().zip(v) {
        *now = v / length;
    }
    let (mut alphas, mut betas) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
    let mut beta = T::ZERO;
    for step in 0..steps {
        apply(matrix, now, image);
        let alpha = dot(image, now);
        alphas.push(alpha.to_f64());
        for i in 0..n {
            image[i] -= alpha * now[i] + beta * before[i];
        }
        beta = dot(image, image).square_root();
        if step + 1 == steps || beta <= T::from_f64(T::UNIT_ROUNDOFF) * alpha.magnitude() {
            break;
        }
        betas.push(beta.to_f64());
        before.copy_from_slice(now);
        for (now, &image) in now.iter_mut().zip(image.iter()) {
            *now = image / beta;
        }
    }
    let size = alphas.len();
    let tridiagonal = Mat::from_fn(size, size, |i, j| match i.abs_diff(j) {
        0 => alphas[i],
        1 => betas[i.min(j)],
        _ => 0.0,
    });
    let square = length.to_f64() * length.to_f64();
    match dense::symmetric_eigen(tridiagonal.as_ref()) {
        Some((values, vectors)) => {
            square * (0..size).map(|i| vectors[(0, i)] * vectors[(0, i)] * values[i].ln()).sum::<f64>()
        }
        None => f64::NAN,
    }
}
