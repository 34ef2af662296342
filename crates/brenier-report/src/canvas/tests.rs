//! Tests of `canvas`.

use super::super::density::UNBOUNDED;
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
    let room = Room { length: 300.0, overhang: f64::INFINITY, font: 8.0 };
    let scale = Scale::logarithmic(low.log10(), high.log10(), room, 6);
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
        let (low, high) = limits([value; 2], &[], 0.0, UNBOUNDED);
        assert!(low < value && value < high && high.is_finite());
    }
}

#[test]
fn a_small_spread_is_no_constant() {
    let (low, high) = limits([1.7e9 - 300.0, 1.7e9 + 300.0], &[], 0.0, UNBOUNDED);
    assert!((low - 1.7e9 + 336.0).abs() < 1e-3 && (high - 1.7e9 - 336.0).abs() < 1e-3, "{low} {high}");
    let (low, high) = span([1.7e9, 1.7e9 + 0.1].into_iter(), false);
    assert!(high - low < 0.2, "{low} {high}");
    // Rounding is.
    let (low, high) = limits([0.1 + 0.2, 0.3], &[], 0.0, UNBOUNDED);
    assert!(high - low > 0.05);
}

#[test]
fn limits_leave_room_but_not_beyond_bounds() {
    assert_eq!(limits([0.0, 1.0], &[], 0.5, UNBOUNDED), (-0.5, 1.5));
    assert_eq!(limits([0.0, 1.0], &[], 0.5, [-0.25, f64::INFINITY]), (-0.27, 1.5));
    assert_eq!(limits([0.0, 1.0], &[2.0], 0.0, [0.0, 1.0]), (-0.04, 2.04));
}

#[test]
fn large_numbers_that_differ_little_share_an_offset() {
    let scale = Scale::new(1.7e9 - 340.0, 1.7e9 + 340.0, 1e3, 8.0, 4);
    let texts: Vec<&str> = scale.ticks.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["−200", "0", "200"]);
    assert!(scale.ticks.iter().all(|(value, text)| {
        text.replace('−', "-").parse::<f64>().is_ok_and(|label| (value - 1.7e9 - label).abs() < 1e-6)
    }));
    assert_eq!(scale.label("t", Some("s"), 8.0, 1e3), ["t (+ 1.7×10⁹ s)"]);
    let scale = Scale::new(-0.5 - 1e-6, -0.5 + 1e-6, 1e3, 8.0, 4);
    assert_eq!(scale.label("x", None, 8.0, 1e3), ["x (×10⁻⁶ − 0.5)"]);
    assert_eq!(written_out(1_700_012_000.0), "1.700012×10⁹");
    assert_eq!(written_out(0.1 + 0.2), "0.3");
    assert_eq!(written_out(12_300.0), "12300");
}

#[test]
fn labels_neither_vanish_nor_reach_into_the_next_panel() {
    let room = Room { length: 80.0, overhang: 2.0, font: 10.0 };
    for (low, high) in [
        (11_990.0, 12_680.0),
        (0.000_68, 0.001_31),
        (0.499_1, 0.500_9),
        (90_000.0, 111_000.0),
        (-4.9, 5.1),
        (1.7e9 - 340.0, 1.7e9 + 340.0),
        (-1.3e5, -0.7e5),
        (12.34, 12.36),
        (0.0, 1.0),
    ] {
        let scale = Scale::fitted(low, high, room, 5);
        assert!(scale.labels_within(room) >= 2 && scale.labels_fit(room), "{low} {high}: {:?}", scale.ticks);
    }
}

#[test]
fn long_text_shrinks_then_is_cut() {
    assert_eq!(fit("a", 9.0, 100.0), ("a".to_owned(), 9.0));
    let (text, size) = fit("a name of some length", 9.0, 80.0);
    assert!(size < 9.0 && !text.ends_with('…'), "{text} {size}");
    assert!(fit("a name of quite an impossible length", 9.0, 40.0).0.ends_with('…'));
}
