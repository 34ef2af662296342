//! Projections of the given columns against plain sums.

use super::super::rows::{FnRows, RowMajor};
use super::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_distr::{Distribution, StandardNormal};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|j| format!("y{j}")).collect()
}

/// Rows of `dim` values mixed from `rank` independent normals, with an offset.
fn correlated(count: usize, dim: usize, rank: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut normal = |len: usize| -> Vec<f64> { (0..len).map(|_| StandardNormal.sample(&mut rng)).collect() };
    let mixing = normal(dim * rank);
    let mut values = Vec::with_capacity(count * dim);
    for _ in 0..count {
        let source = normal(rank);
        for weights in mixing.chunks_exact(rank) {
            // Falling weights give the components distinct variances.
            let sum: f64 =
                weights.iter().zip(&source).enumerate().map(|(k, (w, s))| w * s / (1 + k) as f64).sum();
            values.push(3.0 + sum);
        }
    }
    values
}

fn fit(values: &[f64], dim: usize, scaling: Scaling, pca: Option<PcaSettings>) -> Result<GivenTransform> {
    let rows = RowMajor::new(values, dim).expect("whole rows");
    let settings = GivenSettings { scaling, pca, ..Default::default() };
    GivenTransform::fit(&names(dim), &settings, &rows).map(|(transform, _)| transform)
}

fn project(transform: &GivenTransform, values: &[f64]) -> Vec<f64> {
    let mut scores = Vec::new();
    for raw in values.chunks_exact(transform.input_dim()) {
        let mut out = vec![f64::NAN; transform.output_dim()];
        transform.forward(raw, &mut out).expect("inside");
        scores.extend(out);
    }
    scores
}

