//! Priors, the random streams of rows, and simulators that are Python callables.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use brenier::abc::{self, AbcSettings};
use brenier::simulate::{Attempt, Prior, PriorBlock, Simulator, Stream, Streams, built_in};
use brenier::{Error, Journal};
use numpy::{PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyList;
use serde_json::json;

use crate::error::{Raise, exception};
use crate::job::{Job, Raised};
use crate::settings::parse;
use crate::table::{matrix, rows_of};

/// The distribution of the parameters.
#[pyclass(frozen, name = "Prior", module = "brenier._core")]
pub(crate) struct PyPrior {
    prior: Prior,
    blocks: Option<String>,
}

/// Thetas, a seed for the simulator, and nothing else: what a row is made of.
type RowDraws<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<u64>>);

#[pymethods]
impl PyPrior {
    /// A prior of blocks, a JSON list as in a prior file.
    #[new]
    #[pyo3(signature = (blocks, folder=PathBuf::new()))]
    fn new(blocks: String, folder: PathBuf) -> PyResult<Self> {
        let list: Vec<PriorBlock> = parse(&blocks)?;
        Ok(Self { prior: Prior::new(&list, &folder).or_raise()?, blocks: Some(blocks) })
    }

    /// Reads a prior file.
    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<Self> {
        Ok(Self { prior: Prior::read(&path).or_raise()?, blocks: None })
    }

    /// The blocks, where the prior was made of such.
    #[getter]
    fn blocks(&self) -> Option<&str> {
        self.blocks.as_deref()
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.prior.names().to_vec()
    }

    /// The support of each parameter, as settings have it.
    #[getter]
    fn supports(&self) -> Vec<String> {
        self.prior.supports().iter().map(ToString::to_string).collect()
    }

    /// Parameters and simulator seeds of the rows from `first` on: row i has the random stream i of the seed, whoever draws
    /// it.
    fn rows<'py>(&self, py: Python<'py>, seed: u64, first: u64, count: usize) -> PyResult<RowDraws<'py>> {
        let streams = Streams::new(seed, 0);
        let mut thetas = vec![0.0; count * self.prior.dim()];
        let mut seeds = Vec::with_capacity(count);
        for (row, theta) in (first..).zip(thetas.chunks_exact_mut(self.prior.dim())) {
            let mut rng = streams.get(row);
            self.prior.draw(&mut rng, theta);
            seeds.push(next(&mut rng));
        }
        Ok((matrix(py, thetas, self.prior.dim())?, PyArray1::from_vec(py, seeds)))
    }

    /// Parameters and simulator seed of a row after it was abandoned this many times.
    fn again(&self, seed: u64, row: u64, abandoned: u32) -> (Vec<f64>, u64) {
        let mut rng = Streams::new(seed, 0).get(row);
        let (mut theta, mut own) = (vec![0.0; self.prior.dim()], 0);
        for _ in 0..=abandoned {
            self.prior.draw(&mut rng, &mut theta);
            own = next(&mut rng);
        }
        (theta, own)
    }

    /// log π(θ) of every row, in the parameters' own units; −∞ outside the bounds.
    fn log_density<'py>(
        &self,
        py: Python<'py>,
        theta: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Vec<bool>)> {
        if !self.prior.has_density() {
            return Err(exception("SettingError", "a table of samples has no density".to_owned()));
        }
        if self.prior.coordinates() != self.prior.dim() {
            return Err(exception(
                "SettingError",
                "a Dirichlet prior has a density of all but one parameter".to_owned(),
            ));
        }
        let values = rows_of(&theta);
        let names = self.prior.coordinate_names();
        let log: Vec<bool> = names.iter().zip(self.prior.names()).map(|(own, name)| own != name).collect();
        let mut u = vec![0.0; self.prior.coordinates()];
        let density = values.chunks_exact(self.prior.dim()).map(|row| {
            if row.iter().zip(&log).any(|(value, log)| !value.is_finite() || (*log && *value <= 0.0)) {
                return f64::NEG_INFINITY;
            }
            self.prior.to_coordinates(row, &mut u);
            // d ln θ/dθ = 1/θ where the coordinate is ln θ.
            let jacobian: f64 =
                row.iter().zip(&log).filter(|(_, log)| **log).map(|(value, _)| -value.ln()).sum();
            self.prior.log_density(&u) + jacobian
        });
        let density: Vec<f64> = density.collect();
        Ok((PyArray1::from_vec(py, density), log))
    }
}

