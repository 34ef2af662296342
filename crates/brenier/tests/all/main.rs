//! All tests of the library from outside, in one program: it is linked once.

mod check;
mod contract;
mod fixtures;
mod hard_draws;
mod hostile;
mod known_answers;
mod methods;
mod surface;
mod tune;
