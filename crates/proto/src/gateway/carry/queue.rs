//! Packets that wait to be sent to a peer: a queue for each flow, served in turn, and nothing in it for longer than the
//! deadline.

use super::packet::FlowKey;
use super::record::{Item, Piece, overhead};
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes that a flow of weight 1 may send per turn: about one packet.
const QUANTUM: i64 = 1500;
/// A flow without packets is forgotten after this time: its next packet begins another.
const FLOW_IDLE: Duration = Duration::from_secs(60);
/// A packet that is longer than a record is not cut into pieces shorter than this, but for its last.
const LEAST_PART: usize = 100;

/// There are as many flows, or waiting bytes, as there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoRoom;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Nowhere,
    Fresh,
    Busy,
}

#[derive(Debug)]
struct Flow {
    number: u64,
    is_ordered: bool,
    weight: u8,
    next_packet: u64,
    waiting: VecDeque<(Instant, Vec<u8>)>,
    /// Bytes of the first packet that were sent already.
    sent: usize,
    deficit: i64,
    place: Place,
    last_used: Instant,
}

/// The queues of a peer's packets: deficit round robin, flows that had none waiting first (RFC 8290 section 4.2).
#[derive(Debug)]
pub(super) struct Queue {
    flows: Table<FlowKey, Flow>,
    fresh: VecDeque<Slot>,
    busy: VecDeque<Slot>,
    next_flow: u64,
    /// The sum of the weights of flows in the lists.
    weight: u32,
    bytes: usize,
    /// Packets that waited longer than the deadline, since they were last counted.
    overdue: u64,
    limits: (usize, usize),
    next_sweep: Instant,
}

impl Queue {
    /// Queues for at most `flows` flows and `bytes` waiting bytes.
    pub(super) fn new(now: Instant, (flows, bytes): (usize, usize), seed: u64) -> Self {
        Self {
            flows: Table::new(seed),
            fresh: VecDeque::new(),
            busy: VecDeque::new(),
            next_flow: 0,
            weight: 0,
            bytes: 0,
            overdue: 0,
            limits: (flows, bytes),
            next_sweep: now + FLOW_IDLE,
        }
    }

    /// The number of the next new flow.
    pub(super) fn next_flow(&self) -> u64 {
        self.next_flow
    }

    /// Numbers flows from `first`: another process has numbered those before.
    pub(super) fn begin_at(&mut self, first: u64) {
        self.next_flow = first;
    }

