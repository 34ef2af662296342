//! A projection of the features onto a few directions, kept as its matrix on the time-centred surface.
//!
//! V ᵀΨ = √10100 Wᵀ zc for V = Q W: a matrix W of orthonormal columns in the 101 × 98 values of the surface inside the walls
//! stands for directions V among the 20 000 features, and Vᵀε ~ N(0, I) exactly.

use std::path::Path;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::features::{centre_in_time, gain, to_surface};
use super::kernel::{AMPLITUDES, CELLS, HOURS};
use crate::data::{Table, write};
use crate::kernel::{Accum, axpy, columns, columns_mut, product, vectorised};
use crate::{Error, Result};

/// Cells between the walls.
pub(super) const INSIDE: usize = CELLS - 2;
/// Values of a surface inside the walls.
pub const INTERIOR: usize = HOURS * INSIDE;
/// Rows that are projected by one product.
const BLOCK: usize = 256;

/// The matrix W.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    components: usize,
    /// Row by row: one for each hour and cell inside the walls, one column per component.
    matrix: Vec<f32>,
}

impl Projection {
    /// A projection from the matrix W of [`INTERIOR`] rows, row by row.
    pub fn new(components: usize, matrix: Vec<f32>) -> Result<Self> {
        if components == 0 || matrix.len() != components.saturating_mul(INTERIOR) {
            return Err(Error::Shape {
                what: "projection matrix",
                expected: format!("{INTERIOR} rows: one for each hour 0…100 and cell 2…99"),
                got: format!("{} values in {components} columns", matrix.len()),
            });
        }
        Ok(Self { components, matrix })
    }

    /// A projection onto the columns of `vectors`, one after the other, of [`INTERIOR`] values each.
    pub fn of_columns(components: usize, vectors: &[f32]) -> Result<Self> {
        if vectors.len() != components * INTERIOR {
            return Self::new(components, vectors.to_vec());
        }
        let mut matrix = vec![0.0; vectors.len()];
        matrix.par_chunks_exact_mut(components.max(1)).enumerate().for_each(|(i, row)| {
            row.iter_mut().enumerate().for_each(|(k, value)| *value = vectors[k * INTERIOR + i]);
        });
        Self::new(components, matrix)
    }

    /// Reads the matrix W from a table of [`INTERIOR`] rows and one column per component, such as an array of NumPy.
    pub fn read(path: &Path) -> Result<Self> {
        let table = Table::read(path)?;
        if table.rows() != INTERIOR {
            return Err(Error::table(
                path,
                format!(
                    "has {} rows, but a projection has {INTERIOR}: one for each hour 0…100 and cell 2…99",
                    table.rows()
                ),
            ));
        }
        Self::new(table.columns(), table.values().iter().map(|&value| value as f32).collect())
    }

    /// Writes the matrix as a table with the columns `w1`, `w2`, ….
    pub fn write(&self, path: &Path) -> Result<()> {
        let names = (1..=self.components).map(|k| format!("w{k}")).collect();
        let table = Table::new(names, self.matrix.iter().map(|&value| f64::from(value)).collect())?;
        write(path, &table)
    }

    /// How many components there are.
    pub fn components(&self) -> usize {
        self.components
    }

    /// W, row by row.
    pub fn matrix(&self) -> &[f32] {
        &self.matrix
    }

    pub(super) fn hash(&self) -> String {
        let mut digest = Sha256::new();
        digest.update((self.components as u64).to_le_bytes());
        self.matrix.iter().for_each(|value| digest.update(value.to_le_bytes()));
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// √10100 Wᵀ zc of one surface of 101 × 100 values.
    pub fn apply(&self, surface: &[f64], out: &mut [f64]) {
        let mut inside = interior(surface);
        centre_in_time(&mut inside, INSIDE);
        self.sum_rows(&inside, gain(), out);
    }

    /// Wᵀ Qᵀ y: the projection of an observation of all 20 000 features.
    pub fn of_features(&self, features: &[f64], out: &mut [f64]) {
        let mut surface = vec![0.0; AMPLITUDES];
        to_surface(features, &mut surface);
        self.sum_rows(&interior(&surface), 1.0, out);
    }

    /// factor · Wᵀ values.
    fn sum_rows(&self, values: &[f64], factor: f64, out: &mut [f64]) {
        let mut row = vec![0.0; self.components];
        out.fill(0.0);
        for (&z, weights) in values.iter().zip(self.matrix.chunks_exact(self.components)) {
            row.iter_mut().zip(weights).for_each(|(row, &w)| *row = f64::from(w));
            vectorised(
                #[inline(always)]
                || axpy(factor * z, &row, out),
            );
        }
    }

    /// √10100 Wᵀ zc for many time-centred surfaces inside the walls, rows of [`INTERIOR`] values; rows of `out` have
    /// [`components`](Self::components).
    pub fn apply_block(&self, centred: &[f32], out: &mut [f32]) {
        let k = self.components;
        let weights = columns(&self.matrix, k, INTERIOR, k);
        out.par_chunks_mut(BLOCK * k).zip(centred.par_chunks(BLOCK * INTERIOR)).for_each(|(out, centred)| {
            let rows = centred.len() / INTERIOR;
            let centred = columns(centred, INTERIOR, rows, INTERIOR);
            product(columns_mut(out, k, rows, k), Accum::Replace, weights, centred);
            let factor = gain() as f32;
            out.iter_mut().for_each(|out| *out *= factor);
        });
    }
}

/// The values inside the walls of a surface of 101 × 100 values.
pub(super) fn interior(surface: &[f64]) -> Vec<f64> {
    surface.chunks_exact(CELLS).flat_map(|row| &row[1..CELLS - 1]).copied().collect()
}
