//! `brenier reproduce lotka-volterra`: maps on 50 000 and 500 000 simulations against SMC-ABC.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use brenier::abc::{AbcSettings, AbcStop, remove_journal};
use brenier::data::{self, Encoding, Output, ReadOptions, Table, write_bytes};
use brenier::diagnose::Comparison;
use brenier::map::{Method, SampleSettings};
use brenier::report::{Curve, CurvePlot, DOTS_PER_INCH, PictureSize, write_picture};
use brenier::reproduce::lotka_volterra::{
    ABC_TOLERANCES, DrawTime, LvObservation, PARAMETERS, Particles, PredictedPaths, TRUTHS, against,
    draw_times, output_names, pair_picture, pairs, settings,
};
use brenier::simulate::{LotkaVolterra, Simulator};
use brenier::{Error, FitSettings, Journal, ModeSettings, Posterior, Run, StopToken, Units};
use serde::{Deserialize, Serialize};

use super::make;
use crate::commands::density::score;
use crate::commands::{abc, simulate};
use crate::failure::Failure;
use crate::files::{CHECKPOINT, beside};
use crate::interrupt::stop_on_interrupt_saying;
use crate::lock::Lock;
use crate::reproduce_args::LvArguments;
use crate::{observations, output, progress};

/// Seeds of the held-out table and of the observations, far from those of the training tables.
const TEST_SEED: u64 = 1_000_003;
const OBSERVED_SEED: u64 = 2_000_003;
const TEST_ROWS: u64 = 5000;
const DRAWS: usize = 2000;
const PATHS: usize = 400;
/// Runs whose median is the time of 2000 draws.
const REPEATS: usize = 7;

/// What was found about one map.
#[derive(Debug, Serialize)]
struct Fit {
    method: Method,
    rows: u64,
    settings: FitSettings,
    training: Training,
    /// Mean NLL of the held-out rows, standardised, and its standard error.
    nll: (f64, f64),
    posteriors: Vec<Found>,
    times: Vec<DrawTime>,
}

/// What decides models and particles besides their names: a folder holds one run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Plan {
    seed: u64,
    epochs: Option<u32>,
    tolerance: Option<f64>,
    observed: Vec<Vec<f64>>,
}

/// What a training took, kept beside its model.
#[derive(Debug, Serialize, Deserialize)]
struct Training {
    /// On the clock; none where it was interrupted and only its last part was timed.
    seconds: Option<f64>,
    threads: usize,
    steps: u64,
}

/// A posterior at one observation.
#[derive(Debug, Serialize)]
struct Found {
    /// The MAP point of log θ, as θ.
    mode: Vec<f64>,
    /// Posterior means and standard deviations of log θ.
    mean: Vec<f64>,
    deviation: Vec<f64>,
    /// Against our SMC-ABC, and against the particles given by path.
    abc: Option<Comparison>,
    given: Option<Comparison>,
}

/// An SMC-ABC run, kept beside its particles.
#[derive(Debug, Serialize, Deserialize)]
struct Search {
    tolerance: f64,
    simulations: u64,
    /// As in [`Training`].
    seconds: Option<f64>,
    rounds: usize,
}

struct Reproduction<'a> {
    arguments: &'a LvArguments,
    stop: StopToken,
}

