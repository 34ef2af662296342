//! All tests of the library from outside, in one program: it is linked once.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]

mod abc;
mod calibration;
mod check;
mod choice;
mod contract;
mod cot;
mod cpflow;
mod fixtures;
mod hard_draws;
mod hostile;
mod known_answers;
mod matching;
mod methods;
mod surface;
mod tasks;
mod tune;
mod two_samples;
mod wide;
