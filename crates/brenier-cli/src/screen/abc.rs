//! SMC-ABC: the simulations of a round as a bar, a line for every round.

use brenier::abc::{AbcEvent, Round};
use indicatif::HumanCount;

use super::display::Display;

const BAR: &str = "{bar:20} {msg}";

pub(super) fn show(event: &AbcEvent, display: &mut Display) {
    match event {
        AbcEvent::Started { resumed_rounds, .. } if *resumed_rounds > 0 => {
            display.say(&format!("continuing after {resumed_rounds} rounds"));
        }
        AbcEvent::Pilot { done, rows } => {
            if let Some(bar) = display.bar(BAR) {
                bar.set_length(*rows);
                bar.set_position(*done);
                bar.set_message(format!("pilot {done}/{rows}"));
            }
        }
        AbcEvent::Progress { round, tolerance, accepted, wanted, acceptance, total_simulations } => {
            if let Some(bar) = display.bar(BAR) {
                bar.set_length(*wanted as u64);
                bar.set_position(*accepted as u64);
                bar.set_message(format!(
                    "round {round} ε {tolerance:.4} {accepted}/{wanted} ({:.3} %), {} simulations",
                    100.0 * acceptance,
                    HumanCount(*total_simulations)
                ));
            }
        }
        AbcEvent::Round(round) => display.say(&line(round)),
        // A fresh start, and events that are newer than this screen, are not shown.
        _ => {}
    }
}

fn line(round: &Round) -> String {
    format!(
        "round {:2}  ε {:<8.4}  {:7.3} % accepted  {:>9} simulations  effective {:.0}{}",
        round.round,
        round.tolerance,
        100.0 * round.acceptance,
        HumanCount(round.total_simulations).to_string(),
        round.effective,
        if round.resampled { ", resampled" } else { "" }
    )
}
