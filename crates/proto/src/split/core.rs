//! The gateway: connections on one satellite link.

use super::ack_pacer::AckPacer;
use super::config::SplitConfig;
use super::room::Room;
use super::scheduler::Scheduler;
use super::segment::{Acknowledgement, ConnectionId, Message, Segment};
use super::sender::{Sender, SenderStats};
use super::state::SenderState;
use crate::deadlines::Deadlines;
use crate::name::ByteRange;
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use alloc::vec::Vec;

/// IPv4 header without options, bytes (RFC 791).
const IP_HEADER: u32 = 20;
/// Longest time over which the bytes that one acknowledgement frees are spread; a longer silence was no rhythm.
const LONGEST_PACE: Duration = Duration::from_secs(1);
/// Interval of probes of a client without room: the segment that reported new room may have been lost.
const PROBE: Duration = Duration::from_secs(1);

/// The effect of a client's segment on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Nothing that the owner needs to act on.
    Nothing,
    /// The connection is open since now: connect to its server.
    Opened,
}

/// Bytes that a connection buffers at the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Not sent over the satellite yet.
    pub unsent: u64,
    /// In the buffer, as the flow control counts it.
    pub held: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Listens,
    /// Is to answer, or answered at this time.
    Accepts(Option<Instant>),
    Open,
}

#[derive(Debug)]
struct Connection {
    config: SplitConfig,
    link: Link,
    sender: Sender,
    room: Room,
    pacer: AckPacer,
    /// Round trip to the server, once it is known.
    to_server: Option<Duration>,
    /// Bytes that the client has asked the server with.
    asked: u64,
    /// Time of the next probe of a client without room.
    probe_at: Option<Instant>,
    /// It has a turn on the link.
    has_turn: bool,
}

impl Connection {
    fn new(config: &SplitConfig, link: Link) -> Self {
        Self {
            config: *config,
            link,
            sender: Sender::new(config),
            // Nothing is to come before both round trips are known.
            room: Room::new(0, config.release),
            pacer: AckPacer::new(u64::from(config.mss), LONGEST_PACE),
            to_server: None,
            asked: 0,
            probe_at: None,
            has_turn: false,
        }
    }

    fn on_message(&mut self, now: Instant, message: &Message, released: &mut Vec<ByteRange>) -> Heard {
        match (message, self.link) {
            (Message::Open, Link::Listens | Link::Accepts(_)) => self.link = Link::Accepts(None),
            (Message::Ack(ack) | Message::Request { ack, .. }, Link::Accepts(Some(at))) => {
                self.link = Link::Open;
                self.sender.on_rtt(now.since(at));
                self.on_ack(now, ack, released);
                return Heard::Opened;
            }
            (Message::Ack(ack) | Message::Request { ack, .. }, Link::Open) => self.on_ack(now, ack, released),
            _ => {}
        }
        Heard::Nothing
    }

    fn on_ack(&mut self, now: Instant, ack: &Acknowledgement, released: &mut Vec<ByteRange>) {
        self.asked = self.asked.max(ack.asked);
        self.sender.on_ack(now, ack, released);
        let freed = self.room.on_received(self.sender.received(), self.sender.cumulative());
        if self.config.pacing && freed > 0 {
            self.pacer.on_freed(now, freed);
        }
        self.resize();
        self.watch(now);
    }

    fn watch(&mut self, now: Instant) {
        self.probe_at = self.sender.is_blocked().then(|| self.probe_at.unwrap_or(now + PROBE));
    }

