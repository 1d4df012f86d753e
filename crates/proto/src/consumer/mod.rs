//! The Consumer: asks for flows, writes arriving bytes into a [`Sink`] each, and times out as the last resort.
//!
//! All flows of a Consumer share its hops: one estimate, one counter and one rate per neighbour.

mod ahead;
mod congestion;
mod flow;
mod live;
mod neighbours;
mod opening;
mod path_time;
mod rounds;
mod rto;
mod share;
mod silence;
mod stats;
mod timeouts;
mod window;

use crate::config::Config;
use crate::hop::parity::Restored;
use crate::hop::{
    Agenda, Control, Heard, Outbox, Received, Request as HopRequest, Requester, Subject, Uplinks,
    emit_interest,
};
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::node::{Node, Transmit};
use crate::peer::{Face, Opened, Peer};
use crate::rng::Rng;
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{DataHeader, News, NotNow, Notice, Packet, ParityHeader, Plain, Suite};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
pub use flow::Flow;
use live::LiveWindow;
pub use live::Window;
use neighbours::Neighbours;
use opening::Beginning;
use share::Offer;
pub use stats::{ConsumerStats, FlowStats};

/// Destination of received bytes: a file, a reassembly buffer, a recorder.
pub trait Sink {
    /// Takes bytes that were not received before. Called in order of arrival, not of offset.
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]);
}

/// A flow for a Consumer to fetch.
#[derive(Clone, Debug)]
pub struct Request {
    /// The flow.
    pub flow: FlowId,
    /// The neighbour to ask.
    pub upstream: SocketAddr,
    /// The length, where it is known beforehand.
    pub length: Option<u64>,
    /// Bytes that the application has already.
    pub have: RangeSet,
}

/// An event for the Consumer's application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsumerEvent {
    /// Every byte up to the end arrived.
    Finished {
        /// The flow.
        flow: FlowId,
        /// Its length.
        length: u64,
    },
    /// The Producer has no such flow.
    NoSuchName {
        /// The flow.
        flow: FlowId,
    },
    /// A node on the way has no room for it, and is asked again after the time that it named.
    PutOff {
        /// The flow.
        flow: FlowId,
        /// The limit of the node, and the time.
        not_now: NotNow,
    },
    /// A timeout passed without an answer; this is the `count`th in a row.
    TimedOut {
        /// The flow.
        flow: FlowId,
        /// Timeouts since its last new byte.
        count: u32,
    },
}

/// Fetches any number of flows.
pub struct Consumer<S, C = Plain> {
    suite: C,
    flows: Table<FlowId, Flow<S>>,
    agenda: Agenda,
    /// Flows that were closed half-way: upstream is to be told.
    left: VecDeque<Left>,
    shared: Shared,
    closed: FlowStats,
    bad_datagrams: u64,
}

/// The parts of a Consumer that its flows share.
struct Shared {
    config: Config,
    uplinks: Uplinks,
    neighbours: Neighbours,
    outbox: Outbox,
    events: VecDeque<ConsumerEvent>,
    rng: Rng,
}

impl Shared {
    /// A hop as one of its flows sees it.
    fn offer(&self, link: Slot) -> Offer {
        let flows = self.neighbours.flows(link).max(1);
        let rate = self.uplinks.get(link).map_or(Rate::ZERO, Requester::rate);
        Offer { rate: Rate::from_bps(rate.as_bps() / u64::from(flows)), hop_rtt: self.uplinks.hop_rtt(link) }
    }

    /// The first requests of the newest flow of a hop.
    fn beginning(&self, now: Instant, link: Slot) -> Beginning {
        let hop = self.uplinks.get(link).filter(|hop| hop.is_measured());
        let carries = hop.map(|hop| (hop.rate(), hop.hop_rtt()));
        Beginning::new(self.neighbours.flows(link), self.neighbours.first(now, link), carries)
    }

    /// The rate that a hop offers to one of its flows, where its link has just shown that it has room for it.
    fn shown(&self, now: Instant, link: Slot) -> Option<Rate> {
        let requester = self.uplinks.get(link)?;
        requester.has_shown_room(now).then(|| self.offer(link).rate)
    }
}

/// A flow that is not wanted any more, and the turn that voids its requests.
#[derive(Clone, Copy, Debug)]
struct Left {
    link: Slot,
    flow: FlowId,
    turn: u16,
}

