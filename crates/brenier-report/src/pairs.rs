//! The pair plot: marginal densities on the diagonal, joint densities below it, several samples on top of another.

use super::canvas::{
    Align, Canvas, Colour, FRAME, INK, Labels, PALETTE, PAPER, Panel, Pen, PictureSize, Room, Scale, bulk,
    draw, limits, resampled, text_width, thinned,
};
use super::density::{Axis, Smoothed, UNBOUNDED};
use crate::{Error, Result};

/// One set of samples in a [`PairPlot`].
#[derive(Clone, Debug)]
pub struct SampleLayer {
    /// Its name in the legend.
    pub label: String,
    /// Row-major, one column per quantity of the plot.
    pub samples: Vec<f64>,
    /// One for each row, not negative, if the rows do not count alike; they need not sum to one.
    pub weights: Option<Vec<f64>>,
    /// Its colour.
    pub colour: Colour,
}

/// A matrix of panels, one row and column per quantity.
///
/// The contours bound the regions of highest estimated density that hold 50 % and 90 % of the samples in the picture. On a
/// logarithmic axis ([`Self::log`]) the densities are those of the logarithm, so that areas in the picture are
/// probabilities there too.
///
/// ```
/// use brenier_report::{PairPlot, PictureSize};
///
/// let draws = vec![0.1, 2.0, 0.3, 2.5, 0.2, 2.2];
/// let svg = PairPlot::new(["growth", "decay"])
///     .units(["1/h", "1/h"])
///     .layer("posterior", draws)
///     .truth([0.2, 2.1])
///     .to_svg(PictureSize { width: 400, height: 400 })?;
/// assert!(svg.starts_with("<svg"));
/// # Ok::<(), brenier_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PairPlot {
    names: Vec<String>,
    units: Vec<String>,
    layers: Vec<SampleLayer>,
    truth: Option<Vec<f64>>,
    mode: Option<Vec<f64>>,
    limits: Vec<(usize, f64, f64)>,
    log: Vec<usize>,
    supports: Vec<(usize, f64, f64)>,
}

/// How far tick labels may reach beyond a panel; the next one is 6 points away.
const OVERHANG: f64 = 2.0;
/// Points of the grids of marginal and joint densities.
const MARGINAL_POINTS: usize = 256;
const JOINT_POINTS: usize = 96;
/// Faint points in one panel, and in the whole picture: a picture of many quantities must still load.
const PANEL_DOTS: usize = 400;
const PICTURE_DOTS: usize = 15_000;

/// A mark at one point of the space of quantities.
#[derive(Clone, Copy)]
enum Mark {
    Truth,
    Mode,
}

impl Mark {
    fn label(self) -> &'static str {
        match self {
            Self::Truth => "truth",
            Self::Mode => "mode (MAP)",
        }
    }

    /// Truth is a cross, the mode an open diamond; both on a white halo.
    fn draw(self, canvas: &mut Canvas, [x, y]: [f64; 2], r: f64) {
        for pen in [Pen::new(PAPER, 2.6), Pen::new(INK, 1.4)] {
            match self {
                Self::Truth => {
                    canvas.line(&[[x - r, y - r], [x + r, y + r]], pen);
                    canvas.line(&[[x - r, y + r], [x + r, y - r]], pen);
                }
                Self::Mode => {
                    let s = 1.3 * r;
                    canvas
                        .line(&[[x, y - s], [x + s, y], [x, y + s], [x - s, y], [x, y - s], [x + s, y]], pen);
                }
            }
        }
    }

    /// On the diagonal: truth a full line, the mode a dashed one.
    fn draw_line(self, canvas: &mut Canvas, x: f64, top: f64, bottom: f64) {
        let pen = Pen::new(INK, 1.0);
        match self {
            Self::Truth => canvas.line(&[[x, top], [x, bottom]], pen),
            Self::Mode => {
                let mut y = top;
                while y < bottom {
                    canvas.line(&[[x, y], [x, (y + 3.0).min(bottom)]], pen);
                    y += 5.5;
                }
            }
        }
    }
}

