//! `brenier plot predictive`: what simulations at posterior draws look like beside what was observed.

use std::path::Path;

use brenier::data::{ReadOptions, Selection, Table};
use brenier::report::{Histogram, Histograms, PredictivePlot, PredictiveSeries};
use brenier::simulate::{Outcome, SimulateEvent, Simulator, run_predictive};
use brenier::{Error, Event, Posterior, Run, StopToken};

use super::{check, point, size, texts, write};
use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::model_args::ModelArguments;
use crate::models::Model;
use crate::plot_args::PredictiveArguments;
use crate::posterior_args::ObservationArguments;
use crate::tables::{column_names, load};
use crate::{observations, output};

/// Points from which columns named STEM_TIME are taken for a series unasked.
const SERIES_POINTS: usize = 10;
/// Histograms in one picture, at most.
const MOST_HISTOGRAMS: usize = 20;

/// Outputs of many draws, and single rows of the same outputs to lay over them.
struct Predicted {
    names: Vec<String>,
    values: Vec<f64>,
    overlays: Vec<(&'static str, Vec<Option<f64>>)>,
}

pub(super) fn run(arguments: &PredictiveArguments) -> Result<(), Failure> {
    check(&arguments.picture)?;
    if arguments.posterior.is_none() && (!arguments.at.is_empty() || arguments.row.is_some()) {
        return Err(Failure::Usage(
            "--at and --row belong to --posterior; with a table of outputs, --observed lays values over it"
                .to_owned(),
        ));
    }
    let options = arguments.tables.options();
    let mut predicted = match (&arguments.table, &arguments.posterior) {
        (Some(table), _) => read(table, &options)?,
        (None, Some(model)) => simulated(arguments, model)?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    if let Some(path) = arguments.overlay() {
        let have = column_names(path, &options)?;
        let shared: Vec<String> =
            predicted.names.iter().filter(|name| have.contains(name)).cloned().collect();
        if shared.is_empty() {
            let list = predicted.names.iter().take(6).map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Error::table(path, format!("it has none of the outputs {list}, …")).into());
        }
        let row = point("the table to lay over,", &path.to_string_lossy(), &shared, &options)?;
        let of = |name: &String| shared.iter().position(|own| own == name).map(|place| row[place]);
        let values = predicted.names.iter().map(of).collect();
        predicted.overlays.retain(|(label, _)| *label != OBSERVED);
        predicted.overlays.push((OBSERVED, values));
    }
    let series = if arguments.histograms.is_some() {
        Vec::new()
    } else {
        series(&predicted.names, &arguments.series)?
    };
    if series.is_empty() {
        histograms(arguments, &predicted)
    } else {
        over_time(arguments, &predicted, &series)
    }
}

const OBSERVED: &str = "observed";
const TRUTH: &str = "path at the true parameters";

fn read(path: &Path, options: &ReadOptions) -> Result<Predicted, Failure> {
    let table = load(path, None, options, |names| Ok(names.to_vec()))?;
    Ok(Predicted { names: table.names, values: table.values, overlays: Vec::new() })
}

/// Draws from the posterior at the observation and simulates each.
fn simulated(arguments: &PredictiveArguments, path: &Path) -> Result<Predicted, Failure> {
    if arguments.n == 0 {
        return Err(Failure::Usage("-n: ask for at least 1 draw".to_owned()));
    }
    let posterior = Posterior::load(path)?;
    let flags = ObservationArguments { observed: arguments.conditions().cloned(), at: arguments.at.clone() };
    let observed = observations::read(&posterior, &flags, &arguments.tables.options())?;
    let row = match arguments.row {
        None if observed.count == 1 => 0,
        None => {
            return Err(Failure::Usage(format!(
                "--observed has {} rows: choose one with --row N",
                observed.count
            )));
        }
        Some(row) if (1..=observed.count).contains(&row) => row - 1,
        Some(row) => {
            return Err(Failure::Usage(format!("--row {row}: the table has rows 1 to {}", observed.count)));
        }
    };
    let width = posterior.given_names().len();
    let given = &observed.values[row * width..][..width];
    let stop = stop_without_result()?;
    if arguments.simulator.is_none() && arguments.command.is_none() {
        return Err(Failure::Usage(
            "say what to simulate with: --simulator NAME, or --command and --prior for your own program"
                .to_owned(),
        ));
    }
    let model = Model::start(
        &ModelArguments {
            model: arguments.simulator.clone(),
            command: arguments.command.clone(),
            prior: arguments.prior.clone(),
            timeout: arguments.timeout,
            start_timeout: arguments.start_timeout,
            retries: 2,
        },
        &stop,
    )?;
    let simulator = model.simulator();
    let parameters = simulator.prior().names().to_vec();
    let targets = posterior.target_names();
    let places = parameters
        .iter()
        .map(|name| {
            targets.iter().position(|own| own == name).ok_or_else(|| {
                Failure::Usage(format!(
                    "{}: the simulator needs \"{name}\", but the model's targets are {}",
                    path.display(),
                    targets.join(", ")
                ))
            })
        })
        .collect::<Result<Vec<usize>, Failure>>()?;
    let truth = arguments
        .truth
        .as_ref()
        .map(|text| point("--truth", text, &parameters, &arguments.tables.options()))
        .transpose()?;
    let draws = posterior.at_rows(given, 1).seed(arguments.seed).stop(&stop).sample(arguments.n)?;
    let draws = Table::new(targets.to_vec(), draws.values)?.select_columns(&places);
    let values = outputs(simulator, &draws, arguments.seed, &stop)?;
    let names = simulator.output_names().to_vec();
    let mut overlays = Vec::new();
    if let Some(truth) = truth {
        let one = Table::new(parameters, truth)?;
        // Another seed than the draws', so that it shares no random numbers with the first of them.
        let path = outputs(simulator, &one, arguments.seed.wrapping_add(1), &stop)?;
        overlays.push((TRUTH, path.into_iter().map(Some).collect()));
    }
    model.tell_restarts();
    // The observed table may hold outputs that the model is not conditional on.
    let others = arguments.conditions().and_then(|path| {
        let options = arguments.tables.options();
        let have = column_names(path, &options).ok()?;
        let shared: Vec<String> = names.iter().filter(|name| have.contains(name)).cloned().collect();
        let table = load(path, None, &options, |_| Ok(shared.clone())).ok()?;
        let values = table.values.chunks_exact(shared.len().max(1)).nth(row)?.to_vec();
        Some((shared, values))
    });
    let known = |name: &String| {
        let own = posterior.given_names().iter().position(|own| own == name).map(|i| given[i]);
        let (shared, values) = others.as_ref().map_or((&[][..], &[][..]), |(a, b)| (a.as_slice(), b));
        own.or_else(|| shared.iter().position(|own| own == name).map(|i| values[i]))
    };
    if names.iter().any(|name| known(name).is_some()) {
        overlays.push((OBSERVED, names.iter().map(known).collect()));
    }
    Ok(Predicted { names, values, overlays })
}

/// The outputs at the rows of `parameters` that did not fail.
fn outputs(
    simulator: &dyn Simulator,
    parameters: &Table,
    seed: u64,
    stop: &StopToken,
) -> Result<Vec<f64>, Failure> {
    let mut observer = |event: &Event| {
        if let Some(SimulateEvent::Silent { notice }) = event.get() {
            output::warning(notice);
        }
        Ok(())
    };
    let run = Run::observed(&mut observer).stop(stop);
    let simulated = match run_predictive(simulator, parameters, seed, run)? {
        Outcome::Complete(simulated) => simulated,
        Outcome::Interrupted { .. } => {
            return Err(Failure::Interrupted("stopped before the simulations were done".to_owned()));
        }
    };
    if let Some(first) = simulated.failures.first() {
        let count = simulated.failures.len();
        if simulated.table.rows() == 0 {
            return Err(Failure::Usage(format!(
                "all {count} simulations failed, the first because: {}",
                first.reason
            )));
        }
        output::warning(&format!(
            "{count} of {} simulations failed and are not in the picture, the first because: {}",
            parameters.rows(),
            first.reason
        ));
    }
    let dim = parameters.columns();
    Ok(simulated.table.iter().flat_map(|row| &row[dim..]).copied().collect())
}

/// A time series: its stem, the times, the places of its columns.
struct Series {
    stem: String,
    times: Vec<f64>,
    places: Vec<usize>,
}

/// Columns named STEM_TIME with increasing times: those of `wanted` stems, or all of the longest.
fn series(names: &[String], wanted: &[String]) -> Result<Vec<Series>, Failure> {
    let mut found: Vec<Series> = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let Some((stem, time)) = name.rsplit_once('_') else { continue };
        let Some(time) = time.parse::<f64>().ok().filter(|time| time.is_finite()) else { continue };
        match found.iter_mut().find(|series| series.stem == stem) {
            Some(series) => {
                series.times.push(time);
                series.places.push(place);
            }
            None => found.push(Series { stem: stem.to_owned(), times: vec![time], places: vec![place] }),
        }
    }
    found.retain(|series| series.times.len() > 1 && series.times.windows(2).all(|pair| pair[0] < pair[1]));
    if wanted.is_empty() {
        let longest = found.iter().max_by_key(|series| series.times.len()).map(|series| series.times.clone());
        let longest = longest.unwrap_or_default();
        found.retain(|series| series.times == longest && series.times.len() >= SERIES_POINTS);
        return Ok(found);
    }
    let list = found.iter().map(|series| series.stem.as_str()).collect::<Vec<_>>().join(", ");
    let mut chosen: Vec<Series> = Vec::new();
    for stem in wanted {
        let Some(place) = found.iter().position(|series| series.stem == *stem) else {
            let there =
                if list.is_empty() { "there is none".to_owned() } else { format!("there are {list}") };
            return Err(Failure::Usage(format!(
                "--series: no columns {stem}_TIME with increasing times; of these {there}"
            )));
        };
        chosen.push(found.remove(place));
    }
    if let Some(other) = chosen.iter().find(|series| series.times != chosen[0].times) {
        return Err(Failure::Usage(format!(
            "--series: {} and {} have different times; draw them apart",
            chosen[0].stem, other.stem
        )));
    }
    Ok(chosen)
}

