use super::Delivery;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Packets that left within this time left together: echoes are told in microseconds.
const TOGETHER: Duration = Duration::from_micros(2);
/// A sender that sends more than this time of its rate, and so many packets, in one moment ran late. One whose clock rings in time sends
/// some packets, or those of 250 µs.
const LATE: Duration = Duration::from_millis(1);
const LATE_PACKETS: u32 = 8;
/// It is late again within this time.
const AGAIN: Duration = Duration::from_millis(100);

/// Packets that a late sender sent in one moment. Each of them waits in front of the link for those before it: only the first of a clump
/// tells of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clumps {
    left: Instant,
    bytes: u64,
    packets: u32,
    late_until: Instant,
}

impl Clumps {
    /// A packet came whose sender was granted `rate`. Returns its delay, unless that tells of packets that left together with it.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery, rate: Rate) -> Option<Duration> {
        let left = delivery.now.before(delivery.hop_rtt);
        if left > self.left + TOGETHER || left + TOGETHER < self.left {
            (self.left, self.bytes, self.packets) = (left, 0, 0);
        }
        self.bytes += delivery.bytes;
        self.packets += 1;
        if self.packets > LATE_PACKETS && rate.time_for(self.bytes) > LATE {
            self.late_until = delivery.now + AGAIN;
        }
        (self.packets == 1 || delivery.now > self.late_until).then_some(delivery.hop_rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(100);
    const BYTES: u64 = 1_250;

    /// Sends clumps of `packets` every `pause` over a link of a gigabit: of each clump after the first, how many delays tell of a queue.
    fn telling(packets: u32, pause: Duration) -> [usize; 3] {
        let mut clumps = Clumps::default();
        let mut tell = |number: u64| {
            let left = Instant::ZERO + Duration::from_secs(1) + pause.scaled(number, 1);
            let delays = (1..=packets)
                .map(|place| Duration::from_millis(1) + Duration::from_micros(10).scaled(place.into(), 1));
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
    fn all_packets_of_a_sender_in_time_do() {
        assert_eq!(telling(5, Duration::from_micros(500)), [5, 5, 5]);
        assert_eq!(telling(10, Duration::from_millis(1)), [10, 10, 10]);
    }
}
