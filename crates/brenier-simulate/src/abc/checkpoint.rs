//! The complete state of an ABC run on disk.

use std::path::Path;

use super::smc::State;
use crate::store::{Tensor, TensorValues, read_checkpoint, write_checkpoint};
use crate::{Error, Result};

const KIND: &str = "checkpoint of an ABC run";

pub(super) fn save(path: &Path, identity: &str, state: &State) -> Result<()> {
    let tensors: Vec<Tensor> = state
        .vectors()
        .into_iter()
        .map(|(name, values)| Tensor {
            name: name.into(),
            shape: vec![values.len()],
            values: TensorValues::F64(values.clone()),
        })
        .collect();
    write_checkpoint(path, (KIND, identity), state, &tensors)
}

pub(super) fn load(path: &Path, identity: &str, dim: usize) -> Result<State> {
    let (mut state, tensors): (State, _) = read_checkpoint(path, (KIND, identity))?;
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
