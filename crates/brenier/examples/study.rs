//! Compares settings of a fit on problems with known answers: the harness that defaults are chosen with.
//!
//! ```text
//! cargo run --release -p brenier --example study -- VARIANTS.toml RESULTS.jsonl \
//!     --problems bent-banana,two-moons --rows 10000 --seeds 3 [--variants a,b] [--against a]
//! ```
//!
//! A variant is a table of fit settings by its name, as in `[averaged.train]` with `weight_average = 0.99`; one without any
//! change is written `[plain]`, and one without a method is chosen by trials. Each variant is fitted to the same tables. Choose by `select`, the NLL of 5000 fresh rows in the
//! columns' units, or by the validation NLL; `test` is the NLL of other fresh rows, for reports. Fits that RESULTS.jsonl holds are
//! not repeated, and several programs may add to it. With `--observations 3` fits of the benchmark's tasks are also compared
//! with 10 000 draws from the exact posterior at that many observations: `c2st` is the mean accuracy of a classifier. In the end the means over the seeds are printed, with paired differences
//! from the variant `--against` and their standard errors.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

use brenier::data::{Selection, Table};
use brenier::diagnose::{C2stSettings, Sample, c2st};
use brenier::map::SampleSettings;
use brenier::reproduce::sbibm::{self, SbibmCell, SbibmObservation, SbibmSettings};
use brenier::simulate::tasks::problems::Problem;
use brenier::{Error, FitSettings, MethodChoice, Posterior, Result, Run, fit};
use serde_json::{Value, json};

/// Seeds of the rows that decide and of those that are reported, far from those of training tables.
const SELECT_SEED: u64 = 5_000_011;
const TEST_SEED: u64 = 6_000_011;
/// Rows of either.
const SCORED_ROWS: usize = 5000;

struct Arguments {
    variants: String,
    results: String,
    options: BTreeMap<String, String>,
}

impl Arguments {
    fn read() -> Option<Self> {
        let mut words = std::env::args().skip(1);
        let (variants, results) = (words.next()?, words.next()?);
        let mut options = BTreeMap::new();
        while let Some(name) = words.next() {
            options.insert(name.strip_prefix("--")?.to_owned(), words.next()?);
        }
        Some(Self { variants, results, options })
    }

    fn list(&self, name: &str) -> Vec<String> {
        let text = self.options.get(name).map_or("", String::as_str);
        text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.options.get(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }
}

/// A task of the benchmark or one of the small problems.
struct Source {
    name: String,
    problem: Option<Problem>,
}

impl Source {
    fn cell(&self, rows: u64, seed: u64) -> SbibmCell {
        SbibmCell {
            task: self.name.clone(),
            simulations: rows,
            method: MethodChoice::default(),
            exchangeable: false,
            seed,
        }
    }

    fn table(&self, rows: u64, seed: u64) -> Result<Table> {
        match &self.problem {
            Some(problem) => problem.table(rows as usize, seed),
            None => sbibm::training_table(&self.cell(rows, seed), Run::silent())?
                .ok_or_else(|| Error::Numerical("the simulation was stopped".to_owned())),
        }
    }

    /// `settings` with this problem's columns and supports.
    fn settings(&self, settings: &FitSettings, seed: u64) -> Result<FitSettings> {
        let (target, given, support) = match &self.problem {
            Some(problem) => {
                let select = |names: Vec<String>| names.join(",").parse::<Selection>().map(Some);
                (select(problem.target_names())?, select(problem.given_names())?, Vec::new())
            }
            None => {
                let own = sbibm::fit_settings(&self.cell(1000, seed))?;
                (own.target, own.given, own.support)
            }
        };
        Ok(FitSettings { target, given, support, seed, ..settings.clone() })
    }

    fn exact(&self, table: &Table) -> Option<f64> {
        self.problem.as_ref().and_then(|problem| problem.exact_nll(table).ok())
    }
}

/// Observations of a task with draws from their exact posteriors.
struct Reference {
    settings: SbibmSettings,
    pairs: Vec<(SbibmObservation, Vec<f64>)>,
}

impl Reference {
    fn of(source: &Source, observations: usize) -> Result<Option<Self>> {
        if observations == 0 || source.problem.is_some() {
            return Ok(None);
        }
        let settings = SbibmSettings { observations, ..Default::default() };
        let found = sbibm::observations(&source.name, &settings)?;
        let pairs = found
            .into_iter()
            .enumerate()
            .map(|(index, observation)| {
                let draws = sbibm::reference_draws(&source.name, &settings, index, &observation)?;
                Ok((observation, draws))
            })
            .collect::<Result<_>>()?;
        Ok(Some(Self { settings, pairs }))
    }

