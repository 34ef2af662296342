//! Tests of `pairs`.

#![allow(clippy::unwrap_used)]

use super::super::panels::tests::{save, square_draws};
use super::*;

const SIZE: PictureSize = PictureSize { width: 520, height: 520 };

fn rows(n: usize, count: usize, shift: f64) -> Vec<f64> {
    let noise = square_draws(n * count);
    let mut samples = noise.clone();
    for row in samples.chunks_mut(n) {
        for i in 1..n {
            row[i] += 0.8 * row[i - 1] * if i == 2 { row[0] } else { 1.0 } + shift;
        }
    }
    samples
}

fn example() -> PairPlot {
    let mut draws = rows(4, 3000, 0.0);
    draws.chunks_mut(4).for_each(|row| row[3] = 2e-6 * (row[3] + 5.0));
    let mut reference = rows(4, 1000, 0.3);
    reference.chunks_mut(4).for_each(|row| row[3] = 2e-6 * (row[3] + 5.0));
    PairPlot::new(["prey growth", "predation", "predator growth efficiency", "decay & loss"])
        .units(["1/year", "", "per prey", "1/s"])
        .layer("learned map", draws)
        .layer("ABC reference", reference)
        .truth([0.2, 0.1, 0.4, 1.0e-5])
        .mode([0.0, 0.0, 0.0, 1.1e-5])
}

