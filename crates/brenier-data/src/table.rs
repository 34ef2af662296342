//! A table of numbers in memory: named columns, rows one after another.

use std::collections::HashMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// A column's name as messages print it: very long ones are cut.
pub fn short_name(name: &str) -> String {
    const LETTERS: usize = 60;
    match name.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Named columns of `f64`, stored row by row in one buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    names: Vec<String>,
    rows: usize,
    values: Vec<f64>,
}

impl Table {
    /// A table of `values`, row by row, under `names`, which must be present, non-empty and all different.
    pub fn new(names: Vec<String>, values: Vec<f64>) -> Result<Self> {
        if let Some(problem) = name_problem(&names) {
            return Err(Error::Columns(problem));
        }
        if !values.len().is_multiple_of(names.len()) {
            return Err(Error::Shape {
                what: "values of a table",
                expected: format!("a multiple of its {} columns", names.len()),
                got: format!("{} values", values.len()),
            });
        }
        Ok(Self { rows: values.len() / names.len(), names, values })
    }

    /// Reads all columns of a file; see [`read`](super::read) for a choice of columns and for other options.
    #[cfg(feature = "files")]
    pub fn read(path: impl AsRef<std::path::Path>) -> Result<Self> {
        let everything = |names: &[String]| Ok((0..names.len()).collect());
        Ok(super::read(path.as_ref(), &super::ReadOptions::default(), everything)?.table)
    }

    /// The column names, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns there are; at least one.
    pub fn columns(&self) -> usize {
        self.names.len()
    }

    /// Row `i`. Panics when there is no such row.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.columns()..][..self.columns()]
    }

    /// The value in row `i` and column `j`. Panics when there is none.
    pub fn value(&self, i: usize, j: usize) -> f64 {
        self.row(i)[j]
    }

    /// All values, row by row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// All values, row by row, without copying them.
    pub fn into_values(self) -> Vec<f64> {
        self.values
    }

    /// The position of the column called `name`.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| own == name)
    }

    /// The rows, first to last.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, f64> {
        self.values.chunks_exact(self.columns())
    }

    /// A copy of some columns, in the order given. Panics when `columns` is empty, repeats one, or names one
    /// that does not exist: [`Selection::resolve`](super::Selection::resolve) makes lists that do none of these.
    pub fn select_columns(&self, columns: &[usize]) -> Table {
        let names = self.names_of(columns);
        assert!(name_problem(&names).is_none(), "columns to select must be given, and only once each");
        let mut values = Vec::with_capacity(self.rows * columns.len());
        for row in self.iter() {
            values.extend(columns.iter().map(|&j| row[j]));
        }
        Table { names, rows: self.rows, values }
    }

    /// A copy of some rows, in the order given. Panics when there is no such row.
    pub fn select_rows(&self, rows: &[u32]) -> Table {
        let values = rows.iter().flat_map(|&i| self.row(i as usize)).copied().collect();
        Table { names: self.names.clone(), rows: rows.len(), values }
    }

    /// The values of some columns (there may be none) in some rows, row by row. Panics when one does not exist.
    pub fn gather(&self, rows: &[u32], columns: &[usize]) -> Vec<f64> {
        let rows = rows.iter().map(|&i| self.row(i as usize));
        rows.flat_map(|row| columns.iter().map(|&j| row[j])).collect()
    }

    /// The names of some columns. Panics when one does not exist.
    pub fn names_of(&self, columns: &[usize]) -> Vec<String> {
        columns.iter().map(|&j| self.names[j].clone()).collect()
    }

    /// SHA-256, in hexadecimal, of the number of columns and rows, each name with its length, and the values,
    /// all numbers little-endian: equal tables have equal hashes on every machine.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update((self.columns() as u64).to_le_bytes());
        hasher.update((self.rows as u64).to_le_bytes());
        for name in &self.names {
            hasher.update((name.len() as u64).to_le_bytes());
            hasher.update(name);
        }
        let mut bytes = [0; 8 * 1024];
        for block in self.values.chunks(1024) {
            for (slot, value) in bytes.chunks_exact_mut(8).zip(block) {
                slot.copy_from_slice(&value.to_le_bytes());
            }
            hasher.update(&bytes[..8 * block.len()]);
        }
        hexadecimal(&hasher.finalize())
    }

    /// The columns that repeat an earlier one, as pairs (earliest, repeat) in order of the repeat.
    ///
    /// One pass: columns that agreed in all rows so far form groups, each row splits the groups in which it
    /// differs, and the pass ends when no group is left.
    pub fn duplicate_columns(&self) -> Vec<(usize, usize)> {
        if self.rows == 0 {
            return Vec::new();
        }
        let mut groups: Vec<Vec<usize>> = vec![(0..self.columns()).collect()];
        groups.retain(|group| group.len() > 1);
        let mut split = Vec::new();
        for row in self.iter() {
            if groups.is_empty() {
                break;
            }
            let bits = |j: &usize| (row[*j] + 0.0).to_bits(); // −0 + 0 = 0
            for mut group in groups.drain(..) {
                if group.iter().all(|j| bits(j) == bits(&group[0])) {
                    split.push(group);
                } else {
                    group.sort_by_key(|j| (bits(j), *j));
                    split.extend(
                        group.chunk_by(|a, b| bits(a) == bits(b)).filter(|g| g.len() > 1).map(<[_]>::to_vec),
                    );
                }
            }
            std::mem::swap(&mut groups, &mut split);
        }
        let mut pairs: Vec<_> =
            groups.iter().flat_map(|group| group[1..].iter().map(|&repeat| (group[0], repeat))).collect();
        pairs.sort_by_key(|&(_, repeat)| repeat);
        pairs
    }
}

