//! `brenier demo`: a built-in problem with a known answer, from simulation to picture.

use std::fmt::Write;

use brenier::data::{self, Output, Table, write_bytes};
use brenier::map::SampleSettings;
use brenier::report::{ConditionalPanel, ConditionalPanels, PictureSize};
use brenier::train::TrainSettings;
use brenier::{Error, FitControl, FitSettings, ModeSettings, NetworkSettings, Posterior, demo};

use super::density::{score, standard_error};
use super::fit::stop_on_interrupt;
use crate::args::DemoArguments;
use crate::failure::Failure;
use crate::{output, progress};

const SEED: u64 = 1;
const ROWS: usize = 10_000;
const TEST_ROWS: usize = 10_000;
const DRAWS: usize = 2000;
/// Draws in each panel of the picture, which keeps the file small enough for a web page.
const PANEL_DRAWS: usize = 540;
/// The values of y at which draws are shown.
const GIVEN: [f64; 3] = [-1.2, 0.0, 1.2];

pub(crate) fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let folder = &arguments.out;
    std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))?;
    let say = |text: &str| if arguments.quiet { Ok(()) } else { output::result(text) };

    say(&format!(
        "A value y between -1.5 and 1.5 decides the shape of a cloud of points (x1, x2): one arch at low y, two\n\
         arms of a bowl at high y. From {ROWS} simulated rows (y, x1, x2) we learn the distribution of (x1, x2)\n\
         given y, then draw from it at y = -1.2, 0 and 1.2. The exact density is known, so we can check.\n\n"
    ))?;
    let table = demo::simulate(ROWS, SEED);
    data::write(&Output::Path(folder.join("data.csv")), &table)?;
    let settings = settings()?;
    let mut screen = progress::screen(arguments.quiet, settings.train.minutes);
    let stop = stop_on_interrupt()?;
    let fitted =
        brenier::fit(table, &settings, FitControl { observer: screen.as_mut(), stop, checkpoint: None })?;
    drop(screen);
    for text in &fitted.warnings {
        output::warning(text);
    }
    let model = fitted.posterior;
    model.save(&folder.join("model.brenier"))?;

    let [given, first, second] = demo::NAMES;
    let test = demo::simulate(TEST_ROWS, SEED + 1).select_columns(&[1, 2, 0]);
    let learned = score(&model, &test)?.whole.user;
    let exact: Vec<f64> = test.iter().map(|row| demo::log_density([row[0], row[1]], row[2])).collect();
    let gaps: Vec<f64> = exact.iter().zip(&learned).map(|(exact, learned)| exact - learned).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;

    let draws = model.sample(&GIVEN, GIVEN.len(), DRAWS, SEED, &SampleSettings::default())?;
    let modes = model.mode(&GIVEN, GIVEN.len(), SEED, &ModeSettings::default())?;
    let rows = draws.values.chunks_exact(2).zip(&draws.observation);
    let values = rows.flat_map(|(x, &o)| [GIVEN[o as usize], x[0], x[1]]).collect();
    let samples = Table::new(demo::NAMES.map(str::to_owned).into(), values)?;
    data::write(&Output::Path(folder.join("samples.csv")), &samples)?;
    write_bytes(&folder.join("posterior.svg"), picture(&draws.values)?.as_bytes())?;

    let mut text = format!(
        "On {TEST_ROWS} new rows the mean negative log-likelihood (lower is better, none can beat the true one) is\n\
         \x20 learned map   {:.4}\n\
         \x20 true density  {:.4}\n\
         so the map loses {:.4} ± {:.4} nats a row.\n\n\
         Highest posterior density (MAP):\n",
        -mean(&learned),
        -mean(&exact),
        mean(&gaps),
        standard_error(&gaps),
    );
    for (y, mode) in GIVEN.iter().zip(&modes) {
        let exact = demo::log_density([mode.point[0], mode.point[1]], *y);
        let _ = writeln!(
            text,
            "  {given} = {y:4}:  {first} = {:7.4}, {second} = {:7.4}, log density {:.3} (exact there: {exact:.3})",
            mode.point[0], mode.point[1], mode.log_density
        );
    }
    let _ = write!(text, "\nWritten to {}:\n{}", folder.display(), files(&model));
    let model_path = folder.join("model.brenier");
    let _ = write!(
        text,
        "\nNext:\n  brenier info {0}\n  brenier sample {0} --at y=0.5 -n 5\n  brenier fit {1} --target x1,x2 --given y --out mine.brenier\n",
        model_path.display(),
        folder.join("data.csv").display()
    );
    say(&text)?;
    Ok(())
}

/// Small enough to end within half a minute on two cores.
fn settings() -> Result<FitSettings, Failure> {
    let [given, first, second] = demo::NAMES;
    Ok(FitSettings {
        target: Some(format!("{first},{second}").parse()?),
        given: Some(given.parse()?),
        seed: SEED,
        network: NetworkSettings { feature_width: Some(64), ..NetworkSettings::default() },
        train: TrainSettings { epochs: 150, minutes: Some(0.75), ..TrainSettings::default() },
        ..FitSettings::default()
    })
}

fn files(model: &Posterior) -> String {
    format!(
        "  data.csv       {ROWS} simulated rows\n\
         \x20 model.brenier  the learned map, {} parameters\n\
         \x20 samples.csv    {DRAWS} draws at each of {} values of y\n\
         \x20 posterior.svg  the draws over the exact density\n",
        model.map().shape().parameters(),
        GIVEN.len()
    )
}

fn picture(draws: &[f64]) -> Result<String, Error> {
    let row = ConditionalPanels::new(["x₁", "x₂"]).limits([-3.6, 3.6], [-3.9, 3.9]);
    let panels = GIVEN.iter().zip(draws.chunks_exact(2 * DRAWS)).fold(row, |row, (&y, draws)| {
        row.panel(
            ConditionalPanel::new(format!("y = {y}"), draws[..2 * PANEL_DRAWS].to_vec())
                .log_density(move |a, b| demo::log_density([a, b], y)),
        )
    });
    panels.to_svg(PictureSize { width: 720, height: 290 })
}
