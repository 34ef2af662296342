//! The sheet the pictures are drawn on: shapes in points with fractions, text that fits, axes with round ticks.

mod sheet;

pub(super) use sheet::{Canvas, draw};

use super::density::{Contour, quantiles};

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
/// Lines behind the data.
pub(super) const GRID: Colour = Colour(228, 228, 228);
pub(super) const PAPER: Colour = Colour(255, 255, 255);

/// Width and height of a picture in points (1/72 inch in print, pixels on a screen).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSize {
    /// Horizontal extent.
    pub width: u32,
    /// Vertical extent.
    pub height: u32,
}

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
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Align {
    Left,
    Centre,
    Right,
}

impl Canvas {
    pub(super) fn frame(&mut self, from: [f64; 2], to: [f64; 2], pen: Pen) {
        let corners = [from, [to[0], from[1]], to, [from[0], to[1]], from];
        self.line(&corners, pen);
    }

    /// A line of dashes with gaps two thirds as long between them.
    pub(super) fn dashed(&mut self, points: &[[f64; 2]], pen: Pen, dash: f64) {
        let lengths = [dash, dash * 2.0 / 3.0];
        let (mut drawn, mut left) = (true, lengths[0]);
        let mut piece: Vec<[f64; 2]> = points.first().copied().into_iter().collect();
        for ends in points.windows(2) {
            let [mut from, to] = [ends[0], ends[1]];
            loop {
                let length = (to[0] - from[0]).hypot(to[1] - from[1]);
                if length < left || !length.is_finite() {
                    left -= length;
                    piece.push(to);
                    break;
                }
                let part = left / length;
                from = [from[0] + part * (to[0] - from[0]), from[1] + part * (to[1] - from[1])];
                piece.push(from);
                if drawn {
                    self.line(&piece, pen);
                }
                drawn = !drawn;
                left = lengths[usize::from(!drawn)];
                piece = vec![from];
            }
        }
        if drawn && piece.len() > 1 {
            self.line(&piece, pen);
        }
    }

    /// A filled mark; `shape` counts through circle, square, triangle and diamond.
    pub(super) fn marker(&mut self, [x, y]: [f64; 2], radius: f64, shape: usize, colour: Colour) {
        let r = radius;
        match shape % 4 {
            0 => self.dot([x, y], r, colour, 1.0),
            1 => self.rectangle([x - 0.9 * r, y - 0.9 * r], [x + 0.9 * r, y + 0.9 * r], colour, 1.0),
            2 => {
                let corners = [[x, y - 1.2 * r], [x + 1.1 * r, y + 0.8 * r], [x - 1.1 * r, y + 0.8 * r]];
                self.polygon(&corners, colour, 1.0);
            }
            _ => {
                let s = 1.3 * r;
                self.polygon(&[[x, y - s], [x + s, y], [x, y + s], [x - s, y]], colour, 1.0);
            }
        }
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
        'i' | 'l' | 'j' | '.' | ',' | ' ' | '(' | ')' | '-' | '|' | 'f' | 't' | ':' | '/' => 0.38,
        'r' | 'I' | '¹' | '²' | '³' | '⁰'..='ₜ' => 0.42,
        'm' | 'M' | 'W' | '%' | '@' | '½' | '…' => 1.0,
        '=' | '+' | '−' | '×' | '±' | '<' | '>' | '~' | '#' | '&' | '≤' | '≥' | 'w' | 'ω' => 0.84,
        '\u{2e80}'.. => 1.0,
        c if c.is_uppercase() => 0.78,
        _ => 0.63,
    };
    text.chars().map(ems).sum::<f64>() * size
}

/// Shrinks `text` to `width`, down to two thirds of `size`, then cuts it.
pub(super) fn fit(text: &str, size: f64, width: f64) -> (String, f64) {
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
    /// A value is its tick label times ten to this power, plus the offset.
    exponent: i32,
    offset: f64,
    pub(super) ticks: Vec<(f64, String)>,
    /// Further ticks without labels.
    minor: Vec<f64>,
}