    /// Takes other limits, of flows and of bytes; those beyond them stay.
    pub(super) fn set_limits(&mut self, limits: (usize, usize)) {
        self.limits = limits;
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Flows that are known.
    pub(super) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets dropped by the deadline since this was last asked.
    pub(super) fn take_overdue(&mut self) -> u64 {
        core::mem::take(&mut self.overdue)
    }

    /// Queues a packet of the flow `key`; `is_ordered` counts when that is new.
    pub(super) fn push(
        &mut self,
        now: Instant,
        (key, is_ordered): (FlowKey, bool),
        packet: &[u8],
    ) -> Result<(), NoRoom> {
        let is_new = self.flows.find(&key).is_none();
        if self.bytes + packet.len() > self.limits.1 || (is_new && self.flows.len() >= self.limits.0) {
            return Err(NoRoom);
        }
        let number = self.next_flow;
        self.next_flow += u64::from(is_new);
        let slot = self.flows.find_or_insert(key, || Flow {
            number,
            is_ordered,
            weight: 1,
            next_packet: 0,
            waiting: VecDeque::new(),
            sent: 0,
            deficit: 0,
            place: Place::Nowhere,
            last_used: now,
        });
        let Some(flow) = self.flows.get_mut(slot) else { return Err(NoRoom) };
        flow.waiting.push_back((now, packet.to_vec()));
        flow.last_used = now;
        self.bytes += packet.len();
        if flow.place == Place::Nowhere {
            (flow.place, flow.deficit) = (Place::Fresh, QUANTUM);
            self.weight += u32::from(flow.weight);
            self.fresh.push_back(slot);
        }
        Ok(())
    }

    /// The sum of the weights of flows that have, or had a round ago, something to send.
    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    /// Gives a flow that is known the share of `weight` flows, from its next turn on.
    pub(super) fn set_weight(&mut self, key: &FlowKey, weight: u8) {
        if let Some(flow) = self.flows.find(key).and_then(|slot| self.flows.get_mut(slot)) {
            let before = core::mem::replace(&mut flow.weight, weight.max(1));
            if flow.place != Place::Nowhere {
                self.weight = self.weight - u32::from(before) + u32::from(flow.weight);
            }
        }
    }

    /// Appends to `out` the packets that are due, up to a length of `room`. A packet that fits into a record goes
    /// in one piece; a longer one takes several.
    pub(super) fn fill(&mut self, now: Instant, deadline: Duration, room: usize, out: &mut Vec<u8>) {
        let whole = room.saturating_sub(Item::TIME_LEN);
        while let Some(slot) = self.next(now, deadline) {
            let Some(flow) = self.flows.get_mut(slot) else { return };
            let Some((_, packet)) = flow.waiting.front() else { return };
            let left = room.saturating_sub(out.len());
            let (rest, number) = (packet.len() - flow.sent, flow.next_packet);
            let whole_len = overhead(flow.number, number, false) + packet.len();
            let (part, len) = if flow.sent == 0 && whole_len <= left {
                (None, rest)
            } else {
                let len = left.saturating_sub(overhead(flow.number, number, true)).min(rest);
                if (flow.sent == 0 && whole_len <= whole) || (len < rest.min(LEAST_PART)) {
                    return;
                }
                (Some((flow.sent as u16, packet.len() as u16)), len)
            };
            let bytes = &packet[flow.sent..flow.sent + len];
            Item::Piece(Piece { flow: flow.number, number, is_ordered: flow.is_ordered, part, bytes })
                .emit(out);
            flow.deficit -= len as i64;
            flow.sent += len;
            if flow.sent == packet.len() {
                self.bytes -= packet.len();
                flow.waiting.pop_front();
                (flow.sent, flow.next_packet) = (0, number + 1);
            }
        }
    }

    /// The flow whose turn it is, without packets that are too old.
    fn next(&mut self, now: Instant, deadline: Duration) -> Option<Slot> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh { &mut self.fresh } else { &mut self.busy };
            let slot = *list.front()?;
            let Some(flow) = self.flows.get_mut(slot) else {
                list.pop_front();
                continue;
            };
            while flow.sent == 0
                && let Some((since, packet)) = flow.waiting.front()
                && now.since(*since) > deadline
            {
                self.bytes -= packet.len();
                self.overdue += 1;
                flow.waiting.pop_front();
            }
            if !flow.waiting.is_empty() && flow.deficit > 0 {
                return Some(slot);
            }
            list.pop_front();
            if flow.waiting.is_empty() && (!is_fresh || self.busy.is_empty()) {
                flow.place = Place::Nowhere;
                self.weight -= u32::from(flow.weight);
            } else {
                // A flow that was served as fresh has a turn among the others before it is fresh again.
                let quantum = QUANTUM * i64::from(flow.weight);
                flow.deficit = (flow.deficit + quantum).min(quantum);
                flow.place = Place::Busy;
                self.busy.push_back(slot);
            }
        }
    }

    /// Drops packets that wait for longer than the deadline, and forgets idle flows now and then.
    pub(super) fn on_timeout(&mut self, now: Instant, deadline: Duration) {
        self.next(now, deadline);
        if self.next_sweep > now {
            return;
        }
        self.next_sweep = now + FLOW_IDLE.scaled(1, 4);
        let is_idle = |flow: &Flow| flow.place == Place::Nowhere && now.since(flow.last_used) >= FLOW_IDLE;
        let idle: Vec<Slot> =
            self.flows.iter().filter(|(_, flow)| is_idle(flow)).map(|(slot, _)| slot).collect();
        idle.into_iter().for_each(|slot| _ = self.flows.remove(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(75);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn key(port: u16) -> FlowKey {
        let ip = [10, 0, 0, 1].into();
        FlowKey { from: ip, to: ip, protocol: 17, ports: Some((port, 9)) }
    }

    fn queue() -> Queue {
        Queue::new(at(0), (10, 1 << 20), 1)
    }

    /// Flow, number, part and length of a piece.
    type Shape = (u64, u64, Option<(u16, u16)>, usize);

    /// The pieces of the next record.
    fn record(queue: &mut Queue, now: Instant) -> Vec<Shape> {
        let mut out = alloc::vec![0; Item::TIME_LEN];
        queue.fill(now, DEADLINE, 1332, &mut out);
        assert!(out.len() <= 1332);
        let (mut rest, mut pieces) = (&out[Item::TIME_LEN..], Vec::new());
        while let Some((Item::Piece(piece), left)) = Item::parse(rest) {
            pieces.push((piece.flow, piece.number, piece.part, piece.bytes.len()));
            rest = left;
        }
        assert!(rest.is_empty());
        pieces
    }

    #[test]
    fn small_packets_share_a_record_and_long_ones_take_two() {
        let mut queue = queue();
        (0..3).for_each(|_| queue.push(at(0), (key(1), false), &[1; 100]).unwrap());
        assert_eq!(record(&mut queue, at(1)), [(0, 0, None, 100), (0, 1, None, 100), (0, 2, None, 100)]);
        (0..2).for_each(|_| queue.push(at(2), (key(1), false), &[1; 1500]).unwrap());
        let first = record(&mut queue, at(2));
        let second = record(&mut queue, at(2));
        let third = record(&mut queue, at(2));
        let [(_, 3, Some((0, 1500)), head)] = first[..] else { panic!("{first:?}") };
        let [(_, 3, Some((offset, 1500)), rest), (_, 4, Some((0, 1500)), more)] = second[..] else {
            panic!("{second:?}")
        };
        assert_eq!((usize::from(offset), head + rest), (head, 1500));
        assert_eq!(third, [(0, 4, Some((more as u16, 1500)), 1500 - more)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_packet_that_fits_into_a_record_is_never_cut() {
        let mut queue = queue();
        (0..20).for_each(|_| queue.push(at(0), (key(1), false), &[1; 900]).unwrap());
        for number in 0..20 {
            assert_eq!(record(&mut queue, at(0)), [(0, number, None, 900)]);
        }
    }

    #[test]
    fn what_waits_longer_than_the_deadline_is_dropped_from_the_head_and_counted() {
        let mut queue = queue();
        queue.push(at(0), (key(1), false), &[1; 900]).unwrap();
        queue.push(at(60), (key(1), false), &[2; 901]).unwrap();
        assert_eq!(record(&mut queue, at(100)), [(0, 0, None, 901)]);
        assert_eq!((queue.take_overdue(), queue.take_overdue(), queue.is_empty()), (1, 0, true));
    }

    #[test]
    fn a_sparse_flow_goes_before_a_busy_one_and_busy_ones_share() {
        let mut queue = queue();
        for port in 1..3 {
            (0..50).for_each(|_| queue.push(at(0), (key(port), false), &[1; 1200]).unwrap());
        }
        let sent: Vec<u64> = (0..20).map(|_| record(&mut queue, at(0))[0].0).collect();
        let of_first = sent.iter().filter(|flow| **flow == 0).count();
        assert!((8..=12).contains(&of_first), "{sent:?}");
        queue.push(at(1), (key(9), false), &[1; 80]).unwrap();
        assert_eq!(record(&mut queue, at(1))[0], (2, 0, None, 80));
    }

    #[test]
    fn busy_flows_share_by_their_weights() {
        let mut queue = queue();
        for (port, weight) in [(1, 1), (2, 4)] {
            (0..200).for_each(|_| queue.push(at(0), (key(port), false), &[1; 1200]).unwrap());
            queue.set_weight(&key(port), weight);
        }
        let sent: Vec<u64> = (0..200).map(|_| record(&mut queue, at(0))[0].0).collect();
        let of_first = sent.iter().filter(|flow| **flow == 0).count();
        assert!((37..=43).contains(&of_first), "{of_first} of 200");
        assert!(sent.windows(12).all(|some| some.contains(&0)), "it waits for no more than a turn: {sent:?}");
    }

    #[test]
    fn beyond_the_limits_nothing_is_taken_and_idle_flows_make_room() {
        let mut queue = queue();
        (0..10).for_each(|port| queue.push(at(0), (key(port), false), &[1; 10]).unwrap());
        assert_eq!(queue.push(at(0), (key(10), false), &[1; 10]), Err(NoRoom));
        while !record(&mut queue, at(0)).is_empty() {}
        queue.on_timeout(at(61_000), DEADLINE);
        assert_eq!(queue.flows(), 0);
        queue.push(at(61_000), (key(10), false), &[1; 10]).unwrap();
        let too_much = alloc::vec![0; 1 << 20];
        assert_eq!(queue.push(at(61_000), (key(10), false), &too_much), Err(NoRoom));
    }
}