/// Sizes shared by all panels of one picture.
struct Layout {
    font: f64,
    /// Room for the labels left of the ticks.
    beside: f64,
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    gap: f64,
    legend_font: f64,
}

impl PairPlot {
    /// A plot of the quantities `names`.
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The units of the quantities; an empty string for one without.
    pub fn units<S: Into<String>>(mut self, units: impl IntoIterator<Item = S>) -> Self {
        self.units = units.into_iter().map(Into::into).collect();
        self
    }

    /// Adds row-major `samples` in the next colour of [`PALETTE`].
    pub fn layer(self, label: impl Into<String>, samples: Vec<f64>) -> Self {
        let colour = PALETTE[self.layers.len() % PALETTE.len()];
        self.sample_layer(SampleLayer { label: label.into(), samples, weights: None, colour })
    }

    /// Adds row-major `samples` whose rows have `weights`, as SMC-ABC's particles do, in the next colour of [`PALETTE`].
    pub fn weighted_layer(self, label: impl Into<String>, samples: Vec<f64>, weights: Vec<f64>) -> Self {
        let colour = PALETTE[self.layers.len() % PALETTE.len()];
        self.sample_layer(SampleLayer { label: label.into(), samples, weights: Some(weights), colour })
    }

    /// Adds a layer.
    pub fn sample_layer(mut self, layer: SampleLayer) -> Self {
        self.layers.push(layer);
        self
    }

    /// Marks the values that the data were simulated with.
    pub fn truth(mut self, values: impl Into<Vec<f64>>) -> Self {
        self.truth = Some(values.into());
        self
    }

    /// Marks the posterior mode.
    pub fn mode(mut self, values: impl Into<Vec<f64>>) -> Self {
        self.mode = Some(values.into());
        self
    }

    /// Gives the quantities `columns` (from 0) logarithmic axes.
    pub fn log(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.log.extend(columns);
        self
    }

    /// Shows quantity `column` from `low` to `high`, instead of where the samples are.
    pub fn limits(mut self, column: usize, low: f64, high: f64) -> Self {
        self.limits.push((column, low, high));
        self
    }

    /// Says that quantity `column` lies between `low` and `high`, of which one may be infinite: no density crosses them.
    pub fn support(mut self, column: usize, low: f64, high: f64) -> Self {
        self.supports.push((column, low, high));
        self
    }

    /// Draws the plot.
    ///
    /// # Errors
    ///
    /// When samples, units or marks do not have one entry per name, when there is nothing to draw, when a value is
    /// not finite, outside its support or, on a logarithmic axis, not positive, when weights are negative or all zero, or
    /// when `size` leaves no room for the panels.
    pub fn to_svg(&self, size: PictureSize) -> Result<String> {
        self.check()?;
        let places: Vec<Vec<Vec<f64>>> =
            self.layers.iter().map(|l| (0..self.names.len()).map(|c| self.column(l, c)).collect()).collect();
        let layers: Vec<Vec<Smoothed<'_>>> = self
            .layers
            .iter()
            .zip(&places)
            .map(|(layer, columns)| {
                let weights = layer.weights.as_deref();
                let columns = columns.iter().enumerate();
                columns.map(|(c, values)| Smoothed::new(values, weights, self.bounds(c))).collect()
            })
            .collect();
        // Ticks depend on the panels' size and the margins on the ticks' labels: the margins grow until all fit.
        let (mut tick_ems, mut lines) = (0.0, [1, 1]);
        let (layout, scales) = loop {
            let layout = self.layout(size, tick_ems, lines)?;
            let scales = self.scales(&layout, &layers);
            let needed =
                scales.iter().skip(1).map(|s| s.label_room(layout.font)).fold(0.0, f64::max) / layout.font;
            let needed_lines = [(layout.width, 0), (layout.height, 1)].map(|(room, from)| {
                (from..self.names.len())
                    .map(|i| self.label(&scales, i, &layout, room).len())
                    .max()
                    .unwrap_or(0)
            });
            if needed <= tick_ems && needed_lines[0] <= lines[0] && needed_lines[1] <= lines[1] {
                break (layout, scales);
            }
            tick_ems = needed.max(tick_ems);
            lines = [0, 1].map(|axis| needed_lines[axis].max(lines[axis]));
        };
        Ok(draw(size, |canvas| {
            for row in 0..self.names.len() {
                for column in 0..=row {
                    self.draw_panel(canvas, &layout, &scales, &layers, [column, row]);
                }
            }
            self.draw_legend(canvas, &layout, f64::from(size.width));
        }))
    }

