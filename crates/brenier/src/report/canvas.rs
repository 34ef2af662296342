//! The sheet the pictures are drawn on: shapes in points with fractions, text that fits, axes with round ticks.

use plotters::prelude::{DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, TextStyle,
};

use super::density::{Contour, quantile};

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

/// The palette of Okabe and Ito without black: blue, vermilion, green, orange, purple, sky blue, yellow.
pub const PALETTE: [Colour; 7] = [
    Colour(0, 114, 178),
    Colour(213, 94, 0),
    Colour(0, 158, 115),
    Colour(230, 159, 0),
    Colour(204, 121, 167),
    Colour(86, 180, 233),
    Colour(240, 228, 66),
];

pub(super) const INK: Colour = Colour(30, 30, 30);
pub(super) const FRAME: Colour = Colour(110, 110, 110);
pub(super) const PAPER: Colour = Colour(255, 255, 255);

/// Width and height of a picture in points (1/72 inch in print, pixels on a screen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize {
    /// Horizontal extent.
    pub width: u32,
    /// Vertical extent.
    pub height: u32,
}

/// The backend knows whole pixels only; we draw this many times larger and let the viewer scale down.
const FINE: f64 = 20.0;

/// How lines are drawn.
#[derive(Clone, Copy)]
pub(super) struct Pen {
    pub(super) colour: Colour,
    pub(super) opacity: f64,
    pub(super) width: f64,
}

impl Pen {
    pub(super) fn new(colour: Colour, width: f64) -> Self {
        Self { colour, opacity: 1.0, width }
    }

    fn style(self, filled: bool) -> ShapeStyle {
        let Colour(r, g, b) = self.colour;
        ShapeStyle {
            color: RGBColor(r, g, b).mix(self.opacity),
            filled,
            stroke_width: (self.width * FINE).round() as u32,
        }
    }
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Align {
    Left,
    Centre,
    Right,
}

/// An SVG sheet. Drawing into a string cannot fail.
pub(super) struct Canvas<'a> {
    backend: SVGBackend<'a>,
}

const INFALLIBLE: &str = "drawing into a string cannot fail";

/// Draws on a fresh sheet and returns the SVG text.
pub(super) fn draw(size: PictureSize, picture: impl FnOnce(&mut Canvas<'_>)) -> String {
    let fine = |length: u32| (f64::from(length) * FINE) as u32;
    let (width, height) = (fine(size.width), fine(size.height));
    let mut text = String::new();
    {
        let mut canvas = Canvas { backend: SVGBackend::with_string(&mut text, (width, height)) };
        canvas.rectangle([0.0, 0.0], [f64::from(size.width), f64::from(size.height)], PAPER, 1.0);
        picture(&mut canvas);
        canvas.backend.present().expect(INFALLIBLE);
    }
    let drawn = format!("width=\"{width}\" height=\"{height}\"");
    text.replacen(&drawn, &format!("width=\"{}\" height=\"{}\"", size.width, size.height), 1)
}

fn fine([x, y]: [f64; 2]) -> (i32, i32) {
    // A float outside the range of i32 saturates, NaN becomes 0: no coordinate is ever unreadable.
    ((x * FINE).round() as i32, (y * FINE).round() as i32)
}

impl Canvas<'_> {
    pub(super) fn line(&mut self, points: &[[f64; 2]], pen: Pen) {
        self.backend.draw_path(points.iter().copied().map(fine), &pen.style(false)).expect(INFALLIBLE);
    }

    pub(super) fn polygon(&mut self, points: &[[f64; 2]], colour: Colour, opacity: f64) {
        let style = Pen { colour, opacity, width: 0.0 }.style(true);
        self.backend.fill_polygon(points.iter().copied().map(fine), &style).expect(INFALLIBLE);
    }

    pub(super) fn rectangle(&mut self, from: [f64; 2], to: [f64; 2], colour: Colour, opacity: f64) {
        let style = Pen { colour, opacity, width: 0.0 }.style(true);
        self.backend.draw_rect(fine(from), fine(to), &style, true).expect(INFALLIBLE);
    }

    pub(super) fn frame(&mut self, from: [f64; 2], to: [f64; 2], pen: Pen) {
        let corners = [from, [to[0], from[1]], to, [from[0], to[1]], from];
        self.line(&corners, pen);
    }

    pub(super) fn dot(&mut self, centre: [f64; 2], radius: f64, colour: Colour, opacity: f64) {
        let style = Pen { colour, opacity, width: 0.0 }.style(true);
        let radius = (radius * FINE).round() as u32;
        self.backend.draw_circle(fine(centre), radius, &style, true).expect(INFALLIBLE);
    }

    /// Text whose middle line passes through `at`; `upwards` turns it by a quarter.
    pub(super) fn text(&mut self, text: &str, at: [f64; 2], size: f64, align: Align, upwards: bool) {
        let transform = if upwards { FontTransform::Rotate270 } else { FontTransform::None };
        // The backend divides font sizes by 1.24.
        let font = FontDesc::new(FontFamily::SansSerif, size * 1.24 * FINE, FontStyle::Normal);
        let horizontal = match align {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        // Half the height of a digit below the middle: reliable in every viewer, unlike dominant-baseline.
        let base = 0.35 * size;
        let at = if upwards { [at[0] + base, at[1]] } else { [at[0], at[1] + base] };
        let Colour(r, g, b) = INK;
        let ink = RGBColor(r, g, b);
        let style =
            TextStyle::from(font.transform(transform)).color(&ink).pos(Pos::new(horizontal, VPos::Bottom));
        // `Bottom` lifts the text by half an x-height, about a quarter of its size.
        let lift = 0.26 * size;
        let at = if upwards { [at[0] + lift, at[1]] } else { [at[0], at[1] + lift] };
        self.backend.draw_text(text, &style, fine(at)).expect(INFALLIBLE);
    }

    /// Text in at most two lines of `width`, smaller when it must be, cut when it cannot be; centred at `at`.
    pub(super) fn fitted(&mut self, lines: &[String], at: [f64; 2], size: f64, width: f64, upwards: bool) {
        for (i, line) in lines.iter().enumerate() {
            let (line, size) = fit(line, size, width);
            let shift = i as f64 * 1.2 * size;
            let at = if upwards { [at[0] + shift, at[1]] } else { [at[0], at[1] + shift] };
            self.text(&line, at, size, Align::Centre, upwards);
        }
    }
}

/// An estimate on the wide side: viewers choose the font.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let ems = |c: char| match c {
        'i' | 'l' | 'j' | '.' | ',' | ' ' | '(' | ')' | '-' | '|' | 'f' | 't' | 'r' | ':' => 0.38,
        'm' | 'w' | 'M' | 'W' | '%' => 0.96,
        'A'..='Z' | '−' => 0.74,
        _ => 0.63,
    };
    text.chars().map(ems).sum::<f64>() * size
}

