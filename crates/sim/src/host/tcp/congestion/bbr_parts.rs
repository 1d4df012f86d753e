//! The parts that both BBRs share.

use super::{Ack, Loss, LossKind, RateSample, Setup};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::VecDeque;

/// Windows are never smaller: four segments keep acknowledgements coming with delayed ones too.
pub(super) const LEAST_WINDOW: f64 = 4.0;
/// Pacing a percent below the estimate keeps the queue from growing by its errors.
const PACING_MARGIN: f64 = 0.99;
/// At lower wire rates a host hands single segments to its network card, otherwise two or more.
const SLOW_PACING: Rate = Rate::from_bps(1_200_000);
/// The sender hands over one millisecond's worth of segments at once.
const BURST: Duration = Duration::from_millis(1);

/// Time for which the window stays small, so that a round trip without queueing is seen.
const RTT_PROBE: Duration = Duration::from_millis(200);

/// Segments per second of a rate sample; none if it is too short to mean anything.
pub(super) fn delivery_rate(sample: &RateSample, min_rtt: Option<Duration>) -> Option<f64> {
    // Acknowledgements that come faster than the path's shortest round trip are compressed (tcp_rate.c).
    let least = min_rtt.unwrap_or(Duration::from_nanos(1));
    (sample.interval >= least && sample.delivered > 0.0)
        .then(|| sample.delivered / sample.interval.as_secs_f64().max(1e-9))
}

/// The largest value of the last rounds.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct MaxFilter {
    rounds: u64,
    /// Falling values, rising rounds: each is the largest since its round.
    values: VecDeque<(u64, f64)>,
}

impl MaxFilter {
    pub(super) fn new(rounds: u64) -> Self {
        Self { rounds, values: VecDeque::new() }
    }

    pub(super) fn see(&mut self, round: u64, value: f64) {
        while self.values.back().is_some_and(|&(_, smaller)| smaller <= value) {
            self.values.pop_back();
        }
        self.values.push_back((round, value));
        while self.values.front().is_some_and(|&(at, _)| at + self.rounds <= round) {
            self.values.pop_front();
        }
    }

    pub(super) fn max(&self) -> f64 {
        self.values.front().map_or(0.0, |&(_, value)| value)
    }
}

/// Round trips counted by packets: a round ends when a segment that was sent after its beginning is acknowledged.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Rounds {
    ends_at_delivered: f64,
    pub(super) count: u64,
    /// The present acknowledgement began a round.
    pub(super) is_start: bool,
}

impl Rounds {
    pub(super) fn see(&mut self, ack: &Ack) {
        self.is_start = ack.sample.is_some_and(|sample| sample.prior_delivered >= self.ends_at_delivered);
        if self.is_start {
            self.ends_at_delivered = ack.delivered;
            self.count += 1;
        }
    }

    /// A round begins here.
    pub(super) fn restart(&mut self, delivered: f64) {
        self.ends_at_delivered = delivered;
    }
}

/// A look for the shortest round trip: it begins once the flight is small, and lasts for a time and a round.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct RttProbe {
    /// Set when the flight is small enough.
    until: Option<Instant>,
    saw_round: bool,
}

impl RttProbe {
    /// Takes an acknowledgement; a flight of `window` is small. Returns whether the probe is over.
    pub(super) fn see(&mut self, ack: &Ack, window: f64, rounds: &mut Rounds) -> bool {
        match self.until {
            None if ack.in_flight <= window => {
                rounds.restart(ack.delivered);
                *self = Self { until: Some(ack.now + RTT_PROBE), saw_round: false };
                false
            }
            None => false,
            Some(until) => {
                self.saw_round |= rounds.is_start;
                self.saw_round && ack.now > until
            }
        }
    }
}

/// Whether the pipe is full: the bandwidth did not grow by a quarter in three rounds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct FullPipe {
    best: f64,
    rounds: u32,
    /// The pipe was found full since the last [`Self::reset`].
    pub(super) is_full_now: bool,
    /// Ever.
    pub(super) was_full: bool,
}

const GROWTH: f64 = 1.25;
const ROUNDS_WITHOUT_GROWTH: u32 = 3;

impl FullPipe {
    /// The bandwidth of now; it is judged at the end of a round.
    pub(super) fn see(&mut self, bandwidth: f64, is_round_start: bool) {
        if self.is_full_now {
            return;
        }
        if bandwidth >= self.best * GROWTH {
            (self.best, self.rounds) = (bandwidth, 0);
            return;
        }
        self.rounds += u32::from(is_round_start);
        self.is_full_now = self.rounds >= ROUNDS_WITHOUT_GROWTH;
        self.was_full |= self.is_full_now;
    }

    /// Looks again, from `bandwidth` on.
    pub(super) fn reset(&mut self, bandwidth: f64) {
        (self.best, self.rounds, self.is_full_now) = (bandwidth, 0, false);
    }
}

/// The window while losses are repaired: packet conservation for a round, then growth, and afterwards the
/// window of before.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Repair {
    prior_cwnd: f64,
    is_repairing: bool,
    is_entering: bool,
    is_conserving: bool,
}

impl Repair {
    /// Before something that shrinks the window for a while.
    pub(super) fn save(&mut self, cwnd: f64, is_shrunk: bool) {
        let is_shrunk = is_shrunk || self.is_repairing;
        self.prior_cwnd = if is_shrunk { self.prior_cwnd.max(cwnd) } else { cwnd };
    }

