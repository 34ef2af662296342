//! Posterior predictive checks: parameters drawn at an observation, outputs simulated from them, and where the
//! observed values fall among these.
//!
//! The observation is used twice, to draw the parameters and to judge the outputs, so that its place among the
//! simulations is nearer to the middle than a uniform rank even when all is right. What holds is Meng's bound (1994):
//! over observations from the model, P(p ≤ α) ≤ 2α for a predictive p-value p. So only too many extreme
//! places speak against the posterior; their absence says little.

use serde::Serialize;

use super::pairs::Chosen;
use super::{CheckEvent, CheckSettings, Stage};
use crate::Event;
use crate::data::Table;
use crate::diagnose::binomial_tail;
use crate::simulate::{self, Outcome, SimulateEvent, Simulator};
use crate::{Error, Posterior, Result, Run};

/// Quantiles of the simulations that are kept.
const QUANTILES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
/// Two-sided p-values of at most this count as extreme.
const EXTREME: f64 = 0.05;

/// One output at one observation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PredictiveRow {
    /// Row of the table, from 0.
    pub row: usize,
    /// The observed values, output by output.
    pub observed: Vec<f64>,
    /// 5, 25, 50, 75 and 95 % quantiles of the simulations, output by output.
    pub quantiles: Vec<[f64; 5]>,
    /// Two-sided predictive p-values: 2 min(P(simulated ≤ observed), P(simulated ≥ observed)).
    pub p_values: Vec<f64>,
}

/// One output over all observations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PredictiveOutput {
    /// The given column.
    pub name: String,
    /// Part of the observations whose two-sided p-value is at most 0.05.
    pub extreme: f64,
    /// The probability of as many or more if each were extreme with probability 0.1, the most that Meng's bound allows.
    pub p_value: f64,
    /// That of all outputs corrected by Holm's method.
    pub adjusted_p_value: f64,
}

/// Posterior predictive checks over several observations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Predictive {
    /// Observations.
    pub observations: usize,
    /// Observations that are not among them, because more than half of their simulations failed.
    pub left_out: usize,
    /// Simulations asked for at each.
    pub draws: usize,
    /// Simulations that failed or found no end, at all observations.
    pub failed: usize,
    /// What became of the first of these.
    pub failure: Option<String>,
    /// Output by output.
    pub outputs: Vec<PredictiveOutput>,
    /// Observation by observation.
    pub rows: Vec<PredictiveRow>,
}

/// A simulator whose columns fit the model's.
pub(super) struct Plan<'a> {
    simulator: &'a dyn Simulator,
    /// For each of its parameters the model's target column.
    parameters: Vec<usize>,
    /// For each of the model's given columns its output.
    outputs: Vec<usize>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(model: &Posterior, simulator: &'a dyn Simulator) -> Result<Self> {
        if model.given_names().is_empty() {
            return Err(Error::setting("simulator", "the model has no given columns to predict"));
        }
        let find = |name: &String, among: &[String], what: &str, of: &str| {
            among.iter().position(|own| own == name).ok_or_else(|| {
                Error::setting(
                    "simulator",
                    format!("{what} \"{name}\" is not among {of} ({})", among.join(", ")),
                )
            })
        };
        let parameters = simulator
            .prior()
            .names()
            .iter()
            .map(|name| find(name, model.target_names(), "its parameter", "the model's target columns"))
            .collect::<Result<_>>()?;
        let outputs = model
            .given_names()
            .iter()
            .map(|name| find(name, simulator.output_names(), "the model's given column", "its outputs"))
            .collect::<Result<_>>()?;
        Ok(Self { simulator, parameters, outputs })
    }
}

impl Predictive {
    pub(super) fn measure(
        model: &Posterior,
        chosen: &Chosen,
        plan: &Plan<'_>,
        settings: &CheckSettings,
        run: &mut Run<'_>,
    ) -> Result<Self> {
        let some = chosen.spread(settings.predictive_observations);
        predict(model, &some.given, &some.rows, plan, settings, run)
    }

    /// Predictives at each of the rows of `given`, one observation each, numbered from 0.
    ///
    /// The simulator's parameters are the model's target columns and its outputs hold the model's given columns.
    pub fn at(
        model: &Posterior,
        given: &[f64],
        simulator: &dyn Simulator,
        settings: &CheckSettings,
        mut run: Run<'_>,
    ) -> Result<Self> {
        settings.validate()?;
        let plan = Plan::new(model, simulator)?;
        let rows: Vec<usize> = (0..given.len() / model.given_names().len()).collect();
        predict(model, given, &rows, &plan, settings, &mut run)
    }
}

