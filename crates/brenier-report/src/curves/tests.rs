//! Tests of `curves`.

#![allow(clippy::unwrap_used)]

use super::super::panels::tests::save;
use super::*;

const SIZE: PictureSize = PictureSize { width: 440, height: 300 };

fn training() -> CurvePlot {
    let steps: Vec<f64> = (1..=60).map(|i| 50.0 * f64::from(i)).collect();
    let valid: Vec<f64> = steps.iter().map(|s| -1.4 + 40.0 / s + 0.02 * (s / 90.0).sin()).collect();
    let train: Vec<f64> = steps.iter().map(|s| -1.5 + 35.0 / s + 0.05 * (s / 40.0).sin()).collect();
    CurvePlot::new("step", "mean NLL")
        .units("", "nats")
        .title("Training of a PCP-Map")
        .curve(Curve::line("training", steps.clone(), train))
        .curve(Curve::line("validation", steps, valid).dashed())
        .horizontal("unit Gaussian", 1.42)
        .vertical("best", 2400.0)
}

#[test]
fn the_plot_has_its_words_and_is_reproducible() {
    let svg = training().to_svg(SIZE).unwrap();
    assert_eq!(svg, training().to_svg(SIZE).unwrap());
    for word in ["step", "mean NLL (nats)", "Training of a PCP-Map", "validation", "unit Gaussian", "best"] {
        assert!(svg.contains(word), "{word}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    save("curves_training", &svg);
}

#[test]
fn logarithmic_axes_bars_bands_and_the_diagonal_are_drawn() {
    let steps = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
    let error = [0.31, 0.12, 0.031, 0.0082, 0.0021, 0.0005];
    let wide: Vec<f64> = error.iter().map(|e| e * 0.4).collect();
    let slower: Vec<f64> = error.iter().map(|e| 4.0 * e.sqrt() * 0.1).collect();
    let plot = CurvePlot::new("integration steps n_t", "error of a draw")
        .units("", "standard deviations")
        .log_x()
        .log_y()
        .curve(Curve::line("θ = (0.01, 0.5, 1, 0.01)", steps, error).with_markers().errors(&wide))
        .curve(Curve::line("θ = (0.02, …)", steps, slower.clone()).with_markers().errors(&[10.0; 6]));
    let svg = plot.to_svg(SIZE).unwrap();
    save("curves_log", &svg);
    assert!(svg.contains(">0.001<") && svg.contains(">20<"), "ticks");
    assert!(!svg.contains("NaN") && !svg.contains("inf"));

    let levels: Vec<f64> = (0..=20).map(|i| f64::from(i) / 20.0).collect();
    let shifted =
        |by: f64| levels.iter().map(|l| (l + by * l * (1.0 - l)).clamp(0.0, 1.0)).collect::<Vec<_>>();
    let plot = CurvePlot::new("credible level", "empirical coverage")
        .limits_x(0.0, 1.0)
        .limits_y(0.0, 1.0)
        .curve(Curve::line("θ₁", levels.clone(), shifted(0.2)).band(shifted(0.05), shifted(0.35)))
        .curve(Curve::line("θ₂", levels.clone(), shifted(-0.3)))
        .curve(
            Curve::area("95 % of calibrated curves", levels.clone(), shifted(-0.1), shifted(0.1))
                .colour(Colour(120, 120, 120)),
        )
        .diagonal("calibrated");
    save("curves_calibration", &plot.to_svg(PictureSize { width: 300, height: 320 }).unwrap());
}

#[test]
fn gaps_limits_and_single_points_keep_coordinates_readable() {
    let x = [1.0, 2.0, 3.0, 4.0, 5.0];
    let gaps = Curve::line("gaps", x, [1.0, f64::NAN, 3.0, f64::INFINITY, 2.0])
        .band([0.0, f64::NAN, 1.0, 0.0, 1.0], [2.0, 1.0, 4.0, 1.0, 3.0]);
    let plot = CurvePlot::new("x", "y").curve(gaps);
    for plot in [
        plot.clone(),
        plot.clone().limits_x(2.5, 3.5).limits_y(1.5, 2.5),
        plot.log_x(),
        CurvePlot::new("x", "y").curve(Curve::points("", [0.0], [0.0])).log_y().limits_y(0.1, 1.0),
        CurvePlot::new("x", "y").curve(Curve::points("one", [1e-9], [1e12])).log_y(),
        CurvePlot::new("x", "y").curve(Curve::line("huge", [0.0, 1e300], [-1e300, 1e300])),
    ] {
        if let Ok(svg) = plot.to_svg(SIZE) {
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("2147483647"));
        }
    }
}

#[test]
fn mistakes_are_named() {
    let text = |plot: CurvePlot| plot.to_svg(SIZE).unwrap_err().to_string();
    let plot = CurvePlot::new("time", "loss");
    assert!(text(plot.clone()).contains("at least one curve"));
    let curve = |x: &[f64], y: &[f64]| plot.clone().curve(Curve::line("run", x, y));
    assert!(text(curve(&[1.0, 2.0], &[1.0])).contains("2 x and 1 y in \"run\""));
    assert!(text(curve(&[f64::NAN], &[1.0])).contains("time = NaN"));
    assert!(text(curve(&[1.0], &[f64::NAN])).contains("no loss"));
    let zero = text(curve(&[1.0, 2.0], &[1.0, 0.0]).log_y());
    assert!(zero.contains("point 2") && zero.contains("loss = 0"), "{zero}");
    assert!(text(curve(&[1.0], &[1.0]).limits_y(2.0, 1.0)).contains("low < high"));
    assert!(text(curve(&[1.0], &[1.0]).log_y().horizontal("zero", 0.0)).contains("\"zero\""));
    let tiny = curve(&[1.0], &[1.0]).to_svg(PictureSize { width: 40, height: 40 });
    assert!(tiny.unwrap_err().to_string().contains("40 × 40"));
}
