//! The Relay: answers from its cache, passes the rest on, repairs the hop above it. All state is soft: a relay
//! may be killed, replaced or left out at any moment, and the bytes still arrive.

mod data;
mod flow;
pub mod intercept;
mod interest;
mod names;
mod notice;
mod release;
mod room;
mod routes;
mod survey;
mod verify;

use crate::cache::Cache;
use crate::config::Config;
use crate::hop::scheduler::Turn;
use crate::hop::{
    Agenda, Asking, Control, Downlinks, Due, Outbox, Request, Subject, Transfer, Uplinks, emit_answer,
    emit_interest, emit_parity,
};
use crate::name::{ByteRange, FlowId};
use crate::node::{Node, Transmit};
use crate::peer::{Face, Opened, Peer};
use crate::rng::Rng;
use crate::table::{Slot, Table};
use crate::time::Instant;
use crate::units::Rate;
use crate::wire::{Packet, Plain, Suite};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use flow::Flow;
use names::Names;
use routes::Routes;
pub use routes::Share;
pub use verify::{GROUP, MAX_PROOF, Scrutiny, Verifier};

/// Counters of a Relay since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayStats {
    /// Interests received.
    pub interests_in: u64,
    /// Interests sent.
    pub interests_out: u64,
    /// Bytes asked for that were on their way already.
    pub aggregated_bytes: u64,
    /// Bytes answered from the cache.
    pub cache_hit_bytes: u64,
    /// Bytes that the cache holds now.
    pub cache_bytes: u64,
    /// Data packets received.
    pub data_in: u64,
    /// Data packets sent.
    pub data_out: u64,
    /// Data packets that were not requested.
    pub unasked: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Ranges asked for again on the upstream hop.
    pub repairs: u64,
    /// Bytes that came, found no place in the cache, and were asked for again.
    pub unplaced_bytes: u64,
    /// Requested bytes that were refused because the neighbour had too much outstanding.
    pub over_credit: u64,
    /// Interests that were refused because there were too many neighbours or flows.
    pub over_limit: u64,
    /// Neighbours with state now.
    pub neighbours: u64,
    /// Flows with state now.
    pub flows: u64,
    /// Bytes of memory that neighbours and their flows take now, at most …
    pub state_bytes: u64,
    /// … and may take.
    pub state_limit: u64,
    /// Datagrams that were refused or did not parse.
    pub bad_datagrams: u64,
    /// Groups in the cache that were found to be wrong, and forgotten.
    pub disproved_groups: u64,
    /// The neighbour that the flow of the last such group was asked of.
    pub last_disproved: Option<SocketAddr>,
}

/// Whether the relay has room for a packet, or had no need of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// The packet was for this relay, and was processed.
    Yes,
    /// A limit keeps the relay from serving its sender.
    No,
}

/// Relays any number of flows between neighbours.
pub struct Relay<C = Plain> {
    suite: C,
    config: Config,
    routes: Routes,
    names: Names,
    flows: Table<FlowId, Box<Flow>>,
    uplinks: Uplinks,
    downlinks: Downlinks,
    cache: Cache,
    room: room::Room,
    outbox: Outbox,
    agenda: Agenda,
    next_sweep: Option<Instant>,
    rng: Rng,
    scratch: Scratch,
    verifying: Option<verify::Verifying>,
    stats: RelayStats,
}

/// Lists that are filled and emptied with every packet, kept for their memory.
#[derive(Debug, Default)]
struct Scratch {
    parts: Vec<ByteRange>,
    found: Vec<ByteRange>,
    gaps: Vec<ByteRange>,
    /// Bytes that came and found no place.
    unplaced: Vec<ByteRange>,
    /// A chunk whose Notice had to leave first (LEOTP).
    after_notice: Option<Due>,
}

impl<C: Suite> Relay<C> {
    /// A relay that asks `upstream` for every flow without a route of its own.
    pub fn new(config: Config, upstream: impl Into<Face>, suite: C, seed: u64) -> Self {
        Self::with_routes(config, Some(upstream.into()), Names::ById, suite, seed)
    }

    /// A relay that asks the server that a flow's clients address, in the name of one of them.
    fn of_passing_flows(config: Config, suite: C, seed: u64) -> Self {
        let mut rng = Rng::new(seed).fork(7);
        let names = Names::by_server([rng.next_u64(), rng.next_u64()]);
        Self::with_routes(config, None, names, suite, seed)
    }

