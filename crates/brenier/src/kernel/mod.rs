//! Arithmetic that knows no statistics: scalars, vectors, products, small SPD systems.

mod adam;
mod gemm;
pub(crate) mod lbfgs;
mod real;
pub(crate) mod spd;
pub(crate) mod special;
mod vector;

pub(crate) use adam::{AdamRates, adam_step};
pub(crate) use gemm::{columns, columns_mut, product};
pub use real::Real;
pub(crate) use vector::{
    axpy, axpy_columns, dot, dot2, elu, fold, log_cosh, logistic, row_dots, softplus, vectorised,
};
