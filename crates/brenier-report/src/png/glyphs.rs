//! Letters as outlines of the bundled font.

use tiny_skia::{Path, PathBuilder, Transform};
use ttf_parser::{Face, OutlineBuilder};

/// DejaVu Sans with the letters a figure needs; origin and licence are beside it.
static FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

/// The bundled font.
pub(super) struct Glyphs {
    face: Face<'static>,
}

impl Glyphs {
    pub(super) fn bundled() -> Self {
        Self { face: Face::parse(FONT, 0).expect("the bundled font can be read") }
    }

    /// The outline of `text`, its baseline starting at the origin, in units of the font's size, and its length; letters that the
    /// font does not have are left out.
    pub(super) fn outline(&self, text: &str) -> (Option<Path>, f32) {
        let mut pen = Outline { path: PathBuilder::new(), at: 0.0 };
        for glyph in text.chars().filter_map(|letter| self.face.glyph_index(letter)) {
            self.face.outline_glyph(glyph, &mut pen);
            pen.at += f32::from(self.face.glyph_hor_advance(glyph).unwrap_or(0));
        }
        let em = 1.0 / f32::from(self.face.units_per_em());
        let path = pen.path.finish().and_then(|path| path.transform(Transform::from_scale(em, em)));
        (path, em * pen.at)
    }
}

/// Collects outlines, each at its place; fonts count heights upwards, pictures downwards.
struct Outline {
    path: PathBuilder,
    at: f32,
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.at + x, -y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.at + x, -y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.at + x1, -y1, self.at + x, -y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.at + x1, -y1, self.at + x2, -y2, self.at + x, -y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn letters_stand_side_by_side_on_the_baseline() {
        let glyphs = Glyphs::bundled();
        let (path, length) = glyphs.outline("H");
        let bounds = path.unwrap().bounds();
        // A capital is about 0.73 high and stands within its advance.
        assert!(bounds.bottom().abs() < 0.01 && (bounds.top() + 0.73).abs() < 0.02, "{bounds:?}");
        assert!(bounds.left() > 0.0 && bounds.right() < length);
        let (pair, twice) = glyphs.outline("HH");
        assert!((twice - 2.0 * length).abs() < 1e-6);
        assert!((pair.unwrap().bounds().right() - bounds.right() - length).abs() < 1e-5);
        assert!(glyphs.outline(" ").0.is_none() && glyphs.outline(" ").1 > 0.1);
        // Not in the font: nothing, not a box.
        assert!(glyphs.outline("漢").0.is_none() && glyphs.outline("漢").1 == 0.0);
    }
}
