//! A trained posterior: fitted, loaded, sampled, evaluated.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brenier::data::{Encoding, Missing};
use brenier::map::SampleSettings;
use brenier::{Error, Journal, ModeSettings, Posterior, Prepared};
use numpy::{PyArray1, PyArray2, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::error::Raise;
use crate::job::{Job, Raised};
use crate::pool::{compute, compute_until};
use crate::settings::{fit_settings, parse};
use crate::table::{Source, matrix, rows_of};

/// A trained model.
#[pyclass(frozen, name = "Posterior", module = "brenier._core")]
pub(crate) struct PyPosterior(pub(crate) Arc<Posterior>);

/// Draws: values, the observation of each, residuals, iterations, and the residuals of those that could not be computed.
type DrawArrays<'py> = (
    Bound<'py, PyArray2<f64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<u32>>,
    Vec<f64>,
);

impl PyPosterior {
    pub(crate) fn object(py: Python<'_>, posterior: Posterior) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self(Arc::new(posterior)))?.into_any())
    }
}

#[pymethods]
impl PyPosterior {
    /// Reads a model file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| Posterior::load(path)).map(|model| Self(Arc::new(model))).or_raise()
    }

    /// Reads a model from the bytes of its file.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        py.detach(|| Posterior::from_bytes(bytes)).map(|model| Self(Arc::new(model))).or_raise()
    }

    /// Writes the model file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(path)).or_raise()
    }

    /// The bytes of the model file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &py.detach(|| self.0.to_bytes()).or_raise()?))
    }

    /// The header document, as JSON.
    fn header(&self) -> String {
        serde_json::to_string(self.0.info()).unwrap_or_default()
    }

    #[getter]
    fn target_names(&self) -> Vec<String> {
        self.0.target_names().to_vec()
    }

    #[getter]
    fn given_names(&self) -> Vec<String> {
        self.0.given_names().to_vec()
    }

    /// The given columns as the user's tables have them: columns of categories once.
    #[getter]
    fn given_columns(&self) -> Vec<String> {
        self.0.encoding().raw_names(self.0.given_names())
    }

    #[getter]
    fn method(&self) -> &'static str {
        self.0.method().name()
    }

    #[getter]
    fn title(&self) -> &'static str {
        self.0.method().title()
    }

    #[getter]
    fn parameters(&self) -> usize {
        self.0.parameters()
    }

    /// The map's sizes in one line.
    #[getter]
    fn description(&self) -> String {
        self.0.map().describe()
    }

    /// The columns that each target column's part of the map depends on besides its own; none where it leaves none out.
    fn dependence(&self) -> Option<Vec<(String, Vec<String>)>> {
        let pairs = self.0.dependence()?;
        Some(pairs.into_iter().map(|(target, columns)| (target.to_owned(), columns)).collect())
    }

    /// The map of the given columns alone, of a joint model.
    #[getter]
    fn marginal(&self) -> Option<Self> {
        self.0.marginal().map(|marginal| Self(Arc::new(marginal.clone())))
    }

    /// Every validation: step, epoch, training and validation NLL, the best so far, learning rate, drops.
    fn history<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let rows = self.0.history().iter().flat_map(|p| {
            [
                p.step as f64,
                p.epoch,
                p.train_nll,
                p.valid_nll,
                p.best_valid_nll,
                p.learning_rate,
                f64::from(p.drops),
            ]
        });
        matrix(py, rows.collect(), 7)
    }

    /// The given columns of a table or file, encoded.
    fn given_rows<'py>(&self, py: Python<'py>, source: Source) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let names = self.0.given_names();
        let table = py.detach(|| source.for_model(Missing::Fail, &self.0, names)).or_raise()?;
        matrix(py, table.into_values(), names.len())
    }

    /// Draws at each row of `given`.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        given: PyReadonlyArray2<'py, f64>,
        observations: usize,
        n: usize,
        seed: u64,
        settings: &str,
    ) -> PyResult<DrawArrays<'py>> {
        let (given, settings) = (rows_of(&given), sample_settings(settings)?);
        let draws = compute_until(py, |stop| {
            self.0.at_rows(&given, observations).seed(seed).settings(settings).stop(stop).sample(n)
        })?
        .or_raise()?;
        Ok((
            matrix(py, draws.values, self.0.target_names().len())?,
            PyArray1::from_vec(py, draws.observation),
            PyArray1::from_vec(py, draws.residuals),
            PyArray1::from_vec(py, draws.iterations),
            draws.unsolved,
        ))
    }

    /// Draws of target and given columns of a joint model, and the residuals of those that could not be computed.
    fn sample_joint<'py>(
        &self,
        py: Python<'py>,
        n: usize,
        seed: u64,
        settings: &str,
    ) -> PyResult<(Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>, Vec<f64>)> {
        let settings = sample_settings(settings)?;
        let draws =
            compute_until(py, |stop| self.0.sample_joint_until(n, seed, &settings, stop))?.or_raise()?;
        Ok((
            matrix(py, draws.target, self.0.target_names().len())?,
            matrix(py, draws.given, self.0.given_names().len())?,
            draws.unsolved,
        ))
    }

    /// log π(x | y) of every row: in the user's units and standardised.
    fn log_density<'py>(
        &self,
        py: Python<'py>,
        target: PyReadonlyArray2<'py, f64>,
        given: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        let (target, given) = (rows_of(&target), rows_of(&given));
        let found = compute_until(py, |stop| self.0.log_density_until(&target, &given, stop))?.or_raise()?;
        Ok((PyArray1::from_vec(py, found.user), PyArray1::from_vec(py, found.standardised)))
    }

    /// log π(x | y) of every row and its gradient in x, in the user's units.
    fn log_density_gradient<'py>(
        &self,
        py: Python<'py>,
        target: PyReadonlyArray2<'py, f64>,
        given: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>)> {
        let (target, given) = (rows_of(&target), rows_of(&given));
        let (density, gradient) =
            compute_until(py, |stop| self.0.log_density_gradient_until(&target, &given, stop))?.or_raise()?;
        Ok((PyArray1::from_vec(py, density), matrix(py, gradient, self.0.target_names().len())?))
    }

    /// log π(x | y) and log π(y) of every row of a joint model.
    fn log_density_joint<'py>(
        &self,
        py: Python<'py>,
        target: PyReadonlyArray2<'py, f64>,
        given: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        let (target, given) = (rows_of(&target), rows_of(&given));
        let found =
            compute_until(py, |stop| self.0.log_density_joint_until(&target, &given, stop))?.or_raise()?;
        Ok((PyArray1::from_vec(py, found.conditional.user), PyArray1::from_vec(py, found.marginal.user)))
    }

    /// MAP points at each row of `given`: the points, and the rest as JSON.
    fn mode<'py>(
        &self,
        py: Python<'py>,
        given: PyReadonlyArray2<'py, f64>,
        observations: usize,
        seed: u64,
        settings: &str,
    ) -> PyResult<(Bound<'py, PyArray2<f64>>, String)> {
        let (given, settings) = (rows_of(&given), parse::<ModeSettings>(settings)?);
        let mut modes = compute_until(py, |stop| {
            self.0.at_rows(&given, observations).seed(seed).stop(stop).modes(&settings)
        })?
        .or_raise()?;
        // What can be answered is; nothing at all is an error.
        if modes.iter().all(Result::is_err)
            && let Some(Err(error)) = modes.pop()
        {
            return Err(error).or_raise();
        }
        let one = |(row, mode): (usize, &brenier::Result<brenier::Mode>)| match mode {
            Ok(mode) => json!({
                "log_prob": mode.log_density, "agreeing": mode.agreeing, "starts": mode.starts, "settled": mode.settled,
                "warning": mode.doubt(&settings).map(|doubt| format!("observation {}: {doubt}", row + 1)),
            }),
            Err(error) => json!({"warning": error.to_string()}),
        };
        let rest = json!(modes.iter().enumerate().map(one).collect::<Vec<_>>()).to_string();
        let n = self.0.target_names().len();
        let points =
            modes.into_iter().flat_map(|mode| mode.map_or(vec![f64::NAN; n], |mode| mode.point)).collect();
        Ok((matrix(py, points, n)?, rest))
    }

    /// How far each row of `given` lies from the training rows: percentile, column and deviations; none where the model
    /// cannot tell.
    fn distances(
        &self,
        py: Python<'_>,
        given: PyReadonlyArray2<'_, f64>,
        observations: usize,
    ) -> PyResult<Option<Vec<(f64, String, f64)>>> {
        let given = rows_of(&given);
        let found = compute(py, || self.0.distances(&given, observations))?.or_raise()?;
        Ok(found
            .map(|rows| rows.into_iter().map(|row| (row.percentile, row.column, row.deviations)).collect()))
    }

    /// How far the members of an ensemble disagree at each row of `given`, in nats.
    fn disagreement<'py>(
        &self,
        py: Python<'py>,
        given: PyReadonlyArray2<'py, f64>,
        observations: usize,
        seed: u64,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let given = rows_of(&given);
        let found = compute(py, || self.0.disagreement(&given, observations, seed))?.or_raise()?;
        Ok(PyArray1::from_vec(py, found))
    }

    /// Target values as the map sees them.
    fn transform_target<'py>(
        &self,
        py: Python<'py>,
        target: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let values = self.0.transform_target(&rows_of(&target)).or_raise()?;
        matrix(py, values, self.0.target_names().len())
    }
}

