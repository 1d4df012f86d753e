//! Who sends next on a link: repairs before new data, flows in turn (deficit round robin, Shreedhar and
//! Varghese 1995), each flow within its own rate.

use super::pacer::Pacer;
use super::transfer::Tally;
use crate::deadlines::Deadlines;
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::Waited;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What to send next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The queue it came from.
    pub queue: Slot,
    /// What the queue's owner calls the flow.
    pub owner: Slot,
    /// The flow of that queue.
    pub flow: FlowId,
    /// The bytes, at most one payload.
    pub range: ByteRange,
    /// Whether it goes out of the flow's order: a repair, or a late arrival from upstream.
    pub is_repair: bool,
    /// Bytes that were skipped ahead of it in the flow's order.
    pub skipped: ByteRange,
    /// How long they waited since they were asked for, here and at the nodes before.
    pub waited: Waited,
}

/// Bytes that wait, and since when.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: ByteRange,
    /// When they were asked for, later by the time that they were on links.
    since: Instant,
    is_dry: bool,
}

impl Piece {
    fn waited(&self, now: Instant) -> Waited {
        Waited { time: now.since(self.since), is_dry: self.is_dry }
    }
}

/// Requests that follow each other this soon are told as one: the told time is no finer.
const GRAIN: Duration = Duration::from_millis(1);

/// What a scheduler asks for when it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Send this.
    Send(Chunk),
    /// The queue has been empty for a while since it last sent: tell the neighbour how far it got.
    Mark {
        /// The flow of the queue.
        flow: FlowId,
        /// The end of what was sent.
        offset: u64,
    },
    /// Send parity of the hop. No scheduler says so: its [`Responder`](super::Responder) does.
    Parity,
}

#[derive(Debug)]
struct Queue {
    flow: FlowId,
    owner: Slot,
    repairs: VecDeque<Piece>,
    fresh: VecDeque<Piece>,
    /// The bytes of both lists: none is ever queued twice.
    queued: RangeSet,
    deficit: u64,
    pacer: Pacer,
    /// Offset after the highest byte sent.
    sent_end: u64,
    /// Marks still to send about the pause after the last packet, and when the next one is due. Its timer is
    /// left alone while packets flow, and looks here when it fires.
    marks_left: u8,
    mark_at: Instant,
    in_ring: bool,
    tally: Tally,
}

/// How long a queue is empty before its first and before its second mark.
const MARK_AFTER: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(5)];

/// The queues of one link.
#[derive(Debug)]
pub struct Scheduler {
    queues: Vec<Option<Queue>>,
    free: Vec<Slot>,
    /// Queues that may send now, in turn.
    ring: VecDeque<Slot>,
    /// Queues that have repairs; they go first.
    repair_ring: VecDeque<Slot>,
    /// Queues held by their own rate, and empty queues that owe a mark.
    waiting: Deadlines,
    /// How many queues have something to send.
    busy: usize,
    /// Bytes that wait in all of them.
    bytes: u64,
    payload: u64,
    marks: bool,
    /// Repairs leave before new data; otherwise behind what waits.
    repairs_first: bool,
}

