//! The complete state of an ABC run on disk.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::smc::State;
use crate::store::{self, Tensor, TensorValues};
use crate::{Error, Result};

#[derive(Serialize, Deserialize)]
struct Header {
    kind: String,
    identity: String,
    state: State,
}

const KIND: &str = "abc checkpoint";

pub(super) fn save(path: &Path, identity: &str, state: &State) -> Result<()> {
    let header = Header { kind: KIND.into(), identity: identity.into(), state: state.clone() };
    let tensors: Vec<Tensor> = state
        .vectors()
        .into_iter()
        .map(|(name, values)| Tensor {
            name: name.into(),
            shape: vec![values.len()],
            values: TensorValues::F64(values.clone()),
        })
        .collect();
    store::write(path, &header, &tensors)
}

pub(super) fn load(path: &Path, identity: &str, dim: usize) -> Result<State> {
    let (header, tensors): (Header, Vec<Tensor>) = store::read(path)?;
    if header.kind != KIND {
        return Err(Error::model(path, "is not a checkpoint of an ABC run"));
    }
    if header.identity != identity {
        return Err(Error::model(
            path,
            "belongs to a run with other settings or another observation; repeat the original command, or delete the \
             file and run without `resume`",
        ));
    }
    let mut state = header.state;
    for (name, slot) in state.vectors_mut() {
        match tensors.iter().find(|tensor| tensor.name == name).map(|tensor| &tensor.values) {
            Some(TensorValues::F64(values)) => slot.clone_from(values),
            _ => return Err(Error::model(path, format!("the checkpoint's tensor {name} is missing"))),
        }
    }
    if !state.is_consistent(dim) {
        return Err(Error::model(path, "the checkpoint's tensors do not fit together: delete it"));
    }
    Ok(state)
}
