//! Posterior predictive time series: bands of many simulated paths, a few of them, and what was observed.

use super::canvas::{
    Canvas, Colour, INK, Labels, Legend, PALETTE, Panel, Pen, PictureSize, Scale, Swatch, clipped, draw,
    span, thinned,
};
use super::density::quantiles;
use crate::{Error, Result};

/// One quantity over time in a [`PredictivePlot`].
#[derive(Clone, Debug)]
pub struct PredictiveSeries {
    name: String,
    unit: Option<String>,
    paths: Vec<f64>,
    overlays: Vec<Overlay>,
}

/// What is drawn over the bands.
#[derive(Clone, Debug)]
struct Overlay {
    label: String,
    times: Vec<f64>,
    values: Vec<f64>,
    points: bool,
}

impl PredictiveSeries {
    /// A series with `paths` one after the other, each with one value for every time of the plot.
    pub fn new(name: impl Into<String>, paths: Vec<f64>) -> Self {
        Self { name: name.into(), unit: None, paths, overlays: Vec::new() }
    }

    /// The unit of the values.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(unit.into()).filter(|unit| !unit.is_empty());
        self
    }

    /// Lays the line through (`times`, `values`) over the bands, as the path at the true parameters.
    pub fn line(self, label: impl Into<String>, times: &[f64], values: &[f64]) -> Self {
        self.overlay(label.into(), times, values, false)
    }

    /// Lays the points (`times`, `values`) over the bands, as measurements.
    pub fn points(self, label: impl Into<String>, times: &[f64], values: &[f64]) -> Self {
        self.overlay(label.into(), times, values, true)
    }

    fn overlay(mut self, label: String, times: &[f64], values: &[f64], points: bool) -> Self {
        self.overlays.push(Overlay { label, times: times.to_vec(), values: values.to_vec(), points });
        self
    }
}

/// Panels above another with one time axis: at every time the median and the central 50 % and 90 % of the paths.
///
/// ```
/// use brenier_report::{PictureSize, PredictivePlot, PredictiveSeries};
///
/// let times = [0.0, 1.0, 2.0];
/// let paths = vec![1.0, 2.0, 3.0, /* the next path */ 1.0, 2.5, 4.0, 1.0, 1.5, 3.5];
/// let svg = PredictivePlot::new("time", times)
///     .time_unit("days")
///     .series(PredictiveSeries::new("prey", paths).points("observed", &times, &[1.0, 2.2, 3.1]))
///     .to_svg(PictureSize { width: 420, height: 240 })?;
/// assert!(svg.contains("time (days)"));
/// # Ok::<(), brenier_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PredictivePlot {
    time: String,
    time_unit: Option<String>,
    title: Option<String>,
    times: Vec<f64>,
    series: Vec<PredictiveSeries>,
    singles: usize,
}

/// Levels of the lines that bound the bands: 90 % outside, 50 % within it, the median.
const LEVELS: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
const COLOUR: Colour = PALETTE[0];
/// Of the outer and the inner band; where they lie over another the ground shows less.
const OPACITIES: [f64; 2] = [0.2, 0.35];
const MEDIAN: Pen = Pen { colour: COLOUR, opacity: 1.0, width: 1.6 };
const SINGLE: Pen = Pen { colour: COLOUR, opacity: 0.55, width: 0.5 };
const OVERLAYS: [Colour; 4] = [INK, PALETTE[1], PALETTE[2], PALETTE[4]];

impl PredictivePlot {
    /// A plot over increasing `times`; `time` labels their axis.
    pub fn new(time: impl Into<String>, times: impl Into<Vec<f64>>) -> Self {
        Self {
            time: time.into(),
            time_unit: None,
            title: None,
            times: times.into(),
            series: Vec::new(),
            singles: 5,
        }
    }

    /// The unit of the times.
    pub fn time_unit(mut self, unit: impl Into<String>) -> Self {
        self.time_unit = Some(unit.into()).filter(|unit| !unit.is_empty());
        self
    }

    /// A heading.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Adds a panel below those before it.
    pub fn series(mut self, series: PredictiveSeries) -> Self {
        self.series.push(series);
        self
    }

    /// How many single paths are drawn thin beside the bands; 5 unless said otherwise.
    pub fn single_paths(mut self, count: usize) -> Self {
        self.singles = count;
        self
    }

