//! `brenier sample --summary`: the draws of each observation in short, as text, table or JSON.

use std::fmt::Write;
use std::path::Path;

use brenier::data::{Table, write_bytes};
use brenier::statistics::{DrawSummary, HPD_MASS, LEVELS};
use serde::Serialize;

use crate::failure::Failure;
use crate::output;
use crate::posterior_args::SampleArguments;
use crate::tables::{self, Output, free_name};

/// Observations that the text shows.
const SHOWN: usize = 20;
/// Columns whose correlations the text shows.
const CORRELATED: usize = 10;
/// Letters of a name in the text.
const NAME: usize = 24;

/// Where a summary goes.
pub(crate) struct Destinations<'a> {
    /// A table; none means text, unless there is JSON for standard output.
    table: Option<Output>,
    json: Option<&'a Path>,
}

impl<'a> Destinations<'a> {
    /// What the flags name, checked before any work; none without `--summary`.
    pub(crate) fn of(arguments: &'a SampleArguments) -> Result<Option<Self>, Failure> {
        let Some(summary) = &arguments.summary else {
            return match &arguments.json.json {
                None => Ok(None),
                Some(_) => Err(Failure::Usage(
                    "--json writes the summary: add --summary (draws go to --out as a table)".to_owned(),
                )),
            };
        };
        let table = summary.as_deref().map(|path| output::destination(Some(path)));
        let json = arguments.json.json.as_deref();
        let prints = [
            ("--out -", arguments.out.as_deref() == Some(Path::new("-"))),
            ("--summary", table.as_ref().map_or(json != Some(Path::new("-")), |t| *t == Output::Stdout)),
            ("--json", json == Some(Path::new("-"))),
        ];
        let to_stdout: Vec<&str> =
            prints.iter().filter(|(_, prints)| *prints).map(|(flag, _)| *flag).collect();
        if let [first, second, ..] = to_stdout[..] {
            return Err(Failure::Usage(format!(
                "{first} and {second} would both go to standard output: name a file for one of them, as in \
                 --out draws.csv, --summary=summary.csv or --json=summary.json"
            )));
        }
        if !arguments.with.is_empty() && arguments.out.is_none() {
            return Err(Failure::Usage(
                "--with adds columns to the draws, which --summary does not write: name a file for them with --out"
                    .to_owned(),
            ));
        }
        if arguments.n < 2 {
            return Err(Failure::Usage("-n: a summary needs at least 2 draws".to_owned()));
        }
        if let Some(table) = &table {
            output::check_destination(table)?;
        }
        if let Some(path) = json.filter(|path| *path != Path::new("-")) {
            output::check_writable(path)?;
        }
        Ok(Some(Self { table, json }))
    }

    /// Writes the `summaries` of the columns `names`, one for each observation.
    pub(crate) fn write(
        &self,
        names: &[String],
        summaries: &[DrawSummary],
        seed: u64,
    ) -> Result<(), Failure> {
        if let Some(table) = &self.table {
            tables::write(table, &wide(names, summaries)?)?;
        }
        let printed = self.json == Some(Path::new("-"));
        if let Some(path) = self.json {
            let json = json(names, summaries, seed);
            match printed {
                true => output::result(&json)?,
                false => write_bytes(path, json.as_bytes())?,
            }
        }
        if self.table.is_none() && !printed {
            output::result(&text(names, summaries))?;
        }
        Ok(())
    }
}

/// A row for each observation: its number, each column's figures, the correlations of all pairs.
fn wide(names: &[String], summaries: &[DrawSummary]) -> Result<Table, Failure> {
    let mut header = vec!["observation".to_owned()];
    let mut add = |name: String| header.push(free_name(&name, &header));
    for name in names {
        ["mean", "sd"].iter().for_each(|what| add(format!("{name}_{what}")));
        LEVELS.iter().for_each(|level| add(format!("{name}_q{:02.0}", 100.0 * level)));
        ["low", "high"].iter().for_each(|end| add(format!("{name}_hpd{:.0}_{end}", 100.0 * HPD_MASS)));
    }
    for (i, first) in names.iter().enumerate() {
        names[i + 1..].iter().for_each(|second| add(format!("correlation_{first}_{second}")));
    }
    let mut values = Vec::with_capacity(header.len() * summaries.len());
    for (row, summary) in summaries.iter().enumerate() {
        values.push(row as f64 + 1.0);
        for column in &summary.columns {
            values.extend([column.mean, column.sd]);
            values.extend(column.quantiles);
            values.extend(column.hpd);
        }
        values.extend(summary.correlation.iter().enumerate().flat_map(|(i, row)| &row[i + 1..]));
    }
    Ok(Table::new(header, values)?)
}

/// The document that `--json` writes.
#[derive(Serialize)]
struct Document<'a> {
    columns: &'a [String],
    seed: u64,
    quantile_levels: [f64; LEVELS.len()],
    hpd_mass: f64,
    observations: Vec<Numbered<'a>>,
}

#[derive(Serialize)]
struct Numbered<'a> {
    observation: usize,
    #[serde(flatten)]
    summary: &'a DrawSummary,
}

fn json(names: &[String], summaries: &[DrawSummary], seed: u64) -> String {
    let numbered =
        summaries.iter().enumerate().map(|(row, summary)| Numbered { observation: row + 1, summary });
    let document = Document {
        columns: names,
        seed,
        quantile_levels: LEVELS,
        hpd_mass: HPD_MASS,
        observations: numbered.collect(),
    };
    serde_json::to_string_pretty(&document).expect("plain numbers and names") + "\n"
}

