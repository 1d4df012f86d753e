//! The gateway: users' connections as streams between two gateways, over Starhop's hops.
//!
//! Each gateway has one *trunk* per peer: a live flow to which it appends *records*, sealed from end to end, and of
//! which the peer always has a window asked for. A stream is opened, fed and ended by frames in records; so a
//! request travels with the opening, its answer finds credit waiting, and both cost one round trip together. A
//! record is one packet and is opened when it comes, so that streams do not wait for each other's losses; hops
//! repair losses. The stream whose bytes go into the next record is chosen when the record is due, short exchanges
//! first (`turns`).
//!
//! From the top down: [`Gateway`] is the node. A `session` is the state of a peer, `stream` the two halves of a
//! connection, `owners` the peers of flows, `inbox` opens records, `store` keeps unacknowledged bytes, `frame` is the wire.

mod balance;
mod carry;
mod frame;
mod handover;
mod inbox;
mod inside;
mod owners;
mod peer;
mod rate_split;
mod session;
mod share;
mod stock;
mod store;
mod stream;
mod survey;
mod turns;
mod types;

pub use crate::hop::Share;
pub use carry::{CarriedPacket, CarrySettings, CarryStats, FlowKey, NotCarried, begins_quic};
pub use frame::{Opening, Reason};
pub use handover::NotTaken;
pub use inside::PlainKey;
pub use survey::{Account, PeerView, StreamView};
pub use types::{Bond, GatewayEvent, GatewaySettings, GatewayStats, NoStream, PeerSpec, StreamId};

use crate::config::Config;
use crate::consumer::{Consumer, ConsumerEvent, Sink};
use crate::deadlines::Deadlines;
use crate::name::{ByteRange, FlowId};
use crate::node::{Node, Transmit};
use crate::peer::{Addressee, Face, Opened, Peer as Sender};
use crate::producer::Producer;
use crate::rng::Rng;
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::wire::{Packet, Plain, Suite};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use inside::Inside;
use owners::{Owners, Use};
use peer::Peer;
use store::Store;
use stream::Stream;

/// A record that was changed since it was sealed, or whose contents make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BadRecord;

/// Carries streams to and from its peers.
pub struct Gateway<B: Bond, C = Plain> {
    suite: C,
    settings: GatewaySettings,
    producer: Producer<Store, Inside>,
    consumer: Consumer<Mail, Inside>,
    peers: Vec<Peer<B>>,
    owners: Owners,
    /// Segments are looked at first the next time: they and all else take turns.
    is_segments_turn: bool,
    /// Peers of which packets came.
    with_packets: VecDeque<u16>,
    streams: Table<StreamId, Stream>,
    due: Deadlines,
    events: VecDeque<GatewayEvent>,
    rng: Rng,
    scratch: Scratch,
    shared: share::Links,
    stats: GatewayStats,
}

/// Buffers that are filled and emptied with every record.
#[derive(Debug, Default)]
struct Scratch {
    data: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    frames: Vec<u8>,
    ended: Vec<StreamId>,
    segment: Vec<u8>,
}

/// Arrived bytes of a flow that are not processed yet.
#[derive(Debug, Default)]
struct Mail {
    pieces: Vec<ByteRange>,
    bytes: Vec<u8>,
}

impl Mail {
    /// Empty again, with its memory.
    fn emptied(mut self) -> Self {
        self.pieces.clear();
        self.bytes.clear();
        self
    }

    /// The number that it holds, when it holds one in one piece.
    fn number(&self) -> Option<u64> {
        self.bytes.as_slice().try_into().ok().map(u64::from_be_bytes)
    }
}

