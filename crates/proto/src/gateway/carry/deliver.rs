//! Packets from a peer: reassembled from their parts, in order if their flow is ordered, and none too late.

use super::CarriedPacket;
use super::record::{Item, Piece, Stamp};
use crate::deadlines::Deadlines;
use crate::gateway::BadRecord;
use crate::name::{ByteRange, RangeSet};
use crate::table::Table;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A flow without packets is forgotten after this time, later than by its sender.
const FLOW_IDLE: Duration = Duration::from_secs(120);
/// The most packets under reassembly.
const MOST_PARTIAL: usize = 1024;

/// A packet of which parts have come.
#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    here: RangeSet,
}

/// A flow whose packets are delivered in order.
#[derive(Debug)]
struct Order {
    next: u64,
    /// Packets that wait for one before them, and since when.
    waiting: BTreeMap<u64, (Instant, Vec<u8>)>,
    last_used: Instant,
}

/// Delivers packets.
#[derive(Debug)]
pub(super) struct Deliver {
    /// The newest stamp, and when that came.
    newest: Option<(Stamp, Instant)>,
    partial: BTreeMap<(u64, u64), Partial>,
    /// The parts' packets in the order in which they began.
    began: VecDeque<(Instant, (u64, u64))>,
    flows: Table<u64, Order>,
    blocked: Deadlines,
    held_bytes: usize,
    limits: (usize, usize),
    next_sweep: Instant,
    late: u64,
    incomplete: u64,
}

impl Deliver {
    /// A delivery of at most `flows` ordered flows, of which at most `bytes` wait.
    pub(super) fn new(now: Instant, limits: (usize, usize), seed: u64) -> Self {
        Self {
            newest: None,
            partial: BTreeMap::new(),
            began: VecDeque::new(),
            flows: Table::new(seed),
            blocked: Deadlines::default(),
            held_bytes: 0,
            limits,
            next_sweep: now + FLOW_IDLE,
            late: 0,
            incomplete: 0,
        }
    }

    /// The ordered flows, and their next packets.
    pub(super) fn orders(&self) -> Vec<(u64, u64)> {
        let order = |(slot, order): (_, &Order)| Some((*self.flows.key(slot)?, order.next));
        self.flows.iter().filter_map(order).collect()
    }

    /// Goes on with the ordered flows of another process.
    pub(super) fn resume(&mut self, now: Instant, orders: Vec<(u64, u64)>) {
        for (flow, next) in orders {
            let order = || Order { next, waiting: BTreeMap::new(), last_used: now };
            self.flows.find_or_insert(flow, order);
        }
    }

    /// Takes other limits, of flows and of bytes; those beyond them stay.
    pub(super) fn set_limits(&mut self, limits: (usize, usize)) {
        self.limits = limits;
    }

    /// Packets that came after their deadline or their turn, and packets with a missing part, since the last call.
    pub(super) fn take_dropped(&mut self) -> (u64, u64) {
        (core::mem::take(&mut self.late), core::mem::take(&mut self.incomplete))
    }

    /// Takes the contents of records, and appends to `out` the packets that may be delivered.
    ///
    /// # Errors
    /// [`BadRecord`] if the contents make no sense.
    pub(super) fn on_items(
        &mut self,
        now: Instant,
        deadline: Duration,
        mut bytes: &[u8],
        out: &mut VecDeque<CarriedPacket>,
    ) -> Result<(), BadRecord> {
        let mut is_late = false;
        while !bytes.is_empty() {
            let (item, rest) = Item::parse(bytes).ok_or(BadRecord)?;
            bytes = rest;
            match item {
                Item::Time(stamp) => is_late = self.behind(now, stamp) > deadline,
                Item::Piece(_) if is_late => self.late += 1,
                Item::Piece(piece) => self.on_piece(now, deadline, piece, out),
            }
        }
        Ok(())
    }

    /// Lateness of this record against the newest one, beyond the difference of their stamps: the time of its
    /// repair.
    fn behind(&mut self, now: Instant, stamp: Stamp) -> Duration {
        let Some((newest, came)) = self.newest else {
            self.newest = Some((stamp, now));
            return Duration::ZERO;
        };
        if stamp.since(newest).is_some() {
            self.newest = Some((stamp, now));
            return Duration::ZERO;
        }
        now.since(came) + newest.since(stamp).unwrap_or_default()
    }

