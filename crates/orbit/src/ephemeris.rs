//! Positions of all satellites at a given time, in ECEF.
//!
//! Orbits are evaluated on knots [`KNOT_S`] apart and interpolated between them in the inertial frame by the cubic
//! through four knots. Its error is 9/384·h⁴·|r''''| = 2.4 mm at h = 10 s on a circle at 550 km (0.01 ns of light),
//! and it makes SGP4 ten times cheaper at steps of 1 s.

use crate::constellation::Constellation;
use crate::elements::OrbitError;
use crate::frame::{Vec3, sidereal_time_rad};
use std::collections::VecDeque;

/// Distance between knots, s.
pub const KNOT_S: f64 = 10.0;

/// A cursor over the satellites' places. Moving it forwards in small steps is cheap; any time may be asked for.
#[derive(Clone, Debug)]
pub struct Ephemeris<'a> {
    sky: &'a Constellation,
    /// Index of the first of the four knots, in units of `KNOT_S`.
    first: Option<i64>,
    knots: VecDeque<Vec<Vec3>>,
    places: Vec<Vec3>,
}

impl<'a> Ephemeris<'a> {
    /// A cursor at no time yet.
    pub fn new(sky: &'a Constellation) -> Self {
        let places = vec![[0.0; 3]; sky.satellites.len()];
        Self { sky, first: None, knots: VecDeque::with_capacity(4), places }
    }

    /// The constellation whose satellites these are.
    pub fn constellation(&self) -> &'a Constellation {
        self.sky
    }

    /// ECEF places in m of all satellites, `t_s` seconds after the epoch.
    ///
    /// # Errors
    /// [`OrbitError::Propagation`] names the first satellite that has no place.
    pub fn at(&mut self, t_s: f64) -> Result<&[Vec3], OrbitError> {
        let knot = (t_s / KNOT_S).floor();
        self.load(knot as i64 - 1)?;
        let w = weights(t_s / KNOT_S - knot);
        let (sin, cos) = sidereal_time_rad(self.sky.epoch, t_s).sin_cos();
        let (k0, k1, k2, k3) = (&self.knots[0], &self.knots[1], &self.knots[2], &self.knots[3]);
        for (i, place) in self.places.iter_mut().enumerate() {
            let axis = |c: usize| w[0] * k0[i][c] + w[1] * k1[i][c] + w[2] * k2[i][c] + w[3] * k3[i][c];
            let (x, y, z) = (axis(0), axis(1), axis(2));
            *place = [cos * x + sin * y, cos * y - sin * x, z];
        }
        Ok(&self.places)
    }

    /// The places last asked for.
    pub fn places(&self) -> &[Vec3] {
        &self.places
    }

    /// Has knots `first` to `first + 3` in memory, keeping those that are.
    fn load(&mut self, first: i64) -> Result<(), OrbitError> {
        if self.first == Some(first) {
            return Ok(());
        }
        let kept = self.first.filter(|&have| first > have && first < have + 4);
        match kept {
            Some(have) => drop(self.knots.drain(..(first - have) as usize)),
            None => self.knots.clear(),
        }
        self.first = None;
        while self.knots.len() < 4 {
            let knot = self.knot(first + self.knots.len() as i64)?;
            self.knots.push_back(knot);
        }
        self.first = Some(first);
        Ok(())
    }

    fn knot(&self, number: i64) -> Result<Vec<Vec3>, OrbitError> {
        let t_s = number as f64 * KNOT_S;
        self.sky.satellites.iter().map(|s| s.orbit.position_eci(&s.name, t_s)).collect()
    }
}

/// Lagrange's weights of knots at -1, 0, 1, 2 for a point at `x` in 0..1.
fn weights(x: f64) -> [f64; 4] {
    let (a, b, c, d) = (x + 1.0, x, x - 1.0, x - 2.0);
    [-b * c * d / 6.0, a * c * d / 2.0, -a * b * d / 2.0, a * b * c / 6.0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{distance, eci_to_ecef};
    use crate::preset;

    #[test]
    fn interpolation_stays_within_a_centimetre_of_sgp4() {
        let sky = preset::by_name("starlink-550").unwrap().constellation().unwrap();
        let mut ephemeris = Ephemeris::new(&sky);
        let mut worst: f64 = 0.0;
        for t in [0.0, 3.7, 5.0, 14.99, 15.01, 7_205.0, 1.0] {
            let places = ephemeris.at(t).unwrap().to_vec();
            for (satellite, place) in sky.satellites.iter().zip(places).step_by(37) {
                let exact = satellite.orbit.position_eci("", t).unwrap();
                worst = worst.max(distance(eci_to_ecef(exact, sidereal_time_rad(sky.epoch, t)), place));
            }
        }
        assert!(worst < 0.01, "{worst} m");
    }
}
