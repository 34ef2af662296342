//! The rows being read: chosen columns only, straight into the table's buffer, and what every reader needs for it.

use std::path::Path;

use super::contain::contain;
use super::encode::{Levels, MOST_LEVELS, Read, number_text};
use super::format::{ColumnChoice, Missing, ReadOptions};
use super::table::{Table, name_problem, short_name};
use crate::{Error, Result};

/// What to do about text where a number is needed; [`CATEGORIES`] is the end of it.
pub(super) const NOT_A_NUMBER: &str = "which is not a number; correct it, choose other columns, or take a given column \
                                       of categories with `categorical`";
/// The part of it that is no help where columns cannot be chosen, or categories not be read.
pub const CATEGORIES: &str = "choose other columns, or take a given column of categories with `categorical`";

/// Bytes of such a text, at most.
pub(super) const LONGEST_LEVEL: usize = 256;

/// The rows read so far.
pub(super) struct Rows<'a> {
    pub(super) path: &'a Path,
    pub(super) missing: Missing,
    pub(super) names: Vec<String>,
    pub(super) values: Vec<f64>,
    /// Rows met in the file so far, kept or not.
    pub(super) seen: usize,
    pub(super) dropped: usize,
    /// Numbers that stand for a missing value.
    sentinels: Vec<f64>,
    /// For each column its categories, if it is to be read as such.
    levels: Vec<Option<Levels>>,
    /// Whether the reader puts positions of categories, and not numbers, into the column.
    texts: Vec<bool>,
}

impl<'a> Rows<'a> {
    /// Asks `choose` which of `header` to load and checks both.
    pub(super) fn new(
        path: &'a Path,
        options: &ReadOptions,
        header: &[String],
        choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
    ) -> Result<(Self, Vec<usize>)> {
        if let Some(problem) = name_problem(header) {
            return Err(Error::table(path, problem));
        }
        let ColumnChoice { columns: chosen, categorical } = choose(header)?;
        let mut taken = vec![false; header.len()];
        for &column in &chosen {
            match taken.get_mut(column) {
                Some(taken) if !*taken => *taken = true,
                Some(_) => {
                    let name = &header[column];
                    return Err(Error::Columns(format!("column \"{name}\" is chosen twice: choose it once")));
                }
                None => {
                    return Err(Error::Columns(format!(
                        "column {} is chosen but {} has only {}",
                        column + 1,
                        path.display(),
                        header.len()
                    )));
                }
            }
        }
        if chosen.is_empty() {
            return Err(Error::Columns(format!("no column of {} is chosen", path.display())));
        }
        let names = chosen.iter().map(|&column| header[column].clone()).collect();
        let levels = chosen.iter().map(|column| categorical.contains(column).then(Levels::default)).collect();
        let rows = Self {
            path,
            missing: options.missing,
            names,
            values: Vec::new(),
            seen: 0,
            dropped: 0,
            sentinels: options.sentinels(),
            levels,
            texts: vec![false; chosen.len()],
        };
        Ok((rows, chosen))
    }

    /// How many columns are loaded.
    pub(super) fn width(&self) -> usize {
        self.names.len()
    }

    /// Whether column `j` of those loaded is to be read as categories.
    pub(super) fn is_categorical(&self, j: usize) -> bool {
        self.levels[j].is_some()
    }

    /// The position of the category `text`, found in column `j` of row `row` (from 1).
    pub(super) fn place_text(&mut self, j: usize, text: &str, row: usize) -> Result<f64> {
        self.texts[j] = true;
        self.place(j, text, row)
    }

    fn place(&mut self, j: usize, text: &str, row: usize) -> Result<f64> {
        if text.len() > LONGEST_LEVEL {
            let short: String = text.chars().take(40).collect();
            let problem = format!(
                "row {row}, column \"{}\": found \"{short}…\", which is too long for a category (256 bytes at most)",
                self.names[j]
            );
            return Err(Error::table(self.path, problem));
        }
        let place = self.levels[j].as_mut().and_then(|levels| levels.place(text, row));
        place.ok_or_else(|| {
            let problem = format!(
                "column \"{}\" has more than {MOST_LEVELS} different values, too many for categories: is it an \
                 identifier? Choose other columns",
                self.names[j]
            );
            Error::table(self.path, problem)
        })
    }

    /// Makes room for `rows` rows, or says that memory does not suffice.
    pub(super) fn reserve(&mut self, rows: usize) -> Result<()> {
        rows.checked_mul(self.width()).and_then(|count| self.values.try_reserve_exact(count).ok()).ok_or_else(
            || {
                let problem = format!(
                    "{rows} rows of {} columns do not fit in memory: choose fewer columns",
                    self.width()
                );
                Error::table(self.path, problem)
            },
        )
    }

