//! The model file: what the header document says, and the tensors beside it. See `docs/model-file.md`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Member, Mixture, OutlierScore, Posterior};
use crate::data::Encoding;
use crate::fit::{Choice, FitSettings};
use crate::map::{ConditionalMap, Constraint, MethodSettings, TensorSpec};
use crate::statistics::Estimate;
use crate::store::{self, Tensor, TensorValues};
use crate::train::{Progress, Stop};
use crate::transform::{GivenTransform, TargetTransform};
use crate::{Error, Result};

/// Name of the tensor with the components of the given columns' PCA.
const PCA: &str = "given.pca.components";
const REDUCTION: &str = "given.reduction.weights";
const WHITENING: &str = "target.whitening.directions";
/// Name of the tensor with the rows that distances of observations are measured to.
const SUPPORT: &str = "given.support.reference";
/// Name of the tensor with the training history.
const HISTORY: &str = "training.history";
/// What stands before the names of the tensors of the given columns' own map.
const MARGINAL: &str = "marginal.";
/// What stands before the names of the baseline's tensors.
const BASELINE: &str = "baseline.";

/// How the training went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrainingSummary {
    /// Why it ended.
    pub stop: Stop,
    /// Steps taken.
    pub steps: u64,
    /// The step whose weights the model holds.
    pub best_step: u64,
    /// Mean negative log-likelihood of the validation rows there (standardised units).
    pub best_valid_nll: f64,
    /// Rows trained on.
    pub train_rows: usize,
    /// Rows held out for validation.
    pub valid_rows: usize,
    /// How likely its rows are under the weights that the model holds; none in models of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scores: Option<TrainingScores>,
}

/// How likely the rows of a fit are under the weights that were kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrainingScores {
    /// The rows trained on.
    pub train: ScoredRows,
    /// The rows held out for validation.
    pub valid: ScoredRows,
}

/// The scores of some rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScoredRows {
    /// Rows scored: all, or a random choice of as many as the method can afford.
    pub rows: usize,
    /// Those of them whose density could not be computed; they are in no mean.
    pub failed: usize,
    /// −log π(x | y) of a row, standardised, without any penalty; rows are those of the table, from 0.
    pub nll: Estimate,
}

/// A simple method fitted to the same rows: what a model must be better than to be worth its training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Baseline {
    /// The method with its settings.
    pub method: MethodSettings,
    /// Its mean negative log-likelihood of the validation rows, standardised.
    pub valid_nll: f64,
}

/// The header document of a model file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelInfo {
    /// [`ModelInfo::KIND`].
    pub kind: String,
    /// Version of the program that wrote the file.
    pub brenier_version: String,
    /// The settings of the fit, with every choice made: they decide the sizes of the map.
    pub settings: FitSettings,
    /// Target columns, in order.
    pub target_names: Vec<String>,
    /// Given columns, in order.
    pub given_names: Vec<String>,
    /// From the user's target columns to the variable the map sees.
    pub target_transform: TargetTransform,
    /// From the user's given columns to the variable the map sees.
    pub given_transform: GivenTransform,
    /// How the training went.
    pub training: TrainingSummary,
    /// Seed of the fit.
    pub seed: u64,
    /// SHA-256 of the names and values of the selected columns.
    pub data_sha256: String,
    /// How far an observation lies from the training rows' given columns; none without given columns, or with too
    /// few rows to tell.
    #[serde(rename = "support", default, skip_serializing_if = "Option::is_none")]
    pub outlier: Option<OutlierScore>,
    /// The members, where the model is an ensemble.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// The baseline: a simple map of the same variables, fitted to the same rows; none in models of version 1, and where the
    /// model is one itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// The columns of categories behind the given columns.
    #[serde(default, skip_serializing_if = "Encoding::is_empty")]
    pub encoding: Encoding,
    /// How trials chose the method, where they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Choice>,
    /// The same of the map of the given columns alone, in a joint model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marginal: Option<Box<ModelInfo>>,
}

impl ModelInfo {
    /// The value of `kind` in a model file.
    pub const KIND: &str = "posterior map";

