//! Histograms of several quantities beside another, each with the value that was observed.

use super::canvas::{
    Align, Canvas, INK, Labels, Legend, PALETTE, Panel, Pen, PictureSize, Room, Scale, Swatch, draw, fit,
    limits, text_width,
};
use super::density::{UNBOUNDED, quantiles};
use crate::{Error, Result};

/// One quantity of [`Histograms`].
#[derive(Clone, Debug)]
pub struct Histogram {
    name: String,
    unit: Option<String>,
    values: Vec<f64>,
    observed: Option<f64>,
}

impl Histogram {
    /// The histogram of `values`.
    pub fn new(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self { name: name.into(), unit: None, values, observed: None }
    }

    /// The unit of the values.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(unit.into()).filter(|unit| !unit.is_empty());
        self
    }

    /// Marks a value and says how many of the draws lie below it.
    pub fn observed(mut self, value: f64) -> Self {
        self.observed = Some(value);
        self
    }

    /// The part of the values below the observed one, those equal to it counted half.
    fn below(&self, observed: f64) -> f64 {
        let below = self.values.iter().filter(|value| **value < observed).count() as f64;
        let equal = self.values.iter().filter(|value| **value == observed).count() as f64;
        (below + 0.5 * equal) / self.values.len() as f64
    }

    /// The part of the values that is drawn: all but one in a thousand at either end, and none that lies four times the
    /// distance of the quartiles beyond them, for a few such would leave a single bin to all others.
    fn drawn(&self) -> [f64; 2] {
        let [low, lower, upper, high] = quantiles(&self.values, None, [0.001, 0.25, 0.75, 0.999]);
        let reach = 4.0 * (upper - lower);
        if reach > 0.0 { [low.max(lower - reach), high.min(upper + reach)] } else { [low, high] }
    }

    /// Edges of equal bins from `low` to `high` after Freedman and Diaconis, 2 IQR n^(-1/3) wide; bins of whole numbers
    /// hold as many of them each.
    fn edges(&self, low: f64, high: f64) -> (f64, f64, usize) {
        let [lower, upper] = quantiles(&self.values, None, [0.25, 0.75]);
        let ideal = 2.0 * (upper - lower) / (self.values.len() as f64).cbrt();
        // Several modes make the quartiles wide: not fewer than 16 where there are values enough.
        let fewest = (self.values.len() as f64).sqrt().clamp(4.0, 16.0);
        let count = ((high - low) / ideal).clamp(fewest, 60.0);
        let count = if count.is_finite() { count.round() as usize } else { 30 };
        let width = (high - low) / count as f64;
        if high - low < 1e9 && self.values.iter().all(|value| value.fract() == 0.0) {
            let (width, first) = (width.round().max(1.0), low.ceil() - 0.5);
            return (first, width, ((high - first) / width).ceil().max(1.0) as usize);
        }
        (low, width, count)
    }
}

/// Small panels, one for each [`Histogram`]: what a model predicts for outputs that are no time series.
///
/// The figure above a panel says which part of the draws lies below the observed value: near 0 % or 100 % the model
/// does not predict it. Values far from all others are not drawn; a panel says how many lie beyond its ends.
///
/// ```
/// use brenier_report::{Histogram, Histograms, PictureSize};
///
/// let svg = Histograms::new()
///     .panel(Histogram::new("mean", vec![1.0, 1.2, 1.1, 0.9]).unit("m").observed(1.05))
///     .to_svg(PictureSize { width: 240, height: 200 })?;
/// assert!(svg.contains("mean (m)"));
/// # Ok::<(), brenier_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Histograms {
    panels: Vec<Histogram>,
    draws: String,
    observed: String,
    title: Option<String>,
}

impl Default for Histograms {
    fn default() -> Self {
        let (draws, observed) = ("predicted".to_owned(), "observed".to_owned());
        Self { panels: Vec::new(), draws, observed, title: None }
    }
}

/// Room at the sides, for tick labels that reach beyond the panels.
const SIDE: f64 = 15.0;
/// How far they do: the panels are 12 points apart.
const OVERHANG: f64 = 5.0;
const OPACITY: f64 = 0.45;
const MARK: Pen = Pen { colour: INK, opacity: 1.0, width: 1.3 };

impl Histograms {
    /// No panels yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a panel, from left to right and from top to bottom.
    pub fn panel(mut self, panel: Histogram) -> Self {
        self.panels.push(panel);
        self
    }

    /// What the legend calls the values and the mark.
    pub fn labels(mut self, draws: impl Into<String>, observed: impl Into<String>) -> Self {
        self.draws = draws.into();
        self.observed = observed.into();
        self
    }

    /// A heading.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Panels beside another, and rows of them.
    pub fn grid(&self) -> (usize, usize) {
        let count = self.panels.len().max(1);
        let columns = match count {
            1..=3 => count,
            4 => 2,
            5..=9 => 3,
            _ => 4,
        };
        (columns, count.div_ceil(columns))
    }

