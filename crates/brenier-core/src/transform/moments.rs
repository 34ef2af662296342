//! Second moments of rows that come in blocks, for tables that do not fit in memory.
//!
//! S = Σᵢ tᵢ tᵢᵀ is kept as square tiles of its lower triangle in double precision, about 4 n² bytes for rows of n values. A
//! block of rows in single precision is multiplied tile by tile, at most 1024 rows at a time, and the products are added in double
//! precision: rounding stays that of 1024 rows however many there are. A tile belongs to one thread at a time and blocks
//! come in order, so the sums have the same bits for any number of threads.

use crate::parallel::each;

use crate::kernel::{Accum, Mat, MatRef, columns, product};

/// Rows and columns of a tile.
const TILE: usize = 512;
/// Rows that one product sums in single precision.
const SLAB: usize = 1024;

/// The lower triangle of a symmetric matrix, in tiles.
#[derive(Clone, Debug)]
pub(super) struct Tiles {
    order: usize,
    tiles: Vec<Tile>,
}

#[derive(Clone, Debug)]
struct Tile {
    row: usize,
    column: usize,
    values: Mat<f64>,
}

/// The precision of the products within a slab.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Products {
    Single,
    Double,
}

impl Tiles {
    pub(super) fn zeros(order: usize) -> Self {
        let starts = || (0..order).step_by(TILE);
        let size = |start: usize| TILE.min(order - start);
        let tiles = starts()
            .flat_map(|row| {
                starts().take_while(move |&column| column <= row).map(move |column| (row, column))
            })
            .map(|(row, column)| Tile { row, column, values: Mat::zeros(size(row), size(column)) })
            .collect();
        Self { order, tiles }
    }

    /// Adds lhs · rhsᵀ, a symmetric matrix; both have as many rows as this matrix.
    pub(super) fn add(&mut self, lhs: MatRef<'_, f32>, rhs: MatRef<'_, f32>, products: Products) {
        let long = lhs.ncols();
        each(&mut self.tiles, |_, tile| {
            let (height, width) = (tile.values.nrows(), tile.values.ncols());
            let mut single = Mat::<f32>::zeros(height, width);
            for first in (0..long).step_by(SLAB) {
                let count = SLAB.min(long - first);
                let a = lhs.submatrix(tile.row, first, height, count);
                let b = rhs.submatrix(tile.column, first, width, count);
                if products == Products::Double {
                    let a = Mat::from_fn(height, count, |i, j| f64::from(a[(i, j)]));
                    let b = Mat::from_fn(count, width, |i, j| f64::from(b[(j, i)]));
                    product(tile.values.as_mut(), Accum::Add, a.as_ref(), b.as_ref());
                    continue;
                }
                product(single.as_mut(), Accum::Replace, a, b.transpose());
                for j in 0..width {
                    let sums = tile.values.col_as_slice_mut(j);
                    let sums = sums.iter_mut().zip(single.col_as_slice(j));
                    sums.for_each(|(sum, &term)| *sum += f64::from(term));
                }
            }
        });
    }

    /// Adds weight · v vᵀ.
    pub(super) fn add_outer(&mut self, v: &[f64], weight: f64) {
        each(&mut self.tiles, |_, tile| {
            for j in 0..tile.values.ncols() {
                let factor = weight * v[tile.column + j];
                let sums = tile.values.col_as_slice_mut(j).iter_mut().zip(&v[tile.row..]);
                sums.for_each(|(sum, v)| *sum += factor * v);
            }
        });
    }

    pub(super) fn diagonal(&self) -> Vec<f64> {
        let mut diagonal = vec![0.0; self.order];
        for tile in self.tiles.iter().filter(|tile| tile.row == tile.column) {
            (0..tile.values.nrows()).for_each(|i| diagonal[tile.row + i] = tile.values[(i, i)]);
        }
        diagonal
    }

    /// The matrix with both triangles, each value through `convert`, column by column.
    pub(super) fn full<T: Copy + Default + Send + Sync>(&self, convert: impl Fn(f64) -> T + Sync) -> Vec<T> {
        let n = self.order;
        let mut full = vec![T::default(); n * n];
        // The tiles whose rows or columns meet a strip of columns fill it.
        each(full.chunks_mut(TILE * n), |strip, columns| {
            let start = strip * TILE;
            for tile in &self.tiles {
                let (height, width) = (tile.values.nrows(), tile.values.ncols());
                if tile.column == start {
                    for j in 0..width {
                        let from = tile.values.col_as_slice(j);
                        let to = &mut columns[j * n + tile.row..][..height];
                        to.iter_mut().zip(from).for_each(|(to, &value)| *to = convert(value));
                    }
                } else if tile.row == start {
                    for i in 0..height {
                        for j in 0..width {
                            columns[i * n + tile.column + j] = convert(tile.values[(i, j)]);
                        }
                    }
                }
            }
        });
        full
    }
}

/// Sums over rows of n values: how many, Σ tᵢ and Σ tᵢ tᵢᵀ.
///
/// ```
/// use brenier_core::transform::{LeadingSettings, SecondMoments};
///
/// # fn main() -> brenier_core::Result<()> {
/// let mut moments = SecondMoments::new(2);
/// moments.add(&[1.0, 1.0, -1.0, -1.0]); // two rows, and as many blocks as there are
/// moments.add(&[0.5, -0.5, -0.5, 0.5]);
/// let leading = moments.leading(&LeadingSettings { components: 1, ..Default::default() })?;
/// assert!((leading.explained() - 0.8).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SecondMoments {
    pub(super) tiles: Tiles,
    sum: Vec<f64>,
    rows: u64,
}

impl SecondMoments {
    /// No rows of `dim` values yet.
    pub fn new(dim: usize) -> Self {
        Self { tiles: Tiles::zeros(dim), sum: vec![0.0; dim], rows: 0 }
    }

    /// The number of values of a row.
    pub fn dim(&self) -> usize {
        self.sum.len()
    }

    /// How many rows were added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The mean of the rows.
    pub fn mean(&self) -> Vec<f64> {
        self.sum.iter().map(|sum| sum / self.rows.max(1) as f64).collect()
    }

    /// Adds rows, one after the other in the slice. Blocks of some thousands are fastest; how the rows are cut into blocks decides the
    /// last bits of the sums.
    ///
    /// # Panics
    /// If the slice does not hold whole rows.
    pub fn add(&mut self, rows: &[f32]) {
        let dim = self.dim();
        assert!(dim > 0 && rows.len().is_multiple_of(dim), "whole rows of {dim} values");
        let count = rows.len() / dim;
        self.rows += count as u64;
        each(self.sum.chunks_mut(TILE), |chunk, sum| {
            for row in rows.chunks_exact(dim) {
                let values = &row[chunk * TILE..][..sum.len()];
                sum.iter_mut().zip(values).for_each(|(sum, &t)| *sum += f64::from(t));
            }
        });
        let block = columns(rows, dim, count, dim);
        self.tiles.add(block, block, Products::Single);
    }
}