    /// The mean accuracy of a classifier between draws of the model and of the reference.
    fn c2st(&self, model: &Posterior) -> Result<f64> {
        let (n, draws) = (model.info().target_names.len(), self.settings.draws);
        let how = SampleSettings { skip_unsolved: true, ..Default::default() };
        let mut sum = 0.0;
        for (observation, reference) in &self.pairs {
            let own = model.sample(&observation.y, 1, draws, model.info().seed, &how)?.values;
            let (p, q) = (Sample::new(reference, n)?, Sample::new(&own, n)?);
            sum += c2st(&p, &q, &C2stSettings::default())?.accuracy;
        }
        Ok(sum / self.pairs.len() as f64)
    }
}

/// The mean NLL of a table's rows in the columns' units.
fn nll(model: &Posterior, table: &Table) -> Result<f64> {
    let n = model.info().target_names.len();
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for row in table.iter() {
        x.extend_from_slice(&row[..n]);
        y.extend_from_slice(&row[n..]);
    }
    let densities = model.log_density(&x, &y)?.user;
    Ok(-densities.iter().sum::<f64>() / densities.len() as f64)
}

fn main() -> Result<()> {
    let Some(arguments) = Arguments::read() else {
        println!(
            "usage: study VARIANTS.toml RESULTS.jsonl --problems NAME,… [--rows N] [--seeds K] [--first SEED] [--observations K] [--variants NAME,…] [--against NAME]"
        );
        return Ok(());
    };
    let refused = |problem: String| Error::setting("variants", problem);
    let text = std::fs::read_to_string(&arguments.variants).map_err(|error| refused(error.to_string()))?;
    let tables: BTreeMap<String, toml::Value> =
        toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let mut variants = BTreeMap::new();
    for (name, table) in tables {
        let settings = table.try_into().map_err(|error| refused(format!("{name}: {error}")))?;
        variants.insert(name, settings);
    }
    let chosen = match arguments.list("variants") {
        names if names.is_empty() => variants.keys().cloned().collect(),
        names => names,
    };
    let (rows, seeds, first) =
        (arguments.number("rows", 10_000), arguments.number("seeds", 3), arguments.number("first", 0));
    for name in arguments.list("problems") {
        let source = Source { problem: Problem::named(&name), name };
        let scored = SCORED_ROWS as u64;
        let (select, test) = (source.table(scored, SELECT_SEED)?, source.table(scored, TEST_SEED)?);
        let reference = Reference::of(&source, arguments.number("observations", 0) as usize)?;
        for seed in first..first + seeds {
            let table = source.table(rows, seed)?;
            for variant in &chosen {
                let key = json!([source.name, rows, seed, variant]);
                if results(&arguments.results).iter().any(|held| held["key"] == key) {
                    continue;
                }
                let settings: &FitSettings =
                    variants.get(variant).ok_or_else(|| refused(format!("there is no \"{variant}\"")))?;
                let started = Instant::now();
                let fitted = fit(&table, &source.settings(settings, seed)?, Run::silent());
                let line = match fitted {
                    Err(error) => json!({"key": key, "error": error.to_string()}),
                    Ok(fitted) => {
                        let (model, seconds) = (fitted.posterior, started.elapsed().as_secs_f64());
                        let training = &model.info().training;
                        json!({
                            "key": key, "valid": training.best_valid_nll, "select": nll(&model, &select)?,
                            "c2st": reference.as_ref().map(|reference| reference.c2st(&model)).transpose()?,
                            "test": nll(&model, &test)?, "exact": source.exact(&test), "seconds": seconds,
                            "steps": training.steps, "best_step": training.best_step, "stop": training.stop,
                            "method": model.info().settings.method,
                            "members": model.info().settings.members,
                        })
                    }
                };
                let failed = |source| Error::io(arguments.results.as_ref(), "write", source);
                let mut file =
                    OpenOptions::new().create(true).append(true).open(&arguments.results).map_err(failed)?;
                writeln!(file, "{line}").map_err(failed)?;
                eprintln!("{line}");
            }
        }
    }
    let against = arguments.options.get("against").or(chosen.first()).cloned().unwrap_or_default();
    print(&results(&arguments.results), &arguments.list("problems"), rows, &chosen, &against);
    Ok(())
}

fn results(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Mean and standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (square / (count - 1.0) / count).sqrt())
}

fn print(held: &[Value], problems: &[String], rows: u64, variants: &[String], against: &str) {
    println!(
        "| problem | variant | seeds | validation | select | difference | test | exact | C2ST | seconds |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for problem in problems {
        let of = |variant: &str, figure: &str| -> BTreeMap<u64, f64> {
            held.iter()
                .filter(|line| {
                    let key = &line["key"];
                    key[0] == problem.as_str() && key[1] == rows && key[3] == variant
                })
                .filter_map(|line| Some((line["key"][2].as_u64()?, line[figure].as_f64()?)))
                .collect()
        };
        let base = of(against, "select");
        for variant in variants {
            let figures = |figure: &str| of(variant, figure).into_values().collect::<Vec<f64>>();
            let select = of(variant, "select");
            let paired: Vec<f64> =
                select.iter().filter_map(|(seed, value)| Some(value - base.get(seed)?)).collect();
            let (difference, error) = mean(&paired);
            let average = |figure: &str| mean(&figures(figure)).0;
            println!(
                "| {problem} | {variant} | {} | {:.3} | {:.3} | {difference:+.3} ± {error:.3} | {:.3} | {:.3} | {:.3} | {:.0} |",
                select.len(),
                average("valid"),
                average("select"),
                average("test"),
                average("exact"),
                average("c2st"),
                average("seconds"),
            );
        }
    }
}
