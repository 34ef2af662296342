//! All tests of the command, in one program: it is linked once.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

mod check;
mod cluster;
mod common;
mod compare;
mod data;
mod disk_full;
mod files;
mod grammar;
mod kill;
mod mistakes;
mod plot;
mod reproducible;
mod simulate;
mod snapshots;
mod summary;
mod tables;
mod tune;
mod workflow;
