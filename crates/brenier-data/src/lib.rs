//! Tables of numbers: reading and writing them, choosing columns, and splitting rows; and what every layer shares: the
//! [`Error`] and the [`Run`] of a long call.
//!
//! A [`Table`] is read with [`read`], which learns the column names first, asks its caller which columns are
//! wanted, and then parses and holds only those. Delimited text, Parquet, Arrow, `.npy` and `.npz` are understood, each
//! in its own file; [`write()`] produces the same formats. [`read_from`] and [`write_to`] do the same with any stream. Text may be compressed with gzip or zstd. A [`Selection`] such as `a,b,y1..y9` names columns
//! the way a user types them, and a [`Split`] splits rows into training, validation and test parts. [`uci_sets`] are
//! the public tables on which maps are compared; with the feature `fetch` they can be downloaded.
//!
//! ```no_run
//! use brenier_data::{ReadOptions, Selection, read, resolve_pair};
//! # fn main() -> brenier_data::Result<()> {
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

#[cfg(feature = "files")]
mod arrow;
mod atomic;
#[cfg(feature = "files")]
mod cell;
#[cfg(feature = "files")]
mod contain;
mod correlation;
#[cfg(feature = "files")]
mod csv;
mod encode;
mod error;
#[cfg(feature = "fetch")]
mod fetch;
#[cfg(feature = "files")]
mod flat;
#[cfg(feature = "files")]
mod format;
#[cfg(feature = "files")]
mod lines;
mod log;
#[cfg(feature = "files")]
mod memory;
mod mt19937;
#[cfg(feature = "files")]
mod npy;
#[cfg(feature = "files")]
mod parquet;
#[cfg(feature = "files")]
mod rows;
mod run;
mod select;
#[cfg(feature = "files")]
mod source;
mod split;
mod table;
#[cfg(feature = "files")]
mod thrift;
#[cfg(feature = "files")]
mod uci;

pub use atomic::{check_folder, discard, write_bytes};
#[cfg(feature = "files")]
pub use contain::is_decoding;
pub use correlation::correlated_columns;
pub use encode::{CategoricalColumn, Encoding, Levels, Read};
pub use error::{Error, Result};
#[cfg(feature = "fetch")]
pub use fetch::{FetchEvent, FetchSettings, Fetched, fetch_uci};
#[cfg(feature = "files")]
pub use format::{
    ColumnChoice, Decimal, Format, Missing, ReadOptions, read, read_categories, read_from, write, write_to,
};
pub use log::{Log, LogFormat, LogReader};
#[cfg(feature = "files")]
pub use memory::{Content, take_categories};
#[cfg(feature = "files")]
pub use rows::CATEGORIES;
pub use run::{Event, EventKind, Journal, Observer, Run, Silent, StopToken};
pub use select::{Pick, Selection, resolve_pair};
pub use split::{Split, SplitProtocol};
pub use table::{Table, short_name};
#[cfg(feature = "files")]
pub use uci::{UCI_MAX_CORRELATION, UciSet, uci_sets};
