//! What is done with hostile bytes, reader by reader.

use std::path::{Path, PathBuf};

use brenier::data::{
    ColumnChoice, Format, Missing, ReadOptions, Selection, Table, read, read_categories, resolve_pair, write,
};
use brenier::map::SampleSettings;
use brenier::simulate::{Prior, Streams, protocol};
use brenier::store::{self, Tensor, TensorValues};
use brenier::transform::{ColumnSettings, Support};
use brenier::tune::SearchSpace;
use brenier::{FitSettings, ModeSettings, Posterior};

/// A file in memory that holds the input; every thread has its own.
fn with_file<T>(bytes: &[u8], extension: &str, run: impl FnOnce(&Path) -> T) -> T {
    thread_local!(static STEM: PathBuf = {
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
        let thread = format!("{:?}", std::thread::current().id());
        let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
        base.join(format!("brenier-hostile-{}-{digits}", std::process::id()))
    });
    let path = STEM.with(|stem| stem.with_extension(extension));
    std::fs::write(&path, bytes).expect("the input fits in memory");
    let result = run(&path);
    let _ = std::fs::remove_file(&path);
    result
}

/// Reads the input as a table, whole and in part; what was read must survive writing as text.
fn table(bytes: &[u8], format: Format, extension: &str) {
    with_file(bytes, extension, |path| {
        for missing in [Missing::Fail, Missing::DropRows] {
            let options = ReadOptions { format: Some(format), missing, ..ReadOptions::default() };
            let whole = read(path, &options, |names| Ok((0..names.len()).collect()));
            let last = read(path, &options, |names| Ok(vec![names.len() - 1]));
            if let (Ok(whole), Ok(last)) = (&whole, &last) {
                assert_eq!(last.table.columns(), 1);
                assert!(whole.table.rows() <= last.table.rows());
            }
            if let Ok(whole) = whole {
                again(path, &whole.table);
            }
        }
    });
}

/// Text gives back the bits of a small table, unless its names look like numbers.
fn again(path: &Path, table: &Table) {
    if table.values().len() > 1000 || table.names().iter().any(|name| !plain(name)) {
        return;
    }
    let path = path.with_extension("again.csv");
    write(&path, table).expect("a folder in memory takes a small table");
    let back = read(&path, &ReadOptions::default(), |names| Ok((0..names.len()).collect()));
    let back = back.expect("what was written is read").table;
    assert_eq!(back.names(), table.names());
    assert!(back.values().iter().zip(table.values()).all(|(a, b)| a.to_bits() == b.to_bits()));
    let _ = std::fs::remove_file(path);
}

fn plain(name: &str) -> bool {
    name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !["inf", "infinity", "nan", "na", "null", "none"].contains(&name.to_lowercase().as_str())
}

/// Delimited text, in one of four ways by the length of the input: each reading builds six automata, which is slow when
/// instrumented.
pub fn csv(bytes: &[u8]) {
    let missing = if bytes.len().is_multiple_of(2) { Missing::Fail } else { Missing::DropRows };
    let extension = if bytes.len() % 4 < 2 { "csv" } else { "tsv" };
    with_file(bytes, extension, |path| {
        let options = ReadOptions { missing, ..ReadOptions::default() };
        if let Ok(whole) = read(path, &options, |names| Ok((0..names.len()).collect())) {
            again(path, &whole.table);
        }
    });
}

/// One array of NumPy.
pub fn npy(bytes: &[u8]) {
    table(bytes, Format::Npy, "npy");
}

/// A zip archive of arrays.
pub fn npz(bytes: &[u8]) {
    table(bytes, Format::Npz, "npz");
}

/// Apache Parquet.
pub fn parquet(bytes: &[u8]) {
    table(bytes, Format::Parquet, "parquet");
}