    /// The window that was saved, if it is larger.
    pub(super) fn restored(&self, cwnd: f64) -> f64 {
        cwnd.max(self.prior_cwnd)
    }

    /// An episode begins; the window from now on.
    pub(super) fn on_loss(&mut self, loss: &Loss, cwnd: f64, is_shrunk: bool) -> f64 {
        if loss.kind == LossKind::Mark {
            return cwnd;
        }
        self.save(cwnd, is_shrunk);
        self.is_repairing = true;
        self.is_entering = loss.kind == LossKind::Acks;
        if loss.kind == LossKind::Timeout {
            self.is_conserving = false;
            return 1.0;
        }
        cwnd
    }

    /// The window after an acknowledgement during repair; true if it is final.
    pub(super) fn on_ack(&mut self, ack: &Ack, rounds: &mut Rounds, cwnd: f64) -> (f64, bool) {
        if rounds.is_start && !self.is_entering {
            self.is_conserving = false;
        }
        let mut cwnd = (cwnd - ack.lost).max(1.0);
        if self.is_entering {
            (self.is_entering, self.is_conserving) = (false, true);
            rounds.restart(ack.delivered);
            cwnd = ack.in_flight + ack.acked;
        }
        if self.is_conserving { (cwnd.max(ack.in_flight + ack.acked), true) } else { (cwnd, false) }
    }

    /// The episode is over; the window from now on.
    pub(super) fn on_recovered(&mut self, cwnd: f64) -> f64 {
        let restored = if self.is_repairing { self.restored(cwnd) } else { cwnd };
        (self.is_repairing, self.is_entering, self.is_conserving) = (false, false, false);
        restored
    }
}

/// Pacing on the wire, from bandwidths in segments per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pace {
    packet_bits: f64,
    rate: Rate,
    is_measured: bool,
    initial: f64,
}

impl Pace {
    /// Ten segments per millisecond and gain until a round trip is known.
    pub(super) fn new(setup: &Setup, gain: f64) -> Self {
        let packet_bits = f64::from(setup.mss + setup.overhead) * 8.0;
        let initial = gain * setup.initial_window;
        let rate = Rate::from_bps((initial * 1e3 * packet_bits) as u64);
        Self { packet_bits, rate, is_measured: false, initial }
    }

    /// The first round trip says how fast the initial window leaves.
    pub(super) fn see_rtt(&mut self, srtt: Duration) {
        if !self.is_measured && !srtt.is_zero() {
            self.is_measured = true;
            self.rate = self.wire(self.initial / srtt.as_secs_f64());
        }
    }

    fn wire(&self, segments_per_second: f64) -> Rate {
        Rate::from_bps((segments_per_second * self.packet_bits) as u64)
    }

    /// Follows the bandwidth; before the pipe is full only upwards, because early samples are too small.
    pub(super) fn set(&mut self, bandwidth: f64, gain: f64, is_full: bool) {
        let rate = self.wire(bandwidth * gain * PACING_MARGIN);
        if rate > Rate::ZERO && (is_full || rate > self.rate) {
            self.rate = rate;
        }
    }

    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Adds room for the bursts that hosts hand over at once, at both ends and between (tcp_bbr.c: three bursts),
    /// and rounds up to an even number, because every second segment is acknowledged.
    pub(super) fn with_bursts(&self, segments: f64) -> f64 {
        let least = if self.rate < SLOW_PACING { 1.0 } else { 2.0 };
        let burst = self.rate.bytes_in(BURST) as f64 * 8.0 / self.packet_bits;
        let room = segments.ceil() + 3.0 * burst.floor().clamp(least, 127.0);
        (room / 2.0).ceil() * 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::{ack, ms};
    use super::*;

    #[test]
    fn the_maximum_of_the_last_rounds_forgets_older_ones() {
        let mut filter = MaxFilter::new(10);
        filter.see(0, 5.0);
        filter.see(3, 4.0);
        filter.see(9, 1.0);
        assert_eq!(filter.max(), 5.0);
        filter.see(10, 2.0);
        assert_eq!(filter.max(), 4.0);
        filter.see(13, 1.0);
        assert_eq!(filter.max(), 2.0);
    }

    #[test]
    fn a_pipe_is_full_after_three_rounds_without_a_quarter_more() {
        let mut pipe = FullPipe::default();
        for bandwidth in [100.0, 200.0, 210.0, 220.0] {
            pipe.see(bandwidth, true);
            assert!(!pipe.was_full);
        }
        pipe.see(230.0, false);
        assert!(!pipe.was_full, "a round is not over");
        pipe.see(230.0, true);
        assert!(pipe.was_full);
    }

    #[test]
    fn a_look_for_the_shortest_round_trip_lasts_for_200_ms_and_a_round_of_a_small_flight() {
        let (mut probe, mut rounds) = (RttProbe::default(), Rounds::default());
        let mut see = |millis, flight, is_round| {
            rounds.is_start = is_round;
            let ack = Ack { in_flight: flight, ..ack(Instant::ZERO + ms(millis), flight, ms(100), ms(100)) };
            probe.see(&ack, LEAST_WINDOW, &mut rounds)
        };
        assert!(!see(0, 90.0, true) && !see(900, 5.0, true), "the flight is large");
        assert!(!see(1000, 4.0, true), "it begins here");
        assert!(!see(1201, 4.0, false), "no round of it is over");
        assert!(!see(1200, 4.0, true), "its time is not over");
        assert!(see(1201, 90.0, false));
    }
}
