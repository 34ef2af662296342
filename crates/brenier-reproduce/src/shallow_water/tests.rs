//! A small run from end to end, and the pieces where the answer is known.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::data::depths_of;
use super::*;
use crate::experiment;
use crate::map::Method;
use crate::simulate::shallow_water::{NOISE, blocks};
use crate::train::{AdamSettings, Schedule, TrainSettings};
use crate::transform::{Asinh, NoiseRule, NoiseSettings, Scaling};
use crate::{FitSettings, Run, StopToken};

fn recipe(name: &str) -> Recipe {
    name.parse().unwrap()
}

fn small() -> SwSettings {
    SwSettings {
        rows: vec![400],
        components: 30,
        modes: 3,
        recipes: Recipe::usual(),
        test_rows: 40,
        draws: 30,
        exact_rows: 2,
        epochs: Some(2),
        ..SwSettings::default()
    }
}

#[test]
fn recipes_have_the_published_sizes() {
    let settings = SwSettings::default();
    let parameters = |name: &str| {
        let fit = recipe(name).settings(&settings, 100_000).unwrap();
        fit.validate().unwrap();
        fit.method.spec().parameters(14, 3500).unwrap()
    };
    assert_eq!(parameters("pcp-map"), 2_455_218);
    assert_eq!(parameters("cp-flow"), 1_381_492);
    assert_eq!(parameters("npe"), 756_175);
    for recipe in Recipe::all() {
        assert_eq!(recipe.name().parse::<Recipe>().unwrap(), recipe);
        assert_eq!(serde_json::to_value(recipe).unwrap(), recipe.name());
        let fit = recipe.settings(&settings, 100_000).unwrap();
        fit.validate().unwrap();
        assert_eq!(recipe.is_fresh(), !fit.noise.is_empty());
    }
    assert!("gatsbi".parse::<Recipe>().unwrap_err().to_string().contains("pcp-map"));
    let usual: Vec<&str> = settings.recipes.iter().map(|recipe| recipe.name()).collect();
    assert_eq!(usual, ["pcp-map", "pairs", "fresh"]);
}

/// Written out, so that no change of them goes unnoticed: folders of earlier versions are continued with these.
#[test]
fn recipes_have_these_settings() {
    let of = |name: &str, values: Value| {
        let values = values.as_object().unwrap().clone();
        name.parse::<Method>().unwrap().defaults().with_values(values).unwrap()
    };
    let settings = SwSettings { components: 2000, seed: 5, max_steps: Some(9), ..SwSettings::default() };
    let common = |train: TrainSettings| TrainSettings {
        valid_fraction: 0.05,
        max_valid_rows: 5000,
        max_steps: Some(9),
        ..train
    };
    let plateau = |batch: usize, rate: f64| {
        common(TrainSettings {
            batch_size: Some(batch),
            learning_rate: Some(rate),
            validate_every: 70,
            patience: Some(21),
            drop_factor: Some(0.5),
            max_drops: Some(4),
            rewind: false,
            epochs: 1000,
            ..TrainSettings::default()
        })
    };
    let cosine = |epochs: u32, decay: f64| {
        common(TrainSettings {
            batch_size: Some(256),
            learning_rate: Some(1e-3),
            schedule: Some(Schedule::Cosine),
            epochs,
            adam: AdamSettings { weight_decay: Some(decay), ..AdamSettings::default() },
            ..TrainSettings::default()
        })
    };
    let plain = |given: &str| FitSettings {
        target: Some("mode_1..mode_14".parse().unwrap()),
        given: Some(given.parse().unwrap()),
        seed: 5,
        asinh: Asinh::None,
        ..FitSettings::default()
    };
    let ours = || {
        let flow = json!({
            "flow": "nsf", "transforms": 2, "hidden_width": 64, "blocks": 1, "front": "autoregressive",
            "front_width": 64, "embedding": [512, 512, 256], "embedding_activation": "relu",
        });
        let (scaling, asinh) = (Scaling::Common, Asinh::Auto);
        FitSettings { method: of("npe", flow), scaling, asinh, ..plain("y1..y1000") }
    };
    let all =
        |sd: f64| NoiseSettings { rules: vec![NoiseRule { columns: crate::data::Selection::Rest, sd }] };
    let authors =
        json!({"feature_width": 256, "context_width": 256, "depth": 3, "initialisation": "authors"});
    let flow = json!({
        "feature_width": 1024, "depth": 2, "time_steps": 8, "evaluation_steps": 32,
        "embedding": [128, 128, 64], "authors_alphas": [6727.60, 212.55],
    });
    let convex = json!({"feature_width": 256, "depth": 3});
    let sbi = json!({"preset": "sbi", "flow": "nsf", "hidden_width": 14});
    let own = TrainSettings { batch_size: Some(100), max_steps: Some(9), ..TrainSettings::default() };
    for (name, expected) in [
        (
            "pcp-map",
            FitSettings { method: of("pcp-map", authors), train: plateau(64, 1e-3), ..plain("rest") },
        ),
        (
            "cot-flow",
            FitSettings { method: of("cot-flow", flow), train: plateau(512, 1e-4), ..plain("rest") },
        ),
        ("cp-flow", FitSettings { method: of("cp-flow", convex), train: plateau(64, 1e-3), ..plain("rest") }),
        ("npe", FitSettings { method: of("npe", sbi), train: own, ..plain("rest") }),
        ("pairs", FitSettings { jitter: all(0.125), train: cosine(10, 1.0), ..ours() }),
        (
            "fresh",
            FitSettings {
                noise: all(NOISE),
                surrogate: Some(0.1),
                surrogate_widths: vec![1024; 3],
                surrogate_epochs: Some(30),
                members: Some(2),
                train: cosine(60, 0.1),
                ..ours()
            },
        ),
    ] {
        assert_eq!(recipe(name).settings(&settings, 100_000).unwrap(), expected, "{name}");
    }
    let short = SwSettings { epochs: Some(2), components: 30, ..settings };
    let quick = recipe("pairs").settings(&short, 400).unwrap();
    assert_eq!((quick.given.unwrap().to_string(), quick.train.epochs), ("y1..y30".to_owned(), 2));
    assert_eq!(recipe("fresh").settings(&short, 400).unwrap().surrogate_epochs, Some(2));
    // A fifth of the rows, five times as many epochs.
    let fewer = recipe("fresh").settings(&SwSettings { epochs: None, ..short }, 20_000).unwrap();
    assert_eq!((fewer.train.epochs, fewer.surrogate_epochs), (300, Some(150)));
}

