//! Tables of numbers: reading and writing them, choosing columns, and splitting rows.
//!
//! A [`Table`] is read with [`read`], which learns the column names first, asks its caller which columns are
//! wanted, and then parses and holds only those. Delimited text, Parquet, Arrow, `.npy` and `.npz` are understood, each
//! in its own file; [`write()`] produces the same formats. Text may be compressed with gzip or zstd. A [`Selection`] such as `a,b,y1..y9` names columns
//! the way a user types them, and a [`Split`] deals rows into training, validation and test parts. [`uci_sets`] are
//! the public tables on which maps are compared; with the feature `fetch` they can be downloaded.
//!
//! ```no_run
//! use brenier::data::{ReadOptions, Selection, read, resolve_pair};
//! # fn main() -> brenier::Result<()> {
//! let target: Selection = "theta1..theta3".parse()?;
//! let table = read("simulations.parquet".as_ref(), &ReadOptions::default(), |names| {
//!     let (mut target, given) = resolve_pair(&target, &Selection::Rest, names)?;
//!     target.extend(given);
//!     Ok(target)
//! })?
//! .table;
//! # let _ = table;
//! # Ok(())
//! # }
//! ```

mod arrow;
mod atomic;
mod cell;
mod contain;
mod correlation;
mod csv;
mod encode;
#[cfg(feature = "fetch")]
mod fetch;
mod flat;
mod format;
mod lines;
mod mt19937;
mod npy;
mod parquet;
mod rows;
mod select;
mod source;
mod split;
mod table;
mod thrift;
mod uci;

pub use atomic::{check_folder, discard, write_bytes};
pub use contain::is_decoding;
pub use correlation::correlated_columns;
pub use encode::{CategoricalColumn, Encoding};
#[cfg(feature = "fetch")]
pub use fetch::{FetchEvent, FetchSettings, Fetched, fetch_uci};
pub use format::{Choice, Decimal, Format, Missing, Output, Read, ReadOptions, read, read_categories, write};
pub use rows::Levels;
pub use select::{Pick, Selection, resolve_pair};
pub use split::{Split, SplitProtocol};
pub use table::{Table, short_name};
pub use uci::{UCI_MAX_CORRELATION, UciSet, uci_sets};
