//! The document: what was simulated, what the maps reach, beside the published figures and the exact posterior.

use serde_json::json;

use super::SwSettings;
use super::data::Components;
use super::judge::{Scores, Yardstick};
use crate::baseline;
use crate::experiment::{Document, ResultTable, Step};
use crate::simulate::shallow_water::depth;
use crate::statistics::Estimate;

/// Parts of the second moment that components of 100 000 published simulations explain.
const PUBLISHED_EXPLAINED: [(usize, f64); 1] = [(3500, 0.965)];

pub(super) fn document(
    settings: &SwSettings,
    components: &[(u64, Step<Components>)],
    exact: Option<&Step<Yardstick>>,
    scores: &[Step<Scores>],
) -> Document {
    let figures = json!({
        "settings": settings,
        "components": components,
        "exact": exact,
        "scores": scores.iter().map(|step| brief(&step.result)).collect::<Vec<_>>(),
    });
    let mut document = Document::new("Shallow water").figures(&figures).text(format!(
        "NLL are means over rows in the units of the published tables (modes of depths divided by their prior standard \
         deviation at a cell); those of whitened modes are {:.3} lower.",
        depth::published_log_scale(settings.modes)
    ));
    document = document.text("Simulations and principal components of noise-free features, about 0:");
    document = document.table(components_table(components));
    if let Some(step) = exact {
        document = exact_text(document, step);
    }
    document.text("Maps:").table(scores_table(scores))
}

/// The figures without curves.
fn brief(scores: &Scores) -> serde_json::Value {
    let calibration = scores.calibration.as_ref().map(|found| {
        json!({
            "modes": {"p_value": found.modes.p_value, "outside": found.modes.outside, "deviation": found.modes.deviation},
            "cells": {"p_value": found.cells.p_value, "outside": found.cells.outside, "deviation": found.cells.deviation},
        })
    });
    json!({
        "recipe": scores.recipe, "rows": scores.rows, "parameters": scores.parameters, "given": scores.given,
        "training_seconds": scores.training_seconds, "steps": scores.steps, "valid_nll": scores.valid_nll, "test_nll": scores.test_nll,
        "baseline": scores.baseline,
        "calibration": calibration, "relative_errors": scores.at.errors, "median_deviation": median(&scores.at.deviation),
    })
}

fn components_table(components: &[(u64, Step<Components>)]) -> ResultTable {
    let mut table = ResultTable::new([
        "simulations",
        "a second",
        "simulation and moments",
        "components",
        "explained",
        "published",
    ])
    .aligned("rrrrrr");
    for (rows, step) in components {
        let Components { explained, .. } = &step.result;
        let (count, part) = explained.last().copied().unwrap_or_default();
        let published = PUBLISHED_EXPLAINED.iter().find(|(own, _)| *own == count && *rows == 100_000);
        table = table.row([
            rows.to_string(),
            format!("{:.0}", 1.0 / step.result.seconds_per_simulation),
            format!("{:.1} s", step.result.moment_seconds),
            format!("{:.1} s", step.result.component_seconds),
            format!("{:.2} % by {count}", 100.0 * part),
            published.map_or(String::new(), |(_, part)| format!("{:.1} %", 100.0 * part)),
        ]);
    }
    table
}

fn exact_text(document: Document, step: &Step<Yardstick>) -> Document {
    let found = &step.result;
    let mut document = document;
    if let Some((mean, error, rows)) = found.mean() {
        let laplace: Vec<f64> = found.laplace_nll.iter().flatten().copied().collect();
        document = document.text(format!(
            "The exact posterior, by importance sampling from its approximation at the mode found from the truth, has the NLL \
             {mean:.1} ± {error:.1} over {rows} of {} test rows (Laplace's approximation: {:.1}; at least {:.0} % of the draws \
             counted). No map can have less on average.",
            found.nll.len(),
            Estimate::of(&laplace).mean,
            100.0 * found.least_effective,
        ));
    }
    if let Some(at) = &found.at {
        let errors = at.errors.map_or(String::new(), |[mode, mean]| {
            format!("; relative error {:.2} % of the mode, {:.2} % of the mean", 100.0 * mode, 100.0 * mean)
        });
        document = document.text(format!(
            "At the observation its median standard deviation of a depth is {:.3} m by the sampler ({:.0} % accepted, R̂ {:.3}), {:.3} m \
             by Laplace's approximation{errors}.",
            median(&at.deviation),
            100.0 * at.acceptance,
            at.largest_r_hat,
            median(&at.laplace_deviation),
        ));
    }
    document
}

fn scores_table(scores: &[Step<Scores>]) -> ResultTable {
    let mut table = ResultTable::new([
        "map",
        "rows",
        "given",
        "parameters",
        "seconds",
        "validation NLL",
        "test NLL",
        baseline::TITLE,
        "published",
        "error of mode",
        "of mean",
        "median sd (m)",
        "ranks: modes",
        "cells",
    ])
    .aligned("lrrrrrrrrrrrrr");
    for Step { result: one, .. } in scores {
        let published = match one.recipe.published() {
            Some([nll, _, seconds]) if one.rows == 100_000 => format!("{nll:.1} in {seconds:.0} s on a GPU"),
            _ => String::new(),
        };
        let percent = |which: usize| {
            one.at.errors.map_or(String::new(), |errors| format!("{:.1} %", 100.0 * errors[which]))
        };
        let ranks = |of: fn(&super::judge::Calibrated) -> &super::judge::RankCurves| match &one.calibration {
            None => "no draws".to_owned(),
            Some(found) => {
                let curves = of(found);
                format!("{} of {} outside, p = {:.3}", curves.outside, curves.curves.len(), curves.p_value)
            }
        };
        table = table.row([
            one.recipe.title().to_owned(),
            one.rows.to_string(),
            one.given.to_string(),
            one.parameters.to_string(),
            one.training_seconds.map_or("interrupted".to_owned(), |seconds| format!("{seconds:.0}")),
            format!("{:.2}", one.valid_nll),
            format!("{:.2} ± {:.2}", one.test_nll.0, one.test_nll.1),
            one.baseline.map_or(String::new(), |nll| format!("{nll:.2}")),
            published,
            percent(0),
            percent(1),
            format!("{:.3}", median(&one.at.deviation)),
            ranks(|found| &found.modes),
            ranks(|found| &found.cells),
        ]);
    }
    table
}

/// Adds the pictures of a map.
pub(super) fn pictures(document: Document, scores: &Scores) -> Document {
    let name = format!("{}-{}", scores.recipe, scores.rows);
    let about = format!("{} on {} rows", scores.recipe.title(), scores.rows);
    let document = document
        .picture(
            format!("profiles-{name}"),
            format!("Depths at the observation, {about}: draws, most probable profile, truth"),
        )
        .picture(
            format!("waves-{name}"),
            format!("Waves of the draws, {about}: noise-free surfaces at three hours"),
        );
    match &scores.calibration {
        None => document,
        Some(_) => document
            .picture(
                format!("ranks-modes-{name}"),
                format!("Ranks of the modes, {about}: curves belong inside the band"),
            )
            .picture(
                format!("ranks-cells-{name}"),
                format!("Ranks of the depths, {about}: curves belong inside the band"),
            ),
    }
}

fn median(values: &[f64]) -> f64 {
    Estimate::of(values).median
}
