//! Rates in bits per second, and the arithmetic between rates, bytes and time.

use crate::time::Duration;
use core::fmt;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// `a * b / c`, at most `u64::MAX`. A division of 128 bits is a call and a slow one: it is done only if the product
/// needs it.
pub(crate) const fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    if let Some(product) = a.checked_mul(b) {
        return product / c;
    }
    let quotient = a as u128 * b as u128 / c as u128;
    if quotient > u64::MAX as u128 { u64::MAX } else { quotient as u64 }
}

/// A data rate in bits per second. [`Rate::UNLIMITED`] stands for "no bound".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// Nothing may be sent.
    pub const ZERO: Self = Self(0);
    /// No bound.
    pub const UNLIMITED: Self = Self(u64::MAX);

    /// `bits` per second.
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// `megabits` (10^6 bits) per second.
    pub const fn from_mbps(megabits: u64) -> Self {
        Self(megabits * 1_000_000)
    }

    /// The rate that carries `bytes` in `span`; [`Rate::UNLIMITED`] for an empty span.
    pub fn of(bytes: u64, span: Duration) -> Self {
        if span.is_zero() {
            return Self::UNLIMITED;
        }
        Self(mul_div(bytes, 8 * NANOS_PER_SEC, span.as_nanos()))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Megabits per second.
    pub fn as_mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whether this is "no bound".
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// Bytes carried in `span`.
    pub const fn bytes_in(self, span: Duration) -> u64 {
        mul_div(self.0, span.as_nanos(), 8 * NANOS_PER_SEC)
    }

    /// The time `bytes` take; [`Duration::MAX`] at rate zero.
    pub const fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        Duration::from_nanos(mul_div(bytes, 8 * NANOS_PER_SEC, self.0))
    }

    /// The rate times `factor`, saturating; a negative or NaN factor gives zero.
    pub fn scaled(self, factor: f64) -> Self {
        if self.is_unlimited() { self } else { Self((self.0 as f64 * factor) as u64) }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.write_str("unlimited") } else { write!(f, "{}Mbit/s", self.as_mbps()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_megabits_carry_a_full_packet_in_six_tenths_of_a_millisecond() {
        assert_eq!(Rate::from_mbps(20).time_for(1500), Duration::from_micros(600));
        assert_eq!(Rate::from_mbps(20).bytes_in(Duration::from_micros(600)), 1500);
        assert_eq!(Rate::of(1500, Duration::from_micros(600)), Rate::from_mbps(20));
    }

    #[test]
    fn products_on_both_sides_of_64_bits_divide_alike() {
        let second = Duration::from_secs(1);
        for bytes in [2_305_843_009, 2_305_843_010, 1 << 50] {
            assert_eq!(Rate::of(bytes, second), Rate::from_bps(8 * bytes));
            assert_eq!(Rate::from_bps(8 * bytes).time_for(bytes), second);
            assert_eq!(Rate::from_bps(8 * bytes).bytes_in(second), bytes);
        }
    }

    #[test]
    fn the_extremes_do_not_overflow() {
        assert_eq!(Rate::ZERO.time_for(1), Duration::MAX);
        assert_eq!(Rate::UNLIMITED.time_for(1500), Duration::ZERO);
        assert_eq!(Rate::of(1, Duration::ZERO), Rate::UNLIMITED);
    }
}
