//! XCP's sender (Katabi, Handley, Rohrs: Congestion Control for High Bandwidth-Delay Product Networks, SIGCOMM
//! 2002), and the mixture of an end-to-end control with it (SatERN).

use super::{Ack, CongestionControl, Loss, LossKind, Recovery, Setup};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// The window follows the routers: cwnd ← max(cwnd + H_feedback, one segment).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Xcp {
    cwnd: f64,
    receive_window: f64,
}

/// A loss halves the window "in a manner similar to TCP": some router on the way does not speak XCP, or the
/// sender would not have lost anything.
const BETA: f64 = 0.5;

impl Xcp {
    /// XCP at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self { cwnd: setup.initial_window, receive_window: setup.receive_window }
    }
}

impl CongestionControl for Xcp {
    fn on_ack(&mut self, ack: &Ack) {
        let feedback = ack.xcp_feedback.filter(|feedback| feedback.is_finite()).unwrap_or(0.0);
        self.cwnd = (self.cwnd + feedback).clamp(1.0, self.receive_window.max(1.0));
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.cwnd = match loss.kind {
            LossKind::Timeout => 1.0,
            LossKind::Acks | LossKind::Mark => (self.cwnd * BETA).max(1.0),
        };
    }

    fn on_undo(&mut self, _now: Instant, cwnd: f64, _ssthresh: f64) {
        self.cwnd = self.cwnd.max(cwnd);
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn recovery(&self) -> Recovery {
        Recovery::Own
    }

    fn xcp_demand(&self, _srtt: Duration) -> Option<f64> {
        // A bulk sender could use all that its peer takes.
        Some((self.receive_window - self.cwnd).max(0.0))
    }
}

/// SatERN's sender (Tran Thai, Lopez Pacheco, Lochin, Arnal: SatERN: a PEP-less solution for satellite
/// communications, equation 1): cwnd = min(cwnd of the end-to-end half, cwnd of XCP). Where the bottleneck speaks
/// XCP its window is the smaller one, elsewhere the other: nobody has to tell the sender.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WithXcp<C> {
    end_to_end: C,
    xcp: Xcp,
}

/// Each half may run ahead of the window in use by this factor: enough to take over within a round trip when the
/// bottleneck moves, and no burst when it does. The paper leaves the larger half unbounded.
const LEAD: f64 = 2.0;

impl<C: CongestionControl> WithXcp<C> {
    /// `end_to_end` at the start of the same connection.
    pub fn new(setup: &Setup, end_to_end: C) -> Self {
        Self { end_to_end, xcp: Xcp::new(setup) }
    }
}

impl<C: CongestionControl> CongestionControl for WithXcp<C> {
    fn on_ack(&mut self, ack: &Ack) {
        let may_lead = self.end_to_end.cwnd() < LEAD * self.cwnd();
        self.end_to_end.on_ack(&Ack { is_cwnd_limited: ack.is_cwnd_limited && may_lead, ..*ack });
        self.xcp.on_ack(ack);
        self.xcp.cwnd = self.xcp.cwnd.min(LEAD * self.end_to_end.cwnd());
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.end_to_end.on_loss(loss);
        self.xcp.on_loss(loss);
    }

    fn on_repeated_timeout(&mut self, loss: &Loss) {
        self.end_to_end.on_repeated_timeout(loss);
        self.xcp.on_repeated_timeout(loss);
    }

    fn on_undo(&mut self, now: Instant, cwnd: f64, ssthresh: f64) {
        self.end_to_end.on_undo(now, cwnd, ssthresh);
        self.xcp.on_undo(now, cwnd, ssthresh);
    }

    fn on_recovered(&mut self, now: Instant) {
        self.end_to_end.on_recovered(now);
    }

    fn on_sent(&mut self, now: Instant, in_flight: f64) {
        self.end_to_end.on_sent(now, in_flight);
    }

