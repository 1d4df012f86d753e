//! The losses in front of a link that ran over, and the rate that it carries.

use super::interval::Interval;
use crate::hop::flood::is_flooded;
use crate::hop::rtt::HopRtt;
use crate::time::Instant;

/// A queue that runs over holds so many packets at least.
const PACKETS: f64 = 8.0;
/// Where a block loses so much in front of a queue, however short, the grant is far above the link. Hops that share a link lose less when they
/// overfill its queue together, and each would take the losses of the others for its own.
const MUCH: f64 = 0.3;
/// The share that a link passes at least, whatever it usually loses.
const LEAST_PASSED: f64 = 0.5;

/// Tells losses of a link, which it had capacity for, from those of the queue in front of it, which it had not.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// Until then losses are those of the queue, however short it is.
    until: Instant,
}

/// The hop in an interval: the rate of its link, bit/s, the bits of a packet, and the share that is usually lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    pub(super) rtt: &'a HopRtt,
    pub(super) rate: f64,
    pub(super) packet_bits: f64,
    pub(super) usual_loss: f64,
}

impl Overflow {
    /// This share of a block was lost in front of a queue, which is far more than usual. What comes until then was sent before that showed,
    /// or shows it again.
    pub(super) fn on_alarm(&mut self, loss: f64, until: Instant) {
        if loss >= MUCH {
            self.until = until;
        }
    }

    /// The rate that the link carried, bit/s. Losses are no sign that it carries less; but in front of a long queue, and after a short one
    /// has lost much, those beyond the usual ones ran over.
    pub(super) fn carried(&self, now: Instant, interval: &Interval, hop: Hop<'_>) -> f64 {
        let sent = interval.sent_rate(now).unwrap_or_default();
        let queue = interval.least.saturating_sub(hop.rtt.floor());
        let is_long = queue.as_secs_f64() * hop.rate > PACKETS * hop.packet_bits;
        let runs_over = now < self.until || (is_long && is_flooded(queue, hop.rtt.min()));
        if !runs_over {
            return sent;
        }
        let came = interval.received_rate(now).unwrap_or_default();
        sent.min(came / (1.0 - hop.usual_loss).max(LEAST_PASSED))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Delivery;
    use super::super::interval::Intervals;
    use super::*;
    use crate::time::Duration;

    const BASE: Duration = Duration::from_millis(40);

    /// The rate that the link carried, Mbit/s, in 10 ms in which every second of 20 Mbit/s was lost behind a queue of so many milliseconds.
    /// A tenth is usual.
    fn carried(overflow: &Overflow, queue_ms: u64) -> f64 {
        let start = Instant::ZERO + Duration::from_secs(1);
        let hop_rtt = BASE + Duration::from_millis(queue_ms);
        let (mut intervals, mut interval) = (Intervals::default(), None);
        for millis in 0..=10 {
            let now = start + Duration::from_millis(millis);
            let delivery =
                Delivery { now, bytes: 1_250, passed: 2, lost: 1, runs: 1, sent: 2, hop_rtt, backlog: true };
            interval = intervals.add(&delivery, Some(hop_rtt), BASE);
        }
        let hop = Hop { rtt: &HopRtt::new(BASE), rate: 20e6, packet_bits: 10e3, usual_loss: 0.1 };
        overflow.carried(start + Duration::from_millis(10), &interval.expect("an interval"), hop) / 1e6
    }

    #[test]
    fn losses_count_as_carried_unless_a_long_queue_stands() {
        let rates = [0, 30, 60].map(|queue_ms| carried(&Overflow::default(), queue_ms));
        assert_eq!(rates, [20.0, 20.0, 10.0 / 0.9]);
    }

    #[test]
    fn once_a_short_queue_lost_much_its_losses_do_not_count_either() {
        let mut overflow = Overflow::default();
        let until = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        overflow.on_alarm(0.25, until(2));
        assert_eq!(carried(&overflow, 30), 20.0, "others may have lost it");
        overflow.on_alarm(0.35, until(2));
        assert_eq!([0, 30].map(|queue_ms| carried(&overflow, queue_ms)), [10.0 / 0.9; 2]);
        overflow.on_alarm(0.35, until(1));
        assert_eq!(carried(&overflow, 30), 20.0);
    }
}
