//! A gateway's dealings with one peer: hello, the session's life, and the frames of its records.

use super::carry::{CarriedPacket, Carry, CarryStats};
use super::frame::{Frame, Opening, WireId};
use super::handover::{NotTaken, Part};
use super::owners::Use;
use super::rate_split::RateSplit;
use super::session::{Due, Session, Silence, Trunk};
use super::store::{HELLO_LEN, Log, Store, hello_flow};
use super::stream::Stream;
use super::{Account, BadRecord, Bond, Gateway, GatewayEvent, Mail, PeerSpec, Reason, Sender, StreamId};
use crate::consumer::Request;
use crate::name::{FlowId, RangeSet};
use crate::split::SplitConfig;
use crate::table::Slot;
use crate::time::Instant;
use crate::wire::Suite;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The peer is told how much of its trunk has come when this share of the window has come since it was told.
const TELL_SHARE: u64 = 8;

/// A peer, and the session with it if there is one.
pub(super) struct Peer<B: Bond> {
    address: Option<SocketAddr>,
    /// No address was given: it is where the peer asks from.
    is_found: bool,
    pub(super) bond: B,
    /// The number that we drew for the session.
    pub(super) ours: u64,
    pub(super) session: Option<Session<B::Key>>,
    /// Sessions so far.
    sessions: u32,
    pub(super) account: Account,
    pub(super) carry: Option<Carry<B::Key>>,
    /// Users' connections travel by rate, with these settings; and their segments in the session.
    pub(super) by_rate: Option<SplitConfig>,
    pub(super) rate_split: Option<RateSplit<B::Key>>,
    /// Packets that came and were not taken yet.
    pub(super) packets: VecDeque<CarriedPacket>,
    pub(super) carried: CarryStats,
    /// Whether the application was told that it answers.
    is_told_up: bool,
}

impl<B: Bond> Peer<B> {
    pub(super) fn new(spec: PeerSpec<B>) -> Self {
        Self {
            address: spec.address,
            is_found: spec.address.is_none(),
            bond: spec.bond,
            ours: 0,
            session: None,
            sessions: 0,
            account: Account::default(),
            carry: None,
            by_rate: spec.by_rate,
            rate_split: None,
            packets: VecDeque::new(),
            carried: CarryStats::default(),
            is_told_up: false,
        }
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    pub(super) fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Counts the packets that were delivered since there were `before`.
    pub(super) fn note_delivered(&mut self, before: usize) {
        for packet in self.packets.iter().skip(before) {
            self.carried.delivered_packets += 1;
            self.carried.delivered_bytes += packet.bytes.len() as u64;
        }
    }

    /// Appends the state of the session, if there is one; its trunks' bytes are in `store`.
    pub(super) fn put_state(&self, store: &Store, out: &mut Vec<u8>) {
        self.session.is_some().put(out);
        let Some(session) = &self.session else { return };
        self.ours.put(out);
        session.theirs.put(out);
        self.sessions.put(out);
        self.address.put(out);
        let empty = Log::default();
        for trunk in [&session.out, &session.into] {
            trunk.flow.put(out);
        }
        store.trunk(session.out.flow).unwrap_or(&empty).put(out);
        session.put_state(out);
        self.carry.is_some().put(out);
        if let Some(carry) = &self.carry {
            store.trunk(carry.out.flow).unwrap_or(&empty).put(out);
            carry.put_state(out);
        }
        self.rate_split.is_some().put(out);
        if let Some(split) = &self.rate_split {
            split.put_state(out);
        }
    }

    /// The flow by which we ask for the peer's identity.
    fn question(&self) -> FlowId {
        hello_flow(self.bond.hello(false), self.ours)
    }
}

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// Draws a number for a new session and asks the peer for its own.
    pub(super) fn say_hello(&mut self, now: Instant, index: u16) {
        let number = self.rng.next_u64();
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        self.owners.remove(Use::Trunk, peer.question());
        self.consumer.close(peer.question());
        peer.ours = number;
        self.producer.source_mut().greet(peer.bond.hello(true), number);
        // It is heard of first.
        let Some(upstream) = peer.address else { return };
        let flow = peer.question();
        self.owners.add(Use::Trunk, flow, index);
        let request = Request { flow, upstream, length: Some(HELLO_LEN), have: RangeSet::new() };
        self.consumer.open(now, request, Mail::default());
    }

