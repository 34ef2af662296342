//! Feeds hostile bytes to `brenier_fuzz::worker`.
#![no_main]

brenier_fuzz::target!(worker);