    fn on_piece(
        &mut self,
        now: Instant,
        deadline: Duration,
        piece: Piece<'_>,
        out: &mut VecDeque<CarriedPacket>,
    ) {
        let Piece { flow, number, is_ordered, part, bytes } = piece;
        let bytes = match part {
            None => bytes.to_vec(),
            Some(part) => match self.put_together(now, (flow, number), part, bytes) {
                Some(packet) => packet,
                None => return,
            },
        };
        if is_ordered {
            self.in_order(now, deadline, (flow, number), bytes, out);
        } else {
            out.push_back(CarriedPacket { is_ordered, bytes });
        }
    }

    /// Adds a part; returns the packet when it was the last.
    fn put_together(
        &mut self,
        now: Instant,
        key: (u64, u64),
        (offset, total): (u16, u16),
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        if !self.partial.contains_key(&key) {
            if self.partial.len() >= MOST_PARTIAL {
                self.incomplete += 1;
                return None;
            }
            self.began.push_back((now, key));
        }
        let make = || Partial { bytes: alloc::vec![0; usize::from(total)], here: RangeSet::new() };
        let partial = self.partial.entry(key).or_insert_with(make);
        let at = usize::from(offset);
        // Parts that contradict each other about the length are of no sender of ours.
        partial.bytes.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        partial.here.insert(ByteRange::at(u64::from(offset), bytes.len() as u64));
        let is_whole = partial.here.byte_count() == partial.bytes.len() as u64;
        if !is_whole {
            return None;
        }
        self.partial.remove(&key).map(|partial| partial.bytes)
    }

    fn in_order(
        &mut self,
        now: Instant,
        deadline: Duration,
        (flow, number): (u64, u64),
        packet: Vec<u8>,
        out: &mut VecDeque<CarriedPacket>,
    ) {
        let is_new = self.flows.find(&flow).is_none();
        let is_full =
            (is_new && self.flows.len() >= self.limits.0) || self.held_bytes + packet.len() > self.limits.1;
        if is_full {
            out.push_back(CarriedPacket { is_ordered: true, bytes: packet });
            return;
        }
        let slot =
            self.flows.find_or_insert(flow, || Order { next: 0, waiting: BTreeMap::new(), last_used: now });
        let Some(order) = self.flows.get_mut(slot) else { return };
        order.last_used = now;
        if number < order.next || order.waiting.contains_key(&number) {
            self.late += 1;
            return;
        }
        self.held_bytes += packet.len();
        order.waiting.insert(number, (now, packet));
        self.held_bytes -= order.release(out);
        self.blocked.set(slot, order.blocked_since().map(|since| since + deadline));
    }

    /// Time of the next [`Deliver::on_timeout`].
    pub(super) fn next_timeout(&self, deadline: Duration) -> Instant {
        let parts = self.began.front().map_or(Instant::NEVER, |(since, _)| *since + deadline);
        self.blocked.next().min(parts)
    }

    /// Packets that were waited for do not come any more: those behind them are delivered.
    pub(super) fn on_timeout(&mut self, now: Instant, deadline: Duration, out: &mut VecDeque<CarriedPacket>) {
        while let Some((since, key)) = self.began.front().copied()
            && (now.since(since) >= deadline || !self.partial.contains_key(&key))
        {
            self.began.pop_front();
            self.incomplete += u64::from(self.partial.remove(&key).is_some());
        }
        while let Some((at, slot)) = self.blocked.first()
            && at <= now
        {
            let Some(order) = self.flows.get_mut(slot) else { break };
            order.next = order.waiting.keys().next().copied().unwrap_or(order.next);
            self.held_bytes -= order.release(out);
            self.blocked.set(slot, order.blocked_since().map(|since| since + deadline));
        }
        if self.next_sweep <= now {
            self.next_sweep = now + FLOW_IDLE.scaled(1, 4);
            let is_idle = |flow: &Order| flow.waiting.is_empty() && now.since(flow.last_used) >= FLOW_IDLE;
            let idle: Vec<_> =
                self.flows.iter().filter(|(_, flow)| is_idle(flow)).map(|(slot, _)| slot).collect();
            idle.into_iter().for_each(|slot| _ = self.flows.remove(slot));
        }
    }
}

impl Order {
    /// Moves what is next to `out`; returns its bytes.
    fn release(&mut self, out: &mut VecDeque<CarriedPacket>) -> usize {
        let mut bytes = 0;
        while let Some((_, packet)) = self.waiting.remove(&self.next) {
            bytes += packet.len();
            out.push_back(CarriedPacket { is_ordered: true, bytes: packet });
            self.next += 1;
        }
        bytes
    }

