//! The memory of a relay as a bound of what comes from upstream.

use super::Relay;
use super::flow::Flow;
use crate::cache::BLOCK;
use crate::hop::{Downlinks, Requester};
use crate::name::{ByteRange, FlowId};
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::Suite;
use alloc::boxed::Box;

/// From this part of the cache on, waiting bytes are a queue that the upstream has to know of: one divided by it.
const SHORT: u64 = 4;
/// The upstream is steered to this part of the cache, so that as much is free for what is on its way.
const TARGET: u64 = 2;

/// The free part may be filled within so many round trips of the hop, even if nothing leaves: so neighbours that take nothing
/// do not keep others from being served. Feedback is a round trip late, and no packet fills its block: the rest is for that.
const FREE_FOR: f64 = 16.0;

/// The shortest time over which arrivals and departures are counted.
const LEAST_SPAN: Duration = Duration::from_millis(2);

/// State of the cache at some moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    /// Bytes of memory for all blocks.
    pub(super) capacity: u64,
    /// Bytes of memory of the blocks that wait to be sent.
    pub(super) held: u64,
    /// Bytes that wait to be sent.
    pub(super) queued: u64,
    /// Bytes that were kept since the start.
    pub(super) kept: u64,
}

/// The rate at which a relay's memory can take what comes from upstream.
///
/// A link rate says what the next hop takes of each flow. It does not say what the relay can hold: of thousands of flows each may
/// have a packet waiting, in a block of its own. So the sum has a bound, too. As long as little waits, there is none. Then
/// what comes has to be what leaves, corrected by the distance from the target; and a part of what has a place
/// anyway may come, even if nothing leaves.
#[derive(Debug, Default)]
pub(super) struct Room {
    since: Instant,
    before: Filling,
    /// Bytes of payload per second for all upstreams; `None` while there is room for all that they may send.
    limit: Option<Rate>,
    /// Neighbours that wait for bytes: each has a part of the cache.
    neighbours: u64,
    /// Bytes of payload that were put into the cache.
    kept: u64,
}

/// A bound for all upstreams together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limit {
    /// The bound, of payload; `None`: there is none.
    pub(super) rate: Option<Rate>,
    /// Bytes of payload that were kept since the bound before.
    pub(super) kept: u64,
}

impl Room {
    /// The waiting bytes take much of the cache, or did when this was looked at last.
    pub(super) fn is_short(&self, now: &Filling) -> bool {
        self.limit.is_some() || now.held > now.capacity / SHORT
    }

    /// A bound is in force.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Arrivals have been counted for long enough over hops that take `hop_rtt`.
    pub(super) fn is_due(&self, now: Instant, hop_rtt: Duration) -> bool {
        now.since(self.since) >= hop_rtt.max(LEAST_SPAN).scaled(1, 4)
    }

    /// The bound from `now` on, over hops that take `hop_rtt`.
    pub(super) fn review(&mut self, now: Instant, filling: Filling, hop_rtt: Duration) -> Limit {
        let span = now.since(core::mem::replace(&mut self.since, now));
        let before = core::mem::replace(&mut self.before, filling);
        let kept = filling.kept - before.kept;
        // The first look begins to count.
        let has_counted = span <= hop_rtt.max(LEAST_SPAN).scaled(4, 1);
        self.limit = (has_counted && filling.held > filling.capacity / SHORT).then(|| {
            let left = (before.queued + kept).saturating_sub(filling.queued);
            filling.limit(left as f64 * 8.0 / span.as_secs_f64(), hop_rtt.max(LEAST_SPAN))
        });
        Limit { rate: self.limit, kept }
    }
}

impl<C: Suite> Relay<C> {
    fn filling(&self) -> Filling {
        Filling {
            capacity: self.cache.capacity_bytes(),
            held: self.cache.unread_bytes(),
            queued: self.downlinks.all_queued_bytes(),
            kept: self.room.kept,
        }
    }

    /// Bounds the rates of all upstreams, of which `link` is one, if room is short.
    pub(super) fn mind_room(&mut self, now: Instant, link: Slot) {
        let filling = self.filling();
        if !self.config.mechanisms.room || !self.room.is_short(&filling) {
            return;
        }
        let hop_rtt = self.uplinks.hop_rtt(link);
        if self.room.is_due(now, hop_rtt) {
            // Bytes whose asker has gone stay unread, and hold up nobody.
            let held = filling.held.min(self.downlinks.most_held_bytes(BLOCK));
            let filling = Filling { held, ..filling };
            let Limit { rate, kept } = self.room.review(now, filling, hop_rtt);
            self.uplinks.limit_to_room(rate, kept);
            self.room.neighbours = self.downlinks.waiting() as u64;
        }
    }

