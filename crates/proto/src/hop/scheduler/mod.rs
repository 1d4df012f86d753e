//! The order of sending on a link: repairs before new data; then flows that had nothing to send for a round, so
//! that a request of one packet does not wait behind bulk (as FQ-CoDel, RFC 8290); then the others in turn (deficit
//! round robin, Shreedhar and Varghese 1995). Each flow keeps within its own rate, and new data in the order of its bytes; readers of
//! one flow at different places have turns within its own.
//!
//! Costs per packet do not grow with the number of flows, except for the heap of flows that wait for a time.

mod ahead;
mod marks;
mod queue;
mod queues;
mod shares;
mod turns;

use super::transfer::Tally;
use crate::deadlines::Deadlines;
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{Reason, Waited};
use alloc::collections::VecDeque;
use marks::MarkBudget;
use queue::{Order, Piece, Queue, Visit, Way};
use queues::Queues;
use shares::Shares;
use turns::Turns;

/// The next bytes to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The queue it came from.
    pub queue: Slot,
    /// The owner's slot of the flow.
    pub owner: Slot,
    /// The flow of that queue.
    pub flow: FlowId,
    /// The bytes, at most one payload.
    pub range: ByteRange,
    /// It is a repair, or arrived late from upstream.
    pub is_repair: bool,
    /// Bytes that were skipped ahead of it in the flow's order.
    pub skipped: ByteRange,
    /// Waiting time since they were asked for, here and at the nodes before.
    pub waited: Waited,
    /// The node could have sent it so much earlier.
    pub late: Duration,
}

/// The action that a scheduler asks for when it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Send this.
    Send(Chunk),
    /// The queue has been empty for a while since it last sent: tell the neighbour how far it got.
    Mark {
        /// The flow of the queue.
        flow: FlowId,
        /// The end of the sent bytes.
        offset: u64,
    },
    /// Send parity of the hop. No scheduler says so: its [`Responder`](super::Responder) does.
    Parity,
}

/// The most entries of closed queues in a list before these are removed.
const MOST_STALE: usize = 64;

/// The queues of one link.
#[derive(Debug)]
pub struct Scheduler {
    queues: Queues,
    /// Queues that have repairs; they go first.
    repair_ring: VecDeque<Slot>,
    /// Queues that have new data; they go next.
    turns: Turns,
    /// Queues with repairs, and queues in `turns` with something to send.
    repairing: usize,
    sendable: usize,
    /// Queues that have sent the end of their flow, each with the time of that.
    ended: VecDeque<(Instant, Slot)>,
    /// Queues held by their own rate, and empty queues that owe a mark.
    waiting: Deadlines,
    /// Number of queues that have something to send.
    busy: usize,
    /// The parts of the link.
    shares: Shares,
    /// Bytes that wait in all of them.
    bytes: u64,
    payload: u64,
    /// `None` where pauses are not marked.
    marks: Option<MarkBudget>,
    /// Repairs leave before new data; otherwise behind the queued bytes.
    repairs_first: bool,
}

impl Scheduler {
    /// A scheduler of chunks of at most `payload` bytes that serves repairs first; `marks` says whether pauses are
    /// marked.
    pub fn new(payload: usize, marks: bool) -> Self {
        Self {
            queues: Queues::default(),
            repair_ring: VecDeque::new(),
            turns: Turns::default(),
            repairing: 0,
            sendable: 0,
            ended: VecDeque::new(),
            waiting: Deadlines::default(),
            busy: 0,
            shares: Shares::default(),
            bytes: 0,
            payload: payload as u64,
            marks: marks.then(MarkBudget::default),
            repairs_first: true,
        }
    }

    /// The same, with repairs in turn: behind the data that waits when they are queued.
    #[must_use]
    pub fn with_repairs_in_turn(self) -> Self {
        Self { repairs_first: false, ..self }
    }

    /// Opens a queue for `flow`, which its owner calls `owner`.
    pub fn open(&mut self, flow: FlowId, owner: Slot) -> Slot {
        self.queues.open(Queue::new(flow, owner, self.payload))
    }

