//! A small run from end to end, and the pieces where the answer is known.

#![allow(clippy::unwrap_used)]

use super::data::depths_of;
use super::*;
use crate::experiment;
use crate::simulate::shallow_water::blocks;
use crate::{Run, StopToken};

fn small() -> SwSettings {
    SwSettings {
        rows: vec![400],
        components: 30,
        modes: 3,
        recipes: vec![Recipe::PcpMap, Recipe::Pairs, Recipe::Fresh],
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
    let parameters = |recipe: Recipe| {
        let fit = recipe.settings(&settings).unwrap();
        fit.validate().unwrap();
        fit.method.spec().parameters(14, 3500).unwrap()
    };
    assert_eq!(parameters(Recipe::PcpMap), 2_455_218);
    assert_eq!(parameters(Recipe::CpFlow), 1_381_492);
    for recipe in Recipe::ALL {
        assert_eq!(recipe.name().parse::<Recipe>().unwrap(), recipe);
        recipe.settings(&settings).unwrap().validate().unwrap();
    }
    assert!("gatsbi".parse::<Recipe>().unwrap_err().to_string().contains("pcp-map"));
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
    assert_eq!(model.header().settings.noise.to_string(), "rest=0.25");
    assert_eq!(model.header().settings.scaling, crate::transform::Scaling::Common);
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
