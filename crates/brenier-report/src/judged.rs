//! Pictures of checks: rank histograms, and where observed values fall in their predictives.

use super::canvas::{FRAME, INK, Labels, PALETTE, Panel, Pen, PictureSize, Scale, draw, text_width};
use crate::diagnose::RankHistogram;
use crate::{Error, Result};

const FONT: f64 = 9.0;

/// Bars of a histogram of ranks over the band that uniform ranks keep to.
pub fn rank_histogram(histogram: &RankHistogram, size: PictureSize) -> Result<String> {
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    let most = histogram.counts.iter().chain(&histogram.high).max().copied().unwrap_or(1).max(1);
    let y = Scale::new(0.0, 1.08 * f64::from(most), height, FONT, 5);
    let left = 2.2 * FONT + y.label_room(FONT) + 7.0;
    let (top, right, base) = (0.8 * FONT, width - 1.4 * FONT, height - 6.0 - 3.4 * FONT);
    if right - left < 40.0 || base - top < 40.0 {
        return Err(Error::Shape {
            what: "size of a rank histogram",
            expected: "room for a panel of 40 × 40 points beside its labels".to_owned(),
            got: format!("{} × {}", size.width, size.height),
        });
    }
    let x = Scale::new(0.0, 1.0, right - left, FONT, 6);
    let panel = Panel { from: [left, top], to: [right, base], x: &x, y: &y };
    Ok(draw(size, |canvas| {
        let mut start = 0.0;
        for (i, &end) in histogram.ends.iter().enumerate() {
            let corner = |x: f64, y: u32| panel.place([x, f64::from(y)]);
            canvas.rectangle(corner(start, histogram.high[i]), corner(end, histogram.low[i]), FRAME, 0.25);
            let [from, to] = [corner(start, histogram.counts[i]), corner(end, 0)];
            canvas.rectangle([from[0] + 0.6, from[1]], [to[0] - 0.6, to[1]], PALETTE[0], 0.7);
            start = end;
        }
        canvas.frame(panel.from, panel.to, Pen::new(INK, 0.6));
        panel.ticks_below(canvas, FONT, Labels::All);
        panel.ticks_left(canvas, FONT, Labels::All);
        let middle = [0.5 * (left + right), base + 5.0 + 2.1 * FONT];
        canvas.fitted(&["rank of the truth".to_owned()], middle, FONT, right - left, false);
        canvas.fitted(&["pairs".to_owned()], [1.1 * FONT, 0.5 * (top + base)], FONT, base - top, true);
    }))
}

/// One line of [`intervals`].
pub(super) struct Interval {
    pub(super) name: String,
    /// 5, 25, 50, 75 and 95 % quantiles.
    pub(super) quantiles: [f64; 5],
    pub(super) observed: f64,
}

/// Horizontal intervals, one a line: 5 to 95 % thin, 25 to 75 % thick, the observed value a cross.
pub(super) fn intervals(rows: &[Interval], label: &str, width: u32) -> Result<String> {
    let line = 1.9 * FONT;
    let all = || rows.iter().flat_map(|row| row.quantiles.into_iter().chain([row.observed]));
    if !all().all(f64::is_finite) || rows.is_empty() {
        return Err(Error::Numerical("an interval to draw is not finite, or there is none".to_owned()));
    }
    let (low, high) =
        all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let widest = rows.iter().map(|row| text_width(&row.name, FONT)).fold(0.0, f64::max);
    let names = widest.min(0.45 * f64::from(width));
    let margin = 0.05 * (high - low).max(1e-9);
    let (left, right) = (names + 16.0, f64::from(width) - 1.4 * FONT);
    let (top, base) = (4.0, 4.0 + line * rows.len() as f64);
    let size = PictureSize { width, height: (base + 6.0 + 3.4 * FONT).ceil() as u32 };
    let x = Scale::new(low - margin, high + margin, right - left, FONT, 7);
    let y = Scale::new(0.0, 1.0, 100.0, FONT, 2);
    let panel = Panel { from: [left, top], to: [right, base], x: &x, y: &y };
    Ok(draw(size, |canvas| {
        let at = |value: f64| panel.place([value, 0.0])[0];
        if x.contains(0.0) {
            canvas.line(&[[at(0.0), top], [at(0.0), base]], Pen::new(FRAME, 0.5));
        }
        for (i, row) in rows.iter().enumerate() {
            let y = top + line * (i as f64 + 0.5);
            let [far_low, low, _, high, far_high] = row.quantiles.map(at);
            canvas.line(&[[far_low, y], [far_high, y]], Pen::new(PALETTE[0], 1.2));
            canvas.rectangle([low, y - 3.5], [high, y + 3.5], PALETTE[0], 0.6);
            let (o, r) = (at(row.observed), 3.6);
            for ends in [[[o - r, y - r], [o + r, y + r]], [[o - r, y + r], [o + r, y - r]]] {
                canvas.line(&ends, Pen::new(PALETTE[1], 1.8));
            }
            let name = std::slice::from_ref(&row.name);
            canvas.fitted(name, [6.0 + 0.5 * names, y], FONT, names, false);
        }
        canvas.frame(panel.from, panel.to, Pen::new(INK, 0.6));
        panel.ticks_below(canvas, FONT, Labels::All);
        let middle = [0.5 * (left + right), base + 5.0 + 2.1 * FONT];
        canvas.fitted(&[label.to_owned()], middle, FONT, right - left, false);
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::panels::tests::save;
    use super::*;
    use crate::diagnose::Ranks;

    #[test]
    fn histograms_and_intervals_are_drawn_and_mistakes_named() {
        let ranks = Ranks::new((0..500).map(|i| (i * i) % 100).collect(), 99).unwrap();
        let size = PictureSize { width: 300, height: 200 };
        let svg = rank_histogram(&ranks.histogram(20, 0.05), size).unwrap();
        assert!(svg.contains("rank of the truth") && !svg.contains("NaN"));
        save("histogram", &svg);
        assert!(rank_histogram(&ranks.histogram(20, 0.05), PictureSize { width: 50, height: 50 }).is_err());
        let row = |name: &str, observed| Interval {
            name: name.to_owned(),
            quantiles: [-2.0, -0.7, 0.0, 0.7, 2.0],
            observed,
        };
        let rows = [row("mean_prey", 0.4), row("a name that is very long indeed & then some", 3.0)];
        let svg = intervals(&rows, "predictive standard deviations", 420).unwrap();
        assert!(svg.contains("mean_prey") && svg.contains("&amp;") && !svg.contains("NaN"));
        save("intervals", &svg);
        assert!(intervals(&[row("x", f64::NAN)], "x", 300).is_err());
    }
}
