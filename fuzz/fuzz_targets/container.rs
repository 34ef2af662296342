//! Feeds hostile bytes to `brenier_fuzz::container`.
#![no_main]

brenier_fuzz::target!(container);
