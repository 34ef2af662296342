//! Own data in memory: from two vectors to draws, densities and the most likely point.
//!
//! `cargo run --release -p brenier --example own_data`

#![allow(clippy::print_stdout)]

use brenier::Fit;
use brenier::data::Table;
use brenier::transform::Support;

fn main() -> brenier::Result<()> {
    // A concentration that decays at an unknown rate, seen once: y = exp(−rate) and some noise.
    let pairs: Vec<f64> = (0..2000)
        .flat_map(|i| {
            let rate = 0.1 + 2.9 * (f64::from(i) * 0.618_034).fract();
            let noise = 0.05 * ((f64::from(i) * 0.754_878).fract() - 0.5);
            [rate, (-rate).exp() + noise]
        })
        .collect();
    let table = Table::new(vec!["rate".to_owned(), "level".to_owned()], pairs)?;
    let posterior = Fit::of("rate").given("level").support("rate", Support::Log).epochs(20).run(&table)?;

    let at = posterior.at(&[0.4])?;
    let draws = at.sample(1000)?;
    print!("{draws}");
    let mode = &at.mode()?[0];
    println!("most likely rate {:.3}; a level of 0.4 means {:.3}", mode.point[0], -0.4_f64.ln());
    let density = at.log_density(&[-1.0, 0.9])?;
    println!("log density of the rates -1 and 0.9: {:.2} and {:.2}", density.user[0], density.user[1]);
    Ok(())
}

#[test]
fn runs() {
    main().expect("the example runs");
}
