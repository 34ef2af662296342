//! A fit in one sentence: `Fit::of("theta_1..theta_4").given("rest").run(&pairs)`.

use super::{FitSettings, Fitted, MethodChoice, fit};
use crate::data::{Selection, Table};
use crate::map::{Method, MethodSettings};
use crate::transform::{NoiseRule, Support, SupportRule};
use crate::{Journal, Observer, Posterior, Result, Run, StopToken};

/// A fit, described step by step and then run.
///
/// ```
/// use brenier_core::Fit;
/// # fn main() -> brenier_core::Result<()> {
/// let pairs = brenier_core::example::simulate(1000, 0);
/// let posterior = Fit::of("x1,x2").given("y").quick().epochs(5).run(&pairs)?;
/// let draws = posterior.at(&[0.5])?.sample(200)?;
/// assert_eq!(draws.names(), ["x1", "x2"]);
/// println!("{draws}");
/// # Ok(())
/// # }
/// ```
pub struct Fit<'a> {
    settings: Result<FitSettings>,
    run: Run<'a>,
}

impl<'a> Fit<'a> {
    /// A fit of the columns `target`, written as in `x1,x2`, `x1..x4`, `#1..#3` or `rest`. Unless a method is named, short
    /// trials choose one, and an ensemble of it is fitted where that pays.
    pub fn of(target: &str) -> Self {
        let settings = target
            .parse::<Selection>()
            .map(|target| FitSettings { target: Some(target), ..MethodChoice::Auto.settings() });
        Self { settings, run: Run::silent() }
    }

    /// A fit with these settings.
    pub fn with_settings(settings: FitSettings) -> Self {
        Self { settings: Ok(settings), run: Run::silent() }
    }

    fn change(mut self, change: impl FnOnce(&mut FitSettings) -> Result<()>) -> Self {
        self.settings = self.settings.and_then(|mut settings| change(&mut settings).map(|()| settings));
        self
    }

    /// Conditions on these columns.
    pub fn given(self, columns: &str) -> Self {
        let columns = columns.parse();
        self.change(|settings| {
            settings.given = Some(columns?);
            Ok(())
        })
    }

    /// Declares what values some columns may take.
    pub fn support(self, columns: &str, support: Support) -> Self {
        let rule = format!("{columns}={support}").parse::<SupportRule>();
        self.change(|settings| {
            settings.support.push(rule?);
            Ok(())
        })
    }

    /// Declares noise of given columns whose values are free of it, as in `0.25` or `y1..y9=0.25`.
    pub fn noise(self, rule: &str) -> Self {
        let rule = rule.parse::<NoiseRule>();
        self.change(|settings| {
            settings.noise.rules.push(rule?);
            Ok(())
        })
    }

    /// Learns a surrogate of the simulator first, with which every step of the training moves rows to places nearby.
    /// `spread` is how far, as a part of the spread of all rows.
    pub fn surrogate(self, spread: f64) -> Self {
        self.change(|settings| {
            settings.surrogate = Some(spread);
            Ok(())
        })
    }

    /// Which given columns the map sees on an asinh scale: `auto` (the default), `none`, or columns as in `y1..y4`.
    pub fn asinh(self, which: &str) -> Self {
        let asinh = which.parse();
        self.change(|settings| {
            settings.asinh = asinh?;
            Ok(())
        })
    }

    /// Reduces the given columns to at most this many directions, those that tell most about the target.
    pub fn reduce(self, most: usize) -> Self {
        self.change(|settings| {
            settings.reduce = Some(most);
            Ok(())
        })
    }

    /// One plain training of the [default method](Method::default), without trials.
    pub fn quick(self) -> Self {
        self.method(Method::default())
    }

    /// Chooses the method, with its defaults.
    pub fn method(self, method: Method) -> Self {
        self.method_settings(method.defaults())
    }

    /// Chooses the method with its settings.
    pub fn method_settings(self, method: impl Into<MethodSettings>) -> Self {
        let method = method.into();
        self.change(|settings| {
            (settings.method, settings.auto) = (method, false);
            Ok(())
        })
    }

    /// Learns the distribution of the given columns too.
    pub fn joint(self) -> Self {
        self.change(|settings| {
            settings.joint = true;
            Ok(())
        })
    }

    /// Makes an ensemble of this many members, each validated on rows of its own and trained on all others.
    pub fn members(self, members: usize) -> Self {
        self.change(|settings| {
            settings.members = Some(members);
            Ok(())
        })
    }

    /// Seed of split, initial weights and batches.
    pub fn seed(self, seed: u64) -> Self {
        self.change(|settings| {
            settings.seed = seed;
            Ok(())
        })
    }

    /// Passes over the training rows, at most.
    pub fn epochs(self, epochs: u32) -> Self {
        self.change(|settings| {
            settings.train.epochs = epochs;
            Ok(())
        })
    }

    /// Receives the training's events.
    pub fn observer(mut self, observer: &'a mut dyn Observer) -> Self {
        let stop = self.run.token().clone();
        self.run = Run::observed(observer).stop(&stop).journal(self.run.plan().cloned());
        self
    }

    /// Lets `stop` end the training with the best weights so far.
    pub fn stop(mut self, stop: &StopToken) -> Self {
        self.run = self.run.stop(stop);
        self
    }

    /// Keeps the state of the training.
    pub fn journal(mut self, journal: Journal) -> Self {
        self.run = self.run.journal(journal);
        self
    }

    /// Fits to `table`; warnings go to the observer.
    pub fn run(self, table: &Table) -> Result<Posterior> {
        self.run_fully(table).map(|fitted| fitted.posterior)
    }

    /// As [`run`](Self::run), with the warnings.
    pub fn run_fully(self, table: &Table) -> Result<Fitted> {
        fit(table, &self.settings?, self.run)
    }
}
