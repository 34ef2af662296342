//! The settings of the methods as flags, made from the library's list.

use brenier::map::Method;
use brenier::map::method::{SettingInfo, SettingKind};
use brenier::{Error, FitSettings, MethodChoice};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};

/// Parses the name of a method.
pub(crate) fn method() -> impl TypedValueParser<Value = Method> {
    let names = Method::ALL.iter().map(|method| method.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Method>())
}

/// Parses the name of a method, or `auto`.
pub(crate) fn method_choice() -> impl TypedValueParser<Value = MethodChoice> {
    let names = MethodChoice::all().map(MethodChoice::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<MethodChoice>())
}

/// The settings of the method that were given as flags, by the keys of a settings file.
pub(crate) struct MethodFlags(Map<String, Value>);

impl MethodFlags {
    /// Lays the chosen method, if any, and the flags over `settings`.
    pub(crate) fn overlay(
        self,
        choice: Option<MethodChoice>,
        settings: &mut FitSettings,
    ) -> brenier::Result<()> {
        match choice {
            // Settings of a method without its name mean the default method, as in a settings file.
            None if settings.auto && !self.0.is_empty() => settings.auto = false,
            None => {}
            Some(MethodChoice::Auto) => settings.auto = true,
            Some(MethodChoice::One(method)) => {
                settings.auto = false;
                if method != settings.method.method() {
                    settings.method = method.defaults();
                }
            }
            Some(other) => return Err(Error::setting("method", format!("{other} is not known here"))),
        }
        if settings.auto
            && let Some((name, _)) = self.0.iter().next()
        {
            let problem = "auto tries methods with settings of their own: leave it out or choose a method";
            return Err(Error::setting(name, problem));
        }
        settings.method = settings.method.with_values(self.0)?;
        Ok(())
    }
}

/// A setting, and what each method that has it says of it.
type Owned = (SettingInfo, Vec<(Method, SettingInfo)>);

/// Every setting once, with the methods that have it.
fn settings() -> Vec<Owned> {
    let mut all: Vec<Owned> = Vec::new();
    for &method in Method::ALL {
        for setting in method.info().settings {
            match all.iter_mut().find(|(other, _)| other.name == setting.name) {
                Some((_, owners)) => owners.push((method, *setting)),
                None => all.push((*setting, vec![(method, *setting)])),
            }
        }
    }
    all
}

/// `PCP-Map: width of …; COT-Flow: width of … [default: by the table]`; where the defaults differ, each is beside its method.
fn help(owners: &[(Method, SettingInfo)]) -> String {
    let default = |setting: &SettingInfo| match setting.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let common = owners.first().map(|(_, first)| first);
    let common = common.filter(|first| owners.iter().all(|(_, other)| other.default == first.default));
    let part = |(method, setting): &(Method, SettingInfo)| {
        let own = if common.is_some() { String::new() } else { default(setting) };
        format!("{}: {}{own}", method.title(), setting.help)
    };
    let parts: Vec<String> = owners.iter().map(part).collect();
    parts.join("; ") + &common.map(default).unwrap_or_default()
}

fn parse(kind: SettingKind, text: &str) -> Result<Value, String> {
    let numbers = || -> Option<Vec<f64>> {
        let number = |part: &str| part.trim().parse().ok().filter(|number: &f64| number.is_finite());
        text.split(',').map(number).collect()
    };
    let wholes = || -> Option<Vec<u64>> { text.split(',').map(|part| part.trim().parse().ok()).collect() };
    match kind {
        SettingKind::Whole => {
            text.parse::<u64>().ok().map(Value::from).ok_or("write a whole number".to_owned())
        }
        SettingKind::Number => {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            number.map(Value::from).ok_or("write a number".to_owned())
        }
        SettingKind::WholeList => {
            wholes().map(Value::from).ok_or("write whole numbers as in 128,64".to_owned())
        }
        SettingKind::Numbers(count) => numbers()
            .filter(|numbers| numbers.len() == count)
            .map(Value::from)
            .ok_or(format!("write {count} numbers as in 20,4")),
        _ => Ok(Value::from(text)),
    }
}

fn argument(setting: SettingInfo, owners: &[(Method, SettingInfo)]) -> Arg {
    let argument =
        Arg::new(setting.name).long(setting.name.replace('_', "-")).help(help(owners)).help_heading("Map");
    match setting.kind {
        SettingKind::Choice(words) => {
            argument.value_name("NAME").value_parser(PossibleValuesParser::new(words).map(Value::String))
        }
        kind => {
            let name = match kind {
                SettingKind::Whole => "N",
                SettingKind::WholeList => "N,…",
                SettingKind::Numbers(2) => "C,R",
                _ => "NUMBER",
            };
            argument.value_name(name).value_parser(move |text: &str| parse(kind, text))
        }
    }
}

impl Args for MethodFlags {
    fn augment_args(command: Command) -> Command {
        settings()
            .into_iter()
            .fold(command, |command, (setting, owners)| command.arg(argument(setting, &owners)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for MethodFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |name: &str| matches.get_one::<Value>(name).cloned();
        Ok(Self(
            settings()
                .iter()
                .filter_map(|(setting, _)| Some((setting.name.to_owned(), given(setting.name)?)))
                .collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_a_setting_has_the_default_of_each_method() {
        let settings = settings();
        let text = |name: &str| {
            let (_, owners) = settings.iter().find(|(setting, _)| setting.name == name).expect("a setting");
            help(owners)
        };
        let width = text("feature_width");
        assert_eq!(width.matches("[default: by the table]").count(), 1, "{width}");
        assert!(width.ends_with("[default: by the table]"), "{width}");
        let depth = text("depth");
        assert!(depth.contains("CP-Flow: number of hidden layers of a potential [default: 3]"), "{depth}");
        assert!(depth.contains("COT-Flow: number of layers [default: 2]"), "{depth}");
    }
}
