//! The experiment: components, maps and scores, each kept in the folder.

use serde_json::{Value, json};

use super::data::{Components, Observation, Waves, components, training_table};
use super::judge::{Scores, Yardstick, judge, yardstick};
use super::{Recipe, SwSettings, pictures, results};
use crate::experiment::{Artifact, Document, Experiment, Step, Training, Workbench};
use crate::simulate::shallow_water::Projection;
use crate::{Posterior, Result, fit};

/// Maps of several recipes and table sizes against the exact posterior.
#[derive(Clone, Debug)]
pub struct SwExperiment {
    settings: SwSettings,
    observation: Observation,
}

impl SwExperiment {
    /// The experiment at a simulated observation.
    pub fn new(settings: SwSettings) -> Result<Self> {
        settings.validate()?;
        Ok(Self { observation: Observation::simulate(settings.seed)?, settings })
    }

    /// The same at another observation.
    pub fn observed(mut self, observation: Observation) -> Self {
        self.observation = observation;
        self
    }

    /// Principal components of this many simulations.
    fn components(&self, rows: u64, bench: &mut Workbench<'_>) -> Result<(Projection, Step<Components>)> {
        let title = format!("{rows} simulations and {} principal components", self.settings.components);
        bench.artifact(&format!("components-{rows}.npy"), &title, |run| {
            components(rows, &self.settings, run).map(Some)
        })
    }

    /// A map and its training; the table is made only where there is a map to be trained on it.
    fn model(
        &self,
        recipe: Recipe,
        rows: u64,
        projection: &Projection,
        bench: &mut Workbench<'_>,
    ) -> Result<(Posterior, Step<Training>)> {
        let name = format!("{recipe}-{rows}");
        if let Some(kept) = bench.kept_model(&name)? {
            recipe.protocol().accept(&kept.0, bench.folder(), &format!("{name}.brenier"))?;
            return Ok(kept);
        }
        // Tables of this size are made faster than they are read.
        let title = format!("{rows} simulations, projected");
        let mut part = bench.part(&format!("table-{rows}"), &title)?;
        let table = training_table(rows, !recipe.is_fresh(), projection, &self.settings, part.run())?;
        if self.settings.tables {
            let kind = if recipe.is_fresh() { "noise-free" } else { "noisy" };
            table.save(&bench.folder().join(format!("{kind}-{rows}.npy")))?;
        }
        let settings = recipe.settings(&self.settings, rows)?;
        bench.model(&name, &format!("{} on {rows} rows", recipe.title()), |run| fit(&table, &settings, run))
    }

    fn document(
        &self,
        components: &[(u64, Step<Components>)],
        exact: Option<&Step<Yardstick>>,
        scores: &[Step<Scores>],
    ) -> Document {
        results::document(&self.settings, components, exact, scores)
    }
}

impl Experiment for SwExperiment {
    fn name(&self) -> &'static str {
        "shallow-water"
    }

    fn plan(&self) -> Vec<(&'static str, Value)> {
        let settings = &self.settings;
        // The features of an observation are many: their sum and that of their squares tell one from another.
        let moments = |power: i32| self.observation.features.iter().map(|y| y.powi(power)).sum::<f64>();
        vec![
            ("seed", json!(settings.seed)),
            ("components", json!(settings.components)),
            ("modes", json!(settings.modes)),
            ("test_rows", json!(settings.test_rows)),
            ("rank_draws", json!(settings.draws)),
            ("exact_rows", json!(settings.exact_rows)),
            ("epochs", json!(settings.epochs)),
            ("max_steps", json!(settings.max_steps)),
            ("observed", json!([moments(1), moments(2)])),
        ]
    }

    fn run(&self, bench: &mut Workbench<'_>) -> Result<Document> {
        let settings = &self.settings;
        let mut found = Vec::new();
        let mut exact = None;
        let mut scores: Vec<Step<Scores>> = Vec::new();
        for &rows in &settings.rows {
            let (projection, about) = self.components(rows, bench)?;
            found.push((rows, about));
            let mut part = bench.part("test", &format!("{} fresh simulations", settings.test_rows))?;
            let test = Waves::simulate(&projection, settings, part.run())?;
            if exact.is_none() && settings.exact_rows > 0 {
                let title = format!("the exact posterior at {} rows", settings.exact_rows);
                exact = Some(bench.step(&format!("exact-{rows}"), &title, |_| {
                    yardstick(&test, &self.observation, &projection, settings).map(Some)
                })?);
            }
            for &recipe in &settings.recipes {
                let (model, training) = self.model(recipe, rows, &projection, bench)?;
                let name = format!("{recipe}-{rows}");
                let title = format!("scores of {} on {rows} rows", recipe.title());
                let timed = (training.seconds, training.result.steps);
                let step = bench.step(&format!("{name}-scores"), &title, |_| {
                    judge((recipe, rows), &model, timed, &test, &self.observation, &projection, settings)
                        .map(Some)
                })?;
                pictures::of_map(&name, &step.result, &self.observation, bench)?;
                scores.push(step);
                bench.publish(&self.document(&found, exact.as_ref(), &scores))?;
            }
        }
        let exact_at = exact.as_ref().and_then(|step| step.result.at.as_ref());
        for &recipe in &settings.recipes {
            let own: Vec<&Scores> =
                scores.iter().map(|step| &step.result).filter(|one| one.recipe == recipe).collect();
            pictures::of_sizes(&format!("sizes-{recipe}"), &own, &self.observation, exact_at, bench)?;
        }
        let mut document = self.document(&found, exact.as_ref(), &scores);
        for step in &scores {
            document = results::pictures(document, &step.result);
        }
        for recipe in &settings.recipes {
            let caption = format!(
                "Depths at the observation, {}: mean and two standard deviations, with the exact posterior",
                recipe.title()
            );
            document = document.picture(format!("sizes-{recipe}"), caption);
        }
        Ok(document)
    }
}
