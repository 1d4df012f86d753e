use super::admission::Admission;
use super::answerer::{Answerer, Speaker};
use super::counter::Arrival;
use super::gauge::{Gauge, Measured};
use super::grant::Grant;
use super::hello::Greeting;
use super::loss::{Between, Hop};
use super::missing::{Missing, Passed};
use super::parity::{HopCode, Restored};
use super::path_size::{PathSize, SizeQuestion};
use super::rate::Delivery;
use super::repeats::Repeats;
use super::reports::{Fact, Reports};
use super::subject::Subject;
use super::survey::{Carried, Upstream};
use super::uplinks::Whole;
use super::waits::{HopWaits, Waits};
use crate::config::Config;
use crate::name::FlowId;
use crate::peer::{Face, Peer};
use crate::rng::Rng;
use crate::time::{Duration, Instant, WireTime};
use crate::units::Rate;
use crate::wire::{Interest, Way};

/// The receiving side of a hop, for all flows from one neighbour: measures the hop and grants its rate.
///
/// It routes between the machines of the hop: an arrival goes to [`Missing`] first, which numbers it, then to those that measure
/// ([`Gauge`], [`HopCode`]) and from them to [`Grant`]; an Interest takes its parts from [`Reports`], [`Grant`], [`Gauge`] and
/// [`Admission`].
pub struct Requester {
    /// The neighbour.
    pub face: Face,
    answerer: Answerer,
    admission: Admission,
    missing: Missing,
    gauge: Gauge,
    grant: Grant,
    reports: Reports,
    waits: HopWaits,
    repeats: Repeats,
    /// `None` where the configuration wants none.
    code: Option<HopCode>,
    /// `None` where the configuration wants no probes.
    size: Option<PathSize>,
    carried: Carried,
    /// The last greeting of the neighbour.
    pub(super) greeting: Option<Greeting>,
}

impl Requester {
    /// The Requester towards the neighbour at `face`.
    pub fn new(face: Face, config: &Config, rng: &mut Rng) -> Self {
        let mechanisms = &config.mechanisms;
        let has_probes = mechanisms.size_probes && config.payload <= usize::from(SizeQuestion::MOST);
        Self {
            face,
            answerer: Answerer::default(),
            admission: Admission::new(config),
            missing: Missing::new(config),
            gauge: Gauge::new(config.rtt0, mechanisms.one_way),
            grant: Grant::new(config),
            reports: Reports::new(rng.next_u64() as u16),
            waits: HopWaits::default(),
            repeats: Repeats::default(),
            code: (mechanisms.parity && !config.per_flow_control).then(HopCode::default),
            size: has_probes.then(|| PathSize::new(config.payload)),
            carried: Carried::default(),
            greeting: None,
        }
    }

    /// The smoothed hopRTT.
    pub fn hop_rtt(&self) -> Duration {
        self.gauge.rtt().smoothed()
    }

    /// Whether the hop has been measured.
    pub fn is_measured(&self) -> bool {
        self.gauge.rtt().is_measured()
    }

    /// The smallest hopRTT of the last seconds.
    pub fn min_hop_rtt(&self) -> Duration {
        self.gauge.rtt().min()
    }

    /// The bytes of an arrived packet had waited for their turn since they were asked for.
    pub fn note_waited(&mut self, now: Instant, waited: Duration) {
        self.waits.on_packet(now, waited);
    }

    /// … and so long at the front of their flow's line.
    pub fn note_turn(&mut self, now: Instant, waited: Duration) {
        self.waits.on_turn(now, waited);
    }

    /// The longest waits of the packets of the last moments, of whatever flow.
    pub fn waits(&self, now: Instant) -> Waits {
        self.waits.longest(now)
    }

    /// By how much arrivals lag behind their mean for a moment.
    pub fn noise(&self) -> Duration {
        self.grant.noise()
    }

    /// The rate that the hop is granted now.
    pub fn rate(&self) -> Rate {
        self.grant.rate()
    }

    /// This node has no room for more than `limit`.
    pub fn limit_to_room(&mut self, limit: Rate) {
        self.grant.limit_to_room(limit);
    }

    /// Bytes on the wire that the hop has brought since the last call.
    pub fn take_brought(&mut self) -> u64 {
        self.grant.take_brought()
    }

    /// The neighbour knows of less than half of the rate that holds now.
    pub fn is_held_back(&self) -> bool {
        self.reports.holds_back(self.rate())
    }

