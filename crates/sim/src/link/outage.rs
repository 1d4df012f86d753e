//! Outages: the times at which a link is away.

use starhop_proto::time::{Duration, Instant};

/// Moments at which a link carries nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    pattern: Pattern,
    /// Whether the transmitter waits and keeps its queue. Otherwise it sends on, and the packets are lost.
    pub hold: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Pattern {
    Periodic { every: u64, last: u64 },
    Times(Vec<(Instant, Instant)>),
}

/// The state of an [`Outage`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The end of the outage that covers the moment.
    pub down_until: Option<Instant>,
    /// The start of the next outage after the moment; the end of time when there is none.
    pub next_down: Instant,
}

impl Outage {
    /// Away for `last` at every multiple of `every` but zero. `every` must exceed `last`.
    pub fn periodic(every: Duration, last: Duration, hold: bool) -> Self {
        let (every, last) = (every.as_nanos().max(1), last.as_nanos());
        Self { pattern: Pattern::Periodic { every, last }, hold }
    }

    /// Away in each `[start, end)`; ascending and disjoint.
    pub fn times(times: Vec<(Instant, Instant)>, hold: bool) -> Self {
        Self { pattern: Pattern::Times(times), hold }
    }

    /// The state at `at`.
    pub fn window(&self, at: Instant) -> Window {
        match &self.pattern {
            Pattern::Periodic { every, last } => {
                let cycle = at.as_nanos() / every;
                let start = cycle * every;
                let is_down = cycle > 0 && at.as_nanos() - start < *last;
                Window {
                    down_until: is_down.then(|| Instant::from_nanos(start + last)),
                    next_down: Instant::from_nanos(start + every),
                }
            }
            Pattern::Times(times) => {
                let next = times.partition_point(|(start, _)| *start <= at);
                let covering = next.checked_sub(1).map(|i| times[i].1).filter(|end| *end > at);
                let next_down = times.get(next).map_or(Instant::from_nanos(u64::MAX), |(start, _)| *start);
                Window { down_until: covering, next_down }
            }
        }
    }

    /// The share of `[from, to)` in which the link is away.
    pub fn share(&self, from: Instant, to: Instant) -> f64 {
        let (mut at, mut down) = (from, Duration::ZERO);
        while at < to {
            let window = self.window(at);
            let until = window.down_until.unwrap_or(window.next_down).min(to);
            if window.down_until.is_some() {
                down += until.since(at);
            }
            at = until;
        }
        if to > from { down.as_secs_f64() / to.since(from).as_secs_f64() } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn a_periodic_outage_starts_after_its_first_period() {
        let outage = Outage::periodic(Duration::from_secs(15), Duration::from_secs(1), false);
        assert_eq!(outage.window(secs(0)).down_until, None);
        assert_eq!(outage.window(secs(15)).down_until, Some(secs(16)));
        assert_eq!(outage.window(secs(16)), Window { down_until: None, next_down: secs(30) });
        assert!((outage.share(secs(0), secs(150)) - 9.0 / 150.0).abs() < 1e-12);
    }

    #[test]
    fn listed_outages_cover_their_times_only() {
        let outage = Outage::times(vec![(secs(1), secs(2)), (secs(5), secs(8))], false);
        let down: Vec<u64> = (0..10).filter(|&s| outage.window(secs(s)).down_until.is_some()).collect();
        assert_eq!(down, [1, 5, 6, 7]);
        assert!((outage.share(secs(0), secs(10)) - 0.4).abs() < 1e-12);
    }
}
