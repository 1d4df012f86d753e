//! Bounds that BBRv3 learns from losses (draft-ietf-ccwg-bbr): short-term bounds that a loss lowers and the next
//! probe lifts, and a long-term bound of the data that fits into the path.

use super::bbr_parts::LEAST_WINDOW;
use super::{Ack, RateSample};

/// Share of a flight that may be lost before it was too large.
const LOSS_THRESHOLD: f64 = 0.02;
/// Factor by which a round with losses reduces a bound.
pub(super) const BETA: f64 = 0.7;
/// Share of the long-term bound left free for other flows.
const HEADROOM: f64 = 0.15;
/// Startup ends by losses only after this many bursts of them in a round.
const STARTUP_LOSS_BURSTS: u32 = 6;
/// The slope of probing doubles this often at most.
const MOST_SLOPE_DOUBLINGS: u32 = 30;

/// Whether this flight lost too much.
pub(super) fn is_too_high(sample: &RateSample) -> bool {
    sample.lost > LOSS_THRESHOLD * sample.tx_in_flight
}

/// Measurements of the present round's acknowledgements.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Signals {
    ends_at_delivered: f64,
    /// A round by these signals ended with the present acknowledgement.
    pub(super) is_round_end: bool,
    best_rate: f64,
    pub(super) best_inflight: f64,
    has_loss: bool,
    bursts: u32,
}

impl Signals {
    pub(super) fn see(&mut self, ack: &Ack, rate: Option<f64>) {
        self.has_loss |= ack.lost > 0.0;
        self.bursts += u32::from(ack.lost > 0.0);
        let Some(sample) = ack.sample else {
            self.is_round_end = false;
            return;
        };
        self.best_rate = self.best_rate.max(rate.unwrap_or(0.0));
        self.best_inflight = self.best_inflight.max(sample.delivered);
        self.is_round_end = sample.prior_delivered >= self.ends_at_delivered;
        if self.is_round_end {
            self.ends_at_delivered = ack.delivered;
        }
    }

    /// Startup loses so much that the pipe must be full.
    pub(super) fn ends_startup(&self, sample: &RateSample) -> bool {
        self.is_round_end && self.bursts >= STARTUP_LOSS_BURSTS && is_too_high(sample)
    }

    /// Called last for each acknowledgement: a new round starts with the values of the present acknowledgement.
    pub(super) fn advance(&mut self, ack: &Ack, rate: Option<f64>) {
        if self.is_round_end {
            self.best_rate = rate.unwrap_or(0.0);
            self.best_inflight = ack.sample.map_or(0.0, |sample| sample.delivered);
            (self.has_loss, self.bursts) = (false, 0);
        }
    }

    /// Forgets the signals: a phase of the cycle begins whose losses count alone.
    pub(super) fn reset(&mut self) {
        (self.has_loss, self.best_rate, self.best_inflight) = (false, 0.0, 0.0);
    }
}

/// The bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bounds {
    /// Short-term bandwidth, segments per second.
    pub(super) bw_lo: f64,
    /// Short-term flight, segments.
    pub(super) inflight_lo: f64,
    /// Long-term flight, segments.
    pub(super) inflight_hi: f64,
    slope_doublings: u32,
    acked: f64,
    /// Acknowledged segments for which the long-term bound grows by one.
    acks_per_step: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bw_lo: f64::INFINITY,
            inflight_lo: f64::INFINITY,
            inflight_hi: f64::INFINITY,
            slope_doublings: 0,
            acked: 0.0,
            acks_per_step: f64::INFINITY,
        }
    }
}

impl Bounds {
    /// Lowers the short-term bounds after a round in which the flow did not probe for more bandwidth.
    pub(super) fn lower(&mut self, signals: &Signals, max_bw: f64, cwnd: f64) {
        if !signals.has_loss {
            return;
        }
        let bw = if self.bw_lo.is_finite() { self.bw_lo } else { max_bw };
        let inflight = if self.inflight_lo.is_finite() { self.inflight_lo } else { cwnd };
        self.bw_lo = signals.best_rate.max(BETA * bw);
        self.inflight_lo = signals.best_inflight.max(BETA * inflight);
    }

