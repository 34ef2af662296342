//! Training rows as a transform reads them: by index into a buffer, so that no table is ever copied.

use crate::{Error, Result};

/// Training rows that can be read several times, in any order.
///
/// A table of any element type, a selection of columns or a split implements this by copying one row.
pub trait Rows {
    /// How many rows there are.
    fn count(&self) -> usize;

    /// Copies row `index` < [`count`](Self::count) into `row`, one value per column.
    fn read(&self, index: usize, row: &mut [f64]);

    /// The row's name in an error message; override it to give the row number in the user's file.
    fn describe(&self, index: usize) -> String {
        format!("training row {}", index + 1)
    }
}

/// Rows that lie one after another in memory.
#[derive(Debug, Clone, Copy)]
pub struct RowMajor<'a> {
    values: &'a [f64],
    columns: usize,
}

impl<'a> RowMajor<'a> {
    /// Rows of `columns` values each.
    pub fn new(values: &'a [f64], columns: usize) -> Result<Self> {
        if columns == 0 || !values.len().is_multiple_of(columns) {
            return Err(Error::Shape {
                what: "row-major values",
                expected: format!("whole rows of {columns} columns (at least one column)"),
                got: format!("{} values", values.len()),
            });
        }
        Ok(Self { values, columns })
    }
}

impl Rows for RowMajor<'_> {
    fn count(&self) -> usize {
        self.values.len() / self.columns
    }

    fn read(&self, index: usize, row: &mut [f64]) {
        row.copy_from_slice(&self.values[index * self.columns..][..self.columns]);
    }
}

/// Rows read by a closure `read(index, row)`.
#[derive(Debug, Clone, Copy)]
pub struct FnRows<F> {
    count: usize,
    read: F,
}

impl<F: Fn(usize, &mut [f64])> FnRows<F> {
    /// `count` rows, each read by `read`.
    pub fn new(count: usize, read: F) -> Self {
        Self { count, read }
    }
}

impl<F: Fn(usize, &mut [f64])> Rows for FnRows<F> {
    fn count(&self) -> usize {
        self.count
    }

    fn read(&self, index: usize, row: &mut [f64]) {
        (self.read)(index, row);
    }
}