    /// Drops a queue and its bytes. False if it was not open.
    pub fn close(&mut self, slot: Slot) -> bool {
        let Some(mut queue) = self.queues.close(slot) else { return false };
        self.busy -= usize::from(!queue.queued().is_empty());
        self.shares.leave(&mut queue.part);
        self.bytes -= queue.queued().byte_count();
        self.repairing -= usize::from(queue.has_repairs());
        self.sendable -= usize::from(queue.is_sendable());
        self.waiting.set(slot, None);
        if self.ended.len() > 2 * self.queues.open_count() + MOST_STALE {
            let Self { ended, queues, .. } = self;
            ended.retain(|(_, slot)| queues.get(*slot).is_some_and(|queue| queue.tally.has_end()));
        }
        true
    }

    /// The flow of a queue and the tally of its sent bytes.
    pub fn tally(&self, slot: Slot) -> Option<(FlowId, &Tally)> {
        self.queues.get(slot).map(|queue| (queue.flow(), &queue.tally))
    }

    /// The chunk that a queue gave last holds the end of its flow.
    pub fn note_end(&mut self, slot: Slot) {
        if let Some(queue) = self.queues.get_mut(slot) {
            if !queue.tally.has_end() {
                self.ended.push_back((queue.tally.last_sent(), slot));
            }
            queue.tally.on_end();
            if queue.queued().is_empty() {
                self.shares.leave(&mut queue.part);
            }
        }
    }

    /// Takes the account of a queue that is empty and has sent the end of its flow `quiet` ago; it begins anew.
    pub fn take_over(&mut self, now: Instant, quiet: Duration) -> Option<(FlowId, Tally)> {
        for _ in 0..self.ended.len() {
            let (at, slot) = *self.ended.front()?;
            if now.since(at) < quiet {
                return None;
            }
            self.ended.pop_front();
            let Some(queue) = self.queues.get_mut(slot) else { continue };
            if queue.queued().is_empty() && queue.tally.is_over(now, quiet) {
                return Some((queue.flow(), core::mem::take(&mut queue.tally)));
            }
            if queue.tally.has_end() {
                // The queue has sent something again since, or will.
                self.ended.push_back((now, slot));
            }
        }
        None
    }

    /// Changes the bytes of a chunk, at most.
    pub fn set_payload(&mut self, payload: u64) {
        self.payload = payload;
    }

    /// Bytes of a chunk, at most.
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// The owners of the queues that are open.
    pub fn owners(&self) -> impl Iterator<Item = Slot> {
        self.queues.iter().map(Queue::owner)
    }

    /// Bytes waiting in a queue.
    pub fn queued_bytes(&self, slot: Slot) -> u64 {
        self.queued(slot).map_or(0, RangeSet::byte_count)
    }

    /// Bytes waiting in all queues.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Queues that are open.
    pub fn open_queues(&self) -> usize {
        self.queues.open_count()
    }

    /// The rate of a queue.
    pub fn queue_rate(&self, slot: Slot) -> Rate {
        self.queues.get(slot).map_or(Rate::ZERO, Queue::rate)
    }

    /// Queues that have something to send, those held by their own rate included.
    pub fn busy_queues(&self) -> usize {
        self.busy
    }

    /// The rate that the flow of a queue can have on a link of rate `link` while the others go on as now: its equal part, or what the
    /// others leave of theirs.
    pub fn share(&self, slot: Slot, link: Rate) -> Rate {
        self.queues
            .get(slot)
            .map_or(Rate::ZERO, |queue| self.shares.of(&queue.part, link, self.has_backlog()))
    }

    /// Whether anything but marks is waiting that may leave at `now`.
    pub fn has_backlog(&self) -> bool {
        self.sendable > 0 || self.repairing > 0
    }

    /// Offset after the highest byte that a queue has sent.
    pub fn sent_end(&self, slot: Slot) -> u64 {
        self.queues.get(slot).map_or(0, Queue::sent_end)
    }

    /// The bytes that wait in a queue.
    pub fn queued(&self, slot: Slot) -> Option<&RangeSet> {
        self.queues.get(slot).map(Queue::queued)
    }

