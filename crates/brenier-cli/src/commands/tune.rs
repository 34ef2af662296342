//! `brenier tune`: settings found by pilot trainings, the best model saved.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brenier::data::{self, Split, Table};
use brenier::tune::{SearchSpace, TuneEvent, TuneOutcome, TuneSettings, search, validation_split};
use brenier::{Error, Event, FitSettings, Observer, Run};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::fit;
use crate::args::TuneArguments;
use crate::failure::Failure;
use crate::files::{OLD, TUNE, beside};
use crate::interrupt::stop_on_interrupt;
use crate::lock::Lock;
use crate::{config, observations, output};

/// Seconds between the lines of a search whose standard error is not a terminal.
const LINE_SECONDS: u64 = 15;

pub(crate) fn run(arguments: TuneArguments) -> Result<(), Failure> {
    let mut settings = match &arguments.config {
        Some(path) => config::read(path)?,
        None => FitSettings::default(),
    };
    arguments.settings.overlay(&mut settings)?;
    let text = space(&arguments.space, &settings)?;
    if arguments.print_space {
        output::result(&text)?;
        return Ok(());
    }
    let (Some(path), Some(out)) = (&arguments.table, &arguments.out) else {
        return Err(Failure::Usage("a search needs a TABLE and --out MODEL".to_owned()));
    };
    let space = SearchSpace::from_toml(&text)?;
    settings.train.validate()?;
    let minutes = settings.train.minutes.take();
    let tune = arguments.tune.settings();
    tune.resolved(settings.method.method())?;
    output::check_writable(out)?;
    let _lock = Lock::file(out)?;

    let options = arguments.tables.options();
    let (table, encoding) = fit::read(path, &options, &mut settings)?;
    let further = |path: &Option<PathBuf>| -> Result<Option<Table>, Failure> {
        Ok(path
            .as_ref()
            .map(|path| observations::columns(path, &options, table.names(), &encoding))
            .transpose()?)
    };
    let (valid, test) = (further(&arguments.valid)?, further(&arguments.test)?);
    let (table, split) = together(table, valid, test, &settings)?;

    let folder = beside(out, TUNE);
    set_aside(&folder, arguments.resume)?;
    let stop = stop_on_interrupt()?;
    let mut screen = Screen::new(output::quiet(), split.test.is_empty());
    let tune = TuneSettings { minutes, ..tune };
    let run = Run::observed(&mut screen).stop(&stop);
    let outcome = search(&table, &split, &settings, &space, &tune, &folder, run)
        .map_err(|error| Failure::from(error).of_table(path))?;
    drop(screen);

    let results = folder.join("results.csv");
    data::write_bytes(&results, outcome.to_csv().as_bytes())?;
    let Some(model) = &outcome.best else {
        return Err(match outcome.finals.iter().find_map(|training| training.failure.as_ref()) {
            Some(failure) => Error::Numerical(format!("no training run produced a model: {failure}")).into(),
            None => Failure::Interrupted(format!(
                "the search was stopped before any full training, so no model was written; what it found is kept in {}: \
                 re-run the same command with --resume to continue",
                folder.display()
            )),
        });
    };
    model.clone().with_encoding(encoding)?.save(out)?;
    if !output::quiet() {
        output::result(&summary(&outcome, &space, out, &results))?;
    }
    Ok(())
}

/// The search space as TOML: a built-in one by its name, or a file.
fn space(name: &str, settings: &FitSettings) -> Result<String, Failure> {
    if SearchSpace::PRESETS.contains(&name) {
        return Ok(SearchSpace::preset(name, settings.method.method())?.to_owned());
    }
    std::fs::read_to_string(name).map_err(|source| {
        if source.kind() == std::io::ErrorKind::NotFound && !name.contains(['.', '/']) {
            let known = SearchSpace::PRESETS.join(", ");
            return Failure::Usage(format!(
                "--space: there is no file \"{name}\", and the built-in spaces are {known}"
            ));
        }
        Failure::Library(Error::io(Path::new(name), "read the search space", source))
    })
}

/// One table of all rows, and which of them are for what.
fn together(
    table: Table,
    valid: Option<Table>,
    test: Option<Table>,
    settings: &FitSettings,
) -> Result<(Table, Split), Failure> {
    let rows = |from: usize, count: usize| (from as u32..(from + count) as u32).collect();
    let mut split = match &valid {
        Some(valid) => {
            Split { train: rows(0, table.rows()), valid: rows(table.rows(), valid.rows()), test: Vec::new() }
        }
        None => validation_split(table.rows(), settings)?,
    };
    let names = table.names().to_vec();
    let mut values = table.into_values();
    values.extend(valid.into_iter().flat_map(Table::into_values));
    if let Some(test) = test {
        split.test = rows(values.len() / names.len(), test.rows());
        values.extend(test.into_values());
    }
    Ok((Table::new(names, values)?, split))
}

/// Moves the folder of an earlier search out of the way, unless it is to be resumed.
fn set_aside(folder: &Path, resume: bool) -> Result<(), Failure> {
    if resume || !folder.exists() {
        return Ok(());
    }
    let free = (1..).map(|number| beside(folder, &format!("{OLD}{number}"))).find(|path| !path.exists());
    let old = free.expect("some number is free");
    std::fs::rename(folder, &old).map_err(|source| Error::io(folder, "set the old search aside", source))?;
    output::warning(&format!(
        "the folder of an earlier search is now {}; --resume would have continued it",
        old.display()
    ));
    Ok(())
}