/// The number that a simulator's own generator is seeded with.
fn next(rng: &mut Stream) -> u64 {
    use rand_core::Rng;
    rng.next_u64()
}

/// Simulator seeds of rows whose parameters are given.
#[pyfunction]
pub(crate) fn row_seeds(py: Python<'_>, seed: u64, first: u64, count: usize) -> Bound<'_, PyArray1<u64>> {
    let streams = Streams::new(seed, 0);
    PyArray1::from_vec(py, (0..count as u64).map(|row| next(&mut streams.get(first + row))).collect())
}

/// A Python callable as a simulator: it takes thetas and seeds of a block of rows and returns outputs and, for each row, `None`
/// (done), `False` (abandoned) or the reason of a failure.
pub(crate) struct Callable {
    prior: Prior,
    outputs: Vec<String>,
    run: Py<PyAny>,
    block: usize,
    raised: Raised,
}

impl Callable {
    fn call(&self, thetas: &[f64], seeds: Vec<u64>, outputs: &mut [f64]) -> PyResult<Vec<Attempt>> {
        Python::attach(|py| {
            let thetas = matrix(py, thetas.to_vec(), self.prior.dim())?;
            let answer = self.run.bind(py).call1((thetas, PyArray1::from_vec(py, seeds)))?;
            let (values, states): (PyReadonlyArray2<'_, f64>, Bound<'_, PyList>) = answer.extract()?;
            let values = rows_of(&values);
            if values.len() != outputs.len() {
                return Err(exception(
                    "ShapeError",
                    "the simulator returned another number of outputs".to_owned(),
                ));
            }
            outputs.copy_from_slice(&values);
            let state = |state: Bound<'_, PyAny>| {
                if state.is_none() {
                    Ok(Attempt::Done)
                } else if let Ok(text) = state.extract::<String>() {
                    Ok(Attempt::Failed(text))
                } else {
                    Ok(Attempt::Abandoned)
                }
            };
            states.iter().map(state).collect()
        })
    }
}

impl Simulator for Callable {
    fn identity(&self) -> String {
        "a Python callable".to_owned()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> brenier::Result<Attempt> {
        self.simulate_many(theta, std::slice::from_mut(rng), outputs).map(|mut attempts| attempts.remove(0))
    }

    fn simulate_many(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
    ) -> brenier::Result<Vec<Attempt>> {
        let seeds = rngs.iter_mut().map(next).collect();
        self.call(thetas, seeds, outputs).map_err(|error| {
            let text = format!("the simulator could not be run: {error}");
            self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            Error::Domain(text)
        })
    }

    fn block_rows(&self) -> usize {
        self.block
    }
}

/// A simulator for checks and ABC: a Python callable, or a built-in model.
#[pyclass(frozen, name = "Simulator", module = "brenier._core")]
pub(crate) struct PySimulator {
    pub(crate) simulator: Arc<dyn Simulator>,
    pub(crate) raised: Raised,
}

#[pymethods]
impl PySimulator {
    /// A callable over blocks of rows; see `brenier._simulate`.
    #[new]
    fn new(prior: &PyPrior, outputs: Vec<String>, run: Py<PyAny>, block: usize) -> Self {
        let raised = Raised::default();
        let callable = Callable {
            prior: prior.prior.clone(),
            outputs,
            run,
            block: block.max(1),
            raised: raised.clone(),
        };
        Self { simulator: Arc::new(callable), raised }
    }

