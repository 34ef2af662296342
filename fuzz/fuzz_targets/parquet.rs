//! Feeds hostile bytes to `brenier_fuzz::parquet`.
#![no_main]

brenier_fuzz::target!(parquet);
