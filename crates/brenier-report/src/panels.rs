//! Panels side by side, one per observation: draws of two quantities over contour lines of their exact density.

use super::canvas::{
    Align, INK, Labels, PALETTE, Panel, Pen, PictureSize, Room, Scale, bulk, draw, limits, text_width,
    thinned,
};
use super::density::{Axis, Field, UNBOUNDED};
use crate::{Error, Result};

/// One observation: its title, the draws given it and, where known, the exact density.
pub struct ConditionalPanel<'a> {
    title: String,
    samples: Vec<f64>,
    log_density: Option<Box<dyn Fn(f64, f64) -> f64 + 'a>>,
}

impl<'a> ConditionalPanel<'a> {
    /// A panel of row-major `samples` with two columns.
    pub fn new(title: impl Into<String>, samples: Vec<f64>) -> Self {
        Self { title: title.into(), samples, log_density: None }
    }

    /// Adds contour lines of `log_density(x₁, x₂)`, which need not be normalised and may be -∞.
    pub fn log_density(mut self, log_density: impl Fn(f64, f64) -> f64 + 'a) -> Self {
        self.log_density = Some(Box::new(log_density));
        self
    }
}

/// A row of [`ConditionalPanel`]s with common axes.
///
/// The lines bound the smallest regions that hold 50 %, 90 % and 99 % of the exact density in the picture.
pub struct ConditionalPanels<'a> {
    names: [String; 2],
    draws_label: String,
    density_label: String,
    panels: Vec<ConditionalPanel<'a>>,
    limits: Option<[[f64; 2]; 2]>,
}

/// How far tick labels may reach towards the next panel.
const OVERHANG: f64 = 4.0;
const GRID_POINTS: usize = 161;
const PANEL_DOTS: usize = 1500;
const MASSES: [f64; 3] = [0.5, 0.9, 0.99];

impl<'a> ConditionalPanels<'a> {
    /// An empty row; `names` label the horizontal and the vertical axis.
    pub fn new(names: [&str; 2]) -> Self {
        Self {
            names: names.map(str::to_owned),
            draws_label: "draws from the learned map".to_owned(),
            density_label: "true density (50, 90, 99 %)".to_owned(),
            panels: Vec::new(),
            limits: None,
        }
    }

    /// Adds a panel on the right.
    pub fn panel(mut self, panel: ConditionalPanel<'a>) -> Self {
        self.panels.push(panel);
        self
    }

    /// What the legend calls the draws and the contour lines.
    pub fn labels(mut self, draws: impl Into<String>, density: impl Into<String>) -> Self {
        self.draws_label = draws.into();
        self.density_label = density.into();
        self
    }

    /// Shows `[low, high]` of the two quantities, instead of where the samples are.
    pub fn limits(mut self, x: [f64; 2], y: [f64; 2]) -> Self {
        self.limits = Some([x, y]);
        self
    }

    /// Draws the row.
    ///
    /// # Errors
    ///
    /// When there is no panel, samples are missing, not in pairs or not finite, or `size` is too small.
    pub fn to_svg(&self, size: PictureSize) -> Result<String> {
        self.check()?;
        let font = 9.0;
        let count = self.panels.len() as f64;
        let (right, gap) = (10.0, 10.0);
        let (top, bottom) = (4.2 * font, 4.2 * font);
        // The labels of the vertical axis do not depend on the width, so its scale comes first.
        let y = self.scale(1, f64::from(size.height), font);
        let left = 2.4 * font + y.label_room(font) + 6.0;
        let width = (f64::from(size.width) - left - right - gap * (count - 1.0)) / count;
        let base = f64::from(size.height) - bottom;
        if width < 40.0 || base - top < 40.0 {
            return Err(Error::Shape {
                what: "size of a row of panels",
                expected: format!("room for {count} panels of at least 40 points"),
                got: format!("{} × {}", size.width, size.height),
            });
        }
        let x = self.scale(0, width, font);

        Ok(draw(size, |canvas| {
            for (i, content) in self.panels.iter().enumerate() {
                let start = left + i as f64 * (width + gap);
                let panel = Panel { from: [start, top], to: [start + width, base], x: &x, y: &y };
                let pairs = content.samples.as_chunks::<2>().0;
                for &[a, b] in thinned(pairs.len(), PANEL_DOTS).map(|i| &pairs[i]) {
                    if x.contains(a) && y.contains(b) {
                        canvas.dot(panel.place([a, b]), 1.0, PALETTE[0], 0.4);
                    }
                }
                if let Some(log_density) = &content.log_density {
                    let field = exact_density(log_density, &x, &y);
                    for (level, pen) in field.highest_density_levels(&MASSES).into_iter().zip([1.4, 1.0, 0.6])
                    {
                        for contour in field.contours(level) {
                            panel.contour(canvas, &contour, Pen::new(INK, pen));
                        }
                    }
                }
                canvas.frame(panel.from, panel.to, Pen::new(INK, 0.6));
                panel.ticks_below(canvas, font, Labels::Within(OVERHANG));
                panel.ticks_left(canvas, font, if i == 0 { Labels::All } else { Labels::None });
                let middle = start + 0.5 * width;
                canvas.fitted(
                    std::slice::from_ref(&content.title),
                    [middle, top - 0.9 * font],
                    1.1 * font,
                    width,
                    false,
                );
                let label = x.label(&self.names[0], None, font, f64::INFINITY);
                canvas.fitted(&label, [middle, base + 6.0 + 2.0 * font], font, width, false);
            }
            let label = y.label(&self.names[1], None, font, f64::INFINITY);
            canvas.fitted(&label, [1.1 * font, 0.5 * (top + base)], font, base - top, true);

            // The legend: one line above the titles.
            let y = 1.2 * font;
            canvas.dot([left + 3.0, y], 1.8, PALETTE[0], 0.8);
            canvas.text(&self.draws_label, [left + 1.2 * font, y], font, Align::Left, false);
            if self.panels.iter().any(|p| p.log_density.is_some()) {
                let next = left + 3.2 * font + text_width(&self.draws_label, font);
                canvas.line(&[[next, y], [next + 1.6 * font, y]], Pen::new(INK, 1.2));
                canvas.text(&self.density_label, [next + 2.1 * font, y], font, Align::Left, false);
            }
        }))
    }

