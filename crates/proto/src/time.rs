//! Time as an argument: instants and durations in integer nanoseconds, and the wrapping microsecond clock
//! that travels in packets.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A moment on the clock of one node, in nanoseconds since an epoch of the driver's choosing.
///
/// Only differences have a meaning. Nothing in this crate reads a clock: every input carries its `now`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in nanoseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The driver's epoch.
    pub const ZERO: Self = Self(0);

    /// A time that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, or zero when `earlier` lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// The time itself, or `None` for [`Instant::NEVER`].
    pub const fn if_ever(self) -> Option<Self> {
        if self.0 == u64::MAX { None } else { Some(self) }
    }

    /// `self - by`, or the epoch when that lies before it.
    pub const fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any run: about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A span of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// A span of `secs` seconds; negative and NaN become zero, too long becomes [`Duration::MAX`].
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9) as u64)
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The span in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The span in milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whether the span is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The span between the two.
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    /// `self * numerator / denominator`, without overflow in between.
    pub const fn scaled(self, numerator: u64, denominator: u64) -> Self {
        Self(((self.0 as u128 * numerator as u128) / denominator as u128) as u64)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        debug_assert!(self >= other, "a duration is never negative");
        self.saturating_sub(other)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={:?}", Duration(self.0))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.as_millis_f64())
    }
}

/// A reading of a node's clock on the wire: microseconds modulo 2^24, which is 16.8 s.
///
/// A reading is only ever compared with others of the same clock, at most one round trip old.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireTime(u32);

impl WireTime {
    const MASK: u32 = (1 << 24) - 1;

    /// The reading of `micros` microseconds.
    pub const fn from_micros(micros: u32) -> Self {
        Self(micros & Self::MASK)
    }

    /// The reading of a node's clock at `now`.
    pub const fn at(now: Instant) -> Self {
        Self::from_micros((now.as_nanos() / 1_000) as u32)
    }

    /// The bytes that travel.
    pub const fn to_be_bytes(self) -> [u8; 3] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [a, b, c]
    }

    /// Reads the bytes that travel.
    pub const fn from_be_bytes([a, b, c]: [u8; 3]) -> Self {
        Self(u32::from_be_bytes([0, a, b, c]))
    }

    /// The time since `earlier`, of which at most 16.8 s have passed.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros((self.0.wrapping_sub(earlier.0) & Self::MASK) as u64)
    }

    /// The reading `by` later.
    pub const fn plus(self, by: Duration) -> Self {
        Self::from_micros(self.0.wrapping_add(by.as_micros() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_time_differences_survive_the_wrap() {
        let before = Instant::from_nanos(((1 << 24) - 5) * 1_000);
        let after = before + Duration::from_micros(20);
        assert_eq!(WireTime::at(after).since(WireTime::at(before)), Duration::from_micros(20));
        assert_eq!(WireTime::at(before).plus(Duration::from_micros(20)), WireTime::at(after));
        assert_eq!(WireTime::from_be_bytes(WireTime::at(before).to_be_bytes()), WireTime::at(before));
    }

    #[test]
    fn scaling_a_long_duration_does_not_overflow() {
        assert_eq!(Duration::from_secs(1_000_000_000).scaled(3, 2), Duration::from_secs(1_500_000_000));
    }
}
