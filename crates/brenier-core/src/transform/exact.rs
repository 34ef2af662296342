//! Numbers written to the model file such that reading them gives the same bits.
//!
//! `serde_json` reads a decimal number to within one unit in the last place unless a cargo feature is on.
//! A fitted number is therefore written as the text of its shortest exact decimal, which the standard library
//! reads back exactly; plain numbers are accepted too. Anything not finite is refused.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The shortest text that reads back as `value`: `0`, `1.5`, `1e-300`.
pub(super) fn text(value: f64) -> String {
    // Debug switches to an exponent where Display would print hundreds of digits.
    let text = format!("{value:?}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// One number, for `#[serde(with = "exact")]`.
pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*value))
}

/// One number, for `#[serde(with = "exact")]`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    deserializer.deserialize_any(ExactVisitor)
}

struct ExactVisitor;

impl Visitor<'_> for ExactVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a finite number or its decimal text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        let value: f64 = text.parse().map_err(|_| E::custom(format!("{text:?} is not a number")))?;
        self.visit_f64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
        if value.is_finite() { Ok(value) } else { Err(E::custom(format!("{value} is not finite"))) }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }
}

/// Lists of numbers, for `#[serde(with = "exact::list")]`.
pub(super) mod list {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Exact(#[serde(with = "super")] f64);

    /// Every number of the list.
    pub(in super::super) fn serialize<S: Serializer>(
        values: &[f64],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|&value| Exact(value)))
    }

    /// Every number of the list.
    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Exact>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|Exact(value)| value).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Serialize, Deserialize)]
    struct Holder {
        #[serde(with = "super")]
        one: f64,
        #[serde(with = "super::list")]
        many: Vec<f64>,
    }

    fn round_trip(value: f64) -> Holder {
        let json = serde_json::to_string(&Holder { one: value, many: vec![value, -value] }).expect("writes");
        serde_json::from_str(&json).expect("reads")
    }

    proptest! {
        #[test]
        fn any_bits_survive_json(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let back = round_trip(value);
            prop_assert_eq!(back.one.to_bits(), bits);
            prop_assert_eq!(back.many[0].to_bits(), bits);
            prop_assert_eq!(back.many[1].to_bits(), (-value).to_bits());
        }
    }

    #[test]
    fn extremes_survive_json() {
        for value in [0.0, -0.0, 5e-324, f64::MIN_POSITIVE, f64::MAX, -f64::MAX, 0.1 + 0.2] {
            assert_eq!(round_trip(value).one.to_bits(), value.to_bits());
        }
    }

    #[test]
    fn plain_numbers_are_read_and_others_refused() {
        let holder: Holder = serde_json::from_str(r#"{"one": 2, "many": [-1, 0.5, "3"]}"#).expect("reads");
        assert_eq!((holder.one, holder.many), (2.0, vec![-1.0, 0.5, 3.0]));
        for bad in ["\"NaN\"", "\"inf\"", "null", "\"x\"", "[1]"] {
            assert!(serde_json::from_str::<Holder>(&format!(r#"{{"one": {bad}, "many": []}}"#)).is_err());
        }
    }
}
