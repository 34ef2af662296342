//! How likely the rows of a fit are under the weights that were kept: what `check` calls the gap comes from here.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::map::TransportMap;
use crate::posterior::{ScoredRows, TrainingScores};
use crate::statistics::Estimate;
use crate::train::Dataset;
use crate::{Error, Result};

/// Rows as the map sees them, and the rows of the table that they were.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) data: &'a Dataset,
    pub(super) origin: &'a [u32],
}

/// Rows to score, at most: all that a method can afford, or few where somebody waits for a fit that was stopped.
pub(super) fn most_rows(map: &dyn TransportMap, stopped: bool) -> usize {
    if stopped { map.scored_rows() / 16 } else { map.scored_rows() }
}

/// Scores of the training and of the validation rows; none where no density can be computed.
pub(super) fn of_fit(
    map: &dyn TransportMap,
    data: Rows<'_>,
    (train_rows, valid_rows): (&[u32], &[u32]),
    stopped: bool,
    seed: u64,
) -> Result<Option<TrainingScores>> {
    let most = most_rows(map, stopped);
    let train = score_rows(map, data, train_rows, most, (seed, TRAIN_STREAM))?;
    let valid = score_rows(map, data, valid_rows, most, (seed, VALID_STREAM))?;
    Ok(train.zip(valid).map(|(train, valid)| TrainingScores { train, valid }))
}

/// Streams of the seed that choose the rows to score; those of the epochs count up from 1.
const TRAIN_STREAM: u64 = u64::MAX;
const VALID_STREAM: u64 = u64::MAX - 1;

/// How likely `rows` are under the trained map, in double precision; none where no density can be computed.
fn score_rows(
    map: &dyn TransportMap,
    Rows { data, origin }: Rows<'_>,
    rows: &[u32],
    most: usize,
    (seed, stream): (u64, u64),
) -> Result<Option<ScoredRows>> {
    let chosen: Vec<u32> = match rows.len() <= most {
        true => rows.to_vec(),
        false => {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            let mut all = rows.to_vec();
            let chosen = all.partial_shuffle(&mut rng, most).0;
            chosen.sort_unstable_by_key(|&row| origin[row as usize]);
            chosen.to_vec()
        }
    };
    let densities: Vec<f64> = losses(map, data, &chosen)?.iter().map(|loss| -loss).collect();
    let (kept, nll): (Vec<usize>, Vec<f64>) = chosen
        .iter()
        .zip(&densities)
        .filter(|(_, d)| d.is_finite())
        .map(|(&row, d)| (origin[row as usize] as usize, -d))
        .unzip();
    let failed = chosen.len() - kept.len();
    let scored = || ScoredRows { rows: chosen.len(), failed, nll: Estimate::of_rows(&kept, &nll) };
    Ok((!kept.is_empty()).then(scored))
}

/// The negative log-likelihood of each of `rows`, in double precision; not a number where it cannot be computed.
pub(super) fn losses(map: &dyn TransportMap, data: &Dataset, rows: &[u32]) -> Result<Vec<f64>> {
    let wide = |values: &[f32], width: usize, rows: &[u32]| -> Vec<f64> {
        let of = |&row: &u32| &values[row as usize * width..(row as usize + 1) * width];
        rows.iter().flat_map(of).map(|&value| f64::from(value)).collect()
    };
    let score = |rows: &[u32]| {
        let (x, y) = (wide(&data.x, data.target, rows), wide(&data.y, data.given, rows));
        let mut densities = vec![0.0; rows.len()];
        map.double().log_density(&x, &y, &mut densities).map(|()| densities)
    };
    let densities = match score(rows) {
        // A row that breaks the arithmetic must not take the others with it.
        Err(Error::Numerical(_)) => rows
            .iter()
            .map(|&row| match score(&[row]) {
                Err(Error::Numerical(_)) => Ok(f64::NAN),
                other => other.map(|densities| densities[0]),
            })
            .collect::<Result<Vec<f64>>>(),
        other => other,
    }?;
    Ok(densities.into_iter().map(|density| -density).collect())
}
