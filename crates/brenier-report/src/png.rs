//! Pictures as PNG: the SVG rasterised, with a font of our own, so that a picture is the same on every machine.

mod glyphs;
mod shapes;

use tiny_skia::{Color, Pixmap};

use crate::{Error, Result};
use glyphs::Glyphs;
use shapes::Drawing;

/// Points of a picture in an inch.
const POINTS: f64 = 72.0;
/// Inches in a metre.
const INCHES: f64 = 1.0 / 0.0254;
/// Pixels of a picture, at most: 400 MB while it is drawn.
const MOST_PIXELS: f64 = 1e8;

/// Rasterises a picture of this module with `scale` pixels a point; 300/72 gives 300 dots an inch in print.
///
/// Letters outside Latin, Greek, Cyrillic and the mathematical signs are left out: keep such pictures as SVG.
///
/// # Errors
///
/// When `scale` is not positive or makes more than 10⁸ pixels, or when `svg` is none of this module.
pub fn png(svg: &str, scale: f64) -> Result<Vec<u8>> {
    let drawing = Drawing::read(svg)
        .map_err(|reason| Error::Domain(format!("the picture is no SVG that can be drawn: {reason}")))?;
    let (width, height) = (f64::from(drawing.size[0]) * scale, f64::from(drawing.size[1]) * scale);
    let pixels = [width, height].map(f64::round);
    if !(scale > 0.0 && pixels[0] >= 1.0 && pixels[1] >= 1.0 && pixels[0] * pixels[1] <= MOST_PIXELS) {
        return Err(Error::Shape {
            what: "pixels of a PNG picture",
            expected: "1 to 100 million".to_owned(),
            got: format!("{width:.0} × {height:.0}"),
        });
    }
    let mut pixmap = Pixmap::new(pixels[0] as u32, pixels[1] as u32).expect("neither empty nor too large");
    // The picture may end within the last pixels.
    pixmap.fill(Color::WHITE);
    drawing.draw(scale as f32, &Glyphs::bundled(), &mut pixmap);

    // Nothing is transparent: one channel less.
    let colours: Vec<u8> = pixmap.data().chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, pixmap.width(), pixmap.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    // The size in print.
    let density = (scale * POINTS * INCHES).round() as u32;
    encoder.set_pixel_dims(Some(png::PixelDimensions {
        xppu: density,
        yppu: density,
        unit: png::Unit::Meter,
    }));
    let written = encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&colours).map(|()| writer.finish()));
    written.and_then(|finished| finished).expect("writing into memory cannot fail");
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{Curve, CurvePlot, PictureSize};
    use super::*;

    fn picture(label: &str) -> String {
        let curve = Curve::line(label, [0.0, 1.0, 2.0], [1.0, 3.0, 2.0]);
        CurvePlot::new("t", "y").curve(curve).to_svg(PictureSize { width: 200, height: 150 }).unwrap()
    }

    fn pixels(file: &[u8]) -> (u32, u32, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut data = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut data).unwrap();
        (info.width, info.height, data)
    }

    fn dark(pixels: &[u8]) -> usize {
        pixels.chunks_exact(3).filter(|pixel| pixel.iter().all(|&channel| channel < 100)).count()
    }

    #[test]
    fn a_picture_has_its_size_and_content_and_is_reproducible() {
        let svg = picture("a");
        let file = png(&svg, 2.0).unwrap();
        assert_eq!(file, png(&svg, 2.0).unwrap());
        let (width, height, data) = pixels(&file);
        assert_eq!((width, height), (400, 300));
        let blue = data.chunks_exact(3).filter(|pixel| **pixel == [0, 114, 178]).count();
        assert!(blue > 200, "the curve: {blue}");
        // White at every corner, also where the picture ends within a pixel.
        for scale in [2.0, 150.0 / 72.0, 1.003] {
            let (_, _, data) = pixels(&png(&svg, scale).unwrap());
            assert!(
                data[..3].iter().chain(&data[data.len() - 3..]).all(|&channel| channel == 255),
                "{scale}"
            );
        }
    }

    #[test]
    fn every_letter_of_a_figure_is_in_the_font() {
        // Without its label a picture has less ink; a missing glyph would leave none or always the same box.
        let letters = "θ ₁ ₂ ⁻ ³ × − ≤ σ µ Ω é ж · … ∞ ½ ± → ∑".split(' ');
        let shapes: std::collections::BTreeSet<usize> = letters
            .clone()
            .map(|letter| {
                let (_, _, data) = pixels(&png(&picture(letter), 4.0).unwrap());
                let (_, _, empty) = pixels(&png(&picture(" "), 4.0).unwrap());
                let ink = dark(&data) - dark(&empty);
                assert!(ink > 5, "{letter}: {ink}");
                ink
            })
            .collect();
        assert!(shapes.len() > letters.count() / 2);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(png("<svg", 1.0).unwrap_err().to_string().contains("no SVG"));
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e6] {
            assert!(png(&picture("a"), scale).unwrap_err().to_string().contains("100 million"), "{scale}");
        }
    }
}