    /// Waiting bytes of a flow have left. If its upstream was held back for want of room, and there is room now, it is told at once:
    /// no request may be due for long.
    pub(super) fn tell_of_room(&mut self, now: Instant, flow_slot: Slot) {
        if !self.room.is_limited() {
            return;
        }
        let Some((link, id)) = self.flows.get(flow_slot).map(|flow| (flow.fetch.uplink, flow.fetch.id))
        else {
            return;
        };
        self.mind_room(now, link);
        if self.uplinks.get(link).is_some_and(Requester::is_held_back) {
            self.outbox.feedback(link, id);
        }
    }

    /// Keeps `bytes`, which start at `offset` of `flow`, if there is a place for them: what waits for a neighbour that has
    /// no more than its part of the cache is not evicted for them.
    pub(super) fn keep(&mut self, flow: FlowId, offset: u64, bytes: &[u8]) -> bool {
        let Self { cache, flows, downlinks, room, config, .. } = self;
        let part = cache.capacity_bytes() / room.neighbours.max(1);
        let is_awaited = |flow, block| is_awaited(flows, downlinks, (flow, block), part);
        let range = ByteRange::at(offset, bytes.len() as u64);
        if config.mechanisms.room && !cache.make_room(flow, range, is_awaited) {
            return false;
        }
        cache.insert(flow, offset, bytes);
        room.kept += range.len();
        true
    }
}

/// A neighbour for whom no more than `part` bytes wait is to be sent some of a block.
fn is_awaited(
    flows: &Table<FlowId, Box<Flow>>,
    downlinks: &Downlinks,
    (flow, block): (FlowId, ByteRange),
    part: u64,
) -> bool {
    let Some(flow) = flows.find(&flow).and_then(|slot| flows.get(slot)) else { return false };
    flow.subscribers.iter().any(|subscriber| {
        let responder = downlinks.get(subscriber.link).filter(|hop| hop.scheduler.total_bytes() <= part);
        let queued = responder.and_then(|responder| responder.scheduler.queued(subscriber.queue));
        queued.is_some_and(|queued| queued.overlaps(block))
    })
}

impl Filling {
    /// The bound while `drain` bits of payload leave per second, with feedback that is `hop_rtt` late.
    fn limit(&self, drain: f64, hop_rtt: Duration) -> Rate {
        // Bytes of payload that fit into a byte of memory, as they do now.
        let fit = (self.queued as f64 / self.held as f64).min(1.0);
        let within = |memory: f64, hop_rtts: f64| memory * fit * 8.0 / (hop_rtts * hop_rtt.as_secs_f64());
        let steered = drain + within((self.capacity / TARGET) as f64 - self.held as f64, 2.0);
        let free = within(self.capacity.saturating_sub(self.held) as f64, FREE_FOR);
        Rate::from_bps(steered.max(free) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: u64 = 4 << 20;
    const HOP_RTT: Duration = Duration::from_millis(20);

    /// A cache whose packets of 1350 bytes have a block each.
    fn filling(blocks: u64, kept: u64) -> Filling {
        Filling { capacity: CACHE, held: blocks * 4096, queued: blocks * 1350, kept }
    }

    #[test]
    fn there_is_no_bound_while_little_waits() {
        let mut room = Room::default();
        let at = Instant::ZERO + HOP_RTT;
        assert_eq!(room.review(at, filling(200, 270_000), HOP_RTT).rate, None);
        assert!(!room.is_short(&filling(200, 270_000)) && room.is_short(&filling(300, 270_000)));
    }

    /// A relay whose next hop takes 50,000 packets a second, below one that brings up to 65,000, in 20 ms.
    #[test]
    fn what_comes_finds_a_place_and_the_next_hop_never_waits() {
        let (mut room, mut waiting, mut kept) = (Room::default(), 0i64, 0u64);
        let mut grants = alloc::collections::VecDeque::from([Rate::UNLIMITED; 20]);
        let (mut most, mut idle) = (0, 0);
        for milli in 1..2_000 {
            let now = Instant::ZERO + Duration::from_millis(milli);
            let brought = grants.pop_front().map_or(0, |grant| (grant.as_bps() / 10_800_000).min(65));
            waiting = waiting + brought as i64 - 50;
            idle += i64::from(waiting < 0 && milli > 100);
            waiting = waiting.max(0);
            kept += brought * 1350;
            most = most.max(waiting);
            let here = filling(waiting as u64, kept);
            let due = room.is_due(now, HOP_RTT);
            let limit = if due { room.review(now, here, HOP_RTT).rate } else { room.limit };
            grants.push_back(limit.unwrap_or(Rate::UNLIMITED));
        }
        assert!(most <= 1024, "{most} blocks of 1024");
        assert_eq!(idle, 0, "milliseconds without anything to send");
    }

    #[test]
    fn what_has_a_place_may_come_even_if_nothing_leaves() {
        let here = filling(512, 0);
        // 512 free blocks of one packet, in 320 ms.
        assert_eq!(here.limit(0.0, HOP_RTT), Rate::from_bps(512 * 1350 * 8 * 1000 / 320));
        assert_eq!(filling(1024, 0).limit(0.0, HOP_RTT), Rate::ZERO);
    }
}
