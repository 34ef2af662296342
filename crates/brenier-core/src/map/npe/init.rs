//! Starting values of the parameters.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::shape::{Layer, Layout, TransformPlace};
use super::{Front, LEAST, NpeMap, NpeShape};
use crate::Result;
use crate::kernel::Real;

/// Bound of the starting values of a residual block's second layer, which make it nearly the identity.
const NEARLY_NOTHING: f64 = 1e-3;
/// The last layer of a front's network, as a part of what others start with.
const SMALL: f64 = 0.1;

impl<T: Real> NpeMap<T> {
    /// A map with random parameters, the same for the same seed: weights and biases U(±1/√fan-in), the second layer of a
    /// residual block U(±10⁻³), linear layers the identity.
    pub fn initial(shape: NpeShape, seed: u64) -> Result<Self> {
        shape.validate()?;
        let layout = Layout::new(shape);
        let mut parameters = vec![T::ZERO; layout.parameters];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |values: &mut [T], bound: f64| {
            for value in values {
                *value = T::from_f64(bound * (2.0 * rng.random::<f64>() - 1.0));
            }
        };
        let bound = |inputs: usize| 1.0 / (inputs.max(1) as f64).sqrt();
        // Inputs of each transform's first layer beside y: that of a coupling's network reads what stays too.
        let mut staying = vec![0; layout.transforms.len()];
        for (t, place) in layout.transforms.iter().enumerate() {
            let mut layer = |layer: &Layer, bound: f64| draw(&mut parameters[layer.all()], bound);
            match place {
                TransformPlace::Autoregressive { layers, .. } => {
                    layers.iter().for_each(|at| layer(at, bound(at.inputs)));
                }
                TransformPlace::Spline { layers, output } => {
                    layers.iter().chain([output]).for_each(|at| layer(at, bound(at.inputs)));
                }
                TransformPlace::Coupling { input, layers, output, linear, .. } => {
                    for pair in layers.chunks_exact(2) {
                        layer(&pair[0], bound(pair[0].inputs));
                        layer(&pair[1], NEARLY_NOTHING);
                    }
                    layer(output, bound(output.inputs));
                    staying[t] = input.len() / layout.shape.hidden_width;
                    draw(&mut parameters[input.clone()], bound(layout.features + staying[t]));
                    // softplus(d) + ε = 1.
                    let diagonal = T::from_f64((1.0 - LEAST).exp_m1().ln());
                    parameters[linear.diagonal.clone()].fill(diagonal);
                }
            }
        }
        let (h, record) = (layout.shape.hidden_width, layout.record);
        for first in (0..layout.flow_record()).step_by(h) {
            let (t, slot) = (first / h / layout.slots, first / h % layout.slots);
            let inputs = layout.features + if slot == 0 { staying[t] } else { 0 };
            let start = layout.context_bias.start + first;
            draw(&mut parameters[start..start + h], bound(inputs));
            for column in 0..layout.features {
                let start = layout.context_weight.start + column * record + first;
                draw(&mut parameters[start..start + h], bound(inputs));
            }
        }
        // A front starts near the identity: its last layer is small.
        let heads = layout.shape.front == Front::Autoregressive;
        let said = if heads { bound(layout.features) } else { NEARLY_NOTHING };
        for column in 0..layout.features {
            let start = layout.context_weight.start + column * record;
            let own = start + layout.flow_record()..start + record;
            draw(&mut parameters[own], said);
        }
        for head in &layout.heads {
            for (letter, at) in head.layers() {
                let least = if letter == 'o' { SMALL } else { 1.0 };
                draw(&mut parameters[at.weight()], least * bound(at.inputs));
            }
            // What y says passes where the coordinates before say nothing.
            let gates = head.gates.start..head.gates.start + layout.shape.front_width;
            parameters[gates].fill(T::ONE);
        }
        let n = layout.shape.target;
        for i in 0..if heads { n } else { 0 } {
            parameters[layout.rotation.start + i * (n + 1)] = T::ONE;
        }
        layout.embedding.initialise(&mut parameters, draw);
        Ok(Self { layout, parameters })
    }
}
