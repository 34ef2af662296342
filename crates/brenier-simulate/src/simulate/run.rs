//! Tables of simulations: rows in parallel, each from its own random stream, journalled so that nothing is lost.

use std::collections::HashSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::journal::{Record, RowFormat};
use super::{Attempt, Simulator, Stream, Streams, Tell};
use crate::data::{Log, Table};
use crate::{Error, EventKind, Result, Run};

/// Draws of one row that may be abandoned in a row before the run is given up.
const MAX_ABANDONED: u32 = 10_000;
/// The same for a row whose parameters are given, which then counts as failed.
const MAX_REPEATS: u32 = 1000;
/// The same for a draw of a posterior: one of many, and of a poor posterior many are hopeless.
const PREDICTIVE_REPEATS: u32 = 20;
/// If this many rows from the first one on all fail, the run ends: the program is wrong, not the row. The first rows by number,
/// not in order of time, so that the outcome does not depend on the threads.
const HOPELESS: usize = 20;

/// When a run gives up.
#[derive(Clone, Copy)]
struct Patience {
    /// Draws of a row of given parameters that may be abandoned.
    repeats: u32,
    /// Whether [`HOPELESS`] failures at the start end the run.
    gives_up: bool,
}

/// Part `index` (from 1) of `count` parts of a table; written `2/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    index: u64,
    count: u64,
}

impl Shard {
    /// The rows of this part among `rows`: parts one after the other are the whole table.
    pub fn range(self, rows: u64) -> std::ops::Range<u64> {
        let cut = |part: u64| (u128::from(rows) * u128::from(part) / u128::from(self.count)) as u64;
        cut(self.index - 1)..cut(self.index)
    }
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts =
            text.split_once('/').and_then(|(i, k)| Some((i.trim().parse().ok()?, k.trim().parse().ok()?)));
        match parts {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Self { index, count }),
            _ => Err(Error::setting(
                "shard",
                format!("\"{text}\" is not a part i/k with 1 ≤ i ≤ k, as in 2/8"),
            )),
        }
    }
}

impl TryFrom<String> for Shard {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        format!("{}/{}", shard.index, shard.count)
    }
}

/// What decides the rows besides the simulator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulateSettings {
    /// Rows of the whole table.
    pub rows: u64,
    /// Seed of the rows' random streams.
    pub seed: u64,
    /// The part of the table to make; all of it when left out.
    pub shard: Option<Shard>,
}

/// An event of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SimulateEvent {
    /// The run begins or continues.
    Started {
        /// Rows to make.
        rows: u64,
        /// Rows that a journal already held.
        resumed: u64,
    },
    /// Some rows are ready.
    Progress {
        /// Rows ready or failed.
        done: u64,
        /// Draws abandoned and drawn again.
        abandoned: u64,
        /// Rows that failed.
        failed: u64,
    },
    /// A program without a time-out has not answered for its [`patience`](super::ProgramSettings::patience); told once.
    Silent {
        /// What the user should look at, in words.
        notice: String,
    },
}

impl EventKind for SimulateEvent {}

/// A row that has no outputs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FailedRow {
    /// The row, from 0, in the whole table.
    pub row: u64,
    /// Its parameters.
    pub parameters: Vec<f64>,
    /// What happened.
    pub reason: String,
}

/// A finished table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Simulated {
    /// Parameters and outputs of the rows that succeeded, in order.
    pub table: Table,
    /// The others.
    pub failures: Vec<FailedRow>,
    /// Draws that were abandoned and drawn again.
    pub abandoned: u64,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All rows are there or failed.
    Complete(Simulated),
    /// The run was told to stop.
    Interrupted {
        /// Rows in the journal.
        done: u64,
        /// Rows asked for.
        rows: u64,
    },
}

/// Everything finished so far.
struct Collected<'a> {
    values: Vec<f64>,
    done: Vec<bool>,
    failures: Vec<FailedRow>,
    abandoned: u64,
    finished: u64,
    journal: Option<Log<RowFormat>>,
    run: Run<'a>,
}

impl Collected<'_> {
    fn accept(&mut self, record: Record, first: u64, width: usize) {
        self.abandoned += record.abandoned();
        match record {
            Record::Rows { row, values, .. } => {
                let start = (row - first) as usize;
                let count = values.len() / width;
                self.values[start * width..][..values.len()].copy_from_slice(&values);
                self.done[start..start + count].fill(true);
                self.finished += count as u64;
            }
            Record::Failure { failure, .. } => {
                self.done[(failure.row - first) as usize] = true;
                self.failures.push(failure);
                self.finished += 1;
            }
        }
    }
}

