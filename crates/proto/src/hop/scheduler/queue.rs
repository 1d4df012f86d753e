use super::Chunk;
use super::ahead::Ahead;
use super::marks::Pause;
use super::shares::Part;
use super::turns::Place;
use crate::hop::pacer::{MOST_LATE, Pacer};
use crate::hop::transfer::Tally;
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::Waited;
use alloc::collections::VecDeque;

/// Bytes that wait, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The bytes.
    pub(super) range: ByteRange,
    /// Time at which they were asked for, later by the time that they were on links.
    pub(super) since: Instant,
    /// Whether the requests for them had run out.
    pub(super) is_dry: bool,
    /// The neighbour had them before.
    pub(super) is_again: bool,
}

impl Piece {
    fn waited(&self, now: Instant) -> Waited {
        Waited { time: now.since(self.since), is_dry: self.is_dry }
    }
}

/// The order in which the new data of a flow leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// That of its bytes. What was overtaken on its way here has its place again.
    Bytes,
    /// That of its arrival.
    Arrival,
}

/// Requests that follow each other this soon are told as one: the told time is no finer.
const GRAIN: Duration = Duration::from_millis(1);

/// Where readers of the flow are at different places, those behind the first one have so many packets for one of its, and of them the
/// one that is furthest behind goes first. So they meet, and from there on each byte leaves once. The first one keeps a third: two thirds
/// of what it would have beside another flow.
const BEHIND: u8 = 2;
/// Where both wait.
const PLACES: u64 = 2;

/// The result of a queue's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Visit {
    /// The queue sends a packet.
    Sends,
    /// The queue has its next turn after the others.
    Passes,
    /// The queue's own rate holds it until then.
    Held(Instant),
    /// The queue has nothing to send.
    Leaves,
}

/// The way of a queue that has something to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The queue is in a list already.
    Stays,
    /// The queue joins this list.
    Joins(Place),
    /// The queue's own rate holds it until then.
    Waits(Instant),
}

/// The bytes of one flow that wait, and the flow's own rate. No byte is ever queued twice, and a queue that its own rate holds is in
/// no list.
#[derive(Debug)]
pub(super) struct Queue {
    flow: FlowId,
    owner: Slot,
    repairs: VecDeque<Piece>,
    fresh: VecDeque<Piece>,
    /// New data for readers behind the first one: the neighbour had it before. And packets of it since one of the first reader.
    again: VecDeque<Piece>,
    behind: u8,
    /// The account of the repairs that may leave before the new data of all queues.
    pub(super) ahead: Ahead,
    /// The bytes of both lists.
    queued: RangeSet,
    deficit: u64,
    /// Packets of a turn.
    weight: u8,
    pacer: Pacer,
    /// Its part of the link.
    pub(super) part: Part,
    /// Offset after the highest byte sent.
    sent_end: u64,
    /// The pause after the last packet, and the marks that are still to tell of it.
    pub(super) pause: Pause,
    place: Place,
    /// Whether the queue's own rate has held it since it was in a list last: then it is not sparse.
    was_held: bool,
    /// Time from which on it has held new data without a break.
    waits_since: Instant,
    /// The account of the sent bytes.
    pub(super) tally: Tally,
}

impl Queue {
    /// An empty queue of `flow`, which its owner calls `owner`, for chunks of at most `payload` bytes.
    pub(super) fn new(flow: FlowId, owner: Slot, payload: u64) -> Self {
        Self {
            flow,
            owner,
            repairs: VecDeque::new(),
            fresh: VecDeque::new(),
            again: VecDeque::new(),
            behind: 0,
            ahead: Ahead::default(),
            queued: RangeSet::new(),
            deficit: 0,
            weight: 1,
            pacer: Pacer::new(Rate::UNLIMITED, payload),
            part: Part::default(),
            sent_end: 0,
            pause: Pause::default(),
            place: Place::Out,
            was_held: false,
            waits_since: Instant::ZERO,
            tally: Tally::default(),
        }
    }

    /// The flow.
    pub(super) fn flow(&self) -> FlowId {
        self.flow
    }

    /// The owner's slot of the flow.
    pub(super) fn owner(&self) -> Slot {
        self.owner
    }

