//! Curves over a common axis: training and accuracy curves, calibration, with bands, error bars and reference lines.

use super::canvas::{
    Canvas, Colour, INK, Labels, Legend, PALETTE, Panel, Pen, PictureSize, Room, Scale, Swatch, clipped,
    draw, span,
};
use crate::{Error, Result};

/// One curve of a [`CurvePlot`]: points (x, y) joined by lines unless said otherwise.
///
/// A `y` that is not finite leaves a gap.
#[derive(Clone, Debug)]
pub struct Curve {
    label: String,
    x: Vec<f64>,
    y: Vec<f64>,
    range: Option<(Vec<f64>, Vec<f64>, RangeStyle)>,
    colour: Option<Colour>,
    line: bool,
    markers: bool,
    dashed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum RangeStyle {
    Band,
    Bars,
}

impl Curve {
    /// A line through the points; an empty `label` keeps it out of the legend.
    pub fn line(label: impl Into<String>, x: impl Into<Vec<f64>>, y: impl Into<Vec<f64>>) -> Self {
        Self {
            label: label.into(),
            x: x.into(),
            y: y.into(),
            range: None,
            colour: None,
            line: true,
            markers: false,
            dashed: false,
        }
    }

    /// The points alone.
    pub fn points(label: impl Into<String>, x: impl Into<Vec<f64>>, y: impl Into<Vec<f64>>) -> Self {
        Self { line: false, markers: true, ..Self::line(label, x, y) }
    }

    /// The area between `low` and `high`, without a line: a region in which curves may lie.
    pub fn area(
        label: impl Into<String>,
        x: impl Into<Vec<f64>>,
        low: impl Into<Vec<f64>>,
        high: impl Into<Vec<f64>>,
    ) -> Self {
        let (low, high) = (low.into(), high.into());
        Self { line: false, ..Self::line(label, x, low.clone()).band(low, high) }
    }

    /// Marks every point on the line.
    pub fn with_markers(mut self) -> Self {
        self.markers = true;
        self
    }

    /// Dashes instead of a full line.
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }

    /// Fills the area between `low` and `high`.
    pub fn band(mut self, low: impl Into<Vec<f64>>, high: impl Into<Vec<f64>>) -> Self {
        self.range = Some((low.into(), high.into(), RangeStyle::Band));
        self
    }

    /// A bar from `low` to `high` at every point.
    pub fn bars(mut self, low: impl Into<Vec<f64>>, high: impl Into<Vec<f64>>) -> Self {
        self.range = Some((low.into(), high.into(), RangeStyle::Bars));
        self
    }

    /// Bars of y ± `error`.
    pub fn errors(self, error: &[f64]) -> Self {
        let side = |sign: f64| self.y.iter().zip(error).map(|(y, e)| y + sign * e).collect::<Vec<f64>>();
        let (low, high) = (side(-1.0), side(1.0));
        self.bars(low, high)
    }

    /// A colour of its own, instead of the next of [`PALETTE`].
    pub fn colour(mut self, colour: Colour) -> Self {
        self.colour = Some(colour);
        self
    }
}

/// A straight line to compare with.
#[derive(Clone, Copy, Debug)]
enum Reference {
    Horizontal(f64),
    Vertical(f64),
    Diagonal,
}

/// [`Curve`]s in one panel with a legend above it.
///
/// ```
/// use brenier_report::{Curve, CurvePlot, PictureSize};
///
/// let steps = [1.0, 2.0, 4.0, 8.0];
/// let svg = CurvePlot::new("steps", "error")
///     .log_x()
///     .log_y()
///     .curve(Curve::line("COT-Flow", steps, [0.3, 0.1, 0.03, 0.01]).with_markers())
///     .horizontal("single precision", 0.02)
///     .to_svg(PictureSize { width: 420, height: 300 })?;
/// assert!(svg.contains("COT-Flow"));
/// # Ok::<(), brenier_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CurvePlot {
    names: [String; 2],
    units: [Option<String>; 2],
    title: Option<String>,
    log: [bool; 2],
    limits: [Option<[f64; 2]>; 2],
    curves: Vec<Curve>,
    references: Vec<(String, Reference)>,
}

