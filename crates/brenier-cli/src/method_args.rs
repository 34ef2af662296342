//! The settings of the methods as flags, made from the library's list.

use brenier::map::Method;
use brenier::map::method::{Problem, SettingInfo, SettingKind};
use brenier::train::TrainSettings;
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

/// `PCP-Map: width of …; COT-Flow: width of … [default: by the table]`; where the defaults differ, each follows its method or
/// what the method says.
fn help(owners: &[(Method, SettingInfo)]) -> String {
    let default = |setting: &SettingInfo| match setting.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let (Some((_, first)), Some((_, last))) = (owners.first(), owners.last()) else { return String::new() };
    let common = owners.iter().all(|(_, own)| own.default == first.default);
    let parts = owners.chunk_by(|(_, one), (_, next)| one.help == next.help).map(|group| {
        let same = group.iter().all(|(_, own)| own.default == group[0].1.default);
        let titles: Vec<String> = group
            .iter()
            .map(|(method, own)| match same {
                true => method.title().to_owned(),
                false => format!("{}{}", method.title(), default(own)),
            })
            .collect();
        let own = if same && !common { default(&group[0].1) } else { String::new() };
        format!("{}: {}{own}", titles.join(", "), group[0].1.help)
    });
    let text = parts.collect::<Vec<_>>().join("; ");
    if common { text + &default(last) } else { text }
}

/// Groups of methods with the same answer, in the order of the list; none where a method has no answer.
fn grouped<T: PartialEq>(answer: impl Fn(Method) -> Option<T>) -> Vec<(T, Vec<&'static str>)> {
    let mut groups: Vec<(T, Vec<&'static str>)> = Vec::new();
    for &method in Method::ALL {
        let Some(own) = answer(method) else { continue };
        match groups.iter_mut().find(|(other, _)| *other == own) {
            Some((_, titles)) => titles.push(method.title()),
            None => groups.push((own, vec![method.title()])),
        }
    }
    groups
}

/// The help of a setting of the training: `text` with its `default`, and the methods that choose another `value`.
pub(crate) fn by_method<T: ToString>(
    text: &str,
    default: &str,
    value: impl Fn(&TrainSettings) -> Option<T>,
) -> String {
    let chosen = |method: Method, rows: usize| {
        let (mut settings, mut train) = (method.defaults(), TrainSettings::default());
        let problem = Problem { target: 4, given: 9, rows, joint: false };
        settings.spec_mut().resolve(problem, &mut train);
        value(&train).map(|value| value.to_string())
    };
    let others = grouped(|method| match (chosen(method, 1000), chosen(method, 100_000)) {
        (small, large) if small != large => Some("by the rows".to_owned()),
        (small, _) => small.filter(|own| own != default),
    });
    let others: Vec<String> =
        others.iter().map(|(value, titles)| format!("; {}: {value}", titles.join(", "))).collect();
    format!("{text} [default: {default}{}]", others.concat())
}

/// The help of a setting of draws: `text` after the methods whose draws know it.
pub(crate) fn of_draws(name: &str, text: &str) -> String {
    let knows = |method: &&Method| method.info().draw_settings.contains(&name);
    let titles: Vec<&str> = Method::ALL.iter().filter(knows).map(|method| method.title()).collect();
    format!("{}: {text}", titles.join(", "))
}

/// `1000 (COT-Flow: 200)`: the draws per pair of a check.
pub(crate) fn check_draws() -> String {
    first_and_others(&grouped(|method| Some(method.info().check_draws)), "")
}

/// `100 pilots (COT-Flow: 50)`: those of a published search.
pub(crate) fn published_pilots() -> String {
    first_and_others(&grouped(|method| method.info().published_pilots), " pilots")
}

/// The first answer with its `unit`, and other answers with their methods.
fn first_and_others(groups: &[(usize, Vec<&'static str>)], unit: &str) -> String {
    let Some(((first, _), others)) = groups.split_first() else { return String::new() };
    let others: Vec<String> =
        others.iter().map(|(value, titles)| format!("{}: {value}", titles.join(", "))).collect();
    match others.is_empty() {
        true => format!("{first}{unit}"),
        false => format!("{first}{unit} ({})", others.join("; ")),
    }
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
        assert_eq!(width.matches("[default").count(), 1, "{width}");
        assert!(width.ends_with("[default: by the table]"), "{width}");
        let embedding = text("embedding_activation");
        assert!(embedding.starts_with("NPE: what hidden layers") && embedding.ends_with("[default: tanh]"));
        let depth = text("depth");
        assert!(depth.contains("CP-Flow: number of hidden layers of a potential [default: 3]"), "{depth}");
        assert!(depth.contains("COT-Flow: number of layers [default: 2]"), "{depth}");
        let steps = text("evaluation_steps");
        assert!(
            steps.starts_with("COT-Flow [default: 32], flow-matching map [default: 16]: Runge"),
            "{steps}"
        );
    }
}
