//! A user's own simulator: worker processes that are kept alive and answer one line for each row.
//!
//! The protocol is described in docs/simulate.md: we say `brenier 1 NAME…` with the parameters' names, the program
//! answers `outputs NAME…`; then each `run SEED VALUE…` is answered by `done VALUE…`, `abandon` or `fail WORDS`.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::Rng;

use super::protocol;
use super::worker::{Answer, Worker};
use super::{Attempt, Prior, SimulateEvent, Simulator, Stream, Tell};
use crate::{Error, Result, Run, StopToken};

/// Time a program has to answer the greeting where the user sets no limit.
const START_TIME: Duration = Duration::from_secs(120);
/// The usual reason why nothing comes back.
const HINT: &str = "does the program flush its output?";

/// How a program is run.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSettings {
    /// The program and its arguments, in the words of a shell: quotes and backslashes, nothing else.
    pub command: String,
    /// Longest time for one row; a row without an answer by then has failed.
    pub timeout: Option<Duration>,
    /// Longest time until the greeting is answered, for programs that start slowly; without it that of a row.
    pub start_timeout: Option<Duration>,
    /// How many times a row is tried again on a fresh worker when its worker dies.
    pub retries: u32,
    /// Silence of a program without a `timeout` after which [`SimulateEvent::Silent`] goes to the observer.
    pub patience: Duration,
}

impl Default for ProgramSettings {
    fn default() -> Self {
        Self {
            command: String::new(),
            timeout: None,
            start_timeout: None,
            retries: 2,
            patience: Duration::from_secs(10),
        }
    }
}

