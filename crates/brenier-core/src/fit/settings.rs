//! Everything that decides a fit besides the table: one struct for TOML, command line and library.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::MethodChoice;
use crate::data::{Pick, Selection, resolve_pair, short_name};
use crate::map::method::Problem;
use crate::map::{Method, MethodSettings};
use crate::train::TrainSettings;
use crate::transform::{Asinh, ExchangeableRule, NoiseSettings, PcaSettings, Scaling, SupportRule, Whiten};
use crate::{Error, Result};

/// Layers of a surrogate, and units of one, at most.
const MOST_LAYERS: usize = 20;
const WIDEST_LAYER: usize = 16_384;

/// Everything that decides a fit besides the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct FitSettings {
    /// The columns x to learn the distribution of.
    pub target: Option<Selection>,
    /// The columns y it is conditioned on; none for an unconditional map.
    pub given: Option<Selection>,
    /// Those of the given columns that hold categories. [`fit()`](crate::fit()) sees numbers only: whoever reads the table
    /// encodes them, see [`Encoding`](crate::data::Encoding), and lets the model know
    /// ([`Posterior::with_encoding`](crate::Posterior::with_encoding)).
    pub categorical: Option<Selection>,
    /// Supports of columns, as in `rate=log`, `p=interval(0,1)` or `x1..x4=log`; the last for a column counts.
    pub support: Vec<SupportRule>,
    /// Scaling of the columns.
    pub scaling: Scaling,
    /// Given columns that the map sees on an asinh scale: those whose values span orders of magnitude, if it is not said otherwise.
    pub asinh: Asinh,
    /// Noise of given columns whose values in the table are free of it; every step of a training adds noise anew.
    pub noise: NoiseSettings,
    /// Noise that training adds anew to given columns in every step, though their values have theirs already: against overfitting the
    /// noise of the table. Validation rows stay as they are.
    pub jitter: NoiseSettings,
    /// A surrogate of the simulator, with which every step of a training moves its rows to places nearby: against overfitting the
    /// simulations of a small table, where the given columns depend smoothly on the target.
    /// The value is how far rows move, as a part of the spread of all rows.
    pub surrogate: Option<f64>,
    /// Widths of the surrogate's hidden layers.
    pub surrogate_widths: Vec<usize>,
    /// Passes of the surrogate over the training rows; `None` for 30, or more where the rows are few.
    pub surrogate_epochs: Option<u32>,
    /// The most directions of a supervised reduction of the given columns.
    pub reduce: Option<usize>,
    /// Given columns that hold points in no particular order, as in `y1..y8:4` for four points of two numbers: the map sees
    /// symmetric features of them.
    pub exchangeable: Vec<ExchangeableRule>,
    /// Principal components of the given columns: a count, or a fraction of the variance to keep.
    pub pca: Option<PcaSettings>,
    /// Whether the target columns are made uncorrelated, for columns that nearly depend on one another.
    pub whiten: Whiten,
    /// Whether to learn the distribution of the given columns too, as the first block of a block-triangular map, so
    /// that the joint density of target and given columns is at hand.
    pub joint: bool,
    /// Members of an ensemble; `None` or 1 for a single map. Each is validated on rows of its own, at
    /// most one of k folds, and trained on all others, unless [`bootstrap`](Self::bootstrap) is set.
    pub members: Option<usize>,
    /// Whether members are trained on bootstrap samples of the rows, and validated on the rows outside.
    pub bootstrap: bool,
    /// Seed of split, initial weights and batches.
    pub seed: u64,
    /// Whether trials choose the method, and an ensemble of it is fitted where that pays: so it is where a settings file names
    /// no method, or `method = "auto"`, and for [`Fit::of`](crate::Fit::of), but not by [`Default`]. The choice is recorded in the model's settings and in [`ModelInfo::choice`](crate::ModelInfo::choice).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub auto: bool,
    /// The method with its settings; of no account where trials choose.
    pub method: MethodSettings,
    /// The training.
    pub train: TrainSettings,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            target: None,
            given: None,
            categorical: None,
            support: Vec::new(),
            scaling: Scaling::default(),
            asinh: Asinh::default(),
            noise: NoiseSettings::default(),
            jitter: NoiseSettings::default(),
            surrogate: None,
            surrogate_widths: vec![512; 3],
            surrogate_epochs: None,
            reduce: None,
            exchangeable: Vec::new(),
            pca: None,
            whiten: Whiten::default(),
            joint: false,
            members: None,
            bootstrap: false,
            seed: 0,
            auto: false,
            method: MethodSettings::default(),
            train: TrainSettings::default(),
        }
    }
}

