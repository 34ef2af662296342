//! Feeds hostile bytes to `brenier_fuzz::model`.
#![no_main]

brenier_fuzz::target!(model);