    /// Draws the panels.
    ///
    /// # Errors
    ///
    /// When there is no panel, one without values or with values that are not finite, or `size` is too small.
    pub fn to_svg(&self, size: PictureSize) -> Result<String> {
        self.check()?;
        let font = 8.5;
        let (columns, rows) = self.grid();
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let marked = self.panels.iter().any(|panel| panel.observed.is_some());
        let mut entries = vec![(Swatch::Area(PALETTE[0], OPACITY), self.draws.clone())];
        if marked {
            let label = format!("{} (%: draws below it)", self.observed);
            entries.push((Swatch::Line(MARK, None), label));
        }
        let legend = Legend::new(entries, font, width - 16.0);
        let heading = if self.title.is_some() { 1.9 * font } else { 0.0 };
        let top = 6.0 + heading + legend.height();
        let (above, below, gap) = (1.6 * font, 5.0 + 3.4 * font, 12.0);
        let each_width = (width - 2.0 * SIDE - gap * (columns as f64 - 1.0)) / columns as f64;
        let each_height = (height - top - 4.0) / rows as f64 - above - below;
        if each_width < 50.0 || each_height < 24.0 {
            return Err(Error::Shape {
                what: "size of histograms",
                expected: format!("room for {rows} × {columns} panels of at least 50 × 24 points"),
                got: format!("{} × {}", size.width, size.height),
            });
        }
        Ok(draw(size, |canvas| {
            if let Some(title) = &self.title {
                let middle = [0.5 * width, 6.0 + 0.6 * font];
                canvas.fitted(std::slice::from_ref(title), middle, 1.15 * font, width - 20.0, false);
            }
            legend.draw(canvas, [SIDE, 6.0 + heading]);
            for (i, histogram) in self.panels.iter().enumerate() {
                let from = [
                    SIDE + (i % columns) as f64 * (each_width + gap),
                    top + above + (i / columns) as f64 * (each_height + above + below),
                ];
                draw_histogram(canvas, histogram, from, [from[0] + each_width, from[1] + each_height], font);
            }
        }))
    }

    fn check(&self) -> Result<()> {
        if self.panels.is_empty() {
            let (expected, got) = ("at least one panel".to_owned(), "none".to_owned());
            return Err(Error::Shape { what: "histograms", expected, got });
        }
        for panel in &self.panels {
            if panel.values.is_empty() {
                let got = format!("none for {:?}", panel.name);
                return Err(Error::Shape {
                    what: "values of a histogram",
                    expected: "one or more".into(),
                    got,
                });
            }
            let all = panel.values.iter().chain(&panel.observed);
            if let Some(value) = all.copied().find(|value| !value.is_finite()) {
                let name = &panel.name;
                return Err(Error::Domain(format!(
                    "{name} has a value {value}: only finite values can be drawn"
                )));
            }
        }
        Ok(())
    }
}