    /// Bounds a queue's rate (its backpressure bound), on a link of rate `link`.
    pub fn set_queue_rate(&mut self, now: Instant, slot: Slot, rate: Rate, link: Rate) {
        self.forget_quiet(now);
        let Some(queue) = self.queues.get_mut(slot) else { return };
        self.shares.review(&mut queue.part, link);
        if queue.set_rate(now, rate) {
            self.admit(now, slot, false);
        }
    }

    /// Flows of which nothing has waited lately have no part of the link any longer.
    fn forget_quiet(&mut self, now: Instant) {
        while let Some(slot) = self.shares.next_quiet(now) {
            let is_off = self.queues.get_mut(slot).is_none_or(|queue| {
                let is_empty = queue.queued().is_empty();
                self.shares.look(now, slot, &mut queue.part, is_empty)
            });
            if is_off {
                self.queues.unlist(slot);
            }
        }
    }

    /// Gives a queue `weight` packets in its turns from now on, at least one.
    pub fn set_weight(&mut self, slot: Slot, weight: u8) {
        if let Some(queue) = self.queues.get_mut(slot) {
            queue.set_weight(weight);
        }
    }

    /// A queue that has something to send joins a list, or waits for its own rate. `is_new` says that it had nothing before.
    fn admit(&mut self, now: Instant, slot: Slot, is_new: bool) {
        let Some(queue) = self.queues.get_mut(slot) else { return };
        match queue.admit(now, is_new, self.payload) {
            Way::Stays => self.sendable += usize::from(is_new),
            Way::Waits(ready) => self.waiting.set(slot, Some(ready)),
            Way::Joins(place) => {
                self.sendable += 1;
                self.queues.list(slot);
                self.turns.join(place, slot);
            }
        }
    }

    /// Whether a queue could have sent before now, if it had held anything.
    pub fn is_thirsty(&self, now: Instant, slot: Slot) -> bool {
        !self.has_backlog() && self.queues.get(slot).is_some_and(|queue| queue.is_thirsty(now))
    }

    /// Queues `range`, none of which may be queued already: to leave in the flow's order, that of the first reader or of those behind
    /// it; or, if it was lost and the flow may have it first (see [`Ahead`](ahead::Ahead)), before the new data of all. `told` says how
    /// long it has waited until now, and whether the requests for it had run out.
    pub fn push(&mut self, now: Instant, slot: Slot, range: ByteRange, reason: Reason, told: Waited) {
        let Some(queue) = self.queues.get_mut(slot) else { return };
        if range.is_empty() || queue.queued().overlaps(range) {
            debug_assert!(range.is_empty(), "{range:?} is queued twice");
            return;
        }
        if !queue.part.is_counted() {
            self.shares.enter(&mut queue.part);
        }
        queue.pause.end(now);
        if reason == Reason::Lost {
            self.marks.iter_mut().for_each(MarkBudget::on_loss);
        }
        self.busy += usize::from(queue.queued().is_empty());
        self.bytes += range.len();
        let is_alone = self.busy == 1;
        let goes_first =
            reason == Reason::Lost && self.repairs_first && (is_alone || queue.ahead.take(range.len()));
        let piece = Piece {
            range,
            since: now.before(told.time),
            is_dry: told.is_dry && !goes_first,
            is_again: reason == Reason::Again && self.repairs_first,
        };
        if !goes_first {
            let order = if self.repairs_first { Order::Bytes } else { Order::Arrival };
            if queue.push_fresh(piece, self.payload, order) {
                self.admit(now, slot, true);
            }
        } else if queue.push_repair(piece) {
            self.repairing += 1;
            self.queues.list(slot);
            self.repair_ring.push_back(slot);
        }
    }

    /// Time at which there is something to send, if no input arrives first.
    pub fn next_turn(&self) -> Instant {
        if self.has_backlog() { Instant::ZERO } else { self.waiting.next() }
    }

