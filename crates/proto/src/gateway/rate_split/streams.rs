//! The gateway's streams whose bytes travel in segments.

use super::super::frame::WireId;
use super::super::owners::Use;
use super::super::session::{Session, Trunk};
use super::super::stream::Stream;
use super::super::{BadRecord, Bond, Gateway, GatewayEvent, StreamId};
use super::content::Content;
use super::{RateSplit, connection};
use crate::name::ByteRange;
use crate::node::Transmit;
use crate::peer::{Addressee, Peer};
use crate::split::{ConnectionId, Message, Segment, SenderStats};
use crate::time::{Duration, Instant};
use crate::wire::{SegmentHeader, Suite};
use alloc::vec::Vec;

/// Header of a packet of Data up to 256 GiB of a flow, bytes.
const DATA_HEADER: usize = 28;

/// The stream of a connection that this gateway numbered.
fn stream_id<K>(session: &Session<K>, number: ConnectionId) -> StreamId {
    let id = super::wire_id(number);
    session.named(WireId { senders: !id.senders, ..id })
}

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// Counters of the segments to a peer to which connections travel in segments, since the session began.
    pub fn segments(&self, peer: u16) -> Option<SenderStats> {
        let peer = self.peers.get(usize::from(peer)).filter(|peer| peer.by_rate.is_some())?;
        let stats = peer
            .rate_split
            .as_ref()
            .map(|split| split.sending.all_stats().fold(split.stats, SenderStats::and));
        Some(stats.unwrap_or_default())
    }

    /// The kernel's round trip to the user of a stream: the buffer for its bytes is sized by it. Returns the size, where the
    /// stream's bytes travel in segments.
    pub fn set_user_rtt(&mut self, id: StreamId, rtt: Duration) -> Option<u64> {
        let peer = self.peers.get_mut(usize::from(id.peer))?;
        let split = peer.rate_split.as_mut()?;
        split.sending.on_server_rtt(connection(id), rtt);
        Some(split.sending.buffer(connection(id)))
    }

    /// Begins a session's segments.
    pub(in crate::gateway) fn begin_segments(&mut self, now: Instant, index: u16, theirs: u64) {
        let (overhead, window) = (self.suite.overhead(), self.settings.window);
        // No longer than the packets of a trunk.
        let longest = self.producer.config().payload + DATA_HEADER;
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let Some(config) = &peer.by_rate else { return };
        let trunk = |ours, producer, asker| Trunk::new(peer.bond.segments(ours, producer, asker));
        let both = (trunk(true, peer.ours, theirs), trunk(false, theirs, peer.ours));
        let split = RateSplit::new(now, config, both, (longest, overhead, window));
        self.owners.add(Use::Segments, split.into.flow, index);
        peer.rate_split = Some(split);
    }

    /// Ends a session's segments.
    pub(in crate::gateway) fn end_segments(&mut self, index: u16) {
        let split = self.peers.get_mut(usize::from(index)).and_then(|peer| peer.rate_split.take());
        if let Some(split) = split {
            self.owners.remove(Use::Segments, split.into.flow);
        }
    }

    /// The peer asks for our trunk: segments go where it asks from, sealed for it alone. They go to another address only
    /// when it has shown that it `receives` there. At the first one that is shown by accepting the path.
    pub(in crate::gateway) fn on_segments_asked(&mut self, index: u16, asker: Peer, receives: bool) {
        if let Some(split) = self.rate_split(index)
            && (receives || split.asker.is_none_or(|before| before.face == asker.face))
        {
            split.asker = Some(asker);
        }
    }

    /// A stream with a peer, as its bytes travel.
    pub(in crate::gateway) fn stream_with(&self, peer: u16) -> Stream {
        let is_by_rate = self.peers.get(usize::from(peer)).is_some_and(|peer| peer.by_rate.is_some());
        if is_by_rate { Stream::by_rate() } else { Stream::new(None) }
    }

    /// A stream begins.
    pub(in crate::gateway) fn begin_connection(&mut self, now: Instant, id: StreamId) {
        if let Some(split) = self.rate_split(id.peer) {
            split.begin(now, id);
        }
    }

    /// A stream is over.
    pub(in crate::gateway) fn end_connection(&mut self, id: StreamId) {
        if let Some(split) = self.rate_split(id.peer) {
            split.close(id);
        }
    }

    /// Whether streams of a peer can be taken: in the way in which we carry them.
    pub(in crate::gateway) fn speaks(&self, index: u16) -> bool {
        let peer = self.peers.get(usize::from(index));
        peer.and_then(|peer| peer.rate_split.as_ref()).is_none_or(RateSplit::is_heard)
    }

    /// A segment of a peer arrived.
    pub(in crate::gateway) fn on_segment(
        &mut self,
        now: Instant,
        header: &SegmentHeader,
        sealed: &[u8],
    ) -> Result<(), BadRecord> {
        let index = self.owners.find(Use::Segments, header.flow).ok_or(BadRecord)?;
        let mut scratch = core::mem::take(&mut self.scratch.segment);
        scratch.clear();
        scratch.extend_from_slice(sealed);
        let split = self.rate_split(index).ok_or(BadRecord)?;
        let done = match split.open(header, &mut scratch) {
            Ok(Content::Open(terms)) => {
                split.path.on_open(terms);
                Ok(())
            }
            Ok(Content::Accept(terms)) => {
                if split.path.on_accept(now, terms) {
                    self.on_path_open(now, index);
                }
                Ok(())
            }
            Ok(Content::Data { id, offset, bytes, is_last }) => {
                self.on_connection_data(now, index, id, (offset, bytes, is_last))
            }
            Ok(Content::Ask { id }) => {
                self.on_connection_asked(now, index, id);
                Ok(())
            }
            Ok(Content::Ack { id, ack }) => {
                self.on_connection_ack(now, index, id, &Message::Ack(ack));
                Ok(())
            }
            Err(bad) => Err(bad),
        };
        self.scratch.segment = scratch;
        done
    }

    /// Streams that the peer opened meanwhile can answer now.
    fn on_path_open(&mut self, now: Instant, index: u16) {
        let of_peer = self.streams.iter().filter_map(|(slot, _)| self.streams.key(slot).copied());
        let waiting: Vec<StreamId> = of_peer.filter(|id| id.peer == index).collect();
        for id in waiting {
            self.begin_connection(now, id);
            self.touch(id);
        }
        self.tell_peer(now, index);
    }

    fn on_connection_data(
        &mut self,
        now: Instant,
        index: u16,
        id: WireId,
        (offset, bytes, is_last): (u64, &[u8], bool),
    ) -> Result<(), BadRecord> {
        let Some(session) = self.session(index) else { return Ok(()) };
        let (stream_id, is_to_come) = (session.named(id), session.is_to_come(id));
        if is_to_come && !self.is_open(stream_id) {
            let stream = self.stream_with(index);
            self.streams.find_or_insert(stream_id, || stream);
            self.begin_connection(now, stream_id);
        }
        let window = self.settings.window;
        let Some(split) = self.peers.get_mut(usize::from(index)).and_then(|peer| peer.rate_split.as_mut())
        else {
            return Ok(());
        };
        let number = connection(stream_id);
        let Some(stream) = self.streams.find(&stream_id).and_then(|slot| self.streams.get_mut(slot)) else {
            split.remind(number);
            return Ok(());
        };
        let Some(receiver) = split.receiver(number, window) else { return Ok(()) };
        let end = offset + bytes.len() as u64;
        let range = ByteRange::new(offset, end + u64::from(is_last));
        let (before, mut is_right) = (stream.receive.held(), true);
        receiver.on_message(now, &Message::Data { range, is_last }, |fresh| {
            let place = |at: u64| (at.min(end) - offset) as usize;
            let is_end = is_last && fresh.end == range.end;
            is_right &=
                stream.receive.on_bytes(fresh.start, &bytes[place(fresh.start)..place(fresh.end)], is_end);
        });
        receiver.keep(stream.receive.unread() as u64);
        let more = stream.receive.held() - before;
        split.rearm(number);
        self.stats.waiting_bytes += more as u64;
        self.tell_readable(stream_id);
        if is_right { Ok(()) } else { Err(BadRecord) }
    }

    /// The sender of a connection's bytes had no room when it was told last.
    fn on_connection_asked(&mut self, now: Instant, index: u16, id: WireId) {
        let Some(number) = self.session(index).map(|session| connection(session.named(id))) else { return };
        let Some(split) = self.rate_split(index) else { return };
        if let Some(receiver) = split.receivers.find(&number).and_then(|slot| split.receivers.get_mut(slot)) {
            receiver.on_message(now, &Message::Accept, |_| ());
            split.rearm(number);
        } else {
            split.remind(number);
        }
    }

    fn on_connection_ack(&mut self, now: Instant, index: u16, id: WireId, message: &Message) {
        let Some(stream_id) = self.session(index).map(|session| session.named(id)) else { return };
        let Some(split) = self.rate_split(index) else { return };
        let number = connection(stream_id);
        let segment = Segment { connection: number, message: *message };
        split.sending.on_segment(now, &segment, &mut Vec::new());
        let (below, is_done) = (split.sending.acknowledged(number), split.sending.is_done(number));
        let Some(stream) = self.stream_mut(stream_id) else { return };
        stream.send.is_ended |= is_done;
        self.stats.user_bytes += stream.kept.as_mut().map_or(0, |kept| kept.forget(below));
        self.tell_writable(stream_id);
        self.drop_if_over(stream_id);
    }

    /// Bytes of a stream were read, and `unread` are left of those that came in order.
    pub(in crate::gateway) fn on_connection_read(&mut self, id: StreamId, unread: usize) {
        if let Some(split) = self.rate_split(id.peer) {
            split.keep(connection(id), unread as u64);
        }
    }

    /// A stream's user gave bytes, or an end.
    pub(in crate::gateway) fn touch(&mut self, id: StreamId) {
        if let Some(split) = self.rate_split(id.peer) {
            split.touched.push(id);
        }
    }

    /// Bytes that a stream's user may give now: whole segments, unless nothing else is on its way.
    pub(in crate::gateway) fn connection_room(&self, id: StreamId) -> usize {
        let peer = self.peers.get(usize::from(id.peer));
        let Some(split) = peer.and_then(|peer| peer.rate_split.as_ref()) else { return 0 };
        let Some(mss) = split.path.mss().map(u64::from) else { return 0 };
        let kept = self.streams.find(&id).and_then(|slot| self.streams.get(slot)?.kept.as_ref());
        let Some(kept) = kept.filter(|kept| !kept.is_ending()) else { return 0 };
        let untold = kept.end().saturating_sub(split.sending.given(connection(id)));
        let room = split.sending.room(connection(id)).saturating_sub(untold);
        (room / mss * mss) as usize
    }

    /// Takes bytes of a stream's user.
    pub(in crate::gateway) fn write_connection(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.connection_room(id));
        if let Some(stream) = self.stream_mut(id) {
            stream.is_writer_waiting = taken < bytes.len();
            stream.kept.iter_mut().for_each(|kept| kept.write(&bytes[..taken]));
        }
        self.touch(id);
        taken
    }

    fn tell_writable(&mut self, id: StreamId) {
        let is_waiting = self.stream_mut(id).is_some_and(|stream| stream.is_writer_waiting);
        if is_waiting && self.connection_room(id) > 0 {
            self.stream_mut(id).iter_mut().for_each(|stream| stream.is_writer_waiting = false);
            self.events.push_back(GatewayEvent::Writable { stream: id });
        }
    }

    /// Time passed.
    pub(in crate::gateway) fn on_segments_timeout(&mut self, now: Instant) {
        for index in 0..self.peers.len() as u16 {
            let Some(split) = self.rate_split(index) else { continue };
            let mut woken = Vec::new();
            split.sending.on_timeout(now, &mut woken);
            let is_overdue = split.path.is_overdue(now);
            let Some(session) = self.session(index) else { continue };
            let is_answered = session.is_up(now);
            let ids: Vec<StreamId> = woken.into_iter().map(|number| stream_id(session, number)).collect();
            ids.into_iter().for_each(|id| self.tell_writable(id));
            if is_overdue && is_answered {
                self.events.push_back(GatewayEvent::NotByRate { peer: index });
            }
        }
    }

    /// Time of the next segment.
    pub(in crate::gateway) fn segments_timeout(&self) -> Instant {
        let splits = self.peers.iter().filter_map(|peer| peer.rate_split.as_ref());
        splits.map(RateSplit::next_timeout).fold(Instant::NEVER, Instant::min)
    }

    /// Appends the next segment to `out`, if one is due.
    pub(in crate::gateway) fn poll_segment(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        for index in 0..self.peers.len() as u16 {
            self.give_touched(now, index);
            let start = out.len();
            out.resize(start + self.suite.room(), 0);
            if let Some((asker, is_data)) = self.emit_segment(now, index, out)
                && let Some(sealed) = self.seal(now, &Addressee::Asker(asker), out, start)
            {
                self.note_segment(now, index, (&sealed, is_data));
                return Some(sealed);
            }
            out.truncate(start);
        }
        None
    }

    /// Hands to the sender what users gave.
    fn give_touched(&mut self, now: Instant, index: u16) {
        let Some(split) = self.peers.get_mut(usize::from(index)).and_then(|peer| peer.rate_split.as_mut())
        else {
            return;
        };
        for id in split.touched.drain(..) {
            let stream = self.streams.find(&id).and_then(|slot| self.streams.get(slot));
            if let Some(kept) = stream.and_then(|stream| stream.kept.as_ref()) {
                split.sending.give(now, connection(id), kept.given(), kept.is_ending());
            }
        }
    }

    /// Appends the packet that is due for a peer. Returns who gets it, and whether it is data.
    fn emit_segment(&mut self, now: Instant, index: u16, out: &mut Vec<u8>) -> Option<(Peer, bool)> {
        let peer = self.peers.get_mut(usize::from(index))?;
        let (split, session) = (peer.rate_split.as_mut()?, peer.session.as_ref()?);
        let asker = split.asker?;
        if let Some(message) = split.path.poll(now).or_else(|| split.poll_ack(now)) {
            return split.seal(&message, out).then_some((asker, false));
        }
        while let Some(Segment { connection, message }) = split.poll_data(now) {
            let id = super::wire_id(connection);
            let stream =
                self.streams.find(&stream_id(session, connection)).and_then(|slot| self.streams.get(slot));
            let kept = stream.and_then(|stream| stream.kept.as_ref());
            let bytes = &mut self.scratch.plain;
            bytes.clear();
            let content = match (message, kept) {
                (Message::Data { range, is_last }, Some(kept)) => {
                    kept.read(range, bytes);
                    Content::Data { id, offset: range.start, bytes, is_last }
                }
                // The peer has no room: what it says next shows when it has some.
                (Message::Accept, Some(_)) => Content::Ask { id },
                _ => continue,
            };
            return split.seal(&content, out).then_some((asker, true));
        }
        None
    }

    fn note_segment(&mut self, now: Instant, index: u16, (sent, is_data): (&Transmit, bool)) {
        self.note_sent(now, sent);
        let is_other_waiting = self.has_beside_segments(index);
        let Some(split) = self.rate_split(index) else { return };
        if !is_data {
            split.on_other_sent(now, sent.len as u64 + super::BELOW as u64);
        } else if is_other_waiting {
            split.sending.give_way(now);
        }
    }

    /// Whether something that is no segment waits to be sent to a peer.
    fn has_beside_segments(&self, index: u16) -> bool {
        let Some(peer) = self.peers.get(usize::from(index)) else { return false };
        let carry = peer.carry.as_ref();
        let flows =
            [peer.session.as_ref().map(|session| session.out.flow), carry.map(|carry| carry.out.flow)];
        let is_unsent = |flow| {
            let log = self.producer.source().trunk(flow);
            log.is_some_and(|log| log.end() > self.producer.sent_end(flow))
        };
        carry.is_some_and(|carry| carry.weight() > 0) || flows.into_iter().flatten().any(is_unsent)
    }

    /// A datagram that is no segment leaves for `remote`: it takes its time on the link.
    pub(in crate::gateway) fn note_beside_segments(&mut self, now: Instant, sent: &Transmit) {
        for peer in &mut self.peers {
            if peer.address() == Some(sent.to.remote)
                && let Some(split) = peer.rate_split.as_mut()
            {
                split.on_other_sent(now, sent.len as u64 + super::BELOW as u64);
            }
        }
    }

    fn rate_split(&mut self, index: u16) -> Option<&mut RateSplit<B::Key>> {
        self.peers.get_mut(usize::from(index)).and_then(|peer| peer.rate_split.as_mut())
    }
}
