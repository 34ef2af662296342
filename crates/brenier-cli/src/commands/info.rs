//! `brenier info`: what a model file holds.

use brenier::Posterior;
use serde::Serialize;

use crate::args::InfoArguments;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &InfoArguments) -> Result<(), Failure> {
    output::check_json(arguments.json.json.as_deref())?;
    let model = Posterior::load(&arguments.model)?;
    output::result_or_json(
        arguments.json.json.as_deref(),
        || json(&model),
        || output::lines(model.description()),
    )
}

/// The header document of the file, and what follows from it.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    header: &'a brenier::ModelInfo,
    parameters: usize,
    linear_target_transform: bool,
    pca_components: Option<usize>,
    validations: usize,
}

fn json(model: &Posterior) -> String {
    let header = model.info();
    let document = Document {
        header,
        parameters: model.map().parameters(),
        linear_target_transform: header.target_transform.is_linear(),
        pca_components: header.given_transform.pca().map(|pca| pca.output_dim()),
        validations: model.history().len(),
    };
    let text = serde_json::to_string_pretty(&document).expect("a header that was read can be written");
    text + "\n"
}
