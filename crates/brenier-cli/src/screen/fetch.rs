//! A download: its bytes as a bar, attempts that failed as warnings.

use brenier::data::FetchEvent;

use super::display::Display;

const BAR: &str = "{msg:12} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";

pub(super) fn show(event: &FetchEvent, name: &str, display: &mut Display) {
    match event {
        FetchEvent::Started { have, total, .. } => {
            if let Some(bar) = display.bar(BAR) {
                bar.set_message(name.to_owned());
                if let Some(total) = total {
                    bar.set_length(*total);
                }
                bar.set_position(*have);
            }
        }
        FetchEvent::Received { bytes } => display.advance(BAR, *bytes),
        FetchEvent::Failed { problem } => display.warn(&format!("{name}: {problem}")),
        // Events that are newer than this screen are not shown.
        _ => {}
    }
}
