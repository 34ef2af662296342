//! `brenier sample`: draws from the posterior at observed values.

use brenier::data::Table;
use brenier::map::SampleSettings;
use brenier::statistics::DrawSummary;
use brenier::{At, Draws, JointDraws, Posterior};

use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::observations::{self, Observations};
use crate::posterior_args::{Extra, SampleArguments};
use crate::summary::Destinations;
use crate::tables::free_name;
use crate::{output, screen, tables};

pub(crate) fn run(arguments: &SampleArguments) -> Result<(), Failure> {
    let target = output::destination(arguments.out.as_deref());
    output::check_destination(&target)?;
    let summary = Destinations::of(arguments)?;
    let model = Posterior::load(&arguments.model)?;
    if arguments.n == 0 {
        return Err(Failure::Usage("-n: ask for at least 1 draw".to_owned()));
    }
    let residuals = arguments.with.contains(&Extra::Residual);
    let settings = SampleSettings {
        solver: arguments.solver,
        tolerance: arguments.tolerance,
        precision: arguments.precision,
        steps: arguments.steps,
        accuracy: arguments.accuracy,
        residuals,
        skip_unsolved: !arguments.strict,
        ..SampleSettings::default()
    };
    let nowhere = arguments.observations.observed.is_none() && arguments.observations.at.is_empty();
    if nowhere && model.marginal().is_some() {
        let stop = stop_without_result()?;
        let waiting = screen::waiting(format!("drawing {}", arguments.n));
        let draws = model.sample_joint_until(arguments.n, arguments.seed, &settings, &stop)?;
        report_unsolved(&draws.unsolved, arguments.n, &settings)?;
        let drawn = draws.residuals.len().max(draws.target.len() / model.target_names().len());
        let table = joint_table(&model, draws, &arguments.with)?;
        stop.go_on()?;
        if summary.is_none() || arguments.out.is_some() {
            tables::write(&target, &table)?;
            drop(waiting);
            output::wrote(&output::count(drawn, "joint draw"), &target);
        }
        if let Some(summary) = &summary {
            let names = [model.target_names(), model.given_names()].concat();
            let own: Vec<f64> = table.iter().flat_map(|row| &row[..names.len()]).copied().collect();
            summary.write(&names, &[DrawSummary::of(&own, names.len())?], arguments.seed)?;
        }
        return Ok(());
    }
    let observed = observations::read(&model, &arguments.observations, &arguments.tables.options())?;
    // Only now: a table that comes through a pipe can be waited for in vain.
    let stop = stop_without_result()?;
    let count = arguments.n.saturating_mul(observed.count);
    let waiting = screen::waiting(format!("drawing {count}"));
    let at = observed.place(&model).seed(arguments.seed).settings(settings).stop(&stop);
    if let Some(summary) = summary.as_ref().filter(|_| arguments.out.is_none()) {
        let found = at.summarise(arguments.n).map_err(|error| observed.failed(error))?;
        drop(waiting);
        report_unsolved(&found.unsolved, count, &settings)?;
        warn_of_empty(found.summaries.iter().map(|summary| summary.draws));
        return summary.write(model.target_names(), &found.summaries, arguments.seed);
    }
    let draws = at.sample(arguments.n).map_err(|error| observed.failed(error))?;
    report_unsolved(&draws.unsolved, count, &settings)?;
    let drawn = draws.observation.len();
    let mut counts = vec![0; observed.count];
    draws.observation.iter().for_each(|&o| counts[o as usize] += 1);
    let empty = warn_of_empty(counts.into_iter());

    let summaries = match &summary {
        Some(_) => draws.summaries(model.target_names().len(), observed.count)?,
        None => Vec::new(),
    };
    let mut extras = arguments.with.clone();
    if observed.count > 1 && !extras.contains(&Extra::Observation) {
        extras.push(Extra::Observation);
    }
    let table = table(&model, &observed, &at, draws, &extras)?;
    // Written to its end once it is begun.
    stop.go_on()?;
    tables::write(&target, &table)?;
    drop(waiting);
    let drawn = output::count(drawn, "draw");
    let observations = output::count(observed.count, "observation");
    let of = if empty > 0 { format!("{} of ", observed.count - empty) } else { String::new() };
    output::wrote(&format!("{drawn} at {of}{observations}"), &target);
    match &summary {
        Some(summary) => summary.write(model.target_names(), &summaries, arguments.seed),
        None => Ok(()),
    }
}

/// Warns of draws that are left out; an error where none is left.
fn report_unsolved(unsolved: &[f64], asked: usize, settings: &SampleSettings) -> Result<(), Failure> {
    if unsolved.is_empty() {
        return Ok(());
    }
    let (left_out, largest) = (unsolved.len(), unsolved.iter().fold(0.0, |most: f64, own| most.max(*own)));
    let what = match largest.is_finite() && largest > 0.0 {
        true => format!(
            "{left_out} of {asked} draws could not be solved to a residual of {:.0e} (the largest is {largest:.1e})",
            settings.inverse().tolerance,
        ),
        // Nothing finite was found, or the method solves no equation.
        false => format!("{left_out} of {asked} draws could not be solved (far outside the training data)"),
    };
    if unsolved.len() == asked {
        return Err(brenier::Error::Numerical(format!("{what}: there is nothing to write")).into());
    }
    output::warning(&format!("{what} and are left out; --strict makes this an error"));
    Ok(())
}

