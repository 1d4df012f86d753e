//! Walker constellations: shells of circular orbits, evenly spread.

use crate::elements::{Kepler, Orbit, OrbitError, Perturbation};
use crate::frame::{EARTH_RADIUS_M, MU};
use crate::time::Epoch;
use std::f64::consts::TAU;

/// Spread of the ascending nodes of the planes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Around the whole equator: all planes cross each other, and the last neighbours the first (Walker delta).
    Delta,
    /// Over half of it, in degrees (180 for an even Walker star): neighbours fly side by side, and between the last
    /// and the first plane lies a seam where satellites fly in opposite directions.
    Star(f64),
}

/// Shift of the satellites of one plane against those of the plane before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phasing {
    /// Walker's F: plane i is shifted by i·F·360/(planes·satellites per plane) degrees.
    Walker(u32),
    /// Half a slot in odd planes, none in even ones.
    Alternate,
}

/// Model of the motion of a shell's satellites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Motion {
    /// Circles that drift under J2; the radius follows from the altitude.
    Drift,
    /// Circles in the two-body problem: the motion of a satellite that keeps its station.
    Kept,
    /// SGP4 with this mean motion, rev/day, or the one that follows from the altitude.
    Sgp4(Option<f64>),
}

/// One shell: planes of equal circular orbits.
#[derive(Clone, Debug, PartialEq)]
pub struct Shell {
    /// Its name, the prefix of its satellites' names.
    pub name: String,
    /// Number of planes.
    pub planes: u32,
    /// Satellites in each plane.
    pub per_plane: u32,
    /// Inclination, degrees.
    pub inclination_deg: f64,
    /// Height over the equatorial radius, m.
    pub altitude_m: f64,
    /// Spread of the planes.
    pub spread: Spread,
    /// Shift of the planes against each other.
    pub phasing: Phasing,
    /// Right ascension of plane 0, degrees.
    pub first_node_deg: f64,
    /// Model of the satellites' motion.
    pub motion: Motion,
}

/// A place in a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the shell in its constellation.
    pub shell: u32,
    /// Plane in the shell.
    pub plane: u32,
    /// Satellite in the plane.
    pub index: u32,
}

impl Shell {
    /// Number of satellites.
    pub fn satellites(&self) -> u32 {
        self.planes * self.per_plane
    }

    /// Right ascension of the node and mean anomaly of a satellite at the epoch, degrees in 0..360.
    pub fn angles_deg(&self, plane: u32, index: u32) -> (f64, f64) {
        let width = match self.spread {
            Spread::Delta => 360.0,
            Spread::Star(width) => width,
        };
        let node = self.first_node_deg + width * f64::from(plane) / f64::from(self.planes);
        let slot = 360.0 / f64::from(self.per_plane);
        let shift = match self.phasing {
            Phasing::Walker(f) => f64::from(plane) * f64::from(f) * 360.0 / f64::from(self.satellites()),
            Phasing::Alternate => f64::from(plane % 2) * slot / 2.0,
        };
        (node.rem_euclid(360.0), (f64::from(index) * slot + shift).rem_euclid(360.0))
    }

    /// Turns per day: SGP4's where it is given, otherwise of a circle at the altitude.
    pub fn mean_motion_rev_day(&self) -> f64 {
        match self.motion {
            Motion::Sgp4(Some(given)) => given,
            _ => (MU / (EARTH_RADIUS_M + self.altitude_m).powi(3)).sqrt() * 86_400.0 / TAU,
        }
    }

    /// SGP4's elements of one satellite; `number` becomes its catalogue number.
    pub fn elements(&self, epoch: Epoch, plane: u32, index: u32, number: u64) -> sgp4::Elements {
        let (right_ascension, mean_anomaly) = self.angles_deg(plane, index);
        sgp4::Elements {
            object_name: Some(self.satellite_name(plane, index)),
            international_designator: None,
            norad_id: number,
            classification: sgp4::Classification::Unclassified,
            datetime: epoch.naive(),
            mean_motion_dot: 0.0,
            mean_motion_ddot: 0.0,
            drag_term: 0.0,
            element_set_number: 0,
            inclination: self.inclination_deg,
            right_ascension,
            // SGP4 divides by the eccentricity: the smallest one that a TLE can hold stands for a circle.
            eccentricity: 1e-7,
            argument_of_perigee: 0.0,
            mean_anomaly,
            mean_motion: self.mean_motion_rev_day(),
            revolution_number: 0,
            ephemeris_type: 0,
        }
    }

    /// The orbit of one satellite.
    ///
    /// # Errors
    /// [`OrbitError::Elements`] if the shell lies under the ground.
    pub fn orbit(&self, epoch: Epoch, plane: u32, index: u32) -> Result<Orbit, OrbitError> {
        let name = self.satellite_name(plane, index);
        let perturbation = match self.motion {
            Motion::Sgp4(_) => return Orbit::sgp4(&name, &self.elements(epoch, plane, index, 0), epoch),
            Motion::Drift => Perturbation::J2,
            Motion::Kept => Perturbation::None,
        };
        let (right_ascension_deg, mean_anomaly_deg) = self.angles_deg(plane, index);
        let kepler = Kepler {
            semi_major_axis_m: EARTH_RADIUS_M + self.altitude_m,
            eccentricity: 0.0,
            inclination_deg: self.inclination_deg,
            right_ascension_deg,
            perigee_deg: 0.0,
            mean_anomaly_deg,
        };
        Orbit::kepler(&name, kepler, perturbation)
    }

    /// `<shell>-p<plane>-s<index>`.
    pub fn satellite_name(&self, plane: u32, index: u32) -> String {
        format!("{}-p{plane}-s{index}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(spread: Spread, phasing: Phasing) -> Shell {
        Shell {
            name: "s".into(),
            planes: 6,
            per_plane: 11,
            inclination_deg: 86.4,
            altitude_m: 780e3,
            spread,
            phasing,
            first_node_deg: 10.0,
            motion: Motion::Drift,
        }
    }

    #[test]
    fn a_delta_goes_round_the_equator_and_a_star_half_of_it() {
        assert_eq!(shell(Spread::Delta, Phasing::Walker(1)).angles_deg(3, 0).0, 190.0);
        assert_eq!(shell(Spread::Star(180.0), Phasing::Walker(1)).angles_deg(3, 0).0, 100.0);
    }

    #[test]
    fn phasing_shifts_planes_by_walkers_rule_or_by_half_a_slot() {
        let walker = shell(Spread::Delta, Phasing::Walker(2));
        assert!((walker.angles_deg(3, 0).1 - 3.0 * 2.0 * 360.0 / 66.0).abs() < 1e-12);
        let alternate = shell(Spread::Delta, Phasing::Alternate);
        assert_eq!(alternate.angles_deg(2, 0).1, 0.0);
        assert!((alternate.angles_deg(3, 0).1 - 360.0 / 22.0).abs() < 1e-12);
    }

    #[test]
    fn mean_motion_follows_from_keplers_third_law() {
        // Iridium at 780 km turns 14.34 times a day.
        assert!((shell(Spread::Delta, Phasing::Alternate).mean_motion_rev_day() - 14.33).abs() < 0.02);
    }
}
