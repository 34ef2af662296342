//! Feeds hostile bytes to `brenier_fuzz::settings`.
#![no_main]

brenier_fuzz::target!(settings);