    /// Draws the plot.
    ///
    /// # Errors
    ///
    /// When there is no series, lengths do not match the times, times do not increase, a value is not finite, or `size`
    /// is too small.
    pub fn to_svg(&self, size: PictureSize) -> Result<String> {
        self.check()?;
        let bands: Vec<Vec<[f64; 5]>> = self.series.iter().map(|series| self.bands(series)).collect();
        let font = 9.0;
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let labels = self.overlay_labels();
        let legend = Legend::new(self.legend(&labels), font, width - 16.0);
        let heading = if self.title.is_some() { 1.8 * font } else { 0.0 };
        let top = 6.0 + heading + legend.height() + 0.4 * font;
        let base = height - 6.0 - 3.4 * font;
        let gap = 8.0;
        let count = self.series.len() as f64;
        let each = (base - top - gap * (count - 1.0)) / count;
        let scales: Vec<Scale> = self
            .series
            .iter()
            .zip(&bands)
            .map(|(series, bands)| {
                let (low, high) = self.limits(series, bands);
                Scale::new(low, high, f64::INFINITY, font, ((each / (2.6 * font)) as usize).max(2))
            })
            .collect();
        let left = 2.2 * font + scales.iter().map(|s| s.label_room(font)).fold(0.0, f64::max) + 7.0;
        let right = width - 1.4 * font;
        if right - left < 60.0 || each < 40.0 {
            return Err(Error::Shape {
                what: "size of a predictive plot",
                expected: format!("room for {count} panels of 60 × 40 points beside labels and legend"),
                got: format!("{} × {}", size.width, size.height),
            });
        }
        let shown = self.series.iter().flat_map(|s| s.overlays.iter().flat_map(|o| &o.times));
        let (first, last) = span(self.times.iter().chain(shown).copied(), false);
        let x = Scale::new(first, last, right - left, font, 8);
        Ok(draw(size, |canvas| {
            if let Some(title) = &self.title {
                let middle = [0.5 * (left + right), 6.0 + 0.6 * font];
                canvas.fitted(std::slice::from_ref(title), middle, 1.15 * font, right - left, false);
            }
            legend.draw(canvas, [left.min(width - 8.0 - legend.used()).max(8.0), 6.0 + heading]);
            for (i, (series, bands)) in self.series.iter().zip(&bands).enumerate() {
                let from = top + i as f64 * (each + gap);
                let panel = Panel { from: [left, from], to: [right, from + each], x: &x, y: &scales[i] };
                self.draw_panel(canvas, &panel, series, bands, &labels);
                canvas.frame(panel.from, panel.to, Pen::new(INK, 0.6));
                let last = i + 1 == self.series.len();
                panel.ticks_below(canvas, font, if last { Labels::All } else { Labels::None });
                panel.ticks_left(canvas, font, Labels::All);
                let label = scales[i].label(&series.name, series.unit.as_deref(), font, f64::INFINITY);
                canvas.fitted(&label, [1.1 * font, from + 0.5 * each], font, each, true);
            }
            let label = x.label(&self.time, self.time_unit.as_deref(), font, f64::INFINITY);
            canvas.fitted(&label, [0.5 * (left + right), base + 5.0 + 2.1 * font], font, right - left, false);
        }))
    }

    fn check(&self) -> Result<()> {
        let wrong = |what, expected: &str, got: String| {
            Err(Error::Shape { what, expected: expected.to_owned(), got })
        };
        let n = self.times.len();
        if n < 2 || self.series.is_empty() {
            let got = format!("{} series over {n}", self.series.len());
            return wrong("predictive plot", "one or more series over two or more times", got);
        }
        let ordered = |times: &[f64]| {
            times.iter().all(|time| time.is_finite()) && times.windows(2).all(|pair| pair[0] < pair[1])
        };
        if !ordered(&self.times) {
            return wrong("times of a predictive plot", "finite, increasing numbers", "others".to_owned());
        }
        for series in &self.series {
            if series.paths.is_empty() || series.paths.len() % n != 0 {
                let got = format!("{} values in {:?}", series.paths.len(), series.name);
                return wrong("paths of a predictive plot", &format!("one or more paths of {n} values"), got);
            }
            if let Some(i) = series.paths.iter().position(|value| !value.is_finite()) {
                return Err(Error::Domain(format!(
                    "path {} has {} = {} at {} {}: only finite values can be drawn",
                    i / n + 1,
                    series.name,
                    series.paths[i],
                    self.time,
                    self.times[i % n]
                )));
            }
            for overlay in &series.overlays {
                let (times, values) = (&overlay.times, &overlay.values);
                if times.is_empty() || times.len() != values.len() || !ordered(times) {
                    let got = format!("{} and {} in {:?}", times.len(), values.len(), overlay.label);
                    let expected = "increasing times and as many values";
                    return wrong("line over a predictive plot", expected, got);
                }
                if let Some(i) = values.iter().position(|value| !value.is_finite()) {
                    return Err(Error::Domain(format!(
                        "{} of {:?} is {} at {} {}: only finite values can be drawn",
                        series.name, overlay.label, values[i], self.time, times[i]
                    )));
                }
            }
        }
        Ok(())
    }

