//! Feeds hostile bytes to `brenier_fuzz::prior`.
#![no_main]

brenier_fuzz::target!(prior);