impl<S: Sink, C: Suite> Consumer<S, C> {
    /// A Consumer without flows.
    pub fn new(config: Config, suite: C, seed: u64) -> Self {
        let config = config.for_suite(&suite);
        let rng = Rng::new(seed);
        Self {
            suite,
            flows: Table::new(rng.fork(3).next_u64()),
            agenda: Agenda::default(),
            left: VecDeque::new(),
            shared: Shared {
                rng: rng.fork(9),
                uplinks: Uplinks::new(&config, rng),
                neighbours: Neighbours::default(),
                outbox: Outbox::new(&config),
                events: VecDeque::new(),
                config,
            },
            closed: FlowStats::default(),
            bad_datagrams: 0,
        }
    }

    /// Begins to fetch a flow. False, and no change, when it is being fetched already.
    pub fn open(&mut self, now: Instant, request: Request, sink: S) -> bool {
        self.insert(now, request, None, sink)
    }

    fn insert(&mut self, now: Instant, request: Request, live: Option<LiveWindow>, sink: S) -> bool {
        let id = request.flow;
        if self.flows.find(&id).is_some() {
            return false;
        }
        let Self { flows, shared, .. } = self;
        let uplink = shared.uplinks.link(request.upstream.into(), id);
        shared.neighbours.add_flow(uplink);
        let beginning = if live.is_some() { Beginning::live() } else { shared.beginning(now, uplink) };
        let flow = || Flow::new(now, &shared.config, uplink, (request, live), beginning, sink);
        let slot = flows.find_or_insert(id, flow);
        self.with_flow(now, slot, |flow, shared| flow.advance(now, shared));
        true
    }

    /// Begins to fetch a live flow, whose bytes may come at any time: `window` says how many bytes are always asked for ahead of
    /// those that are here. Nothing of a live flow times out; an application that knows that bytes should have
    /// come calls [`Consumer::urge`] and [`Consumer::renew`]. False, and no change, if the flow is being fetched
    /// already.
    pub fn open_live(&mut self, now: Instant, request: Request, window: Window, sink: S) -> bool {
        self.insert(now, request, Some(LiveWindow::new(window)), sink)
    }

    /// Asks once more for the next packet of a live flow. Its answer tells how far the flow is.
    pub fn urge(&mut self, now: Instant, flow: FlowId) {
        let Some(slot) = self.flows.find(&flow) else { return };
        self.with_flow(now, slot, |flow, shared| flow.probe(now, shared));
    }

    /// Repeats the requests of a live flow: they may have been lost, or have come before upstream knew the flow. An
    /// upstream that has them does not answer twice.
    pub fn remind(&mut self, flow: FlowId) {
        let flow = self.flows.find(&flow).and_then(|slot| self.flows.get(slot));
        if let Some(flow) = flow.filter(|flow| !flow.is_over()) {
            flow.fetch.ask_on(&mut self.shared.outbox);
        }
    }

    /// Asks again for bytes of a live flow that are missing below the newest arrival and were given up: no timeout
    /// asks for them.
    pub fn look_back(&mut self, now: Instant, flow: FlowId) {
        let Some(slot) = self.flows.find(&flow) else { return };
        self.with_flow(now, slot, |flow, _| flow.look_back(now));
    }

    /// Asks for everything once more that has not come of a flow: upstream may have forgotten it.
    pub fn renew(&mut self, now: Instant, flow: FlowId) {
        let Some(slot) = self.flows.find(&flow) else { return };
        self.with_flow(now, slot, |flow, shared| flow.ask_anew(now, shared));
    }

    /// Missing bytes of a flow below `end` are wanted no longer: they are not asked for again, and not written if
    /// they come.
    pub fn skip(&mut self, now: Instant, flow: FlowId, end: u64) {
        let Some(slot) = self.flows.find(&flow) else { return };
        self.with_flow(now, slot, |flow, shared| flow.skip(now, end, shared));
    }

    /// Ends the fetching of a flow and returns its sink. Unanswered requests are called off.
    pub fn close(&mut self, flow: FlowId) -> Option<S> {
        let slot = self.flows.find(&flow)?;
        let mut closed = self.flows.remove(slot)?;
        self.agenda.remove(slot);
        self.closed.add(closed.stats());
        let link = closed.fetch.uplink;
        self.shared.neighbours.remove_flow(link);
        if self.shared.config.per_flow_control {
            self.shared.uplinks.remove(link);
        } else if closed.is_waiting() {
            self.left.push_back(Left { link, flow, turn: closed.forget() });
        }
        Some(closed.into_sink())
    }