/// Aligned tables, of the first observations.
fn text(names: &[String], summaries: &[DrawSummary]) -> String {
    let names: Vec<String> = names.iter().map(|name| cut(name)).collect();
    let mut text = String::new();
    for (row, summary) in summaries.iter().take(SHOWN).enumerate() {
        if row > 0 {
            text.push('\n');
        }
        match summaries.len() {
            1 => _ = writeln!(text, "{} draws", summary.draws),
            count => _ = writeln!(text, "observation {} of {count}, {} draws", row + 1, summary.draws),
        }
        let mut lines = vec![vec![String::new(), "mean".to_owned(), "sd".to_owned()]];
        lines[0].extend(LEVELS.iter().map(|level| format!("{:.0} %", 100.0 * level)));
        lines[0].extend([format!("HPD {:.0} %: from", 100.0 * HPD_MASS), "to".to_owned()]);
        for (name, column) in names.iter().zip(&summary.columns) {
            let mut line = vec![name.clone()];
            let values = [column.mean, column.sd].into_iter().chain(column.quantiles).chain(column.hpd);
            line.extend(values.map(|value| short(value, column.sd)));
            lines.push(line);
        }
        text.push_str(&aligned(&lines));
        if names.len() > 1 {
            text.push_str(&correlations(&names, summary));
        }
    }
    if summaries.len() > SHOWN {
        let _ = writeln!(
            text,
            "\n… {} more observations: --summary=FILE.csv or --json=FILE writes all {}",
            summaries.len() - SHOWN,
            summaries.len()
        );
    }
    text
}

/// The lower triangle of the correlations.
fn correlations(names: &[String], summary: &DrawSummary) -> String {
    let shown = names.len().min(CORRELATED);
    let mut lines = vec![vec!["correlation".to_owned()]];
    lines[0].extend(names[..shown - 1].iter().cloned());
    for i in 1..shown {
        let mut line = vec![names[i].clone()];
        line.extend(summary.correlation[i][..i].iter().map(|rho| format!("{rho:.2}")));
        line.resize(shown, String::new());
        lines.push(line);
    }
    let mut text = aligned(&lines);
    if names.len() > shown {
        let _ = writeln!(text, "… of the first {shown} of {} columns; --json has all", names.len());
    }
    text
}

/// The first cell of a line to the left, the others to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|j| lines.iter().map(|line| line[j].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (j, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let _ = if j == 0 { write!(row, "{cell:width$}") } else { write!(row, "  {cell:>width$}") };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// At most [`NAME`] letters of a name.
fn cut(name: &str) -> String {
    match name.chars().count() > NAME {
        true => name.chars().take(NAME - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// As many significant digits as show a hundredth of the column's spread `sd`, at least four.
fn short(value: f64, sd: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    let order = size.log10().floor();
    let wanted = order - sd.log10().floor() + 3.0;
    let digits = if (4.0..=17.0).contains(&wanted) { wanted } else { 4.0 };
    let before = order + 1.0;
    match (1e-4..1e6).contains(&size) || (before <= digits && before > 0.0) {
        true => format!("{value:.*}", (digits - before).max(0.0) as usize),
        false => format!("{value:.*e}", (digits - 1.0) as usize),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    fn summary() -> DrawSummary {
        let values: Vec<f64> = (0..=100).flat_map(|i| [f64::from(i), 0.125 * f64::from(100 - i)]).collect();
        DrawSummary::of(&values, 2).unwrap()
    }

    #[test]
    fn the_text_is_aligned_and_names_what_it_leaves_out() {
        let one = text(&names(&["rate", "x"]), &[summary()]);
        let expected = "\
101 draws
       mean     sd     5 %   25 %   50 %   75 %   95 %  HPD 90 %: from     to
rate  50.00  29.30   5.000  25.00  50.00  75.00  95.00               0  90.00
x     6.250  3.663  0.6250  3.125  6.250  9.375  11.88               0  11.25
correlation   rate
x            -1.00
";
        assert_eq!(one, expected);
        let many = text(&names(&["rate", "x"]), &vec![summary(); 23]);
        assert!(many.contains("observation 20 of 23, 101 draws") && !many.contains("observation 21"));
        assert!(many.ends_with("… 3 more observations: --summary=FILE.csv or --json=FILE writes all 23\n"));
        assert_eq!(cut(&"n".repeat(40)).chars().count(), NAME);
        let figures = [1.0, -12345.6, 2e-9, 0.000123456].map(|value| short(value, value.abs()));
        assert_eq!(figures.join(" "), "1.000 -12346 2.000e-9 0.0001235");
        assert_eq!([short(0.0, 1.0), short(1.5, 0.0), short(1.5, f64::NAN)].join(" "), "0 1.500 1.500");
    }

    #[test]
    fn a_small_spread_beside_a_large_mean_is_seen() {
        let values: Vec<f64> = (0..=100).map(|i| 1.7e9 + f64::from(i)).collect();
        let text = text(&names(&["t"]), &[DrawSummary::of(&values, 1).unwrap()]);
        assert!(text.contains("1700000050.0  29.30  1700000005.0"), "{text}");
        assert_eq!(short(1.7e9, 1e8), "1.700e9");
        assert_eq!(short(-0.5, 1e-6), "-0.50000000");
    }

    #[test]
    fn the_table_has_a_row_for_each_observation() {
        let table = wide(&names(&["a", "b"]), &[summary(), summary()]).unwrap();
        assert_eq!((table.rows(), table.columns()), (2, 1 + 2 * 9 + 1));
        assert_eq!(table.names()[..3], names(&["observation", "a_mean", "a_sd"]));
        assert_eq!(table.names()[8..10], names(&["a_hpd90_low", "a_hpd90_high"]));
        assert_eq!(table.value(1, table.column("correlation_a_b").unwrap()), -1.0);
        assert_eq!(table.value(0, table.column("a_q05").unwrap()), 5.0);
    }
}
