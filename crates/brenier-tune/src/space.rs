//! What a search draws from: for each setting a list of choices or a range.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::map::Method;
use crate::{Error, FitSettings, Result};

/// The values that one setting may take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Domain {
    /// One of a list, each equally likely; `[32, 64]` in TOML, or a single value.
    Choice(Vec<Value>),
    /// Between two bounds; `{ uniform = [0.0, 1.0] }`. Bounds without a decimal point give whole numbers.
    Uniform([serde_json::Number; 2]),
    /// Between two positive bounds, uniform in the logarithm; `{ log_uniform = [1e-4, 1e-2] }`.
    LogUniform([serde_json::Number; 2]),
    /// `context_width = "halvings"`: one of w, w/2, w/4, … above the number m of given columns, or m, where w is the
    /// feature width drawn.
    Halvings,
    /// `count` numbers whose logarithms are uniform between two bounds; `{ exp_uniform = [-1, 3], count = 2 }`.
    ExpUniform {
        /// The bounds of the logarithm.
        bounds: [f64; 2],
        /// How many numbers; a list of them is drawn.
        count: usize,
    },
}

/// Settings, by their dotted names, and what each is drawn from.
///
/// In TOML a space has the shape of a settings file with domains in place of values:
///
/// ```toml
/// [method]
/// feature_width = [32, 64, 128]
/// context_width = "halvings"
/// [train]
/// batch_size = [32, 64]
/// learning_rate = { log_uniform = [1e-3, 1e-2] }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SearchSpace(BTreeMap<String, Domain>);

const FEATURE_WIDTH: &str = "method.feature_width";
/// What version 0.1 called `method.authors_alphas`.
const PENALTIES: &str = "flow.penalties";

impl SearchSpace {
    /// The names of the built-in spaces.
    pub const PRESETS: [&'static str; 3] = ["default", "uci", "paper"];

    /// A built-in space as TOML: `default` for a table of one's own, `uci` and `paper` as published for the UCI
    /// tables and in general.
    pub fn preset(name: &str, method: Method) -> Result<&'static str> {
        let spaces = method.info().spaces;
        spaces.iter().find(|(other, _)| *other == name).map(|(_, text)| *text).ok_or_else(|| {
            let names: Vec<&str> = spaces.iter().map(|(name, _)| *name).collect();
            Error::setting("space", format!("there is no \"{name}\": choose from {}", names.join(", ")))
        })
    }

    /// Reads a space from TOML.
    pub fn from_toml(text: &str) -> Result<Self> {
        let value: Value = toml::from_str(text)
            .map_err(|error| Error::setting("space", error.to_string().replace('\n', " ")))?;
        let mut domains = BTreeMap::new();
        collect("", &value, &mut domains)?;
        if domains.is_empty() {
            return Err(Error::setting("space", "names no setting to search"));
        }
        Ok(Self(domains))
    }

    /// The names of the settings that are drawn.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The same without one setting, which then stays as the base has it.
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    /// `count` settings drawn over `base` for `given` given columns, all different; fewer where the space has no more.
    pub fn draw(
        &self,
        base: &FitSettings,
        given: usize,
        count: usize,
        seed: u64,
    ) -> Result<Vec<FitSettings>> {
        let mut drawn: Vec<FitSettings> = Vec::with_capacity(count);
        for trial in 0..count {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(trial as u64);
            let mut settings = self.draw_one(base, given, &mut rng)?;
            for _ in 0..100 {
                if !drawn.contains(&settings) {
                    break;
                }
                settings = self.draw_one(base, given, &mut rng)?;
            }
            if !drawn.contains(&settings) {
                drawn.push(settings);
            }
        }
        Ok(drawn)
    }

    fn draw_one(&self, base: &FitSettings, given: usize, rng: &mut ChaCha8Rng) -> Result<FitSettings> {
        let mut value = serde_json::to_value(base).expect("settings are plain data");
        for (name, domain) in &self.0 {
            let drawn = match domain {
                Domain::Halvings => continue,
                Domain::Choice(choices) => choices[rng.random_range(0..choices.len())].clone(),
                Domain::Uniform(bounds) => between(bounds, |x| x, |x| x, rng),
                Domain::LogUniform(bounds) => between(bounds, f64::ln, f64::exp, rng),
                Domain::ExpUniform { bounds: [low, high], count } => {
                    let numbers = (0..*count).map(|_| (low + (high - low) * rng.random::<f64>()).exp());
                    numbers.collect::<Vec<f64>>().into()
                }
            };
            place(&mut value, name, drawn);
        }
        for (name, _) in self.0.iter().filter(|(_, domain)| **domain == Domain::Halvings) {
            let width = value["method"]["feature_width"].as_u64().ok_or_else(|| {
                Error::setting("space", format!("{name} = \"halvings\" needs {FEATURE_WIDTH}"))
            })?;
            let least = given.max(1) as u64;
            let mut choices: Vec<u64> = std::iter::successors(Some(width), |width| Some(width / 2))
                .take_while(|&w| w > least)
                .collect();
            choices.push(least);
            place(&mut value, name, choices[rng.random_range(0..choices.len())].into());
        }
        let settings: FitSettings = serde_json::from_value(value).map_err(|error| {
            Error::setting("space", format!("does not fit the settings of a fit: {error}"))
        })?;
        settings.validate()?;
        Ok(settings)
    }
}

