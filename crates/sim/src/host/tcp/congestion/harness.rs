//! The test harness of the controls: hand-made acknowledgements, and flows over one bottleneck with a sender that
//! does nothing but count. A loss is found at the time at which its acknowledgement would have come.

use super::{Ack, CongestionControl, Loss, LossKind, RateSample, Setup, Tuning};
use crate::link::{XcpHeader, XcpOptions, XcpRouter};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::{BTreeMap, VecDeque};

/// 1448 bytes of payload and 52 of headers.
pub(crate) const PACKET: u32 = 1500;

pub(crate) fn setup() -> Setup {
    Setup {
        mss: 1448,
        overhead: 52,
        initial_window: 10.0,
        initial_ssthresh: f64::INFINITY,
        receive_window: 10_000.0,
        hystart: true,
        tuning: Tuning::default(),
        seed: 1,
    }
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An acknowledgement of one segment after `rtt`, where the shortest round trip was `min_rtt`.
pub(crate) fn ack(now: Instant, cwnd: f64, rtt: Duration, min_rtt: Duration) -> Ack {
    Ack {
        now,
        acked: 1.0,
        counted: 1.0,
        lost: 0.0,
        prior_in_flight: cwnd,
        in_flight: cwnd - 1.0,
        delivered: 0.0,
        rtt: Some(rtt),
        srtt: rtt,
        min_rtt,
        is_round_start: false,
        is_cwnd_limited: true,
        is_recovering: false,
        marked: 0.0,
        sample: None,
        xcp_feedback: None,
    }
}

/// Rounds of acknowledgements at a steady round trip: each round has one per segment of the window.
pub(crate) fn rounds(cc: &mut dyn CongestionControl, count: u32, rtt: Duration, min_rtt: Duration) {
    let mut now = Instant::ZERO + rtt;
    for _ in 0..count {
        // A window of 3 less a rounding error is 3.
        let window = (cc.cwnd().max(1.0) + 1e-6) as u64;
        for index in 0..window {
            let mut ack = ack(now + rtt.scaled(index, window), cc.cwnd(), rtt, min_rtt);
            ack.is_round_start = index == 0;
            cc.on_ack(&ack);
        }
        now += rtt;
    }
}

pub(crate) fn loss(kind: LossKind, cwnd: f64) -> Loss {
    Loss { now: Instant::ZERO, kind, in_flight: cwnd, srtt: ms(100), min_rtt: ms(100) }
}

/// A bottleneck.
pub(crate) struct Bottleneck {
    pub(crate) rate: Rate,
    /// Packets that may wait.
    pub(crate) queue: usize,
    /// Share of packets lost at random.
    pub(crate) loss: f64,
    pub(crate) is_xcp: bool,
}

struct Outcome {
    sent: Instant,
    is_lost: bool,
    prior_delivered: f64,
    prior_delivered_at: Instant,
    first_sent: Instant,
    in_flight: f64,
    prior_lost: f64,
    feedback: f64,
}

pub(crate) struct Flow {
    pub(crate) cc: Box<dyn CongestionControl>,
    rtt: Duration,
    starts: Instant,
    under_way: VecDeque<Outcome>,
    pub(crate) delivered: f64,
    pub(crate) lost: f64,
    delivered_at: Instant,
    first_sent: Instant,
    round_ends: f64,
    recovering_until: Option<Instant>,
    next_send: Instant,
    timer: Option<Instant>,
    srtt: Option<Duration>,
    min_rtt: Duration,
}

#[derive(Clone, Copy)]
enum Event {
    Arrives(usize),
    Paced(usize),
    Timer(usize),
}

/// Flows over one bottleneck.
pub(crate) struct Pipe {
    pub(crate) bottleneck: Bottleneck,
    pub(crate) flows: Vec<Flow>,
    router: Option<XcpRouter>,
    free_at: Instant,
    leaves: VecDeque<Instant>,
    events: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    rng: Rng,
    pub(crate) now: Instant,
    /// Packet-seconds in the queue, for its mean.
    pub(crate) queued: f64,
}

impl Pipe {
    /// Each flow has a control, a round trip without queue, and a time to start.
    pub(crate) fn new(
        bottleneck: Bottleneck,
        flows: Vec<(Box<dyn CongestionControl>, Duration, Duration)>,
    ) -> Self {
        let router = bottleneck.is_xcp.then(|| XcpRouter::new(XcpOptions::default()));
        let flows = flows.into_iter().map(|(cc, rtt, starts)| Flow::new(cc, rtt, Instant::ZERO + starts));
        let mut pipe = Self {
            bottleneck,
            flows: flows.collect(),
            router,
            free_at: Instant::ZERO,
            leaves: VecDeque::new(),
            events: BTreeMap::new(),
            sequence: 0,
            rng: Rng::new(7),
            now: Instant::ZERO,
            queued: 0.0,
        };
        for index in 0..pipe.flows.len() {
            pipe.at(pipe.flows[index].starts, Event::Paced(index));
        }
        pipe
    }

    fn at(&mut self, when: Instant, event: Event) {
        self.sequence += 1;
        self.events.insert((when, self.sequence), event);
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((&(at, sequence), &event)) = self.events.first_key_value()
            && at < end
        {
            self.events.remove(&(at, sequence));
            self.now = at;
            let flow = match event {
                Event::Arrives(flow) => {
                    self.outcome(flow);
                    flow
                }
                Event::Paced(flow) => flow,
                Event::Timer(flow) => {
                    self.flows[flow].timer = None;
                    if self.flows[flow].cc.poll_timeout().is_some_and(|due| due <= at) {
                        self.flows[flow].cc.on_timer(at);
                    }
                    flow
                }
            };
            self.send(flow);
            let due = self.flows[flow].cc.poll_timeout().map(|due| due.max(at + Duration::from_micros(1)));
            if let Some(due) = due.filter(|&due| self.flows[flow].timer.is_none_or(|timer| due < timer)) {
                self.flows[flow].timer = Some(due);
                self.at(due, Event::Timer(flow));
            }
        }
        self.now = end;
    }

    /// Packets per second that each flow got delivered in the next `span`.
    pub(crate) fn shares(&mut self, span: Duration) -> Vec<f64> {
        let before: Vec<f64> = self.flows.iter().map(|flow| flow.delivered).collect();
        self.queued = 0.0;
        self.run(span);
        let delivered = self.flows.iter().zip(before).map(|(flow, before)| flow.delivered - before);
        delivered.map(|delivered| delivered / span.as_secs_f64()).collect()
    }

    /// Capacity of the bottleneck, packets per second.
    pub(crate) fn capacity(&self) -> f64 {
        self.bottleneck.rate.as_bps() as f64 / f64::from(PACKET) / 8.0
    }

    fn send(&mut self, index: usize) {
        loop {
            let flow = &self.flows[index];
            if flow.under_way.len() as f64 + 1.0 > flow.cc.cwnd().max(1.0) || self.now < flow.starts {
                return;
            }
            if let Some(rate) = flow.cc.pacing_rate() {
                if flow.next_send > self.now {
                    return;
                }
                let next = self.now + rate.time_for(u64::from(PACKET));
                self.flows[index].next_send = next;
                self.at(next, Event::Paced(index));
            }
            self.enqueue(index);
        }
    }

    fn enqueue(&mut self, index: usize) {
        while self.leaves.front().is_some_and(|&leaves| leaves <= self.now) {
            self.leaves.pop_front();
        }
        let feedback = self.route(index);
        let is_full = self.leaves.len() > self.bottleneck.queue;
        let is_lost = is_full || self.rng.chance(self.bottleneck.loss);
        let wait = self.free_at.since(self.now);
        if !is_full {
            self.free_at = self.free_at.max(self.now) + self.bottleneck.rate.time_for(u64::from(PACKET));
            self.leaves.push_back(self.free_at);
            self.queued += wait.as_secs_f64();
        }
        let flow = &mut self.flows[index];
        flow.sent(self.now, is_lost, feedback);
        let back = self.free_at.max(self.now) + flow.rtt;
        self.at(back, Event::Arrives(index));
    }

    fn route(&mut self, index: usize) -> f64 {
        let (flow, packet) = (&self.flows[index], f64::from(PACKET));
        let srtt = flow.srtt.unwrap_or_default();
        let Some(demand) = flow.cc.xcp_demand(srtt) else { return 0.0 };
        let mut header = XcpHeader::wish(flow.cc.cwnd() * packet, srtt, demand * packet, PACKET);
        if let Some(router) = &mut self.router {
            let queue = self.leaves.len().saturating_sub(1) as f64 * packet;
            router.on_arrival(self.now, Some(&header), PACKET, queue, self.bottleneck.rate);
            router.on_departure(&mut header, PACKET);
        }
        header.feedback_bytes / packet
    }

    fn outcome(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let Some(outcome) = flow.under_way.pop_front() else { return };
        if outcome.is_lost {
            flow.lose(now, &outcome);
        } else {
            flow.acknowledge(now, &outcome);
        }
    }
}

impl Flow {
    fn new(cc: Box<dyn CongestionControl>, rtt: Duration, starts: Instant) -> Self {
        Self {
            cc,
            rtt,
            starts,
            under_way: VecDeque::new(),
            delivered: 0.0,
            lost: 0.0,
            delivered_at: starts,
            first_sent: starts,
            round_ends: 0.0,
            recovering_until: None,
            next_send: starts,
            timer: None,
            srtt: None,
            min_rtt: Duration::MAX,
        }
    }

    fn sent(&mut self, now: Instant, is_lost: bool, feedback: f64) {
        if self.under_way.is_empty() {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        self.under_way.push_back(Outcome {
            sent: now,
            is_lost,
            prior_delivered: self.delivered,
            prior_delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight: self.under_way.len() as f64 + 1.0,
            prior_lost: self.lost,
            feedback,
        });
        self.cc.on_sent(now, self.under_way.len() as f64);
    }

    fn lose(&mut self, now: Instant, outcome: &Outcome) {
        self.lost += 1.0;
        if self.recovering_until.is_none() {
            self.recovering_until = Some(now);
            let (srtt, min_rtt) = (self.srtt.unwrap_or_default(), self.min_rtt);
            let in_flight = self.under_way.len() as f64 + 1.0;
            self.cc.on_loss(&Loss { now, kind: LossKind::Acks, in_flight, srtt, min_rtt });
        }
        let mut ack = self.ack(now, outcome);
        (ack.acked, ack.counted, ack.lost, ack.rtt, ack.sample) = (0.0, 0.0, 1.0, None, None);
        self.cc.on_ack(&ack);
    }

    fn acknowledge(&mut self, now: Instant, outcome: &Outcome) {
        let rtt = now.since(outcome.sent);
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt.scaled(7, 8) + rtt.scaled(1, 8)));
        self.min_rtt = self.min_rtt.min(rtt);
        self.delivered += 1.0;
        self.delivered_at = now;
        self.first_sent = outcome.sent;
        if self.recovering_until.is_some_and(|until| outcome.sent > until) {
            self.recovering_until = None;
            self.cc.on_recovered(now);
        }
        let mut ack = self.ack(now, outcome);
        ack.is_round_start = outcome.prior_delivered >= self.round_ends;
        if ack.is_round_start {
            self.round_ends = self.delivered;
        }
        self.cc.on_ack(&ack);
    }

    fn ack(&self, now: Instant, outcome: &Outcome) -> Ack {
        let in_flight = self.under_way.len() as f64;
        let took = now.since(outcome.prior_delivered_at).max(outcome.sent.since(outcome.first_sent));
        Ack {
            now,
            acked: 1.0,
            counted: 1.0,
            lost: 0.0,
            prior_in_flight: in_flight + 1.0,
            in_flight,
            delivered: self.delivered,
            rtt: Some(now.since(outcome.sent)),
            srtt: self.srtt.unwrap_or_default(),
            min_rtt: self.min_rtt,
            is_round_start: false,
            is_cwnd_limited: self.cc.pacing_rate().is_none() || in_flight + 2.0 > self.cc.cwnd(),
            is_recovering: self.recovering_until.is_some(),
            marked: 0.0,
            sample: Some(RateSample {
                delivered: self.delivered - outcome.prior_delivered,
                interval: took,
                prior_delivered: outcome.prior_delivered,
                tx_in_flight: outcome.in_flight,
                lost: self.lost - outcome.prior_lost,
                is_app_limited: false,
            }),
            xcp_feedback: Some(outcome.feedback),
        }
    }
}
