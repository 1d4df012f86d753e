//! Pacing: the time at which the next packet may leave, so that a granted rate is kept.

use crate::time::{Duration, Instant};
use crate::units::Rate;

/// A token bucket, kept as the time at which the next packet conforms (the virtual scheduling form of the
/// generic cell rate algorithm, ITU-T I.371): no tokens to refill, no rounding that accumulates.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    /// Time by which a packet may leave early.
    tolerance: Duration,
    /// Time at which all packets sent so far would have left at exactly `rate`.
    conforms_at: Instant,
    /// Time at which the last packet left.
    sent_at: Instant,
    /// Time at which a raised rate made the next packet conform sooner.
    raised_at: Instant,
    burst: u64,
}

/// The least that may leave back to back: two full packets.
const MIN_BURST_PACKETS: u64 = 2;
/// If the rate makes this more than the least burst, batches for segmentation offload can form.
const BURST_TIME: Duration = Duration::from_micros(250);

/// The longest delay of a wake-up that is made good: a turn of another process on a busy core (Linux gives 3 ms, or
/// 4 if its clock ticks 250 times a second). The bottleneck then has a queue of this time for a moment.
pub(super) const MOST_LATE: Duration = Duration::from_millis(4);

/// Bytes of this time, at most: 4 ms of 256 Mbit/s. A relay at the speed of its processor is late all the time.
const MOST_LATE_BYTES: u64 = 128 * 1024;

impl Pacer {
    /// A pacer that lets packets of at most `packet` bytes leave at `rate`.
    pub fn new(rate: Rate, packet: u64) -> Self {
        let mut pacer = Self {
            rate,
            tolerance: Duration::ZERO,
            conforms_at: Instant::ZERO,
            sent_at: Instant::ZERO,
            raised_at: Instant::ZERO,
            burst: (MIN_BURST_PACKETS - 1) * packet,
        };
        pacer.set_rate(Instant::ZERO, rate);
        pacer
    }

