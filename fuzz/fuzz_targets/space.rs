//! Feeds hostile bytes to `brenier_fuzz::space`.
#![no_main]

brenier_fuzz::target!(space);
