//! Verdicts and their pages; comparisons of samples, calibration of draws, and searches for settings.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use brenier::check::{Against, Check, CheckSettings, Predictive, check, quantity_name};
use brenier::data::{Missing, Table};
use brenier::diagnose::{
    CalibrationSettings, CompareSettings, PairDraws, Pairs, Sample, calibrate_until, compare_until,
};
use brenier::map::SampleSettings;
use brenier::report::{ObservationView, PictureSize, ReportPage, rank_histogram};
use brenier::simulate::Simulator;
use brenier::tune::{SearchSpace, TuneSettings, search, validation_split};
use brenier::{Error, ModeSettings, Posterior, Run, Units};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::error::{Raise, exception};
use crate::job::{Job, Raised};
use crate::pool::{compute, compute_until};
use crate::posterior::PyPosterior;
use crate::settings::{fit_settings, parse};
use crate::simulator::PySimulator;
use crate::table::{Source, rows_of};

/// Draws shown at an observation.
const DRAWS: usize = 2000;

/// What a check found, with the model and the rows that it was made with.
#[pyclass(frozen, name = "Check", module = "brenier._core")]
pub(crate) struct PyCheck {
    model: Arc<Posterior>,
    table: Table,
    simulator: Option<(Arc<dyn Simulator>, Raised)>,
    found: Check,
}

#[pymethods]
impl PyCheck {
    /// Everything found, as the command writes it.
    fn json(&self) -> String {
        serde_json::to_string(&self.found).unwrap_or_default()
    }

    /// The same with line breaks.
    fn json_pretty(&self) -> String {
        serde_json::to_string_pretty(&self.found).unwrap_or_default() + "\n"
    }

    /// Names of the quantities whose ranks were looked at.
    #[getter]
    fn quantities(&self) -> Vec<String> {
        let names = &self.found.subject.target;
        self.found.calibration.checks.iter().map(|check| quantity_name(check.quantity, names)).collect()
    }

    /// The ranks of one of them, pair by pair, and the number of draws.
    fn ranks(&self, quantity: usize) -> PyResult<(Vec<u32>, u32)> {
        let check = self.found.calibration.checks.get(quantity);
        let check = check.ok_or_else(|| exception("SettingError", "there is no such quantity".to_owned()))?;
        Ok((check.ranks.ranks().to_vec(), check.ranks.draws()))
    }

    /// A histogram of the ranks of one of them, as SVG.
    fn rank_histogram(&self, quantity: usize, bins: usize, width: u32, height: u32) -> PyResult<String> {
        let check = self.found.calibration.checks.get(quantity);
        let check = check.ok_or_else(|| exception("SettingError", "there is no such quantity".to_owned()))?;
        let histogram = check.ranks.histogram(bins, self.found.calibration.level);
        rank_histogram(&histogram, PictureSize { width, height }).or_raise()
    }

    /// The page, with the posterior at some rows (from 1) of the held-out table.
    #[pyo3(signature = (title, rows=Vec::new()))]
    fn report(&self, py: Python<'_>, title: String, rows: Vec<usize>) -> PyResult<String> {
        let page = compute(py, || self.page(title, &rows))?;
        if let Some((_, raised)) = &self.simulator
            && let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            return Err(error);
        }
        page.or_raise()
    }
}

impl PyCheck {
    fn page(&self, title: String, rows: &[usize]) -> brenier::Result<String> {
        let (model, table, n) = (&*self.model, &self.table, self.model.target_names().len());
        let seed = self.found.settings.seed;
        let mut views: Vec<ObservationView> = if model.given_names().is_empty() {
            vec![ObservationView {
                name: "the distribution learned".to_owned(),
                ..ObservationView::default()
            }]
        } else {
            let rows = if rows.is_empty() { vec![1, table.rows() / 2 + 1] } else { rows.to_vec() };
            if let Some(row) = rows.iter().find(|&&row| row == 0 || row > table.rows()) {
                return Err(Error::setting(
                    "rows",
                    format!("{row}: the held-out table has rows 1 to {}", table.rows()),
                ));
            }
            let view = |&row: &usize| ObservationView {
                name: format!("held-out row {row}"),
                given: table.row(row - 1)[n..].to_vec(),
                truth: Some(table.row(row - 1)[..n].to_vec()),
                ..ObservationView::default()
            };
            rows.iter().map(view).collect()
        };
        let given: Vec<f64> = views.iter().flat_map(|view| view.given.iter().copied()).collect();
        let draws = model.sample(&given, views.len(), DRAWS, seed, &SampleSettings::default())?;
        let how = ModeSettings { units: Units::Standardised, ..ModeSettings::default() };
        let modes = model.mode(&given, views.len(), seed, &how)?;
        for ((view, draws), mode) in views.iter_mut().zip(draws.values.chunks_exact(DRAWS * n)).zip(modes) {
            view.draws = draws.to_vec();
            view.mode = Some(mode.point);
        }
        if let Some((simulator, _)) = &self.simulator {
            let found = Predictive::at(model, &given, &**simulator, &self.found.settings, Run::silent())?;
            for row in found.rows {
                let place = row.row;
                views[place].predictive = Some(row);
            }
        }
        let page = ReportPage::new(title, model, &self.found);
        views.into_iter().fold(page, ReportPage::observation).to_html()
    }
}

