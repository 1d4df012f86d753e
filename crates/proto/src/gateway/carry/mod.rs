//! Users' packets from gateway to gateway: whole, sealed, repaired by the hops, and never late.
//!
//! Beside its trunk, each session has a flow of packets in each direction, live as the trunk is and sealed as it is, of
//! which the peer has a window asked for: the first packet of a user's flow waits for nothing. Its records hold packets,
//! each as soon as it came. What is missing is repaired as everywhere; after the *deadline* it is given up: skipped at the
//! Consumer, so that nobody asks for it again, and not delivered when it comes after all. Before it is sent, a packet waits
//! no longer than the deadline either (`queue`). A peer that cannot take packets does not ask for the flow, and gets none.

mod deliver;
mod packet;
mod patience;
mod queue;
mod record;

pub use packet::{FlowKey, begins_quic};

use super::frame::Frame;
use super::handover::Part;
use super::inbox::{Inbox, RECORD_OVERHEAD, seal_record};
use super::owners::Use;
use super::session::Trunk;
use super::store::Log;
use super::{AHEAD, Bond, Gateway, Mail};
use crate::consumer::Request;
use crate::name::{FlowId, RangeSet};
use crate::time::{Duration, Instant};
use crate::wire::Suite;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use deliver::Deliver;
use patience::Patience;
use queue::Queue;
use record::{Item, Stamp};

/// The default deadline is this multiple of the round trip between the gateways: a loss that shows at once is
/// repaired after one round trip, and the half is the time for it to show.
const DEADLINE_RTTS: (u64, u64) = (3, 2);
/// On short paths a loss takes longer to show than to repair: marks come 5 ms, and confirm 10 ms after it.
const LEAST_DEADLINE: Duration = Duration::from_millis(20);
/// An idle flow of packets has a record this often, so that no node on the way forgets it: relays do after 30 s.
const TICK: Duration = Duration::from_secs(5);
/// Relays on the way keep this many abandoned holes before everything is asked for anew, in another turn: they
/// remember requests until the bytes come, up to 64 ranges.
const MOST_LEFT: u32 = 32;
/// Time for which records are kept after the peer may still ask for them.
const KEEP: Duration = Duration::from_millis(500);

/// Settings of the carriage of users' packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CarrySettings {
    /// Longest time that a packet may wait to be sent, and for its repair. `None`: 1.5 round trips to the peer, at
    /// least 20 ms.
    pub deadline: Option<Duration>,
    /// The most flows at once, with each peer.
    pub max_flows: usize,
    /// The most bytes that wait to be sent, and that wait for those before them.
    pub max_bytes: usize,
}

impl Default for CarrySettings {
    fn default() -> Self {
        // 16 MiB are a deadline of 0.8 s at 160 Mbit/s.
        Self { deadline: None, max_flows: 65_536, max_bytes: 16 << 20 }
    }
}

/// Why a packet is not carried: it takes the plain path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotCarried {
    /// The peer does not answer, or does not take packets.
    PeerDown,
    /// There are as many flows, or waiting bytes, as there may be.
    Full,
}

/// A user's packet that came from a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CarriedPacket {
    /// Its flow is delivered in order, and so are its answers to be.
    pub is_ordered: bool,
    /// The IP packet.
    pub bytes: Vec<u8>,
}

/// Packets exchanged with a peer since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CarryStats {
    /// Users' packets that this gateway sent to the peer.
    pub sent_packets: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Users' packets that came from the peer and were delivered.
    pub delivered_packets: u64,
    /// Bytes in them.
    pub delivered_bytes: u64,
    /// Packets dropped here because they had waited to be sent until their deadline.
    pub overdue_packets: u64,
    /// Packets that came from the peer after their deadline, or after those behind them.
    pub late_packets: u64,
    /// Packets of which a part did not come.
    pub incomplete_packets: u64,
    /// Bytes of the peer's flow of packets that were lost and not repaired in time.
    pub given_up_bytes: u64,
    /// Packets that took the plain path because there was no room.
    pub refused_packets: u64,
}

