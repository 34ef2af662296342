//! Arithmetic that knows no statistics: scalars, vectors, products, small systems, L-BFGS.
//!
//! The heavy algorithms of faer are instantiated here, once for each precision, and nowhere else: the other crates call
//! [`product`], [`spd`] and [`dense`], so that a change in them does not compile faer again.

mod adam;
pub mod dense;
pub mod eigen;
mod gemm;
pub mod lbfgs;
mod narrow;
mod real;
mod simd;
pub mod spd;
pub mod special;
mod vector;

pub use adam::{AdamRates, adam_step};
pub use faer::{Accum, Mat, MatMut, MatRef};
pub use gemm::{columns, columns_mut, lower_product, product};
pub use narrow::{Columns, ROW_CHUNK, Store, Weights, row_products, row_sums, summed_row_sums};
pub use pulp::NullaryFnOnce;
pub use real::Real;
pub use simd::Lane;
pub use vector::{
    axpy, axpy_columns, dot, dot2, elu, fold, gaussian_softplus, log_cosh, logistic, row_dots, softplus,
    vectorised, vectorised_operation,
};