/// A number between the bounds, uniform after `to`; whole when both bounds are.
fn between(
    bounds: &[serde_json::Number; 2],
    to: impl Fn(f64) -> f64,
    from: impl Fn(f64) -> f64,
    rng: &mut ChaCha8Rng,
) -> Value {
    let [low, high] = [0, 1].map(|end| bounds[end].as_f64().unwrap_or(f64::NAN));
    if bounds.iter().all(serde_json::Number::is_i64) {
        // Each whole number owns the interval from half below to half above it.
        let (below, above) = (to(low - 0.5), to(high + 0.5));
        let drawn = from(below + (above - below) * rng.random::<f64>()).round().clamp(low, high);
        return Value::from(drawn as i64);
    }
    let drawn = from(to(low) + (to(high) - to(low)) * rng.random::<f64>());
    Value::from(drawn.clamp(low, high))
}

/// Writes `value` at the dotted `name`.
fn place(root: &mut Value, name: &str, value: Value) {
    let mut here = root;
    for key in name.split('.') {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = here.as_object_mut().expect("made one").entry(key).or_insert(Value::Null);
    }
    *here = value;
}

/// Gathers the domains of a table of TOML under their dotted names.
fn collect(prefix: &str, value: &Value, domains: &mut BTreeMap<String, Domain>) -> Result<()> {
    let problem = |text: &str| Error::setting("space", format!("{prefix}: {text}"));
    let domain = match value {
        Value::Object(table) if prefix.is_empty() || !is_range(table) => {
            for (key, value) in table {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                collect(&name, value, domains)?;
            }
            return Ok(());
        }
        Value::Object(table) => range(table).ok_or_else(|| {
            problem(
                "a range is written { uniform = [low, high] }, { log_uniform = [low, high] } or \
                 { exp_uniform = [low, high], count = 2 }",
            )
        })?,
        Value::String(word) if word == "halvings" => Domain::Halvings,
        Value::Array(choices) if choices.is_empty() => return Err(problem("the list of choices is empty")),
        Value::Array(choices) => Domain::Choice(choices.clone()),
        single => Domain::Choice(vec![single.clone()]),
    };
    let ends = |bounds: &[serde_json::Number; 2]| [0, 1].map(|end| bounds[end].as_f64().unwrap_or(f64::NAN));
    let ordered = match &domain {
        Domain::Uniform(bounds) => ends(bounds)[0] < ends(bounds)[1],
        Domain::LogUniform(bounds) => 0.0 < ends(bounds)[0] && ends(bounds)[0] < ends(bounds)[1],
        Domain::ExpUniform { bounds: [low, high], .. } => low < high,
        Domain::Choice(_) | Domain::Halvings => true,
    };
    if !ordered {
        return Err(problem("the lower bound must be below the upper one, and positive for log_uniform"));
    }
    if ["seed", "target", "given", "train.minutes", "joint"].contains(&prefix) {
        return Err(problem("cannot be searched: all trials must solve the same problem"));
    }
    domains.insert(present_name(prefix), domain);
    Ok(())
}

/// The name of a setting where version 0.1 may have had it elsewhere.
fn present_name(name: &str) -> String {
    match name {
        PENALTIES => "method.authors_alphas".to_owned(),
        "network.output" => "method.output_activation".to_owned(),
        _ => match name.strip_prefix("network.").or(name.strip_prefix("flow.")) {
            Some(setting) => format!("method.{setting}"),
            None => name.to_owned(),
        },
    }
}

fn is_range(table: &Map<String, Value>) -> bool {
    ["uniform", "log_uniform", "exp_uniform", "authors"].iter().any(|&key| table.contains_key(key))
}

