//! Feeds hostile bytes to `brenier_fuzz::csv`.
#![no_main]

brenier_fuzz::target!(csv);