/// Shrinks `text` to `width`, down to two thirds of `size`, then cuts it.
fn fit(text: &str, size: f64, width: f64) -> (String, f64) {
    let smallest = size * 2.0 / 3.0;
    let fitting = (size * width / text_width(text, size).max(1e-9)).min(size);
    if fitting >= smallest {
        return (text.to_owned(), fitting);
    }
    let mut cut: String = text.to_owned();
    while !cut.is_empty() && text_width(&cut, smallest) + smallest > width {
        cut.pop();
    }
    (cut.trim_end().to_owned() + "…", smallest)
}

/// The range of one quantity in a picture, with its ticks.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    /// Tick labels are values divided by ten to this power.
    exponent: i32,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// A scale over `low..high` with at most `most` ticks whose labels of size `font` fit side by side in `room`.
    pub(super) fn new(low: f64, high: f64, room: f64, font: f64, most: usize) -> Self {
        let largest = low.abs().max(high.abs());
        let order = largest.log10().floor();
        let exponent = if !(-3.0..5.0).contains(&order) && order.is_finite() { order as i32 } else { 0 };
        let mut scale = Self { low, high, exponent, ticks: Vec::new() };
        for count in (1..=most.max(1)).rev() {
            scale.ticks = round_ticks(low, high, count, exponent);
            let widest = scale.label_room(font);
            if (widest + 0.5 * font) * scale.ticks.len() as f64 <= room {
                break;
            }
        }
        scale
    }

    /// The room that the labels of the ticks take beside a vertical axis.
    pub(super) fn label_room(&self, font: f64) -> f64 {
        self.ticks.iter().map(|(_, text)| text_width(text, font)).fold(0.0, f64::max)
    }

    /// The share of the scale below `value`.
    pub(super) fn part(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The lines of an axis label: name, and unit with the power of ten where there is one.
    pub(super) fn label(&self, name: &str, unit: Option<&str>, font: f64, width: f64) -> Vec<String> {
        let power = (self.exponent != 0).then(|| format!("×10{}", superscript(self.exponent)));
        let extra: Vec<&str> = power.as_deref().into_iter().chain(unit).collect();
        if extra.is_empty() {
            return vec![name.to_owned()];
        }
        let extra = format!("({})", extra.join(" "));
        let one = format!("{name} {extra}");
        if text_width(&one, font) <= width { vec![one] } else { vec![name.to_owned(), extra] }
    }
}

fn superscript(number: i32) -> String {
    let digit = |c: char| match c {
        '-' => '⁻',
        _ => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][c.to_digit(10).unwrap_or(0) as usize],
    };
    number.to_string().chars().map(digit).collect()
}