/// Where the labels of an axis stand.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// The length of the axis.
    pub(super) length: f64,
    /// How far labels may reach beyond its ends.
    pub(super) overhang: f64,
    /// Their size.
    pub(super) font: f64,
}

impl Room {
    /// Whether a label of `width` may stand at `part` of the axis.
    fn holds(&self, part: f64, width: f64) -> bool {
        if self.overhang == f64::INFINITY {
            return true;
        }
        let at = part * self.length;
        at - 0.5 * width >= -self.overhang && at + 0.5 * width <= self.length + self.overhang
    }
}

impl Scale {
    /// A scale over `low..high` with at most `most` ticks whose labels of size `font` fit side by side in `room`.
    pub(super) fn new(low: f64, high: f64, room: f64, font: f64, most: usize) -> Self {
        Self::fitted(low, high, Room { length: room, overhang: f64::INFINITY, font }, most)
    }

    /// A scale whose labels, as far as they are shown, do not reach beyond `room`.
    pub(super) fn fitted(low: f64, high: f64, room: Room, most: usize) -> Self {
        let mut scale = Self { low, high, exponent: 0, offset: 0.0, ticks: Vec::new(), minor: Vec::new() };
        scale.choose(low, high, |value| value, room, most);
        scale
    }

    /// The most ticks in the plainest style that leaves two labels; values from `low` to `high` stand at `place`.
    fn choose(&mut self, low: f64, high: f64, place: fn(f64) -> f64, room: Room, most: usize) {
        let styles = styles(low, high);
        // Better three labels than two; every round number, or where that leaves too few every second.
        for (wanted, first, every) in [(3, 0, 1), (2, 0, 1), (2, 1, 2), (2, 0, 2)] {
            let most = most.max(2);
            let allowed = most.min(wanted)..=most;
            for &(exponent, offset) in &styles {
                (self.exponent, self.offset) = (exponent, offset);
                // Two more, whose labels reach beyond the ends and are not shown.
                for count in (2..=most + 2).rev() {
                    let ticks = round_ticks(low - offset, high - offset, every * count, exponent);
                    let ticks = ticks.into_iter().skip(first).step_by(every);
                    self.ticks = ticks.map(|(value, text)| (place(value + offset), text)).collect();
                    if self.labels_fit(room) && allowed.contains(&self.labels_within(room)) {
                        return;
                    }
                }
            }
        }
        (self.exponent, self.offset) = styles[0];
        let ticks = round_ticks(low - self.offset, high - self.offset, 1, self.exponent);
        self.ticks = ticks.into_iter().map(|(value, text)| (place(value + self.offset), text)).collect();
    }

