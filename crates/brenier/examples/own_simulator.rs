//! Own simulator: a prior and a function become a table of pairs, and the table a posterior.
//!
//! `cargo run --release -p brenier --example own_simulator`

#![allow(clippy::print_stdout)]

use brenier::simulate::{Attempt, Outcome, Prior, PriorBlock, SimulateSettings, Simulator, Stream, run};
use brenier::{Fit, Result, Run};
use rand::RngExt;

/// A queue: customers arrive at one rate and are served at another; seen are the mean and the longest queue.
struct Queue {
    prior: Prior,
    outputs: Vec<String>,
}

impl Queue {
    fn new() -> Result<Self> {
        let block = |name: &str| PriorBlock::Uniform { name: name.to_owned(), low: 0.05, high: 0.6 };
        let prior = Prior::new(&[block("arrival"), block("service")], "".as_ref())?;
        Ok(Self { prior, outputs: vec!["mean".to_owned(), "longest".to_owned()] })
    }
}

impl Simulator for Queue {
    fn identity(&self) -> String {
        "queue, 200 steps".to_owned()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let (mut waiting, mut sum, mut longest) = (0.0, 0.0, 0.0_f64);
        for _ in 0..200 {
            waiting += f64::from(u8::from(rng.random::<f64>() < theta[0]));
            waiting -= f64::from(u8::from(waiting > 0.0 && rng.random::<f64>() < theta[1]));
            sum += waiting / 200.0;
            longest = longest.max(waiting);
        }
        (outputs[0], outputs[1]) = (sum, longest + rng.random::<f64>());
        Ok(Attempt::Done)
    }
}

fn main() -> Result<()> {
    let settings = SimulateSettings { rows: 3000, seed: 1, ..Default::default() };
    let Outcome::Complete(simulated) = run(&Queue::new()?, &settings, None, Run::silent())? else {
        return Ok(());
    };
    let posterior = Fit::of("arrival,service").given("rest").quick().epochs(15).run(&simulated.table)?;
    print!("{}", posterior.at(&[2.5, 8.5])?.sample(1000)?);
    Ok(())
}

#[test]
fn runs() {
    main().expect("the example runs");
}
