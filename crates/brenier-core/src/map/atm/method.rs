//! Adaptive transport maps as a method of the list: settings, training and trained map.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::AtmMap;
use super::basis::Bounds;
use super::terms::{Component, Layout, Scratch, Size};
use super::train::train;
use crate::map::batch::{EVALUATION_ROWS, both_precisions, check_reference, misses, rows_of};
use crate::map::method::{
    Fill, ListedMethod, MethodInfo, MethodSpec, Problem, SettingInfo, SettingKind, SizeAdvice, Training,
};
use crate::map::{ConditionalMap, Inversion, SampleSettings, TransportMap};
use crate::parallel::each_with;
use crate::train::{Outcome, TrainSettings};
use crate::{Error, Result};

/// More terms than any sensible component has.
const MOST_TERMS: usize = 10_000;
/// More parameters than any sensible table asks for.
const MOST_PARAMETERS: usize = 1 << 28;
/// Residual to which draws are solved, relative to 1 + |z|.
const TOLERANCE: f64 = 1e-12;

/// The settings of an adaptive transport map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AtmSettings {
    /// Terms of a component at most.
    pub max_terms: usize,
    /// Parts of the cross-validation that chooses the number of terms.
    pub folds: usize,
}

impl Default for AtmSettings {
    fn default() -> Self {
        Self { max_terms: 150, folds: 5 }
    }
}

impl MethodSpec for AtmSettings {
    fn validate(&self) -> Result<()> {
        if !(1..=MOST_TERMS).contains(&self.max_terms) {
            return Err(Error::setting("max_terms", format!("must be between 1 and {MOST_TERMS}")));
        }
        if !(2..=1000).contains(&self.folds) {
            return Err(Error::setting("folds", "must be between 2 and 1000"));
        }
        Ok(())
    }

    fn resolve(&mut self, _problem: Problem, _train: &mut TrainSettings) {}

    /// The most that training may come to.
    fn parameters(&self, target: usize, given: usize) -> Result<usize> {
        let component = self.max_terms.saturating_add(3 * Size::most_pairs(self.max_terms));
        let fixed = target.saturating_add(given).saturating_add(target).saturating_mul(2);
        let most = target.saturating_mul(component).saturating_add(fixed);
        if target == 0 || most > MOST_PARAMETERS {
            return Err(Error::setting("target", "the map would have too many parameters, or none"));
        }
        Ok(most)
    }

    fn grows(&self) -> bool {
        true
    }

    fn descends(&self) -> bool {
        false
    }

    fn train(&self, training: Training<'_>) -> Result<(Arc<dyn TransportMap>, Outcome)> {
        self.validate()?;
        let (map, outcome) = train(self, training)?;
        Ok((trained(map)?, outcome))
    }

    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>> {
        self.parameters(target, given)?;
        let zeros = |layout: &Layout| vec![0.0; layout.parameters()];
        let empty = Layout::empty(target, given);
        let mut sizes = AtmMap::from_parameters(empty.clone(), zeros(&empty))?;
        // A map without terms has sizes and quantiles alone; with the sizes known, its components follow one by one, so
        // that a file never makes us allocate much more than it holds.
        fill(&mut sizes)?;
        let all = empty.sizes_in(&sizes.parameters, self.max_terms)?;
        let mut parameters = sizes.parameters;
        let fixed = parameters.len();
        for (k, &size) in all.iter().enumerate() {
            let mut layout = empty.clone();
            layout.sizes[k] = size;
            let mut one = AtmMap::from_parameters(layout.clone(), zeros(&layout))?;
            fill(&mut one)?;
            parameters.extend(&one.parameters[fixed..]);
        }
        trained(AtmMap::from_parameters(Layout { sizes: all, ..empty }, parameters)?)
    }
}

impl ListedMethod for AtmSettings {
    const INFO: MethodInfo = MethodInfo {
        title: "adaptive transport map",
        summary: "A monotone triangular map of polynomials that grows term by term: for a few hundred to some thousand rows, nothing to tune",
        settings: &[
            SettingInfo {
                name: "max_terms",
                kind: SettingKind::Whole,
                help: "terms of each component at most",
                default: "150",
            },
            SettingInfo {
                name: "folds",
                kind: SettingKind::Whole,
                help: "parts of the cross-validation that chooses the number of terms",
                default: "5",
            },
        ],
        spaces: &[("default", "[method]\nfolds = [5, 10]\n")],
        candidates: &[],
        published_pilots: None,
        check_draws: 1000,
        draw_settings: &["tolerance"],
        size: SizeAdvice {
            smaller: "fewer terms",
            larger: "the expansion's, try more terms or a method with a network",
        },
        penalised: false,
    };
}