    /// The next action at `now`, if there is any. The link would have let a packet leave from `link_ready` on.
    #[inline]
    pub fn poll(&mut self, now: Instant, link_ready: Instant) -> Option<Turn> {
        while let Some((at, slot)) = self.waiting.first() {
            if at > now {
                break;
            }
            self.waiting.set(slot, None);
            if let Some(mark) = self.wake(now, slot) {
                return Some(mark);
            }
        }
        self.poll_repair(now).or_else(|| self.poll_fresh(now, link_ready)).map(Turn::Send)
    }

    /// A queue's wait is over: it joins the ring, or owes a mark.
    fn wake(&mut self, now: Instant, slot: Slot) -> Option<Turn> {
        let has_backlog = self.has_backlog();
        let queue = self.queues.get_mut(slot)?;
        if queue.has_fresh() {
            self.admit(now, slot, false);
            return None;
        }
        let look = queue.pause.look(now, self.marks.as_mut()?, has_backlog);
        self.waiting.set(slot, look.next);
        look.is_mark.then(|| Turn::Mark { flow: queue.flow(), offset: queue.sent_end() })
    }

    fn poll_repair(&mut self, now: Instant) -> Option<Chunk> {
        let slot = self.first_repairing()?;
        let queue = self.queues.get_mut(slot)?;
        let chunk = queue.take_repair(now, slot, self.payload)?;
        self.bytes -= chunk.range.len();
        if queue.has_repairs() {
            self.repair_ring.rotate_left(1);
        } else {
            self.repairing -= 1;
            self.repair_ring.pop_front();
            self.queues.unlist(slot);
        }
        self.after_send(now, slot);
        Some(chunk)
    }

    /// The queue whose repair is next.
    fn first_repairing(&mut self) -> Option<Slot> {
        loop {
            let slot = *self.repair_ring.front()?;
            if self.queues.get(slot).is_some_and(Queue::has_repairs) {
                return Some(slot);
            }
            self.repair_ring.pop_front();
            self.queues.unlist(slot);
        }
    }

    fn poll_fresh(&mut self, now: Instant, link_ready: Instant) -> Option<Chunk> {
        while self.sendable > 0 {
            let (slot, is_alone) = (self.turns.first()?, self.turns.is_alone());
            let queue = self.queues.get_mut(slot);
            match queue.map_or(Visit::Leaves, |queue| queue.visit(now, self.payload, is_alone)) {
                Visit::Sends => return self.send_fresh(now, slot, link_ready),
                Visit::Passes => self.turns.pass(),
                Visit::Held(ready) => self.leave_held(slot, ready),
                Visit::Leaves => self.leave(slot),
            }
        }
        None
    }

    /// The queue whose turn it is leaves its list.
    fn leave(&mut self, slot: Slot) {
        self.turns.leave();
        self.queues.unlist(slot);
    }

    /// The queue whose turn it is leaves its list until `ready`. While its own rate holds it, it is no backlog of the link.
    fn leave_held(&mut self, slot: Slot, ready: Instant) {
        self.sendable -= 1;
        self.waiting.set(slot, Some(ready));
        self.leave(slot);
    }

    /// Takes a packet off the queue whose turn it is.
    fn send_fresh(&mut self, now: Instant, slot: Slot, link_ready: Instant) -> Option<Chunk> {
        let queue = self.queues.get_mut(slot)?;
        let chunk = queue.take_fresh(now, slot, self.payload, link_ready)?;
        let held = if queue.has_fresh() { queue.hold(now) } else { None };
        self.bytes -= chunk.range.len();
        self.marks.iter_mut().for_each(|marks| marks.on_sent(chunk.range.len()));
        if !queue.has_fresh() {
            self.sendable -= 1;
            self.turns.pass();
        } else if let Some(ready) = held {
            self.leave_held(slot, ready);
        }
        self.after_send(now, slot);
        Some(chunk)
    }

