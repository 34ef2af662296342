//! Downloading the tables of the UCI catalogue: resumed where the server allows it, checked and converted.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor, Read as _, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use calamine::{Data, Reader};
use serde::Serialize;
use ureq::http::StatusCode;
use ureq::http::header::{ACCEPT_ENCODING, CONTENT_RANGE, RANGE};

use super::format::{ReadOptions, write};
use super::{Table, UciSet, csv};
use crate::{Error, EventKind, Result, Run};

/// Largest original that is accepted: a hundred times the largest of the catalogue.
const LARGEST: u64 = 100 << 20;

/// Where from, and how patiently.
#[derive(Clone, Debug, PartialEq)]
pub struct FetchSettings {
    /// The server, as in `https://archive.ics.uci.edu`.
    pub mirror: String,
    /// How often in a row an address may answer with nothing new before it is given up.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles each time.
    pub pause: Duration,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self { mirror: "https://archive.ics.uci.edu".into(), attempts: 4, pause: Duration::from_millis(500) }
    }
}

/// What happens during a download.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FetchEvent {
    /// The server answers; `total` bytes are expected, `have` of them are there from an earlier attempt.
    Started {
        /// The address.
        address: String,
        /// Bytes from earlier attempts.
        have: u64,
        /// The size, where the server says it.
        total: Option<u64>,
    },
    /// This many bytes are there.
    Received {
        /// Bytes.
        bytes: u64,
    },
    /// An attempt failed, and another follows.
    Failed {
        /// Why.
        problem: String,
    },
}

impl EventKind for FetchEvent {}

/// What came of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fetched {
    /// The table was there already.
    Present,
    /// The table was downloaded.
    Downloaded,
}

/// Brings the table `set` into `folder`, which is made if need be, as `NAME.csv` under the catalogue's column names.
///
/// The values are checked against the catalogue before the file appears. What was received before a failure stays in
/// a hidden `.part` file, from which the next call continues; so does what was received before the run was stopped, which is
/// [`Error::Stopped`]. A table that is there already is checked and kept; another one under the same name is an error.
pub fn fetch_uci(set: &UciSet, folder: &Path, settings: &FetchSettings, mut run: Run<'_>) -> Result<Fetched> {
    run.go_on()?;
    fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))?;
    let path = set.path(folder);
    if path.exists() {
        return set.read(folder).map(|_| Fetched::Present).map_err(|error| match error {
            Error::Table { path, problem } => {
                Error::Table { path, problem: format!("{problem}; move it away to fetch the published one") }
            }
            other => other,
        });
    }
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .http_status_as_error(false)
        .user_agent(concat!("brenier/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let mut problems = Vec::new();
    for source in [set.file, set.archive] {
        let address = format!("{}/{source}", settings.mirror.trim_end_matches('/'));
        let ending = source.rsplit('.').next().unwrap_or_default();
        let part = folder.join(format!(".{}.{ending}.part", set.name));
        let fetched = Source { agent: &agent, address: &address, part: &part, settings }.fetch(set, &mut run);
        match fetched {
            Ok(table) => {
                write(&path, &table)?;
                let _ = fs::remove_file(part);
                return Ok(Fetched::Downloaded);
            }
            Err(Trouble::Here(error)) => return Err(error),
            Err(Trouble::There(problem)) => {
                let problem = format!("{address}: {problem}");
                tell(&mut run, FetchEvent::Failed { problem: problem.clone() })?;
                problems.push(problem);
            }
        }
    }
    Err(Error::Download(format!(
        "the table {} could not be fetched: {}; run the same command again, or give another `mirror`",
        set.name,
        problems.join("; ")
    )))
}

/// Tells the observer, then ends the call if the run was stopped.
fn tell(run: &mut Run<'_>, event: FetchEvent) -> Result<()> {
    run.tell(event)?;
    go_on(run)
}

/// As [`Run::go_on`]; here something may be kept.
fn go_on(run: &Run<'_>) -> Result<()> {
    match run.is_stopped() {
        true => {
            Err(Error::Stopped("stopped; run the same command again to continue the download".to_owned()))
        }
        false => Ok(()),
    }
}

/// Why a source gave no table.
enum Trouble {
    /// The disk, the observer or a stop: no other source will help.
    Here(Error),
    /// The network or the server.
    There(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Here(error)
    }
}

/// One address and the file in which what it sends is collected.
struct Source<'a> {
    agent: &'a ureq::Agent,
    address: &'a str,
    part: &'a Path,
    settings: &'a FetchSettings,
}