#[test]
fn wrong_sizes_are_refused() {
    for (settings, says) in [
        (SwSettings { components: 500, ..small() }, "components: 500 is not between 2 and 400"),
        (SwSettings { modes: 40, ..small() }, "modes: 40"),
        (SwSettings { rows: vec![], ..small() }, "at least one size"),
        (SwSettings { exact_rows: 50, ..small() }, "exact_rows: 50"),
    ] {
        let error = SwExperiment::new(settings).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn modes_in_published_units_give_the_depths_back() {
    let depths = blocks::draw_depths(3, 0..1);
    let mut theta = vec![0.0; depth::MODES];
    depth::to_modes(&depths, &mut theta);
    let published: Vec<f64> = theta.iter().enumerate().map(|(k, t)| t * depth::published_scale(k)).collect();
    let back = depths_of(&published);
    assert!(depths.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-6));
}

#[test]
fn a_small_run_ends_in_a_document_and_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("sw");
    let experiment = SwExperiment::new(small()).unwrap();
    let document = experiment::run(&experiment, &place, false, Run::silent()).unwrap();
    let text = document.to_markdown();
    for part in ["ours, with fresh noise", "exact posterior", "simulations", "ranks-modes-fresh-400"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for file in [
        "profiles-pairs-400.svg",
        "waves-fresh-400.svg",
        "sizes-pcp-map.svg",
        "fresh-400.brenier",
        "results.json",
    ] {
        assert!(place.join(file).exists(), "{file}");
    }
    // Nothing is repeated, and what is removed is made again with the same figures.
    let scores = std::fs::read_to_string(place.join("fresh-400-scores.json")).unwrap();
    std::fs::remove_file(place.join("fresh-400-scores.json")).unwrap();
    experiment::run(&experiment, &place, true, Run::silent()).unwrap();
    let again = std::fs::read_to_string(place.join("fresh-400-scores.json")).unwrap();
    let figures = |text: &str| {
        let step: crate::experiment::Step<Scores> = serde_json::from_str(text).unwrap();
        step.result
    };
    assert_eq!(figures(&scores), figures(&again));
    assert!(figures(&scores).baseline.is_some_and(f64::is_finite) && text.contains("conditional Gaussian"));
    // Scores of earlier versions know nothing of the conditional Gaussian.
    let mut old: serde_json::Value = serde_json::from_str(&scores).unwrap();
    old.as_object_mut().unwrap().remove("baseline");
    assert_eq!(figures(&old.to_string()), Scores { baseline: None, ..figures(&scores) });
    // A model that declares noise says so.
    let model = crate::Posterior::load(place.join("fresh-400.brenier")).unwrap();
    assert_eq!(model.info().settings.noise.to_string(), "rest=0.25");
    assert_eq!(model.info().settings.scaling, crate::transform::Scaling::Common);
    let other = SwExperiment::new(SwSettings { modes: 4, ..small() }).unwrap();
    let error = experiment::run(&other, &place, true, Run::silent()).unwrap_err().to_string();
    assert!(error.contains("another `modes`"), "{error}");
}

#[test]
fn a_run_that_is_stopped_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let stop = StopToken::default();
    stop.stop();
    let experiment = SwExperiment::new(small()).unwrap();
    let error = experiment::run(&experiment, &folder.path().join("sw"), false, Run::silent().stop(&stop))
        .unwrap_err();
    assert!(matches!(error, Error::Stopped(_)), "{error}");
}
