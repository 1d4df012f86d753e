//! The ways of Interests: what they waited on them is no queue of the link that they ask for.

use crate::time::{Duration, Instant};
use crate::wire::Way;

/// Interests hardly wait for one another for so long without a pause: ways that are all longer have become longer.
const PERIOD: Duration = Duration::from_millis(500);
/// After a pause of this length the clocks may have gone apart.
const PAUSE: Duration = Duration::from_secs(10);
/// Ways that are all longer by this part of the hopRTT are measured from the one of now on.
const MOST: (u64, u64) = (1, 2);

/// Tells by how much Interests took longer than they had to. The delay of a packet without that is the delay of the hop's own packets:
/// neither the queue nor the noise of the way back is in it, and a way back that becomes longer does not change it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ways(Option<Known>);

/// The meaning of the way of an Interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Detained {
    /// By so much longer than the shortest it was.
    pub(super) time: Duration,
    /// From now on the shortest is one that is longer by so much.
    pub(super) shift: Option<Duration>,
}

/// Ways in units of [`Way`], counted from any.
#[derive(Clone, Copy, Debug)]
struct Known {
    newest: Way,
    units: i64,
    shortest: i64,
    /// The shortest of the present period.
    lately: i64,
    period_began: Instant,
    last: Instant,
}

impl Ways {
    /// A packet came whose Interest took `way`, `whole` after that had left.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Instant, way: Way, whole: Duration) -> Detained {
        self.0.get_or_insert(Known::new(now, way)).on_packet(now, way, whole)
    }

    /// Another node answers, by another clock.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Known {
    fn new(now: Instant, newest: Way) -> Self {
        Self { newest, units: 0, shortest: 0, lately: 0, period_began: now, last: now }
    }

    #[inline]
    fn on_packet(&mut self, now: Instant, way: Way, whole: Duration) -> Detained {
        let has_paused = now.since(core::mem::replace(&mut self.last, now)) >= PAUSE;
        self.units += way.longer_than(core::mem::replace(&mut self.newest, way));
        self.shortest = self.shortest.min(self.units);
        self.lately = if has_paused { self.units } else { self.lately.min(self.units) };
        let is_over = now.since(self.period_began) >= PERIOD;
        let shift = is_over.then(|| self.end_period(now, whole, has_paused)).flatten();
        Detained { time: self.above(self.units).min(whole), shift }
    }

    fn end_period(&mut self, now: Instant, whole: Duration, has_paused: bool) -> Option<Duration> {
        let lately = core::mem::replace(&mut self.lately, self.units);
        self.period_began = now;
        let (longer, most) = (self.above(lately), whole.scaled(MOST.0, MOST.1));
        let is_too_long = if has_paused { longer > Duration::ZERO } else { longer > most };
        is_too_long.then(|| {
            self.shortest = lately;
            longer
        })
    }

    /// The time by which a way of so many units is longer than the shortest.
    fn above(&self, units: i64) -> Duration {
        Way::time_of((units - self.shortest).unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::WireTime;

    /// Packets 10 ms apart, whose Interests took `way` milliseconds at each time, in seconds. Returns what the last one tells, and all
    /// shifts.
    fn after(seconds: f64, way: impl Fn(f64) -> f64) -> (f64, Duration) {
        let mut ways = Ways::default();
        let (mut last, mut shifts) = (Detained::default(), Duration::ZERO);
        for step in 0..=(seconds * 100.0) as u64 {
            let now = Instant::ZERO + Duration::from_millis(1_000 + 10 * step);
            let came = now + Duration::from_secs_f64(1e-3 * way(0.01 * step as f64));
            let of = Way::between(WireTime::at(now), WireTime::at(came));
            last = ways.on_packet(now, of, Duration::from_millis(100));
            shifts += last.shift.unwrap_or_default();
        }
        (1e3 * last.time.as_secs_f64(), shifts)
    }

    #[test]
    fn interests_that_wait_for_one_another_are_detained() {
        let queue = |at: f64| 12.0 + if at % 0.4 < 0.3 { 72.0 } else { 0.0 };
        assert_eq!(after(30.1, queue), (72.0, Duration::ZERO));
        assert_eq!(after(30.35, queue), (0.0, Duration::ZERO));
    }

    #[test]
    fn the_first_interest_may_have_been_detained() {
        assert_eq!(after(1.0, |at| if at < 0.5 { 32.0 } else { 12.0 }), (0.0, Duration::ZERO));
    }

    #[test]
    fn a_way_that_has_become_longer_is_no_queue() {
        assert_eq!(after(100.0, |at| if at < 1.0 { 12.0 } else { 44.0 }), (32.0, Duration::ZERO));
    }

    #[test]
    fn a_way_that_is_longer_by_half_of_the_hop_is_that_of_now_after_a_second() {
        assert_eq!(after(2.1, |at| if at < 1.0 { 12.0 } else { 72.0 }), (0.0, Duration::from_millis(60)));
    }

    #[test]
    fn after_a_pause_the_way_of_now_is_the_shortest() {
        let mut ways = Ways::default();
        let (at, whole) = (|secs| Instant::ZERO + Duration::from_secs(secs), Duration::from_millis(100));
        let way = |micros| Way::between(WireTime::default(), WireTime::from_micros(micros));
        ways.on_packet(at(1), way(10_000), whole);
        assert_eq!(ways.on_packet(at(2), way(26_000), whole).time, Duration::from_millis(16));
        let shift = Some(Duration::from_millis(32));
        assert_eq!(ways.on_packet(at(12), way(42_000), whole), Detained { time: Duration::ZERO, shift });
    }
}