    /// Later packets that make a missing one a loss.
    pub fn reorder(&self) -> u32 {
        self.missing.reorder()
    }

    /// Holes of a flow account for `explained` more missing packets, and `lost` are counted as lost. Returns how
    /// many of these no hole accounts for.
    pub fn settle(&mut self, explained: u64, lost: u32) -> u32 {
        self.missing.settle(explained, lost)
    }

    /// Send time of the Interest that a packet with `echo` answers, plus the time since the neighbour had it;
    /// `None` if the packet answers none of ours.
    pub fn answered(&self, now: Instant, echo: WireTime) -> Option<Instant> {
        self.gauge.read(now, echo)
    }

    /// The neighbour wants `token` in every Interest. True if the token is new.
    pub fn prove(&mut self, token: u32) -> bool {
        let is_new = self.admission.prove(token);
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
            self.gauge.forget();
            self.grant.on_new_path();
            self.size.iter_mut().for_each(PathSize::on_new_path);
        }
        speaker
    }

    /// A packet of `wire_bytes` of the present answerer arrived. `answered` is the result of
    /// [`Requester::answered`] for it, and the way of the Interest; `backlog` says that its sender was held by its rate.
    pub fn on_packet(
        &mut self,
        now: Instant,
        counter: u16,
        answered: Option<(Instant, Way)>,
        wire_bytes: u64,
        backlog: bool,
    ) -> Arrival {
        if self.missing.is_forgotten(now) {
            self.resume();
        }
        let arrival = self.missing.on_arrival(now, counter);
        self.reports.on_brought(wire_bytes);
        self.grant.on_brought(wire_bytes);
        self.carried.packets += 1;
        self.carried.bytes += wire_bytes;
        self.carried.lost += u64::from(arrival.lost);
        self.carried.lost -= u64::from(arrival.is_found).min(self.carried.lost);
        if let Some(code) = &mut self.code {
            code.on_arrival(now, &arrival);
        }
        if let Some(Measured { hop_rtt, is_new_way }) = self.gauge.on_packet(now, wire_bytes, answered) {
            if is_new_way {
                self.grant.on_new_path();
            }
            let (sent, Passed { packets: passed, lost, runs }) = self.missing.take_sent(now, &arrival);
            self.on_delivery(Delivery { now, bytes: wire_bytes, passed, lost, runs, sent, hop_rtt, backlog });
        }
        self.missing.learn(now, &arrival, self.hop_rtt());
        arrival
    }

    /// A full packet was measured.
    fn on_delivery(&mut self, delivery: Delivery) {
        let rtt = self.gauge.rtt();
        if let Some(code) = &mut self.code {
            code.on_queue(delivery.hop_rtt.saturating_sub(rtt.floor()), rtt.min());
        }
        if let Some(base) = self.grant.on_delivery(delivery, rtt) {
            self.gauge.rebase(base);
        }
    }

    /// Time after which a missing packet is lost even if nothing follows.
    pub fn reorder_time(&self, now: Instant) -> Duration {
        self.missing.reorder_time(now, self.hop_rtt())
    }

    /// A packet with a payload of `len` bytes came.
    #[inline]
    pub fn on_length(&mut self, now: Instant, len: u64) {
        if len > 0 {
            self.repeats.on_data(now);
        }
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
        let rtt = self.is_measured().then(|| self.hop_rtt());
        self.size.as_mut().and_then(|size| size.poll(now, rtt))
    }

    /// Time of the next [`Requester::on_timeout`].
    pub fn next_timeout(&self) -> Option<Instant> {
        self.missing.next_timeout()
    }

    /// Returns the number of packets that are lost, by time, and that nothing explains.
    pub fn on_timeout(&mut self, now: Instant) -> u32 {
        let Some(overdue) = self.missing.on_timeout(now, self.hop_rtt()) else { return 0 };
        self.carried.lost += u64::from(overdue.lost);
        if overdue.lost > 0 {
            self.doubt_size(now);
        }
        if let Some(code) = &mut self.code {
            code.on_lost(now, overdue.lost);
        }
        overdue.unexplained
    }

    /// Gives packet `number` to the hop's code, if there is one.
    pub fn feed_code(&mut self, now: Instant, number: u64, packet: Whole<'_>) {
        self.carried.parity += u64::from(matches!(packet, Whole::Parity(..)));
        let Some(code) = &mut self.code else { return };
        match packet {
            Whole::Data(header, payload) => code.on_data(number, header, payload),
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
        let hop = (self.hop_rtt(), self.rate(), self.gauge.full_packet());
        if let Some(code) = &mut self.code {
            code.review(now, hop, may_begin);
        }
    }

    /// Time for which parity may still repair a packet that is missing now.
    pub fn patience(&self, now: Instant) -> Duration {
        self.code.as_ref().map_or(Duration::ZERO, |code| {
            code.patience(now, self.hop_rtt(), self.rate(), self.gauge.full_packet())
        })
    }

    /// A packet that parity restored. It counts as the loss that it was.
    pub fn poll_restored(&mut self, now: Instant) -> Option<Restored> {
        let code = self.code.as_mut()?;
        let restored = code.poll()?;
        self.carried.restored += 1;
        if self.missing.fill(restored.number) {
            self.carried.lost += 1;
            code.on_lost(now, 1);
        }
        Some(restored)
    }

    /// Whether the neighbour should be sent the rate although nothing is asked of it.
    pub fn feedback_due(&self, now: Instant) -> bool {
        self.reports.is_due(now, self.hop_rtt(), || self.fact())
    }

    /// The link has just shown that it has room for the granted rate.
    pub fn has_shown_room(&self, now: Instant) -> bool {
        self.grant.has_shown_room(now)
    }

    /// The facts that an Interest would report now.
    fn fact(&self) -> Fact {
        Fact { rate: self.rate(), is_warm: self.is_measured() && self.grant.is_ready() }
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
            last_heard: since(self.missing.last_arrival()).max(self.greeting.map(|greeting| greeting.at)),
            last_asked: since(self.reports.last_at()),
            payload: self.size.as_ref().and_then(PathSize::known),
            greeting: self.greeting,
            policed: self.grant.policed(),
        }
    }

    /// This neighbour is asked again after another one was: packets that it sent meanwhile to no receiver were not
    /// lost.
    pub fn resume(&mut self) {
        self.missing.resume();
        if let Some(code) = &mut self.code {
            code.clear();
        }
    }

    /// The control part of an Interest that leaves now; the caller adds the ranges.
    pub fn stamp(&mut self, now: Instant, flow: FlowId, subject: Subject) -> Interest {
        let is_question = matches!(subject, Subject::PathSize(_));
        self.size.iter_mut().filter(|_| !is_question).for_each(|size| size.on_asked(now));
        let fact = self.fact();
        let counter = self.reports.on_interest(now, fact);
        self.grant.on_told(now, self.hop_rtt());
        let is_request = subject == Subject::Flow;
        Interest {
            counter,
            cold: !fact.is_warm,
            chirps: fact.is_warm && self.grant.wants_chirps(),
            token: self.admission.token(),
            padding: if is_request { self.admission.on_request(self.grant.is_ready()) } else { 0 },
            code: self.code.as_ref().and_then(HopCode::plan),
            ..Interest::feedback(flow, self.gauge.stamp(now), fact.rate)
        }
    }
}

