//! Data at a relay: kept, passed to neighbours that want it, and sent when their hop allows.

use super::{Flow, Relay, Scratch};
use crate::config::Notices;
use crate::hop::parity::Restored;
use crate::hop::scheduler::Chunk;
use crate::hop::{Control, Due, Ending, Fetch, Found, Heard, Received, finish};
use crate::name::ByteRange;
use crate::node::Transmit;
use crate::peer::{Addressee, Face, Peer};
use crate::table::Slot;
use crate::time::Instant;
use crate::wire::{DataFlags, DataHeader, News, Packet, ParityHeader, Reason, Suite, Waited};
use alloc::vec::Vec;

impl<C: Suite> Relay<C> {
    /// A packet arrived, whose flow goes by its name inside the relay.
    pub(super) fn on_data(&mut self, now: Instant, peer: &Peer, header: &mut DataHeader, payload: &[u8]) {
        self.stats.data_in += 1;
        let Some(flow_slot) = self.flows.find(&header.flow) else {
            self.stats.unasked += 1;
            return;
        };
        // Only a node that was asked may answer: otherwise any node that knows the flow's name could fill the
        // cache.
        let Some(link) = self.uplink_from(flow_slot, peer.face) else {
            self.stats.unasked += 1;
            return;
        };
        let Some(name) = self.flows.get(flow_slot).map(|flow| flow.name) else { return };
        let id = core::mem::replace(&mut header.flow, name);
        let heard = self.uplinks.on_packet(now, link, peer, Received::data(header, payload));
        header.flow = id;
        self.take_data(now, flow_slot, header, payload, heard.as_ref());
        self.take_restored(now, peer, link);
    }

    /// Parity of the hop arrived: it may make packets good.
    pub(super) fn on_parity(&mut self, now: Instant, peer: &Peer, parity: &ParityHeader, sum: &[u8]) {
        let Some(link) = self.uplinks.find_shared(peer.face) else {
            self.stats.unasked += 1;
            return;
        };
        let heard = self.uplinks.on_packet(now, link, peer, Received::parity(parity, sum));
        if let Some(heard) = heard.filter(|heard| !heard.is_former) {
            if heard.is_new_neighbour {
                self.on_new_neighbour(now, link);
            }
            if self.uplinks.get_mut(link).is_some_and(|requester| requester.settle(0, heard.lost) > 0) {
                self.on_unexplained_loss(now, link);
            }
        }
        self.take_restored(now, peer, link);
    }

    /// Handles packets that parity has restored like arrived ones.
    fn take_restored(&mut self, now: Instant, peer: &Peer, link: Slot) {
        while let Some(Restored { number, packet }) = self.uplinks.poll_restored(now, link) {
            let Ok(Packet::Data(mut header, payload)) = Packet::parse(&packet) else { continue };
            header.flow = self.names.translate(header.flow, peer.face.remote);
            let Some(flow_slot) = self.flows.find(&header.flow) else { continue };
            let heard = self.uplinks.heard_restored(now, link, number, header.range(payload.len()));
            if self.uplink_from(flow_slot, peer.face) == Some(link) {
                self.take_data(now, flow_slot, &header, payload, heard.as_ref());
            }
        }
    }

    fn take_data(
        &mut self,
        now: Instant,
        flow_slot: Slot,
        header: &DataHeader,
        payload: &[u8],
        heard: Option<&Heard>,
    ) {
        if header.flags.no_such_name {
            self.close_opening(now, flow_slot, Found::Nowhere);
            self.refuse(flow_slot);
            return;
        }
        self.close_opening(now, flow_slot, Found::Here);
        self.note_release(now, flow_slot);
        self.accept(now, flow_slot, header, payload);
        if header.flags.end {
            self.on_length(flow_slot, header.range(payload.len()).end);
        }
        if let Some(heard) = heard {
            self.on_heard(now, flow_slot, heard);
        }
        self.ask_for_unplaced(now, flow_slot);
    }

