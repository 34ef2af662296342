//! Public tables fetched into a folder, for `data fetch` and for experiments.

use std::path::Path;

use brenier::data::{self, FetchSettings, Fetched, UciSet};
use brenier::{Error, Run};

use crate::failure::Failure;
use crate::interrupt::stop_on_interrupt_saying;
use crate::lock::Lock;
use crate::output;
use crate::screen::Screen;

/// Fetches what `dir` does not hold yet.
pub(crate) fn fetch_sets(
    sets: &[&UciSet],
    dir: &Path,
    mirror: Option<&str>,
    quiet: bool,
) -> Result<(), Failure> {
    let mut settings = FetchSettings::default();
    if let Some(mirror) = mirror {
        mirror.clone_into(&mut settings.mirror);
    }
    std::fs::create_dir_all(dir).map_err(|source| Error::io(dir, "make the folder", source))?;
    let _lock = Lock::folder(dir)?;
    let stop = stop_on_interrupt_saying("stopping: what was received is kept (press Ctrl-C again to abort)")?;
    for set in sets {
        let mut screen = Screen::new().fetching(set.name);
        let fetched = data::fetch_uci(set, dir, &settings, Run::observed(&mut screen).stop(&stop));
        drop(screen);
        let what = match fetched? {
            Fetched::Present => "was there already",
            Fetched::Downloaded => "downloaded and checked",
            _ => "fetched",
        };
        if !quiet {
            output::result(&format!(
                "{}  {what}: {} rows of {} columns; cite {}, doi:{}\n",
                set.path(dir).display(),
                set.rows,
                set.columns.len(),
                set.title,
                set.doi
            ))?;
        }
    }
    if !quiet {
        output::note("the tables are licensed CC BY 4.0; separators and column names were changed");
    }
    Ok(())
}