    /// The bytes that wait.
    pub(super) fn queued(&self) -> &RangeSet {
        &self.queued
    }

    /// Whether a repair waits.
    pub(super) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Whether new data waits.
    pub(super) fn has_fresh(&self) -> bool {
        !(self.fresh.is_empty() && self.again.is_empty())
    }

    /// Whether new data waits and the queue is in a list.
    pub(super) fn is_sendable(&self) -> bool {
        self.place != Place::Out && self.has_fresh()
    }

    /// Whether the queue could have sent before now, if it had held anything.
    pub(super) fn is_thirsty(&self, now: Instant) -> bool {
        !self.has_fresh() && self.pacer.ready_at() <= now
    }

    /// Offset after the highest byte sent.
    pub(super) fn sent_end(&self) -> u64 {
        self.sent_end
    }

    /// The queue's rate.
    pub(super) fn rate(&self) -> Rate {
        self.pacer.rate()
    }

    /// Bounds the queue's rate. True if it is in no list although it has something to send.
    pub(super) fn set_rate(&mut self, now: Instant, rate: Rate) -> bool {
        self.pacer.set_rate(now, rate);
        self.has_fresh() && self.place == Place::Out
    }

    /// Gives the queue `weight` packets in its turns from now on, at least one.
    pub(super) fn set_weight(&mut self, weight: u8) {
        self.weight = weight.max(1);
    }

    /// A repair waits from now on. True if it is the only one.
    pub(super) fn push_repair(&mut self, piece: Piece) -> bool {
        self.queued.insert(piece.range);
        self.repairs.push_back(piece);
        self.repairs.len() == 1
    }

    /// New data waits from now on, in the order of its bytes or in that of its arrival. True if no other does.
    pub(super) fn push_fresh(&mut self, piece: Piece, payload: u64, order: Order) -> bool {
        self.queued.insert(piece.range);
        let was_empty = !self.has_fresh();
        let list = if piece.is_again { &mut self.again } else { &mut self.fresh };
        let at = match order {
            Order::Bytes if piece.is_again => {
                list.partition_point(|other| other.range.start < piece.range.start)
            }
            Order::Bytes => behind(list, piece.range.start),
            Order::Arrival => list.len(),
        };
        // Credits of a Producer arrive in adjoining pieces: one range, however many Interests it took. A
        // single packet stays by itself, so that it leaves as it came.
        match at.checked_sub(1).and_then(|before| list.get_mut(before)) {
            Some(last)
                if last.range.end == piece.range.start
                    && last.range.len() > payload
                    && piece.since.since(last.since) < GRAIN =>
            {
                last.range.end = piece.range.end;
            }
            _ => list.insert(at, piece),
        }
        was_empty
    }

    /// True if the next packet of new data is for a reader behind the first one.
    #[inline]
    fn is_again_next(&self) -> bool {
        !self.again.is_empty() && (self.behind < BEHIND || self.fresh.is_empty())
    }

    /// The places in the flow that its readers wait at: each has a turn, as if it were another flow.
    #[inline]
    fn places(&self) -> u64 {
        if self.again.is_empty() || self.fresh.is_empty() { 1 } else { PLACES }
    }

    /// The new data that leaves next.
    #[inline]
    fn next(&self) -> Option<&Piece> {
        if self.is_again_next() { self.again.front() } else { self.fresh.front() }
    }

    /// The queue has something to send: finds its way to its turn. `is_new` says that it had nothing before.
    pub(super) fn admit(&mut self, now: Instant, is_new: bool, payload: u64) -> Way {
        if is_new {
            self.waits_since = now;
        }
        if self.place != Place::Out {
            return Way::Stays;
        }
        let ready = self.pacer.ready_at();
        if ready > now {
            return Way::Waits(ready);
        }
        let was_held = core::mem::take(&mut self.was_held);
        if is_new && !was_held {
            self.place = Place::Sparse;
            self.deficit = payload;
        } else {
            self.place = Place::InTurn;
        }
        Way::Joins(self.place)
    }

