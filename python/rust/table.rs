//! Tables: arrays from Python and files, with columns of categories.

use std::path::{Path, PathBuf};

use brenier::data::{
    self, ColumnChoice, Content, Encoding, Missing, Pick, Read, ReadOptions, Selection, Split, Table,
};
use brenier::train::TrainEvent;
use brenier::{Error, FitSettings, Posterior, Result, Run};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::error::{Raise, exception};

/// What messages call a table that came from memory.
const IN_MEMORY: &str = "the table";

/// Rows one after another as an array.
pub(crate) fn matrix<'py>(
    py: Python<'py>,
    values: Vec<f64>,
    columns: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let rows = values.len().checked_div(columns).unwrap_or(0);
    PyArray1::from_vec(py, values).reshape([rows, columns])
}

/// The values of an array, row by row.
pub(crate) fn rows_of(array: &PyReadonlyArray2<'_, f64>) -> Vec<f64> {
    match array.as_slice() {
        // Arrays in the order of Fortran have a slice too, of columns.
        Ok(values) if array.is_c_contiguous() => values.to_vec(),
        _ => array.as_array().iter().copied().collect(),
    }
}

/// The arguments of [`PyTable::new`].
type TableParts<'py> =
    (Vec<String>, Bound<'py, PyArray2<f64>>, Vec<(usize, Vec<String>)>, Vec<(usize, String)>);

/// Named columns of numbers, of texts, or of something that cannot be used.
#[pyclass(frozen, name = "Table", module = "brenier._core")]
pub(crate) struct PyTable {
    pub(crate) table: Table,
    contents: Vec<Content>,
}

#[pymethods]
impl PyTable {
    /// A table of `values`; `texts` gives, by column, the texts whose positions the column holds, and `refused` what is wrong with a
    /// column that holds neither numbers nor texts.
    #[new]
    #[pyo3(signature = (names, values, texts=Vec::new(), refused=Vec::new()))]
    fn new(
        names: Vec<String>,
        values: PyReadonlyArray2<'_, f64>,
        texts: Vec<(usize, Vec<String>)>,
        refused: Vec<(usize, String)>,
    ) -> PyResult<Self> {
        let table = Table::new(names, rows_of(&values)).or_raise()?;
        let mut contents = vec![Content::Numbers; table.columns()];
        let texts = texts.into_iter().map(|(column, own)| (column, Content::Texts(own)));
        let refused = refused.into_iter().map(|(column, why)| (column, Content::Other(why)));
        for (column, content) in texts.chain(refused) {
            let place = contents
                .get_mut(column)
                .ok_or_else(|| exception("ColumnError", format!("there is no column {}", column + 1)))?;
            *place = content;
        }
        Ok(Self { table, contents })
    }

    /// Reads all columns of a file, which must be numbers.
    #[staticmethod]
    #[pyo3(signature = (path, drop_missing=false))]
    fn read(py: Python<'_>, path: PathBuf, drop_missing: bool) -> PyResult<Self> {
        let options = options(drop_missing);
        let everything = |names: &[String]| Ok((0..names.len()).collect());
        let read = py.detach(|| data::read(&path, &options, everything)).or_raise()?;
        let contents = vec![Content::Numbers; read.table.columns()];
        Ok(Self { table: read.table, contents })
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.table.names().to_vec()
    }

    /// All values.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        matrix(py, self.table.values().to_vec(), self.table.columns())
    }

    /// What makes the same table again, for pickling.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, TableParts<'py>)> {
        let own = slf.get();
        let (mut texts, mut refused) = (Vec::new(), Vec::new());
        for (column, content) in own.contents.iter().enumerate() {
            match content {
                Content::Numbers => {}
                Content::Texts(own) => texts.push((column, own.clone())),
                Content::Other(why) => refused.push((column, why.clone())),
            }
        }
        Ok((slf.get_type().into_any(), (own.names(), own.to_numpy(slf.py())?, texts, refused)))
    }

    /// SHA-256 of names, shape and values.
    fn hash(&self) -> String {
        self.table.hash()
    }

    /// Writes the table in the format of the name's ending.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| data::write(&path, &self.table)).or_raise()
    }
}

fn options(drop_missing: bool) -> ReadOptions {
    ReadOptions { missing: Missing::dropped_if(drop_missing), ..ReadOptions::default() }
}

/// Where the rows of a call come from.
#[derive(FromPyObject)]
pub(crate) enum Source {
    /// From memory.
    Table(Py<PyTable>),
    /// From a file.
    File(PathBuf),
}

