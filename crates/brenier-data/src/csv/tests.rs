//! Tests of `csv`.

use super::*;
use proptest::prelude::*;

fn all(names: &[String]) -> Result<ColumnChoice> {
    Ok(ColumnChoice { columns: (0..names.len()).collect(), categorical: Vec::new() })
}

fn read_with(text: impl io::Read, options: &ReadOptions) -> Result<Read> {
    read(Path::new("t.csv"), text, None, false, options, all)
}

fn dropping(text: &str) -> Read {
    let options = ReadOptions { missing: Missing::DropRows, ..Default::default() };
    read_with(text.as_bytes(), &options).unwrap()
}

fn parse(text: impl AsRef<[u8]>) -> Result<Table> {
    let (text, options) = (text.as_ref(), ReadOptions::default());
    let size = Some(text.len() as u64);
    read(Path::new("t.csv"), text, size, false, &options, all).map(|read| read.table)
}

fn problem(text: impl AsRef<[u8]>) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn delimiters_are_found_out() {
    for text in [
        "a,b,c\n1,2,3\n4,5,6\n",
        "a;b;c\n1;2;3\n4;5;6",
        "a\tb\tc\n1\t2\t3\n4\t5\t6\n",
        "a|b|c\n1|2|3\n4|5|6\n",
        "a b c\n1 2 3\n4 5 6\n",
        "  a   b\tc\n 1  2 \t3  \n\n4 5 6\n",
        "a, b, c\n1, 2, 3\n4, 5, 6\n",
        "a,b,c\r\n1,2,3\r\n4,5,6\r\n",
        "\u{feff}a,b,c\n1,2,3\n4,5,6\n",
        "# made by x; on monday, 2 | 3\n#\n\n\"a\",\"b\",\"c\"\n1,2,3\n4,5,6\n",
        "a,b,c\n1,2,3\n\n4,5,6\n  \n",
        "\"a\" b c\n1 2 3\n\"4\" 5 6\n",
    ] {
        let table = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(table.names(), ["a", "b", "c"], "{text:?}");
        assert_eq!(table.values(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{text:?}");
    }
}

#[test]
fn a_delimiter_inside_quotation_marks_or_names_does_not_mislead() {
    let table = parse("\"mass; kg\",\"a,b\"\n1,2\n3,4\n").unwrap();
    assert_eq!(table.names(), ["mass; kg", "a,b"]);
    let table = parse("solar mass,b\n1,2\n").unwrap();
    assert_eq!(table.names(), ["solar mass", "b"]);
    let table = parse("solar mass\n1\n2\n").unwrap();
    assert_eq!(table.names(), ["solar mass"]);
    let table = parse("\"a\nb\",c\n1,2\n").unwrap();
    assert_eq!(table.names(), ["a\nb", "c"]);
}

#[test]
fn a_first_line_of_numbers_is_data() {
    let table = parse("1,2e3\n-.5,+4\n").unwrap();
    assert_eq!(table.names(), ["c1", "c2"]);
    assert_eq!(table.values(), [1.0, 2000.0, -0.5, 4.0]);
    assert_eq!(parse("7").unwrap().values(), [7.0]);
    assert_eq!(parse("1.5D+03 2.d0\n1 2").unwrap().values(), [1500.0, 2.0, 1.0, 2.0]);
    assert!(problem("1,NA\n1,2\n").contains("row 1 (line 1), column \"c2\": found \"NA\""));
}

#[test]
fn headers_must_name_every_column_once() {
    assert!(problem("a,b,a\n1,2,3\n").contains("columns 1 and 3 are both called \"a\""));
    assert!(problem(",a,b\n0,1,2\n").contains("the header has no name for column 1 of 3"));
    assert!(problem("a,b,\n0,1,\n").contains("the header has no name for column 3 of 3"));
    assert!(problem(b"a,\xff\xc0\n1,2\n").contains("not UTF-8"));
    assert!(problem(b"\xff\xfea\0,\0").contains("UTF-16"));
}

#[test]
fn an_empty_line_in_a_single_column_is_a_missing_cell_except_at_the_end() {
    let text = "a\n1\n\n3\n\n\n";
    let error = problem(text);
    assert!(error.contains("row 2 (line 3), column \"a\""), "{error}");
    let read = dropping(text);
    assert_eq!((read.table.values(), read.dropped_rows), (&[1.0, 3.0][..], 1));
}

#[test]
fn ragged_rows_are_errors_with_their_line() {
    let error = problem("a,b,c\n1,2,3\n1,2\n");
    assert_eq!(error, "t.csv: row 2 (line 3) has 2 fields where 3 were expected, as in the header");
    assert!(problem("# x\na b c\n1 2 3 4\n").contains("row 1 (line 3) has 4 fields where 3"));
    assert!(
        problem("1,2\n1\n")
            .contains("row 2 (line 2) has 1 fields where 2 were expected, as in the first row")
    );
}

#[test]
fn line_numbers_survive_comments_blank_lines_and_line_endings() {
    for text in [
        "# c\n\na,b\n1,2\n1,x\n",
        "# c\r\n\r\na,b\r\n1,2\r\n1,x\r\n",
        "# c\na,b\n\n1,2\n1,x\n",
        "a,b\n1,2\n\n\n1,x\n",
        "a,b\r\n1,2\r\n\r\n\r\n1,x\r\n",
        "a,\"b\n\"\n\n1,2\n1,x\n",
        "# c\n\na b\n1 2\n1 x\n",
    ] {
        let error = problem(text);
        assert!(error.contains("row 2 (line 5)"), "{text:?}: {error}");
    }
}

#[test]
fn text_in_a_number_column_is_named() {
    assert_eq!(
        problem("a,b\n1,2\n3,hello\n"),
        "t.csv: row 2 (line 3), column \"b\": found \"hello\", which is not a number; correct it, choose other columns, or take a given column of categories with `categorical`"
    );
    assert!(problem(format!("a,b\n1,{}\n", "x".repeat(99))).contains(&format!("\"{}…\"", "x".repeat(40))));
    // Text in a column nobody asked for is fine.
    let text = "id,b\nfoo,2\n\"bar, the second\",3\n";
    let second = |_: &[String]| Ok(ColumnChoice { columns: vec![1], categorical: Vec::new() });
    let options = ReadOptions::default();
    let table = read(Path::new("t"), text.as_bytes(), None, false, &options, second).unwrap().table;
    assert_eq!((table.names(), table.values()), (&["b".to_owned()][..], &[2.0, 3.0][..]));
}

#[test]
fn missing_cells_are_refused_or_dropped() {
    for word in ["", "NA", "n/a", "#N/A", "NaN", "nan", "-inf", "Infinity", "null", "None", "  "] {
        let text = format!("a,b\n1,2\n{word},4\n5,6\n");
        let error = problem(&text);
        assert!(
            error.contains("row 2 (line 3), column \"a\"") && error.contains("remove the row"),
            "{error}"
        );
        let read = dropping(&text);
        assert_eq!(read.dropped_rows, 1);
        assert_eq!(read.table.values(), [1.0, 2.0, 5.0, 6.0]);
    }
    // The second column may hold the gap, too, and text before a gap is still an error.
    let text = "a,b\n1,NA\n2,3\n";
    let read = dropping(text);
    assert_eq!(read.table.values(), [2.0, 3.0]);
}

#[test]
fn decimal_commas_are_explained() {
    for text in
        ["a;b\n1,5;2,5\n", "1,5;2,5\n3,5;4,5\n", "a b\n1,5 2,5\n", "a\tb\n1,5\t2\n", "a,b\n\"1,5\",2\n"]
    {
        assert!(problem(text).contains("`decimal = comma`"), "{text:?}: {}", problem(text));
    }
}

#[test]
fn decimal_commas_are_read_on_request() {
    let options = ReadOptions { decimal: Decimal::Comma, ..Default::default() };
    for text in [
        "a;b\n1,5;-2,5e1\n3;4\n",
        "a b\n1,5 -25\n3 4\n",
        "a\tb\n1,5\t-25\n3\t4\n",
        "a|b\n1,5|-25,0\n3|4\n",
        "a,b\n\"1,5\",\"-25\"\n\"3\",\"4\"\n",
    ] {
        let table = read_with(text.as_bytes(), &options).unwrap_or_else(|e| panic!("{text:?}: {e}")).table;
        assert_eq!(table.names(), ["a", "b"], "{text:?}");
        assert_eq!(table.values(), [1.5, -25.0, 3.0, 4.0], "{text:?}");
    }
    let table = read_with(&b"1,5\n2,5\n"[..], &options).unwrap().table;
    assert_eq!((table.columns(), table.values()), (1, &[1.5, 2.5][..]));
    let error = read_with(&b"a;b\n1,5;2.5\n"[..], &options).unwrap_err().to_string();
    assert!(
        error.contains("row 1 (line 2), column \"b\": found \"2.5\", a number with a decimal point"),
        "{error}"
    );
}

#[test]
fn further_texts_are_missing_on_request() {
    let text = "a,b\n1,?\n-,2\n3,-999\n5,6\n";
    assert!(problem(text).contains("found \"?\", which is not a number"));
    let missing_texts = ["?", "-", "-999"].map(str::to_owned).to_vec();
    let options = ReadOptions { missing_texts, ..Default::default() };
    let error = read_with(text.as_bytes(), &options).unwrap_err().to_string();
    assert!(error.contains("found \"?\", a missing or infinite value; fill it in"), "{error}");
    let options = ReadOptions { missing: Missing::DropRows, ..options };
    let read = read_with(text.as_bytes(), &options).unwrap();
    assert_eq!((read.table.values(), read.dropped_rows), (&[5.0, 6.0][..], 3));
}

#[test]
fn dates_are_named_as_such() {
    let error = problem("day,b\n2024-05-31,1\n");
    assert!(error.contains("found \"2024-05-31\", a date or time; write it as a number"), "{error}");
    assert!(problem("t,b\n12:30:00,1\n").contains("a date or time"));
}

#[test]
fn categories_are_read_as_positions() {
    let text = "colour,y\nred,1\nblue,2\nred,NA\n 1.0 ,3\n1,4\nNA,5\n";
    let choice = |_: &[String]| Ok(ColumnChoice { columns: vec![1, 0], categorical: vec![0] });
    let options = ReadOptions { missing: Missing::DropRows, ..Default::default() };
    let read = read(Path::new("t"), text.as_bytes(), None, false, &options, choice).unwrap();
    assert_eq!(read.table.values(), [1.0, 0.0, 2.0, 1.0, 3.0, 2.0, 4.0, 2.0]);
    assert!(read.levels[0].is_none());
    let levels = read.levels[1].as_ref().unwrap();
    assert_eq!((levels.names.join(" "), &levels.rows[..]), ("red blue 1".to_owned(), &[1, 2, 4][..]));
    let long: String = (0..1001).map(|i| format!("id{i},1\n")).collect();
    let choice = |_: &[String]| Ok(ColumnChoice { columns: vec![0], categorical: vec![0] });
    let error =
        super::read(Path::new("t"), format!("id,y\n{long}").as_bytes(), None, false, &options, choice);
    assert!(error.unwrap_err().to_string().contains("\"id\" has more than 1000 different values"));
}

#[test]
fn empty_tables_are_errors() {
    assert!(problem("").contains("empty"));
    assert!(problem("\n\n# only\n  # comments").contains("empty but for blank lines and comments"));
    assert!(problem("a,b\n").ends_with("the table has no rows"));
    assert!(problem("a").ends_with("the table has no rows"));
    assert!(problem("\u{feff}").contains("empty"));
}

#[test]
fn tables_longer_and_wider_than_the_sample_are_read_whole() {
    let long: String = (0..50_000).map(|i| format!("{i};{}\n", f64::from(i) / 7.0)).collect();
    let table = parse(format!("# {}\ni;x\n{long}", "long comment ".repeat(20_000))).unwrap();
    assert_eq!(table.rows(), 50_000);
    assert_eq!(table.row(49_999), [49_999.0, 49_999.0 / 7.0]);
    let wide = |letter: &str| (0..30_000).map(|i| format!("{letter}{i}")).collect::<Vec<_>>().join("\t");
    let table = parse(format!("{}\n{}\n{}\n", wide("x"), wide("1"), wide("2"))).unwrap();
    assert_eq!((table.rows(), table.columns()), (2, 30_000));
}

/// Lines out of the ordinary among plain ones: the reader of blocks says what that of records, to which a quoted header leads, says.
#[test]
fn blocks_and_records_read_the_same() {
    let odd = [
        "",
        "  ",
        "1,,3",
        "1,2",
        "1,2,3,4",
        "x,2,3",
        "1,\"2\",3",
        "\"1\n\",2,3",
        "1,2,3\r",
        "1,2\r,3",
        " 1 ,\t2,3 ",
        "1,nan,3",
        "2024-05-31,2,3",
        "1e400,2,3",
    ];
    for missing in [Missing::Fail, Missing::DropRows] {
        let options = ReadOptions { missing, ..ReadOptions::default() };
        for (first, odd) in odd.iter().enumerate() {
            for place in [0, 1, 7, 30, 59] {
                for last in ["", "\n", "\n\n"] {
                    let mut lines: Vec<String> = (0..60).map(|i| format!("{i},{}.5,-{i}e3", i * i)).collect();
                    lines.insert(place, (*odd).to_owned());
                    lines.insert((place + 11 * first) % 61, "9,8,7".to_owned());
                    let body = lines.join("\n") + last;
                    let read = |header: &str| {
                        let text = format!("# note\n{header}\n{body}");
                        read_with(text.as_bytes(), &options).map_err(|error| error.to_string())
                    };
                    assert_eq!(read("a,b,c"), read("\"a\",b,c"), "{odd:?} in place {place}");
                }
            }
        }
    }
    assert_eq!(parse("1,2\n3,4").unwrap().values(), parse("1,2\r\n3,4\r\n").unwrap().values());
}

#[test]
fn endless_input_without_lines_ends_in_an_error() {
    let error = read_with(io::repeat(b'x'), &ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("longer than 64 MB"), "{error}");
}

#[test]
fn a_closed_pipe_keeps_its_kind() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let table = Table::new(vec!["a".into()], vec![1.0]).unwrap();
    assert_eq!(write(&mut Closed, b',', &table).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn numbers_are_written_short() {
    let table = Table::new(vec!["a".into(), "b,c".into()], vec![1.0, 0.1, 1e300, -2.5e-8]).unwrap();
    let mut text = Vec::new();
    write(&mut text, b',', &table).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "a,\"b,c\"\n1,0.1\n1e300,-2.5e-8\n");
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_to_the_bit(
        bits in prop::collection::vec(any::<u64>(), 1..40),
        width in 1_usize..5,
        odd in "[a-z;,|\" #\t]{0,4}",
        delimiter in prop::sample::select(vec![b',', b'\t', b';', b'|']),
    ) {
        let names: Vec<_> = (0..width).map(|j| format!("{}{odd}n{j}", if j == 0 { "" } else { "x" })).collect();
        prop_assume!(names[0].trim() == names[0]);
        let mut values: Vec<f64> =
            bits.into_iter().map(f64::from_bits).map(|v| if v.is_finite() { v } else { 0.5 }).collect();
        values.resize(values.len().next_multiple_of(width), -0.0);
        let table = Table::new(names, values).unwrap();
        let mut text = Vec::new();
        write(&mut text, delimiter, &table).unwrap();
        let back = parse(&text).unwrap();
        prop_assert_eq!(back.names(), table.names());
        for (a, b) in back.values().iter().zip(table.values()) {
            prop_assert_eq!(a.to_bits(), b.to_bits());
        }
        prop_assert_eq!(back.rows(), table.rows());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-b0-2,; \t|\"\r\n#.-]{0,60}") {
        let _ = parse(&text);
    }
}