    /// Decides the queue's turn, which may be its last one. `is_alone` says that no other queue is in a list.
    #[inline]
    pub(super) fn visit(&mut self, now: Instant, payload: u64, is_alone: bool) -> Visit {
        let Some(next) = self.next().map(|next| next.range.len().min(payload)) else {
            // The queue had nothing to send for a round.
            (self.place, self.deficit) = (Place::Out, 0);
            return Visit::Leaves;
        };
        if let Some(ready) = self.hold(now) {
            return Visit::Held(ready);
        }
        if self.deficit < next {
            // At least a full packet per round: the smallest quantum with which every visit can send (O(1)).
            self.deficit += payload * u64::from(self.weight) * self.places();
            if !is_alone {
                self.place = Place::InTurn;
                return Visit::Passes;
            }
        }
        Visit::Sends
    }

    /// Takes the queue off its list if its own rate holds it. Returns the time until which it does.
    #[inline]
    pub(super) fn hold(&mut self, now: Instant) -> Option<Instant> {
        let ready = self.pacer.ready_at();
        if ready <= now {
            return None;
        }
        (self.place, self.was_held) = (Place::Out, true);
        Some(ready)
    }

    /// Takes a packet of repairs off the queue, which stands at `slot`.
    pub(super) fn take_repair(&mut self, now: Instant, slot: Slot, payload: u64) -> Option<Chunk> {
        let piece = take_front(&mut self.repairs, payload)?;
        self.pacer.on_sent(now, piece.range.len());
        Some(self.chunk(now, slot, piece, true))
    }

    /// Takes a packet of new data off the queue, which stands at `slot`. A queue that is empty then stays in turn for a round. The link
    /// would have let the packet leave from `link_ready` on: where the queue's own rate and the packet's arrival would have, too, the node
    /// was woken late. A relay that ran once a millisecond sent two packets each time, whatever the rate.
    #[inline]
    pub(super) fn take_fresh(
        &mut self,
        now: Instant,
        slot: Slot,
        payload: u64,
        link_ready: Instant,
    ) -> Option<Chunk> {
        let is_again = self.is_again_next();
        self.behind = if is_again { (self.behind + 1).min(BEHIND) } else { 0 };
        let piece = take_front(if is_again { &mut self.again } else { &mut self.fresh }, payload)?;
        let range = piece.range;
        let late = now.since(link_ready.max(self.pacer.ready_since()).max(self.waits_since));
        self.pacer.on_sent_late(now, late, range.len());
        self.deficit = self.deficit.saturating_sub(range.len());
        self.ahead.on_new(now, range.len());
        let skipped = ByteRange::new(self.sent_end.min(range.start), range.start);
        let is_repair = range.start < self.sent_end && !piece.is_again;
        if !self.has_fresh() {
            self.place = Place::InTurn;
        }
        // The turn of another process on this node's core is a part of the path, which more requests bridge, and no wait for this one.
        let waited = piece.waited(now.before(late.min(MOST_LATE)));
        Some(Chunk { skipped, late, waited, ..self.chunk(now, slot, piece, is_repair) })
    }

    /// A piece leaves. A repair is charged to the flow, but never held by its rate: bytes that are missing downstream go first.
    #[inline]
    fn chunk(&mut self, now: Instant, slot: Slot, piece: Piece, is_repair: bool) -> Chunk {
        let range = piece.range;
        self.queued.remove(range);
        self.tally.on_sent(now, range.len(), is_repair);
        self.part.on_sent(now, range.len());
        self.sent_end = self.sent_end.max(range.end);
        Chunk {
            queue: slot,
            owner: self.owner,
            flow: self.flow,
            range,
            is_repair,
            skipped: ByteRange::default(),
            waited: piece.waited(now),
            late: Duration::ZERO,
        }
    }
}