impl Sink for Mail {
    fn write(&mut self, _now: Instant, range: ByteRange, bytes: &[u8]) {
        self.pieces.push(range);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Unsent bytes that a trunk may hold: two packets, or the bytes that leave within a millisecond.
const AHEAD: Duration = Duration::from_millis(1);

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// A gateway for `peers`. It says hello to them at once.
    pub fn new(
        now: Instant,
        config: Config,
        settings: GatewaySettings,
        peers: Vec<PeerSpec<B>>,
        suite: C,
        seed: u64,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let inside = Inside {
            overhead: suite.overhead(),
            to: None,
            token: None,
            is_young: false,
            settled: None,
            introduction: None,
        };
        let mut this = Self {
            suite,
            settings,
            producer: Producer::new(config.clone(), Store::default(), inside, rng.next_u64()),
            consumer: Consumer::new(config, inside, rng.next_u64()),
            peers: Vec::new(),
            owners: Owners::default(),
            is_segments_turn: false,
            with_packets: VecDeque::new(),
            streams: Table::new(rng.next_u64()),
            due: Deadlines::default(),
            events: VecDeque::new(),
            rng,
            scratch: Scratch::default(),
            shared: share::Links::default(),
            stats: GatewayStats::default(),
        };
        for spec in peers {
            let peer = this.peers.len() as u16;
            this.peers.push(Peer::new(spec));
            this.say_hello(now, peer);
        }
        this.set_shared_links(now, Vec::new(), Vec::new());
        this
    }

    /// Opens a stream to the target of `opening`.
    ///
    /// # Errors
    /// [`NoStream`] when it cannot be carried now.
    pub fn open(&mut self, now: Instant, peer: u16, opening: Opening) -> Result<StreamId, NoStream> {
        if self.free() == 0 {
            return Err(NoStream::Full);
        }
        let is_up = self.is_up(now, peer);
        let mut stream = self.stream_with(peer);
        let session = self.session(peer).filter(|_| is_up).ok_or(NoStream::PeerDown)?;
        if !session.has_room() {
            return Err(NoStream::PeerFull);
        }
        let id = session.open(opening);
        stream.opening = Some(opening);
        self.streams.find_or_insert(id, || stream);
        self.begin_connection(now, id);
        self.stats.opened += 1;
        Ok(id)
    }

    /// Gives a stream the share of the link of `weight` streams, in our direction, from the next time on that it has something
    /// to send.
    pub fn set_weight(&mut self, id: StreamId, weight: u8) {
        if let Some(stream) = self.stream_mut(id) {
            stream.weight = weight;
        }
    }

    /// The target of a stream has accepted.
    pub fn connected(&mut self, stream: StreamId) {
        let id = frame::WireId { senders: stream.ours, number: stream.number };
        if let Some(session) = self.session(stream.peer) {
            session.say(frame::Frame::Connected { id });
        }
    }

    /// Takes bytes for the far end of a stream, and says how many: fewer than given when the far end does not take
    /// them. [`GatewayEvent::Writable`] tells when there is room again.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        let Some(stream) = self.stream_mut(id) else { return 0 };
        let taken = if stream.kept.is_some() {
            self.write_connection(id, bytes)
        } else {
            let taken = stream.write(bytes);
            stream.is_writer_waiting = taken < bytes.len();
            taken
        };
        self.account(id.peer, |account| account.to_peer += taken as u64);
        self.ready_to_send(id);
        taken
    }

    /// Bytes that [`Gateway::write`] would take now.
    pub fn room(&mut self, id: StreamId) -> usize {
        let by_rate = self.connection_room(id);
        let Some(stream) = self.stream_mut(id) else { return 0 };
        let room = if stream.kept.is_some() { by_rate } else { stream.room() };
        stream.is_writer_waiting = room == 0;
        room
    }

    /// The bytes that the socket of a stream's user may hold, where that is much more or less than before: a slow stream stores little, so
    /// that its user decides late what goes next. `rtt` gives the round trip to the user. `u64::MAX` leaves it to the socket.
    pub fn bound_of_socket(&mut self, id: StreamId, rtt: impl FnOnce() -> Option<Duration>) -> Option<u64> {
        let stream = self.stream_mut(id).filter(|stream| stream.kept.is_none())?;
        stream.stock.bound_of_socket(rtt)
    }

