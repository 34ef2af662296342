//! The shapes of a picture, read from the SVG that `canvas` writes, and painted.
//!
//! This is no reader of SVG in general: only rectangles, lines, polygons, circles and text with the attributes that our pictures
//! have, in the units of a `viewBox` at the origin.

use tiny_skia::{FillRule, Paint, PathBuilder, Pixmap, Rect, Stroke, Transform};

use super::glyphs::Glyphs;

/// A picture of shapes in their order.
pub(super) struct Drawing {
    /// Width and height.
    pub(super) size: [f32; 2],
    /// Width and height of the `viewBox`.
    view: [f32; 2],
    shapes: Vec<Shape>,
}

struct Shape {
    colour: [u8; 3],
    opacity: f32,
    geometry: Geometry,
}

enum Geometry {
    Rectangle([f32; 4]),
    Line { points: Vec<[f32; 2]>, width: f32 },
    Polygon(Vec<[f32; 2]>),
    Circle([f32; 3]),
    Text { text: String, at: [f32; 2], size: f32, anchor: f32, degrees: f32 },
}

/// One element: its name, its attributes and the text up to its end.
struct Element<'a> {
    name: &'a str,
    attributes: Vec<(&'a str, &'a str)>,
    text: &'a str,
}

impl<'a> Element<'a> {
    /// The element at the start of `svg`, and what follows its text.
    fn read(svg: &'a str) -> Result<(Self, &'a str), String> {
        let (tag, after) = svg
            .strip_prefix('<')
            .and_then(|svg| svg.split_once('>'))
            .ok_or_else(|| format!("no element at {:?}", start(svg)))?;
        let (text, rest) = after.split_at(after.find('<').unwrap_or(after.len()));
        let tag = tag.strip_suffix('/').unwrap_or(tag);
        let (name, mut left) = tag.split_at(tag.find(' ').unwrap_or(tag.len()));
        let mut attributes = Vec::new();
        while !left.trim_start().is_empty() {
            let wrong = || format!("attributes {:?} of {name:?}", start(left));
            let (attribute, value) = left.trim_start().split_once("=\"").ok_or_else(wrong)?;
            let (value, rest) = value.split_once('"').ok_or_else(wrong)?;
            attributes.push((attribute, value));
            left = rest;
        }
        Ok((Self { name, attributes, text }, rest))
    }

    fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    /// A number; `default` where the attribute is missing.
    fn number(&self, name: &str, default: f32) -> Result<f32, String> {
        self.attribute(name).map_or(Ok(default), |value| {
            let number = value.parse().ok().filter(|number: &f32| number.is_finite());
            number.ok_or_else(|| format!("{name}={value:?} is no number"))
        })
    }

    fn colour(&self, name: &str) -> Result<[u8; 3], String> {
        let value = self.attribute(name).unwrap_or("#000000");
        let digits = value.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii());
        let channel = |i: usize| u8::from_str_radix(digits?.get(2 * i..2 * i + 2)?, 16).ok();
        match [channel(0), channel(1), channel(2)] {
            [Some(red), Some(green), Some(blue)] => Ok([red, green, blue]),
            _ => Err(format!("{name}={value:?} is no colour")),
        }
    }

    fn points(&self) -> Result<Vec<[f32; 2]>, String> {
        let pair = |pair: &str| {
            let (x, y) = pair.split_once(',')?;
            Some([x.parse().ok()?, y.parse().ok()?])
        };
        let points = self.attribute("points").unwrap_or("").split_ascii_whitespace();
        points.map(|text| pair(text).ok_or_else(|| format!("{text:?} is no point"))).collect()
    }

    fn shape(&self) -> Result<Shape, String> {
        let line = self.name == "polyline";
        let geometry = match self.name {
            "rect" => Geometry::Rectangle([
                self.number("x", 0.0)?,
                self.number("y", 0.0)?,
                self.number("width", 0.0)?,
                self.number("height", 0.0)?,
            ]),
            "polyline" => Geometry::Line { points: self.points()?, width: self.number("stroke-width", 1.0)? },
            "polygon" => Geometry::Polygon(self.points()?),
            "circle" => {
                Geometry::Circle([self.number("cx", 0.0)?, self.number("cy", 0.0)?, self.number("r", 0.0)?])
            }
            "text" => {
                let turn = self.attribute("transform").map(|turn| {
                    let degrees = turn.strip_prefix("rotate(").and_then(|rest| rest.split(',').next());
                    let degrees = degrees.and_then(|degrees| degrees.parse().ok());
                    degrees.ok_or_else(|| format!("{turn:?} is no rotation"))
                });
                Geometry::Text {
                    text: self.text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"),
                    at: [self.number("x", 0.0)?, self.number("y", 0.0)?],
                    size: self.number("font-size", 10.0)?,
                    anchor: match self.attribute("text-anchor") {
                        Some("middle") => 0.5,
                        Some("end") => 1.0,
                        _ => 0.0,
                    },
                    degrees: turn.transpose()?.unwrap_or(0.0),
                }
            }
            name => return Err(format!("<{name}> is none of our shapes")),
        };
        let colour = self.colour(if line { "stroke" } else { "fill" })?;
        Ok(Shape { colour, opacity: self.number("opacity", 1.0)?.clamp(0.0, 1.0), geometry })
    }
}

