use crate::time::Duration;

/// A unit of the told time. Shorter waits are no waits: a packet takes as long on a link of 170 Mbit/s.
const UNIT: Duration = Duration::from_micros(64);
/// Below this many units each has a code of its own; above, the code is a mantissa of this many values per
/// doubling.
const STEPS: u64 = 8;
const CODES: u8 = 0x7f;
const DRY: u8 = 0x80;

/// Waiting time of a packet's bytes for their turn, from their request to their sending, summed over all nodes so
/// far.
///
/// One byte on the wire: the upper bit says *dry*, the others are the time in units of 64 µs, with a mantissa of three bits
/// and an exponent of four. It is exact up to 1 ms, within 7 % up to 15.7 s, and no more than that above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waited {
    /// The time.
    pub time: Duration,
    /// The requests of the flow had run out before these bytes were asked for, while the link had room: the opposite of
    /// *backlog*.
    pub is_dry: bool,
}

impl Waited {
    /// Bytes that did not have to wait, because nothing else was asked for.
    pub const DRY: Self = Self { time: Duration::ZERO, is_dry: true };

    /// Reads the byte.
    pub fn from_byte(byte: u8) -> Self {
        let code = u64::from(byte & CODES);
        let (exponent, mantissa) = (code / STEPS, code % STEPS);
        let units = if exponent == 0 { mantissa } else { (STEPS + mantissa) << (exponent - 1) };
        Self { time: UNIT.scaled(units, 1), is_dry: byte & DRY != 0 }
    }

    /// Writes the byte: the nearest code.
    pub fn to_byte(self) -> u8 {
        let units = (self.time.as_nanos() + UNIT.as_nanos() / 2) / UNIT.as_nanos();
        let dry = if self.is_dry { DRY } else { 0 };
        dry | Self::code(units)
    }

    fn code(units: u64) -> u8 {
        if units < STEPS {
            return units as u8;
        }
        let exponent = u64::from(units.ilog2() - STEPS.ilog2());
        // Rounded to the nearest of its doubling; the one above the last is the first of the next.
        let mantissa = ((units << 1) >> exponent).div_ceil(2) - STEPS;
        ((exponent + 1) * STEPS + mantissa).min(u64::from(CODES)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_time_that_is_written_as_the_same_byte() {
        for byte in 0..=u8::MAX {
            assert_eq!(Waited::from_byte(byte).to_byte(), byte, "{:?}", Waited::from_byte(byte));
        }
    }

    #[test]
    fn a_told_time_is_within_seven_percent_or_half_a_unit() {
        for micros in (0..15_000_000).step_by(997) {
            let time = Duration::from_micros(micros);
            let told = Waited::from_byte(Waited { time, is_dry: false }.to_byte()).time;
            let error = told.as_secs_f64() - time.as_secs_f64();
            assert!(error.abs() <= (0.07 * time.as_secs_f64()).max(33e-6), "{time:?} is told as {told:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_told_as_the_longest() {
        let waited = Waited { time: Duration::from_secs(3_600), is_dry: true };
        assert_eq!(waited.to_byte(), 0xff);
        assert!(Waited::from_byte(0x7f).time > Duration::from_secs(15));
    }
}