    /// Since when it is known that a packet is missing.
    fn blocked_since(&self) -> Option<Instant> {
        self.waiting.values().map(|(since, _)| *since).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(75);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    struct Rig {
        deliver: Deliver,
        out: VecDeque<CarriedPacket>,
    }

    impl Rig {
        fn new() -> Self {
            Self { deliver: Deliver::new(at(0), (10, 10_000), 1), out: VecDeque::new() }
        }

        /// A record made at `sent` comes at `ms`; the packets that are delivered, by their first bytes.
        fn record(&mut self, ms: u64, sent: u16, pieces: &[Piece<'_>]) -> Vec<u8> {
            let mut bytes = Vec::new();
            Item::Time(Stamp(sent)).emit(&mut bytes);
            pieces.iter().for_each(|piece| Item::Piece(*piece).emit(&mut bytes));
            self.deliver.on_items(at(ms), DEADLINE, &bytes, &mut self.out).unwrap();
            self.out.drain(..).map(|packet| packet.bytes[0]).collect()
        }

        fn time(&mut self, ms: u64) -> Vec<u8> {
            self.deliver.on_timeout(at(ms), DEADLINE, &mut self.out);
            self.out.drain(..).map(|packet| packet.bytes[0]).collect()
        }
    }

    fn piece(number: u64, is_ordered: bool, bytes: &[u8]) -> Piece<'_> {
        Piece { flow: 1, number, is_ordered, part: None, bytes }
    }

    #[test]
    fn packets_are_delivered_when_they_come_unless_order_is_wanted() {
        let mut rig = Rig::new();
        assert_eq!(rig.record(0, 0, &[piece(1, false, &[1])]), [1]);
        assert_eq!(rig.record(9, 0, &[piece(0, false, &[0])]), [0]);
        let mut rig = Rig::new();
        assert_eq!(rig.record(0, 0, &[piece(1, true, &[1]), piece(2, true, &[2])]), []);
        assert_eq!(rig.record(9, 0, &[piece(0, true, &[0])]), [0, 1, 2]);
    }

    #[test]
    fn a_packet_in_order_is_waited_for_until_its_deadline() {
        let mut rig = Rig::new();
        assert_eq!(rig.record(10, 0, &[piece(1, true, &[1])]), []);
        assert_eq!(rig.record(50, 40, &[piece(3, true, &[3])]), []);
        assert_eq!(rig.deliver.next_timeout(DEADLINE), at(85));
        assert_eq!(rig.time(84), []);
        assert_eq!(rig.time(85), [1]);
        assert_eq!(rig.time(125), [3], "the second gap showed forty milliseconds later");
        assert_eq!(rig.record(126, 0, &[piece(0, true, &[0])]), []);
        assert_eq!(rig.deliver.take_dropped(), (1, 0));
        assert_eq!(rig.deliver.held_bytes, 0);
    }

    #[test]
    fn what_comes_later_than_the_deadline_is_not_delivered() {
        let mut rig = Rig::new();
        assert_eq!(rig.record(1_000, 400, &[piece(5, false, &[5])]), [5]);
        assert_eq!(rig.record(1_060, 390, &[piece(4, false, &[4])]), [4]);
        assert_eq!(rig.record(1_066, 390, &[piece(4, false, &[4])]), [], "76 ms behind");
        // The whole path has become longer: that is no lateness.
        assert_eq!(rig.record(2_500, 500, &[piece(6, false, &[6])]), [6]);
    }

    #[test]
    fn parts_become_a_packet_in_any_order_or_are_forgotten() {
        let mut rig = Rig::new();
        let part = |number, offset, bytes| Piece {
            flow: 1,
            number,
            is_ordered: false,
            part: Some((offset, 5)),
            bytes,
        };
        assert_eq!(rig.record(0, 0, &[part(0, 3, b"de")]), []);
        assert_eq!(rig.record(1, 0, &[part(0, 0, b"abc"), part(1, 0, b"abc")]), [b'a']);
        assert_eq!(rig.time(80), []);
        assert_eq!((rig.deliver.take_dropped(), rig.deliver.partial.len()), ((0, 1), 0));
    }

    #[test]
    fn more_flows_than_there_may_be_are_delivered_as_they_come() {
        let mut rig = Rig::new();
        let flows: Vec<Piece<'_>> = (0..11)
            .map(|flow| Piece { flow, number: 1, is_ordered: true, part: None, bytes: &[7] })
            .collect();
        assert_eq!(rig.record(0, 0, &flows), [7]);
        assert_eq!(rig.time(100).len(), 10);
        rig.time(121_000);
        assert_eq!(rig.deliver.flows.len(), 0);
    }
}
