//! The list of methods: the only place that names them all.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::method::{ListedMethod, MethodInfo, MethodSpec};
use super::{atm, cot, cpflow, gaussian, matching, npe, pcp};
use crate::{Error, Result};

macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident($settings:ty) = $name:literal,)*) => {
        /// A kind of transport map.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Method {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        /// The settings of one of the methods; in a settings file a table with the key `name`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum MethodSettings {
            $($(#[$doc])* #[serde(rename = $name)] $variant($settings),)*
        }

        impl Method {
            /// All of them; the first is the default.
            pub const ALL: &'static [Method] = &[$(Method::$variant),*];

            /// As flags, settings and file names have it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its description.
            pub fn info(self) -> &'static MethodInfo {
                match self { $(Self::$variant => const { &<$settings as ListedMethod>::INFO },)* }
            }

            /// Its default settings.
            pub fn defaults(self) -> MethodSettings {
                match self { $(Self::$variant => MethodSettings::$variant(<$settings>::default()),)* }
            }
        }

        impl MethodSettings {
            /// The method whose settings these are.
            pub fn method(&self) -> Method {
                match self { $(Self::$variant(_) => Method::$variant,)* }
            }

            /// What the settings do.
            pub fn spec(&self) -> &dyn MethodSpec {
                match self { $(Self::$variant(settings) => settings,)* }
            }

            /// The same, to change.
            pub fn spec_mut(&mut self) -> &mut dyn MethodSpec {
                match self { $(Self::$variant(settings) => settings,)* }
            }
        }

        $(impl From<$settings> for MethodSettings {
            fn from(settings: $settings) -> Self {
                Self::$variant(settings)
            }
        })*
    };
}

methods! {
    /// The gradient of a partially input-convex network.
    PcpMap(pcp::PcpSettings) = "pcp-map",
    /// A flow along the gradient of a potential, penalised towards straight optimal-transport paths.
    CotFlow(cot::FlowSettings) = "cot-flow",
    /// A Gaussian with an affine mean, in closed form.
    Gaussian(gaussian::GaussianSettings) = "gaussian",
    /// A normalising flow: neural posterior estimation.
    Npe(npe::NpeSettings) = "npe",
    /// A flow along a field that was trained by regression on noisy rows.
    FlowMatching(matching::FlowMatchingSettings) = "flow-matching",
    /// A monotone triangular map of polynomials that grows term by term.
    Atm(atm::AtmSettings) = "atm",
    /// The gradient of a convex potential between activation normalisations.
    CpFlow(cpflow::CpFlowSettings) = "cp-flow",
}

/// The method that every model is compared with.
pub(crate) const BASELINE: Method = Method::Gaussian;

impl Default for Method {
    fn default() -> Self {
        Self::ALL[0]
    }
}

impl Default for MethodSettings {
    fn default() -> Self {
        Method::default().defaults()
    }
}

impl Method {
    /// As texts have it.
    pub fn title(self) -> &'static str {
        self.info().title
    }

    /// Those of the paper that the library reproduces.
    pub fn published() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|method| method.info().published_pilots.is_some())
    }

    /// The methods that have a setting called `name`.
    fn with_setting(name: &str) -> Vec<&'static str> {
        let has = |method: &&Method| method.info().settings.iter().any(|setting| setting.name == name);
        Self::ALL.iter().filter(has).map(|method| method.name()).collect()
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|method| method.name()).collect();
            Error::setting("method", format!("there is no \"{name}\": choose from {}", names.join(", ")))
        })
    }
}

impl MethodSettings {
    /// Settings from values by name, over those of `self`.
    ///
    /// A name that belongs to another method is an error that says so.
    pub fn with_values(&self, values: Map<String, Value>) -> Result<Self> {
        let method = self.method();
        let mut all = match serde_json::to_value(self) {
            Ok(Value::Object(all)) => all,
            _ => unreachable!("settings are a table with a name"),
        };
        let mut named = String::new();
        for (name, value) in values {
            let described = method.info().settings.iter().any(|setting| setting.name == name);
            if !described && !all.contains_key(&name) {
                return Err(Self::foreign(&name, method));
            }
            if named.is_empty() {
                named.clone_from(&name);
            }
            all.insert(name, value);
        }
        serde_json::from_value(Value::Object(all)).map_err(|error| Error::setting(&named, error.to_string()))
    }

    /// The same with one setting changed, as in `with("feature_width", 64)`.
    pub fn with(&self, name: &str, value: impl Into<Value>) -> Result<Self> {
        self.with_values(Map::from_iter([(name.to_owned(), value.into())]))
    }

    fn foreign(name: &str, method: Method) -> Error {
        match Method::with_setting(name).as_slice() {
            [] => {
                let names: Vec<&str> = method.info().settings.iter().map(|setting| setting.name).collect();
                let known = match names.is_empty() {
                    true => "it has none".to_owned(),
                    false => format!("it has {}", names.join(", ")),
                };
                Error::setting(name, format!("{} has no such setting: {known}", method.title()))
            }
            others => Error::setting(
                name,
                match others {
                    [one] => format!("belongs to the method {one}; leave it out or choose that method"),
                    all => {
                        format!("belongs to the methods {}; leave it out or choose one", all.join(" and "))
                    }
                },
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::map::method::SettingKind;

    #[test]
    fn names_lead_to_methods_and_settings_to_their_tables() {
        for &method in Method::ALL {
            assert_eq!(method.name().parse::<Method>().unwrap(), method);
            let defaults = method.defaults();
            assert_eq!(defaults.method(), method);
            defaults.spec().validate().unwrap();
            let value = serde_json::to_value(&defaults).unwrap();
            assert_eq!(value["name"], method.name());
            assert_eq!(serde_json::from_value::<MethodSettings>(value).unwrap(), defaults);
            let text = toml::to_string(&defaults).unwrap();
            assert_eq!(toml::from_str::<MethodSettings>(&text).unwrap(), defaults, "{text}");
        }
        assert!("pcp".parse::<Method>().unwrap_err().to_string().contains("pcp-map"));
    }

    /// A value that a setting of this kind takes.
    fn example(kind: SettingKind) -> Value {
        match kind {
            SettingKind::Whole => 4.into(),
            SettingKind::Number => 0.5.into(),
            SettingKind::Choice(words) => words[words.len() - 1].into(),
            SettingKind::WholeList => vec![3, 2].into(),
            SettingKind::Numbers(count) => vec![0.5; count].into(),
        }
    }

    #[test]
    fn every_described_setting_can_be_set_and_no_other() {
        for &method in Method::ALL {
            let defaults = method.defaults();
            for setting in method.info().settings {
                let values = Map::from_iter([(setting.name.to_owned(), example(setting.kind))]);
                let set = defaults.with_values(values).unwrap();
                assert_ne!(set, defaults, "{}", setting.name);
                set.spec().validate().unwrap();
            }
            let values = Map::from_iter([("no_such_thing".to_owned(), Value::from(1))]);
            assert!(defaults.with_values(values).is_err());
            // A setting of two methods takes the same kind of value.
            for other in Method::ALL.iter().flat_map(|other| other.info().settings) {
                let same = method.info().settings.iter().find(|setting| setting.name == other.name);
                assert!(same.is_none_or(|setting| setting.kind == other.kind), "{}", other.name);
            }
        }
        let values = Map::from_iter([("time_steps".to_owned(), Value::from(4))]);
        let error = MethodSettings::default().with_values(values).unwrap_err().to_string();
        assert!(error.contains("belongs to the method cot-flow"), "{error}");
    }
}