#[test]
fn the_picture_has_the_readers_words_and_is_reproducible() {
    let svg = example().to_svg(SIZE).unwrap();
    assert_eq!(svg, example().to_svg(SIZE).unwrap());
    for word in ["prey growth (1/year)", "predation", "decay &amp; loss", "learned map", "truth", "×10⁻⁵"]
    {
        assert!(svg.contains(word), "{word}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert!(svg.len() < 2_000_000, "{}", svg.len());
    save("pairs", &svg);
}

#[test]
fn weights_and_logarithmic_axes_are_drawn() {
    // Draws of one distribution, half of them twice; the other layer says the same by weights.
    let logs = rows(4, 2000, 0.0);
    let centres = [0.01, 0.5, 1.0, 0.01];
    let draws: Vec<f64> = logs
        .iter()
        .enumerate()
        .map(|(i, v)| centres[i % 4] * (0.15 * (1 + i % 2 * 4) as f64 * v).exp())
        .collect();
    let weights: Vec<f64> = (0..2000).map(|i| f64::from(1 + i % 2)).collect();
    let plot = PairPlot::new(["θ₁", "θ₂", "θ₃", "θ₄"])
        .layer("PCP-Map", draws.clone())
        .weighted_layer("SMC-ABC", draws.iter().map(|v| v * 1.1).collect(), weights.clone())
        .truth(centres)
        .log(0..4);
    let svg = plot.to_svg(SIZE).unwrap();
    assert!(svg.contains(">0.01<") && svg.contains("θ₁") && !svg.contains("NaN"));
    save("pairs_log", &svg);
    let unweighted = PairPlot { layers: vec![plot.layers[0].clone()], ..plot.clone() };
    let mut weighted = unweighted.clone();
    weighted.layers[0].weights = Some(weights);
    assert_ne!(unweighted.to_svg(SIZE).unwrap(), weighted.to_svg(SIZE).unwrap());
}

#[test]
fn one_quantity_and_many_are_drawn() {
    let one = PairPlot::new(["x"]).layer("posterior", square_draws(500)).truth([0.1]);
    save("pairs_one", &one.to_svg(PictureSize { width: 300, height: 220 }).unwrap());
    let two = PairPlot::new(["a", "b"]).layer("posterior", rows(2, 800, 0.0)).mode([0.0, 0.0]);
    save("pairs_two", &two.to_svg(PictureSize { width: 320, height: 320 }).unwrap());
    let many = PairPlot::new((1..=9).map(|i| format!("theta_{i}"))).layer("posterior", rows(9, 500, 0.0));
    save("pairs_many", &many.to_svg(PictureSize { width: 700, height: 700 }).unwrap());
}

#[test]
fn modes_and_bounds_are_drawn() {
    let noise = square_draws(8000);
    let pairs = || noise.chunks_exact(4);
    let four: Vec<f64> =
        pairs().flat_map(|v| [4.0 * v[2].signum() + 0.3 * v[0], 4.0 * v[3].signum() + 0.3 * v[1]]).collect();
    save("pairs_four", &PairPlot::new(["a", "b"]).layer("four modes", four).to_svg(SIZE).unwrap());
    let ring: Vec<f64> = pairs()
        .flat_map(|v| {
            let scale = (2.5 + 0.05 * v[0]) / v[1].hypot(v[2]);
            [scale * v[1], scale * v[2]]
        })
        .collect();
    save("pairs_ring", &PairPlot::new(["a", "b"]).layer("ring", ring).to_svg(SIZE).unwrap());
    let times: Vec<f64> = pairs().flat_map(|v| [1.7e9 + 100.0 * v[0], v[1]]).collect();
    let svg = PairPlot::new(["t", "b"]).units(["s", ""]).layer("times", times).to_svg(SIZE).unwrap();
    assert!(svg.contains("t (+ 1.7×10⁹ s)") && svg.contains(">200<"));
    save("pairs_times", &svg);

    // Uniform and exponential, on a linear and a logarithmic axis: no line crosses a bound.
    let values: Vec<f64> =
        pairs().flat_map(|v| [0.5 + 0.5 * v[0].tanh(), (0.5 + v[1].sin()).max(0.01)]).collect();
    let plot = PairPlot::new(["p", "q"]).layer("bounded", values).limits(0, -1.0, 2.0).log([1]);
    let plot = plot.support(0, 0.0, 1.0).support(1, 0.01, f64::INFINITY);
    let svg = plot.to_svg(SIZE).unwrap();
    save("pairs_bounded", &svg);
    let lines: Vec<Vec<f64>> = svg
        .lines()
        .filter(|line| line.contains("polyline") && line.contains("#0072B2"))
        .map(|line| {
            let points = line.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            points.split_whitespace().map(|p| p.split(',').next().unwrap().parse().unwrap()).collect()
        })
        .collect();
    // All but the two marginals, whose lines run along the whole axis.
    let ends = |line: &[f64]| {
        (line.iter().copied().fold(f64::INFINITY, f64::min), line.iter().copied().fold(0.0, f64::max))
    };
    let (left, right) = ends(&lines[0]);
    let joint = lines.iter().map(|line| ends(line)).filter(|(from, to)| *to < right && *from > left);
    let (low, high) = (left + (right - left) / 3.0, left + (right - left) * 2.0 / 3.0);
    let joint: Vec<(f64, f64)> = joint.collect();
    assert!(joint.len() >= 2, "{joint:?}");
    assert!(
        joint.iter().all(|(from, to)| *from >= low - 0.02 && *to <= high + 0.02),
        "{joint:?} {low} {high}"
    );
}

#[test]
fn degenerate_samples_give_readable_coordinates() {
    let constant: Vec<f64> = (0..100).flat_map(|i| [7.0, f64::from(i)]).collect();
    for samples in [vec![1.0, 2.0], constant, vec![0.0; 20], vec![1e300, -1e300]] {
        let svg = PairPlot::new(["a", "b"]).layer("draws", samples).to_svg(SIZE).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("2147483647"));
    }
}

#[test]
fn mistakes_are_named() {
    let text = |plot: PairPlot| plot.to_svg(SIZE).unwrap_err().to_string();
    let plot = PairPlot::new(["a", "b"]);
    assert!(text(plot.clone()).contains("at least one name"));
    assert!(text(plot.clone().layer("d", vec![1.0; 3])).contains("rows of 2 values"));
    assert!(text(plot.clone().layer("d", vec![1.0, f64::NAN])).contains("b = NaN"));
    assert!(text(plot.clone().layer("d", vec![1.0; 4]).truth([1.0])).contains("2 values"));
    let two = |weights: [f64; 2]| plot.clone().weighted_layer("d", vec![1.0; 4], weights.to_vec());
    assert!(text(two([1.0, -1.0])).contains("weight of sample 2"));
    assert!(text(two([0.0, 0.0])).contains("all weights"));
    assert!(text(plot.clone().weighted_layer("d", vec![1.0; 4], vec![1.0])).contains("expected 2, got 1"));
    let log = |layer: Vec<f64>| plot.clone().layer("d", layer).log([1]);
    assert!(text(log(vec![1.0, 2.0, 1.0, 0.0])).contains("sample 2 of \"d\" has b = 0"));
    assert!(text(log(vec![1.0, 2.0]).truth([-1.0, -1.0])).contains("truth of b is -1"));
    assert!(text(log(vec![1.0, 2.0]).log([2])).contains("below 2"));
    let support = |low, high| plot.clone().layer("d", vec![1.0; 4]).support(1, low, high);
    assert!(text(support(2.0, 3.0)).contains("b = 1, outside its support from 2 to 3"));
    assert!(text(support(3.0, 2.0)).contains("low < high"));
    let tiny = plot.layer("d", vec![1.0; 4]).to_svg(PictureSize { width: 30, height: 30 });
    assert!(tiny.unwrap_err().to_string().contains("30 × 30"));
}
