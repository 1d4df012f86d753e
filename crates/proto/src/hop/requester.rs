use super::counter::{Arrival, Arrivals};
use super::rate::{Delivery, RateController, controller};
use super::rtt::HopRtt;
use crate::config::Config;
use crate::name::FlowId;
use crate::rng::Rng;
use crate::time::{Duration, Instant, WireTime};
use crate::units::Rate;
use crate::wire::Interest;
use alloc::boxed::Box;
use core::net::SocketAddr;

/// Control packets cost at most this share of the bytes that they steer: one byte in 128.
const CONTROL_SHARE: u64 = 128;
/// An Interest on the wire with IPv4 and UDP, roughly.
const CONTROL_BYTES: u64 = 64;

/// The receiving side of a hop, for all flows from one neighbour: measures the hop and grants its rate.
pub struct Requester {
    /// The neighbour.
    pub addr: SocketAddr,
    arrivals: Arrivals,
    rtt: HopRtt,
    controller: Box<dyn RateController + Send>,
    counter: u16,
    /// Missing packets that holes of flows account for.
    explained: u64,
    /// Bytes received since the last Interest.
    unreported: u64,
    reported_rate: Rate,
    reported_at: Instant,
    reported_warm: bool,
    /// When a gap in the counter is a loss even if nothing follows.
    gap_deadline: Option<Instant>,
    reorder_time: Duration,
    /// When another node was last found at the neighbour's address.
    renewed_at: Instant,
    /// When the last packet came, and after how long without any the neighbour may have forgotten us.
    last_arrival: Instant,
    forgotten_after: Duration,
    /// Largest packet seen. Smaller ones take less time on the wire, and would pass for an emptier queue.
    full_packet: u64,
}

/// Neighbours change no more often than this, or it is not believed.
const MIN_TENURE: Duration = Duration::from_millis(100);

impl Requester {
    /// The Requester towards the neighbour `addr`.
    pub fn new(addr: SocketAddr, config: &Config, rng: &mut Rng) -> Self {
        Self {
            addr,
            arrivals: Arrivals::new(config.reorder_packets, config.reorder_limit),
            rtt: HopRtt::new(config.rtt0),
            controller: controller(config),
            counter: rng.next_u64() as u16,
            explained: 0,
            unreported: 0,
            reported_rate: Rate::ZERO,
            reported_at: Instant::ZERO,
            reported_warm: false,
            gap_deadline: None,
            reorder_time: config.reorder_time,
            renewed_at: Instant::ZERO,
            last_arrival: Instant::ZERO,
            forgotten_after: config.flow_idle,
            full_packet: 0,
        }
    }

    /// The smoothed hopRTT.
    pub fn hop_rtt(&self) -> Duration {
        self.rtt.smoothed()
    }

    /// Whether the hop has been measured.
    pub fn is_measured(&self) -> bool {
        self.rtt.is_measured()
    }

    /// The smallest hopRTT of the last seconds.
    pub fn min_hop_rtt(&self) -> Duration {
        self.rtt.min()
    }

    /// The rate that the hop is granted now.
    pub fn rate(&self) -> Rate {
        self.controller.rate()
    }

    /// Later packets that make a missing one a loss.
    pub fn reorder(&self) -> u32 {
        self.arrivals.reorder()
    }

    /// Packets of this hop missing between two numbers of [`Arrival`].
    pub fn missing_between(&self, after: u64, before: u64) -> u64 {
        self.arrivals.missing_between(after, before)
    }

    /// Holes of a flow account for `explained` more missing packets, and `lost` are counted as lost. Returns how
    /// many of these no hole accounts for.
    pub fn settle(&mut self, explained: u64, lost: u32) -> u32 {
        self.explained += explained;
        let unexplained = self.take_unexplained(lost);
        if !self.arrivals.has_open_gap() {
            // What was missing and still came must not pass for the explanation of a later loss.
            self.explained = 0;
        }
        unexplained
    }

