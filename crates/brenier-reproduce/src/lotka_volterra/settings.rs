//! What each method learns the pairs with, as data.

use super::{PARAMETERS, SUMMARIES};
use crate::data::Selection;
use crate::map::Method;
use crate::protocol::Protocol;
use crate::transform::SupportRule;
use crate::{FitSettings, Result};

/// From this many rows on there are many.
const MANY: u64 = 200_000;

/// What is said about a method, as lines of a settings file.
struct Learning {
    method: &'static str,
    settings: &'static str,
    /// With few rows, and with many.
    epochs: [&'static str; 2],
}

const LEARNING: [Learning; 2] = [
    Learning {
        method: "pcp-map",
        settings: "method.feature_width = 128
            train.batch_size = 256
            train.learning_rate = 0.005",
        epochs: ["train.epochs = 60", "train.epochs = 40"],
    },
    // With this schedule the end is the best, and a flow's validations, in finer steps, are expensive.
    Learning {
        method: "cot-flow",
        settings: "method.feature_width = 64
            train.batch_size = 128
            train.learning_rate = 0.01
            train.validate_every = 1000",
        epochs: ["train.epochs = 100", "train.epochs = 20"],
    },
];

/// Other methods.
const OTHERS: Learning = Learning {
    method: "",
    settings: "train.batch_size = 256
        train.learning_rate = 0.005",
    epochs: ["train.epochs = 60"; 2],
};

/// A learning rate that falls over all epochs.
const FALLING: &str = "train.schedule = 'cosine'
    train.max_valid_rows = 5000";

/// Settings that did well on so many rows, with θ in logarithms.
pub fn settings(method: Method, rows: u64, seed: u64) -> Result<FitSettings> {
    let learning = LEARNING.iter().find(|own| own.method == method.name()).unwrap_or(&OTHERS);
    let epochs = learning.epochs[usize::from(rows >= MANY)];
    let support = PARAMETERS.iter().map(|name| format!("{name}=log").parse());
    Ok(FitSettings {
        target: Some(PARAMETERS.join(",").parse()?),
        given: Some(SUMMARIES.join(",").parse::<Selection>()?),
        support: support.collect::<Result<Vec<SupportRule>>>()?,
        seed,
        ..Protocol::new(method.name(), &[learning.settings, epochs, FALLING]).settings()?
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::train::{Schedule, TrainSettings};

    /// Written out, so that a folder of an earlier version is continued with the settings that it was begun with.
    #[test]
    fn settings_are_those_of_earlier_versions() {
        let own = |method: &str, values: &[(&str, usize)], train: TrainSettings| {
            let settings = method.parse::<Method>().unwrap().defaults();
            let with = |settings: crate::map::MethodSettings, (name, value): &(&str, usize)| {
                settings.with(name, *value).unwrap()
            };
            FitSettings {
                method: values.iter().fold(settings, with),
                target: Some("theta_1,theta_2,theta_3,theta_4".parse().unwrap()),
                given: Some(SUMMARIES.join(",").parse().unwrap()),
                support: (1..=4).map(|i| format!("theta_{i}=log").parse().unwrap()).collect(),
                seed: 3,
                train,
                ..Default::default()
            }
        };
        let cosine = |batch: usize, rate: f64, epochs: u32, validate_every: usize| TrainSettings {
            batch_size: Some(batch),
            learning_rate: Some(rate),
            schedule: Some(Schedule::Cosine),
            epochs,
            validate_every,
            max_valid_rows: 5000,
            ..Default::default()
        };
        for (method, rows, values, train) in [
            ("pcp-map", 50_000, &[("feature_width", 128)][..], cosine(256, 0.005, 60, 0)),
            ("pcp-map", 500_000, &[("feature_width", 128)], cosine(256, 0.005, 40, 0)),
            ("cot-flow", 199_999, &[("feature_width", 64)], cosine(128, 0.01, 100, 1000)),
            ("cot-flow", 200_000, &[("feature_width", 64)], cosine(128, 0.01, 20, 1000)),
            ("flow-matching", 50_000, &[], cosine(256, 0.005, 60, 0)),
        ] {
            let found = settings(method.parse().unwrap(), rows, 3).unwrap();
            assert_eq!(found, own(method, values, train), "{method} {rows}");
            found.validate().unwrap();
        }
    }
}