/// Progress over the trainings of the stage at hand.
pub(crate) struct Screen {
    bar: ProgressBar,
    quiet: bool,
    terminal: bool,
    /// Whether there are no test rows to report on.
    untested: bool,
    started: Instant,
    last: Instant,
    stage: String,
    done: usize,
    jobs: usize,
    best: f64,
}

impl Observer for Screen {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        if let Event::Tune(event) = event {
            self.show(event);
        }
        Ok(())
    }
}

impl Screen {
    pub(crate) fn new(quiet: bool, untested: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            bar: ProgressBar::with_draw_target(None, target).with_style(style),
            quiet,
            terminal,
            untested,
            started: Instant::now(),
            last: Instant::now(),
            stage: String::new(),
            done: 0,
            jobs: 0,
            best: f64::INFINITY,
        }
    }

    pub(crate) fn show(&mut self, event: &TuneEvent) {
        match event {
            TuneEvent::Started { rung, jobs, finished } => {
                let stage = match rung {
                    Some(rung) => format!("pilots, round {}", rung + 1),
                    None => "full trainings".to_owned(),
                };
                self.stage(&stage, *finished, jobs + finished);
            }
            TuneEvent::Pilot(pilot) => self.step(pilot.valid_nll, None),
            TuneEvent::Final(training) => {
                let test = training.test_nll.filter(|_| !self.untested);
                let nll = training.valid_nll.map_or("none".to_owned(), |nll| format!("{nll:.4}"));
                let test = test.map(|nll| format!(", test {nll:.4}")).unwrap_or_default();
                let line = format!(
                    "trial {} seed {}: validation NLL {nll}{test}, {:.0} epochs, {:.0} s",
                    training.trial, training.seed, training.epochs, training.seconds
                );
                self.step(training.valid_nll, Some(&line));
            }
            TuneEvent::Warning { text } => self.bar.suspend(|| output::warning(text)),
        }
    }

    /// A stage of `jobs` trainings begins, of which some were finished in an earlier run.
    pub(crate) fn stage(&mut self, name: &str, finished: usize, jobs: usize) {
        name.clone_into(&mut self.stage);
        (self.done, self.jobs, self.best) = (finished, jobs, f64::INFINITY);
        self.bar.set_length(jobs as u64);
        self.bar.set_position(finished as u64);
        self.bar.set_message(self.stage.clone());
        self.bar.enable_steady_tick(Duration::from_millis(250));
        if !self.quiet {
            let earlier = match finished {
                0 => String::new(),
                count => format!(", {count} of them finished earlier"),
            };
            self.say(&format!("{}: {jobs}{earlier}", self.stage));
        }
    }

    pub(crate) fn step(&mut self, nll: Option<f64>, line: Option<&str>) {
        self.done += 1;
        self.best = nll.map_or(self.best, |nll| self.best.min(nll));
        self.bar.set_position(self.done as u64);
        let elapsed = HumanDuration(self.started.elapsed());
        self.bar.set_message(format!("{}, best validation NLL {:.4}, {elapsed:#}", self.stage, self.best));
        if let Some(line) = line.filter(|_| !self.quiet) {
            self.say(line);
        } else if !self.quiet && !self.terminal && self.last.elapsed() >= Duration::from_secs(LINE_SECONDS) {
            self.say(&format!("{}: {} of {}, best {:.4}", self.stage, self.done, self.jobs, self.best));
        }
    }

    fn say(&mut self, text: &str) {
        self.last = Instant::now();
        self.bar.suspend(|| output::note(text));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn summary(outcome: &TuneOutcome, space: &SearchSpace, out: &Path, results: &Path) -> String {
    let best = &outcome.finals[0];
    let mut text = format!(
        "trials          {}, {}{}\n",
        output::count(outcome.trials.len(), "pilot"),
        output::count(outcome.finals.len(), "full training"),
        if outcome.complete {
            ""
        } else {
            " (not all that were asked for; re-run with --resume to continue)"
        }
    );
    let spread = |nll: Option<[f64; 3]>| match nll {
        Some([best, median, worst]) => format!("{best:.4} best, {median:.4} median, {worst:.4} worst"),
        None => "none".to_owned(),
    };
    text.push_str(&format!("validation NLL  {}\n", spread(outcome.spread(|training| training.valid_nll))));
    if let Some(test) = best.test_nll {
        text.push_str(&format!("test NLL        {}\n", spread(outcome.spread(|training| training.test_nll))));
        text.push_str(&format!("                {test:.4} of the model chosen by validation\n"));
    }
    let settings = serde_json::to_value(&outcome.trials[best.trial]).unwrap_or_default();
    let mut chosen: Vec<String> = Vec::new();
    for name in space.names() {
        let names: &[&str] = match name {
            "flow.penalties" => &["flow.alpha_transport", "flow.alpha_hjb"],
            other => &[other],
        };
        chosen.extend(names.iter().map(|name| {
            let value = name.split('.').fold(&settings, |value, key| &value[key]);
            format!("{} = {value}", name.rsplit('.').next().unwrap_or(name))
        }));
    }
    text.push_str(&format!(
        "best            trial {}, seed {}: {}\n",
        best.trial,
        best.seed,
        chosen.join(", ")
    ));
    text.push_str(&format!("all figures     {}\nmodel           {}\n", results.display(), out.display()));
    text
}