    fn with_routes(config: Config, upstream: Option<Face>, names: Names, suite: C, seed: u64) -> Self {
        let rng = Rng::new(seed);
        let config = config.for_suite(&suite);
        Self {
            suite,
            routes: Routes::new(upstream, rng.fork(8).next_u64()),
            names,
            flows: Table::new(rng.fork(3).next_u64()),
            cache: Cache::new(config.cache_bytes, rng.fork(4).next_u64()),
            room: room::Room::default(),
            uplinks: Uplinks::new(&config.clone().for_others(), rng.fork(5)),
            rng: rng.fork(9),
            downlinks: Downlinks::new(&config, rng),
            outbox: Outbox::new(&config),
            agenda: Agenda::default(),
            next_sweep: None,
            scratch: Scratch::default(),
            verifying: None,
            stats: RelayStats::default(),
            config,
        }
    }

    /// Changes the neighbour that is asked for flows without a route of their own.
    pub fn set_upstream(&mut self, now: Instant, upstream: impl Into<Face>) {
        self.routes.default = Some(upstream.into());
        self.reroute(now);
    }

    /// Spreads the flows without a route of their own over upstreams, by weight; without any the default neighbour has them
    /// all. A flow stays with its upstream as long as that one has a share.
    pub fn set_shares(&mut self, now: Instant, shares: &[Share]) {
        self.routes.set_shares(shares);
        self.reroute(now);
    }

    /// Changes the neighbour that is asked for `flow`.
    pub fn set_route(&mut self, now: Instant, flow: FlowId, upstream: impl Into<Face>) {
        self.routes.by_flow.insert(flow, upstream.into());
        self.reroute_named(now, flow);
    }

    /// Asks the default neighbour for `flow` again.
    pub fn clear_route(&mut self, now: Instant, flow: FlowId) {
        if self.routes.by_flow.remove(&flow).is_some() {
            self.reroute_named(now, flow);
        }
    }