/// The settings as files have them. Version 0.1 had the name of the method at the top and the settings of all methods in
/// the tables `network` and `flow`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    target: Option<Selection>,
    given: Option<Selection>,
    categorical: Option<Selection>,
    support: Vec<SupportRule>,
    scaling: Scaling,
    asinh: Asinh,
    noise: NoiseSettings,
    jitter: NoiseSettings,
    surrogate: Option<f64>,
    surrogate_widths: Vec<usize>,
    surrogate_epochs: Option<u32>,
    reduce: Option<usize>,
    exchangeable: Vec<ExchangeableRule>,
    pca: Option<PcaSettings>,
    whiten: Whiten,
    joint: bool,
    members: Option<usize>,
    bootstrap: bool,
    seed: u64,
    auto: bool,
    method: Option<NameOrTable>,
    network: Map<String, Value>,
    flow: Map<String, Value>,
    train: TrainSettings,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NameOrTable {
    Name(String),
    Table(Map<String, Value>),
}

impl Default for Written {
    fn default() -> Self {
        let settings = FitSettings::default();
        Self {
            target: settings.target,
            given: settings.given,
            categorical: settings.categorical,
            support: settings.support,
            scaling: settings.scaling,
            asinh: settings.asinh,
            noise: settings.noise,
            jitter: settings.jitter,
            surrogate: settings.surrogate,
            surrogate_widths: settings.surrogate_widths,
            surrogate_epochs: settings.surrogate_epochs,
            reduce: settings.reduce,
            exchangeable: settings.exchangeable,
            pca: settings.pca,
            whiten: settings.whiten,
            joint: settings.joint,
            members: settings.members,
            bootstrap: settings.bootstrap,
            seed: settings.seed,
            auto: settings.auto,
            method: None,
            network: Map::new(),
            flow: Map::new(),
            train: settings.train,
        }
    }
}

impl TryFrom<Written> for FitSettings {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let auto = |method: &Option<NameOrTable>| match method {
            Some(NameOrTable::Name(name)) => name == MethodChoice::AUTO,
            Some(NameOrTable::Table(table)) => {
                table.get("name").is_some_and(|name| name == MethodChoice::AUTO)
            }
            None => false,
        };
        let named = written.method.is_some() || !written.network.is_empty() || !written.flow.is_empty();
        let by_trials = auto(&written.method) || !named;
        let (method, mut values) = match written.method {
            Some(NameOrTable::Table(table)) if by_trials && table.len() > 1 => {
                return Err(Error::setting(
                    "method",
                    "auto has no settings: it tries methods with their own",
                ));
            }
            _ if by_trials => (Method::default(), Map::new()),
            None => (Method::default(), Map::new()),
            Some(NameOrTable::Name(name)) => (name.parse()?, Map::new()),
            Some(NameOrTable::Table(mut table)) => match table.remove("name") {
                None => (Method::default(), table),
                Some(Value::String(name)) => (name.parse()?, table),
                Some(other) => {
                    return Err(Error::setting("method", format!("name must be a word, not {other}")));
                }
            },
        };
        for (name, value) in written.network.into_iter().chain(written.flow) {
            let name = if name == "output" { "output_activation".to_owned() } else { name };
            // Version 0.1 wrote the defaults of all methods; they say nothing.
            if is_known(method, &name) || !is_default_elsewhere(&name, &value) {
                values.insert(name, value);
            }
        }
        Ok(Self {
            target: written.target,
            given: written.given,
            categorical: written.categorical,
            support: written.support,
            scaling: written.scaling,
            asinh: written.asinh,
            noise: written.noise,
            jitter: written.jitter,
            surrogate: written.surrogate,
            surrogate_widths: written.surrogate_widths,
            surrogate_epochs: written.surrogate_epochs,
            reduce: written.reduce,
            exchangeable: written.exchangeable,
            pca: written.pca,
            whiten: written.whiten,
            joint: written.joint,
            members: written.members,
            bootstrap: written.bootstrap,
            seed: written.seed,
            auto: by_trials || written.auto,
            method: method.defaults().with_values(values)?,
            train: written.train,
        })
    }
}

