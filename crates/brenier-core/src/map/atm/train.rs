//! Training: the number of terms of each component by cross-validation, then the components themselves, side by side.
//!
//! Components do not depend on each other. Of each, `folds` partial fits grow until `patience` terms brought nothing
//! better for the fold that was left out; the mean over the folds, as far as all of them went, has its minimum at the
//! number of terms that the component gets, grown once more on all training rows. The validation rows are scored and
//! nothing else: neither folds nor fit see them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::basis::Bounds;
use super::grow::Growth;
use super::objective::{Objective, Rules};
use super::terms::Expansion;
use super::{AtmMap, AtmSettings};
use crate::StopToken;
use crate::kernel::side_by_side;
use crate::map::ConditionalMap;
use crate::map::method::{MethodSpec, Training};
use crate::parallel::results;
use crate::statistics::quantile;
use crate::store::{read_checkpoint, write_checkpoint};
use crate::train::{Dataset, Outcome, Progress, Stop, TrainEvent};
use crate::{Error, Result};

/// Random stream of the folds.
const FOLDS: u64 = 1 << 42;
/// The part of the rows below and above which a column's polynomials continue linearly.
const TAIL: f64 = 0.01;
/// Largest change of an integral from one quadrature rule to the next, relative to 1 or the integral.
const QUADRATURE_TOLERANCE: f64 = 1e-3;
/// Terms that a component gets, if they help, even when the training is stopped.
const TERMS_WHEN_STOPPED: usize = 20;

/// Rows for every term of a component that is stopped before any fold said how many are good.
const ROWS_PER_TERM: usize = 20;

/// A component that was grown to its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Grown {
    terms: Vec<Vec<(u32, u32)>>,
    coefficients: Vec<f64>,
    /// Loss of the training and of the validation rows for one term, two terms, …
    train: Vec<f64>,
    valid: Vec<f64>,
}

/// What is done of a training: as a whole the content of its journal.
#[derive(Serialize, Deserialize)]
struct Done {
    /// Losses of the fold left out for one term, two terms, …, by component and fold.
    curves: Vec<Option<Vec<f64>>>,
    components: Vec<Option<Grown>>,
}

const KIND: &str = "checkpoint of an adaptive transport map";

/// Everything that the jobs share.
struct Jobs<'a> {
    settings: &'a AtmSettings,
    patience: usize,
    data: &'a Dataset,
    rules: Rules,
    bounds: Vec<Bounds>,
    /// The training rows as the folds divide them: those of fold f from cuts[f] to cuts[f + 1].
    shuffled: Vec<u32>,
    cuts: Vec<usize>,
    train_rows: &'a [u32],
    valid_rows: &'a [u32],
    stop: StopToken,
    deadline: Option<Instant>,
}

impl Jobs<'_> {
    fn is_over(&self) -> bool {
        self.stop.is_stopped() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn growth(&self, component: usize, rows: &[u32], held_out: &[u32]) -> Growth<'_> {
        let last = self.data.given + component;
        let objective = |rows: &[u32]| {
            Objective::new(self.data, rows, last, &self.bounds, &self.rules, QUADRATURE_TOLERANCE)
        };
        Growth::new(objective(rows), Some(objective(held_out)), last as u32)
    }

    /// The losses of a fold that is left out, and whether growth came to its end.
    fn curve(&self, component: usize, fold: usize) -> (Vec<f64>, bool) {
        let (start, end) = (self.cuts[fold], self.cuts[fold + 1]);
        let rows = [&self.shuffled[..start], &self.shuffled[end..]].concat();
        let mut growth = self.growth(component, &rows, &self.shuffled[start..end]);
        while growth.terms() < self.settings.max_terms {
            if self.is_over() {
                return (growth.held_out_losses, false);
            }
            if growth.terms() - lowest(&growth.held_out_losses) >= self.patience || !growth.step() {
                break;
            }
        }
        (growth.held_out_losses, true)
    }

    /// A component of at most `terms` terms, and whether it got as many as it should.
    fn component(&self, component: usize, terms: usize) -> (Grown, bool) {
        let mut growth = self.growth(component, self.train_rows, self.valid_rows);
        let mut whole = true;
        while growth.terms() < terms {
            if growth.terms() >= TERMS_WHEN_STOPPED && self.is_over() {
                whole = false;
                break;
            }
            if !growth.step() {
                break;
            }
        }
        let (Expansion { terms, coefficients }, train, valid) = growth.finish();
        (Grown { terms, coefficients, train, valid }, whole)
    }
}

