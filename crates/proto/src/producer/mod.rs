//! The Producer: answers Interests from a [`Source`].

use crate::config::Config;
use crate::hop::scheduler::{Chunk, Turn};
use crate::hop::{
    About, Asking, Control, Denied, Downlinks, Downstream, Due, Ending, FlowView, Outbox, Served, Subject,
    Subscriber, Transfer, emit_answer, emit_parity, finish,
};
use crate::name::{ByteRange, FlowId};
use crate::node::{Node, Transmit};
use crate::peer::{Addressee, Face, Opened, Peer};
use crate::rng::Rng;
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{DataFlags, DataHeader, Interest, NotNow, Packet, Plain, Reason, Suite, Waited};
use alloc::vec::Vec;

/// The state of a flow at a [`Source`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// There is no such flow.
    Unknown,
    /// The answer will come later; the request is dropped and will be sent again.
    NotYet,
    /// The flow exists.
    Found {
        /// Its length; `None` for a stream without an end.
        length: Option<u64>,
        /// Whether relays must not keep it.
        is_volatile: bool,
    },
    /// The flow exists and grows: requests for bytes from `available` on wait for [`Producer::on_available`].
    Live {
        /// Bytes that exist by now.
        available: u64,
        /// Whether relays must not keep it.
        is_volatile: bool,
    },
}

/// The source of a Producer's bytes.
pub trait Source {
    /// The state of `flow`.
    fn lookup(&mut self, flow: FlowId) -> Lookup;

    /// Appends the bytes of `range` to `out`, all or none; false if they are not available (the file changed).
    /// `range` lies within the length that [`Source::lookup`] gave.
    fn read(&mut self, now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool;
}

/// Counters of a Producer since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProducerStats {
    /// Interests received.
    pub interests_in: u64,
    /// Data packets sent.
    pub data_sent: u64,
    /// Payload bytes sent, repairs included.
    pub payload_sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Packets sent again.
    pub repairs: u64,
    /// Requested bytes that were refused because the neighbour had too much outstanding.
    pub over_credit: u64,
    /// Interests that were refused because there were too many neighbours or flows.
    pub over_limit: u64,
    /// Flows with state now.
    pub flows: u64,
    /// Bytes of memory that neighbours and their flows take now, at most …
    pub state_bytes: u64,
    /// … and may take.
    pub state_limit: u64,
    /// Neighbours with state now.
    pub neighbours: u64,
    /// Datagrams that were refused or did not parse.
    pub bad_datagrams: u64,
}

struct Flow {
    length: Option<u64>,
    /// Offset after the highest byte that was sent to any neighbour.
    sent_end: u64,
    /// Bytes that exist by now.
    available: u64,
    /// All bytes below this offset have arrived at every receiver, and are kept no longer.
    forgotten: u64,
    is_volatile: bool,
    subscribers: Vec<Subscriber>,
    last_used: Instant,
}

impl Flow {
    /// A flow that nobody has asked for.
    fn new(now: Instant, length: Option<u64>, available: u64, is_volatile: bool) -> Self {
        let (sent_end, forgotten) = (0, 0);
        Self { length, sent_end, available, forgotten, is_volatile, subscribers: Vec::new(), last_used: now }
    }
}

impl Served for Flow {
    fn subscribers(&mut self) -> &mut Vec<Subscriber> {
        &mut self.subscribers
    }

    fn last_used(&self) -> Instant {
        self.last_used
    }
}

/// Serves the flows of one [`Source`].
pub struct Producer<S, C = Plain> {
    source: S,
    suite: C,
    config: Config,
    flows: Table<FlowId, Flow>,
    downlinks: Downlinks,
    outbox: Outbox,
    next_sweep: Option<Instant>,
    parts: Vec<ByteRange>,
    gaps: Vec<ByteRange>,
    stats: ProducerStats,
}