    /// The rate in force.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate from now on. The debt of packets that have left is counted in bytes, not in time. A grant may have arrived
    /// before the last of them left, while its node was busy: what left since is no debt to the new rate. A server that counted it
    /// went from 500 to 2 Mbit/s with 0.4 s of the old rate to pay, and stood for 100 s.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        let now = now.max(self.sent_at);
        let ready_before = self.ready_at();
        if self.rate == Rate::ZERO {
            self.conforms_at = self.conforms_at.min(now);
        } else if rate != Rate::ZERO && self.conforms_at > now {
            self.conforms_at = now + rate.time_for(self.rate.bytes_in(self.conforms_at.since(now)));
        }
        self.rate = rate;
        // At a few bits per second the burst would take hours: one second bounds the cost of an error.
        self.tolerance = rate.time_for(self.burst).max(BURST_TIME).min(Duration::from_secs(1));
        if ready_before > now && self.ready_at() < ready_before {
            self.raised_at = now;
        }
    }

    /// Time at which the next packet may leave.
    pub fn ready_at(&self) -> Instant {
        if self.rate == Rate::ZERO {
            Instant::from_nanos(u64::MAX)
        } else {
            self.conforms_at.before(self.tolerance)
        }
    }

    /// Time since which the next packet may leave, where that is past: its rate let it by then, and was granted.
    pub fn ready_since(&self) -> Instant {
        self.ready_at().max(self.raised_at)
    }

    /// Time at which all that was sent would have left at exactly the rate.
    pub fn conforms_at(&self) -> Instant {
        self.conforms_at
    }

    /// `bytes` left at `now`.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.leave(now, now, bytes);
    }

    /// As [`Pacer::on_sent`], of bytes that waited only for their time: if `now` is later, the node was woken late,
    /// and the lost time is made good. A node in virtual time is never woken late.
    pub fn on_sent_of_backlog(&mut self, now: Instant, bytes: u64) {
        self.leave(now, now.before(MOST_LATE), bytes);
    }

    /// As [`Pacer::on_sent`], of bytes that could have left so much earlier: the lost time is made good, but for what the sockets of busy
    /// processes have no room for.
    pub fn on_sent_late(&mut self, now: Instant, late: Duration, bytes: u64) {
        if late.is_zero() {
            return self.on_sent(now, bytes);
        }
        let most = MOST_LATE.min(self.rate.time_for(MOST_LATE_BYTES));
        self.leave(now, now.before(late.min(most)), bytes);
    }

    /// `bytes` leave at `now`, and could have left at any time from `since` on.
    fn leave(&mut self, now: Instant, since: Instant, bytes: u64) {
        self.sent_at = now;
        self.conforms_at = self.conforms_at.max(since) + self.rate.time_for(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_within(pacer: &mut Pacer, from: Instant, span: Duration, packet: u64) -> u64 {
        let mut sent = 0;
        let mut now = from;
        while now < from + span {
            now = now.max(pacer.ready_at());
            if now >= from + span {
                break;
            }
            pacer.on_sent(now, packet);
            sent += packet;
        }
        sent
    }

    #[test]
    fn a_second_carries_the_rate_and_one_burst() {
        let rate = Rate::from_mbps(20);
        let mut pacer = Pacer::new(rate, 1400);
        let sent =
            sent_within(&mut pacer, Instant::ZERO + Duration::from_secs(9), Duration::from_secs(1), 1400);
        assert!((2_500_000..=2_500_000 + 3 * 1400).contains(&sent), "{sent}");
    }

    #[test]
    fn an_idle_second_saves_no_more_than_one_burst() {
        let mut pacer = Pacer::new(Rate::from_mbps(20), 1400);
        let now = Instant::ZERO + Duration::from_secs(100);
        assert_eq!(sent_within(&mut pacer, now, Duration::from_nanos(1), 1400), 2 * 1400);
    }

    /// Sends a backlog for a second in a process that is only woken every `pause`.
    fn sent_when_woken_every(pause: Duration) -> u64 {
        let mut pacer = Pacer::new(Rate::from_mbps(100), 1400);
        let (mut now, mut sent) = (Instant::ZERO + Duration::from_secs(9), 0);
        let end = now + Duration::from_secs(1);
        pacer.on_sent(now, 1400);
        while now < end {
            while pacer.ready_at() <= now {
                pacer.on_sent_of_backlog(now, 1400);
                sent += 1400;
            }
            now += pause;
        }
        sent
    }

    #[test]
    fn a_process_that_is_woken_late_keeps_the_rate_of_a_backlog() {
        for micros in [100, 1_000, 3_000] {
            let sent = sent_when_woken_every(Duration::from_micros(micros));
            assert!((12_400_000..12_550_000).contains(&sent), "every {micros} us: {sent}");
        }
    }

    #[test]
    fn what_a_late_wake_up_cost_is_made_good_within_bounds() {
        // In each 20 ms at most 4 ms are made good, in addition to the bytes that may leave ahead of their time.
        let sent = sent_when_woken_every(Duration::from_millis(20));
        assert!((2_500_000..2_800_000).contains(&sent), "{sent}");
    }

    #[test]
    fn at_rate_zero_nothing_is_ever_ready() {
        assert_eq!(Pacer::new(Rate::ZERO, 1400).ready_at(), Instant::from_nanos(u64::MAX));
    }

    #[test]
    fn a_rate_that_is_confirmed_all_the_time_gives_nothing_away() {
        let rate = Rate::from_mbps(20);
        let mut pacer = Pacer::new(rate, 1400);
        let (mut now, mut sent) = (Instant::ZERO + Duration::from_secs(1), 0);
        let end = now + Duration::from_secs(1);
        while now < end {
            pacer.set_rate(now, Rate::from_bps(rate.as_bps() + sent % 2));
            if pacer.ready_at() <= now {
                pacer.on_sent(now, 1400);
                sent += 1400;
            }
            now += Duration::from_micros(100);
        }
        assert!((2_490_000..=2_500_000 + 3 * 1400).contains(&sent), "{sent}");
    }

    #[test]
    fn a_pause_by_rate_zero_ends() {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut pacer = Pacer::new(Rate::from_mbps(20), 1400);
        pacer.on_sent(now, 1400);
        pacer.set_rate(now, Rate::ZERO);
        pacer.set_rate(now + Duration::from_secs(1), Rate::from_mbps(20));
        assert!(pacer.ready_at() <= now + Duration::from_secs(1));
    }

    #[test]
    fn a_grant_that_arrived_before_the_last_packet_left_asks_no_time_for_it() {
        let mut pacer = Pacer::new(Rate::from_mbps(500), 1400);
        let start = Instant::ZERO + Duration::from_secs(1);
        let sent = sent_within(&mut pacer, start, Duration::from_millis(400), 1400);
        assert!(sent > 20_000_000, "{sent}");
        let arrived = start + Duration::from_millis(10);
        pacer.set_rate(arrived, Rate::from_mbps(2));
        // Of the old rate a burst may be owed, 16 kB.
        let stands = pacer.ready_at().since(start + Duration::from_millis(400));
        assert!(stands < Duration::from_millis(80), "{stands:?}");
    }

    #[test]
    fn a_raised_rate_lets_nothing_leave_before_it_was_granted() {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut pacer = Pacer::new(Rate::from_bps(1_120_000), 1400);
        (0..2).for_each(|_| pacer.on_sent(now, 1400));
        let granted = now + Duration::from_micros(9_900);
        assert!(pacer.ready_at() > granted);
        pacer.set_rate(granted, Rate::from_mbps(112));
        assert!(pacer.ready_at() < granted, "the burst of a high rate reaches back");
        assert_eq!(pacer.ready_since(), granted);
    }

    #[test]
    fn a_raised_rate_takes_effect_at_once() {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut pacer = Pacer::new(Rate::from_bps(1000), 1400);
        pacer.on_sent(now, 1400);
        pacer.on_sent(now, 1400);
        pacer.set_rate(now, Rate::from_mbps(20));
        assert!(pacer.ready_at() <= now + Duration::from_millis(1), "{:?}", pacer.ready_at());
    }
}
