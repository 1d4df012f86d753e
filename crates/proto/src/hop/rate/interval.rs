use super::Delivery;
use crate::time::{Duration, Instant};

/// An interval must hold this many packets to be judged.
pub(super) const MIN_PACKETS: u32 = 4;

/// Rates and delays of intervals are filtered where delays vary by themselves. A filter forgets in this time, seconds, but not more
/// slowly than with the least gain: the mean of a long interval needs little of it. The interval of a hop of 20 ms has the least gain.
const FILTER: f64 = 30.0e-3;
pub(super) const LEAST_GAIN: f64 = 0.25;

/// Arrivals since the interval began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    from: Instant,
    /// A packet that arrives later than this ends a pause, of the sender or of the path, and shows no rate.
    silent_at: Instant,
    packets: u32,
    /// Bytes that left the sender: a lossy link had capacity for them all.
    sent_bytes: u64,
    received_bytes: u64,
    /// Packets whose sender was held by the grant.
    held: u32,
    /// The smallest hopRTT of a packet that tells of a queue.
    pub(super) least: Duration,
    /// Sum of the hopRTTs of those, for their mean, and their number.
    telling: (Duration, u32),
    /// Sum of the hopRTTs of all.
    hop_rtts: Duration,
}

impl Interval {
    fn starting(at: Instant) -> Self {
        Self {
            from: at,
            silent_at: Instant::from_nanos(u64::MAX),
            packets: 0,
            sent_bytes: 0,
            received_bytes: 0,
            held: 0,
            least: Duration::MAX,
            telling: (Duration::ZERO, 0),
            hop_rtts: Duration::ZERO,
        }
    }

    fn add(&mut self, delivery: &Delivery, delay: Option<Duration>, pause: Duration) {
        self.silent_at = delivery.now + pause;
        self.packets += 1;
        self.sent_bytes += delivery.bytes * u64::from(delivery.sent);
        self.received_bytes += delivery.bytes;
        self.held += u32::from(delivery.backlog);
        self.hop_rtts += delivery.hop_rtt;
        if let Some(delay) = delay {
            self.least = self.least.min(delay);
            self.telling = (self.telling.0 + delay, self.telling.1 + 1);
        }
    }

    /// Its length until now.
    pub(super) fn span(&self, now: Instant) -> Duration {
        now.since(self.from)
    }

    /// The mean hopRTT of the packets that tell of a queue, seconds. Every interval that is over has some.
    pub(super) fn mean(&self) -> f64 {
        self.telling.0.as_secs_f64() / f64::from(self.telling.1)
    }

    /// The mean hopRTT of all packets, seconds.
    pub(super) fn mean_of_all(&self) -> f64 {
        self.hop_rtts.as_secs_f64() / f64::from(self.packets)
    }

    /// The share of packets whose sender was held by the grant.
    pub(super) fn held(&self) -> f64 {
        f64::from(self.held) / f64::from(self.packets)
    }

    /// The gain of a filter over intervals like this one.
    pub(super) fn gain(&self, now: Instant) -> f64 {
        let span = self.span(now).as_secs_f64();
        (span / (span + FILTER)).max(LEAST_GAIN)
    }

    /// Whether there are enough packets to be judged.
    fn has_enough(&self) -> bool {
        self.packets >= MIN_PACKETS
    }

    fn per_second(&self, now: Instant, bytes: u64) -> Option<f64> {
        let span = self.span(now);
        (self.has_enough() && !span.is_zero()).then(|| bytes as f64 * 8.0 / span.as_secs_f64())
    }

    /// The rate of what left the sender, bit/s; `None` if there is too little to tell.
    pub(super) fn sent_rate(&self, now: Instant) -> Option<f64> {
        self.per_second(now, self.sent_bytes)
    }

    /// The rate of what came, bit/s; `None` if there is too little to tell.
    pub(super) fn received_rate(&self, now: Instant) -> Option<f64> {
        self.per_second(now, self.received_bytes)
    }