    fn on_timer(&mut self, now: Instant) {
        self.end_to_end.on_timer(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end_to_end.poll_timeout()
    }

    fn cwnd(&self) -> f64 {
        self.end_to_end.cwnd().min(self.xcp.cwnd)
    }

    fn ssthresh(&self) -> f64 {
        let own = self.end_to_end.ssthresh();
        if own.is_finite() { own.min(self.xcp.cwnd) } else { own }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.end_to_end.pacing_rate()
    }

    fn recovery(&self) -> Recovery {
        self.end_to_end.recovery()
    }

    fn xcp_demand(&self, _srtt: Duration) -> Option<f64> {
        Some((self.xcp.receive_window - self.cwnd()).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::{Bottleneck, Pipe, ack, loss, ms, setup};
    use super::super::{Fast, FastOptions, NewReno};
    use super::*;
    use starhop_proto::units::Rate;

    type Make = fn() -> Box<dyn CongestionControl>;

    fn xcp() -> Box<dyn CongestionControl> {
        Box::new(Xcp::new(&setup()))
    }

    fn pipe(is_xcp: bool, queue: usize, flows: &[(Make, u64, u64)]) -> Pipe {
        let bottleneck = Bottleneck { rate: Rate::from_mbps(12), queue, loss: 0.0, is_xcp };
        let flows = flows.iter().map(|&(make, rtt, starts)| (make(), ms(rtt), ms(starts)));
        Pipe::new(bottleneck, flows.collect())
    }

    #[test]
    fn flows_with_different_round_trips_get_fair_shares_and_leave_no_queue() {
        let mut pipe = pipe(true, 500, &[(xcp, 50, 0), (xcp, 100, 2_000), (xcp, 200, 4_000)]);
        pipe.run(Duration::from_secs(24));
        let shares = pipe.shares(Duration::from_secs(20));
        let total: f64 = shares.iter().sum();
        let jain = total * total / (3.0 * shares.iter().map(|share| share * share).sum::<f64>());
        let waiting = pipe.queued / 20.0;
        assert!(jain > 0.99, "{shares:?}");
        assert!(total > 0.95 * pipe.capacity(), "{shares:?}");
        assert!(waiting < 5.0, "{waiting} packets wait");
        assert_eq!(pipe.flows.iter().map(|flow| flow.lost).sum::<f64>(), 0.0);
    }

    #[test]
    fn a_geo_path_is_full_within_ten_round_trips() {
        let mut pipe = pipe(true, 500, &[(xcp, 600, 0)]);
        pipe.run(Duration::from_secs(6));
        let share = pipe.shares(Duration::from_secs(6))[0];
        assert!(share > 0.95 * pipe.capacity(), "{share}");
    }

    #[test]
    fn a_loss_halves_the_window_and_the_floor_is_one_segment() {
        let mut xcp = Xcp::new(&setup());
        xcp.on_loss(&loss(LossKind::Acks, 10.0));
        assert_eq!(xcp.cwnd(), 5.0);
        for _ in 0..10 {
            xcp.on_loss(&loss(LossKind::Acks, 5.0));
        }
        assert_eq!(xcp.cwnd(), 1.0);
    }

    #[test]
    fn the_window_is_the_smaller_of_two_and_nothing_else_says_which() {
        let (mut mixed, mut reno) = (WithXcp::new(&setup(), NewReno::new(&setup())), NewReno::new(&setup()));
        let told = |mixed: &mut WithXcp<NewReno>, acks: u32, feedback: f64| {
            for _ in 0..acks {
                let ack = ack(Instant::ZERO + ms(600), mixed.cwnd(), ms(600), ms(600));
                mixed.on_ack(&Ack { xcp_feedback: Some(feedback), ..ack });
            }
        };
        // No router on the way speaks XCP: the sender's own wish comes back, and it is Reno.
        told(&mut mixed, 50, 2.0);
        (0..50).for_each(|_| reno.on_ack(&ack(Instant::ZERO + ms(600), reno.cwnd(), ms(600), ms(600))));
        assert_eq!(mixed.cwnd(), reno.cwnd());
        // The bottleneck moves to a router that speaks XCP and takes window back: 10 + 50 · 2 - 80 · 1.
        told(&mut mixed, 80, -1.0);
        assert_eq!(mixed.cwnd(), 30.0);
        assert!(mixed.end_to_end.cwnd() >= 60.0);
        // And away again.
        told(&mut mixed, 20, 5.0);
        assert_eq!(mixed.cwnd(), mixed.end_to_end.cwnd());
    }

    fn fast_xcp() -> Box<dyn CongestionControl> {
        Box::new(WithXcp::new(&setup(), Fast::new(&setup(), FastOptions::default())))
    }

    fn fast() -> Box<dyn CongestionControl> {
        Box::new(Fast::new(&setup(), FastOptions::default()))
    }

    fn reno_xcp() -> Box<dyn CongestionControl> {
        Box::new(WithXcp::new(&setup(), NewReno::new(&setup())))
    }

    #[test]
    fn the_mixture_is_xcp_where_the_router_speaks_it() {
        for make in [fast_xcp as Make, reno_xcp] {
            let mut pipe = pipe(true, 500, &[(make, 100, 0)]);
            pipe.run(Duration::from_secs(20));
            let share = pipe.shares(Duration::from_secs(20))[0];
            assert!(share > 0.95 * pipe.capacity(), "{share}");
            // FAST alone would keep 20, Reno fill the queue.
            assert!(pipe.queued / 20.0 < 5.0, "{}", pipe.queued / 20.0);
        }
    }

    #[test]
    fn the_mixture_is_its_end_to_end_half_where_it_does_not() {
        let [mixed, pure] = [fast_xcp as Make, fast].map(|make| {
            let mut pipe = pipe(false, 500, &[(make, 100, 0)]);
            pipe.run(Duration::from_secs(20));
            let share = pipe.shares(Duration::from_secs(20))[0];
            (share, pipe.queued / 20.0)
        });
        assert!((mixed.0 / pure.0 - 1.0).abs() < 0.01, "{mixed:?} {pure:?}");
        assert!((mixed.1 - pure.1).abs() < 2.0, "{mixed:?} {pure:?}");
    }
}
