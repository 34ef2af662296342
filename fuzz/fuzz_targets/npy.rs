//! Feeds hostile bytes to `brenier_fuzz::npy`.
#![no_main]

brenier_fuzz::target!(npy);
