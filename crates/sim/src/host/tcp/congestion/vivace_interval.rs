//! A monitor interval of Vivace: the outcomes of the segments sent at one rate, and their utility.

use starhop_proto::time::{Duration, Instant};

/// Coefficients of the utility u = x^t - b·x·dRTT/dT - c·x·L of a rate x in Mbit/s; the
/// paper's values bear up to 5 % random loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Utility {
    pub(super) exponent: f64,
    pub(super) latency: f64,
    pub(super) loss: f64,
}

/// A round trip that changes by less than this, seconds per second, is taken for steady as in the paper.
const LEAST_SLOPE: f64 = 0.01;

/// Sums for a straight line through round trips over time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Line {
    count: f64,
    t: f64,
    rtt: f64,
    tt: f64,
    t_rtt: f64,
}

impl Line {
    fn see(&mut self, t: f64, rtt: f64) {
        self.count += 1.0;
        self.t += t;
        self.rtt += rtt;
        self.tt += t * t;
        self.t_rtt += t * rtt;
    }

    fn slope(&self) -> f64 {
        let spread = self.count * self.tt - self.t * self.t;
        if spread > 1e-12 { (self.count * self.t_rtt - self.t * self.rtt) / spread } else { 0.0 }
    }
}

/// The purpose of an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Finding the first rate.
    Starting,
    /// One of the probes around the present rate.
    Probe(usize),
    /// Waiting for the outcome of others.
    Waiting,
}

/// A monitor interval, from its first segment sent to its last acknowledged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Interval {
    /// Mbit/s on the wire.
    pub(super) rate: f64,
    pub(super) purpose: Purpose,
    pub(super) began: Instant,
    pub(super) ends: Instant,
    acked: f64,
    lost: f64,
    line: Line,
}

impl Interval {
    pub(super) fn new(rate: f64, purpose: Purpose, began: Instant, lasts: Duration) -> Self {
        Self { rate, purpose, began, ends: began + lasts, acked: 0.0, lost: 0.0, line: Line::default() }
    }

    /// Outcomes of segments sent at `sent`.
    pub(super) fn see(&mut self, sent: Instant, rtt: Option<Duration>, acked: f64, lost: f64) {
        self.acked += acked;
        self.lost += lost;
        if let Some(rtt) = rtt {
            self.line.see(sent.since(self.began).as_secs_f64(), rtt.as_secs_f64());
        }
    }

    /// Whether the outcome of any of its segments is known.
    pub(super) fn is_known(&self) -> bool {
        self.acked + self.lost > 0.0
    }

    pub(super) fn utility(&self, of: &Utility) -> f64 {
        let loss = if self.is_known() { self.lost / (self.acked + self.lost) } else { 1.0 };
        let slope = self.line.slope();
        let slope = if slope.abs() < LEAST_SLOPE { 0.0 } else { slope };
        libm::pow(self.rate, of.exponent) - of.latency * self.rate * slope - of.loss * self.rate * loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UTILITY: Utility = Utility { exponent: 0.9, latency: 900.0, loss: 11.35 };

    fn interval(rtt_ms: impl Fn(u64) -> f64, lost: f64) -> f64 {
        let mut interval = Interval::new(10.0, Purpose::Waiting, Instant::ZERO, Duration::from_millis(100));
        for index in 0..100 {
            let sent = Instant::ZERO + Duration::from_millis(index);
            interval.see(sent, Some(Duration::from_secs_f64(rtt_ms(index) / 1e3)), 1.0 - lost, lost);
        }
        interval.utility(&UTILITY)
    }

    #[test]
    fn utility_is_that_of_the_paper() {
        let clean = libm::pow(10.0, 0.9);
        assert!((interval(|_| 50.0, 0.0) - clean).abs() < 1e-9);
        assert!((interval(|_| 50.0, 0.02) - (clean - 11.35 * 10.0 * 0.02)).abs() < 1e-9);
        // Five percent more than fits: the round trip grows by 50 ms a second.
        assert!((interval(|ms| 50.0 + 0.05 * ms as f64, 0.0) - (clean - 900.0 * 10.0 * 0.05)).abs() < 1e-3);
    }

    #[test]
    fn a_round_trip_that_hardly_moves_is_steady() {
        assert!((interval(|ms| 50.0 + 0.009 * ms as f64, 0.0) - libm::pow(10.0, 0.9)).abs() < 1e-9);
    }
}