fn over_time(arguments: &PredictiveArguments, predicted: &Predicted, all: &[Series]) -> Result<(), Failure> {
    let stems: Vec<String> = all.iter().map(|series| series.stem.clone()).collect();
    let names = texts("--names", &arguments.names, &stems)?;
    let units = if arguments.units.is_empty() { vec![] } else { texts("--units", &arguments.units, &stems)? };
    let mut plot = PredictivePlot::new("time", all[0].times.clone());
    plot = plot.time_unit(arguments.time_unit.clone().unwrap_or_default());
    for (i, series) in all.iter().enumerate() {
        let rows = predicted.values.chunks_exact(predicted.names.len());
        let paths = rows.flat_map(|row| series.places.iter().map(move |&place| row[place])).collect();
        let mut drawn =
            PredictiveSeries::new(&names[i], paths).unit(units.get(i).cloned().unwrap_or_default());
        for (label, values) in &predicted.overlays {
            let known =
                series.times.iter().zip(&series.places).filter_map(|(&t, &place)| Some((t, values[place]?)));
            let (times, values): (Vec<f64>, Vec<f64>) = known.unzip();
            // A few measurements are points, a whole path is a line.
            drawn = match times.len() {
                0 => drawn,
                count if count < series.times.len() => drawn.points(*label, &times, &values),
                _ => drawn.line(*label, &times, &values),
            };
        }
        plot = plot.series(drawn);
    }
    let svg = plot.to_svg(size(&arguments.picture, 460, 100 + 130 * all.len()))?;
    write(&arguments.picture, &svg)
}