    /// Takes new secrets, one for each peer in the order in which they were given: sessions that begin from now on are
    /// derived from them. Sessions that there are keep their keys.
    pub fn set_bonds(&mut self, now: Instant, bonds: impl IntoIterator<Item = B>) {
        for (index, bond) in (0u16..).zip(bonds) {
            let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
            let (before, after) = (peer.bond.hello(true), bond.hello(true));
            if before == after {
                continue;
            }
            let question = peer.question();
            peer.bond = bond;
            self.producer.source_mut().greet_as(before, after);
            // A question that is still open was asked under the old secret.
            if self.owners.remove(Use::Trunk, question).is_some() {
                self.consumer.close(question);
                self.say_hello(now, index);
            }
        }
    }

    /// The peer answered our hello.
    pub(super) fn on_hello(&mut self, now: Instant, flow: FlowId) {
        let Some(index) = self.owners.remove(Use::Trunk, flow) else { return };
        let answer = self.consumer.close(flow).and_then(|mail| mail.number());
        if let Some(number) = answer {
            self.begin(now, index, number);
            // The peer that answered has begun, too.
            self.ask_trunk(now, index, Default::default());
        }
    }

    /// Peers asked for our identity, and named themselves with the question, which came from `address`.
    pub(super) fn on_hellos(&mut self, now: Instant, address: SocketAddr) {
        while let Some((tag, number)) = self.producer.source_mut().pop_asked() {
            let asker = self.peers.iter().position(|peer| peer.bond.hello(true) == tag);
            let Some(index) = asker.map(|index| index as u16) else { continue };
            if self.begin(now, index, number) {
                self.turn_to(now, index, address);
            }
        }
    }

    /// Asks a peer at `address` from now on, unless its address was given.
    fn turn_to(&mut self, now: Instant, index: u16, address: SocketAddr) {
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        if !peer.is_found || peer.address == Some(address) {
            return;
        }
        peer.address = Some(address);
        let trunk = peer.session.as_ref().map(|session| session.into.flow);
        let packets = peer.carry.as_ref().map(|carry| carry.into.flow);
        for flow in [Some(peer.question()), trunk, packets].into_iter().flatten() {
            self.consumer.set_upstream(now, flow, address);
        }
    }