    fn check(&self) -> Result<()> {
        let n = self.names.len();
        let wrong = |what, expected: String, got: String| Err(Error::Shape { what, expected, got });
        if n == 0 || self.layers.is_empty() {
            let got = format!("{n} names and {} layers", self.layers.len());
            return wrong("pair plot", "at least one name and one layer of samples".to_owned(), got);
        }
        if !self.units.is_empty() && self.units.len() != n {
            return wrong("units of a pair plot", n.to_string(), self.units.len().to_string());
        }
        for layer in &self.layers {
            if layer.samples.is_empty() || layer.samples.len() % n != 0 {
                let got = format!("{} values in {:?}", layer.samples.len(), layer.label);
                return wrong("samples of a pair plot", format!("one or more rows of {n} values"), got);
            }
            if let Some(i) = layer.samples.iter().position(|v| !v.is_finite()) {
                return Err(Error::Numerical(format!(
                    "sample {} of {:?} has {} = {}; only finite samples can be drawn",
                    i / n + 1,
                    layer.label,
                    self.names[i % n],
                    layer.samples[i]
                )));
            }
            let outside = |i: &usize| self.log.contains(&(i % n)) && layer.samples[*i] <= 0.0;
            if let Some(i) = (0..layer.samples.len()).find(outside) {
                return Err(Error::Domain(format!(
                    "sample {} of {:?} has {} = {}: only positive values have a place on a logarithmic axis",
                    i / n + 1,
                    layer.label,
                    self.names[i % n],
                    layer.samples[i]
                )));
            }
            let Some(weights) = &layer.weights else { continue };
            if weights.len() * n != layer.samples.len() {
                let got = format!("{} in {:?}", weights.len(), layer.label);
                return wrong("weights of a pair plot", format!("{}", layer.samples.len() / n), got);
            }
            if let Some(row) = weights.iter().position(|weight| !(*weight >= 0.0 && weight.is_finite())) {
                return Err(Error::Domain(format!(
                    "the weight of sample {} of {:?} is {}: weights must be finite and not negative",
                    row + 1,
                    layer.label,
                    weights[row]
                )));
            }
            if weights.iter().all(|weight| *weight == 0.0) {
                return Err(Error::Domain(format!("all weights of {:?} are zero", layer.label)));
            }
        }
        for (mark, values) in self.marks() {
            if values.len() != n {
                return wrong("mark of a pair plot", format!("{n} values"), values.len().to_string());
            }
            if let Some(i) = values.iter().position(|v| !v.is_finite()) {
                let (label, name) = (mark.label(), &self.names[i]);
                return Err(Error::Numerical(format!(
                    "the {label} of {name} is {}: it must be finite",
                    values[i]
                )));
            }
            if let Some(i) = (0..n).find(|i| self.log.contains(i) && values[*i] <= 0.0) {
                let (label, name) = (mark.label(), &self.names[i]);
                return Err(Error::Domain(format!(
                    "the {label} of {name} is {}: only positive values have a place on a logarithmic axis",
                    values[i]
                )));
            }
        }
        if let Some(column) = self.log.iter().find(|column| **column >= n) {
            return wrong(
                "logarithmic axes of a pair plot",
                format!("columns below {n}"),
                column.to_string(),
            );
        }
        for &(column, low, high) in &self.supports {
            if column >= n || low >= high || low.is_nan() || high.is_nan() {
                let got = format!("{low} to {high} for column {column}");
                return wrong("support in a pair plot", format!("low < high for a column below {n}"), got);
            }
            for layer in &self.layers {
                let mut values = layer.samples.iter().skip(column).step_by(n);
                if let Some(value) = values.find(|value| !(low..=high).contains(*value)) {
                    return Err(Error::Domain(format!(
                        "{:?} has {} = {value}, outside its support from {low} to {high}",
                        layer.label, self.names[column]
                    )));
                }
            }
        }
        for &(column, low, high) in &self.limits {
            let log = self.log.contains(&column);
            if column >= n || !(low < high && (high - low).is_finite()) || (log && low <= 0.0) {
                let got = format!("{low} to {high} for column {column}");
                let zero = if log { "0 < " } else { "" };
                return wrong(
                    "limits of a pair plot",
                    format!("{zero}low < high for a column below {n}"),
                    got,
                );
            }
        }
        Ok(())
    }

