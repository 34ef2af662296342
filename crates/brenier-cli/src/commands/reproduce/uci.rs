//! `brenier reproduce uci`: the table of six data sets.

use std::fmt::Write;

use brenier::data::{self, UciSet, uci_sets};
use brenier::reproduce::{UciEvent, UciReproduction, UciScore, UciTable};
use brenier::{Event, Run};

use super::make;
use crate::commands::data::fetch_sets;
use crate::commands::tune::Screen;
use crate::failure::Failure;
use crate::interrupt::stop_on_interrupt;
use crate::lock::Lock;
use crate::output;
use crate::reproduce_args::UciArguments;

pub(super) fn run(arguments: &UciArguments) -> Result<(), Failure> {
    let sets: Vec<&'static UciSet> = match arguments.dataset.as_slice() {
        [] => uci_sets().iter().collect(),
        names => names.iter().map(|name| UciSet::find(name)).collect::<Result<_, _>>()?,
    };
    let methods = arguments.methods();
    let out = &arguments.out;
    let protocol = arguments.protocol();
    let data_dir = match &arguments.data_dir {
        Some(folder) => folder.clone(),
        None => {
            let folder = out.join("data");
            fetch_sets(&sets, &folder, None, output::quiet())?;
            folder
        }
    };
    // Every table is read and checked before the first training.
    let mut cells = Vec::new();
    for &set in &sets {
        for &method in &methods {
            let cell = UciReproduction::new(set, method, &data_dir, &protocol)?;
            cells.push((format!("{}-{}", set.name, method.name()), cell));
        }
    }
    let stop = stop_on_interrupt()?;
    if let Some((trial, repeat)) = arguments.row {
        let [(name, cell)] = cells.as_slice() else {
            return Err(Failure::Usage("--row needs one --dataset and one --method".to_owned()));
        };
        make(out)?;
        let _lock = Lock::folder(out)?;
        let (model, score) = cell.one(trial, repeat, &stop)?;
        if stop.is_stopped() {
            return Err(Failure::Interrupted(
                "stopped before the training was complete: no model was written".to_owned(),
            ));
        }
        let path = out.join(format!("{name}-{trial}-{repeat}.brenier"));
        model.save(&path)?;
        let (header, line) = (score_header(), score_line(&score));
        output::result(&format!("{header}{line}model {}\n", path.display()))?;
        return Ok(());
    }
    for (name, _) in &cells {
        let folder = out.join(name);
        if !arguments.resume && folder.exists() {
            return Err(Failure::Usage(format!(
                "{} holds an earlier run: add --resume to go on with it, or choose another --out",
                folder.display()
            )));
        }
    }
    let mut table = UciTable::open(out, &protocol)?;
    make(out)?;
    let _lock = Lock::folder(out)?;
    let mut missing = false;
    for (name, cell) in &cells {
        if stop.is_stopped() && !out.join(name).exists() {
            missing = true;
            continue;
        }
        if !output::quiet() {
            output::note(&format!("{name}:"));
        }
        let folder = out.join(name);
        let mut screen = Screen::new(output::quiet(), true);
        let mut observer = |event: &Event| {
            match event {
                Event::Tune(event) => screen.show(event),
                Event::Uci(UciEvent::Folds { count }) => screen.stage("folds", 0, *count),
                Event::Uci(UciEvent::Fold { nll }) => screen.step(Some(*nll), None),
                _ => {}
            }
            Ok(())
        };
        let run = Run::observed(&mut observer).stop(&stop);
        let (result, outcome) = cell.run(&folder, run)?;
        drop(screen);
        data::write_bytes(&folder.join("results.csv"), outcome.to_csv().as_bytes())?;
        let lines: String = result.scores.iter().map(score_line).collect();
        data::write_bytes(&folder.join("scores.csv"), format!("{}{lines}", score_header()).as_bytes())?;
        let finished = result.complete;
        table.put(result);
        table.write(out)?;
        missing |= !finished;
    }
    output::result(&table.markdown())?;
    if missing {
        output::warning("not everything was run: re-run the same command with --resume to continue");
    }
    Ok(())
}

fn score_header() -> String {
    "trial,repeat,seed,valid_nll,test_nll,mmd_squared,mmd_root,joint_mmd_root,training_mmd_root,epochs,steps,seconds\n"
        .to_owned()
}

/// Every digit, so that two runs can be told apart or found equal.
fn score_line(score: &UciScore) -> String {
    let training = &score.training;
    let mut line = format!("{},{},{},", training.trial, training.repeat, training.seed);
    let _ = writeln!(
        line,
        "{},{},{},{},{},{},{},{},{:.2}",
        training.valid_nll.map(|nll| nll.to_string()).unwrap_or_default(),
        score.nll,
        score.mmd.0,
        score.mmd.1,
        score.joint_mmd.map(|mmd| mmd.1.to_string()).unwrap_or_default(),
        score.training_mmd.map(|mmd| mmd.1.to_string()).unwrap_or_default(),
        training.epochs,
        training.steps,
        training.seconds
    );
    line
}
