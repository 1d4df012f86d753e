//! NewReno (RFC 5681, RFC 6582): one segment per round trip, half the window per loss.

use super::{Ack, CongestionControl, Loss, Setup, Window};
use starhop_proto::time::Instant;

/// The classic, and the yardstick of Mathis' formula.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NewReno {
    window: Window,
}

/// What is left of the window after a loss (RFC 5681, equation 4).
const BETA: f64 = 0.5;

impl NewReno {
    /// At the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self { window: Window::new(setup) }
    }
}

impl CongestionControl for NewReno {
    fn on_ack(&mut self, ack: &Ack) {
        if ack.is_recovering || !ack.is_cwnd_limited {
            return;
        }
        let mut acked = ack.acked;
        if self.window.is_slow_start() {
            acked = self.window.slow_start(acked);
        }
        self.window.cwnd += acked / self.window.cwnd;
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.window.reduce(self.window.cwnd, BETA, loss.kind);
    }

    fn on_repeated_timeout(&mut self, _loss: &Loss) {
        self.window.cwnd = 1.0;
    }

    fn on_undo(&mut self, _now: Instant, cwnd: f64, ssthresh: f64) {
        self.window.undo(cwnd, ssthresh);
    }

    fn cwnd(&self) -> f64 {
        self.window.cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.window.ssthresh
    }
}