fn draw_histogram(canvas: &mut Canvas, histogram: &Histogram, from: [f64; 2], to: [f64; 2], font: f64) {
    let marks: Vec<f64> = histogram.observed.into_iter().collect();
    let (low, high) = limits(histogram.drawn(), &marks, 0.0, UNBOUNDED);
    let x = Scale::fitted(low, high, Room { length: to[0] - from[0], overhang: OVERHANG, font }, 5);
    let shown = || histogram.values.iter().copied().filter(|value| x.contains(*value));
    // No bin goes beyond the values, for they may be bounded.
    let ends = (shown().fold(high, f64::min), shown().fold(low, f64::max));
    let (lowest, highest) = if ends.0 < ends.1 { ends } else { (low, high) };
    let (first, step, count) = histogram.edges(lowest, highest);
    let mut heights = vec![0.0_f64; count];
    for value in shown() {
        let bin = ((value - first) / step).floor().clamp(0.0, count as f64 - 1.0);
        heights[bin as usize] += 1.0;
    }
    let y = Scale::new(0.0, 1.06 * heights.iter().copied().fold(1.0, f64::max), 1.0, font, 1);
    let panel = Panel { from, to, x: &x, y: &y };
    for (i, &height) in heights.iter().enumerate().filter(|(_, height)| **height > 0.0) {
        let edge = |k: usize| (first + k as f64 * step).clamp(low, high);
        let corners = [panel.place([edge(i), height]), panel.place([edge(i + 1), 0.0])];
        canvas.rectangle(corners[0], corners[1], PALETTE[0], OPACITY);
    }
    let mut free = to[0] - from[0];
    if let Some(observed) = histogram.observed {
        let at = panel.place([observed, 0.0])[0];
        canvas.line(&[[at, from[1]], [at, to[1]]], MARK);
        let share = 100.0 * histogram.below(observed);
        let text = match share {
            share if share > 0.0 && share < 1.0 => "< 1 %".to_owned(),
            share if share < 100.0 && share > 99.0 => "> 99 %".to_owned(),
            share => format!("{share:.0} %"),
        };
        canvas.text(&text, [to[0], from[1] - 0.8 * font], 0.9 * font, Align::Right, false);
        free -= text_width(&text, 0.9 * font) + font;
    }
    let beyond = histogram.values.len() - shown().count();
    if beyond > 0 {
        let (text, size) = fit(&format!("{beyond} beyond"), 0.9 * font, free);
        canvas.text(&text, [from[0], from[1] - 0.8 * font], size, Align::Left, false);
    }
    canvas.line(&[[from[0], to[1]], to], Pen::new(INK, 0.6));
    panel.ticks_below(canvas, font, Labels::Within(OVERHANG));
    let label = x.label(&histogram.name, histogram.unit.as_deref(), font, f64::INFINITY);
    canvas.fitted(&label, [0.5 * (from[0] + to[0]), to[1] + 5.0 + 2.0 * font], font, to[0] - from[0], false);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::panels::tests::{save, square_draws};
    use super::*;

    const SIZE: PictureSize = PictureSize { width: 520, height: 360 };

    fn example() -> Histograms {
        let draws = square_draws(2000);
        let scaled = |by: f64, shift: f64| draws.iter().map(|v| by * v + shift).collect::<Vec<f64>>();
        Histograms::new()
            .panel(Histogram::new("mean_predators", scaled(4.0, 29.0)).observed(28.9))
            .panel(Histogram::new("mean_prey", scaled(2.0, 9.0)).observed(20.0))
            .panel(Histogram::new("rate", scaled(3e-7, 1e-6)).unit("1/s").observed(1.2e-6))
            .panel(Histogram::new("count", draws.iter().map(|v| (3.0 * v + 12.0).round()).collect()))
            .panel(
                Histogram::new("autocorr_lag1_predators", draws.iter().map(|v| v.tanh()).collect())
                    .observed(-0.9),
            )
    }

    #[test]
    fn the_panels_have_their_words_and_are_reproducible() {
        let svg = example().to_svg(SIZE).unwrap();
        assert_eq!(svg, example().to_svg(SIZE).unwrap());
        for word in
            ["mean_predators", "rate (×10⁻⁶ 1/s)", "observed (%: draws below it)", "100 %", "predicted"]
        {
            assert!(svg.contains(word), "{word}");
        }
        save("histograms", &svg);
    }

    #[test]
    fn a_few_outliers_do_not_hide_the_rest() {
        let mut values = square_draws(2000);
        values.extend([-3e4, 800.0, 2e3, 5e3, 9e3, 1e4, 2e4, 3e4]);
        let [low, high] = Histogram::new("x", values.clone()).drawn();
        assert!((-7.0..-2.5).contains(&low) && (2.5..7.0).contains(&high), "{low} {high}");
        let svg = Histograms::new().panel(Histogram::new("x", values.clone())).to_svg(SIZE).unwrap();
        assert!(svg.contains("8 beyond"), "{svg}");
        save("histogram_outliers", &svg);
        // What was observed is seen wherever it lies.
        let svg = Histograms::new().panel(Histogram::new("x", values).observed(900.0)).to_svg(SIZE).unwrap();
        assert!(svg.contains("7 beyond") && svg.contains(">800<"), "{svg}");
        let svg = Histograms::new().panel(Histogram::new("x", square_draws(50))).to_svg(SIZE).unwrap();
        assert!(!svg.contains("beyond"));
    }

    #[test]
    fn whole_numbers_get_bins_around_them() {
        let values: Vec<f64> = (0..60).map(|i| f64::from(i % 6)).collect();
        let (first, width, count) = Histogram::new("k", values).edges(0.0, 5.0);
        assert_eq!((first, width), (-0.5, 1.0));
        assert_eq!(count, 6);
    }

    #[test]
    fn the_share_below_counts_ties_half() {
        let histogram = Histogram::new("x", vec![1.0, 2.0, 2.0, 3.0]);
        assert_eq!(histogram.below(2.0), 0.5);
        assert_eq!(histogram.below(0.0), 0.0);
        assert_eq!(histogram.below(9.0), 1.0);
    }

    #[test]
    fn degenerate_values_are_drawn_and_mistakes_named() {
        for values in
            [vec![1.0], vec![0.0; 9], vec![-1e300, 1e300], vec![1e-300, 3e-300], vec![1e15, 1e15 + 8.0]]
        {
            let svg =
                Histograms::new().panel(Histogram::new("x", values).observed(1.0)).to_svg(SIZE).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("2147483647"));
        }
        let text = |plot: Histograms| plot.to_svg(SIZE).unwrap_err().to_string();
        assert!(text(Histograms::new()).contains("at least one panel"));
        assert!(text(Histograms::new().panel(Histogram::new("x", vec![]))).contains("\"x\""));
        assert!(
            text(Histograms::new().panel(Histogram::new("x", vec![f64::NAN]))).contains("x has a value NaN")
        );
        let tiny = example().to_svg(PictureSize { width: 90, height: 90 });
        assert!(tiny.unwrap_err().to_string().contains("90 × 90"));
    }
}