impl CurvePlot {
    /// A plot without curves; the names label the axes.
    pub fn new(x: impl Into<String>, y: impl Into<String>) -> Self {
        Self { names: [x.into(), y.into()], ..Self::default() }
    }

    /// Units of the axes; an empty string for none.
    pub fn units(mut self, x: &str, y: &str) -> Self {
        self.units = [x, y].map(|unit| (!unit.is_empty()).then(|| unit.to_owned()));
        self
    }

    /// A heading.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// A logarithmic horizontal axis.
    pub fn log_x(mut self) -> Self {
        self.log[0] = true;
        self
    }

    /// A logarithmic vertical axis.
    pub fn log_y(mut self) -> Self {
        self.log[1] = true;
        self
    }

    /// Shows `low` to `high` of the horizontal axis, instead of where the curves are.
    pub fn limits_x(mut self, low: f64, high: f64) -> Self {
        self.limits[0] = Some([low, high]);
        self
    }

    /// Shows `low` to `high` of the vertical axis, instead of where the curves are.
    pub fn limits_y(mut self, low: f64, high: f64) -> Self {
        self.limits[1] = Some([low, high]);
        self
    }

    /// Adds a curve, above those before it.
    pub fn curve(mut self, curve: Curve) -> Self {
        self.curves.push(curve);
        self
    }

    /// A dashed line at y = `value`; it is always in the picture.
    pub fn horizontal(mut self, label: impl Into<String>, value: f64) -> Self {
        self.references.push((label.into(), Reference::Horizontal(value)));
        self
    }

    /// A dashed line at x = `value`; it is always in the picture.
    pub fn vertical(mut self, label: impl Into<String>, value: f64) -> Self {
        self.references.push((label.into(), Reference::Vertical(value)));
        self
    }

    /// The dashed line y = x.
    pub fn diagonal(mut self, label: impl Into<String>) -> Self {
        self.references.push((label.into(), Reference::Diagonal));
        self
    }

    /// Draws the plot.
    ///
    /// # Errors
    ///
    /// When there is no curve or nothing finite in it, lengths differ, a value on a logarithmic axis is not positive,
    /// limits are not in order, or `size` is too small.
    pub fn to_svg(&self, size: PictureSize) -> Result<String> {
        self.check()?;
        // Curves with colours of their own take none from the palette.
        let mut free = 0..;
        let mut number = |curve: &Curve| if curve.colour.is_none() { free.next().unwrap_or(0) } else { 0 };
        let curves: Vec<Drawn> = self.curves.iter().map(|curve| self.drawn(number(curve), curve)).collect();
        let font = 9.0;
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        let legend = Legend::new(self.legend(&curves), font, width - 16.0);
        let heading = if self.title.is_some() { 1.8 * font } else { 0.0 };
        let top = 6.0 + heading + legend.height() + 0.4 * font;
        let base = height - 6.0 - 3.4 * font;
        let y = self.scale(1, &curves, base - top, font);
        let left = 2.2 * font + y.label_room(font) + 7.0;
        let right = width - 1.4 * font;
        if right - left < 60.0 || base - top < 40.0 {
            return Err(Error::Shape {
                what: "size of a plot of curves",
                expected: "room for a panel of 60 × 40 points beside labels and legend".to_owned(),
                got: format!("{} × {}", size.width, size.height),
            });
        }
        let x = self.scale(0, &curves, right - left, font);
        let panel = Panel { from: [left, top], to: [right, base], x: &x, y: &y };
        Ok(draw(size, |canvas| {
            if let Some(title) = &self.title {
                let middle = [0.5 * (left + right), 6.0 + 0.6 * font];
                canvas.fitted(std::slice::from_ref(title), middle, 1.15 * font, right - left, false);
            }
            legend.draw(canvas, [left.min(width - 8.0 - legend.used()).max(8.0), 6.0 + heading]);
            panel.grid(canvas);
            for curve in &curves {
                curve.draw_range(canvas, &panel);
            }
            for (i, (_, reference)) in self.references.iter().enumerate() {
                let ends = self.reference_ends(*reference, &x, &y);
                let ends: Vec<[f64; 2]> = ends.into_iter().map(|end| panel.place(end)).collect();
                for piece in clipped(&ends, panel.from, panel.to) {
                    canvas.dashed(&piece, REFERENCE_PEN, REFERENCE_DASHES[i % REFERENCE_DASHES.len()]);
                }
            }
            for curve in &curves {
                curve.draw_line(canvas, &panel);
            }
            canvas.frame(panel.from, panel.to, Pen::new(INK, 0.6));
            panel.ticks_below(canvas, font, Labels::All);
            panel.ticks_left(canvas, font, Labels::All);
            let unit = |axis: usize| self.units[axis].as_deref();
            let label = x.label(&self.names[0], unit(0), font, f64::INFINITY);
            canvas.fitted(&label, [0.5 * (left + right), base + 5.0 + 2.1 * font], font, right - left, false);
            let label = y.label(&self.names[1], unit(1), font, f64::INFINITY);
            canvas.fitted(&label, [1.1 * font, 0.5 * (top + base)], font, base - top, true);
        }))
    }

