//! Vegas (Brakmo, Peterson: TCP Vegas: end to end congestion avoidance on a global internet, IEEE Journal on
//! Selected Areas in Communications 13(8), 1995): keeps a few segments in the queue, and no more.

use super::backlog::Backlog;
use super::{Ack, LEAST_SSTHRESH, Loss, Setup, Tuning, Window, WindowControl};

/// Options of Vegas: bounds of the queued segments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VegasOptions {
    /// With fewer the window grows; 2 in the paper's Vegas-2,4.
    pub alpha: f64,
    /// With more it shrinks; 4.
    pub beta: f64,
    /// With more slow start ends; 1.
    pub gamma: f64,
}

impl Default for VegasOptions {
    fn default() -> Self {
        Self { alpha: 2.0, beta: 4.0, gamma: 1.0 }
    }
}

impl VegasOptions {
    /// The user's settings, and the defaults for the rest.
    pub fn of(tuning: &Tuning) -> Self {
        let defaults = Self::default();
        Self {
            alpha: tuning.alpha.unwrap_or(defaults.alpha),
            beta: tuning.beta.unwrap_or(defaults.beta),
            gamma: tuning.gamma.unwrap_or(defaults.gamma),
        }
    }
}

/// The first control that went by delay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Vegas {
    window: Window,
    backlog: Backlog,
    options: VegasOptions,
    /// The window grows in slow start every other round only: the one between measures.
    is_growing_round: bool,
}

/// Losses halve the window, as in Reno.
const BETA: f64 = 0.5;
/// A round is judged by at least this many round trips: one may be an acknowledgement that was delayed.
const LEAST_SAMPLES: u32 = 3;

impl Vegas {
    /// Vegas at the start of a connection.
    pub fn new(setup: &Setup, options: VegasOptions) -> Self {
        let window = Window::new(setup);
        Self { window, backlog: Backlog::default(), options, is_growing_round: false }
    }

    fn finish_round(&mut self) {
        let queued = self.backlog.segments(self.window.cwnd);
        let is_measured = self.backlog.samples() >= LEAST_SAMPLES;
        if self.window.is_slow_start() {
            self.is_growing_round = !self.is_growing_round;
            if is_measured && queued > self.options.gamma {
                self.leave_slow_start();
            }
        } else if !is_measured || queued < self.options.alpha {
            self.window.cwnd += 1.0;
        } else if queued > self.options.beta {
            self.window.cwnd = (self.window.cwnd - 1.0).max(LEAST_SSTHRESH);
            self.window.ssthresh = self.window.ssthresh.min(self.window.cwnd);
        }
        self.backlog.begin_round();
    }

    /// The window falls to the segments under way, and the queue drains.
    fn leave_slow_start(&mut self) {
        let under_way = self.window.cwnd * self.backlog.base_by_rtt();
        self.window.cwnd = (under_way + 1.0).min(self.window.cwnd).max(LEAST_SSTHRESH);
        self.window.ssthresh = self.window.cwnd;
    }
}

impl WindowControl for Vegas {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        let is_idle = ack.is_recovering || !ack.is_cwnd_limited;
        if ack.is_round_start {
            if is_idle { self.backlog.begin_round() } else { self.finish_round() }
        }
        self.backlog.see(ack);
        if !is_idle && self.window.is_slow_start() && self.is_growing_round {
            self.window.slow_start(ack.counted);
        }
    }

    fn shrink(&mut self, loss: &Loss) {
        self.window.reduce(self.window.cwnd, BETA, loss.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::{Bottleneck, Pipe, ms, setup};
    use super::*;
    use starhop_proto::time::Duration;
    use starhop_proto::units::Rate;

    fn pipe(flows: usize) -> Pipe {
        let bottleneck = Bottleneck { rate: Rate::from_mbps(12), queue: 1000, loss: 0.0, is_xcp: false };
        let vegas = || Box::new(Vegas::new(&setup(), VegasOptions::default()));
        Pipe::new(bottleneck, (0..flows).map(|_| (vegas() as _, ms(100), ms(0))).collect())
    }

    #[test]
    fn one_flow_keeps_between_alpha_and_beta_segments_waiting() {
        let mut pipe = pipe(1);
        pipe.run(Duration::from_secs(30));
        for _ in 0..20 {
            pipe.run(Duration::from_secs(1));
            // A packet every millisecond: 100 are under way, the rest waits.
            let waiting = pipe.flows[0].cc.cwnd().floor() - 100.0;
            assert!((2.0..=5.0).contains(&waiting), "{waiting}");
        }
        let share = pipe.shares(Duration::from_secs(10))[0];
        assert!(share > 0.99 * pipe.capacity(), "{share}");
    }

    #[test]
    fn each_of_several_flows_keeps_a_few() {
        let mut pipe = pipe(3);
        pipe.run(Duration::from_secs(60));
        let shares = pipe.shares(Duration::from_secs(20));
        let total: f64 = shares.iter().sum();
        // Packet-seconds of waiting per packet, times packets per second: packets in the queue.
        let waiting = pipe.queued / 20.0;
        assert!(total > 0.98 * pipe.capacity(), "{shares:?}");
        assert!((3.0 * 2.0 - 1.0..=3.0 * 4.0 + 3.0).contains(&waiting), "{waiting}");
    }

    #[test]
    fn slow_start_doubles_every_other_round_and_ends_before_the_queue_is_long() {
        let mut pipe = pipe(1);
        // Rounds of 100 ms: 10, grow to 20, measure, grow to 40, measure.
        pipe.run(ms(390));
        assert!((30.0..=41.0).contains(&pipe.flows[0].cc.cwnd()), "{}", pipe.flows[0].cc.cwnd());
        pipe.run(ms(2_000));
        // A round trip shows the queue one round later: at most one doubling of 100 too late.
        assert!(pipe.flows[0].cc.ssthresh() < 2.0 * 101.0, "{}", pipe.flows[0].cc.ssthresh());
        assert_eq!(pipe.flows[0].lost, 0.0);
    }
}
