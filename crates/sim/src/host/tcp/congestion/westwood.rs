//! Westwood+ (Grieco, Mascolo: Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP
//! congestion control, ACM SIGCOMM Computer Communication Review 34(2), 2004): a loss sets the window from the
//! measured bandwidth of the path.

use super::{Ack, LEAST_SSTHRESH, Loss, LossKind, Setup, Window, WindowControl};
use starhop_proto::time::{Duration, Instant};

/// Reno whose threshold is measured: BWE·RTTmin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Westwood {
    window: Window,
    bandwidth: Bandwidth,
    min_rtt: Option<Duration>,
}

/// The bandwidth estimate: bytes acknowledged in a round trip, divided by its length, smoothed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Bandwidth {
    /// Segments per second.
    estimate: Option<f64>,
    began: Option<Instant>,
    acked: f64,
}

/// A sample takes a round trip, and not less than this, so that a burst is no rate.
const LEAST_SAMPLE: Duration = Duration::from_millis(50);
/// Weight of the old estimate.
const MEMORY: f64 = 7.0 / 8.0;

impl Bandwidth {
    fn see(&mut self, ack: &Ack) {
        let began = *self.began.get_or_insert(ack.now);
        self.acked += ack.acked;
        let lasted = ack.now.since(began);
        if lasted < ack.srtt.max(LEAST_SAMPLE) {
            return;
        }
        let sample = self.acked / lasted.as_secs_f64();
        self.estimate = Some(self.estimate.map_or(sample, |old| MEMORY * old + (1.0 - MEMORY) * sample));
        (self.began, self.acked) = (Some(ack.now), 0.0);
    }
}

impl Westwood {
    /// Westwood+ at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self { window: Window::new(setup), bandwidth: Bandwidth::default(), min_rtt: None }
    }

    /// The path's bandwidth-delay product, segments.
    fn measured(&self) -> Option<f64> {
        Some(self.bandwidth.estimate? * self.min_rtt?.as_secs_f64())
    }
}

impl WindowControl for Westwood {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        self.bandwidth.see(ack);
        if let Some(rtt) = ack.rtt {
            // Only round trips of data count: a product with the handshake's round trip would be too small.
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |old| old.min(rtt)));
        }
        if ack.is_recovering || !ack.is_cwnd_limited {
            return;
        }
        self.window.grow(ack.counted);
    }

    fn shrink(&mut self, loss: &Loss) {
        // Before anything was measured half the window, as Reno.
        let target = self.measured().unwrap_or(self.window.cwnd / 2.0).max(LEAST_SSTHRESH);
        self.window.ssthresh = target;
        self.window.cwnd = match loss.kind {
            LossKind::Timeout => 1.0,
            LossKind::Acks | LossKind::Mark => self.window.cwnd.min(target),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::{Bottleneck, Pipe, loss, ms, setup};
    use super::super::{CongestionControl, NewReno};
    use super::*;
    use starhop_proto::units::Rate;

    fn share(cc: Box<dyn CongestionControl>, loss: f64) -> (f64, Pipe) {
        let bottleneck = Bottleneck { rate: Rate::from_mbps(12), queue: 100, loss, is_xcp: false };
        let mut pipe = Pipe::new(bottleneck, vec![(cc, ms(100), ms(0))]);
        pipe.run(Duration::from_secs(10));
        (pipe.shares(Duration::from_secs(60))[0] / pipe.capacity(), pipe)
    }

    #[test]
    fn a_loss_sets_the_threshold_to_bandwidth_times_shortest_round_trip() {
        let (share, mut pipe) = share(Box::new(Westwood::new(&setup())), 0.0);
        assert!(share > 0.98, "{share}");
        let cwnd = pipe.flows[0].cc.cwnd();
        pipe.flows[0].cc.on_loss(&loss(LossKind::Acks, cwnd));
        // 1000 packets per second for 100 ms; the shortest round trip includes a packet's own millisecond.
        let threshold = pipe.flows[0].cc.ssthresh();
        assert!((threshold - 101.0).abs() < 3.0, "{threshold}");
    }

    #[test]
    fn random_losses_cost_less_than_they_cost_reno() {
        let ours = share(Box::new(Westwood::new(&setup())), 0.001).0;
        let renos = share(Box::new(NewReno::new(&setup())), 0.001).0;
        assert!(ours > 1.3 * renos, "{ours} against {renos}");
    }

    #[test]
    fn a_timeout_begins_again_with_one_segment() {
        let mut westwood = Westwood::new(&setup());
        westwood.on_loss(&loss(LossKind::Timeout, 10.0));
        assert_eq!((westwood.cwnd(), westwood.ssthresh()), (1.0, 5.0));
    }
}
