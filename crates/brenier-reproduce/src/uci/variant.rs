//! A method with some of its settings fixed, as a row of the table.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::map::{Method, MethodSettings};
use crate::tune::SearchSpace;
use crate::{Error, Result};

/// A method whose other settings a search may choose: `npe`, or with one setting fixed `npe:flow=maf`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Variant {
    method: Method,
    /// Names and values, in the order in which they were given.
    fixed: Vec<(String, String)>,
}

impl Variant {
    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// A name for files, as in `npe-flow-maf`.
    pub fn name(&self) -> String {
        self.to_string().replace([':', '='], "-")
    }

    /// As tables have it, as in `NPE, flow maf`.
    pub fn title(&self) -> String {
        let mut title = self.method.title().to_owned();
        for (name, value) in &self.fixed {
            title.push_str(&format!(", {} {value}", name.replace('_', " ")));
        }
        title
    }

    /// The method's defaults with what is fixed.
    pub fn settings(&self) -> Result<MethodSettings> {
        self.over(&self.method.defaults())
    }

    /// Other settings of the method with what is fixed.
    pub(super) fn over(&self, settings: &MethodSettings) -> Result<MethodSettings> {
        let value = |text: &str| match serde_json::from_str(text) {
            Ok(number @ Value::Number(_)) => number,
            _ => Value::from(text),
        };
        let fixed = self.fixed.iter().map(|(name, text)| (name.clone(), value(text)));
        let settings = settings.with_values(fixed.collect::<Map<_, _>>())?;
        settings.spec().validate()?;
        Ok(settings)
    }

    /// A space in which what is fixed is not drawn.
    pub(super) fn narrow(&self, space: SearchSpace) -> SearchSpace {
        self.fixed.iter().fold(space, |space, (name, _)| space.without(&format!("method.{name}")))
    }
}

impl From<Method> for Variant {
    fn from(method: Method) -> Self {
        Self { method, fixed: Vec::new() }
    }
}

impl FromStr for Variant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let method = parts.next().unwrap_or_default().parse()?;
        let fixed = parts.map(|part| {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                Error::setting("method", format!("\"{text}\": write a fixed setting as in npe:flow=maf"))
            })?;
            Ok((name.replace('-', "_"), value.to_owned()))
        });
        let variant = Self { method, fixed: fixed.collect::<Result<_>>()? };
        variant.settings()?;
        Ok(variant)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.method.name())?;
        self.fixed.iter().try_for_each(|(name, value)| write!(f, ":{name}={value}"))
    }
}

impl From<Variant> for String {
    fn from(variant: Variant) -> Self {
        variant.to_string()
    }
}

impl TryFrom<String> for Variant {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_its_text() {
        for &method in Method::ALL {
            let variant: Variant = method.name().parse().unwrap();
            assert_eq!((variant.method(), variant.name()), (method, method.name().to_owned()));
            assert_eq!(variant.title(), method.title());
        }
        let maf: Variant = "npe:flow=maf:hidden-width=20".parse().unwrap();
        assert_eq!(maf.to_string(), "npe:flow=maf:hidden_width=20");
        assert_eq!(
            (maf.name(), maf.title()),
            ("npe-flow-maf-hidden_width-20".into(), "NPE, flow maf, hidden width 20".into())
        );
        let expected = Method::Npe.defaults().with("flow", "maf").unwrap().with("hidden_width", 20).unwrap();
        assert_eq!(maf.settings().unwrap(), expected);
        assert_eq!(serde_json::from_value::<Variant>(serde_json::to_value(&maf).unwrap()).unwrap(), maf);
        for (text, problem) in [
            ("maf", "choose from"),
            ("npe:flow", "npe:flow=maf"),
            ("npe:flow=iaf", "flow"),
            ("npe:depth=3", "depth"),
            ("npe:bins=1", "bins"),
        ] {
            let error = text.parse::<Variant>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_fixed_is_not_drawn() {
        let maf: Variant = "npe:flow=maf".parse().unwrap();
        let text = SearchSpace::preset("uci", Method::Npe).unwrap();
        let space = maf.narrow(SearchSpace::from_toml(text).unwrap());
        assert!(space.names().any(|name| name == "method.hidden_width"));
        assert!(!space.names().any(|name| name == "method.flow"));
    }
}
