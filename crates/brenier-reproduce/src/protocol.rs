//! The settings of a protocol as data: a method and lines of a settings file.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, FitSettings, Posterior, Result};

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
        self.read()
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T> {
        let wrong = |error: toml::de::Error| Error::setting("method", error.to_string().replace('\n', " "));
        toml::from_str(&self.text).map_err(wrong)
    }

    /// Refuses a model `file` of `folder` that an earlier version has learned with another value of a setting of the method that the
    /// lines name, lest a table show it as what it is not.
    pub(crate) fn accept(&self, model: &Posterior, folder: &Path, file: &str) -> Result<()> {
        let asked: Value = self.read()?;
        let learned = serde_json::to_value(&model.info().settings.method).expect("settings are plain data");
        let mut asked = asked["method"].as_object().into_iter().flatten();
        match asked.find(|(name, value)| learned.get(name).is_some_and(|own| own != *value)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::folder(
                folder,
                format!(
                    "holds {file}, which an earlier version learned with another {name}: choose another `out`"
                ),
            )),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::map::Method;
    use crate::{Run, fit};

    #[test]
    fn lines_are_laid_over_the_defaults_of_the_method() {
        for method in Method::ALL {
            assert_eq!(Protocol::new(method.name(), &[]).settings().unwrap(), FitSettings::of(*method));
        }
        let parts =
            ["method.depth = 3\ntrain.epochs = 7", "train.adam.weight_decay = 0.5\nscaling = \"common\""];
        let read = Protocol::new("cp-flow", &parts).settings().unwrap();
        assert_eq!(read.method, Method::CpFlow.defaults().with("depth", 3).unwrap());
        assert_eq!((read.train.epochs, read.train.adam.weight_decay), (7, Some(0.5)));
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

    #[test]
    fn a_model_of_another_protocol_is_refused() {
        let lines = ["method.feature_width = 8\ntrain.epochs = 1\ntarget = 'x1,x2'\ngiven = 'y'"];
        let own = Protocol::new("pcp-map", &lines);
        let table = brenier_core::example::simulate(100, 1);
        let model = fit(&table, &own.settings().unwrap(), Run::silent()).unwrap().posterior;
        let accept = |protocol: &Protocol| protocol.accept(&model, Path::new("out"), "map.brenier");
        accept(&own).unwrap();
        // Neither defaults of the method nor settings of its training matter.
        accept(&Protocol::new("pcp-map", &["train.epochs = 9"])).unwrap();
        for (protocol, name) in [
            (Protocol::new("pcp-map", &["method.feature_width = 16"]), "feature_width"),
            (Protocol::new("cp-flow", &lines), "name"),
        ] {
            let expected = format!(
                "out holds map.brenier, which an earlier version learned with another {name}: choose another `out`"
            );
            assert_eq!(accept(&protocol).unwrap_err().to_string(), expected);
        }
    }
}
