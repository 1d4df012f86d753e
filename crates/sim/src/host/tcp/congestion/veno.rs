//! Veno (Fu, Liew: TCP Veno: TCP enhancement for transmission over wireless access networks, IEEE Journal on
//! Selected Areas in Communications 21(2), 2003): a loss while little waits in queues was no congestion.

use super::backlog::Backlog;
use super::{Ack, Loss, LossKind, Setup, Tuning, Window, WindowControl};

/// Options of Veno.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VenoOptions {
    /// Queued segments from which a loss is taken for congestion; 3 in the paper.
    pub beta: f64,
}

impl Default for VenoOptions {
    fn default() -> Self {
        Self { beta: 3.0 }
    }
}

impl VenoOptions {
    /// The user's settings, and the defaults for the rest.
    pub fn of(tuning: &Tuning) -> Self {
        let defaults = Self::default();
        Self { beta: tuning.beta.unwrap_or(defaults.beta) }
    }
}

/// Reno that looks at the queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Veno {
    window: Window,
    backlog: Backlog,
    /// Queued segments in the last complete round.
    queued: f64,
    options: VenoOptions,
}

/// Factors by which a random loss, and congestion, reduce the window.
const AFTER_RANDOM_LOSS: f64 = 0.8;
const AFTER_CONGESTION: f64 = 0.5;
/// With a full queue the window grows by one every other round trip.
const CONGESTED_GROWTH: f64 = 0.5;

impl Veno {
    /// Veno at the start of a connection.
    pub fn new(setup: &Setup, options: VenoOptions) -> Self {
        Self { window: Window::new(setup), backlog: Backlog::default(), queued: 0.0, options }
    }

    fn is_congested(&self) -> bool {
        self.queued >= self.options.beta
    }
}

impl WindowControl for Veno {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        if ack.is_round_start && self.backlog.samples() > 0 {
            self.queued = self.backlog.segments(self.window.cwnd);
            self.backlog.begin_round();
        }
        self.backlog.see(ack);
        if ack.is_recovering || !ack.is_cwnd_limited {
            return;
        }
        let mut acked = ack.counted;
        if self.window.is_slow_start() {
            acked = self.window.slow_start(acked);
        }
        let growth = if self.is_congested() { CONGESTED_GROWTH } else { 1.0 };
        self.window.cwnd += growth * acked / self.window.cwnd;
    }

    fn shrink(&mut self, loss: &Loss) {
        let is_random = loss.kind == LossKind::Acks && !self.is_congested();
        let factor = if is_random { AFTER_RANDOM_LOSS } else { AFTER_CONGESTION };
        self.window.reduce(self.window.cwnd, factor, loss.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::harness::{ack, loss, ms, rounds, setup};
    use super::*;
    use starhop_proto::time::Instant;

    /// A window of 40 with `rtt` where 100 ms are the shortest.
    fn veno(rtt_ms: u64) -> Veno {
        let mut veno = Veno::new(&setup(), VenoOptions::default());
        (veno.window.cwnd, veno.window.ssthresh) = (40.0, 40.0);
        veno.backlog.see(&ack(Instant::ZERO, 40.0, ms(100), ms(100)));
        veno.backlog.begin_round();
        rounds(&mut veno, 2, ms(rtt_ms), ms(100));
        veno
    }

    #[test]
    fn with_a_short_queue_a_loss_takes_a_fifth_and_growth_is_renos() {
        // 40 · (1 - 100/105) = 1.9 segments wait.
        let mut veno = veno(105);
        assert!((veno.cwnd() - 42.0).abs() < 0.1, "{}", veno.cwnd());
        let before = veno.cwnd();
        veno.on_loss(&loss(LossKind::Acks, before));
        assert_eq!(veno.cwnd(), 0.8 * before);
    }

    #[test]
    fn with_a_long_queue_a_loss_takes_half_and_growth_is_half() {
        // 40 · (1 - 100/120) = 6.7 segments wait: known after the first round.
        let mut veno = veno(120);
        let before = veno.cwnd();
        assert!((before - 41.5).abs() < 0.1, "{before}");
        veno.on_loss(&loss(LossKind::Acks, before));
        assert_eq!(veno.cwnd(), 0.5 * before);
    }

    #[test]
    fn a_timeout_is_congestion() {
        let mut veno = veno(105);
        let before = veno.cwnd();
        veno.on_loss(&loss(LossKind::Timeout, before));
        assert_eq!((veno.cwnd(), veno.ssthresh()), (1.0, 0.5 * before));
    }
}