    fn marks(&self) -> impl Iterator<Item = (Mark, &[f64])> {
        // In the order of drawing: the smaller cross on top of the diamond.
        let mode = self.mode.as_deref().map(|values| (Mark::Mode, values));
        mode.into_iter().chain(self.truth.as_deref().map(|values| (Mark::Truth, values)))
    }

    /// Where a value of quantity `column` stands on its axis: at itself, or at its logarithm.
    fn place(&self, column: usize, value: f64) -> f64 {
        if self.log.contains(&column) { value.log10() } else { value }
    }

    /// The places of a layer's samples on the axis of `column`.
    fn column(&self, layer: &SampleLayer, column: usize) -> Vec<f64> {
        let values = layer.samples.iter().skip(column).step_by(self.names.len());
        values.map(|&value| self.place(column, value)).collect()
    }

    fn label(&self, scales: &[Scale], i: usize, layout: &Layout, room: f64) -> Vec<String> {
        let unit = self.units.get(i).map(String::as_str).filter(|u| !u.is_empty());
        scales[i].label(&self.names[i], unit, layout.font, room)
    }

    /// `tick_ems` is the width of the vertical axes' tick labels, `lines` those of the labels below and left.
    fn layout(&self, size: PictureSize, tick_ems: f64, lines: [usize; 2]) -> Result<Layout> {
        let n = self.names.len() as f64;
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        // Small panels get smaller text, but none that cannot be read.
        let font = (width.min(height) / n / 13.0).clamp(6.5, 10.0);
        let legend_font = font.max(8.0);
        let gap = 6.0;
        let [below, beside] = lines.map(|lines| 1.25 * lines as f64 * font);
        let left =
            if self.names.len() > 1 { tick_ems * font + beside + 0.5 * font + 8.0 } else { 1.5 * font };
        let bottom = 6.0 + 1.9 * font + below;
        // With more than one quantity the legend finds room in the empty corner.
        let top = if self.names.len() > 1 {
            8.0
        } else {
            8.0 + 1.5 * legend_font * (self.layers.len() + self.marks().count()) as f64
        };
        let panel_width = (width - left - 10.0 - gap * (n - 1.0)) / n;
        let panel_height = (height - top - bottom - gap * (n - 1.0)) / n;
        if panel_width < 20.0 || panel_height < 20.0 {
            return Err(Error::Shape {
                what: "size of a pair plot",
                expected: format!("room for {n} × {n} panels; about {} points each way", 60.0 * n + 80.0),
                got: format!("{} × {}", size.width, size.height),
            });
        }
        Ok(Layout { font, beside, left, top, width: panel_width, height: panel_height, gap, legend_font })
    }

    /// Between what the places of `column` lie on its axis.
    fn bounds(&self, column: usize) -> [f64; 2] {
        let Some(&(_, low, high)) = self.supports.iter().rev().find(|support| support.0 == column) else {
            return UNBOUNDED;
        };
        match self.log.contains(&column) {
            true => [low.max(0.0).log10(), high.log10()],
            false => [low, high],
        }
    }

