//! One running process of a user's program: lines to it, lines from it, and how it ended.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use super::protocol::{read_line, shortened};

/// Time a program has to end after its input was closed, and its last words have to arrive.
const END_TIME: Duration = Duration::from_secs(5);
/// How often a wait looks whether the run was told to stop.
const GLANCE: Duration = Duration::from_millis(50);
/// How often a wait looks whether a process or a thread has ended.
const MOMENT: Duration = Duration::from_millis(2);
/// Lines of a program's standard error that are remembered.
const LAST_WORDS: usize = 3;

/// What came back.
pub(super) enum Answer {
    Line(String),
    Late,
    /// With the program's exit status and last words, as the end of a sentence.
    Dead(String),
    Stopped,
}

/// News from the threads that read and write for a worker.
enum News {
    /// The program wrote a whole line.
    Line(String),
    /// Its output has ended, perhaps within a line.
    End(String),
    /// It no longer reads its input; what it wrote before may still be on the way.
    Deaf,
}

/// One running process; ended when dropped.
///
/// Its pipes are read and written by threads, so that no wait of ours depends on the program's good will.
pub(super) struct Worker {
    child: Child,
    /// Lines for the program; its input is closed when this is dropped.
    input: Option<Sender<String>>,
    news: Receiver<News>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    errors: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the program `words[0]` with the other words as its arguments.
    pub(super) fn spawn(words: &[String]) -> Result<Self, String> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at the terminal is for us; the workers end when their input does.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| format!("cannot start \"{}\": {error}", words[0]))?;
        // One message at a time: a program that never stops talking has to wait, and fills no memory.
        let (sender, news) = sync_channel(1);
        let (input, lines) = channel();
        if let Some(pipe) = child.stdout.take() {
            let sender = sender.clone();
            spawn(move || read_lines(pipe, &sender));
        }
        if let Some(pipe) = child.stdin.take() {
            spawn(move || write_lines(pipe, &lines, &sender));
        }
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let errors = child.stderr.take().map(|pipe| {
            let last_words = Arc::clone(&last_words);
            spawn(move || remember(pipe, &last_words))
        });
        Ok(Self { child, input: Some(input), news, last_words, errors })
    }

    /// Writes a line and waits for one, as long as `go_on` says of the time waited.
    ///
    /// A program that is gone is judged by what it said: its exit counts only after everything was read.
    pub(super) fn ask(
        &mut self,
        line: &str,
        timeout: Option<Duration>,
        go_on: impl Fn(Duration) -> bool,
    ) -> Answer {
        // Where the writing thread has gone, it has said so.
        let _ = self.input.as_ref().map(|input| input.send(line.to_owned()));
        let asked = Instant::now();
        let mut deaf: Option<Instant> = None;
        loop {
            let left = timeout.map_or(GLANCE, |timeout| timeout.saturating_sub(asked.elapsed()));
            match self.news.recv_timeout(left.min(GLANCE)) {
                Ok(News::Line(line)) => return Answer::Line(line),
                Ok(News::End(unfinished)) => return self.obituary(&unfinished),
                Ok(News::Deaf) => deaf = Some(Instant::now()),
                Err(RecvTimeoutError::Disconnected) => return self.obituary(""),
                Err(RecvTimeoutError::Timeout) => {
                    if !go_on(asked.elapsed()) {
                        return Answer::Stopped;
                    }
                    if timeout.is_some_and(|timeout| asked.elapsed() >= timeout) {
                        return Answer::Late;
                    }
                    // A child of the program may hold its output open forever.
                    if deaf.is_some_and(|since| since.elapsed() >= END_TIME) {
                        return self.obituary("");
                    }
                }
            }
        }
    }

    /// How the process ended, and its last words.
    fn obituary(&mut self, unfinished: &str) -> Answer {
        self.input = None;
        let deadline = Instant::now() + END_TIME;
        let mut text = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break format!(" with {status}"),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(MOMENT),
                _ => break ", closing its input or output".to_owned(),
            }
        };
        while Instant::now() < deadline && self.errors.as_ref().is_some_and(|thread| !thread.is_finished()) {
            std::thread::sleep(MOMENT);
        }
        if !unfinished.trim().is_empty() {
            text.push_str(&format!(" within the line \"{}\"", shortened(unfinished)));
        }
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        if !words.is_empty() {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            text.push_str(&format!(": {}", shortened(&words.join(" / "))));
        }
        Answer::Dead(text)
    }

    /// Closes every worker's input first, so that they end together, then waits for them.
    pub(super) fn end(mut workers: Vec<Self>) {
        workers.iter_mut().for_each(|worker| worker.input = None);
        let deadline = Instant::now() + END_TIME;
        for worker in &mut workers {
            while Instant::now() < deadline && matches!(worker.child.try_wait(), Ok(None)) {
                std::thread::sleep(MOMENT);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes the lines of the program on until its output ends or nobody listens any more.
fn read_lines(pipe: ChildStdout, sender: &SyncSender<News>) {
    let mut reader = BufReader::new(pipe);
    loop {
        let (news, ended) = match read_line(&mut reader) {
            Ok(line) => (News::Line(line), false),
            Err(unfinished) => (News::End(unfinished), true),
        };
        if sender.send(news).is_err() || ended {
            return;
        }
    }
}

/// Writes lines to the program until there are no more or it no longer reads them.
fn write_lines(mut pipe: ChildStdin, lines: &Receiver<String>, sender: &SyncSender<News>) {
    for line in lines {
        if pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush()).is_err() {
            let _ = sender.send(News::Deaf);
            return;
        }
    }
}

/// Keeps the last lines of the program's standard error.
fn remember(pipe: ChildStderr, last_words: &Mutex<VecDeque<String>>) {
    let mut reader = BufReader::new(pipe);
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
}
