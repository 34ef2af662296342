//! Hostile input for every reader: the seeds of the fuzz targets and simple mutations of them must be read or refused.
//!
//! The same functions are driven by coverage in `fuzz/`; see docs/reliability.md. Here a few thousand inputs per reader
//! show in seconds that the targets still work and that nothing simple breaks them.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

#[path = "../../../../fuzz/src/readers.rs"]
mod readers;

use std::path::Path;

/// Reproducible numbers.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((u128::from(self.0) * limit.max(1) as u128) >> 64) as usize
    }
}

/// Values at which lengths and offsets go wrong.
const EDGES: [u8; 8] = [0x00, 0x01, 0x0a, 0x2c, 0x7f, 0x80, 0xfe, 0xff];

/// One to four edits: a byte changed, bits flipped, a piece removed, repeated or taken from another seed.
fn mutated(seed: &[u8], other: &[u8], noise: &mut Noise) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + noise.below(4) {
        let at = noise.below(bytes.len());
        let length = 1 + noise.below(16.min(bytes.len()));
        let end = (at + length).min(bytes.len());
        match noise.below(6) {
            0 if !bytes.is_empty() => bytes[at] = EDGES[noise.below(EDGES.len())],
            1 if !bytes.is_empty() => bytes[at] ^= 1 << noise.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => bytes.truncate(at),
            _ => {
                let from = noise.below(other.len());
                let piece = &other[from..(from + length).min(other.len())];
                bytes.splice(at..end, piece.iter().copied());
            }
        }
    }
    bytes
}

fn try_all(name: &str, count: usize, reader: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "{}", folder.display());
    reader(&[]);
    seeds.iter().for_each(|seed| reader(seed));
    let mut noise = Noise(1);
    for round in 0..count {
        let input = mutated(&seeds[round % seeds.len()], &seeds[noise.below(seeds.len())], &mut noise);
        reader(&input);
    }
}

#[test]
fn csv() {
    try_all("csv", 4000, readers::csv);
}

#[test]
fn npy() {
    try_all("npy", 4000, readers::npy);
}

#[test]
fn npz() {
    try_all("npz", 2000, readers::npz);
}

#[test]
fn parquet() {
    try_all("parquet", 4000, readers::parquet);
}

#[test]
fn arrow() {
    try_all("arrow", 4000, readers::arrow);
}

#[test]
fn packed() {
    try_all("packed", 1000, readers::packed);
}

#[test]
fn container() {
    try_all("container", 1000, readers::container);
}

#[test]
fn model() {
    try_all("model", 2000, readers::model);
}

#[test]
fn prior() {
    try_all("prior", 4000, readers::prior);
}

#[test]
fn settings() {
    try_all("settings", 4000, readers::settings);
}

#[test]
fn space() {
    try_all("space", 2000, readers::space);
}

#[test]
fn selection() {
    try_all("selection", 4000, readers::selection);
}

#[test]
fn support() {
    try_all("support", 4000, readers::support);
}

#[test]
fn worker() {
    try_all("worker", 4000, readers::worker);
}
