//! The given side: supports and scaling per column, asinh scales, symmetric features of exchangeable columns, then optionally principal
//! components or a supervised reduction; no inverse is needed.

use super::asinh::{self, Asinh, AsinhColumn};
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
    /// Which columns the map sees on an asinh scale; where there are symmetric features or principal components, none unless named.
    #[serde(skip_serializing_if = "Asinh::is_auto")]
    pub asinh: Asinh,
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
    /// Columns on an asinh scale.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    asinh: Vec<AsinhColumn>,
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
        let alone = settings.pca.is_none() && settings.exchangeable.is_empty();
        let scaled = matches!(settings.scaling, Scaling::Standard | Scaling::Robust);
        let asinh = match &settings.asinh {
            Asinh::Auto if !(alone && scaled) => Vec::new(),
            Asinh::Columns(_) if !alone => return Err(asinh::not_alone()),
            asinh => asinh::fit(asinh, &columns, rows)?,
        };
        let (exchangeable, features) = (Vec::new(), Vec::new());
        let mut transform = Self { columns, asinh, exchangeable, features, pca: None, reduction: None };
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
        let beside = self.asinh.iter().filter(|own| own.beside).count();
        (self.columns.len() + beside + self.features.len()).saturating_sub(grouped)
    }

    /// The values before the principal components: columns on their own, then the features of the groups.
    fn scaled(&self, raw: &[f64], out: &mut [f64]) -> Result<()> {
        if self.exchangeable.is_empty() {
            let (own, beside) = out.split_at_mut(self.columns.len());
            for ((column, &x), out) in self.columns.iter().zip(raw).zip(own.iter_mut()) {
                (_, *out) = column.forward(x)?;
            }
            let mut beside = beside.iter_mut();
            for scale in &self.asinh {
                let place = if scale.beside { beside.next() } else { own.get_mut(scale.column) };
                if let Some(out) = place {
                    *out = scale.forward(raw[scale.column]);
                }
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

    /// Names of the values that the map sees: principal components or directions by number, otherwise the columns on their own and
    /// then the features of the groups.
    pub fn output_names(&self) -> Vec<String> {
        let numbered = |what: &str| (1..=self.output_dim()).map(|place| format!("{what} {place}")).collect();
        match (&self.pca, &self.reduction) {
            (Some(_), _) => numbered("principal component"),
            (None, Some(_)) => numbered("direction"),
            (None, None) => {
                let columns = self.columns.iter().enumerate();
                let alone = columns.filter(|(place, _)| !self.is_grouped(*place)).map(|(_, column)| column);
                let mut names: Vec<String> =
                    alone.chain(&self.features).map(|column| column.name.clone()).collect();
                for scale in &self.asinh {
                    let name = format!("asinh of {}", self.columns[scale.column].name);
                    if scale.beside { names.push(name) } else { names[scale.column] = name }
                }
                names
            }
        }
    }

    /// The columns that the map sees on an asinh scale, and of each whether it sees the column as it is, too.
    pub fn asinh(&self) -> impl ExactSizeIterator<Item = (&str, bool)> {
        self.asinh.iter().map(|own| (self.columns[own.column].name.as_str(), own.beside))
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
        if !self.asinh.is_empty() {
            return Err(Error::setting(
                "noise",
                "noise on an asinh scale would not stay Gaussian: ask for asinh = none",
            ));
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
        self.asinh.iter().try_for_each(|own| own.validate(self.columns.len()))?;
        let alone = self.exchangeable.is_empty() && self.pca.is_none() && self.reduction.is_none();
        let ordered = self.asinh.windows(2).all(|pair| pair[0].column < pair[1].column);
        let real = self.asinh.iter().all(|own| self.columns[own.column].support == Support::Real);
        if !(self.asinh.is_empty() || alone && ordered && real) {
            return Err(asinh::damaged());
        }
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
mod tests;
