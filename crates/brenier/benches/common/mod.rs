//! What the benches of training steps share.

use std::time::Instant;

use brenier::map::Trainable;
use brenier::train::{Adam, AdamSettings, keep_awake};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// How many steps are taken.
#[derive(Clone, Copy)]
pub(crate) enum Steps {
    /// As many as fit into some seconds.
    Enough,
    /// This many, after a warm-up.
    Timed(usize),
    /// This many and nothing else.
    #[allow(dead_code, reason = "not every bench counts instructions")]
    Only(usize),
}

/// Sorted seconds of single steps, after a warm-up.
pub(crate) fn measure<M: Trainable<f32>>(
    mut map: M,
    batch: usize,
    steps: Steps,
    pool: &rayon::ThreadPool,
) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut workspace = map.workspace(batch);
    let (x, y) = map.load(&mut workspace, batch);
    for value in x.iter_mut().chain(y) {
        *value = rng.sample::<f32, _>(StandardNormal);
    }
    let mut adam = Adam::new(map.parameters().len(), AdamSettings::default());
    let mut step = || {
        let loss = map.adjoints(&mut workspace).unwrap();
        adam.step(&mut map, &workspace, 1e-3);
        loss
    };
    let mut times = Vec::new();
    let steps = match steps {
        Steps::Only(count) => {
            pool.install(|| {
                for _ in 0..count {
                    std::hint::black_box(step());
                }
            });
            return times;
        }
        Steps::Timed(count) => count,
        Steps::Enough => 0,
    };
    let mut run = || {
        let warm = Instant::now();
        while warm.elapsed().as_secs_f64() < 0.3 {
            step();
        }
        let start = Instant::now();
        let least = if steps > 0 { steps } else { 20 };
        // Ten seconds are enough for the largest.
        while (times.len() < least && (steps > 0 || times.len() < 5 || start.elapsed().as_secs_f64() < 10.0))
            || (steps == 0 && start.elapsed().as_secs_f64() < 3.0)
        {
            let start = Instant::now();
            std::hint::black_box(step());
            times.push(start.elapsed().as_secs_f64());
        }
    };
    // As training does.
    pool.install(|| keep_awake(&mut run));
    times.sort_by(f64::total_cmp);
    times
}