    /// A built-in model by its name.
    #[staticmethod]
    fn built_in(name: &str) -> PyResult<Self> {
        let simulator = built_in(name).ok_or_else(|| {
            let known = brenier::simulate::SIMULATORS.join(", ");
            exception("SettingError", format!("there is no built-in model \"{name}\": choose from {known}"))
        })?;
        Ok(Self { simulator: Arc::from(simulator), raised: Raised::default() })
    }

    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.simulator.prior().names().to_vec()
    }

    #[getter]
    fn outputs(&self) -> Vec<String> {
        self.simulator.output_names().to_vec()
    }
}

/// The first row of a part of `n` rows, and that after its last; `shard` is `i/k`, or `slurm` for that of this task of an array.
#[pyfunction]
pub(crate) fn shard_rows(shard: &str, n: u64) -> PyResult<(u64, u64)> {
    let part = brenier_cli::shard(shard).map_err(|text| exception("SettingError", text))?.range(n);
    Ok((part.start, part.end))
}

/// Starts the simulation of a table with a built-in model; the result has names, values, failures as JSON and the number of
/// abandoned draws.
#[pyfunction]
#[pyo3(signature = (simulator, n, seed, journal=None))]
pub(crate) fn start_simulate(
    simulator: &PySimulator,
    n: u64,
    seed: u64,
    journal: Option<PathBuf>,
) -> PyResult<Job> {
    use brenier::simulate::{Outcome, SimulateSettings, run};
    let own = simulator.simulator.clone();
    let settings = SimulateSettings { rows: n, seed, shard: None };
    let work =
        move |around: brenier::Run<'_>| run(&*own, &settings, None, around.journal(journal.map(Journal::at)));
    Job::start(simulator.raised.clone(), work, |py, outcome| match outcome {
        Outcome::Complete(found) => {
            let failure = |row: &brenier::simulate::FailedRow| json!([row.row, row.parameters, row.reason]);
            let failures = json!(found.failures.iter().map(failure).collect::<Vec<_>>()).to_string();
            let (names, columns) = (found.table.names().to_vec(), found.table.columns());
            let values = matrix(py, found.table.into_values(), columns)?;
            Ok((names, values, failures, found.abandoned).into_pyobject(py)?.into_any().unbind())
        }
        _ => Ok(py.None()),
    })
}

/// Starts a search by approximate Bayesian computation; the result has names, values (parameters, weight, distance) and the rest
/// as JSON.
#[pyfunction]
#[pyo3(signature = (simulator, observed, settings, journal=None))]
pub(crate) fn start_abc(
    simulator: &PySimulator,
    observed: PyReadonlyArray1<'_, f64>,
    settings: &str,
    journal: Option<PathBuf>,
) -> PyResult<Job> {
    let settings: AbcSettings = parse(settings)?;
    settings.validate().or_raise()?;
    let observed: Vec<f64> = observed.as_array().iter().copied().collect();
    let own = simulator.simulator.clone();
    let work = move |run: brenier::Run<'_>| {
        let found = abc::run(&*own, &observed, &settings, None, run.journal(journal.map(Journal::at)))?;
        let table = found
            .population
            .as_ref()
            .map(|own_population| own_population.to_table(own.prior()))
            .transpose()?;
        Ok((found, table))
    };
    Job::start(simulator.raised.clone(), work, |py, (found, table)| {
        let rest = json!({
            "rounds": found.rounds, "simulations": found.simulations, "abandoned": found.abandoned,
            "failed": found.failed.0, "last_failure": found.failed.1, "warnings": found.warnings,
            "finished": found.stop == abc::AbcStop::Finished,
        });
        let table = match table {
            None => None,
            Some(table) => {
                let (names, columns) = (table.names().to_vec(), table.columns());
                Some((names, matrix(py, table.into_values(), columns)?))
            }
        };
        Ok((table, rest.to_string()).into_pyobject(py)?.into_any().unbind())
    })
}
