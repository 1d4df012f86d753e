//! The clocks of nodes.

use starhop_proto::time::Instant;

/// Reading of every node's clock when a run begins, nanoseconds: an hour, so that a clock may be up to an hour
/// behind.
pub const CLOCK_BASE: i64 = 3_600_000_000_000;
const BILLION: i128 = 1_000_000_000;

/// The clock of a node, beside the world's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// By so much it is ahead when a run begins, nanoseconds; at most [`CLOCK_BASE`] behind.
    pub ahead: i64,
    /// By so much it gains, in parts of a billion. Crystals are off by up to 100,000, and a clock that is set right slowly by 500,000.
    pub gains_ppb: i32,
}

impl Clock {
    /// Its reading at a time of the world.
    #[inline]
    pub fn at(&self, world: Instant) -> Instant {
        let nanos = world.as_nanos();
        let gained = match self.gains_ppb {
            0 => 0,
            ppb => (i128::from(nanos) * i128::from(ppb)).div_euclid(BILLION) as i64,
        };
        Instant::from_nanos(nanos.saturating_add_signed(CLOCK_BASE + self.ahead + gained))
    }

    /// The first time of the world at which it reads `reading`.
    #[inline]
    pub fn world(&self, reading: Instant) -> Instant {
        let since_begin = reading.as_nanos().saturating_add_signed(-(CLOCK_BASE + self.ahead));
        if self.gains_ppb == 0 {
            return Instant::from_nanos(since_begin);
        }
        let pace = BILLION + i128::from(self.gains_ppb);
        Instant::from_nanos((i128::from(since_begin) * BILLION + pace - 1).div_euclid(pace) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_goes_when_the_clock_shows_its_time_and_no_nanosecond_later() {
        for gains_ppb in [-500_000, -1, 0, 1, 50_000, 500_000] {
            let clock = Clock { ahead: -7_000_000, gains_ppb };
            for nanos in [0, 1, 999_999_937, 86_400_000_000_123] {
                let due = clock.at(Instant::from_nanos(nanos));
                let at = clock.world(due);
                assert!(clock.at(at) >= due && at <= Instant::from_nanos(nanos), "{gains_ppb} {nanos}");
            }
        }
    }

    #[test]
    fn a_clock_that_gains_50_ppm_is_ahead_by_50_us_after_a_second() {
        let clock = Clock { ahead: 0, gains_ppb: 50_000 };
        let gained = clock
            .at(Instant::from_nanos(1_000_000_000))
            .since(Clock::default().at(Instant::from_nanos(1_000_000_000)));
        assert_eq!(gained.as_micros(), 50);
    }
}
