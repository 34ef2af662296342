//! Keyword arguments as settings: a flat JSON object becomes the tables of a settings file.

use brenier::data::Selection;
use brenier::map::Method;
use brenier::map::method::SettingKind;
use brenier::{FitSettings, MethodChoice};
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::error::{Raise, exception, settings_error};

/// Settings of any kind from a JSON object.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(settings_error)
}

fn object(value: impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// Fit settings from a flat object over those of a settings file: keys of the tables `train`, `train.adam` and `method` may
/// stand at the top.
pub(crate) fn fit_settings(text: &str, file: Option<&str>) -> PyResult<FitSettings> {
    let given: Map<String, Value> = parse(text)?;
    let document = match file {
        None => Map::new(),
        Some(text) => {
            let base: FitSettings = toml::from_str(text)
                .map_err(|error| exception("SettingError", error.message().replace('\n', " ")))?;
            object(base)
        }
    };
    assembled(given.clone(), document).map_err(|error| {
        let text = error.to_string();
        if text.starts_with("setting ") {
            return exception("SettingError", text);
        }
        // A value of the wrong type: the setting that cannot be read by itself either is the one.
        let alone = |(name, value): &(&String, &Value)| {
            let mut own = Map::from_iter([((*name).clone(), (*value).clone())]);
            own.extend(given.get("method").map(|method| ("method".to_owned(), method.clone())));
            assembled(own, Map::new()).is_err()
        };
        match given.iter().find(alone) {
            Some((name, _)) => exception("SettingError", format!("setting {name}: {text}")),
            None => exception("SettingError", text),
        }
    })
}

/// The settings of a flat object over the document of a settings file.
fn assembled(
    mut given: Map<String, Value>,
    mut document: Map<String, Value>,
) -> serde_json::Result<FitSettings> {
    if document.remove("auto").is_some() {
        // The file names no method: what is given here may.
        document.remove("method");
    }
    let (top, train) = (object(FitSettings::default()), object(FitSettings::default().train));
    let adam = train.get("adam").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut method = match (document.remove("method"), given.remove("method")) {
        (_, Some(Value::Object(table))) => table,
        (Some(Value::Object(table)), Some(name)) if table.get("name") == Some(&name) => table,
        (_, Some(name)) => Map::from_iter([("name".to_owned(), name)]),
        (Some(Value::Object(table)), None) => table,
        (_, None) => Map::new(),
    };
    for (name, value) in given {
        let place = if name != "train" && train.contains_key(&name) {
            table(&mut document, "train")
        } else if adam.contains_key(&name) {
            table(table(&mut document, "train"), "adam")
        } else if top.contains_key(&name) {
            &mut document
        } else {
            &mut method
        };
        match (place.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
            (_, value) => {
                place.insert(name, value);
            }
        }
    }
    if !method.is_empty() {
        document.insert("method".to_owned(), Value::Object(method));
    }
    document.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(document))
}

fn table<'a>(document: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let entry = document.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut().expect("an object was put there")
}

/// The methods and their settings, as JSON.
#[pyfunction]
pub(crate) fn methods() -> String {
    let kind = |kind: SettingKind| match kind {
        SettingKind::Whole => json!("whole number"),
        SettingKind::Number => json!("number"),
        SettingKind::Choice(words) => json!(words),
        SettingKind::WholeList => json!("list of whole numbers"),
        SettingKind::Numbers(count) => json!(format!("{count} numbers")),
        _ => json!("value"),
    };
    let one = |&method: &Method| {
        let info = method.info();
        let setting = |one: &brenier::map::method::SettingInfo| json!({"name": one.name, "kind": kind(one.kind), "help": one.help, "default": one.default});
        let settings: Vec<Value> = info.settings.iter().map(setting).collect();
        json!({"name": method.name(), "title": info.title, "summary": info.summary, "settings": settings})
    };
    Value::Array(Method::ALL.iter().map(one).collect()).to_string()
}

/// The default settings of a fit, as JSON.
#[pyfunction]
pub(crate) fn default_settings() -> String {
    Value::Object(object(MethodChoice::Auto.settings())).to_string()
}

/// The positions of the columns that a selection picks among names.
#[pyfunction]
pub(crate) fn select(selection: &str, names: Vec<String>) -> PyResult<Vec<usize>> {
    selection.parse::<Selection>().and_then(|selection| selection.resolve(&names)).or_raise()
}
