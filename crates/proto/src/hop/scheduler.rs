//! The order of sending on a link: repairs before new data; then flows that had nothing to send for a round, so
//! that a request of one packet does not wait behind bulk (as FQ-CoDel, RFC 8290); then the others in turn (deficit
//! round robin, Shreedhar and Varghese 1995). Each flow keeps within its own rate.
//!
//! Costs per packet do not grow with the number of flows, except for the heap of flows that wait for a time.

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
    /// Whether it goes out of the flow's order: a repair, or a late arrival from upstream.
    pub is_repair: bool,
    /// Bytes that were skipped ahead of it in the flow's order.
    pub skipped: ByteRange,
    /// Waiting time since they were asked for, here and at the nodes before.
    pub waited: Waited,
}

/// Bytes that wait, and since when.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: ByteRange,
    /// Time at which they were asked for, later by the time that they were on links.
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

#[derive(Debug)]
struct Queue {
    flow: FlowId,
    owner: Slot,
    repairs: VecDeque<Piece>,
    fresh: VecDeque<Piece>,
    /// The bytes of both lists: none is ever queued twice.
    queued: RangeSet,
    deficit: u64,
    /// Packets of a turn.
    weight: u8,
    pacer: Pacer,
    /// Offset after the highest byte sent.
    sent_end: u64,
    /// Marks still to send about the pause after the last packet, and when the next one is due. Its timer is
    /// left alone while packets flow, and looks here when it fires.
    marks_left: u8,
    mark_at: Instant,
    place: Place,
    /// Whether the queue's own rate has held it since it was in a list last: then it is not sparse.
    was_held: bool,
    tally: Tally,
}

/// The list in which a queue waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// No list: the queue has nothing to send, or its own rate holds it.
    Out,
    /// The list of queues that had nothing to send for a round.
    Sparse,
    /// The list of queues in turn. A queue stays for a round after its last packet, so that a flow that sends one
    /// packet after the other is not sparse.
    InTurn,
}

/// The most entries of closed queues in a list before these are removed.
const MOST_STALE: usize = 64;

/// The result of a queue's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visit {
    /// The queue sends a packet.
    Sends,
    /// The queue has its next turn after the others.
    Passes,
    /// The queue has nothing to send, or may not send.
    Leaves,
}

/// Time for which a queue is empty before its first and before its second mark.
const MARK_AFTER: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(5)];

/// While other packets wait, marks may take this part of the link's bytes: one divided by the number. Of ten thousand
/// flows each has a pause after every packet, and two marks in each would be a tenth of the bytes.
const MARKS_SHARE: u64 = 64;
/// Bytes of a mark on the wire, roughly, and the marks that may be saved up.
const MARK_BYTES: u64 = 96;
const MOST_MARKS: u64 = 16;
/// A mark that finds no room waits so long: by then most flows have sent another packet, which tells the same.
const MARK_BACK: Duration = Duration::from_millis(100);

/// The queues of one link.
#[derive(Debug)]
pub struct Scheduler {
    queues: Vec<Option<Queue>>,
    free: Vec<Slot>,
    /// Number of the three lists below that name each slot. The slot of a closed queue is free when no list names
    /// it.
    listed: Vec<u8>,
    open: usize,
    /// Queues that have repairs; they go first.
    repair_ring: VecDeque<Slot>,
    /// Queues that had nothing to send for a round; they go next, once.
    sparse: VecDeque<Slot>,
    /// Queues in turn.
    ring: VecDeque<Slot>,
    /// Queues with repairs, and queues in `sparse` and `ring` with something to send.
    repairing: usize,
    sendable: usize,
    /// Queues that have sent the end of their flow, each with the time of that.
    ended: VecDeque<(Instant, Slot)>,
    /// Queues held by their own rate, and empty queues that owe a mark.
    waiting: Deadlines,
    /// Number of queues that have something to send.
    busy: usize,
    /// Bytes that wait in all of them.
    bytes: u64,
    payload: u64,
    marks: bool,
    /// Bytes of packets for which marks may still leave, times [`MARKS_SHARE`].
    mark_room: u64,
    /// Repairs leave before new data; otherwise behind the queued bytes.
    repairs_first: bool,
}

