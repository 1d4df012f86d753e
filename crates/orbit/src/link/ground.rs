//! The rule by which a station can use a satellite, and the choice among the usable ones.

use crate::frame::{Vec3, dot, norm, slant_range_m, sub};
use crate::ground::Station;

/// Limits of a ground link. Both apply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroundRule {
    /// Lowest elevation over the station's horizon, degrees; a station may ask for more.
    pub min_elevation_deg: f64,
    /// Longest link, m.
    pub max_range_m: f64,
}

impl GroundRule {
    /// A limit of elevation alone, degrees.
    pub fn elevation(min_elevation_deg: f64) -> Self {
        Self { min_elevation_deg, max_range_m: f64::INFINITY }
    }

    /// The rule as it applies at a station, ready to be asked many times.
    pub fn at(&self, station: &Station) -> Horizon {
        let elevation_deg = station.min_elevation_deg.unwrap_or(0.0).max(self.min_elevation_deg);
        Horizon {
            place: station.place.to_ecef(),
            up: station.place.up(),
            elevation_deg,
            sin_elevation: elevation_deg.to_radians().sin(),
            max_range_m: self.max_range_m,
        }
    }
}

/// The part of the sky that one station can see.
#[derive(Clone, Copy, Debug)]
pub struct Horizon {
    place: Vec3,
    up: Vec3,
    elevation_deg: f64,
    sin_elevation: f64,
    max_range_m: f64,
}

/// A satellite that a station can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight {
    /// Number of the satellite.
    pub satellite: u32,
    /// Distance, m.
    pub range_m: f64,
    /// Sine of the elevation.
    pub sin_elevation: f64,
}

impl Horizon {
    /// The satellite at ECEF `place`, if the station can use it.
    pub fn sight(&self, satellite: u32, place: Vec3) -> Option<Sight> {
        let line = sub(place, self.place);
        let range_m = norm(line);
        let sin_elevation = dot(line, self.up) / range_m;
        let usable = range_m <= self.max_range_m && sin_elevation >= self.sin_elevation;
        usable.then_some(Sight { satellite, range_m, sin_elevation })
    }

    /// The station's ECEF place, and how far away a satellite can be (m) if it is to come into use before it has moved
    /// `drift_m`: no satellite is more than `radius_m` from the centre of the Earth.
    pub(crate) fn reach(&self, radius_m: f64, drift_m: f64) -> (Vec3, f64) {
        // The spherical horizon is off by the flattening, below 22 km.
        let horizon = slant_range_m(radius_m + drift_m, self.elevation_deg) + 22e3;
        (self.place, horizon.min(self.max_range_m) + drift_m)
    }
}

/// Which of the usable satellites a station is linked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroundPolicy {
    /// All of them: routes pick the best.
    All,
    /// The nearest ones.
    Nearest,
    /// The satellites highest in the sky.
    HighestElevation,
    /// The satellites that will stay usable for the longest time; kept until they are lost.
    LongestVisible,
}

/// A policy, and when it is applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// The policy.
    pub policy: GroundPolicy,
    /// Times at which the policy is applied, as multiples of this many seconds; in between only lost satellites are
    /// replaced. Starlink re-assigns its satellites every 15 s. `None`: at any time, except that
    /// [`GroundPolicy::LongestVisible`] keeps its satellites.
    pub every_s: Option<f64>,
}

impl Selection {
    /// Links to every usable satellite.
    pub const ALL: Self = Self { policy: GroundPolicy::All, every_s: None };

    /// Whether a choice depends on the one before.
    pub fn remembers(&self) -> bool {
        match self.policy {
            GroundPolicy::All => false,
            GroundPolicy::LongestVisible => true,
            _ => self.every_s.is_some(),
        }
    }

    /// Whether the satellites chosen before may stay, `now_s` being the time and `before_s` that of the last choice.
    pub(crate) fn keeps(&self, before_s: f64, now_s: f64) -> bool {
        match (self.policy, self.every_s) {
            (GroundPolicy::All, _) => false,
            (_, Some(every)) => (now_s / every).floor() == (before_s / every).floor(),
            (GroundPolicy::LongestVisible, None) => true,
            _ => false,
        }
    }

