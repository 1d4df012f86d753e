//! Tahoe (Jacobson: Congestion Avoidance and Control, SIGCOMM 1988; RFC 2001 without fast recovery):
//! fast retransmit, and every loss starts again from one segment.

use super::{Ack, Loss, LossKind, Recovery, Setup, Window, WindowControl};

/// The ancestor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tahoe {
    window: Window,
}

/// The threshold becomes half of the segments in flight.
const BETA: f64 = 0.5;

impl Tahoe {
    /// Tahoe at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self { window: Window::new(setup) }
    }
}

impl WindowControl for Tahoe {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        if !ack.is_cwnd_limited {
            return;
        }
        self.window.grow(ack.counted);
    }

    fn shrink(&mut self, loss: &Loss) {
        let from = self.window.cwnd.min(loss.in_flight);
        self.window.reduce(from, BETA, LossKind::Timeout);
    }

    fn repairs(&self) -> Recovery {
        Recovery::Immediate
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::harness::{loss, ms, rounds, setup};
    use super::*;

    #[test]
    fn every_loss_restarts_from_one_segment_towards_half() {
        for kind in [LossKind::Acks, LossKind::Timeout] {
            let mut tahoe = Tahoe::new(&setup());
            rounds(&mut tahoe, 3, ms(100), ms(100));
            assert_eq!(tahoe.cwnd(), 80.0);
            tahoe.on_loss(&loss(kind, 80.0));
            assert_eq!((tahoe.cwnd(), tahoe.ssthresh()), (1.0, 40.0));
            rounds(&mut tahoe, 5, ms(100), ms(100));
            assert_eq!(tahoe.cwnd(), 32.0, "slow start doubles");
            rounds(&mut tahoe, 3, ms(100), ms(100));
            assert!((41.0..43.0).contains(&tahoe.cwnd()), "then one per round trip: {}", tahoe.cwnd());
        }
    }
}