/// `bytes` as the usual tools print a checksum.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String accepts all writes");
        text
    })
}

/// What is wrong with a list of column names, if anything: none at all, one empty, or one given twice.
pub(super) fn name_problem(names: &[String]) -> Option<String> {
    if names.is_empty() {
        return Some("the table has no columns".into());
    }
    let mut seen = HashMap::with_capacity(names.len());
    for (position, name) in names.iter().enumerate().map(|(j, name)| (j + 1, name)) {
        if name.is_empty() {
            return Some(format!("column {position} has no name: give every column one"));
        }
        if let Some(earlier) = seen.insert(name, position) {
            return Some(format!(
                "columns {earlier} and {position} are both called \"{name}\": give them different names"
            ));
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn table(list: &[&str], values: &[f64]) -> Table {
        Table::new(names(list), values.to_vec()).unwrap()
    }

    #[test]
    fn gives_back_what_it_was_made_of() {
        let table = table(&["a", "b"], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!((table.rows(), table.columns()), (3, 2));
        assert_eq!(table.row(1), [3.0, 4.0]);
        assert_eq!(table.value(2, 0), 5.0);
        assert_eq!(table.column("b"), Some(1));
        assert_eq!(table.column("z"), None);
        assert_eq!(table.iter().map(|row| row[0]).collect::<Vec<_>>(), [1.0, 3.0, 5.0]);
        let swapped = table.select_columns(&[1, 0]);
        assert_eq!(swapped.names(), ["b", "a"]);
        assert_eq!(swapped.into_values(), [2.0, 1.0, 4.0, 3.0, 6.0, 5.0]);
        let picked = table.select_rows(&[2, 0]);
        assert_eq!((picked.rows(), picked.into_values()), (2, vec![5.0, 6.0, 1.0, 2.0]));
    }

    #[test]
    fn refuses_bad_names_and_lengths() {
        let problem = |list: &[&str], values: usize| {
            Table::new(names(list), vec![0.0; values]).unwrap_err().to_string()
        };
        assert_eq!(problem(&[], 0), "the table has no columns");
        assert!(problem(&["a", ""], 2).contains("column 2 has no name"));
        assert!(problem(&["a", "b", "a"], 3).contains("columns 1 and 3 are both called \"a\""));
        assert!(problem(&["a", "b"], 3).contains("multiple of its 2 columns, got 3 values"));
    }

    #[test]
    fn hash_depends_on_names_shape_and_values() {
        let base = table(&["a", "b"], &[1.0, 2.0]);
        assert_eq!(base.hash(), table(&["a", "b"], &[1.0, 2.0]).hash());
        assert_eq!(base.hash().len(), 64);
        for other in [
            table(&["a", "c"], &[1.0, 2.0]),
            table(&["ab"], &[1.0, 2.0]),
            table(&["a", "b"], &[1.0, 2.5]),
            table(&["a", "b"], &[2.0, 1.0]),
        ] {
            assert_ne!(base.hash(), other.hash());
        }
        // The definition, spelled out with no loop of ours.
        let mut bytes = Vec::new();
        for number in [1_u64, 1500, 1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(b'x');
        (0..1500).for_each(|i| bytes.extend(f64::from(i).to_le_bytes()));
        let expected: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(table(&["x"], &(0..1500).map(f64::from).collect::<Vec<_>>()).hash(), expected);
    }

    #[test]
    fn finds_duplicate_columns() {
        let rows =
            [[1.0, 1.0, 1.0, 0.0, 1.0, -0.0], [2.0, 3.0, 2.0, 5.0, 3.0, 5.0], [4.0, 4.0, 4.0, 4.0, 4.0, 4.0]];
        let table = table(&["a", "b", "c", "d", "e", "f"], &rows.concat());
        assert_eq!(table.duplicate_columns(), [(0, 2), (1, 4), (3, 5)]);
        assert_eq!(table.select_columns(&[0, 1, 3]).duplicate_columns(), [] as [(usize, usize); 0]);
        assert_eq!(table.select_columns(&[0]).duplicate_columns(), [] as [(usize, usize); 0]);
    }
}
