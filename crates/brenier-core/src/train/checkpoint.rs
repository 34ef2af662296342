//! The complete state of a run on disk: what is needed to end in the same bits after a kill at any moment.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::run::State;
use crate::store::{self, Tensor, TensorValues};
use crate::{Error, Result};

#[derive(Serialize, Deserialize)]
struct Header {
    kind: String,
    identity: String,
    state: State,
}

const KIND: &str = "training checkpoint";

pub(super) fn save(path: &Path, identity: &str, state: &State, vectors: [&[f32]; 4]) -> Result<()> {
    let header = Header { kind: KIND.into(), identity: identity.to_owned(), state: state.clone() };
    let tensors: Vec<Tensor> = ["parameters", "best", "mean", "square"]
        .into_iter()
        .zip(vectors)
        .map(|(name, values)| Tensor {
            name: name.into(),
            shape: vec![values.len()],
            values: TensorValues::F32(values.to_vec()),
        })
        .collect();
    store::write(path, &header, &tensors)
}

pub(super) fn load(path: &Path, identity: &str, parameters: usize) -> Result<(State, [Vec<f32>; 4])> {
    let (header, tensors): (Header, Vec<Tensor>) = store::read(path)?;
    if header.kind != KIND {
        return Err(Error::model(path, "is not a training checkpoint"));
    }
    if header.identity != identity {
        return Err(Error::model(
            path,
            "belongs to a fit with other settings or other data; repeat the original command, or delete the file \
             and fit without `resume`",
        ));
    }
    let mut vectors = [const { Vec::new() }; 4];
    for (slot, name) in vectors.iter_mut().zip(["parameters", "best", "mean", "square"]) {
        let tensor = tensors.iter().find(|tensor| tensor.name == name);
        match tensor.map(|tensor| &tensor.values) {
            Some(TensorValues::F32(values)) if values.len() == parameters => slot.clone_from(values),
            _ => {
                return Err(Error::model(
                    path,
                    format!("the checkpoint's tensor {name} does not fit the map"),
                ));
            }
        }
    }
    Ok((header.state, vectors))
}
