//! The conditional Gaussian as a method of the list: settings, training and trained map.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fit::{Rows, fit};
use super::{GaussianMap, Layout};
use crate::map::batch::{both_precisions, check_reference, misses, not_finite, refuse, rows_of};
use crate::map::method::{
    Candidate, Fill, ListedMethod, MethodInfo, MethodSpec, Problem, SettingInfo, SettingKind, SizeAdvice,
    Training,
};
use crate::map::{Inversion, SampleSettings, TransportMap};
use crate::train::{Outcome, Progress, Stop, TrainEvent, TrainSettings};
use crate::{Error, Result};

/// More parameters than any sensible table asks for.
const MOST_PARAMETERS: usize = 1 << 28;

/// How the covariance depends on y.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Covariance {
    /// The same for every y.
    #[default]
    Constant,
    /// Constant axes, and log standard deviations along them that are affine in y.
    LogAffine,
}

/// The settings of a conditional Gaussian.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GaussianSettings {
    /// How the covariance depends on y.
    pub covariance: Covariance,
}

impl GaussianSettings {
    fn layout(&self, target: usize, given: usize) -> Layout {
        Layout::new(target, given, self.covariance)
    }
}

impl MethodSpec for GaussianSettings {
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _problem: Problem, _train: &mut TrainSettings) {}

    fn parameters(&self, target: usize, given: usize) -> Result<usize> {
        let most = target.max(given).saturating_add(1);
        if target == 0 || target.saturating_mul(most).saturating_mul(4) > MOST_PARAMETERS {
            return Err(Error::setting("target", "the Gaussian would have too many parameters, or none"));
        }
        Ok(self.layout(target, given).parameters())
    }

    fn descends(&self) -> bool {
        false
    }

    fn train(&self, training: Training<'_>) -> Result<(Arc<dyn TransportMap>, Outcome)> {
        let Training { data, train_rows, valid_rows, mut run, .. } = training;
        if train_rows.is_empty() || valid_rows.is_empty() {
            let problem = "leaves no row to train on or none to validate with";
            return Err(Error::setting("valid_fraction", problem));
        }
        let parameters = self.parameters(data.target, data.given)?;
        run.tell(TrainEvent::Started {
            train_rows: train_rows.len(),
            valid_rows: valid_rows.len(),
            parameters,
            resumed_at: 0,
            max_steps: 1,
        })?;
        let (train, valid) = (Rows::of(data, train_rows), Rows::of(data, valid_rows));
        let (map, valid_nll) = fit(self.layout(data.target, data.given), &train, &valid)?;
        let progress = Progress {
            step: 1,
            epoch: 1.0,
            train_nll: train.nll(&map)?,
            valid_nll,
            best_valid_nll: valid_nll,
            learning_rate: 0.0,
            drops: 0,
        };
        run.tell(TrainEvent::Validated(progress))?;
        let (stop, steps, best_step) = (Stop::ClosedForm, 1, 1);
        run.tell(TrainEvent::Finished { stop, steps, best_valid_nll: valid_nll, best_step })?;
        let outcome = Outcome {
            stop,
            steps,
            best_valid_nll: valid_nll,
            best_step,
            validated: true,
            history: vec![progress],
        };
        Ok((Arc::new(Gaussian::new(map.cast())), outcome))
    }

    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>> {
        // Checks the sizes, which come from a file.
        self.parameters(target, given)?;
        let mut map = GaussianMap::initial(target, given, self.covariance);
        fill(&mut map)?;
        Ok(Arc::new(Gaussian::new(map)))
    }
}

impl ListedMethod for GaussianSettings {
    const INFO: MethodInfo = MethodInfo {
        title: "conditional Gaussian",
        summary: "A Gaussian with an affine mean, fitted in closed form: a baseline that needs no training",
        settings: &[SettingInfo {
            name: "covariance",
            kind: SettingKind::Choice(&["constant", "log-affine"]),
            help: "whether the covariance is constant, or log standard deviations are affine in the given columns",
            default: "constant",
        }],
        spaces: &[("default", "[method]\ncovariance = [\"constant\", \"log-affine\"]\n")],
        candidates: &[
            Candidate::PLAIN,
            Candidate::always("log-affine", r#"{"method": {"covariance": "log-affine"}}"#),
        ],
        published_pilots: None,
        check_draws: 1000,
        draw_settings: &[],
        size: SizeAdvice { smaller: "", larger: "the method's, try one that is not Gaussian" },
        penalised: false,
    };
}

/// A fitted Gaussian in both precisions.
#[derive(Clone, Debug)]
struct Gaussian {
    single: GaussianMap<f32>,
    double: GaussianMap<f64>,
}

impl Gaussian {
    fn new(map: GaussianMap<f32>) -> Self {
        Self { double: map.cast(), single: map }
    }
}

impl TransportMap for Gaussian {
    both_precisions!(single, double);

    fn draw(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.only(&GaussianSettings::INFO)?;
        let (n, m) = (self.double.layout.target, self.double.layout.given);
        check_reference(z, given, observation, n, m)?;
        let x = self.double.invert(z, given, observation);
        let unsolved = not_finite(&x, n);
        if !settings.skip_unsolved {
            refuse(&unsolved)?;
        }
        let residuals = match settings.residuals {
            false => Vec::new(),
            true => {
                let y = rows_of(given, observation, m);
                let (mut back, mut log_det) = (vec![0.0; z.len()], vec![0.0; observation.len()]);
                self.double.evaluate(&x, &y, &mut back, &mut log_det, None)?;
                misses(&back, z, n)
            }
        };
        Ok((x, Inversion { iterations: vec![1; observation.len()], residuals, unsolved }))
    }

    fn describe(&self) -> String {
        let covariance = if self.double.layout.varying { "log-affine" } else { "constant" };
        format!("affine mean, {covariance} covariance")
    }
}
