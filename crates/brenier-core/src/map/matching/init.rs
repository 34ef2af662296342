//! Starting values of the parameters.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::field::TIME_FEATURES;
use super::shape::Layout;
use super::{MatchingMap, MatchingSettings, MatchingShape};
use crate::Result;
use crate::kernel::Real;

impl<T: Real> MatchingMap<T> {
    /// A map with random parameters, the same for the same seed: weights and biases U(±1/√fan-in), but B_i, V and their
    /// biases zero, so that the field is zero and the map the identity.
    pub fn initial(shape: MatchingShape, settings: MatchingSettings, seed: u64) -> Result<Self> {
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
        let bound = |inputs: usize| 1.0 / (inputs as f64).sqrt();
        let inputs = layout.shape.target + layout.features + TIME_FEATURES;
        for range in [&layout.context, &layout.time, &layout.bias, &layout.opening] {
            draw(&mut parameters[range.clone()], bound(inputs));
        }
        for range in &layout.inner {
            draw(&mut parameters[range.clone()], bound(layout.shape.width));
        }
        layout.embedding.initialise(&mut parameters, draw);
        Ok(Self { layout, parameters, settings })
    }
}
