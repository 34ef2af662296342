//! The six tables of the UCI Machine Learning Repository on which conditional transport maps have been compared, and
//! how they were prepared for the published figures.

use std::path::{Path, PathBuf};

use super::{ReadOptions, Selection, Split, Table, correlated_columns, read};
use crate::Pick;
use crate::{Error, Result};

/// Of two columns with a correlation above this the published experiments keep one.
pub const UCI_MAX_CORRELATION: f64 = 0.98;
/// Seed of the published split.
const SPLIT_SEED: u64 = 42;
/// Part of the rows for validation, and again for the test.
const SPLIT_PART: f64 = 0.1;

/// One table: what it is, where it comes from and how the published experiments use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UciSet {
    /// Short name; the table's file is `NAME.csv`.
    pub name: &'static str,
    /// The repository's name for it.
    pub title: &'static str,
    /// Digital object identifier, to cite it by.
    pub doi: &'static str,
    /// Names of the columns, in order.
    pub columns: &'static [&'static str],
    /// Number of rows.
    pub rows: usize,
    /// Columns that the experiments leave out before the correlation filter.
    pub dropped: &'static [&'static str],
    /// How many of the last columns left are the target x; those before are y.
    pub targets: usize,
    /// Whether the experiments estimate the density of (x, y) rather than that of x given y.
    pub joint: bool,
    /// [`Table::hash`] of the raw table under these column names.
    pub sha256: &'static str,
    /// The original's address on the server.
    pub(super) file: &'static str,
    /// The address of an archive that holds the original, should the first not be served.
    pub(super) archive: &'static str,
}

/// The catalogue, in the order of the published table.
pub fn uci_sets() -> &'static [UciSet] {
    const WINE: &[&str] = &[
        "fixed_acidity",
        "volatile_acidity",
        "citric_acid",
        "residual_sugar",
        "chlorides",
        "free_sulfur_dioxide",
        "total_sulfur_dioxide",
        "density",
        "ph",
        "sulphates",
        "alcohol",
        "quality",
    ];
    const SETS: &[UciSet] = &[
        UciSet {
            name: "parkinsons",
            title: "Parkinsons Telemonitoring",
            doi: "10.24432/C5ZS3N",
            columns: &[
                "subject",
                "age",
                "sex",
                "test_time",
                "motor_updrs",
                "total_updrs",
                "jitter_percent",
                "jitter_abs",
                "jitter_rap",
                "jitter_ppq5",
                "jitter_ddp",
                "shimmer",
                "shimmer_db",
                "shimmer_apq3",
                "shimmer_apq5",
                "shimmer_apq11",
                "shimmer_dda",
                "nhr",
                "hnr",
                "rpde",
                "dfa",
                "ppe",
            ],
            rows: 5875,
            dropped: &["subject", "age", "sex"],
            targets: 8,
            joint: true,
            sha256: "165c74029645cc365fd7ced2df3153a7d976ccb471b3d8846002a90c9afe13fb",
            file: "ml/machine-learning-databases/parkinsons/telemonitoring/parkinsons_updrs.data",
            archive: "static/public/189/parkinsons+telemonitoring.zip",
        },
        UciSet {
            name: "white_wine",
            title: "Wine Quality (white)",
            doi: "10.24432/C56S3T",
            columns: WINE,
            rows: 4898,
            dropped: &["quality"],
            targets: 6,
            joint: true,
            sha256: "e83d96acf2c277269ebdb91d29602b5e123642d109adfa3f18439e18264e1a90",
            file: "ml/machine-learning-databases/wine-quality/winequality-white.csv",
            archive: "static/public/186/wine+quality.zip",
        },
        UciSet {
            name: "red_wine",
            title: "Wine Quality (red)",
            doi: "10.24432/C56S3T",
            columns: WINE,
            rows: 1599,
            dropped: &["quality"],
            targets: 6,
            joint: true,
            sha256: "1e2e77a09f1bfb1294b45e50c5517fb86eedabd65e398788ca45ca565cda79ed",
            file: "ml/machine-learning-databases/wine-quality/winequality-red.csv",
            archive: "static/public/186/wine+quality.zip",
        },
        UciSet {
            name: "concrete",
            title: "Concrete Compressive Strength",
            doi: "10.24432/C5PK67",
            columns: &[
                "cement",
                "blast_furnace_slag",
                "fly_ash",
                "water",
                "superplasticizer",
                "coarse_aggregate",
                "fine_aggregate",
                "age_days",
                "compressive_strength_mpa",
            ],
            rows: 1030,
            dropped: &[],
            targets: 1,
            joint: false,
            sha256: "93732487a417e180b767a5ad3cffe1a54011528109183da440a50f0ba6c6107a",
            file: "ml/machine-learning-databases/concrete/compressive/Concrete_Data.xls",
            archive: "static/public/165/concrete+compressive+strength.zip",
        },
        UciSet {
            name: "energy",
            title: "Energy Efficiency",
            doi: "10.24432/C51307",
            columns: &[
                "relative_compactness",
                "surface_area",
                "wall_area",
                "roof_area",
                "overall_height",
                "orientation",
                "glazing_area",
                "glazing_area_distribution",
                "heating_load",
                "cooling_load",
            ],
            rows: 768,
            dropped: &[],
            targets: 1,
            joint: false,
            sha256: "981763a436e43c5111c556ecf78fcc2c05ecf2f3473912ba15cbf8665dd4f7ea",
            file: "ml/machine-learning-databases/00242/ENB2012_data.xlsx",
            archive: "static/public/242/energy+efficiency.zip",
        },
        UciSet {
            name: "yacht",
            title: "Yacht Hydrodynamics",
            doi: "10.24432/C5XG7R",
            columns: &[
                "longitudinal_position",
                "prismatic_coefficient",
                "length_displacement_ratio",
                "beam_draught_ratio",
                "length_beam_ratio",
                "froude_number",
                "residuary_resistance",
            ],
            rows: 308,
            dropped: &[],
            targets: 1,
            joint: false,
            sha256: "9c2bcd4ae526592a187684014342b85e0b27b6bf2f46a9f69c97b889455cf97f",
            file: "ml/machine-learning-databases/00243/yacht_hydrodynamics.data",
            archive: "static/public/243/yacht+hydrodynamics.zip",
        },
    ];
    SETS
}

