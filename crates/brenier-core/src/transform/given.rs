//! The given side: supports and scaling per column, symmetric features of exchangeable columns, then optionally principal
//! components or a supervised reduction; no inverse is needed.

use super::column::{self, Column, ColumnSettings, Scaling, Side};
use super::exchangeable::{Exchangeable, ExchangeableRule};
use super::noise::GivenNoise;
use super::pca::{Pca, PcaSettings};
use super::reduce::Reduction;
use super::rows::{FnRows, Rows};
use super::support::Support;
use crate::data::short_name;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What the user asks for the given columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenSettings {
    /// Supports by column name; a column not named here is [`Support::Real`](super::Support::Real).
    pub columns: Vec<ColumnSettings>,
    /// How all columns are centred and scaled.
    pub scaling: Scaling,
    /// Columns that hold points in no particular order; none by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exchangeable: Vec<ExchangeableRule>,
    /// How many principal components replace the columns; none by default.
    pub pca: Option<PcaSettings>,
}

/// Each given column through its support's bijection, centred and scaled, then projected if so asked.
///
/// A transform read from a file must have its components put back through [`pca_mut`](Self::pca_mut) and
/// [`Pca::set_components`] and pass [`validate`](Self::validate) before use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenTransform {
    columns: Vec<Column>,
    /// Groups of columns that symmetric features stand for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exchangeable: Vec<Exchangeable>,
    /// Centres and scales of these features, group by group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    features: Vec<Column>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pca: Option<Pca>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reduction: Option<Reduction>,
}

impl GivenTransform {
    /// Finds centres, scales and components from the training rows, whose values stand in the order of `names`,
    /// and returns with them the warnings the user should see: constant columns.
    ///
    /// # Errors
    /// Fewer than two rows, a value outside its support, a support for an unknown column, more components than
    /// the rows have independent directions.
    pub fn fit(names: &[String], settings: &GivenSettings, rows: &dyn Rows) -> Result<(Self, Vec<String>)> {
        if let Some(pca) = &settings.pca {
            pca.validate()?;
        }
        let (columns, warnings) = column::fit(Side::Given, names, &settings.columns, settings.scaling, rows)?;
        let mut transform =
            Self { columns, exchangeable: Vec::new(), features: Vec::new(), pca: None, reduction: None };
        transform.group(names, settings, rows)?;
        if let Some(settings) = settings.pca {
            let mut raw = vec![0.0; names.len()];
            let pca = Pca::fit(settings, rows.count(), transform.scaled_dim(), |index, row| {
                rows.read(index, &mut raw);
                transform.scaled(&raw, row)
            })?;
            transform.pca = Some(pca);
        }
        Ok((transform, warnings))
    }

    /// The same with its scaled columns reduced.
    pub(crate) fn reduced(self, reduction: Reduction) -> Self {
        Self { reduction: Some(reduction), ..self }
    }

    /// Finds the groups of exchangeable columns and the scales of their features.
    fn group(&mut self, names: &[String], settings: &GivenSettings, rows: &dyn Rows) -> Result<()> {
        let mut taken = vec![false; names.len()];
        for rule in &settings.exchangeable {
            let group = Exchangeable::fit(rule, names, &self.columns, rows)?;
            if let Some(&place) =
                group.columns.iter().find(|&&place| std::mem::replace(&mut taken[place], true))
            {
                let name = &names[place];
                return Err(Error::setting("exchangeable", format!("{rule}: {name} is named twice")));
            }
            self.exchangeable.push(group);
        }
        if self.exchangeable.is_empty() {
            return Ok(());
        }
        let feature_names: Vec<String> =
            self.exchangeable.iter().flat_map(|group| group.names(names)).collect();
        let features = FnRows::new(rows.count(), |index: usize, row: &mut [f64]| {
            let (mut raw, mut own) = (vec![0.0; names.len()], Vec::with_capacity(row.len()));
            rows.read(index, &mut raw);
            // Every value is in its support: the columns were fitted to the same rows.
            let read =
                self.exchangeable.iter().try_for_each(|group| group.push(&self.columns, &raw, &mut own));
            match read {
                Ok(()) => row.copy_from_slice(&own),
                Err(_) => row.fill(f64::NAN),
            }
        });
        // A feature that is the same in every row is none of the user's doing.
        let (features, _) = column::fit(Side::Given, &feature_names, &[], settings.scaling, &features)?;
        self.features = features;
        Ok(())
    }