    /// The peer began as `theirs`: unless that is known, a session begins. Says whether one did.
    fn begin(&mut self, now: Instant, index: u16, theirs: u64) -> bool {
        let is_known = |peer: &Peer<B>| peer.session.as_ref().is_some_and(|session| session.theirs == theirs);
        if self.peers.get(usize::from(index)).is_none_or(is_known) {
            return false;
        }
        self.end(now, index);
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return false };
        let trunk = |ours, producer, asker| Trunk::new(peer.bond.trunk(ours, producer, asker));
        let (out, into) = (trunk(true, peer.ours, theirs), trunk(false, theirs, peer.ours));
        self.producer.source_mut().open(out.flow);
        self.owners.offer(out.flow, index);
        peer.sessions += 1;
        peer.session = Some(Session::new(now, (index, peer.sessions), theirs, out, into));
        self.begin_packets(now, index, theirs);
        self.begin_segments(now, index, theirs);
        self.due.set(Slot(u32::from(index)), Some(now));
        true
    }

    /// The peer has begun the session: its trunk is asked for from now on.
    /// Bytes that another process has, of the trunk and of the flow of packets, are not asked for.
    fn ask_trunk(&mut self, now: Instant, index: u16, have: (RangeSet, RangeSet)) {
        let window = self.settings.window_of_trunk();
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let Some(session) = peer.session.as_mut().filter(|session| !session.is_asking) else { return };
        let Some(upstream) = peer.address else { return };
        session.is_asking = true;
        let flow = session.into.flow;
        let request = Request { flow, upstream, length: None, have: have.0 };
        self.consumer.open_live(now, request, window, Mail::default());
        self.owners.add(Use::Trunk, flow, index);
        self.ask_packets(now, index, have.1);
    }

    /// A node asks for a trunk of ours, perhaps from an address at which it has shown that it `receives`. It has begun the session. One that has taken another's place, such as a new process of the peer, knows
    /// nothing of what the other was asked: all that has not come is asked for again.
    pub(super) fn on_trunk_asked(&mut self, now: Instant, flow: FlowId, (asker, receives): (Sender, bool)) {
        let boot = asker.incarnation.boot;
        let Some((index, before)) = self.owners.on_asked(flow, boot) else { return };
        self.on_segments_asked(index, asker, receives);
        if receives {
            let address = asker.face.remote;
            self.turn_to(now, index, address);
            self.found_at(now, index, address);
        }
        self.ask_trunk(now, index, Default::default());
        if before.is_none_or(|before| before == boot) {
            return;
        }
        let Some(into) = self.session(index).map(|session| session.into.flow) else { return };
        self.consumer.renew(now, into);
        self.on_packets_silence(now, index, true);
    }

    /// Goes on with the session of another process with a peer, from the front of `from`.
    pub(super) fn take_peer(&mut self, now: Instant, index: u16, from: &mut &[u8]) -> Result<(), NotTaken> {
        if !bool::take(from).ok_or(NotTaken::OtherForm)? {
            return Ok(());
        }
        let read = |from: &mut &[u8]| Some(((u64::take(from)?, u64::take(from)?), u32::take(from)?));
        let ((ours, theirs), sessions) = read(from).ok_or(NotTaken::OtherForm)?;
        let address: Option<SocketAddr> = Part::take(from).ok_or(NotTaken::OtherForm)?;
        let names = Part::take(from).ok_or(NotTaken::OtherForm)?;
        let peer = self.peers.get_mut(usize::from(index)).ok_or(NotTaken::OtherPeer(index))?;
        let question = peer.question();
        peer.ours = ours;
        peer.sessions = sessions.saturating_sub(1);
        peer.address = if peer.is_found { address } else { peer.address };
        self.producer.source_mut().greet(peer.bond.hello(true), ours);
        self.owners.remove(Use::Trunk, question);
        self.consumer.close(question);
        self.begin(now, index, theirs);
        let session = self.session(index).filter(|session| (session.out.flow, session.into.flow) == names);
        let flow = session.map(|session| session.out.flow).ok_or(NotTaken::OtherPeer(index))?;
        self.take_session(now, index, flow, from).ok_or(NotTaken::OtherForm)
    }

    fn take_session(&mut self, now: Instant, index: u16, flow: FlowId, from: &mut &[u8]) -> Option<()> {
        let log = Log::take(from)?;
        let end = log.end();
        self.producer.source_mut().resume(flow, log);
        let session = self.session(index)?;
        session.out.handed = end;
        session.take_state(now, from)?;
        let (is_asking, have) = (core::mem::take(&mut session.is_asking), session.inbox.came());
        let packets = if bool::take(from)? { self.take_carry(now, index, from)? } else { RangeSet::new() };
        if bool::take(from)? {
            self.peers.get_mut(usize::from(index))?.rate_split.as_mut()?.take_state(now, from)?;
        }
        if is_asking {
            self.ask_trunk(now, index, (have, packets));
        }
        let is_up = self.is_up(now, index);
        self.peers.get_mut(usize::from(index))?.is_told_up = is_up;
        if is_up {
            self.events.push_back(GatewayEvent::Peer { peer: index, is_up });
        }
        Some(())
    }

    /// Goes on with a stream.
    pub(super) fn take_stream(&mut self, id: StreamId, stream: Stream) {
        let held = stream.receive.held() as u64;
        if self.session(id.peer).is_some() && self.streams.find(&id).is_none() {
            self.streams.find_or_insert(id, || stream);
            self.stats.waiting_bytes += held;
            self.ready_to_send(id);
        }
    }

    /// Ends the session with a peer, and all its streams.
    fn end(&mut self, now: Instant, index: u16) {
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let Some(session) = peer.session.take() else { return };
        self.owners.withdraw(session.out.flow);
        self.producer.source_mut().close(session.out.flow);
        self.producer.withdraw(session.out.flow);
        self.consumer.close(session.into.flow);
        self.owners.remove(Use::Trunk, session.into.flow);
        self.end_packets(index);
        self.end_segments(index);
        self.due.set(Slot(u32::from(index)), None);
        let of_peer = self.streams.iter().filter_map(|(slot, _)| self.streams.key(slot).copied());
        let lost: Vec<StreamId> = of_peer.filter(|id| id.peer == index).collect();
        for stream in lost {
            self.void(stream, Reason::PeerLost);
        }
        self.tell_peer(now, index);
    }

    /// Ends the session with a peer and begins another.
    fn restart(&mut self, now: Instant, index: u16) {
        self.end(now, index);
        self.say_hello(now, index);
    }

    /// The peer no longer knows a flow that it had.
    pub(super) fn on_gone(&mut self, now: Instant, flow: FlowId) {
        let owner = [Use::Trunk, Use::Packets].into_iter().find_map(|of| self.owners.find(of, flow));
        if let Some(index) = owner {
            self.restart(now, index);
        }
    }

    /// A stream ended by no doing of its user here.
    fn void(&mut self, stream: StreamId, reason: Reason) {
        let Some(removed) = self.remove(stream) else { return };
        self.stats.resets += 1;
        // The application does not know a stream whose opening has not come.
        if removed.opening.is_some() {
            self.events.push_back(GatewayEvent::Reset { stream, reason });
        }
    }

    /// Tells the application when a peer has begun or ceased to answer.
    pub(super) fn tell_peer(&mut self, now: Instant, index: u16) {
        let is_up = self.is_up(now, index);
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        if core::mem::replace(&mut peer.is_told_up, is_up) != is_up {
            self.events.push_back(GatewayEvent::Peer { peer: index, is_up });
        }
    }

    pub(super) fn on_peer_timeout(&mut self, now: Instant, index: u16) {
        let slot = Slot(u32::from(index));
        let (hold, free) = (self.settings.hold, self.free() as u64);
        let Some(session) = self.session(index) else {
            self.due.set(slot, None);
            return;
        };
        session.tell_room(free);
        let flow = session.into.flow;
        match session.on_timeout(now, hold) {
            Some(Due::Urge) => self.consumer.urge(now, flow),
            Some(Due::LookBack) => self.consumer.look_back(now, flow),
            Some(Due::Renew) => {
                self.ask_trunk(now, index, Default::default());
                self.consumer.renew(now, flow);
                self.on_packets_silence(now, index, true);
            }
            Some(Due::End) => self.restart(now, index),
            None => {}
        }
        self.tell_peer(now, index);
        let next = self.session(index).map(|session| session.next_timeout());
        self.due.set(slot, next);
        self.tell_packets(index);
        self.on_packets_timeout(now, index);
    }

    /// Opens the records from a peer. `is_more_due` says whether the peer had more to send than it was allowed to.
    pub(super) fn take_mail(&mut self, now: Instant, index: u16, is_more_due: bool) {
        let Some(session) = self.peers.get(usize::from(index)).and_then(|peer| peer.session.as_ref()) else {
            return;
        };
        let flow = session.into.flow;
        let Some(mail) = self.consumer.flow_mut(flow).map(|flow| core::mem::take(flow.sink_mut())) else {
            return;
        };
        let mut frames = core::mem::take(&mut self.scratch.frames);
        let (mut is_right, mut at) = (true, 0);
        for range in &mail.pieces {
            let bytes = &mail.bytes[at..at + range.len() as usize];
            at += bytes.len();
            let Some(session) = self.session(index) else { break };
            let (inbox, key) = (&mut session.inbox, &session.into.key);
            is_right = is_right && inbox.push(key, range.start, bytes, &mut frames).is_ok();
        }
        let is_right = is_right && self.on_frames(now, index, &frames).is_ok();
        frames.clear();
        self.scratch.frames = frames;
        if let Some(flow) = self.consumer.flow_mut(flow) {
            *flow.sink_mut() = mail.emptied();
        }
        if !is_right {
            self.stats.bad_records += 1;
            self.restart(now, index);
        } else if at > 0 {
            self.on_heard(now, index, flow, is_more_due);
        }
    }

    /// Bytes of a peer's trunk arrived.
    fn on_heard(&mut self, now: Instant, index: u16, flow: FlowId, is_more_due: bool) {
        let share = self.settings.window / TELL_SHARE;
        let Some(session) = self.session(index) else { return };
        let before = session.next_timeout();
        let silence = session.on_heard(now, is_more_due);
        let next = session.next_timeout();
        if session.untold() >= share {
            session.beat(now);
        }
        match silence {
            Some(Silence::Short) => self.consumer.remind(flow),
            Some(Silence::Long) => self.consumer.renew(now, flow),
            None => {}
        }
        if let Some(silence) = silence {
            self.on_packets_silence(now, index, silence == Silence::Long);
        }
        if next != before {
            self.wake_in_time(index);
        }
        self.tell_peer(now, index);
    }

    /// Has [`Gateway::on_peer_timeout`] called when the session or the flow of packets has something to do.
    pub(super) fn wake_in_time(&mut self, index: u16) {
        let deadline = self.deadline(index);
        let Some(peer) = self.peers.get(usize::from(index)) else { return };
        let Some(session) = peer.session.as_ref() else { return };
        let of_packets = peer.carry.as_ref().map(|carry| carry.next_timeout(deadline));
        let next = of_packets.into_iter().fold(session.next_timeout(), Instant::min);
        self.due.set(Slot(u32::from(index)), Some(next));
    }

    fn on_frames(&mut self, now: Instant, index: u16, mut bytes: &[u8]) -> Result<(), BadRecord> {
        while !bytes.is_empty() {
            let (frame, rest) = Frame::parse(bytes).ok_or(BadRecord)?;
            bytes = rest;
            match frame {
                Frame::Open { number, opening } => self.on_open(now, index, number, opening),
                Frame::Connected { id } => self.on_connected(index, id),
                Frame::Data { id, offset, bytes, is_end } => {
                    self.on_data(index, id, (offset, bytes, is_end))?;
                }
                Frame::Credit { id, limit } => self.on_credit(index, id, limit),
                Frame::Reset { id, reason } => self.on_reset(index, id, reason),
                Frame::Beat { time, echo, received } => self.on_beat(now, index, (time, echo, received)),
                Frame::Packets { end } => self.on_packets_end(now, index, end),
                Frame::Room { below } => {
                    if let Some(session) = self.session(index) {
                        session.on_room(below);
                    }
                }
            }
        }
        Ok(())
    }

    fn on_open(&mut self, now: Instant, index: u16, number: u64, opening: Opening) {
        let new = self.stream_with(index);
        let Some(session) = self.session(index) else { return };
        let stream = session.named(WireId { senders: true, number });
        if !session.note_opened(number) {
            return;
        }
        // A stream whose bytes came before its opening is counted already.
        let is_counted = self.is_open(stream);
        let has_room = self.streams.len() - usize::from(is_counted) < self.settings.max_streams;
        if !has_room || self.is_crammed() || !self.speaks(index) {
            self.remove(stream);
            if let Some(session) = self.session(index) {
                session.reset(stream, Reason::NoRoom);
            }
            return;
        }
        let slot = self.streams.find_or_insert(stream, || new);
        self.begin_connection(now, stream);
        if let Some(stream) = self.streams.get_mut(slot) {
            stream.opening = Some(opening);
        }
        self.stats.accepted += 1;
        self.events.push_back(GatewayEvent::Opened { stream, opening });
        self.tell_readable(stream);
    }

    fn on_connected(&mut self, index: u16, id: WireId) {
        let Some(stream) = self.session(index).map(|session| session.named(id)) else { return };
        if self.is_open(stream) {
            self.events.push_back(GatewayEvent::Connected { stream });
        }
    }

    fn on_data(
        &mut self,
        index: u16,
        id: WireId,
        (offset, bytes, is_end): (u64, &[u8], bool),
    ) -> Result<(), BadRecord> {
        let Some(session) = self.session(index) else { return Ok(()) };
        let (stream_id, is_to_come) = (session.named(id), session.is_to_come(id));
        let is_by_rate = self.peers.get(usize::from(index)).is_some_and(|peer| peer.by_rate.is_some());
        if is_to_come && !is_by_rate {
            self.streams.find_or_insert(stream_id, || Stream::new(None));
        }
        let Some(stream) = self.stream_mut(stream_id).filter(|stream| stream.kept.is_none()) else {
            return Ok(());
        };
        let before = stream.receive.held();
        if !stream.receive.on_bytes(offset, bytes, is_end) {
            return Err(BadRecord);
        }
        let more = (stream.receive.held() - before) as u64;
        self.stats.waiting_bytes += more;
        self.tell_readable(stream_id);
        Ok(())
    }

    /// Tells the application once that there is something to read.
    pub(super) fn tell_readable(&mut self, id: StreamId) {
        let Some(stream) = self.stream_mut(id) else { return };
        if stream.opening.is_some() && stream.receive.is_readable() && !stream.is_readable_told {
            stream.is_readable_told = true;
            self.events.push_back(GatewayEvent::Readable { stream: id });
        }
    }

    fn on_credit(&mut self, index: u16, id: WireId, limit: u64) {
        let Some(stream_id) = self.session(index).map(|session| session.named(id)) else { return };
        if let Some(stream) = self.stream_mut(stream_id) {
            stream.send.on_credit(limit);
            self.ready_to_send(stream_id);
        }
    }

    fn on_reset(&mut self, index: u16, id: WireId, reason: Reason) {
        let Some(session) = self.session(index) else { return };
        let stream = session.named(id);
        if id.senders {
            // Its opening may still be to come: then it is void before it began.
            session.note_opened(id.number);
        }
        session.turns.remove(stream);
        self.void(stream, reason);
    }

    fn on_beat(&mut self, now: Instant, index: u16, beat: (u64, u64, u64)) {
        let Some(session) = self.session(index) else { return };
        let (received, flow) = (session.on_beat(now, beat), session.out.flow);
        if let Some(log) = self.producer.source_mut().trunk_mut(flow) {
            log.forget(received);
            self.producer.on_arrived(flow, received);
        }
    }
}