    /// The quantiles of the paths at every time.
    fn bands(&self, series: &PredictiveSeries) -> Vec<[f64; 5]> {
        let n = self.times.len();
        (0..n)
            .map(|time| {
                let values: Vec<f64> = series.paths.iter().skip(time).step_by(n).copied().collect();
                quantiles(&values, None, LEVELS)
            })
            .collect()
    }

    fn single(&self, series: &PredictiveSeries) -> Vec<Vec<f64>> {
        let paths: Vec<&[f64]> = series.paths.chunks_exact(self.times.len()).collect();
        thinned(paths.len(), self.singles).map(|i| paths[i].to_vec()).collect()
    }

    /// All of the bands and overlays; single paths only as far as they do not squeeze these.
    fn limits(&self, series: &PredictiveSeries, bands: &[[f64; 5]]) -> (f64, f64) {
        let overlays = series.overlays.iter().flat_map(|overlay| &overlay.values);
        let (low, high) = span(bands.iter().flatten().chain(overlays).copied(), false);
        let more = 0.4 * (high - low);
        let singles = self.single(series).into_iter().flatten();
        span(singles.map(|v| v.clamp(low - more, high + more)).chain([low, high]), false)
    }

    /// In order of appearance, each once, and whether points are drawn.
    fn overlay_labels(&self) -> Vec<(String, bool)> {
        let mut labels: Vec<(String, bool)> = Vec::new();
        for overlay in self.series.iter().flat_map(|series| &series.overlays) {
            if !labels.iter().any(|(label, _)| *label == overlay.label) {
                labels.push((overlay.label.clone(), overlay.points));
            }
        }
        labels
    }

    fn legend(&self, labels: &[(String, bool)]) -> Vec<(Swatch, String)> {
        // As dark as the inner band looks on the outer one.
        let inner = 1.0 - (1.0 - OPACITIES[0]) * (1.0 - OPACITIES[1]);
        let mut entries = vec![
            (Swatch::Line(MEDIAN, None), "median".to_owned()),
            (Swatch::Area(COLOUR, inner), "50 %".to_owned()),
            (Swatch::Area(COLOUR, OPACITIES[0]), "90 %".to_owned()),
        ];
        if self.singles > 0 {
            entries.push((Swatch::Line(SINGLE, None), "single draws".to_owned()));
        }
        entries.extend(labels.iter().enumerate().map(|(i, (label, points))| {
            let colour = OVERLAYS[i % OVERLAYS.len()];
            let swatch = match points {
                true => Swatch::Marker(colour, 0),
                false => Swatch::Line(Pen::new(colour, 1.2), None),
            };
            (swatch, label.clone())
        }));
        entries
    }