fn histograms(arguments: &PredictiveArguments, predicted: &Predicted) -> Result<(), Failure> {
    let wanted = arguments.histograms.as_ref().unwrap_or(&Selection::Rest);
    let mut places = wanted.resolve(&predicted.names)?;
    if places.len() > MOST_HISTOGRAMS {
        output::warning(&format!(
            "the first {MOST_HISTOGRAMS} of {} outputs are drawn; choose others with --histograms",
            places.len()
        ));
        places.truncate(MOST_HISTOGRAMS);
    }
    let own: Vec<String> = places.iter().map(|&place| predicted.names[place].clone()).collect();
    let names = texts("--names", &arguments.names, &own)?;
    let units = if arguments.units.is_empty() { vec![] } else { texts("--units", &arguments.units, &own)? };
    let overlay =
        predicted.overlays.iter().find(|(label, _)| *label == OBSERVED).or(predicted.overlays.first());
    let mut plot = Histograms::new();
    if let Some((label, _)) = overlay {
        plot = plot.labels("predicted", if *label == TRUTH { "at the true parameters" } else { *label });
    }
    for (i, &place) in places.iter().enumerate() {
        let values = predicted.values.iter().skip(place).step_by(predicted.names.len()).copied().collect();
        let mut panel = Histogram::new(&names[i], values).unit(units.get(i).cloned().unwrap_or_default());
        if let Some(value) = overlay.and_then(|(_, values)| values[place]) {
            panel = panel.observed(value);
        }
        plot = plot.panel(panel);
    }
    let (columns, rows) = plot.grid();
    let svg = plot.to_svg(size(&arguments.picture, 40 + 165 * columns.max(2), 40 + 125 * rows))?;
    write(&arguments.picture, &svg)
}
