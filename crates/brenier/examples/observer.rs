//! A custom observer: watch a training, and stop it when it is good enough.
//!
//! `cargo run --release -p brenier --example observer`

#![allow(clippy::print_stdout)]

use brenier::train::TrainEvent;
use brenier::{Event, Fit, Observer, Result, StopToken};

/// Prints validations and stops the training at the first loss below a goal.
struct Watch {
    goal: f64,
    stop: StopToken,
}

impl Observer for Watch {
    fn event(&mut self, event: &Event) -> Result<()> {
        match event.get() {
            Some(TrainEvent::Chosen { text }) => println!("chosen: {text}"),
            // Of trials and members, which train side by side; a plain fit has `Validated` events.
            Some(TrainEvent::PartValidated { number, of, done, progress }) => {
                let part = 100.0 * done;
                println!("{part:3.0} %, {number} of {of}: validation NLL {:.3}", progress.valid_nll);
                if progress.valid_nll < self.goal {
                    self.stop.stop();
                }
            }
            Some(TrainEvent::Warning { text }) => println!("warning: {text}"),
            _ => {}
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let stop = StopToken::new();
    let mut watch = Watch { goal: 2.4, stop: stop.clone() };
    let table = brenier::example::simulate(3000, 0);
    let posterior = Fit::of("x1,x2").given("y").stop(&stop).observer(&mut watch).run(&table)?;
    let training = &posterior.info().training;
    println!("ended after {} steps at a validation NLL of {:.3}", training.steps, training.best_valid_nll);
    Ok(())
}

#[test]
fn runs() {
    main().expect("the example runs");
}
