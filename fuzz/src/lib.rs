//! One function per reader: it must return, whatever the bytes are. The fuzz targets call these, and so does
//! `crates/brenier/tests/hostile.rs`, which runs the seeds and simple mutations of them in the ordinary tests.

mod contained;
mod readers;

pub use contained::report_own_panics;
pub use readers::*;

/// Declares a target that feeds its input to one of the functions here.
#[macro_export]
macro_rules! target {
    ($reader:ident) => {
        ::libfuzzer_sys::fuzz_target!(init: $crate::report_own_panics(), |data: &[u8]| {
            $crate::$reader(data);
        });
    };
}