    /// A probe begins: the short-term bounds are to be tested.
    pub(super) fn lift(&mut self) {
        (self.bw_lo, self.inflight_lo) = (f64::INFINITY, f64::INFINITY);
    }

    /// The long-term bound less the share that is left to other flows.
    pub(super) fn with_headroom(&self) -> f64 {
        let headroom = (HEADROOM * self.inflight_hi).max(1.0);
        if self.inflight_hi.is_finite() {
            (self.inflight_hi - headroom).max(LEAST_WINDOW)
        } else {
            f64::INFINITY
        }
    }

    /// Probing starts slowly again.
    pub(super) fn restart_slope(&mut self) {
        (self.slope_doublings, self.acked) = (0, 0.0);
    }

    /// The bound grows twice as fast as in the round before.
    pub(super) fn raise_slope(&mut self, cwnd: f64) {
        let step = f64::from(1u32 << self.slope_doublings);
        self.slope_doublings = (self.slope_doublings + 1).min(MOST_SLOPE_DOUBLINGS);
        self.acks_per_step = (cwnd / step).max(1.0);
    }

    /// The window fills the bound and nothing is lost: the bound grows.
    pub(super) fn probe_upward(&mut self, ack: &Ack, cwnd: f64, is_round_start: bool) {
        if !ack.is_cwnd_limited || cwnd < self.inflight_hi {
            return;
        }
        self.acked += ack.acked;
        if self.acked >= self.acks_per_step {
            let steps = (self.acked / self.acks_per_step).floor();
            self.acked -= steps * self.acks_per_step;
            self.inflight_hi += steps;
        }
        if is_round_start {
            self.raise_slope(cwnd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::{ack, ms};
    use super::*;
    use starhop_proto::time::Instant;

    fn sample(lost: f64) -> RateSample {
        RateSample {
            delivered: 90.0,
            interval: ms(100),
            prior_delivered: 0.0,
            tx_in_flight: 100.0,
            lost,
            is_app_limited: false,
        }
    }

    #[test]
    fn two_percent_is_not_yet_too_much() {
        assert!(!is_too_high(&sample(2.0)));
        assert!(is_too_high(&sample(3.0)));
    }

    #[test]
    fn a_round_with_losses_takes_three_tenths_but_not_what_was_delivered() {
        let (mut signals, mut bounds) = (Signals::default(), Bounds::default());
        let with_loss =
            Ack { lost: 1.0, sample: Some(sample(1.0)), ..ack(Instant::ZERO, 100.0, ms(100), ms(100)) };
        signals.see(&with_loss, Some(900.0));
        bounds.lower(&signals, 1_000.0, 200.0);
        assert_eq!((bounds.bw_lo, bounds.inflight_lo), (900.0, 140.0));
        bounds.lower(&signals, 1_000.0, 200.0);
        assert!((bounds.inflight_lo - 98.0).abs() < 1e-9, "{bounds:?}");
        bounds.lift();
        assert!(bounds.bw_lo.is_infinite() && bounds.inflight_lo.is_infinite());
    }

    #[test]
    fn the_long_term_bound_grows_one_two_four_per_round() {
        let mut bounds = Bounds { inflight_hi: 64.0, ..Bounds::default() };
        bounds.raise_slope(64.0);
        for growth in [1.0, 2.0, 4.0] {
            let before = bounds.inflight_hi;
            for index in 0..64 {
                bounds.probe_upward(&ack(Instant::ZERO, 64.0, ms(100), ms(100)), 1e9, false);
                if index == 63 {
                    bounds.raise_slope(64.0);
                }
            }
            assert_eq!(bounds.inflight_hi - before, growth);
        }
    }
}