    fn check(&self) -> Result<()> {
        if self.curves.is_empty() {
            let (expected, got) = ("at least one curve".to_owned(), "none".to_owned());
            return Err(Error::Shape { what: "plot of curves", expected, got });
        }
        for curve in &self.curves {
            let n = curve.x.len();
            let range = curve.range.as_ref().map_or([n, n], |(low, high, _)| [low.len(), high.len()]);
            if n == 0 || curve.y.len() != n || range != [n, n] {
                return Err(Error::Shape {
                    what: "curve",
                    expected: "one or more x, and as many y and ends of bars".to_owned(),
                    got: format!("{n} x and {} y in {:?}", curve.y.len(), curve.label),
                });
            }
            if let Some(i) = curve.x.iter().position(|x| !x.is_finite()) {
                return Err(Error::Domain(format!(
                    "point {} of {:?} has {} = {}: it must be finite",
                    i + 1,
                    curve.label,
                    self.names[0],
                    curve.x[i]
                )));
            }
            if !curve.y.iter().any(|y| y.is_finite()) {
                return Err(Error::Domain(format!("no {} of {:?} is finite", self.names[1], curve.label)));
            }
            for (axis, values) in [(0, &curve.x), (1, &curve.y)] {
                let wrong = values.iter().position(|&v| self.log[axis] && v.is_finite() && v <= 0.0);
                if let Some(i) = wrong {
                    return Err(Error::Domain(format!(
                        "point {} of {:?} has {} = {}: only positive values have a place on a logarithmic axis",
                        i + 1,
                        curve.label,
                        self.names[axis],
                        values[i]
                    )));
                }
            }
        }
        for (label, reference) in &self.references {
            let (axis, value) = match reference {
                Reference::Vertical(value) => (0, *value),
                Reference::Horizontal(value) => (1, *value),
                Reference::Diagonal => continue,
            };
            if !value.is_finite() || (self.log[axis] && value <= 0.0) {
                return Err(Error::Domain(format!(
                    "the line {label:?} at {} = {value} has no place on the axis",
                    self.names[axis]
                )));
            }
        }
        for (axis, limits) in self.limits.iter().enumerate() {
            let Some([low, high]) = *limits else { continue };
            if !(low < high && (high - low).is_finite()) || (self.log[axis] && low <= 0.0) {
                let expected =
                    if self.log[axis] { "0 < low < high on a logarithmic axis" } else { "low < high" };
                let (expected, got) =
                    (expected.to_owned(), format!("{low} to {high} for {}", self.names[axis]));
                return Err(Error::Shape { what: "limits of a plot of curves", expected, got });
            }
        }
        Ok(())
    }

