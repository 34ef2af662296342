//! The complete state of a long call on disk, written as a whole: what is needed to end in the same bits after a kill at any
//! moment. Every call that keeps such a state keeps it in this form.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Tensor, read, write};
use crate::{Error, Result};

/// The document of a checkpoint.
#[derive(Serialize)]
struct Header<'a, S> {
    kind: &'a str,
    identity: &'a str,
    state: &'a S,
}

/// Writes the state of a call. Its kind says whose state it is, as in "checkpoint of a training", its identity what the state
/// depends on: settings, data, seed. Long vectors go into `tensors`.
pub fn write_checkpoint<S: Serialize>(
    path: &Path,
    (kind, identity): (&str, &str),
    state: &S,
    tensors: &[Tensor],
) -> Result<()> {
    write(path, &Header { kind, identity, state }, tensors)
}

/// Reads what [`write_checkpoint`] wrote; the state of another call is an error.
pub fn read_checkpoint<S: DeserializeOwned>(
    path: &Path,
    (kind, identity): (&str, &str),
) -> Result<(S, Vec<Tensor>)> {
    let (mut header, tensors): (Value, Vec<Tensor>) = read(path)?;
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    let found = text("kind").unwrap_or("document of an unknown kind");
    if found != kind {
        return Err(Error::model(path, format!("holds a {found}, not a {kind}")));
    }
    if text("identity") != Some(identity) {
        return Err(Error::model(
            path,
            "belongs to a run with other settings or other data; repeat the original command, or delete the file and \
             run without `resume`",
        ));
    }
    let state = serde_json::from_value(header["state"].take())
        .map_err(|error| Error::model(path, format!("the state cannot be read: {error}")))?;
    Ok((state, tensors))
}