/// Arrow's IPC format, file or stream: all columns and one of them, as numbers and as categories.
pub fn arrow(bytes: &[u8]) {
    let which = bytes.iter().fold(0_usize, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    with_file(bytes, "arrow", |path| {
        let options =
            ReadOptions { format: Some(Format::Arrow), missing: Missing::DropRows, ..ReadOptions::default() };
        for one in [false, true] {
            for categories in [false, true] {
                let result = read_categories(path, &options, |names| {
                    let columns: Vec<usize> = match one {
                        true => vec![which % names.len()],
                        false => (0..names.len()).collect(),
                    };
                    Ok(ColumnChoice {
                        categorical: if categories { columns.clone() } else { Vec::new() },
                        columns,
                    })
                });
                if let Ok(result) = result {
                    assert_eq!(result.levels.iter().all(Option::is_some), categories);
                    again(path, &result.table);
                }
            }
        }
    });
}

/// Text compressed by gzip or zstd; the first bytes tell which.
pub fn packed(bytes: &[u8]) {
    with_file(bytes, "csv.gz", |path| {
        let options = ReadOptions { missing: Missing::DropRows, ..ReadOptions::default() };
        if let Ok(whole) = read(path, &options, |names| Ok((0..names.len()).collect())) {
            again(path, &whole.table);
        }
    });
}

/// A model file as it is: the container with its check sums.
pub fn container(bytes: &[u8]) {
    with_file(bytes, "brenier", |path| {
        let _ = store::read::<serde_json::Value>(path);
        if let Ok(model) = Posterior::load(path) {
            use_model(&model);
        }
    });
}

/// A model whose check sums are right: the input is the document, a zero byte, one line `NAME KIND SHAPE…` per tensor, a
/// zero byte, and the values, which are used again from the start when there are too few.
pub fn model(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |&byte| byte == 0);
    let (document, table, data) = (parts.next(), parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(document.unwrap_or(&[])) else { return };
    let Some(tensors) = tensors(table, data) else { return };
    let Ok(bytes) = store::to_bytes(&document, &tensors) else { return };
    let back: (serde_json::Value, Vec<Tensor>) =
        store::from_bytes(&bytes, Path::new("model")).expect("what was written is read");
    assert_eq!(back.1.len(), tensors.len());
    with_file(&bytes, "brenier", |path| {
        if let Ok(model) = Posterior::load(path) {
            use_model(&model);
        }
    });
}

fn tensors(table: &[u8], data: &[u8]) -> Option<Vec<Tensor>> {
    let mut values = data.chunks(4).map(|chunk| {
        let mut bytes = [0; 4];
        bytes[..chunk.len()].copy_from_slice(chunk);
        f32::from_le_bytes(bytes)
    });
    let mut first = data.iter().cycle();
    let mut next =
        || values.next().unwrap_or_else(|| f32::from(first.next().copied().unwrap_or(0)) / 256.0 - 0.25);
    let mut tensors = Vec::new();
    for line in std::str::from_utf8(table).ok()?.lines().take(64) {
        let mut words = line.split(' ');
        let (name, kind) = (words.next()?.to_owned(), words.next()?);
        let shape: Vec<usize> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let count = shape.iter().try_fold(1_usize, |product, &length| product.checked_mul(length))?;
        if count > 4096 {
            return None;
        }
        let values = match kind {
            "F32" => TensorValues::F32((0..count).map(|_| next()).collect()),
            "F64" => TensorValues::F64((0..count).map(|_| next().into()).collect()),
            "U64" => TensorValues::U64((0..count).map(|_| next().to_bits().into()).collect()),
            _ => return None,
        };
        tensors.push(Tensor { name, shape, values });
    }
    Some(tensors)
}

/// Every question that a command asks of a model, with few rows.
fn use_model(model: &Posterior) {
    let (n, m) = (model.target_names().len(), model.given_names().len());
    if n > 16 || m > 64 {
        return;
    }
    let given = vec![0.5; m];
    let _ = model.log_density(&vec![0.5; n], &given);
    let draws = model.sample(&given, 1, 2, 0, &SampleSettings::default());
    if let Ok(draws) = &draws {
        assert_eq!(draws.values.len(), 2 * n);
    }
    let _ = model.mode(&given, 1, 0, &ModeSettings::default());
    let _ = serde_json::to_string(model.info());
}

/// A prior file, drawn from and evaluated.
pub fn prior(bytes: &[u8]) {
    // Other files are not the subject: a path could lead anywhere.
    if bytes.windows(4).any(|word| word == b"file") {
        return;
    }
    with_file(bytes, "toml", |path| {
        let Ok(prior) = Prior::read(path) else { return };
        let mut theta = vec![0.0; prior.dim()];
        let mut u = theta.clone();
        let mut stream = Streams::new(1, 0).get(0);
        for _ in 0..3 {
            prior.draw(&mut stream, &mut theta);
            prior.to_coordinates(&theta, &mut u);
            if prior.has_density() {
                assert!(!prior.log_density(&u).is_nan() || theta.iter().any(|value| !value.is_finite()));
            }
            prior.at_coordinates(&u, &mut theta);
        }
        assert_eq!(prior.supports().len(), prior.dim());
        assert_eq!(prior.coordinate_names().len(), prior.dim());
    });
}

/// A settings file of `fit`.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(settings) = toml::from_str::<FitSettings>(text) else { return };
    let _ = settings.train.validate();
    let _ = settings.columns(&names());
    if let Ok(text) = serde_json::to_string(&settings) {
        let back: FitSettings = serde_json::from_str(&text).expect("what was written is read");
        let finite = serde_json::to_string(&back).expect("settings are plain data");
        assert_eq!(finite, text);
    }
}

