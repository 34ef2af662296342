//! Containing the panics of decoders that are not ours.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local!(static DECODING: Cell<bool> = const { Cell::new(false) });

/// Whether this thread runs a decoder whose panic is contained and becomes an error of the file. A panic hook should
/// keep silent then.
pub fn is_decoding() -> bool {
    DECODING.get()
}

/// The outcome of `decode`; none if it panics.
pub(super) fn contain<T>(decode: impl FnOnce() -> T) -> Option<T> {
    let before = DECODING.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(decode));
    DECODING.set(before);
    outcome.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_contained_and_announced_while_it_lasts() {
        assert!(!is_decoding());
        assert_eq!(contain(is_decoding), Some(true));
        assert_eq!(contain(|| -> u8 { std::panic::resume_unwind(Box::new("hostile")) }), None);
        assert!(!is_decoding());
    }
}