/// A program as a simulator; one worker for each thread that simulates.
pub struct Program {
    settings: ProgramSettings,
    words: Vec<String>,
    prior: Prior,
    outputs: Vec<String>,
    idle: Mutex<Vec<Worker>>,
    restarts: AtomicU64,
    /// Ends every wait.
    stop: StopToken,
    /// Whether the user need not be told any more that the program is silent.
    noticed: AtomicBool,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Program {
    /// Starts a first worker and asks for the names of the outputs. The token of `run` ends this and every later wait.
    pub fn start(settings: ProgramSettings, prior: Prior, run: Run<'_>) -> Result<Self> {
        let words = split_words(&settings.command)?;
        let mut program = Self {
            settings,
            words,
            prior,
            outputs: Vec::new(),
            idle: Mutex::new(Vec::new()),
            restarts: AtomicU64::new(0),
            stop: run.token().clone(),
            noticed: AtomicBool::new(false),
        };
        let run = Mutex::new(run);
        let tell = |event| run.lock().unwrap_or_else(PoisonError::into_inner).tell(event);
        let launched = program.launch(&tell)?;
        let (worker, outputs) = launched.map_err(|problem| Error::setting("command", problem))?;
        if outputs.is_empty() {
            return Err(Error::setting("command", "the program names no outputs"));
        }
        program.outputs = outputs;
        program.idle().push(worker);
        Ok(program)
    }

    /// How many workers died or were ended and replaced.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a worker and waits for its answer.
    fn ask(
        &self,
        worker: &mut Worker,
        line: &str,
        timeout: Option<Duration>,
        tell: &Tell<'_>,
    ) -> Result<Answer> {
        let told = Cell::new(Ok(()));
        let answer = worker.ask(line, timeout, |waited| {
            // A time-out will give the hint itself.
            let silent = self.settings.timeout.is_none() && waited >= self.settings.patience;
            if silent && !self.noticed.swap(true, Ordering::Relaxed) {
                let news = tell(SimulateEvent::Silent { notice: format!("no answer yet: {HINT}") });
                let heard = news.is_ok();
                told.set(news);
                return heard;
            }
            !self.stop.is_stopped()
        });
        told.into_inner().map(|()| answer)
    }

    /// A new worker that has answered the greeting, and the outputs it named; else what is wrong with the program.
    fn launch(&self, tell: &Tell<'_>) -> Result<Result<(Worker, Vec<String>), String>> {
        let mut worker = match Worker::spawn(&self.words) {
            Ok(worker) => worker,
            Err(problem) => return Ok(Err(problem)),
        };
        let greeting = format!("brenier 1 {}\n", self.prior.names().join(" "));
        let limit = self.settings.start_timeout.or(self.settings.timeout).unwrap_or(START_TIME);
        let answer = match self.ask(&mut worker, &greeting, Some(limit), tell)? {
            Answer::Line(line) => line,
            Answer::Late => {
                return Ok(Err(format!(
                    "the program did not answer the greeting within {} s: {HINT} One that starts slowly needs a longer \
                     `start_timeout`",
                    limit.as_secs_f64()
                )));
            }
            Answer::Dead(words) => {
                return Ok(Err(format!("the program ended before it said its outputs{words}")));
            }
            Answer::Stopped => return Ok(Err("stopped".into())),
        };
        Ok(protocol::outputs(&answer).map(|outputs| (worker, outputs)))
    }

    /// A free worker, or a new one.
    fn worker(&self, tell: &Tell<'_>) -> Result<Result<Worker, String>> {
        if let Some(worker) = self.idle().pop() {
            return Ok(Ok(worker));
        }
        Ok(self.launch(tell)?.and_then(|(worker, outputs)| match outputs == self.outputs {
            true => Ok(worker),
            false => Err(format!(
                "a second worker names other outputs: {} instead of {}",
                outputs.join(" "),
                self.outputs.join(" ")
            )),
        }))
    }

    /// One row.
    fn row(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64], tell: &Tell<'_>) -> Result<Attempt> {
        use std::fmt::Write as _;
        // Exact in a double, for languages that have no other numbers.
        let mut line = format!("run {}", rng.next_u64() >> 11);
        for value in theta {
            let _ = write!(line, " {value:?}");
        }
        line.push('\n');
        let mut last = String::new();
        for _ in 0..=self.settings.retries {
            if self.stop.is_stopped() {
                return Ok(Attempt::Interrupted);
            }
            let mut worker = match self.worker(tell)? {
                Ok(worker) => worker,
                Err(problem) => {
                    last = problem;
                    continue;
                }
            };
            match self.ask(&mut worker, &line, self.settings.timeout, tell)? {
                Answer::Line(answer) => match protocol::answer(&answer, &self.outputs, outputs) {
                    Ok(attempt) => {
                        // It does flush its output: later rows are slow, not stuck.
                        self.noticed.store(true, Ordering::Relaxed);
                        self.idle().push(worker);
                        return Ok(attempt);
                    }
                    Err(problem) => {
                        // Out of step with us: further lines could belong to any row.
                        self.restarts.fetch_add(1, Ordering::Relaxed);
                        return Ok(Attempt::Failed(problem));
                    }
                },
                Answer::Late => {
                    self.restarts.fetch_add(1, Ordering::Relaxed);
                    let limit = self.settings.timeout.unwrap_or_default().as_secs_f64();
                    return Ok(Attempt::Failed(format!("no answer within {limit} s: {HINT}")));
                }
                Answer::Dead(words) => {
                    self.restarts.fetch_add(1, Ordering::Relaxed);
                    last = format!("the program ended{words}");
                }
                Answer::Stopped => return Ok(Attempt::Interrupted),
            }
        }
        if self.stop.is_stopped() {
            return Ok(Attempt::Interrupted);
        }
        Ok(Attempt::Failed(last))
    }
}