impl Scheduler {
    /// A scheduler of chunks of at most `payload` bytes that serves repairs first; `marks` says whether pauses are
    /// marked.
    pub fn new(payload: usize, marks: bool) -> Self {
        Self {
            queues: Vec::new(),
            free: Vec::new(),
            ring: VecDeque::new(),
            repair_ring: VecDeque::new(),
            waiting: Deadlines::default(),
            busy: 0,
            bytes: 0,
            payload: payload as u64,
            marks,
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
        let queue = Queue {
            flow,
            owner,
            repairs: VecDeque::new(),
            fresh: VecDeque::new(),
            queued: RangeSet::new(),
            deficit: 0,
            pacer: Pacer::new(Rate::UNLIMITED, self.payload),
            sent_end: 0,
            marks_left: 0,
            mark_at: Instant::NEVER,
            in_ring: false,
            tally: Tally::default(),
        };
        let slot = self.free.pop().unwrap_or(Slot(self.queues.len() as u32));
        if slot.0 as usize == self.queues.len() {
            self.queues.push(None);
        }
        self.queues[slot.0 as usize] = Some(queue);
        slot
    }

    /// Drops a queue and its bytes. False if it was not open.
    pub fn close(&mut self, slot: Slot) -> bool {
        let queue = self.queues.get_mut(slot.0 as usize).and_then(Option::take);
        if let Some(queue) = &queue {
            self.busy -= usize::from(!queue.queued.is_empty());
            self.bytes -= queue.queued.byte_count();
            self.ring.retain(|&s| s != slot);
            self.repair_ring.retain(|&s| s != slot);
            self.waiting.set(slot, None);
            self.free.push(slot);
        }
        queue.is_some()
    }

    /// The flow of a queue and what was sent of it.
    pub fn tally(&self, slot: Slot) -> Option<(FlowId, &Tally)> {
        self.queue(slot).map(|queue| (queue.flow, &queue.tally))
    }

    /// The chunk that a queue gave last holds the end of its flow.
    pub fn note_end(&mut self, slot: Slot) {
        if let Some(queue) = self.queue_mut(slot) {
            queue.tally.on_end();
        }
    }

    /// Takes the account of a queue that is empty and has sent the end of its flow `quiet` ago; it begins anew.
    pub fn take_over(&mut self, now: Instant, quiet: Duration) -> Option<(FlowId, Tally)> {
        let mut queues = self.queues.iter_mut().flatten();
        let over = queues.find(|queue| queue.queued.is_empty() && queue.tally.is_over(now, quiet))?;
        Some((over.flow, core::mem::take(&mut over.tally)))
    }

    /// Bytes of a chunk, at most.
    pub fn payload(&self) -> u64 {
        self.payload
    }

    /// The owners of the queues that are open.
    pub fn owners(&self) -> impl Iterator<Item = Slot> {
        self.queues.iter().flatten().map(|queue| queue.owner)
    }

    /// Bytes waiting in a queue.
    pub fn queued_bytes(&self, slot: Slot) -> u64 {
        self.queue(slot).map_or(0, |queue| queue.queued.byte_count())
    }

    /// Bytes waiting in all queues.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Queues that are open.
    pub fn open_queues(&self) -> usize {
        self.queues.len() - self.free.len()
    }

    /// The rate of a queue.
    pub fn queue_rate(&self, slot: Slot) -> Rate {
        self.queue(slot).map_or(Rate::ZERO, |queue| queue.pacer.rate())
    }

    /// Queues that have something to send, those held by their own rate included.
    pub fn busy_queues(&self) -> usize {
        self.busy
    }

    /// Whether anything but marks is waiting that may leave at `now`.
    pub fn has_backlog(&self) -> bool {
        !self.ring.is_empty() || !self.repair_ring.is_empty()
    }

    /// Offset after the highest byte that a queue has sent or holds.
    pub fn frontier(&self, slot: Slot) -> u64 {
        self.queue(slot).map_or(0, |queue| {
            queue.fresh.back().map_or(queue.sent_end, |last| last.range.end.max(queue.sent_end))
        })
    }

    /// The bytes that wait in a queue.
    pub fn queued(&self, slot: Slot) -> Option<&RangeSet> {
        self.queue(slot).map(|queue| &queue.queued)
    }

    /// Bounds a queue's rate (its backpressure bound).
    pub fn set_queue_rate(&mut self, now: Instant, slot: Slot, rate: Rate) {
        let Some(queue) = self.queue_mut(slot) else { return };
        queue.pacer.set_rate(now, rate);
        if !queue.fresh.is_empty() && !queue.in_ring {
            self.admit(now, slot);
        }
    }

    /// A queue that has something new to send joins the ring, or waits for its own rate.
    fn admit(&mut self, now: Instant, slot: Slot) {
        let Some(queue) = self.queues[slot.0 as usize].as_mut() else { return };
        let ready = queue.pacer.ready_at();
        if ready > now {
            self.waiting.set(slot, Some(ready));
        } else if !queue.in_ring {
            queue.in_ring = true;
            self.ring.push_back(slot);
        }
    }

    /// Whether a queue could have sent before now, if it had held anything.
    pub fn is_thirsty(&self, now: Instant, slot: Slot) -> bool {
        let is_ready = |queue: &Queue| queue.fresh.is_empty() && queue.pacer.ready_at() <= now;
        !self.has_backlog() && self.queue(slot).is_some_and(is_ready)
    }

    /// Queues `range`, none of which may be queued already, to leave in the flow's order or ahead of it. `told` says how
    /// long it has waited until now, and whether the requests for it had run out.
    pub fn push(&mut self, now: Instant, slot: Slot, range: ByteRange, is_repair: bool, told: Waited) {
        let Some(queue) = self.queues.get_mut(slot.0 as usize).and_then(Option::as_mut) else { return };
        if range.is_empty() || queue.queued.overlaps(range) {
            debug_assert!(range.is_empty(), "{range:?} is queued twice");
            return;
        }
        self.busy += usize::from(queue.queued.is_empty());
        queue.queued.insert(range);
        self.bytes += range.len();
        queue.marks_left = 0;
        if is_repair && self.repairs_first {
            if queue.repairs.is_empty() {
                self.repair_ring.push_back(slot);
            }
            queue.repairs.push_back(Piece { range, since: now.before(told.time), is_dry: false });
            return;
        }
        let piece = Piece { range, since: now.before(told.time), is_dry: told.is_dry };
        let was_empty = queue.fresh.is_empty();
        // Credits of a Producer arrive in adjoining pieces: one range, however many Interests it took. A
        // single packet stays by itself, so that it leaves as it came.
        match queue.fresh.back_mut() {
            Some(last)
                if last.range.end == range.start
                    && last.range.len() > self.payload
                    && piece.since.since(last.since) < GRAIN =>
            {
                last.range.end = range.end;
            }
            _ => queue.fresh.push_back(piece),
        }
        if was_empty {
            self.admit(now, slot);
        }
    }

    /// When there is something to send if no input arrives first.
    pub fn next_turn(&self) -> Instant {
        if self.has_backlog() { Instant::ZERO } else { self.waiting.next() }
    }

    /// What to do at `now`, if anything.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Turn> {
        while let Some((at, slot)) = self.waiting.first() {
            if at > now {
                break;
            }
            self.waiting.set(slot, None);
            if let Some(mark) = self.wake(now, slot) {
                return Some(mark);
            }
        }
        self.poll_repair(now).or_else(|| self.poll_fresh(now)).map(Turn::Send)
    }

