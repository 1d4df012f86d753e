//! Constellations by name.

use crate::constellation::Constellation;
use crate::elements::OrbitError;
use crate::frame::{EARTH_RADIUS_M, EARTH_TURN_RAD_S, MU, sidereal_time_rad};
use crate::link::{GroundRule, IslRule};
use crate::time::Epoch;
use crate::walker::{Motion, Phasing, Shell, Spread};

/// A named constellation: its shells and the rules of its links.
#[derive(Clone, Debug)]
pub struct Preset {
    /// The name by which users select it.
    pub name: &'static str,
    /// One sentence: a description, and the source of the numbers.
    pub about: &'static str,
    /// Its shells.
    pub shells: Vec<Shell>,
    /// Whether it has inter-satellite links (+Grid).
    pub plus_grid: bool,
    /// Condition under which an inter-satellite link is up.
    pub isl_rule: IslRule,
    /// Condition under which a ground link is possible.
    pub ground_rule: GroundRule,
}

impl Preset {
    /// Its satellites and links at 2000-01-01 00:00 UTC.
    ///
    /// # Errors
    /// [`OrbitError`] if a shell was changed into something impossible.
    pub fn constellation(&self) -> Result<Constellation, OrbitError> {
        let sky = Constellation::from_shells(self.name, Epoch::year_2000(), self.shells.clone())?;
        Ok(if self.plus_grid { sky.with_plus_grid() } else { sky })
    }
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 8] =
    ["starlink-550", "starlink-1150", "kuiper", "oneweb", "telesat", "iridium", "geo", "starlink-42000"];

/// The preset of this name.
pub fn by_name(name: &str) -> Option<Preset> {
    match name {
        "starlink-550" => Some(starlink_550()),
        "starlink-1150" => Some(starlink_1150()),
        "kuiper" => Some(kuiper()),
        "oneweb" => Some(oneweb()),
        "telesat" => Some(telesat()),
        "iridium" => Some(iridium()),
        "geo" => Some(geo(&[-30.0, 90.0, -150.0])),
        "starlink-42000" => Some(starlink_42000()),
        _ => None,
    }
}

fn shell(name: &str, planes: u32, per_plane: u32, inclination_deg: f64, altitude_km: f64) -> Shell {
    Shell {
        name: name.to_owned(),
        planes,
        per_plane,
        inclination_deg,
        altitude_m: altitude_km * 1e3,
        spread: Spread::Delta,
        phasing: Phasing::Alternate,
        first_node_deg: 0.0,
        motion: Motion::Drift,
    }
}

fn starlink_550() -> Preset {
    Preset {
        name: "starlink-550",
        about: "Starlink's first shell, 72 x 22 at 550 km and 53 degrees, +Grid: the shell of LEOTP's traces (SGP4, 15.19 rev/day)",
        shells: vec![Shell { motion: Motion::Sgp4(Some(15.19)), ..shell("starlink", 72, 22, 53.0, 550.0) }],
        plus_grid: true,
        isl_rule: IslRule { max_length_m: 5_016_591.0, ..IslRule::default() },
        // A cone of 940.7 km on the ground, taken flat: sqrt(940.7² + 550²) km.
        ground_rule: GroundRule { min_elevation_deg: 0.0, max_range_m: 940_700f64.hypot(550_000.0) },
    }
}

fn starlink_1150() -> Preset {
    Preset {
        name: "starlink-1150",
        about: "Starlink as first filed, 32 x 50 at 1150 km and 53 degrees: the 1600 satellites of the INTCP and LEOTP papers",
        // Handley (HotNets 2018) finds the phase of 5/32 that keeps the planes' crossings widest apart.
        shells: vec![Shell { phasing: Phasing::Walker(5), ..shell("starlink", 32, 50, 53.0, 1_150.0) }],
        plus_grid: true,
        isl_rule: IslRule::default(),
        ground_rule: GroundRule::elevation(40.0),
    }
}

fn kuiper() -> Preset {
    Preset {
        name: "kuiper",
        about: "Kuiper, three shells at 630, 610 and 590 km, 3236 satellites (FCC filing of 2019, minimum elevation 35 degrees)",
        shells: vec![
            shell("kuiper-630", 34, 34, 51.9, 630.0),
            shell("kuiper-610", 36, 36, 42.0, 610.0),
            shell("kuiper-590", 28, 28, 33.0, 590.0),
        ],
        plus_grid: true,
        isl_rule: IslRule::default(),
        ground_rule: GroundRule::elevation(35.0),
    }
}

