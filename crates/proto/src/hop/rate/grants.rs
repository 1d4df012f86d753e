use crate::time::{Duration, Instant};

/// Grants remembered, one per interval: with those of half a hopRTT, eight hopRTTs of the empty link, or four behind a queue as long.
const REMEMBERED: usize = 16;

/// The last grants and when each was decided: what arrives now was sent under one of them.
#[derive(Debug)]
pub(super) struct Grants([(Instant, f64); REMEMBERED]);

impl Grants {
    /// None yet.
    pub(super) fn new() -> Self {
        Self([(Instant::ZERO, f64::INFINITY); REMEMBERED])
    }

    /// The grant is `rate` from now on.
    pub(super) fn add(&mut self, now: Instant, rate: f64) {
        self.0.rotate_right(1);
        self.0[0] = (now, rate);
    }

    /// The least and the greatest grant for the present arrivals: the grants of a hopRTT ago, and up to one more
    /// for the feedback and the packets that waited.
    pub(super) fn of_arrivals(&self, now: Instant, hop_rtt: Duration) -> Option<(f64, f64)> {
        let span = now.before(hop_rtt.scaled(2, 1))..=now.before(hop_rtt);
        let grants = || self.0.iter().filter(|(at, _)| span.contains(at)).map(|(_, grant)| *grant);
        Some((grants().reduce(f64::min)?, grants().reduce(f64::max)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + millis)
    }

    #[test]
    fn arrivals_were_granted_one_to_two_round_trips_ago() {
        let mut grants = Grants::new();
        let rtt = Duration::from_millis(40);
        assert_eq!(grants.of_arrivals(at(0), rtt), None);
        for (millis, rate) in [(0, 9.0), (20, 3.0), (40, 5.0), (60, 4.0), (80, 8.0), (100, 1.0)] {
            grants.add(at(millis), rate);
        }
        assert_eq!(grants.of_arrivals(at(101), rtt), Some((4.0, 5.0)));
        assert_eq!(grants.of_arrivals(at(120), rtt), Some((4.0, 8.0)));
    }
}
