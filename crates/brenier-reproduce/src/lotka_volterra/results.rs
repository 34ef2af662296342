//! What was found, as a document.

use serde::Serialize;
use serde_json::json;

use super::experiment::Found;
use super::{DrawTime, LvObservation, PARAMETERS, Particles};
use crate::diagnose::{Comparison, Sample};
use crate::experiment::{Document, ResultTable, Step, Training};
use crate::map::Method;
use crate::{FitSettings, Result, baseline};

/// What was found about one map.
#[derive(Debug, Serialize)]
pub(super) struct LvFit {
    pub(super) method: Method,
    pub(super) rows: u64,
    pub(super) settings: FitSettings,
    pub(super) training: Step<Training>,
    /// Mean NLL of the held-out rows, standardised, and its standard error.
    pub(super) nll: (f64, f64),
    /// The same mean under the conditional Gaussian of the model file.
    pub(super) baseline: Option<f64>,
    pub(super) posteriors: Vec<LvPosterior>,
    pub(super) times: Vec<DrawTime>,
}

/// A posterior at one observation.
#[derive(Debug, Serialize)]
pub(super) struct LvPosterior {
    /// The MAP point of log θ, as θ.
    pub(super) mode: Vec<f64>,
    /// Posterior means and standard deviations of log θ.
    pub(super) mean: Vec<f64>,
    pub(super) deviation: Vec<f64>,
    /// Against our SMC-ABC, and against the particles that were given.
    pub(super) abc: Option<Comparison>,
    pub(super) given: Option<Comparison>,
}

impl LvFit {
    fn label(&self) -> String {
        format!("{}, {} rows", self.method.title(), self.rows)
    }
}

pub(super) fn document(
    fits: &[LvFit],
    searches: Option<&[Found]>,
    observed: &[LvObservation],
    draws: usize,
) -> Result<Document> {
    let abc = searches.map(|all| all.iter().map(|(search, _)| search).collect::<Vec<_>>());
    let mut document = Document::new("Stochastic Lotka–Volterra: maps against SMC-ABC")
        .figures(&json!({ "fits": fits, "abc": abc }))
        .table(trainings(fits));
    for (which, observation) in observed.iter().enumerate() {
        let search = searches.map(|all| &all[which]);
        document = document
            .text(format!(
                "Observation {}, θ = {:?}; log θ as mean (standard deviation), MAP:",
                which + 1,
                observation.truth
            ))
            .table(posteriors(fits, which, search, observation)?);
    }
    document = document.text(format!("{draws} draws:")).table(draw_times(fits));
    for fit in fits {
        for which in 1..=fit.posteriors.len() {
            let (name, label) = (format!("{}-{}-{which}", fit.method.name(), fit.rows), fit.label());
            document = document
                .picture(
                    format!("pairs-{name}"),
                    format!("Posterior at observation {which}: {label}, with truth, MAP and particles"),
                )
                .picture(
                    format!("predictive-{name}"),
                    format!("Paths at observation {which}: {label}, simulated with rates from the posterior"),
                );
        }
    }
    Ok(document)
}

fn trainings(fits: &[LvFit]) -> ResultTable {
    let header = ["map", "rows", "held-out NLL (standardised log θ)", baseline::TITLE, "training", "steps"];
    let mut table = ResultTable::new(header).aligned("lrrrrr");
    for fit in fits {
        table.push([
            fit.method.title().to_owned(),
            fit.rows.to_string(),
            format!("{:.3} ± {:.3}", fit.nll.0, fit.nll.1),
            fit.baseline.map_or("–".to_owned(), |nll| format!("{nll:.3}")),
            format!("{} on {} threads", fit.training.clock(), fit.training.threads),
            fit.training.result.steps.to_string(),
        ]);
    }
    table
}

/// Truth, particles and maps at one observation.
fn posteriors(
    fits: &[LvFit],
    which: usize,
    search: Option<&Found>,
    observation: &LvObservation,
) -> Result<ResultTable> {
    let header = ["", "log θ₁", "log θ₂", "log θ₃", "log θ₄", "C2ST", "MMD"];
    let mut table = ResultTable::new(header).aligned("lllllrr");
    let mut row = |label: String, cells: Vec<String>, comparison: Option<&Comparison>| {
        let tests = match comparison {
            Some(found) => [format!("{:.3}", found.c2st.accuracy), format!("{:.3}", found.mmd.root)],
            None => [String::new(), String::new()],
        };
        table.push([label].into_iter().chain(cells).chain(tests));
    };
    let truth = observation.truth.map(|value| format!("{:.3}", value.ln()));
    row("truth".to_owned(), truth.to_vec(), None);
    if let Some((search, particles)) = search {
        let label = format!(
            "SMC-ABC, ε = {}, {:.2} million simulations, {}",
            search.result.tolerance,
            search.result.simulations as f64 / 1e6,
            search.clock()
        );
        row(label, particle_cells(particles)?, None);
    }
    for fit in fits {
        let found = &fit.posteriors[which];
        let cells = (0..PARAMETERS.len())
            .map(|j| format!("{:.3} ({:.3}), {:.3}", found.mean[j], found.deviation[j], found.mode[j].ln()));
        row(fit.label(), cells.collect(), found.abc.as_ref().or(found.given.as_ref()));
        if found.abc.is_some() && found.given.is_some() {
            let blank = vec![String::new(); PARAMETERS.len()];
            row("– against the given particles".to_owned(), blank, found.given.as_ref());
        }
    }
    Ok(table)
}

/// Weighted mean and standard deviation of every log θ.
fn particle_cells(particles: &Particles) -> Result<Vec<String>> {
    let logs: Vec<f64> = particles.theta.iter().map(|theta| theta.ln()).collect();
    let sample = Sample::new(&logs, PARAMETERS.len())?.with_weights(&particles.weights)?;
    let (mean, deviation) = sample.moments();
    Ok(mean.iter().zip(deviation).map(|(mean, deviation)| format!("{mean:.3} ({deviation:.3})")).collect())
}

fn draw_times(fits: &[LvFit]) -> ResultTable {
    let header = ["map", "rows", "accuracy", "ours", "published (GPU)", "rms error of log θ"];
    let mut table = ResultTable::new(header).aligned("lrlrrr");
    for (fit, time) in fits.iter().flat_map(|fit| fit.times.iter().map(move |time| (fit, time))) {
        table.push([
            fit.method.title().to_owned(),
            fit.rows.to_string(),
            match (time.steps, time.tolerance) {
                (Some(steps), _) => format!("n_t = {steps}"),
                (_, Some(tolerance)) => format!("tolerance {tolerance:.0e}"),
                _ => String::new(),
            },
            format!("{:.1} ms", 1e3 * time.seconds),
            time.published.map_or("–".to_owned(), |seconds| format!("{:.0} ms", 1e3 * seconds)),
            format!("{:.1e}", time.error),
        ]);
    }
    table
}
