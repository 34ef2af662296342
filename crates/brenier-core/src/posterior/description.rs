//! What a model is, line by line: `info` prints it and the page shows it.

use super::Posterior;

/// Names of a list that are spelled out, at most.
const LISTED: usize = 12;

impl Posterior {
    /// Everything about the model that fits on a line, as pairs of a heading and a text: its columns, transforms, map and
    /// training. A heading may occur more than once.
    pub fn description(&self) -> Vec<(&'static str, String)> {
        let header = &self.header;
        let training = &header.training;
        let mut lines = vec![("method", self.method().name().to_owned())];
        let mut line = |heading, text| lines.push((heading, text));
        if let Some(choice) = &header.choice {
            line("chosen", choice.describe());
        }
        line("target", listed(&header.target_names));
        line("given", listed(&header.given_names));
        for column in header.encoding.columns() {
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
        if let Some(spread) = header.settings.surrogate {
            line("surrogate", format!("rows moved by {spread} of the spread of all"));
        }
        if let Some(reduction) = header.given_transform.reduction() {
            line("reduction", directions(reduction.correlations(), reduction.input_dim()));
        }
        for (heading, wanted) in [("asinh", false), ("asinh beside", true)] {
            let columns = header.given_transform.asinh().filter(|(_, beside)| *beside == wanted);
            if let names @ [_, ..] = &columns.map(|(name, _)| name.to_owned()).collect::<Vec<_>>()[..] {
                line(heading, listed(names));
            }
        }
        if let rules @ [_, ..] = header.settings.exchangeable.as_slice() {
            line("exchangeable", rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        }
        if let Some(pca) = header.given_transform.pca() {
            let (kept, all, variance) = (pca.output_dim(), pca.input_dim(), 100.0 * pca.explained_variance());
            line("pca", format!("{kept} of {all} components, {variance:.2} % of the variance"));
        }
        line("network", self.network());
        self.map().details().into_iter().for_each(|(heading, text)| line(heading, text));
        self.depends().for_each(|text| line("depends on", text));
        if let members @ [_, ..] = self.members() {
            let nll: Vec<String> =
                members.iter().map(|member| format!("{:.4}", member.training.best_valid_nll)).collect();
            line("members", format!("{}, validation NLL {} (standardised)", members.len(), nll.join(", ")));
        }
        let (train, valid) = (training.train_rows, training.valid_rows);
        line("rows", format!("{train} trained on, {valid} held out for validation"));
        line("validation NLL", self.validation());
        if let Some(baseline) = &header.baseline {
            let title = baseline.method.method().title();
            line("baseline", format!("{:.4} standardised, {title}", baseline.valid_nll));
        }
        if let Some(marginal) = self.marginal() {
            line("given columns", format!("joint model; {}", marginal.network()));
            marginal.depends().for_each(|text| line("depends on", text));
            line("given NLL", marginal.validation());
        }
        let (steps, best, stop) = (training.steps, training.best_step, training.stop.describe());
        line("training", format!("{steps} steps, best at step {best}; ended: {stop}"));
        line("seed", header.seed.to_string());
        line("data SHA-256", header.data_sha256.clone());
        line("written by", format!("brenier {}", header.brenier_version));
        lines
    }

    /// The best validation loss, in the user's units too where these differ by a constant.
    fn validation(&self) -> String {
        let (standardised, transform) = (self.header.training.best_valid_nll, &self.header.target_transform);
        match transform.is_linear() {
            true => {
                let user = standardised - transform.linear_scale_log_det();
                format!("{user:.4} in your units, {standardised:.4} standardised")
            }
            false => format!("{standardised:.4} standardised (in your units: brenier density)"),
        }
    }

    /// The sizes of the map.
    fn network(&self) -> String {
        format!("{}; {} parameters", self.map().describe(), self.map().parameters())
    }

    /// The columns that each target column's part of the map depends on, where it leaves some out.
    fn depends(&self) -> impl Iterator<Item = String> {
        let text = |(target, columns): (&str, Vec<String>)| match columns[..] {
            [] => format!("{target}: no other column"),
            _ => format!("{target}: {}", listed(&columns)),
        };
        self.dependence().into_iter().flatten().map(text)
    }
}

/// A list of names that stays readable when there are hundreds.
fn listed(names: &[String]) -> String {
    match names {
        [] => "none (unconditional)".to_owned(),
        [first, second, .., last] if names.len() > LISTED => {
            format!("{first}, {second}, …, {last} ({} columns)", names.len())
        }
        _ => names.join(", "),
    }
}

/// The directions that a reduction keeps of this many columns.
fn directions(correlations: &[f64], columns: usize) -> String {
    let kept = correlations.len();
    match correlations {
        [first, .., last] => {
            format!(
                "{kept} directions of {columns} columns, correlations with the target {first:.3} to {last:.3}"
            )
        }
        [only] => format!("1 direction of {columns} columns, correlation with the target {only:.3}"),
        [] => format!("0 directions of {columns} columns"),
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