/// The first letters of a text, for a message.
fn start(text: &str) -> String {
    text.chars().take(30).collect()
}

impl Drawing {
    /// Reads a picture of ours; what is wrong with it otherwise.
    pub(super) fn read(svg: &str) -> Result<Self, String> {
        let (head, mut rest) = Element::read(svg.trim_start())?;
        if head.name != "svg" {
            return Err(format!("it begins with <{}>", head.name));
        }
        let size = [head.number("width", 0.0)?, head.number("height", 0.0)?];
        let view: Vec<f32> = head
            .attribute("viewBox")
            .map_or_else(Vec::new, |view| view.split(' ').filter_map(|part| part.parse().ok()).collect());
        let view = match view.as_slice() {
            [0.0, 0.0, width, height] if *width > 0.0 && *height > 0.0 => [*width, *height],
            _ => size,
        };
        let mut shapes = Vec::new();
        loop {
            let (element, after) = Element::read(rest)?;
            rest = after;
            match element.name {
                "/svg" => return Ok(Self { size, view, shapes }),
                "/text" => {}
                _ => shapes.push(element.shape()?),
            }
        }
    }

    /// Paints everything with `scale` pixels for a unit of the size.
    pub(super) fn draw(&self, scale: f32, glyphs: &Glyphs, pixmap: &mut Pixmap) {
        let to_pixels =
            Transform::from_scale(scale * self.size[0] / self.view[0], scale * self.size[1] / self.view[1]);
        for shape in &self.shapes {
            shape.draw(to_pixels, glyphs, pixmap);
        }
    }
}

/// Straight lines through `points`.
fn path(points: &[[f32; 2]], closed: bool) -> Option<tiny_skia::Path> {
    let mut path = PathBuilder::new();
    let (first, others) = points.split_first()?;
    path.move_to(first[0], first[1]);
    others.iter().for_each(|point| path.line_to(point[0], point[1]));
    if closed {
        path.close();
    }
    path.finish()
}

