//! The complete state of a run on disk: what is needed to end in the same bits after a kill at any moment.

use std::borrow::Cow;
use std::path::Path;

use super::run::State;
use crate::store::{Tensor, TensorValues, read_checkpoint, write_checkpoint};
use crate::{Error, Result};

const KIND: &str = "checkpoint of a training";

/// The big vectors of a run, by the names of their tensors.
#[derive(Default)]
pub(super) struct Vectors<'a> {
    pub(super) parameters: Cow<'a, [f32]>,
    pub(super) best: Cow<'a, [f32]>,
    /// Adam's moments.
    pub(super) mean: Cow<'a, [f32]>,
    pub(super) square: Cow<'a, [f32]>,
    /// The averaged weights; empty where none are kept.
    pub(super) average: Cow<'a, [f32]>,
}

pub(super) fn save(path: &Path, identity: &str, state: &State, vectors: &Vectors<'_>) -> Result<()> {
    let Vectors { parameters, best, mean, square, average } = vectors;
    let named = [
        ("parameters", parameters),
        ("best", best),
        ("mean", mean),
        ("square", square),
        ("average", average),
    ];
    let tensors: Vec<Tensor> = named
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| Tensor {
            name: name.into(),
            shape: vec![values.len()],
            values: TensorValues::F32(values.to_vec()),
        })
        .collect();
    write_checkpoint(path, (KIND, identity), state, &tensors)
}

/// The state and the vectors, of which the average is as long as `averages` says and the others have `parameters` entries.
pub(super) fn load(
    path: &Path,
    identity: &str,
    (parameters, averages): (usize, usize),
) -> Result<(State, Vectors<'static>)> {
    let (state, tensors) = read_checkpoint(path, (KIND, identity))?;
    let take = |name: &str, length: usize| {
        let tensor = tensors.iter().find(|tensor| tensor.name == name);
        match tensor.map(|tensor| &tensor.values) {
            Some(TensorValues::F32(values)) if values.len() == length => Ok(Cow::Owned(values.clone())),
            None if length == 0 => Ok(Cow::default()),
            _ => Err(Error::model(path, format!("the checkpoint's tensor {name} does not fit the map"))),
        }
    };
    let vectors = Vectors {
        parameters: take("parameters", parameters)?,
        best: take("best", parameters)?,
        mean: take("mean", parameters)?,
        square: take("square", parameters)?,
        average: take("average", averages)?,
    };
    Ok((state, vectors))
}
