//! What a user should know about a table before a fit to it.

use super::FitSettings;
use crate::data::{Table, short_name};
use crate::{Error, Result};

/// A target column with this few distinct values, each of them in several rows, holds integers or categories. (Measurements
/// that were merely rounded, such as those of the wine tables, have 60 and more.)
const FEW_VALUES: usize = 30;
/// Rows per distinct value from which on that is no accident of a short table.
const ROWS_PER_VALUE: usize = 3;
/// An atom has at least this many rows, …
const ATOM_ROWS: usize = 10;
/// … this part of the table, …
const ATOM_PART: f64 = 0.02;
/// … and this many times the rows of any value that is none: rounded values repeat too, but all of them.
const ATOM_FACTOR: usize = 4;
/// Atoms that a column is searched for.
const ATOMS: usize = 4;
/// Columns that are warned of one by one.
const NAMED: usize = 3;
/// Fewer rows than this are hardly worth a network.
const FEW_ROWS: usize = 50;
/// From this many given columns on, a network needs [`ROWS_PER_COLUMN`] rows for each.
const MANY_GIVEN: usize = 100;
/// See [`MANY_GIVEN`].
const ROWS_PER_COLUMN: usize = 20;

/// Constant target columns are an error, constant given and doubled columns a warning.
pub(super) fn of_table(table: &Table, target: &[usize], given: &[usize]) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for (a, b) in table.duplicate_columns() {
        let (first, second) = (short_name(&table.names()[a]), short_name(&table.names()[b]));
        let both_target = target.contains(&a) && target.contains(&b);
        let crossing = target.contains(&a) != target.contains(&b);
        let all = target.iter().chain(given);
        if both_target {
            return Err(Error::Columns(format!(
                "the target columns \"{first}\" and \"{second}\" are equal in every row: their joint density does not \
                 exist; leave one of them out of `target`"
            )));
        } else if crossing && all.clone().any(|c| c == &a) && all.clone().any(|c| c == &b) {
            warnings.push(format!(
                "columns {first} and {second} are equal in every row: the target is known exactly from the given \
                 columns and its density has no finite limit"
            ));
        } else if given.contains(&a) && given.contains(&b) {
            warnings
                .push(format!("given columns {first} and {second} are equal in every row; one is enough"));
        }
    }
    Ok(warnings)
}

/// Tables with very few rows, or with very many given columns for their rows.
pub(super) fn of_sizes(settings: &FitSettings, train: usize, valid: usize, given: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    let rows = train + valid;
    // The second block of a joint map has the rows of the first, which was warned of.
    if rows < FEW_ROWS && !settings.joint {
        warnings.push(format!(
            "only {rows} rows ({train} to train on, {valid} to validate with): expect little more than the mean and spread \
             of the target, and densities that change with the seed; a few hundred rows are a start, thousands are good"
        ));
    }
    let reduced = settings.pca.is_some() || settings.reduce.is_some() || settings.method.spec().embeds();
    if given >= MANY_GIVEN && given * ROWS_PER_COLUMN > rows && !reduced {
        let can_embed = settings.method.method().info().settings.iter().any(|one| one.name == "embedding");
        let embedding = if can_embed { " or `embedding = 128,64`" } else { "" };
        warnings.push(format!(
            "{given} given columns for {rows} rows: the map is likely to overfit them; reduce them to the \
             directions that the target has to do with (`reduce = 50`), project them on their principal components with \
             `pca = 0.99` (or a number of them, `pca = 20`){embedding}, or give fewer, telling columns"
        ));
    }
    warnings
}

/// Target columns with a distribution that has no density: few distinct values, or atoms.
pub(super) fn of_values(table: &Table, target: &[usize]) -> Vec<String> {
    let mut warnings: Vec<String> =
        target.iter().filter_map(|&column| lumps(table, column)).map(|lumps| lumps.warning()).collect();
    if warnings.len() > NAMED + 1 {
        let more = warnings.len() - NAMED;
        warnings.truncate(NAMED);
        warnings.push(format!("… and {more} more target columns have few distinct values or such an atom"));
    }
    warnings
}

/// Values that many rows share.
struct Lumps<'a> {
    name: &'a str,
    rows: usize,
    kind: Lump,
}

enum Lump {
    /// The column has only this many distinct values.
    Few(usize),
    /// This many rows have exactly one of these values.
    Atoms(Vec<f64>, usize),
}

impl Lumps<'_> {
    fn warning(&self) -> String {
        let (name, rows) = (short_name(self.name), self.rows);
        match &self.kind {
            Lump::Few(distinct) => format!(
                "target column \"{name}\" has only {distinct} distinct values in {rows} rows: integers and categories have no \
                 density, so its NLL means nothing and draws fall between the values; make it a given column, or add \
                 uniform noise as wide as one step to it"
            ),
            Lump::Atoms(values, count) => {
                // −0 + 0 = 0.
                let values: Vec<String> = values.iter().map(|value| (value + 0.0).to_string()).collect();
                let part = 100.0 * *count as f64 / rows as f64;
                format!(
                    "target column \"{name}\" is exactly {} in {count} of {rows} rows ({part:.0} %): there is no density at \
                     such an atom, so NLL and draws near it mean little; learn the rows without it, and its probability \
                     apart",
                    values.join(" or ")
                )
            }
        }
    }
}

