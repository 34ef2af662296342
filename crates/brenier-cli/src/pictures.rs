//! Sizes of pair plots.

/// Columns in the picture, at most: more could not be read.
pub(crate) const PLOT_COLUMNS: usize = 12;

/// Points each way that a pair plot of `columns` takes.
pub(crate) fn pair_plot_side(columns: usize) -> usize {
    (200 + 110 * columns).max(420)
}
