//! Published C2ST of amortised methods on the benchmark, at 1000, 10 000 and 100 000 simulations.
//!
//! Sources: sbibm 2021 (NPE); NPE-PFN, arXiv 2504.17660 (NSF, five NSFs, NLE, NPE-PFN); Simformer, arXiv 2404.09636; GenSBI,
//! arXiv 2605.27499 (NPSE). They are means over the official observations, ours are means over observations of our own.

/// Numbers of simulations of the published figures.
pub const PUBLISHED_SIMULATIONS: [u64; 3] = [1000, 10_000, 100_000];

/// Published methods, in the order of [`PublishedC2st::methods`].
pub const PUBLISHED_METHODS: [&str; 7] =
    ["NPE 2021", "NSF, sbi defaults", "5 NSFs", "NLE (MAF)", "NPE-PFN", "NPSE", "Simformer, no graph told"];

/// What was published for one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedC2st {
    /// The task.
    pub task: &'static str,
    /// C2ST of each of [`PUBLISHED_METHODS`] at [`PUBLISHED_SIMULATIONS`], where there is one.
    pub methods: [Option<[f64; 3]>; 7],
    /// The best that was published.
    pub best: [f64; 3],
}

#[rustfmt::skip]
const PUBLISHED: [PublishedC2st; 9] = [
    PublishedC2st { task: "gaussian-linear", best: [0.546, 0.508, 0.500], methods: [
        Some([0.695, 0.552, 0.506]), Some([0.753, 0.598, 0.533]), Some([0.715, 0.573, 0.517]), Some([0.622, 0.555, 0.523]),
        Some([0.546, 0.523, 0.519]), Some([0.705, 0.572, 0.507]), Some([0.732, 0.635, 0.505])] },
    PublishedC2st { task: "gaussian-linear-uniform", best: [0.555, 0.544, 0.506], methods: [
        Some([0.696, 0.553, 0.509]), Some([0.750, 0.607, 0.543]), None, Some([0.632, 0.554, 0.524]),
        Some([0.555, 0.544, 0.530]), None, None] },
    PublishedC2st { task: "gaussian-mixture", best: [0.574, 0.510, 0.501], methods: [
        Some([0.716, 0.615, 0.548]), Some([0.673, 0.541, 0.515]), Some([0.642, 0.529, 0.507]), Some([0.703, 0.669, 0.620]),
        Some([0.716, 0.679, 0.557]), Some([0.613, 0.528, 0.502]), Some([0.574, 0.515, 0.506])] },
    PublishedC2st { task: "two-moons", best: [0.570, 0.513, 0.502], methods: [
        Some([0.725, 0.606, 0.542]), Some([0.698, 0.554, 0.525]), Some([0.675, 0.543, 0.515]), Some([0.685, 0.595, 0.551]),
        Some([0.696, 0.632, 0.546]), Some([0.570, 0.513, 0.502]), Some([0.611, 0.525, 0.506])] },
    PublishedC2st { task: "slcp", best: [0.831, 0.646, 0.534], methods: [
        Some([0.975, 0.901, 0.831]), Some([0.968, 0.874, 0.719]), Some([0.965, 0.851, 0.686]), Some([0.904, 0.761, 0.602]),
        Some([0.898, 0.865, 0.808]), Some([0.988, 0.831, 0.630]), Some([0.924, 0.784, 0.703])] },
    PublishedC2st { task: "bernoulli-glm", best: [0.740, 0.605, 0.545], methods: [
        Some([0.863, 0.678, 0.559]), Some([0.882, 0.694, 0.595]), Some([0.868, 0.657, 0.560]), Some([0.747, 0.644, 0.582]),
        Some([0.742, 0.627, 0.572]), None, None] },
    PublishedC2st { task: "bernoulli-glm-raw", best: [0.775, 0.683, 0.607], methods: [
        Some([0.900, 0.765, 0.607]), Some([0.908, 0.778, 0.653]), None, Some([0.890, 0.917, 0.961]),
        Some([0.775, 0.683, 0.685]), None, None] },
    PublishedC2st { task: "sir", best: [0.583, 0.537, 0.513], methods: [
        Some([0.815, 0.680, 0.585]), Some([0.701, 0.556, 0.519]), Some([0.691, 0.544, 0.513]), Some([0.890, 0.724, 0.622]),
        Some([0.583, 0.537, 0.513]), None, None] },
    PublishedC2st { task: "lotka-volterra-ode", best: [0.931, 0.834, 0.695], methods: [
        Some([0.999, 0.997, 0.981]), Some([0.997, 0.967, 0.880]), Some([0.997, 0.964, 0.865]), Some([0.991, 0.964, 0.805]),
        Some([0.931, 0.834, 0.695]), None, None] },
];

impl PublishedC2st {
    /// The figures for a task.
    pub fn find(task: &str) -> Option<&'static Self> {
        PUBLISHED.iter().find(|row| row.task == task)
    }

    /// The figure of a method, by its place in [`PUBLISHED_METHODS`], at a number of simulations.
    pub fn at(&self, method: usize, simulations: u64) -> Option<f64> {
        let size = PUBLISHED_SIMULATIONS.iter().position(|&own| own == simulations)?;
        self.methods[method].map(|figures| figures[size])
    }

    /// The best figure at a number of simulations.
    pub fn best_at(&self, simulations: u64) -> Option<f64> {
        let size = PUBLISHED_SIMULATIONS.iter().position(|&own| own == simulations)?;
        Some(self.best[size])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simulate::tasks::TASKS;

    #[test]
    fn every_task_has_published_figures_that_no_method_beats() {
        for task in TASKS {
            let row = PublishedC2st::find(task).unwrap();
            for (method, figures) in row.methods.iter().enumerate() {
                let Some(figures) = figures else { continue };
                for (size, &simulations) in PUBLISHED_SIMULATIONS.iter().enumerate() {
                    assert!((0.5..1.0).contains(&figures[size]) && figures[size] >= row.best[size], "{task}");
                    assert_eq!(row.at(method, simulations), Some(figures[size]));
                }
            }
            assert_eq!(row.best_at(500), None);
        }
        assert_eq!(PublishedC2st::find("lotka-volterra"), None);
    }
}