    /// Reads a header of this version or an older one.
    fn read(path: &Path, mut document: Value) -> Result<Self> {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or("document of an unknown kind");
        if kind != Self::KIND {
            let advice = match kind.contains("checkpoint") {
                true => ": re-run the command that wrote it with `resume` to continue and get the model",
                false => "",
            };
            return Err(Error::model(path, format!("holds a {kind}, not a model{advice}")));
        }
        if document.get("shape").is_some() {
            upgrade(&mut document);
        }
        serde_json::from_value(document)
            .map_err(|error| Error::model(path, format!("the document cannot be read: {error}")))
    }
}

/// Makes a header of version 1, which had the sizes of the network beside settings with open choices, one of version 2.
fn upgrade(header: &mut Value) {
    let Value::Object(fields) = header else { return };
    let shape = fields.remove("shape").unwrap_or_default();
    fields.remove("method");
    if let Some(marginal) = fields.get_mut("marginal") {
        upgrade(marginal);
    }
    let Some(Value::Object(settings)) = fields.get_mut("settings") else { return };
    let Value::Object(network) = settings.entry("network").or_insert_with(|| Value::Object(Map::new()))
    else {
        return;
    };
    let unconditional = shape.get("given") == Some(&Value::from(0));
    for (of_shape, of_settings) in [
        ("feature_width", "feature_width"),
        ("width", "feature_width"),
        ("context_width", "context_width"),
        ("depth", "depth"),
        ("output", "output"),
        ("embedding", "embedding"),
        ("convexity", "unconditional"),
    ] {
        match shape.get(of_shape) {
            Some(size) if of_settings != "unconditional" || unconditional => {
                network.insert(of_settings.to_owned(), size.clone());
            }
            _ => {}
        }
    }
}