    fn after_send(&mut self, now: Instant, slot: Slot) {
        let Some(queue) = self.queues.get_mut(slot) else { return };
        if !queue.queued().is_empty() {
            return;
        }
        self.busy -= 1;
        let is_over = queue.tally.has_end();
        if self.shares.on_empty(now, slot, &mut queue.part, is_over) {
            self.queues.list(slot);
        }
        let Some(queue) = self.queues.get_mut(slot) else { return };
        if let Some(marks) = &self.marks {
            let at = queue.pause.begin(now, marks);
            if !self.waiting.has(slot) {
                self.waiting.set(slot, Some(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::marks::{MARK_BYTES, SHARE};
    use super::*;
    use alloc::vec::Vec;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn chunks(scheduler: &mut Scheduler, now: Instant) -> Vec<Chunk> {
        core::iter::from_fn(|| match scheduler.poll(now, now) {
            Some(Turn::Send(chunk)) => Some(chunk),
            _ => None,
        })
        .collect()
    }

    fn two_flows() -> (Scheduler, Slot, Slot) {
        let mut scheduler = Scheduler::new(1000, true);
        let a = scheduler.open(FlowId([1; 16]), Slot(0));
        let b = scheduler.open(FlowId([2; 16]), Slot(0));
        (scheduler, a, b)
    }

    #[test]
    fn flows_share_by_bytes_and_not_by_packets() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(0, 20_000), Reason::New, Waited::default());
        for start in (0..20_000).step_by(250) {
            scheduler.push(NOW, b, ByteRange::at(start * 2, 250), Reason::New, Waited::default());
        }
        let sent = chunks(&mut scheduler, NOW);
        let of =
            |slot, n: usize| sent[..n].iter().filter(|c| c.queue == slot).map(|c| c.range.len()).sum::<u64>();
        assert!(of(a, 40).abs_diff(of(b, 40)) <= 2000, "{} {}", of(a, 40), of(b, 40));
        assert_eq!(sent.iter().map(|c| c.range.len()).sum::<u64>(), 40_000);
    }

    #[test]
    fn a_flow_has_its_part_for_a_moment_after_its_last_packet_whatever_another_one_does() {
        let (mut scheduler, a, b) = two_flows();
        let link = Rate::from_mbps(10);
        let mut step = |milli: u64, queues: &[Slot]| {
            let now = NOW + Duration::from_millis(milli);
            for &queue in queues {
                scheduler.push(
                    now,
                    queue,
                    ByteRange::at(1_000 * milli, 1_000),
                    Reason::New,
                    Waited::default(),
                );
            }
            chunks(&mut scheduler, now);
            scheduler.set_queue_rate(now, a, Rate::UNLIMITED, link);
            scheduler.share(a, link)
        };
        assert_eq!(step(0, &[a]), link);
        (1..200).for_each(|milli| _ = step(milli, &[a, b]));
        assert_eq!(step(200, &[a]), Rate::from_mbps(5));
        let shares: Vec<Rate> = (200..700).map(|milli| step(milli, &[a])).collect();
        let kept = shares.iter().take_while(|share| **share < link).count();
        assert!(
            (199..=400).contains(&kept) && shares[kept..].iter().all(|share| *share == link),
            "{kept} ms"
        );
    }

    #[test]
    fn repairs_leave_first_up_to_the_bytes_that_were_sent() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.push(NOW, b, ByteRange::new(0, 2_000), Reason::New, Waited::default());
        assert_eq!(chunks(&mut scheduler, NOW).len(), 2);
        scheduler.push(NOW, a, ByteRange::new(5_000, 7_000), Reason::New, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(0, 2_000), Reason::Lost, Waited::default());
        let sent: Vec<_> =
            chunks(&mut scheduler, NOW).iter().map(|chunk| (chunk.queue, chunk.is_repair)).collect();
        assert_eq!(sent, [(b, true), (b, true), (a, false), (a, false)]);
        // 2,000 bytes of new data, and as many repairs of it: more repairs share with the others.
        scheduler.push(NOW, a, ByteRange::new(7_000, 17_000), Reason::New, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(0, 2_000), Reason::Lost, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(2_000, 10_000), Reason::Lost, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        let of_b = sent[..10].iter().filter(|chunk| chunk.queue == b).count();
        assert!((5..=6).contains(&of_b), "{of_b} of the first ten");
    }

    /// A neighbour refused the front of a request, and took what is behind it: among ten thousand flows the front waited for 17 s.
    #[test]
    fn repairs_that_may_not_leave_first_leave_before_the_new_data_of_their_own_flow() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.push(NOW, b, ByteRange::new(9_000, 10_000), Reason::New, Waited::default());
        chunks(&mut scheduler, NOW);
        scheduler.push(NOW, a, ByteRange::new(0, 2_000), Reason::New, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(10_000, 12_000), Reason::New, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(5_000, 7_000), Reason::Lost, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        let of_b: Vec<u64> =
            sent.iter().filter(|chunk| chunk.queue == b).map(|chunk| chunk.range.start).collect();
        assert_eq!(of_b, [5_000, 6_000, 10_000, 11_000]);
        assert!(sent[..2].iter().any(|chunk| chunk.queue == a), "and the other flow has its turn: {sent:?}");
    }

    #[test]
    fn repairs_in_turn_leave_behind_what_waits_and_announce_nothing() {
        let mut scheduler = Scheduler::new(1000, false).with_repairs_in_turn();
        let a = scheduler.open(FlowId([1; 16]), Slot(0));
        scheduler.push(NOW, a, ByteRange::new(5_000, 6_000), Reason::New, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(0, 1_000), Reason::Lost, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(6_000, 7_000), Reason::New, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        let starts: Vec<u64> = sent.iter().map(|chunk| chunk.range.start).collect();
        assert_eq!(starts, [5_000, 0, 6_000]);
        assert!(sent.iter().skip(1).all(|chunk| chunk.skipped.is_empty()));
    }

    #[test]
    fn a_flow_held_by_its_rate_does_not_hold_the_others() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.set_queue_rate(NOW, a, Rate::from_bps(8_000), Rate::UNLIMITED);
        scheduler.push(NOW, a, ByteRange::new(0, 100_000), Reason::New, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(0, 50_000), Reason::New, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        assert_eq!(sent.iter().filter(|c| c.queue == b).count(), 50);
        assert_eq!(sent.iter().filter(|c| c.queue == a).count(), 2, "the burst and no more");
        let later = scheduler.next_turn();
        assert!(later > NOW && later <= NOW + Duration::from_secs(1), "{later:?}");
    }

    #[test]
    fn a_pause_is_marked_twice_with_the_end_of_what_was_sent() {
        let (mut scheduler, a, _) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(0, 1_500), Reason::New, Waited::default());
        assert_eq!(chunks(&mut scheduler, NOW).len(), 2);
        for _ in 0..2 {
            let at = scheduler.next_turn();
            assert_eq!(scheduler.poll(at, at), Some(Turn::Mark { flow: FlowId([1; 16]), offset: 1_500 }));
        }
        assert_eq!(scheduler.next_turn(), Instant::NEVER);
    }

    #[test]
    fn a_crowd_whose_flows_pause_after_every_packet_sends_few_marks() {
        let mut scheduler = Scheduler::new(1_000, true);
        let slots: Vec<Slot> = (0..500).map(|n| scheduler.open(FlowId([n as u8; 16]), Slot(n))).collect();
        let (mut now, mut packets, mut marks) = (NOW, 0, 0);
        // A packet each 100 us; each flow has the next one 10 ms after its last one left, and a round takes 40 ms.
        let mut due: VecDeque<(Instant, Slot, u64)> = slots.iter().map(|slot| (NOW, *slot, 0)).collect();
        while packets < 20_000 {
            while let Some((_, slot, at)) = due.front().copied().filter(|(at, ..)| *at <= now) {
                due.pop_front();
                scheduler.push(now, slot, ByteRange::at(at, 1_000), Reason::New, Waited::default());
            }
            match scheduler.poll(now, now) {
                Some(Turn::Send(chunk)) => {
                    packets += 1;
                    now += Duration::from_micros(100);
                    due.push_back((now + Duration::from_millis(10), chunk.queue, chunk.range.end));
                }
                Some(Turn::Mark { .. }) => marks += 1,
                _ => now += Duration::from_micros(100),
            }
        }
        let share = marks as f64 * MARK_BYTES as f64 / (packets as f64 * 1_000.0);
        assert!(marks > 0 && share < 1.1 / SHARE as f64, "{marks} marks of {packets} packets");
    }

    #[test]
    fn skipped_bytes_are_named_with_the_packet_that_skips_them() {
        let (mut scheduler, a, _) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(0, 500), Reason::New, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(900, 1_000), Reason::New, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        assert_eq!(sent[0].skipped, ByteRange::default());
        assert_eq!(sent[1].skipped, ByteRange::new(500, 900));
    }

    #[test]
    fn a_packet_of_a_flow_that_was_quiet_goes_before_the_bulk_of_others() {
        let (mut scheduler, a, b) = two_flows();
        let quiet = scheduler.open(FlowId([3; 16]), Slot(9));
        let bulk = |at: u64| ByteRange::at(at, 20_000);
        scheduler.push(NOW, a, bulk(0), Reason::New, Waited::default());
        scheduler.push(NOW, b, bulk(0), Reason::New, Waited::default());
        (0..6).for_each(|_| _ = scheduler.poll(NOW, NOW));
        scheduler.push(NOW, quiet, ByteRange::new(0, 100), Reason::New, Waited::default());
        let Some(Turn::Send(first)) = scheduler.poll(NOW, NOW) else { panic!("there is much to send") };
        assert_eq!(first.queue, quiet);
        // The queue's next packet comes at once: now the queue is in turn.
        scheduler.push(NOW, quiet, ByteRange::new(100, 200), Reason::New, Waited::default());
        let Some(Turn::Send(second)) = scheduler.poll(NOW, NOW) else { panic!("there is much to send") };
        assert_ne!(second.queue, quiet);
        let rest = chunks(&mut scheduler, NOW);
        assert!(rest[..3].iter().any(|chunk| chunk.queue == quiet), "within a round");
    }

    /// A queue that is fed one packet after the other gets its turn and no more.
    #[test]
    fn a_flow_that_always_has_one_packet_has_no_more_than_its_share() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.push(NOW, b, ByteRange::new(0, 100_000), Reason::New, Waited::default());
        let mut sent = [0; 2];
        for n in 0..100 {
            if scheduler.queued_bytes(a) == 0 {
                scheduler.push(NOW, a, ByteRange::at(1000 * n, 1000), Reason::New, Waited::default());
            }
            let Some(Turn::Send(chunk)) = scheduler.poll(NOW, NOW) else { break };
            sent[usize::from(chunk.queue == b)] += 1;
        }
        assert!(sent[0] <= sent[1] + 2, "{sent:?}");
    }

    #[test]
    fn the_place_of_a_queue_that_was_closed_in_its_turn_is_used_again_and_gives_nothing_of_the_old() {
        let (mut scheduler, a, b) = two_flows();
        for round in 0..50u8 {
            let queue = scheduler.open(FlowId([9 + round; 16]), Slot(2));
            assert!(queue.0 < 4, "{queue:?}");
            for slot in [a, b, queue] {
                scheduler.push(
                    NOW,
                    slot,
                    ByteRange::at(u64::from(round) * 5000, 5000),
                    Reason::New,
                    Waited::default(),
                );
            }
            scheduler.poll(NOW, NOW);
            scheduler.close(queue);
            let sent = chunks(&mut scheduler, NOW);
            assert!(sent.iter().all(|chunk| chunk.queue == a || chunk.queue == b), "{sent:?}");
            assert_eq!((scheduler.open_queues(), scheduler.total_bytes()), (2, 0));
        }
    }

    #[test]
    fn a_closed_queue_sends_nothing() {
        let (mut scheduler, a, _) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(0, 5_000), Reason::New, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(5_000, 9_000), Reason::Lost, Waited::default());
        scheduler.close(a);
        assert_eq!(scheduler.poll(NOW, NOW), None);
        assert_eq!(scheduler.next_turn(), Instant::NEVER);
    }
}
