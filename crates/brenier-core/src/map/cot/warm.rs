//! The warm start: flow matching for the potential's own gradient.
//!
//! With x_t = (1 − t)x + tz and z ~ N(0, I), the field E\[z − x | x_t, y\] carries π(x | y) to N(0, I) and is a gradient, −∇ₓΦ* with
//! Φ* = (t log p_t(x_t | y) + ½‖x_t‖²)/(1 − t) and p_t the density of x_t. Warm steps minimise the mean of
//!
//! ½‖∇ₓΦ(t, x_t; y) + z − x‖²,
//!
//! one evaluation of ∇ₓΦ a row and its adjoint, without a trajectory and without a Laplacian.

use super::flow::{Shard, Track};
use super::potential::{Frame, Times};
use super::{CotMap, CotWorkspace};
use crate::Result;
use crate::kernel::Real;
use crate::map::batch::Contexts;
use crate::map::lines::Lines;

impl<T: Real> CotMap<T> {
    /// What [`Trainable::adjoints`](crate::map::Trainable::adjoints) does in a warm step, with given times t and noise z of the loaded
    /// rows in place of random ones: the mean of ½‖∇ₓΦ(t, x_t; y) + z − x‖².
    pub fn warm_adjoints_at(&self, workspace: &mut CotWorkspace<T>, t: &[f64], z: &[T]) -> Result<f64> {
        let n = self.layout.shape.target;
        let (x, lines) = workspace.rows_and_lines(n);
        lines.scatter_at(x, n, t, z)?;
        self.warm_adjoints(workspace)
    }

    /// The loss of the shard's rows, which begin at row `first` of the lines, and its adjoints, times `weight`: in the parameters and
    /// in the contexts (`records`).
    pub(super) fn match_rows(
        &self,
        frame: &Frame<T>,
        track: &mut Track<T>,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        lines: &Lines<T>,
        (first, rows): (usize, usize),
        weight: f64,
        records: &mut [T],
    ) {
        let n = self.layout.shape.target;
        let Track { stages, scratch, bars, v, stage_bar, .. } = track;
        let (stage, bars) = (&mut stages[0], bars.as_mut().expect("a track for the reverse pass"));
        let times = Times::Own(&lines.times[first..first + rows]);
        let own = first * n..(first + rows) * n;
        let (x, wanted) = (&lines.moved[own.clone()], &lines.wanted[own]);
        self.evaluate(frame, stage, scratch, contexts, times, x, rows);
        shard.loss = 0.0;
        let (v, weight) = (&mut v[..(n + 1) * rows], T::from_f64(weight));
        let each = v.chunks_exact_mut(n + 1).zip(stage.gradient.chunks_exact(n + 1));
        for ((v, gradient), wanted) in each.zip(wanted.chunks_exact(n)) {
            v[0] = T::ZERO;
            for ((v, &gradient), &wanted) in v[1..].iter_mut().zip(&gradient[1..]).zip(wanted) {
                let miss = gradient + wanted;
                shard.loss += 0.5 * miss.to_f64() * miss.to_f64();
                *v = weight * miss;
            }
        }
        let sums = shard.sums.as_mut().expect("a shard that sums adjoints");
        sums.clear();
        records.fill(T::ZERO);
        let (at, adjoint) = ((times, x), (&*v, T::ZERO));
        self.pull_stage(frame, stage, scratch, bars, Some(sums), records, at, adjoint, rows, stage_bar);
    }
}
