//! Feeds hostile bytes to `brenier_fuzz::support`.
#![no_main]

brenier_fuzz::target!(support);
