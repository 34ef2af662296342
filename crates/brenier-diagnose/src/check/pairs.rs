//! The held-out pairs, in the user's units and as the map sees them, and the calibration on them.

use crate::data::Table;
use crate::diagnose::{Calibration, CalibrationSettings, PairDraws, Pairs, calibrate};
use crate::map::SampleSettings;
use crate::statistics::random::{shuffled, stream};
use crate::{At, Error, Posterior, Result, Run};
use brenier_core::layer::repeated;

use super::{CheckEvent, CheckSettings, Inversions, Stage};

/// Draws made between two events.
const BLOCK_DRAWS: usize = 50_000;
/// Random streams: of the choice of pairs, of draws.
const CHOICE: u64 = 1 << 40;

/// All rows of the table, in the model's columns.
pub(super) struct HeldOut {
    pub(super) rows: usize,
    pub(super) target: Vec<f64>,
    pub(super) given: Vec<f64>,
    /// Of the target and given columns, in the model's order.
    pub(super) sha256: String,
    /// The same in the table's order: a fit may have seen them either way.
    pub(super) sha256_in_order: String,
}

impl HeldOut {
    pub(super) fn new(model: &Posterior, table: &Table) -> Result<Self> {
        let place = |name: &String| {
            table.column(name).ok_or_else(|| {
                Error::Columns(format!(
                    "the table has no column \"{name}\", which the model needs; it has {}",
                    table.names().join(", ")
                ))
            })
        };
        let target = model.target_names().iter().map(place).collect::<Result<Vec<_>>>()?;
        let given = model.given_names().iter().map(place).collect::<Result<Vec<_>>>()?;
        if table.rows() < 2 {
            return Err(Error::Columns(format!(
                "the table has {} {}: a check needs held-out pairs, at least 2 and better 1000",
                table.rows(),
                if table.rows() == 1 { "row" } else { "rows" }
            )));
        }
        if let Some((row, column)) = (0..table.rows())
            .flat_map(|row| target.iter().chain(&given).map(move |&column| (row, column)))
            .find(|&(row, column)| !table.value(row, column).is_finite())
        {
            return Err(Error::Domain(format!(
                "row {}, column \"{}\" is {}: every value must be finite",
                row + 1,
                table.names()[column],
                table.value(row, column)
            )));
        }
        let all = table.select_columns(&[target.as_slice(), &given].concat());
        let side = |columns: &[usize]| -> Vec<f64> {
            table.iter().flat_map(|row| columns.iter().map(|&column| row[column])).collect()
        };
        let mut in_order = [target.as_slice(), &given].concat();
        in_order.sort_unstable();
        Ok(Self {
            rows: table.rows(),
            target: side(&target),
            given: side(&given),
            sha256: all.hash(),
            sha256_in_order: table.select_columns(&in_order).hash(),
        })
    }

    /// At most [`CheckSettings::pairs`] of the usable rows, by chance, in the table's order.
    pub(super) fn choose(&self, settings: &CheckSettings, usable: impl Fn(usize) -> bool) -> Result<Chosen> {
        let mut rows: Vec<usize> = shuffled(self.rows, &mut stream(settings.seed, CHOICE))
            .into_iter()
            .map(|row| row as usize)
            .filter(|&row| usable(row))
            .take(settings.pairs)
            .collect();
        if rows.len() < 2 {
            return Err(Error::Numerical(
                "fewer than 2 held-out rows have a finite density under the model: nothing can be checked; look at \
                 the table's units"
                    .to_owned(),
            ));
        }
        rows.sort_unstable();
        let (n, m) = (self.target.len() / self.rows, self.given.len() / self.rows);
        let take = |values: &[f64], width: usize| -> Vec<f64> {
            rows.iter().flat_map(|&row| &values[row * width..(row + 1) * width]).copied().collect()
        };
        let (target, given) = (take(&self.target, n), take(&self.given, m));
        Ok(Chosen { count: rows.len(), rows, target, given })
    }
}

/// The pairs that are drawn at.
pub(super) struct Chosen {
    /// Rows of the table, from 0.
    pub(super) rows: Vec<usize>,
    pub(super) count: usize,
    /// In the user's units.
    pub(super) target: Vec<f64>,
    pub(super) given: Vec<f64>,
}

impl Chosen {
    /// The given columns as the target of their own map.
    pub(super) fn marginal(&self) -> Chosen {
        Chosen { rows: self.rows.clone(), count: self.count, target: self.given.clone(), given: Vec::new() }
    }

    /// The model at them, whose long calls the run's token ends.
    pub(super) fn place<'a>(&'a self, model: &'a Posterior, run: &Run<'_>) -> At<'a> {
        model.at_rows(&self.given, self.count).stop(run.token())
    }

    /// `count` pairs, evenly spread over all.
    pub(super) fn spread(&self, count: usize) -> Chosen {
        let count = count.min(self.count);
        let places: Vec<usize> = (0..count).map(|i| i * self.count / count).collect();
        let take = |values: &[f64]| -> Vec<f64> {
            let width = values.len() / self.count;
            places.iter().flat_map(|&i| &values[i * width..(i + 1) * width]).copied().collect()
        };
        Chosen {
            rows: places.iter().map(|&i| self.rows[i]).collect(),
            count,
            target: take(&self.target),
            given: take(&self.given),
        }
    }
}

/// Calibration in the coordinates of the map: ranks of parameters are the same there, and distances make sense
/// whatever the columns' units and supports.
pub(super) fn calibrate_block(
    model: &Posterior,
    chosen: &Chosen,
    settings: &CheckSettings,
    run: &mut Run<'_>,
) -> Result<(Calibration, Inversions)> {
    let header = model.info();
    let (n, k) = (header.target_transform.dim(), header.given_transform.output_dim());
    let x = model.transform_target(&chosen.target)?;
    let y = model.transform_given(&chosen.given, chosen.count)?;
    let draws = settings.draws_of(model.method());
    let sampling = SampleSettings::default();
    let tolerance = model.map().tolerance(&sampling);
    let mut inversions = Inversions::none(tolerance);
    let stage = Stage::Calibration;
    run.tell(CheckEvent::Started { stage, of: chosen.count })?;
    let how = CalibrationSettings { draws, level: settings.level, seed: settings.seed };
    let found = calibrate(&Pairs::new(&x, n, &y, k)?, &how, |range| {
        let mut all = PairDraws::default();
        let (mut at_truth, mut at_draws) = (Vec::new(), Vec::new());
        let step = (BLOCK_DRAWS / draws).max(1);
        for first in range.clone().step_by(step) {
            run.go_on()?;
            let count = step.min(range.end - first);
            let given = &y[first * k..(first + count) * k];
            let (drawn, inversion) =
                model.attempt_standardised(given, first, count, draws, settings.seed, &sampling)?;
            inversions.add(&inversion);
            let truth = &x[first * n..(first + count) * n];
            at_truth.extend(model.log_density_at(truth, given, &repeated(count, 1))?);
            at_draws.extend(model.log_density_at(&drawn, given, &repeated(count, draws))?);
            all.draws.extend(drawn);
            run.tell(CheckEvent::Advanced { stage, done: first + count })?;
        }
        all.log_densities = Some((at_truth, at_draws));
        Ok(all)
    })?;
    Ok((found, inversions))
}
