//! A user's own simulator: worker processes that are kept alive and answer one line for each row.
//!
//! The protocol is described in docs/simulate.md: we say `brenier 1 NAME…` with the parameters' names, the program
//! answers `outputs NAME…`; then each `run SEED VALUE…` is answered by `done VALUE…`, `abandon` or `fail WORDS`.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng;

use super::protocol::{self, shortened};
use super::{Attempt, Prior, Simulator, Stream};
use crate::{Error, Result};

/// Time a program has to answer the greeting.
const START_TIME: Duration = Duration::from_secs(120);
/// Time a program has to end after its input was closed.
const END_TIME: Duration = Duration::from_secs(2);
/// How often a wait looks whether the run was told to stop.
const GLANCE: Duration = Duration::from_millis(50);
/// Lines of a program's standard error that are remembered.
const LAST_WORDS: usize = 3;

/// How a program is run.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSettings {
    /// The program and its arguments, in the words of a shell: quotes and backslashes, nothing else.
    pub command: String,
    /// Longest time for one row; a row without an answer by then has failed.
    pub timeout: Option<Duration>,
    /// How many times a row is tried again on a fresh worker when its worker dies.
    pub retries: u32,
}

/// A program as a simulator; one worker for each thread that simulates.
pub struct Program {
    settings: ProgramSettings,
    words: Vec<String>,
    prior: Prior,
    outputs: Vec<String>,
    idle: Mutex<Vec<Worker>>,
    restarts: AtomicU64,
    stop: Option<&'static AtomicBool>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Program {
    /// Starts a first worker and asks for the names of the outputs. A wait ends early when `stop` is set.
    pub fn start(settings: ProgramSettings, prior: Prior, stop: Option<&'static AtomicBool>) -> Result<Self> {
        let words = split_words(&settings.command)?;
        let mut program = Self {
            settings,
            words,
            prior,
            outputs: Vec::new(),
            idle: Mutex::new(Vec::new()),
            restarts: AtomicU64::new(0),
            stop,
        };
        let (worker, outputs) = program.launch().map_err(|problem| Error::setting("command", problem))?;
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

    fn stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// A new worker that has answered the greeting, and the outputs it named.
    fn launch(&self) -> Result<(Worker, Vec<String>), String> {
        let mut worker = Worker::spawn(&self.words)?;
        let greeting = format!("brenier 1 {}\n", self.prior.names().join(" "));
        let answer = match worker.ask(&greeting, Some(START_TIME), self.stop) {
            Answer::Line(line) => line,
            Answer::Late => {
                return Err(format!("the program did not answer the greeting within {START_TIME:?}"));
            }
            Answer::Dead(words) => {
                return Err(format!("the program ended before it said its outputs{words}"));
            }
            Answer::Stopped => return Err("stopped".into()),
        };
        Ok((worker, protocol::outputs(&answer)?))
    }

    /// A free worker, or a new one.
    fn worker(&self) -> Result<Worker, String> {
        if let Some(worker) = self.idle().pop() {
            return Ok(worker);
        }
        let (worker, outputs) = self.launch()?;
        if outputs != self.outputs {
            return Err(format!(
                "a second worker names other outputs: {} instead of {}",
                outputs.join(" "),
                self.outputs.join(" ")
            ));
        }
        Ok(worker)
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
        use std::fmt::Write as _;
        // Exact in a double, for languages that have no other numbers.
        let mut line = format!("run {}", rng.next_u64() >> 11);
        for value in theta {
            let _ = write!(line, " {value:?}");
        }
        line.push('\n');
        let mut last = String::new();
        for _ in 0..=self.settings.retries {
            if self.stopped() {
                return Ok(Attempt::Interrupted);
            }
            let mut worker = match self.worker() {
                Ok(worker) => worker,
                Err(problem) => {
                    last = problem;
                    continue;
                }
            };
            match worker.ask(&line, self.settings.timeout, self.stop) {
                Answer::Line(answer) => match protocol::answer(&answer, &self.outputs, outputs) {
                    Ok(attempt) => {
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
                    return Ok(Attempt::Failed(format!("no answer within {limit} s")));
                }
                Answer::Dead(words) => {
                    self.restarts.fetch_add(1, Ordering::Relaxed);
                    last = format!("the program ended{words}");
                }
                Answer::Stopped => return Ok(Attempt::Interrupted),
            }
        }
        if self.stopped() {
            return Ok(Attempt::Interrupted);
        }
        Ok(Attempt::Failed(last))
    }
}

impl Drop for Program {
    /// Closes every worker's input first, so that they end together, then waits for them.
    fn drop(&mut self) {
        let workers = std::mem::take(&mut *self.idle());
        let mut workers: Vec<Worker> = workers;
        workers.iter_mut().for_each(|worker| worker.input = None);
        let deadline = Instant::now() + END_TIME;
        for worker in &mut workers {
            while Instant::now() < deadline && matches!(worker.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// What came back.
enum Answer {
    Line(String),
    Late,
    /// With the program's exit status and last words, as the end of a sentence.
    Dead(String),
    Stopped,
}

/// One running process; ended when dropped.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    last_words: Arc<Mutex<VecDeque<String>>>,
}

impl Worker {
    fn spawn(words: &[String]) -> Result<Self, String> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at the terminal is for us; the workers end when their input does.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| format!("cannot start \"{}\": {error}", words[0]))?;
        let input = child.stdin.take();
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(output);
                while let Some(line) = protocol::read_line(&mut reader) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(errors) = child.stderr.take() {
            let last_words = Arc::clone(&last_words);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(errors);
                let mut line = Vec::new();
                while let Ok(1..) = (&mut reader).take(4096).read_until(b'\n', &mut line) {
                    let text = String::from_utf8_lossy(&line).trim().to_owned();
                    line.clear();
                    if text.is_empty() {
                        continue;
                    }
                    let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
                    if words.len() == LAST_WORDS {
                        words.pop_front();
                    }
                    words.push_back(text);
                }
            });
        }
        Ok(Self { child, input, lines, last_words })
    }

    /// Writes a line and waits for one.
    fn ask(&mut self, line: &str, timeout: Option<Duration>, stop: Option<&AtomicBool>) -> Answer {
        let Some(input) = &mut self.input else { return self.obituary() };
        if input.write_all(line.as_bytes()).and_then(|()| input.flush()).is_err() {
            return self.obituary();
        }
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match self.lines.recv_timeout(left.unwrap_or(GLANCE).min(GLANCE)) {
                Ok(line) => return Answer::Line(line),
                Err(RecvTimeoutError::Disconnected) => return self.obituary(),
                Err(RecvTimeoutError::Timeout) => {
                    if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                        return Answer::Stopped;
                    }
                    if left.is_some_and(|left| left <= GLANCE)
                        && deadline.is_some_and(|deadline| Instant::now() >= deadline)
                    {
                        return Answer::Late;
                    }
                }
            }
        }
    }

    /// How the process ended.
    fn obituary(&mut self) -> Answer {
        self.input = None;
        let deadline = Instant::now() + END_TIME;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break format!(" with {status}"),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                _ => break ", closing its output".to_owned(),
            }
        };
        // The other thread may still be reading the last lines.
        std::thread::sleep(Duration::from_millis(20));
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => Answer::Dead(status),
            words => Answer::Dead(format!("{status}: {}", shortened(&words.join(" / ")))),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words of a command line; quotes and backslashes work as in a shell, nothing else does.
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
                None => return refuse("a backslash stands at the end"),
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
    use super::*;

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