    /// The buffer for the round trips as they are known now: the least ones, so that a handshake that took longer
    /// because a part of it was lost does not count for ever.
    fn resize(&mut self) {
        if let (Some(to_client), Some(to_server)) = (self.sender.least_rtt(), self.to_server) {
            let size = Room::size(self.config.buffer, to_client, to_server, self.config.mss);
            self.room.resize(size);
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Message> {
        match self.link {
            Link::Accepts(None) => {
                self.link = Link::Accepts(Some(now));
                Some(Message::Accept)
            }
            Link::Open if self.probe_at.is_some_and(|at| at <= now) => {
                self.probe_at = Some(now + PROBE);
                Some(Message::Accept)
            }
            Link::Open => self.sender.poll(now),
            Link::Listens | Link::Accepts(Some(_)) => None,
        }
    }

    fn has_work(&self, now: Instant) -> bool {
        let is_probed = self.probe_at.is_some_and(|at| at <= now);
        self.link == Link::Accepts(None) || (self.link == Link::Open && (self.sender.has_work() || is_probed))
    }

    /// Time of the next timeout, but for what waits for its turn.
    fn poll_timeout(&self) -> Option<Instant> {
        let probe = self.probe_at.filter(|_| !self.has_turn);
        [self.sender.poll_timeout(), self.pacer.poll_timeout(), probe].into_iter().flatten().min()
    }
}

/// All split connections of a satellite link at its gateway.
///
/// Inputs are [`Self::listen`] or [`Self::open`], [`Self::on_segment`] from clients, [`Self::give`] and
/// [`Self::on_server_rtt`] from the terrestrial side, and [`Self::on_timeout`]. After each, [`Self::poll`] is drained
/// towards the satellite, and [`Self::room`] gives the bytes that the server may send. The owner keeps the payload and
/// forgets it as it is released. The cost of each does not grow with the number of connections.
#[derive(Debug)]
pub struct Gateway {
    connections: Table<ConnectionId, Connection>,
    due: Deadlines,
    scheduler: Scheduler,
    framing: u32,
}

impl Gateway {
    /// A gateway to a satellite of `rate`, whose link adds `framing` bytes to every IP packet.
    pub fn new(rate: Rate, framing: u32) -> Self {
        // The numbers of connections are the owner's, so nobody else can make them collide.
        let connections = Table::new(0);
        Self { connections, due: Deadlines::default(), scheduler: Scheduler::new(rate), framing }
    }

    /// A client may open the connection `id` from now on.
    pub fn listen(&mut self, id: ConnectionId, config: &SplitConfig) {
        self.connections.find_or_insert(id, || Connection::new(config, Link::Listens));
    }

    /// The connection `id` is open: its owner has settled that with the client, to which a round trip takes `rtt`.
    pub fn open(&mut self, now: Instant, id: ConnectionId, config: &SplitConfig, rtt: Duration) {
        let slot = self.connections.find_or_insert(id, || Connection::new(config, Link::Open));
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.sender.open(rtt, config.receive_window);
        }
        self.refresh(now, slot);
    }

    /// Goes on with an open connection of another process.
    pub fn resume(&mut self, now: Instant, id: ConnectionId, config: &SplitConfig, state: &SenderState) {
        let mut connection = Connection::new(config, Link::Open);
        connection.sender = Sender::resumed(now, config, state);
        connection.room.on_arrived(state.given);
        connection.room.on_received(state.received, state.cumulative);
        // Until it is known again.
        connection.to_server = Some(Duration::ZERO);
        connection.resize();
        let slot = self.connections.find_or_insert(id, || connection);
        self.refresh(now, slot);
    }

    /// The open connections, for another process.
    pub fn states(&self) -> impl Iterator<Item = (ConnectionId, SenderState)> + '_ {
        let state = |(slot, connection): (Slot, &Connection)| {
            Some((*self.connections.key(slot)?, connection.sender.state()))
        };
        self.connections.iter().filter_map(state)
    }

    /// Forgets a connection.
    pub fn close(&mut self, id: ConnectionId) {
        if let Some(slot) = self.connections.find(&id) {
            self.due.set(slot, None);
            if self.connections.remove(slot).is_some_and(|connection| connection.has_turn) {
                self.scheduler.remove(id);
            }
        }
    }

