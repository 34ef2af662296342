//! Supports as a user declares them: for one column or for several, as in `rate=log` or `theta_1..theta_4=log`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::column::ColumnSettings;
use super::support::Support;
use crate::data::{Pick, Selection};
use crate::{Error, Result};

/// A support and the columns that have it, written `rate=log`, `a,b=interval(0,1)`, `theta_1..theta_4=log` or
/// `#1..#4=log`; the columns are named as in a [`Selection`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SupportRule {
    /// The columns.
    pub columns: Selection,
    /// The values they may take.
    pub support: Support,
}

impl SupportRule {
    /// The same for each of `rules`' columns by its name, given the `names` of a table. The last rule for a column counts.
    pub fn resolve(rules: &[Self], names: &[String]) -> Result<Vec<ColumnSettings>> {
        let mut found: Vec<ColumnSettings> = Vec::new();
        for rule in rules {
            let refuse = |problem: String| Error::setting("support", format!("{rule}: {problem}"));
            if rule.columns == Selection::Rest {
                return Err(refuse("name the columns, as in x1..x4=log".to_owned()));
            }
            for place in rule.columns.resolve(names).map_err(|error| refuse(error.to_string()))? {
                found.retain(|own| own.name != names[place]);
                found.push(ColumnSettings { name: names[place].clone(), support: rule.support });
            }
        }
        Ok(found)
    }
}

impl From<ColumnSettings> for SupportRule {
    fn from(column: ColumnSettings) -> Self {
        Self { columns: Selection::Columns(vec![Pick::Name(column.name)]), support: column.support }
    }
}

impl fmt::Display for SupportRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.columns, self.support)
    }
}

impl FromStr for SupportRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A support has no equals sign, a column's name may.
        let column: ColumnSettings = text.parse()?;
        match column.name.parse() {
            Ok(columns) => Ok(Self { columns, support: column.support }),
            Err(error) => Err(Error::setting("support", format!("{text}: {error}"))),
        }
    }
}

impl TryFrom<String> for SupportRule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        // Older model files hold names as they are, which need not read as a selection.
        text.parse().or_else(|error| text.parse().map(ColumnSettings::into).map_err(|_: Error| error))
    }
}

impl From<SupportRule> for String {
    fn from(rule: SupportRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn resolve(rules: &[&str], names: &str) -> Result<Vec<String>> {
        let names: Vec<String> = names.split('|').map(str::to_owned).collect();
        let rules: Vec<SupportRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        Ok(SupportRule::resolve(&rules, &names)?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ranges_lists_positions_and_quotation_marks() {
        let names = "y|t1|t2|t3|a,b|k=1";
        assert_eq!(resolve(&["t1..t3=log"], names).unwrap(), ["t1=log", "t2=log", "t3=log"]);
        assert_eq!(resolve(&["#2,#-3=log"], names).unwrap(), ["t1=log", "t3=log"]);
        assert_eq!(resolve(&["\"a,b\"=interval(0,1)"], names).unwrap(), ["a,b=interval(0,1)"]);
        assert_eq!(resolve(&["k=1=log"], names).unwrap(), ["k=1=log"]);
    }

    #[test]
    fn the_last_rule_for_a_column_counts() {
        assert_eq!(resolve(&["a..c=log", "b=real"], "a|b|c").unwrap(), ["a=log", "c=log", "b=real"]);
    }

    #[test]
    fn mistakes_are_named() {
        let problem = |rule: &str| resolve(&[rule], "t1|t2").unwrap_err().to_string();
        assert!(problem("t1..t9=log").contains("t9") && problem("t3=log").contains("did you mean"));
        assert!(problem("rest=log").contains("name the columns"));
        assert!("t1..=log".parse::<SupportRule>().unwrap_err().to_string().contains("name is missing"));
    }

    #[test]
    fn files_keep_their_rules() {
        for text in ["\"a=log\"", "\"t1..t4=interval(0,1)\"", "\"\\\"a,b\\\"=log\""] {
            let rule: SupportRule = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&rule).unwrap(), text);
        }
        // A name of an older file that is no selection.
        let rule: SupportRule = serde_json::from_str("\"mass..=log\"").unwrap();
        assert_eq!(rule.columns, Selection::Columns(vec![Pick::Name("mass..".to_owned())]));
    }
}
