//! Pictures in files: SVG or PNG, by the ending of the name.

use std::path::Path;

use crate::data::write_bytes;
use crate::{Error, Result};

/// The format of a picture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PictureFormat {
    /// Lines and text that can be searched, edited and scaled.
    Svg,
    /// Pixels.
    Png,
}

/// Dots an inch of PNG files unless said otherwise: what journals ask for.
pub const DOTS_PER_INCH: f64 = 300.0;

impl PictureFormat {
    /// The format that `path` names by its ending.
    ///
    /// # Errors
    ///
    /// When it names neither, or PNG and the crate was built without its feature `png`.
    pub fn of(path: &Path) -> Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        match ending.as_deref() {
            Some("svg") => Ok(Self::Svg),
            Some("png") if cfg!(feature = "png") => Ok(Self::Png),
            Some("png") => Err(Error::Domain(format!(
                "{}: this build writes no PNG (feature png): end the picture's name in .svg",
                path.display()
            ))),
            _ => Err(Error::Domain(format!(
                "{}: a picture is written as SVG or PNG: end its name in .svg or .png",
                path.display()
            ))),
        }
    }
}

/// Writes a picture to `path` in the format of its ending; `dots` an inch where it is PNG.
///
/// # Errors
///
/// As [`PictureFormat::of`] and [`png`](super::png); when the file cannot be written.
pub fn write_picture(path: &Path, svg: &str, dots: f64) -> Result<()> {
    match PictureFormat::of(path)? {
        PictureFormat::Svg => write_bytes(path, svg.as_bytes()),
        #[cfg(feature = "png")]
        PictureFormat::Png => write_bytes(path, &super::png(svg, dots / 72.0)?),
        #[cfg(not(feature = "png"))]
        PictureFormat::Png => unreachable!("refused at {dots} dots an inch"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_decides() {
        let of = |name: &str| PictureFormat::of(Path::new(name));
        assert!(matches!(of("a/b.SVG"), Ok(PictureFormat::Svg)));
        #[cfg(feature = "png")]
        assert!(matches!(of("b.png"), Ok(PictureFormat::Png)));
        for name in ["b.pdf", "svg", "b."] {
            let text = of(name).expect_err("no picture").to_string();
            assert!(text.contains(name) && text.contains(".svg or .png"), "{text}");
        }
    }
}