    fn check(&self) -> Result<()> {
        if self.panels.is_empty() {
            let (expected, got) = ("at least one panel".to_owned(), "none".to_owned());
            return Err(Error::Shape { what: "row of panels", expected, got });
        }
        for panel in &self.panels {
            if panel.samples.is_empty() || panel.samples.len() % 2 != 0 {
                return Err(Error::Shape {
                    what: "samples of a panel",
                    expected: "one or more rows of 2 values".to_owned(),
                    got: format!("{} values in {:?}", panel.samples.len(), panel.title),
                });
            }
            if let Some(i) = panel.samples.iter().position(|v| !v.is_finite()) {
                return Err(Error::Numerical(format!(
                    "sample {} of {:?} has {} = {}; only finite samples can be drawn",
                    i / 2 + 1,
                    panel.title,
                    self.names[i % 2],
                    panel.samples[i]
                )));
            }
        }
        for [low, high] in self.limits.into_iter().flatten() {
            if !(low < high && (high - low).is_finite()) {
                let (expected, got) = ("low < high".to_owned(), format!("{low} to {high}"));
                return Err(Error::Shape { what: "limits of a row of panels", expected, got });
            }
        }
        Ok(())
    }

    fn scale(&self, axis: usize, room: f64, font: f64) -> Scale {
        let [low, high] = self.limits.map_or_else(
            || {
                let samples = self.panels.iter().flat_map(|p| p.samples.iter().skip(axis).step_by(2));
                let samples: Vec<f64> = samples.copied().collect();
                limits(bulk(&samples, None), &[], 0.0, UNBOUNDED).into()
            },
            |given| given[axis],
        );
        Scale::fitted(low, high, Room { length: room, overhang: OVERHANG, font }, 5)
    }
}

/// exp(log density - its maximum) on the grid of the picture, which keeps the levels' order and never overflows.
fn exact_density(log_density: &dyn Fn(f64, f64) -> f64, x: &Scale, y: &Scale) -> Field {
    let axis = |scale: &Scale| Axis { low: scale.low, high: scale.high, count: GRID_POINTS };
    let mut field = Field::tabulate(axis(x), axis(y), log_density);
    let highest = field.values.iter().copied().filter(|v| v.is_finite()).fold(f64::NEG_INFINITY, f64::max);
    for value in &mut field.values {
        *value = if value.is_finite() { (*value - highest).exp() } else { 0.0 };
    }
    field
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    use super::*;

    /// Normal draws with a fixed seed.
    pub(in super::super) fn square_draws(count: usize) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        (0..count).map(|_| rng.sample(StandardNormal)).collect()
    }

    /// Keeps a picture for the eye when BRENIER_PICTURES is set.
    pub(in super::super) fn save(name: &str, svg: &str) {
        if std::env::var_os("BRENIER_PICTURES").is_some() {
            let path = std::env::temp_dir().join(format!("brenier_{name}"));
            std::fs::write(path.with_extension("svg"), svg).unwrap();
            #[cfg(feature = "png")]
            std::fs::write(path.with_extension("png"), super::super::png(svg, 2.0).unwrap()).unwrap();
        }
    }

    fn example() -> ConditionalPanels<'static> {
        [-1.0, 0.0, 1.5].into_iter().fold(ConditionalPanels::new(["x₁", "x₂"]), |row, y: f64| {
            let mut samples = square_draws(4000);
            for pair in samples.chunks_mut(2) {
                pair[0] += y;
                pair[1] = 0.5 * pair[1] + pair[0] * pair[0] - 1.0;
            }
            row.panel(
                ConditionalPanel::new(format!("y = {y}"), samples)
                    .log_density(move |a, b| -0.5 * (a - y).powi(2) - 2.0 * (b + 1.0 - a * a).powi(2)),
            )
        })
    }

    #[test]
    fn the_row_has_titles_names_and_contours() {
        let size = PictureSize { width: 720, height: 290 };
        let svg = example().to_svg(size).unwrap();
        assert_eq!(svg, example().to_svg(size).unwrap());
        for word in ["y = -1", "y = 0", "y = 1.5", "x₁", "x₂", "draws from the learned map", "polyline"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        save("panels", &svg);
    }

    #[test]
    fn degenerate_panels_are_drawn_and_mistakes_named() {
        let size = PictureSize { width: 400, height: 200 };
        let row = || ConditionalPanels::new(["a", "b"]);
        for density in [f64::NEG_INFINITY, f64::NAN, 0.0, 1e308] {
            let panel = ConditionalPanel::new("t", vec![1.0, 1.0]).log_density(move |_, _| density);
            let svg = row().panel(panel).to_svg(size).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
        assert!(row().to_svg(size).is_err());
        assert!(row().panel(ConditionalPanel::new("t", vec![1.0])).to_svg(size).is_err());
        let bad = row().panel(ConditionalPanel::new("t", vec![1.0, f64::NAN])).to_svg(size);
        assert!(bad.unwrap_err().to_string().contains("b = NaN"));
    }
}
