//! hopRTT from two one-way delays whose clock offsets cancel (LEOTP section III.C), in microseconds.
//!
//! The Requester stamps an Interest with its clock, `t`. The Responder receives it at its own `r` and keeps
//! the pair. A packet that it sends at `s` carries `t + (s - r)`: the Requester's clock, advanced by the time
//! the Responder held it. The Requester receives it at its `u` and has `u - t - (s - r)`, the delay of the
//! Interest plus that of the Data. `r` and `s` are only ever subtracted from each other, so the clocks may be
//! minutes, or years, apart.

use crate::time::{Duration, Instant, WireTime};

/// The Responder's half: what to write into the next packet.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    stamp: WireTime,
    received: Instant,
}

impl Echo {
    /// An Interest with `stamp` arrived.
    pub fn new(now: Instant, stamp: WireTime) -> Self {
        Self { stamp, received: now }
    }

    /// The echo for a packet that leaves at `now`.
    pub fn at(&self, now: Instant) -> WireTime {
        self.stamp.plus(now.since(self.received))
    }
}

/// Half of the span over which the smallest hopRTT is remembered (10 s; the text of LEOTP says 5, its code 10).
const MIN_HALF_WINDOW: Duration = Duration::from_secs(5);

/// The Requester's half: the newest, the smoothed and the smallest hopRTT.
#[derive(Clone, Debug)]
pub struct HopRtt {
    latest: Option<Duration>,
    smoothed: Duration,
    /// Smallest of the current and of the previous half window.
    min_now: Duration,
    min_before: Duration,
    half_started: Instant,
}

impl HopRtt {
    /// An estimator that answers `assumed` until it has measured.
    pub fn new(assumed: Duration) -> Self {
        Self {
            latest: None,
            smoothed: assumed,
            min_now: Duration::MAX,
            min_before: Duration::MAX,
            half_started: Instant::ZERO,
        }
    }

    /// A packet with `echo` arrived. Returns the sample; `None` when the echo lies in the future, which only
    /// a broken or lying neighbour writes.
    pub fn on_echo(&mut self, now: Instant, echo: WireTime) -> Option<Duration> {
        let micros = u64::try_from(WireTime::at(now).micros_since(echo)).ok()?;
        let sample = Duration::from_micros(micros);
        if self.latest.is_none() {
            self.half_started = now;
            self.smoothed = sample;
        } else {
            // Gain 1/8 as in RFC 6298.
            self.smoothed = (self.smoothed.scaled(7, 8)) + sample.scaled(1, 8);
        }
        self.latest = Some(sample);
        if now.since(self.half_started) > MIN_HALF_WINDOW {
            self.half_started = now;
            self.min_before = self.min_now;
            self.min_now = Duration::MAX;
        }
        self.min_now = self.min_now.min(sample);
        Some(sample)
    }

    /// Whether anything was measured.
    pub fn is_measured(&self) -> bool {
        self.latest.is_some()
    }

    /// The smoothed hopRTT, or the assumed one.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The smallest hopRTT of the last 5 to 10 seconds, or the assumed one.
    pub fn min(&self) -> Duration {
        let min = self.min_now.min(self.min_before);
        if min == Duration::MAX { self.smoothed } else { min }
    }

    /// The path itself became longer: forget that it was ever shorter than `base`.
    pub fn rebase(&mut self, base: Duration) {
        self.min_now = base;
        self.min_before = Duration::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn hop_rtt_is_right_with_clocks_hours_apart() {
        for offset in [0, 7, 3_600_000, 90_000_000] {
            let requester = |t: u64| Instant::ZERO + ms(1_000 + t);
            let responder = |t: u64| Instant::ZERO + ms(1_000 + offset + t);
            // Interest takes 10 ms, the Responder waits 25 ms, Data takes 12 ms.
            let echo = Echo::new(responder(10), WireTime::at(requester(0)));
            let mut rtt = HopRtt::new(ms(100));
            assert_eq!(
                rtt.on_echo(requester(47), echo.at(responder(35))),
                Some(ms(22)),
                "offset {offset} ms"
            );
        }
    }

    #[test]
    fn the_wrap_of_the_wire_clock_does_not_show() {
        let wrap = Instant::from_nanos((1u64 << 32) * 1_000);
        let echo = Echo::new(wrap, WireTime::at(wrap.before(ms(3))));
        let mut rtt = HopRtt::new(ms(100));
        assert_eq!(rtt.on_echo(wrap + ms(20), echo.at(wrap + ms(10))), Some(ms(13)));
    }

    #[test]
    fn an_echo_from_the_future_is_ignored() {
        let now = Instant::ZERO + ms(50);
        let mut rtt = HopRtt::new(ms(100));
        assert_eq!(rtt.on_echo(now, WireTime::at(now + ms(5))), None);
        assert!(!rtt.is_measured());
    }

    #[test]
    fn the_minimum_is_forgotten_after_ten_seconds() {
        let mut rtt = HopRtt::new(ms(100));
        let mut feed = |at: u64, sample: u64| {
            let now = Instant::ZERO + ms(at);
            rtt.on_echo(now, WireTime::at(now.before(ms(sample))));
            rtt.min()
        };
        assert_eq!(feed(1_000, 20), ms(20));
        assert_eq!(feed(5_000, 30), ms(20));
        assert_eq!(feed(6_100, 30), ms(20));
        assert_eq!(feed(11_200, 30), ms(30));
    }
}
