//! FAST (Jin, Wei, Low: FAST TCP: motivation, architecture, algorithms, performance, IEEE INFOCOM 2004):
//! once per round trip w ← min(2w, (1-γ)w + γ(baseRTT/RTT·w + α)). In equilibrium each flow keeps α segments in
//! queues.

use super::{Ack, LEAST_SSTHRESH, Loss, LossKind, Setup, Tuning, Window, WindowControl};
use starhop_proto::time::Duration;

/// Options of FAST.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FastOptions {
    /// Segments that the flow keeps in queues. The paper has 200 for Gbit/s; here a tenth of it, for the tens of
    /// Mbit/s and queues of some hundred packets of satellite paths.
    pub alpha: f64,
    /// Share of the distance to its target by which the window moves in a round trip, in (0, 1].
    pub gamma: f64,
}

impl Default for FastOptions {
    fn default() -> Self {
        Self { alpha: 20.0, gamma: 0.5 }
    }
}

impl FastOptions {
    /// The user's settings, and the defaults for the rest.
    pub fn of(tuning: &Tuning) -> Self {
        let defaults = Self::default();
        Self { alpha: tuning.alpha.unwrap_or(defaults.alpha), gamma: tuning.gamma.unwrap_or(defaults.gamma) }
    }
}

/// Equation-based control by queueing delay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fast {
    window: Window,
    options: FastOptions,
    mean_rtt: Option<f64>,
    base_rtt: Duration,
    /// Window change of this round per acknowledged segment.
    step: f64,
    /// Window at which the change ends.
    target: f64,
}

/// Losses halve the window, as in Reno.
const BETA: f64 = 0.5;

impl Fast {
    /// FAST at the start of a connection.
    pub fn new(setup: &Setup, options: FastOptions) -> Self {
        let window = Window::new(setup);
        let target = window.cwnd;
        Self { window, options, mean_rtt: None, base_rtt: Duration::MAX, step: 0.0, target }
    }

    /// Moving mean, each round trip with the paper's weight min(3/w, 1/4).
    fn see(&mut self, ack: &Ack) {
        let Some(rtt) = ack.rtt else { return };
        // Only round trips of data count: the handshake's small packets take less time on each link.
        self.base_rtt = self.base_rtt.min(rtt);
        let weight = (3.0 * ack.acked / self.window.cwnd).min(0.25);
        let rtt = rtt.as_secs_f64();
        self.mean_rtt = Some(self.mean_rtt.map_or(rtt, |old| (1.0 - weight) * old + weight * rtt));
    }

    /// The window update, once per round trip.
    fn update(&mut self) {
        let (cwnd, gamma) = (self.window.cwnd, self.options.gamma);
        let Some(mean_rtt) = self.mean_rtt.filter(|&mean| mean > 0.0) else { return };
        let under_way = self.base_rtt.as_secs_f64() / mean_rtt * cwnd;
        let moved = (1.0 - gamma) * cwnd + gamma * (under_way + self.options.alpha);
        self.target = moved.min(2.0 * cwnd).max(LEAST_SSTHRESH);
        self.step = (self.target - cwnd) / cwnd;
        if self.step < 0.0 {
            self.window.cwnd = self.target;
        }
    }
}

impl WindowControl for Fast {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        self.see(ack);
        if ack.is_recovering {
            return;
        }
        if ack.is_round_start {
            self.update();
        }
        // An addition is spread over the round (the paper's burstiness control): a jump would be a burst.
        if ack.is_cwnd_limited && self.step > 0.0 {
            self.window.cwnd = (self.window.cwnd + self.step * ack.acked).min(self.target);
        }
    }

    fn shrink(&mut self, loss: &Loss) {
        self.window.reduce(self.window.cwnd, BETA, loss.kind);
        self.step = 0.0;
        self.target = self.window.cwnd;
        if loss.kind == LossKind::Timeout {
            self.mean_rtt = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::harness::{Bottleneck, Pipe, ms, rounds, setup};
    use super::*;
    use starhop_proto::units::Rate;

    #[test]
    fn without_queue_the_window_doubles_and_then_grows_by_a_share_of_alpha() {
        let mut fast = Fast::new(&setup(), FastOptions::default());
        rounds(&mut fast, 1, ms(100), ms(100));
        assert!((fast.cwnd() - 20.0).abs() < 1e-9, "min(20, 10 + 0.5 * 20): {}", fast.cwnd());
        rounds(&mut fast, 1, ms(100), ms(100));
        assert!((fast.cwnd() - 30.0).abs() < 1e-9, "{}", fast.cwnd());
    }

    #[test]
    fn every_flow_keeps_alpha_segments_in_the_queue() {
        for flows in [1, 3] {
            let bottleneck = Bottleneck { rate: Rate::from_mbps(12), queue: 1000, loss: 0.0, is_xcp: false };
            let fast = || Box::new(Fast::new(&setup(), FastOptions::default()));
            // All begin within the first round trip: each sees the path without a queue.
            let flows: Vec<_> = (0..flows).map(|index| (fast() as _, ms(100), ms(30 * index))).collect();
            let count = flows.len() as f64;
            let mut pipe = Pipe::new(bottleneck, flows);
            pipe.run(Duration::from_secs(30));
            let shares = pipe.shares(Duration::from_secs(20));
            let waiting = pipe.queued / 20.0;
            assert!((waiting / (20.0 * count) - 1.0).abs() < 0.1, "{count}: {waiting}");
            assert!(shares.iter().sum::<f64>() > 0.99 * pipe.capacity(), "{shares:?}");
            for share in &shares {
                assert!((share / pipe.capacity() * count - 1.0).abs() < 0.1, "{shares:?}");
            }
        }
    }
}
