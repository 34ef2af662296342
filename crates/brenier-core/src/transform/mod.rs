//! Invertible preprocessing with log-determinants: from the user's columns to the variables a map sees, and back.
//!
//! Each column x passes through two steps, and either side optionally through a third:
//!
//! | step | formula | settings |
//! |---|---|---|
//! | support | u = x, ln x, Φ⁻¹ of the place of x in an interval | [`Support`] |
//! | scaling | t = (u − centre) / scale | [`Scaling`] |
//! | asinh scale (given side only) | asinh((u − a)/b), centred and scaled | [`Asinh`] |
//! | symmetric features (given side only) | means, deviations, correlations and power sums of points in no order | [`ExchangeableRule`] |
//! | PCA (given side only) | sₖ = vₖᵀ(t − mean) / √λₖ | [`PcaSettings`] |
//! | reduction (given side only, in place of PCA) | sₖ = wₖᵀ(t − mean) | [`Reduction`] |
//! | whitening (target side only) | the same with all components | [`Whiten`] |
//!
//! **Units.** A map is trained on t, so its density is that of t. With the log-determinant of the steps,
//!
//! ```text
//! log p_raw(x) = log p_std(t(x)) + log|det ∂t/∂x|
//! ```
//!
//! is the density in the units of the user's columns, the one we report. The *standardised* density printed
//! beside it is p_std, the density of the variable the map sees. When every support is [`Support::Real`] the
//! two differ by the constant [`TargetTransform::linear_scale_log_det`], which is how the literature's tables
//! can be compared; otherwise by a function of x.
//!
//! ```
//! use brenier_core::transform::{RowMajor, TargetSettings, TargetTransform};
//!
//! let names = ["rate".to_owned(), "share".to_owned()];
//! let values = [0.1, 0.2, 3.0, 0.5, 20.0, 0.9];
//! let settings = TargetSettings {
//!     columns: vec!["rate=log".parse()?, "share=interval(0,1)".parse()?],
//!     ..TargetSettings::default()
//! };
//! let transform = TargetTransform::fit(&names, &settings, &RowMajor::new(&values, 2)?)?;
//!
//! let (mut std, mut raw) = ([0.0; 2], [0.0; 2]);
//! let log_det = transform.forward(&[3.0, 0.5], &mut std)?;
//! transform.inverse(&std, &mut raw);
//! assert!((raw[0] - 3.0).abs() < 1e-12 && (raw[1] - 0.5).abs() < 1e-12);
//! assert!((transform.log_det(&std) - log_det).abs() < 1e-12);
//! # Ok::<(), brenier_core::Error>(())
//! ```

mod asinh;
mod column;
mod exact;
mod exchangeable;
mod given;
mod leading;
mod moments;
mod noise;
mod pca;
mod reduce;
mod rows;
mod rule;
mod support;
mod target;
mod whiten;

pub use asinh::Asinh;
pub(crate) use asinh::not_alone as asinh_not_alone;
pub use column::{ColumnSettings, Scaling};
pub use exchangeable::ExchangeableRule;
pub use given::{GivenSettings, GivenTransform};
pub use leading::{Leading, LeadingSettings};
pub use moments::SecondMoments;
pub(crate) use noise::KeptNoise;
pub use noise::{GivenNoise, NoiseRule, NoiseSettings};
pub use pca::{Pca, PcaSettings};
pub(crate) use reduce::PairRows;
pub use reduce::Reduction;
pub use rows::{FnRows, RowMajor, Rows};
pub use rule::SupportRule;
pub use support::Support;
pub use target::{TargetSettings, TargetTransform};
pub use whiten::{Whiten, Whitening};

use crate::{Error, Result};

/// An error unless a matrix that was read from a file has the right size and finite numbers; `what` and `entry` are its names.
fn check_matrix(what: &'static str, entry: &str, [rows, columns]: [usize; 2], values: &[f64]) -> Result<()> {
    if rows.checked_mul(columns) != Some(values.len()) {
        return Err(Error::Shape {
            what,
            expected: format!("{rows} x {columns}"),
            got: format!("{} values", values.len()),
        });
    }
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return Err(Error::Domain(format!("{entry} {value}; it is damaged")));
    }
    Ok(())
}