    /// Asks another neighbour for a flow from now on: the route changed.
    pub fn set_upstream(&mut self, now: Instant, flow: FlowId, upstream: SocketAddr) {
        let Some(slot) = self.flows.find(&flow) else { return };
        let uplink = self.shared.uplinks.link(upstream.into(), flow);
        let is_used = self.shared.neighbours.flows(uplink) > 0;
        if let Some(requester) = self.shared.uplinks.get_mut(uplink).filter(|_| !is_used) {
            requester.resume();
        }
        self.with_flow(now, slot, |flow, shared| {
            if flow.fetch.uplink != uplink {
                shared.neighbours.remove_flow(flow.fetch.uplink);
                shared.neighbours.add_flow(uplink);
                flow.turn_to(now, uplink, shared);
            }
        });
    }

    /// The bytes of `range` of a flow are wrong: they count as missing and are asked for again, of the flow's
    /// present upstream. A flow that had finished goes on.
    pub fn reject(&mut self, now: Instant, flow: FlowId, range: ByteRange) {
        let Some(slot) = self.flows.find(&flow) else { return };
        self.with_flow(now, slot, |flow, shared| flow.reject(now, range, shared));
    }

    /// The neighbours that it asks.
    pub fn upstreams(&self) -> impl Iterator<Item = crate::hop::Upstream> + '_ {
        self.shared.uplinks.survey()
    }

    /// The Consumer runs at `now`.
    #[inline]
    fn run(&mut self, now: Instant) {
        if self.shared.uplinks.run(now) {
            let due = self.poll_timeout();
            self.shared.uplinks.note_due(now, due);
        }
    }

    /// Takes a packet that its caller has opened: a node of several roles opens a datagram once.
    pub fn handle_packet(&mut self, now: Instant, peer: &Peer, packet: &Packet<'_>) {
        self.run(now);
        match packet {
            Packet::Data(header, payload) => self.on_data(now, peer, *header, payload),
            Packet::Notice(notice) => self.on_notice(now, peer, *notice),
            Packet::Parity(parity, sum) => self.on_parity(now, peer, parity, sum),
            // A Consumer gets no requests, and segments are between gateways.
            Packet::Interest(_) | Packet::Segment(..) => self.bad_datagrams += 1,
        }
    }

    /// A flow that is open.
    pub fn flow(&self, flow: FlowId) -> Option<&Flow<S>> {
        self.flows.find(&flow).and_then(|slot| self.flows.get(slot))
    }

    /// A flow that is open, to change its sink.
    pub fn flow_mut(&mut self, flow: FlowId) -> Option<&mut Flow<S>> {
        self.flows.find(&flow).and_then(|slot| self.flows.get_mut(slot))
    }

    /// Counters since the start. Adds up the open flows: not for every packet.
    pub fn stats(&self) -> ConsumerStats {
        let mut flows = self.closed;
        self.flows.iter().for_each(|(_, flow)| flows.add(flow.stats()));
        ConsumerStats { flows, bad_datagrams: self.bad_datagrams }
    }

    /// The smoothed hopRTT to a flow's upstream, once it is measured.
    pub fn hop_rtt(&self, flow: FlowId) -> Option<Duration> {
        let requester = self.shared.uplinks.get(self.flow(flow)?.fetch.uplink)?;
        requester.is_measured().then(|| requester.hop_rtt())
    }

    /// The suite.
    pub fn suite(&self) -> &C {
        &self.suite
    }

    /// The suite, to change its keys.
    pub fn suite_mut(&mut self) -> &mut C {
        &mut self.suite
    }

    /// Does something with a flow, and notes when it is due next.
    fn with_flow(&mut self, now: Instant, slot: Slot, act: impl FnOnce(&mut Flow<S>, &mut Shared)) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let uplink = flow.fetch.uplink;
        flow.on_hop(self.shared.uplinks.waits(now, uplink), self.shared.uplinks.hop_rtt(uplink));
        act(flow, &mut self.shared);
        let next = flow.next_timeout(self.shared.uplinks.hop_rtt(flow.fetch.uplink));
        self.agenda.set(slot, next, flow.has_holes());
    }

    /// The hop by which a flow arrives at `face`: nearly always the hop on which the flow was asked for. Only a
    /// neighbour that was asked may answer.
    fn uplink_from(&self, slot: Option<Slot>, id: FlowId, face: Face) -> Option<Slot> {
        let usual = slot.and_then(|slot| self.flows.get(slot)).map(|flow| flow.fetch.uplink);
        self.shared.uplinks.answering(usual, face, id)
    }

    fn on_data(&mut self, now: Instant, peer: &Peer, header: DataHeader, payload: &[u8]) {
        if let Subject::PathSize(question) = Subject::of(header.flow)
            && !header.flags.no_such_name
        {
            let is_asked = self.shared.uplinks.on_probe(now, peer, (&header, question), payload.len());
            self.bad_datagrams += u64::from(!is_asked);
            return;
        }
        let slot = self.flows.find(&header.flow);
        let Some(link) = self.uplink_from(slot, header.flow, peer.face) else {
            self.bad_datagrams += 1;
            return;
        };
        // The hop counts packets of closed flows, too.
        let heard = self.shared.uplinks.on_packet(now, link, peer, Received::data(&header, payload));
        self.take_data(now, slot, &header, payload, heard.as_ref());
        self.take_restored(now, link);
    }

    /// Parity of the hop arrived: it may make packets good.
    fn on_parity(&mut self, now: Instant, peer: &Peer, parity: &ParityHeader, sum: &[u8]) {
        let Some(link) = self.shared.uplinks.find_shared(peer.face) else {
            self.bad_datagrams += 1;
            return;
        };
        let heard = self.shared.uplinks.on_packet(now, link, peer, Received::parity(parity, sum));
        if let Some(heard) = heard {
            self.on_heard(now, None, &heard);
        }
        self.take_restored(now, link);
    }

    /// Handles packets that parity has restored like arrived ones.
    fn take_restored(&mut self, now: Instant, link: Slot) {
        while let Some(Restored { number, packet }) = self.shared.uplinks.poll_restored(now, link) {
            let Ok(Packet::Data(header, payload)) = Packet::parse(&packet) else { continue };
            let slot = self.flows.find(&header.flow);
            let is_asked_here =
                |slot: &Slot| self.flows.get(*slot).is_some_and(|flow| flow.fetch.uplink == link);
            let Some(slot) = slot.filter(is_asked_here) else { continue };
            let heard = self.shared.uplinks.heard_restored(now, link, number, header.range(payload.len()));
            self.take_data(now, Some(slot), &header, payload, heard.as_ref());
        }
    }

    fn take_data(
        &mut self,
        now: Instant,
        slot: Option<Slot>,
        header: &DataHeader,
        payload: &[u8],
        heard: Option<&Heard>,
    ) {
        let slot = self.still_open(slot);
        if let Some(flow) = slot.and_then(|slot| self.flows.get_mut(slot)) {
            match header.flags.no_such_name {
                true => flow.on_no_such_name(&mut self.shared),
                false => {
                    let link = flow.fetch.uplink;
                    let offer = header.waited.is_dry.then(|| self.shared.offer(link));
                    let shown = self.shared.shown(now, link);
                    flow.on_bytes(now, header, payload, (offer, shown));
                }
            }
        }
        let Some(heard) = heard else { return };
        self.on_heard(now, slot, heard);
        if let Some(slot) = slot {
            self.with_flow(now, slot, |flow, shared| flow.advance(now, shared));
        }
    }

    fn on_notice(&mut self, now: Instant, peer: &Peer, notice: Notice) {
        let slot = self.flows.find(&notice.flow);
        let Some(link) = self.uplink_from(slot, notice.flow, peer.face) else {
            self.bad_datagrams += 1;
            return;
        };
        let range = match notice.news {
            News::Key(_) => return,
            News::Token(token) => return self.prove(link, notice.flow, token),
            News::NotNow(not_now) => {
                let is_asked =
                    |slot: &Slot| self.flows.get(*slot).is_some_and(|flow| flow.fetch.uplink == link);
                if let Some(slot) = self.still_open(slot).filter(is_asked) {
                    self.with_flow(now, slot, |flow, shared| flow.on_not_now(now, not_now, shared));
                }
                return;
            }
            News::Coming(range) => range,
        };
        let received = Received::mark(&notice, range);
        let Some(heard) = self.shared.uplinks.on_packet(now, link, peer, received) else { return };
        let slot = self.still_open(slot);
        self.on_heard(now, slot, &heard);
        if let Some(slot) = slot {
            self.with_flow(now, slot, |flow, _| flow.on_notice(now, range));
        }
    }

    /// The upstream wants `token` in every Interest from now on. It may have forgotten earlier requests.
    fn prove(&mut self, link: Slot, flow: FlowId, token: u32) {
        if !self.shared.uplinks.get_mut(link).is_some_and(|requester| requester.prove(token)) {
            return;
        }
        self.shared.outbox.feedback(link, flow);
        for (_, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.fetch.uplink == link) {
            flow.fetch.ask_on(&mut self.shared.outbox);
        }
    }

    /// `slot`, if its flow still waits for something.
    fn still_open(&self, slot: Option<Slot>) -> Option<Slot> {
        slot.filter(|slot| self.flows.get(*slot).is_some_and(|flow| !flow.is_over()))
    }

    /// News about the hop concerns the packet's flow first, and then the other flows that are asked for there.
    fn on_heard(&mut self, now: Instant, slot: Option<Slot>, heard: &Heard) {
        if heard.is_former {
            let flow = slot.and_then(|slot| self.flows.get_mut(slot));
            return flow.into_iter().for_each(|flow| flow.fetch.intake.on_former(heard.seen.range));
        }
        if heard.is_new_neighbour {
            self.on_new_neighbour(now, heard.link);
        }
        let flow = slot.and_then(|slot| self.flows.get_mut(slot));
        let unexplained = match flow.filter(|flow| flow.fetch.uplink == heard.link) {
            Some(flow) => flow.on_heard(now, heard, &mut self.shared),
            None => self.shared.uplinks.get_mut(heard.link).map_or(0, |hop| hop.settle(0, heard.lost)),
        };
        if unexplained > 0 {
            self.on_unexplained_loss(now, heard.link);
        }
    }

    /// Another node answers under an upstream's address: it is asked for all that its predecessor was.
    fn on_new_neighbour(&mut self, now: Instant, link: Slot) {
        let asked = self.flows.iter().filter(|(_, flow)| flow.fetch.uplink == link && !flow.is_over());
        let slots: Vec<Slot> = asked.map(|(slot, _)| slot).collect();
        for slot in slots {
            self.with_flow(now, slot, |flow, shared| flow.ask_anew(now, shared));
        }
    }

    /// Packets were lost on `link` that no hole accounts for: late arrivals, of any of its flows.
    fn on_unexplained_loss(&mut self, now: Instant, link: Slot) {
        let mut last = None;
        while let Some(slot) = self.agenda.with_hole_after(last) {
            if self.flows.get(slot).is_some_and(|flow| flow.fetch.uplink == link) {
                self.with_flow(now, slot, |flow, shared| flow.on_unexplained_loss(now, shared));
            }
            last = Some(slot);
        }
    }

    fn emit_request(&mut self, now: Instant, request: HopRequest, out: &mut Vec<u8>) -> Option<Transmit> {
        let Self { flows, shared, suite, .. } = self;
        if matches!(request.subject, Subject::PathSize(_)) {
            return emit_interest(&mut shared.uplinks, suite, now, request, (0, Rate::UNLIMITED), out);
        }
        // Requests of a flow that is closed by now are dropped.
        let flow = flows.find(&request.flow).and_then(|slot| flows.get_mut(slot))?;
        let of_flow = (flow.turn(), Rate::UNLIMITED);
        let sent = emit_interest(&mut shared.uplinks, suite, now, request, of_flow, out)?;
        flow.on_sent(sent.len);
        Some(sent)
    }

    /// Tells an upstream that a flow is not wanted any more.
    fn emit_farewell(&mut self, now: Instant, left: Left, out: &mut Vec<u8>) -> Option<Transmit> {
        let request = HopRequest::feedback(left.link, left.flow);
        let of_flow = (left.turn, Rate::UNLIMITED);
        emit_interest(&mut self.shared.uplinks, &mut self.suite, now, request, of_flow, out)
    }
}

