use super::counter::{Arrival, Arrivals, MAX_JUMP};
use super::rate::{Delivery, RateController, controller};
use super::rtt::{HopRtt, StampClock};
use super::survey::{Carried, Upstream};
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
    clock: StampClock,
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
    carried: Carried,
}

/// What a neighbour may send beyond its rate before it is taken for another one.
const SENDING_MARGIN: f64 = 4.0;
const FEW_PACKETS: u16 = 64;

/// Neighbours change no more often than this, or it is not believed.
const MIN_TENURE: Duration = Duration::from_millis(100);

impl Requester {
    /// The Requester towards the neighbour `addr`.
    pub fn new(addr: SocketAddr, config: &Config, rng: &mut Rng) -> Self {
        Self {
            addr,
            arrivals: Arrivals::new(config.reorder_packets, config.reorder_limit),
            clock: StampClock::new(rng),
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
            carried: Carried::default(),
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

    /// When the Interest left that a packet with `echo` answers, plus the time since the neighbour had it; `None`
    /// when it answers none of ours.
    pub fn answered(&self, now: Instant, echo: WireTime) -> Option<Instant> {
        self.clock.read(now, echo)
    }

    /// A packet of `wire_bytes` arrived. `answered` is what [`Requester::answered`] says of it; `backlog` says that
    /// its sender was held by its rate.
    pub fn on_packet(
        &mut self,
        now: Instant,
        counter: u16,
        answered: Option<Instant>,
        wire_bytes: u64,
        backlog: bool,
    ) -> Arrival {
        // A neighbour that was not asked for long has forgotten the hop, and counts from anywhere.
        if now.since(self.last_arrival) >= self.forgotten_after {
            self.resume();
        }
        let is_jump = self.arrivals.ahead(counter) > FEW_PACKETS as i16;
        let sendable = if is_jump { self.sendable_since(now) } else { FEW_PACKETS };
        let mut arrival = self.arrivals.on_arrival(counter, sendable);
        self.last_arrival = now;
        // While two nodes' last and first packets mix, one change is enough.
        arrival.is_new_neighbour &= now.since(self.renewed_at) > self.rtt.smoothed().max(MIN_TENURE);
        if arrival.is_new_neighbour {
            self.renewed_at = now;
            // Its path may be longer, which must not pass for a queue.
            self.rtt.rebase(Duration::MAX);
        }
        self.unreported += wire_bytes;
        self.carried.packets += 1;
        self.carried.bytes += wire_bytes;
        self.carried.lost += u64::from(arrival.lost);
        self.full_packet = self.full_packet.max(wire_bytes);
        let is_full = wire_bytes * 10 >= self.full_packet * 9;
        if let Some(answered) = answered.filter(|_| is_full) {
            let hop_rtt = self.rtt.on_echo(now, answered);
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

    /// Packets that the neighbour can have sent since the last arrival: [`SENDING_MARGIN`] times what it may, for grants
    /// that it has not heard of and packets that are not full, and a few.
    fn sendable_since(&self, now: Instant) -> u16 {
        let seconds = now.since(self.last_arrival).as_secs_f64();
        let granted = self.rate().max(self.reported_rate).as_bps() as f64 * seconds;
        let packets = SENDING_MARGIN * granted / (8.0 * self.full_packet.max(1) as f64);
        packets.min(f64::from(MAX_JUMP - FEW_PACKETS)) as u16 + FEW_PACKETS
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
        self.carried.lost += u64::from(lost);
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

    /// The hop's state, for the operator.
    pub fn survey(&self) -> Upstream {
        let since = |at: Instant| (at > Instant::ZERO).then_some(at);
        Upstream {
            addr: self.addr,
            rtt: self.is_measured().then(|| (self.hop_rtt(), self.min_hop_rtt())),
            rate: self.rate(),
            carried: self.carried,
            last_heard: since(self.last_arrival),
            last_asked: since(self.reported_at),
        }
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
            ..Interest::feedback(flow, self.clock.stamp(now), self.reported_rate)
        }
    }

    fn take_unexplained(&mut self, lost: u32) -> u32 {
        let explained = self.explained.min(u64::from(lost));
        self.explained -= explained;
        lost - explained as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::rtt::Echo;

    #[test]
    fn what_answers_another_nodes_interest_is_not_measured() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let addr = SocketAddr::from(([10, 0, 0, 1], 9));
        let mut rng = Rng::new(5);
        let mut requester = || Requester::new(addr, &Config::default(), &mut rng);
        let (mut gone, mut new) = (requester(), requester());
        let flow = FlowId([1; 16]);
        let (last, first) = (gone.stamp(at(5), flow), new.stamp(at(10), flow));
        // The neighbour has heard the old node last, and then the new one.
        for (interest, heard, is_own) in [(last, at(10), false), (first, at(30), true)] {
            let echo = Echo::new(heard, interest.sent).at(at(32));
            let answered = new.answered(at(52), echo);
            new.on_packet(at(52), 7, answered, 1400, false);
            assert_eq!(new.is_measured(), is_own);
        }
        assert_eq!(new.min_hop_rtt(), Duration::from_millis(40));
    }
}