/// The number of terms, from 1, with the lowest loss; the first of equals.
fn lowest(losses: &[f64]) -> usize {
    let least = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    least.map_or(1, |(place, _)| place + 1)
}

/// The number of terms with the lowest mean over folds, of those that all of them reached.
fn chosen(curves: &[&[f64]]) -> usize {
    let reached = curves.iter().map(|curve| curve.len()).min().unwrap_or(0);
    let means: Vec<f64> = (0..reached)
        .map(|place| curves.iter().map(|curve| curve[place] / curves.len() as f64).sum())
        .collect();
    lowest(&means)
}

/// The bounds of every column of (y, x): its quantiles among `rows`, linear between order statistics.
fn bounds(data: &Dataset, rows: &[u32]) -> Vec<Bounds> {
    results(0..data.given + data.target, |_, column| {
        let (values, width, place) = match column.checked_sub(data.given) {
            None => (&data.y, data.given, column),
            Some(place) => (&data.x, data.target, place),
        };
        let mut all: Vec<f64> =
            rows.iter().map(|&row| f64::from(values[row as usize * width + place])).collect();
        all.sort_unstable_by(f64::total_cmp);
        // Rounded as the model file has it, so that the map is the one that was trained.
        let [low, high] = [TAIL, 1.0 - TAIL].map(|part| f64::from(quantile(&all, part) as f32));
        Bounds { low, high }
    })
}

impl Done {
    fn new(components: usize, folds: usize) -> Self {
        Self { curves: vec![None; components * folds], components: vec![None; components] }
    }

    /// What a checkpoint holds of the same training.
    fn load(path: &Path, identity: &str, fresh: &Self) -> Result<Self> {
        let (done, _): (Self, _) = read_checkpoint(path, (KIND, identity))?;
        let sizes = |done: &Self| (done.curves.len(), done.components.len());
        match sizes(&done) == sizes(fresh) {
            true => Ok(done),
            false => {
                Err(Error::model(path, "the checkpoint is of other settings or another table: delete it"))
            }
        }
    }

    fn count(&self) -> u64 {
        (self.curves.iter().flatten().count() + self.components.iter().flatten().count()) as u64
    }
}

