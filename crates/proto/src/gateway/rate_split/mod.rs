//! Connections by the rate-based protocol of connection splitting, between two gateways with nothing but one link in
//! between.
//!
//! The trunk tells all else: that the peer is there, and which streams begin, have connected and are reset. Their bytes
//! travel beside it, in segments that are sealed from end to end and that no relay takes part in. A direction of a stream is a connection of [`split::Gateway`] at the sending gateway and a
//! [`split::Receiver`] at the other, the same that the simulator has. What a stream's user gives is taken while the buffer
//! has room, which is sized for the link's rate and both round trips; the user's TCP feels it.
//!
//! `content` is the inside of segments, `path` finds out whether they get through and how long they may be, `kept` holds
//! the bytes that may have to be sent again, `streams` joins all of it to the gateway's streams.
//!
//! Source: the paper on rate-based connection splitting for satellite hybrid networks, sections II to IV.

mod content;
mod handover;
mod kept;
mod path;
mod streams;

pub(in crate::gateway) use kept::Kept;

use super::frame::WireId;
use super::session::Trunk;
use super::{BadRecord, StreamId};
use crate::deadlines::Deadlines;
use crate::peer::Peer;
use crate::security::{NONCE_LEN, SealKey, TAG_LEN};
use crate::split::{self, ConnectionId, Receiver, Segment, SenderStats, SplitConfig};
use crate::table::Table;
use crate::time::Instant;
use crate::wire::SegmentHeader;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use content::Content;
use path::Path;

/// Connections that are over and whose last acknowledgement is repeated if the peer did not get it: ten seconds of the
/// most that a gateway opens.
const MOST_OVER: usize = 20_000;
/// UDP and IPv6, bytes (RFC 768, RFC 8200); with IPv4 the link is used for 1.5 % less than it could be.
const BELOW: usize = 8 + 40;
/// Headers of IP and of TCP, bytes, which [`split::Gateway`] counts by itself for each segment of data.
const COUNTED: usize = 20 + 20;

/// Segments of a session, both ways.
pub(super) struct RateSplit<K> {
    config: SplitConfig,
    out: Trunk<K>,
    into: Trunk<K>,
    /// The incarnation of the peer that asked for our trunk last: segments are for it, as answers are. There are none before.
    asker: Option<Peer>,
    /// The number of the next segment: no two are sealed with the same.
    number: u64,
    path: Path,
    sending: split::Gateway,
    receivers: Table<ConnectionId, Receiver>,
    /// Times at which receivers have something to acknowledge.
    acks: Deadlines,
    /// Ends of connections whose receivers are gone, the eldest first, and those of them that are to be told again.
    over: BTreeMap<ConnectionId, u64>,
    eldest: VecDeque<ConnectionId>,
    again: VecDeque<ConnectionId>,
    /// Streams to which users gave bytes, or an end, since the last look.
    touched: Vec<StreamId>,
    /// Counters of connections that are over.
    stats: SenderStats,
}

/// The number of a stream's connection over the satellite.
fn connection(id: StreamId) -> ConnectionId {
    ConnectionId((id.number << 1) | u64::from(id.ours))
}

fn wire_id(id: ConnectionId) -> WireId {
    WireId { senders: id.0 & 1 != 0, number: id.0 >> 1 }
}

fn nonce(number: u64) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

impl<K: SealKey> RateSplit<K> {
    /// Bytes of a segment beyond its payload, at most, within a packet.
    pub(super) const OVERHEAD: usize = SegmentHeader::MAX_LEN + TAG_LEN + Content::DATA_OVERHEAD;

    /// The segments of a session that begins: packets of at most `longest` bytes, which become datagrams that are
    /// `overhead` bytes longer.
    pub(super) fn new(
        now: Instant,
        config: &SplitConfig,
        (out, into): (Trunk<K>, Trunk<K>),
        (longest, overhead, window): (usize, usize, u64),
    ) -> Self {
        let largest = longest.saturating_sub(Self::OVERHEAD).clamp(1, usize::from(u16::MAX)) as u16;
        let framing = Self::OVERHEAD + overhead + BELOW - COUNTED;
        Self {
            config: *config,
            out,
            into,
            asker: None,
            number: 0,
            path: Path::new(now, largest, window),
            sending: split::Gateway::new(config.rate, framing as u32),
            receivers: Table::new(0),
            acks: Deadlines::default(),
            over: BTreeMap::new(),
            eldest: VecDeque::new(),
            again: VecDeque::new(),
            touched: Vec::new(),
            stats: SenderStats::default(),
        }
    }

    /// The peer takes segments of ours.
    pub(super) fn is_open(&self) -> bool {
        self.path.mss().is_some()
    }

    /// The peer speaks the protocol.
    pub(super) fn is_heard(&self) -> bool {
        self.path.is_heard()
    }