    /// Whether the interval can be judged, and is as long as `length`.
    pub(super) fn is_over(&self, now: Instant, length: Duration) -> bool {
        self.has_enough() && self.telling.1 > 0 && self.span(now) >= length
    }
}

/// Cuts the arrivals of a hop into intervals. No interval holds a pause, and the packet that begins one counts in none: its bytes
/// left before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Intervals(Option<Interval>);

impl Intervals {
    /// A packet arrived, with `delay` if that tells of a queue; a silence of `pause` after it would be one. Returns the interval with it;
    /// `None` if it begins one.
    #[inline]
    pub(super) fn add(
        &mut self,
        delivery: &Delivery,
        delay: Option<Duration>,
        pause: Duration,
    ) -> Option<Interval> {
        match &mut self.0 {
            Some(interval) if delivery.now < interval.silent_at => {
                interval.add(delivery, delay, pause);
                Some(*interval)
            }
            _ => {
                self.begin(delivery.now);
                None
            }
        }
    }

    /// The next interval begins now.
    pub(super) fn begin(&mut self, now: Instant) {
        self.0 = Some(Interval::starting(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + millis)
    }

    fn packet(millis: u64, sent: u32, backlog: bool) -> Delivery {
        let hop_rtt = Duration::from_millis(40 + millis);
        Delivery {
            now: at(millis),
            bytes: 1000,
            lost: sent - 1,
            runs: u32::from(sent > 1),
            passed: sent,
            sent,
            hop_rtt,
            backlog,
        }
    }

    fn add(intervals: &mut Intervals, packet: Delivery) -> Option<Interval> {
        intervals.add(&packet, Some(packet.hop_rtt), PAUSE)
    }

    #[test]
    fn the_rate_counts_from_the_packet_that_began_the_interval() {
        let mut intervals = Intervals::default();
        assert!(add(&mut intervals, packet(0, 1, false)).is_none());
        for millis in [1, 2, 3] {
            let interval = add(&mut intervals, packet(millis, 1, true)).expect("it goes on");
            assert_eq!(interval.sent_rate(at(millis)), None, "too few packets");
        }
        let interval = add(&mut intervals, packet(4, 2, false)).expect("it goes on");
        assert_eq!(interval.received_rate(at(4)), Some(8e6));
        assert_eq!(interval.sent_rate(at(4)), Some(10e6), "one was lost");
        assert_eq!((interval.held(), interval.mean()), (0.75, 0.0425));
        assert_eq!(interval.least, Duration::from_millis(41));
        assert!(interval.is_over(at(4), Duration::from_millis(4)));
        assert!(!interval.is_over(at(4), Duration::from_millis(5)));
    }

    #[test]
    fn an_interval_goes_on_until_a_delay_tells_of_a_queue() {
        let mut intervals = Intervals::default();
        intervals.begin(at(0));
        for millis in 1..=9 {
            let interval = intervals.add(&packet(millis, 1, true), None, PAUSE).expect("it goes on");
            assert!(!interval.is_over(at(millis), Duration::from_millis(5)));
        }
        let interval = add(&mut intervals, packet(10, 1, true)).expect("it goes on");
        assert!(interval.is_over(at(10), Duration::from_millis(5)));
        assert_eq!((interval.mean(), interval.mean_of_all()), (0.05, 0.0455));
        assert_eq!(interval.received_rate(at(10)), Some(8e6), "of all packets");
    }

    #[test]
    fn a_packet_after_a_pause_begins_an_interval_and_counts_in_none() {
        let mut intervals = Intervals::default();
        intervals.begin(at(0));
        assert!(add(&mut intervals, packet(300, 1, true)).is_some(), "no packet came before it");
        assert!(add(&mut intervals, packet(349, 1, true)).is_some());
        assert!(add(&mut intervals, packet(399, 1, true)).is_none());
        let interval = add(&mut intervals, packet(400, 1, false)).expect("it goes on");
        assert_eq!((interval.span(at(400)), interval.held()), (Duration::from_millis(1), 0.0));
    }
}
