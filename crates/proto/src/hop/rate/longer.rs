/// Gain of the estimate of the link's service per interval: while the link is not full, and while a queue stands.
const GAIN: f64 = 1.0 / 4.0;
const GAIN_QUEUED: f64 = 1.0 / 16.0;
/// The queue that should have drained is forgotten at this rate per interval, or at the second rate if the link
/// carries more than is granted: then the queue does drain.
const KEPT: f64 = 0.98;
const KEPT_DRAINING: f64 = 0.5;
/// Between these multiples of the least and of the greatest grant, the link carries the granted rate.
const LEAST: f64 = 0.9;
const MOST: f64 = 1.02;
/// Packets and requests that were under way when the path became longer are late for this many hopRTTs.
const LATE: f64 = 2.0;
/// A queue of less than this many times the noise may be noise.
const NOISE: f64 = 1.4;
/// A queue that is longer than this many intervals need not have drained as a whole.
const PATIENCE: f64 = 2.0;
/// A count of packets is off by one at both ends of an interval.
const SLACK_PACKETS: f64 = 4.0;

/// Conditions that tell the causes of a delay apart.
#[derive(Clone, Copy, Debug)]
struct Proof {
    /// Below this multiple of the least grant packets are late, and do not show the link's rate.
    little: f64,
    /// A delay that has grown for so many intervals before this one is that of a link which lost capacity.
    grown: u32,
    /// A queue that is none should have drained so many times.
    drained: f64,
}

const STEADY: Proof = Proof { little: LEAST, grown: 1, drained: 1.0 };
/// Where delays vary by themselves, rates vary with them, and the one step of a longer path comes in several intervals.
const IN_NOISE: Proof = Proof { little: 0.5, grown: 3, drained: 1.5 };

/// Tells a queue from a path that has become longer (a handover, a relay that left).
///
/// While a queue stands its link is full, and a lower grant drains the queue by the difference. If the link carries
/// just the granted rate, and the queue that should have drained by then is still there, it is no queue.
///
/// Three things look alike at first: a link that lost capacity, a sender that paused, and a path that became longer. The delay on the
/// first grows for as long as the grant is above the capacity. A longer path delays once what comes and once what is asked for, and
/// for a moment nothing comes: the link is not judged by that moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longer {
    /// Estimated rate of the link when it is full, bit/s, and the estimate when the queue was last short.
    served: f64,
    before: f64,
    /// Queue that should have drained, seconds.
    undrained: f64,
    /// The queue when the count of `undrained` began, seconds.
    queue_then: f64,
    /// The delay of the interval before, and the time since it grew, seconds; the intervals in a row in which it grew.
    delay: f64,
    since: f64,
    grown: u32,
}

/// The finding of an interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Lasting {
    /// Nothing yet, or there is no queue.
    Open,
    /// Less came than was granted, and the queue did not grow: the packets or the requests for them are late, as they are when the
    /// path becomes longer. What came is not what the link carries.
    Paused,
    /// The delay is not a queue. The rate that the link carried before, bit/s.
    Longer(f64),
}

/// Measurements of one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// Length of the interval, seconds.
    pub(super) span: f64,
    /// The rate that the link carried, bit/s.
    pub(super) carried: f64,
    /// The least and the greatest grant for the arrivals; `None` if they are unknown.
    pub(super) granted: Option<(f64, f64)>,
    /// The least delay, and the noise of delays, seconds.
    pub(super) delay: f64,
    pub(super) noise: f64,
    /// The time after which what is told shows, seconds.
    pub(super) feedback: f64,
    /// The queue as the delay shows it, seconds, and whether it is one that should not be.
    pub(super) queue: f64,
    pub(super) is_long: bool,
    /// A packet, bits.
    pub(super) packet_bits: f64,
}

impl Longer {
    /// An interval has ended.
    pub(super) fn on_interval(&mut self, sight: Sight) -> Lasting {
        let Sight { span, carried, granted, delay, noise, feedback, queue, is_long, packet_bits } = sight;
        let packet = packet_bits / self.served.max(carried);
        // A count is off by one packet.
        let off = packet_bits / span;
        let grows = delay > core::mem::replace(&mut self.delay, delay) + packet + noise;
        let grown = self.grown;
        self.grown = if grows { grown + 1 } else { 0 };
        self.since = if grows { 0.0 } else { self.since + span };
        let proof = if noise > 0.0 { IN_NOISE } else { STEADY };
        let is_little = granted.is_some_and(|(least, _)| carried + off < proof.little * least);
        if !is_long {
            if self.served == 0.0 {
                self.served = carried;
            } else if !(is_little && noise > 0.0) {
                self.served = mix(self.served, carried, GAIN);
            }
            self.before = self.served;
            self.undrained = 0.0;
            return Lasting::Open;
        }
        if self.undrained == 0.0 {
            self.queue_then = queue;
        }
        let Some((least, most)) = granted else { return Lasting::Open };
        if grows && carried < self.served {
            self.undrained = 0.0;
            if grown >= proof.grown {
                (self.served, self.before) = (carried, carried);
            }
            return Lasting::Open;
        }
        if carried + off < LEAST * least {
            let is_paused = is_little && !grows && self.since < LATE * feedback;
            return if is_paused { Lasting::Paused } else { Lasting::Open };
        }
        let kept = if carried - off > MOST * most { KEPT_DRAINING } else { KEPT };
        let missing = (1.0 - carried / self.served) * span;
        self.undrained = (kept * self.undrained + missing).max(0.0);
        self.served = mix(self.served, carried, GAIN_QUEUED);
        let is_due = self.undrained > proof.drained * queue.min(PATIENCE * span) + SLACK_PACKETS * packet;
        let has_drained = self.queue_then - queue > self.undrained / 2.0;
        if !is_due || has_drained || queue < NOISE * noise {
            return Lasting::Open;
        }
        self.undrained = 0.0;
        self.served = self.before;
        Lasting::Longer(self.before)
    }
}