    fn draw_panel(
        &self,
        canvas: &mut Canvas,
        panel: &Panel<'_>,
        series: &PredictiveSeries,
        bands: &[[f64; 5]],
        labels: &[(String, bool)],
    ) {
        let along = |level: usize| {
            self.times.iter().zip(bands).map(move |(&time, band)| panel.place([time, band[level]]))
        };
        for (outer, opacity) in OPACITIES.into_iter().enumerate() {
            let area: Vec<[f64; 2]> = along(outer).chain(along(4 - outer).rev()).collect();
            canvas.polygon(&area, COLOUR, opacity);
        }
        let line = |canvas: &mut Canvas, times: &[f64], values: &[f64], pen: Pen| {
            let places: Vec<[f64; 2]> =
                times.iter().zip(values).map(|(&time, &value)| panel.place([time, value])).collect();
            for piece in clipped(&places, panel.from, panel.to) {
                canvas.line(&piece, pen);
            }
        };
        for path in self.single(series) {
            line(canvas, &self.times, &path, SINGLE);
        }
        canvas.line(&along(2).collect::<Vec<_>>(), MEDIAN);
        for overlay in &series.overlays {
            let number = labels.iter().position(|(label, _)| *label == overlay.label).unwrap_or(0);
            let colour = OVERLAYS[number % OVERLAYS.len()];
            if overlay.points {
                for (&time, &value) in overlay.times.iter().zip(&overlay.values) {
                    canvas.dot(panel.place([time, value]), 1.8, colour, 1.0);
                }
            } else {
                line(canvas, &overlay.times, &overlay.values, Pen::new(colour, 1.2));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::panels::tests::{save, square_draws};
    use super::*;

    const SIZE: PictureSize = PictureSize { width: 460, height: 340 };

    fn example() -> PredictivePlot {
        let times: Vec<f64> = (0..100).map(|i| 0.3 * f64::from(i)).collect();
        let noise = square_draws(400);
        let wave = |amplitude: f64, phase: f64| -> Vec<f64> {
            times.iter().map(|t| 50.0 + amplitude * 20.0 * (0.5 * t + phase).sin()).collect()
        };
        let paths = |by: f64| {
            noise.as_chunks::<2>().0.iter().flat_map(|[a, b]| wave((0.4 * a).exp(), by + 0.3 * b)).collect()
        };
        PredictivePlot::new("time", times.clone())
            .time_unit("years")
            .series(
                PredictiveSeries::new("predators", paths(0.0))
                    .unit("animals")
                    .line("path at the true parameters", &times, &wave(1.0, 0.1))
                    .points("observed", &[3.0, 12.0, 21.0], &[71.0, 44.0, 31.0]),
            )
            .series(PredictiveSeries::new("prey", paths(1.5)).line(
                "path at the true parameters",
                &times,
                &wave(1.0, 1.6),
            ))
    }

    #[test]
    fn the_plot_has_its_words_and_is_reproducible() {
        let svg = example().to_svg(SIZE).unwrap();
        assert_eq!(svg, example().to_svg(SIZE).unwrap());
        for word in [
            "time (years)",
            "predators (animals)",
            "prey",
            "median",
            "50 %",
            "90 %",
            "single draws",
            "observed",
        ] {
            assert!(svg.contains(word), "{word}");
        }
        assert_eq!(svg.matches("path at the true parameters").count(), 1, "one legend for all panels");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        save("predictive", &svg);
    }

    #[test]
    fn bands_are_the_quantiles_of_the_paths() {
        let paths: Vec<f64> = (0..=100).flat_map(|i| [f64::from(i), 2.0 * f64::from(i)]).collect();
        let series = PredictiveSeries::new("x", paths);
        let plot = PredictivePlot::new("t", [0.0, 1.0]);
        assert_eq!(plot.bands(&series), [[5.0, 25.0, 50.0, 75.0, 95.0], [10.0, 50.0, 100.0, 150.0, 190.0]]);
    }

    #[test]
    fn degenerate_paths_are_drawn_and_mistakes_named() {
        let plot =
            |paths: Vec<f64>| PredictivePlot::new("t", [0.0, 1.0]).series(PredictiveSeries::new("x", paths));
        for paths in [vec![1.0, 1.0], vec![0.0, 0.0, 0.0, 0.0], vec![1e300, -1e300], vec![1e-300, 2e-300]] {
            let svg = plot(paths).to_svg(SIZE).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("2147483647"));
        }
        let text = |plot: PredictivePlot| plot.to_svg(SIZE).unwrap_err().to_string();
        assert!(text(PredictivePlot::new("t", [0.0, 1.0])).contains("one or more series"));
        assert!(text(plot(vec![1.0; 3])).contains("paths of 2 values"));
        assert!(text(plot(vec![1.0, 2.0, 3.0, f64::NAN])).contains("path 2 has x = NaN at t 1"));
        let falling = PredictivePlot::new("t", [1.0, 0.0]).series(PredictiveSeries::new("x", vec![1.0; 2]));
        assert!(text(falling).contains("increasing"));
        let series = PredictiveSeries::new("x", vec![1.0; 2]).line("truth", &[0.0], &[1.0, 2.0]);
        assert!(text(PredictivePlot::new("t", [0.0, 1.0]).series(series)).contains("\"truth\""));
        let tiny = plot(vec![1.0; 2]).to_svg(PictureSize { width: 50, height: 50 });
        assert!(tiny.unwrap_err().to_string().contains("50 × 50"));
    }
}
