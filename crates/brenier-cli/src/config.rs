//! Settings files: TOML with the fields of a settings struct of the library.

use std::path::Path;

use brenier::Error;
use brenier::map::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;
use crate::flags;

/// Names that files may use beside those of the fields: the flags'.
const ALIASES: [(&str, &str); 1] = [("simulations", "max_simulations")];
/// Tables with the settings of a method; the last two are those of version 0.1.
const METHOD_TABLES: [&str; 3] = ["method", "network", "flow"];

/// Reads the settings; a mistake is one sentence with file, line and key.
pub(crate) fn read<T: DeserializeOwned + Serialize + Default>(path: &Path) -> Result<T, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|source| Failure::Library(Error::io(path, "read the settings", source)))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::Usage(format!("{}: is not text; a settings file is TOML, see --help", path.display()))
    })?;
    if let Ok(table) = toml::from_str(&text) {
        flags::set_file(path, keys(&table));
    }
    toml::from_str(&text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        let stray = stray_key(&text);
        let unknown = unknown_key(&message);
        let key = unknown.or(stray.as_deref()).or(named_key(&message));
        // Settings of a method are read after the file: what is wrong with them has a name, but no place.
        let at = error.span().map(|span| span.start);
        let at = if unknown.is_some() { at } else { key.and_then(|key| line_of(&text, key)).or(at) };
        let place = at.map(|at| place(&text, at)).unwrap_or_default();
        let advice = key.and_then(|key| home::<T>(key, unknown.is_none())).unwrap_or_else(|| {
            let named = key.and_then(|key| message.strip_prefix(&format!("setting {key}: ")));
            named.unwrap_or(&message).to_owned()
        });
        Failure::Usage(format!("{}{place}: {advice}", path.display()))
    })
}

/// The keys of a table and of the tables below it.
fn keys(table: &toml::Table) -> Vec<String> {
    let below = |(key, value): (&String, &toml::Value)| {
        let mut all = value.as_table().map(keys).unwrap_or_default();
        all.push(key.clone());
        all
    };
    table.iter().flat_map(below).collect()
}

/// The key that the reader does not know in this place.
fn unknown_key(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// The setting that an error of the library names.
fn named_key(message: &str) -> Option<&str> {
    message.strip_prefix("setting ")?.split(':').next().filter(|name| !name.contains(' '))
}

/// A key in a table of method settings that no method has.
fn stray_key(text: &str) -> Option<String> {
    let tables: toml::Table = toml::from_str(text).ok()?;
    let known = |key: &str| {
        let mut settings = Method::ALL.iter().flat_map(|method| method.info().settings);
        ["name", "output", "activation_bytes"].contains(&key) || settings.any(|one| one.name == key)
    };
    let tables = METHOD_TABLES.iter().filter_map(|name| tables.get(*name)?.as_table());
    tables.flat_map(|table| table.keys()).find(|key| !known(key)).cloned()
}

/// Where the line begins that sets `key`.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str| line.split('=').next().is_some_and(|left| left.trim() == key);
    let line = text.lines().find(|line| sets(line))?;
    Some(line.as_ptr() as usize - text.as_ptr() as usize)
}

/// Where a key belongs that was found in another place, `in_method` for one in a table of method settings.
fn home<T: Serialize + Default>(key: &str, in_method: bool) -> Option<String> {
    // A flag's spelling is meant for the setting.
    let key = key.replace('-', "_");
    let name = ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key.as_str(), |(_, name)| name);
    let settings = serde_json::to_value(T::default()).ok()?;
    let mut tables = tables_of(&settings, name, "");
    tables.retain(|table| !(in_method && table == "method"));
    let of_method = |method: &&Method| method.info().settings.iter().any(|one| one.name == name);
    if tables.is_empty() && !in_method && settings.get("method").is_some() {
        let owner = Method::ALL.iter().find(of_method)?;
        return Some(format!("{key} belongs in [method], with name = \"{}\"", owner.name()));
    }
    let home = match tables.first()?.as_str() {
        "" => "at the top of the file, before the first [table]".to_owned(),
        table => format!("in [{table}]"),
    };
    Some(format!("{key} belongs {home}"))
}

/// The tables with a key `name` below `value`, whose own name is `table`.
fn tables_of(value: &Value, name: &str, table: &str) -> Vec<String> {
    let Value::Object(fields) = value else { return Vec::new() };
    let mut found: Vec<String> = fields.contains_key(name).then(|| table.to_owned()).into_iter().collect();
    for (field, value) in fields {
        let below = if table.is_empty() { field.clone() } else { format!("{table}.{field}") };
        found.extend(tables_of(value, name, &below));
    }
    found
}

/// Whether `name`, written with underscores, is a key of the settings.
#[cfg(test)]
pub(crate) fn is_key<T: Serialize + Default>(name: &str) -> bool {
    home::<T>(name, false).is_some()
}

/// `, line 3, key "epochs"` for the byte at which the reader stopped.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) => format!(", line {number}, key \"{}\"", key.trim()),
        None => format!(", line {number}"),
    }
}
