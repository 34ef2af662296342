//! One file per command: read, call the library, write.

pub(crate) mod abc;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod cluster;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod demo;
pub(crate) mod density;
pub(crate) mod fit;
pub(crate) mod info;
pub(crate) mod man;
pub(crate) mod mode;
pub(crate) mod plot;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod sample;
pub(crate) mod simulate;
pub(crate) mod straightness;
pub(crate) mod tune;