fn is_known(method: Method, name: &str) -> bool {
    values_of(method).contains_key(name)
}

/// Whether `value` is what some method has by default under `name`.
fn is_default_elsewhere(name: &str, value: &Value) -> bool {
    Method::ALL.iter().any(|&method| values_of(method).get(name) == Some(value))
}

fn values_of(method: Method) -> Map<String, Value> {
    match serde_json::to_value(method.defaults()) {
        Ok(Value::Object(values)) => values,
        _ => unreachable!("settings are a table"),
    }
}

impl FitSettings {
    /// Settings for a method, everything else as it is by default.
    pub fn of(method: Method) -> Self {
        Self { method: method.defaults(), ..Self::default() }
    }

    /// Indices of the target and given columns among `names`.
    pub fn columns(&self, names: &[String]) -> Result<(Vec<usize>, Vec<usize>)> {
        let target = self
            .target
            .as_ref()
            .ok_or_else(|| Error::setting("target", "name the columns to learn, as in x1,x2 or x1..x4"))?;
        let (target, given) = match &self.given {
            Some(given) => resolve_pair(target, given, names)?,
            None => (target.resolve(names)?, Vec::new()),
        };
        if target.is_empty() {
            return Err(Error::setting("target", "names no column"));
        }
        Ok((target, given))
    }

    /// The same with every column by its name, given the `names` of the table: in a table with fewer columns, ranges
    /// and positions would mean others.
    pub fn named(&self, names: &[String]) -> Result<Self> {
        let (target, given) = self.columns(names)?;
        let by_name = |columns: &[usize]| {
            Selection::Columns(columns.iter().map(|&column| Pick::Name(names[column].clone())).collect())
        };
        let support = SupportRule::resolve(&self.support, names)?;
        for column in &support {
            if !target.iter().chain(&given).any(|&place| names[place] == column.name) {
                let name = short_name(&column.name);
                return Err(Error::setting(
                    "support",
                    format!("\"{name}\" is neither a target nor a given column"),
                ));
            }
        }
        let given_names: Vec<String> = given.iter().map(|&place| names[place].clone()).collect();
        let mut exchangeable = Vec::new();
        for rule in &self.exchangeable {
            let rule = rule.named(names)?;
            rule.resolve(&given_names)?;
            exchangeable.push(rule);
        }
        Ok(Self {
            exchangeable,
            asinh: self.asinh.named(names)?,
            target: Some(by_name(&target)),
            given: (!given.is_empty()).then(|| by_name(&given)),
            support: support.into_iter().map(SupportRule::from).collect(),
            noise: self.noise.named(names)?,
            jitter: self.jitter.named(names)?,
            ..self.clone()
        })
    }

    /// Checks every value that can be checked without a table.
    pub fn validate(&self) -> Result<()> {
        self.train.validate()?;
        if self.joint && self.categorical.is_some() {
            return Err(Error::setting(
                "categorical",
                "categories have no density, which joint asks for: leave one of the two out",
            ));
        }
        self.noise.validate()?;
        self.jitter.validate()?;
        if let Some(spread) = self.surrogate {
            self.allows_surrogate(spread)?;
        }
        match self.reduce {
            Some(0) => {
                return Err(Error::setting("reduce", "0 directions leave nothing: ask for at least 1"));
            }
            Some(_) if self.pca.is_some() => {
                return Err(Error::setting("reduce", "takes the place of `pca`: leave one of the two out"));
            }
            _ => {}
        }
        if self.joint && !self.noise.is_empty() {
            return Err(Error::setting(
                "noise",
                "the given columns' own distribution, which joint asks for, would be learned without it: leave one of the two out",
            ));
        }
        let altered = self.reduce.is_some() || !self.noise.is_empty() || !self.jitter.is_empty();
        if altered && !self.exchangeable.is_empty() {
            return Err(Error::setting(
                "exchangeable",
                "symmetric features go neither with a reduction nor with declared noise or jitter: leave one of them out",
            ));
        }
        if matches!(self.asinh, Asinh::Columns(_)) && !self.sees_columns_alone() {
            return Err(crate::transform::asinh_not_alone());
        }
        match self.members {
            Some(0) => return Err(Error::setting("members", "must be at least 1")),
            Some(members) if members > 1000 => {
                return Err(Error::setting("members", format!("{members} is more than 1000")));
            }
            None | Some(1) if self.bootstrap => {
                return Err(Error::setting(
                    "bootstrap",
                    "needs an ensemble: ask for members, as in members = 5",
                ));
            }
            _ => {}
        }
        self.method.spec().validate()
    }