impl Simulator for Program {
    fn identity(&self) -> String {
        format!("command {}", self.words.join("\u{1f}"))
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn block_rows(&self) -> usize {
        1
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        self.row(theta, rng, outputs, &|_| Ok(()))
    }

    fn simulate_telling(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
        tell: &Tell<'_>,
    ) -> Result<Vec<Attempt>> {
        let thetas = thetas.chunks_exact(self.prior.dim());
        let outputs = outputs.chunks_exact_mut(self.outputs.len());
        thetas
            .zip(rngs)
            .zip(outputs)
            .map(|((theta, rng), outputs)| self.row(theta, rng, outputs, tell))
            .collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        Worker::end(std::mem::take(&mut *self.idle()));
    }
}

/// The words of a command line; quotes and backslashes work as in a shell, nothing else does. Not those of the crate `shell-words`,
/// for which a backslash in a path of Windows is an escape, a word with `#` in front a comment, and a last backslash no mistake.
fn split_words(command: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = command.chars();
    let refuse = |problem: &str| Err(Error::setting("command", format!("{problem} in: {command}")));
    while let Some(letter) = letters.next() {
        match letter {
            quote @ ('"' | '\'') => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        None => return refuse("a quote is not closed"),
                        Some(end) if end == quote => break,
                        Some('\\') if quote == '"' => match letters.next() {
                            Some(escaped @ ('"' | '\\')) => word.push(escaped),
                            Some(other) => word.extend(['\\', other]),
                            None => return refuse("a quote is not closed"),
                        },
                        Some(inside) => word.push(inside),
                    }
                }
            }
            '\\' if cfg!(unix) => match letters.next() {
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return refuse("nothing follows the last backslash"),
            },
            space if space.is_whitespace() => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.is_empty() {
        return Err(Error::setting("command", "is empty: name the program to run"));
    }
    Ok(words)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{PriorBlock, SimulateSettings, Streams};
    use super::*;
    use crate::Event;

    /// A shell that runs `script`, with one parameter.
    #[cfg(unix)]
    fn shell(script: &str) -> Result<Program> {
        started(script, ProgramSettings::default(), Run::silent())
    }

    #[cfg(unix)]
    fn started(script: &str, settings: ProgramSettings, run: Run<'_>) -> Result<Program> {
        let settings = ProgramSettings { command: format!("sh -c '{script}'"), retries: 0, ..settings };
        let block = PriorBlock::Uniform { name: "a".into(), low: 0.0, high: 1.0 };
        Program::start(settings, Prior::new(&[block], "".as_ref())?, run)
    }

    /// The program waits for the notice, so that no time decides.
    #[cfg(unix)]
    #[test]
    fn a_silent_program_is_told_of_once() {
        for (greeting, row) in [("", "WAIT"), ("WAIT", "")] {
            let folder = tempfile::tempdir().unwrap();
            let go = folder.path().join("go");
            let wait = format!("until [ -e {} ]; do sleep 0.01; done;", go.display());
            let script =
                format!("read x; {greeting} echo outputs s; while read x; do {row} echo done 7; done")
                    .replace("WAIT", &wait);
            let (mut told, mut done) = (Vec::new(), 0);
            let mut observer = |event: &Event| {
                match event.get() {
                    Some(SimulateEvent::Silent { notice }) => {
                        told.push(notice.clone());
                        std::fs::write(&go, "").unwrap();
                    }
                    Some(SimulateEvent::Progress { done: rows, .. }) => done = *rows,
                    _ => {}
                }
                Ok(())
            };
            let settings =
                ProgramSettings { patience: Duration::from_millis(1), ..ProgramSettings::default() };
            let program = started(&script, settings, Run::observed(&mut observer)).unwrap();
            let rows = SimulateSettings { rows: 2, ..SimulateSettings::default() };
            super::super::run(&program, &rows, None, Run::observed(&mut observer)).unwrap();
            assert_eq!((told.len(), done), (1, 2));
            assert_eq!(told, ["no answer yet: does the program flush its output?"]);
        }
    }

