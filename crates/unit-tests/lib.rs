//! The unit tests of most crates: see Cargo.toml. There is nothing here but them.