    /// A queue's wait is over: it joins the ring, or owes a mark.
    fn wake(&mut self, now: Instant, slot: Slot) -> Option<Turn> {
        let queue = self.queues[slot.0 as usize].as_mut()?;
        if !queue.fresh.is_empty() {
            self.admit(now, slot);
            return None;
        }
        if queue.mark_at > now {
            let later = queue.mark_at.if_ever();
            self.waiting.set(slot, later);
            return None;
        }
        queue.marks_left = queue.marks_left.checked_sub(1)?;
        let mark = Turn::Mark { flow: queue.flow, offset: queue.sent_end };
        queue.mark_at = if queue.marks_left > 0 { now + MARK_AFTER[0] } else { Instant::NEVER };
        let next = queue.mark_at.if_ever();
        self.waiting.set(slot, next);
        Some(mark)
    }

    fn poll_repair(&mut self, now: Instant) -> Option<Chunk> {
        let slot = *self.repair_ring.front()?;
        let payload = self.payload;
        let queue = self.queues[slot.0 as usize].as_mut()?;
        let Piece { range, since, .. } = take_front(&mut queue.repairs, payload)?;
        queue.queued.remove(range);
        self.bytes -= range.len();
        // Charged to the flow, but never held by its rate: what is missing downstream goes first.
        queue.pacer.on_sent(now, range.len());
        queue.tally.on_sent(now, range.len(), true);
        queue.sent_end = queue.sent_end.max(range.end);
        let chunk = Chunk {
            queue: slot,
            owner: queue.owner,
            flow: queue.flow,
            range,
            is_repair: true,
            skipped: ByteRange::default(),
            waited: Waited { time: now.since(since), is_dry: false },
        };
        if queue.repairs.is_empty() {
            self.repair_ring.pop_front();
        } else {
            self.repair_ring.rotate_left(1);
        }
        self.after_send(now, slot);
        Some(chunk)
    }

