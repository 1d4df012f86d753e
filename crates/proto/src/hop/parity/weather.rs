use super::plan::{EVERY, MOST_REACH};
use crate::time::{Duration, Instant};

/// The loss of a hop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loss {
    /// The share of packets that are lost.
    pub share: f64,
    /// Packets that a run of losses takes, on average.
    pub burst: f64,
}

/// A single loss among fewer packets than this tells little.
const FEW: f64 = 500.0;

/// Losses in one run that are no weather, but an outage: the most parity that reaches a packet repairs fewer.
const OUTAGE: u32 = (MOST_REACH / EVERY[0] as usize) as u32 + 1;

/// Spans that together are the last minute.
const SPANS: usize = 12;
const SPAN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Default, Debug)]
struct Span {
    packets: u64,
    lost: u64,
    runs: u64,
}

/// The losses of a hop in the last minute. Between flows it remembers: time without packets does not count.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    spans: [Span; SPANS],
    newest: usize,
    began: Instant,
    last: Instant,
}

impl Weather {
    /// `advance` packets were sent since the last arrival; `lost` more count as lost now, in `runs`.
    #[inline]
    pub fn on_arrival(&mut self, now: Instant, advance: u32, lost: u32, runs: u32) {
        // A pause ages nothing.
        let pause = now.since(self.last).saturating_sub(SPAN);
        self.began += pause;
        self.last = now;
        if now.since(self.began) >= SPAN {
            self.began = now;
            self.newest = (self.newest + 1) % SPANS;
            self.spans[self.newest] = Span::default();
        }
        let span = &mut self.spans[self.newest];
        if lost >= OUTAGE * runs.max(1) {
            span.packets += u64::from(advance.saturating_sub(lost));
            return;
        }
        span.packets += u64::from(advance);
        span.lost += u64::from(lost);
        span.runs += u64::from(runs);
    }

    /// A packet that had counted as lost was only late.
    pub fn on_found(&mut self) {
        let span = &mut self.spans[self.newest];
        span.lost = span.lost.saturating_sub(1);
        span.runs = span.runs.min(span.lost);
    }

    /// The loss of the last minute; `None` if nothing was lost.
    pub fn loss(&self) -> Option<Loss> {
        let sum = |of: fn(&Span) -> u64| self.spans.iter().map(of).sum::<u64>() as f64;
        let (packets, lost, runs) = (sum(|span| span.packets), sum(|span| span.lost), sum(|span| span.runs));
        (lost > 0.0).then(|| Loss {
            share: (lost / packets.max(FEW)).min(1.0),
            burst: (lost / runs.max(1.0)).max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn share_and_runs_are_those_of_the_last_minute() {
        let mut weather = Weather::default();
        assert_eq!(weather.loss(), None);
        for n in 0..60_000 {
            // A run of four in each hundred, for the first half minute.
            let is_run = n % 100 == 0 && n < 30_000;
            let (advance, lost) = if is_run { (5, 4) } else { (1, 0) };
            weather.on_arrival(at(n), advance, lost, u32::from(is_run));
        }
        let loss = weather.loss().unwrap();
        assert!((0.015..0.023).contains(&loss.share) && (loss.burst - 4.0).abs() < 1e-9, "{loss:?}");
        (60_000..95_000).for_each(|n| weather.on_arrival(at(n), 1, 0, 0));
        assert_eq!(weather.loss(), None);
    }

    #[test]
    fn an_outage_is_no_weather_and_neither_is_what_was_only_late() {
        let mut weather = Weather::default();
        (0..1000).for_each(|n| weather.on_arrival(at(n), 1, 0, 0));
        weather.on_arrival(at(1500), 4001, 4000, 1);
        weather.on_arrival(at(1600), 0, 300, 1);
        assert_eq!(weather.loss(), None);
        weather.on_arrival(at(1700), 3, 2, 2);
        assert!(weather.loss().is_some());
        (0..2).for_each(|_| weather.on_found());
        assert_eq!(weather.loss(), None);
    }

    #[test]
    fn a_pause_makes_nothing_forgotten() {
        let mut weather = Weather::default();
        (0..1000).for_each(|n| weather.on_arrival(at(n), 1, u32::from(n == 7), u32::from(n == 7)));
        let before = weather.loss();
        weather.on_arrival(at(500_000), 1, 0, 0);
        let after = weather.loss().unwrap();
        assert!(before.is_some() && (after.share - 1.0 / 1001.0).abs() < 1e-9, "{after:?}");
    }
}
