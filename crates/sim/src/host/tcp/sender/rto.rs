//! Round trips and the retransmission timeout (RFC 6298).

use starhop_proto::time::{Duration, Instant};
use std::collections::VecDeque;

/// Before the first sample (RFC 6298, rule 2.1).
pub(crate) const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The longest that it backs off to (as in Linux).
const MOST_RTO: Duration = Duration::from_secs(120);
/// Time for which the shortest round trip is remembered, for reordering windows (as in Linux).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// Smoothed round trip, its variation, and the timeout that follows.
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    srtt_ns: f64,
    var_ns: f64,
    is_measured: bool,
    least: VecDeque<(Instant, Duration)>,
    backoff: u32,
    min_rto: Duration,
}

impl Rtt {
    /// Nothing is measured; `min_rto` is the least distance of the timeout from the smoothed round trip.
    pub(crate) fn new(min_rto: Duration) -> Self {
        Self { srtt_ns: 0.0, var_ns: 0.0, is_measured: false, least: VecDeque::new(), backoff: 0, min_rto }
    }

    /// A round trip was measured, of a segment that was sent once or carries a timestamp (Karn's rule).
    /// `newest` is that of the last segment that the acknowledgement covers, which did not wait for others.
    pub(crate) fn on_sample(&mut self, now: Instant, rtt: Duration, newest: Duration) {
        let sample = rtt.as_nanos() as f64;
        if self.is_measured {
            self.var_ns += ((self.srtt_ns - sample).abs() - self.var_ns) / 4.0;
            self.srtt_ns += (sample - self.srtt_ns) / 8.0;
        } else {
            (self.srtt_ns, self.var_ns, self.is_measured) = (sample, sample / 2.0, true);
        }
        self.backoff = 0;
        while self.least.back().is_some_and(|(_, least)| *least >= newest) {
            self.least.pop_back();
        }
        self.least.push_back((now, newest));
        while self.least.front().is_some_and(|(at, _)| now.since(*at) > MIN_RTT_WINDOW) {
            self.least.pop_front();
        }
    }

    /// The smoothed round trip, or `None` before the first sample.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.is_measured.then_some(Duration::from_nanos(self.srtt_ns as u64))
    }

    /// The shortest round trip of the last minutes; zero before the first sample.
    pub(crate) fn min(&self) -> Duration {
        self.least.front().map_or(Duration::ZERO, |(_, rtt)| *rtt)
    }

    /// The timer ran out: the next timeout is twice as long (RFC 6298, rule 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The peer has answered: the next timeout is that of the first time again, as in Linux.
    pub(crate) fn end_back_off(&mut self) {
        self.backoff = 0;
    }

    /// The retransmission timeout. The minimum bounds the term of the variation, as in Linux, not the sum.
    pub(crate) fn rto(&self) -> Duration {
        let base = if self.is_measured {
            let variation = Duration::from_nanos((4.0 * self.var_ns) as u64).max(self.min_rto);
            Duration::from_nanos(self.srtt_ns as u64) + variation
        } else {
            INITIAL_RTO
        };
        base.scaled(1 << self.backoff, 1).min(MOST_RTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_timeout_follows_round_trips_and_their_variation() {
        let mut rtt = Rtt::new(ms(200));
        assert_eq!(rtt.rto(), INITIAL_RTO);
        rtt.on_sample(Instant::ZERO, ms(600), ms(600));
        // 600 + 4 · 300.
        assert_eq!((rtt.srtt(), rtt.rto()), (Some(ms(600)), ms(1800)));
        for _ in 0..100 {
            rtt.on_sample(Instant::ZERO, ms(600), ms(600));
        }
        assert!(rtt.rto() >= ms(800) && rtt.rto() < ms(801), "{:?}", rtt.rto());
    }

    #[test]
    fn it_doubles_until_the_next_sample() {
        let mut rtt = Rtt::new(ms(200));
        rtt.on_sample(Instant::ZERO, ms(100), ms(100));
        let base = rtt.rto();
        (0..3).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), base.scaled(8, 1));
        (0..99).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), MOST_RTO);
        rtt.on_sample(Instant::ZERO, ms(100), ms(100));
        assert!(rtt.rto() <= base);
    }

    #[test]
    fn the_shortest_round_trip_is_forgotten_in_time() {
        let mut rtt = Rtt::new(ms(200));
        rtt.on_sample(Instant::ZERO, ms(50), ms(50));
        rtt.on_sample(Instant::ZERO + ms(10), ms(80), ms(80));
        assert_eq!(rtt.min(), ms(50));
        rtt.on_sample(Instant::ZERO + Duration::from_secs(301), ms(90), ms(90));
        assert_eq!(rtt.min(), ms(90));
    }
}
