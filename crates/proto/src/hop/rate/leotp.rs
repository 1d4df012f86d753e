use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Bytes of queue at which LEOTP backs off (M of eq. 8; 3000 in the authors' code).
const QUEUE_THRESHOLD: f64 = 3000.0;
/// What it backs off to, as a share of the bandwidth-delay product (k of eq. 8).
const BACK_OFF: f64 = 0.8;
/// Slow start doubles without looking whether the window is used; this only keeps the number finite.
const MAX_CWND: f64 = 1e9;

/// LEOTP's controller as published (section III.C, equations 6 to 8): once every hopRTT the window doubles,
/// grows by one packet, or falls to 0.8 of the bandwidth-delay product, by the queue that the hopRTT shows.
#[derive(Debug)]
pub struct Leotp {
    packet: f64,
    cwnd: f64,
    slow_start: bool,
    round_started: Option<Instant>,
    round_bytes: u64,
    hop_rtt: Duration,
}

impl Leotp {
    /// Starts with ten packets of `packet` bytes per `rtt0`.
    pub fn new(packet: u64, rtt0: Duration) -> Self {
        Self {
            packet: packet as f64,
            cwnd: 10.0 * packet as f64,
            slow_start: true,
            round_started: None,
            round_bytes: 0,
            hop_rtt: rtt0,
        }
    }

    fn end_round(&mut self, elapsed: Duration, rtt: &HopRtt) {
        let throughput = self.round_bytes as f64 / elapsed.as_secs_f64();
        let bdp = throughput * rtt.min().as_secs_f64();
        let queue = throughput * rtt.smoothed().saturating_sub(rtt.min()).as_secs_f64();
        if queue > QUEUE_THRESHOLD {
            self.slow_start = false;
            self.cwnd = (BACK_OFF * bdp).max(self.packet);
        } else if self.slow_start {
            self.cwnd = (2.0 * self.cwnd).min(MAX_CWND);
        } else {
            self.cwnd += self.packet;
        }
    }
}

impl RateController for Leotp {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &mut HopRtt) {
        self.hop_rtt = rtt.smoothed();
        self.round_bytes += delivery.bytes;
        let started = *self.round_started.get_or_insert(delivery.now);
        let elapsed = delivery.now.since(started);
        if elapsed >= self.hop_rtt && !elapsed.is_zero() {
            self.end_round(elapsed, rtt);
            self.round_started = Some(delivery.now);
            self.round_bytes = 0;
        }
    }

    fn rate(&self) -> Rate {
        Rate::of(self.cwnd as u64, self.hop_rtt.max(Duration::from_micros(1)))
    }
}
