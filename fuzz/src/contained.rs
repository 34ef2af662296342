//! Which panics are findings: those of Brenier's own code.

/// Aborts on a panic, unless a decoder of somebody else's raises it on a damaged file and the reader makes it an error.
pub fn report_own_panics() {
    // Work stays on the thread that libFuzzer watches.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or("", |place| place.file());
        if !(brenier::data::is_decoding() && place.contains("/registry/")) {
            eprintln!("{panic}");
            std::process::abort();
        }
    }));
}