    fn reroute_named(&mut self, now: Instant, flow: FlowId) {
        if let Some(flow_slot) = self.flows.find(&flow) {
            self.reroute_flow(now, flow_slot);
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> RelayStats {
        let (state_bytes, state_limit) = self.downlinks.memory();
        RelayStats {
            state_bytes,
            state_limit,
            cache_bytes: self.cache.used_bytes(),
            flows: self.flows.len() as u64,
            neighbours: self.downlinks.len() as u64,
            ..self.stats
        }
    }

    /// The suite.
    pub fn suite(&self) -> &C {
        &self.suite
    }

    /// The suite, to change its keys.
    pub fn suite_mut(&mut self) -> &mut C {
        &mut self.suite
    }

    /// The relay runs at `now`.
    #[inline]
    fn run(&mut self, now: Instant) {
        if self.uplinks.run(now) {
            let due = self.poll_timeout();
            self.uplinks.note_due(now, due);
        }
    }

    /// Takes a packet of `peer` that the relay's own suite has opened.
    fn handle_packet(&mut self, now: Instant, peer: Peer, packet: &[u8], len: usize) -> Taken {
        self.run(now);
        let Face { remote, local } = peer.face;
        match Packet::parse(packet) {
            Ok(Packet::Interest(mut interest)) => {
                let subject = Subject::of(interest.flow);
                match subject {
                    // The client asks for its server's identity, not for that of the relays between them.
                    Subject::Neighbour if self.names.are_by_server() => return Taken::No,
                    // The length of a hop's packets is the hop's, whichever server they are of.
                    Subject::Neighbour | Subject::PathSize(_) => {}
                    Subject::Flow => interest.flow = self.names.translate(interest.flow, local),
                }
                let asking = Asking::new(&mut self.suite, peer, (&interest, subject), len);
                return self.on_interest(now, &asking);
            }
            Ok(Packet::Data(mut header, payload)) => match Subject::of(header.flow) {
                Subject::PathSize(question) => {
                    let is_asked = self.uplinks.on_probe(now, &peer, (&header, question), payload.len());
                    self.stats.unasked += u64::from(!is_asked);
                }
                Subject::Neighbour if !self.names.are_by_server() => {
                    let is_asked = self.uplinks.on_hello(now, &peer, &header, self.outbox.about(), payload);
                    self.stats.unasked += u64::from(!is_asked);
                }
                Subject::Neighbour | Subject::Flow => {
                    header.flow = self.names.translate(header.flow, remote);
                    self.on_data(now, &peer, &mut header, payload);
                }
            },
            Ok(Packet::Notice(mut notice)) => {
                notice.flow = self.names.translate(notice.flow, remote);
                self.on_notice(now, &peer, notice);
            }
            Ok(Packet::Parity(parity, sum)) => self.on_parity(now, &peer, &parity, sum),
            // Segments are between gateways with no relay in between.
            Ok(Packet::Segment(..)) | Err(_) => self.stats.bad_datagrams += 1,
        }
        Taken::Yes
    }

    /// The flow of a downstream hop as it travels there.
    fn name_downstream(&self, link: Slot, flow: FlowId) -> FlowId {
        let server = self.downlinks.get(link).map(|responder| responder.peer.face.local);
        server.map_or(flow, |server| self.names.translate(flow, server))
    }

    fn emit_control(&mut self, now: Instant, control: Control, out: &mut Vec<u8>) -> Option<Transmit> {
        let request = match control {
            Control::Interest(request) => request,
            Control::Notice { link, flow, news } => {
                let control = Control::Notice { link, flow: self.name_downstream(link, flow), news };
                return emit_answer(&mut self.downlinks, &mut self.suite, now, control, out);
            }
            Control::Refusal { peer, flow, sent, news } => {
                let flow = self.names.translate(flow, peer.face.local);
                let control = Control::Refusal { peer, flow, sent, news };
                return emit_answer(&mut self.downlinks, &mut self.suite, now, control, out);
            }
            Control::Hello { .. } | Control::Probe { .. } => {
                return emit_answer(&mut self.downlinks, &mut self.suite, now, control, out);
            }
            Control::Answer { link, flow, offset, flags } => {
                let control = Control::Answer { link, flow: self.name_downstream(link, flow), offset, flags };
                return emit_answer(&mut self.downlinks, &mut self.suite, now, control, out);
            }
        };
        self.mind_room(now, request.link);
        if matches!(request.subject, Subject::PathSize(_)) {
            let of_flow = (0, Rate::UNLIMITED);
            return emit_interest(&mut self.uplinks, &mut self.suite, now, request, of_flow, out);
        }
        let flow_slot = self.flows.find(&request.flow);
        let of_flow = flow_slot.map_or((0, Rate::UNLIMITED), |slot| self.tell_bound(now, request.link, slot));
        let server = self.uplinks.get(request.link)?.face.remote;
        let request = Request { flow: self.names.translate(request.flow, server), ..request };
        self.stats.interests_out += 1;
        let sent = emit_interest(&mut self.uplinks, &mut self.suite, now, request, of_flow, out)?;
        self.downlinks.note_request(now, sent.to.remote, sent.wire_bytes());
        Some(sent)
    }

    fn reschedule(&mut self, flow_slot: Slot) {
        let Some(flow) = self.flows.get(flow_slot) else { return self.agenda.remove(flow_slot) };
        let next = flow.next_timeout(self.uplinks.hop_rtt(flow.fetch.uplink));
        self.agenda.set(flow_slot, next, flow.fetch.intake.has_holes());
    }
}

impl<C: Suite> Node for Relay<C> {
    /// A Relay tells of transfers to its neighbours that ended.
    type Event = Transfer;

    fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &mut [u8]) {
        let len = datagram.len();
        match self.suite.open(now, face, datagram) {
            Ok(Opened { peer, packet }) => _ = self.handle_packet(now, peer, packet, len),
            Err(_) => self.stats.bad_datagrams += 1,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.run(now);
        while let Some(link) = self.uplinks.on_timeout(now) {
            self.on_unexplained_loss(now, link);
        }
        while let Some((link, question)) = self.uplinks.poll_probe(now) {
            self.outbox.probe(link, question);
        }
        while let Some(flow_slot) = self.agenda.due(now) {
            self.on_flow_timeout(now, flow_slot);
        }
        self.forget_superfluous(now);
        if self.next_sweep.is_some_and(|at| at <= now) {
            self.sweep(now);
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let transmit = if let Some(control) = self.outbox.pop() {
                self.emit_control(now, control, out)
            } else {
                let due = match self.scratch.after_notice.take() {
                    Some(due) => due,
                    None => self.downlinks.poll(now)?,
                };
                match due.turn {
                    Turn::Send(chunk) => self.emit_chunk(now, due, chunk, out),
                    Turn::Parity => emit_parity(&mut self.downlinks, &mut self.suite, now, &due, out),
                    Turn::Mark { flow, offset } => {
                        self.outbox.push(Control::mark(due.link, flow, offset));
                        None
                    }
                }
            };
            if let Some(transmit) = transmit {
                self.stats.sent_bytes += transmit.len as u64;
                return Some(transmit);
            }
        }
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.downlinks.pop_ended()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let sweep = self.next_sweep.unwrap_or(Instant::NEVER);
        let superfluous = self.downlinks.next_timeout().unwrap_or(Instant::NEVER);
        let timers = self.uplinks.next_timeout().min(self.agenda.next()).min(sweep).min(superfluous);
        self.downlinks.next_turn().min(timers).if_ever()
    }
}