    /// Keeps the requested bytes of a packet and queues them for the neighbours that want them.
    fn accept(&mut self, now: Instant, flow_slot: Slot, header: &DataHeader, payload: &[u8]) {
        let range = header.range(payload.len());
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        flow.last_used = now;
        flow.is_volatile |= header.flags.is_volatile;
        if !flow.fetch.intake.expected().overlaps(range) {
            self.stats.unasked += u64::from(!range.is_empty());
            return;
        }
        let mut pieces = core::mem::take(&mut self.scratch.found);
        pieces.extend(flow.fetch.intake.expected().intersect(range));
        let are_kept = pieces.iter().all(|piece| {
            let start = (piece.start - range.start) as usize;
            self.keep(header.flow, piece.start, &payload[start..start + piece.len() as usize])
        });
        if are_kept {
            self.deliver(now, flow_slot, range, header.waited);
        } else {
            self.scratch.unplaced.extend_from_slice(&pieces);
        }
        pieces.clear();
        self.scratch.found = pieces;
    }

    /// Queues bytes that are here for the neighbours that want them.
    fn deliver(&mut self, now: Instant, flow_slot: Slot, range: ByteRange, waited: Waited) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let Scratch { parts, gaps, .. } = &mut self.scratch;
        for subscriber in &mut flow.subscribers {
            parts.extend(subscriber.wanted().intersect(range));
            for part in parts.drain(..) {
                let how = (subscriber.reason(part), waited);
                subscriber.unwant(&mut self.downlinks, part);
                subscriber.enqueue(now, &mut self.downlinks, part, how, gaps);
            }
        }
        let uplink = flow.fetch.uplink;
        self.mind_room(now, uplink);
    }

    /// Asks the upstream once more for bytes that found no place. It sends them within the rate that the room allows.
    fn ask_for_unplaced(&mut self, now: Instant, flow_slot: Slot) {
        let mut unplaced = core::mem::take(&mut self.scratch.unplaced);
        for piece in unplaced.drain(..) {
            self.stats.unplaced_bytes += piece.len();
            let Some(flow) = self.flows.get_mut(flow_slot) else { continue };
            flow.fetch.ask_again(now, piece, self.config.repair_hop_limit, &mut self.outbox);
            self.reschedule(flow_slot);
        }
        self.scratch.unplaced = unplaced;
    }

    /// The hop by which a flow arrives at `face`: nearly always the hop on which it was asked for.
    pub(super) fn uplink_from(&self, flow_slot: Slot, face: Face) -> Option<Slot> {
        let flow = self.flows.get(flow_slot)?;
        self.uplinks.answering(Some(flow.fetch.uplink), face, flow.fetch.id)
    }

    /// The news of a packet about its hop and its flow: losses to repair, feedback to give.
    pub(super) fn on_heard(&mut self, now: Instant, flow_slot: Slot, heard: &Heard) {
        if heard.is_former {
            if let Some(flow) = self.flows.get_mut(flow_slot) {
                flow.fetch.intake.on_former(heard.seen.range);
            }
            return;
        }
        if heard.is_new_neighbour {
            self.on_new_neighbour(now, heard.link);
        }
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let noted = flow.fetch.on_heard(now, heard, &mut self.uplinks, &mut self.outbox);
        self.stats.repairs += noted.repairs;
        if noted.is_feedback_due {
            self.outbox.feedback(heard.link, flow.fetch.id);
        }
        self.reschedule(flow_slot);
        if noted.unexplained > 0 {
            self.on_unexplained_loss(now, heard.link);
        }
    }

    /// The flow ends at `length`: neighbours that want bytes beyond it are told so.
    fn on_length(&mut self, flow_slot: Slot, length: u64) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        flow.length = Some(length);
        flow.fetch.intake.on_length(length);
        let beyond = ByteRange::new(length, u64::MAX);
        for subscriber in flow.subscribers.iter_mut().filter(|s| s.wanted().overlaps(beyond)) {
            subscriber.unwant(&mut self.downlinks, beyond);
            if subscriber.wanted().is_empty()
                && self.downlinks.queued_bytes(subscriber.link, subscriber.queue) == 0
            {
                let flags = DataFlags { end: true, ..DataFlags::default() };
                let link = subscriber.link;
                self.outbox.push(Control::Answer { link, flow: flow.fetch.id, offset: length, flags });
            }
        }
    }

    /// There is no such flow: every neighbour that asked is told, and nothing is remembered.
    fn refuse(&mut self, flow_slot: Slot) {
        let Some(flow) = self.flows.remove(flow_slot) else { return };
        let Flow { fetch: Fetch { id, .. }, subscribers, .. } = *flow;
        self.agenda.remove(flow_slot);
        for subscriber in subscribers {
            subscriber.close(&mut self.downlinks, Ending::Withdrawn);
            let flags = DataFlags { no_such_name: true, ..DataFlags::default() };
            self.outbox.push(Control::Answer { link: subscriber.link, flow: id, offset: 0, flags });
        }
    }

    /// Writes the Data packet that a hop is due to send.
    pub(super) fn emit_chunk(
        &mut self,
        now: Instant,
        due: Due,
        chunk: Chunk,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let flow_slot = chunk.owner;
        if self.config.notices == Notices::OnSkip && self.announce_skipped(flow_slot, due, chunk) {
            return None;
        }
        let flow = self.flows.get(flow_slot)?;
        let flags = DataFlags {
            end: flow.length == Some(chunk.range.end),
            backlog: due.backlog,
            is_volatile: flow.is_volatile,
            no_such_name: false,
        };
        let keeps = self.config.cache_answers && !flow.is_volatile;
        let responder = self.downlinks.get_mut(due.link)?;
        let (counter, echo) = responder.stamp(now);
        let header = DataHeader {
            counter,
            flow: flow.name,
            offset: chunk.range.start,
            echo,
            flags,
            waited: chunk.waited,
        };
        let (to, cache, start) = (Addressee::Asker(responder.peer), &mut self.cache, out.len());
        let mut is_here = false;
        let transmit = finish(&mut self.suite, now, &to, out, |out| {
            let packet = out.len();
            header.emit(out);
            is_here = cache.read(chunk.flow, chunk.range, out);
            if is_here {
                responder.cover(now, &out[packet..]);
            }
        });
        if !is_here {
            out.truncate(start);
            responder.take_back();
            self.refetch(now, flow_slot, due.link, chunk);
            return None;
        }
        if flags.end {
            self.downlinks.note_end(due.link, chunk.queue);
        }
        if !keeps {
            self.drop_sent(flow_slot, chunk);
        }
        self.stats.data_out += u64::from(transmit.is_some());
        if self.downlinks.queued_bytes(due.link, chunk.queue) == 0 {
            self.on_drained(flow_slot);
        }
        self.tell_of_room(now, flow_slot);
        transmit
    }

    /// LEOTP's Void Packet Header: tells the neighbour, ahead of a packet that skips bytes, that the skipped bytes
    /// are being fetched. True if there was a Notice to send; the packet itself then follows.
    fn announce_skipped(&mut self, flow_slot: Slot, due: Due, chunk: Chunk) -> bool {
        let Some(flow) = self.flows.get(flow_slot) else { return false };
        let Some(subscriber) = flow.subscribers.iter().find(|s| s.link == due.link) else { return false };
        let mut is_any = false;
        for range in subscriber.wanted().intersect(chunk.skipped) {
            self.outbox.push(Control::Notice { link: due.link, flow: chunk.flow, news: News::Coming(range) });
            is_any = true;
        }
        if is_any {
            let told = Chunk { skipped: ByteRange::default(), ..chunk };
            self.scratch.after_notice = Some(Due { turn: crate::hop::scheduler::Turn::Send(told), ..due });
        }
        is_any
    }

    /// The cache evicted bytes before they could be sent: the upstream is asked once more.
    fn refetch(&mut self, now: Instant, flow_slot: Slot, link: Slot, chunk: Chunk) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let Some(subscriber) = flow.subscribers.iter_mut().find(|s| s.link == link) else { return };
        subscriber.want(&mut self.downlinks, chunk.range, Reason::Lost);
        flow.fetch.ask_again(now, chunk.range, self.config.repair_hop_limit, &mut self.outbox);
        self.reschedule(flow_slot);
    }

    /// Bytes that are not cached are dropped once no neighbour waits for them.
    fn drop_sent(&mut self, flow_slot: Slot, chunk: Chunk) {
        let Some(flow) = self.flows.get(flow_slot) else { return };
        let is_queued = flow.subscribers.iter().any(|s| s.has_queued(&self.downlinks, chunk.range));
        if !is_queued {
            self.cache.remove(chunk.flow, chunk.range);
        }
    }
}