impl Posterior {
    /// Writes the model, atomically.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        store::write(path.as_ref(), &self.header, &self.all_tensors())
    }

    /// The model as the bytes of its file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        store::to_bytes(&self.header, &self.all_tensors())
    }

    fn all_tensors(&self) -> Vec<Tensor> {
        let mut tensors = self.to_tensors("");
        if let Some(marginal) = &self.marginal {
            tensors.extend(marginal.to_tensors(MARGINAL));
        }
        tensors
    }

    /// The tensors, their names with `prefix` before them.
    fn to_tensors(&self, prefix: &str) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        for (number, (map, history)) in self.maps().zip(&self.histories).enumerate() {
            let member = format!("{prefix}{}", member_prefix(number));
            tensors.extend(tensors_of(map.single(), &member));
            let rows = history.iter().flat_map(|p| {
                let (step, drops) = (p.step as f64, f64::from(p.drops));
                [step, p.epoch, p.train_nll, p.valid_nll, p.best_valid_nll, p.learning_rate, drops]
            });
            tensors.push(Tensor {
                name: format!("{member}{HISTORY}"),
                shape: vec![history.len(), 7],
                values: TensorValues::F64(rows.collect()),
            });
        }
        if let Some(baseline) = &self.baseline {
            tensors.extend(tensors_of(baseline.single(), &format!("{prefix}{BASELINE}")));
        }
        if let Some(pca) = self.header.given_transform.pca() {
            tensors.push(Tensor {
                name: format!("{prefix}{PCA}"),
                shape: pca.components_shape().to_vec(),
                values: TensorValues::F64(pca.components().to_vec()),
            });
        }
        if let Some(reduction) = self.header.given_transform.reduction() {
            tensors.push(Tensor {
                name: format!("{prefix}{REDUCTION}"),
                shape: reduction.weights_shape().to_vec(),
                values: TensorValues::F64(reduction.weights().to_vec()),
            });
        }
        if let Some(whitening) = self.header.target_transform.whitening() {
            tensors.push(Tensor {
                name: format!("{prefix}{WHITENING}"),
                shape: vec![whitening.dim(); 2],
                values: TensorValues::F64(whitening.directions().to_vec()),
            });
        }
        if let Some(outlier) = &self.header.outlier {
            tensors.push(Tensor {
                name: format!("{prefix}{SUPPORT}"),
                shape: outlier.reference_shape().to_vec(),
                values: TensorValues::F32(outlier.reference().to_vec()),
            });
        }
        tensors
    }

    /// Reads a model; a damaged or hostile file is an error that says what is wrong with it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (document, tensors): (Value, Vec<Tensor>) = store::read(path)?;
        Self::from_document(path, document, &tensors)
    }

    /// Reads a model from the bytes of its file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let path = Path::new("model");
        let (document, tensors): (Value, Vec<Tensor>) = store::from_bytes(bytes, path)?;
        Self::from_document(path, document, &tensors)
    }

    fn from_document(path: &Path, document: Value, tensors: &[Tensor]) -> Result<Self> {
        let mut header = ModelInfo::read(path, document)?;
        let marginal = header.marginal.take();
        let mut model = Self::assemble(path, header, tensors, "")?;
        if let Some(marginal) = marginal {
            let marginal = Self::assemble(path, *marginal, tensors, MARGINAL)?;
            if marginal.header.target_names != model.header.given_names || marginal.header.marginal.is_some()
            {
                return Err(Error::model(path, "the blocks of the joint map do not fit together"));
            }
            model.set_marginal(marginal);
        }
        Ok(model)
    }

    /// A model from its header and the tensors whose names begin with `prefix`.
    fn assemble(path: &Path, mut header: ModelInfo, tensors: &[Tensor], prefix: &str) -> Result<Self> {
        let wrong = |problem: String| Error::model(path, problem);
        let take = |name: &str, shape: &[usize]| -> Result<&TensorValues> {
            let tensor = tensors.iter().find(|tensor| tensor.name.strip_prefix(prefix) == Some(name));
            let tensor = tensor.ok_or_else(|| wrong(format!("the tensor {name} is missing")))?;
            if tensor.shape != shape {
                return Err(wrong(format!("the tensor {name} has shape {:?}, not {shape:?}", tensor.shape)));
            }
            if !tensor.all_finite() {
                return Err(wrong(format!("the tensor {name} holds numbers that are not finite")));
            }
            Ok(&tensor.values)
        };
        if let Some(pca) = header.given_transform.pca_mut() {
            let shape = pca.components_shape();
            let TensorValues::F64(components) = take(PCA, &shape)? else {
                return Err(wrong(format!("the tensor {PCA} is not F64")));
            };
            pca.set_components(components.clone()).map_err(|error| wrong(error.to_string()))?;
        }
        if let Some(reduction) = header.given_transform.reduction_mut() {
            let shape = reduction.weights_shape();
            let TensorValues::F64(weights) = take(REDUCTION, &shape)? else {
                return Err(wrong(format!("the tensor {REDUCTION} is not F64")));
            };
            reduction.set_weights(weights.clone()).map_err(|error| wrong(error.to_string()))?;
        }
        if let Some(whitening) = header.target_transform.whitening_mut() {
            let TensorValues::F64(directions) = take(WHITENING, &[whitening.dim(); 2])? else {
                return Err(wrong(format!("the tensor {WHITENING} is not F64")));
            };
            whitening.set_directions(directions.clone());
        }
        if let Some(outlier) = &mut header.outlier {
            let shape = outlier.reference_shape();
            let TensorValues::F32(reference) = take(SUPPORT, &shape)? else {
                return Err(wrong(format!("the tensor {SUPPORT} is not F32")));
            };
            let checked = outlier.set_reference(reference.clone()).and_then(|()| outlier.validate());
            checked.map_err(|error| wrong(error.to_string()))?;
            if outlier.dim() != header.given_transform.input_dim() {
                return Err(wrong(
                    "the out-of-distribution score and the given columns do not fit together".into(),
                ));
            }
        }
        if header.choice.as_ref().is_some_and(|choice| !choice.is_sound()) {
            return Err(wrong("the trials do not include the one that was chosen".into()));
        }
        let checks = header.target_transform.validate().and_then(|()| header.given_transform.validate());
        let spec = header.settings.method.spec();
        checks.and_then(|()| spec.validate()).map_err(|error| wrong(error.to_string()))?;
        let names = (header.target_names.len(), header.given_names.len());
        let inputs = (header.target_transform.dim(), header.given_transform.input_dim());
        let sizes = (header.target_transform.dim(), header.given_transform.output_dim());
        if names != inputs {
            return Err(wrong("names and transforms do not fit together".into()));
        }
        header.encoding.validate(&header.given_names).map_err(wrong)?;
        // The tensors in the file bound what the sizes may make us allocate.
        let held: usize = tensors.iter().map(|tensor| tensor.values.len()).sum();
        let parameters = spec.parameters(sizes.0, sizes.1).map_err(|error| wrong(error.to_string()))?;
        if parameters > held && !spec.grows() {
            return Err(wrong("the network is larger than the tensors in the file".into()));
        }
        let weights: Vec<f64> = match header.members.as_slice() {
            [] => vec![1.0],
            members => members.iter().map(|member| member.weight).collect(),
        };
        let sum: f64 = weights.iter().sum();
        if weights.iter().any(|weight| !(*weight > 0.0)) || !((sum - 1.0).abs() < 1e-9) {
            return Err(wrong("the weights of the members are not positive or do not sum to 1".into()));
        }
        let fill = |member: &str, map: &mut dyn ConditionalMap<f32>| {
            for spec in map.tensors() {
                let name = format!("{member}map.{}", spec.name);
                let TensorValues::F32(values) = take(&name, &spec.shape())? else {
                    return Err(wrong(format!("the tensor {name} is not F32")));
                };
                if spec.constraint == Constraint::NonNegative && values.iter().any(|&value| value < 0.0) {
                    return Err(wrong(format!(
                        "the tensor {name} holds negative numbers: the potential is not convex"
                    )));
                }
                for (index, &value) in spec.indices().zip(values) {
                    map.parameters_mut()[index] = value;
                }
            }
            Ok(())
        };
        let (mut maps, mut histories) = (Vec::new(), Vec::new());
        for number in 0..weights.len() {
            let member = member_prefix(number);
            maps.push(spec.assemble(sizes.0, sizes.1, &mut |map| fill(&member, map))?);
            let name = format!("{member}{HISTORY}");
            let history =
                tensors.iter().find(|tensor| tensor.name.strip_prefix(prefix) == Some(name.as_str()));
            let rows = history.and_then(|tensor| tensor.shape.first().copied()).unwrap_or(0);
            let TensorValues::F64(history) = take(&name, &[rows, 7])? else {
                return Err(wrong(format!("the tensor {name} is not F64")));
            };
            histories.push(history.chunks_exact(7).map(progress).collect());
        }
        let baseline = match &header.baseline {
            None => None,
            Some(baseline) => {
                let spec = baseline.method.spec();
                let parameters =
                    spec.parameters(sizes.0, sizes.1).map_err(|error| wrong(error.to_string()))?;
                if parameters > held {
                    return Err(wrong("the baseline is larger than the tensors in the file".into()));
                }
                Some(spec.assemble(sizes.0, sizes.1, &mut |map| fill(BASELINE, map))?)
            }
        };
        let mut model = Self::new(header, Mixture::new(maps, weights), histories);
        model.baseline = baseline;
        Ok(model)
    }
}

/// The tensors of a map, `prefix` before their names.
fn tensors_of(map: &dyn ConditionalMap<f32>, prefix: &str) -> Vec<Tensor> {
    let parameters = map.parameters();
    let tensor = |spec: &TensorSpec| Tensor {
        name: format!("{prefix}map.{}", spec.name),
        shape: spec.shape(),
        values: TensorValues::F32(spec.indices().map(|index| parameters[index]).collect()),
    };
    map.tensors().iter().map(tensor).collect()
}

/// What the names of the tensors of a member begin with; nothing for the first, or the only one.
fn member_prefix(number: usize) -> String {
    match number {
        0 => String::new(),
        _ => format!("member-{}.", number + 1),
    }
}

/// A row of the training history.
fn progress(row: &[f64]) -> Progress {
    Progress {
        step: row[0] as u64,
        epoch: row[1],
        train_nll: row[2],
        valid_nll: row[3],
        best_valid_nll: row[4],
        learning_rate: row[5],
        drops: row[6] as u32,
    }
}
