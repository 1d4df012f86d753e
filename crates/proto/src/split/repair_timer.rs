//! The time to wait for an acknowledgement if nothing else shows a loss.

use crate::smoothed::Smoothed;
use crate::time::{Duration, Instant};

/// Before the first sample (RFC 6298, rule 2.1).
const INITIAL: Duration = Duration::from_secs(1);

/// Smoothed round trip and its variation, looked at in fine ticks. It never backs off: over a link at whose rate the
/// gateway sends, a timeout says nothing about congestion (paper, section III).
#[derive(Clone, Debug)]
pub struct RepairTimer {
    granularity: Duration,
    smoothed: Option<Smoothed>,
    least: Duration,
}

impl RepairTimer {
    /// A timer that is looked at every `granularity`.
    pub fn new(granularity: Duration) -> Self {
        Self { granularity, smoothed: None, least: Duration::MAX }
    }

    /// A segment that left once was acknowledged after `rtt` (RFC 6298, rules 2.2 and 2.3).
    pub fn on_sample(&mut self, rtt: Duration) {
        self.least = self.least.min(rtt);
        match &mut self.smoothed {
            None => self.smoothed = Some(Smoothed::first(rtt, rtt.scaled(1, 2))),
            Some(smoothed) => smoothed.on_sample(rtt),
        }
    }

    /// The least round trip, once there is one.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.least)
    }

    /// A segment that is not acknowledged after this long is lost.
    pub fn patience(&self) -> Duration {
        self.smoothed
            .map_or(INITIAL, |smoothed| smoothed.mean + smoothed.deviation.scaled(4, 1).max(self.granularity))
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