    /// An observer that fails ends a wait for a row and that for the greeting.
    #[cfg(unix)]
    #[test]
    fn an_observer_that_fails_ends_the_wait() {
        let mut failing = |event: &Event| match event.get() {
            Some(SimulateEvent::Silent { .. }) => Err(Error::Numerical("enough".into())),
            _ => Ok(()),
        };
        let patience = Duration::from_millis(1);
        let settings = || ProgramSettings { patience, ..ProgramSettings::default() };
        let text = started("sleep 60", settings(), Run::observed(&mut failing)).unwrap_err().to_string();
        assert!(text.contains("enough"), "{text}");
        let program = started("read x; echo outputs s; sleep 60", settings(), Run::silent()).unwrap();
        let rows = SimulateSettings { rows: 2, ..SimulateSettings::default() };
        let ended = super::super::run(&program, &rows, None, Run::observed(&mut failing));
        assert!(ended.unwrap_err().to_string().contains("enough"));
    }

    /// Neither the greeting nor a row is waited for longer than asked; both times the usual reason is named.
    #[cfg(unix)]
    #[test]
    fn a_time_out_covers_the_greeting_and_every_row() {
        let short = Some(Duration::from_millis(50));
        let settings = ProgramSettings { timeout: short, ..ProgramSettings::default() };
        let text = started("read x; read y", settings, Run::silent()).unwrap_err().to_string();
        assert!(text.contains("did not answer the greeting within 0.05 s: does the program flush"), "{text}");
        let mut program = shell("read x; echo outputs s; read y; read z").unwrap();
        program.settings.timeout = short;
        let attempt = program.simulate(&[0.5], &mut Streams::new(1, 2).get(0), &mut [0.0]).unwrap();
        assert_eq!(
            attempt,
            Attempt::Failed("no answer within 0.05 s: does the program flush its output?".into())
        );
    }

    /// Everything a program said counts, whether or not it has read what we asked or is still there.
    #[cfg(unix)]
    #[test]
    fn what_a_program_said_is_read_before_its_end_is_judged() {
        // Deaf before it answers the greeting, so that no question can be delivered.
        let program = shell("read greeting; exec 0<&-; echo outputs s; echo done 7; exit 3").unwrap();
        let mut outputs = [0.0];
        for row in 0..3 {
            let attempt = program.simulate(&[0.5], &mut Streams::new(1, 2).get(row), &mut outputs).unwrap();
            match row {
                1 => assert_eq!(attempt, Attempt::Failed("the program ended with exit status: 3".into())),
                _ => assert_eq!((attempt, outputs), (Attempt::Done, [7.0])),
            }
        }
        assert_eq!(program.restarts(), 1);
        for (script, says) in [
            ("echo hello", "first line should be \"outputs NAME…\", got \"hello\""),
            ("exec 0<&-; echo hello; exit 1", "got \"hello\""),
            ("while :; do echo hello; done", "got \"hello\""),
            (
                "printf hello",
                "ended before it said its outputs with exit status: 0 within the line \"hello\"",
            ),
            ("echo why >&2; exit 4", "ended before it said its outputs with exit status: 4: why"),
        ] {
            let text = shell(script).unwrap_err().to_string();
            assert!(text.contains(says), "{script}: {text}");
        }
    }

    #[test]
    fn command_lines_are_split_as_in_a_shell() {
        for (line, words) in [
            ("python sim.py", vec!["python", "sim.py"]),
            ("  a   b  ", vec!["a", "b"]),
            ("sh -c 'echo \"x y\"'", vec!["sh", "-c", "echo \"x y\""]),
            (
                r#""/my folder/prog" --x="a b" '' "q\"q" "n\n""#,
                vec!["/my folder/prog", "--x=a b", "", "q\"q", r"n\n"],
            ),
        ] {
            assert_eq!(split_words(line).unwrap(), words, "{line}");
        }
        for (line, says) in
            [("", "is empty"), ("  ", "is empty"), ("a 'b", "not closed"), ("a \"b\\", "not closed")]
        {
            assert!(split_words(line).unwrap_err().to_string().contains(says), "{line}");
        }
    }
}