    /// No bytes follow in this direction.
    pub fn finish(&mut self, id: StreamId) {
        let Some(stream) = self.stream_mut(id) else { return };
        if let Some(kept) = &mut stream.kept {
            kept.finish();
            self.touch(id);
        } else {
            stream.send.finish();
            self.ready_to_send(id);
        }
    }

    /// The unread bytes of a stream, in two pieces.
    pub fn readable(&self, id: StreamId) -> (&[u8], &[u8]) {
        let stream = self.streams.find(&id).and_then(|slot| self.streams.get(slot));
        stream.map_or((&[], &[]), |stream| stream.receive.ready())
    }

    /// Notes that `count` readable bytes were taken. True if these were the last: the far end has finished.
    pub fn consume(&mut self, now: Instant, id: StreamId, count: usize) -> bool {
        let rtt = self.rtt(id.peer).unwrap_or_default();
        let Some(stream) = self.stream_mut(id) else { return false };
        let credit = stream.receive.consume(now, count, rtt);
        let is_end = stream.receive.is_at_end();
        stream.receive.is_ended |= is_end;
        stream.is_readable_told = stream.receive.is_readable();
        let unread = stream.receive.unread();
        self.on_connection_read(id, unread);
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(count as u64);
        self.stats.user_bytes += count as u64;
        self.account(id.peer, |account| account.from_peer += count as u64);
        if let Some(limit) = credit {
            let wire = frame::WireId { senders: id.ours, number: id.number };
            if let Some(session) = self.session(id.peer) {
                session.say(frame::Frame::Credit { id: wire, limit });
            }
        }
        self.drop_if_over(id);
        is_end
    }

    /// Ends a stream before its time, in both directions.
    pub fn reset(&mut self, id: StreamId, reason: Reason) {
        if self.remove(id).is_some()
            && let Some(session) = self.session(id.peer)
        {
            session.reset(id, reason);
        }
    }

    /// Whether a stream is there.
    pub fn is_open(&self, id: StreamId) -> bool {
        self.streams.find(&id).is_some()
    }

    /// Whether a peer answers.
    pub fn is_up(&self, now: Instant, peer: u16) -> bool {
        let Some(peer) = self.peers.get(usize::from(peer)) else { return false };
        let is_open = peer.rate_split.as_ref().is_none_or(rate_split::RateSplit::is_open);
        is_open && peer.session.as_ref().is_some_and(|session| session.is_up(now))
    }

    /// The round trip to a peer, as last seen.
    pub fn rtt(&self, peer: u16) -> Option<Duration> {
        self.peers.get(usize::from(peer)).and_then(|peer| peer.session.as_ref()).map(session::Session::rtt)
    }

    /// Counters since the start.
    pub fn stats(&self) -> GatewayStats {
        GatewayStats { streams: self.streams.len() as u64, ..self.stats }
    }

    /// The asking half, for its counters.
    pub fn repairs(&self) -> u64 {
        self.consumer.stats().flows.repairs
    }