impl Scheduler {
    /// A scheduler of chunks of at most `payload` bytes that serves repairs first; `marks` says whether pauses are
    /// marked.
    pub fn new(payload: usize, marks: bool) -> Self {
        Self {
            queues: Vec::new(),
            free: Vec::new(),
            listed: Vec::new(),
            open: 0,
            repair_ring: VecDeque::new(),
            sparse: VecDeque::new(),
            ring: VecDeque::new(),
            repairing: 0,
            sendable: 0,
            ended: VecDeque::new(),
            waiting: Deadlines::default(),
            busy: 0,
            bytes: 0,
            payload: payload as u64,
            marks,
            mark_room: MOST_MARKS * MARK_BYTES * MARKS_SHARE,
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
            weight: 1,
            pacer: Pacer::new(Rate::UNLIMITED, self.payload),
            sent_end: 0,
            marks_left: 0,
            mark_at: Instant::NEVER,
            place: Place::Out,
            was_held: false,
            tally: Tally::default(),
        };
        let slot = self.free.pop().unwrap_or(Slot(self.queues.len() as u32));
        if slot.0 as usize == self.queues.len() {
            self.queues.push(None);
            self.listed.push(0);
        }
        self.queues[slot.0 as usize] = Some(queue);
        self.open += 1;
        slot
    }

    /// Drops a queue and its bytes. False if it was not open.
    pub fn close(&mut self, slot: Slot) -> bool {
        let queue = self.queues.get_mut(slot.0 as usize).and_then(Option::take);
        if let Some(queue) = &queue {
            self.open -= 1;
            self.busy -= usize::from(!queue.queued.is_empty());
            self.bytes -= queue.queued.byte_count();
            self.repairing -= usize::from(!queue.repairs.is_empty());
            self.sendable -= usize::from(queue.place != Place::Out && !queue.fresh.is_empty());
            self.waiting.set(slot, None);
            if self.listed[slot.0 as usize] == 0 {
                self.free.push(slot);
            }
            if self.ended.len() > 2 * self.open + MOST_STALE {
                let Self { ended, queues, .. } = self;
                ended.retain(|(_, slot)| queues[slot.0 as usize].as_ref().is_some_and(|q| q.tally.has_end()));
            }
        }
        queue.is_some()
    }

    /// A list names `slot` no longer.
    fn unlist(&mut self, slot: Slot) {
        let listed = &mut self.listed[slot.0 as usize];
        *listed -= 1;
        if *listed == 0 && self.queues[slot.0 as usize].is_none() {
            self.free.push(slot);
        }
    }

    /// The flow of a queue and the tally of its sent bytes.
    pub fn tally(&self, slot: Slot) -> Option<(FlowId, &Tally)> {
        self.queue(slot).map(|queue| (queue.flow, &queue.tally))
    }