    /// Whether the map sees given columns one by one and as the table has them.
    pub(super) fn sees_columns_alone(&self) -> bool {
        let mixed = self.reduce.is_some() || self.pca.is_some() || !self.exchangeable.is_empty();
        !mixed && self.noise.is_empty() && self.jitter.is_empty() && self.surrogate.is_none()
    }

    /// Checks the settings of a surrogate, and refuses what does not go with one.
    fn allows_surrogate(&self, spread: f64) -> Result<()> {
        let refuse = |problem: &str| Err(Error::setting("surrogate", problem));
        if !(spread > 0.0 && spread <= 1.0) {
            return Err(Error::outside("surrogate", spread, "above 0 and at most 1"));
        }
        let widths = &self.surrogate_widths;
        if widths.len() > MOST_LAYERS || widths.iter().any(|width| !(1..=WIDEST_LAYER).contains(width)) {
            return Err(Error::setting(
                "surrogate_widths",
                format!("must be at most {MOST_LAYERS} layers of 1 to {WIDEST_LAYER} units"),
            ));
        }
        if self.surrogate_epochs == Some(0) {
            return Err(Error::setting("surrogate_epochs", "must be at least 1"));
        }
        if self.auto {
            return refuse("needs a method by name: trials would not see it");
        }
        if !self.method.spec().descends() {
            return refuse(
                "is for methods that are trained by steps on batches of rows, which this one is not",
            );
        }
        if self.joint {
            return refuse(
                "changes how the given columns are distributed, which joint asks for: leave one of the two out",
            );
        }
        Ok(())
    }

    /// The same with every choice made that depends on the method and the sizes of the problem.
    pub(crate) fn resolved(&self, problem: Problem) -> Self {
        let mut settings = self.clone();
        settings.method.spec_mut().resolve(problem, &mut settings.train);
        settings
    }

    /// What an epoch costs, in units of its own: good for telling a long training from a short one.
    pub fn cost(&self, problem: Problem) -> Result<usize> {
        self.resolved(problem).method.spec().cost(problem.target, problem.given)
    }

    /// The same without the time budget: how long a run may take decides no bit of it unless it was cut short.
    pub(crate) fn timeless(&self) -> Self {
        Self { train: TrainSettings { minutes: None, ..self.train.clone() }, ..self.clone() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_a_name_or_a_table_and_the_tables_of_version_0_1_are_read() {
        let read = |text: &str| toml::from_str::<FitSettings>(text);
        let tagged = read("[method]\nname = \"cot-flow\"\nfeature_width = 8\ntime_steps = 4\n").unwrap();
        let old = "method = \"cot-flow\"\n[network]\nfeature_width = 8\n[flow]\ntime_steps = 4\n";
        assert_eq!(read(old).unwrap(), tagged);
        assert_eq!(tagged.method.method().name(), "cot-flow");
        let text = toml::to_string(&tagged).unwrap();
        assert_eq!(read(&text).unwrap(), tagged, "{text}");
        let plain = read("[method]\ndepth = 3\noutput_activation = \"softplus\"\n").unwrap();
        assert_eq!(read("[network]\ndepth = 3\noutput = \"softplus\"\n").unwrap(), plain);
        // Defaults of another method, as old model files have them, mean nothing; other values are refused.
        let defaults = "[network]\nembedding = []\n[flow]\ntime_steps = 8\nalpha_hjb = 0.1\n";
        assert_eq!(read(defaults).unwrap(), FitSettings::default());
        for (text, part) in [
            ("[flow]\ntime_steps = 4\n", "belongs to the method cot-flow"),
            ("[method]\nname = \"cot-flow\"\ncontext_width = 4\n", "belongs to the method pcp-map"),
            ("[method]\nwidth = 4\n", "no such setting"),
            ("[method]\nname = \"spline\"\n", "choose from"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_authors_weights_are_a_key_too() {
        let text = "[method]\nname = \"cot-flow\"\nauthors_alphas = [4.0, 2.0]\n";
        let MethodSettings::CotFlow(flow) = toml::from_str::<FitSettings>(text).unwrap().method else {
            panic!("a flow");
        };
        assert_eq!((flow.alpha_transport, flow.alpha_hjb), (0.25, 0.5));
    }
}
