//! The five shapes that pictures are made of, written as SVG: line, polygon, rectangle, circle, text.
//!
//! [`png`](crate::png()) reads exactly what is written here.

use std::fmt::{self, Write as _};

use super::{Align, Colour, INK, PAPER, Pen, PictureSize};

/// An SVG sheet; lengths are in points.
pub(crate) struct Canvas {
    svg: String,
}

/// Draws on a fresh sheet and returns the SVG text.
pub(crate) fn draw(PictureSize { width, height }: PictureSize, picture: impl FnOnce(&mut Canvas)) -> String {
    let head = format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n"
    );
    let mut canvas = Canvas { svg: head };
    canvas.rectangle([0.0, 0.0], [f64::from(width), f64::from(height)], PAPER, 1.0);
    picture(&mut canvas);
    canvas.svg + "</svg>\n"
}

/// A length with two digits after the point at most.
///
/// A viewer may refuse a file with a number that is none, or has an exponent: NaN is 0, and nothing is farther than 10⁷.
struct Length(f64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = if self.0.is_nan() { 0.0 } else { self.0.clamp(-1e7, 1e7) };
        let hundredths = (100.0 * length).round() as i64;
        let (sign, size) = (if hundredths < 0 { "-" } else { "" }, hundredths.unsigned_abs());
        write!(f, "{sign}{}", size / 100)?;
        match size % 100 {
            0 => Ok(()),
            tens if tens % 10 == 0 => write!(f, ".{}", tens / 10),
            rest => write!(f, ".{rest:02}"),
        }
    }
}

/// A colour as SVG has it.
struct Hex(Colour);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Colour(red, green, blue) = self.0;
        write!(f, "#{red:02X}{green:02X}{blue:02X}")
    }
}

/// The attribute of what can be seen through.
struct Opacity(f64);

impl fmt::Display for Opacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1.0 { Ok(()) } else { write!(f, " opacity=\"{}\"", Length(self.0)) }
    }
}

/// Corners of a line or a polygon.
struct Points<'a>(&'a [[f64; 2]]);

impl fmt::Display for Points<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &[x, y]) in self.0.iter().enumerate() {
            let space = if i > 0 { " " } else { "" };
            write!(f, "{space}{},{}", Length(x), Length(y))?;
        }
        Ok(())
    }
}

impl Canvas {
    fn element(&mut self, element: fmt::Arguments<'_>) {
        self.svg.write_fmt(element).expect("writing into a string cannot fail");
        self.svg.push('\n');
    }

    pub(crate) fn line(&mut self, points: &[[f64; 2]], pen: Pen) {
        self.element(format_args!(
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{} points=\"{}\"/>",
            Hex(pen.colour),
            Length(pen.width),
            Opacity(pen.opacity),
            Points(points)
        ));
    }

    pub(crate) fn polygon(&mut self, points: &[[f64; 2]], colour: Colour, opacity: f64) {
        let (fill, opacity) = (Hex(colour), Opacity(opacity));
        self.element(format_args!("<polygon fill=\"{fill}\"{opacity} points=\"{}\"/>", Points(points)));
    }

    /// A rectangle between two opposite corners.
    pub(crate) fn rectangle(&mut self, from: [f64; 2], to: [f64; 2], colour: Colour, opacity: f64) {
        let (x, y) = (from[0].min(to[0]), from[1].min(to[1]));
        self.element(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}/>",
            Length(x),
            Length(y),
            Length((to[0] - from[0]).abs()),
            Length((to[1] - from[1]).abs()),
            Hex(colour),
            Opacity(opacity)
        ));
    }

    pub(crate) fn dot(&mut self, [x, y]: [f64; 2], radius: f64, colour: Colour, opacity: f64) {
        self.element(format_args!(
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"{}/>",
            Length(x),
            Length(y),
            Length(radius),
            Hex(colour),
            Opacity(opacity)
        ));
    }

    /// Text whose middle line passes through `at`; `upwards` turns it by a quarter.
    pub(crate) fn text(&mut self, text: &str, at: [f64; 2], size: f64, align: Align, upwards: bool) {
        // Half the height of a digit below the middle: reliable in every viewer, unlike dominant-baseline.
        let base = 0.35 * size;
        let [x, y] = if upwards { [at[0] + base, at[1]] } else { [at[0], at[1] + base] };
        let (x, y) = (Length(x), Length(y));
        let anchor = match align {
            Align::Left => "start",
            Align::Centre => "middle",
            Align::Right => "end",
        };
        let turned = if upwards { format!(" transform=\"rotate(270,{x},{y})\"") } else { String::new() };
        // XML has no way to write control characters.
        let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.element(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"{}\" fill=\"{}\"{turned}>{text}</text>",
            Length(size),
            Hex(INK)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_plain_numbers_with_two_digits_at_most() {
        let cases = [
            (0.0, "0"),
            (-0.001, "0"),
            (1.0, "1"),
            (2.5, "2.5"),
            (-3.456, "-3.46"),
            (0.05, "0.05"),
            (99.999, "100"),
            (f64::NAN, "0"),
            (f64::INFINITY, "10000000"),
            (-1e300, "-10000000"),
        ];
        for (length, text) in cases {
            assert_eq!(Length(length).to_string(), text);
        }
    }

    #[test]
    fn a_sheet_is_well_formed() {
        let svg = draw(PictureSize { width: 20, height: 10 }, |canvas| {
            canvas
                .line(&[[0.0, 1.0], [2.0, 3.5]], Pen { colour: Colour(1, 2, 255), opacity: 0.5, width: 0.6 });
            canvas.text("a < b\u{7} & c", [5.0, 5.0], 10.0, Align::Centre, true);
        });
        let expected = "<svg width=\"20\" height=\"10\" viewBox=\"0 0 20 10\" xmlns=\"http://www.w3.org/2000/svg\">\n\
            <rect x=\"0\" y=\"0\" width=\"20\" height=\"10\" fill=\"#FFFFFF\"/>\n\
            <polyline fill=\"none\" stroke=\"#0102FF\" stroke-width=\"0.6\" opacity=\"0.5\" points=\"0,1 2,3.5\"/>\n\
            <text x=\"8.5\" y=\"5\" text-anchor=\"middle\" font-family=\"sans-serif\" font-size=\"10\" fill=\"#1E1E1E\" \
            transform=\"rotate(270,8.5,5)\">a &lt; b &amp; c</text>\n</svg>\n";
        assert_eq!(svg, expected);
    }
}
