//! The unit tests of all crates: see Cargo.toml. There is nothing here but them.