impl Shape {
    /// Shapes without extent leave no trace.
    fn draw(&self, to_pixels: Transform, glyphs: &Glyphs, pixmap: &mut Pixmap) {
        let [red, green, blue] = self.colour;
        let mut paint = Paint { anti_alias: true, ..Paint::default() };
        paint.set_color_rgba8(red, green, blue, (255.0 * self.opacity).round() as u8);
        let (filled, transform) = match &self.geometry {
            Geometry::Line { points, width } => {
                if let Some(path) = path(points, false) {
                    let stroke = Stroke { width: *width, ..Stroke::default() };
                    pixmap.stroke_path(&path, &paint, &stroke, to_pixels, None);
                }
                return;
            }
            Geometry::Rectangle([x, y, width, height]) => {
                (Rect::from_xywh(*x, *y, *width, *height).map(PathBuilder::from_rect), to_pixels)
            }
            Geometry::Polygon(points) => (path(points, true), to_pixels),
            Geometry::Circle([x, y, radius]) => (PathBuilder::from_circle(*x, *y, *radius), to_pixels),
            Geometry::Text { text, at, size, anchor, degrees } => {
                let (outline, length) = glyphs.outline(text);
                let place = Transform::from_translate(-anchor * length, 0.0)
                    .post_scale(*size, *size)
                    .post_rotate(*degrees)
                    .post_translate(at[0], at[1]);
                (outline, place.post_concat(to_pixels))
            }
        };
        if let Some(path) = filled {
            pixmap.fill_path(&path, &paint, FillRule::Winding, transform, None);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::super::canvas::{Align, Colour, Pen, PictureSize, draw};
    use super::*;
    use tiny_skia::Color;

    /// The red channel of a picture of 40 by 20 at one pixel a point.
    fn painted(svg: &str) -> Vec<u8> {
        let mut pixmap = Pixmap::new(40, 20).unwrap();
        pixmap.fill(Color::WHITE);
        Drawing::read(svg).unwrap().draw(1.0, &Glyphs::bundled(), &mut pixmap);
        pixmap.data().chunks_exact(4).map(|pixel| pixel[0]).collect()
    }

    #[test]
    fn shapes_cover_their_pixels() {
        let black = Colour(0, 0, 0);
        let svg = draw(PictureSize { width: 40, height: 20 }, |canvas| {
            canvas.rectangle([2.0, 3.0], [6.0, 5.0], black, 1.0);
            canvas.line(&[[10.0, 10.5], [20.0, 10.5]], Pen::new(black, 1.0));
            canvas.polygon(&[[22.0, 2.0], [30.0, 2.0], [30.0, 10.0], [22.0, 10.0]], black, 0.5);
            canvas.dot([35.0, 15.0], 3.0, black, 1.0);
        });
        let red = painted(&svg);
        let at = |x: usize, y: usize| red[y * 40 + x];
        let count = |from: usize, to: usize, rows: std::ops::Range<usize>| {
            rows.flat_map(|y| (from..to).map(move |x| (x, y))).filter(|&(x, y)| at(x, y) < 100).count()
        };
        assert_eq!(count(0, 8, 0..8), 8, "4 by 2");
        assert_eq!(count(8, 22, 8..14), 10, "a line of ten");
        assert!((127..=128).contains(&at(25, 5)) && at(25, 11) == 255, "half seen through");
        let disc = count(30, 40, 10..20);
        assert!((22..=32).contains(&disc), "{disc} for an area of 28");
    }

    #[test]
    fn text_is_anchored_and_turned() {
        let ink = |align: Align, upwards: bool| -> Vec<usize> {
            let svg = draw(PictureSize { width: 40, height: 20 }, |canvas| {
                canvas.text("MM", [20.0, 10.0], 8.0, align, upwards);
            });
            let red = painted(&svg);
            (0..red.len()).filter(|&i| red[i] < 200).collect()
        };
        let columns = |ink: &[usize]| {
            (ink.iter().map(|i| i % 40).min().unwrap(), ink.iter().map(|i| i % 40).max().unwrap())
        };
        let rows = |ink: &[usize]| (ink[0] / 40, ink[ink.len() - 1] / 40);
        let (left, middle, right) =
            (ink(Align::Left, false), ink(Align::Centre, false), ink(Align::Right, false));
        assert!(columns(&left).0 >= 20 && columns(&right).1 < 20);
        assert!(columns(&middle).0 < 16 && columns(&middle).1 > 23);
        // The middle line of the letters passes through the point.
        let (top, bottom) = rows(&middle);
        assert!((6..=7).contains(&top) && (11..=13).contains(&bottom), "{top} {bottom}");
        let turned = ink(Align::Centre, true);
        assert!(rows(&turned).1 - rows(&turned).0 > 10 && columns(&turned).1 - columns(&turned).0 < 8);
    }

    #[test]
    fn foreign_pictures_are_refused_with_a_reason() {
        let refused = |svg: &str| Drawing::read(svg).err().unwrap();
        assert!(refused("<svg").contains("no element"));
        assert!(refused("<html></html>").contains("<html>"));
        assert!(refused("<svg width=\"1\" height=\"1\"><path d=\"M0 0\"/></svg>").contains("<path>"));
        assert!(refused("<svg width=\"1\" height=\"1\"><rect x=\"left\"/></svg>").contains("\"left\""));
        assert!(refused("<svg width=\"1\" height=\"1\"><rect fill=\"red\"/></svg>").contains("no colour"));
        assert!(refused("<svg width=\"1\" height=\"1\">").contains("no element"));
    }
}
