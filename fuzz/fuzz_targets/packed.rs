//! Feeds hostile bytes to `brenier_fuzz::packed`.
#![no_main]

brenier_fuzz::target!(packed);
