//! Columns as a user names them: `a,b`, `y1..y9`, `#1..#4`, `rest`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::table::short_name;
use crate::{Error, Result};

/// A list of columns not yet matched with a table.
///
/// | written | means |
/// |---|---|
/// | `a,b` | the columns called a and b, in this order |
/// | `y1..y9` | every column of the table from y1 to y9, both included |
/// | `#3`, `#-1` | the third column, the last one |
/// | `#1..#4` | the first four columns |
/// | `*`, `rest`, `others` | every column not otherwise used |
/// | `"a,b"` | the one column called `a,b`; a quotation mark inside is doubled |
///
/// **The table's order decides what a range holds.** In a table with columns x1, y1, x2 the range `x1..x2` holds
/// y1 too; a table ordered y1, y10, y2 gives `y1..y2` all three. Both ends must exist and the first must not come
/// after the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Selection {
    /// Every column not otherwise used.
    Rest,
    /// These columns, in this order.
    Columns(Vec<Pick>),
}

/// One entry of a [`Selection`]; positions start at 1, or at −1 from the end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pick {
    /// A column by name.
    Name(String),
    /// All columns between two named ones in the table's order.
    Names(String, String),
    /// A column by position.
    Position(i64),
    /// All columns between two positions.
    Positions(i64, i64),
}

impl Selection {
    /// The positions, from 0, of the columns selected among `names`; [`Selection::Rest`] selects all.
    pub fn resolve(&self, names: &[String]) -> Result<Vec<usize>> {
        let Selection::Columns(picks) = self else { return Ok((0..names.len()).collect()) };
        let mut chosen = Vec::new();
        let mut taken = vec![false; names.len()];
        for pick in picks {
            let (first, last) = match pick {
                Pick::Name(name) => {
                    let place = find(name, names)?;
                    (place, place)
                }
                Pick::Names(first, last) => (find(first, names)?, find(last, names)?),
                Pick::Position(place) => {
                    let place = position(*place, names.len())?;
                    (place, place)
                }
                Pick::Positions(first, last) => {
                    (position(*first, names.len())?, position(*last, names.len())?)
                }
            };
            if first > last {
                return Err(Error::Columns(format!(
                    "the range {pick} runs backwards: in the table \"{}\" is column {} and \"{}\" is column {}",
                    short_name(&names[first]),
                    first + 1,
                    short_name(&names[last]),
                    last + 1
                )));
            }
            for place in first..=last {
                if std::mem::replace(&mut taken[place], true) {
                    return Err(Error::Columns(format!(
                        "column \"{}\" is selected twice in {self}: name it once",
                        short_name(&names[place])
                    )));
                }
                chosen.push(place);
            }
        }
        Ok(chosen)
    }
}

/// Resolves two selections of one table that must not share a column; [`Selection::Rest`] on one side means all
/// that the other leaves. Returns the positions for `target` and for `given`, neither of them empty.
pub fn resolve_pair(
    target: &Selection,
    given: &Selection,
    names: &[String],
) -> Result<(Vec<usize>, Vec<usize>)> {
    let without = |used: &[usize]| -> Vec<usize> {
        let mut free = vec![true; names.len()];
        used.iter().for_each(|&place| free[place] = false);
        (0..names.len()).filter(|&place| free[place]).collect()
    };
    let (targets, givens) = match (target, given) {
        (Selection::Rest, Selection::Rest) => {
            return Err(Error::Columns(
                "target and given both ask for the rest of the columns: name the columns of one of them"
                    .into(),
            ));
        }
        (Selection::Rest, _) => {
            let givens = given.resolve(names)?;
            (without(&givens), givens)
        }
        (_, Selection::Rest) => {
            let targets = target.resolve(names)?;
            let givens = without(&targets);
            (targets, givens)
        }
        _ => (target.resolve(names)?, given.resolve(names)?),
    };
    for (side, list, other) in [("target", &targets, "given"), ("given", &givens, "target")] {
        if list.is_empty() {
            return Err(Error::Columns(format!(
                "no column is left for {side}: {other} takes all {} columns of the table",
                names.len()
            )));
        }
    }
    let mut is_target = vec![false; names.len()];
    targets.iter().for_each(|&place| is_target[place] = true);
    if let Some(&both) = givens.iter().find(|&&place| is_target[place]) {
        return Err(Error::Columns(format!(
            "column \"{}\" is both target and given: leave it out of one of them",
            short_name(&names[both])
        )));
    }
    Ok((targets, givens))
}

