use crate::time::{Duration, Instant};

/// Length of an epoch. Every sender's key changes this often: short, so that a restart loses little of the memory
/// against replays; long, so that deriving keys costs nothing.
pub const EPOCH: Duration = Duration::from_secs(4);

/// A datagram is taken when its epoch is at most this far from the own one: clocks may differ by 32 s.
pub const TOLERANCE_EPOCHS: u64 = 8;

/// The time of day on a node's clock: the one thing in which two nodes must roughly agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WallClock {
    unix_at_zero: i128,
}

impl WallClock {
    /// A clock that shows `unix` (nanoseconds since 1970, UTC) at `now`.
    pub fn new(now: Instant, unix: u64) -> Self {
        Self { unix_at_zero: i128::from(unix) - i128::from(now.as_nanos()) }
    }

    /// The clock after it was set ahead by this many nanoseconds, or back.
    #[must_use]
    pub fn stepped(self, by: i64) -> Self {
        Self { unix_at_zero: self.unix_at_zero + i128::from(by) }
    }

    /// By how much two clocks differ.
    pub fn distance(self, other: Self) -> Duration {
        let nanos = self.unix_at_zero.abs_diff(other.unix_at_zero);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The epoch at `now`, counted from 1970.
    #[inline]
    pub fn epoch(self, now: Instant) -> u64 {
        let unix = self.unix_at_zero + i128::from(now.as_nanos());
        u64::try_from(unix).unwrap_or(0) / EPOCH.as_nanos()
    }
}

/// The epoch whose low 16 bits are `low` that is nearest to `own`.
pub(super) fn nearest(own: u64, low: u16) -> u64 {
    own.saturating_add_signed(i64::from(low.wrapping_sub(own as u16) as i16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_found_by_its_low_bits_within_a_day_and_a_half() {
        for own in [0x1_ffff_u64, 0x2_0000, 443_000_000] {
            for ahead in [-30_000i64, -8, -1, 0, 1, 8, 30_000] {
                let epoch = own.saturating_add_signed(ahead);
                assert_eq!(nearest(own, epoch as u16), epoch);
            }
        }
    }

    #[test]
    fn an_epoch_is_four_seconds_of_the_time_of_day() {
        let start = Instant::from_nanos(77_000_000_000);
        let clock = WallClock::new(start, 4_000_000_000 * 100);
        assert_eq!(clock.epoch(start), 100);
        assert_eq!(clock.epoch(start + Duration::from_millis(3999)), 100);
        assert_eq!(clock.epoch(start + Duration::from_secs(4)), 101);
        assert_eq!(clock.epoch(start.before(Duration::from_secs(1))), 99);
    }
}
