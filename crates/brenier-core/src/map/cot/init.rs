//! Starting values of the parameters.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::shape::Layout;
use super::{CotMap, CotSettings, CotShape};
use crate::Result;
use crate::kernel::Real;

impl<T: Real> CotMap<T> {
    /// A map with random parameters, the same for the same seed: A_i, b_i ~ U(±1/√fan-in), a = 1,
    /// A ~ U(±√(6/(d + r))), b = c = 0; the embedding's E_l, d_l ~ U(±1/√fan-in).
    pub fn initial(shape: CotShape, settings: CotSettings, seed: u64) -> Result<Self> {
        shape.validate()?;
        settings.validate()?;
        let layout = Layout::new(shape);
        let mut parameters = vec![T::ZERO; layout.parameters];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |values: &mut [T], bound: f64| {
            for value in values {
                *value = T::from_f64(bound * (2.0 * rng.random::<f64>() - 1.0));
            }
        };
        for (i, (weight, bias)) in layout.weights.iter().zip(&layout.biases).enumerate() {
            let fan_in = if i == 0 { layout.inputs } else { layout.shape.width };
            let bound = 1.0 / (fan_in as f64).sqrt();
            draw(&mut parameters[weight.clone()], bound);
            draw(&mut parameters[bias.clone()], bound);
        }
        parameters[layout.head.clone()].fill(T::ONE);
        let bound = (6.0 / (layout.inputs + layout.shape.rank) as f64).sqrt();
        draw(&mut parameters[layout.quadratic.clone()], bound);
        layout.embedding.initialise(&mut parameters, draw);
        Ok(Self { layout, parameters, settings })
    }
}
