//! `brenier check`: one verdict on a model from held-out pairs, with its reasons.

use std::fmt::Write;

use brenier::check::{Check, Severity, Trust};

use crate::check_args::CheckArguments;
use crate::checked::{Checked, ranks};
use crate::failure::Failure;
use crate::output;

/// Letters a line, so that long sentences stay legible.
const LINE: usize = 100;

pub(crate) fn run(arguments: &CheckArguments) -> Result<(), Failure> {
    let json = arguments.json.json.as_deref();
    output::check_json(json)?;
    let found = Checked::make(&arguments.checking)?.found;
    let document = || serde_json::to_string_pretty(&found).expect("plain numbers and names") + "\n";
    output::result_or_json(json, document, || summary(&found))?;
    match found.verdict.trust {
        Trust::Care if arguments.strict => Err(Failure::Verdict(3)),
        Trust::Untrustworthy if arguments.strict => Err(Failure::Verdict(4)),
        _ => Ok(()),
    }
}

/// The verdict first, then its reasons, then the figures.
fn summary(found: &Check) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "VERDICT: {}", found.verdict.trust.to_string().to_uppercase());
    wrapped(&mut text, "", &found.verdict.headline);
    text.push('\n');
    for finding in &found.verdict.findings {
        let mark = match finding.severity {
            Severity::Good => "ok    ",
            Severity::Care => "care  ",
            Severity::Bad => "BAD   ",
            // Note, and what is newer than this list.
            _ => "note  ",
        };
        wrapped(&mut text, mark, &finding.text);
    }
    text.push('\n');
    let joint = found.marginal_calibration.is_some();
    if joint {
        text.push_str("target given the rest\n");
    }
    text.push_str(&ranks(&found.calibration, &found.subject.target));
    if let Some(marginal) = &found.marginal_calibration {
        text.push_str("\ngiven columns alone\n");
        text.push_str(&ranks(marginal, &found.subject.given));
    }
    let scored = &found.likelihood;
    text.push('\n');
    for (of, scored) in [
        (if joint { ", target given the rest" } else { "" }, Some(&scored.target)),
        (", given columns alone", scored.given.as_ref()),
        (", all columns", scored.joint.as_ref()),
    ] {
        let Some(scored) = scored else { continue };
        for (units, own) in [("your units  ", scored.user), ("standardised", scored.standardised)] {
            // Where one row dominates the mean, also the median, which no row can move.
            let median = own.carrier.map_or(String::new(), |_| format!(", median {:.4}", own.median));
            let _ =
                writeln!(text, "mean NLL, {units}  {:.4} ± {:.4}{median}{of}", own.mean, own.standard_error);
        }
    }
    let baseline = scored.baseline_name();
    let of = if joint { ", target given the rest" } else { "" };
    let _ = writeln!(text, "mean NLL, standardised  {:.4}, {baseline}{of}", scored.baseline);
    text
}

/// `words` in lines of at most [`LINE`] letters, the first after `mark`, the others as far in.
fn wrapped(text: &mut String, mark: &str, words: &str) {
    let indent = mark.chars().count();
    let (mut column, mut first) = (indent, true);
    text.push_str(mark);
    for word in words.split(' ') {
        let length = word.chars().count();
        if !first && column + 1 + length > LINE {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            (column, first) = (indent, true);
        }
        if !first {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
        first = false;
    }
    text.push('\n');
}
