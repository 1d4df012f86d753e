use super::{Downlinks, Ending, cost};
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::wire::{NotNow, Reason, Waited};
use alloc::vec::Vec;

/// The most disjoint ranges remembered of a neighbour's requests. Forgetting one costs a second answer.
pub(super) const MAX_ASKED_RANGES: usize = 64;

/// One downstream neighbour's interest in one flow.
#[derive(Debug)]
pub struct Subscriber {
    /// Its hop.
    pub link: Slot,
    /// The flow's queue on that hop.
    pub queue: Slot,
    /// Requested bytes that are not in the queue yet. Its hop knows the sum over all flows.
    wanted: RangeSet,
    /// Those of them that it had before.
    again: RangeSet,
    /// Time of its last request.
    pub last_heard: Instant,
    asked: RangeSet,
    /// The turn of its requests.
    pub turn: u16,
    /// Its last request had to go to the upstream again: it reads where nothing is kept any more.
    pub reads_apart: bool,
    /// Ranges that its hop holds memory for, beyond those that every flow may have.
    held_ranges: u64,
}

impl Subscriber {
    /// Finds the neighbour on `link` among the subscribers of `flow`, which the role calls `owner`, or adds it. A
    /// neighbour that asks in another turn than before has forgotten its earlier requests, and so do we.
    ///
    /// # Errors
    /// It has too many flows already.
    pub fn find_or_add<'a>(
        subscribers: &'a mut Vec<Self>,
        downlinks: &mut Downlinks,
        now: Instant,
        link: Slot,
        (flow, owner, turn): (FlowId, Slot, u16),
    ) -> Result<&'a mut Self, NotNow> {
        if subscribers.iter().any(|subscriber| subscriber.link == link && subscriber.turn != turn) {
            Self::drop_link(subscribers, downlinks, link, Ending::TurnedAway);
        }
        let index = match subscribers.iter().position(|subscriber| subscriber.link == link) {
            Some(index) => index,
            None => {
                downlinks.check_room(link)?;
                let queue = downlinks.open(link, flow, owner).ok_or(NotNow::NO_ROOM)?;
                subscribers.push(Self {
                    link,
                    queue,
                    wanted: RangeSet::new(),
                    again: RangeSet::new(),
                    last_heard: now,
                    asked: RangeSet::new(),
                    turn,
                    reads_apart: false,
                    held_ranges: 0,
                });
                subscribers.len() - 1
            }
        };
        subscribers[index].last_heard = now;
        subscribers.get_mut(index).ok_or(NotNow::NO_ROOM)
    }

    /// Requested bytes that are not in the queue yet.
    pub fn wanted(&self) -> &RangeSet {
        &self.wanted
    }

    /// Notes that it waits for `range`, for this reason.
    pub fn want(&mut self, downlinks: &mut Downlinks, range: ByteRange, reason: Reason) {
        let before = self.wanted.byte_count();
        self.wanted.insert(range);
        match reason {
            Reason::New => {}
            Reason::Again => self.again.insert(range),
            Reason::Lost => self.again.remove(range),
        }
        if let Some(responder) = downlinks.get_mut(self.link) {
            responder.wanted += self.wanted.byte_count() - before;
        }
    }

    /// Notes that it no longer waits for `range`.
    pub fn unwant(&mut self, downlinks: &mut Downlinks, range: ByteRange) {
        let before = self.wanted.byte_count();
        self.wanted.remove(range);
        self.again.remove(range);
        if let Some(responder) = downlinks.get_mut(self.link) {
            responder.wanted -= before - self.wanted.byte_count();
        }
    }

    /// Gives back its credit of the hop, at the end of its flow.
    pub fn close(&self, downlinks: &mut Downlinks, cause: Ending) {
        if let Some(responder) = downlinks.get_mut(self.link) {
            responder.wanted -= self.wanted.byte_count();
        }
        downlinks.hold_ranges(self.link, self.held_ranges, 0);
        downlinks.close(self.link, self.queue, cause, !self.wanted.is_empty());
    }

    /// Whether it may wait for one more range: each costs memory, however short.
    pub fn may_scatter(&mut self, downlinks: &mut Downlinks, limit: usize) -> bool {
        let queued = downlinks.get(self.link).and_then(|responder| responder.scheduler.queued(self.queue));
        let ranges = self.wanted.range_count() + queued.map_or(0, RangeSet::range_count);
        let more = (ranges as u64 + 1).saturating_sub(cost::FREE_RANGES);
        if ranges >= limit || !downlinks.hold_ranges(self.link, self.held_ranges, more) {
            return false;
        }
        self.held_ranges = more;
        true
    }

    /// The front of `part` of its request that may be taken: whole packets of `payload` bytes, within the bounds of its bytes and
    /// ranges. It may ask again for the rest. What it waits for already takes no room: refused, bytes that were lost for want of
    /// room would be waited for without end.
    pub fn admit(
        &mut self,
        downlinks: &mut Downlinks,
        part: ByteRange,
        (limit, payload): (usize, u64),
    ) -> ByteRange {
        if self.wanted.contains(part) || self.has_queued(downlinks, part) {
            return part;
        }
        let credit = downlinks.credit(self.link);
        let fitting = if part.len() <= credit { part } else { part.prefix(credit - credit % payload) };
        let is_within = !fitting.is_empty() && self.may_scatter(downlinks, limit);
        let taken = if is_within { fitting } else { part.prefix(0) };
        self.asked.remove(ByteRange::new(taken.end, part.end));
        taken
    }

    /// `range`, and the bytes before it since the last request. A live flow is asked for in its order, each byte by two Interests: all that
    /// named these were lost, be it ten in a row.
    pub fn from_gap(&self, range: ByteRange) -> ByteRange {
        let asked_end = self.asked.last().map_or(range.start, |last| last.end);
        ByteRange::new(asked_end.min(range.start), range.end)
    }

    /// The reason why it waits for `range`.
    pub fn reason(&self, range: ByteRange) -> Reason {
        if self.again.contains(range) { Reason::Again } else { Reason::New }
    }

    /// Adds to `parts` the bytes of `range` that have to be answered now: of new ones only those that this neighbour never asked for,
    /// because Interests overlap.
    pub fn take_request(&mut self, range: ByteRange, reason: Reason, parts: &mut Vec<ByteRange>) {
        match reason {
            Reason::New => parts.extend(self.asked.gaps(range)),
            Reason::Again | Reason::Lost => parts.push(range),
        }
        self.asked.insert(range);
        while self.asked.range_count() > MAX_ASKED_RANGES {
            let lowest = self.asked.first().unwrap_or_default();
            self.asked.remove(lowest);
        }
    }

    /// Takes the neighbour on `link` out of `subscribers`, with its queue: because of `cause` it remembers no request.
    pub fn drop_link(subscribers: &mut Vec<Self>, downlinks: &mut Downlinks, link: Slot, cause: Ending) {
        subscribers.retain(|subscriber| {
            if subscriber.link == link {
                subscriber.close(downlinks, cause);
            }
            subscriber.link != link
        });
    }

    /// Takes out those whose neighbour is about to be forgotten ([`Downlinks::forget_silent`]): another neighbour may
    /// have its slot then.
    pub fn drop_silent(subscribers: &mut Vec<Self>, downlinks: &mut Downlinks, now: Instant, span: Duration) {
        subscribers.retain(|subscriber| {
            let is_heard = (downlinks.get(subscriber.link))
                .is_some_and(|responder| now.since(responder.last_heard()) < span);
            if !is_heard {
                subscriber.close(downlinks, Ending::Silent);
            }
            is_heard
        });
    }

    /// Queues those of the bytes at hand that are not queued already. Bytes below the sent ones go first, unless it had them
    /// before. `told` is their waiting time at the nodes before.
    pub fn enqueue(
        &self,
        now: Instant,
        downlinks: &mut Downlinks,
        range: ByteRange,
        (reason, told): (Reason, Waited),
        gaps: &mut Vec<ByteRange>,
    ) {
        let Some(responder) = downlinks.get(self.link) else { return };
        let Some(queued) = responder.scheduler.queued(self.queue) else { return };
        let reason = match (reason, range.start < responder.scheduler.sent_end(self.queue)) {
            (Reason::New, true) => Reason::Lost,
            (Reason::Again, false) => Reason::New,
            (reason, _) => reason,
        };
        if !queued.overlaps(range) {
            downlinks.push(now, (self.link, self.queue), range, reason, told);
            return;
        }
        gaps.extend(queued.gaps(range));
        for gap in gaps.drain(..) {
            downlinks.push(now, (self.link, self.queue), gap, reason, told);
        }
    }

    /// Whether the subscriber waits for nothing.
    pub fn is_quiet(&self, downlinks: &Downlinks) -> bool {
        self.wanted.is_empty() && downlinks.is_drained(self.link, self.queue)
    }

    /// True if the last byte of a flow of this length is still to be sent to the neighbour. That byte tells of the end; a word of the end
    /// that overtook the waiting bytes would make them seem lost.
    pub fn is_short_of(&self, downlinks: &Downlinks, length: u64) -> bool {
        let last = ByteRange::new(length.saturating_sub(1), length);
        !last.is_empty() && (self.wanted.contains(last) || self.has_queued(downlinks, last))
    }

    /// Whether all of `range` waits to be sent to the neighbour.
    pub fn has_queued(&self, downlinks: &Downlinks, range: ByteRange) -> bool {
        let queued = downlinks.get(self.link).and_then(|responder| responder.scheduler.queued(self.queue));
        queued.is_some_and(|queued| queued.contains(range))
    }
}
