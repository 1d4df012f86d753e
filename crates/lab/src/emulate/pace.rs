//! Present rates of the flows.

use starhop_proto::time::{Duration, Instant};
use std::collections::VecDeque;

/// Rates are averages over this time, or over one step of the time series if that is longer.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// The bytes of every flow over the last second.
#[derive(Debug, Default)]
pub(super) struct Pace {
    samples: VecDeque<(Instant, Vec<u64>)>,
}

impl Pace {
    /// Notes how many bytes every flow has at `now`.
    pub(super) fn note(&mut self, now: Instant, bytes: Vec<u64>) {
        self.samples.push_back((now, bytes));
        while self.samples.get(1).is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            self.samples.pop_front();
        }
    }

    /// Rate at which the client of a flow received, Mbit/s.
    pub(super) fn mbps(&self, flow: usize) -> f64 {
        let (Some((from, before)), Some((to, after))) = (self.samples.front(), self.samples.back()) else {
            return 0.0;
        };
        let bytes = after[flow].saturating_sub(before[flow]) as f64;
        let seconds = to.since(*from).as_secs_f64();
        if seconds > 0.0 { bytes * 8e-6 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_last_second() {
        let mut pace = Pace::default();
        let ms = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        // Three seconds at 8 Mbit/s, then nothing.
        for step in 0..=30 {
            pace.note(ms(step * 100), vec![step * 100_000]);
        }
        assert!((pace.mbps(0) - 8.0).abs() < 0.01, "{}", pace.mbps(0));
        for step in 31..=45 {
            pace.note(ms(step * 100), vec![3_000_000]);
        }
        assert_eq!(pace.mbps(0), 0.0);
    }
}
