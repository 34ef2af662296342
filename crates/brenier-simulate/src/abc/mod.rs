//! Approximate Bayesian computation: particles whose simulations come within a tolerance of an observation.
//!
//! With outputs scaled by their prior-predictive standard deviations sⱼ, a simulation y lies at the distance
//! d(y) = (Σⱼ ((yⱼ − y*ⱼ)/sⱼ)²)^½ from the observation y*, and the target is the joint distribution of (θ, y) given
//! d(y) ≤ ε. *Rejection* draws θ from the prior and keeps what lies within ε. *Sequential Monte Carlo* (Toni, Welch,
//! Strelkowa, Ipsen, Stumpf 2009) lowers ε in rounds: a proposal is a weighted draw u_a of the round before, moved
//! by a Gaussian kernel K with twice the weighted covariance of that round, in coordinates u where the prior is flat
//! if it can be (log θ for a log-uniform prior, see [`Prior`](crate::simulate::Prior)). A particle u has the weight
//!
//! w ∝ π(u) / Σ_a w_a K(u | u_a).
//!
//! Proposals outside the prior are drawn again, ancestor and move, without a simulation; that multiplies the
//! proposal density by a constant, which the weights do not see. A simulation that the model abandons counts as
//! outside every tolerance: the joint distribution is that of simulations that end.
//!
//! Proposal i of round t has its own random stream, and particles are accepted in the order of i, so a seed decides
//! every bit of the result, on any number of threads and across interruptions.

mod checkpoint;
mod observe;
mod population;
mod settings;
mod smc;

pub use observe::{AbcEvent, Round};
pub use population::Population;
pub use settings::{AbcMethod, AbcSettings};
pub use smc::{AbcOutcome, AbcStop, remove_journal, run};
