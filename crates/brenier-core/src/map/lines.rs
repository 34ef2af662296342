//! The lines from rows of data to noise, on which flow matching looks at a field: x_t = (1 − t)x + tz, z ~ N(0, I).
//!
//! A field v that minimises E ½‖v(t, x_t; y) − (z − x)‖² is E\[z − x | x_t, y\], which carries π(x | y) to N(0, I).

use rand::RngExt;
use rand_distr::StandardNormal;

use crate::kernel::Real;
use crate::train::StepRandom;
use crate::{Error, Result};

/// Times are t = 1 − u^0.4: more of them next to the data.
const TIME_POWER: f64 = 0.4;

/// A point on the line of every row of a batch.
#[derive(Debug)]
pub(super) struct Lines<T> {
    /// t.
    pub(super) times: Vec<f64>,
    /// x_t, n a row.
    pub(super) moved: Vec<T>,
    /// z − x, n a row: what the field should be there.
    pub(super) wanted: Vec<T>,
}

impl<T: Real> Lines<T> {
    /// Room for `rows` rows of n numbers.
    pub(super) fn new(rows: usize, n: usize) -> Self {
        Self { times: vec![0.0; rows], moved: vec![T::ZERO; rows * n], wanted: vec![T::ZERO; rows * n] }
    }

    /// Points of the rows x, n numbers each, with t and z of the step's own.
    pub(super) fn scatter(&mut self, x: &[T], n: usize, random: StepRandom) {
        let mut rng = random.stream();
        for (b, x) in x.chunks_exact(n).enumerate() {
            let t = 1.0 - rng.random::<f64>().powf(TIME_POWER);
            self.place(b, x, t, |_| rng.sample(StandardNormal));
        }
    }

    /// Points of the rows x, n numbers each, at given times t and with given noise z.
    pub(super) fn scatter_at(&mut self, x: &[T], n: usize, t: &[f64], z: &[T]) -> Result<()> {
        if t.len() * n != x.len() || z.len() != x.len() {
            return Err(Error::Shape {
                what: "times and noise",
                expected: format!("{} and {} numbers", x.len() / n, x.len()),
                got: format!("{} and {}", t.len(), z.len()),
            });
        }
        for (b, ((x, z), &t)) in x.chunks_exact(n).zip(z.chunks_exact(n)).zip(t).enumerate() {
            self.place(b, x, t, |j| z[j].to_f64());
        }
        Ok(())
    }

    /// The point of row b, with z by its coordinates.
    fn place(&mut self, b: usize, x: &[T], t: f64, mut z: impl FnMut(usize) -> f64) {
        self.times[b] = t;
        let own = b * x.len()..(b + 1) * x.len();
        for (j, (moved, wanted)) in self.moved[own.clone()].iter_mut().zip(&mut self.wanted[own]).enumerate()
        {
            let (x, z) = (x[j].to_f64(), z(j));
            *moved = T::from_f64(x + t * (z - x));
            *wanted = T::from_f64(z - x);
        }
    }
}
