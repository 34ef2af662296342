//! The training loop on a map of one parameter whose loss can be made to break down.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dataset, Stop, TrainEvent, TrainSettings, train};
use crate::map::method::Training;
use crate::map::{ConditionalMap, Constraint, ParameterBlock, TensorSpec, Trainable};
use crate::{Error, Event, Result, Run};

/// The loss ½(θ − 3)², except where `broken` says that a step breaks down.
struct Fragile {
    parameters: Vec<f32>,
    steps: AtomicU64,
    broken: fn(u64) -> bool,
    /// Whether validations break down too.
    blind: bool,
    /// The largest error of a step's slope.
    noise: f32,
}

struct Room {
    /// θ − 3 of the last step.
    slope: f32,
    x: Vec<f32>,
    y: Vec<f32>,
    blocks: Vec<ParameterBlock>,
}

impl ConditionalMap<f32> for Fragile {
    fn target_dim(&self) -> usize {
        1
    }
    fn given_dim(&self) -> usize {
        0
    }
    fn parameters(&self) -> &[f32] {
        &self.parameters
    }
    fn parameters_mut(&mut self) -> &mut [f32] {
        &mut self.parameters
    }
    fn tensors(&self) -> Vec<TensorSpec> {
        Vec::new()
    }
    fn forward(&self, _x: &[f32], _y: &[f32], _z: &mut [f32], _log_det: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn log_density_gradient(&self, _: &[f32], _: &[f32], _: &mut [f64], _: &mut [f32]) -> Result<()> {
        Ok(())
    }
}

impl Fragile {
    fn value(&self) -> f64 {
        0.5 * (f64::from(self.parameters[0]) - 3.0).powi(2)
    }
}

impl Trainable<f32> for Fragile {
    type Workspace = Room;

    fn workspace(&self, rows: usize) -> Room {
        let block = ParameterBlock { range: 0..1, rate: 1.0, constraint: Constraint::Free, decays: false };
        Room { slope: 0.0, x: vec![0.0; rows], y: Vec::new(), blocks: vec![block] }
    }
    fn load<'a>(&self, room: &'a mut Room, rows: usize) -> (&'a mut [f32], &'a mut [f32]) {
        (&mut room.x[..rows], &mut room.y)
    }
    fn adjoints(&self, room: &mut Room) -> Result<f64> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        let error = ((step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as f32) / 512.0 - 1.0;
        room.slope = self.parameters[0] - 3.0 + self.noise * error;
        match (self.broken)(step) {
            false => Ok(self.value()),
            true if step.is_multiple_of(2) => Ok(f64::NAN),
            true => Err(Error::Numerical("the Hessian is not positive definite".to_owned())),
        }
    }
    fn loss(&self, _room: &mut Room) -> Result<f64> {
        Ok(if self.blind { f64::INFINITY } else { self.value() })
    }
    fn blocks<'a>(&self, room: &'a Room) -> &'a [ParameterBlock] {
        &room.blocks
    }
    fn block_gradient(&self, room: &Room, _index: usize, gradient: &mut [f32]) {
        gradient[0] = room.slope;
    }
    fn take_parameters(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.parameters)
    }
    fn restore_parameters(&mut self, parameters: Vec<f32>) {
        self.parameters = parameters;
    }
}

/// What a training comes to, the map, and the causes of its recoveries with the step sizes after them.
fn trained(broken: fn(u64) -> bool, blind: bool) -> (Result<super::Outcome>, Fragile, Vec<(String, f64)>) {
    trained_for(None, broken, blind)
}

fn trained_for(
    max_steps: Option<u64>,
    broken: fn(u64) -> bool,
    blind: bool,
) -> (Result<super::Outcome>, Fragile, Vec<(String, f64)>) {
    let mut map = Fragile { parameters: vec![0.0], steps: AtomicU64::new(0), broken, blind, noise: 0.0 };
    let data = Dataset { target: 1, given: 0, x: vec![0.0; 40], y: Vec::new(), fresh: None };
    let (train_rows, valid_rows): (Vec<u32>, Vec<u32>) = ((0..30).collect(), (30..40).collect());
    let settings = TrainSettings {
        batch_size: Some(10),
        learning_rate: Some(0.1),
        validate_every: 3,
        epochs: 40,
        max_steps,
        ..TrainSettings::default()
    };
    let mut recoveries = Vec::new();
    let mut observer = |event: &Event| {
        if let Some(TrainEvent::Recovered { cause, learning_rate, .. }) = event.get() {
            recoveries.push((cause.clone(), *learning_rate));
        }
        Ok(())
    };
    let training = Training {
        data: &data,
        nearby: None,
        train_rows: &train_rows,
        valid_rows: &valid_rows,
        settings: &settings,
        seed: 1,
        identity: "",
        run: Run::observed(&mut observer),
    };
    let outcome = train(&mut map, training);
    (outcome, map, recoveries)
}

