//! NewReno (RFC 5681, RFC 6582): one segment per round trip, half the window per loss.

use super::{Ack, Loss, Setup, Window, WindowControl};

/// The classic, and the yardstick of Mathis' formula.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NewReno {
    window: Window,
}

/// Factor by which a loss reduces the window (RFC 5681, equation 4).
const BETA: f64 = 0.5;

impl NewReno {
    /// NewReno at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self { window: Window::new(setup) }
    }
}

impl WindowControl for NewReno {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        if ack.is_recovering || !ack.is_cwnd_limited {
            return;
        }
        self.window.grow(ack.counted);
    }

    fn shrink(&mut self, loss: &Loss) {
        self.window.reduce(self.window.cwnd, BETA, loss.kind);
    }
}
