//! Feeds hostile bytes to `brenier_fuzz::selection`.
#![no_main]

brenier_fuzz::target!(selection);