    /// A client's segment arrived; the ranges that it has for the first time are added to `released`.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment, released: &mut Vec<ByteRange>) -> Heard {
        let Some(slot) = self.connections.find(&segment.connection) else { return Heard::Nothing };
        let Some(connection) = self.connections.get_mut(slot) else { return Heard::Nothing };
        let heard = connection.on_message(now, &segment.message, released);
        self.refresh(now, slot);
        heard
    }

    /// The connection to the server is open, and its round trip known: the buffer is sized.
    pub fn on_server_rtt(&mut self, id: ConnectionId, rtt: Duration) {
        let Some(connection) = self.find_mut(id) else { return };
        connection.to_server = Some(rtt);
        connection.resize();
    }

    /// The server has given `bytes` bytes in all, in order, and no more will follow where `is_all`.
    pub fn give(&mut self, now: Instant, id: ConnectionId, bytes: u64, is_all: bool) {
        let Some(slot) = self.connections.find(&id) else { return };
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.sender.give(bytes, is_all);
            connection.room.on_arrived(bytes);
            connection.watch(now);
        }
        self.refresh(now, slot);
    }

    /// Bytes beyond those given that the server may send: the window to advertise.
    pub fn room(&self, id: ConnectionId) -> u64 {
        self.find(id).map_or(0, |connection| connection.room.free().saturating_sub(connection.pacer.held()))
    }

    /// Bytes that the client has asked with: they go on to the server.
    pub fn asked(&self, id: ConnectionId) -> u64 {
        self.find(id).map_or(0, |connection| connection.asked)
    }

    /// Time passed. Adds to `woken` the connections whose timers ran out: their rooms may have changed.
    pub fn on_timeout(&mut self, now: Instant, woken: &mut Vec<ConnectionId>) {
        while let Some((at, slot)) = self.due.first() {
            if at > now {
                return;
            }
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.sender.on_timeout(now);
                connection.pacer.on_timeout(now);
            }
            woken.extend(self.connections.key(slot).copied());
            self.refresh(now, slot);
        }
    }

    /// Other bytes leave over the satellite.
    pub fn on_other_sent(&mut self, now: Instant, bytes: u32) {
        self.scheduler.on_other_sent(now, bytes);
    }

    /// Other bytes wait: they leave before the next segment.
    pub fn give_way(&mut self, now: Instant) {
        self.scheduler.give_way(now);
    }

    /// The segment that leaves over the satellite next, if one may now.
    pub fn poll(&mut self, now: Instant) -> Option<Segment> {
        let (connections, due) = (&mut self.connections, &mut self.due);
        let segment = self.scheduler.pick(now, |id| {
            let slot = connections.find(&id)?;
            let connection = connections.get_mut(slot)?;
            let message = connection.poll(now);
            connection.has_turn = connection.has_work(now);
            due.set(slot, connection.poll_timeout());
            Some((message.map(|message| Segment { connection: id, message }), connection.has_turn))
        })?;
        self.scheduler.on_sent(now, segment.payload() + segment.header() + IP_HEADER + self.framing);
        Some(segment)
    }

    /// Time of the next timeout.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let turn = self.scheduler.has_turns().then(|| self.scheduler.free_at());
        turn.into_iter().chain(self.due.next().if_ever()).min()
    }

    /// Gives a connection that has something to send a turn, and sets its timer.
    fn refresh(&mut self, now: Instant, slot: Slot) {
        let Some(&id) = self.connections.key(slot) else { return };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if !connection.has_turn && connection.has_work(now) {
            connection.has_turn = true;
            self.scheduler.add(id);
        }
        self.due.set(slot, connection.poll_timeout());
    }

    fn find(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.find(&id).and_then(|slot| self.connections.get(slot))
    }

    fn find_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.find(&id).and_then(|slot| self.connections.get_mut(slot))
    }

    /// The client has all that the server will ever give: the connection can be closed.
    pub fn is_done(&self, id: ConnectionId) -> bool {
        self.find(id).is_some_and(|connection| connection.sender.is_done())
    }

    /// The client has everything below.
    pub fn acknowledged(&self, id: ConnectionId) -> u64 {
        self.find(id).map_or(0, |connection| connection.sender.cumulative())
    }

    /// Bytes that the server has given.
    pub fn given(&self, id: ConnectionId) -> u64 {
        self.find(id).map_or(0, |connection| connection.sender.given())
    }

    /// Bytes that the buffer is sized to.
    pub fn buffer(&self, id: ConnectionId) -> u64 {
        self.find(id).map_or(0, |connection| connection.room.capacity())
    }

    /// Bytes that a connection buffers.
    pub fn backlog(&self, id: ConnectionId) -> Backlog {
        let of = |c: &Connection| Backlog { unsent: c.sender.unsent(), held: c.room.held() };
        self.find(id).map_or(Backlog::default(), of)
    }

    /// Counters of all connections' senders, each by itself.
    pub fn all_stats(&self) -> impl Iterator<Item = SenderStats> + '_ {
        self.connections.iter().map(|(_, connection)| connection.sender.stats())
    }

    /// Counters of a connection's sender.
    pub fn stats(&self, id: ConnectionId) -> SenderStats {
        self.find(id).map_or(SenderStats::default(), |connection| connection.sender.stats())
    }
}