/// A search space, drawn from.
pub fn space(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(space) = SearchSpace::from_toml(text) else { return };
    assert!(space.names().count() > 0);
    for base in [FitSettings::default(), flow()] {
        let _ = space.draw(&base, 3, 3, 1);
    }
}

fn flow() -> FitSettings {
    toml::from_str("method = \"cot-flow\"").expect("a method")
}

/// Two selections of columns, on either side of a line break.
pub fn selection(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let names = names();
    let mut both = Vec::new();
    for line in text.splitn(2, '\n') {
        let Ok(selection) = line.parse::<Selection>() else { continue };
        let back: Selection = selection.to_string().parse().expect("what was printed is read");
        assert_eq!(back, selection);
        if let Ok(chosen) = selection.resolve(&names) {
            assert!(chosen.iter().all(|&column| column < names.len()));
        }
        both.push(selection);
    }
    if let [target, given] = &both[..] {
        let _ = resolve_pair(target, given, &names);
    }
}

fn names() -> Vec<String> {
    ["id", "x1", "x2", "x3", "y1", "y2", "a,b", "rest", "#1", "ä..ö", " c "].map(String::from).to_vec()
}

/// A support, alone or with its column.
pub fn support(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(support) = text.parse::<Support>() {
        let back: Support = support.to_string().parse().expect("what was printed is read");
        assert_eq!(back, support);
    }
    if let Ok(column) = text.parse::<ColumnSettings>() {
        let text = serde_json::to_string(&column).expect("settings are plain data");
        let back: ColumnSettings = serde_json::from_str(&text).expect("what was written is read");
        assert_eq!(back, column);
    }
}

/// What a worker of `simulate --command` says: the first line is its greeting, the others are answers.
pub fn worker(bytes: &[u8]) {
    let mut source = bytes;
    let mut outputs: Option<Vec<String>> = None;
    while let Ok(line) = protocol::read_line(&mut source) {
        match &outputs {
            None => match protocol::outputs(&line) {
                Ok(names) => outputs = Some(names),
                Err(problem) => return assert!(!problem.contains('\n')),
            },
            Some(names) => {
                let mut values = vec![0.0; names.len()];
                match protocol::answer(&line, names, &mut values) {
                    Ok(_) => {}
                    Err(problem) => return assert!(!problem.contains('\n')),
                }
            }
        }
    }
}