    /// Reduces `usable` to at most `wanted` satellites: those of `kept` that are still usable, then the best by the
    /// policy. `remaining_s` returns the time for which a satellite stays usable.
    pub(crate) fn choose(
        &self,
        usable: &mut Vec<Sight>,
        kept: &[u32],
        wanted: usize,
        mut remaining_s: impl FnMut(&Sight) -> f64,
    ) {
        if self.policy == GroundPolicy::All && usable.len() <= wanted {
            return;
        }
        let held = usable.iter().filter(|s| kept.contains(&s.satellite)).count();
        let predicts = self.policy == GroundPolicy::LongestVisible && held < wanted && usable.len() > wanted;
        let mut rank = |s: &Sight| match self.policy {
            _ if kept.contains(&s.satellite) => f64::NEG_INFINITY,
            GroundPolicy::All | GroundPolicy::Nearest => s.range_m,
            GroundPolicy::HighestElevation => -s.sin_elevation,
            GroundPolicy::LongestVisible if predicts => -remaining_s(s),
            GroundPolicy::LongestVisible => 0.0,
        };
        let mut ranked: Vec<(f64, Sight)> = usable.iter().map(|s| (rank(s), *s)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        usable.clear();
        usable.extend(ranked.into_iter().take(wanted).map(|(_, s)| s));
        usable.sort_unstable_by_key(|s| s.satellite);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Geodetic;

    fn sights() -> Vec<Sight> {
        // Numbers, ranges and elevations that each policy orders differently.
        [(1, 900e3, 0.5), (2, 700e3, 0.4), (3, 800e3, 0.9)]
            .map(|(satellite, range_m, sin_elevation)| Sight { satellite, range_m, sin_elevation })
            .to_vec()
    }

    fn chosen(policy: GroundPolicy, kept: &[u32], wanted: usize) -> Vec<u32> {
        let mut usable = sights();
        let selection = Selection { policy, every_s: None };
        selection.choose(&mut usable, kept, wanted, |s| if s.satellite == 1 { 60.0 } else { 5.0 });
        usable.iter().map(|s| s.satellite).collect()
    }

    #[test]
    fn each_policy_has_its_own_favourite() {
        assert_eq!(chosen(GroundPolicy::Nearest, &[], 1), [2]);
        assert_eq!(chosen(GroundPolicy::HighestElevation, &[], 1), [3]);
        assert_eq!(chosen(GroundPolicy::LongestVisible, &[], 1), [1]);
        assert_eq!(chosen(GroundPolicy::All, &[], usize::MAX), [1, 2, 3]);
    }

    #[test]
    fn what_is_kept_comes_first_and_what_is_lost_is_replaced() {
        assert_eq!(chosen(GroundPolicy::Nearest, &[1], 1), [1]);
        assert_eq!(chosen(GroundPolicy::Nearest, &[1], 2), [1, 2]);
        assert_eq!(chosen(GroundPolicy::Nearest, &[9], 1), [2]);
    }

    #[test]
    fn a_grid_of_fifteen_seconds_keeps_within_a_slot_only() {
        let grid = Selection { policy: GroundPolicy::Nearest, every_s: Some(15.0) };
        assert!(grid.keeps(15.0, 29.99) && !grid.keeps(29.99, 30.0));
        assert!(!Selection { every_s: None, ..grid }.keeps(1.0, 1.01));
    }

    #[test]
    fn elevation_and_range_both_limit_a_link() {
        let station = Station::new("here", 0.0, 0.0);
        let over =
            |longitude_deg, altitude_m| Geodetic { latitude_deg: 0.0, longitude_deg, altitude_m }.to_ecef();
        let low = GroundRule::elevation(25.0).at(&station);
        assert!(low.sight(0, over(5.0, 550e3)).is_some() && low.sight(0, over(15.0, 550e3)).is_none());
        let short = GroundRule { min_elevation_deg: 0.0, max_range_m: 600e3 }.at(&station);
        assert!(short.sight(0, over(1.0, 550e3)).is_some() && short.sight(0, over(5.0, 550e3)).is_none());
        let picky = GroundRule::elevation(25.0).at(&Station { min_elevation_deg: Some(80.0), ..station });
        assert!(picky.sight(0, over(5.0, 550e3)).is_none());
    }
}