    /// The chunk that a queue gave last holds the end of its flow.
    pub fn note_end(&mut self, slot: Slot) {
        if let Some(queue) = self.queues.get_mut(slot.0 as usize).and_then(Option::as_mut) {
            if !queue.tally.has_end() {
                self.ended.push_back((queue.tally.last_sent(), slot));
            }
            queue.tally.on_end();
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
            let Some(queue) = self.queues.get_mut(slot.0 as usize).and_then(Option::as_mut) else { continue };
            if queue.queued.is_empty() && queue.tally.is_over(now, quiet) {
                return Some((queue.flow, core::mem::take(&mut queue.tally)));
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
        self.open
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
        self.sendable > 0 || self.repairing > 0
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
        if !queue.fresh.is_empty() && queue.place == Place::Out {
            self.admit(now, slot, false);
        }
    }

    /// Gives a queue `weight` packets in its turns from now on, at least one.
    pub fn set_weight(&mut self, slot: Slot, weight: u8) {
        if let Some(queue) = self.queue_mut(slot) {
            queue.weight = weight.max(1);
        }
    }

    /// A queue that has something to send joins a list, or waits for its own rate. `is_new` says that it had nothing before.
    fn admit(&mut self, now: Instant, slot: Slot, is_new: bool) {
        let payload = self.payload;
        let Some(queue) = self.queues[slot.0 as usize].as_mut() else { return };
        if queue.place != Place::Out {
            self.sendable += usize::from(is_new);
            return;
        }
        let ready = queue.pacer.ready_at();
        if ready > now {
            self.waiting.set(slot, Some(ready));
            return;
        }
        self.sendable += 1;
        self.listed[slot.0 as usize] += 1;
        if is_new && !queue.was_held {
            queue.place = Place::Sparse;
            queue.deficit = payload;
            self.sparse.push_back(slot);
        } else {
            queue.place = Place::InTurn;
            self.ring.push_back(slot);
        }
        queue.was_held = false;
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
                self.repairing += 1;
                self.listed[slot.0 as usize] += 1;
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
            self.admit(now, slot, true);
        }
    }

    /// Time at which there is something to send, if no input arrives first.
    pub fn next_turn(&self) -> Instant {
        if self.has_backlog() { Instant::ZERO } else { self.waiting.next() }
    }

    /// The next action at `now`, if there is any.
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
        let has_room = !self.has_backlog() || self.mark_room >= MARK_BYTES * MARKS_SHARE;
        let queue = self.queues[slot.0 as usize].as_mut()?;
        if !queue.fresh.is_empty() {
            self.admit(now, slot, false);
            return None;
        }
        if queue.mark_at > now {
            let later = queue.mark_at.if_ever();
            self.waiting.set(slot, later);
            return None;
        }
        if queue.marks_left > 0 && !has_room {
            queue.mark_at = now + MARK_BACK;
            self.waiting.set(slot, Some(now + MARK_BACK));
            return None;
        }
        queue.marks_left = queue.marks_left.checked_sub(1)?;
        self.mark_room = self.mark_room.saturating_sub(MARK_BYTES * MARKS_SHARE);
        let mark = Turn::Mark { flow: queue.flow, offset: queue.sent_end };
        queue.mark_at = if queue.marks_left > 0 { now + MARK_AFTER[0] } else { Instant::NEVER };
        let next = queue.mark_at.if_ever();
        self.waiting.set(slot, next);
        Some(mark)
    }