fn position(place: i64, columns: usize) -> Result<usize> {
    let from_start = if place > 0 { place - 1 } else { place.saturating_add_unsigned(columns as u64) };
    usize::try_from(from_start).ok().filter(|&from_start| place != 0 && from_start < columns).ok_or_else(
        || {
            Error::Columns(format!(
                "there is no column #{place}: the table has columns #1 to #{columns}, or #-1 for the last"
            ))
        },
    )
}

fn find(name: &str, names: &[String]) -> Result<usize> {
    names.iter().position(|own| own == name).ok_or_else(|| {
        let mut text = format!("there is no column \"{}\"", short_name(name));
        if let Some(near) = nearest(name, names) {
            text.push_str(&format!(": did you mean \"{}\"?", short_name(near)));
        } else {
            text.push('.');
        }
        const FEW: usize = 20;
        let list = names.iter().take(FEW).map(|own| quoted(&short_name(own))).collect::<Vec<_>>().join(", ");
        match names.len() {
            0..=FEW => text.push_str(&format!(" The columns are {list}")),
            more => text.push_str(&format!(" The first of the {more} columns are {list}")),
        }
        Error::Columns(text)
    })
}

/// The name closest to `wanted` in edit distance, if it is close enough to be a slip: a third of the letters.
fn nearest<'a>(wanted: &str, names: &'a [String]) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    names
        .iter()
        .map(|name| (edit_distance(&wanted, &name.to_lowercase()), name.as_str()))
        .min_by_key(|&(distance, _)| distance)
        .filter(|&(distance, _)| distance <= limit)
        .map(|(_, name)| name)
}