#[test]
fn a_step_that_breaks_down_goes_back_to_the_best_weights_with_half_the_step() {
    let (outcome, map, recoveries) = trained(|step| step == 7 || step == 20, false);
    let outcome = outcome.expect("two broken steps are survived");
    assert_eq!(outcome.stop, Stop::Epochs);
    let rates: Vec<f64> = recoveries.iter().map(|(_, rate)| *rate).collect();
    assert_eq!(rates, [0.05, 0.025]);
    assert!(
        recoveries[0].0.contains("positive definite") && recoveries[1].0.contains("NaN"),
        "{recoveries:?}"
    );
    assert!((map.parameters[0] - 3.0).abs() < 0.5 && outcome.best_valid_nll < 0.2, "{:?}", map.parameters);
}

#[test]
fn a_budget_of_steps_ends_the_run_at_the_very_step() {
    let (outcome, map, _) = trained_for(Some(7), |_| false, false);
    let outcome = outcome.expect("nothing breaks down");
    assert_eq!((outcome.stop, outcome.steps), (Stop::Steps, 7));
    assert_eq!(map.steps.load(Ordering::Relaxed), 7);
}

#[test]
fn every_step_has_random_numbers_of_its_own_that_can_be_drawn_again() {
    use rand::Rng;
    let first = |seed, step| super::StepRandom { seed, step }.stream().next_u64();
    assert_eq!(first(1, 5), first(1, 5));
    assert_ne!(first(1, 5), first(1, 6));
    assert_ne!(first(1, 5), first(2, 5));
}

#[test]
fn a_loss_that_stays_broken_ends_the_run_with_the_best_weights() {
    let (outcome, map, recoveries) = trained(|step| step > 9, false);
    let outcome = outcome.expect("the weights before the breakdown are kept");
    assert_eq!((outcome.stop, recoveries.len()), (Stop::Diverged, 8));
    assert_eq!(outcome.best_step, 9);
    assert!(map.parameters[0] > 0.5 && (map.value() - outcome.best_valid_nll).abs() < 1e-9);
}

#[test]
fn a_validation_loss_that_is_never_finite_is_an_error() {
    let (outcome, _, recoveries) = trained(|_| false, true);
    let error = outcome.expect_err("there is nothing to keep").to_string();
    assert!(error.contains("never reached a finite validation loss"), "{error}");
    assert_eq!(recoveries.len(), 8);
}

/// Noisy steps at a constant rate scatter around the minimum; their average is far closer to it.
#[test]
fn the_average_of_the_weights_is_kept_where_it_is_better() {
    let run = |weight_average: f64| {
        let mut map = Fragile {
            parameters: vec![0.0],
            steps: AtomicU64::new(0),
            broken: |_| false,
            blind: false,
            noise: 20.0,
        };
        let data = Dataset { target: 1, given: 0, x: vec![0.0; 40], y: Vec::new(), fresh: None };
        let (train_rows, valid_rows): (Vec<u32>, Vec<u32>) = ((0..30).collect(), (30..40).collect());
        let settings = TrainSettings {
            batch_size: Some(10),
            learning_rate: Some(0.5),
            weight_average: Some(weight_average),
            validate_every: 600,
            epochs: 200,
            ..TrainSettings::default()
        };
        let training = Training {
            data: &data,
            nearby: None,
            train_rows: &train_rows,
            valid_rows: &valid_rows,
            settings: &settings,
            seed: 1,
            identity: "",
            run: Run::silent(),
        };
        let outcome = train(&mut map, training).expect("nothing breaks down");
        assert!(
            (map.value() - outcome.best_valid_nll).abs() < 1e-9,
            "the kept weights are those that scored best"
        );
        outcome.best_valid_nll
    };
    let (raw, averaged) = (run(0.0), run(0.99));
    assert!(averaged < 0.2 * raw, "{averaged} against {raw}");
}
