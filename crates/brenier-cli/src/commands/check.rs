//! `brenier check`: one verdict on a model from held-out pairs, with its reasons.

use std::fmt::Write;

use brenier::check::{Against, Check, Severity, Trust, check, quantity_name};
use brenier::data::Table;
use brenier::diagnose::Calibration;
use brenier::{Error, Posterior, Run, StopToken};

use crate::check_args::{CheckArguments, CheckingArguments};
use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::models::Model;
use crate::screen::Screen;
use crate::{observations, output};

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

/// A model, the table it was checked with, what was found, and the simulator if there is one.
pub(crate) struct Checked {
    pub(crate) model: Posterior,
    pub(crate) table: Table,
    pub(crate) simulator: Option<Model>,
    pub(crate) found: Check,
    /// Ends what follows, too.
    pub(crate) stop: StopToken,
}

impl Checked {
    /// Reads what the flags name and checks it.
    pub(crate) fn make(arguments: &CheckingArguments) -> Result<Self, Failure> {
        let settings = arguments.settings();
        settings.validate()?;
        let model = Posterior::load(&arguments.model)?;
        let others = arguments
            .others
            .iter()
            .map(|path| Ok((path.display().to_string(), Posterior::load(path)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        let names = [model.target_names(), model.given_names()].concat();
        let table =
            observations::columns(&arguments.table, &arguments.tables.options(), &names, model.encoding())?;
        let stop = stop_without_result()?;
        let simulator = Model::for_posterior(&arguments.simulator, model.target_names(), &stop)?;
        let mut screen = Screen::new();
        let against = Against { simulator: simulator.as_ref().map(Model::simulator), others: &others };
        let named = |error| Failure::from(error).of_table(&arguments.table);
        let run = Run::observed(&mut screen).stop(&stop);
        let found = check(&model, &table, &settings, against, run).map_err(named)?;
        drop(screen);
        simulator.iter().for_each(Model::tell_restarts);
        Ok(Self { model, table, simulator, found, stop })
    }
}

/// The verdict first, then its reasons, then the figures.
pub(crate) fn summary(found: &Check) -> String {
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

/// A line for each check of calibration.
pub(crate) fn ranks(found: &Calibration, names: &[String]) -> String {
    let named: Vec<String> = found.checks.iter().map(|check| quantity_name(check.quantity, names)).collect();
    let width = named.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$}  {:>9} {:>9}  {:>9} {:>9}  reading ({} pairs × {} draws)\n",
        "check", "50 % hold", "90 % hold", "max |F-z|", "p, corr.", found.pairs, found.draws
    );
    for (check, name) in found.checks.iter().zip(&named) {
        let p = check.adjusted_p_value;
        let reading = if p <= found.level { check.reading() } else { "fine" };
        let p = if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") };
        let _ = writeln!(
            text,
            "{name:width$}  {:>7.1} % {:>7.1} %  {:>9.3} {p:>9}  {reading}",
            100.0 * check.coverage(0.5),
            100.0 * check.coverage(0.9),
            check.deviation()
        );
    }
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