    /// A value's place on an axis: itself or its logarithm. What has none, as the end of an error bar below zero on a
    /// logarithmic axis, is minus infinity.
    fn place(&self, axis: usize, value: f64) -> f64 {
        match self.log[axis] {
            false => value,
            true if value > 0.0 => value.log10(),
            true if value.is_nan() => f64::NAN,
            true => f64::NEG_INFINITY,
        }
    }

    fn drawn(&self, index: usize, curve: &Curve) -> Drawn {
        let places = |axis, values: &[f64]| values.iter().map(|&v| self.place(axis, v)).collect::<Vec<f64>>();
        Drawn {
            x: places(0, &curve.x),
            y: places(1, &curve.y),
            range: curve.range.as_ref().map(|(low, high, style)| (places(1, low), places(1, high), *style)),
            colour: curve.colour.unwrap_or(PALETTE[index % PALETTE.len()]),
            line: curve.line,
            shape: curve.markers.then_some(index),
            dashed: curve.dashed,
        }
    }

    fn legend(&self, curves: &[Drawn]) -> Vec<(Swatch, String)> {
        let of_curves = curves.iter().zip(&self.curves).map(|(drawn, curve)| {
            let pen = Pen::new(drawn.colour, CURVE_WIDTH);
            let swatch = match (drawn.line, drawn.dashed, drawn.shape) {
                (false, _, Some(shape)) => Swatch::Marker(drawn.colour, shape),
                (false, _, None) => Swatch::Area(drawn.colour, BAND_OPACITY),
                (true, true, None) => Swatch::Dashed(pen, CURVE_DASH),
                (true, _, shape) => Swatch::Line(pen, shape),
            };
            (swatch, curve.label.clone())
        });
        let of_references = self.references.iter().enumerate().map(|(i, (label, _))| {
            let dash = REFERENCE_DASHES[i % REFERENCE_DASHES.len()];
            (Swatch::Dashed(REFERENCE_PEN, dash), label.clone())
        });
        of_curves.chain(of_references).collect()
    }

    fn scale(&self, axis: usize, curves: &[Drawn], room: f64, font: f64) -> Scale {
        let (low, high) = match self.limits[axis] {
            Some([low, high]) => (self.place(axis, low), self.place(axis, high)),
            None => {
                let mut values: Vec<f64> = match axis {
                    0 => curves.iter().flat_map(|c| &c.x).copied().collect(),
                    _ => curves
                        .iter()
                        .flat_map(|c| {
                            let ends = c.range.iter().flat_map(|(low, high, _)| low.iter().chain(high));
                            c.y.iter().chain(ends)
                        })
                        .copied()
                        .collect(),
                };
                values.extend(self.references.iter().filter_map(|(_, reference)| match (axis, reference) {
                    (0, Reference::Vertical(value)) | (1, Reference::Horizontal(value)) => {
                        Some(self.place(axis, *value))
                    }
                    _ => None,
                }));
                span(values.into_iter().filter(|v| v.is_finite()), self.log[axis])
            }
        };
        // A vertical axis has room for a label every three lines.
        let most = if axis == 0 { 8 } else { (room / (3.0 * font)) as usize };
        let room = if axis == 0 { room } else { f64::INFINITY };
        match self.log[axis] {
            true => Scale::logarithmic(low, high, Room { length: room, overhang: f64::INFINITY, font }, most),
            false => Scale::new(low, high, room, font, most),
        }
    }

    fn reference_ends(&self, reference: Reference, x: &Scale, y: &Scale) -> Vec<[f64; 2]> {
        match reference {
            Reference::Horizontal(value) => {
                let at = self.place(1, value);
                vec![[x.low, at], [x.high, at]]
            }
            Reference::Vertical(value) => {
                let at = self.place(0, value);
                vec![[at, y.low], [at, y.high]]
            }
            // Straight if both axes are of one kind, else curved.
            Reference::Diagonal => (0..=100)
                .map(|i| {
                    let at = x.low + f64::from(i) / 100.0 * (x.high - x.low);
                    let value = if self.log[0] { 10f64.powf(at) } else { at };
                    [at, self.place(1, value).max(y.low - (y.high - y.low))]
                })
                .collect(),
        }
    }
}

