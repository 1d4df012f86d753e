//! The time to wait for an acknowledgement if nothing else shows a loss.

use crate::time::{Duration, Instant};

/// Before the first sample (RFC 6298, rule 2.1).
const INITIAL: Duration = Duration::from_secs(1);

/// Smoothed round trip and its variation, looked at in fine ticks. It never backs off: over a link at whose rate the
/// gateway sends, a timeout says nothing about congestion (paper, section III).
#[derive(Clone, Debug)]
pub struct RepairTimer {
    granularity: Duration,
    srtt: Duration,
    variation: Duration,
    least: Duration,
    is_measured: bool,
}

impl RepairTimer {
    /// A timer that is looked at every `granularity`.
    pub fn new(granularity: Duration) -> Self {
        let (srtt, variation, least) = (Duration::ZERO, Duration::ZERO, Duration::MAX);
        Self { granularity, srtt, variation, least, is_measured: false }
    }

    /// A segment that left once was acknowledged after `rtt` (RFC 6298, rules 2.2 and 2.3).
    pub fn on_sample(&mut self, rtt: Duration) {
        self.least = self.least.min(rtt);
        if !self.is_measured {
            (self.srtt, self.variation, self.is_measured) = (rtt, rtt.scaled(1, 2), true);
            return;
        }
        let error = rtt.saturating_sub(self.srtt).max(self.srtt.saturating_sub(rtt));
        self.variation = self.variation.scaled(3, 4) + error.scaled(1, 4);
        self.srtt = self.srtt.scaled(7, 8) + rtt.scaled(1, 8);
    }

    /// The least round trip, once there is one.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.is_measured.then_some(self.least)
    }

    /// A segment that is not acknowledged after this long is lost.
    pub fn patience(&self) -> Duration {
        if !self.is_measured {
            return INITIAL;
        }
        self.srtt + self.variation.scaled(4, 1).max(self.granularity)
    }

    /// The first tick at or after `at`.
    pub fn tick(&self, at: Instant) -> Instant {
        let step = self.granularity.as_nanos();
        Instant::from_nanos(at.as_nanos().div_ceil(step).saturating_mul(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_steady_round_trip_is_waited_for_one_tick_longer() {
        let mut timer = RepairTimer::new(ms(100));
        assert_eq!(timer.patience(), INITIAL);
        (0..100).for_each(|_| timer.on_sample(ms(520)));
        timer.on_sample(ms(530));
        assert_eq!(timer.least_rtt(), Some(ms(520)));
        assert!((ms(620)..ms(622)).contains(&timer.patience()));
    }

    #[test]
    fn it_is_looked_at_in_ticks() {
        let timer = RepairTimer::new(ms(100));
        let at = |millis| Instant::ZERO + ms(millis);
        assert_eq!([at(1), at(100), at(101)].map(|t| timer.tick(t)), [at(100), at(100), at(200)]);
    }
}
