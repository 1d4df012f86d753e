use super::answerer::{Answerer, Speaker};
use super::counter::{Arrival, Arrivals};
use super::hello::Greeting;
use super::lateness::Lateness;
use super::parity::{HopCode, Restored};
use super::path_size::{PathSize, SizeQuestion};
use super::rate::{Delivery, RateController, controller};
use super::rtt::{HopRtt, StampClock};
use super::subject::Subject;
use super::survey::{Carried, Upstream};
use super::uplinks::Whole;
use super::waits::Waits;
use crate::config::Config;
use crate::name::FlowId;
use crate::peer::{Face, Peer};
use crate::rng::Rng;
use crate::time::{Duration, Instant, WireTime};
use crate::units::Rate;
use crate::wire::{DataHeader, Interest};
use alloc::boxed::Box;

/// Control packets take at most this share of the bytes that they control: one byte in 128.
const CONTROL_SHARE: u64 = 128;
/// An Interest on the wire with IPv4 and UDP, roughly.
const CONTROL_BYTES: u64 = 64;

/// Packets that are missing: below `end`, and lost at `deadline` even if nothing follows. Those above it have time after that.
#[derive(Clone, Copy, Debug)]
struct Gap {
    end: u64,
    deadline: Instant,
}

/// The receiving side of a hop, for all flows from one neighbour: measures the hop and grants its rate.
pub struct Requester {
    /// The neighbour.
    pub face: Face,
    answerer: Answerer,
    /// The neighbour's proof that this node receives at its address.
    token: Option<u32>,
    arrivals: Arrivals,
    clock: StampClock,
    rtt: HopRtt,
    /// `None` where the configuration wants none.
    code: Option<HopCode>,
    controller: Box<dyn RateController + Send>,
    /// The operator's bound of the rate.
    rate_limit: Rate,
    /// The bound for want of room at this node, and the time until which packets may come that were sent under one.
    room_limit: Rate,
    room_limits_until: Instant,
    /// Bytes that the hop had brought when [`Requester::take_brought`] was called last.
    brought_before: u64,
    counter: u16,
    /// Missing packets that holes of flows account for.
    explained: u64,
    /// Bytes received since the last Interest.
    unreported: u64,
    reported_rate: Rate,
    reported_at: Instant,
    reported_warm: bool,
    /// Padding of the first request.
    padding: u16,
    gap: Option<Gap>,
    reorder_time: Duration,
    /// `None` where the configuration says how late packets may be.
    lateness: Option<Lateness>,
    last_arrival: Instant,
    /// After this long without a packet the neighbour has forgotten the hop, and counts from anywhere.
    forgotten_after: Duration,
    /// Largest packet seen. Smaller ones take less time on the wire, and would look like an emptier queue.
    full_packet: u64,
    carried: Carried,
    /// Packets that came, or count as lost, since the controller was told.
    accounted: u32,
    waits: Waits,
    /// `None` where the configuration wants no probes.
    size: Option<PathSize>,
    /// The last greeting of the neighbour.
    pub(super) greeting: Option<Greeting>,
}

/// A neighbour that does not know this node sends at most three bytes for each that came (RFC 9000, section 8): as much as it needs
/// for two packets, whose spacing tells how fast the link is before the neighbour may send many.
fn padding(config: &Config) -> u16 {
    let packet = config.payload as u64 + DataHeader::MAX_USUAL_LEN + config.seal_overhead();
    u16::try_from((2 * packet).div_ceil(3)).unwrap_or(u16::MAX)
}