/// Grows a map; see the top of this file.
pub(super) fn train(settings: &AtmSettings, training: Training<'_>) -> Result<(AtmMap<f32>, Outcome)> {
    let Training { data, train_rows, valid_rows, settings: train, seed, identity, mut run, .. } = training;
    if train_rows.len() < 2 || valid_rows.is_empty() {
        let problem = "leaves fewer than two rows to train on or none to validate with";
        return Err(Error::setting("valid_fraction", problem));
    }
    let folds = settings.folds.min(train_rows.len());
    let mut shuffled = train_rows.to_vec();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(FOLDS);
    shuffled.shuffle(&mut rng);
    let jobs = Jobs {
        settings,
        patience: train.patience() as usize,
        data,
        rules: Rules::new(),
        bounds: bounds(data, train_rows),
        cuts: (0..=folds).map(|fold| fold * train_rows.len() / folds).collect(),
        shuffled,
        train_rows,
        valid_rows,
        stop: run.token().clone(),
        deadline: train.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes)),
    };
    let mut done = Done::new(data.target, folds);
    let plan = run.plan().cloned();
    if let Some(plan) = plan.as_ref().filter(|plan| plan.resume && plan.path.exists()) {
        done = Done::load(&plan.path, identity, &done)?;
    }
    run.tell(TrainEvent::Started {
        train_rows: train_rows.len(),
        valid_rows: valid_rows.len(),
        parameters: settings.parameters(data.target, data.given)?,
        resumed_at: done.count(),
        max_steps: (data.target * (folds + 1)) as u64,
    })?;
    let mut saved = Instant::now();
    let mut keep = |done: &Done, always: bool| match &plan {
        Some(plan) if always || saved.elapsed() >= plan.every => {
            saved = Instant::now();
            write_checkpoint(&plan.path, (KIND, identity), done, &[])
        }
        _ => Ok(()),
    };
    let (threads, abandoned) = (rayon::current_num_threads(), AtomicBool::new(false));

    // The last components have the most columns and take longest: they come first.
    let open: Vec<usize> = (0..done.curves.len()).rev().filter(|&job| done.curves[job].is_none()).collect();
    let mut partial: Vec<Vec<f64>> = vec![Vec::new(); done.curves.len()];
    side_by_side(
        threads,
        &abandoned,
        &open,
        |&job| Ok((job, jobs.curve(job / folds, job % folds))),
        |result| {
            let (job, (curve, complete)) = result?;
            if complete {
                done.curves[job] = Some(curve);
                run.stepped(done.count());
                keep(&done, false)
            } else {
                partial[job] = curve;
                Ok(())
            }
        },
    )?;

    let sizes: Vec<(usize, bool)> = (0..data.target)
        .map(|component| {
            let places = component * folds..(component + 1) * folds;
            let complete = places.clone().all(|job| done.curves[job].is_some());
            let curves: Vec<&[f64]> = places
                .map(|job| done.curves[job].as_deref().unwrap_or(&partial[job]))
                .filter(|curve| complete || !curve.is_empty())
                .collect();
            let terms = match curves.is_empty() {
                // Nothing is known of it yet: few enough not to overfit.
                true => train_rows.len() / ROWS_PER_TERM,
                false => chosen(&curves),
            };
            (if complete { terms } else { terms.clamp(1, TERMS_WHEN_STOPPED) }, complete)
        })
        .collect();
    let validated = sizes.iter().all(|&(_, complete)| complete);
    let mut grown: Vec<Option<Grown>> = done.components.clone();
    let open: Vec<usize> = (0..data.target).rev().filter(|&component| grown[component].is_none()).collect();
    let mut complete = validated;
    side_by_side(
        threads,
        &abandoned,
        &open,
        |&component| Ok((component, jobs.component(component, sizes[component].0))),
        |result| {
            let (component, (one, whole)) = result?;
            if whole && sizes[component].1 {
                done.components[component] = Some(one.clone());
                run.stepped(done.count());
            }
            complete &= whole;
            grown[component] = Some(one);
            keep(&done, false)
        },
    )?;
    let stop = match complete {
        true => Stop::Converged,
        false if jobs.stop.is_stopped() => Stop::Interrupted,
        false => Stop::Minutes,
    };
    if plan.as_ref().is_some_and(|plan| plan.keep || stop.is_resumable()) {
        keep(&done, true)?;
    }

    let grown: Vec<Grown> = grown.into_iter().flatten().collect();
    let components: Vec<Expansion> = grown
        .iter()
        .map(|one| Expansion { terms: one.terms.clone(), coefficients: one.coefficients.clone() })
        .collect();
    let map: AtmMap<f32> = AtmMap::from_components(data.given, &jobs.bounds, &components).cast();
    let double: AtmMap<f64> = map.cast();
    let mut history = history(&grown);
    let (train_nll, valid_nll) = (nll(&double, data, train_rows)?, nll(&double, data, valid_rows)?);
    let steps = history.len() as u64;
    if let Some(last) = history.last_mut() {
        (last.train_nll, last.valid_nll) = (train_nll, valid_nll);
        last.best_valid_nll = last.best_valid_nll.min(valid_nll);
        run.tell(TrainEvent::Validated(*last))?;
    }
    run.tell(TrainEvent::Finished { stop, steps, best_valid_nll: valid_nll, best_step: steps })?;
    let outcome = Outcome { stop, steps, best_valid_nll: valid_nll, best_step: steps, validated, history };
    Ok((map, outcome))
}

/// The losses of the map with at most one term a component, at most two, …: steps and epochs count terms.
fn history(components: &[Grown]) -> Vec<Progress> {
    let most = components.iter().map(|component| component.train.len()).max().unwrap_or(0);
    let mut best = f64::INFINITY;
    (0..most)
        .map(|place| {
            let at = |losses: &[f64]| losses.get(place).or(losses.last()).copied().unwrap_or(f64::NAN);
            let valid_nll = components.iter().map(|component| at(&component.valid)).sum();
            best = best.min(valid_nll);
            Progress {
                step: place as u64 + 1,
                epoch: (place + 1) as f64,
                train_nll: components.iter().map(|component| at(&component.train)).sum(),
                valid_nll,
                best_valid_nll: best,
                learning_rate: 0.0,
                drops: 0,
            }
        })
        .collect()
}

/// Mean negative log-likelihood of some rows.
fn nll(map: &AtmMap<f64>, data: &Dataset, rows: &[u32]) -> Result<f64> {
    let take = |values: &[f32], width: usize| -> Vec<f64> {
        let row = |&row: &u32| &values[row as usize * width..(row as usize + 1) * width];
        rows.iter().flat_map(row).map(|&value| f64::from(value)).collect()
    };
    let mut density = vec![0.0; rows.len()];
    map.log_density(&take(&data.x, data.target), &take(&data.y, data.given), &mut density)?;
    Ok(-density.iter().sum::<f64>() / rows.len() as f64)
}
