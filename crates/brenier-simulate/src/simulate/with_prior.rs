//! A model with a prior other than its own, such as a narrower one for more simulations near an observation.

use super::{Attempt, Prior, Simulator, Stream, Tell};
use crate::{Error, Result};

/// A model whose parameters have another prior. Where the model abandons a simulation, the row is drawn again from that prior.
pub struct WithPrior {
    model: Box<dyn Simulator>,
    prior: Prior,
}

impl WithPrior {
    /// `model` with `prior` in place of its own.
    ///
    /// # Errors
    /// A prior that does not declare the model's parameters, all of them and in their order.
    pub fn new(model: Box<dyn Simulator>, prior: Prior) -> Result<Self> {
        let (wanted, got) = (model.prior().names(), prior.names());
        if wanted == got {
            return Ok(Self { model, prior });
        }
        let place = wanted.iter().zip(got).position(|(wanted, got)| wanted != got);
        let place = place.unwrap_or(wanted.len().min(got.len()));
        let said = |names: &[String], none: &str| {
            names.get(place).map_or(none.to_owned(), |name| format!("{name:?}"))
        };
        Err(Error::setting(
            "prior",
            format!(
                "parameter {} of the model is {}, but that of the prior is {}: declare the model's parameters in their order",
                place + 1,
                said(wanted, "missing, it has no more"),
                said(got, "missing")
            ),
        ))
    }
}

impl Simulator for WithPrior {
    fn identity(&self) -> String {
        self.model.identity()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        self.model.output_names()
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        self.model.simulate(theta, rng, outputs)
    }

    fn simulate_many(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
    ) -> Result<Vec<Attempt>> {
        self.model.simulate_many(thetas, rngs, outputs)
    }

    fn simulate_telling(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
        tell: &Tell<'_>,
    ) -> Result<Vec<Attempt>> {
        self.model.simulate_telling(thetas, rngs, outputs, tell)
    }

    fn block_rows(&self) -> usize {
        self.model.block_rows()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Outcome, PriorBlock, SimulateSettings, built_in, run};
    use super::*;
    use crate::Run;

    fn narrow(names: &[&str]) -> Prior {
        let block = |name: &&str| PriorBlock::Uniform { name: (*name).to_owned(), low: 0.2, high: 0.3 };
        Prior::new(&names.iter().map(block).collect::<Vec<_>>(), "".as_ref()).unwrap()
    }

    #[test]
    fn rows_follow_the_new_prior() {
        let names: Vec<String> = built_in("two-moons").unwrap().prior().names().to_vec();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let model = WithPrior::new(built_in("two-moons").unwrap(), narrow(&names)).unwrap();
        let settings = SimulateSettings { rows: 300, seed: 1, ..Default::default() };
        let Outcome::Complete(simulated) = run(&model, &settings, None, Run::silent()).unwrap() else {
            panic!("nothing stops the run");
        };
        assert_eq!(simulated.table.rows(), 300);
        for name in names {
            let column = simulated.table.column(name).unwrap();
            let inside = |row: usize| (0.2..=0.3).contains(&simulated.table.value(row, column));
            assert!((0..300).all(inside), "{name}");
        }
    }

    #[test]
    fn a_prior_of_other_parameters_is_refused() {
        let refused = |names: &[&str]| {
            WithPrior::new(built_in("lotka-volterra").unwrap(), narrow(names)).err().unwrap().to_string()
        };
        let all = ["theta_1", "theta_2", "theta_3", "theta_4", "theta_5"];
        assert!(
            refused(&all[..3])
                .contains("parameter 4 of the model is \"theta_4\", but that of the prior is missing")
        );
        assert!(refused(&all).contains("missing, it has no more, but that of the prior is \"theta_5\""));
        assert!(refused(&["theta_1", "rate"]).contains("\"theta_2\", but that of the prior is \"rate\""));
    }
}
