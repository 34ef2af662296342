//! `brenier data`: fetching public tables, dropping columns, splitting rows.

use std::path::Path;

use brenier::data::{self, Selection, Split, Table, UciSet, correlated_columns, uci_sets};

use crate::args::TableArguments;
use crate::data_args::{DataCommand, FetchArguments, PrepareArguments, SplitArguments};
use crate::failure::Failure;
use crate::fetching::fetch_sets;
use crate::files::parts;
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