/// The packets of a session, both ways.
pub(super) struct Carry<K> {
    pub(super) out: Trunk<K>,
    pub(super) into: Trunk<K>,
    queue: Queue,
    inbox: Inbox,
    deliver: Deliver,
    patience: Patience,
    /// The highest end of the peer's flow that was heard of.
    heard_end: u64,
    /// The peer asks for our packets.
    is_asked: bool,
    /// The ends of records that may be asked for again, and when they were made.
    kept: VecDeque<(u64, Instant)>,
    /// The end of our flow that the peer was told of.
    told_end: u64,
    /// Holes given up since all was asked for anew.
    left: u32,
    next_tick: Instant,
    /// A record is due even if no packet is.
    is_tick_due: bool,
}

impl<K> Carry<K> {
    /// The sum of the weights of users' flows that have packets waiting.
    pub(super) fn weight(&self) -> u32 {
        self.queue.weight()
    }

    pub(super) fn new(
        now: Instant,
        settings: &CarrySettings,
        out: Trunk<K>,
        into: Trunk<K>,
        seed: u64,
    ) -> Self {
        let limits = (settings.max_flows, settings.max_bytes);
        Self {
            out,
            into,
            queue: Queue::new(now, limits, seed),
            inbox: Inbox::default(),
            deliver: Deliver::new(now, limits, seed),
            patience: Patience::default(),
            heard_end: 0,
            is_asked: false,
            kept: VecDeque::new(),
            told_end: 0,
            left: 0,
            next_tick: now,
            is_tick_due: false,
        }
    }

    /// Appends what the next process must know. Packets that wait are not among it: a loss, as on any path.
    pub(super) fn put_state(&self, out: &mut Vec<u8>) {
        self.inbox.put(out);
        self.heard_end.put(out);
        self.is_asked.put(out);
        self.told_end.put(out);
        self.queue.next_flow().put(out);
        self.deliver.orders().put(out);
    }

    fn take_state(&mut self, now: Instant, from: &mut &[u8]) -> Option<()> {
        self.inbox = Part::take(from)?;
        self.heard_end = Part::take(from)?;
        self.is_asked = Part::take(from)?;
        self.told_end = Part::take(from)?;
        self.queue.begin_at(Part::take(from)?);
        self.deliver.resume(now, Part::take(from)?);
        self.kept.push_back((self.out.handed, now));
        Some(())
    }

    pub(super) fn set_limits(&mut self, settings: &CarrySettings) {
        let limits = (settings.max_flows, settings.max_bytes);
        self.queue.set_limits(limits);
        self.deliver.set_limits(limits);
    }