impl<S: Sink, C: Suite> Node for Consumer<S, C> {
    type Event = ConsumerEvent;

    fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &mut [u8]) {
        let Ok(Opened { peer, packet }) = self.suite.open(now, face, datagram) else {
            self.bad_datagrams += 1;
            return;
        };
        match Packet::parse(packet) {
            Ok(packet) => self.handle_packet(now, &peer, &packet),
            Err(_) => self.bad_datagrams += 1,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.run(now);
        while let Some(link) = self.shared.uplinks.on_timeout(now) {
            self.on_unexplained_loss(now, link);
        }
        while let Some((link, question)) = self.shared.uplinks.poll_probe(now) {
            self.shared.outbox.probe(link, question);
        }
        while let Some(slot) = self.agenda.due(now) {
            self.with_flow(now, slot, |flow, shared| flow.on_timeout(now, shared));
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        while let Some(control) = self.shared.outbox.pop() {
            let Control::Interest(request) = control else { continue };
            let sent = self.emit_request(now, request, out);
            if sent.is_some() {
                return sent;
            }
        }
        while let Some(left) = self.left.pop_front() {
            let sent = self.emit_farewell(now, left, out);
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    fn poll_event(&mut self) -> Option<ConsumerEvent> {
        self.shared.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.next().min(self.shared.uplinks.next_timeout()).if_ever()
    }
}
