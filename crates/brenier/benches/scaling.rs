//! Cost against size: seconds of a training step against the number of targets, of given columns, the width and the threads, and
//! of preparing a table and one epoch against its rows.
//!
//! Prints one JSON line per measurement, then the exponents: the slope of log seconds against log size between each two
//! neighbours, and over the larger half of the sizes. `--picture FILE` draws the curves.
//!
//! usage: cargo bench --bench scaling [-- CURVE …] [--threads 2] [--steps N] [--most-rows 1000000] [--picture FILE.svg]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod common;

use std::path::Path;
use std::time::Instant;

use brenier::map::Method;
use brenier::map::cot::{CotMap, CotSettings, CotShape};
use brenier::map::npe::{FlowKind, NpeMap, NpeShape};
use brenier::map::pcp::{OutputActivation, PcpMap, PcpShape};
use brenier::report::{Curve, CurvePlot, DOTS_PER_INCH, PictureSize, write_picture};
use brenier::{FitSettings, Prepared, Run, Table};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::{ThreadPool, ThreadPoolBuilder};

use common::{Steps, measure};

/// Sizes of a training step.
#[derive(Clone, Copy)]
struct Size {
    target: usize,
    given: usize,
    width: usize,
    batch: usize,
}

/// That of the Lotka–Volterra experiment, from which every curve starts.
const USUAL: Size = Size { target: 4, given: 9, width: 128, batch: 256 };

/// Median seconds of a step of a method.
type Step = fn(Size, Steps, &ThreadPool) -> f64;

fn median(times: Vec<f64>) -> f64 {
    times[times.len() / 2]
}

fn pcp(size: Size, steps: Steps, pool: &ThreadPool) -> f64 {
    let shape = PcpShape {
        target: size.target,
        given: size.given,
        feature_width: size.width,
        context_width: size.width,
        depth: 2,
        output: OutputActivation::Identity,
        convexity: Default::default(),
        reference: Default::default(),
        front: Default::default(),
    };
    median(measure(PcpMap::<f32>::initial(shape, Default::default(), 0).unwrap(), size.batch, steps, pool))
}

fn cot(size: Size, steps: Steps, pool: &ThreadPool) -> f64 {
    let shape = CotShape::new(size.target, size.given, size.width, 2);
    let map = CotMap::<f32>::initial(shape, CotSettings::default(), 0).unwrap();
    median(measure(map, size.batch, steps, pool))
}

fn npe(size: Size, steps: Steps, pool: &ThreadPool) -> f64 {
    let shape =
        NpeShape { hidden_width: size.width, ..NpeShape::new(FlowKind::Nsf, size.target, size.given) };
    median(measure(NpeMap::<f32>::initial(shape, 0).unwrap(), size.batch, steps, pool))
}

const METHODS: [(&str, Step); 3] = [("PCP-Map", pcp), ("COT-Flow", cot), ("NPE", npe)];

/// Seconds against one of the sizes.
struct Measured {
    label: String,
    sizes: Vec<f64>,
    seconds: Vec<f64>,
}

impl Measured {
    /// The slope of log seconds against log size, by least squares over points `from` onwards.
    fn exponent(&self, from: usize) -> f64 {
        let log = |values: &[f64]| -> Vec<f64> { values[from..].iter().map(|value| value.ln()).collect() };
        let (x, y) = (log(&self.sizes), log(&self.seconds));
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (x_mean, y_mean) = (mean(&x), mean(&y));
        let products: f64 = x.iter().zip(&y).map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
        products / x.iter().map(|x| (x - x_mean).powi(2)).sum::<f64>()
    }

    fn report(&self, curve: &str) {
        let text = |values: &[f64], digits: usize| {
            let all: Vec<String> = values.iter().map(|value| format!("{value:.digits$}")).collect();
            all.join(", ")
        };
        let local: Vec<f64> = self
            .sizes
            .windows(2)
            .zip(self.seconds.windows(2))
            .map(|(x, y)| (y[1] / y[0]).ln() / (x[1] / x[0]).ln())
            .collect();
        println!(
            "# {curve}, {}: exponent {:.2} over the larger half; from size to size {}",
            self.label,
            self.exponent(self.sizes.len() / 2),
            text(&local, 2)
        );
    }
}

/// A step of every method against a size.
fn steps_against(
    curve: &str,
    sizes: &[usize],
    with: impl Fn(usize) -> Size,
    steps: Steps,
    pool: &ThreadPool,
) -> Vec<Measured> {
    let one = |&(label, step): &(&str, Step)| {
        let seconds = sizes
            .iter()
            .map(|&size| {
                let seconds = step(with(size), steps, pool);
                println!(
                    "{{\"curve\": \"{curve}\", \"method\": \"{label}\", \"size\": {size}, \"median_s\": {seconds:.6}}}"
                );
                seconds
            })
            .collect();
        Measured { label: label.to_owned(), sizes: sizes.iter().map(|&size| size as f64).collect(), seconds }
    };
    METHODS.iter().map(one).collect()
}

