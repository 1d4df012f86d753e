use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// RFC 9438 section 4.1.1: C in packets per second cubed, and the decrease factor.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// RFC 9438 between two neighbours, as a rate of one window per hopRTT. Windows in packets.
#[derive(Debug)]
pub struct Cubic {
    packet: f64,
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    /// The window that Reno would have (section 4.3).
    w_est: f64,
    /// Start of the epoch and the time K that it takes back to `w_max` (eq. 2).
    epoch: Option<(Instant, f64)>,
    hop_rtt: Duration,
    reduced_at: Option<Instant>,
}

impl Cubic {
    /// Starts with ten packets of `packet` bytes (RFC 6928) per `rtt0`.
    pub fn new(packet: u64, rtt0: Duration) -> Self {
        Self {
            packet: packet as f64,
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            w_est: 0.0,
            epoch: None,
            hop_rtt: rtt0,
            reduced_at: None,
        }
    }

    /// Goes on where another control had `window` packets under way: without slow start.
    pub(super) fn with_window(packet: u64, hop_rtt: Duration, window: f64) -> Self {
        let cwnd = window.max(2.0);
        Self { cwnd, ssthresh: cwnd, w_max: cwnd, ..Self::new(packet, hop_rtt) }
    }

    fn reduce(&mut self, now: Instant) {
        // Fast convergence, section 4.7.
        self.w_max = if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * BETA).max(2.0);
        self.ssthresh = self.cwnd;
        self.epoch = None;
        self.reduced_at = Some(now);
    }

    fn grow(&mut self, now: Instant, packets: f64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += packets;
            return;
        }
        if self.epoch.is_none() {
            self.w_est = self.cwnd;
        }
        let (epoch, k) =
            *self.epoch.get_or_insert_with(|| (now, libm::cbrt((self.w_max - self.cwnd).max(0.0) / C)));
        let t = now.since(epoch).as_secs_f64() + self.hop_rtt.as_secs_f64();
        let target = C * (t - k) * (t - k) * (t - k) + self.w_max;
        let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        self.w_est += alpha * packets / self.cwnd;
        let next = target.clamp(self.cwnd, 1.5 * self.cwnd).max(self.w_est);
        self.cwnd += (next - self.cwnd).max(0.0) / self.cwnd * packets;
    }
}

impl RateController for Cubic {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration> {
        self.hop_rtt = rtt.smoothed();
        let recovering = self.reduced_at.is_some_and(|at| delivery.now.since(at) < self.hop_rtt);
        if delivery.lost > 0 && !recovering {
            self.reduce(delivery.now);
        } else if delivery.backlog && !recovering {
            self.grow(delivery.now, delivery.bytes as f64 / self.packet);
        }
        None
    }

    fn rate(&self) -> Rate {
        Rate::of((self.cwnd * self.packet) as u64, self.hop_rtt.max(Duration::from_micros(1)))
    }
}
