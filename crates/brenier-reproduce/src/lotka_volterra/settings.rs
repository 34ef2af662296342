//! What each method learns the pairs with, as data.

use super::{PARAMETERS, SUMMARIES};
use crate::data::Selection;
use crate::map::Method;
use crate::protocol::Protocol;
use crate::transform::SupportRule;
use crate::{FitSettings, Result};

/// From this many rows on there are many.
const MANY: u64 = 200_000;

/// The settings of a method, as lines of a settings file.
struct Learning {
    method: &'static str,
    settings: &'static [&'static str],
    /// Epochs, and what else differs, with few rows and with many.
    epochs: [&'static str; 2],
}

const LEARNING: [Learning; 5] = [
    Learning {
        method: "pcp-map",
        settings: &[
            "method.feature_width = 128
            method.reference = 'heavy-tailed'
            train.batch_size = 256",
            FALLING,
            VALIDATION,
        ],
        epochs: [
            "train.epochs = 60
            train.learning_rate = 0.01",
            "train.epochs = 40
            train.learning_rate = 0.005",
        ],
    },
    // With this schedule the end is the best, and a flow's validations, in finer steps, are expensive.
    Learning {
        method: "cot-flow",
        settings: &[
            "method.feature_width = 64
            train.batch_size = 128
            train.learning_rate = 0.01
            train.validate_every = 1000",
            FALLING,
            VALIDATION,
        ],
        epochs: ["train.epochs = 100", "train.epochs = 20"],
    },
    // What the package sbi does by default, its validation with a tenth of the rows included.
    Learning {
        method: "npe",
        settings: &["method.preset = 'sbi'
            method.flow = 'maf'
            train.max_valid_rows = 50000
            asinh = 'none'"],
        epochs: [""; 2],
    },
    // Deep and narrow, with the training of its authors' conditional example, for as many epochs as PCP-Map.
    Learning {
        method: "cp-flow",
        settings: &[
            "method.feature_width = 64
            method.depth = 10
            train.batch_size = 128
            train.learning_rate = 0.001
            train.clip = 10.0
            asinh = 'none'",
            FALLING,
            VALIDATION,
        ],
        epochs: ["train.epochs = 60", "train.epochs = 40"],
    },
    // The growth of the published protocol.
    Learning {
        method: "atm",
        settings: &[
            "method.max_terms = 150
            method.folds = 5
            train.patience = 20
            asinh = 'none'",
            VALIDATION,
        ],
        epochs: [""; 2],
    },
];

/// Other methods train as they do by default.
const OTHERS: Learning = Learning { method: "", settings: &[VALIDATION], epochs: [""; 2] };

/// A learning rate that falls over all epochs.
const FALLING: &str = "train.schedule = 'cosine'";
/// The most rows that validate.
const VALIDATION: &str = "train.max_valid_rows = 5000";

/// The protocol of a method trained on this many rows.
pub(super) fn protocol(method: Method, rows: u64) -> Protocol {
    let learning = LEARNING.iter().find(|own| own.method == method.name()).unwrap_or(&OTHERS);
    let epochs = learning.epochs[usize::from(rows >= MANY)];
    Protocol::new(method.name(), &[learning.settings, &[epochs]].concat())
}

/// The settings of a method for this many rows: those that did well here, or those of others' programs, with θ in logarithms.
pub fn settings(method: Method, rows: u64, seed: u64) -> Result<FitSettings> {
    let support = PARAMETERS.iter().map(|name| format!("{name}=log").parse());
    Ok(FitSettings {
        target: Some(PARAMETERS.join(",").parse()?),
        given: Some(SUMMARIES.join(",").parse::<Selection>()?),
        support: support.collect::<Result<Vec<SupportRule>>>()?,
        seed,
        ..protocol(method, rows).settings()?
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::train::{Schedule, TrainSettings};
    use crate::transform::Asinh;
    use serde_json::{Value, json};

    /// Written out, so that no change of them goes unnoticed: folders of earlier versions are continued with these.
    #[test]
    fn methods_have_these_settings() {
        let own = |method: &str, values: &Value, train: TrainSettings| FitSettings {
            method: method
                .parse::<Method>()
                .unwrap()
                .defaults()
                .with_values(values.as_object().unwrap().clone())
                .unwrap(),
            target: Some("theta_1,theta_2,theta_3,theta_4".parse().unwrap()),
            given: Some(SUMMARIES.join(",").parse().unwrap()),
            support: (1..=4).map(|i| format!("theta_{i}=log").parse().unwrap()).collect(),
            seed: 3,
            train,
            ..Default::default()
        };
        let plain = || TrainSettings { max_valid_rows: 5000, ..Default::default() };
        let cosine = |batch: usize, rate: f64, epochs: u32| TrainSettings {
            batch_size: Some(batch),
            learning_rate: Some(rate),
            schedule: Some(Schedule::Cosine),
            epochs,
            ..plain()
        };
        let flow = |epochs: u32| TrainSettings { validate_every: 1000, ..cosine(128, 0.01, epochs) };
        let clipped = |epochs: u32| TrainSettings { clip: Some(10.0), ..cosine(128, 0.001, epochs) };
        let tenth = TrainSettings { max_valid_rows: 50_000, ..Default::default() };
        let grown = TrainSettings { patience: Some(20), ..plain() };
        for (method, rows, values, train) in [
            (
                "pcp-map",
                50_000,
                json!({"feature_width": 128, "reference": "heavy-tailed"}),
                cosine(256, 0.01, 60),
            ),
            (
                "pcp-map",
                500_000,
                json!({"feature_width": 128, "reference": "heavy-tailed"}),
                cosine(256, 0.005, 40),
            ),
            ("cot-flow", 199_999, json!({"feature_width": 64}), flow(100)),
            ("cot-flow", 200_000, json!({"feature_width": 64}), flow(20)),
            ("npe", 50_000, json!({"preset": "sbi", "flow": "maf"}), tenth),
            ("cp-flow", 50_000, json!({"feature_width": 64, "depth": 10}), clipped(60)),
            ("cp-flow", 500_000, json!({"feature_width": 64, "depth": 10}), clipped(40)),
            ("atm", 50_000, json!({"max_terms": 150, "folds": 5}), grown),
            ("flow-matching", 50_000, json!({}), plain()),
            ("gaussian", 50_000, json!({}), plain()),
        ] {
            let found = settings(method.parse().unwrap(), rows, 3).unwrap();
            let published = ["npe", "cp-flow", "atm"].contains(&method);
            let asinh = if published { Asinh::None } else { Asinh::Auto };
            let expected = FitSettings { asinh, ..own(method, &values, train) };
            assert_eq!(found, expected, "{method} {rows}");
            found.validate().unwrap();
        }
    }
}
