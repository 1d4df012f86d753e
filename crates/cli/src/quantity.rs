//! Quantities with their unit, as users write them.

use starhop_proto::units::Rate;
use std::time::Duration;

type Units = [(&'static str, f64)];

const SIZES: &Units = &[
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];
const RATES: &Units = &[
    ("kbit", 1e3),
    ("Mbit", 1e6),
    ("Gbit", 1e9),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("bit", 1.0),
];
const TIMES: &Units = &[("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
const SHARES: &Units = &[("%", 0.01)];

/// `20MB`, `256MiB`, or a number of bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse(text, SIZES, Some(1.0), "a size, such as 20MB or 256MiB").map(|bytes| bytes as u64)
}

/// `20Mbit`.
pub(crate) fn rate(text: &str) -> Result<Rate, String> {
    let bits = parse(text, RATES, None, "a rate, such as 20Mbit")?;
    if bits < 1.0 { Err("a rate of 0 carries nothing".to_owned()) } else { Ok(Rate::from_bps(bits as u64)) }
}

/// `30s`, `10ms`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let seconds = parse(text, TIMES, None, "a time, such as 30s or 10ms")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// A time after which something is done again and again.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("it must be longer than 0; 1s is usual".to_owned()),
        period => Ok(period),
    }
}

/// A span as people say it, in its largest whole unit: `12 hours`, `1 day`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [("day", 86_400), ("hour", 3600), ("minute", 60)];
    let fitting = units.into_iter().find(|(_, length)| seconds >= *length);
    let (unit, length) = fitting.unwrap_or(("second", 1));
    let count = seconds / length;
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// `1%`, as a probability below 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share = parse(text, SHARES, None, "a share, such as 1%")?;
    if share < 1.0 { Ok(share) } else { Err("it must be below 100%".to_owned()) }
}

fn parse(text: &str, units: &Units, bare: Option<f64>, what: &str) -> Result<f64, String> {
    let wrong = || format!("this is not {what}");
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit {
        "" => bare,
        _ => units.iter().find(|(name, _)| *name == unit).map(|&(_, factor)| factor),
    };
    factor.map(|factor| number * factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_carry_their_unit() {
        assert_eq!(size("256MiB"), Ok(268_435_456));
        assert_eq!(size("17"), Ok(17));
        assert_eq!(rate("2.5Mbit"), Ok(Rate::from_bps(2_500_000)));
        assert_eq!(time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(time("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(share("1%"), Ok(0.01));
    }

    #[test]
    fn a_span_is_told_in_a_unit_that_it_fills() {
        let told = [0, 59, 60, 5400, 86_399, 86_400, 90 * 86_400].map(|s| span(Duration::from_secs(s)));
        assert_eq!(told, ["0 seconds", "59 seconds", "1 minute", "1 hour", "23 hours", "1 day", "90 days"]);
    }

    #[test]
    fn what_lacks_a_unit_or_makes_no_sense_is_refused() {
        for wrong in ["", "20", "Mbit", "-3s", "20 MB", "3m"] {
            assert!(rate(wrong).is_err() && time(wrong).is_err(), "{wrong}");
        }
        assert!(rate("0Mbit").is_err());
        assert!(period("0s").is_err() && period("0.0ms").is_err() && period("1ms").is_ok());
        assert!(share("100%").is_err());
    }
}