/// Starts a check of a model on held-out pairs.
#[pyfunction]
#[pyo3(signature = (model, source, settings, simulator=None, others=Vec::new(), drop_missing=false))]
pub(crate) fn start_check(
    model: &PyPosterior,
    source: Source,
    settings: &str,
    simulator: Option<Py<PySimulator>>,
    others: Vec<(String, Py<PyPosterior>)>,
    drop_missing: bool,
) -> PyResult<Job> {
    let settings: CheckSettings = parse(settings)?;
    settings.validate().or_raise()?;
    let model = model.0.clone();
    let others: Vec<(String, Posterior)> =
        others.into_iter().map(|(name, other)| (name, (*other.get().0).clone())).collect();
    let simulator = simulator.map(|own| (own.get().simulator.clone(), own.get().raised.clone()));
    let raised = simulator.as_ref().map_or_else(Raised::default, |(_, raised)| raised.clone());
    let work = move |run: Run<'_>| {
        let names = [model.target_names(), model.given_names()].concat();
        let table = source.for_model(Missing::dropped_if(drop_missing), &model, &names)?;
        let against = Against { simulator: simulator.as_ref().map(|(own, _)| &**own), others: &others };
        let found = check(&model, &table, &settings, against, run)?;
        Ok(PyCheck { model, table, simulator, found })
    };
    Job::start(raised, work, |py, found| Ok(Py::new(py, found)?.into_any()))
}

/// Compares two samples, of which each row may have a weight; the result is JSON.
#[pyfunction]
#[pyo3(signature = (p, q, settings, p_weights=None, q_weights=None))]
pub(crate) fn compare(
    py: Python<'_>,
    p: PyReadonlyArray2<'_, f64>,
    q: PyReadonlyArray2<'_, f64>,
    settings: &str,
    p_weights: Option<PyReadonlyArray1<'_, f64>>,
    q_weights: Option<PyReadonlyArray1<'_, f64>>,
) -> PyResult<String> {
    let settings: CompareSettings = parse(settings)?;
    let dims = (p.as_array().ncols(), q.as_array().ncols());
    let (p, q) = (rows_of(&p), rows_of(&q));
    let weights = |own: Option<PyReadonlyArray1<'_, f64>>| own.map(|own| own.as_array().to_vec());
    let (p_weights, q_weights) = (weights(p_weights), weights(q_weights));
    let found = compute_until(py, |stop| -> brenier::Result<_> {
        let sample = |values, dim, weights: &Option<Vec<f64>>| match weights {
            None => Sample::new(values, dim),
            Some(weights) => Sample::new(values, dim)?.with_weights(weights),
        };
        let (p, q) = (sample(&p, dims.0, &p_weights)?, sample(&q, dims.1, &q_weights)?);
        let found = compare_until(&p, &q, &settings, stop)?;
        Ok(json!({"p_value": found.p_value(), "comparison": found}))
    })?;
    Ok(found.or_raise()?.to_string())
}

/// Whether anyone's draws are calibrated; the result is JSON.
#[pyfunction]
#[pyo3(signature = (truth, draws, given, settings))]
pub(crate) fn calibrate(
    py: Python<'_>,
    truth: PyReadonlyArray2<'_, f64>,
    draws: PyReadonlyArray2<'_, f64>,
    given: PyReadonlyArray2<'_, f64>,
    settings: &str,
) -> PyResult<String> {
    let settings: CalibrationSettings = parse(settings)?;
    let (n, m) = (truth.as_array().ncols(), given.as_array().ncols());
    let (truth, draws, given) = (rows_of(&truth), rows_of(&draws), rows_of(&given));
    let found = compute_until(py, |stop| -> brenier::Result<_> {
        let pairs = Pairs::new(&truth, n, &given, m)?;
        let each = settings.draws * n;
        let found = calibrate_until(&pairs, &settings, stop, |range| {
            let own = draws.get(range.start * each..range.end * each).ok_or_else(|| Error::Shape {
                what: "draws",
                expected: format!("{} for each of {} pairs", settings.draws, pairs.count()),
                got: format!("{} numbers", draws.len()),
            })?;
            Ok(PairDraws { draws: own.to_vec(), log_densities: None })
        })?;
        Ok(json!({"p_value": found.p_value(), "passes": found.passes(), "calibration": found}))
    })?;
    Ok(found.or_raise()?.to_string())
}

/// Starts a search for settings; the result is the best model, if there is one, and the figures as JSON.
#[pyfunction]
#[pyo3(signature = (source, settings, file, space, tune, folder, drop_missing=false))]
pub(crate) fn start_tune(
    source: Source,
    settings: &str,
    file: Option<&str>,
    space: String,
    tune: &str,
    folder: PathBuf,
    drop_missing: bool,
) -> PyResult<Job> {
    let named = parse::<serde_json::Map<String, serde_json::Value>>(settings)?.contains_key("method");
    let mut settings = fit_settings(settings, file)?;
    // Where no method is named, the settings of the default method are searched.
    settings.auto &= named;
    let minutes = settings.train.minutes.take();
    settings.train.validate().or_raise()?;
    let tune = TuneSettings { minutes, ..parse(tune)? };
    let text = match SearchSpace::PRESETS.contains(&space.as_str()) {
        true => SearchSpace::preset(&space, settings.method.method()).or_raise()?.to_owned(),
        false => space,
    };
    let space = SearchSpace::from_toml(&text).or_raise()?;
    let work = move |mut run: Run<'_>| {
        let (table, encoding) = source.for_fit(drop_missing, &mut settings, &mut run)?;
        let split = validation_split(table.rows(), &settings)?;
        let found = search(&table, &split, &settings, &space, &tune, &folder, run)?;
        let best = found.best.clone().map(|model| model.with_encoding(encoding)).transpose()?;
        let rest = json!({"trials": found.trials, "pilots": found.pilots, "finals": found.finals,
                          "complete": found.complete});
        Ok((best, rest.to_string()))
    };
    Job::start(Raised::default(), work, |py, (best, rest)| {
        let best = best.map(|best| PyPosterior::object(py, best)).transpose()?;
        Ok((best, rest).into_pyobject(py)?.into_any().unbind())
    })
}
