use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// RFC 5681 between two neighbours, as a rate of one window per hopRTT: for a terrestrial hop that is shared
/// with TCP (INTCP section III).
#[derive(Debug)]
pub struct Reno {
    packet: f64,
    cwnd: f64,
    ssthresh: f64,
    hop_rtt: Duration,
    /// One reduction per hopRTT (RFC 5681 section 3.1 with NewReno's recovery).
    reduced_at: Option<Instant>,
}

impl Reno {
    /// Starts with ten packets of `packet` bytes (RFC 6928) per `rtt0`.
    pub fn new(packet: u64, rtt0: Duration) -> Self {
        Self {
            packet: packet as f64,
            cwnd: 10.0 * packet as f64,
            ssthresh: f64::INFINITY,
            hop_rtt: rtt0,
            reduced_at: None,
        }
    }
}

impl RateController for Reno {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration> {
        self.hop_rtt = rtt.smoothed();
        let recovering = self.reduced_at.is_some_and(|at| delivery.now.since(at) < self.hop_rtt);
        if delivery.lost > 0 && !recovering {
            self.ssthresh = (self.cwnd / 2.0).max(2.0 * self.packet);
            self.cwnd = self.ssthresh;
            self.reduced_at = Some(delivery.now);
        } else if delivery.backlog && !recovering {
            let bytes = delivery.bytes as f64;
            self.cwnd += if self.cwnd < self.ssthresh { bytes } else { self.packet * bytes / self.cwnd };
        }
        None
    }

    fn rate(&self) -> Rate {
        Rate::of(self.cwnd as u64, self.hop_rtt.max(Duration::from_micros(1)))
    }
}