impl<S: Source, C: Suite> Producer<S, C> {
    /// A Producer for `source`.
    pub fn new(config: Config, source: S, suite: C, seed: u64) -> Self {
        let rng = Rng::new(seed);
        let config = config.for_suite(&suite);
        Self {
            source,
            suite,
            flows: Table::new(rng.fork(3).next_u64()),
            downlinks: Downlinks::new(&config, rng),
            outbox: Outbox::new(&config),
            next_sweep: None,
            parts: Vec::new(),
            gaps: Vec::new(),
            stats: ProducerStats::default(),
            config,
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> ProducerStats {
        let (state_bytes, state_limit) = self.downlinks.memory();
        ProducerStats {
            state_bytes,
            state_limit,
            flows: self.flows.len() as u64,
            neighbours: self.downlinks.len() as u64,
            ..self.stats
        }
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source, to change it.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// The suite.
    pub fn suite(&self) -> &C {
        &self.suite
    }

    /// The suite, to change its keys.
    pub fn suite_mut(&mut self) -> &mut C {
        &mut self.suite
    }

    /// Changes the facts that this node tells neighbours about itself.
    pub fn set_about(&mut self, about: About) {
        self.outbox.set_about(about);
    }

    /// The neighbours that it answers.
    pub fn downstreams(&self) -> impl Iterator<Item = Downstream> + '_ {
        self.downlinks.survey()
    }

    /// The flows that it was asked for.
    pub fn flow_views(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.flows.iter().filter_map(|(slot, flow)| {
            Some(FlowView {
                id: *self.flows.key(slot)?,
                length: flow.length,
                upstream: None,
                subscribers: flow.subscribers.len(),
                expected: 0,
                last_used: flow.last_used,
            })
        })
    }

    /// The hops, for links that several of them share.
    pub(crate) fn downlinks_mut(&mut self) -> &mut Downlinks {
        &mut self.downlinks
    }

    /// Has [`Node::poll_event`] report transfers whose end was sent `quiet` ago, without waiting until their
    /// neighbours are forgotten.
    pub fn end_complete(&mut self, now: Instant, quiet: Duration) {
        self.downlinks.end_complete(now, quiet);
    }

    /// Takes a packet that its caller has opened in a datagram of `len` bytes: a node of several roles opens a
    /// datagram once.
    pub fn handle_packet(&mut self, now: Instant, peer: Peer, packet: &Packet<'_>, len: usize) {
        match packet {
            Packet::Interest(interest) => {
                let subject = Subject::of(interest.flow);
                let asking = Asking::new(&mut self.suite, peer, (interest, subject), len);
                self.on_interest(now, &asking);
            }
            // The others are for nodes that ask, and for gateways.
            Packet::Data(..) | Packet::Notice(_) | Packet::Parity(..) | Packet::Segment(..) => {
                self.stats.bad_datagrams += 1;
            }
        }
    }

    fn on_interest(&mut self, now: Instant, asking: &Asking<'_>) {
        self.stats.interests_in += 1;
        let interest = asking.interest;
        let asked = self.downlinks.on_interest(now, asking);
        self.forget_superfluous(now);
        let link = match asked {
            Ok(asked) => self.outbox.welcome(now, &mut self.suite, asking, asked),
            Err(Denied::NoRoom(not_now)) => return self.over_limit(asking, None, not_now),
            Err(Denied::Unproven(token)) => return self.outbox.want_token(asking, token),
        };
        if interest.ranges.is_empty() {
            self.on_feedback(now, link, interest);
            return;
        }
        if self.outbox.answer_about_hop(&mut self.downlinks, link, asking.subject) {
            self.next_sweep.get_or_insert(now + self.config.flow_idle);
            return;
        }
        match self.source.lookup(interest.flow) {
            Lookup::NotYet => {}
            // As short as any other answer, and it ends the matter.
            Lookup::Unknown => self.answer(link, interest.flow, 0, Answer::NoSuchName),
            Lookup::Found { length, is_volatile } => {
                self.on_request(now, (asking, link), (length, u64::MAX, is_volatile));
            }
            Lookup::Live { available, is_volatile } => {
                self.on_request(now, (asking, link), (None, available, is_volatile));
            }
        }
    }

    /// A limit keeps the Producer from serving a request: its sender is told.
    fn over_limit(&mut self, asking: &Asking<'_>, link: Option<Slot>, not_now: NotNow) {
        self.stats.over_limit += 1;
        self.outbox.put_off(asking, link, not_now);
    }

    fn on_feedback(&mut self, now: Instant, link: Slot, interest: &Interest) {
        let Some(flow) = self.flows.find(&interest.flow).and_then(|slot| self.flows.get_mut(slot)) else {
            return;
        };
        let Some(subscriber) = flow.subscribers.iter().find(|s| s.link == link) else { return };
        if subscriber.turn != interest.turn {
            // It has turned to another upstream.
            Subscriber::drop_link(&mut flow.subscribers, &mut self.downlinks, link, Ending::TurnedAway);
        } else {
            self.downlinks.set_queue_rate(now, link, subscriber.queue, interest.flow_rate);
        }
    }

    /// A request for a flow that has `length` bytes, if that is known, of which `available` exist.
    fn on_request(
        &mut self,
        now: Instant,
        (asking, link): (&Asking<'_>, Slot),
        (length, available, is_volatile): (Option<u64>, u64, bool),
    ) {
        let interest = asking.interest;
        self.next_sweep = Some(self.downlinks.next_sweep(now, self.next_sweep));
        if self.flows.find(&interest.flow).is_none()
            && let Err(not_now) = self
                .downlinks
                .check_flows(self.flows.len() + 1)
                .and_then(|()| self.downlinks.check_room(link))
        {
            return self.over_limit(asking, Some(link), not_now);
        }
        let flow_slot =
            self.flows.find_or_insert(interest.flow, || Flow::new(now, length, available, is_volatile));
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        flow.last_used = now;
        let (length, available, forgotten) = (flow.length, flow.available, flow.forgotten);
        let subscribers = &mut flow.subscribers;
        let of_flow = (interest.flow, flow_slot, interest.turn);
        let subscriber = match Subscriber::find_or_add(subscribers, &mut self.downlinks, now, link, of_flow) {
            Ok(subscriber) => subscriber,
            Err(not_now) => return self.over_limit(asking, Some(link), not_now),
        };
        self.downlinks.set_queue_rate(now, link, subscriber.queue, interest.flow_rate);
        let mut allowance = self.config.request_limit;
        let (mut is_beyond_end, mut refused) = (false, 0);
        let is_live = available < u64::MAX;
        for &range in interest.ranges.iter() {
            let range = range.prefix(allowance);
            allowance -= range.len();
            let range =
                if is_live && interest.reason == Reason::New { subscriber.from_gap(range) } else { range };
            subscriber.take_request(range, interest.reason, &mut self.parts);
            is_beyond_end |= length.is_some_and(|length| !range.is_empty() && range.start >= length);
        }
        let bounds = (self.config.max_ranges_per_flow, self.config.payload as u64);
        for asked in self.parts.drain(..) {
            let asked = asked.intersect(ByteRange::new(forgotten, length.unwrap_or(u64::MAX)));
            let part = subscriber.admit(&mut self.downlinks, asked, bounds);
            refused += asked.len() - part.len();
            if part.is_empty() {
                continue;
            }
            self.stats.repairs += u64::from(interest.reason == Reason::Lost);
            let here = part.intersect(ByteRange::new(0, available));
            let to_come = part.intersect(ByteRange::new(available, u64::MAX));
            if !here.is_empty() {
                let how = (interest.reason, Waited::DRY);
                subscriber.enqueue(now, &mut self.downlinks, here, how, &mut self.gaps);
            }
            if !to_come.is_empty() {
                subscriber.want(&mut self.downlinks, to_come, interest.reason);
            }
        }
        if refused > 0 {
            self.stats.over_credit += refused;
            self.outbox.put_off(asking, Some(link), self.downlinks.too_many_bytes(link));
        }
        let end = length.filter(|length| is_beyond_end && !subscriber.is_short_of(&self.downlinks, *length));
        if let Some(end) = end {
            self.answer(link, interest.flow, end, Answer::End);
        }
    }

    fn answer(&mut self, link: Slot, flow: FlowId, offset: u64, answer: Answer) {
        let flags = DataFlags {
            end: answer == Answer::End,
            no_such_name: answer == Answer::NoSuchName,
            ..DataFlags::default()
        };
        self.outbox.push(Control::Answer { link, flow, offset, flags });
    }

    fn emit_chunk(&mut self, now: Instant, due: &Due, chunk: Chunk, out: &mut Vec<u8>) -> Option<Transmit> {
        let flow = self.flows.get(chunk.owner)?;
        // Bytes that were asked for again may have arrived while the request waited here.
        let range = chunk.range.intersect(ByteRange::new(flow.forgotten, u64::MAX));
        if range.is_empty() {
            return None;
        }
        let flags = DataFlags {
            end: flow.length == Some(range.end),
            backlog: due.backlog,
            is_volatile: flow.is_volatile,
            no_such_name: false,
        };
        let responder = self.downlinks.get_mut(due.link)?;
        let (counter, echo) = responder.stamp(now);
        let header =
            DataHeader { counter, flow: chunk.flow, offset: range.start, echo, flags, waited: chunk.waited };
        let (to, source, start) = (Addressee::Asker(responder.peer), &mut self.source, out.len());
        let mut is_read = false;
        let transmit = finish(&mut self.suite, now, &to, out, |out| {
            let packet = out.len();
            header.emit(out);
            is_read = source.read(now, chunk.flow, range, out);
            if is_read {
                responder.cover(now, &out[packet..]);
            }
        });
        if !is_read {
            out.truncate(start);
            responder.take_back();
            self.withdraw(chunk.flow);
            return None;
        }
        if let Some(flow) = self.flows.get_mut(chunk.owner) {
            flow.sent_end = flow.sent_end.max(range.end);
        }
        if flags.end {
            self.downlinks.note_end(due.link, chunk.queue);
        }
        if transmit.is_some() {
            self.stats.data_sent += 1;
            self.stats.payload_sent += range.len();
        }
        transmit
    }

    /// A live flow has grown to `end` bytes: neighbours that asked for them get them now.
    pub fn on_available(&mut self, now: Instant, flow: FlowId, end: u64) {
        let Some(flow) = self.flows.find(&flow).and_then(|slot| self.flows.get_mut(slot)) else { return };
        flow.available = flow.available.max(end);
        flow.last_used = now;
        let here = ByteRange::new(0, flow.available);
        for subscriber in &mut flow.subscribers {
            self.parts.extend(subscriber.wanted().intersect(here));
            for part in self.parts.drain(..) {
                // The request waited for its bytes to exist, not for its turn.
                let how = (subscriber.reason(part), Waited::default());
                subscriber.unwant(&mut self.downlinks, part);
                subscriber.enqueue(now, &mut self.downlinks, part, how, &mut self.gaps);
            }
        }
    }

    /// All bytes below `end` of a live flow have arrived at every receiver: requests for them are void, and the
    /// source may drop them.
    pub fn on_arrived(&mut self, flow: FlowId, end: u64) {
        if let Some(flow) = self.flows.find(&flow).and_then(|slot| self.flows.get_mut(slot)) {
            flow.forgotten = flow.forgotten.max(end.min(flow.available));
        }
    }

    /// A live flow ends with the bytes that exist: neighbours that asked for more are told so. From now on its
    /// [`Source::lookup`] is to answer [`Lookup::Found`].
    pub fn on_end(&mut self, flow: FlowId) {
        let Some(slot) = self.flows.find(&flow) else { return };
        let Some(state) = self.flows.get_mut(slot) else { return };
        let end = *state.length.get_or_insert(state.available);
        for subscriber in &mut state.subscribers {
            subscriber.unwant(&mut self.downlinks, ByteRange::new(end, u64::MAX));
            let flags = DataFlags { end: true, ..DataFlags::default() };
            self.outbox.push(Control::Answer { link: subscriber.link, flow, offset: end, flags });
        }
    }

    /// Offset after the highest byte of a flow that was sent to any neighbour, or that no neighbour will be sent any more.
    pub fn sent_end(&self, flow: FlowId) -> u64 {
        let flow = self.flows.find(&flow).and_then(|slot| self.flows.get(slot));
        flow.map_or(0, |flow| flow.sent_end.max(flow.forgotten))
    }

    /// The highest rate at which neighbours asking for a flow are sent to: what they grant, or their part of a shared link.
    pub fn granted(&self, flow: FlowId) -> Rate {
        let Some(flow) = self.flows.find(&flow).and_then(|slot| self.flows.get(slot)) else {
            return Rate::ZERO;
        };
        let rates = flow.subscribers.iter().map(|subscriber| self.downlinks.rate(subscriber.link));
        rates.max().unwrap_or(Rate::ZERO)
    }

    /// Sends `weight` packets of a flow, at least one, in its turns among those of its hops.
    pub fn set_weight(&mut self, flow: FlowId, weight: u8) {
        let Some(flow) = self.flows.find(&flow).and_then(|slot| self.flows.get(slot)) else { return };
        for subscriber in &flow.subscribers {
            self.downlinks.set_queue_weight(subscriber.link, subscriber.queue, weight);
        }
    }

    /// The node's settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The shortest of the longest payloads that neighbours asking for a flow are sent; this node's own without any.
    pub fn payload(&self, flow: FlowId) -> usize {
        let flow = self.flows.find(&flow).and_then(|slot| self.flows.get(slot));
        let subscribers = flow.map_or(&[][..], |flow| &flow.subscribers);
        let links = subscribers.iter().filter_map(|subscriber| self.downlinks.get(subscriber.link));
        links.map(|responder| responder.payload() as usize).min().unwrap_or(self.config.payload)
    }

    /// The source no longer has the promised bytes: every neighbour that waits for the flow is told so.
    pub fn withdraw(&mut self, id: FlowId) {
        let Some(flow) = self.flows.find(&id).and_then(|slot| self.flows.remove(slot)) else { return };
        for subscriber in flow.subscribers {
            subscriber.close(&mut self.downlinks, Ending::Withdrawn);
            self.answer(subscriber.link, id, 0, Answer::NoSuchName);
        }
    }

    /// Forgets the neighbours whose hops are given up, and all their requests.
    fn forget_superfluous(&mut self, now: Instant) {
        self.downlinks.forget_superfluous(now, &mut self.flows, |_| ());
    }

    /// Forgets flows and neighbours that were silent.
    fn sweep(&mut self, now: Instant) {
        self.next_sweep = self.downlinks.sweep(now, &mut self.flows).next;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    End,
    NoSuchName,
}

impl<S: Source, C: Suite> Node for Producer<S, C> {
    /// A Producer tells of transfers that ended.
    type Event = Transfer;

    fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &mut [u8]) {
        let len = datagram.len();
        let Ok(Opened { peer, packet }) = self.suite.open(now, face, datagram) else {
            self.stats.bad_datagrams += 1;
            return;
        };
        match Packet::parse(packet) {
            Ok(packet) => self.handle_packet(now, peer, &packet, len),
            Err(_) => self.stats.bad_datagrams += 1,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.forget_superfluous(now);
        if self.next_sweep.is_some_and(|at| at <= now) {
            self.sweep(now);
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let transmit = if let Some(control) = self.outbox.pop() {
                emit_answer(&mut self.downlinks, &mut self.suite, now, control, out)
            } else {
                let due = self.downlinks.poll(now)?;
                match due.turn {
                    Turn::Send(chunk) => self.emit_chunk(now, &due, chunk, out),
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
        self.downlinks.next_turn().min(sweep).min(superfluous).if_ever()
    }
}
