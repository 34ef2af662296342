//! Feeds hostile bytes to `brenier_fuzz::arrow`.
#![no_main]

brenier_fuzz::target!(arrow);
