//! `brenier demo`: from a simulator to a posterior that was checked, with pictures and a page.

use std::fmt::Write;
use std::time::Instant;

use brenier::check::{Against, Check, CheckSettings, Predictive, check};
use brenier::data::{self, Table, write_bytes};
use brenier::map::Method;
use brenier::report::{ObservationView, Picture, PictureSize, ReportPage};
use brenier::reproduce::lotka_volterra::{
    LvObservation, MEANINGS, PARAMETERS, PredictedPaths, TRUTHS, output_names, pair_picture, pairs, settings,
};
use brenier::simulate::LotkaVolterra;
use brenier::statistics::ColumnSummary;
use brenier::{Error, Mode, ModeSettings, Posterior, Run, Units};

use crate::args::DemoArguments;
use crate::failure::Failure;
use crate::interrupt::stop_on_interrupt;
use crate::lock::Lock;
use crate::output;
use crate::screen::Screen;

const SEED: u64 = 1;
const TEST_ROWS: u64 = 2000;
const DRAWS: usize = 2000;
/// Simulated futures in a predictive picture.
const PATHS: usize = 400;
/// Seeds that share no stream with the training table's.
const TEST_SEED: u64 = 1_000_003;
const OBSERVED_SEED: u64 = 2_000_003;

pub(crate) fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let (folder, rows) = (&arguments.out, arguments.rows);
    std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))?;
    let _lock = Lock::folder(folder)?;
    let say = |text: &str| if output::quiet() { Ok(()) } else { output::result(text) };
    let started = Instant::now();
    say(&format!(
        "Predators eat prey. Four rates decide how both breed and die, in a random process that can be simulated but\n\
         whose likelihood cannot be computed. From {rows} simulations with rates drawn from a wide prior we learn, once,\n\
         the posterior of the four rates given nine summaries of a path; then we look at two observed paths, whose\n\
         rates we pretend not to know, and ask whether the answers can be trusted.\n\n"
    ))?;

    say(&format!("1. Simulating {rows} pairs of rates and summaries\n"))?;
    let stop = stop_on_interrupt()?;
    let mut screen = Screen::new();
    let interrupted = || Failure::Interrupted("stopped before anything was learned".to_owned());
    let table = pairs(rows, SEED, Run::observed(&mut screen).stop(&stop))?.ok_or_else(interrupted)?;
    let test =
        pairs(TEST_ROWS, TEST_SEED, Run::observed(&mut screen).stop(&stop))?.ok_or_else(interrupted)?;
    drop(screen);
    data::write(&folder.join("simulations.parquet"), &table)?;
    data::write(&folder.join("held-out.parquet"), &test)?;

    say("2. Learning the posterior map (PCP-Map, all cores)\n")?;
    let mut settings = settings(Method::default(), rows, SEED)?;
    settings.train.epochs = arguments.epochs;
    let mut screen = Screen::new();
    let fitted = brenier::fit(&table, &settings, Run::observed(&mut screen).stop(&stop))?;
    drop(screen);
    if !fitted.validated {
        return Err(interrupted());
    }
    let model = fitted.posterior;
    let model_path = folder.join("model.brenier");
    model.save(&model_path)?;

    say("3. Posteriors at two observed paths\n")?;
    let observed = TRUTHS
        .iter()
        .map(|&truth| LvObservation::simulate(truth, OBSERVED_SEED))
        .collect::<Result<Vec<_>, _>>()?;
    let given: Vec<f64> = observed.iter().flat_map(|one| one.summaries.iter().copied()).collect();
    let at = model.at_rows(&given, observed.len()).seed(SEED).stop(&stop);
    let draws = at.sample(DRAWS)?;
    let how = ModeSettings { units: Units::Standardised, ..ModeSettings::default() };
    let modes = at.modes(&how)?.into_iter().collect::<Result<Vec<_>, _>>()?;
    write_tables(folder, &observed, &draws.values, &draws.observation)?;

    say("4. Checking the map on simulations it has not seen\n")?;
    let checking = CheckSettings {
        pairs: 500,
        draws: Some(500),
        predictive_observations: 50,
        seed: SEED,
        ..CheckSettings::default()
    };
    let simulator = LotkaVolterra::default();
    let mut screen = Screen::new();
    let against = Against { simulator: Some(&simulator), others: &[] };
    let found = check(&model, &test, &checking, against, Run::observed(&mut screen).stop(&stop))?;
    let run = Run::observed(&mut screen).stop(&stop);
    let predictive = Predictive::at(&model, &given, &simulator, &checking, run)?;
    drop(screen);

    let mut views = Vec::new();
    for (which, (observation, mode)) in observed.iter().zip(&modes).enumerate() {
        let own = &draws.values[which * DRAWS * 4..(which + 1) * DRAWS * 4];
        let paths = PredictedPaths::simulate(own, PATHS, SEED);
        let pairs_svg =
            pair_picture(&[("posterior draws", own)], None, observation.truth, Some(&mode.point))?;
        let paths_svg = paths.picture(observation, PictureSize { width: 620, height: 420 })?;
        write_bytes(&folder.join(format!("pairs-{}.svg", which + 1)), pairs_svg.as_bytes())?;
        write_bytes(&folder.join(format!("predictive-{}.svg", which + 1)), paths_svg.as_bytes())?;
        views.push(ObservationView {
            name: format!("observed path {}", which + 1),
            note: format!(
                "Simulated with rates {}; the map has seen nine summaries of the path only.",
                observation.truth.map(|rate| rate.to_string()).join(", ")
            ),
            given: observation.summaries.clone(),
            draws: own.to_vec(),
            mode: Some(mode.point.clone()),
            truth: Some(observation.truth.to_vec()),
            predictive: predictive.rows.iter().find(|row| row.row == which).cloned(),
            pictures: vec![Picture {
                svg: paths_svg,
                title: format!("Paths simulated with rates from the posterior, observed path {}", which + 1),
                caption: format!(
                    "{PATHS} paths simulated with rates drawn from the posterior: median, central 50 % and 90 % at every \
                     time, a few single paths, and the observed path over them. {} more than 10 000 reactions and are left \
                     out.",
                    match paths.abandoned {
                        0 => "None had".to_owned(),
                        count => format!("{count} had"),
                    }
                ),
            }],
        });
    }
    let report = folder.join("report.html");
    write_bytes(&report, page(&model, &found, views, rows).to_html()?.as_bytes())?;

    let mut text = format!("\nDone in {:.0} seconds.\n", started.elapsed().as_secs_f64());
    for (which, (observation, mode)) in observed.iter().zip(&modes).enumerate() {
        let own = &draws.values[which * DRAWS * 4..(which + 1) * DRAWS * 4];
        text.push_str(&posterior_text(which, observation, own, mode)?);
    }
    let _ = write!(
        text,
        "\nCan it be trusted? {}: {}\n\n\
         Open {} for pictures, the checks behind that verdict and how to make it again.\n{}",
        found.verdict.trust.to_string().to_uppercase(),
        found.verdict.headline,
        report.display(),
        files(&model, rows)
    );
    let _ = write!(
        text,
        "\nNext:\n  brenier info {0}\n  brenier sample {0} --observed {1} -n 5\n  brenier check {0} {2}\n  \
         brenier simulate --help          # a simulator of your own\n",
        model_path.display(),
        folder.join("observed.csv").display(),
        folder.join("held-out.parquet").display()
    );
    say(&text)?;
    Ok(())
}

