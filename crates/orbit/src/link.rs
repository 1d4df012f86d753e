//! Links: the times at which they are up, and the rate that they carry.

pub mod budget;
pub mod ground;
pub mod isl;
pub mod loss;
pub mod rate;

pub use budget::{Polarisation, RadioBudget, Rain};
pub use ground::{GroundPolicy, GroundRule, Selection};
pub use isl::IslRule;
pub use loss::{GilbertElliott, LossPolicy};
pub use rate::RatePolicy;

/// The state of a ground link at one moment: the input of rate and loss policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkView {
    /// Seconds since the link was taken into use (the handover before).
    pub since_s: f64,
    /// Seconds until it is given up (the handover after).
    pub until_s: f64,
    /// Length, m.
    pub range_m: f64,
    /// Elevation of the satellite over the station's horizon, degrees.
    pub elevation_deg: f64,
}