/// Settings of draws from JSON.
fn sample_settings(text: &str) -> PyResult<SampleSettings> {
    parse(text)
}

/// Starts a fit; the result is the model, whether its training got as far as a validation, and the warnings.
#[pyfunction]
#[pyo3(signature = (source, settings, file=None, checkpoint=None, resume=false, drop_missing=false))]
pub(crate) fn start_fit(
    source: Source,
    settings: &str,
    file: Option<&str>,
    checkpoint: Option<PathBuf>,
    resume: bool,
    drop_missing: bool,
) -> PyResult<Job> {
    let mut settings = fit_settings(settings, file)?;
    settings.validate().or_raise()?;
    let journal =
        checkpoint.map(|path| Journal { path, every: Duration::from_secs(30), resume, keep: false });
    let work = move |mut run: brenier::Run<'_>| -> Result<_, Error> {
        let (table, encoding): (_, Encoding) = source.for_fit(drop_missing, &mut settings, &mut run)?;
        let prepared = Prepared::new(&table, &settings)?;
        drop((table, source));
        let fitted = prepared.fit(&settings, run.journal(journal))?;
        Ok((fitted.posterior.with_encoding(encoding)?, fitted.validated, fitted.warnings))
    };
    Job::start(Raised::default(), work, |py, (posterior, validated, warnings)| {
        let posterior = PyPosterior::object(py, posterior)?;
        Ok((posterior, validated, warnings).into_pyobject(py)?.into_any().unbind())
    })
}