/// Simulates a table of rows (parameters, outputs).
///
/// Row i uses the stream number i of the seed and nothing else, so a row is the same on any number of threads and
/// in any shard. The work is spread over the threads of the current rayon pool.
///
/// With a table of `parameters`, named and ordered as the prior's, rows are simulated at these instead of at prior draws, and their
/// number replaces [`SimulateSettings::rows`]. Finished rows are kept in the journal of `run`.
pub fn run<S: Simulator + ?Sized>(
    simulator: &S,
    settings: &SimulateSettings,
    parameters: Option<&Table>,
    run: Run<'_>,
) -> Result<Outcome> {
    let patience = Patience { repeats: MAX_REPEATS, gives_up: true };
    run_with(simulator, settings, parameters, patience, run)
}

/// Simulates at draws of a posterior, one row each, as [`run`] does with a table of `parameters`, with two differences. A row
/// has failed after the model has given it up 20 times, and the run continues no matter how many rows fail: draws that cannot
/// be simulated say something about the posterior, so they must not end a check of it.
pub fn run_predictive<S: Simulator + ?Sized>(
    simulator: &S,
    parameters: &Table,
    seed: u64,
    run: Run<'_>,
) -> Result<Outcome> {
    let settings = SimulateSettings { seed, ..SimulateSettings::default() };
    let patience = Patience { repeats: PREDICTIVE_REPEATS, gives_up: false };
    run_with(simulator, &settings, Some(parameters), patience, run)
}

fn run_with<S: Simulator + ?Sized>(
    simulator: &S,
    settings: &SimulateSettings,
    parameters: Option<&Table>,
    patience: Patience,
    run: Run<'_>,
) -> Result<Outcome> {
    let dim = simulator.prior().dim();
    let names: Vec<String> = [simulator.prior().names(), simulator.output_names()].concat();
    let width = names.len();
    Table::new(names.clone(), Vec::new())?; // a name that is both a parameter and an output is refused here
    let all_rows = parameters.map_or(settings.rows, |table| table.rows() as u64);
    let range = settings.shard.map_or(0..all_rows, |shard| shard.range(all_rows));
    let rows = range.end - range.start;
    if rows == 0 {
        return Err(Error::setting("rows", "there are none to simulate: ask for at least 1 in every shard"));
    }
    let mut values: Vec<f64> = Vec::new();
    let size = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(width));
    match size.map(|size| (size, values.try_reserve_exact(size))) {
        Some((size, Ok(()))) => values.resize(size, 0.0),
        _ => {
            return Err(Error::setting(
                "rows",
                format!("{rows} rows of {width} columns do not fit into memory: make them in shards"),
            ));
        }
    }
    let mut collected = Collected {
        values,
        done: vec![false; rows as usize],
        failures: Vec::new(),
        abandoned: 0,
        finished: 0,
        journal: None,
        run,
    };
    let stop = collected.run.token().clone();
    if let Some(plan) = collected.run.plan().cloned() {
        let identity = identity(simulator, settings, parameters);
        let format = RowFormat { dim, width, rows: range.clone() };
        let (journal, records) = Log::open(format, &plan.path, &identity, plan.resume)?;
        let mut seen = HashSet::new();
        let once = records.into_iter().filter(|record| seen.insert(record.row()));
        once.for_each(|record| collected.accept(record, range.start, width));
        collected.journal = Some(journal);
    }
    let resumed = collected.finished;
    collected.run.tell(SimulateEvent::Started { rows, resumed })?;

    let blocks = missing_blocks(&collected.done, simulator.block_rows());
    let streams = Streams::new(settings.seed, 0);
    // The row after the first rows of this run, which decide whether there is any hope. After a resume these are the first
    // missing ones: the program may have been mended.
    let first_rows = blocks.iter().cloned().flatten().nth(HOPELESS - 1).filter(|_| patience.gives_up);
    let first_rows = range.start..range.start + first_rows.map_or(0, |last| last as u64 + 1);
    let failed_before = collected.failures.len();
    let collected = Mutex::new(collected);
    let tell = |event| collected.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).run.tell(event);
    blocks.into_par_iter().try_for_each(|block| {
        if stop.is_stopped() {
            return Ok(());
        }
        let first = range.start + block.start as u64;
        let records =
            simulate_block(simulator, &streams, first, block.len(), parameters, patience.repeats, &tell)?;
        let mut collected = collected.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for record in records {
            if let Some(journal) = &mut collected.journal {
                journal.append(&record)?;
            }
            collected.accept(record, range.start, width);
        }
        let failures = &collected.failures[failed_before..];
        let hopeless = failures.iter().filter(|failure| first_rows.contains(&failure.row));
        if first_rows.contains(&first) && hopeless.clone().count() == HOPELESS {
            let last = hopeless.max_by_key(|failure| failure.row).expect("there are twenty");
            return Err(Error::Domain(format!(
                "all of the first {HOPELESS} rows failed, row {} because: {}",
                last.row + 1,
                last.reason
            )));
        }
        let failed = collected.failures.len() as u64;
        let event =
            SimulateEvent::Progress { done: collected.finished, abandoned: collected.abandoned, failed };
        collected.run.tell(event)
    })?;

    let mut collected = collected.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if collected.finished < rows {
        return Ok(Outcome::Interrupted { done: collected.finished, rows });
    }
    collected.failures.sort_by_key(|failure| failure.row);
    let mut values = collected.values;
    if !collected.failures.is_empty() {
        let mut failed =
            collected.failures.iter().map(|failure| (failure.row - range.start) as usize).peekable();
        let mut kept = 0;
        for row in 0..rows as usize {
            if failed.next_if_eq(&row).is_none() {
                values.copy_within(row * width..(row + 1) * width, kept * width);
                kept += 1;
            }
        }
        values.truncate(kept * width);
    }
    let table = Table::new(names, values)?;
    Ok(Outcome::Complete(Simulated { table, failures: collected.failures, abandoned: collected.abandoned }))
}

