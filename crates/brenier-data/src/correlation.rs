//! Columns that say nearly the same as another one.

use super::Table;
use crate::{Error, Result};

/// The columns that the correlation filter leaves out of `table`, in ascending order: while any pair of columns has
/// a Pearson correlation above `limit`, the first column that is part of such a pair goes.
///
/// The sign counts: a correlation of −1 is not above any limit. A constant column has no correlation and stays.
pub fn correlated_columns(table: &Table, limit: f64) -> Result<Vec<usize>> {
    if !(-1.0..=1.0).contains(&limit) {
        return Err(Error::setting(
            "max_correlation",
            format!("must be at least -1 and at most 1, not {limit}"),
        ));
    }
    let columns = table.columns();
    let standard = standardised(table);
    let rows = table.rows();
    // Removing a column changes no other correlation, so each column needs to be looked at once, first to last: an
    // earlier one that stayed is in no pair.
    let above = |i: usize, j: usize| {
        let (a, b) = (&standard[i * rows..(i + 1) * rows], &standard[j * rows..(j + 1) * rows]);
        a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() > limit
    };
    Ok((0..columns).filter(|&i| (i + 1..columns).any(|j| above(i, j))).collect())
}

/// Column by column (x − x̄) / ‖x − x̄‖; NaN for a constant column.
fn standardised(table: &Table) -> Vec<f64> {
    let rows = table.rows();
    let mut standard = Vec::with_capacity(rows * table.columns());
    for j in 0..table.columns() {
        // The largest magnitude first, so that squares neither overflow nor vanish.
        let largest = table.iter().fold(0.0_f64, |most, row| most.max(row[j].abs()));
        let first = table.iter().next().map_or(0.0, |row| row[j]);
        if largest == 0.0 || table.iter().all(|row| row[j] == first) {
            standard.resize(standard.len() + rows, f64::NAN);
            continue;
        }
        let start = standard.len();
        standard.extend(table.iter().map(|row| row[j] / largest));
        let column = &mut standard[start..];
        let mean = column.iter().sum::<f64>() / rows as f64;
        column.iter_mut().for_each(|value| *value -= mean);
        let norm = column.iter().map(|value| value * value).sum::<f64>().sqrt();
        column.iter_mut().for_each(|value| *value /= norm);
    }
    standard
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn table(columns: &[&[f64]]) -> Table {
        let names = (0..columns.len()).map(|j| format!("c{j}")).collect();
        let rows = columns[0].len();
        let values = (0..rows).flat_map(|i| columns.iter().map(move |column| column[i])).collect();
        Table::new(names, values).unwrap()
    }

    #[test]
    fn of_a_pair_the_first_goes_until_no_pair_is_left() {
        let a: &[f64] = &[1.0, 2.0, 3.0, 5.0];
        let double: &[f64] = &[3.0, 5.0, 7.0, 11.0];
        let opposite: &[f64] = &[-1.0, -2.0, -3.0, -5.0];
        let other: &[f64] = &[1.0, -1.0, 2.0, 0.0];
        let constant: &[f64] = &[4.0; 4];
        let near: &[f64] = &[1.0, 2.0, 3.0, 4.0]; // correlation with a: 0.983
        let left_out = |columns: &[&[f64]], limit| correlated_columns(&table(columns), limit).unwrap();
        assert_eq!(left_out(&[a, other, double], 0.98), [0]);
        assert_eq!(left_out(&[a, double, near], 0.98), [0, 1]);
        assert_eq!(left_out(&[a, double, near], 0.99), [0]);
        assert_eq!(left_out(&[a, opposite, constant, constant], 0.5), [0; 0]);
        assert_eq!(left_out(&[a, double, a, double], 0.98), [0, 1, 2]);
        let huge: Vec<f64> = a.iter().map(|value| value * 1e300).collect();
        let tiny: Vec<f64> = a.iter().map(|value| value * 1e-300).collect();
        assert_eq!(left_out(&[&huge, other, &tiny], 0.98), [0]);
        assert!(correlated_columns(&table(&[a]), 1.5).unwrap_err().to_string().contains("max_correlation"));
    }
}
