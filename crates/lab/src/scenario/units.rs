//! Quantities that carry their unit: "20Mbit", "10ms", "1%", "1000p", "64KiB".

use serde::de::{self, Deserialize, Deserializer, Visitor};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use starhop_sim::link::QueueLimit;
use std::fmt;
use std::str::FromStr;

/// A rate: "600kbit", "20Mbit", "1.2Gbit" per second, or "unlimited".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bitrate(pub Rate);

/// A span of time: "250us", "10ms", "1.5s", "2min", "24h".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span(pub Duration);

/// A span of time that may be negative: "-90s".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SignedSpan {
    /// In nanoseconds.
    pub nanos: i64,
}

/// A part of a clock's pace by which it gains: "50ppm"; it loses where that is below nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drift {
    /// In parts of a billion.
    pub ppb: i32,
}

/// A share: "1%".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(pub f64);

/// An amount of data: "37.5kB", "64KiB", "100MB".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Size(pub u64);

/// An amount of data in bytes or in full packets: "5p".
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum PacketsOrSize {
    /// Full packets.
    Packets(f64),
    /// Bytes.
    Bytes(u64),
}

/// The room of a queue: "1000p", "37.5kB", "1bdp", or "unlimited".
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum QueueRoom {
    /// Everything.
    Unlimited,
    /// Packets.
    Packets(u32),
    /// Bytes.
    Bytes(u64),
    /// Multiples of the bandwidth-delay product of a flow's path: its least rate times its round trip.
    Bdp(f64),
}

impl QueueRoom {
    /// The limit of a queue; none where that depends on a path.
    pub(super) fn limit(room: Option<Self>) -> QueueLimit {
        match room {
            Some(Self::Packets(packets)) => QueueLimit::Packets(packets),
            Some(Self::Bytes(bytes)) => QueueLimit::Bytes(bytes),
            None | Some(Self::Unlimited | Self::Bdp(_)) => QueueLimit::Unlimited,
        }
    }
}

/// The length of a flow: an amount of data, or "unlimited".
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowSize(pub Option<u64>);

const RATE_UNITS: &[(&str, f64)] = &[("bit", 1.0), ("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9)];
const TIME_UNITS: &[(&str, f64)] =
    &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];
/// Clocks that are off by more are broken.
const MOST_DRIFT_PPM: f64 = 10_000.0;
const SIZE_UNITS: &[(&str, f64)] = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];

/// A number and its unit.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-._".contains(c))).unwrap_or(text.len());
    let digits: String = text[..end].chars().filter(|c| *c != '_').collect();
    let number = digits.parse::<f64>().map_err(|_| format!("`{text}` does not begin with a number"))?;
    Ok((number, text[end..].trim()))
}

fn scaled(text: &str, what: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => Ok(number * factor),
        // Nothing is nothing in every unit.
        None if unit.is_empty() && number == 0.0 => Ok(0.0),
        None if unit.is_empty() => Err(format!("`{text}` has no unit; a {what} is in {}", names())),
        None => Err(format!("`{unit}` is no unit of a {what}; it is in {}", names())),
    }
}

fn positive(text: &str, what: &str, units: &[(&str, f64)]) -> Result<u64, String> {
    let value = scaled(text, what, units)?;
    if value < 0.0 { Err(format!("`{text}` is negative")) } else { Ok(value.round() as u64) }
}

impl FromStr for Bitrate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self(Rate::UNLIMITED));
        }
        positive(text.strip_suffix("/s").unwrap_or(text), "rate", RATE_UNITS)
            .map(|bps| Self(Rate::from_bps(bps)))
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        positive(text, "time", TIME_UNITS).map(|nanos| Self(Duration::from_nanos(nanos)))
    }
}

impl FromStr for SignedSpan {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, "time", TIME_UNITS).map(|nanos| Self { nanos: nanos.round() as i64 })
    }
}