    /// A scale of logarithms: `low..high` and all places on it are log₁₀ of the quantity, labels the quantity itself.
    ///
    /// Over less than two thirds of a decade the labels are round numbers, over more 1, 2 and 5 or powers of ten.
    pub(super) fn logarithmic(low: f64, high: f64, room: Room, most: usize) -> Self {
        let span = high - low;
        let mut scale = Self { low, high, exponent: 0, offset: 0.0, ticks: Vec::new(), minor: Vec::new() };
        // Numbers too small or large to be written are labelled by their power of ten.
        if span < 0.67 && (-290.0..290.0).contains(&low) && (-290.0..290.0).contains(&high) {
            scale.choose(10f64.powf(low), 10f64.powf(high), f64::log10, room, most);
            return scale;
        }
        let decades = (low.floor() as i32)..=(high.ceil() as i32);
        let plain = low > -4.0 && high < 4.0;
        let labels = |mantissas: &[u8], every: i32| -> Vec<(f64, String)> {
            let powers = decades.clone().filter(|power| power.rem_euclid(every) == 0);
            let all = powers.flat_map(|power| mantissas.iter().map(move |&m| (power, m)));
            all.map(|(power, m)| (f64::from(power) + f64::from(m).log10(), power_label(m, power, plain)))
                .filter(|(place, _)| (low..=high).contains(place))
                .collect()
        };
        let mut candidates: Vec<(&[u8], i32)> = Vec::new();
        if span < 1.1 {
            candidates.push((&[1, 2, 3, 5], 1));
        }
        if span < 2.0 {
            candidates.push((&[1, 2, 5], 1));
        }
        if span < 3.0 {
            candidates.push((&[1, 3], 1));
        }
        let steps = [1, 2, 3, 5, 10, 20, 50, 100, 200];
        candidates.extend(steps.map(|every| (&[1_u8] as &[u8], every)));
        for (mantissas, every) in candidates {
            let ticks = labels(mantissas, every);
            if ticks.is_empty() {
                break; // sparser ones have none either
            }
            scale.ticks = ticks;
            if scale.ticks.len() <= most.max(2) && scale.labels_fit(room) {
                break;
            }
        }
        if span <= 5.0 {
            let places =
                decades.flat_map(|power| (1..10).map(move |m| f64::from(power) + f64::from(m).log10()));
            scale.minor = places.filter(|place| (low..=high).contains(place)).collect();
        }
        scale
    }

    /// Whether no label of a horizontal axis touches its neighbour.
    fn labels_fit(&self, room: Room) -> bool {
        let font = room.font;
        self.ticks.windows(2).all(|pair| {
            let apart = (self.part(pair[1].0) - self.part(pair[0].0)) * room.length;
            apart >= 0.5 * (text_width(&pair[0].1, font) + text_width(&pair[1].1, font)) + 0.5 * font
        })
    }

