//! What a worker program says, line by line: its outputs' names, then one answer for each run. See docs/simulate.md.

use std::io::{BufRead, Read};

use super::Attempt;

/// Longest line read from a program.
const LONGEST_LINE: u64 = 1 << 26;

/// The next complete line; at the end, after an error, and where a line is too long, an `Err` with what there is of it.
pub fn read_line(source: &mut impl BufRead) -> Result<String, String> {
    let mut line = Vec::new();
    let read = source.take(LONGEST_LINE).read_until(b'\n', &mut line);
    let line = String::from_utf8_lossy(&line).into_owned();
    if read.is_ok() && line.ends_with('\n') { Ok(line) } else { Err(line) }
}

/// The names in the answer `outputs NAME…` to the greeting, or what is wrong with it, in words.
pub fn outputs(line: &str) -> Result<Vec<String>, String> {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("outputs") => Ok(words.map(str::to_owned).collect()),
        _ => {
            Err(format!("the program's first line should be \"outputs NAME…\", got \"{}\"", shortened(line)))
        }
    }
}

/// What the answer to a run means: `done VALUE…` fills `outputs`, whose names are `names`. An answer that means
/// nothing is an `Err`, in words.
pub fn answer(line: &str, names: &[String], outputs: &mut [f64]) -> Result<Attempt, String> {
    let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    match word {
        "done" => {
            let mut count = 0;
            for text in rest.split_whitespace() {
                let value: f64 =
                    text.parse().map_err(|_| format!("\"{}\" is not a number", shortened(text)))?;
                if let Some(slot) = outputs.get_mut(count) {
                    *slot = value;
                }
                count += 1;
            }
            if count != outputs.len() {
                return Err(format!("{count} values came back instead of {}", outputs.len()));
            }
            match outputs.iter().zip(names).find(|(value, _)| !value.is_finite()) {
                Some((value, name)) => Ok(Attempt::Failed(format!("the output {name} is {value}"))),
                None => Ok(Attempt::Done),
            }
        }
        "abandon" => Ok(Attempt::Abandoned),
        "fail" => Ok(Attempt::Failed(if rest.is_empty() {
            "the program gave no reason".to_owned()
        } else {
            rest.trim().to_owned()
        })),
        _ => Err(format!("the program answered \"{}\" instead of done, abandon or fail", shortened(line))),
    }
}

/// The first letters of a text, on one line.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 200;
    let line: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= MOST { line } else { line.chars().take(MOST).collect::<String>() + "…" }
}