impl UciSet {
    /// The table called `name`.
    pub fn find(name: &str) -> Result<&'static UciSet> {
        uci_sets().iter().find(|set| set.name == name).ok_or_else(|| {
            let names: Vec<_> = uci_sets().iter().map(|set| set.name).collect();
            Error::setting("dataset", format!("there is no \"{name}\": choose from {}", names.join(", ")))
        })
    }

    /// Its file in `folder`.
    pub fn path(&self, folder: &Path) -> PathBuf {
        folder.join(self.name).with_extension("csv")
    }

    /// Reads the raw table from `folder` and makes sure that it is the published one.
    pub fn read(&self, folder: &Path) -> Result<Table> {
        let path = self.path(folder);
        let table = read(&path, &ReadOptions::default(), |names| Ok((0..names.len()).collect()))?.table;
        self.check(&table).map_err(|problem| Error::table(&path, problem))?;
        Ok(table)
    }

    /// What is wrong with a table that should be this one.
    pub(super) fn check(&self, table: &Table) -> Result<(), String> {
        let hash = table.hash();
        if hash == self.sha256 {
            return Ok(());
        }
        Err(format!(
            "this is not the published table {}: it has {} rows of {} columns ({} and {} were expected) and the \
             SHA-256 of its names and values is {hash}, not {}",
            self.name,
            table.rows(),
            table.columns(),
            self.rows,
            self.columns.len(),
            self.sha256
        ))
    }

    /// The raw table without the columns that the published experiments leave out.
    pub fn prepare(&self, table: &Table) -> Result<Table> {
        let kept: Vec<usize> = (0..table.columns())
            .filter(|&column| !self.dropped.contains(&table.names()[column].as_str()))
            .collect();
        let kept = table.select_columns(&kept);
        let doubled = correlated_columns(&kept, UCI_MAX_CORRELATION)?;
        let kept_columns: Vec<usize> =
            (0..kept.columns()).filter(|column| !doubled.contains(column)).collect();
        Ok(kept.select_columns(&kept_columns))
    }

    /// The published split of its rows, 8:1:1.
    pub fn split(&self) -> Split {
        Split::sklearn(self.rows, SPLIT_PART, SPLIT_PART, SPLIT_SEED)
            .expect("the catalogue's tables are long enough")
    }

    /// The target and the given columns of the prepared table.
    pub fn columns(&self, prepared: &Table) -> (Selection, Selection) {
        let (given, target) = prepared.names().split_at(prepared.columns() - self.targets);
        let selection =
            |names: &[String]| Selection::Columns(names.iter().cloned().map(Pick::Name).collect());
        (selection(target), selection(given))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_fits_together() {
        for set in uci_sets() {
            assert_eq!(UciSet::find(set.name).unwrap(), set);
            assert!(set.dropped.iter().all(|name| set.columns.contains(name)), "{}", set.name);
            assert_eq!(set.sha256.len(), 64, "{}", set.name);
            let split = set.split();
            assert_eq!(split.train.len() + split.valid.len() + split.test.len(), set.rows);
            assert!(Path::new(set.file).extension().is_some() && set.archive.ends_with(".zip"));
        }
        assert!(UciSet::find("boston").unwrap_err().to_string().contains("parkinsons, white_wine"));
    }

    #[test]
    fn preparation_drops_the_named_columns_and_then_the_first_of_each_pair() {
        let set = UciSet { dropped: &["b"], targets: 1, ..uci_sets()[0].clone() };
        let names = ["a", "b", "c", "d"].map(String::from).to_vec();
        let values = [[1.0, 9.0, 2.0, 0.3], [2.0, 9.5, 4.0, -1.0], [4.0, 8.0, 8.0, 0.5]].concat();
        let prepared = set.prepare(&Table::new(names, values).unwrap()).unwrap();
        assert_eq!(prepared.names(), ["c", "d"]);
        let (target, given) = set.columns(&prepared);
        assert_eq!((target.to_string().as_str(), given.to_string().as_str()), ("d", "c"));
    }

    #[test]
    fn another_table_under_the_same_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let set = UciSet::find("yacht").unwrap();
        std::fs::write(set.path(folder.path()), "a,b\n1,2\n").unwrap();
        let text = set.read(folder.path()).unwrap_err().to_string();
        assert!(text.contains("yacht.csv") && text.contains("1 rows of 2 columns (308 and 7"), "{text}");
    }
}