    /// Whether a column is one of a group.
    fn is_grouped(&self, place: usize) -> bool {
        self.exchangeable.iter().any(|group| group.columns.contains(&place))
    }

    /// How many values there are before the principal components.
    fn scaled_dim(&self) -> usize {
        let grouped: usize = self.exchangeable.iter().map(|group| group.columns.len()).sum();
        (self.columns.len() + self.features.len()).saturating_sub(grouped)
    }

    /// The values before the principal components: columns on their own, then the features of the groups.
    fn scaled(&self, raw: &[f64], out: &mut [f64]) -> Result<()> {
        if self.exchangeable.is_empty() {
            for ((column, &x), out) in self.columns.iter().zip(raw).zip(out) {
                (_, *out) = column.forward(x)?;
            }
            return Ok(());
        }
        let mut out = out.iter_mut();
        for (place, (column, &x)) in self.columns.iter().zip(raw).enumerate() {
            let (_, t) = column.forward(x)?;
            if !self.is_grouped(place)
                && let Some(out) = out.next()
            {
                *out = t;
            }
        }
        let mut values = Vec::with_capacity(self.features.len());
        self.exchangeable.iter().try_for_each(|group| group.push(&self.columns, raw, &mut values))?;
        for ((feature, value), out) in self.features.iter().zip(values).zip(out) {
            (_, *out) = feature.forward(value)?;
        }
        Ok(())
    }

    /// The number of given columns.
    pub fn input_dim(&self) -> usize {
        self.columns.len()
    }

    /// The number of values m the map sees.
    pub fn output_dim(&self) -> usize {
        match (&self.pca, &self.reduction) {
            (Some(pca), _) => pca.output_dim(),
            (None, Some(reduction)) => reduction.output_dim(),
            (None, None) => self.scaled_dim(),
        }
    }

    /// The columns' names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// The principal components, if there are any.
    pub fn pca(&self) -> Option<&Pca> {
        self.pca.as_ref()
    }

    /// The principal components, to put back their matrix after reading a model file.
    pub fn pca_mut(&mut self) -> Option<&mut Pca> {
        self.pca.as_mut()
    }

    /// The reduction, if there is one.
    pub fn reduction(&self) -> Option<&Reduction> {
        self.reduction.as_ref()
    }

    /// The reduction, to put back its weights after reading a model file.
    pub fn reduction_mut(&mut self) -> Option<&mut Reduction> {
        self.reduction.as_mut()
    }

    /// Writes to `out` what the map sees of the raw given values.
    ///
    /// # Errors
    /// [`Error::Domain`] names the column, the value and the support it is not in; [`Error::Shape`] a wrong length.
    pub fn forward(&self, raw: &[f64], out: &mut [f64]) -> Result<()> {
        for (got, expected) in [(raw.len(), self.input_dim()), (out.len(), self.output_dim())] {
            if got != expected {
                return Err(Error::Shape {
                    what: "given values",
                    expected: expected.to_string(),
                    got: got.to_string(),
                });
            }
        }
        match &self.pca {
            None if self.reduction.is_some() => {
                return self.forward_rows(raw, out).map_err(|(_, error)| error);
            }
            None => self.scaled(raw, out)?,
            Some(pca) => {
                if pca.input_dim() != self.scaled_dim() {
                    return Err(self.pca_mismatch(pca));
                }
                pca.begin(out)?;
                let mut scaled = vec![0.0; self.scaled_dim()];
                self.scaled(raw, &mut scaled)?;
                scaled.iter().enumerate().for_each(|(j, &t)| pca.add(j, t, out));
                pca.finish(out);
                if !out.iter().all(|score| score.is_finite()) {
                    return Err(too_far());
                }
            }
        }
        Ok(())
    }

