//! Where the inversion starts: the closer, the fewer evaluations a draw takes.

use super::inverse::Inverse;
use super::newton::{Goal, newton};
use super::rows::{Rows, Search};
use super::{ConvexPotential, Shards};
use crate::kernel::spd;
use crate::parallel::{each_with, results};

/// Observations with at least this many draws start from the linearisation at their centre.
const CENTRED_FROM: usize = 8;
/// Pilot draws for each coefficient of the quadratic.
const PILOTS_PER_TERM: usize = 4;
/// Draws for each pilot from which on the pilots pay.
const DRAWS_PER_PILOT: usize = 10;
/// Coefficients from which on the quadratic costs more than it saves.
const MOST_TERMS: usize = 100;

impl<C: ConvexPotential<f32>, F: ConvexPotential<f64>> Inverse<'_, C, F> {
    /// Starting points: for observations with many draws the linearisation at z = 0, x₀ = x_c + H_c⁻¹ z, and with
    /// very many a quadratic in z.
    ///
    /// Each is a trial step from the centre x_c, to be judged as any other: where H changes fast it may be far off.
    pub(super) fn start(
        &self,
        z: &[f64],
        observation: &[u32],
        observations: usize,
        coarse: &[f32],
        goal: Goal,
        shards: &Shards<C::Shard>,
    ) -> Rows {
        let n = self.fine.target();
        let count = observation.len();
        let mut rows = Rows::at_rest(n, (0..count as u32).collect(), observation.to_vec(), z.to_vec());
        let mut draws = vec![0_usize; observations];
        for &o in observation {
            draws[o as usize] += 1;
        }
        let centred: Vec<u32> =
            (0..observations as u32).filter(|&o| draws[o as usize] >= CENTRED_FROM).collect();
        if centred.is_empty() {
            return rows;
        }
        let ids: Vec<u32> = (0..centred.len() as u32).collect();
        let mut centres = Rows::at_rest(n, ids, centred.clone(), vec![0.0; centred.len() * n]);
        // The centre need not be exact: single-precision Newton is enough.
        newton(self.coarse, &mut centres, coarse, goal, shards);
        let mut place = vec![usize::MAX; observations];
        for (row, &o) in centres.observation.iter().enumerate() {
            if centres.search[row].merit.is_finite() {
                place[o as usize] = row;
            }
        }
        let mut pull = vec![0.0; n];
        for row in 0..count {
            let centre = place[observation[row] as usize];
            if centre == usize::MAX {
                continue;
            }
            let (own, theirs) = (row * n..(row + 1) * n, centre * n..(centre + 1) * n);
            let factor = &centres.factor[centre * n * n..(centre + 1) * n * n];
            let (centre_x, centre_step) = (&centres.x[theirs.clone()], &centres.direction[theirs]);
            // d = H⁻¹(z − ∇G(x_c)), where the centre's own direction is −H⁻¹∇G(x_c).
            let direction = &mut rows.direction[own.clone()];
            direction.copy_from_slice(&z[own.clone()]);
            spd::solve(factor, direction);
            for (direction, step) in direction.iter_mut().zip(centre_step) {
                *direction += step;
            }
            spd::multiply(factor, direction, &mut pull);
            rows.x[own.clone()].copy_from_slice(centre_x);
            let linear: f64 = centre_x.iter().zip(&z[own.clone()]).map(|(x, z)| x * z).sum();
            rows.search[row] = Search {
                merit: centres.search[centre].merit - linear,
                slope: -pull.iter().zip(direction.iter()).map(|(p, d)| p * d).sum::<f64>(),
                step: 1.0,
                ..Search::NEW
            };
        }
        self.bend_starts(&mut rows, &centres, &place, &draws, coarse, goal, shards);
        rows
    }

    /// Replaces the starts of observations with very many draws by a quadratic in z, x ≈ Σ c_t φ_t(z), fitted to a
    /// few draws that are solved first.
    fn bend_starts(
        &self,
        rows: &mut Rows,
        centres: &Rows,
        place: &[usize],
        draws: &[usize],
        coarse: &[f32],
        goal: Goal,
        shards: &Shards<C::Shard>,
    ) {
        let n = rows.n;
        let terms = 1 + n + n * (n + 1) / 2;
        let pilots = PILOTS_PER_TERM * terms;
        let many = |o: usize| terms <= MOST_TERMS && draws[o] >= DRAWS_PER_PILOT * pilots;
        let mut taken = vec![0; draws.len()];
        let mut chosen = Vec::new();
        for (row, &o) in rows.observation.iter().enumerate() {
            if many(o as usize) && taken[o as usize] < pilots {
                taken[o as usize] += 1;
                chosen.push(row);
            }
        }
        if chosen.is_empty() {
            return;
        }
        let mut marked = vec![false; rows.len()];
        chosen.iter().for_each(|&row| marked[row] = true);
        let mut pilot = rows.copy_where(&marked);
        newton(self.coarse, &mut pilot, coarse, goal, shards);

        let mut members: Vec<Vec<usize>> = vec![Vec::new(); draws.len()];
        for (row, &o) in pilot.observation.iter().enumerate() {
            if goal.reached(&pilot.search[row]) {
                members[o as usize].push(row);
            }
        }
        let quadratics: Vec<Option<Vec<f64>>> =
            results(&members, |_, members| fit_quadratic(&pilot, members, terms));
        each_with(
            rows.spans(),
            || (vec![0.0; terms], vec![0.0; n], vec![0.0; n]),
            |(phi, step, pull), _, span| {
                for (b, &o) in span.observation.iter().enumerate() {
                    let (quadratic, centre) = (&quadratics[o as usize], place[o as usize]);
                    let Some(coefficients) = quadratic.as_ref().filter(|_| centre != usize::MAX) else {
                        continue;
                    };
                    let own = b * n..(b + 1) * n;
                    let direction = &mut span.direction[own.clone()];
                    monomials(&span.z[own.clone()], phi);
                    for (j, (step, x)) in step.iter_mut().zip(&span.x[own]).enumerate() {
                        *step = (0..terms).map(|t| phi[t] * coefficients[t + j * terms]).sum::<f64>() - x;
                    }
                    // F = −Hd at the centre, d the direction so far.
                    spd::multiply(&centres.factor[centre * n * n..(centre + 1) * n * n], direction, pull);
                    let slope = -pull.iter().zip(step.iter()).map(|(p, s)| p * s).sum::<f64>();
                    if slope < 0.0 {
                        direction.copy_from_slice(step);
                        span.search[b].slope = slope;
                    }
                }
            },
        );
        rows.replace(&pilot);
    }
}

