//! Capacity of a radio link: power, gains, noise, free space and rain, after Shannon and ITU-R.

use crate::frame::SPEED_OF_LIGHT;
use std::f64::consts::PI;

/// Boltzmann's constant, J/K.
const BOLTZMANN: f64 = 1.380_649e-23;

/// Plane of the wave's electric field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polarisation {
    /// Parallel to the ground.
    Horizontal,
    /// Upright.
    Vertical,
    /// Turning: between the two.
    Circular,
}

/// A transmitter, a receiver and the noise between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RadioBudget {
    /// Carrier, Hz.
    pub frequency_hz: f64,
    /// Bandwidth of the channel, Hz.
    pub bandwidth_hz: f64,
    /// Power into the transmitting antenna, dBW.
    pub power_dbw: f64,
    /// Gain of the transmitting antenna, dBi.
    pub transmit_gain_dbi: f64,
    /// Gain of the receiving antenna, dBi.
    pub receive_gain_dbi: f64,
    /// Noise temperature of the receiver with its antenna, K.
    pub noise_k: f64,
    /// Everything else that is lost: pointing, gases, implementation, dB.
    pub other_loss_db: f64,
    /// Spectral efficiency of the best modulation and coding, bit/s/Hz: DVB-S2X (ETSI EN 302 307-2) ends at 5.9.
    pub max_bit_s_hz: f64,
}

/// Rain over a station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rain {
    /// Rain rate, mm/h.
    pub rate_mm_h: f64,
    /// Height up to which it rains, over the station, m: see [`rain_height_m`].
    pub height_m: f64,
    /// Polarisation of the wave.
    pub polarisation: Polarisation,
}

impl RadioBudget {
    /// Carrier-to-noise ratio over `range_m` metres at an elevation, dB.
    pub fn carrier_to_noise_db(&self, range_m: f64, elevation_deg: f64, rain: Option<Rain>) -> f64 {
        let wet = rain.map_or(0.0, |r| rain_loss_db(self.frequency_hz, elevation_deg, r));
        let noise_dbw = 10.0 * (BOLTZMANN * self.noise_k * self.bandwidth_hz).log10();
        self.power_dbw + self.transmit_gain_dbi + self.receive_gain_dbi
            - free_space_loss_db(self.frequency_hz, range_m)
            - wet
            - self.other_loss_db
            - noise_dbw
    }

    /// Shannon's capacity of that ratio, bit/s, no more than the best modulation carries.
    pub fn capacity_bit_s(&self, range_m: f64, elevation_deg: f64, rain: Option<Rain>) -> f64 {
        let ratio = 10f64.powf(self.carrier_to_noise_db(range_m, elevation_deg, rain) / 10.0);
        self.bandwidth_hz * ratio.ln_1p().min(self.max_bit_s_hz * 2f64.ln()) / 2f64.ln()
    }
}

/// Free-space loss, dB (ITU-R P.525-4, eq. 4).
pub fn free_space_loss_db(frequency_hz: f64, range_m: f64) -> f64 {
    20.0 * (4.0 * PI * range_m * frequency_hz / SPEED_OF_LIGHT).log10()
}

/// Height of rain over a latitude, m over the sea (ITU-R P.839-2, eq. 1 without longitude).
pub fn rain_height_m(latitude_deg: f64) -> f64 {
    let km = match latitude_deg {
        l if l > 23.0 => 5.0 - 0.075 * (l - 23.0),
        l if l >= -21.0 => 5.0,
        l if l >= -71.0 => 5.0 + 0.1 * (l + 21.0),
        _ => 0.0,
    };
    km.max(0.0) * 1e3
}

/// Loss on the slant path through rain, dB: ITU-R P.618-13, section 2.2.1.1, steps 2 to 6. The vertical adjustment
/// (steps 7 to 9) is left out, and the rain rate is that of the moment instead of that of 0.01 % of the year.
/// Elevations below 5 degrees count as 5.
pub fn rain_loss_db(frequency_hz: f64, elevation_deg: f64, rain: Rain) -> f64 {
    if rain.rate_mm_h <= 0.0 || rain.height_m <= 0.0 {
        return 0.0;
    }
    let (sin, cos) = elevation_deg.max(5.0).to_radians().sin_cos();
    let slant_km = rain.height_m / 1e3 / sin;
    let ground_km = slant_km * cos;
    let ghz = frequency_hz / 1e9;
    let specific = specific_rain_loss_db_km(frequency_hz, rain.rate_mm_h, rain.polarisation);
    let reduction =
        1.0 / (1.0 + 0.78 * (ground_km * specific / ghz).sqrt() - 0.38 * (1.0 - (-2.0 * ground_km).exp()));
    specific * slant_km * reduction
}

/// Loss per kilometre of rain, dB/km (ITU-R P.838-3, eq. 1, and for circular polarisation eq. 4 and 5 on a level path).
pub fn specific_rain_loss_db_km(frequency_hz: f64, rate_mm_h: f64, polarisation: Polarisation) -> f64 {
    let ghz = frequency_hz / 1e9;
    let (kh, ah) = (K_H.at(ghz), ALPHA_H.at(ghz));
    let (kv, av) = (K_V.at(ghz), ALPHA_V.at(ghz));
    let (k, alpha) = match polarisation {
        Polarisation::Horizontal => (kh, ah),
        Polarisation::Vertical => (kv, av),
        Polarisation::Circular => (kh.midpoint(kv), (kh * ah + kv * av) / (kh + kv)),
    };
    k * rate_mm_h.powf(alpha)
}

