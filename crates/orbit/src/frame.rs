//! Frames: inertial (ECI), Earth-fixed (ECEF), geodetic (WGS 84), and a station's view of a satellite.
//!
//! ECI is the true-equator mean-equinox frame that SGP4 uses. It is turned into ECEF by Greenwich mean sidereal
//! time alone: polar motion (below 15 m on the ground) is left out. All vectors are in metres.

use crate::time::Epoch;

/// A vector in metres (or m/s), x, y, z.
pub type Vec3 = [f64; 3];

/// WGS 84 equatorial radius, m.
pub const EARTH_RADIUS_M: f64 = 6_378_137.0;
/// WGS 84 flattening.
pub const FLATTENING: f64 = 1.0 / 298.257_223_563;
/// WGS 84 gravitational parameter, m³/s².
pub const MU: f64 = 3.986_004_418e14;
/// Second zonal harmonic of the Earth's field (EGM 96).
pub const J2: f64 = 1.082_626_68e-3;
/// Turn rate of the Earth against the mean equinox, rad/s (Vallado, Fundamentals of Astrodynamics, 3-40).
pub const EARTH_TURN_RAD_S: f64 = 7.292_115_855_3e-5;
/// Speed of light in vacuum, m/s.
pub const SPEED_OF_LIGHT: f64 = 299_792_458.0;

/// Sum of two vectors.
pub fn add(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// `a` minus `b`.
pub fn sub(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// Scalar product.
pub fn dot(a: Vec3, b: Vec3) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// `a` times `k`.
pub fn scale(a: Vec3, k: f64) -> Vec3 {
    [a[0] * k, a[1] * k, a[2] * k]
}

/// Length of a vector.
pub fn norm(a: Vec3) -> f64 {
    dot(a, a).sqrt()
}

/// Distance between two points.
pub fn distance(a: Vec3, b: Vec3) -> f64 {
    norm(sub(a, b))
}

/// One-way delay over `length_m` metres of vacuum, s.
pub fn light_time_s(length_m: f64) -> f64 {
    length_m / SPEED_OF_LIGHT
}

/// A point over the WGS 84 ellipsoid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geodetic {
    /// Geodetic latitude, degrees north.
    pub latitude_deg: f64,
    /// Longitude, degrees east.
    pub longitude_deg: f64,
    /// Height over the ellipsoid, m.
    pub altitude_m: f64,
}

impl Geodetic {
    /// The same point in ECEF, m.
    pub fn to_ecef(self) -> Vec3 {
        let (sin_lat, cos_lat) = self.latitude_deg.to_radians().sin_cos();
        let (sin_lon, cos_lon) = self.longitude_deg.to_radians().sin_cos();
        let e2 = FLATTENING * (2.0 - FLATTENING);
        let n = EARTH_RADIUS_M / (1.0 - e2 * sin_lat * sin_lat).sqrt();
        let across = (n + self.altitude_m) * cos_lat;
        [across * cos_lon, across * sin_lon, (n * (1.0 - e2) + self.altitude_m) * sin_lat]
    }

    /// The point under and the height of an ECEF vector (Bowring's formula, iterated; below 1 mm up to GEO).
    pub fn from_ecef(p: Vec3) -> Self {
        let e2 = FLATTENING * (2.0 - FLATTENING);
        let across = p[0].hypot(p[1]);
        let mut lat = p[2].atan2(across * (1.0 - e2));
        let mut altitude_m = 0.0;
        for _ in 0..6 {
            let (sin, cos) = lat.sin_cos();
            let n = EARTH_RADIUS_M / (1.0 - e2 * sin * sin).sqrt();
            // Near the poles the height follows from z, elsewhere from the distance to the axis.
            altitude_m = if cos.abs() > 0.1 { across / cos - n } else { p[2] / sin - n * (1.0 - e2) };
            lat = p[2].atan2(across * (1.0 - e2 * n / (n + altitude_m)));
        }
        Self { latitude_deg: lat.to_degrees(), longitude_deg: p[1].atan2(p[0]).to_degrees(), altitude_m }
    }

    /// The unit vector that points up (along the ellipsoid's normal), ECEF.
    pub fn up(self) -> Vec3 {
        let (sin_lat, cos_lat) = self.latitude_deg.to_radians().sin_cos();
        let (sin_lon, cos_lon) = self.longitude_deg.to_radians().sin_cos();
        [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat]
    }
}

/// Greenwich mean sidereal time at `t_s` seconds after `epoch`, radians in 0..2π (IAU 1982; Vallado eq. 3-45).
pub fn sidereal_time_rad(epoch: Epoch, t_s: f64) -> f64 {
    let days = epoch.days_since_j2000() + t_s / 86_400.0;
    let c = days / 36_525.0;
    let seconds = 67_310.548_41 + (876_600.0 * 3_600.0 + 8_640_184.812_866) * c + 0.093_104 * c * c
        - 6.2e-6 * c * c * c;
    (seconds / 240.0).to_radians().rem_euclid(std::f64::consts::TAU)
}

/// Turns an ECI vector into ECEF, given the sidereal time in radians.
pub fn eci_to_ecef(p: Vec3, sidereal_rad: f64) -> Vec3 {
    let (sin, cos) = sidereal_rad.sin_cos();
    [cos * p[0] + sin * p[1], cos * p[1] - sin * p[0], p[2]]
}

/// The direction and distance at which a station sees a satellite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LookAngle {
    /// Height over the horizon, degrees.
    pub elevation_deg: f64,
    /// Degrees east of north, 0..360.
    pub azimuth_deg: f64,
    /// Straight-line distance, m.
    pub range_m: f64,
}