/// Warns of the observations at which no draw is left, by the number of `draws` at each, and counts them.
fn warn_of_empty(draws: impl Iterator<Item = usize>) -> usize {
    const NAMED: usize = 5;
    let empty: Vec<String> = draws
        .enumerate()
        .filter(|(_, draws)| *draws == 0)
        .map(|(observation, _)| (observation + 1).to_string())
        .collect();
    let list = empty[..empty.len().min(NAMED)].join(", ");
    match empty.len() {
        0 => {}
        1 => output::warning(&format!("observation {list} has no draws")),
        few if few <= NAMED => output::warning(&format!("observations {list} have no draws")),
        many => output::warning(&format!("observations {list} and {} more have no draws", many - NAMED)),
    }
    empty.len()
}

/// Joint draws: target and given columns, then the further ones.
fn joint_table(model: &Posterior, draws: JointDraws, extras: &[Extra]) -> Result<Table, Failure> {
    let (n, m) = (model.target_names().len(), model.given_names().len());
    let density = if extras.contains(&Extra::LogDensity) {
        model.log_density_joint(&draws.target, &draws.given)?.joint().user
    } else {
        Vec::new()
    };
    let values: Vec<f64> = draws
        .target
        .chunks_exact(n)
        .zip(draws.given.chunks_exact(m))
        .flat_map(|(x, y)| x.iter().chain(y).copied())
        .collect();
    let names = [model.target_names(), model.given_names()].concat();
    for (extra, name) in
        [(Extra::SupportPercentile, "support-percentile"), (Extra::Disagreement, "disagreement")]
    {
        if extras.contains(&extra) {
            return Err(Failure::Usage(format!("--with {name} belongs to draws at an observation")));
        }
    }
    let further = Further {
        residuals: &draws.residuals,
        iterations: &draws.iterations,
        density: &density,
        percentiles: &[],
        disagreement: &[],
    };
    beside(names, values, None, &further, extras)
}

/// The draws with the observation before and the other further columns after them.
fn table(
    model: &Posterior,
    observed: &Observations,
    at: &At<'_>,
    draws: Draws,
    extras: &[Extra],
) -> Result<Table, Failure> {
    let m = model.given_names().len();
    let density = if extras.contains(&Extra::LogDensity) {
        let given: Vec<f64> = draws
            .observation
            .iter()
            .flat_map(|&o| &observed.values[o as usize * m..(o as usize + 1) * m])
            .copied()
            .collect();
        model.log_density(&draws.values, &given)?.user
    } else {
        Vec::new()
    };
    let percentiles: Vec<f64> = if extras.contains(&Extra::SupportPercentile) {
        let distances = observations::distances(model, observed)?;
        if distances.is_empty() {
            return Err(Failure::Usage(
                "--with support-percentile: the model has no given columns, or was fitted to too few rows"
                    .into(),
            ));
        }
        draws.observation.iter().map(|&o| distances[o as usize].percentile).collect()
    } else {
        Vec::new()
    };
    let disagreement: Vec<f64> = if extras.contains(&Extra::Disagreement) {
        needs_members(model)?;
        let found = at.clone().seed(0).disagreement()?;
        draws.observation.iter().map(|&o| found[o as usize]).collect()
    } else {
        Vec::new()
    };
    let further = Further {
        residuals: &draws.residuals,
        iterations: &draws.iterations,
        density: &density,
        percentiles: &percentiles,
        disagreement: &disagreement,
    };
    let numbers = extras.contains(&Extra::Observation).then_some(draws.observation.as_slice());
    beside(model.target_names().to_vec(), draws.values, numbers, &further, extras)
}

/// An error where there is one map, with which nothing can disagree.
fn needs_members(model: &Posterior) -> Result<(), Failure> {
    match model.members().is_empty() {
        false => Ok(()),
        true => Err(Failure::Usage(
            "--with disagreement: the model is a single map; fit an ensemble with --members".to_owned(),
        )),
    }
}

/// What may be beside a draw.
struct Further<'a> {
    residuals: &'a [f64],
    iterations: &'a [u32],
    density: &'a [f64],
    percentiles: &'a [f64],
    disagreement: &'a [f64],
}

/// The columns `names` with the number of the observation before and the further ones after them.
fn beside(
    mut names: Vec<String>,
    draws: Vec<f64>,
    observation: Option<&[u32]>,
    further: &Further<'_>,
    extras: &[Extra],
) -> Result<Table, Failure> {
    let width = names.len();
    let mut after: Vec<&dyn Fn(usize) -> f64> = Vec::new();
    let residual = |row: usize| further.residuals[row];
    let iterations = |row: usize| f64::from(further.iterations[row]);
    let log_density = |row: usize| further.density[row];
    let percentile = |row: usize| further.percentiles[row];
    let disagreement = |row: usize| further.disagreement[row];
    if extras.contains(&Extra::Residual) {
        names.push(free_name("residual", &names));
        after.push(&residual);
    }
    if extras.contains(&Extra::Iterations) {
        names.push(free_name("iterations", &names));
        after.push(&iterations);
    }
    if extras.contains(&Extra::LogDensity) {
        names.push(free_name("log_density", &names));
        after.push(&log_density);
    }
    if extras.contains(&Extra::SupportPercentile) {
        names.push(free_name("support_percentile", &names));
        after.push(&percentile);
    }
    if extras.contains(&Extra::Disagreement) {
        names.push(free_name("disagreement", &names));
        after.push(&disagreement);
    }
    if observation.is_some() {
        names.insert(0, free_name("observation", &names));
    }
    if names.len() == width {
        return Ok(Table::new(names, draws)?);
    }
    let mut values = Vec::with_capacity(draws.len() / width * names.len());
    for (row, draw) in draws.chunks_exact(width).enumerate() {
        values.extend(observation.map(|observation| f64::from(observation[row]) + 1.0));
        values.extend_from_slice(draw);
        values.extend(after.iter().map(|column| column(row)));
    }
    Ok(Table::new(names, values)?)
}
