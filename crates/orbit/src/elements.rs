//! One satellite's orbit: Kepler elements with the secular drift of J2, or SGP4.

use crate::frame::{EARTH_RADIUS_M, J2, MU, Vec3, scale};
use crate::time::Epoch;
use std::f64::consts::TAU;

/// The classical elements of an orbit at an epoch, in ECI.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kepler {
    /// Semi-major axis, m.
    pub semi_major_axis_m: f64,
    /// Eccentricity, 0 (circle) to below 1.
    pub eccentricity: f64,
    /// Angle between the orbit's plane and the equator, degrees.
    pub inclination_deg: f64,
    /// Right ascension of the ascending node, degrees.
    pub right_ascension_deg: f64,
    /// Angle from the node to the perigee, degrees.
    pub perigee_deg: f64,
    /// Mean anomaly at the epoch, degrees.
    pub mean_anomaly_deg: f64,
}

impl Kepler {
    /// Turns per second of the unperturbed orbit, rad/s.
    pub fn mean_motion_rad_s(&self) -> f64 {
        (MU / self.semi_major_axis_m.powi(3)).sqrt()
    }
}

/// The force that perturbs a Kepler orbit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Perturbation {
    /// Nothing: the two-body problem.
    None,
    /// The Earth's flattening, to first order and secular terms only (Vallado, section 9.6).
    J2,
}

/// Why an orbit cannot be computed.
#[derive(Debug, thiserror::Error, Clone, PartialEq)]
pub enum OrbitError {
    /// Elements that describe no closed orbit over the ground.
    #[error("satellite `{satellite}`: {reason}")]
    Elements {
        /// The satellite's name.
        satellite: String,
        /// The fault, in words.
        reason: String,
    },
    /// SGP4 left its domain, as it does when an orbit has decayed.
    #[error(
        "satellite `{satellite}` has no position {t_s} s after the epoch: {reason}; use newer elements or a shorter span"
    )]
    Propagation {
        /// The satellite's name.
        satellite: String,
        /// Seconds since the constellation's epoch.
        t_s: f64,
        /// The message of SGP4.
        reason: String,
    },
}

/// An orbit that can be asked for the satellite's place.
#[derive(Clone, Debug)]
pub enum Orbit {
    /// Closed form: an ellipse that drifts.
    Drift(DriftingEllipse),
    /// SGP4 or SDP4, with the seconds from its own epoch to the constellation's.
    Sgp4(Box<sgp4::Constants>, f64),
}

/// An ellipse whose node, perigee and mean anomaly move at constant rates.
#[derive(Clone, Copy, Debug)]
pub struct DriftingEllipse {
    kepler: Kepler,
    node_rate: f64,
    perigee_rate: f64,
    anomaly_rate: f64,
}

impl DriftingEllipse {
    /// The secular rates follow from the elements (Vallado eq. 9-37 to 9-41).
    pub fn new(kepler: Kepler, perturbation: Perturbation) -> Self {
        let n = kepler.mean_motion_rad_s();
        let slow = match perturbation {
            Perturbation::None => 0.0,
            Perturbation::J2 => {
                let p = kepler.semi_major_axis_m * (1.0 - kepler.eccentricity.powi(2));
                0.75 * J2 * (EARTH_RADIUS_M / p).powi(2) * n
            }
        };
        let cos_i = kepler.inclination_deg.to_radians().cos();
        let flat = (1.0 - kepler.eccentricity.powi(2)).sqrt();
        Self {
            kepler,
            node_rate: -2.0 * slow * cos_i,
            perigee_rate: slow * (5.0 * cos_i * cos_i - 1.0),
            anomaly_rate: n + slow * flat * (3.0 * cos_i * cos_i - 1.0),
        }
    }

    /// Drift of the ascending node, rad/s: negative (westward) for prograde orbits.
    pub fn node_rate_rad_s(&self) -> f64 {
        self.node_rate
    }

    /// Place in ECI, m, `t_s` seconds after the epoch of the elements.
    pub fn position(&self, t_s: f64) -> Vec3 {
        let k = &self.kepler;
        let mean = (k.mean_anomaly_deg.to_radians() + self.anomaly_rate * t_s).rem_euclid(TAU);
        let anomaly = eccentric_anomaly(mean, k.eccentricity);
        let (sin_e, cos_e) = anomaly.sin_cos();
        let along = k.semi_major_axis_m * (cos_e - k.eccentricity);
        let aside = k.semi_major_axis_m * (1.0 - k.eccentricity.powi(2)).sqrt() * sin_e;
        let (sin_w, cos_w) = (k.perigee_deg.to_radians() + self.perigee_rate * t_s).sin_cos();
        let (sin_i, cos_i) = k.inclination_deg.to_radians().sin_cos();
        let (sin_o, cos_o) = (k.right_ascension_deg.to_radians() + self.node_rate * t_s).sin_cos();
        let u = along * cos_w - aside * sin_w;
        let v = along * sin_w + aside * cos_w;
        [u * cos_o - v * cos_i * sin_o, u * sin_o + v * cos_i * cos_o, v * sin_i]
    }
}