    /// Settles the rows appended from value `start` on, in which a missing cell is NaN or infinite: makes numbers
    /// categories where these are wanted, refuses the first missing cell or closes the gaps that dropped rows leave.
    pub(super) fn settle(&mut self, start: usize) -> Result<()> {
        let width = self.width();
        for j in 0..width {
            if self.levels[j].is_none() || self.texts[j] {
                continue;
            }
            for (row, at) in (start + j..self.values.len()).step_by(width).enumerate() {
                let value = self.values[at];
                self.values[at] = match value.is_finite() && !self.sentinels.contains(&value) {
                    true => self.place(j, &number_text(value), self.seen + row + 1)?,
                    false => f64::NAN,
                };
            }
        }
        let end = self.values.len();
        let mut kept = start;
        for row in (start..end).step_by(width) {
            self.seen += 1;
            let cells = &self.values[row..row + width];
            let missing = |(j, value): (usize, &f64)| {
                !value.is_finite() || (self.levels[j].is_none() && self.sentinels.contains(value))
            };
            let hole = match self.sentinels.is_empty() {
                true => cells.iter().position(|value| !value.is_finite()),
                false => cells.iter().enumerate().position(missing),
            };
            match hole {
                None => {
                    if kept != row {
                        self.values.copy_within(row..row + width, kept);
                    }
                    kept += width;
                }
                Some(_) if self.missing == Missing::DropRows => self.dropped += 1,
                Some(column) => {
                    let what = match self.values[row + column] {
                        value if value.is_nan() => "missing (null or NaN)".to_owned(),
                        value if value.is_infinite() => format!("infinite ({value})"),
                        value => format!("missing ({value} by `missing`)"),
                    };
                    let problem = format!(
                        "row {}, column \"{}\" is {what}; {}",
                        self.seen,
                        short_name(&self.names[column]),
                        self.missing.advice()
                    );
                    return Err(Error::table(self.path, problem));
                }
            }
        }
        self.values.truncate(kept);
        Ok(())
    }

    /// The table, if a row is left.
    pub(super) fn finish(mut self, warnings: Vec<String>) -> Result<Read> {
        if self.seen == 0 {
            return Err(Error::table(self.path, "the table has no rows"));
        }
        if self.values.is_empty() {
            let problem =
                format!("all {} rows have missing values in the chosen columns: choose others", self.seen);
            return Err(Error::table(self.path, problem));
        }
        if self.values.capacity() / 5 * 4 > self.values.len() {
            self.values.shrink_to_fit();
        }
        Ok(Read {
            table: Table::new(self.names, self.values)?,
            dropped_rows: self.dropped,
            warnings,
            levels: self.levels,
        })
    }
}

/// Integers from here on may have no exact `f64`: 2⁵³.
pub(super) const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// The warning for a column of integers beyond [`EXACT_INTEGERS`].
pub(super) fn rounded_warning(path: &Path, column: &str) -> String {
    format!(
        "{}: column \"{column}\" holds integers beyond 2^53, which were rounded to the nearest double",
        path.display()
    )
}

/// A kind of time that is stored as a number, and what it is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Timestamp,
    Date,
    Time,
    Duration,
}

impl Clock {
    /// The warning for a column of this kind.
    pub(super) fn warning(self, path: &Path, column: &str) -> String {
        let what = match self {
            Clock::Timestamp => "timestamps, read as seconds since 1970-01-01 (UTC)",
            Clock::Date => "dates, read as days since 1970-01-01",
            Clock::Time => "times of day, read as seconds since midnight",
            Clock::Duration => "durations, read as seconds",
        };
        format!("{}: column \"{column}\" holds {what}", path.display())
    }
}

/// The value of an IEEE half-precision number.
pub(super) fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f64::from(bits & 0x3ff);
    sign * match (bits >> 10) & 0x1f {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    }
}

/// Runs a decoder of somebody else's on a file that may be hostile: should it panic, that is an error of the file.
pub(super) fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    contain(decode).unwrap_or_else(|| {
        Err(Error::table(path, "the file is damaged: its decoder gave up; write the file again"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_on_text_ends_with_that_on_categories() {
        assert!(NOT_A_NUMBER.ends_with(CATEGORIES));
    }

    #[test]
    fn halves() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x3555, 0.333_251_953_125),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half_to_f64(bits), value);
        }
        assert!(half_to_f64(0x7e00).is_nan());
    }

    #[test]
    fn numbers_as_categories_have_one_spelling() {
        for (value, text) in [(1.0, "1"), (-0.0, "0"), (0.5, "0.5"), (-3.0, "-3"), (1e300, "1e300")] {
            assert_eq!(number_text(value), text);
        }
    }
}
