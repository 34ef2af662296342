//! The settings of a protocol as data: a method and lines of a settings file.

use crate::{Error, FitSettings, Result};

/// A method with what a protocol says about it, read as a settings file is.
#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    text: String,
}

impl Protocol {
    /// `parts` are lines with dotted keys, as in `train.epochs = 60`, so that protocols can share some of them.
    pub(crate) fn new(method: &str, parts: &[&str]) -> Self {
        Self { text: format!("method.name = \"{method}\"\n{}", parts.join("\n")) }
    }

    /// Settings with everything else as it is by default.
    pub(crate) fn settings(&self) -> Result<FitSettings> {
        let wrong = |error: toml::de::Error| Error::setting("method", error.to_string().replace('\n', " "));
        toml::from_str(&self.text).map_err(wrong)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::map::Method;

    #[test]
    fn lines_are_laid_over_the_defaults_of_the_method() {
        for method in Method::ALL {
            assert_eq!(Protocol::new(method.name(), &[]).settings().unwrap(), FitSettings::of(*method));
        }
        let parts =
            ["method.depth = 3\ntrain.epochs = 7", "train.adam.weight_decay = 0.5\nscaling = \"common\""];
        let read = Protocol::new("cp-flow", &parts).settings().unwrap();
        assert_eq!(read.method, Method::CpFlow.defaults().with("depth", 3).unwrap());
        assert_eq!((read.train.epochs, read.train.adam.weight_decay), (7, 0.5));
        for (method, part, problem) in [
            ("maf", "", "choose from"),
            ("atm", "method.depth = 3", "depth"),
            ("atm", "train.epoch = 3", "epoch"),
            ("atm", "train.epochs = 3\ntrain.epochs = 4", "duplicate"),
        ] {
            let error = Protocol::new(method, &[part]).settings().unwrap_err().to_string();
            assert!(error.contains(problem), "{method} {part}: {error}");
        }
    }
}
