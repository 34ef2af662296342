//! What a user should know about a table before it is learned from.

use crate::data::Table;
use crate::{Error, Result};

/// Constant target columns are an error, constant given and doubled columns a warning.
pub(super) fn of_table(table: &Table, target: &[usize], given: &[usize]) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for (a, b) in table.duplicate_columns() {
        let (first, second) = (&table.names()[a], &table.names()[b]);
        let both_target = target.contains(&a) && target.contains(&b);
        let crossing = target.contains(&a) != target.contains(&b);
        let all = target.iter().chain(given);
        if both_target {
            return Err(Error::Columns(format!(
                "the target columns {first} and {second} are equal in every row: their joint density does not \
                 exist; leave one of them out of --target"
            )));
        } else if crossing && all.clone().any(|c| c == &a) && all.clone().any(|c| c == &b) {
            warnings.push(format!(
                "columns {first} and {second} are equal in every row: the target is known exactly from the given \
                 columns and its density has no finite limit"
            ));
        } else if given.contains(&a) && given.contains(&b) {
            warnings
                .push(format!("given columns {first} and {second} are equal in every row; one is enough"));
        }
    }
    Ok(warnings)
}
