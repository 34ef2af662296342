//! `brenier data`: fetching public tables, leaving out columns, dealing rows into parts.

use std::path::{Path, PathBuf};

use brenier::Run;
use brenier::data::{
    self, FetchSettings, Fetched, Selection, Split, Table, UciSet, correlated_columns, uci_sets,
};

use crate::args::{
    DataCommand, FetchArguments, PrepareArguments, SplitArguments, TableArguments, TableFormat,
};
use crate::failure::Failure;
use crate::files::beside;
use crate::interrupt::stop_on_interrupt_saying;
use crate::lock::Lock;
use crate::screen::Screen;
use crate::tables::Output;
use crate::{observations, output, tables};

pub(crate) fn run(command: &DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Fetch(arguments) => fetch(arguments),
        DataCommand::Prepare(arguments) => prepare(arguments),
        DataCommand::Split(arguments) => split(arguments),
    }
}

fn fetch(arguments: &FetchArguments) -> Result<(), Failure> {
    let sets: Vec<&UciSet> = match arguments.dataset.as_slice() {
        [] => uci_sets().iter().collect(),
        names => names.iter().map(|name| UciSet::find(name)).collect::<Result<_, _>>()?,
    };
    fetch_sets(&sets, &arguments.dir, arguments.mirror.as_deref(), output::quiet())
}

/// Fetches what `dir` does not hold yet.
pub(crate) fn fetch_sets(
    sets: &[&UciSet],
    dir: &Path,
    mirror: Option<&str>,
    quiet: bool,
) -> Result<(), Failure> {
    let mut settings = FetchSettings::default();
    if let Some(mirror) = mirror {
        mirror.clone_into(&mut settings.mirror);
    }
    std::fs::create_dir_all(dir).map_err(|source| brenier::Error::io(dir, "make the folder", source))?;
    let _lock = Lock::folder(dir)?;
    let stop = stop_on_interrupt_saying("stopping: what was received is kept (press Ctrl-C again to abort)")?;
    for set in sets {
        let mut screen = Screen::new().fetching(set.name);
        let fetched = data::fetch_uci(set, dir, &settings, Run::observed(&mut screen).stop(&stop));
        drop(screen);
        let what = match fetched? {
            Fetched::Present => "was there already",
            Fetched::Downloaded => "downloaded and checked",
            _ => "fetched",
        };
        if !quiet {
            output::result(&format!(
                "{}  {what}: {} rows of {} columns; cite {}, doi:{}\n",
                set.path(dir).display(),
                set.rows,
                set.columns.len(),
                set.title,
                set.doi
            ))?;
        }
    }
    if !quiet {
        output::note("the tables are licensed CC BY 4.0; separators and column names were changed");
    }
    Ok(())
}

fn prepare(arguments: &PrepareArguments) -> Result<(), Failure> {
    let target = output::destination(arguments.out.as_deref());
    output::check_destination(&target)?;
    let advice = "or leave the column out with --drop";
    let table = read(&arguments.table, &arguments.tables, arguments.drop.as_ref(), advice)?;
    let removed = match arguments.max_correlation {
        Some(limit) => correlated_columns(&table, limit)?,
        None => Vec::new(),
    };
    let kept: Vec<usize> = (0..table.columns()).filter(|column| !removed.contains(column)).collect();
    tables::write(&target, &table.select_columns(&kept))?;
    if let Some(limit) = arguments.max_correlation {
        let names: Vec<String> = removed.iter().map(|&column| table.names()[column].clone()).collect();
        output::note(&match names.as_slice() {
            [] => format!("no two columns have a correlation above {limit}"),
            names => format!(
                "correlation above {limit} with a later column, left out: {}",
                observations::listed(names, ", ")
            ),
        });
    }
    let (rows, columns) = (output::count(table.rows(), "row"), output::count(kept.len(), "column"));
    output::note(&match &target {
        Output::Path(path) => format!("{rows} of {columns} written to {}", path.display()),
        Output::Stdout => format!("{rows} of {columns}"),
    });
    Ok(())
}