    /// As [`forward`](Self::forward) for several rows, one after the other; an error comes with the row, from 0.
    pub(crate) fn forward_rows(&self, raw: &[f64], out: &mut [f64]) -> Result<(), (usize, Error)> {
        let (m, k) = (self.input_dim(), self.output_dim());
        let Some(reduction) = &self.reduction else {
            let rows = raw.chunks_exact(m.max(1)).zip(out.chunks_exact_mut(k.max(1))).enumerate();
            for (index, (raw, out)) in rows {
                self.forward(raw, out).map_err(|error| (index, error))?;
            }
            return Ok(());
        };
        let mut scaled = vec![0.0; raw.len()];
        for (index, (raw, scaled)) in raw.chunks_exact(m).zip(scaled.chunks_exact_mut(m)).enumerate() {
            for ((column, &x), t) in self.columns.iter().zip(raw).zip(scaled) {
                (_, *t) = column.forward(x).map_err(|error| (index, error))?;
            }
        }
        reduction.apply(&scaled, out).map_err(|error| (0, error))?;
        match out.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(place) => Err((place / k.max(1), too_far())),
        }
    }

    /// What independent noise of these standard deviations on the raw columns becomes in the variables that the map sees.
    ///
    /// # Errors
    /// Noise on a column that is not [`Support::Real`]: it would not stay Gaussian.
    pub fn noise(&self, sd: &[f64]) -> Result<GivenNoise> {
        if sd.len() != self.input_dim() {
            return Err(Error::Shape {
                what: "standard deviations of the noise",
                expected: self.input_dim().to_string(),
                got: sd.len().to_string(),
            });
        }
        let mut scaled = Vec::with_capacity(sd.len());
        for (column, &sd) in self.columns.iter().zip(sd) {
            if sd > 0.0 && column.support != Support::Real {
                return Err(Error::setting(
                    "noise",
                    format!(
                        "the given column {:?} has the support {}, and noise is added to real columns only: leave one of the two out",
                        short_name(&column.name),
                        column.support
                    ),
                ));
            }
            scaled.push(sd / column.scale);
        }
        let variances: Vec<f64> = scaled.iter().map(|sd| sd * sd).collect();
        match (&self.pca, &self.reduction) {
            (Some(pca), _) => GivenNoise::mixed(&pca.weights(), pca.output_dim(), &variances),
            (None, Some(reduction)) => {
                GivenNoise::mixed(reduction.weights(), reduction.output_dim(), &variances)
            }
            (None, None) => Ok(GivenNoise::Columns(scaled.iter().map(|&sd| sd as f32).collect())),
        }
    }

    /// Checks a transform read from a file: ordered bounds, finite centres, positive scales, components that fit.
    pub fn validate(&self) -> Result<()> {
        self.columns.iter().chain(&self.features).try_for_each(Column::validate)?;
        self.exchangeable.iter().try_for_each(|group| group.validate(self.columns.len()))?;
        let (features, mut taken) =
            (self.exchangeable.iter().map(Exchangeable::len).sum::<usize>(), Vec::new());
        self.exchangeable.iter().for_each(|group| taken.extend_from_slice(&group.columns));
        taken.sort_unstable();
        if features != self.features.len() || taken.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::Domain(
                "the symmetric features of the given transform are damaged".to_owned(),
            ));
        }
        if let Some(reduction) = &self.reduction {
            let alone = self.pca.is_none() && self.exchangeable.is_empty();
            if !alone || reduction.input_dim() != self.input_dim() {
                return Err(Error::Shape {
                    what: "inputs of the reduction",
                    expected: format!("the {} given columns, without a PCA", self.input_dim()),
                    got: reduction.input_dim().to_string(),
                });
            }
            reduction.validate()?;
        }
        match &self.pca {
            Some(pca) if pca.input_dim() != self.scaled_dim() => Err(self.pca_mismatch(pca)),
            Some(pca) => pca.validate(),
            None => Ok(()),
        }
    }

    fn pca_mismatch(&self, pca: &Pca) -> Error {
        Error::Shape {
            what: "inputs of the PCA",
            expected: format!("the {} given columns or features", self.scaled_dim()),
            got: pca.input_dim().to_string(),
        }
    }
}