/// One fitted curve of P.838-3: a sum of bells over log10 f, and a line.
struct Fit {
    bells: &'static [(f64, f64, f64)],
    slope: f64,
    offset: f64,
    logarithmic: bool,
}

impl Fit {
    fn at(&self, ghz: f64) -> f64 {
        let x = ghz.log10();
        let bells: f64 = self.bells.iter().map(|&(a, b, c)| a * (-((x - b) / c).powi(2)).exp()).sum();
        let value = bells + self.slope * x + self.offset;
        if self.logarithmic { 10f64.powf(value) } else { value }
    }
}

/// Table 1.
const K_H: Fit = Fit {
    bells: &[
        (-5.33980, -0.10008, 1.13098),
        (-0.35351, 1.26970, 0.45400),
        (-0.23789, 0.86036, 0.15354),
        (-0.94158, 0.64552, 0.16817),
    ],
    slope: -0.18961,
    offset: 0.71147,
    logarithmic: true,
};

/// Table 2.
const K_V: Fit = Fit {
    bells: &[
        (-3.80595, 0.56934, 0.81061),
        (-3.44965, -0.22911, 0.51059),
        (-0.39902, 0.73042, 0.11899),
        (0.50167, 1.07319, 0.27195),
    ],
    slope: -0.16398,
    offset: 0.63297,
    logarithmic: true,
};

/// Table 3.
const ALPHA_H: Fit = Fit {
    bells: &[
        (-0.14318, 1.82442, -0.55187),
        (0.29591, 0.77564, 0.19822),
        (0.32177, 0.63773, 0.13164),
        (-5.37610, -0.96230, 1.47828),
        (16.1721, -3.29980, 3.43990),
    ],
    slope: 0.67849,
    offset: -1.95537,
    logarithmic: false,
};

/// Table 4.
const ALPHA_V: Fit = Fit {
    bells: &[
        (-0.07771, 2.33840, -0.76284),
        (0.56727, 0.95545, 0.54039),
        (-0.20238, 1.14520, 0.26809),
        (-48.2991, 0.791669, 0.116226),
        (48.5833, 0.791459, 0.116479),
    ],
    slope: -0.053739,
    offset: 0.83433,
    logarithmic: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    const KU: RadioBudget = RadioBudget {
        frequency_hz: 12e9,
        bandwidth_hz: 240e6,
        power_dbw: 4.0,
        transmit_gain_dbi: 34.0,
        receive_gain_dbi: 33.2,
        noise_k: 290.0,
        other_loss_db: 2.0,
        max_bit_s_hz: 5.9,
    };

    #[test]
    fn rain_coefficients_match_the_recommendations_own_table() {
        // ITU-R P.838-3, table 5: (GHz, kH, alphaH, kV, alphaV), rounded to four figures.
        for (ghz, kh, ah, kv, av) in [
            (10.0, 0.01217, 1.2571, 0.01129, 1.2156),
            (12.0, 0.02386, 1.1825, 0.02455, 1.1216),
            (20.0, 0.09164, 1.0568, 0.09611, 0.9847),
            (30.0, 0.2403, 0.9485, 0.2291, 0.9129),
        ] {
            for (fit, published) in [(&K_H, kh), (&ALPHA_H, ah), (&K_V, kv), (&ALPHA_V, av)] {
                let ours = fit.at(ghz);
                assert!((ours / published - 1.0).abs() < 1e-3, "{ghz} GHz: {ours} against {published}");
            }
        }
    }

    #[test]
    fn free_space_loss_to_geo_at_ku_is_the_textbook_205_db() {
        assert!((free_space_loss_db(12e9, 35_786e3) - 205.1).abs() < 0.1);
    }

    #[test]
    fn capacity_is_shannons_and_ends_at_the_best_modulation() {
        let ratio = 10f64.powf(KU.carrier_to_noise_db(1_000e3, 30.0, None) / 10.0);
        let shannon = KU.bandwidth_hz * (1.0 + ratio).log2();
        assert!((KU.capacity_bit_s(1_000e3, 30.0, None) / shannon - 1.0).abs() < 1e-12);
        let loud = RadioBudget { power_dbw: 60.0, ..KU };
        assert!((loud.capacity_bit_s(1_000e3, 30.0, None) - 5.9 * 240e6).abs() < 1.0);
    }

    #[test]
    fn rain_costs_more_when_it_is_heavy_and_the_satellite_low() {
        let rain = |rate_mm_h| Rain {
            rate_mm_h,
            height_m: rain_height_m(40.0),
            polarisation: Polarisation::Circular,
        };
        let high = rain_loss_db(12e9, 60.0, rain(25.0));
        assert!((1.0..5.0).contains(&high), "{high} dB");
        assert!(rain_loss_db(12e9, 25.0, rain(25.0)) > high);
        assert!(rain_loss_db(12e9, 60.0, rain(50.0)) > high);
        assert_eq!(rain_loss_db(12e9, 60.0, rain(0.0)), 0.0);
    }
}