/// The domain that a table of one range stands for.
fn range(table: &Map<String, Value>) -> Option<Domain> {
    if let Some(bounds) = table.get("exp_uniform").or(table.get("authors")) {
        let known = table.keys().all(|key| ["exp_uniform", "authors", "count"].contains(&key.as_str()));
        let bounds = serde_json::from_value(bounds.clone()).ok()?;
        let default = if table.contains_key("authors") { 2 } else { 1 };
        let count = table.get("count").map_or(Some(default), Value::as_u64)?;
        let sensible = known && (1..=1000).contains(&count);
        return sensible.then_some(Domain::ExpUniform { bounds, count: count as usize });
    }
    serde_json::from_value(Value::Object(table.clone())).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::map::MethodSettings;

    fn draw(text: &str, method: Method, given: usize, count: usize) -> Vec<FitSettings> {
        let base = FitSettings::of(method);
        SearchSpace::from_toml(text).unwrap().draw(&base, given, count, 3).unwrap()
    }

    #[test]
    fn presets_draw_valid_and_different_settings() {
        for name in SearchSpace::PRESETS {
            for &method in Method::ALL {
                let Ok(text) = SearchSpace::preset(name, method) else {
                    assert!(name != "default" && Method::published().all(|other| other != method));
                    continue;
                };
                let drawn = draw(text, method, 6, 100);
                assert!(drawn.len() == 100 || method.info().settings.len() <= 2, "{name} {method:?}");
                assert!(drawn.iter().enumerate().all(|(i, one)| !drawn[..i].contains(one)), "{name}");
                assert_eq!(drawn, draw(text, method, 6, 100));
                // The first trials do not depend on how many there are.
                let first = draw(text, method, 6, 10);
                assert!(first.len() == drawn.len().min(10) && drawn.starts_with(&first), "{name} {method:?}");
            }
        }
        assert!(SearchSpace::preset("none", Method::PcpMap).is_err());
    }

    #[test]
    fn a_small_space_gives_each_of_its_settings_once() {
        let text = "[method]\nfeature_width = [8, 16]\ndepth = [2, 3, 4]\n";
        assert_eq!(draw(text, Method::PcpMap, 2, 40).len(), 6);
        let space = SearchSpace::from_toml(text).unwrap().without("method.depth");
        let drawn = space.draw(&FitSettings::of(Method::PcpMap), 2, 40, 3).unwrap();
        assert!(drawn.len() == 2 && drawn.iter().all(|one| format!("{one:?}").contains("depth: None")));
    }

    #[test]
    fn context_widths_are_halvings_above_the_given_columns_or_those() {
        let text = SearchSpace::preset("uci", Method::PcpMap).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for settings in draw(text, Method::PcpMap, 9, 300) {
            let MethodSettings::PcpMap(method) = settings.method else { panic!("a PCP-Map") };
            let (w, u) = (method.feature_width.unwrap(), method.context_width.unwrap());
            assert!(u == 9 || (u > 9 && w % u == 0 && (w / u).is_power_of_two()), "{w} {u}");
            if w == 64 {
                seen.insert(u);
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [9, 16, 32, 64]);
    }

    #[test]
    fn penalties_follow_the_authors_weights() {
        for settings in draw(SearchSpace::preset("uci", Method::CotFlow).unwrap(), Method::CotFlow, 3, 50) {
            let MethodSettings::CotFlow(flow) = settings.method else { panic!("a flow") };
            let c = 1.0 / flow.alpha_transport;
            let r = flow.alpha_hjb * c;
            for weight in [c, r] {
                assert!((-1.0..=3.0).contains(&weight.ln()), "{weight}");
            }
        }
    }

    #[test]
    fn ranges_are_filled() {
        let text = "train = { learning_rate = { log_uniform = [1e-4, 1e-2] }, patience = { uniform = [1, 3] } }\n\
                    [network]\nfeature_width = { log_uniform = [8, 64] }\noutput = [\"identity\", \"softplus\"]\n";
        let drawn = draw(text, Method::PcpMap, 0, 300);
        let rates: Vec<f64> = drawn.iter().map(|one| one.train.learning_rate.unwrap()).collect();
        assert!(rates.iter().all(|rate| (1e-4..=1e-2).contains(rate)));
        assert!((100..200).contains(&rates.iter().filter(|&&rate| rate < 1e-3).count()));
        for patience in 1..=3 {
            assert!(
                (60..140).contains(&drawn.iter().filter(|one| one.train.patience == Some(patience)).count())
            );
        }
        let widths = drawn.iter().map(|one| match &one.method {
            MethodSettings::PcpMap(method) => method.feature_width.unwrap(),
            other => panic!("{other:?}"),
        });
        assert!(widths.clone().all(|width| (8..=64).contains(&width)) && widths.min().unwrap() < 12);
    }

    #[test]
    fn mistakes_are_named() {
        let problem = |text: &str| match SearchSpace::from_toml(text) {
            Err(error) => error.to_string(),
            Ok(space) => space.draw(&FitSettings::default(), 2, 3, 0).unwrap_err().to_string(),
        };
        assert!(problem("").contains("names no setting"));
        assert!(problem("[train").contains("setting space"));
        assert!(problem("[train]\nbatch = [3]").contains("unknown field `batch`"));
        assert!(problem("[train]\nbatch_size = []").contains("train.batch_size: the list"));
        assert!(problem("[train]\nbatch_size = [0]").contains("batch_size"));
        assert!(problem("[train]\nlearning_rate = { uniform = [2.0, 1.0] }").contains("learning_rate"));
        assert!(problem("[train]\nlearning_rate = { log_uniform = [0.0, 1.0] }").contains("positive"));
        assert!(problem("[train]\nlearning_rate = { uniform = [1.0] }").contains("low, high"));
        assert!(problem("seed = [1, 2]").contains("same problem"));
        assert!(problem("[network]\ncontext_width = \"halvings\"").contains("needs method.feature_width"));
        assert!(problem("[flow]\ntime_steps = [4]").contains("cot-flow"));
        assert!(
            problem("[method]\nname = \"cot-flow\"\nalpha_hjb = { exp_uniform = [1, 0] }").contains("lower")
        );
        assert!(
            problem("[method]\ndepth = { exp_uniform = [0, 1], counts = 2 }").contains("a range is written")
        );
    }
}
