//! `brenier info`: what a model file holds.

use std::fmt::Write;

use brenier::Posterior;
use serde::Serialize;

use crate::args::InfoArguments;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    output::check_json(arguments.json.json.as_deref())?;
    let model = Posterior::load(&arguments.model)?;
    output::result_or_json(arguments.json.json.as_deref(), || json(&model), || text(&model))
}

/// The header document of the file, and what follows from it.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    header: &'a brenier::ModelInfo,
    parameters: usize,
    linear_target_transform: bool,
    pca_components: Option<usize>,
    validations: usize,
}

fn json(model: &Posterior) -> String {
    let header = model.header();
    let document = Document {
        header,
        parameters: model.map().parameters(),
        linear_target_transform: header.target_transform.is_linear(),
        pca_components: header.given_transform.pca().map(|pca| pca.output_dim()),
        validations: model.history().len(),
    };
    let text = serde_json::to_string_pretty(&document).expect("a header that was read can be written");
    text + "\n"
}

/// The name by which settings files and flags know a value.
pub(crate) fn spelled(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// A list of names that stays readable when there are hundreds.
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => "none (unconditional)".to_owned(),
        [first, second, .., last] if names.len() > 12 => {
            format!("{first}, {second}, …, {last} ({} columns)", names.len())
        }
        _ => names.join(", "),
    }
}

/// The columns that a part of the map depends on.
fn depends(columns: &[String]) -> String {
    match columns {
        [] => "no other column".to_owned(),
        _ => listed(columns),
    }
}

/// The directions that a reduction keeps of so many columns.
fn directions(correlations: &[f64], columns: usize) -> String {
    let kept = output::count(correlations.len(), "direction");
    match correlations {
        [first, .., last] => {
            format!("{kept} of {columns} columns, correlations with the target {first:.3} to {last:.3}")
        }
        [only] => format!("{kept} of {columns} columns, correlation with the target {only:.3}"),
        [] => format!("{kept} of {columns} columns"),
    }
}

/// The sizes of the map in one line.
fn network(model: &Posterior) -> String {
    format!("{}; {} parameters", model.map().describe(), model.map().parameters())
}

fn text(model: &Posterior) -> String {
    let header = model.header();
    let training = &header.training;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:16}{value}");
    };
    line("method", model.method().name().to_owned());
    if let Some(choice) = &header.choice {
        line("chosen", choice.describe());
    }
    line("target", listed(&header.target_names));
    line("given", listed(&header.given_names));
    for column in model.encoding().columns() {
        line("categories", format!("{}: {}", column.name, column.levels.join(", ")));
    }
    let supports: Vec<String> = header.settings.support.iter().map(ToString::to_string).collect();
    line("supports", if supports.is_empty() { "all real".to_owned() } else { supports.join(", ") });
    line("scaling", header.settings.scaling.to_string());
    if !header.settings.noise.is_empty() {
        line("declared noise", header.settings.noise.to_string());
    }
    if !header.settings.jitter.is_empty() {
        line("jitter", header.settings.jitter.to_string());
    }
    if let Some(reduction) = header.given_transform.reduction() {
        line("reduction", directions(reduction.correlations(), reduction.input_dim()));
    }
    if let rules @ [_, ..] = header.settings.exchangeable.as_slice() {
        line("exchangeable", rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    }
    if let Some(pca) = header.given_transform.pca() {
        let variance = 100.0 * pca.explained_variance();
        line(
            "pca",
            format!(
                "{} of {} components, {variance:.2} % of the variance",
                pca.output_dim(),
                pca.input_dim()
            ),
        );
    }
    line("network", network(model));
    for (name, text) in model.map().details() {
        line(name, text);
    }
    for (target, columns) in model.dependence().into_iter().flatten() {
        line("depends on", format!("{target}: {}", depends(&columns)));
    }
    if let members @ [_, ..] = model.members() {
        let nll: Vec<String> =
            members.iter().map(|member| format!("{:.4}", member.training.best_valid_nll)).collect();
        line("members", format!("{}, validation NLL {} (standardised)", members.len(), nll.join(", ")));
    }
    line(
        "rows",
        format!("{} trained on, {} held out for validation", training.train_rows, training.valid_rows),
    );
    line("validation NLL", validation(model));
    if let Some(baseline) = &header.baseline {
        let title = baseline.method.method().title();
        line("baseline", format!("{:.4} standardised, {title}", baseline.valid_nll));
    }
    if let Some(marginal) = model.marginal() {
        line("given columns", format!("joint model; {}", network(marginal)));
        for (target, columns) in marginal.dependence().into_iter().flatten() {
            line("depends on", format!("{target}: {}", depends(&columns)));
        }
        line("", format!("validation NLL {}", validation(marginal)));
    }
    line(
        "training",
        format!(
            "{} steps, best at step {}; ended: {}",
            training.steps,
            training.best_step,
            spelled(&training.stop)
        ),
    );
    line("seed", header.seed.to_string());
    line("data SHA-256", header.data_sha256.clone());
    line("written by", format!("brenier {}", header.brenier_version));
    text
}

/// The best validation loss, in the user's units too where these differ by a constant.
pub(crate) fn validation(model: &Posterior) -> String {
    let header = model.header();
    let standardised = header.training.best_valid_nll;
    if header.target_transform.is_linear() {
        let user = standardised - header.target_transform.linear_scale_log_det();
        format!("{user:.4} in your units, {standardised:.4} standardised")
    } else {
        format!("{standardised:.4} standardised (in your units: brenier density)")
    }
}

#[cfg(test)]
mod tests {
    use super::directions;

    #[test]
    fn one_direction_is_not_several() {
        let one = directions(&[0.951], 20);
        assert_eq!(one, "1 direction of 20 columns, correlation with the target 0.951");
        let two = directions(&[0.9, 0.5], 20);
        assert_eq!(two, "2 directions of 20 columns, correlations with the target 0.900 to 0.500");
    }
}