/// 1, z_i and z_i z_j.
fn monomials(z: &[f64], phi: &mut [f64]) {
    phi[0] = 1.0;
    phi[1..=z.len()].copy_from_slice(z);
    let mut next = 1 + z.len();
    for i in 0..z.len() {
        for j in 0..=i {
            phi[next] = z[i] * z[j];
            next += 1;
        }
    }
}

/// Least-squares coefficients (terms × n, column-major) over the solved pilots, if they determine them.
fn fit_quadratic(pilot: &Rows, members: &[usize], terms: usize) -> Option<Vec<f64>> {
    let n = pilot.n;
    if members.len() < 2 * terms {
        return None;
    }
    let mut gram = vec![0.0; terms * terms];
    let mut coefficients = vec![0.0; terms * n];
    let mut phi = vec![0.0; terms];
    for &row in members {
        monomials(&pilot.z[row * n..(row + 1) * n], &mut phi);
        for t in 0..terms {
            for s in t..terms {
                gram[s + t * terms] += phi[s] * phi[t];
            }
            for j in 0..n {
                // The step at hand is taken for free.
                let solved = pilot.x[row * n + j] + pilot.direction[row * n + j];
                coefficients[t + j * terms] += phi[t] * solved;
            }
        }
    }
    spd::cholesky(&mut gram, &mut spd::SpdScratch::new(terms))?;
    for column in coefficients.chunks_exact_mut(terms) {
        spd::solve(&gram, column);
    }
    coefficients.iter().all(|c| c.is_finite()).then_some(coefficients)
}