    fn scales(&self, layout: &Layout, layers: &[Vec<Smoothed<'_>>]) -> Vec<Scale> {
        (0..self.names.len())
            .map(|column| {
                let given = self.limits.iter().rev().find(|limit| limit.0 == column);
                let (low, high) = given.map_or_else(
                    || {
                        let marks: Vec<f64> =
                            self.marks().map(|(_, values)| self.place(column, values[column])).collect();
                        // Each layer counts alike, however many samples it has.
                        let shown = layers.iter().map(|columns| {
                            // Where the kernel carries densities beyond the samples.
                            let (own, room) = (&columns[column], 3.0 * columns[column].bandwidth());
                            limits(bulk(own.samples(), own.weights()), &marks, room, own.bounds())
                        });
                        shown.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).expect("there is a layer")
                    },
                    |&(_, low, high)| (self.place(column, low), self.place(column, high)),
                );
                let room = Room { length: layout.width, overhang: OVERHANG, font: layout.font };
                match self.log.contains(&column) {
                    true => Scale::logarithmic(low, high, room, 5),
                    false => Scale::fitted(low, high, room, 5),
                }
            })
            .collect()
    }

    fn draw_panel(
        &self,
        canvas: &mut Canvas,
        layout: &Layout,
        scales: &[Scale],
        layers: &[Vec<Smoothed<'_>>],
        [column, row]: [usize; 2],
    ) {
        let n = self.names.len();
        let from = [
            layout.left + column as f64 * (layout.width + layout.gap),
            layout.top + row as f64 * (layout.height + layout.gap),
        ];
        let to = [from[0] + layout.width, from[1] + layout.height];
        let panel = Panel { from, to, x: &scales[column], y: &scales[row] };
        if row == column {
            self.draw_marginals(canvas, &panel, layers, column);
            canvas.line(&[[from[0], to[1]], to], Pen::new(FRAME, 0.6));
        } else {
            self.draw_joint(canvas, &panel, layers, [column, row]);
            canvas.frame(from, to, Pen::new(FRAME, 0.6));
        }

        let font = layout.font;
        let labels = |shown: bool| if shown { Labels::Within(OVERHANG) } else { Labels::None };
        panel.ticks_below(canvas, font, labels(row + 1 == n));
        if row + 1 == n {
            let label = self.label(scales, column, layout, layout.width);
            let at = [0.5 * (from[0] + to[0]), to[1] + 6.0 + 1.9 * font];
            canvas.fitted(&label, at, font, layout.width + layout.gap, false);
        }
        if row != column {
            panel.ticks_left(canvas, font, labels(column == 0));
            if column == 0 {
                let label = self.label(scales, row, layout, layout.height);
                // Short labels stand on the line next to the axis.
                let at = layout.beside - 1.25 * font * label.len() as f64 + 0.6 * font + 2.0;
                canvas.fitted(&label, [at, 0.5 * (from[1] + to[1])], font, layout.height + layout.gap, true);
            }
        }
    }

    /// Densities of all layers on one vertical scale.
    fn draw_marginals(
        &self,
        canvas: &mut Canvas,
        panel: &Panel<'_>,
        layers: &[Vec<Smoothed<'_>>],
        column: usize,
    ) {
        let axis = Axis { low: panel.x.low, high: panel.x.high, count: MARGINAL_POINTS };
        let densities: Vec<Vec<f64>> = layers.iter().map(|columns| columns[column].density(axis)).collect();
        let peak = densities.iter().flatten().copied().fold(0.0, f64::max);
        if peak > 0.0 {
            for (layer, density) in self.layers.iter().zip(&densities) {
                let (left, right, bottom) = (panel.from[0], panel.to[0], panel.to[1]);
                let height = 0.94 * (bottom - panel.from[1]);
                let curve: Vec<[f64; 2]> = density
                    .iter()
                    .enumerate()
                    .map(|(i, value)| {
                        let part = i as f64 / (MARGINAL_POINTS - 1) as f64;
                        [left + part * (right - left), bottom - value / peak * height]
                    })
                    .collect();
                let mut area = curve.clone();
                area.extend([[right, bottom], [left, bottom]]);
                canvas.polygon(&area, layer.colour, 0.18);
                canvas.line(&curve, Pen::new(layer.colour, 1.2));
            }
        }
        for (mark, values) in self.marks() {
            let at = self.place(column, values[column]);
            if !panel.x.contains(at) {
                continue;
            }
            let x = panel.place([at, panel.y.low])[0];
            mark.draw_line(canvas, x, panel.from[1], panel.to[1]);
        }
    }

    fn draw_joint(
        &self,
        canvas: &mut Canvas,
        panel: &Panel<'_>,
        layers: &[Vec<Smoothed<'_>>],
        [column, row]: [usize; 2],
    ) {
        let n = self.names.len();
        let budget = PICTURE_DOTS / (self.layers.len() * n * (n - 1) / 2);
        let axis = |scale: &Scale| Axis { low: scale.low, high: scale.high, count: JOINT_POINTS };
        for (layer, columns) in self.layers.iter().zip(layers) {
            let (xs, ys) = (columns[column].samples(), columns[row].samples());
            let most = budget.min(PANEL_DOTS);
            let shown = match &layer.weights {
                Some(weights) => resampled(weights, most.min(xs.len())),
                None => thinned(xs.len(), most).collect(),
            };
            for i in shown {
                if panel.x.contains(xs[i]) && panel.y.contains(ys[i]) {
                    canvas.dot(panel.place([xs[i], ys[i]]), 0.8, layer.colour, 0.22);
                }
            }
        }
        for (layer, columns) in self.layers.iter().zip(layers) {
            let (x, y) = (&columns[column], &columns[row]);
            let field = x.joint(y, axis(panel.x), axis(panel.y));
            let levels = field.levels_at(x.samples(), y.samples(), x.weights(), &[0.9, 0.5]);
            for (level, width) in levels.into_iter().zip([0.8, 1.5]) {
                for mut contour in field.contours(level) {
                    // Lines between the last point of the grid within a bound and the first beyond it.
                    for point in &mut contour.points {
                        for (place, [low, high]) in point.iter_mut().zip([x.bounds(), y.bounds()]) {
                            *place = place.clamp(low, high);
                        }
                    }
                    panel.contour(canvas, &contour, Pen::new(layer.colour, width));
                }
            }
        }
        for (mark, values) in self.marks() {
            let point = [column, row].map(|c| self.place(c, values[c]));
            if panel.x.contains(point[0]) && panel.y.contains(point[1]) {
                mark.draw(canvas, panel.place(point), 3.2);
            }
        }
    }

    /// Right-aligned as a block in the upper right corner, where a plot of several quantities is empty.
    fn draw_legend(&self, canvas: &mut Canvas, layout: &Layout, width: f64) {
        let font = layout.legend_font;
        let note_font = 0.85 * font;
        let several = self.names.len() > 1;
        let room = if several { width - layout.left - layout.width - 4.0 * layout.gap } else { width };
        let long = "lines: 50 % and 90 % of the draws";
        let note = match several {
            false => vec![],
            true if text_width(long, note_font) <= room => vec![long],
            true => vec!["lines: 50 % and 90 %", "of the draws"],
        };
        let labels = self.layers.iter().map(|l| l.label.as_str()).chain(self.marks().map(|(m, _)| m.label()));
        let widths = labels.map(|l| text_width(l, font) + 2.2 * font);
        let block = widths.chain(note.iter().map(|line| text_width(line, note_font))).fold(0.0, f64::max);
        let left = width - 8.0 - block.min(room);
        let mut y = layout.top + if several { 0.8 * font } else { 0.8 * font - layout.top + 4.0 };
        for layer in &self.layers {
            canvas.rectangle([left, y - 0.3 * font], [left + 1.6 * font, y + 0.3 * font], layer.colour, 0.18);
            canvas.line(&[[left, y], [left + 1.6 * font, y]], Pen::new(layer.colour, 1.5));
            canvas.text(&layer.label, [left + 2.2 * font, y], font, Align::Left, false);
            y += 1.5 * font;
        }
        for (mark, _) in self.marks() {
            if several {
                mark.draw(canvas, [left + 0.8 * font, y], 3.2);
            } else {
                mark.draw_line(canvas, left + 0.8 * font, y - 0.55 * font, y + 0.55 * font);
            }
            canvas.text(mark.label(), [left + 2.2 * font, y], font, Align::Left, false);
            y += 1.5 * font;
        }
        for line in note {
            canvas.text(line, [left, y], note_font, Align::Left, false);
            y += 1.3 * note_font;
        }
    }
}

#[cfg(test)]
mod tests;
