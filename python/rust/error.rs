//! The library's errors as Python exceptions: those of `brenier._errors`.

use brenier::Error;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// The exception class for an error.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } => "FileError",
        Error::Model { .. } => "ModelError",
        Error::Download(_) => "DownloadError",
        Error::Table { .. } => "TableError",
        Error::Columns(_) => "ColumnError",
        Error::Domain(_) => "DomainError",
        Error::Settings { .. } => "SettingError",
        Error::Shape { .. } => "ShapeError",
        Error::Numerical(_) => "NumericalError",
        _ => "BrenierError",
    }
}

/// The exception called `class` with this text.
pub(crate) fn exception(class: &str, text: String) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("brenier._errors")
            .and_then(|module| module.getattr(class))
            .and_then(|class| class.call1((text,)));
        match made {
            Ok(value) => PyErr::from_value(value),
            Err(error) => error,
        }
    })
}

/// The exception for an error of the library.
pub(crate) fn raised(error: Error) -> PyErr {
    // Only Ctrl-C stops a call.
    if let Error::Stopped(text) = error {
        return PyKeyboardInterrupt::new_err(text);
    }
    exception(class(&error), error.to_string())
}

/// The exception for settings that are no JSON of the kind wanted: `message` names the key.
pub(crate) fn settings_error(error: serde_json::Error) -> PyErr {
    let text = error.to_string();
    // The place in our own JSON says nothing to the user.
    exception("SettingError", text.split(" at line ").next().unwrap_or(&text).to_owned())
}

/// Turns results of the library into results of Python.
pub(crate) trait Raise<T> {
    /// The value, or the exception.
    fn or_raise(self) -> PyResult<T>;
}

impl<T> Raise<T> for brenier::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raised)
    }
}