fn oneweb() -> Preset {
    Preset {
        name: "oneweb",
        about: "OneWeb's first phase, 18 x 36 at 1200 km and 87.9 degrees, a star without inter-satellite links",
        shells: vec![Shell { spread: Spread::Star(180.0), ..shell("oneweb", 18, 36, 87.9, 1_200.0) }],
        plus_grid: false,
        isl_rule: IslRule::default(),
        ground_rule: GroundRule::elevation(25.0),
    }
}

fn telesat() -> Preset {
    Preset {
        name: "telesat",
        about: "Telesat Lightspeed, polar 27 x 13 at 1015 km and inclined 40 x 33 at 1325 km (FCC filing of 2020)",
        shells: vec![
            Shell { spread: Spread::Star(180.0), ..shell("telesat-polar", 27, 13, 98.98, 1_015.0) },
            shell("telesat-inclined", 40, 33, 50.88, 1_325.0),
        ],
        plus_grid: true,
        isl_rule: IslRule::default(),
        ground_rule: GroundRule::elevation(10.0),
    }
}

fn iridium() -> Preset {
    Preset {
        name: "iridium",
        about: "Iridium, 6 x 11 at 780 km and 86.4 degrees, a star with planes 31.6 degrees apart and none linked over the seam",
        shells: vec![Shell { spread: Spread::Star(6.0 * 31.6), ..shell("iridium", 6, 11, 86.4, 780.0) }],
        plus_grid: true,
        // Near the poles neighbours change sides: the cross-plane antennas cannot follow and are switched off.
        isl_rule: IslRule { cross_plane_max_latitude_deg: 68.0, ..IslRule::default() },
        ground_rule: GroundRule::elevation(8.2),
    }
}

/// Geostationary satellites at these longitudes (degrees east), without inter-satellite links: bent pipes.
pub fn geo(longitudes_deg: &[f64]) -> Preset {
    // A turn per sidereal day: 42 164 km from the centre.
    let radius = (MU / EARTH_TURN_RAD_S.powi(2)).cbrt();
    let sidereal_deg = sidereal_time_rad(Epoch::year_2000(), 0.0).to_degrees();
    let one = |longitude: &f64| Shell {
        first_node_deg: sidereal_deg + longitude,
        altitude_m: radius - EARTH_RADIUS_M,
        motion: Motion::Kept,
        ..shell(&format!("geo{longitude:+}"), 1, 1, 0.0, 0.0)
    };
    Preset {
        name: "geo",
        about: "geostationary bent pipes at 30 W, 90 E and 150 W",
        shells: longitudes_deg.iter().map(one).collect(),
        plus_grid: false,
        isl_rule: IslRule::default(),
        ground_rule: GroundRule::elevation(10.0),
    }
}

fn starlink_42000() -> Preset {
    Preset {
        name: "starlink-42000",
        about: "a test of scale: the 42 000 satellites once announced, as seven shells of 120 x 50 between 340 and 614 km",
        shells: [340.0, 345.6, 535.0, 540.0, 550.0, 604.0, 614.0]
            .iter()
            .map(|&km| shell(&format!("gen2-{km}"), 120, 50, if km > 600.0 { 97.0 } else { 53.0 }, km))
            .collect(),
        plus_grid: true,
        isl_rule: IslRule::default(),
        ground_rule: GroundRule::elevation(25.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ephemeris::Ephemeris;
    use crate::frame::Geodetic;

    #[test]
    fn every_name_has_a_preset_whose_satellites_fly() {
        for (name, count) in NAMES.iter().zip([1584, 1600, 3236, 648, 1671, 66, 3, 42_000]) {
            let sky = by_name(name).unwrap().constellation().unwrap();
            assert_eq!(sky.satellites.len(), count, "{name}");
            assert!(Ephemeris::new(&sky).at(0.0).is_ok(), "{name}");
        }
        assert!(by_name("starlink").is_none());
    }

    #[test]
    fn a_geostationary_satellite_stays_over_its_longitude() {
        let sky = geo(&[90.0]).constellation().unwrap();
        let mut ephemeris = Ephemeris::new(&sky);
        for hour in 0..48 {
            let under = Geodetic::from_ecef(ephemeris.at(f64::from(hour) * 3_600.0).unwrap()[0]);
            assert!(
                (under.longitude_deg - 90.0).abs() < 1e-3 && under.latitude_deg.abs() < 1e-9,
                "{under:?}"
            );
            assert!((under.altitude_m - 35_786e3).abs() < 1e3, "{under:?}");
        }
    }
}