    fn poll_fresh(&mut self, now: Instant) -> Option<Chunk> {
        loop {
            let slot = *self.ring.front()?;
            let payload = self.payload;
            let queue = self.queues[slot.0 as usize].as_mut()?;
            let ready = queue.pacer.ready_at();
            if ready > now {
                queue.in_ring = false;
                self.ring.pop_front();
                self.waiting.set(slot, Some(ready));
                continue;
            }
            let next = queue.fresh.front().map_or(0, |next| next.range.len().min(payload));
            if queue.deficit < next {
                // A full packet per round: the smallest quantum with which every visit can send (O(1)).
                queue.deficit += payload;
                if self.ring.len() > 1 {
                    self.ring.rotate_left(1);
                    continue;
                }
            }
            let piece = take_front(&mut queue.fresh, payload)?;
            let (range, waited) = (piece.range, piece.waited(now));
            queue.deficit -= range.len();
            queue.queued.remove(range);
            self.bytes -= range.len();
            queue.pacer.on_sent(now, range.len());
            let is_repair = range.start < queue.sent_end;
            queue.tally.on_sent(now, range.len(), is_repair);
            let skipped = ByteRange::new(queue.sent_end.min(range.start), range.start);
            queue.sent_end = queue.sent_end.max(range.end);
            let (flow, owner) = (queue.flow, queue.owner);
            let ready = queue.pacer.ready_at();
            if queue.fresh.is_empty() {
                queue.deficit = 0;
                queue.in_ring = false;
                self.ring.pop_front();
            } else if ready > now {
                // A queue held by its own rate is no backlog of the link.
                queue.in_ring = false;
                self.ring.pop_front();
                self.waiting.set(slot, Some(ready));
            }
            self.after_send(now, slot);
            return Some(Chunk { queue: slot, owner, flow, range, is_repair, skipped, waited });
        }
    }

    fn after_send(&mut self, now: Instant, slot: Slot) {
        let Some(queue) = self.queues[slot.0 as usize].as_mut() else { return };
        if !queue.queued.is_empty() {
            return;
        }
        self.busy -= 1;
        if self.marks {
            queue.marks_left = MARK_AFTER.len() as u8;
            queue.mark_at = now + MARK_AFTER[1];
            if !self.waiting.has(slot) {
                let at = queue.mark_at;
                self.waiting.set(slot, Some(at));
            }
        }
    }

    fn queue(&self, slot: Slot) -> Option<&Queue> {
        self.queues.get(slot.0 as usize)?.as_ref()
    }

    fn queue_mut(&mut self, slot: Slot) -> Option<&mut Queue> {
        self.queues.get_mut(slot.0 as usize)?.as_mut()
    }
}