/// Levenshtein's distance: insertions, deletions and substitutions of letters, by rows of the usual table.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let substituted = diagonal + usize::from(letter != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// `name` as it must be written in a selection: in quotation marks when it would read as something else.
fn quoted(name: &str) -> String {
    let special = name.is_empty()
        || is_rest(name)
        || name.trim() != name
        || name.starts_with('#')
        || name.contains([',', '"'])
        || name.contains("..")
        || name.ends_with('.')
        || name.starts_with('.');
    if special { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}

fn is_rest(text: &str) -> bool {
    matches!(text, "*" | "rest" | "others")
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pick::Name(name) => f.write_str(&quoted(name)),
            Pick::Names(first, last) => write!(f, "{}..{}", quoted(first), quoted(last)),
            Pick::Position(place) => write!(f, "#{place}"),
            Pick::Positions(first, last) => write!(f, "#{first}..#{last}"),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Selection::Columns(picks) = self else { return f.write_str("rest") };
        for (i, pick) in picks.iter().enumerate() {
            write!(f, "{}{pick}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl From<Selection> for String {
    fn from(selection: Selection) -> String {
        selection.to_string()
    }
}

impl TryFrom<String> for Selection {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for Selection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if is_rest(text.trim()) {
            return Ok(Selection::Rest);
        }
        let wrong =
            |why: String| Error::Columns(format!("cannot read the column selection \"{text}\": {why}"));
        let mut picks = Vec::new();
        let mut left = text;
        loop {
            let first = End::take(&mut left).map_err(wrong)?;
            let pick = if let Some(after) = left.strip_prefix("..") {
                left = after;
                match (first, End::take(&mut left).map_err(wrong)?) {
                    (End::Name(first), End::Name(last)) => Pick::Names(first, last),
                    (End::Position(first), End::Position(last)) => Pick::Positions(first, last),
                    _ => return Err(wrong("both ends of a range must be names or both positions".into())),
                }
            } else {
                match first {
                    End::Name(name) => Pick::Name(name),
                    End::Position(place) => Pick::Position(place),
                }
            };
            picks.push(pick);
            match left.strip_prefix(',') {
                Some(after) => left = after,
                None if left.is_empty() => return Ok(Selection::Columns(picks)),
                None => return Err(wrong(format!("expected a comma before \"{left}\""))),
            }
        }
    }
}

/// One end of a range, or a whole entry without one.
enum End {
    Name(String),
    Position(i64),
}

impl End {
    /// Takes a name or position, and the blanks around it, off the front of `left`.
    fn take(left: &mut &str) -> Result<End, String> {
        *left = left.trim_start();
        if let Some(inside) = left.strip_prefix('"') {
            let mut name = String::new();
            let mut letters = inside.char_indices().peekable();
            while let Some((at, letter)) = letters.next() {
                if letter != '"' {
                    name.push(letter);
                } else if letters.next_if(|&(_, next)| next == '"').is_some() {
                    name.push('"');
                } else if name.is_empty() {
                    return Err("a name is empty".into());
                } else {
                    *left = inside[at + 1..].trim_start();
                    return Ok(End::Name(name));
                }
            }
            return Err("a quotation mark is not closed".into());
        }
        let end = left.find(',').unwrap_or(left.len());
        let end = left[..end].find("..").unwrap_or(end);
        let word = left[..end].trim_end();
        *left = &left[end..];
        if word.is_empty() {
            return Err("a name is missing; entries are separated by single commas".into());
        }
        if is_rest(word) {
            return Err(format!("\"{word}\" must stand alone"));
        }
        let Some(digits) = word.strip_prefix('#') else { return Ok(End::Name(word.to_owned())) };
        match digits.parse() {
            Ok(0) | Err(_) => {
                Err(format!("\"{word}\" is not a position: write #1 for the first column, #-1 for the last"))
            }
            Ok(place) => Ok(End::Position(place)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(list: &str) -> Vec<String> {
        list.split(' ').map(str::to_owned).collect()
    }

    fn resolve(text: &str, list: &str) -> Result<Vec<usize>> {
        text.parse::<Selection>()?.resolve(&names(list))
    }

    fn problem(text: &str, list: &str) -> String {
        resolve(text, list).unwrap_err().to_string()
    }

    #[test]
    fn names_ranges_and_positions() {
        let list = "a b y1 y2 y3 z";
        assert_eq!(resolve("b,a", list).unwrap(), [1, 0]);
        assert_eq!(resolve(" y1 .. y3 , z ", list).unwrap(), [2, 3, 4, 5]);
        assert_eq!(resolve("a..y1", list).unwrap(), [0, 1, 2]);
        assert_eq!(resolve("#3", list).unwrap(), [2]);
        assert_eq!(resolve("#-1,#1", list).unwrap(), [5, 0]);
        assert_eq!(resolve("#2..#-2", list).unwrap(), [1, 2, 3, 4]);
        for rest in ["*", "rest", " others "] {
            assert_eq!(rest.parse::<Selection>().unwrap(), Selection::Rest);
        }
        assert_eq!(resolve("*", "a b").unwrap(), [0, 1]);
    }

    #[test]
    fn the_tables_order_decides_a_range() {
        assert_eq!(resolve("x1..x2", "x1 y1 x2 y2").unwrap(), [0, 1, 2]);
        assert_eq!(resolve("y1..y2", "y1 y10 y2").unwrap(), [0, 1, 2]);
    }

    #[test]
    fn quotation_marks_allow_any_name() {
        assert_eq!(resolve("\"a,b\",\"c..d\"..e", "c..d e a,b").unwrap(), [2, 0, 1]);
        assert_eq!(resolve("\"rest\"", "a rest").unwrap(), [1]);
        assert_eq!(resolve("\"#1\"", "a #1").unwrap(), [1]);
        assert_eq!(resolve("\"say \"\"hi\"\"\"", "x").unwrap_err().to_string().matches("hi").count(), 1);
        assert_eq!(resolve("mass.solar", "mass.solar b").unwrap(), [0]);
    }

    #[test]
    fn unknown_columns_get_a_suggestion_and_a_list() {
        assert_eq!(
            problem("tehta1", "theta1 theta2 y"),
            "there is no column \"tehta1\": did you mean \"theta1\"? The columns are theta1, theta2, y"
        );
        assert_eq!(problem("Y", "x y"), "there is no column \"Y\": did you mean \"y\"? The columns are x, y");
        assert_eq!(problem("velocity", "x y"), "there is no column \"velocity\". The columns are x, y");
        assert!(problem("y1..y9", "y1 y2 y8").contains("no column \"y9\""));
        let many = (0..100).map(|i| format!("c{i}")).collect::<Vec<_>>().join(" ");
        let text = problem("absent", &many);
        assert!(text.contains("The first of the 100 columns are c0, ") && !text.contains("c20"), "{text}");
    }

    #[test]
    fn repeated_backward_and_absent_columns_are_errors() {
        assert!(problem("a,b,a", "a b").contains("column \"a\" is selected twice in a,b,a"));
        assert!(problem("a..c,b", "a b c").contains("column \"b\" is selected twice"));
        assert!(problem("c..a", "a b c").contains("runs backwards: in the table \"c\" is column 3"));
        assert!(problem("#4", "a b c").contains("there is no column #4: the table has columns #1 to #3"));
        assert!(problem("#-4", "a b c").contains("there is no column #-4"));
        assert!(problem("#9223372036854775807,#-9223372036854775808", "a").contains("there is no column"));
    }

    #[test]
    fn malformed_selections_say_why() {
        for (text, why) in [
            ("", "a name is missing"),
            ("a,,b", "a name is missing"),
            ("a,", "a name is missing"),
            ("a..", "a name is missing"),
            ("a..b..c", "expected a comma before \"..c\""),
            ("\"a", "quotation mark is not closed"),
            ("\"\"", "a name is empty"),
            ("\"a\"b", "expected a comma before \"b\""),
            ("#0", "not a position"),
            ("#x", "not a position"),
            ("#1..b", "both ends of a range"),
            ("a,rest", "must stand alone"),
        ] {
            let error = text.parse::<Selection>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn pairs_divide_the_columns() {
        let pair = |target: &str, given: &str| {
            resolve_pair(&target.parse().unwrap(), &given.parse().unwrap(), &names("a b c"))
        };
        assert_eq!(pair("a", "rest").unwrap(), (vec![0], vec![1, 2]));
        assert_eq!(pair("*", "c").unwrap(), (vec![0, 1], vec![2]));
        assert_eq!(pair("c", "a").unwrap(), (vec![2], vec![0]));
        let problem = |target, given| pair(target, given).unwrap_err().to_string();
        assert!(problem("a..b", "b,c").contains("column \"b\" is both target and given"));
        assert!(problem("rest", "rest").contains("both ask for the rest"));
        assert!(problem("a..c", "rest").contains("no column is left for given: target takes all 3"));
        assert!(problem("rest", "a..c").contains("no column is left for target"));
    }

    #[test]
    fn serialises_as_its_text() {
        for text in ["a,b", "y1..y9,#2", "rest", "\"a,b\"..\"#c\"", "#-3..#-1"] {
            let selection: Selection = text.parse().unwrap();
            let json = serde_json::to_string(&selection).unwrap();
            assert_eq!(json, serde_json::to_string(text).unwrap());
            assert_eq!(serde_json::from_str::<Selection>(&json).unwrap(), selection);
        }
        assert!(serde_json::from_str::<Selection>("\"a,,b\"").is_err());
    }

    #[test]
    fn edit_distances() {
        for (a, b, distance) in [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("é", "e", 1)] {
            assert_eq!(edit_distance(a, b), distance);
            assert_eq!(edit_distance(b, a), distance);
        }
    }

    proptest! {
        #[test]
        fn any_name_survives_being_written_and_read(first in "\\PC{1,8}", last in "[a-z.,#\" *]{1,5}") {
            let selection = Selection::Columns(vec![Pick::Name(first.clone()), Pick::Names(last, first)]);
            prop_assert_eq!(selection.to_string().parse::<Selection>().unwrap(), selection);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c0-9.,#\"* -]{0,12}") {
            if let Ok(selection) = text.parse::<Selection>() {
                let _ = selection.resolve(&names("a b c"));
                prop_assert_eq!(selection.to_string().parse::<Selection>().unwrap(), selection);
            }
        }
    }
}