fn too_far() -> Error {
    Error::Domain(
        "the given values are too far from the training rows to be projected: correct them".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::rows::{FnRows, RowMajor};
    use super::*;
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
    use rand_distr::{Distribution, StandardNormal};

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|j| format!("y{j}")).collect()
    }

    /// Rows of `dim` values mixed from `rank` independent normals, with an offset.
    fn correlated(count: usize, dim: usize, rank: usize, seed: u64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut normal =
            |len: usize| -> Vec<f64> { (0..len).map(|_| StandardNormal.sample(&mut rng)).collect() };
        let mixing = normal(dim * rank);
        let mut values = Vec::with_capacity(count * dim);
        for _ in 0..count {
            let source = normal(rank);
            for weights in mixing.chunks_exact(rank) {
                // Falling weights give the components distinct variances.
                let sum: f64 =
                    weights.iter().zip(&source).enumerate().map(|(k, (w, s))| w * s / (1 + k) as f64).sum();
                values.push(3.0 + sum);
            }
        }
        values
    }

    fn fit(values: &[f64], dim: usize, scaling: Scaling, pca: Option<PcaSettings>) -> Result<GivenTransform> {
        let rows = RowMajor::new(values, dim).expect("whole rows");
        let settings = GivenSettings { scaling, pca, ..Default::default() };
        GivenTransform::fit(&names(dim), &settings, &rows).map(|(transform, _)| transform)
    }

    fn project(transform: &GivenTransform, values: &[f64]) -> Vec<f64> {
        let mut scores = Vec::new();
        for raw in values.chunks_exact(transform.input_dim()) {
            let mut out = vec![f64::NAN; transform.output_dim()];
            transform.forward(raw, &mut out).expect("inside");
            scores.extend(out);
        }
        scores
    }

    /// Population covariance about the mean, d × d.
    fn covariance(values: &[f64], dim: usize) -> Vec<f64> {
        let count = (values.len() / dim) as f64;
        let mut mean = vec![0.0; dim];
        values.chunks_exact(dim).for_each(|row| {
            mean.iter_mut().zip(row).for_each(|(mean, v)| *mean += v / count);
        });
        let mut covariance = vec![0.0; dim * dim];
        for row in values.chunks_exact(dim) {
            for i in 0..dim {
                for j in 0..dim {
                    covariance[i * dim + j] += (row[i] - mean[i]) * (row[j] - mean[j]) / count;
                }
            }
        }
        covariance
    }

    fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    fn identity(dim: usize) -> Vec<f64> {
        (0..dim * dim).map(|i| if i % (dim + 1) == 0 { 1.0 } else { 0.0 }).collect()
    }

    #[test]
    fn all_components_rebuild_the_covariance() {
        let (count, dim) = (700, 6);
        let values = correlated(count, dim, dim, 1);
        for scaling in [Scaling::Standard, Scaling::Robust, Scaling::None] {
            let plain = fit(&values, dim, scaling, None).expect("fits");
            let expected = covariance(&project(&plain, &values), dim);
            let transform = fit(&values, dim, scaling, Some(PcaSettings::Count(dim))).expect("fits");
            let pca = transform.pca().expect("asked for");
            let mut rebuilt = vec![0.0; dim * dim];
            for i in 0..dim {
                for j in 0..dim {
                    rebuilt[i * dim + j] = (0..dim)
                        .map(|k| {
                            let variance = pca.deviations()[k].powi(2);
                            variance * pca.components()[i * dim + k] * pca.components()[j * dim + k]
                        })
                        .sum();
                }
            }
            assert!(largest_difference(&rebuilt, &expected) < 1e-12, "{scaling}");
            assert!((pca.explained_variance() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn scores_have_mean_zero_and_unit_covariance() {
        // More rows than columns, several blocks; then fewer rows than columns, the other path.
        for (count, dim, rank, kept) in [(700, 8, 8, 5), (30, 50, 50, 20), (40, 60, 4, 4)] {
            let values = correlated(count, dim, rank, 2);
            let transform =
                fit(&values, dim, Scaling::Standard, Some(PcaSettings::Count(kept))).expect("fits");
            assert_eq!((transform.input_dim(), transform.output_dim()), (dim, kept));
            let scores = project(&transform, &values);
            let mean: f64 = scores.iter().sum::<f64>() / scores.len() as f64;
            assert!(mean.abs() < 1e-12);
            assert!(largest_difference(&covariance(&scores, kept), &identity(kept)) < 1e-10);
            let pca = transform.pca().expect("asked for");
            assert!(pca.deviations().is_sorted_by(|a, b| a >= b));
            // Unit vectors at right angles, the largest entry of each positive.
            for k in 0..kept {
                let column = |k: usize| pca.components().iter().skip(k).step_by(kept);
                let largest = column(k).fold(0.0_f64, |a, &b| if b.abs() > a.abs() { b } else { a });
                assert!(largest > 0.0);
                for l in 0..kept {
                    let product: f64 = column(k).zip(column(l)).map(|(a, b)| a * b).sum();
                    assert!((product - f64::from(u8::from(k == l))).abs() < 1e-10);
                }
            }
        }
    }

    #[test]
    fn both_paths_find_the_same_components() {
        // Doubling the rows leaves mean and covariance as they are but takes the other path.
        let (count, dim) = (9, 12);
        let values = correlated(count, dim, dim, 3);
        let twice = [&values[..], &values].concat();
        let few = fit(&values, dim, Scaling::Standard, Some(PcaSettings::Count(4))).expect("fits");
        let many = fit(&twice, dim, Scaling::Standard, Some(PcaSettings::Count(4))).expect("fits");
        assert!(largest_difference(&project(&few, &values), &project(&many, &values)) < 1e-9);
        let (few, many) = (few.pca().expect("asked for"), many.pca().expect("asked for"));
        assert!((few.explained_variance() - many.explained_variance()).abs() < 1e-12);
    }

    #[test]
    fn fraction_of_variance_keeps_the_fewest_components() {
        let (count, dim) = (500, 7);
        let values = correlated(count, dim, dim, 4);
        let explained: Vec<f64> = (1..=dim)
            .map(|kept| {
                let transform =
                    fit(&values, dim, Scaling::Standard, Some(PcaSettings::Count(kept))).expect("fits");
                transform.pca().expect("asked for").explained_variance()
            })
            .collect();
        assert!(explained.is_sorted());
        for fraction in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let transform =
                fit(&values, dim, Scaling::Standard, Some(PcaSettings::Variance(fraction))).expect("fits");
            let kept = transform.output_dim();
            assert!(explained[kept - 1] >= fraction - 1e-12);
            assert!(kept == 1 || explained[kept - 2] < fraction);
        }
        // Four directions in sixty columns: all the variance needs four components.
        let values = correlated(300, 60, 4, 5);
        let transform = fit(&values, 60, Scaling::Standard, Some(PcaSettings::Variance(1.0))).expect("fits");
        assert!(transform.output_dim() <= 4);
        assert!(transform.pca().expect("asked for").explained_variance() > 1.0 - 1e-12);
    }

    #[test]
    fn degenerate_requests_are_explained() {
        let values = correlated(300, 10, 3, 6);
        let message = |values: &[f64], dim, pca| {
            fit(values, dim, Scaling::Standard, Some(pca)).expect_err("refused").to_string()
        };
        assert!(message(&values, 10, PcaSettings::Count(4)).contains("ask for at most 3"));
        assert!(message(&values, 10, PcaSettings::Count(0)).contains("at least 1"));
        assert!(message(&values, 10, PcaSettings::Count(usize::MAX)).contains("ask for at most 3"));
        for fraction in [0.0, 1.5, -1.0, f64::NAN] {
            assert!(message(&values, 10, PcaSettings::Variance(fraction)).contains("at most 1"));
        }
        assert!(message(&[2.0; 30], 3, PcaSettings::Count(1)).contains("do not vary"));
        assert!(message(&values[..10], 10, PcaSettings::Count(1)).contains("at least 2"));
        let huge: Vec<f64> = values.iter().map(|v| v * 1e200).collect();
        let refused = fit(&huge, 10, Scaling::None, Some(PcaSettings::Count(1)));
        assert!(matches!(refused, Err(Error::Numerical(_))));
        assert!(fit(&huge, 10, Scaling::Standard, Some(PcaSettings::Count(1))).is_ok());
    }

    #[test]
    fn constant_columns_warn_and_stay() {
        let values = [1.0, 5.0, 2.0, 5.0, 4.0, 5.0];
        let rows = RowMajor::new(&values, 2).expect("whole rows");
        for pca in [None, Some(PcaSettings::Count(1))] {
            let settings = GivenSettings { pca, ..Default::default() };
            let (transform, warnings) = GivenTransform::fit(&names(2), &settings, &rows).expect("fits");
            assert!(warnings.len() == 1 && warnings[0].contains("\"y1\" is constant"));
            let mut out = vec![0.0; transform.output_dim()];
            transform.forward(&[1.0, 5.0], &mut out).expect("inside");
            assert!(out.iter().all(|v| v.is_finite()));
        }
    }

    #[test]
    fn no_given_columns_are_allowed() {
        let rows = FnRows::new(5, |_: usize, _: &mut [f64]| {});
        let (transform, _) = GivenTransform::fit(&[], &GivenSettings::default(), &rows).expect("fits");
        transform.validate().expect("valid");
        transform.forward(&[], &mut []).expect("nothing to do");
        let settings = GivenSettings { pca: Some(PcaSettings::Count(1)), ..Default::default() };
        assert!(GivenTransform::fit(&[], &settings, &rows).is_err());
    }

    #[test]
    fn values_outside_and_wrong_lengths_are_errors() {
        let rows = RowMajor::new(&[1.0, 2.0, 5.0], 1).expect("whole rows");
        let columns = vec!["y0=log".parse().expect("parses")];
        let settings = GivenSettings { columns, pca: Some(PcaSettings::Count(1)), ..Default::default() };
        let (transform, _) = GivenTransform::fit(&names(1), &settings, &rows).expect("fits");
        let message = transform.forward(&[-1.0], &mut [0.0]).expect_err("negative").to_string();
        assert!(message.contains("\"y0\"") && message.contains("-1"), "{message}");
        assert!(matches!(transform.forward(&[1.0, 2.0], &mut [0.0]), Err(Error::Shape { .. })));
        let values = correlated(50, 4, 4, 9).iter().map(|v| v * 1e-3).collect::<Vec<_>>();
        let transform = fit(&values, 4, Scaling::None, Some(PcaSettings::Count(4))).expect("fits");
        assert!(matches!(transform.forward(&[f64::MAX; 4], &mut [0.0; 4]), Err(Error::Domain(_))));
        let transform = fit(&[1.0, 2.0, 5.0], 1, Scaling::Standard, None).expect("fits");
        assert!(matches!(transform.forward(&[1.0], &mut []), Err(Error::Shape { .. })));
    }

    #[test]
    fn a_saved_transform_gives_the_same_bits() {
        let values = correlated(100, 6, 6, 8);
        let transform = fit(&values, 6, Scaling::Robust, Some(PcaSettings::Count(3))).expect("fits");
        let json = serde_json::to_string(&transform).expect("writes");
        let mut back: GivenTransform = serde_json::from_str(&json).expect("reads");
        // Without its matrix the transform refuses to work, and says so.
        assert!(back.validate().is_err());
        assert!(matches!(back.forward(&values[..6], &mut [0.0; 3]), Err(Error::Shape { .. })));
        let pca = back.pca_mut().expect("saved");
        assert!(pca.set_components(vec![0.0; 17]).is_err());
        assert!(pca.set_components(vec![f64::NAN; 18]).is_err());
        assert_eq!(pca.components_shape(), [6, 3]);
        pca.set_components(transform.pca().expect("asked for").components().to_vec()).expect("fits");
        back.validate().expect("valid");
        let bits = |transform: &GivenTransform| -> Vec<u64> {
            project(transform, &values).into_iter().map(f64::to_bits).collect()
        };
        assert_eq!(bits(&transform), bits(&back));
        assert_eq!(transform, back);
    }

    #[test]
    fn hostile_files_are_refused() {
        let column = r#"{"name":"a","support":"real","centre":"0","scale":"1"}"#;
        for pca in [
            r#"{"mean":["0","0"],"deviations":["1"],"explained":"1"}"#,
            r#"{"mean":["0"],"deviations":[],"explained":"1"}"#,
            r#"{"mean":["0"],"deviations":["0"],"explained":"1"}"#,
            r#"{"mean":["0"],"deviations":["1","1"],"explained":"1"}"#,
            r#"{"mean":["0"],"deviations":["1"],"explained":"2"}"#,
            r#"{"mean":["nan"],"deviations":["1"],"explained":"1"}"#,
        ] {
            let json = format!(r#"{{"columns":[{column}],"pca":{pca}}}"#);
            let Ok(mut transform) = serde_json::from_str::<GivenTransform>(&json) else { continue };
            let pca = transform.pca_mut().expect("present");
            let [rows, columns] = pca.components_shape();
            pca.set_components(vec![1.0; rows * columns]).expect("fits");
            assert!(transform.validate().is_err(), "{json}");
            // Even without validation nothing panics.
            let mut out = vec![0.0; transform.output_dim()];
            let _ = transform.forward(&[1.0], &mut out);
        }
    }

    #[test]
    fn settings_as_text() {
        for (text, settings) in [
            ("8", PcaSettings::Count(8)),
            ("1", PcaSettings::Count(1)),
            ("1.0", PcaSettings::Variance(1.0)),
            ("0.99", PcaSettings::Variance(0.99)),
        ] {
            assert_eq!(text.parse::<PcaSettings>().expect(text), settings);
            assert_eq!(settings.to_string(), text);
            let toml = format!("columns = []\nscaling = \"standard\"\npca = {text}\n");
            let read: GivenSettings = toml::from_str(&toml).expect("reads");
            assert_eq!(read.pca, Some(settings));
            assert_eq!(toml::to_string(&read).expect("writes"), toml);
        }
        for bad in ["0", "0.0", "1.5", "-3", "many", "nan", ""] {
            assert!(bad.parse::<PcaSettings>().is_err(), "{bad}");
        }
        assert!(toml::from_str::<GivenSettings>("pcs = 3").is_err());
    }
}
