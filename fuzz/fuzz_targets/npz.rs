//! Feeds hostile bytes to `brenier_fuzz::npz`.
#![no_main]

brenier_fuzz::target!(npz);