pub(crate) fn run(arguments: &LvArguments) -> Result<(), Failure> {
    let out = &arguments.out;
    for (name, files) in [("--observed", &arguments.observed), ("--particles", &arguments.particles)] {
        if !files.is_empty() && files.len() != TRUTHS.len() {
            return Err(Failure::Usage(format!(
                "{name} takes {} files, one for each of the two parameter vectors, not {}",
                TRUTHS.len(),
                files.len()
            )));
        }
    }
    if !arguments.particles.is_empty() && arguments.observed.is_empty() {
        return Err(Failure::Usage(
            "--particles belong to the observations they were found at: name these with --observed"
                .to_owned(),
        ));
    }
    let observed = observed(arguments)?;
    let references = arguments
        .particles
        .iter()
        .map(|path| {
            let table =
                data::read(path, &ReadOptions::default(), |names| Ok((0..names.len()).collect()))?.table;
            Particles::from_table(&table).map_err(|error| Error::table(path, error.to_string()))
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let plan = Plan {
        seed: arguments.seed,
        epochs: arguments.epochs,
        tolerance: arguments.tolerance,
        observed: observed.iter().map(|observation| observation.summaries.clone()).collect(),
    };
    let record = out.join("run.json");
    if record.exists() {
        if !arguments.resume {
            return Err(Failure::Usage(format!(
                "{} holds an earlier run: add --resume to go on with it, or choose another --out",
                out.display()
            )));
        }
        if kept::<Plan>(&record).as_ref() != Some(&plan) {
            return Err(Failure::Usage(format!(
                "{} holds a run with another --seed, --epochs, --tolerance or --observed: repeat these, or choose another \
                 --out",
                out.display()
            )));
        }
    }
    make(out)?;
    let _lock = Lock::folder(out)?;
    let stop = stop_on_interrupt_saying(
        "stopping: what is finished is kept, --resume continues (Ctrl-C again to abort)",
    )?;
    let run = Reproduction { arguments, stop };
    write_bytes(&record, serde_json::to_string(&plan).expect("plain numbers").as_bytes())?;
    write_bytes(&out.join("observed.csv"), observed_table(&observed).as_bytes())?;

    let searches = match arguments.no_abc {
        true => None,
        false => Some(
            observed
                .iter()
                .enumerate()
                .map(|(which, observation)| run.search(which, observation))
                .collect::<Result<Vec<_>, Failure>>()?,
        ),
    };
    let test = run.table(&out.join("test.parquet"), TEST_ROWS, TEST_SEED)?;
    let mut fits = Vec::new();
    for &rows in &arguments.rows {
        let path = out.join(format!("train-{rows}.parquet"));
        for &method in &arguments.methods() {
            let model = run.model(method, rows, &path)?;
            let fit = run.judge(method, rows, model, &test, &observed, searches.as_deref(), &references)?;
            fits.push(fit);
            let json = serde_json::json!({
                "fits": fits,
                "abc": searches.as_ref().map(|all| all.iter().map(|(search, _)| search).collect::<Vec<_>>()),
            });
            let text = serde_json::to_string_pretty(&json).expect("figures are plain data");
            write_bytes(&out.join("results.json"), text.as_bytes())?;
            write_bytes(&out.join("results.md"), markdown(&fits, searches.as_deref(), &observed).as_bytes())?;
        }
    }
    run.accuracy(&fits)?;
    output::result(&markdown(&fits, searches.as_deref(), &observed))?;
    if !output::quiet() {
        output::note(&format!("tables, models, pictures and results.json are in {}", out.display()));
    }
    Ok(())
}

/// The observations of the flags, or simulated ones.
fn observed(arguments: &LvArguments) -> Result<Vec<LvObservation>, Failure> {
    let names = output_names();
    TRUTHS
        .iter()
        .enumerate()
        .map(|(which, &truth)| match arguments.observed.get(which) {
            None => Ok(LvObservation::simulate(truth, OBSERVED_SEED.wrapping_add(arguments.seed))?),
            Some(path) => {
                let table =
                    observations::columns(path, &ReadOptions::default(), &names, &Encoding::default())?;
                match table.rows() {
                    1 => Ok(LvObservation { summaries: table.row(0).to_vec(), truth, path: None }),
                    rows => {
                        Err(Failure::Library(Error::table(path, format!("has {rows} rows instead of one"))))
                    }
                }
            }
        })
        .collect()
}

fn observed_table(observed: &[LvObservation]) -> String {
    let names: Vec<String> = PARAMETERS.iter().map(|&name| name.to_owned()).chain(output_names()).collect();
    let mut text = names.join(",") + "\n";
    for observation in observed {
        let values = observation.truth.iter().chain(&observation.summaries);
        text.push_str(&(values.map(f64::to_string).collect::<Vec<_>>().join(",") + "\n"));
    }
    text
}

fn interrupted() -> Failure {
    Failure::Interrupted("stopped; re-run the same command with --resume to continue".to_owned())
}

/// A JSON file, if it is there and whole.
fn kept<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

impl Reproduction<'_> {
    fn say(&self, text: &str) {
        if !output::quiet() {
            output::note(text);
        }
    }

    /// The table at `path`, simulated if it is not there.
    fn table(&self, path: &Path, rows: u64, seed: u64) -> Result<Table, Failure> {
        if path.exists() {
            return Ok(
                data::read(path, &ReadOptions::default(), |names| Ok((0..names.len()).collect()))?.table
            );
        }
        self.say(&format!("{rows} simulations:"));
        let mut screen = simulate::Screen::new(output::quiet());
        let table = pairs(rows, seed, Run::observed(&mut screen).stop(&self.stop))?;
        drop(screen);
        let table = table.ok_or_else(interrupted)?;
        data::write(&Output::Path(path.to_owned()), &table)?;
        Ok(table)
    }

    /// The trained map, from its file if it is there.
    fn model(&self, method: Method, rows: u64, table: &Path) -> Result<(Posterior, Training), Failure> {
        let path = self.arguments.out.join(format!("{}-{rows}.brenier", method.name()));
        let summary = beside(&path, ".json");
        if path.exists()
            && let Some(training) = kept(&summary)
        {
            data::discard(&beside(&path, ".checkpoint")); // a kill may have come before it was removed
            return Ok((Posterior::load(&path)?, training));
        }
        let table = self.table(table, rows, self.arguments.seed)?;
        let mut settings = settings(method, rows, self.arguments.seed)?;
        if let Some(epochs) = self.arguments.epochs {
            settings.train.epochs = epochs;
        }
        self.say(&format!("{} on {rows} rows:", method.name()));
        let mut screen = progress::screen(output::quiet(), None);
        let started = Instant::now();
        let checkpoint = Journal::at(beside(&path, CHECKPOINT));
        let whole = !checkpoint.path.exists();
        let run = Run::observed(screen.as_mut()).stop(&self.stop).journal(checkpoint.clone());
        let model = brenier::fit(&table, &settings, run)?.posterior;
        drop(screen);
        if model.header().training.stop.is_resumable() {
            return Err(interrupted());
        }
        let training = Training {
            seconds: whole.then(|| started.elapsed().as_secs_f64()),
            threads: rayon::current_num_threads(),
            steps: model.header().training.steps,
        };
        model.save(&path)?;
        let text = serde_json::to_string(&training).expect("plain numbers");
        write_bytes(&summary, text.as_bytes())?;
        data::discard(&checkpoint.path);
        Ok((model, training))
    }

    /// Our own SMC-ABC particles at an observation, from their file if it is there.
    fn search(&self, which: usize, observation: &LvObservation) -> Result<(Search, Particles), Failure> {
        let path = self.arguments.out.join(format!("abc-{}.csv", which + 1));
        let summary = beside(&path, ".json");
        let read = |path: &Path| -> Result<Particles, Error> {
            let table =
                data::read(path, &ReadOptions::default(), |names| Ok((0..names.len()).collect()))?.table;
            Particles::from_table(&table)
        };
        if path.exists()
            && let Some(search) = kept(&summary)
        {
            remove_journal(&Journal::at(beside(&path, CHECKPOINT))); // as above
            return Ok((search, read(&path)?));
        }
        let tolerance = self.arguments.tolerance.unwrap_or(ABC_TOLERANCES[which]);
        self.say(&format!("SMC-ABC at observation {} to {tolerance}:", which + 1));
        let simulator = LotkaVolterra::default();
        let settings =
            AbcSettings { tolerance: Some(tolerance), seed: self.arguments.seed, ..Default::default() };
        let plan = Journal::at(beside(&path, CHECKPOINT));
        let whole = !plan.path.exists();
        let mut screen = abc::Screen::new(output::quiet());
        let run = Run::observed(&mut screen).stop(&self.stop).journal(plan.clone());
        let started = Instant::now();
        let outcome = brenier::abc::run(&simulator, &observation.summaries, &settings, None, run)?;
        drop(screen);
        let (AbcStop::Finished, Some(population)) = (outcome.stop, &outcome.population) else {
            return Err(interrupted());
        };
        let search = Search {
            tolerance,
            simulations: outcome.simulations,
            seconds: whole.then(|| started.elapsed().as_secs_f64()),
            rounds: outcome.rounds.len(),
        };
        data::write(&Output::Path(path.clone()), &population.to_table(simulator.prior())?)?;
        write_bytes(&summary, serde_json::to_string(&search).expect("plain numbers").as_bytes())?;
        remove_journal(&plan);
        Ok((search, read(&path)?))
    }

    /// Draws, modes, comparisons and pictures of one map at both observations.
    #[allow(clippy::too_many_arguments)]
    fn judge(
        &self,
        method: Method,
        rows: u64,
        (model, training): (Posterior, Training),
        test: &Table,
        observed: &[LvObservation],
        searches: Option<&[(Search, Particles)]>,
        references: &[Particles],
    ) -> Result<Fit, Failure> {
        let seed = self.arguments.seed;
        self.say(&format!("{} on {rows} rows: draws and comparisons", method.name()));
        let densities = score(&model, test)?.whole.standardised;
        let count = densities.len() as f64;
        let mean = densities.iter().sum::<f64>() / count;
        let variance = densities.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let mut posteriors = Vec::new();
        for (which, observation) in observed.iter().enumerate() {
            let draws =
                model.sample(&observation.summaries, 1, DRAWS, seed, &SampleSettings::default())?.values;
            let how = ModeSettings { units: Units::Standardised, ..Default::default() };
            let mode = model.mode(&observation.summaries, 1, seed, &how)?.remove(0).point;
            let (mean, deviation) = moments(&draws);
            let own = searches.map(|all| &all[which].1);
            let compare = |particles: Option<&Particles>| {
                particles.map(|particles| against(&draws, particles, seed)).transpose()
            };
            let (abc, given) = (compare(own)?, compare(references.get(which))?);
            let label = format!("{} on {rows} rows", method.title());
            let reference = references.get(which).map(|particles| ("the authors' SMC-ABC", particles));
            let reference = own.map(|particles| ("SMC-ABC", particles)).or(reference);
            let layers = [(label.as_str(), draws.as_slice())];
            let svg = pair_picture(&layers, reference, observation.truth, Some(&mode))?;
            let stem = format!("{}-{rows}-{}", method.name(), which + 1);
            self.picture(&format!("pairs-{stem}"), &svg)?;
            let paths = PredictedPaths::simulate(&draws, PATHS, seed);
            let size = PictureSize { width: 620, height: 420 };
            self.picture(&format!("predictive-{stem}"), &paths.picture(observation, size)?)?;
            posteriors.push(Found { mode, mean, deviation, abc, given });
        }
        let times = draw_times(&model, &observed[0].summaries, DRAWS, REPEATS, seed)?;
        Ok(Fit {
            method,
            rows,
            settings: model.header().settings.clone(),
            training,
            nll: (-mean, (variance / count).sqrt()),
            posteriors,
            times,
        })
    }

    /// Writes a picture as SVG and as PNG.
    fn picture(&self, stem: &str, svg: &str) -> Result<(), Error> {
        for ending in ["svg", "png"] {
            let path: PathBuf = self.arguments.out.join(format!("{stem}.{ending}"));
            write_picture(&path, svg, 0.5 * DOTS_PER_INCH)?;
        }
        Ok(())
    }

    /// The flows' error against the number of steps.
    fn accuracy(&self, fits: &[Fit]) -> Result<(), Error> {
        let mut plot = CurvePlot::new("Runge–Kutta steps", "rms error of log θ").log_x().log_y();
        let mut any = false;
        for fit in fits.iter().filter(|fit| fit.times.iter().any(|time| time.steps.is_some())) {
            let (steps, errors): (Vec<f64>, Vec<f64>) =
                fit.times.iter().filter_map(|time| Some((time.steps? as f64, time.error))).unzip();
            plot = plot
                .curve(Curve::line(format!("COT-Flow on {} rows", fit.rows), steps, errors).with_markers());
            any = true;
        }
        if any {
            self.picture("accuracy", &plot.to_svg(PictureSize { width: 460, height: 320 })?)?;
        }
        Ok(())
    }
}

/// Means and standard deviations of log θ.
fn moments(draws: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let count = (draws.len() / PARAMETERS.len()) as f64;
    let column = |j: usize| draws.iter().skip(j).step_by(PARAMETERS.len()).map(|value| value.ln());
    let mean: Vec<f64> = (0..PARAMETERS.len()).map(|j| column(j).sum::<f64>() / count).collect();
    let deviation = (0..PARAMETERS.len())
        .map(|j| (column(j).map(|value| (value - mean[j]).powi(2)).sum::<f64>() / (count - 1.0)).sqrt())
        .collect();
    (mean, deviation)
}

/// A time that was measured as a whole.
fn clock(seconds: Option<f64>) -> String {
    seconds.map_or("interrupted, not timed".to_owned(), |seconds| format!("{seconds:.0} s"))
}

fn markdown(fits: &[Fit], searches: Option<&[(Search, Particles)]>, observed: &[LvObservation]) -> String {
    let mut text = String::from(
        "| map | rows | held-out NLL (standardised log θ) | training | steps |\n|---|---:|---:|---:|---:|\n",
    );
    for fit in fits {
        let _ = writeln!(
            text,
            "| {} | {} | {:.3} ± {:.3} | {} on {} threads | {} |",
            fit.method.title(),
            fit.rows,
            fit.nll.0,
            fit.nll.1,
            clock(fit.training.seconds),
            fit.training.threads,
            fit.training.steps
        );
    }
    for (which, observation) in observed.iter().enumerate() {
        let logs = observation.truth.map(|value| format!("{:.3}", value.ln()));
        let _ = write!(
            text,
            "\nObservation {}, θ = {:?}; log θ as mean (standard deviation), MAP:\n\n\
             | | log θ₁ | log θ₂ | log θ₃ | log θ₄ | C2ST | MMD |\n|---|---|---|---|---|---:|---:|\n\
             | truth | {} | | |\n",
            which + 1,
            observation.truth,
            logs.join(" | ")
        );
        let row = |label: String, cells: Vec<String>, comparison: Option<&Comparison>| {
            let tests = comparison.map_or((String::new(), String::new()), |found| {
                (format!("{:.3}", found.c2st.accuracy), format!("{:.3}", found.mmd.root))
            });
            format!("| {label} | {} | {} | {} |\n", cells.join(" | "), tests.0, tests.1)
        };
        if let Some(searches) = searches {
            let (search, particles) = &searches[which];
            let total: f64 = particles.weights.iter().sum();
            let cells = (0..PARAMETERS.len())
                .map(|j| {
                    let rows = || particles.theta.chunks_exact(PARAMETERS.len()).zip(&particles.weights);
                    let mean = rows().map(|(theta, w)| w * theta[j].ln()).sum::<f64>() / total;
                    let square =
                        rows().map(|(theta, w)| w * (theta[j].ln() - mean).powi(2)).sum::<f64>() / total;
                    format!("{mean:.3} ({:.3})", square.sqrt())
                })
                .collect();
            let label = format!(
                "SMC-ABC, ε = {}, {:.2} million simulations, {}",
                search.tolerance,
                search.simulations as f64 / 1e6,
                clock(search.seconds)
            );
            text.push_str(&row(label, cells, None));
        }
        for fit in fits {
            let found = &fit.posteriors[which];
            let cells = (0..PARAMETERS.len())
                .map(|j| {
                    format!("{:.3} ({:.3}), {:.3}", found.mean[j], found.deviation[j], found.mode[j].ln())
                })
                .collect();
            let label = format!("{}, {} rows", fit.method.title(), fit.rows);
            text.push_str(&row(label, cells, found.abc.as_ref().or(found.given.as_ref())));
            if found.abc.is_some() && found.given.is_some() {
                let blank = vec!["".to_owned(); PARAMETERS.len()];
                text.push_str(&row("– against the given particles".to_owned(), blank, found.given.as_ref()));
            }
        }
    }
    text.push_str("\n2000 draws:\n\n| map | rows | accuracy | ours | published (GPU) | rms error of log θ |\n|---|---:|---|---:|---:|---:|\n");
    for fit in fits {
        for time in &fit.times {
            let accuracy = match (time.steps, time.tolerance) {
                (Some(steps), _) => format!("n_t = {steps}"),
                (_, Some(tolerance)) => format!("tolerance {tolerance:.0e}"),
                _ => String::new(),
            };
            let published =
                time.published.map_or("–".to_owned(), |seconds| format!("{:.0} ms", 1e3 * seconds));
            let _ = writeln!(
                text,
                "| {} | {} | {accuracy} | {:.1} ms | {published} | {:.1e} |",
                fit.method.title(),
                fit.rows,
                1e3 * time.seconds,
                time.error
            );
        }
    }
    text
}
