//! Where the inversion starts: the closer, the fewer evaluations a draw takes.

use rayon::prelude::*;

use super::features::Shards;
use super::inverse::{COARSE, InverseSettings, PcpInverter};
use super::rows::Rows;
use crate::kernel::spd;

/// Observations with at least this many draws start from the linearisation at their centre.
const CENTRED_FROM: usize = 8;
/// Pilot draws for each coefficient of the quadratic.
const PILOTS_PER_TERM: usize = 4;
/// Draws for each pilot from which on the pilots pay.
const DRAWS_PER_PILOT: usize = 10;
/// Coefficients from which on the quadratic costs more than it saves.
const MOST_TERMS: usize = 100;

impl PcpInverter {
    /// Starting points: for observations with many draws the linearisation at z = 0, x₀ = x_c + H_c⁻¹ z, and with
    /// very many a quadratic in z.
    pub(super) fn start(
        &self,
        z: &[f64],
        observation: &[u32],
        observations: usize,
        coarse: &[f32],
        settings: &InverseSettings,
        shards: &Shards<f32>,
    ) -> Rows {
        let n = self.fine.layout.shape.target;
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
        self.coarse.newton(&mut centres, coarse, COARSE, settings.max_iterations, shards);
        let mut place = vec![usize::MAX; observations];
        for (row, &o) in centres.observation.iter().enumerate() {
            place[o as usize] = row;
        }
        for row in 0..count {
            let centre = place[observation[row] as usize];
            if centre == usize::MAX {
                continue;
            }
            let x = &mut rows.x[row * n..(row + 1) * n];
            x.copy_from_slice(&z[row * n..(row + 1) * n]);
            spd::solve(&centres.factor[centre * n * n..(centre + 1) * n * n], x);
            for (x, c) in x.iter_mut().zip(&centres.x[centre * n..(centre + 1) * n]) {
                *x += c;
            }
        }
        self.bend_starts(&mut rows, &draws, coarse, settings, shards);
        rows
    }

    /// Replaces the starts of observations with very many draws by a quadratic in z, x ≈ Σ c_t φ_t(z), fitted to a
    /// few draws that are solved first.
    fn bend_starts(
        &self,
        rows: &mut Rows,
        draws: &[usize],
        coarse: &[f32],
        settings: &InverseSettings,
        shards: &Shards<f32>,
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
        let pick =
            |values: &[f64]| chosen.iter().flat_map(|&row| values[row * n..(row + 1) * n].to_vec()).collect();
        let observation = chosen.iter().map(|&row| rows.observation[row]).collect();
        let ids = chosen.iter().map(|&row| row as u32).collect();
        let mut pilot = Rows::at_rest(n, ids, observation, pick(&rows.z));
        pilot.x = pick(&rows.x);
        self.coarse.newton(&mut pilot, coarse, COARSE, settings.max_iterations, shards);
        pilot.take_free_step(COARSE);

        let mut members: Vec<Vec<usize>> = vec![Vec::new(); draws.len()];
        for (row, &o) in pilot.observation.iter().enumerate() {
            if pilot.residual[row] <= COARSE {
                members[o as usize].push(row);
            }
        }
        let quadratics: Vec<Option<Vec<f64>>> =
            members.par_iter().map(|members| fit_quadratic(&pilot, members, terms)).collect();
        let starts = rows.x.par_chunks_mut(n).zip(rows.z.par_chunks(n)).zip(&rows.observation);
        starts.with_min_len(64).for_each_init(
            || vec![0.0; terms],
            |phi, ((x, z), &o)| {
                if let Some(coefficients) = &quadratics[o as usize] {
                    monomials(z, phi);
                    for (j, x) in x.iter_mut().enumerate() {
                        *x = (0..terms).map(|t| phi[t] * coefficients[t + j * terms]).sum();
                    }
                }
            },
        );
        for (row, &id) in pilot.id.iter().enumerate() {
            let id = id as usize;
            rows.x[id * n..(id + 1) * n].copy_from_slice(&pilot.x[row * n..(row + 1) * n]);
            rows.rounds[id] = pilot.rounds[row];
        }
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
                coefficients[t + j * terms] += phi[t] * pilot.x[row * n + j];
            }
        }
    }
    spd::cholesky(&mut gram, &mut spd::SpdScratch::new(terms))?;
    for column in coefficients.chunks_exact_mut(terms) {
        spd::solve(&gram, column);
    }
    coefficients.iter().all(|c| c.is_finite()).then_some(coefficients)
}