/// All columns of a table but those of `drop`, which may hold anything; `advice` is for columns of text.
fn read(
    path: &Path,
    tables: &TableArguments,
    drop: Option<&Selection>,
    advice: &str,
) -> Result<Table, Failure> {
    let read = tables::read(path, &tables.options(), |names| {
        let dropped = drop.map_or(Ok(Vec::new()), |drop| drop.resolve(names));
        let dropped = dropped.map_err(|error| brenier::Error::table(path, error.to_string()))?;
        let kept: Vec<usize> = (0..names.len()).filter(|column| !dropped.contains(column)).collect();
        if kept.is_empty() {
            return Err(brenier::Error::Columns("--drop leaves no column of the table".to_owned()));
        }
        Ok(kept)
    });
    let read = read.map_err(|error| match error {
        brenier::Error::Table { path, problem } => {
            brenier::Error::Table { path, problem: problem.replace(data::CATEGORIES, advice) }
        }
        other => other,
    })?;
    output::noticed(path, &read);
    Ok(read.table)
}

/// The files that a split writes: for training, validation and test.
pub(crate) fn parts(arguments: &SplitArguments) -> [PathBuf; 3] {
    let extension = match arguments.out_format {
        Some(TableFormat::Csv) => "csv",
        Some(TableFormat::Parquet) => "parquet",
        Some(TableFormat::Arrow) => "arrow",
        Some(TableFormat::Npy) => "npy",
        Some(TableFormat::Npz) => "npz",
        None => arguments.table.extension().and_then(|extension| extension.to_str()).unwrap_or("csv"),
    };
    let prefix = arguments.out_prefix.clone().unwrap_or_else(|| match arguments.table.to_str() {
        Some("-") => PathBuf::from("split"),
        _ => arguments.table.with_extension(""),
    });
    ["train", "valid", "test"].map(|name| beside(&prefix, &format!("-{name}.{extension}")))
}

fn split(arguments: &SplitArguments) -> Result<(), Failure> {
    let outputs = parts(arguments).map(Output::Path);
    let folder = arguments.out_prefix.as_deref().and_then(Path::parent);
    let missing = folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    if missing.is_none() {
        outputs.iter().try_for_each(output::check_destination)?;
    }
    if let Some(rows) = &arguments.assignment {
        output::check_writable(rows)?;
    }
    let advice = "or leave the column out first with brenier data prepare --drop; tables with columns of text cannot be \
                  split, but brenier fit holds rows of them out itself";
    let table = read(&arguments.table, &arguments.tables, None, advice)?;
    let split = Split::by(
        arguments.protocol,
        table.rows(),
        arguments.valid_fraction,
        arguments.test_fraction,
        arguments.seed,
    )?;
    // Only now, so that a mistake leaves no folder behind.
    if let Some(folder) = missing {
        std::fs::create_dir_all(folder)
            .map_err(|source| brenier::Error::io(folder, "make the folder", source))?;
    }
    let parts = [("train", &split.train), ("valid", &split.valid), ("test", &split.test)];
    let mut text = String::new();
    for (output, (name, rows)) in outputs.iter().zip(parts) {
        if rows.is_empty() {
            continue;
        }
        tables::write(output, &table.select_rows(rows))?;
        if let Output::Path(path) = output {
            text.push_str(&format!("{name:6} {:8} rows  {}\n", rows.len(), path.display()));
        }
    }
    if let Some(path) = &arguments.assignment {
        let mut list = String::from("row,set\n");
        for (name, rows) in parts {
            rows.iter().for_each(|row| list.push_str(&format!("{row},{name}\n")));
        }
        data::write_bytes(path, list.as_bytes())?;
    }
    output::result(&text)?;
    Ok(())
}
