//! hopRTT from two one-way delays whose clock offsets cancel (LEOTP section III.C), in microseconds.
//!
//! The Requester stamps an Interest with its clock, `t`. The Responder receives it at its own `r` and keeps
//! the pair. A packet that it sends at `s` carries `t + (s - r)`: the Requester's clock, advanced by the time
//! the Responder held it. The Requester receives it at its `u` and has `u - t - (s - r)`, the delay of the
//! Interest plus that of the Data. `r` and `s` are only ever subtracted from each other, so the clocks may be
//! minutes, or years, apart.

use super::ways::Detained;
use crate::time::{Duration, Instant, WireTime};
use crate::wire::{Echo, Way};

/// The Requester's clock as its neighbour sees it.
///
/// An echo names its asker: a reply opens only for the incarnation that asked (see [`crate::peer`]), so that every echo
/// that arrives here continues a stamp of this clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct StampClock {
    first: Option<Instant>,
}

/// Readings of 24 bits tell ages below half of their span, 8.4 s. A Responder's faster clock may put an echo of a short
/// hop into the future; it is in the other half then.
const MAX_ECHO_AGE: Duration = Duration::from_micros(1 << 23);

impl StampClock {
    /// The stamp of an Interest that leaves now.
    pub fn stamp(&mut self, now: Instant) -> WireTime {
        self.first.get_or_insert(now);
        WireTime::at(now)
    }

    /// Time of the stamp that `echo` continues, plus the time that the Responder held it; `None` if `echo` cannot
    /// belong to a stamp of this clock.
    pub fn read(&self, now: Instant, echo: WireTime) -> Option<Instant> {
        let age = WireTime::at(now).since(echo);
        // Stamps and echoes are cut to microseconds.
        let oldest = now.since(self.first?) + Duration::from_micros(2);
        (age <= oldest && age < MAX_ECHO_AGE).then(|| now.before(age))
    }
}

/// The Responder's half: a stamp and the time at which it came.
#[derive(Clone, Copy, Debug)]
pub struct HeldStamp {
    stamp: WireTime,
    received: Instant,
}

impl HeldStamp {
    /// An Interest with `stamp` arrived.
    pub fn new(now: Instant, stamp: WireTime) -> Self {
        Self { stamp, received: now }
    }

    /// The echo for a packet that leaves at `now`.
    pub fn echo(&self, now: Instant) -> Echo {
        let time = self.stamp.plus(now.since(self.received));
        Echo { time, way: Way::between(self.stamp, WireTime::at(self.received)) }
    }
}

/// Half of the span over which the smallest hopRTT is remembered (10 s; the text of LEOTP says 5, its code 10).
const MIN_HALF_WINDOW: Duration = Duration::from_secs(5);

/// The Requester's half: the smoothed and the smallest hopRTT.
#[derive(Clone, Debug)]
pub struct HopRtt {
    is_measured: bool,
    smoothed: Duration,
    /// The smoothed time by which Interests are detained.
    detained: Duration,
    /// Smallest of the current and of the previous half window, without what Interests were detained.
    min_now: Duration,
    min_before: Duration,
    half_started: Instant,
}

impl HopRtt {
    /// An estimator that answers `assumed` until it has measured.
    pub fn new(assumed: Duration) -> Self {
        Self {
            is_measured: false,
            detained: Duration::ZERO,
            smoothed: assumed,
            min_now: Duration::MAX,
            min_before: Duration::MAX,
            half_started: Instant::ZERO,
        }
    }

    /// A packet arrived whose echo [`StampClock::read`] as `echo`, and whose Interest was `detained`. Returns the hopRTT without
    /// that, whose smallest value is kept; the smoothed one has it, too.
    pub(super) fn on_echo(&mut self, now: Instant, echo: Instant, detained: Detained) -> Duration {
        let whole = now.since(echo);
        if self.is_measured {
            // Gain 1/8 as in RFC 6298.
            let smooth = |before: Duration, now: Duration| before.scaled(7, 8) + now.scaled(1, 8);
            self.smoothed = smooth(self.smoothed, whole);
            self.detained = smooth(self.detained, detained.time);
        } else {
            (self.half_started, self.smoothed, self.detained) = (now, whole, detained.time);
        }
        self.is_measured = true;
        if let Some(shift) = detained.shift {
            self.rebase(self.floor() + shift);
        }
        let sample = whole.saturating_sub(detained.time);
        if now.since(self.half_started) > MIN_HALF_WINDOW {
            self.half_started = now;
            self.min_before = self.min_now;
            self.min_now = Duration::MAX;
        }
        self.min_now = self.min_now.min(sample);
        sample
    }

    /// Whether anything was measured.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The smoothed hopRTT, or the assumed one.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// The smallest hopRTT, as Interests come now; or the assumed one. It is the time after which what is told shows.
    pub fn min(&self) -> Duration {
        self.floor() + self.detained
    }

    /// The time by which Interests are detained, smoothed.
    pub fn detained(&self) -> Duration {
        self.detained
    }

    /// The smallest value of the last 5 to 10 seconds without what Interests were detained, or the assumed hopRTT. A packet that took
    /// longer waited.
    pub fn floor(&self) -> Duration {
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
            let mut clock = StampClock::default();
            // Interest takes 10 ms, the Responder waits 25 ms, Data takes 12 ms.
            let held = HeldStamp::new(responder(10), clock.stamp(requester(0)));
            let answered = clock.read(requester(47), held.echo(responder(35)).time);
            let sample =
                answered.map(|at| HopRtt::new(ms(100)).on_echo(requester(47), at, Detained::default()));
            assert_eq!(sample, Some(ms(22)), "offset {offset} ms");
        }
    }

    #[test]
    fn the_wrap_of_the_wire_clock_does_not_show() {
        let mut clock = StampClock::default();
        for at in (0..1u64 << 32).step_by(1 << 26).map(|micros| Instant::from_nanos(micros * 1_000)) {
            let stamp = clock.stamp(at);
            assert_eq!(clock.read(at + ms(20), stamp), Some(at));
        }
    }

    #[test]
    fn an_echo_of_what_was_never_sent_is_nobodys() {
        let now = Instant::ZERO + ms(5_000);
        let mut clock = StampClock::default();
        assert_eq!(clock.read(now, WireTime::default()), None, "nothing was asked");
        let stamp = clock.stamp(now);
        let at = now + ms(50);
        assert_eq!(clock.read(at, stamp.plus(ms(51))), None, "from the future");
        let before = WireTime::at(now.before(ms(1)));
        assert_eq!(clock.read(at, before), None, "older than the first");
        assert_eq!(clock.read(at, stamp), Some(now));
    }

    #[test]
    fn the_minimum_is_forgotten_after_ten_seconds() {
        let mut rtt = HopRtt::new(ms(100));
        let mut feed = |at: u64, sample: u64| {
            let now = Instant::ZERO + ms(at);
            rtt.on_echo(now, now.before(ms(sample)), Detained::default());
            rtt.min()
        };
        assert_eq!(feed(1_000, 20), ms(20));
        assert_eq!(feed(5_000, 30), ms(20));
        assert_eq!(feed(6_100, 30), ms(20));
        assert_eq!(feed(11_200, 30), ms(30));
    }
}
