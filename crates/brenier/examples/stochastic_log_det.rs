//! What the stochastic log-determinant of CP-Flow does: its noise, its bias, and where single precision breaks it.
//!
//! usage: cargo run --release -p brenier --example stochastic_log_det
//!
//! The potentials have 14 target columns, as the shallow-water problem; the columns' scales spread over more and more powers of
//! ten and the quadratic term fades, so that the Hessian's condition number grows. Every line is over 400 rows.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use brenier::Real;
use brenier::map::cpflow::{CpFlowInverter, CpFlowMap, CpFlowShape, LogDet};
use brenier::map::{ConditionalMap, Trainable, TransportMap};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const ROWS: usize = 400;
const TARGET: usize = 14;

/// Loss of every row alone with its gradient: exact, or estimated.
fn each<T: Real>(map: &CpFlowMap<T>, x: &[f64]) -> Vec<(f64, Vec<f64>)> {
    let mut workspace = map.workspace(1);
    x.chunks_exact(TARGET)
        .map(|row| {
            let (slot, _) = map.load(&mut workspace, 1);
            slot.iter_mut().zip(row).for_each(|(slot, &x)| *slot = T::from_f64(x));
            let loss = map.adjoints(&mut workspace).unwrap_or(f64::NAN);
            let mut gradient = vec![T::ZERO; map.parameters().len()];
            for (index, block) in map.blocks(&workspace).iter().enumerate() {
                map.block_gradient(&workspace, index, &mut gradient[block.range.clone()]);
            }
            (loss, gradient.into_iter().map(|g| g.to_f64()).collect())
        })
        .collect()
}

/// Not finite, mean and deviation of the error of the loss, and the relative error of one row's and of the mean gradient.
fn compare(estimated: &[(f64, Vec<f64>)], exact: &[(f64, Vec<f64>)]) -> String {
    let size = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    let finite =
        |(loss, gradient): &(f64, Vec<f64>)| loss.is_finite() && gradient.iter().all(|g| g.is_finite());
    let pairs: Vec<_> = estimated.iter().zip(exact).collect();
    let kept: Vec<_> = pairs.iter().filter(|pair| finite(pair.0)).collect();
    if kept.is_empty() {
        return format!("{:>5} of {ROWS} not finite", pairs.len());
    }
    let count = kept.len() as f64;
    let errors: Vec<f64> = kept.iter().map(|(a, b)| a.0 - b.0).collect();
    let mean = errors.iter().sum::<f64>() / count;
    let deviation = (errors.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / count).sqrt();
    let apart = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
    let mut single: Vec<f64> = kept.iter().map(|(a, b)| size(&apart(&a.1, &b.1)) / size(&b.1)).collect();
    single.sort_by(f64::total_cmp);
    format!(
        "{:>5} of {ROWS} not finite | loss off by {mean:>8.3} ± {deviation:<8.3} | gradient of a row off by {:.0} % (median)",
        pairs.len() - kept.len(),
        100.0 * single[single.len() / 2],
    )
}

fn main() {
    let shape = CpFlowShape { target: TARGET, given: 0, width: 64, depth: 3, blocks: 1 };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let x: Vec<f64> = (0..ROWS * TARGET).map(|_| rng.sample(StandardNormal)).collect();
    for (decades, quadratic) in [(0.0, 0.54), (1.0, -4.0), (2.0, -9.0), (3.0, -14.0), (4.0, -18.0)] {
        let mut map = CpFlowMap::<f64>::initial(shape, 2).unwrap();
        map.normalise(&x, &[]).unwrap();
        for spec in map.tensors() {
            for (place, index) in spec.indices().enumerate() {
                let parameter = &mut map.parameters_mut()[index];
                match spec.name.as_str() {
                    "w" if place == 0 => *parameter = quadratic,
                    "X.0" | "X.1" | "X.2" => {
                        let column = (place % TARGET) as f64 / (TARGET - 1) as f64;
                        *parameter *= 10.0_f64.powf(-0.5 * decades * column);
                    }
                    _ => {}
                }
            }
        }
        let certificate = CpFlowInverter::new(&map.cast()).certify(&x, &[]).unwrap();
        println!("condition number of ∂z/∂x up to {:.0e}", certificate.condition);
        let exact = each(&map, &x);
        let single = map.cast::<f32>();
        println!("  exact,      single precision: {}", compare(&each(&single, &x), &exact));
        for (name, estimated) in [
            ("double precision", each(&map.clone().with_log_det(LogDet::Stochastic), &x)),
            ("single precision", each(&single.with_log_det(LogDet::Stochastic), &x)),
        ] {
            println!("  stochastic, {name}: {}", compare(&estimated, &exact));
        }
    }
}