    /// Users' flows towards the peer, and the bytes that wait there.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.queue.flows(), self.queue.bytes())
    }

    pub(super) fn next_timeout(&self, deadline: Duration) -> Instant {
        let waits = self.patience.next_timeout(deadline).min(self.deliver.next_timeout(deadline));
        waits.min(self.next_tick)
    }

    /// The offset before which all may be forgotten: no peer waits for it any more.
    fn forgettable(&mut self, now: Instant, keep: Duration) -> Option<u64> {
        let mut end = None;
        while let Some((at, made)) = self.kept.front().copied()
            && now.since(made) >= keep
        {
            end = Some(at);
            self.kept.pop_front();
        }
        end
    }

    /// Counts the packets that were dropped since the last call.
    fn count(&mut self, stats: &mut CarryStats) {
        stats.overdue_packets += self.queue.take_overdue();
        let (late, incomplete) = self.deliver.take_dropped();
        stats.late_packets += late;
        stats.incomplete_packets += incomplete;
    }
}

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// Whether a peer takes packets.
    pub fn carries(&self, now: Instant, peer: u16) -> bool {
        let carry = self.peers.get(usize::from(peer)).and_then(|peer| peer.carry.as_ref());
        carry.is_some_and(|carry| carry.is_asked) && self.is_up(now, peer)
    }

    /// Gives a users' flow of packets, of which one was taken, the share of `weight` flows of packets, in our direction.
    pub fn set_packets_weight(&mut self, peer: u16, key: &FlowKey, weight: u8) {
        if let Some(carry) = self.peers.get_mut(usize::from(peer)).and_then(|peer| peer.carry.as_mut()) {
            carry.queue.set_weight(key, weight);
        }
    }

    /// Takes a user's IP packet of the flow `key` for a peer. `is_ordered`, of a flow's first packet, says that the peer
    /// delivers its packets in order.
    ///
    /// # Errors
    /// [`NotCarried`] when it is to take another path.
    pub fn carry(
        &mut self,
        now: Instant,
        peer: u16,
        (key, is_ordered): (FlowKey, bool),
        packet: &[u8],
    ) -> Result<(), NotCarried> {
        if !self.carries(now, peer) {
            return Err(NotCarried::PeerDown);
        }
        let Some(peer) = self.peers.get_mut(usize::from(peer)) else { return Err(NotCarried::PeerDown) };
        let Some(carry) = peer.carry.as_mut() else { return Err(NotCarried::PeerDown) };
        if carry.queue.push(now, (key, is_ordered), packet).is_err() {
            peer.carried.refused_packets += 1;
            return Err(NotCarried::Full);
        }
        peer.carried.sent_packets += 1;
        peer.carried.sent_bytes += packet.len() as u64;
        Ok(())
    }

    /// Bytes of the longest packet that travels in one piece to every peer that takes packets; `None` without such a
    /// peer. Longer ones travel in two.
    pub fn longest_whole(&self) -> Option<usize> {
        let carries = self.peers.iter().filter_map(|peer| peer.carry.as_ref());
        let payloads =
            carries.filter(|carry| carry.is_asked).map(|carry| self.producer.payload(carry.out.flow));
        // Numbers below 2^38 take five bytes.
        let beside = RECORD_OVERHEAD + 2 * Item::TIME_LEN + record::overhead(1 << 37, 1 << 37, false);
        payloads.min().map(|payload| payload.saturating_sub(beside))
    }

    /// The next packet that came from a peer, with the peer's place in the list of peers.
    pub fn poll_packet(&mut self) -> Option<(u16, CarriedPacket)> {
        loop {
            let peer = *self.with_packets.front()?;
            let packets = self.peers.get_mut(usize::from(peer)).map(|peer| &mut peer.packets);
            if let Some(packet) = packets.and_then(VecDeque::pop_front) {
                return Some((peer, packet));
            }
            self.with_packets.pop_front();
        }
    }

    /// Longest lateness of a peer's packet.
    pub(super) fn deadline(&self, peer: u16) -> Duration {
        let set = self.settings.carry.and_then(|carry| carry.deadline);
        let rtt = self.rtt(peer).unwrap_or_default();
        set.unwrap_or_else(|| rtt.scaled(DEADLINE_RTTS.0, DEADLINE_RTTS.1).max(LEAST_DEADLINE))
    }

    /// Begins a session's flows of packets.
    pub(super) fn begin_packets(&mut self, now: Instant, index: u16, theirs: u64) {
        let Some(settings) = self.settings.carry else { return };
        let seed = self.rng.next_u64();
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let trunk = |ours, producer, asker| Trunk::new(peer.bond.packets(ours, producer, asker));
        let (out, into) = (trunk(true, peer.ours, theirs), trunk(false, theirs, peer.ours));
        self.producer.source_mut().open(out.flow);
        self.owners.add(Use::Packets, out.flow, index);
        peer.carry = Some(Carry::new(now, &settings, out, into, seed));
    }

    /// Goes on with the flow of packets of another process. Returns the bytes of the peer's that came.
    pub(super) fn take_carry(&mut self, now: Instant, index: u16, from: &mut &[u8]) -> Option<RangeSet> {
        let log = Log::take(from)?;
        let peer = self.peers.get_mut(usize::from(index))?;
        // Whether packets are carried does not change without a restart.
        let carry = peer.carry.as_mut()?;
        carry.out.handed = log.end();
        carry.take_state(now, from)?;
        let (flow, came) = (carry.out.flow, carry.inbox.came());
        self.producer.source_mut().resume(flow, log);
        Some(came)
    }

    /// Asks for a peer's packets from now on: its trunk is asked for, too.
    pub(super) fn ask_packets(&mut self, now: Instant, index: u16, have: RangeSet) {
        let window = self.settings.window_of_packets();
        let Some(peer) = self.peers.get(usize::from(index)) else { return };
        let Some(flow) = peer.carry.as_ref().map(|carry| carry.into.flow) else { return };
        let Some(upstream) = peer.address() else { return };
        let request = Request { flow, upstream, length: None, have };
        self.consumer.open_live(now, request, window, Mail::default());
        self.owners.add(Use::Packets, flow, index);
    }

    /// Ends a session's flows of packets. What waits here is gone.
    pub(super) fn end_packets(&mut self, index: u16) {
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let Some(mut carry) = peer.carry.take() else { return };
        carry.count(&mut peer.carried);
        for flow in [carry.out.flow, carry.into.flow] {
            self.owners.remove(Use::Packets, flow);
        }
        self.producer.source_mut().close(carry.out.flow);
        self.producer.withdraw(carry.out.flow);
        self.consumer.close(carry.into.flow);
    }

    /// A request for `flow` arrived. A peer that asks for our packets can take them; it does not get packets that
    /// are forgotten.
    pub(super) fn on_packets_asked(&mut self, flow: FlowId) {
        let Some(index) = self.owners.find(Use::Packets, flow) else { return };
        let Some(carry) = self.peers.get_mut(usize::from(index)).and_then(|peer| peer.carry.as_mut()) else {
            return;
        };
        if carry.out.flow == flow {
            carry.is_asked = true;
            let start = self.producer.source().trunk(flow).map_or(0, |log| log.end() - log.kept());
            self.producer.on_arrived(flow, start);
        }
    }

    /// Processes arrived bytes of `flow`, if that is a peer's flow of packets.
    pub(super) fn on_packets_came(&mut self, now: Instant, flow: FlowId) {
        if let Some(index) = self.owners.find(Use::Packets, flow) {
            self.take_packets(now, index);
        }
    }

    /// Opens the records of packets that came from a peer.
    pub(super) fn take_packets(&mut self, now: Instant, index: u16) {
        let deadline = self.deadline(index);
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let Some(carry) = peer.carry.as_mut() else { return };
        let Some(flow) = self.consumer.flow_mut(carry.into.flow) else { return };
        if flow.sink().pieces.is_empty() {
            return;
        }
        let complete = flow.in_order_end();
        let mail = core::mem::take(flow.sink_mut());
        let mut items = core::mem::take(&mut self.scratch.frames);
        let (mut is_right, mut at) = (true, 0);
        for range in &mail.pieces {
            let bytes = &mail.bytes[at..at + range.len() as usize];
            at += bytes.len();
            is_right &= carry.inbox.push(&carry.into.key, range.start, bytes, &mut items).is_ok();
            carry.heard_end = carry.heard_end.max(range.end);
        }
        carry.patience.on_end(now, carry.heard_end, complete);
        let before = peer.packets.len();
        is_right &= carry.deliver.on_items(now, deadline, &items, &mut peer.packets).is_ok();
        peer.note_delivered(before);
        items.clear();
        self.scratch.frames = items;
        *flow.sink_mut() = mail.emptied();
        self.stats.bad_records += u64::from(!is_right);
        self.after_packets(index, deadline);
    }

    /// The peer's flow of packets has come to `end`, as it says on its trunk.
    pub(super) fn on_packets_end(&mut self, now: Instant, index: u16, end: u64) {
        let deadline = self.deadline(index);
        let Some(carry) = self.peers.get_mut(usize::from(index)).and_then(|peer| peer.carry.as_mut()) else {
            return;
        };
        let complete = self.consumer.flow(carry.into.flow).map_or(end, |flow| flow.in_order_end());
        // The peer cannot have sent bytes that it was not asked for.
        carry.heard_end = carry.heard_end.max(end.min(complete + self.settings.most_window()));
        carry.patience.on_end(now, carry.heard_end, complete);
        self.after_packets(index, deadline);
    }

    /// Wakes up in time, and tells that there are packets.
    fn after_packets(&mut self, index: u16, deadline: Duration) {
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        if !peer.packets.is_empty() && self.with_packets.back() != Some(&index) {
            self.with_packets.push_back(index);
        }
        let (Some(carry), Some(session)) = (peer.carry.as_mut(), peer.session.as_ref()) else { return };
        carry.count(&mut peer.carried);
        let next = carry.next_timeout(deadline).min(session.next_timeout());
        self.due.set(crate::table::Slot(u32::from(index)), Some(next));
    }

    /// Time passed: missing bytes whose deadline has passed are given up.
    pub(super) fn on_packets_timeout(&mut self, now: Instant, index: u16) {
        let deadline = self.deadline(index);
        let keep = deadline + self.rtt(index).unwrap_or_default().scaled(2, 1) + KEEP;
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let Some(carry) = peer.carry.as_mut() else { return };
        if let Some(end) = carry.forgettable(now, keep)
            && let Some(log) = self.producer.source_mut().trunk_mut(carry.out.flow)
        {
            log.forget(end);
            self.producer.on_arrived(carry.out.flow, end);
        }
        carry.queue.on_timeout(now, deadline);
        if carry.next_tick <= now {
            (carry.next_tick, carry.is_tick_due) = (now + TICK, true);
        }
        if let Some(end) = carry.patience.given_up(now, deadline) {
            let flow = carry.into.flow;
            let (missing, holes) = self.consumer.flow(flow).map_or((0, 0), |flow| flow.missing_below(end));
            peer.carried.given_up_bytes += missing;
            carry.left += holes;
            carry.inbox.skip(end);
            self.consumer.skip(now, flow, end);
            if carry.left >= MOST_LEFT {
                carry.left = 0;
                self.consumer.renew(now, flow);
            }
        }
        let before = peer.packets.len();
        carry.deliver.on_timeout(now, deadline, &mut peer.packets);
        peer.note_delivered(before);
        self.after_packets(index, deadline);
    }

    /// The peer speaks again after a silence in which it may have missed requests, or which `is_long` enough for it
    /// to have forgotten them.
    pub(super) fn on_packets_silence(&mut self, now: Instant, index: u16, is_long: bool) {
        let carry = self.peers.get(usize::from(index)).and_then(|peer| peer.carry.as_ref());
        let Some(flow) = carry.map(|carry| carry.into.flow) else { return };
        if is_long {
            self.consumer.renew(now, flow);
        } else {
            self.consumer.remind(flow);
        }
    }

    /// Reports on the trunk the end of our flow of packets, if it has changed.
    pub(super) fn tell_packets(&mut self, index: u16) {
        let Some(peer) = self.peers.get_mut(usize::from(index)) else { return };
        let (Some(carry), Some(session)) = (peer.carry.as_mut(), peer.session.as_mut()) else { return };
        let end = self.producer.sent_end(carry.out.flow).max(carry.out.handed);
        if carry.is_asked && end > carry.told_end {
            carry.told_end = end;
            session.say(Frame::Packets { end });
        }
    }

    /// Appends records of packets while few bytes wait to be sent.
    pub(super) fn pump_packets(&mut self, now: Instant, index: u16) {
        self.balance(index);
        let deadline = self.deadline(index);
        let Some(carry) = self.peers.get_mut(usize::from(index)).and_then(|peer| peer.carry.as_mut()) else {
            return;
        };
        while carry.is_asked && (!carry.queue.is_empty() || carry.is_tick_due) {
            let flow = carry.out.flow;
            let payload = self.producer.payload(flow);
            let ahead = self.producer.granted(flow).bytes_in(AHEAD).max(2 * payload as u64);
            let sent = self.producer.sent_end(flow).max(carry.out.handed);
            let Some(log) = self.producer.source().trunk(flow) else { return };
            if log.end().saturating_sub(sent) >= ahead || log.kept() >= 2 * self.settings.most_window() {
                return;
            }
            let super::Scratch { plain, sealed, .. } = &mut self.scratch;
            plain.clear();
            sealed.clear();
            Item::Time(Stamp::at(now)).emit(plain);
            carry.queue.fill(now, deadline, payload - RECORD_OVERHEAD, plain);
            let is_empty = plain.len() == Item::TIME_LEN;
            if (is_empty && !carry.is_tick_due) || !seal_record(&carry.out.key, log.end(), plain, sealed) {
                return;
            }
            (carry.next_tick, carry.is_tick_due) = (now + TICK, false);
            let Some(log) = self.producer.source_mut().trunk_mut(flow) else { return };
            log.append(sealed);
            let end = log.end();
            carry.kept.push_back((end, now));
            self.producer.on_available(now, flow, end);
        }
    }
}
