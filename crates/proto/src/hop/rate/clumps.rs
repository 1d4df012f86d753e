use super::Delivery;
use crate::hop::pacer::MOST_LATE;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Packets that left within this time left together: echoes are told in microseconds.
const TOGETHER: Duration = Duration::from_micros(2);
/// A sender that sends more than this time of its rate, and more packets than this, in one moment ran late. One that runs in time sends two
/// packets, or those of 250 µs.
const LATE: Duration = Duration::from_millis(1);
const LATE_PACKETS: u32 = 8;
/// Where the first packets of two clumps in a row differ in delay by more than this, on average, delays vary by themselves: one packet of a
/// clump tells too little.
const VARIES: Duration = Duration::from_micros(300);
/// Such a sender and a node before it may be silent for a turn of another process each.
const SILENCE: Duration = MOST_LATE.scaled(2, 1);
/// A sender that ran late counts as late for this time.
const AGAIN: Duration = Duration::from_millis(100);

/// Packets that a late sender sent in one moment. Each of them waits in front of the link for those before it: only the first of a clump
/// tells of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clumps {
    /// Time at which the packets of the present clump left, by this node's clock.
    left: Instant,
    bytes: u64,
    packets: u32,
    late_until: Instant,
    /// The delay of the first packet, and by how much it differed from the one before it, on average.
    first: Option<Duration>,
    varies: Duration,
}

impl Clumps {
    /// A packet came whose sender was granted `rate`. Returns its delay, unless that tells of packets that left together with it.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery, rate: Rate) -> Option<Duration> {
        let left = delivery.now.before(delivery.hop_rtt);
        if left > self.left + TOGETHER || left + TOGETHER < self.left {
            (self.left, self.bytes, self.packets) = (left, 0, 0);
            let delay = delivery.hop_rtt;
            let before = self.first.replace(delay).unwrap_or(delay);
            self.varies = self.varies.scaled(7, 8) + delay.abs_diff(before).scaled(1, 8);
        }
        self.bytes += delivery.bytes;
        self.packets += 1;
        if self.packets > LATE_PACKETS && rate.time_for(self.bytes) > LATE {
            self.late_until = delivery.now + AGAIN;
        }
        (self.packets == 1 || delivery.now > self.late_until || self.varies > VARIES)
            .then_some(delivery.hop_rtt)
    }

    /// A silence of this length after a packet may be one between two clumps.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        if now > self.late_until { Duration::ZERO } else { SILENCE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(100);
    const BYTES: u64 = 1_250;

    /// Sends clumps of `packets` every `pause` over a link of a gigabit: of each clump after the first, how many delays tell of a queue.
    fn telling(packets: u32, pause: Duration) -> [usize; 3] {
        telling_with_jitter(packets, pause, Duration::ZERO)
    }

    /// The same, where every second clump takes `jitter` longer.
    fn telling_with_jitter(packets: u32, pause: Duration, jitter: Duration) -> [usize; 3] {
        let mut clumps = Clumps::default();
        let mut tell = |number: u64| {
            let left = Instant::ZERO + Duration::from_secs(1) + pause.scaled(number, 1);
            let base = Duration::from_millis(1) + jitter.scaled(number % 2, 1);
            let delays = (1..=packets).map(|place| base + Duration::from_micros(10).scaled(place.into(), 1));
            let delivery = |hop_rtt| Delivery {
                now: left + hop_rtt,
                bytes: BYTES,
                passed: 1,
                lost: 0,
                runs: 0,
                sent: 1,
                hop_rtt,
                backlog: true,
            };
            delays.filter_map(|hop_rtt| clumps.on_delivery(&delivery(hop_rtt), RATE)).count()
        };
        tell(0);
        [1, 2, 3].map(tell)
    }

    #[test]
    fn of_the_packets_of_a_late_sender_the_first_of_each_clump_tells_of_a_queue() {
        // Forty packets are 4 ms of the rate.
        assert_eq!(telling(40, Duration::from_millis(4)), [1, 1, 1]);
        assert_eq!(telling(40, Duration::from_secs(1)), [10, 10, 10], "it ran late once in a while");
    }

    #[test]
    fn where_delays_vary_by_themselves_all_of_them_count() {
        let of_late = |jitter| telling_with_jitter(40, Duration::from_millis(4), jitter);
        assert_eq!(of_late(Duration::from_micros(100)), [1, 1, 1]);
        assert_eq!(of_late(Duration::from_millis(3))[1..], [40, 40]);
    }

    #[test]
    fn all_packets_of_a_sender_in_time_do() {
        assert_eq!(telling(5, Duration::from_micros(500)), [5, 5, 5]);
        assert_eq!(telling(10, Duration::from_millis(1)), [10, 10, 10]);
    }
}
