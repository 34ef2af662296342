//! The conditional Gaussian that every model file holds, scored in the units in which its map is.

use crate::{LogDensities, Posterior, Result};

/// What tables call it.
pub(crate) const TITLE: &str = "conditional Gaussian";

/// −log π(x | y) of rows under the baseline of `model`, in the user's units; none where there is no baseline.
///
/// `densities` are those of the map at the same rows. The baseline sees them through the same transform, so that both change
/// by the same logarithm of a determinant from one unit to the other.
pub(crate) fn losses(
    model: &Posterior,
    target: &[f64],
    given: &[f64],
    densities: &LogDensities,
) -> Result<Option<Vec<f64>>> {
    let Some(mut losses) = model.baseline_nll(target, given)? else { return Ok(None) };
    let both = densities.standardised.iter().zip(&densities.user);
    losses.iter_mut().zip(both).for_each(|(loss, (standardised, user))| *loss += standardised - user);
    Ok(Some(losses))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::data::Table;
    use crate::map::Method;
    use crate::{FitSettings, Run, fit};

    /// A conditional Gaussian fitted as a map of its own has the same losses, whatever the units.
    #[test]
    fn the_baseline_is_the_gaussian_that_is_fitted_to_the_same_rows() {
        let example = brenier_core::example::simulate(300, 1);
        let values: Vec<f64> = example.iter().flat_map(|row| [row[0], row[1].exp(), 50.0 * row[2]]).collect();
        let table = Table::new(example.names().to_vec(), values).unwrap();
        let mut settings = FitSettings {
            target: Some("x1,x2".parse().unwrap()),
            given: Some("y".parse().unwrap()),
            support: vec!["x1=log".parse().unwrap()],
            ..Default::default()
        };
        settings.method = settings.method.with("feature_width", 8).unwrap();
        settings.train.epochs = 2;
        let gaussian = FitSettings { method: Method::Gaussian.defaults(), ..settings.clone() };
        let [map, gaussian] =
            [settings, gaussian].map(|settings| fit(&table, &settings, Run::silent()).unwrap().posterior);
        let target: Vec<f64> = table.iter().flat_map(|row| [row[1], row[2]]).collect();
        let given: Vec<f64> = table.iter().map(|row| row[0]).collect();
        let of_map = map.log_density(&target, &given).unwrap();
        let of_gaussian = gaussian.log_density(&target, &given).unwrap();
        let found = losses(&map, &target, &given, &of_map).unwrap().unwrap();
        for (loss, density) in found.iter().zip(&of_gaussian.user) {
            assert!((loss + density).abs() < 1e-6, "{loss} {density}");
        }
        assert_eq!(losses(&gaussian, &target, &given, &of_gaussian).unwrap(), None);
    }
}
