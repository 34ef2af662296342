//! A joint density: which rows of a table are unusual, and what belongs together?
//!
//! `cargo run --release -p brenier --example joint_density`

#![allow(clippy::print_stdout)]

use brenier::Fit;
use brenier::map::SampleSettings;

fn main() -> brenier::Result<()> {
    let table = brenier::example::simulate(1500, 0);
    let model = Fit::of("x1,x2").given("y").quick().joint().epochs(15).run(&table)?;
    let (target, given): (Vec<f64>, Vec<f64>) = {
        let rows: Vec<&[f64]> = table.iter().take(200).collect();
        (rows.iter().flat_map(|row| &row[..2]).copied().collect(), rows.iter().map(|row| row[2]).collect())
    };
    let densities = model.log_density_joint(&target, &given)?.joint().user;
    let least = densities.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    if let Some((row, density)) = least {
        println!("the least likely of the first 200 rows is row {}: log density {density:.2}", row + 1);
    }
    let draws = model.sample_joint(5, 0, &SampleSettings::default())?;
    for (x, y) in draws.target.chunks_exact(2).zip(&draws.given) {
        println!("a new row: x = ({:.2}, {:.2}), y = {y:.2}", x[0], x[1]);
    }
    Ok(())
}

#[test]
fn runs() {
    main().expect("the example runs");
}