    fn labels_within(&self, room: Room) -> usize {
        let within =
            |(value, text): &&(f64, String)| room.holds(self.part(*value), text_width(text, room.font));
        self.ticks.iter().filter(within).count()
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

    /// The lines of an axis label: name, and unit with the power of ten and the offset where there are any.
    pub(super) fn label(&self, name: &str, unit: Option<&str>, font: f64, width: f64) -> Vec<String> {
        let power = (self.exponent != 0).then(|| format!("×10{}", superscript(self.exponent)));
        let sign = if self.offset < 0.0 { '−' } else { '+' };
        let offset = (self.offset != 0.0).then(|| format!("{sign} {}", written_out(self.offset.abs())));
        let extra: Vec<&str> = power.as_deref().into_iter().chain(offset.as_deref()).chain(unit).collect();
        if extra.is_empty() {
            return vec![name.to_owned()];
        }
        let extra = format!("({})", extra.join(" "));
        let one = format!("{name} {extra}");
        if text_width(&one, font) <= width { vec![one] } else { vec![name.to_owned(), extra] }
    }
}

/// Exponents and offsets of the labels between `low` and `high`, the plainest first.
fn styles(low: f64, high: f64) -> Vec<(i32, f64)> {
    let order_of = |largest: f64| {
        let order = largest.log10().floor();
        if order.is_finite() { order as i32 } else { 0 }
    };
    let plain = |order: i32| if (-3..5).contains(&order) { 0 } else { order };
    let (largest, span) = (low.abs().max(high.abs()), high - low);
    let order = order_of(largest);
    let mut styles = vec![(plain(order), 0.0)];
    if order.abs() >= 2 && plain(order) == 0 {
        styles.push((order, 0.0));
    }
    // How many times larger the numbers are than what they differ by.
    let ratio = largest / span;
    if ratio > 10.0 {
        // Rounded, so that what is left has hardly more digits than the span.
        let unit = 10f64.powi(order_of(span) + 1);
        let offset = ((0.5 * low + 0.5 * high) / unit).round() * unit;
        if offset != 0.0 && offset.is_finite() {
            let left = order_of((low - offset).abs().max((high - offset).abs()));
            let left = if (-1..5).contains(&left) { 0 } else { left };
            styles.insert(if ratio > 1e4 { 0 } else { styles.len() }, (left, offset));
        }
    }
    styles
}

/// A rounded number with its digits and no zeros after them.
fn written_out(value: f64) -> String {
    // Twelve digits are more than any offset has, and hide how it was rounded.
    let text = format!("{value:.11e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (digits, power) = (mantissa.trim_end_matches('0'), power.parse().unwrap_or(0));
    let decimals = usize::try_from(digits.len() as i32 - 2 - power).unwrap_or(0);
    match (-3..5).contains(&power) {
        true => format!("{value:.decimals$}"),
        false => format!("{}×10{}", digits.trim_end_matches('.'), superscript(power)),
    }
}

/// `mantissa` × 10^`power` as a reader writes it: plain digits, or a power of ten.
fn power_label(mantissa: u8, power: i32, plain: bool) -> String {
    if plain {
        let digits = usize::try_from(-power).unwrap_or(0);
        return format!("{:.digits$}", f64::from(mantissa) * 10f64.powi(power));
    }
    match mantissa {
        1 => format!("10{}", superscript(power)),
        m => format!("{m}×10{}", superscript(power)),
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

/// The bulk of `values`: all but one in a thousand at either end.
pub(super) fn bulk(values: &[f64], weights: Option<&[f64]>) -> [f64; 2] {
    quantiles(values, weights, [0.001, 0.999])
}

/// Values around `middle` that differ by less are one value and rounding.
fn least_spread(middle: f64) -> f64 {
    (middle.abs() * 1e-12).max(1e-300)
}

/// Limits that show values from `ends[0]` to `ends[1]`, with at least `room` on either side, and all of `marks`; beyond
/// `bounds` there is only a little to be seen.
pub(super) fn limits(ends: [f64; 2], marks: &[f64], room: f64, bounds: [f64; 2]) -> (f64, f64) {
    let low = marks.iter().copied().fold(ends[0], f64::min);
    let high = marks.iter().copied().fold(ends[1], f64::max);
    let middle = 0.5 * low + 0.5 * high;
    if high - low > least_spread(middle) {
        let (margin, edge) = (0.06 * (high - low), 0.02 * (high - low));
        let from = (low - margin).min(ends[0] - room).max(bounds[0] - edge);
        let to = (high + margin).max(ends[1] + room).min(bounds[1] + edge);
        (from.min(low - edge), to.max(high + edge))
    } else {
        // A constant gets a window of its own size.
        let half = if middle == 0.0 { 1.0 } else { middle.abs() * 0.1 };
        (middle - half, middle + half)
    }
}

/// The range of `values` with a margin, never empty; on a `log` axis a single value gets a third of a decade.
pub(super) fn span(values: impl Iterator<Item = f64>, log: bool) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    let middle = 0.5 * low + 0.5 * high;
    if high - low > if log { 1e-12 } else { least_spread(middle) } {
        let margin = (0.045 * (high - low)).min(f64::MAX / 4.0);
        return ((low - margin).max(-f64::MAX / 4.0), (high + margin).min(f64::MAX / 4.0));
    }
    let half = match (log, middle == 0.0) {
        (true, _) => 0.16,
        (false, true) => 1.0,
        (false, false) => middle.abs() * 0.1,
    };
    (middle - half, middle + half)
}

/// Which tick labels an axis gets.
#[derive(Clone, Copy)]
pub(super) enum Labels {
    None,
    All,
    /// Those that reach at most so far beyond the panel, so that neighbours do not touch.
    Within(f64),
}

impl Labels {
    fn room(self, length: f64, font: f64) -> Option<Room> {
        match self {
            Self::None => None,
            Self::All => Some(Room { length, overhang: f64::INFINITY, font }),
            Self::Within(overhang) => Some(Room { length, overhang, font }),
        }
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

    /// Faint lines at the labelled ticks.
    pub(super) fn grid(&self, canvas: &mut Canvas) {
        let pen = Pen::new(GRID, 0.6);
        for (value, _) in &self.x.ticks {
            let x = self.place([*value, self.y.low])[0];
            canvas.line(&[[x, self.from[1]], [x, self.to[1]]], pen);
        }
        for (value, _) in &self.y.ticks {
            let y = self.place([self.x.low, *value])[1];
            canvas.line(&[[self.from[0], y], [self.to[0], y]], pen);
        }
    }

    pub(super) fn contour(&self, canvas: &mut Canvas, contour: &Contour, pen: Pen) {
        let mut points: Vec<[f64; 2]> = contour.points.iter().map(|&p| self.place(p)).collect();
        if contour.closed {
            points.extend(points.first().copied());
        }
        canvas.line(&points, pen);
    }

    /// The horizontal axis' ticks and their labels.
    pub(super) fn ticks_below(&self, canvas: &mut Canvas, font: f64, labels: Labels) {
        let room = labels.room(self.to[0] - self.from[0], font);
        for &value in &self.x.minor {
            let x = self.place([value, self.y.low])[0];
            canvas.line(&[[x, self.to[1]], [x, self.to[1] + 1.7]], Pen::new(FRAME, 0.5));
        }
        for (value, text) in &self.x.ticks {
            let x = self.place([*value, self.y.low])[0];
            canvas.line(&[[x, self.to[1]], [x, self.to[1] + 3.0]], Pen::new(FRAME, 0.6));
            if room.is_some_and(|room| room.holds(self.x.part(*value), text_width(text, font))) {
                canvas.text(text, [x, self.to[1] + 4.5 + 0.5 * font], font, Align::Centre, false);
            }
        }
    }

    /// The vertical axis' ticks and their labels.
    pub(super) fn ticks_left(&self, canvas: &mut Canvas, font: f64, labels: Labels) {
        let room = labels.room(self.to[1] - self.from[1], font);
        for &value in &self.y.minor {
            let y = self.place([self.x.low, value])[1];
            canvas.line(&[[self.from[0] - 1.7, y], [self.from[0], y]], Pen::new(FRAME, 0.5));
        }
        for (value, text) in &self.y.ticks {
            let y = self.place([self.x.low, *value])[1];
            canvas.line(&[[self.from[0] - 3.0, y], [self.from[0], y]], Pen::new(FRAME, 0.6));
            // Digits are less high than the font is large.
            if room.is_some_and(|room| room.holds(self.y.part(*value), 0.8 * font)) {
                canvas.text(text, [self.from[0] - 5.0, y], font, Align::Right, false);
            }
        }
    }
}

/// What stands before a label in a legend.
#[derive(Clone, Copy)]
pub(super) enum Swatch {
    /// A line, with the mark of a shape on it where there is one.
    Line(Pen, Option<usize>),
    /// Dashes of this length.
    Dashed(Pen, f64),
    Marker(Colour, usize),
    /// A filled area of this opacity.
    Area(Colour, f64),
}

/// Entries side by side, in as many lines as they need.
pub(super) struct Legend {
    font: f64,
    width: f64,
    /// Place of the left end, number of the line, what stands there.
    entries: Vec<(f64, usize, Swatch, String)>,
    lines: usize,
}

impl Legend {
    const SWATCH: f64 = 1.9;
    const LINE: f64 = 1.55;

    /// Arranges `entries` in lines of `width`; those without a label are left out.
    pub(super) fn new(entries: impl IntoIterator<Item = (Swatch, String)>, font: f64, width: f64) -> Self {
        let (mut x, mut line) = (0.0, 0);
        let mut placed = Vec::new();
        for (swatch, label) in entries.into_iter().filter(|(_, label)| !label.is_empty()) {
            let length = (Self::SWATCH + 0.5) * font + text_width(&label, font);
            if x > 0.0 && x + length > width {
                (x, line) = (0.0, line + 1);
            }
            placed.push((x, line, swatch, label));
            x += length + 1.2 * font;
        }
        let lines = if placed.is_empty() { 0 } else { line + 1 };
        Self { font, width, entries: placed, lines }
    }

    /// The length of the longest line, at most the width.
    pub(super) fn used(&self) -> f64 {
        let ends = self
            .entries
            .iter()
            .map(|(x, _, _, label)| x + (Self::SWATCH + 0.5) * self.font + text_width(label, self.font));
        ends.fold(0.0, f64::max).min(self.width)
    }

    pub(super) fn height(&self) -> f64 {
        self.lines as f64 * Self::LINE * self.font
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, [left, top]: [f64; 2]) {
        let font = self.font;
        for (x, line, swatch, label) in &self.entries {
            let (from, y) = (left + x, top + (*line as f64 + 0.5) * Self::LINE * font);
            let to = from + Self::SWATCH * font;
            match *swatch {
                Swatch::Line(pen, shape) => {
                    canvas.line(&[[from, y], [to, y]], pen);
                    if let Some(shape) = shape {
                        canvas.marker([0.5 * (from + to), y], 2.2, shape, pen.colour);
                    }
                }
                Swatch::Dashed(pen, dash) => canvas.dashed(&[[from, y], [to, y]], pen, dash),
                Swatch::Marker(colour, shape) => canvas.marker([0.5 * (from + to), y], 2.2, shape, colour),
                Swatch::Area(colour, opacity) => {
                    canvas.rectangle([from, y - 0.38 * font], [to, y + 0.38 * font], colour, opacity);
                }
            }
            let (label, size) = fit(label, font, self.width - x - (Self::SWATCH + 0.5) * font);
            canvas.text(&label, [to + 0.5 * font, y], size, Align::Left, false);
        }
    }
}

/// The parts of a line that lie in the panel, cut at its border.
pub(super) fn clipped(points: &[[f64; 2]], from: [f64; 2], to: [f64; 2]) -> Vec<Vec<[f64; 2]>> {
    let mut pieces: Vec<Vec<[f64; 2]>> = Vec::new();
    let mut connected = false;
    for ends in points.windows(2) {
        let (a, b) = (ends[0], ends[1]);
        // Liang and Barsky: the part t₀..t₁ of the segment inside all four borders.
        let (mut t0, mut t1) = (0.0_f64, 1.0_f64);
        for axis in 0..2 {
            let d = b[axis] - a[axis];
            for (low, side) in [(from[axis], 1.0), (to[axis], -1.0)] {
                let (p, q) = (side * d, side * (low - a[axis]));
                if p > 0.0 {
                    t0 = t0.max(q / p);
                } else if p < 0.0 {
                    t1 = t1.min(q / p);
                } else if q > 0.0 {
                    t1 = -1.0;
                }
            }
        }
        if t0 > t1 {
            connected = false;
            continue;
        }
        let at = |t: f64| [a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])];
        if !connected || t0 > 0.0 {
            pieces.push(vec![at(t0)]);
        }
        pieces.last_mut().expect("a piece was begun").push(at(t1));
        connected = t1 >= 1.0;
    }
    pieces
}

/// `count` numbers out of `0..weights.len()`, each as often as its weight says (systematic resampling, without chance).
pub(super) fn resampled(weights: &[f64], count: usize) -> Vec<usize> {
    let step = weights.iter().sum::<f64>() / count as f64;
    let (mut next, mut reached) = (0.5 * step, 0.0);
    let mut chosen = Vec::with_capacity(count);
    for (i, weight) in weights.iter().enumerate() {
        reached += weight;
        while next < reached && chosen.len() < count {
            chosen.push(i);
            next += step;
        }
    }
    chosen
}

/// At most `most` of `0..count`, evenly spread.
pub(super) fn thinned(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let kept = count.min(most);
    (0..kept).map(move |i| (i as u128 * count as u128 / kept as u128) as usize)
}

#[cfg(test)]
mod tests;