/// A map in both precisions, ready to draw from.
pub(super) fn trained(map: AtmMap<f32>) -> Result<Arc<dyn TransportMap>> {
    Ok(Arc::new(Atm::new(map)?))
}

/// A trained map in both precisions.
#[derive(Clone, Debug)]
struct Atm {
    single: AtmMap<f32>,
    double: AtmMap<f64>,
    components: Vec<Component>,
    bounds: Vec<Bounds>,
}

impl Atm {
    fn new(map: AtmMap<f32>) -> Result<Self> {
        let double = map.cast::<f64>();
        let (components, bounds) = double.decode()?;
        Ok(Self { single: map, double, components, bounds })
    }
}

impl TransportMap for Atm {
    both_precisions!(single, double);

    fn draw(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.only(&AtmSettings::INFO)?;
        let (n, m) = (self.double.layout.target, self.double.layout.given);
        check_reference(z, given, observation, n, m)?;
        let tolerance = settings.tolerance.unwrap_or(TOLERANCE);
        let mut x = vec![0.0; z.len()];
        let mut solved = vec![(0, 0.0); observation.len()];
        let blocks = x.chunks_mut(EVALUATION_ROWS * n).zip(z.chunks(EVALUATION_ROWS * n));
        let places = observation.chunks(EVALUATION_ROWS).zip(solved.chunks_mut(EVALUATION_ROWS));
        each_with(
            blocks.zip(places),
            || (Scratch::default(), vec![0.0; m + n]),
            |(scratch, row), _, ((x, z), (places, solved))| {
                let points = x.chunks_exact_mut(n).zip(z.chunks_exact(n));
                for ((x, z), (&place, solved)) in points.zip(places.iter().zip(solved)) {
                    let place = place as usize;
                    row[..m].copy_from_slice(&given[place * m..(place + 1) * m]);
                    let (mut iterations, mut worst) = (0, 0.0_f64);
                    for (k, component) in self.components.iter().enumerate() {
                        let found = component.line(row, &self.bounds, scratch).invert(z[k], tolerance);
                        row[m + k] = found.x;
                        iterations += found.iterations;
                        let missed = found.residual.abs() / (1.0 + z[k].abs());
                        // A point that is not finite is as far off as can be.
                        let known = found.x.is_finite() && missed.is_finite();
                        worst = worst.max(if known { missed } else { f64::MAX });
                    }
                    x.copy_from_slice(&row[m..]);
                    *solved = (iterations, worst);
                }
            },
        );
        let unsolved: Vec<u32> =
            (0..).zip(&solved).filter(|(_, (_, missed))| *missed > tolerance).map(|(row, _)| row).collect();
        if let (Some(&row), false) = (unsolved.first(), settings.skip_unsolved) {
            return Err(Error::Numerical(format!(
                "{} of {} draws could not be computed, the first of them number {}: the density is almost flat there",
                unsolved.len(),
                observation.len(),
                row + 1
            )));
        }
        let residuals = match settings.residuals {
            false => Vec::new(),
            true => {
                let y = rows_of(given, observation, m);
                let (mut back, mut log_det) = (vec![0.0; z.len()], vec![0.0; observation.len()]);
                self.double.forward(&x, &y, &mut back, &mut log_det)?;
                misses(&back, z, n)
            }
        };
        let iterations = solved.iter().map(|&(iterations, _)| iterations).collect();
        Ok((x, Inversion { iterations, residuals, unsolved }))
    }

    fn tolerance(&self, settings: &SampleSettings) -> Option<f64> {
        Some(settings.tolerance.unwrap_or(TOLERANCE))
    }

    fn describe(&self) -> String {
        let terms: Vec<usize> = self.double.layout.sizes.iter().map(|size| size.terms).collect();
        match terms[..] {
            [one] => format!("{one} terms"),
            _ => format!("{} terms in {} components", terms.iter().sum::<usize>(), terms.len()),
        }
    }

    fn inputs(&self) -> Option<Vec<Vec<usize>>> {
        Some(self.components.iter().map(|component| component.uses().collect()).collect())
    }
}
