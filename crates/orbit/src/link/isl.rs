//! The rule by which an inter-satellite link is up.

use crate::constellation::Isl;
use crate::frame::{EARTH_RADIUS_M, Vec3, closest_approach_m, dot, norm, sub};

/// Limits of inter-satellite links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IslRule {
    /// Longest link that the optics bridge, m.
    pub max_length_m: f64,
    /// Least height of the beam over the equatorial radius, m.
    pub min_altitude_m: f64,
    /// Beyond this latitude of either satellite, north or south, links between planes are off, degrees.
    pub cross_plane_max_latitude_deg: f64,
}

impl Default for IslRule {
    /// No limit of length; 80 km of clearance, the atmosphere's optically thick part (Handley, HotNets 2018;
    /// Bhattacherjee & Singla, CoNEXT 2019, use the same height); no limit of latitude.
    fn default() -> Self {
        Self { max_length_m: f64::INFINITY, min_altitude_m: 80e3, cross_plane_max_latitude_deg: 90.0 }
    }
}

impl IslRule {
    /// Length of a link in m, or infinity while it is down, from the ECEF places of its satellites.
    pub fn length_m(&self, link: Isl, a: Vec3, b: Vec3) -> f64 {
        let d = sub(b, a);
        let square = dot(d, d);
        if square > self.max_length_m * self.max_length_m {
            return f64::INFINITY;
        }
        let lowest = EARTH_RADIUS_M + self.min_altitude_m;
        // The middle of a chord is at least this high: most links need no exact test.
        let sure = dot(a, a).min(dot(b, b)) - square / 4.0 >= lowest * lowest;
        if !sure && closest_approach_m(a, b) < lowest {
            return f64::INFINITY;
        }
        if link.cross_plane && self.cross_plane_max_latitude_deg < 90.0 {
            let limit = self.cross_plane_max_latitude_deg.to_radians().sin();
            if [a, b].iter().any(|p| p[2].abs() > limit * norm(*p)) {
                return f64::INFINITY;
            }
        }
        square.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Isl = Isl { a: 0, b: 1, cross_plane: true };

    #[test]
    fn the_earth_and_its_atmosphere_hide_far_satellites() {
        let r = EARTH_RADIUS_M + 550e3;
        // Closed form: the longest chord that stays 80 km high is 2·sqrt(r² - (R + 80 km)²).
        let longest = 2.0 * (r * r - (EARTH_RADIUS_M + 80e3).powi(2)).sqrt();
        let ends = |length: f64| {
            let half = (length / 2.0 / r).asin();
            ([r * half.cos(), r * half.sin(), 0.0], [r * half.cos(), -r * half.sin(), 0.0])
        };
        let (a, b) = ends(longest - 10.0);
        assert!((IslRule::default().length_m(LINK, a, b) - (longest - 10.0)).abs() < 1e-3);
        let (a, b) = ends(longest + 10.0);
        assert_eq!(IslRule::default().length_m(LINK, a, b), f64::INFINITY);
    }

    #[test]
    fn a_link_has_a_longest_length() {
        let rule = IslRule { max_length_m: 1e6, ..IslRule::default() };
        let (a, b) = ([7e6, 0.0, 0.0], [7e6, 1_000_001.0, 0.0]);
        assert_eq!(rule.length_m(LINK, a, b), f64::INFINITY);
        assert!(IslRule::default().length_m(LINK, a, b).is_finite());
    }

    #[test]
    fn only_links_between_planes_stop_near_the_poles() {
        let rule = IslRule { cross_plane_max_latitude_deg: 68.0, ..IslRule::default() };
        let (a, b) = ([1e6, 0.0, 7e6], [1e6, 1e5, 7e6]);
        assert_eq!(rule.length_m(LINK, a, b), f64::INFINITY);
        assert!(rule.length_m(Isl { cross_plane: false, ..LINK }, a, b).is_finite());
    }
}