    /// A packet of `wire_bytes` arrived. `backlog` says that its sender was held by its rate.
    pub fn on_packet(
        &mut self,
        now: Instant,
        counter: u16,
        echo: WireTime,
        wire_bytes: u64,
        backlog: bool,
    ) -> Arrival {
        // A neighbour that was not asked for long has forgotten the hop, and counts from anywhere.
        if now.since(self.last_arrival) >= self.forgotten_after {
            self.resume();
        }
        self.last_arrival = now;
        let mut arrival = self.arrivals.on_arrival(counter);
        // While two nodes' last and first packets mix, one change is enough.
        arrival.is_new_neighbour &= now.since(self.renewed_at) > self.rtt.smoothed().max(MIN_TENURE);
        if arrival.is_new_neighbour {
            self.renewed_at = now;
            // Its path may be longer, which must not pass for a queue.
            self.rtt.rebase(Duration::MAX);
        }
        self.unreported += wire_bytes;
        self.full_packet = self.full_packet.max(wire_bytes);
        let is_full = wire_bytes * 10 >= self.full_packet * 9;
        if let Some(hop_rtt) = is_full.then(|| self.rtt.on_echo(now, echo)).flatten() {
            let Arrival { advance, lost, .. } = arrival;
            let delivery = Delivery { now, bytes: wire_bytes, advance, lost, hop_rtt, backlog };
            self.controller.on_delivery(delivery, &mut self.rtt);
        }
        self.gap_deadline = match (self.arrivals.has_open_gap(), self.gap_deadline) {
            (false, _) => None,
            (true, None) => Some(now + self.reorder_time),
            (true, set) => set,
        };
        arrival
    }

    /// When [`Requester::on_timeout`] has something to say.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.gap_deadline
    }

    /// Returns how many packets are lost, by time, that nothing explains.
    pub fn on_timeout(&mut self, now: Instant) -> u32 {
        if self.gap_deadline.is_none_or(|at| at > now) {
            return 0;
        }
        self.gap_deadline = None;
        let lost = self.arrivals.condemn_rest();
        self.take_unexplained(lost)
    }

    /// Whether the neighbour should hear of the rate although nothing is asked of it.
    pub fn feedback_due(&self, now: Instant) -> bool {
        if !self.reported_warm && self.rtt.is_measured() {
            return true;
        }
        if self.unreported < CONTROL_SHARE * CONTROL_BYTES {
            return false;
        }
        let age = now.since(self.reported_at);
        age >= self.rtt.smoothed() || (age >= self.rtt.smoothed().scaled(1, 4) && self.has_rate_changed())
    }

    /// Whether the rate is no longer the one that the neighbour knows.
    fn has_rate_changed(&self) -> bool {
        let (old, new) = (self.reported_rate.as_mbps(), self.rate().as_mbps());
        (new - old).abs() > 0.02 * old
    }

    /// This neighbour is asked again after another one was: what it sent meanwhile, to nobody, was not lost.
    pub fn resume(&mut self) {
        self.arrivals.resume();
        self.explained = 0;
        self.gap_deadline = None;
    }

    /// The control part of an Interest that leaves now; the caller adds what it asks for.
    pub fn stamp(&mut self, now: Instant, flow: FlowId) -> Interest {
        self.counter = self.counter.wrapping_add(1);
        self.unreported = 0;
        self.reported_at = now;
        self.reported_rate = self.rate();
        self.reported_warm = self.rtt.is_measured();
        Interest {
            counter: self.counter,
            cold: !self.reported_warm,
            ..Interest::feedback(flow, WireTime::at(now), self.reported_rate)
        }
    }

    fn take_unexplained(&mut self, lost: u32) -> u32 {
        let explained = self.explained.min(u64::from(lost));
        self.explained -= explained;
        lost - explained as u32
    }
}