/// Population covariance about the mean, d × d.
fn covariance(values: &[f64], dim: usize) -> Vec<f64> {
    let count = (values.len() / dim) as f64;
    let mut mean = vec![0.0; dim];
    values.chunks_exact(dim).for_each(|row| {
        mean.iter_mut().zip(row).for_each(|(mean, v)| *mean += v / count);
    });
    let mut covariance = vec![0.0; dim * dim];
    for row in values.chunks_exact(dim) {
        for i in 0..dim {
            for j in 0..dim {
                covariance[i * dim + j] += (row[i] - mean[i]) * (row[j] - mean[j]) / count;
            }
        }
    }
    covariance
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn identity(dim: usize) -> Vec<f64> {
    (0..dim * dim).map(|i| if i % (dim + 1) == 0 { 1.0 } else { 0.0 }).collect()
}

#[test]
fn all_components_rebuild_the_covariance() {
    let (count, dim) = (700, 6);
    let values = correlated(count, dim, dim, 1);
    for scaling in [Scaling::Standard, Scaling::Robust, Scaling::None] {
        let plain = fit(&values, dim, scaling, None).expect("fits");
        let expected = covariance(&project(&plain, &values), dim);
        let transform = fit(&values, dim, scaling, Some(PcaSettings::Count(dim))).expect("fits");
        let pca = transform.pca().expect("asked for");
        let mut rebuilt = vec![0.0; dim * dim];
        for i in 0..dim {
            for j in 0..dim {
                rebuilt[i * dim + j] = (0..dim)
                    .map(|k| {
                        let variance = pca.deviations()[k].powi(2);
                        variance * pca.components()[i * dim + k] * pca.components()[j * dim + k]
                    })
                    .sum();
            }
        }
        assert!(largest_difference(&rebuilt, &expected) < 1e-12, "{scaling}");
        assert!((pca.explained_variance() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn scores_have_mean_zero_and_unit_covariance() {
    // More rows than columns, several blocks; then fewer rows than columns, the other path.
    for (count, dim, rank, kept) in [(700, 8, 8, 5), (30, 50, 50, 20), (40, 60, 4, 4)] {
        let values = correlated(count, dim, rank, 2);
        let transform = fit(&values, dim, Scaling::Standard, Some(PcaSettings::Count(kept))).expect("fits");
        assert_eq!((transform.input_dim(), transform.output_dim()), (dim, kept));
        let scores = project(&transform, &values);
        let mean: f64 = scores.iter().sum::<f64>() / scores.len() as f64;
        assert!(mean.abs() < 1e-12);
        assert!(largest_difference(&covariance(&scores, kept), &identity(kept)) < 1e-10);
        let pca = transform.pca().expect("asked for");
        assert!(pca.deviations().is_sorted_by(|a, b| a >= b));
        // Unit vectors at right angles, the largest entry of each positive.
        for k in 0..kept {
            let column = |k: usize| pca.components().iter().skip(k).step_by(kept);
            let largest = column(k).fold(0.0_f64, |a, &b| if b.abs() > a.abs() { b } else { a });
            assert!(largest > 0.0);
            for l in 0..kept {
                let product: f64 = column(k).zip(column(l)).map(|(a, b)| a * b).sum();
                assert!((product - f64::from(u8::from(k == l))).abs() < 1e-10);
            }
        }
    }
}

#[test]
fn both_paths_find_the_same_components() {
    // Doubling the rows leaves mean and covariance as they are but takes the other path.
    let (count, dim) = (9, 12);
    let values = correlated(count, dim, dim, 3);
    let twice = [&values[..], &values].concat();
    let few = fit(&values, dim, Scaling::Standard, Some(PcaSettings::Count(4))).expect("fits");
    let many = fit(&twice, dim, Scaling::Standard, Some(PcaSettings::Count(4))).expect("fits");
    assert!(largest_difference(&project(&few, &values), &project(&many, &values)) < 1e-9);
    let (few, many) = (few.pca().expect("asked for"), many.pca().expect("asked for"));
    assert!((few.explained_variance() - many.explained_variance()).abs() < 1e-12);
}

#[test]
fn fraction_of_variance_keeps_the_fewest_components() {
    let (count, dim) = (500, 7);
    let values = correlated(count, dim, dim, 4);
    let explained: Vec<f64> = (1..=dim)
        .map(|kept| {
            let transform =
                fit(&values, dim, Scaling::Standard, Some(PcaSettings::Count(kept))).expect("fits");
            transform.pca().expect("asked for").explained_variance()
        })
        .collect();
    assert!(explained.is_sorted());
    for fraction in [0.01, 0.5, 0.9, 0.99, 1.0] {
        let transform =
            fit(&values, dim, Scaling::Standard, Some(PcaSettings::Variance(fraction))).expect("fits");
        let kept = transform.output_dim();
        assert!(explained[kept - 1] >= fraction - 1e-12);
        assert!(kept == 1 || explained[kept - 2] < fraction);
    }
    // Four directions in sixty columns: all the variance needs four components.
    let values = correlated(300, 60, 4, 5);
    let transform = fit(&values, 60, Scaling::Standard, Some(PcaSettings::Variance(1.0))).expect("fits");
    assert!(transform.output_dim() <= 4);
    assert!(transform.pca().expect("asked for").explained_variance() > 1.0 - 1e-12);
}

#[test]
fn degenerate_requests_are_explained() {
    let values = correlated(300, 10, 3, 6);
    let message = |values: &[f64], dim, pca| {
        fit(values, dim, Scaling::Standard, Some(pca)).expect_err("refused").to_string()
    };
    assert!(message(&values, 10, PcaSettings::Count(4)).contains("ask for at most 3"));
    assert!(message(&values, 10, PcaSettings::Count(0)).contains("at least 1"));
    assert!(message(&values, 10, PcaSettings::Count(usize::MAX)).contains("ask for at most 3"));
    for fraction in [0.0, 1.5, -1.0, f64::NAN] {
        assert!(message(&values, 10, PcaSettings::Variance(fraction)).contains("at most 1"));
    }
    assert!(message(&[2.0; 30], 3, PcaSettings::Count(1)).contains("do not vary"));
    assert!(message(&values[..10], 10, PcaSettings::Count(1)).contains("at least 2"));
    let huge: Vec<f64> = values.iter().map(|v| v * 1e200).collect();
    let refused = fit(&huge, 10, Scaling::None, Some(PcaSettings::Count(1)));
    assert!(matches!(refused, Err(Error::Numerical(_))));
    assert!(fit(&huge, 10, Scaling::Standard, Some(PcaSettings::Count(1))).is_ok());
}

#[test]
fn constant_columns_warn_and_stay() {
    let values = [1.0, 5.0, 2.0, 5.0, 4.0, 5.0];
    let rows = RowMajor::new(&values, 2).expect("whole rows");
    for pca in [None, Some(PcaSettings::Count(1))] {
        let settings = GivenSettings { pca, ..Default::default() };
        let (transform, warnings) = GivenTransform::fit(&names(2), &settings, &rows).expect("fits");
        assert!(warnings.len() == 1 && warnings[0].contains("\"y1\" is constant"));
        let mut out = vec![0.0; transform.output_dim()];
        transform.forward(&[1.0, 5.0], &mut out).expect("inside");
        assert!(out.iter().all(|v| v.is_finite()));
    }
}

#[test]
fn no_given_columns_are_allowed() {
    let rows = FnRows::new(5, |_: usize, _: &mut [f64]| {});
    let (transform, _) = GivenTransform::fit(&[], &GivenSettings::default(), &rows).expect("fits");
    transform.validate().expect("valid");
    transform.forward(&[], &mut []).expect("nothing to do");
    let settings = GivenSettings { pca: Some(PcaSettings::Count(1)), ..Default::default() };
    assert!(GivenTransform::fit(&[], &settings, &rows).is_err());
}

#[test]
fn values_outside_and_wrong_lengths_are_errors() {
    let rows = RowMajor::new(&[1.0, 2.0, 5.0], 1).expect("whole rows");
    let columns = vec!["y0=log".parse().expect("parses")];
    let settings = GivenSettings { columns, pca: Some(PcaSettings::Count(1)), ..Default::default() };
    let (transform, _) = GivenTransform::fit(&names(1), &settings, &rows).expect("fits");
    let message = transform.forward(&[-1.0], &mut [0.0]).expect_err("negative").to_string();
    assert!(message.contains("\"y0\"") && message.contains("-1"), "{message}");
    assert!(matches!(transform.forward(&[1.0, 2.0], &mut [0.0]), Err(Error::Shape { .. })));
    let values = correlated(50, 4, 4, 9).iter().map(|v| v * 1e-3).collect::<Vec<_>>();
    let transform = fit(&values, 4, Scaling::None, Some(PcaSettings::Count(4))).expect("fits");
    assert!(matches!(transform.forward(&[f64::MAX; 4], &mut [0.0; 4]), Err(Error::Domain(_))));
    let transform = fit(&[1.0, 2.0, 5.0], 1, Scaling::Standard, None).expect("fits");
    assert!(matches!(transform.forward(&[1.0], &mut []), Err(Error::Shape { .. })));
}

#[test]
fn a_saved_transform_gives_the_same_bits() {
    let values = correlated(100, 6, 6, 8);
    let transform = fit(&values, 6, Scaling::Robust, Some(PcaSettings::Count(3))).expect("fits");
    let json = serde_json::to_string(&transform).expect("writes");
    let mut back: GivenTransform = serde_json::from_str(&json).expect("reads");
    // Without its matrix the transform refuses to work, and says so.
    assert!(back.validate().is_err());
    assert!(matches!(back.forward(&values[..6], &mut [0.0; 3]), Err(Error::Shape { .. })));
    let pca = back.pca_mut().expect("saved");
    assert!(pca.set_components(vec![0.0; 17]).is_err());
    assert!(pca.set_components(vec![f64::NAN; 18]).is_err());
    assert_eq!(pca.components_shape(), [6, 3]);
    pca.set_components(transform.pca().expect("asked for").components().to_vec()).expect("fits");
    back.validate().expect("valid");
    let bits = |transform: &GivenTransform| -> Vec<u64> {
        project(transform, &values).into_iter().map(f64::to_bits).collect()
    };
    assert_eq!(bits(&transform), bits(&back));
    assert_eq!(transform, back);
}

#[test]
fn hostile_files_are_refused() {
    let column = r#"{"name":"a","support":"real","centre":"0","scale":"1"}"#;
    for pca in [
        r#"{"mean":["0","0"],"deviations":["1"],"explained":"1"}"#,
        r#"{"mean":["0"],"deviations":[],"explained":"1"}"#,
        r#"{"mean":["0"],"deviations":["0"],"explained":"1"}"#,
        r#"{"mean":["0"],"deviations":["1","1"],"explained":"1"}"#,
        r#"{"mean":["0"],"deviations":["1"],"explained":"2"}"#,
        r#"{"mean":["nan"],"deviations":["1"],"explained":"1"}"#,
    ] {
        let json = format!(r#"{{"columns":[{column}],"pca":{pca}}}"#);
        let Ok(mut transform) = serde_json::from_str::<GivenTransform>(&json) else { continue };
        let pca = transform.pca_mut().expect("present");
        let [rows, columns] = pca.components_shape();
        pca.set_components(vec![1.0; rows * columns]).expect("fits");
        assert!(transform.validate().is_err(), "{json}");
        // Even without validation nothing panics.
        let mut out = vec![0.0; transform.output_dim()];
        let _ = transform.forward(&[1.0], &mut out);
    }
}

#[test]
fn settings_as_text() {
    for (text, settings) in [
        ("8", PcaSettings::Count(8)),
        ("1", PcaSettings::Count(1)),
        ("1.0", PcaSettings::Variance(1.0)),
        ("0.99", PcaSettings::Variance(0.99)),
    ] {
        assert_eq!(text.parse::<PcaSettings>().expect(text), settings);
        assert_eq!(settings.to_string(), text);
        let toml = format!("columns = []\nscaling = \"standard\"\npca = {text}\n");
        let read: GivenSettings = toml::from_str(&toml).expect("reads");
        assert_eq!(read.pca, Some(settings));
        assert_eq!(toml::to_string(&read).expect("writes"), toml);
    }
    for bad in ["0", "0.0", "1.5", "-3", "many", "nan", ""] {
        assert!(bad.parse::<PcaSettings>().is_err(), "{bad}");
    }
    assert!(toml::from_str::<GivenSettings>("pcs = 3").is_err());
}