/// The number of pieces of the first reader that leave before `offset`: mostly all. Repairs that may not leave first stand among them.
#[inline]
fn behind(pieces: &VecDeque<Piece>, offset: u64) -> usize {
    let overtook = pieces.iter().rev().take_while(|piece| piece.range.start > offset);
    pieces.len() - overtook.count()
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
    use alloc::vec::Vec;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);
    const PAYLOAD: u64 = 1000;
    const SLOT: Slot = Slot(3);

    fn queue() -> Queue {
        Queue::new(FlowId([1; 16]), Slot(7), PAYLOAD)
    }

    fn piece(start: u64, end: u64, since: Instant) -> Piece {
        Piece { range: ByteRange::new(start, end), since, is_dry: false, is_again: false }
    }

    fn later(micros: u64) -> Instant {
        NOW + Duration::from_micros(micros)
    }

    #[test]
    fn adjoining_bytes_of_one_moment_are_one_piece_and_single_packets_stay_as_they_came() {
        let mut queue = queue();
        assert!(queue.push_fresh(piece(0, 1500, NOW), PAYLOAD, Order::Bytes));
        assert!(!queue.push_fresh(piece(1500, 2100, later(999)), PAYLOAD, Order::Bytes));
        queue.push_fresh(piece(2100, 2200, later(1000)), PAYLOAD, Order::Bytes);
        queue.push_fresh(piece(2200, 2300, later(1000)), PAYLOAD, Order::Bytes);
        let sent: [Option<u64>; 6] = core::array::from_fn(|_| {
            queue.take_fresh(later(1000), SLOT, PAYLOAD, later(1000)).map(|chunk| chunk.range.len())
        });
        assert_eq!(sent, [Some(1000), Some(1000), Some(100), Some(100), Some(100), None]);
        assert!(queue.queued().is_empty());
    }

    /// Packets of a queue that may send one a millisecond, whose node runs every three. `link_ready` tells, of a time to run, since when
    /// the link would have let a packet leave.
    fn sent_by_a_late_node(link_ready: impl Fn(Instant) -> Instant) -> usize {
        let mut queue = queue();
        queue.set_rate(NOW, Rate::from_bps(8_000_000));
        queue.push_fresh(piece(0, 1_000_000, NOW), PAYLOAD, Order::Bytes);
        queue.admit(NOW, true, PAYLOAD);
        let sent = (0..100u64).map(|turn| {
            let now = later(3_000 * turn);
            queue.admit(now, false, PAYLOAD);
            let sends = |queue: &mut Queue| {
                matches!(queue.visit(now, PAYLOAD, true), Visit::Sends)
                    && queue.take_fresh(now, SLOT, PAYLOAD, link_ready(now)).is_some()
            };
            core::iter::from_fn(|| sends(&mut queue).then_some(())).count()
        });
        sent.sum()
    }

    #[test]
    fn a_queue_makes_good_what_its_late_node_lost_and_nothing_that_the_link_took() {
        let packets = sent_by_a_late_node(|_| NOW);
        assert!((297..=301).contains(&packets), "{packets} in 300 ms");
        // The link was not free before: at each turn the burst of two packets.
        assert_eq!(sent_by_a_late_node(|now| now), 200);
    }

    #[test]
    fn a_queue_that_its_rate_holds_is_in_no_list_and_not_sparse_afterwards() {
        let mut queue = queue();
        queue.set_rate(NOW, Rate::from_bps(8_000_000));
        queue.push_fresh(piece(0, 50_000, NOW), PAYLOAD, Order::Bytes);
        assert_eq!(queue.admit(NOW, true, PAYLOAD), Way::Joins(Place::Sparse));
        assert!(queue.is_sendable() && queue.admit(NOW, false, PAYLOAD) == Way::Stays);
        let ready = loop {
            match queue.visit(NOW, PAYLOAD, true) {
                Visit::Sends => queue.take_fresh(NOW, SLOT, PAYLOAD, NOW).map(|_| ()).expect("much waits"),
                Visit::Held(ready) => break ready,
                visit => panic!("{visit:?}"),
            }
        };
        assert!(!queue.is_sendable() && queue.has_fresh());
        assert_eq!(queue.admit(NOW, false, PAYLOAD), Way::Waits(ready));
        assert_eq!(queue.admit(ready, true, PAYLOAD), Way::Joins(Place::InTurn));
    }

    #[test]
    fn a_queue_leaves_its_list_a_round_after_its_last_packet() {
        let mut queue = queue();
        queue.push_fresh(piece(0, 400, NOW), PAYLOAD, Order::Bytes);
        queue.admit(NOW, true, PAYLOAD);
        assert_eq!(queue.visit(NOW, PAYLOAD, false), Visit::Sends);
        queue.take_fresh(NOW, SLOT, PAYLOAD, NOW).expect("a packet waits");
        assert_eq!(queue.admit(NOW, true, PAYLOAD), Way::Stays);
        assert_eq!(queue.visit(NOW, PAYLOAD, false), Visit::Leaves);
        assert_eq!(queue.admit(NOW, true, PAYLOAD), Way::Joins(Place::Sparse));
    }

    #[test]
    fn a_queue_without_credit_passes_unless_it_is_alone() {
        for (is_alone, visit) in [(false, Visit::Passes), (true, Visit::Sends)] {
            let mut queue = queue();
            queue.push_fresh(piece(0, 5000, NOW), PAYLOAD, Order::Bytes);
            queue.admit(NOW, false, PAYLOAD);
            assert_eq!(queue.visit(NOW, PAYLOAD, is_alone), visit);
            assert_eq!(queue.visit(NOW, PAYLOAD, is_alone), Visit::Sends, "the credit is here now");
        }
    }

    #[test]
    fn bytes_that_were_overtaken_have_their_place_again_unless_the_order_is_that_of_arrival() {
        for (order, sent) in [(Order::Bytes, [1, 2, 3, 6, 8]), (Order::Arrival, [3, 8, 1, 6, 2])] {
            let mut queue = queue();
            for kilobyte in [3, 8, 1, 6, 2] {
                let from = 1000 * kilobyte;
                queue.push_fresh(piece(from, from + 1000, NOW), PAYLOAD, order);
            }
            let starts =
                sent.map(|_| queue.take_fresh(NOW, SLOT, PAYLOAD, NOW).map(|chunk| chunk.range.start));
            assert_eq!(starts, sent.map(|kilobyte| Some(1000 * kilobyte)), "{order:?}");
        }
    }

    #[test]
    fn readers_behind_the_first_one_have_two_packets_for_one_of_its_and_the_last_goes_first() {
        let mut queue = queue();
        let again = |start, end| Piece { is_again: true, ..piece(start, end, NOW) };
        queue.push_fresh(piece(90_000, 93_000, NOW), PAYLOAD, Order::Bytes);
        queue.push_fresh(again(40_000, 43_000), PAYLOAD, Order::Bytes);
        queue.push_fresh(again(20_000, 22_000), PAYLOAD, Order::Bytes);
        let sent = core::iter::from_fn(|| queue.take_fresh(NOW, SLOT, PAYLOAD, NOW));
        let sent: Vec<_> = sent.map(|chunk| (chunk.range.start / 1000, chunk.is_repair)).collect();
        assert_eq!(
            sent.iter().map(|(start, _)| *start).collect::<Vec<_>>(),
            [20, 21, 90, 40, 41, 91, 42, 92]
        );
        assert!(sent.iter().all(|(_, is_repair)| !is_repair));
        // Alone, either has every turn.
        queue.push_fresh(again(43_000, 46_000), PAYLOAD, Order::Bytes);
        assert_eq!((0..4).filter_map(|_| queue.take_fresh(NOW, SLOT, PAYLOAD, NOW)).count(), 3);
        assert!(!queue.has_fresh() && queue.queued().is_empty());
    }

    #[test]
    fn bytes_below_the_highest_sent_one_are_repairs_and_skip_nothing() {
        let mut queue = queue();
        let mut send = |start, end, is_repair| {
            match is_repair {
                true => queue.push_repair(piece(start, end, NOW)),
                false => queue.push_fresh(piece(start, end, NOW), PAYLOAD, Order::Bytes),
            };
            let chunk = match is_repair {
                true => queue.take_repair(later(5000), SLOT, PAYLOAD),
                false => queue.take_fresh(later(5000), SLOT, PAYLOAD, later(5000)),
            };
            let chunk = chunk.expect("it waits");
            assert_eq!((chunk.queue, chunk.owner), (SLOT, Slot(7)));
            assert_eq!(chunk.waited.time, Duration::from_millis(5));
            (chunk.is_repair, chunk.skipped)
        };
        assert_eq!(send(500, 600, false), (false, ByteRange::new(0, 500)));
        assert_eq!(send(100, 200, false), (true, ByteRange::new(100, 100)));
        assert_eq!(send(900, 950, true), (true, ByteRange::default()));
        assert_eq!(send(950, 960, false), (false, ByteRange::new(950, 950)));
        assert_eq!(queue.sent_end(), 960);
    }
}
