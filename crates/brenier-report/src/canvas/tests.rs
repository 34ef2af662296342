//! Tests of `canvas`.

use super::*;

fn texts(low: f64, high: f64) -> Vec<String> {
    Scale::new(low, high, 1e3, 8.0, 4).ticks.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn ticks_are_round_numbers() {
    assert_eq!(texts(-1.1, 1.1), ["−1", "0", "1"]);
    assert_eq!(texts(0.0, 10.0), ["0", "5", "10"]);
    assert_eq!(texts(0.011, 0.019), ["0.012", "0.014", "0.016", "0.018"]);
    // Too large or small for plain digits: the power of ten goes to the axis label.
    assert_eq!(texts(1e-7, 4.5e-7), ["1", "2", "3", "4"]);
    let scale = Scale::new(1e-7, 4.5e-7, 1e3, 8.0, 4);
    assert_eq!(scale.label("rate", Some("s⁻¹"), 8.0, 1e3), ["rate (×10⁻⁷ s⁻¹)"]);
}

fn log_texts(low: f64, high: f64) -> Vec<String> {
    let scale = Scale::logarithmic(low.log10(), high.log10(), 300.0, 8.0, 6);
    for (place, text) in &scale.ticks {
        if let Ok(value) = text.parse::<f64>() {
            let value = value * 10f64.powi(scale.exponent);
            assert!((place - value.log10()).abs() < 1e-9, "{text} at {place}");
        }
    }
    scale.ticks.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn logarithmic_ticks_are_the_numbers_themselves() {
    assert_eq!(log_texts(0.8, 40.0), ["1", "2", "5", "10", "20"]);
    assert_eq!(log_texts(0.005, 8.0), ["0.01", "0.1", "1"]);
    assert_eq!(log_texts(0.009, 0.022), ["0.010", "0.012", "0.014", "0.016", "0.018", "0.020"]);
    assert_eq!(log_texts(1e-8, 1e-2), ["10⁻⁸", "10⁻⁶", "10⁻⁴", "10⁻²"]);
    assert_eq!(log_texts(1.6e-7, 4.1e-7), ["2.0", "2.5", "3.0", "3.5", "4.0"]);
    assert!(log_texts(1e-300, 1e300).len() >= 2);
}

#[test]
fn lines_are_cut_at_the_border() {
    let inside = |points: &[[f64; 2]]| clipped(points, [0.0, 0.0], [10.0, 10.0]);
    assert_eq!(inside(&[[1.0, 1.0], [9.0, 9.0]]), [[[1.0, 1.0], [9.0, 9.0]]]);
    assert_eq!(inside(&[[5.0, -5.0], [5.0, 5.0], [5.0, 15.0]]), [[[5.0, 0.0], [5.0, 5.0], [5.0, 10.0]]]);
    assert_eq!(inside(&[[-5.0, 5.0], [5.0, 5.0], [5.0, 20.0], [6.0, 20.0], [6.0, 5.0]]).len(), 2);
    assert!(inside(&[[-5.0, 12.0], [20.0, 12.0]]).is_empty());
}

#[test]
fn resampling_follows_the_weights() {
    assert_eq!(resampled(&[1.0, 0.0, 2.0, 1.0], 4), [0, 2, 2, 3]);
    assert_eq!(resampled(&[0.1; 10], 10), (0..10).collect::<Vec<_>>());
}

#[test]
fn limits_are_never_empty() {
    for value in [0.0, 1.0, -3e9, 1e-300, 1e300] {
        let (low, high) = limits(&[value], None, &[]);
        assert!(low < value && value < high && high.is_finite());
    }
}

#[test]
fn long_text_shrinks_then_is_cut() {
    assert_eq!(fit("a", 9.0, 100.0), ("a".to_owned(), 9.0));
    let (text, size) = fit("a name of some length", 9.0, 80.0);
    assert!(size < 9.0 && !text.ends_with('…'), "{text} {size}");
    assert!(fit("a name of quite an impossible length", 9.0, 40.0).0.ends_with('…'));
}