    /// Other bytes leave over the link.
    pub(super) fn on_other_sent(&mut self, now: Instant, bytes: u64) {
        self.sending.on_other_sent(now, u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Time of the next timeout, or of the next segment.
    pub(super) fn next_timeout(&self) -> Instant {
        if self.asker.is_none() {
            return Instant::NEVER;
        }
        if !self.again.is_empty() || !self.touched.is_empty() {
            return Instant::ZERO;
        }
        let sending = self.sending.poll_timeout().unwrap_or(Instant::NEVER);
        self.path.next_timeout().min(sending).min(self.acks.next())
    }

    /// A connection begins in our direction, once the path is open.
    fn begin(&mut self, now: Instant, id: StreamId) {
        let Some(mss) = self.path.mss() else { return };
        let config = self.config.of_segments(mss.into(), self.path.room() / u64::from(mss));
        self.sending.open(now, connection(id), &config, self.path.rtt());
        // Until the user's round trip is known.
        self.sending.on_server_rtt(connection(id), crate::time::Duration::ZERO);
    }

    /// The receiver of the peer's direction of a connection; `None` while it is not known how long its segments are.
    fn receiver(&mut self, id: ConnectionId, window: u64) -> Option<&mut Receiver> {
        let mss = self.path.their_mss()?;
        let config = self.config.of_segments(mss.into(), window / u64::from(mss));
        let slot = self.receivers.find_or_insert(id, || Receiver::opened(&config));
        self.receivers.get_mut(slot)
    }

    /// Sets the time of a receiver's next acknowledgement.
    fn rearm(&mut self, id: ConnectionId) {
        if let Some(slot) = self.receivers.find(&id) {
            let due = self.receivers.get(slot).and_then(Receiver::due_at);
            self.acks.set(slot, due);
        }
    }

    /// The owner of a connection's bytes has `kept` of them that arrived in order.
    fn keep(&mut self, id: ConnectionId, kept: u64) {
        if let Some(receiver) = self.receivers.find(&id).and_then(|slot| self.receivers.get_mut(slot)) {
            receiver.keep(kept);
            self.rearm(id);
        }
    }

    /// Forgets a connection. One whose bytes have all come is remembered for a while.
    pub(super) fn close(&mut self, id: StreamId) {
        let id = connection(id);
        self.stats = self.stats.and(self.sending.stats(id));
        self.sending.close(id);
        let Some(slot) = self.receivers.find(&id) else { return };
        self.acks.set(slot, None);
        if let Some(receiver) = self.receivers.remove(slot).filter(Receiver::is_complete) {
            self.over.insert(id, receiver.next());
            self.eldest.push_back(id);
            if receiver.due_at().is_some() {
                self.again.push_back(id);
            }
        }
        if self.eldest.len() > MOST_OVER {
            self.eldest.pop_front().map(|eldest| self.over.remove(&eldest));
        }
    }

    /// Bytes came of a connection that is over: its sender has not heard so.
    fn remind(&mut self, id: ConnectionId) {
        if self.over.contains_key(&id) && !self.again.contains(&id) {
            self.again.push_back(id);
        }
    }

    /// The next message about connections without data.
    fn poll_ack(&mut self, now: Instant) -> Option<Content<'static>> {
        while let Some(id) = self.again.pop_front() {
            if let Some(&next) = self.over.get(&id) {
                let ack = split::Acknowledgement { next, ..Default::default() };
                return Some(Content::Ack { id: wire_id(id), ack });
            }
        }
        while let Some((at, slot)) = self.acks.first()
            && at <= now
        {
            let message = self.receivers.get_mut(slot).and_then(|receiver| receiver.poll(now));
            let due = self.receivers.get(slot).and_then(Receiver::due_at);
            self.acks.set(slot, due);
            if let (Some(split::Message::Ack(ack)), Some(&id)) = (message, self.receivers.key(slot)) {
                return Some(Content::Ack { id: wire_id(id), ack });
            }
        }
        None
    }

    /// The next segment of data, where the link is free.
    fn poll_data(&mut self, now: Instant) -> Option<Segment> {
        self.sending.poll(now)
    }

    /// Appends a sealed segment behind `out`. False when the cipher refuses.
    fn seal(&mut self, content: &Content<'_>, out: &mut Vec<u8>) -> bool {
        let header = SegmentHeader { flow: self.out.flow, number: self.number };
        self.number += 1;
        let begin = out.len();
        header.emit(out);
        let mut front = [0; SegmentHeader::MAX_LEN];
        let length = out.len() - begin;
        front[..length].copy_from_slice(&out[begin..]);
        let start = out.len();
        content.emit(out);
        self.out.key.seal(nonce(header.number), &front[..length], out, start)
    }

    /// Opens a segment of the peer in `sealed`.
    fn open<'a>(&self, header: &SegmentHeader, sealed: &'a mut [u8]) -> Result<Content<'a>, BadRecord> {
        let mut front = Vec::with_capacity(SegmentHeader::MAX_LEN);
        header.emit(&mut front);
        let plain = self.into.key.open(nonce(header.number), &front, sealed).ok_or(BadRecord)?;
        Content::parse(plain).ok_or(BadRecord)
    }
}