/// Direction and distance of the ECEF point `target` from `station`. Refraction is left out.
pub fn look(station: Geodetic, target: Vec3) -> LookAngle {
    let line = sub(target, station.to_ecef());
    let range_m = norm(line);
    let (sin_lat, cos_lat) = station.latitude_deg.to_radians().sin_cos();
    let (sin_lon, cos_lon) = station.longitude_deg.to_radians().sin_cos();
    let east = dot(line, [-sin_lon, cos_lon, 0.0]);
    let north = dot(line, [-sin_lat * cos_lon, -sin_lat * sin_lon, cos_lat]);
    LookAngle {
        elevation_deg: (dot(line, station.up()) / range_m).asin().to_degrees(),
        azimuth_deg: east.atan2(north).to_degrees().rem_euclid(360.0),
        range_m,
    }
}

/// Distance at which a satellite of orbit radius `radius_m` stands `elevation_deg` over a spherical horizon, m.
pub fn slant_range_m(radius_m: f64, elevation_deg: f64) -> f64 {
    let (sin, cos) = elevation_deg.to_radians().sin_cos();
    let across = EARTH_RADIUS_M * cos;
    (radius_m * radius_m - across * across).max(0.0).sqrt() - EARTH_RADIUS_M * sin
}

/// Smallest distance from the centre of the Earth to the straight segment between two points, m.
pub fn closest_approach_m(a: Vec3, b: Vec3) -> f64 {
    let d = sub(b, a);
    let span = dot(d, d);
    if span == 0.0 {
        return norm(a);
    }
    let at = (-dot(a, d) / span).clamp(0.0, 1.0);
    norm(add(a, scale(d, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geodetic_and_earth_fixed_points_agree_both_ways() {
        for &(lat, lon, alt) in
            &[(0.0, 0.0, 0.0), (39.9, 116.4, 50.0), (-89.99, 10.0, 550e3), (71.0, -170.0, 35_786e3)]
        {
            let point = Geodetic { latitude_deg: lat, longitude_deg: lon, altitude_m: alt };
            let back = Geodetic::from_ecef(point.to_ecef());
            assert!((back.latitude_deg - lat).abs() < 1e-8, "{back:?}");
            assert!((back.longitude_deg - lon).abs() < 1e-9, "{back:?}");
            assert!((back.altitude_m - alt).abs() < 1e-3, "{back:?}");
        }
    }

    #[test]
    fn sidereal_time_matches_the_textbook_example() {
        // Vallado, Fundamentals of Astrodynamics, example 3-5: 1992-08-20 12:14 UT1 is 152.578 787 886 degrees.
        let epoch: Epoch = "1992-08-20T12:14:00Z".parse().unwrap();
        assert!((sidereal_time_rad(epoch, 0.0).to_degrees() - 152.578_787_886).abs() < 1e-6);
    }

    #[test]
    fn a_satellite_in_the_zenith_stands_at_ninety_degrees() {
        let station = Geodetic { latitude_deg: 48.85, longitude_deg: 2.35, altitude_m: 0.0 };
        let over = Geodetic { altitude_m: 550e3, ..station };
        let angle = look(station, over.to_ecef());
        assert!(
            (angle.elevation_deg - 90.0).abs() < 1e-4 && (angle.range_m - 550e3).abs() < 1e-3,
            "{angle:?}"
        );
    }

    #[test]
    fn a_geostationary_satellite_over_the_equator_is_due_south_of_paris() {
        let station = Geodetic { latitude_deg: 48.85, longitude_deg: 2.35, altitude_m: 0.0 };
        let geo = Geodetic { latitude_deg: 0.0, longitude_deg: 2.35, altitude_m: 35_786e3 };
        let angle = look(station, geo.to_ecef());
        assert!((angle.azimuth_deg - 180.0).abs() < 1e-6);
        // Closed form on the sphere: elevation about 34 degrees at this latitude.
        assert!((angle.elevation_deg - 34.0).abs() < 0.3, "{angle:?}");
    }

    #[test]
    fn slant_range_at_the_horizon_is_pythagoras() {
        let r = EARTH_RADIUS_M + 550e3;
        assert!((slant_range_m(r, 0.0) - (r * r - EARTH_RADIUS_M.powi(2)).sqrt()).abs() < 1e-6);
        assert!((slant_range_m(r, 90.0) - 550e3).abs() < 1e-6);
    }

    #[test]
    fn a_chord_through_the_earth_comes_close_to_its_centre() {
        assert_eq!(closest_approach_m([7e6, 0.0, 0.0], [-7e6, 0.0, 0.0]), 0.0);
        assert_eq!(closest_approach_m([7e6, 0.0, 0.0], [7e6, 0.0, 0.0]), 7e6);
    }
}