/// Kepler's equation by Newton's method, to 1e-12 rad.
fn eccentric_anomaly(mean: f64, e: f64) -> f64 {
    let mut anomaly = if e < 0.8 { mean } else { std::f64::consts::PI };
    for _ in 0..50 {
        let step = (anomaly - e * anomaly.sin() - mean) / (1.0 - e * anomaly.cos());
        anomaly -= step;
        if step.abs() < 1e-12 {
            break;
        }
    }
    anomaly
}

impl Orbit {
    /// A Kepler orbit.
    ///
    /// # Errors
    /// [`OrbitError::Elements`] if the perigee is under the ground or the eccentricity is not in 0..1.
    pub fn kepler(name: &str, kepler: Kepler, perturbation: Perturbation) -> Result<Self, OrbitError> {
        let bad = |reason: String| OrbitError::Elements { satellite: name.to_owned(), reason };
        if !(0.0..1.0).contains(&kepler.eccentricity) {
            return Err(bad(format!("eccentricity {} is not in 0..1", kepler.eccentricity)));
        }
        let perigee = kepler.semi_major_axis_m * (1.0 - kepler.eccentricity);
        if perigee.is_nan() || perigee <= EARTH_RADIUS_M {
            return Err(bad(format!(
                "the perigee is {:.0} km from the Earth's centre, under the ground",
                perigee / 1e3
            )));
        }
        Ok(Self::Drift(DriftingEllipse::new(kepler, perturbation)))
    }

    /// An SGP4 orbit from mean elements, with the constants of WGS 72 that element sets are fitted with.
    ///
    /// # Errors
    /// [`OrbitError::Elements`] if SGP4 refuses the elements.
    pub fn sgp4(name: &str, elements: &sgp4::Elements, epoch: Epoch) -> Result<Self, OrbitError> {
        let constants = sgp4::Constants::from_elements_afspc_compatibility_mode(elements)
            .map_err(|e| OrbitError::Elements { satellite: name.to_owned(), reason: e.to_string() })?;
        let offset = epoch.seconds_since(Epoch::from_naive(elements.datetime));
        Ok(Self::Sgp4(Box::new(constants), offset))
    }

    /// Place in ECI, m, `t_s` seconds after the constellation's epoch. `name` is for the error.
    ///
    /// # Errors
    /// [`OrbitError::Propagation`] if SGP4 leaves its domain.
    pub fn position_eci(&self, name: &str, t_s: f64) -> Result<Vec3, OrbitError> {
        match self {
            Self::Drift(ellipse) => Ok(ellipse.position(t_s)),
            Self::Sgp4(constants, offset) => {
                let minutes = sgp4::MinutesSinceEpoch((t_s + offset) / 60.0);
                let place = constants.propagate_afspc_compatibility_mode(minutes).map_err(|e| {
                    OrbitError::Propagation { satellite: name.to_owned(), t_s, reason: e.to_string() }
                })?;
                Ok(scale(place.position, 1e3))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::norm;

    fn circle(altitude_m: f64, inclination_deg: f64) -> Kepler {
        Kepler {
            semi_major_axis_m: EARTH_RADIUS_M + altitude_m,
            eccentricity: 0.0,
            inclination_deg,
            right_ascension_deg: 0.0,
            perigee_deg: 0.0,
            mean_anomaly_deg: 0.0,
        }
    }

    #[test]
    fn a_sun_synchronous_orbit_follows_the_sun() {
        // Closed form: at 800 km and 98.6 degrees the node drifts 360 degrees in a year of 365.2422 days.
        let drift = DriftingEllipse::new(circle(800e3, 98.603), Perturbation::J2).node_rate_rad_s();
        let per_day = drift.to_degrees() * 86_400.0;
        assert!((per_day - 360.0 / 365.2422).abs() < 2e-3, "{per_day} degrees a day");
    }

    #[test]
    fn without_perturbation_an_orbit_closes_after_its_period() {
        let kepler = Kepler { eccentricity: 0.3, perigee_deg: 40.0, ..circle(9_000e3, 63.4) };
        let orbit = DriftingEllipse::new(kepler, Perturbation::None);
        let period = TAU / kepler.mean_motion_rad_s();
        let (start, end) = (orbit.position(0.0), orbit.position(period));
        assert!(crate::frame::distance(start, end) < 1e-3);
        // At the epoch the satellite is at its perigee, half a period later at its apogee.
        assert!((norm(start) - kepler.semi_major_axis_m * 0.7).abs() < 1e-3);
        assert!((norm(orbit.position(period / 2.0)) - kepler.semi_major_axis_m * 1.3).abs() < 1e-3);
    }

    #[test]
    fn an_orbit_through_the_ground_is_refused_by_name() {
        let error = Orbit::kepler("mole", circle(-1e3, 0.0), Perturbation::J2).unwrap_err();
        assert!(error.to_string().contains("`mole`"), "{error}");
    }
}
