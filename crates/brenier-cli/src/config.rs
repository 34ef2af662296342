//! Settings files: TOML with the fields of a settings struct of the library.

use std::path::Path;

use brenier::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

/// Names that files may use beside those of the fields: the flags'.
const ALIASES: [(&str, &str); 2] = [("output_activation", "output"), ("simulations", "max_simulations")];

/// Reads the settings; a mistake is one sentence with file, line and key.
pub(crate) fn read<T: DeserializeOwned + Serialize + Default>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::Library(Error::io(path, "read the settings", source)))?;
    toml::from_str(&text).map_err(|error| {
        let place = error.span().map(|span| place(&text, span.start)).unwrap_or_default();
        let message = error.message().replace('\n', " ");
        let advice = unknown_key(&message).and_then(|key| home::<T>(key)).unwrap_or(message);
        Failure::Usage(format!("{}{place}: {advice}", path.display()))
    })
}

/// The key that the reader does not know in this place.
fn unknown_key(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// Where a key belongs that was found in another place.
fn home<T: Serialize + Default>(key: &str) -> Option<String> {
    // A flag's spelling is meant for the setting.
    let key = key.replace('-', "_");
    let name = ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key.as_str(), |(_, name)| name);
    let tables = tables_of(&serde_json::to_value(T::default()).ok()?, name, "");
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
    home::<T>(name).is_some()
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