impl Requester {
    /// The Requester towards the neighbour at `face`.
    pub fn new(face: Face, config: &Config, rng: &mut Rng) -> Self {
        Self {
            face,
            answerer: Answerer::default(),
            token: None,
            arrivals: Arrivals::new(config.reorder_packets, config.reorder_limit),
            clock: StampClock::default(),
            rtt: HopRtt::new(config.rtt0),
            code: (config.mechanisms.parity && !config.per_flow_control).then(HopCode::default),
            controller: controller(config),
            rate_limit: config.rate_limit,
            room_limit: Rate::UNLIMITED,
            room_limits_until: Instant::ZERO,
            brought_before: 0,
            counter: rng.next_u64() as u16,
            explained: 0,
            unreported: 0,
            reported_rate: Rate::ZERO,
            reported_at: Instant::ZERO,
            reported_warm: false,
            padding: padding(config),
            gap: None,
            reorder_time: config.reorder_time,
            lateness: (config.reorder_limit > config.reorder_packets).then(Lateness::default),
            last_arrival: Instant::ZERO,
            forgotten_after: config.flow_idle,
            full_packet: 0,
            carried: Carried::default(),
            accounted: 0,
            waits: Waits::default(),
            size: (config.mechanisms.size_probes && config.payload <= usize::from(SizeQuestion::MOST))
                .then(|| PathSize::new(config.payload)),
            greeting: None,
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

    /// The bytes of an arrived packet had waited for their turn since they were asked for.
    pub fn note_waited(&mut self, now: Instant, waited: Duration) {
        self.waits.on_packet(now, waited);
    }

    /// The longest wait of the packets of the last moments, of whatever flow.
    pub fn waited(&self) -> Duration {
        self.waits.longest()
    }

    /// By how much arrivals lag behind their mean for a moment.
    pub fn noise(&self) -> Duration {
        self.controller.noise()
    }

    /// The rate that the hop is granted now.
    pub fn rate(&self) -> Rate {
        self.controller.rate().min(self.rate_limit).min(self.room_limit)
    }

    /// This node has no room for more than `limit`.
    pub fn limit_to_room(&mut self, limit: Rate) {
        self.room_limit = limit;
    }

    /// Bytes on the wire that the hop has brought since the last call.
    pub fn take_brought(&mut self) -> u64 {
        let before = core::mem::replace(&mut self.brought_before, self.carried.bytes);
        self.carried.bytes - before
    }

    /// The neighbour knows of less than half of the rate that holds now.
    pub fn is_held_back(&self) -> bool {
        self.reported_rate.as_bps() < self.rate().as_bps() / 2
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
            // Missing packets that still arrived must not explain a later loss.
            self.explained = 0;
        }
        unexplained
    }

    /// Send time of the Interest that a packet with `echo` answers, plus the time since the neighbour had it;
    /// `None` if the packet answers none of ours.
    pub fn answered(&self, now: Instant, echo: WireTime) -> Option<Instant> {
        self.clock.read(now, echo)
    }

    /// The neighbour wants `token` in every Interest. True if the token is new.
    pub fn prove(&mut self, token: u32) -> bool {
        let is_new = self.token.replace(token) != Some(token);
        if is_new {
            // The neighbour may have forgotten the hop between two packets until now.
            self.resume();
        }
        is_new
    }

    /// Tells whether a packet of `peer` comes from the present answerer. `answered` is the result of
    /// [`Requester::answered`] for it.
    pub fn hear(&mut self, now: Instant, peer: &Peer, answered: Option<Instant>) -> Speaker {
        let speaker = self.answerer.hear(now, peer, answered);
        if speaker == Speaker::New {
            self.resume();
            // Its path may be longer, which must not look like a queue.
            self.rtt.rebase(Duration::MAX);
            self.controller.on_new_path();
            self.size.iter_mut().for_each(PathSize::on_new_path);
        }
        speaker
    }

    /// A packet of `wire_bytes` of the present answerer arrived. `answered` is the result of
    /// [`Requester::answered`] for it; `backlog` says that its sender was held by its rate.
    pub fn on_packet(
        &mut self,
        now: Instant,
        counter: u16,
        answered: Option<Instant>,
        wire_bytes: u64,
        backlog: bool,
    ) -> Arrival {
        if now.since(self.last_arrival) >= self.forgotten_after {
            self.resume();
        }
        let arrival = self.arrivals.on_arrival(counter);
        self.last_arrival = now;
        self.unreported += wire_bytes;
        self.carried.packets += 1;
        self.carried.bytes += wire_bytes;
        self.carried.lost += u64::from(arrival.lost);
        self.accounted += u32::from(!arrival.is_duplicate) + arrival.lost;
        if let Some(code) = &mut self.code {
            code.on_arrival(now, &arrival);
        }
        if wire_bytes * 9 > self.full_packet * 10 {
            // The packets so far were short: the longer time of this one on the wire must not look like a queue.
            self.rtt.rebase(Duration::MAX);
        }
        self.full_packet = self.full_packet.max(wire_bytes);
        let is_full = wire_bytes * 10 >= self.full_packet * 9;
        if let Some(answered) = answered.filter(|_| is_full) {
            let hop_rtt = self.rtt.on_echo(now, answered);
            if let Some(code) = &mut self.code {
                code.on_queue(hop_rtt.saturating_sub(self.rtt.min()), self.rtt.min());
            }
            let (lost, sent) = (arrival.lost, self.sent(now, &arrival));
            // A sender that is held for want of room here shows nothing about the link.
            let backlog = backlog && now >= self.room_limits_until;
            let delivery = Delivery { now, bytes: wire_bytes, sent, lost, hop_rtt, backlog };
            if let Some(base) = self.controller.on_delivery(delivery, &self.rtt) {
                self.rtt.rebase(base);
            }
        }
        self.learn_lateness(now, &arrival);
        let is_open = |gap: &Gap| self.arrivals.has_open_gap_below(gap.end);
        self.gap = self.gap.filter(is_open).or_else(|| self.open_gap(now));
        arrival
    }

    /// Packets that left the neighbour, as far as is known since the arrival before. Its counter says so at once; but where
    /// packets overtake each other it jumps, and what came and what counts as lost says so later and more evenly.
    fn sent(&mut self, now: Instant, arrival: &Arrival) -> u32 {
        let accounted = core::mem::take(&mut self.accounted);
        if self.is_reordered(now) { accounted } else { arrival.advance }
    }

    /// Packets of the hop have overtaken each other lately.
    fn is_reordered(&self, now: Instant) -> bool {
        self.lateness.as_ref().is_some_and(|lateness| !lateness.expected(now).is_zero())
    }

    fn learn_lateness(&mut self, now: Instant, arrival: &Arrival) {
        let Some(lateness) = &mut self.lateness else { return };
        match arrival.advance {
            0 if !arrival.is_duplicate => lateness.on_straggler(now, arrival.number),
            0 => {}
            _ => lateness.on_newest(now, arrival.number),
        }
        if !self.is_reordered(now) {
            self.arrivals.forget_reordering();
        }
    }

    /// Time after which a missing packet is lost even if nothing follows: the lateness of others, within a round trip.
    pub fn reorder_time(&self, now: Instant) -> Duration {
        let late = self.lateness.as_ref().map_or(Duration::ZERO, |lateness| lateness.expected(now));
        late.min(self.rtt.smoothed()).max(self.reorder_time)
    }

    /// The gap of the packets that are missing now.
    fn open_gap(&self, now: Instant) -> Option<Gap> {
        let gap = || Gap { end: self.arrivals.next(), deadline: now + self.reorder_time(now) };
        self.arrivals.has_open_gap().then(gap)
    }

    /// A packet with a payload of `len` bytes came.
    #[inline]
    pub fn on_length(&mut self, now: Instant, len: u64) {
        if let Some(size) = &mut self.size {
            size.on_packet(now, len);
        }
    }

    /// Packets were lost: the path may carry shorter ones only.
    pub fn doubt_size(&mut self, now: Instant) {
        self.size.iter_mut().for_each(|size| size.on_lost(now));
    }

    /// The probe that `question` asked for came.
    pub fn on_probe(&mut self, now: Instant, question: SizeQuestion) {
        self.size.iter_mut().for_each(|size| size.on_answer(now, question));
    }

    /// Time of the next [`Requester::poll_size`].
    #[inline]
    pub fn size_due(&self) -> Option<Instant> {
        self.size.as_ref().and_then(|size| size.due().if_ever())
    }

    /// The question about the length of packets that is due.
    pub fn poll_size(&mut self, now: Instant) -> Option<SizeQuestion> {
        let rtt = self.rtt.is_measured().then(|| self.rtt.smoothed());
        self.size.as_mut().and_then(|size| size.poll(now, rtt))
    }

    /// Time of the next [`Requester::on_timeout`].
    pub fn next_timeout(&self) -> Option<Instant> {
        self.gap.map(|gap| gap.deadline)
    }

    /// Returns the number of packets that are lost, by time, and that nothing explains.
    pub fn on_timeout(&mut self, now: Instant) -> u32 {
        let Some(gap) = self.gap.filter(|gap| gap.deadline <= now) else { return 0 };
        let lost = self.arrivals.condemn_below(gap.end);
        self.gap = self.open_gap(now);
        self.carried.lost += u64::from(lost);
        self.accounted += lost;
        if lost > 0 {
            self.doubt_size(now);
        }
        if let Some(code) = &mut self.code {
            code.on_lost(now, lost);
        }
        self.take_unexplained(lost)
    }

    /// Gives packet `number` to the hop's code, if there is one.
    pub fn feed_code(&mut self, now: Instant, number: u64, packet: Whole<'_>) {
        self.carried.parity += u64::from(matches!(packet, Whole::Parity(..)));
        let Some(code) = &mut self.code else { return };
        match packet {
            Whole::Data(header, payload) => code.on_data(number, &header, payload),
            Whole::Parity(header, sum) => code.on_parity(now, number, &header, sum),
            Whole::Other => code.on_other(number),
        }
    }

    /// Whether parity is asked for.
    pub fn is_coded(&self) -> bool {
        self.code.as_ref().is_some_and(|code| code.plan().is_some())
    }

    /// Whether it is time to think about parity again.
    pub fn is_review_due(&self, now: Instant) -> bool {
        self.code.as_ref().is_some_and(|code| code.is_review_due(now)) && self.is_measured()
    }

    /// Reviews the parity; `may_begin` says whether there is room for one more hop with it.
    pub fn review_code(&mut self, now: Instant, may_begin: bool) {
        let hop = (self.rtt.smoothed(), self.rate(), self.full_packet);
        if let Some(code) = &mut self.code {
            code.review(now, hop, may_begin);
        }
    }

    /// Time for which parity may still repair a packet that is missing now.
    pub fn patience(&self, now: Instant) -> Duration {
        let code = self.code.as_ref();
        code.map_or(Duration::ZERO, |code| {
            code.patience(now, self.rtt.smoothed(), self.rate(), self.full_packet)
        })
    }

    /// A packet that parity restored. It counts as the loss that it was.
    pub fn poll_restored(&mut self, now: Instant) -> Option<Restored> {
        let code = self.code.as_mut()?;
        let restored = code.poll()?;
        self.carried.restored += 1;
        if self.arrivals.fill(restored.number) {
            self.carried.lost += 1;
            self.accounted += 1;
            code.on_lost(now, 1);
        }
        Some(restored)
    }

    /// Whether the neighbour should be sent the rate although nothing is asked of it.
    pub fn feedback_due(&self, now: Instant) -> bool {
        if !self.reported_warm && self.is_warm() {
            return true;
        }
        if self.unreported < CONTROL_SHARE * CONTROL_BYTES {
            return false;
        }
        let age = now.since(self.reported_at);
        age >= self.rtt.smoothed() || (age >= self.rtt.smoothed().scaled(1, 4) && self.has_rate_changed())
    }

    /// The hop has been measured, and the neighbour may be told its rate.
    fn is_warm(&self) -> bool {
        self.rtt.is_measured() && self.controller.is_ready()
    }

    /// Whether the rate is no longer the one that the neighbour knows.
    fn has_rate_changed(&self) -> bool {
        let (old, new) = (self.reported_rate.as_mbps(), self.rate().as_mbps());
        (new - old).abs() > 0.02 * old
    }

    /// The hop's state, for the operator.
    pub fn survey(&self) -> Upstream {
        let since = |at: Instant| (at > Instant::ZERO).then_some(at);
        let greeted = self.greeting.and_then(|greeting| greeting.rtt).map(|rtt| (rtt, rtt));
        Upstream {
            addr: self.face.remote,
            rtt: self.is_measured().then(|| (self.hop_rtt(), self.min_hop_rtt())).or(greeted),
            rate: self.rate(),
            carried: self.carried,
            last_heard: since(self.last_arrival).max(self.greeting.map(|greeting| greeting.at)),
            last_asked: since(self.reported_at),
            payload: self.size.as_ref().and_then(PathSize::known),
            greeting: self.greeting,
            policed: self.controller.policed(),
        }
    }

    /// This neighbour is asked again after another one was: packets that it sent meanwhile to no receiver were not
    /// lost.
    pub fn resume(&mut self) {
        self.arrivals.resume();
        if let Some(code) = &mut self.code {
            code.clear();
        }
        self.explained = 0;
        self.gap = None;
        self.lateness.iter_mut().for_each(Lateness::restart);
    }

    /// The control part of an Interest that leaves now; the caller adds the ranges.
    pub fn stamp(&mut self, now: Instant, flow: FlowId, subject: Subject) -> Interest {
        let is_question = matches!(subject, Subject::PathSize(_));
        self.counter = self.counter.wrapping_add(1);
        self.size.iter_mut().filter(|_| !is_question).for_each(|size| size.on_asked(now));
        self.unreported = 0;
        self.reported_at = now;
        self.reported_rate = self.rate();
        if self.reported_rate == self.room_limit && !self.room_limit.is_unlimited() {
            self.room_limits_until = now + self.rtt.smoothed().scaled(2, 1);
        }
        self.reported_warm = self.is_warm();
        let is_first = subject == Subject::Flow && self.padding > 0;
        let padding = if is_first { core::mem::take(&mut self.padding) } else { 0 };
        Interest {
            counter: self.counter,
            cold: !self.reported_warm,
            token: self.token,
            padding: if self.token.is_none() && !self.controller.is_ready() { padding } else { 0 },
            code: self.code.as_ref().and_then(HopCode::plan),
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
    use crate::peer::{Incarnation, Member};
    use core::net::SocketAddr;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn requester() -> Requester {
        let face = SocketAddr::from(([10, 0, 0, 1], 9)).into();
        Requester::new(face, &Config::default(), &mut Rng::new(5))
    }

    fn node(boot: u64) -> Peer {
        let face = SocketAddr::from(([10, 0, 0, 1], 9)).into();
        let incarnation = Incarnation { boot, link: 1 };
        Peer { face, incarnation, asker: Incarnation::default(), member: Member::default() }
    }

    #[test]
    fn the_path_of_a_new_answerer_is_measured_anew() {
        let (mut requester, flow) = (requester(), FlowId([1; 16]));
        // A near node answers, and from 1 s on a far one.
        for (asked, boot, rtt) in [(10, 1, 20), (1000, 2, 80)] {
            let interest = requester.stamp(at(asked), flow, Subject::Flow);
            let echo = Echo::new(at(asked + rtt / 2), interest.sent).at(at(asked + rtt / 2));
            let now = at(asked + rtt);
            let answered = requester.answered(now, echo);
            requester.hear(now, &node(boot), answered);
            requester.on_packet(now, 7 + 20_000 * boot as u16, answered, 1400, false);
            assert_eq!(requester.min_hop_rtt(), Duration::from_millis(rtt));
        }
    }

    #[test]
    fn the_longer_time_of_full_packets_on_the_wire_is_no_queue() {
        let (mut requester, flow) = (requester(), FlowId([1; 16]));
        let interest = requester.stamp(at(0), flow, Subject::Flow);
        // Two signs of life of 90 bytes, then two full packets, which take 5 ms longer on a link of 2.2 Mbit/s.
        for (millis, bytes, rtt) in [(250, 90, 40), (500, 90, 40), (750, 1400, 45), (1000, 1400, 45)] {
            let echo = Echo::new(at(20), interest.sent).at(at(millis - 20));
            let now = at(millis + rtt - 40);
            let answered = requester.answered(now, echo);
            requester.on_packet(now, millis as u16 / 250, answered, bytes, false);
            assert_eq!(requester.min_hop_rtt(), Duration::from_millis(rtt), "{bytes} bytes");
        }
    }

    #[test]
    fn a_token_stands_in_every_interest_from_then_on() {
        let (mut requester, flow) = (requester(), FlowId([1; 16]));
        assert_eq!(requester.stamp(at(1), flow, Subject::Flow).token, None);
        assert!(requester.prove(77) && !requester.prove(77));
        assert_eq!(requester.stamp(at(2), flow, Subject::Flow).token, Some(77));
    }
}