fn predict(
    model: &Posterior,
    given: &[f64],
    rows: &[usize],
    plan: &Plan<'_>,
    settings: &CheckSettings,
    run: &mut Run<'_>,
) -> Result<Predictive> {
    let (count, each) = (rows.len(), settings.predictive_draws);
    let (n, m) = (model.target_names().len(), model.given_names().len());
    run.tell(CheckEvent::Started { stage: Stage::Predictive, of: count * each })?;
    let draws = model.at_rows(given, count).seed(settings.seed).stop(run.token()).sample(each)?;
    let values = draws.values.chunks_exact(n).flat_map(|row| plan.parameters.iter().map(|&j| row[j]));
    let parameters = Table::new(plan.simulator.prior().names().to_vec(), values.collect())?;
    let stop = run.token().clone();
    let mut observer = run.translating(|event| match event.get() {
        Some(SimulateEvent::Progress { done, .. }) => {
            Some(Event::new(CheckEvent::Advanced { stage: Stage::Predictive, done: *done as usize }))
        }
        Some(silent @ SimulateEvent::Silent { .. }) => Some(Event::new(silent.clone())),
        _ => None,
    });
    let part = Run::observed(&mut observer).stop(&stop);
    let ended = simulate::run_predictive(plan.simulator, &parameters, settings.seed, part)?;
    let Outcome::Complete(simulated) = ended else {
        return Err(Error::Stopped(
            "stopped before the simulations of the predictive check were done".to_owned(),
        ));
    };
    let dim = plan.simulator.prior().dim();
    let mut failed = simulated.failures.iter().map(|failure| failure.row as usize).peekable();
    let mut made = simulated.table.iter();
    let mut found = Vec::with_capacity(count);
    for (place, &row) in rows.iter().enumerate() {
        let mut columns: Vec<Vec<f64>> = vec![Vec::with_capacity(each); m];
        for draw in place * each..(place + 1) * each {
            if failed.next_if_eq(&draw).is_some() {
                continue;
            }
            let Some(outputs) = made.next() else { break };
            for (column, &output) in columns.iter_mut().zip(&plan.outputs) {
                column.push(outputs[dim + output]);
            }
        }
        if columns[0].len() < each.div_ceil(2) {
            continue;
        }
        let observed = given[place * m..(place + 1) * m].to_vec();
        let (mut quantiles, mut p_values) = (Vec::with_capacity(m), Vec::with_capacity(m));
        for (column, &observed) in columns.iter_mut().zip(&observed) {
            column.sort_by(f64::total_cmp);
            quantiles
                .push(QUANTILES.map(|level| column[(level * (column.len() - 1) as f64).round() as usize]));
            // The observed value counts as one of the simulations, which keeps p above zero.
            let all = (column.len() + 1) as f64;
            let low = (column.partition_point(|&value| value <= observed) + 1) as f64 / all;
            let high = (column.len() - column.partition_point(|&value| value < observed) + 1) as f64 / all;
            p_values.push((2.0 * low.min(high)).min(1.0));
        }
        found.push(PredictiveRow { row, observed, quantiles, p_values });
    }
    let mut outputs: Vec<PredictiveOutput> = model
        .given_names()
        .iter()
        .enumerate()
        .map(|(j, name)| {
            let extreme = found.iter().filter(|row| row.p_values[j] <= EXTREME).count();
            let p_value = binomial_tail(extreme, found.len(), 2.0 * EXTREME);
            let share = extreme as f64 / found.len().max(1) as f64;
            PredictiveOutput { name: name.clone(), extreme: share, p_value, adjusted_p_value: 1.0 }
        })
        .collect();
    let p_values: Vec<f64> = outputs.iter().map(|output| output.p_value).collect();
    for (output, adjusted) in outputs.iter_mut().zip(crate::diagnose::holm(&p_values)) {
        output.adjusted_p_value = adjusted;
    }
    Ok(Predictive {
        observations: found.len(),
        left_out: count - found.len(),
        draws: each,
        failed: simulated.failures.len(),
        failure: simulated.failures.into_iter().next().map(|first| first.reason),
        outputs,
        rows: found,
    })
}