/// What a journal belongs to.
fn identity<S: Simulator + ?Sized>(
    simulator: &S,
    settings: &SimulateSettings,
    parameters: Option<&Table>,
) -> String {
    let mut digest = Sha256::new();
    let settings = serde_json::to_string(settings).expect("settings are plain data");
    let parameters = parameters.map(Table::hash).unwrap_or_default();
    let version = "rows 1";
    let prior = simulator.prior().identity();
    for text in [version, &simulator.identity(), prior, &settings, &parameters] {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    digest.update(simulator.output_names().join("\n"));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs of at most `most` rows that are not done; cut at multiples of `most`.
fn missing_blocks(done: &[bool], most: usize) -> Vec<std::ops::Range<usize>> {
    let mut blocks = Vec::new();
    for start in (0..done.len()).step_by(most) {
        let end = done.len().min(start + most);
        let mut row = start;
        while row < end {
            if done[row] {
                row += 1;
                continue;
            }
            let length = done[row..end].iter().take_while(|done| !**done).count();
            blocks.push(row..row + length);
            row += length;
        }
    }
    blocks
}

/// The rows from `first` on: draws the parameters, simulates, and repeats what was abandoned.
fn simulate_block<S: Simulator + ?Sized>(
    simulator: &S,
    streams: &Streams,
    first: u64,
    count: usize,
    parameters: Option<&Table>,
    repeats: u32,
    tell: &Tell<'_>,
) -> Result<Vec<Record>> {
    let (dim, outputs) = (simulator.prior().dim(), simulator.output_names().len());
    let width = dim + outputs;
    let mut rows = vec![0.0; count * width];
    let mut results: Vec<Option<Attempt>> = vec![None; count];
    let mut pending: Vec<usize> = (0..count).collect();
    let mut rngs: Vec<Stream> = (0..count as u64).map(|row| streams.get(first + row)).collect();
    let mut thetas = vec![0.0; count * dim];
    let mut answers = vec![0.0; count * outputs];
    let mut abandoned = vec![0; count];
    for round in 1.. {
        for (theta, (&row, rng)) in thetas.chunks_exact_mut(dim).zip(pending.iter().zip(&mut rngs)) {
            match parameters {
                Some(table) => theta.copy_from_slice(table.row(first as usize + row)),
                None => simulator.prior().draw(rng, theta),
            }
        }
        let n = pending.len();
        let attempts = simulator.simulate_telling(
            &thetas[..n * dim],
            &mut rngs[..n],
            &mut answers[..n * outputs],
            tell,
        )?;
        let mut again = Vec::new();
        let mut again_rngs = Vec::new();
        for (i, attempt) in attempts.into_iter().enumerate() {
            let row = pending[i];
            let slot = &mut rows[row * width..(row + 1) * width];
            slot[..dim].copy_from_slice(&thetas[i * dim..(i + 1) * dim]);
            match attempt {
                Attempt::Abandoned => {
                    abandoned[row] += 1;
                    if parameters.is_some() && round >= repeats {
                        let reason = format!("the model abandoned it {repeats} times");
                        results[row] = Some(Attempt::Failed(reason));
                    } else {
                        again.push(row);
                        again_rngs.push(rngs[i].clone());
                    }
                }
                Attempt::Done => {
                    slot[dim..].copy_from_slice(&answers[i * outputs..(i + 1) * outputs]);
                    results[row] = Some(Attempt::Done);
                }
                other => results[row] = Some(other),
            }
        }
        if again.is_empty() {
            break;
        }
        if round == MAX_ABANDONED {
            return Err(Error::Domain(format!(
                "row {}: the model abandoned {MAX_ABANDONED} prior draws one after the other; narrow the prior",
                first + again[0] as u64 + 1
            )));
        }
        (pending, rngs) = (again, again_rngs);
    }
    Ok(records(first, dim, width, &rows, &results, &abandoned))
}

/// Runs of finished rows and single failures; interrupted rows are left out.
fn records(
    first: u64,
    dim: usize,
    width: usize,
    rows: &[f64],
    results: &[Option<Attempt>],
    abandoned: &[u64],
) -> Vec<Record> {
    let mut records = Vec::new();
    let mut row = 0;
    while row < results.len() {
        let start = row;
        while row < results.len() && results[row] == Some(Attempt::Done) {
            row += 1;
        }
        if row > start {
            let values = rows[start * width..row * width].to_vec();
            let abandoned = abandoned[start..row].iter().sum();
            records.push(Record::Rows { row: first + start as u64, abandoned, values });
        }
        if row < results.len() {
            if let Some(Attempt::Failed(reason)) = &results[row] {
                let parameters = rows[row * width..][..dim].to_vec();
                let failure = FailedRow { row: first + row as u64, parameters, reason: reason.clone() };
                records.push(Record::Failure { abandoned: abandoned[row], failure });
            }
            row += 1;
        }
    }
    records
}

/// Puts the parts of a table together, in the order given; warnings name rows that occur in two parts.
///
/// Every part must have the same columns; the paths are for messages.
pub fn merge(parts: Vec<(PathBuf, Table)>) -> Result<(Table, Vec<String>)> {
    let Some((first_path, first)) = parts.first() else {
        return Err(Error::setting("merge", "name the tables to merge"));
    };
    let columns = first.names().to_vec();
    let mut values = Vec::new();
    let mut seen = std::collections::HashMap::new();
    let mut repeated = 0;
    let mut example = None;
    for (index, (path, table)) in parts.iter().enumerate() {
        if table.names() != columns {
            return Err(Error::table(
                path,
                format!(
                    "has the columns {}, but {} has {}: only parts of one table can be merged",
                    table.names().join(", "),
                    first_path.display(),
                    columns.join(", ")
                ),
            ));
        }
        for (number, row) in table.iter().enumerate() {
            let digest: [u8; 32] = {
                let mut hasher = Sha256::new();
                row.iter().for_each(|value| hasher.update(value.to_le_bytes()));
                hasher.finalize().into()
            };
            let other = *seen.entry(digest).or_insert((index, number));
            if other.0 != index {
                repeated += 1;
                example.get_or_insert((index, number, other));
            }
        }
        values.extend_from_slice(table.values());
    }
    let mut warnings = Vec::new();
    if let Some((index, number, other)) = example {
        let (path, other_path) = (&parts[index].0, &parts[other.0].0);
        let same = parts[index].1 == parts[other.0].1;
        if same {
            return Err(Error::table(
                path,
                format!("holds the same rows as {}: it is the same part", other_path.display()),
            ));
        }
        warnings.push(format!(
            "{repeated} rows occur in two tables, such as row {} of {} and row {} of {}: parts of one table have one \
             `seed` and different `shard`",
            number + 1,
            path.display(),
            other.1 + 1,
            other_path.display()
        ));
    }
    Ok((Table::new(columns, values)?, warnings))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
