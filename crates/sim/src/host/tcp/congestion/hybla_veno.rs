//! Hybla-Veno (the enhanced TCP mechanism for 5G-IoT over GEO satellites, section 3): Hybla's growth with RTT0 = 75
//! ms, a slow start in three sub-phases, and reductions by Veno's estimate of the queue.

use super::backlog::Backlog;
use super::hybla::{HyblaOptions, Rho};
use super::{Ack, Loss, LossKind, Setup, Tuning, Window, WindowControl};
use starhop_proto::time::Duration;

/// Options of Hybla-Veno.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HyblaVenoOptions {
    /// Round trip of the reference connection.
    pub rtt0: Duration,
    /// With fewer queued segments a loss is most likely random.
    pub beta1: f64,
    /// Queued segments from which on a loss is most likely congestion.
    pub beta2: f64,
}

impl Default for HyblaVenoOptions {
    fn default() -> Self {
        Self { rtt0: Duration::from_millis(75), beta1: 3.0, beta2: 6.0 }
    }
}

impl HyblaVenoOptions {
    /// The user's settings, and the defaults for the rest.
    pub fn of(tuning: &Tuning) -> Self {
        let defaults = Self::default();
        Self {
            rtt0: tuning.rtt0.unwrap_or(defaults.rtt0),
            beta1: tuning.beta.unwrap_or(defaults.beta1),
            ..defaults
        }
    }
}

/// Long round trips as in Hybla, random losses as in Veno.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HyblaVeno {
    window: Window,
    rho: Rho,
    backlog: Backlog,
    queued: f64,
    receive_window: f64,
    options: HyblaVenoOptions,
}

/// Factors by which a loss reduces the window when it seems random, unclear, or due to congestion (section 3.2).
const AFTER_RANDOM_LOSS: f64 = 4.0 / 5.0;
const AFTER_UNCLEAR_LOSS: f64 = 3.0 / 5.0;
const AFTER_CONGESTION: f64 = 2.0 / 5.0;

impl HyblaVeno {
    /// Hybla-Veno at the start of a connection.
    pub fn new(setup: &Setup, options: HyblaVenoOptions) -> Self {
        Self {
            window: Window::new(setup),
            rho: Rho::new(HyblaOptions { rtt0: options.rtt0 }),
            backlog: Backlog::default(),
            queued: 0.0,
            receive_window: setup.receive_window,
            options,
        }
    }

    /// Growth per acknowledged segment in slow start (section 3.1): fast while both window and flight are small
    /// against their bounds, slow when one of them comes near.
    fn slow_start_growth(&self, in_flight: f64) -> f64 {
        let growth = self.rho.slow_start();
        let window = self.window.cwnd / self.window.ssthresh;
        let flight = in_flight / self.receive_window;
        if window >= 0.75 || flight >= 0.75 {
            growth / 2.0
        } else if window <= 0.25 && flight < 0.25 {
            2.0 * growth + 1.0
        } else {
            growth
        }
    }

    fn factor(&self) -> f64 {
        if self.queued < self.options.beta1 {
            AFTER_RANDOM_LOSS
        } else if self.queued < self.options.beta2 {
            AFTER_UNCLEAR_LOSS
        } else {
            AFTER_CONGESTION
        }
    }

    fn measure(&mut self, ack: &Ack) {
        if ack.is_round_start && self.backlog.samples() > 0 {
            self.queued = self.backlog.segments(self.window.cwnd);
            self.backlog.begin_round();
        }
        self.backlog.see(ack);
        self.rho.see(ack.min_rtt);
    }
}

impl WindowControl for HyblaVeno {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        self.measure(ack);
        if ack.is_recovering || !ack.is_cwnd_limited {
            return;
        }
        if self.window.is_slow_start() {
            self.window.slow_start(ack.counted * self.slow_start_growth(ack.prior_in_flight));
        } else {
            self.window.cwnd += ack.counted * self.rho.avoidance(self.window.cwnd);
        }
        self.window.cwnd = self.window.cwnd.min(self.receive_window);
    }

    fn shrink(&mut self, loss: &Loss) {
        // A mark is a router's word, and needs no guess.
        let factor = if loss.kind == LossKind::Mark { AFTER_CONGESTION } else { self.factor() };
        self.window.reduce(self.window.cwnd, factor, loss.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::harness::{ack, loss, ms, rounds, setup};
    use super::*;
    use starhop_proto::time::Instant;

    /// A window of 60 after two rounds of `rtt`, where 550 ms are the shortest.
    fn after(rtt_ms: u64) -> HyblaVeno {
        let mut cc = HyblaVeno::new(&setup(), HyblaVenoOptions::default());
        (cc.window.cwnd, cc.window.ssthresh) = (60.0, 60.0);
        cc.backlog.see(&ack(Instant::ZERO, 60.0, ms(550), ms(550)));
        cc.backlog.begin_round();
        rounds(&mut cc, 1, ms(rtt_ms), ms(550));
        cc.window.cwnd = 60.0;
        cc.on_ack(&Ack { is_round_start: true, ..ack(Instant::ZERO, 60.0, ms(rtt_ms), ms(550)) });
        cc.window.cwnd = 60.0;
        cc
    }

    #[test]
    fn a_loss_takes_the_more_the_more_segments_wait() {
        // N = 60 · (1 - 550/RTT): 2.1, 4.6 and 9.2.
        for (rtt_ms, left) in [(570, 48.0), (596, 36.0), (650, 24.0)] {
            let mut cc = after(rtt_ms);
            cc.on_loss(&loss(LossKind::Acks, 60.0));
            assert!((cc.cwnd() - left).abs() < 1e-9, "{rtt_ms} ms: {}", cc.cwnd());
        }
    }

    #[test]
    fn a_timeout_sets_the_same_threshold_and_begins_again() {
        let mut cc = after(570);
        cc.on_loss(&loss(LossKind::Timeout, 60.0));
        assert_eq!((cc.cwnd(), cc.ssthresh()), (1.0, 48.0));
    }

    #[test]
    fn slow_start_has_three_speeds() {
        let mut cc = HyblaVeno::new(&setup(), HyblaVenoOptions::default());
        // ρ = 2: W = 3.
        cc.rho.see(ms(150));
        cc.window.ssthresh = 100.0;
        for (cwnd, in_flight, growth) in [
            (25.0, 2_000.0, 7.0),
            (25.0, 2_500.0, 3.0),
            (26.0, 10.0, 3.0),
            (74.0, 7_000.0, 3.0),
            (75.0, 10.0, 1.5),
            (10.0, 7_500.0, 1.5),
        ] {
            cc.window.cwnd = cwnd;
            assert_eq!(cc.slow_start_growth(in_flight), growth, "window {cwnd}, {in_flight} in flight");
        }
    }

    #[test]
    fn avoidance_is_hyblas() {
        let mut cc = HyblaVeno::new(&setup(), HyblaVenoOptions::default());
        (cc.window.cwnd, cc.window.ssthresh) = (60.0, 60.0);
        cc.on_ack(&ack(Instant::ZERO, 60.0, ms(150), ms(150)));
        assert!((cc.cwnd() - (60.0 + 4.0 / 60.0)).abs() < 1e-9, "{}", cc.cwnd());
    }
}