    fn poll_repair(&mut self, now: Instant) -> Option<Chunk> {
        let (slot, payload) = (self.first_repairing()?, self.payload);
        let queue = self.queues[slot.0 as usize].as_mut()?;
        let Piece { range, since, .. } = take_front(&mut queue.repairs, payload)?;
        queue.queued.remove(range);
        self.bytes -= range.len();
        // Charged to the flow, but never held by its rate: bytes that are missing downstream go first.
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
            self.repairing -= 1;
            self.repair_ring.pop_front();
            self.unlist(slot);
        } else {
            self.repair_ring.rotate_left(1);
        }
        self.after_send(now, slot);
        Some(chunk)
    }

    /// The queue whose repair is next.
    fn first_repairing(&mut self) -> Option<Slot> {
        loop {
            let slot = *self.repair_ring.front()?;
            if self.queue(slot).is_some_and(|queue| !queue.repairs.is_empty()) {
                return Some(slot);
            }
            self.repair_ring.pop_front();
            self.unlist(slot);
        }
    }

    fn poll_fresh(&mut self, now: Instant) -> Option<Chunk> {
        while self.sendable > 0 {
            let is_sparse = !self.sparse.is_empty();
            let slot = *if is_sparse { self.sparse.front()? } else { self.ring.front()? };
            match self.visit(now, slot) {
                Visit::Sends => return self.send_fresh(now, slot),
                Visit::Passes if is_sparse => self.put_in_turn(slot),
                Visit::Passes => self.ring.rotate_left(1),
                Visit::Leaves => {
                    if is_sparse {
                        self.sparse.pop_front()
                    } else {
                        self.ring.pop_front()
                    };
                    self.unlist(slot);
                }
            }
        }
        None
    }

    /// The first of `sparse` has had its packet.
    fn put_in_turn(&mut self, slot: Slot) {
        self.sparse.pop_front();
        self.ring.push_back(slot);
        if let Some(queue) = self.queue_mut(slot) {
            queue.place = Place::InTurn;
        }
    }

    /// Decides the turn of the first queue of a list.
    fn visit(&mut self, now: Instant, slot: Slot) -> Visit {
        let (payload, is_alone) = (self.payload, self.ring.len() + self.sparse.len() == 1);
        let Some(queue) = self.queues[slot.0 as usize].as_mut() else { return Visit::Leaves };
        let Some(next) = queue.fresh.front().map(|next| next.range.len().min(payload)) else {
            // The queue had nothing to send for a round.
            (queue.place, queue.deficit) = (Place::Out, 0);
            return Visit::Leaves;
        };
        let ready = queue.pacer.ready_at();
        if ready > now {
            // A queue held by its own rate is no backlog of the link.
            (queue.place, queue.was_held) = (Place::Out, true);
            self.sendable -= 1;
            self.waiting.set(slot, Some(ready));
            return Visit::Leaves;
        }
        if queue.deficit < next {
            // At least a full packet per round: the smallest quantum with which every visit can send (O(1)).
            queue.deficit += payload * u64::from(queue.weight);
            return if is_alone { Visit::Sends } else { Visit::Passes };
        }
        Visit::Sends
    }

    /// Takes a packet off the first queue of a list.
    fn send_fresh(&mut self, now: Instant, slot: Slot) -> Option<Chunk> {
        let payload = self.payload;
        let queue = self.queues[slot.0 as usize].as_mut()?;
        let piece = take_front(&mut queue.fresh, payload)?;
        let (range, waited) = (piece.range, piece.waited(now));
        queue.deficit = queue.deficit.saturating_sub(range.len());
        queue.queued.remove(range);
        self.bytes -= range.len();
        queue.pacer.on_sent(now, range.len());
        self.mark_room = (self.mark_room + range.len()).min(MOST_MARKS * MARK_BYTES * MARKS_SHARE);
        let is_repair = range.start < queue.sent_end;
        queue.tally.on_sent(now, range.len(), is_repair);
        let skipped = ByteRange::new(queue.sent_end.min(range.start), range.start);
        queue.sent_end = queue.sent_end.max(range.end);
        let (flow, owner) = (queue.flow, queue.owner);
        let (is_sparse, is_empty) = (queue.place == Place::Sparse, queue.fresh.is_empty());
        self.sendable -= usize::from(is_empty);
        if is_sparse && is_empty {
            self.put_in_turn(slot);
        } else if is_empty {
            self.ring.rotate_left(1);
        } else {
            // A queue that its own rate holds from now on is no backlog of the link.
            self.leave_if_held(now, slot);
        }
        self.after_send(now, slot);
        Some(Chunk { queue: slot, owner, flow, range, is_repair, skipped, waited })
    }

    /// The first queue of a list leaves the list if the queue's own rate holds it.
    fn leave_if_held(&mut self, now: Instant, slot: Slot) {
        let Some(queue) = self.queues[slot.0 as usize].as_mut() else { return };
        let ready = queue.pacer.ready_at();
        if ready <= now {
            return;
        }
        let place = core::mem::replace(&mut queue.place, Place::Out);
        queue.was_held = true;
        self.sendable -= 1;
        self.waiting.set(slot, Some(ready));
        if place == Place::Sparse {
            self.sparse.pop_front()
        } else {
            self.ring.pop_front()
        };
        self.unlist(slot);
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
    fn a_crowd_whose_flows_pause_after_every_packet_sends_few_marks() {
        let mut scheduler = Scheduler::new(1_000, true);
        let slots: Vec<Slot> = (0..500).map(|n| scheduler.open(FlowId([n as u8; 16]), Slot(n))).collect();
        let (mut now, mut packets, mut marks) = (NOW, 0, 0);
        // A packet each 100 us; each flow has the next one 10 ms after its last one left, and a round takes 40 ms.
        let mut due: VecDeque<(Instant, Slot, u64)> = slots.iter().map(|slot| (NOW, *slot, 0)).collect();
        while packets < 20_000 {
            while let Some((_, slot, at)) = due.front().copied().filter(|(at, ..)| *at <= now) {
                due.pop_front();
                scheduler.push(now, slot, ByteRange::at(at, 1_000), false, Waited::default());
            }
            match scheduler.poll(now) {
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
        assert!(marks > 0 && share < 1.1 / MARKS_SHARE as f64, "{marks} marks of {packets} packets");
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
    fn a_packet_of_a_flow_that_was_quiet_goes_before_the_bulk_of_others() {
        let (mut scheduler, a, b) = two_flows();
        let quiet = scheduler.open(FlowId([3; 16]), Slot(9));
        let bulk = |at: u64| ByteRange::at(at, 20_000);
        scheduler.push(NOW, a, bulk(0), false, Waited::default());
        scheduler.push(NOW, b, bulk(0), false, Waited::default());
        (0..6).for_each(|_| _ = scheduler.poll(NOW));
        scheduler.push(NOW, quiet, ByteRange::new(0, 100), false, Waited::default());
        let Some(Turn::Send(first)) = scheduler.poll(NOW) else { panic!("there is much to send") };
        assert_eq!(first.queue, quiet);
        // The queue's next packet comes at once: now the queue is in turn.
        scheduler.push(NOW, quiet, ByteRange::new(100, 200), false, Waited::default());
        let Some(Turn::Send(second)) = scheduler.poll(NOW) else { panic!("there is much to send") };
        assert_ne!(second.queue, quiet);
        let rest = chunks(&mut scheduler, NOW);
        assert!(rest[..3].iter().any(|chunk| chunk.queue == quiet), "within a round");
    }

    /// A queue that is fed one packet after the other gets its turn and no more.
    #[test]
    fn a_flow_that_always_has_one_packet_has_no_more_than_its_share() {
        let (mut scheduler, a, b) = two_flows();
        scheduler.push(NOW, b, ByteRange::new(0, 100_000), false, Waited::default());
        let mut sent = [0; 2];
        for n in 0..100 {
            if scheduler.queued_bytes(a) == 0 {
                scheduler.push(NOW, a, ByteRange::at(1000 * n, 1000), false, Waited::default());
            }
            let Some(Turn::Send(chunk)) = scheduler.poll(NOW) else { break };
            sent[usize::from(chunk.queue == b)] += 1;
        }
        assert!(sent[0] <= sent[1] + 2, "{sent:?}");
    }

    #[test]
    fn the_place_of_a_queue_that_was_closed_in_its_turn_is_used_again_and_gives_nothing_of_the_old() {
        let (mut scheduler, a, b) = two_flows();
        for round in 0..50u8 {
            let queue = scheduler.open(FlowId([9 + round; 16]), Slot(2));
            for slot in [a, b, queue] {
                scheduler.push(
                    NOW,
                    slot,
                    ByteRange::at(u64::from(round) * 5000, 5000),
                    false,
                    Waited::default(),
                );
            }
            scheduler.poll(NOW);
            scheduler.close(queue);
            let sent = chunks(&mut scheduler, NOW);
            assert!(sent.iter().all(|chunk| chunk.queue == a || chunk.queue == b), "{sent:?}");
            assert_eq!((scheduler.open_queues(), scheduler.total_bytes()), (2, 0));
        }
        assert!(scheduler.queues.len() <= 4, "{} places", scheduler.queues.len());
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