    /// Takes new settings for what begins from now on. The window stays as it is, and whether packets are carried.
    pub fn set_settings(&mut self, settings: GatewaySettings) {
        let carry = self.settings.carry.and(settings.carry).or(self.settings.carry);
        self.settings = GatewaySettings { window: self.settings.window, carry, ..settings };
        for carry in self.peers.iter_mut().filter_map(|peer| peer.carry.as_mut()) {
            self.settings.carry.iter().for_each(|settings| carry.set_limits(settings));
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

    /// Streams for which there is room.
    fn free(&self) -> usize {
        match self.is_crammed() {
            true => 0,
            false => self.settings.max_streams.saturating_sub(self.streams.len()),
        }
    }

    /// Whether more bytes wait for users than there may be.
    fn is_crammed(&self) -> bool {
        self.stats.waiting_bytes > self.settings.max_waiting
    }

    fn session(&mut self, peer: u16) -> Option<&mut session::Session<B::Key>> {
        self.peers.get_mut(usize::from(peer)).and_then(|peer| peer.session.as_mut())
    }

    fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.find(&id).and_then(|slot| self.streams.get_mut(slot))
    }

    fn account(&mut self, peer: u16, note: impl FnOnce(&mut Account)) {
        if let Some(peer) = self.peers.get_mut(usize::from(peer)) {
            note(&mut peer.account);
        }
    }

    fn ready_to_send(&mut self, id: StreamId) {
        let stream = self.stream_mut(id).filter(|stream| stream.send.is_ready());
        let weight = stream.map(|stream| stream.weight);
        if let Some(weight) = weight
            && let Some(session) = self.session(id.peer)
        {
            session.turns.add(id, weight);
        }
    }

    fn drop_if_over(&mut self, id: StreamId) {
        if self.stream_mut(id).is_some_and(|stream| stream.send.is_ended && stream.receive.is_ended) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let stream = self.streams.find(&id).and_then(|slot| self.streams.remove(slot))?;
        self.end_connection(id);
        let held = stream.receive.held() as u64;
        self.stats.waiting_bytes = self.stats.waiting_bytes.saturating_sub(held);
        Some(stream)
    }

    /// Appends records to a peer's trunk while few bytes wait there.
    fn pump(&mut self, now: Instant, peer: u16) {
        self.balance(peer);
        loop {
            let Some(session) = self.peers.get_mut(usize::from(peer)).and_then(|p| p.session.as_mut()) else {
                return;
            };
            if !session.has_something() {
                return;
            }
            let (flow, handed) = (session.out.flow, session.out.handed);
            let payload = self.producer.payload(flow);
            let ahead = self.producer.granted(flow).bytes_in(AHEAD).max(2 * payload as u64);
            let sent = self.producer.sent_end(flow).max(handed);
            let Some(log) = self.producer.source().trunk(flow) else { return };
            if log.end().saturating_sub(sent) >= ahead || log.kept() >= self.settings.most_kept(log.start()) {
                return;
            }
            let Scratch { data, plain, sealed, ended, .. } = &mut self.scratch;
            plain.clear();
            sealed.clear();
            let is_news = session.has_news();
            let news = (&mut self.events, &mut *ended);
            self.stats.user_bytes += session.fill((now, &mut self.streams), payload, data, plain, news);
            if plain.is_empty() || !inbox::seal_record(&session.out.key, log.end(), plain, sealed) {
                return;
            }
            let Some(log) = self.producer.source_mut().trunk_mut(flow) else { return };
            log.append(sealed);
            let end = log.end();
            let is_tail = is_news && !session.has_something();
            let is_sooner = is_tail && session.on_tail(now);
            self.producer.on_available(now, flow, end);
            if is_sooner {
                self.wake_in_time(peer);
            }
            while let Some(stream) = self.scratch.ended.pop() {
                self.drop_if_over(stream);
            }
        }
    }

    /// Processes arrived bytes of a flow, with whether its sender has more to send, and the events of the roles.
    fn settle(&mut self, now: Instant, arrived: Option<(FlowId, bool)>) {
        let of_peer = arrived.and_then(|(flow, more)| Some((self.owners.find(Use::Trunk, flow)?, more)));
        if let Some((peer, is_more_due)) = of_peer {
            self.take_mail(now, peer, is_more_due);
        }
        if let Some((flow, _)) = arrived {
            self.on_packets_came(now, flow);
        }
        while let Some(event) = self.consumer.poll_event() {
            match event {
                ConsumerEvent::Finished { flow, .. } => self.on_hello(now, flow),
                ConsumerEvent::NoSuchName { flow } => self.on_gone(now, flow),
                ConsumerEvent::TimedOut { .. } | ConsumerEvent::PutOff { .. } => {}
            }
        }
    }

    fn seal(&mut self, now: Instant, to: &Addressee, out: &mut Vec<u8>, start: usize) -> Option<Transmit> {
        if self.suite.seal(now, to, out, start).is_err() {
            out.truncate(start);
            return None;
        }
        let len = out.len() - start;
        self.stats.sent_bytes += len as u64;
        Some(Transmit { to: to.face(), len })
    }
}

impl<B: Bond, C: Suite> Node for Gateway<B, C> {
    type Event = GatewayEvent;

    fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &mut [u8]) {
        let len = datagram.len();
        let Ok(Opened { peer, packet }) = self.suite.open(now, face, datagram) else {
            self.stats.bad_datagrams += 1;
            return;
        };
        let arrived = match Packet::parse(packet) {
            Ok(packet @ Packet::Interest(_)) => {
                let token = self.suite.token(face.remote);
                let inside = self.producer.suite_mut();
                (inside.token, inside.is_young) = (token, self.suite.is_young());
                inside.introduction = self.suite.introduction(now, &peer);
                self.producer.handle_packet(now, peer, &packet, len);
                self.on_hellos(now, face.remote);
                if let Packet::Interest(interest) = packet {
                    let receives = token.is_none() || interest.token == token;
                    self.on_trunk_asked(now, interest.flow, (peer, receives));
                    self.on_packets_asked(interest.flow);
                }
                None
            }
            Ok(Packet::Segment(header, sealed)) => {
                self.stats.bad_records += u64::from(self.on_segment(now, &header, sealed).is_err());
                None
            }
            Ok(packet) => {
                self.consumer.handle_packet(now, &peer, &packet);
                match packet {
                    Packet::Data(header, _) => Some((header.flow, header.flags.backlog)),
                    Packet::Parity(..) => {
                        // It may have made good packets of any flow.
                        for peer in 0..self.peers.len() as u16 {
                            self.take_mail(now, peer, false);
                            self.take_packets(now, peer);
                        }
                        None
                    }
                    _ => None,
                }
            }
            Err(_) => {
                self.stats.bad_datagrams += 1;
                return;
            }
        };
        if let Some(settled) = self.producer.suite_mut().settled.take() {
            self.suite.settle(&settled);
        }
        self.settle(now, arrived);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.producer.handle_timeout(now);
        self.consumer.handle_timeout(now);
        while let Some((at, Slot(peer))) = self.due.first() {
            if at > now {
                break;
            }
            self.on_peer_timeout(now, peer as u16);
        }
        self.on_segments_timeout(now);
        self.settle(now, None);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        for peer in 0..self.peers.len() {
            self.pump(now, peer as u16);
            self.pump_packets(now, peer as u16);
        }
        let is_first = core::mem::take(&mut self.is_segments_turn);
        if let Some(sent) = is_first.then(|| self.poll_segment(now, out)).flatten() {
            return Some(sent);
        }
        self.is_segments_turn = true;
        loop {
            let start = out.len();
            out.resize(start + self.suite.room(), 0);
            let is_request = self.consumer.poll_transmit(now, out).is_some();
            let to = if is_request {
                self.consumer.suite().to
            } else {
                self.producer.poll_transmit(now, out).and_then(|_| self.producer.suite().to)
            };
            let Some(to) = to else {
                out.truncate(start);
                return if is_first { None } else { self.poll_segment(now, out) };
            };
            if let Some(sealed) = self.seal(now, &to, out, start) {
                self.note_sent(now, &sealed);
                if is_request {
                    let downlinks = self.producer.downlinks_mut();
                    downlinks.note_request(now, sealed.to.remote, sealed.wire_bytes());
                }
                self.note_beside_segments(now, &sealed);
                return Some(sealed);
            }
        }
    }

    fn poll_event(&mut self) -> Option<GatewayEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let roles = [self.producer.poll_timeout(), self.consumer.poll_timeout()];
        roles
            .into_iter()
            .flatten()
            .chain([self.due.next(), self.segments_timeout()])
            .min()
            .and_then(Instant::if_ever)
    }
}
