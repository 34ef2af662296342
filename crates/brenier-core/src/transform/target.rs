//! The target side: invertible, with the log-determinant that turns a map's density into the user's units.

use super::column::{self, Column, ColumnSettings, Scaling, Side};
use super::rows::Rows;
use super::support::Support;
use super::whiten::{Whiten, Whitening};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What the user asks for the target columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetSettings {
    /// Supports by column name; a column not named here is [`Support::Real`].
    pub columns: Vec<ColumnSettings>,
    /// How all columns are centred and scaled.
    pub scaling: Scaling,
    /// Whether they are made uncorrelated after that.
    pub whiten: Whiten,
}

/// Each target column through its support's bijection, then centred and scaled: t = (u(x) − centre)/scale.
///
/// The Jacobian is diagonal, so log|det ∂t/∂x| = Σⱼ (log uⱼ′(xⱼ) − ln scaleⱼ). A [`Whitening`] may follow, with a constant
/// Jacobian of its own; t then stands for the whitened variables. Densities in the user's units are
/// log p_raw(x) = log p_std(t(x)) + log|det ∂t/∂x|, where p_std is the density of the variable the map sees.
///
/// A transform read from a file must pass [`validate`](Self::validate) before use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetTransform {
    columns: Vec<Column>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whitening: Option<Whitening>,
}

impl TargetTransform {
    /// Finds each column's centre and scale from the training rows, whose values stand in the order of `names`.
    ///
    /// Reads the rows twice, with [`Scaling::Robust`] some more times; nothing of the table's size is kept.
    ///
    /// # Errors
    /// Fewer than two rows, a value outside its support, a constant column, a support for an unknown column.
    pub fn fit(names: &[String], settings: &TargetSettings, rows: &dyn Rows) -> Result<Self> {
        if names.is_empty() {
            return Err(Error::Columns(
                "there are no target columns: name at least one in `target`".to_owned(),
            ));
        }
        let (columns, _) = column::fit(Side::Target, names, &settings.columns, settings.scaling, rows)?;
        let whitening = match settings.whiten {
            Whiten::None => None,
            Whiten::Target => Some(Whitening::fit(rows.count(), columns.len(), |index, row| {
                rows.read(index, row);
                row.iter_mut().zip(&columns).try_for_each(|(x, column)| {
                    (_, *x) = column.forward(*x)?;
                    Ok(())
                })
            })?),
        };
        Ok(Self { columns, whitening })
    }

    /// The whitening, if there is one.
    pub fn whitening(&self) -> Option<&Whitening> {
        self.whitening.as_ref()
    }

    /// The whitening, to put back its directions after reading a model file.
    pub fn whitening_mut(&mut self) -> Option<&mut Whitening> {
        self.whitening.as_mut()
    }