const CURVE_WIDTH: f64 = 1.4;
const BAND_OPACITY: f64 = 0.2;
const CURVE_DASH: f64 = 5.0;
/// Reference lines differ in the length of their dashes.
const REFERENCE_DASHES: [f64; 3] = [4.5, 1.5, 9.0];
const REFERENCE_PEN: Pen = Pen { colour: INK, opacity: 1.0, width: 0.9 };

/// A curve in places on the axes.
struct Drawn {
    x: Vec<f64>,
    y: Vec<f64>,
    range: Option<(Vec<f64>, Vec<f64>, RangeStyle)>,
    colour: Colour,
    line: bool,
    /// The shape of the markers, if any.
    shape: Option<usize>,
    dashed: bool,
}

impl Drawn {
    fn draw_range(&self, canvas: &mut Canvas, panel: &Panel<'_>) {
        let Some((low, high, style)) = &self.range else { return };
        let inside = |value: f64| value.clamp(panel.y.low, panel.y.high);
        let ends: Vec<Option<[[f64; 2]; 2]>> = (0..self.x.len())
            .map(|i| {
                let there = !(low[i].is_nan() || high[i].is_nan() || self.y[i].is_nan());
                there.then(|| [low[i], high[i]].map(|value| panel.place([self.x[i], inside(value)])))
            })
            .collect();
        match style {
            RangeStyle::Band => {
                for run in ends.split(Option::is_none) {
                    let run: Vec<[[f64; 2]; 2]> = run.iter().copied().flatten().collect();
                    let upper = run.iter().map(|ends| ends[1]);
                    let mut area: Vec<[f64; 2]> = upper.chain(run.iter().rev().map(|ends| ends[0])).collect();
                    // Limits narrower than the curve: what lies beside the panel collapses onto its border.
                    for point in &mut area {
                        point[0] = point[0].clamp(panel.from[0], panel.to[0]);
                    }
                    if run.len() > 1 {
                        canvas.polygon(&area, self.colour, BAND_OPACITY);
                    }
                }
            }
            RangeStyle::Bars => {
                let pen = Pen::new(self.colour, 0.9);
                for (i, ends) in ends.into_iter().enumerate() {
                    let Some(ends) = ends.filter(|_| panel.x.contains(self.x[i])) else { continue };
                    canvas.line(&ends, pen);
                    // A bar that extends beyond the picture has no end there.
                    for (value, end) in [low[i], high[i]].into_iter().zip(ends) {
                        if panel.y.contains(value) {
                            canvas.line(&[[end[0] - 2.2, end[1]], [end[0] + 2.2, end[1]]], pen);
                        }
                    }
                }
            }
        }
    }

    fn draw_line(&self, canvas: &mut Canvas, panel: &Panel<'_>) {
        let points: Vec<[f64; 2]> = self.x.iter().zip(&self.y).map(|(&x, &y)| [x, y]).collect();
        let pen = Pen::new(self.colour, CURVE_WIDTH);
        if self.line {
            for run in points.split(|point| !point[1].is_finite()) {
                let run: Vec<[f64; 2]> = run.iter().map(|&point| panel.place(point)).collect();
                for piece in clipped(&run, panel.from, panel.to) {
                    match self.dashed {
                        true => canvas.dashed(&piece, pen, CURVE_DASH),
                        false => canvas.line(&piece, pen),
                    }
                }
                // A point between two gaps is no line.
                if let ([point], None) = (&run[..], self.shape) {
                    canvas.dot(*point, 1.2, self.colour, 1.0);
                }
            }
        }
        if let Some(shape) = self.shape {
            for &[x, y] in points.iter().filter(|p| panel.x.contains(p[0]) && panel.y.contains(p[1])) {
                canvas.marker(panel.place([x, y]), 2.3, shape, self.colour);
            }
        }
    }
}

#[cfg(test)]
mod tests;