/// Four targets, each one of nine given columns with noise.
fn table(rows: usize) -> Table {
    let Size { target, given, .. } = USUAL;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut normal = || rng.sample::<f64, _>(StandardNormal);
    let mut values = Vec::with_capacity(rows * (target + given));
    for _ in 0..rows {
        let start = values.len();
        values.resize_with(start + target + given, &mut normal);
        for column in start..start + target {
            values[column] += values[column + target];
        }
    }
    let x = (1..=target).map(|column| format!("x{column}"));
    let names = x.chain((1..=given).map(|column| format!("y{column}"))).collect();
    Table::new(names, values).unwrap()
}

/// Seconds of preparing a table and of one epoch over it, and the memory that the rows take.
fn rows_curve(most: usize, pool: &ThreadPool) -> Vec<Measured> {
    let mut all = ["preparing", "one epoch of PCP-Map"].map(|label| Measured {
        label: label.to_owned(),
        sizes: Vec::new(),
        seconds: Vec::new(),
    });
    for power in 3..=7 {
        let rows = 10_usize.pow(power);
        if rows > most {
            break;
        }
        let table = table(rows);
        let columns = table.names().len();
        let settings = FitSettings::of(Method::PcpMap);
        let settings = FitSettings {
            target: Some("x1..x4".parse().unwrap()),
            given: Some("y1..y9".parse().unwrap()),
            train: brenier::train::TrainSettings { epochs: 1, batch_size: Some(256), ..settings.train },
            ..settings
        };
        let start = Instant::now();
        let prepared = pool.install(|| Prepared::new(&table, &settings)).unwrap();
        let preparing = start.elapsed().as_secs_f64();
        let start = Instant::now();
        pool.install(|| prepared.fit(&settings, Run::silent())).unwrap();
        let epoch = start.elapsed().as_secs_f64();
        // Double precision in the table, single precision in the prepared rows.
        let megabytes = 12 * rows * columns / 1_000_000;
        println!(
            "{{\"curve\": \"rows\", \"size\": {rows}, \"columns\": {columns}, \"preparing_s\": {preparing:.4}, \
             \"epoch_s\": {epoch:.4}, \"rows_mb\": {megabytes}}}"
        );
        for (measured, seconds) in all.iter_mut().zip([preparing, epoch]) {
            measured.sizes.push(rows as f64);
            measured.seconds.push(seconds);
        }
    }
    all.into()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let after = |name: &str| arguments.iter().position(|a| a == name).map(|i| arguments[i + 1].clone());
    let number = |name: &str, default: usize| after(name).map_or(default, |text| text.parse().unwrap());
    let threads = number("--threads", 2);
    let steps = match number("--steps", 0) {
        0 => Steps::Enough,
        count => Steps::Timed(count),
    };
    let curves = ["targets", "given", "width", "threads", "rows"];
    let named: Vec<&str> =
        curves.into_iter().filter(|curve| arguments.iter().any(|argument| argument == curve)).collect();
    let wanted = |curve: &str| named.is_empty() || named.contains(&curve);
    let pool_of = |threads: usize| ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let pool = pool_of(threads);
    let mut pictures = Vec::new();
    for (curve, title, sizes, with) in [
        (
            "targets",
            "targets n",
            &[1, 2, 4, 8, 16, 32, 64, 128, 200][..],
            (|target| Size { target, batch: 64, ..USUAL }) as fn(usize) -> Size,
        ),
        ("given", "given columns m", &[1, 10, 100, 1000, 10_000], |given| Size { given, ..USUAL }),
        ("width", "width", &[32, 64, 128, 256, 512, 1024], |width| Size { width, ..USUAL }),
    ] {
        if wanted(curve) {
            pictures.push((curve, title, steps_against(curve, sizes, with, steps, &pool)));
        }
    }
    if wanted("threads") {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|&count| count <= cores).collect();
        for (label, step) in METHODS {
            let seconds: Vec<f64> = counts.iter().map(|&count| step(USUAL, steps, &pool_of(count))).collect();
            for (count, own) in counts.iter().zip(&seconds) {
                println!(
                    "{{\"curve\": \"threads\", \"method\": \"{label}\", \"size\": {count}, \"median_s\": {own:.6}, \
                     \"speedup\": {:.2}}}",
                    seconds[0] / own
                );
            }
        }
    }
    if wanted("rows") {
        pictures.push(("rows", "rows", rows_curve(number("--most-rows", 1_000_000), &pool)));
    }
    for (curve, _, all) in &pictures {
        all.iter().filter(|measured| measured.sizes.len() > 2).for_each(|measured| measured.report(curve));
    }
    if let Some(file) = after("--picture") {
        for (curve, title, all) in pictures {
            let mut plot = CurvePlot::new(title, "seconds").log_x().log_y();
            for measured in all {
                plot =
                    plot.curve(Curve::line(measured.label, measured.sizes, measured.seconds).with_markers());
            }
            let svg = plot.to_svg(PictureSize { width: 420, height: 300 }).unwrap();
            let path = Path::new(&file);
            let name = format!("{}-{curve}", path.file_stem().unwrap().to_string_lossy());
            let path = path.with_file_name(name).with_extension(path.extension().unwrap_or_default());
            write_picture(&path, &svg, DOTS_PER_INCH).unwrap();
            println!("# wrote {}", path.display());
        }
    }
}