impl Hop for Requester {
    fn missing(&self, between: Between) -> u64 {
        self.missing.between(between.after, between.before)
    }

    fn may_repeat(&mut self, now: Instant) -> bool {
        let hop_rtt = self.hop_rtt();
        self.repeats.take(now, hop_rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::rtt::HeldStamp;
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
            let echo = HeldStamp::new(at(asked + rtt / 2), interest.sent).echo(at(asked + rtt / 2));
            let now = at(asked + rtt);
            let answered = requester.answered(now, echo.time);
            requester.hear(now, &node(boot), answered);
            requester.on_packet(now, 7 + 20_000 * boot as u16, answered.zip(Some(echo.way)), 1400, false);
            assert_eq!(requester.min_hop_rtt(), Duration::from_millis(rtt));
        }
    }

    #[test]
    fn the_longer_time_of_full_packets_on_the_wire_is_no_queue() {
        let (mut requester, flow) = (requester(), FlowId([1; 16]));
        let interest = requester.stamp(at(0), flow, Subject::Flow);
        // Two signs of life of 90 bytes, then two full packets, which take 5 ms longer on a link of 2.2 Mbit/s.
        for (millis, bytes, rtt) in [(250, 90, 40), (500, 90, 40), (750, 1400, 45), (1000, 1400, 45)] {
            let echo = HeldStamp::new(at(20), interest.sent).echo(at(millis - 20));
            let now = at(millis + rtt - 40);
            let answered = requester.answered(now, echo.time);
            requester.on_packet(now, millis as u16 / 250, answered.zip(Some(echo.way)), bytes, false);
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
