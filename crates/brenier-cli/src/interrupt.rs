//! Signals that end a long command early but in good order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use brenier::StopToken;

use crate::failure::{Failure, INTERRUPTED};
use crate::output;

/// Set by the first signal.
static STOP: AtomicBool = AtomicBool::new(false);
/// What it says; none while nobody watches.
static NEWS: Mutex<Option<&str>> = Mutex::new(None);

/// Lets the first signal end the training with its best model, and a second Ctrl-C end the program.
pub(crate) fn stop_on_interrupt() -> Result<StopToken, Failure> {
    stop_on_interrupt_saying("stopping: the best model so far will be saved (press Ctrl-C again to abort)")
}

/// The same for a command that has no result before its end.
pub(crate) fn stop_without_result() -> Result<StopToken, Failure> {
    stop_on_interrupt_saying("stopping (press Ctrl-C again to abort)")
}

/// Lets the first Ctrl-C, SIGTERM or SIGHUP set the flag and say `news`, and a second Ctrl-C end the program. Called again, as
/// by a command that downloads first, it has other news.
pub(crate) fn stop_on_interrupt_saying(news: &'static str) -> Result<StopToken, Failure> {
    let known = NEWS.lock().unwrap_or_else(PoisonError::into_inner).replace(news);
    if known.is_some() {
        return Ok(StopToken::from_static(&STOP));
    }
    watch(|ctrl_c| {
        if !STOP.swap(true, Ordering::Relaxed) {
            let news = NEWS.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default();
            output::note(&format!("\n{news}"));
        } else if ctrl_c {
            std::process::exit(INTERRUPTED);
        }
    })
    .map_err(|error| Failure::Usage(format!("cannot watch for Ctrl-C: {error}")))?;
    Ok(StopToken::from_static(&STOP))
}

/// Calls `heard` at every signal, with whether it is Ctrl-C.
///
/// SIGTERM and SIGHUP are distinguished from Ctrl-C because they come in pairs: `timeout` sends SIGTERM to its child and
/// then to the whole group, a closed terminal sends SIGHUP through the kernel and through the shell. The second one
/// must not abort what the first has set going.
#[cfg(unix)]
fn watch(heard: impl Fn(bool) + Send + 'static) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut wanted = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        wanted.push(SIGHUP);
    }
    let mut signals = signal_hook::iterator::Signals::new(wanted)?;
    std::thread::spawn(move || signals.forever().for_each(|signal| heard(signal == SIGINT)));
    Ok(())
}

/// Whether the program was started with `signal` ignored, as `nohup` does with SIGHUP: then it stays ignored.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    use std::io::IsTerminal;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    match mask.map(|mask| u64::from_str_radix(mask.trim(), 16)) {
        Some(Ok(mask)) => mask >> (signal - 1) & 1 == 1,
        // No such file outside Linux: under nohup nothing is connected to a terminal.
        _ => {
            let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
            !(input.is_terminal() || output.is_terminal() || error.is_terminal())
        }
    }
}

#[cfg(not(unix))]
fn watch(heard: impl Fn(bool) + Send + 'static) -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(move || heard(true))
}
