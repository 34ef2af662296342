//! Pictures of profiles, waves and ranks.

use super::data::Observation;
use super::judge::{AtObservation, ExactAt, LEVEL, RankCurves, SHOWN_HOURS, Scores, surfaces_at};
use crate::Result;
use crate::experiment::Workbench;
use crate::report::{Colour, Curve, CurvePlot, PictureSize, PredictivePlot, PredictiveSeries};

/// Single profiles and ranks.
const FAINT: Colour = Colour(176, 190, 204);
const TRUTH: Colour = Colour(20, 20, 20);
const WIDE: PictureSize = PictureSize { width: 620, height: 340 };

fn cells() -> Vec<f64> {
    (1..=100).map(f64::from).collect()
}

/// Writes all pictures of one map.
pub(super) fn of_map(
    name: &str,
    scores: &Scores,
    observation: &Observation,
    bench: &Workbench<'_>,
) -> Result<()> {
    bench.picture(&format!("profiles-{name}"), &profiles(&scores.at, observation)?)?;
    bench.picture(&format!("waves-{name}"), &waves(&scores.at, observation)?)?;
    if let Some(found) = &scores.calibration {
        let plot = |curves: &RankCurves, what: &str| {
            let (low, high): (Vec<f64>, Vec<f64>) = found.band.iter().copied().unzip();
            let mut plot = CurvePlot::new("normalised rank z", "F(z) − z").curve(
                Curve::area(
                    format!("simultaneous band, {} %", 100.0 * (1.0 - LEVEL)),
                    found.points.clone(),
                    low,
                    high,
                )
                .colour(FAINT),
            );
            for (number, curve) in curves.curves.iter().enumerate() {
                let label = if number == 0 { what } else { "" };
                plot = plot.curve(
                    Curve::line(label, found.points.clone(), curve.clone()).colour(Colour(31, 104, 173)),
                );
            }
            plot.to_svg(PictureSize { width: 460, height: 320 })
        };
        bench.picture(&format!("ranks-modes-{name}"), &plot(&found.modes, "modes of the depths")?)?;
        bench.picture(&format!("ranks-cells-{name}"), &plot(&found.cells, "depths of the cells")?)?;
    }
    Ok(())
}

/// Draws, most probable profile and truth.
fn profiles(at: &AtObservation, observation: &Observation) -> Result<String> {
    let mut plot = CurvePlot::new("cell", "depth").units("", "m");
    for (number, profile) in at.profiles.iter().enumerate() {
        let label = if number == 0 { "posterior draws" } else { "" };
        plot = plot.curve(Curve::line(label, cells(), profile.clone()).colour(FAINT));
    }
    if let Some(truth) = &observation.truth {
        plot = plot.curve(Curve::line("truth", cells(), truth.clone()).colour(TRUTH));
    }
    let places: Vec<f64> = cells().into_iter().step_by(3).collect();
    let mode: Vec<f64> = at.mode.iter().copied().step_by(3).collect();
    plot.curve(Curve::points("most probable", places, mode).colour(Colour(192, 57, 43))).to_svg(WIDE)
}

/// Noise-free waves of draws at some hours, and those of the truth.
fn waves(at: &AtObservation, observation: &Observation) -> Result<String> {
    let truth = match &observation.truth {
        Some(truth) => Some(surfaces_at(std::slice::from_ref(truth))?),
        None => None,
    };
    let mut plot = PredictivePlot::new("cell", cells()).single_paths(10);
    for (number, (hour, paths)) in SHOWN_HOURS.iter().zip(&at.waves).enumerate() {
        let centimetres = |values: &[f64]| values.iter().map(|z| 100.0 * z).collect::<Vec<f64>>();
        let mut series =
            PredictiveSeries::new(format!("surface, hour {hour}"), centimetres(paths)).unit("cm");
        if let Some(truth) = &truth {
            series = series.line("truth", &cells(), &centimetres(&truth[number]));
        }
        plot = plot.series(series);
    }
    plot.to_svg(PictureSize { width: 620, height: 560 })
}

/// Mean and two standard deviations at the observation for each table size.
pub(super) fn of_sizes(
    stem: &str,
    scores: &[&Scores],
    observation: &Observation,
    exact: Option<&ExactAt>,
    bench: &Workbench<'_>,
) -> Result<()> {
    let band = |mean: &[f64], deviation: &[f64], sign: f64| -> Vec<f64> {
        mean.iter().zip(deviation).map(|(mean, sd)| mean + 2.0 * sign * sd).collect()
    };
    let mut plot = CurvePlot::new("cell", "depth").units("", "m");
    for one in scores {
        let at = &one.at;
        let error = at.errors.map_or(String::new(), |[_, mean]| format!(", error {:.1} %", 100.0 * mean));
        let label = format!("{} rows{error}", one.rows);
        plot = plot.curve(
            Curve::line(label, cells(), at.mean.clone())
                .band(band(&at.mean, &at.deviation, -1.0), band(&at.mean, &at.deviation, 1.0)),
        );
    }
    if let Some(exact) = exact {
        plot = plot.curve(Curve::line("exact posterior mean", cells(), exact.mean.clone()).dashed());
    }
    if let Some(truth) = &observation.truth {
        plot = plot.curve(Curve::line("truth", cells(), truth.clone()).colour(TRUTH));
    }
    bench.picture(stem, &plot.to_svg(WIDE)?)
}