impl FromStr for Drift {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let ppm = scaled(text, "drift", &[("ppm", 1.0)])?;
        if ppm.abs() <= MOST_DRIFT_PPM {
            Ok(Self { ppb: (1e3 * ppm).round() as i32 })
        } else {
            Err(format!("`{text}` lies outside -{MOST_DRIFT_PPM}ppm to {MOST_DRIFT_PPM}ppm"))
        }
    }
}

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let share = scaled(text, "share", &[("%", 0.01)])?;
        if (0.0..=1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(format!("`{text}` lies outside 0% to 100%"))
        }
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        positive(text, "size", SIZE_UNITS).map(Self)
    }
}

impl FromStr for PacketsOrSize {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match split(text)? {
            (packets, "p") if packets >= 0.0 => Ok(Self::Packets(packets)),
            _ => positive(text, "size", SIZE_UNITS).map(Self::Bytes),
        }
    }
}

impl FromStr for QueueRoom {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        match split(text)? {
            (packets, "p") if packets >= 1.0 && packets.fract() == 0.0 => Ok(Self::Packets(packets as u32)),
            (_, "p") => Err(format!("`{text}` is no whole number of packets above 0")),
            (times, "bdp") if times > 0.0 => Ok(Self::Bdp(times)),
            (_, "") => Err(format!("`{text}` has no unit; a queue is in p, bdp, B, kB, KiB, MB, MiB")),
            _ => positive(text, "queue", SIZE_UNITS).map(Self::Bytes),
        }
    }
}

impl FromStr for FlowSize {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self(None)),
            _ => match text.parse::<Size>()? {
                Size(0) => Err("a flow of no bytes transfers nothing".into()),
                Size(bytes) => Ok(Self(Some(bytes))),
            },
        }
    }
}

struct Quantity<T>(std::marker::PhantomData<T>, &'static str);

impl<T: FromStr<Err = String>> Visitor<'_> for Quantity<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    /// A bare number: 0 is accepted, and the error for any other number names the units.
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
}

macro_rules! deserialize_as_quantity {
    ($($kind:ty => $example:literal),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Quantity(std::marker::PhantomData, $example))
            }
        }
    )*};
}

deserialize_as_quantity! {
    Bitrate => "a rate with its unit, as \"20Mbit\"",
    Span => "a time with its unit, as \"10ms\"",
    SignedSpan => "a time with its unit, as \"-90s\"",
    Drift => "a part of a clock's pace, as \"50ppm\"",
    Share => "a share with its unit, as \"1%\"",
    Size => "a size with its unit, as \"64KiB\"",
    PacketsOrSize => "a size or a number of packets, as \"64KiB\" or \"5p\"",
    QueueRoom => "a queue, as \"1000p\", \"37.5kB\" or \"1bdp\"",
    FlowSize => "a size with its unit, as \"100MB\", or \"unlimited\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!("1.2Mbit".parse(), Ok(Bitrate(Rate::from_bps(1_200_000))));
        assert_eq!("37.5kB".parse(), Ok(QueueRoom::Bytes(37_500)));
        assert_eq!("2bdp".parse(), Ok(QueueRoom::Bdp(2.0)));
        assert_eq!("0.5 s".parse(), Ok(Span(Duration::from_millis(500))));
        assert_eq!("-90s".parse(), Ok(SignedSpan { nanos: -90_000_000_000 }));
        assert_eq!("64KiB".parse(), Ok(FlowSize(Some(65_536))));
        assert_eq!("1%".parse(), Ok(Share(0.01)));
        assert_eq!("0".parse(), Ok(Share(0.0)));
    }

    #[test]
    fn a_wrong_unit_is_answered_with_the_right_ones() {
        let error = "20Mbits".parse::<Bitrate>().err().unwrap_or_default();
        assert!(error.contains("`Mbits`") && error.contains("Mbit, Gbit"), "{error}");
        let error = "20".parse::<Span>().err().unwrap_or_default();
        assert!(error.contains("no unit") && error.contains("ms"), "{error}");
        assert!("-1ms".parse::<Span>().is_err());
        assert!("101%".parse::<Share>().is_err());
        assert!("0.5p".parse::<QueueRoom>().is_err());
        assert!("0MB".parse::<FlowSize>().is_err());
    }
}