/// What makes the distribution of `column` lumpy, if anything does. A constant column is an error elsewhere.
fn lumps(table: &Table, column: usize) -> Option<Lumps<'_>> {
    let mut values: Vec<f64> = table.iter().map(|row| row[column]).collect();
    values.sort_unstable_by(f64::total_cmp);
    // Equal as numbers: −0 is 0.
    let mut counts: Vec<(usize, f64)> =
        values.chunk_by(|a, b| a == b).map(|equal| (equal.len(), equal[0])).collect();
    let (rows, distinct) = (values.len(), counts.len());
    let found = |kind: Lump| Some(Lumps { name: &table.names()[column], rows, kind });
    if (2..=FEW_VALUES).contains(&distinct) && rows >= ROWS_PER_VALUE * distinct {
        return found(Lump::Few(distinct));
    }
    // The most frequent first; the smaller of equals.
    counts.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
    let least = ATOM_ROWS.max((ATOM_PART * rows as f64).ceil() as usize);
    let gap = |atoms: &usize| {
        let next = counts.get(*atoms).map_or(0, |&(count, _)| count);
        let last = counts.get(*atoms - 1).map_or(0, |&(count, _)| count);
        next > 0 && last >= least && last >= ATOM_FACTOR * next
    };
    let atoms = (1..=ATOMS).find(gap)?;
    let (sizes, mut values): (Vec<usize>, Vec<f64>) = counts[..atoms].iter().copied().unzip();
    values.sort_unstable_by(f64::total_cmp);
    found(Lump::Atoms(values, sizes.iter().sum()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::example;
    use crate::map::Method;
    use crate::transform::PcaSettings;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// One column of `rows` values.
    fn column(rows: usize, mut value: impl FnMut(usize, f64) -> f64) -> Table {
        let mut rng = ChaCha8Rng::seed_from_u64(rows as u64);
        let values = (0..rows).map(|row| value(row, rng.sample(StandardNormal))).collect();
        Table::new(vec!["x".to_owned()], values).unwrap()
    }

    fn told(table: &Table) -> String {
        of_values(table, &[0]).join("\n")
    }

    #[test]
    fn integers_and_categories_have_no_density() {
        for table in [
            column(300, |row, _| (row % 7) as f64),
            column(40, |_, z| f64::from(z > 0.3)),
            column(5000, |_, z| (3.0 * z).round()),
        ] {
            let text = told(&table);
            assert!(text.contains("\"x\" has only") && text.contains("given column"), "{text}");
        }
        assert!(told(&column(300, |row, _| (row % 7) as f64)).contains("only 7 distinct values in 300 rows"));
    }

    #[test]
    fn atoms_are_named_with_their_part() {
        // Rain: nothing falls on a third of the days.
        let rain = told(&column(900, |row, z| if row % 3 == 0 { 0.0 } else { z.exp() }));
        assert!(rain.contains("is exactly 0 in 300 of 900 rows (33 %)"), "{rain}");
        // Clipped at both ends, and an atom among rounded values.
        let clipped = told(&column(900, |_, z| z.clamp(-1.0, 1.0)));
        assert!(clipped.contains("exactly -1 or 1 in "), "{clipped}");
        let rounded =
            told(&column(4000, |row, z| if row % 5 == 0 { 0.0 } else { (100.0 * z).round() / 100.0 }));
        assert!(rounded.contains("exactly 0 in 8"), "{rounded}");
    }

    #[test]
    fn ordinary_columns_are_not_warned_of() {
        let plain: [Table; 7] = [
            column(200, |_, z| z),
            // Rounded, as the columns of the wine tables are: 60 to 150 values, the most frequent in 10 % of the rows.
            column(1600, |_, z| (10.0 * z).round()),
            column(5000, |_, z| (30.0 * z.exp()).round() / 10.0),
            // A few repeated measurements, as in the yacht table.
            column(308, |_, z| (100.0 * z.exp()).round() / 100.0),
            // Replicates: a hundred parameters, simulated ten times each.
            column(1000, |row, _| (row / 10) as f64 * 0.37),
            // Short tables repeat values by accident.
            column(30, |row, z| if row < 6 { 1.0 } else { z }),
            column(20, |_, z| (4.0 * z).round()),
        ];
        for (which, table) in plain.iter().enumerate() {
            assert_eq!(told(table), "", "{which}");
        }
        assert_eq!(of_values(&example::simulate(1000, 0), &[0, 1, 2]), Vec::<String>::new());
    }

    #[test]
    fn many_lumpy_columns_are_counted() {
        let names = (0..9).map(|j| format!("x{j}")).collect();
        let table = Table::new(names, (0..900).map(|i| f64::from(i / 9 % 4)).collect()).unwrap();
        let warnings = of_values(&table, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(warnings.len(), 4);
        assert!(warnings[3].contains("6 more target columns"), "{warnings:?}");
    }

    #[test]
    fn short_and_wide_tables_are_told() {
        let plain = FitSettings::default();
        let few = of_sizes(&plain, 36, 4, 2).join("\n");
        assert!(few.contains("only 40 rows (36 to train on, 4 to validate with)"), "{few}");
        assert!(of_sizes(&plain, 45, 5, 2).is_empty());
        assert!(of_sizes(&FitSettings { joint: true, ..plain.clone() }, 36, 4, 2).is_empty());
        let wide = of_sizes(&plain, 1800, 200, 300).join("\n");
        assert!(wide.contains("300 given columns for 2000 rows") && wide.contains("`pca = 0.99`"), "{wide}");
        assert!(!wide.contains("`embedding = "));
        let flow = FitSettings::of(Method::CotFlow);
        assert!(of_sizes(&flow, 1800, 200, 300)[0].contains("`embedding = "));
        // Rows enough, columns few enough, or projected already.
        assert!(of_sizes(&plain, 9000, 1000, 300).is_empty());
        assert!(of_sizes(&plain, 900, 100, 99).is_empty());
        let projected = FitSettings { pca: Some("0.99".parse::<PcaSettings>().unwrap()), ..plain };
        assert!(of_sizes(&projected, 1800, 200, 300).is_empty());
    }
}
