//! The parts that loss-based controls share: the window, and the rules of RFC 5681 around it.

use super::{Ack, CongestionControl, LEAST_SSTHRESH, Loss, LossKind, Recovery, Setup};
use starhop_proto::time::Instant;

/// Slow start and the floor of the threshold, as most loss-based controls share them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Window {
    /// The congestion window, segments.
    pub cwnd: f64,
    /// The slow-start threshold, segments.
    pub ssthresh: f64,
}

impl Window {
    /// The window at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self { cwnd: setup.initial_window, ssthresh: setup.initial_ssthresh }
    }

    /// The window grows exponentially.
    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows the window by one segment per acknowledged segment up to the threshold (RFC 3465 without its limit, as
    /// kernels do). Returns the part of `acked` that is left for congestion avoidance.
    pub fn slow_start(&mut self, acked: f64) -> f64 {
        let grown = (self.cwnd + acked).min(self.ssthresh);
        let left = acked - (grown - self.cwnd);
        self.cwnd = grown;
        left
    }

    /// Grows the window by one segment per acknowledged segment up to the threshold, and by one per round trip above it (RFC
    /// 5681, section 3.1).
    pub fn grow(&mut self, acked: f64) {
        let left = if self.is_slow_start() { self.slow_start(acked) } else { acked };
        self.cwnd += left / self.cwnd;
    }

    /// A loss: the threshold falls to `factor · from`, and the window to it, or to one segment after a timeout.
    pub fn reduce(&mut self, from: f64, factor: f64, kind: LossKind) {
        self.ssthresh = (from * factor).max(LEAST_SSTHRESH);
        self.cwnd = if kind == LossKind::Timeout { 1.0 } else { self.ssthresh };
    }

    /// Takes a reduction back.
    pub fn undo(&mut self, cwnd: f64, ssthresh: f64) {
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = ssthresh;
    }
}

/// A control made of a window and two rules: its growth, and its reduction at a loss.
pub trait WindowControl: std::fmt::Debug {
    /// The window and the threshold.
    fn window(&self) -> &Window;

    /// The window and the threshold, to change them.
    fn window_mut(&mut self) -> &mut Window;

    /// Something was acknowledged.
    fn grow(&mut self, ack: &Ack);

    /// A loss episode begins.
    fn shrink(&mut self, loss: &Loss);

    /// A timeout repeats itself: the window begins anew, below the threshold that the first one left.
    fn restart(&mut self) {
        self.window_mut().cwnd = 1.0;
    }

    /// The last episode was a mistake.
    fn restore(&mut self, cwnd: f64, ssthresh: f64) {
        self.window_mut().undo(cwnd, ssthresh);
    }

    /// The rule that decides which segments may leave during a repair.
    fn repairs(&self) -> Recovery {
        Recovery::Proportional
    }
}

impl<T: WindowControl> CongestionControl for T {
    fn on_ack(&mut self, ack: &Ack) {
        self.grow(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.shrink(loss);
    }

    fn on_repeated_timeout(&mut self, _loss: &Loss) {
        self.restart();
    }

    fn on_undo(&mut self, _now: Instant, cwnd: f64, ssthresh: f64) {
        self.restore(cwnd, ssthresh);
    }

    fn cwnd(&self) -> f64 {
        self.window().cwnd
    }

    fn ssthresh(&self) -> f64 {
        self.window().ssthresh
    }

    fn recovery(&self) -> Recovery {
        self.repairs()
    }
}