impl Source {
    /// Reads the columns that `choose` picks, and what messages call the table.
    fn read(
        &self,
        missing: Missing,
        choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
    ) -> Result<(PathBuf, Read)> {
        let options = ReadOptions { missing, ..ReadOptions::default() };
        match self {
            Self::File(path) => {
                let read = data::read_categories(path, &options, choose).map_err(|error| match error {
                    Error::Columns(problem) => Error::table(path, problem),
                    other => other,
                })?;
                Ok((path.clone(), read))
            }
            Self::Table(own) => {
                let (own, name) = (own.get(), PathBuf::from(IN_MEMORY));
                let read = data::take_categories(&name, &own.table, &own.contents, &options, choose)?;
                Ok((name, read))
            }
        }
    }

    /// The columns that a fit needs, target first, with numbers in place of categories, and the settings with columns by
    /// name: what the command does with a file.
    pub(crate) fn for_fit(
        &self,
        drop_missing: bool,
        settings: &mut FitSettings,
        run: &mut Run<'_>,
    ) -> Result<(Table, Encoding)> {
        let mut selected = None;
        let (path, read) = self.read(Missing::dropped_if(drop_missing), |names| {
            let (target, given) = settings.columns(names)?;
            let categorical = match &settings.categorical {
                Some(columns) => columns.resolve(names)?,
                None => Vec::new(),
            };
            if let Some(&column) = categorical.iter().find(|column| !given.contains(column)) {
                let problem = format!(
                    "{} is not among the given columns: only these may hold categories",
                    names[column]
                );
                return Err(Error::setting("categorical", problem));
            }
            let name = |columns: &[usize]| columns.iter().map(|&c| names[c].clone()).collect::<Vec<_>>();
            selected = Some((settings.named(names)?, target.len(), name(&categorical)));
            Ok(ColumnChoice { columns: [target, given].concat(), categorical })
        })?;
        for text in read.notices(&path) {
            run.tell(TrainEvent::Warning { text })?;
        }
        let encoding = Encoding::learn(&read)?;
        let table = encoding.encode(&path, read)?;
        let (named, target, categorical) = selected.unwrap_or_default();
        *settings = named;
        let pick = |names: &[String]| Selection::Columns(names.iter().cloned().map(Pick::Name).collect());
        let given = &table.names()[target..];
        settings.given = (!given.is_empty()).then(|| pick(given));
        settings.categorical = (!categorical.is_empty()).then(|| pick(&categorical));
        Ok((table, encoding))
    }

    /// The columns `names` of a model, in this order and encoded as the model was.
    pub(crate) fn for_model(&self, missing: Missing, model: &Posterior, names: &[String]) -> Result<Table> {
        let encoding = model.encoding();
        let raw = encoding.raw_names(names);
        let (path, read) = self.read(missing, |have| {
            let place = |name: &str| have.iter().position(|own| own == name);
            let mut choice = ColumnChoice::default();
            for name in &raw {
                let category = encoding.column(name);
                let encoded = || {
                    category.and_then(|column| {
                        column.names().map(|own| place(&own)).collect::<Option<Vec<usize>>>()
                    })
                };
                if let Some(found) = place(name) {
                    choice.columns.push(found);
                    choice.categorical.extend(category.map(|_| found));
                } else if let Some(places) = encoded() {
                    choice.columns.extend(places);
                } else {
                    return Err(Error::Columns(format!(
                        "there is no column \"{name}\", which the model needs; there are {}",
                        have.join(", ")
                    )));
                }
            }
            Ok(choice)
        })?;
        encoding.encode(&path, read)
    }
}

/// The rows (from 0) of a random split: the first part, and the rest; each ascending.
#[pyfunction]
pub(crate) fn split_rows(rows: usize, fraction: f64, seed: u64) -> PyResult<(Vec<u32>, Vec<u32>)> {
    if !(fraction > 0.0 && fraction < 1.0) {
        return Err(exception(
            "SettingError",
            format!("setting fraction: must be above 0 and below 1, not {fraction}"),
        ));
    }
    let split = Split::random(rows, 0.0, 1.0 - fraction, seed).or_raise()?;
    Ok((split.train, split.test))
}

/// Refuses a name whose ending stands for no format of tables.
#[pyfunction]
pub(crate) fn check_format(path: PathBuf) -> PyResult<()> {
    data::Format::of(&path).map(drop).or_raise()
}

/// Writes a text or picture file, whole or not at all.
#[pyfunction]
pub(crate) fn write_bytes(path: PathBuf, bytes: &[u8]) -> PyResult<()> {
    data::write_bytes(Path::new(&path), bytes).or_raise()
}