/// Takes at most `payload` bytes off the front.
fn take_front(pieces: &mut VecDeque<Piece>, payload: u64) -> Option<Piece> {
    let front = pieces.front_mut()?;
    let taken = Piece { range: front.range.prefix(payload), ..*front };
    front.range.start = taken.range.end;
    if front.range.is_empty() {
        pieces.pop_front();
    }
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn chunks(scheduler: &mut Scheduler, now: Instant) -> Vec<Chunk> {
        core::iter::from_fn(|| match scheduler.poll(now) {
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
        scheduler.push(NOW, a, ByteRange::new(0, 20_000), false, Waited::default());
        for start in (0..20_000).step_by(250) {
            scheduler.push(NOW, b, ByteRange::at(start * 2, 250), false, Waited::default());
        }
        let sent = chunks(&mut scheduler, NOW);
        let of =
            |slot, n: usize| sent[..n].iter().filter(|c| c.queue == slot).map(|c| c.range.len()).sum::<u64>();
        assert!(of(a, 40).abs_diff(of(b, 40)) <= 2000, "{} {}", of(a, 40), of(b, 40));
        assert_eq!(sent.iter().map(|c| c.range.len()).sum::<u64>(), 40_000);
    }

    #[test]
    fn repairs_leave_first() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(5_000, 7_000), false, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(0, 1_000), true, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        assert_eq!((sent[0].queue, sent[0].is_repair), (b, true));
        assert_eq!(sent.len(), 3);
    }

    #[test]
    fn repairs_in_turn_leave_behind_what_waits_and_announce_nothing() {
        let mut scheduler = Scheduler::new(1000, false).with_repairs_in_turn();
        let a = scheduler.open(FlowId([1; 16]), Slot(0));
        scheduler.push(NOW, a, ByteRange::new(5_000, 6_000), false, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(0, 1_000), true, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(6_000, 7_000), false, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        let starts: Vec<u64> = sent.iter().map(|chunk| chunk.range.start).collect();
        assert_eq!(starts, [5_000, 0, 6_000]);
        assert!(sent.iter().skip(1).all(|chunk| chunk.skipped.is_empty()));
    }

    #[test]
    fn a_flow_held_by_its_rate_does_not_hold_the_others() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.set_queue_rate(NOW, a, Rate::from_bps(8_000));
        scheduler.push(NOW, a, ByteRange::new(0, 100_000), false, Waited::default());
        scheduler.push(NOW, b, ByteRange::new(0, 50_000), false, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        assert_eq!(sent.iter().filter(|c| c.queue == b).count(), 50);
        assert_eq!(sent.iter().filter(|c| c.queue == a).count(), 2, "the burst and no more");
        let later = scheduler.next_turn();
        assert!(later > NOW && later <= NOW + Duration::from_secs(1), "{later:?}");
    }

    #[test]
    fn a_pause_is_marked_twice_with_the_end_of_what_was_sent() {
        let (mut scheduler, a, _) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(0, 1_500), false, Waited::default());
        assert_eq!(chunks(&mut scheduler, NOW).len(), 2);
        for _ in 0..2 {
            let at = scheduler.next_turn();
            assert_eq!(scheduler.poll(at), Some(Turn::Mark { flow: FlowId([1; 16]), offset: 1_500 }));
        }
        assert_eq!(scheduler.next_turn(), Instant::NEVER);
    }

    #[test]
    fn skipped_bytes_are_named_with_the_packet_that_skips_them() {
        let (mut scheduler, a, _) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(0, 500), false, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(900, 1_000), false, Waited::default());
        let sent = chunks(&mut scheduler, NOW);
        assert_eq!(sent[0].skipped, ByteRange::default());
        assert_eq!(sent[1].skipped, ByteRange::new(500, 900));
    }

    #[test]
    fn a_closed_queue_sends_nothing() {
        let (mut scheduler, a, _) = two_flows();
        scheduler.push(NOW, a, ByteRange::new(0, 5_000), false, Waited::default());
        scheduler.push(NOW, a, ByteRange::new(5_000, 9_000), true, Waited::default());
        scheduler.close(a);
        assert_eq!(scheduler.poll(NOW), None);
        assert_eq!(scheduler.next_turn(), Instant::NEVER);
    }
}