/// How one request ended when not with the whole file.
enum Cut {
    /// Asking again may help.
    Again(String),
    /// It will not.
    Final(Trouble),
}

impl From<Error> for Cut {
    fn from(error: Error) -> Self {
        Self::Final(error.into())
    }
}

impl Source<'_> {
    /// Downloads, converts and checks; once more from the start when the whole was put together from two runs.
    fn fetch(&self, set: &UciSet, run: &mut Run<'_>) -> Result<Table, Trouble> {
        let resumed = self.have() > 0;
        self.download(run)?;
        match self.convert(set) {
            Ok(table) => Ok(table),
            Err(Trouble::There(problem)) => {
                self.forget()?;
                if !resumed {
                    return Err(Trouble::There(problem));
                }
                let problem = "the parts received do not fit together".to_owned();
                tell(run, FetchEvent::Failed { problem })?;
                self.download(run)?;
                self.convert(set).inspect_err(|_| drop(self.forget()))
            }
            Err(error) => Err(error),
        }
    }

    fn have(&self) -> u64 {
        fs::metadata(self.part).map_or(0, |metadata| metadata.len())
    }

    fn forget(&self) -> Result<(), Trouble> {
        match fs::remove_file(self.part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.disk(error)),
            _ => Ok(()),
        }
    }

    fn disk(&self, source: io::Error) -> Trouble {
        Trouble::Here(Error::io(self.part, "write the download", source))
    }

    /// Asks until the file is whole, giving up when several requests in a row bring nothing new.
    fn download(&self, run: &mut Run<'_>) -> Result<(), Trouble> {
        let (mut failures, mut pause) = (0, self.settings.pause);
        loop {
            let have = self.have();
            let problem = match self.request(have, run) {
                Ok(()) => return Ok(()),
                Err(Cut::Final(trouble)) => return Err(trouble),
                Err(Cut::Again(problem)) => problem,
            };
            if self.have() > have {
                (failures, pause) = (0, self.settings.pause);
            }
            failures += 1;
            if failures >= self.settings.attempts {
                return Err(Trouble::There(problem));
            }
            tell(run, FetchEvent::Failed { problem })?;
            wait(pause, run)?;
            pause *= 2;
        }
    }

    /// One request for what is missing after the first `have` bytes.
    fn request(&self, have: u64, run: &mut Run<'_>) -> Result<(), Cut> {
        let disk = |error| Cut::Final(self.disk(error));
        // Compressed on the way, a part would not be a part of the file.
        let mut request = self.agent.get(self.address).header(ACCEPT_ENCODING, "identity");
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
        }
        let mut response = request.call().map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                Cut::Final(Trouble::There(format!("this is not an address: {error}")))
            }
            other => Cut::Again(other.to_string()),
        })?;
        let status = response.status();
        let length = response.body().content_length();
        let (mut file, have, total) = match status {
            StatusCode::OK => {
                let file = File::create(self.part).map_err(disk)?;
                (file, 0, length)
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
                let Some((start, total)) = range.and_then(content_range).filter(|&(start, _)| start == have)
                else {
                    self.forget().map_err(Cut::Final)?;
                    return Err(Cut::Again("the server sent another part than was asked for".into()));
                };
                let mut file = OpenOptions::new().append(true).open(self.part).map_err(disk)?;
                file.seek(io::SeekFrom::End(0)).map_err(disk)?;
                (file, start, total.or(length.map(|length| start + length)))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                // Longer than the file: the part belongs to something else.
                self.forget().map_err(Cut::Final)?;
                return Err(Cut::Again("the part received earlier does not belong to this file".into()));
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(Cut::Again(format!("the server answered {status}")));
            }
            status => return Err(Cut::Final(Trouble::There(format!("the server answered {status}")))),
        };
        tell(run, FetchEvent::Started { address: self.address.to_owned(), have, total })?;
        let mut reader = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        let mut received = have;
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    received += count as u64;
                    if received > LARGEST {
                        drop(file);
                        self.forget().map_err(Cut::Final)?;
                        let problem = format!("more than {LARGEST} bytes cannot be the table");
                        return Err(Cut::Final(Trouble::There(problem)));
                    }
                    file.write_all(&buffer[..count]).map_err(disk)?;
                    tell(run, FetchEvent::Received { bytes: received })?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Cut::Again(format!("the connection broke after {received} bytes ({error})")));
                }
            }
        }
        match total {
            Some(total) if received < total => {
                Err(Cut::Again(format!("the connection ended after {received} of {total} bytes")))
            }
            _ => Ok(()),
        }
    }

    /// From the file received to the table, which must be the catalogue's.
    fn convert(&self, set: &UciSet) -> Result<Table, Trouble> {
        let bytes = fs::read(self.part)
            .map_err(|source| Trouble::Here(Error::io(self.part, "read the download", source)))?;
        let name = set.file.rsplit('/').next().unwrap_or_default();
        let bytes = if self.address.ends_with(".zip") { unpack(bytes, name) } else { Ok(bytes) };
        let table = bytes.and_then(|bytes| table(set, name, bytes)).and_then(|table| {
            set.check(&table)?;
            Ok(table)
        });
        table.map_err(Trouble::There)
    }
}

