//! The choice of a method by trials, from a table to the model.
#![allow(clippy::unwrap_used)]

use brenier::example;
use brenier::train::Stop;
use brenier::{FitSettings, MethodChoice, Run};

/// Folds of trials on few rows.
const FOLDS: usize = 5;

/// Few rows and steps: what counts is that the best of the trials is taken, told and kept, whatever the threads.
#[test]
fn the_best_trial_is_fitted_and_the_choice_is_the_same_for_any_number_of_threads() {
    let table = example::simulate(300, 0);
    let mut settings = FitSettings {
        target: Some("x1,x2".parse().unwrap()),
        given: Some("y".parse().unwrap()),
        ..MethodChoice::Auto.settings()
    };
    settings.train.epochs = 2;
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| brenier::fit(&table, &settings, Run::silent())).unwrap().posterior
    };
    let model = run(1);
    let choice = model.info().choice.clone().unwrap();
    assert!(choice.trials.iter().all(|trial| trial.valid_nll.is_some()));
    let kept = &model.info().settings;
    assert_eq!(kept.method, choice.trials[choice.chosen].method);
    assert!(!kept.auto);
    let densities = |model: &brenier::Posterior| model.log_density(&[0.3, 0.4], &[0.5]).unwrap().user;
    let other = run(3);
    assert_eq!(other.info().choice, Some(choice));
    assert_eq!(densities(&model), densities(&other));
}

/// What is in closed form needs no time: a fit that is stopped at once still ends with a map that means something, that of
/// every fold where rows are few.
#[test]
fn a_fit_that_is_stopped_in_its_trials_ends_with_the_best_of_them() {
    for (rows, maps) in [(300, FOLDS), (2500, 1)] {
        let table = example::simulate(rows, 0);
        let settings = FitSettings {
            target: Some("x1,x2".parse().unwrap()),
            given: Some("y".parse().unwrap()),
            ..MethodChoice::Auto.settings()
        };
        let stop = brenier::StopToken::new();
        stop.stop();
        let fitted = brenier::fit(&table, &settings, Run::silent().stop(&stop)).unwrap();
        let header = fitted.posterior.info();
        let choice = header.choice.as_ref().unwrap();
        assert_eq!(fitted.posterior.maps().len(), maps);
        assert_eq!(header.settings.method, choice.trials[choice.chosen].method);
        assert!(fitted.validated && header.training.stop == Stop::Interrupted);
        // The folds of 300 rows have 60 each, which are all scored; of the 250 validation rows of the other table some are.
        let scored = choice.trials[choice.chosen].valid_nll.unwrap();
        let bound = if rows == 300 { 1e-4 * (1.0 + scored.abs()) } else { 0.5 };
        let apart = (header.training.best_valid_nll - scored).abs();
        assert!(apart < bound, "{rows} rows: {apart}");
    }
}