/// At most `most` multiples of 1, 2 or 5 times a power of ten between `low` and `high`.
fn round_ticks(low: f64, high: f64, most: usize, exponent: i32) -> Vec<(f64, String)> {
    let unit = 10f64.powi(exponent);
    let (low, high) = (low / unit, high / unit);
    let first = ((high - low) / most as f64).log10().floor() as i32 - 1;
    for order in first..first + 4 {
        for factor in [1.0, 2.0, 5.0] {
            let step = factor * 10f64.powi(order);
            let (from, to) = ((low / step).ceil(), (high / step).floor());
            if to - from + 1.0 <= most as f64 {
                let digits = usize::try_from(-order).unwrap_or(0);
                let count = (to - from + 1.0).max(0.0) as usize;
                return (0..count)
                    .map(|i| {
                        let value = (from + i as f64) * step;
                        // No "-0"; a true minus sign is as wide as a plus.
                        let text = format!("{:.digits$}", if value == 0.0 { 0.0 } else { value });
                        (value * unit, text.replace('-', "−"))
                    })
                    .collect();
            }
        }
    }
    Vec::new()
}

/// Limits that show the bulk of `values` (all but one in a thousand at either end) and all of `marks`.
pub(super) fn limits(values: &[f64], marks: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let bounds = [quantile(&sorted, 0.001), quantile(&sorted, 0.999)];
    let low = marks.iter().copied().fold(bounds[0], f64::min);
    let high = marks.iter().copied().fold(bounds[1], f64::max);
    let middle = 0.5 * low + 0.5 * high;
    // A constant gets a window of its own size.
    let least = if middle == 0.0 { 1.0 } else { middle.abs() * 1e-6 };
    if high - low > least {
        let margin = 0.06 * (high - low);
        (low - margin, high + margin)
    } else {
        let half = if middle == 0.0 { 1.0 } else { middle.abs() * 0.1 };
        (middle - half, middle + half)
    }
}

/// A rectangle of the sheet that shows `x` against `y`.
pub(super) struct Panel<'s> {
    pub(super) from: [f64; 2],
    pub(super) to: [f64; 2],
    pub(super) x: &'s Scale,
    pub(super) y: &'s Scale,
}

impl Panel<'_> {
    pub(super) fn place(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [
            self.from[0] + self.x.part(x) * (self.to[0] - self.from[0]),
            self.to[1] - self.y.part(y) * (self.to[1] - self.from[1]),
        ]
    }

    pub(super) fn contour(&self, canvas: &mut Canvas<'_>, contour: &Contour, pen: Pen) {
        let mut points: Vec<[f64; 2]> = contour.points.iter().map(|&p| self.place(p)).collect();
        if contour.closed {
            points.extend(points.first().copied());
        }
        canvas.line(&points, pen);
    }

    /// The horizontal axis' ticks, with their labels when `labelled`.
    pub(super) fn ticks_below(&self, canvas: &mut Canvas<'_>, font: f64, labelled: bool) {
        for (value, text) in &self.x.ticks {
            let x = self.place([*value, self.y.low])[0];
            canvas.line(&[[x, self.to[1]], [x, self.to[1] + 3.0]], Pen::new(FRAME, 0.6));
            if labelled {
                canvas.text(text, [x, self.to[1] + 4.5 + 0.5 * font], font, Align::Centre, false);
            }
        }
    }

    /// The vertical axis' ticks, with their labels when `labelled`.
    pub(super) fn ticks_left(&self, canvas: &mut Canvas<'_>, font: f64, labelled: bool) {
        for (value, text) in &self.y.ticks {
            let y = self.place([self.x.low, *value])[1];
            canvas.line(&[[self.from[0] - 3.0, y], [self.from[0], y]], Pen::new(FRAME, 0.6));
            if labelled {
                canvas.text(text, [self.from[0] - 5.0, y], font, Align::Right, false);
            }
        }
    }
}

/// At most `most` of `0..count`, evenly spread.
pub(super) fn thinned(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let kept = count.min(most);
    (0..kept).map(move |i| (i as u128 * count as u128 / kept as u128) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(low: f64, high: f64) -> Vec<String> {
        Scale::new(low, high, 1e3, 8.0, 4).ticks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(texts(-1.1, 1.1), ["−1", "0", "1"]);
        assert_eq!(texts(0.0, 10.0), ["0", "5", "10"]);
        assert_eq!(texts(0.011, 0.019), ["0.012", "0.014", "0.016", "0.018"]);
        // Too large or small for plain digits: the power of ten goes to the axis label.
        assert_eq!(texts(1e-7, 4.5e-7), ["1", "2", "3", "4"]);
        let scale = Scale::new(1e-7, 4.5e-7, 1e3, 8.0, 4);
        assert_eq!(scale.label("rate", Some("s⁻¹"), 8.0, 1e3), ["rate (×10⁻⁷ s⁻¹)"]);
    }

    #[test]
    fn limits_are_never_empty() {
        for value in [0.0, 1.0, -3e9, 1e-300, 1e300] {
            let (low, high) = limits(&[value], &[]);
            assert!(low < value && value < high && high.is_finite());
        }
    }

    #[test]
    fn long_text_shrinks_then_is_cut() {
        assert_eq!(fit("a", 9.0, 100.0), ("a".to_owned(), 9.0));
        let (text, size) = fit("a name of some length", 9.0, 80.0);
        assert!(size < 9.0 && !text.ends_with('…'), "{text} {size}");
        assert!(fit("a name of quite an impossible length", 9.0, 40.0).0.ends_with('…'));
    }
}