fn page<'a>(
    model: &'a Posterior,
    found: &'a Check,
    views: Vec<ObservationView>,
    rows: u64,
) -> ReportPage<'a> {
    let page = ReportPage::new("Rates of a predator–prey process", model, found)
        .introduction(format!(
            "Stochastic Lotka–Volterra: predators and prey, four rates θ₁ to θ₄ ({}). The process starts with 50 predators and \
             100 prey and is recorded for 30 units of time. From {rows} simulations a PCP-Map has learned the posterior of the \
             rates given nine summaries of a path, for any path at once.",
            MEANINGS.join(", ")
        ))
        .source("Training table", "simulations.parquet")
        .source("Held-out table", "held-out.parquet")
        .source("Model file", "model.brenier")
        .command("brenier demo");
    views.into_iter().fold(page, ReportPage::observation)
}

fn write_tables(
    folder: &std::path::Path,
    observed: &[LvObservation],
    draws: &[f64],
    observation: &[u32],
) -> Result<(), Failure> {
    let parameters = || PARAMETERS.iter().map(|&name| name.to_owned());
    let names = parameters().chain(output_names()).collect();
    let values = observed.iter().flat_map(|one| one.truth.iter().chain(&one.summaries).copied()).collect();
    data::write(&folder.join("observed.csv"), &Table::new(names, values)?)?;
    let names = std::iter::once("observation".to_owned()).chain(parameters()).collect();
    let rows = draws.chunks_exact(PARAMETERS.len()).zip(observation);
    let values = rows
        .flat_map(|(theta, &which)| std::iter::once(f64::from(which) + 1.0).chain(theta.iter().copied()))
        .collect();
    data::write(&folder.join("samples.csv"), &Table::new(names, values)?)?;
    Ok(())
}

/// Median and central 90 % of every rate, beside the truth.
fn posterior_text(
    which: usize,
    observation: &LvObservation,
    draws: &[f64],
    mode: &Mode,
) -> Result<String, Failure> {
    let mut text = format!(
        "\nObserved path {}\n  {:26} {:>9} {:>9} {:>9}   90 % of the posterior\n",
        which + 1,
        "rate",
        "truth",
        "MAP",
        "median"
    );
    for (j, (name, meaning)) in PARAMETERS.iter().zip(MEANINGS).enumerate() {
        let mut column: Vec<f64> = draws.iter().skip(j).step_by(PARAMETERS.len()).copied().collect();
        let [low, _, median, _, high] = ColumnSummary::of(&mut column)?.quantiles;
        let truth = observation.truth[j];
        let inside = if (low..=high).contains(&truth) { "" } else { "   (truth outside)" };
        let short = name.replace("theta_", "θ");
        let _ = writeln!(
            text,
            "  {:26} {truth:9.4} {:9.4} {:9.4}   {low:.4} to {high:.4}{inside}",
            format!("{short} {meaning}"),
            mode.point[j],
            median
        );
    }
    Ok(text)
}

fn files(model: &Posterior, rows: u64) -> String {
    format!(
        "Beside it:\n\
         \x20 simulations.parquet, held-out.parquet   {rows} and {TEST_ROWS} simulated rows\n\
         \x20 model.brenier                           the learned map, {} parameters\n\
         \x20 observed.csv, samples.csv               the two observations, {DRAWS} draws at each\n\
         \x20 pairs-1.svg, pairs-2.svg                posteriors with truth and MAP\n\
         \x20 predictive-1.svg, predictive-2.svg      paths simulated from the posteriors\n",
        model.map().parameters()
    )
}
