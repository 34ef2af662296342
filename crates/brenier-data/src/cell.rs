//! What one field of delimited text holds: a number, nothing, a date or other text.

use std::borrow::Cow;

use super::encode::number_text;
use super::format::{Decimal, ReadOptions};

/// What one field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    Number(f64),
    Missing,
    /// A number with the other decimal mark than the one expected.
    OtherDecimal,
    /// A date or a time.
    Date,
    Text,
}

/// Words that stand for a missing value, in any case.
const NOTHING: [&str; 6] = ["", "na", "n/a", "#n/a", "null", "none"];

/// How numbers and missing values are written.
pub(super) struct Dialect<'a> {
    pub(super) decimal: Decimal,
    missing: &'a [String],
    sentinels: Vec<f64>,
}

impl<'a> Dialect<'a> {
    pub(super) fn new(options: &'a ReadOptions) -> Self {
        Self { decimal: options.decimal, missing: &options.missing_texts, sentinels: options.sentinels() }
    }

    /// What a field holds.
    pub(super) fn cell(&self, field: &[u8]) -> Cell {
        let Ok(text) = std::str::from_utf8(field.trim_ascii()) else { return Cell::Text };
        if self.missing.iter().any(|own| own.trim() == text) {
            return Cell::Missing;
        }
        let cell = match self.decimal {
            Decimal::Point => with_point(text),
            Decimal::Comma => with_comma(text),
        };
        match cell {
            Cell::Number(value) if self.sentinels.contains(&value) => Cell::Missing,
            Cell::Text if looks_like_a_date(text) => Cell::Date,
            other => other,
        }
    }

    /// The category that a field names, numbers in one spelling; none if it is missing.
    pub(super) fn category<'f>(&self, field: &'f [u8]) -> Option<Cow<'f, str>> {
        match self.cell(field) {
            Cell::Missing => None,
            Cell::Number(value) => Some(number_text(value).into()),
            _ => Some(String::from_utf8_lossy(field.trim_ascii())),
        }
    }
}

fn finite_or_missing(value: f64) -> Cell {
    if value.is_finite() { Cell::Number(value) } else { Cell::Missing }
}

/// Numbers with a decimal point.
fn with_point(text: &str) -> Cell {
    if let Ok(value) = text.parse::<f64>() {
        return finite_or_missing(value);
    }
    if NOTHING.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Cell::Missing;
    }
    if !may_be_a_number(text) {
        return Cell::Text;
    }
    match fortran(text) {
        Some(value) => Cell::Number(value),
        None if text.matches(',').count() == 1 && text.replace(',', ".").parse::<f64>().is_ok() => {
            Cell::OtherDecimal
        }
        None => Cell::Text,
    }
}

/// Numbers with a decimal comma; a point in them might separate thousands, so that it is no number.
fn with_comma(text: &str) -> Cell {
    if !text.contains(['.', ',']) {
        return with_point(text);
    }
    if !may_be_a_number(text) {
        return Cell::Text;
    }
    let swapped = text.replace(',', ".");
    match (text.contains('.'), with_point(&swapped)) {
        (false, number) => number,
        (true, Cell::Number(_)) => Cell::OtherDecimal,
        (true, _) => Cell::Text,
    }
}

fn may_be_a_number(text: &str) -> bool {
    text.len() <= 64 && text.contains(|letter: char| letter.is_ascii_digit())
}

/// Fortran writes 1.5D+03, always with the point.
fn fortran(text: &str) -> Option<f64> {
    let value = text.replace(['d', 'D'], "e").parse::<f64>().ok()?;
    (value.is_finite() && text.contains('.')).then_some(value)
}

/// Whether `text` reads like 2024-05-31, 31.05.2024, 5/31/24 or 12:30:05, alone or one after the other.
fn looks_like_a_date(text: &str) -> bool {
    let parts = text.split([' ', 'T']).filter(|part| !part.is_empty());
    let groups = |part: &str, marks: &[char]| -> Option<Vec<usize>> {
        part.split(marks)
            .map(|digits| {
                (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
                    .then_some(digits.len())
            })
            .collect()
    };
    let is_date = |part: &str| {
        [&['-'], &['/'], &['.']].into_iter().any(|marks| match groups(part, marks).as_deref() {
            Some([4, 1..=2, 1..=2]) => true,
            Some([1..=2, 1..=2, years]) => matches!(years, 2 | 4),
            _ => false,
        })
    };
    let is_time = |part: &str| {
        let part = part.trim_end_matches('Z').split(['+', '-', '.', ',']).next().unwrap_or_default();
        matches!(groups(part, &[':']).as_deref(), Some([1..=2, 2] | [1..=2, 2, 2]))
    };
    text.len() <= 64
        && match parts.collect::<Vec<_>>()[..] {
            [only] => is_date(only) || is_time(only),
            [date, time, ..] => is_date(date) && is_time(time),
            [] => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, decimal: Decimal, missing: &[&str]) -> Cell {
        let options = ReadOptions {
            decimal,
            missing_texts: missing.iter().map(|&text| text.to_owned()).collect(),
            ..Default::default()
        };
        Dialect::new(&options).cell(text.as_bytes())
    }

    #[test]
    fn decimal_marks() {
        for (text, value) in
            [("1,5", 1.5), ("-0,25", -0.25), ("1,5e3", 1500.0), ("7", 7.0), ("1e3", 1000.0), (",5", 0.5)]
        {
            assert_eq!(cell(text, Decimal::Comma, &[]), Cell::Number(value), "{text}");
        }
        for text in ["1.5", "1.500"] {
            assert_eq!(cell(text, Decimal::Comma, &[]), Cell::OtherDecimal, "{text}");
        }
        for text in ["1.234,5", "1,2,3", "a,b"] {
            assert_eq!(cell(text, Decimal::Comma, &[]), Cell::Text, "{text}");
        }
        assert_eq!(cell("1,5", Decimal::Point, &[]), Cell::OtherDecimal);
        assert_eq!(cell("NA", Decimal::Comma, &[]), Cell::Missing);
        assert_eq!(cell("", Decimal::Comma, &[]), Cell::Missing);
    }

    #[test]
    fn further_words_stand_for_missing_values() {
        assert_eq!(cell("?", Decimal::Point, &[]), Cell::Text);
        assert_eq!(cell("?", Decimal::Point, &["?", "-"]), Cell::Missing);
        assert_eq!(cell(" - ", Decimal::Point, &["?", "-"]), Cell::Missing);
        assert_eq!(cell("-1", Decimal::Point, &["?", "-"]), Cell::Number(-1.0));
        assert_eq!(cell("-999.0", Decimal::Point, &["-999"]), Cell::Missing);
    }

    #[test]
    fn dates_are_recognised() {
        for text in [
            "2024-05-31",
            "2024/5/3",
            "31.05.2024",
            "5/31/24",
            "12:30",
            "12:30:05",
            "2024-05-31 12:30",
            "2024-05-31T12:30:05Z",
            "2024-05-31T12:30:05.123+02:00",
            "2024-05-31 12:30:05 UTC",
        ] {
            assert_eq!(cell(text, Decimal::Point, &[]), Cell::Date, "{text}");
        }
        for text in ["red", "1-2", "12-345-6789", "1.2.3.4", "a:b", "2024-05-31x", "3:1"] {
            assert_eq!(cell(text, Decimal::Point, &[]), Cell::Text, "{text}");
        }
    }
}
