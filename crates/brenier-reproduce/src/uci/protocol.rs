//! What the experiment has to say about each method, as data.

use super::Variant;
use crate::protocol::Protocol;
use crate::tune::SearchSpace;
use crate::{FitSettings, Result};

/// What the experiment has to say about a method on a table.
pub(super) struct MethodProtocol {
    /// Settings of the method and of its training.
    pub(super) settings: FitSettings,
    /// The space that is searched.
    pub(super) space: &'static str,
    /// Whether there is anything to search for.
    pub(super) searches: bool,
    /// Parts of the cross-validation that belongs to it.
    pub(super) folds: usize,
    /// The log density below which a joint test row is left out of that.
    pub(super) floor: Option<f64>,
}

/// A line of the list.
struct Listed {
    method: &'static str,
    /// The training of the authors' programs, and what else of them is not our default, as lines of a settings file.
    train: &'static str,
    /// What is more to be said where x given y is estimated, and where (x, y) is.
    sizes: [&'static str; 2],
    /// Widths and rates that did well on small tables, fewer than published; none where there are none but the published.
    short_space: Option<&'static str>,
    /// Where it is not the method's own for such tables.
    exact_space: Option<&'static str>,
    searches: bool,
    folds: usize,
    floor: Option<f64>,
}

/// Of methods that are not in the list.
const OTHERS: Listed = Listed {
    method: "",
    train: "train.patience = 20",
    sizes: [""; 2],
    short_space: None,
    exact_space: None,
    searches: true,
    folds: 0,
    floor: None,
};

const LIST: [Listed; 4] = [
    Listed {
        method: "pcp-map",
        train: "method.reference = 'gaussian'\ntrain.validate_every = 50\ntrain.patience = 20",
        short_space: Some(
            "[method]\n\
             feature_width = [32, 64, 128]\n\
             context_width = \"halvings\"\n\
             depth = [2, 3]\n\
             [train]\n\
             batch_size = [32, 64]\n\
             learning_rate = [0.01, 0.005, 0.002]\n",
        ),
        ..OTHERS
    },
    Listed {
        method: "cot-flow",
        train: "train.validate_every = 20\ntrain.patience = 10",
        short_space: Some(
            "[method]\n\
             feature_width = [32, 64]\n\
             alpha_transport = { log_uniform = [0.003, 0.1] }\n\
             alpha_hjb = { log_uniform = [0.03, 0.5] }\n\
             [train]\n\
             batch_size = [32, 64]\n\
             learning_rate = [0.01, 0.005]\n",
        ),
        ..OTHERS
    },
    Listed {
        method: "cp-flow",
        short_space: Some(
            "[method]\n\
             feature_width = [32, 64, 128]\n\
             depth = [2, 3, 4]\n\
             [train]\n\
             batch_size = [32, 64]\n\
             learning_rate = [0.01, 0.005, 0.002]\n",
        ),
        ..OTHERS
    },
    Listed {
        method: "atm",
        sizes: ["method.max_terms = 150", "method.max_terms = 80"],
        // One setting: there is nothing to search.
        exact_space: Some("[method]\nfolds = 5\n"),
        searches: false,
        folds: 10,
        floor: Some(-1e4),
        ..OTHERS
    },
];

/// The training of the short protocol.
const SHORT_TRAIN: &str = "train.patience = 10";
/// Validations without improvement halve the step size, four times.
const HALVINGS: &str = "train.drop_factor = 0.5\ntrain.max_drops = 4";

impl MethodProtocol {
    /// Of a method, for a table of which (x, y) is estimated or x given y, by the `exact` or the short protocol.
    pub(super) fn of(variant: &Variant, joint: bool, exact: bool) -> Result<Self> {
        let method = variant.method();
        let own = LIST.iter().find(|own| own.method == method.name()).unwrap_or(&OTHERS);
        let train = if exact || !own.searches { own.train } else { SHORT_TRAIN };
        let parts = [own.sizes[usize::from(joint)], train, HALVINGS];
        let mut settings = Protocol::new(method.name(), &parts).settings()?;
        settings.method = variant.over(&settings.method)?;
        let published = SearchSpace::preset("uci", method).unwrap_or(method.info().spaces[0].1);
        let exact_space = own.exact_space.unwrap_or(published);
        let space = if exact { exact_space } else { own.short_space.unwrap_or(exact_space) };
        Ok(Self { settings, space, searches: own.searches, folds: own.folds, floor: own.floor })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::map::{Method, MethodSettings};
    use crate::train::TrainSettings;

    /// Written out: a search of an earlier version is continued only where settings and space are what they were.
    #[test]
    fn settings_and_spaces_are_those_of_earlier_versions() {
        let train = |validate_every: usize, patience: u32| TrainSettings {
            validate_every,
            patience: Some(patience),
            drop_factor: Some(0.5),
            max_drops: Some(4),
            ..Default::default()
        };
        let plain = |name: &str| name.parse::<Method>().unwrap().defaults();
        let terms = |count: usize| plain("atm").with("max_terms", count).unwrap();
        let expect =
            |variant: &str, joint: bool, exact: bool, method: MethodSettings, train: TrainSettings| {
                let found = MethodProtocol::of(&variant.parse().unwrap(), joint, exact).unwrap();
                let expected = FitSettings { method, train, ..Default::default() };
                assert_eq!(found.settings, expected, "{variant} {joint} {exact}");
                found
            };
        for joint in [false, true] {
            for (name, validate_every, patience) in [
                ("pcp-map", 50, 20),
                ("cot-flow", 20, 10),
                ("cp-flow", 0, 20),
                ("npe", 0, 20),
                ("gaussian", 0, 20),
            ] {
                let method = name.parse::<Method>().unwrap();
                let published = match name {
                    "pcp-map" => plain(name).with("reference", "gaussian").unwrap(),
                    _ => plain(name),
                };
                let exact = expect(name, joint, true, published, train(validate_every, patience));
                let uci = SearchSpace::preset("uci", method).unwrap_or(method.info().spaces[0].1);
                assert_eq!(exact.space, uci);
                let short = expect(name, joint, false, plain(name), train(0, 10));
                assert_eq!(short.space == uci, ["npe", "gaussian"].contains(&name));
                assert_eq!((short.searches, short.folds, short.floor), (true, 0, None));
            }
            for exact in [false, true] {
                let most = if joint { 80 } else { 150 };
                let found = expect("atm", joint, exact, terms(most), train(0, 20));
                assert_eq!(found.space, "[method]\nfolds = 5\n");
                assert_eq!((found.searches, found.folds, found.floor), (false, 10, Some(-1e4)));
                expect("atm:max_terms=30", joint, exact, terms(30), train(0, 20));
            }
            let maf = plain("npe").with("flow", "maf").unwrap();
            expect("npe:flow=maf", joint, false, maf, train(0, 10));
        }
        let short = |name: &str| MethodProtocol::of(&name.parse().unwrap(), false, false).unwrap().space;
        assert_eq!(
            short("pcp-map"),
            "[method]\nfeature_width = [32, 64, 128]\ncontext_width = \"halvings\"\ndepth = [2, 3]\n[train]\n\
             batch_size = [32, 64]\nlearning_rate = [0.01, 0.005, 0.002]\n"
        );
        assert_eq!(
            short("cot-flow"),
            "[method]\nfeature_width = [32, 64]\nalpha_transport = { log_uniform = [0.003, 0.1] }\n\
             alpha_hjb = { log_uniform = [0.03, 0.5] }\n[train]\nbatch_size = [32, 64]\nlearning_rate = [0.01, 0.005]\n"
        );
        assert_eq!(
            short("cp-flow"),
            "[method]\nfeature_width = [32, 64, 128]\ndepth = [2, 3, 4]\n[train]\nbatch_size = [32, 64]\n\
             learning_rate = [0.01, 0.005, 0.002]\n"
        );
    }
}
