//! The extension module `brenier._core`: the library behind the Python package, with plain arrays, JSON and strings at its edge.
//!
//! Nothing here is for users: the package `brenier` wraps it in typed Python.

mod check;
mod error;
mod job;
mod picture;
mod pool;
// Arrays in a tuple are what Python gets; a name for each pair would say less.
#[allow(clippy::type_complexity)]
mod posterior;
mod settings;
mod simulator;
mod table;

use pyo3::prelude::*;

/// The private core of the package `brenier`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::check::{PyCheck, calibrate, compare, start_check, start_tune};
    #[pymodule_export]
    use crate::job::Job;
    #[pymodule_export]
    use crate::picture::{curve_plot, histograms, pair_plot, png, run_command};
    #[pymodule_export]
    use crate::pool::{set_threads, threads};
    #[pymodule_export]
    use crate::posterior::{PyPosterior, start_fit};
    #[pymodule_export]
    use crate::settings::{default_settings, methods, select};
    #[pymodule_export]
    use crate::simulator::{PyPrior, PySimulator, row_seeds, shard_rows, start_abc, start_simulate};
    #[pymodule_export]
    use crate::table::{PyTable, check_format, split_rows, write_bytes};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
