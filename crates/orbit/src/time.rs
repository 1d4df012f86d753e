//! Epochs and spans of time.
//!
//! Inside the crate a moment is an `f64` of seconds since the [`Epoch`] of the constellation. Days have 86 400 s,
//! as in TLE arithmetic: leap seconds are not counted.

use sgp4::chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use std::fmt;
use std::str::FromStr;

/// A moment of UTC from which seconds are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(NaiveDateTime);

/// Why a text is no epoch or no duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TimeError {
    /// The text is not `YYYY-MM-DDTHH:MM:SS`.
    #[error("`{0}` is no UTC time: write it as 2000-01-01T00:00:00Z")]
    Epoch(String),
    /// The text is not a number with a unit of time.
    #[error("`{0}` is no duration: write a number and one of ms, s, min, h, d, such as 600s or 24h")]
    Duration(String),
}

impl Epoch {
    /// The beginning of a day, UTC; `None` if the calendar has no such day.
    pub fn midnight(year: i32, month: u32, day: u32) -> Option<Self> {
        Some(Self(NaiveDate::from_ymd_opt(year, month, day)?.and_hms_opt(0, 0, 0)?))
    }

    /// 2000-01-01 00:00 UTC: the epoch of the built-in constellations.
    pub fn year_2000() -> Self {
        Self(NaiveDate::from_ymd_opt(2000, 1, 1).and_then(|d| d.and_hms_opt(0, 0, 0)).unwrap_or_default())
    }

    pub(crate) fn from_naive(at: NaiveDateTime) -> Self {
        Self(at)
    }

    pub(crate) fn naive(self) -> NaiveDateTime {
        self.0
    }

    /// Seconds from `other` to `self`, negative if `self` is earlier; exact to 1 µs.
    pub fn seconds_since(self, other: Epoch) -> f64 {
        let span = self.0 - other.0;
        span.num_seconds() as f64 + f64::from(span.subsec_nanos()) * 1e-9
    }

    /// The epoch `seconds` later, rounded to 1 µs.
    #[must_use]
    pub fn after(self, seconds: f64) -> Self {
        Self(self.0 + TimeDelta::microseconds((seconds * 1e6).round() as i64))
    }

    /// Days since J2000.0 (2000-01-01 12:00), UTC taken for UT1: the error is below 0.9 s by the definition of UTC.
    pub fn days_since_j2000(self) -> f64 {
        self.seconds_since(Self::year_2000()) / 86_400.0 - 0.5
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.format("%Y-%m-%dT%H:%M:%S%.fZ"))
    }
}

impl FromStr for Epoch {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let bare = text.trim().trim_end_matches('Z');
        ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"]
            .iter()
            .find_map(|format| NaiveDateTime::parse_from_str(bare, format).ok())
            .map(Self)
            .ok_or_else(|| TimeError::Epoch(text.to_owned()))
    }
}

/// Reads `600s`, `250ms`, `10min`, `24h` or `1d` as seconds.
///
/// # Errors
/// [`TimeError::Duration`] for a missing unit, a negative or infinite number, or anything else.
pub fn parse_seconds(text: &str) -> Result<f64, TimeError> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(TimeError::Duration(text.to_owned())),
    };
    match number.trim().parse::<f64>() {
        Ok(n) if n >= 0.0 && n.is_finite() => Ok(n * scale),
        _ => Err(TimeError::Duration(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_survives_a_trip_through_its_text() {
        let epoch: Epoch = "2026-03-04T05:06:07.250Z".parse().unwrap();
        assert_eq!(epoch.to_string().parse::<Epoch>().unwrap(), epoch);
        assert_eq!(epoch.after(1.5).seconds_since(epoch), 1.5);
    }

    #[test]
    fn noon_of_the_first_of_january_2000_is_day_zero() {
        assert_eq!(Epoch::year_2000().after(43_200.0).days_since_j2000(), 0.0);
    }

    #[test]
    fn durations_need_a_unit_and_must_not_be_negative() {
        assert_eq!(parse_seconds("250ms").unwrap(), 0.25);
        assert_eq!(parse_seconds("24h").unwrap(), 86_400.0);
        for bad in ["", "600", "-1s", "1 week", "infs"] {
            assert_eq!(parse_seconds(bad), Err(TimeError::Duration(bad.to_owned())));
        }
    }
}