    /// The scaled columns of a point as the map sees it.
    fn scaled<'a>(&self, std: &'a [f64]) -> std::borrow::Cow<'a, [f64]> {
        match &self.whitening {
            None => std.into(),
            Some(whitening) => whitening.inverse(std).into(),
        }
    }

    /// The number of columns n.
    pub fn dim(&self) -> usize {
        self.columns.len()
    }

    /// The columns' names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// The columns' supports, in order.
    pub fn supports(&self) -> impl ExactSizeIterator<Item = Support> {
        self.columns.iter().map(|column| column.support)
    }

    /// Whether every support is [`Support::Real`], so that raw and standardised log densities differ by the
    /// constant [`linear_scale_log_det`](Self::linear_scale_log_det).
    pub fn is_linear(&self) -> bool {
        self.supports().all(|support| support == Support::Real)
    }

    /// Writes t(raw) to `out` and returns log|det ∂t/∂raw|.
    ///
    /// # Errors
    /// [`Error::Domain`] names the column, the value and the support it is not in; [`Error::Shape`] a wrong length.
    pub fn forward(&self, raw: &[f64], out: &mut [f64]) -> Result<f64> {
        for got in [raw.len(), out.len()] {
            if got != self.dim() {
                return Err(Error::Shape {
                    what: "target values",
                    expected: self.dim().to_string(),
                    got: got.to_string(),
                });
            }
        }
        let mut log_det = 0.0;
        for ((column, &x), out) in self.columns.iter().zip(raw).zip(&mut *out) {
            let (u, t) = column.forward(x)?;
            *out = t;
            log_det += column.log_det(u) - column.scale.ln();
        }
        if let Some(whitening) = &self.whitening {
            whitening.forward(out);
            log_det += whitening.log_det();
        }
        Ok(log_det)
    }

    /// Writes to `raw` the values whose transform is `std`.
    ///
    /// Whatever the finite or infinite input, the values are finite and strictly inside the declared bounds; where
    /// rounding would put one on a bound or beyond the largest number, it becomes the nearest number inside. NaN
    /// stays NaN.
    ///
    /// # Panics
    /// If a length is not [`dim`](Self::dim).
    pub fn inverse(&self, std: &[f64], raw: &mut [f64]) {
        self.check(std.len());
        self.check(raw.len());
        for ((column, &t), x) in self.columns.iter().zip(&*self.scaled(std)).zip(raw) {
            *x = column.inverse(t);
        }
    }

    /// log|det ∂t/∂x| at the point whose transform is `std`, exact in the tails also where
    /// [`inverse`](Self::inverse) has reached the last number inside the bounds.
    ///
    /// # Panics
    /// If the length is not [`dim`](Self::dim).
    pub fn log_det(&self, std: &[f64]) -> f64 {
        self.check(std.len());
        let scaled = self.scaled(std);
        let each = self.columns.iter().zip(&*scaled);
        let own: f64 = each.map(|(column, &t)| column.log_det(column.unscale(t)) - column.scale.ln()).sum();
        match &self.whitening {
            None => own,
            Some(whitening) => own + whitening.log_det(),
        }
    }

    /// Writes to `out` the gradient of [`log_det`](Self::log_det) with respect to `std`, which the mode of the
    /// density in the user's units needs: scaleⱼ · (log uⱼ′)′(uⱼ), zero for a real column.
    ///
    /// # Panics
    /// If a length is not [`dim`](Self::dim).
    pub fn log_det_gradient(&self, std: &[f64], out: &mut [f64]) {
        self.check(std.len());
        self.check(out.len());
        for ((column, &t), out) in self.columns.iter().zip(&*self.scaled(std)).zip(&mut *out) {
            *out = column.scale * column.log_det_slope(column.unscale(t));
        }
        if let Some(whitening) = &self.whitening {
            whitening.gradient_forward(out);
        }
    }

    /// Makes the gradient of a function with respect to t at the point `std` that with respect to the raw values.
    ///
    /// # Panics
    /// If a length is not [`dim`](Self::dim).
    pub fn gradient_in_raw(&self, std: &[f64], gradient: &mut [f64]) {
        self.check(std.len());
        self.check(gradient.len());
        if let Some(whitening) = &self.whitening {
            whitening.gradient_back(gradient);
        }
        for ((column, &t), gradient) in self.columns.iter().zip(&*self.scaled(std)).zip(gradient) {
            *gradient *= (column.log_det(column.unscale(t)) - column.scale.ln()).exp();
        }
    }

    /// −Σⱼ ln scaleⱼ, the part of the log-determinant that is due to scaling and whitening alone.
    pub fn linear_scale_log_det(&self) -> f64 {
        let scaling = -self.columns.iter().map(|column| column.scale.ln()).sum::<f64>();
        self.whitening.as_ref().map_or(scaling, |whitening| scaling + whitening.log_det())
    }

    /// Checks a transform read from a file: at least one column, ordered bounds, finite centres, positive scales.
    pub fn validate(&self) -> Result<()> {
        if self.columns.is_empty() {
            return Err(Error::Domain("the target transform has no columns; it is damaged".to_owned()));
        }
        self.columns.iter().try_for_each(Column::validate)?;
        self.whitening.as_ref().map_or(Ok(()), |whitening| whitening.validate(self.columns.len()))
    }

    fn check(&self, len: usize) {
        assert_eq!(len, self.dim(), "a target point has one value per column");
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::RowMajor;
    use super::super::support::Link;
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
    use rand_distr::{Distribution, StandardNormal};

    const SUPPORTS: [&str; 4] = ["real", "log", "interval(-2,5)", "log-interval(1e-3,10)"];

    fn normals(count: usize, seed: u64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| StandardNormal.sample(&mut rng)).collect()
    }

    /// One column of each support, fitted to values that are normal, not standard, before the bijection.
    fn fitted(scaling: Scaling, seed: u64) -> TargetTransform {
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let columns: Vec<ColumnSettings> = names
            .iter()
            .zip(SUPPORTS)
            .map(|(name, support)| format!("{name}={support}").parse().expect("parses"))
            .collect();
        let mut values = normals(400, seed);
        for row in values.chunks_exact_mut(4) {
            for (j, value) in row.iter_mut().enumerate() {
                let u = 0.3 * j as f64 - 0.2 + (0.5 + 0.4 * j as f64) * *value;
                *value = columns[j].support.inverse(u, columns[j].support.link());
            }
        }
        let rows = RowMajor::new(&values, 4).expect("four columns");
        TargetTransform::fit(&names, &TargetSettings { columns, scaling, ..Default::default() }, &rows)
            .expect("fits")
    }

    #[test]
    fn standardised_training_rows_have_mean_zero_and_variance_one() {
        let values = normals(300, 7).iter().map(|v| (1.0 + 2.0 * v).exp()).collect::<Vec<_>>();
        let settings =
            TargetSettings { columns: vec!["a=log".parse().expect("parses")], ..Default::default() };
        let rows = RowMajor::new(&values, 1).expect("one column");
        let transform = TargetTransform::fit(&["a".to_owned()], &settings, &rows).expect("fits");
        let (mut sum, mut squares) = (0.0, 0.0);
        for &x in &values {
            let mut t = [0.0];
            transform.forward(&[x], &mut t).expect("inside");
            sum += t[0] / 300.0;
            squares += t[0] * t[0] / 300.0;
        }
        assert!(sum.abs() < 1e-13 && (squares - 1.0).abs() < 1e-13);
    }

    proptest! {
        #[test]
        fn round_trip(std in prop::array::uniform4(-5.0..5.0_f64), seed in 0..20_u64) {
            for scaling in [Scaling::Standard, Scaling::Robust, Scaling::None] {
                let transform = fitted(scaling, seed);
                let (mut raw, mut back) = ([0.0; 4], [0.0; 4]);
                transform.inverse(&std, &mut raw);
                let log_det = transform.forward(&raw, &mut back).expect("inside");
                // Next to a bound the spacing of the numbers limits what can come back.
                let within = |x: f64, low: f64, high: f64| (x - low).min(high - x);
                let nearest =
                    [f64::INFINITY, f64::INFINITY, within(raw[2], -2.0, 5.0), within(raw[3], 1e-3, 10.0)];
                let slack: [f64; 4] =
                    std::array::from_fn(|j| 1e-8 + 8.0 * f64::EPSILON * raw[j].abs() / nearest[j]);
                for j in 0..4 {
                    prop_assert!((std[j] - back[j]).abs() < slack[j], "{std:?} came back as {back:?}");
                }
                let slack: f64 = slack.iter().map(|slack| 20.0 * slack).sum();
                prop_assert!((log_det - transform.log_det(&std)).abs() < slack);
            }
        }

        #[test]
        fn log_det_agrees_with_differences_of_forward(std in prop::array::uniform4(-2.0..2.0_f64)) {
            let transform = fitted(Scaling::Standard, 3);
            let mut raw = [0.0; 4];
            transform.inverse(&std, &mut raw);
            // The Jacobian is diagonal: perturb all columns at once, each by a step in its own units.
            let (mut below, mut above) = ([0.0; 4], [0.0; 4]);
            let step = raw.map(|x| 1e-5 * x.abs().min(0.01));
            let moved = |sign: f64| std::array::from_fn::<f64, 4, _>(|j| raw[j] + sign * step[j]);
            let (lower, upper) = (moved(-1.0), moved(1.0));
            prop_assume!(step.iter().all(|&h| h > 1e-12));
            let log_det = transform.forward(&raw, &mut [0.0; 4]).expect("inside");
            transform.forward(&lower, &mut below).expect("inside");
            transform.forward(&upper, &mut above).expect("inside");
            let differences: f64 =
                (0..4).map(|j| ((above[j] - below[j]) / (upper[j] - lower[j])).ln()).sum();
            prop_assert!((log_det - differences).abs() < 1e-4, "{log_det} against {differences}");
        }

        #[test]
        fn values_stay_inside_the_bounds(t in prop::num::f64::ANY) {
            let transform = fitted(Scaling::Standard, 5);
            let mut raw = [0.0; 4];
            for t in [t, 1e3, -1e3, 1e308, -1e308, f64::INFINITY, f64::NEG_INFINITY] {
                transform.inverse(&[t; 4], &mut raw);
                if t.is_nan() {
                    continue;
                }
                prop_assert!(raw[0].is_finite() && raw[1] > 0.0 && raw[1].is_finite());
                prop_assert!(-2.0 < raw[2] && raw[2] < 5.0);
                prop_assert!(1e-3 < raw[3] && raw[3] < 10.0);
                let mut gradient = [0.0; 4];
                transform.log_det_gradient(&[t; 4], &mut gradient);
                prop_assert!(gradient.iter().all(|g| g.is_finite()));
            }
        }
    }

    /// |f(t + hd) − f(t) − h ∇f·d| must fall as h²: slope 2 on a log-log plot.
    #[test]
    fn log_det_gradient_passes_the_taylor_test() {
        for seed in 0..10 {
            let transform = fitted(Scaling::Standard, seed);
            let mut point = normals(4, 100 + seed);
            // Beyond the bend of the link: inside there is nothing of second order.
            for (t, column) in point.iter_mut().zip(&transform.columns).skip(2) {
                *t = (7.0 + 0.3 * *t - column.centre) / column.scale;
            }
            let direction = normals(4, 200 + seed);
            let mut gradient = [0.0; 4];
            transform.log_det_gradient(&point, &mut gradient);
            assert_eq!(gradient[0], 0.0);
            let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let remainder = |h: f64| {
                let moved: Vec<f64> = point.iter().zip(&direction).map(|(t, d)| t + h * d).collect();
                (transform.log_det(&moved) - transform.log_det(&point) - h * slope).abs()
            };
            let (coarse, fine) = (remainder(1e-3), remainder(1e-4));
            let order = (coarse / fine).log10();
            assert!((order - 2.0).abs() < 0.1, "seed {seed}: order {order}");
        }
    }

    /// ∫ p_raw dx = 1 by the trapezium rule in x between quantiles, for t ~ N(0, 1).
    #[test]
    fn densities_integrate_to_one_in_the_users_units() {
        let normal = |t: f64| -0.5 * t * t - 0.5 * (2.0 * std::f64::consts::PI).ln();
        // Φ⁻¹ comes to the last number inside the bounds much sooner than a logit.
        for (support, link, centre, scale, far) in [
            ("real", Link::Logit, 3.0, 0.2, 9.0),
            ("log", Link::Logit, 0.3, 0.5, 9.0),
            ("interval(-2,5)", Link::Logit, 0.4, 0.9, 9.0),
            ("interval(-2,5)", Link::Probit, 0.4, 0.9, 6.0),
            ("interval(-2,5)", Link::Straight, 4.0, 0.8, 5.0),
            ("interval(0,1)", Link::Logit, 1.0, 2.0, 9.0),
            ("interval(0,1)", Link::Probit, 0.3, 0.6, 6.0),
            ("log-interval(1e-3,10)", Link::Logit, -0.2, 0.7, 9.0),
            ("log-interval(1e-3,10)", Link::Probit, -0.2, 0.7, 6.0),
            ("log-interval(1e-3,10)", Link::Straight, 3.0, 0.9, 5.0),
        ] {
            let support: Support = support.parse().expect("parses");
            let columns = vec![Column { name: "a".to_owned(), support, link, centre, scale }];
            let transform = TargetTransform { columns, whitening: None };
            let (mut low, mut high) = ([0.0], [0.0]);
            transform.inverse(&[-far], &mut low);
            transform.inverse(&[far], &mut high);
            // Points even in x: the Jacobian is used, not cancelled. Geometric spacing for positive supports.
            let points = 400_000;
            let log_spaced = low[0] > 0.0;
            let node = |i: usize| {
                let s = i as f64 / points as f64;
                if log_spaced {
                    (low[0].ln() + s * (high[0] / low[0]).ln()).exp().clamp(low[0], high[0])
                } else {
                    low[0] + s * (high[0] - low[0])
                }
            };
            let density = |x: f64| {
                let mut t = [0.0];
                let log_det = transform.forward(&[x], &mut t).expect("inside");
                (normal(t[0]) + log_det).exp()
            };
            let mut integral = 0.0;
            let (mut x, mut p) = (node(0), density(node(0)));
            for i in 1..=points {
                let (next_x, next_p) = (node(i), density(node(i)));
                integral += 0.5 * (p + next_p) * (next_x - x);
                (x, p) = (next_x, next_p);
            }
            assert!((integral - 1.0).abs() < 1e-6, "{support}, {link:?}: {integral}");
        }
    }

    #[test]
    fn linear_transforms_differ_by_the_scale_alone() {
        let rows = RowMajor::new(&[1.0, 5.0, 2.0, 9.0, 4.0, 1.0], 2).expect("two columns");
        let names = ["a".to_owned(), "b".to_owned()];
        let transform = TargetTransform::fit(&names, &TargetSettings::default(), &rows).expect("fits");
        assert!(transform.is_linear());
        let log_det = transform.forward(&[7.0, 7.0], &mut [0.0; 2]).expect("inside");
        assert_eq!(log_det, transform.linear_scale_log_det());
        assert!(!fitted(Scaling::Standard, 0).is_linear());
    }

    #[test]
    fn values_outside_are_named() {
        let transform = fitted(Scaling::Standard, 0);
        let good = [0.0, 1.0, 1.0, 1.0];
        for (j, value, says) in [
            (0, f64::NAN, "not a number"),
            (0, f64::INFINITY, "not finite"),
            (1, -0.5, "-0.5 is not a finite positive"),
            (2, 5.0, "exactly on a bound of interval(-2,5)"),
            (2, 7.0, "outside interval(-2,5)"),
            (3, 1e-3, "exactly on a bound"),
        ] {
            let mut raw = good;
            raw[j] = value;
            let message = transform.forward(&raw, &mut [0.0; 4]).expect_err("outside").to_string();
            let column = ["\"a\"", "\"b\"", "\"c\"", "\"d\""][j];
            assert!(message.contains(says) && message.contains(column), "{message}");
        }
        assert!(matches!(transform.forward(&good[..3], &mut [0.0; 4]), Err(Error::Shape { .. })));
        assert!(matches!(transform.forward(&good, &mut [0.0; 3]), Err(Error::Shape { .. })));
        assert!(
            TargetTransform::fit(&[], &TargetSettings::default(), &RowMajor::new(&[], 1).expect("empty"))
                .is_err()
        );
    }

    #[test]
    fn json_keeps_every_bit() {
        for seed in 0..20 {
            let transform = fitted(Scaling::Standard, seed);
            let json = serde_json::to_string(&transform).expect("writes");
            let back: TargetTransform = serde_json::from_str(&json).expect("reads");
            back.validate().expect("valid");
            for (a, b) in transform.columns.iter().zip(&back.columns) {
                assert_eq!(a.centre.to_bits(), b.centre.to_bits());
                assert_eq!(a.scale.to_bits(), b.scale.to_bits());
            }
            assert_eq!(transform, back);
        }
    }

    #[test]
    fn settings_read_from_toml() {
        let text =
            "columns = [\"rate=log\", \"share=interval(0,1)\"]\nscaling = \"robust\"\nwhiten = \"none\"\n";
        let settings: TargetSettings = toml::from_str(text).expect("reads");
        assert_eq!(settings.scaling, Scaling::Robust);
        assert_eq!(settings.columns[1].support, Support::Interval { low: 0.0, high: 1.0 });
        assert_eq!(toml::to_string(&settings).expect("writes"), text);
        assert!(toml::from_str::<TargetSettings>("columns = [\"share=interval(1,0)\"]").is_err());
    }

    #[test]
    fn hostile_files_are_refused() {
        for column in [
            r#"{"name":"a","support":"log","centre":"0","scale":"0"}"#,
            r#"{"name":"a","support":"log","centre":"0","scale":"-1"}"#,
            r#"{"name":"a","support":"log","centre":"inf","scale":"1"}"#,
            r#"{"name":"a","support":"log","centre":null,"scale":"1"}"#,
            r#"{"name":"a","support":"interval(2,1)","centre":"0","scale":"1"}"#,
        ] {
            let json = format!(r#"{{"columns":[{column}]}}"#);
            let refused = match serde_json::from_str::<TargetTransform>(&json) {
                Ok(transform) => transform.validate().is_err(),
                Err(_) => true,
            };
            assert!(refused, "{json}");
        }
        let empty: TargetTransform = serde_json::from_str(r#"{"columns":[]}"#).expect("reads");
        assert!(empty.validate().is_err());
    }

    /// Columns that depend on one another, one of them on the log scale, as uncorrelated variables: mean 0, variance 1, there and
    /// back, with the log-determinant and both gradients of the whole transform.
    #[test]
    fn whitened_columns_are_uncorrelated_and_keep_their_density() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let normal = normals(3 * 500, 9);
        let values: Vec<f64> = normal
            .chunks_exact(3)
            .flat_map(|z| [(0.3 * z[0]).exp(), 2.0 + z[0] + 0.01 * z[1], z[0] - z[1] + 1e-3 * z[2]])
            .collect();
        let rows = RowMajor::new(&values, 3).expect("three columns");
        let settings = TargetSettings {
            columns: vec!["a=log".parse().expect("parses")],
            whiten: Whiten::Target,
            ..Default::default()
        };
        let transform = TargetTransform::fit(&names, &settings, &rows).expect("fits");
        transform.validate().expect("sound");
        let mut second = [[0.0; 4]; 3];
        for raw in values.chunks_exact(3) {
            let (mut w, mut back) = ([0.0; 3], [0.0; 3]);
            let log_det = transform.forward(raw, &mut w).expect("inside");
            assert!((log_det - transform.log_det(&w)).abs() < 1e-8);
            transform.inverse(&w, &mut back);
            assert!(raw.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-10));
            for i in 0..3 {
                second[i][3] += w[i] / 500.0;
                (0..3).for_each(|j| second[i][j] += w[i] * w[j] / 500.0);
            }
        }
        for i in 0..3 {
            for j in 0..4 {
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((second[i][j] - expected).abs() < 1e-7, "{second:?}");
            }
        }
        // The determinant of the Jacobian by differences.
        let raw = [1.2, 1.9, 0.3];
        let mut w = [0.0; 3];
        let log_det = transform.forward(&raw, &mut w).expect("inside");
        let mut jacobian = [[0.0; 3]; 3];
        for j in 0..3 {
            let (mut above, mut below) = ([0.0; 3], [0.0; 3]);
            let moved = |h: f64| std::array::from_fn::<f64, 3, _>(|i| raw[i] + if i == j { h } else { 0.0 });
            transform.forward(&moved(1e-6), &mut above).expect("inside");
            transform.forward(&moved(-1e-6), &mut below).expect("inside");
            (0..3).for_each(|i| jacobian[i][j] = (above[i] - below[i]) / 2e-6);
        }
        let [a, b, c] = jacobian;
        let det = a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
            + a[2] * (b[0] * c[1] - b[1] * c[0]);
        assert!((det.abs().ln() - log_det).abs() < 1e-4, "{det} {log_det}");
        // The gradient of g·w with respect to the raw values is Jᵀg.
        let mut gradient = [0.5, -1.0, 0.25];
        let expected: [f64; 3] = std::array::from_fn(|j| (0..3).map(|i| jacobian[i][j] * gradient[i]).sum());
        transform.gradient_in_raw(&w, &mut gradient);
        for (got, expected) in gradient.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5 * expected.abs().max(1.0), "{got} {expected}");
        }
        // The log-determinant's own gradient, by the Taylor remainder.
        let mut slope = [0.0; 3];
        transform.log_det_gradient(&w, &mut slope);
        let direction = [0.3, -0.2, 0.5];
        let linear: f64 = slope.iter().zip(&direction).map(|(s, d)| s * d).sum();
        let at = |h: f64| transform.log_det(&std::array::from_fn::<f64, 3, _>(|i| w[i] + h * direction[i]));
        assert!((at(1e-4) - at(-1e-4) - 2e-4 * linear).abs() < 1e-10);
    }

    /// Columns that repeat one another: a direction without variance is nearly constant, and nothing is lost.
    #[test]
    fn whitening_survives_columns_that_depend_on_one_another() {
        let values: Vec<f64> = normals(100, 3).iter().flat_map(|z| [*z, 2.0 * z + 1.0]).collect();
        let rows = RowMajor::new(&values, 2).expect("two columns");
        let settings = TargetSettings { whiten: Whiten::Target, ..Default::default() };
        let names = ["a".to_owned(), "b".to_owned()];
        let transform = TargetTransform::fit(&names, &settings, &rows).expect("fits");
        for raw in values.chunks_exact(2) {
            let (mut w, mut back) = ([0.0; 2], [0.0; 2]);
            transform.forward(raw, &mut w).expect("inside");
            transform.inverse(&w, &mut back);
            assert!(w[1].abs() < 1e-6 && raw.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-12));
        }
        let mut damaged = transform.clone();
        damaged.whitening_mut().expect("asked for").set_directions(vec![1.0, 0.0, 1.0, 0.0]);
        assert!(damaged.validate().expect_err("not orthonormal").to_string().contains("orthonormal"));
    }
}