fn mix(old: f64, new: f64, gain: f64) -> f64 {
    old + (new - old) * gain
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    const BASE: f64 = 0.040;
    const SPAN: f64 = BASE / 2.0;
    const PACKET_BITS: f64 = 10_000.0;

    /// A hop as a fluid: its sender follows grants a hopRTT late, its Requester steers by the queue.
    struct Hop {
        capacity: f64,
        longer: f64,
        queue: f64,
        grants: VecDeque<f64>,
        machine: Longer,
        uncounted: f64,
        span: f64,
    }

    /// An interval in which a link carries what is granted, and nothing waits.
    fn calm(capacity: f64) -> Sight {
        Sight {
            span: SPAN,
            carried: capacity,
            granted: Some((capacity, capacity)),
            delay: BASE,
            feedback: BASE,
            noise: 0.0,
            queue: 0.0,
            is_long: false,
            packet_bits: PACKET_BITS,
        }
    }

    impl Hop {
        fn new(capacity: f64) -> Self {
            let mut machine = Longer::default();
            machine.on_interval(calm(capacity));
            let grants = VecDeque::from([capacity; 4]);
            Self { capacity, longer: 0.0, queue: 0.0, grants, machine, uncounted: 0.0, span: 0.0 }
        }

        /// An interval passes; noise raises the queue aimed at by `noise`. Returns whether the delay was found not
        /// to be a queue.
        fn step(&mut self, noise: f64) -> bool {
            let sent = self.grants[2];
            let served = (self.queue * self.capacity / SPAN + sent).min(self.capacity);
            self.queue += (sent - served) * SPAN / self.capacity;
            // Whole packets are counted, and at least four.
            self.span += SPAN;
            self.uncounted += served * SPAN;
            let whole = (self.uncounted / PACKET_BITS).floor();
            if whole < 4.0 {
                return false;
            }
            self.uncounted -= whole * PACKET_BITS;
            let span = core::mem::take(&mut self.span);
            let carried = whole * PACKET_BITS / span;
            let queue = self.queue + self.longer;
            let target = noise + (0.6e-3 * libm::sqrt(20e6 / carried)).max(PACKET_BITS / carried);
            let (least, most) =
                self.grants.range(1..4).fold((f64::MAX, 0.0), |(least, most): (f64, f64), &grant| {
                    (least.min(grant), most.max(grant))
                });
            let sight = Sight {
                span,
                carried,
                granted: Some((least, most)),
                delay: BASE + queue,
                feedback: BASE + queue,
                noise,
                queue,
                is_long: queue > target,
                packet_bits: PACKET_BITS,
            };
            if let Lasting::Longer(before) = self.machine.on_interval(sight) {
                self.grants.push_front(before);
                self.longer = 0.0;
                return true;
            }
            let steer = ((target - queue) / (2.0 * (BASE + SPAN))).clamp(-0.4, 0.05);
            self.grants.push_front((carried * (1.0 + steer)).min(1.05 * self.capacity));
            self.grants.truncate(8);
            false
        }
    }

    #[test]
    fn a_longer_path_is_found_out_before_much_is_lost() {
        for (capacity, noise) in [(20e6, 0.0), (4e6, 0.0), (4e6, 1e-3), (100e6, 0.0), (16e6, 4e-3)] {
            for longer in [0.006, 0.008, 0.010, 0.020, 0.050, 0.2, 0.6] {
                let mut hop = Hop::new(capacity);
                hop.longer = longer;
                let after = (1..=100).find(|_| hop.step(noise));
                let most = if noise > 0.0 { 24 } else { 20 };
                assert!(
                    after.is_some_and(|after| after <= most),
                    "{longer} s longer at {capacity} bit/s with {noise} s of noise: {after:?} intervals"
                );
            }
        }
    }

    #[test]
    fn what_is_late_by_a_longer_path_is_not_what_the_link_carries() {
        let (calm, mut machine) = (calm(20e6), Longer::default());
        machine.on_interval(calm);
        let longer =
            Sight { delay: BASE + 0.030, feedback: BASE + 0.030, queue: 0.030, is_long: true, ..calm };
        let mut after = |carried| machine.on_interval(Sight { carried, ..longer });
        assert_eq!(after(5e6), Lasting::Open, "it grows");
        assert_eq!(after(5e6), Lasting::Paused);
        assert_eq!(after(19.5e6), Lasting::Open, "nothing is late");
        // Three intervals are 60 ms, two hopRTTs 140.
        (0..5).for_each(|_| _ = after(19.5e6));
        assert_eq!(after(5e6), Lasting::Open, "the path became longer long ago");
    }

    #[test]
    fn a_queue_is_never_taken_for_a_longer_path() {
        for capacity in [2e6, 20e6, 200e6] {
            for left in [0.2, 0.5, 0.8, 0.9, 0.95, 0.98] {
                let mut hop = Hop::new(capacity);
                hop.capacity *= left;
                let wrong = (1..=300).find(|_| hop.step(0.0));
                assert_eq!(wrong, None, "{left} of {capacity} left");
            }
        }
    }

    #[test]
    fn a_capacity_that_falls_slowly_is_no_longer_path() {
        let mut hop = Hop::new(20e6);
        for _ in 0..500 {
            // One percent per second.
            hop.capacity *= 1.0 - 0.01 * SPAN;
            assert!(!hop.step(0.0));
        }
    }
}