/// Waits so long, or until the run is stopped.
fn wait(pause: Duration, run: &Run<'_>) -> Result<()> {
    let until = Instant::now() + pause;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        go_on(run)?;
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    go_on(run)
}

/// Start and, where known, total of `bytes 100-199/200`.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}

/// The member called `name`, in whatever folder, of a zip archive.
fn unpack(bytes: Vec<u8>, name: &str) -> Result<Vec<u8>, String> {
    let mut archive =
        zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| format!("not a zip archive: {error}"))?;
    let member = archive
        .file_names()
        .filter_map(Result::ok)
        .find(|member| member.rsplit('/').next() == Some(name))
        .map(Cow::into_owned)
        .ok_or_else(|| format!("the archive holds no {name}"))?;
    let mut unpacked = Vec::new();
    archive
        .by_name(&member)
        .map_err(|error| error.to_string())
        .and_then(|file| file.take(LARGEST).read_to_end(&mut unpacked).map_err(|error| error.to_string()))
        .map_err(|error| format!("cannot unpack {name}: {error}"))?;
    Ok(unpacked)
}

/// The table in an original: delimited text with or without a header, or the first sheet of a workbook.
fn table(set: &UciSet, name: &str, bytes: Vec<u8>) -> Result<Table, String> {
    let names = set.columns.iter().map(|&column| column.to_owned()).collect();
    let values = match name.rsplit('.').next() {
        Some("xls" | "xlsx") => workbook(bytes, set.columns.len())?,
        _ => {
            let path = PathBuf::from(name);
            let size = Some(bytes.len() as u64);
            let read = csv::read(&path, Cursor::new(bytes), size, false, &ReadOptions::default(), |names| {
                Ok((0..names.len()).collect::<Vec<_>>().into())
            });
            read.map_err(|error| error.to_string())?.table.into_values()
        }
    };
    Table::new(names, values).map_err(|error| error.to_string())
}

/// The numbers below the header of the first sheet, in the first `columns` columns; blank rows are left out.
fn workbook(bytes: Vec<u8>, columns: usize) -> Result<Vec<f64>, String> {
    let mut book = calamine::open_workbook_auto_from_rs(Cursor::new(bytes))
        .map_err(|error| format!("not a workbook: {error}"))?;
    let sheet = book
        .worksheet_range_at(0)
        .ok_or("the workbook has no sheet")?
        .map_err(|error| format!("cannot read the first sheet: {error}"))?;
    let mut values = Vec::new();
    let blank = |cell: &Data| match cell {
        Data::Empty => true,
        Data::String(text) => text.trim().is_empty(),
        _ => false,
    };
    for (index, row) in sheet.rows().enumerate().skip(1) {
        if row.iter().all(blank) {
            continue;
        }
        for column in 0..columns {
            values.push(match row.get(column) {
                Some(Data::Float(value)) => *value,
                Some(Data::Int(value)) => *value as f64,
                other => {
                    let found = other.map_or("nothing".into(), |cell| format!("\"{cell}\""));
                    return Err(format!(
                        "row {}, column {}: found {found} where a number was expected",
                        index + 1,
                        column + 1
                    ));
                }
            });
        }
    }
    Ok(values)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
