//! Hybla (Caini, Firrincieli: TCP Hybla: a TCP enhancement for heterogeneous networks, International Journal of
//! Satellite Communications and Networking 22, 2004): a connection with a long round trip grows its *rate* like
//! a reference connection with round trip RTT0.

use super::{Ack, Loss, LossKind, Setup, Tuning, Window, WindowControl};
use starhop_proto::time::Duration;

/// Options of Hybla.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HyblaOptions {
    /// Round trip of the reference connection; 25 ms in the paper.
    pub rtt0: Duration,
}

impl Default for HyblaOptions {
    fn default() -> Self {
        Self { rtt0: Duration::from_millis(25) }
    }
}

impl HyblaOptions {
    /// The user's settings, and the defaults for the rest.
    pub fn of(tuning: &Tuning) -> Self {
        let defaults = Self::default();
        Self { rtt0: tuning.rtt0.unwrap_or(defaults.rtt0) }
    }
}

/// ρ = RTT/RTT0, and the increments that follow from it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rho {
    rtt0: Duration,
    rho: f64,
    is_known: bool,
}

/// 2^ρ is bounded: no window is ever larger, and an infinite one would be no number.
const MOST_DOUBLINGS: f64 = 40.0;

impl Rho {
    pub(super) fn new(options: HyblaOptions) -> Self {
        Self { rtt0: options.rtt0, rho: 1.0, is_known: false }
    }

    /// Takes the shortest round trip. Returns whether it is the first. A connection faster than the reference is
    /// not changed (ρ = 1).
    pub(super) fn see(&mut self, min_rtt: Duration) -> bool {
        if min_rtt == Duration::MAX || self.rtt0.is_zero() {
            return false;
        }
        self.rho = (min_rtt.as_secs_f64() / self.rtt0.as_secs_f64()).max(1.0);
        !std::mem::replace(&mut self.is_known, true)
    }

    /// ρ.
    pub(super) fn value(&self) -> f64 {
        self.rho
    }

    /// Growth per acknowledged segment in slow start, 2^ρ - 1.
    pub(super) fn slow_start(&self) -> f64 {
        libm::exp2(self.rho.min(MOST_DOUBLINGS)) - 1.0
    }

    /// Growth per acknowledged segment in congestion avoidance, ρ²/W.
    pub(super) fn avoidance(&self, cwnd: f64) -> f64 {
        self.rho * self.rho / cwnd
    }
}

/// Growth that does not depend on the round trip.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hybla {
    window: Window,
    rho: Rho,
    receive_window: f64,
}

/// Losses halve the window, as in Reno.
const BETA: f64 = 0.5;

impl Hybla {
    /// Hybla at the start of a connection.
    pub fn new(setup: &Setup, options: HyblaOptions) -> Self {
        let rho = Rho::new(options);
        Self { window: Window::new(setup), rho, receive_window: setup.receive_window }
    }
}

impl WindowControl for Hybla {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        if self.rho.see(ack.min_rtt) && self.window.is_slow_start() {
            // The reference connection begins with one segment per RTT0, this one with ρ per round trip.
            self.window.cwnd = self.window.cwnd.max(self.rho.value());
        }
        if ack.is_recovering || !ack.is_cwnd_limited {
            return;
        }
        if self.window.is_slow_start() {
            self.window.slow_start(ack.counted * self.rho.slow_start());
        } else {
            self.window.cwnd += ack.counted * self.rho.avoidance(self.window.cwnd);
        }
        // A window that cannot be used must not pile up: a single acknowledgement may multiply the window.
        self.window.cwnd = self.window.cwnd.min(self.receive_window);
    }

    fn shrink(&mut self, loss: &Loss) {
        self.window.reduce(self.window.cwnd, BETA, loss.kind);
        if loss.kind == LossKind::Timeout {
            // As at the start: ρ segments per round trip are one per RTT0.
            self.window.cwnd = self.rho.value().min(self.window.ssthresh);
        }
    }

    fn restart(&mut self) {
        self.window.cwnd = self.rho.value().min(self.window.ssthresh);
    }
}

#[cfg(test)]
mod tests {
    use super::super::CongestionControl;
    use super::super::harness::{loss, ms, rounds, setup};
    use super::super::{NewReno, Setup};
    use super::*;

    fn hybla(initial_window: f64, rtt: Duration) -> Hybla {
        let setup = Setup { initial_window, receive_window: 1e9, ..setup() };
        let mut hybla = Hybla::new(&setup, HyblaOptions::default());
        assert!(hybla.rho.see(rtt));
        hybla.window.cwnd = initial_window * hybla.rho.value();
        hybla
    }

    #[test]
    fn in_slow_start_the_rate_is_that_of_the_reference_connection() {
        // 75 ms are three round trips of the reference: three of its rounds to one of ours.
        let mut ours = hybla(1.0, ms(75));
        let mut reference = NewReno::new(&Setup { initial_window: 1.0, ..setup() });
        rounds(&mut ours, 3, ms(75), ms(75));
        rounds(&mut reference, 9, ms(25), ms(25));
        let rates = (ours.cwnd() / 75.0, reference.cwnd() / 25.0);
        assert!((rates.0 / rates.1 - 1.0).abs() < 1e-9, "{rates:?}");
    }

    #[test]
    fn in_avoidance_the_rate_is_that_of_the_reference_connection() {
        let mut ours = hybla(4000.0, ms(550));
        let mut reference = NewReno::new(&Setup { initial_window: 4000.0, ..setup() });
        ours.on_loss(&loss(LossKind::Acks, 0.0));
        reference.on_loss(&loss(LossKind::Acks, 0.0));
        let before = (ours.cwnd(), reference.cwnd());
        rounds(&mut ours, 20, ms(550), ms(550));
        rounds(&mut reference, 20 * 22, ms(25), ms(25));
        let growth = ((ours.cwnd() - before.0) / 550.0, (reference.cwnd() - before.1) / 25.0);
        // A round of ours grows by 484 on 44,000: ρ²/W falls by a percent within it.
        assert!((growth.0 / growth.1 - 1.0).abs() < 0.01, "{growth:?}");
    }

    #[test]
    fn the_increments_are_those_of_the_paper() {
        let rho = hybla(1.0, ms(100)).rho;
        assert_eq!((rho.slow_start(), rho.avoidance(32.0)), (15.0, 0.5));
        let fast = hybla(1.0, ms(10)).rho;
        assert_eq!((fast.slow_start(), fast.avoidance(32.0)), (1.0, 1.0 / 32.0));
    }

    #[test]
    fn a_window_never_exceeds_what_the_peer_takes() {
        let mut geo = Hybla::new(&setup(), HyblaOptions::default());
        rounds(&mut geo, 2, ms(550), ms(550));
        assert_eq!(geo.cwnd(), setup().receive_window);
    }
}
