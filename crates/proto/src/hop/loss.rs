//! Missing ranges of a flow on one hop: the node that has to repair each, and the time of the next request.
//!
//! LEOTP's Sequence Hole Retransmission (algorithm 1) with two additions. First, a lost repair is found and asked
//! for again. Repairs leave in the order of the requests, and before all other data. So `reorder` packets that the
//! Responder sent after it had received our request condemn the repair, if they are in the flow's order or are repairs
//! that were asked for later. A repair that was asked for earlier shows the opposite: ours is still in line, and its
//! time begins anew. Second, if the hop's counter has no gap, a hole is not this hop's loss: a node upstream is
//! repairing it, and no Void Packet Header is needed to say so.

pub use super::holes::Between;
use super::holes::{FIRST, Hole, Holes, Kind, LAST, Place, State, UPSTREAM_DOUBLINGS};
use crate::name::{ByteRange, RangeSet};
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// The conditions under which a hole is a loss, and the number of requests for it.
#[derive(Clone, Copy, Debug)]
pub struct LossRules {
    /// Time that confirms a hole.
    pub reorder_time: Duration,
    /// Requests per hole that may remain without an answer; the papers send one.
    pub tries: u32,
}

/// One arrival, as the detector needs it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Time of its arrival.
    pub now: Instant,
    /// Its bytes; empty for a mark.
    pub range: ByteRange,
    /// When the sender sent this, it had received all that we sent before this time of our clock.
    pub answers_until: Instant,
    /// Packets of this hop that are missing since the flow's last arrival: zero means that a hole is not ours.
    pub missing_on_hop: u64,
    /// Where these packets are missing; `None` if that is not known.
    pub between: Option<Between>,
    /// The hop's round trip.
    pub hop_rtt: Duration,
    /// Later packets that make a missing one a loss.
    pub reorder: u32,
    /// Time that does.
    pub reorder_time: Duration,
    /// Time for which parity may still repair a missing packet.
    pub patience: Duration,
    /// Time that its bytes waited for their turn since they were asked for.
    pub waited: Duration,
}

/// A hole that was asked for in vain as often as the rules allow is asked for as often again times this, at the longest times at which
/// upstream is asked about one. Losses are not independent: a queue of ten packets that overflows takes eight repairs in a row.
const SELDOM: u32 = 3;
/// A hole that is repaired upstream is asked about after this many hopRTTs, at least [`UPSTREAM_MIN`]. The
/// upstream's hop may be much longer than ours, so the time doubles each time that upstream answers that the bytes
/// are on their way.
const UPSTREAM_RTTS: u64 = 3;
const UPSTREAM_MIN: Duration = Duration::from_millis(50);
/// … and at most after this time, if that is more than those hopRTTs: a hop of half a second waited for 27 s for bytes that a relay
/// with a small cache no longer had.
const UPSTREAM_MOST: Duration = Duration::from_secs(2);

/// The facts of a hop that decide what its flows ask for.
pub trait Hop {
    /// Packets that are missing between two numbers.
    fn missing(&self, between: Between) -> u64;

    /// True if a repair may be asked for again: then it counts.
    fn may_repeat(&mut self, now: Instant) -> bool;
}

/// Finds the losses of one flow on one hop.
#[derive(Debug)]
pub struct LossDetector {
    rules: LossRules,
    /// Offset after the highest byte seen (LEOTP's lastByte).
    next: u64,
    holes: Holes,
}

impl LossDetector {
    /// A detector that expects the flow from `next` on.
    pub fn new(rules: LossRules, next: u64) -> Self {
        Self { rules, next, holes: Holes::default() }
    }

    /// Offset after the highest byte seen.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// True if some of `range` is known to be missing and is being repaired; what was asked for in vain too often is not.
    pub fn is_tracking(&self, range: ByteRange) -> bool {
        self.holes.overlapping(range).any(|hole| !self.is_in_vain(hole.state.tries()))
    }

    /// So many requests are more than a repair takes. With a single one (the papers) nothing is watched after it.
    fn is_in_vain(&self, tries: u32) -> bool {
        self.rules.tries > 1 && tries > self.rules.tries
    }

    /// Requests for a hole, at most.
    fn most_tries(&self) -> u32 {
        if self.rules.tries > 1 { (1 + SELDOM) * self.rules.tries } else { self.rules.tries }
    }

    /// A packet or a mark arrived. `expected` has the requested bytes that have not arrived, without this packet;
    /// ranges that must be asked for again are added to `repairs`. Returns the number of missing packets that new
    /// holes explain.
    pub fn on_seen(
        &mut self,
        seen: Seen,
        expected: &RangeSet,
        payload: u64,
        hop: &mut impl Hop,
        repairs: &mut Vec<ByteRange>,
    ) -> u64 {
        let is_in_order = seen.range.start >= self.next;
        self.rules.reorder_time = seen.reorder_time;
        let repaired = self.holes.fill(seen.now, seen.range).filter(|(since, _)| seen.answers_until > *since);
        let mut explained = 0;
        if seen.range.start > self.next {
            let skipped = ByteRange::new(self.next, seen.range.start);
            let state = if seen.missing_on_hop > 0 {
                State::Suspected { later: 0, until: seen.now + seen.patience, between: seen.between }
            } else {
                State::Upstream { asks: 0 }
            };
            for range in expected.intersect(skipped) {
                explained += self.track_rest(range, state, seen.now, payload);
            }
            if seen.missing_on_hop == 0 {
                explained = 0;
            }
        }
        self.next = self.next.max(seen.range.end);
        self.count_later(&seen, is_in_order, repaired, hop, repairs);
        explained.min(seen.missing_on_hop)
    }

    /// The upstream says that `range` is on its way (a Notice).
    pub fn on_notice(&mut self, now: Instant, range: ByteRange, expected: &RangeSet) {
        let asks = self.holes.overlapping(range).map(|hole| hole.state.tries()).max();
        // A question that is answered is no try in vain: a slow upstream may be asked more often than a silent one.
        let asks = asks.unwrap_or(0).min(UPSTREAM_DOUBLINGS);
        self.holes.fill(now, range);
        for range in expected.intersect(range) {
            self.holes.insert(Hole { range, state: State::Upstream { asks }, since: now });
        }
        self.next = self.next.max(range.end);
    }

    /// Packets were lost on this hop that no hole explains. They may have been late arrivals from further upstream,
    /// so this asks for all holes that are older than the flight of a packet.
    pub fn on_unexplained_loss(&mut self, now: Instant, hop: &mut impl Hop, repairs: &mut Vec<ByteRange>) {
        for kind in Kind::upstream() {
            self.holes.replace(kind, |hole| {
                let tries = hole.state.tries();
                if tries > 0 && !hop.may_repeat(now) {
                    return hole;
                }
                repairs.push(hole.range);
                Hole::asked(hole.range, now, tries + 1)
            });
        }
    }

    /// `range` has been asked for by other means: watch it as a repair.
    pub fn on_asked(&mut self, now: Instant, range: ByteRange) {
        self.holes.fill(now, range);
        self.holes.insert(Hole::asked(range, now, 1));
    }

    /// Holes whose time has come. As [`LossDetector::on_seen`].
    pub fn on_timeout(
        &mut self,
        now: Instant,
        hop_rtt: Duration,
        hop: &mut impl Hop,
        repairs: &mut Vec<ByteRange>,
    ) {
        let is_due = |hole: &&Hole| self.deadline(hole, hop_rtt) <= now;
        let suspected = self.holes.of(Kind::Suspected).filter(is_due);
        let others = Kind::due_in_order().flat_map(|kind| self.holes.of(kind).take_while(is_due));
        let due: Vec<u64> = suspected.chain(others).map(|hole| hole.range.start).collect();
        due.into_iter().for_each(|start| self.judge(start, now, hop, repairs));
    }

    /// Deadline of the next hole.
    pub fn next_timeout(&self, hop_rtt: Duration) -> Option<Instant> {
        if self.holes.is_empty() {
            return None;
        }
        let firsts = Kind::due_in_order().filter_map(|kind| self.holes.of(kind).next());
        self.holes.of(Kind::Suspected).chain(firsts).map(|hole| self.deadline(hole, hop_rtt)).min()
    }

    /// Suspects the parts of `missing` that are not tracked yet.
    pub fn suspect(&mut self, now: Instant, missing: impl Iterator<Item = ByteRange>) {
        let state = State::Suspected { later: 0, until: now, between: None };
        missing.for_each(|range| _ = self.track_rest(range, state, now, u64::MAX));
    }

    /// The path was silent: repeated requests were lost too, and their bytes are asked for anew.
    pub fn forgive(&mut self, now: Instant) {
        let state = State::Suspected { later: 0, until: now, between: None };
        self.holes.replace(Kind::Asked, |hole| Hole { state, since: now, ..hole });
    }

    /// Tracks the parts of `range` that are not tracked yet; returns their number of packets of `payload` bytes.
    fn track_rest(&mut self, range: ByteRange, state: State, since: Instant, payload: u64) -> u64 {
        let (mut at, mut packets) = (range.start, 0);
        while let Some(piece) = self.holes.first_gap(ByteRange::new(at, range.end)) {
            self.holes.insert(Hole { range: piece, state, since });
            packets += piece.len().div_ceil(payload);
            at = piece.end;
        }
        packets
    }

    /// Everything from `next` on comes once more, from another node.
    pub fn rewind(&mut self, next: u64) {
        self.holes.clear();
        self.next = self.next.min(next);
    }

    /// Whether anything is missing.
    pub fn has_holes(&self) -> bool {
        !self.holes.is_empty()
    }

    /// Nothing below `end` is waited for any more.
    pub fn skip(&mut self, now: Instant, end: u64) {
        self.holes.fill(now, ByteRange::new(0, end));
        self.next = self.next.max(end);
    }

    /// The flow ends at `length`.
    pub fn forget_beyond(&mut self, length: u64) {
        self.holes.fill(Instant::ZERO, ByteRange::new(length, u64::MAX));
    }

    /// Counts an arrival for the holes that it shows to be losses, and asks for those that enough have shown.
    fn count_later(
        &mut self,
        seen: &Seen,
        is_in_order: bool,
        repaired: Option<Place>,
        hop: &mut impl Hop,
        repairs: &mut Vec<ByteRange>,
    ) {
        if self.holes.is_empty() {
            return;
        }
        let mut condemned = Vec::new();
        self.holes.change(Kind::Suspected, FIRST..LAST, |hole| {
            let State::Suspected { later, until, .. } = &mut hole.state else { return };
            *later += u32::from(seen.range.start >= hole.range.end && !seen.range.is_empty());
            if *later >= seen.reorder && *until <= seen.now {
                condemned.push(hole.range.start);
            }
        });
        // The neighbour sent this after what it repaired before, and, if it is new, after all that it had heard of.
        let heard = is_in_order.then_some((seen.answers_until, 0));
        let behind = repaired.max(heard).unwrap_or_default();
        self.holes.change(Kind::Asked, FIRST..behind, |hole| {
            let (place, start) = (hole.place(), hole.range.start);
            let State::Asked { later, .. } = &mut hole.state else { return };
            let is_behind = repaired.is_some_and(|repaired| repaired > place) || seen.range.start > start;
            *later += u32::from(is_behind);
            if *later >= seen.reorder {
                condemned.push(start);
            }
        });
        if let Some(repaired) = repaired {
            self.holes.change(Kind::Asked, repaired..LAST, |hole| {
                if let State::Asked { in_line, .. } = &mut hole.state {
                    *in_line = seen.now;
                }
            });
        }
        condemned.into_iter().for_each(|start| self.judge(start, seen.now, hop, repairs));
    }

    /// The time at which a hole is looked at. Those of repairs, and those of holes upstream that were asked about as often, are in the
    /// order of their places: whatever shows that a repair waits in line shows it of all behind it.
    fn deadline(&self, hole: &Hole, hop_rtt: Duration) -> Instant {
        match hole.state {
            State::Suspected { until, .. } => until.max(hole.since + self.rules.reorder_time),
            // The answer, and as much again as packets may be late.
            State::Asked { in_line, .. } => in_line + hop_rtt.scaled(3, 2) + self.rules.reorder_time,
            State::Upstream { asks } => {
                let first = hop_rtt.scaled(UPSTREAM_RTTS, 1);
                let doubled = first.scaled(1 << asks.min(UPSTREAM_DOUBLINGS), 1);
                hole.since + doubled.min(first.max(UPSTREAM_MOST)).max(UPSTREAM_MIN)
            }
        }
    }

    /// Asks (again) for the hole at `start`, which is taken for lost, unless it was asked for too often. If all packets of the hop that
    /// were missing then have come, they were late, the hole is not of this hop, and its bytes are on their way.
    fn judge(&mut self, start: u64, now: Instant, hop: &mut impl Hop, repairs: &mut Vec<ByteRange>) {
        let Some(hole) = self.holes.take(start) else { return };
        if let State::Suspected { between: Some(between), .. } = hole.state
            && hop.missing(between) == 0
        {
            self.holes.insert(Hole { state: State::Upstream { asks: 0 }, since: now, ..hole });
            return;
        }
        let tries = hole.state.tries();
        if tries >= self.most_tries() {
            return;
        }
        if tries > 0 && !hop.may_repeat(now) {
            self.holes.insert(Hole::asked(hole.range, now, tries));
            return;
        }
        repairs.push(hole.range);
        if self.is_in_vain(tries + 1) {
            self.holes.insert(Hole { state: State::Upstream { asks: tries + 1 }, since: now, ..hole });
        } else if self.rules.tries > 1 {
            self.holes.insert(Hole::asked(hole.range, now, tries + 1));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn rules(tries: u32) -> LossRules {
        LossRules { reorder_time: Duration::from_millis(10), tries }
    }

    /// A hop on which so many packets are missing between any two, and repairs may be asked for again so often.
    pub(in crate::hop) struct Fixed {
        missing: u64,
        repeats: u32,
    }

    impl Fixed {
        pub(in crate::hop) fn missing(missing: u64) -> Self {
            Self { missing, repeats: u32::MAX }
        }
    }

    impl Hop for Fixed {
        fn missing(&self, _: Between) -> u64 {
            self.missing
        }

        fn may_repeat(&mut self, _: Instant) -> bool {
            let left = self.repeats.checked_sub(1);
            self.repeats = left.unwrap_or(0);
            left.is_some()
        }
    }

    struct Rig {
        detector: LossDetector,
        expected: RangeSet,
        repairs: Vec<ByteRange>,
        patience: Duration,
    }

    impl Rig {
        fn new(tries: u32) -> Self {
            let mut expected = RangeSet::new();
            expected.insert(ByteRange::new(0, 1_000_000));
            Self {
                detector: LossDetector::new(rules(tries), 0),
                expected,
                repairs: Vec::new(),
                patience: Duration::ZERO,
            }
        }

        /// Packet `n` of 100 bytes arrives; the Responder had heard us until `heard`.
        fn packet(&mut self, ms: u64, n: u64, missing_on_hop: u64, heard: u64) -> Vec<ByteRange> {
            let range = ByteRange::at(n * 100, 100);
            self.expected.remove(range);
            let seen = Seen {
                now: at(ms),
                range,
                answers_until: at(heard),
                missing_on_hop,
                between: None,
                hop_rtt: RTT,
                reorder: 3,
                reorder_time: Duration::from_millis(10),
                patience: self.patience,
                waited: Duration::ZERO,
            };
            self.detector.on_seen(seen, &self.expected, 100, &mut Fixed::missing(1), &mut self.repairs);
            core::mem::take(&mut self.repairs)
        }
    }

    #[test]
    fn a_hole_is_asked_for_after_three_later_packets() {
        let mut rig = Rig::new(8);
        assert_eq!(rig.packet(100, 0, 0, 0), []);
        assert_eq!(rig.packet(101, 2, 1, 0), []);
        assert_eq!(rig.packet(102, 3, 0, 0), []);
        assert_eq!(rig.packet(103, 4, 0, 0), [ByteRange::new(100, 200)]);
    }

    #[test]
    fn a_hole_of_which_a_part_was_asked_for_is_asked_for_whole() {
        let mut rig = Rig::new(8);
        rig.packet(100, 0, 0, 0);
        rig.detector.on_asked(at(100), ByteRange::new(300, 400));
        assert_eq!(rig.packet(101, 9, 8, 0), []);
        assert_eq!(rig.packet(102, 10, 0, 0), []);
        assert_eq!(rig.packet(103, 11, 0, 0), [ByteRange::new(100, 300), ByteRange::new(400, 900)]);
    }

    #[test]
    fn a_hole_that_parity_may_fill_is_asked_for_once_it_cannot() {
        let mut rig = Rig::new(8);
        rig.patience = Duration::from_millis(50);
        rig.packet(100, 0, 0, 0);
        for (ms, n) in [(101, 2), (102, 3), (103, 4), (149, 5)] {
            assert_eq!(rig.packet(ms, n, u64::from(n == 2), 0), [], "packet {n}");
        }
        assert_eq!(rig.detector.next_timeout(RTT), Some(at(151)));
        assert_eq!(rig.packet(151, 6, 0, 0), [ByteRange::new(100, 200)]);
    }

    #[test]
    fn a_reordered_packet_is_not_asked_for() {
        let mut rig = Rig::new(8);
        for (ms, n) in [(1, 0), (2, 2), (3, 3), (4, 1), (5, 4), (6, 5), (7, 6)] {
            assert_eq!(rig.packet(ms, n, u64::from(n == 2), 0), [], "packet {n}");
        }
        assert_eq!(rig.detector.next_timeout(RTT), None);
    }

    #[test]
    fn a_hole_without_a_later_packet_is_asked_for_after_the_reordering_time() {
        let mut rig = Rig::new(8);
        rig.packet(0, 0, 0, 0);
        rig.packet(1, 2, 1, 0);
        assert_eq!(rig.detector.next_timeout(RTT), Some(at(11)));
        rig.detector.on_timeout(at(11), RTT, &mut Fixed::missing(1), &mut rig.repairs);
        assert_eq!(rig.repairs, [ByteRange::new(100, 200)]);
    }

    #[test]
    fn a_lost_repair_is_asked_for_again_by_packets_sent_after_the_request() {
        let mut rig = Rig::new(8);
        rig.packet(0, 0, 0, 0);
        for n in 2..5 {
            rig.packet(n, n, u64::from(n == 2), 0);
        }
        // Asked at 4 ms. Packets that left before the request arrived prove nothing …
        for n in 5..15 {
            assert_eq!(rig.packet(n, n, 0, 3), [], "packet {n}");
        }
        // … those that left after it do.
        for n in 15..17 {
            assert_eq!(rig.packet(n + 10, n, 0, 5), [], "packet {n}");
        }
        assert_eq!(rig.packet(27, 17, 0, 5), [ByteRange::new(100, 200)]);
    }

    #[test]
    fn a_repair_is_lost_once_repairs_behind_it_come_and_waits_for_those_before_it() {
        let mut rig = Rig::new(8);
        rig.detector.skip(at(90), 10_000);
        rig.detector.on_asked(at(100), ByteRange::new(0, 1_000));
        rig.detector.on_asked(at(101), ByteRange::new(5_000, 5_400));
        // The line is long: packet 3 is lost, and those before it show that it waits.
        for (ms, n) in [(150, 0), (250, 1), (350, 2)] {
            assert_eq!(rig.packet(ms, n, 0, 102), [], "packet {n}");
            assert_eq!(rig.detector.next_timeout(RTT), Some(at(ms + 40)));
        }
        assert_eq!([(351, 4), (352, 5)].map(|(ms, n)| rig.packet(ms, n, 0, 102).len()), [0; 2]);
        assert_eq!(rig.packet(353, 6, 0, 102), [ByteRange::new(300, 400)]);
        // So are those before a repair that was asked for later, unless it was on its way before we asked.
        assert_eq!([50, 51, 52].map(|n| rig.packet(360, n, 0, 101).len()), [0; 3]);
        rig.detector.on_asked(at(361), ByteRange::new(6_000, 6_400));
        assert_eq!([60, 61].map(|n| rig.packet(390, n, 0, 362).len()), [0; 2]);
        let lost = [(300, 400), (700, 1_000), (5_300, 5_400)].map(|(start, end)| ByteRange::new(start, end));
        let mut asked = rig.packet(390, 62, 0, 362);
        asked.sort_unstable_by_key(|range| range.start);
        assert_eq!(asked, lost);
    }

    #[test]
    fn a_lost_repair_is_asked_for_again_by_time_then_seldom_and_given_up() {
        let mut rig = Rig::new(3);
        rig.packet(0, 0, 0, 0);
        rig.packet(1, 2, 1, 0);
        let (mut asked, hole) = (Vec::new(), ByteRange::new(100, 200));
        while let Some(due) = rig.detector.next_timeout(RTT) {
            asked.push((due, rig.detector.is_tracking(hole)));
            rig.detector.on_timeout(due, RTT, &mut Fixed::missing(1), &mut rig.repairs);
        }
        let pauses: Vec<u64> =
            asked.windows(2).map(|pair| pair[1].0.since(pair[0].0).as_nanos() / 1_000_000).collect();
        assert_eq!(pauses[..3], [40; 3], "the answer's time");
        assert_eq!(pauses[3..], [960; 9], "and 48 round trips");
        let quick = asked.iter().filter(|(_, is_tracked)| *is_tracked).count();
        assert_eq!((quick, rig.repairs.len()), (4, 12), "others may ask for what is asked for seldom");
    }

    #[test]
    fn a_repair_is_asked_for_again_as_often_as_the_hop_allows() {
        let mut rig = Rig::new(8);
        rig.packet(0, 0, 0, 0);
        for n in 1..=2_000 {
            rig.packet(1, n * 2, 1, 0);
        }
        let mut hop = Fixed { missing: 1, repeats: 1_000 };
        let mut asked = |rig: &mut Rig, until: u64| {
            while let Some(due) = rig.detector.next_timeout(RTT).filter(|due| *due < at(until)) {
                rig.detector.on_timeout(due, RTT, &mut hop, &mut rig.repairs);
            }
            core::mem::take(&mut rig.repairs).len()
        };
        let of_last = asked(&mut rig, 20);
        assert!(of_last < 5, "all others were asked for by packets: {of_last}");
        assert_eq!(asked(&mut rig, 2_000), 1_000);
    }

    #[test]
    fn as_published_a_hole_is_asked_for_once_and_forgotten() {
        let mut rig = Rig::new(1);
        rig.packet(0, 0, 0, 0);
        rig.packet(1, 2, 1, 0);
        rig.detector.on_timeout(at(11), RTT, &mut Fixed::missing(1), &mut rig.repairs);
        assert_eq!(rig.repairs.len(), 1);
        assert_eq!(rig.detector.next_timeout(RTT), None);
    }

    #[test]
    fn a_hole_with_no_gap_in_the_hops_counter_is_left_to_the_upstream() {
        let mut rig = Rig::new(8);
        rig.packet(0, 0, 0, 0);
        for n in 2..30 {
            assert_eq!(rig.packet(n, n, 0, n), [], "packet {n}");
        }
        rig.detector.on_unexplained_loss(at(31), &mut Fixed::missing(1), &mut rig.repairs);
        assert_eq!(rig.repairs, [ByteRange::new(100, 200)], "its late arrival may be what was lost");
    }

    #[test]
    fn a_notice_quiets_a_hole() {
        let mut rig = Rig::new(8);
        rig.packet(0, 0, 0, 0);
        rig.detector.on_notice(at(1), ByteRange::new(100, 200), &rig.expected);
        for n in 2..10 {
            assert_eq!(rig.packet(n, n, 1, 0), [], "packet {n}");
        }
    }

    /// After four answers a relay that had evicted the bytes was asked 27 s later.
    #[test]
    fn a_long_hop_is_asked_about_a_hole_every_three_round_trips_or_two_seconds() {
        let (mut rig, hole) = (Rig::new(8), ByteRange::new(100, 200));
        rig.packet(0, 0, 0, 0);
        rig.packet(1, 2, 0, 0);
        let pauses = [20, 560, 800].map(|rtt| {
            (0..5).for_each(|_| {
                rig.detector.on_notice(at(5_000), hole, &rig.expected);
                rig.detector.on_timeout(at(100_000), RTT, &mut Fixed::missing(1), &mut rig.repairs);
            });
            rig.detector.on_notice(at(5_000), hole, &rig.expected);
            rig.detector.next_timeout(Duration::from_millis(rtt)).map(|due| due.since(at(5_000)))
        });
        assert_eq!(pauses, [960, 2_000, 2_400].map(|ms| Some(Duration::from_millis(ms))));
    }

    #[test]
    fn a_hole_is_asked_about_for_as_long_as_it_is_answered_for() {
        let (mut rig, hole) = (Rig::new(8), ByteRange::new(100, 200));
        rig.packet(0, 0, 0, 0);
        rig.packet(1, 2, 0, 0);
        let ask = |rig: &mut Rig| {
            let due = rig.detector.next_timeout(RTT)?;
            rig.detector.on_timeout(due, RTT, &mut Fixed::missing(1), &mut rig.repairs);
            Some((due, core::mem::take(&mut rig.repairs)))
        };
        for turn in 0..30 {
            let Some((asked, repairs)) = ask(&mut rig) else {
                panic!("it was given up after {turn} answers")
            };
            assert_eq!(repairs, [hole]);
            rig.detector.on_notice(asked + RTT, hole, &rig.expected);
        }
        let without_answer = core::iter::from_fn(|| ask(&mut rig)).filter(|(_, repairs)| !repairs.is_empty());
        let most = usize::try_from(8 * (1 + SELDOM)).expect("a few");
        assert_eq!(without_answer.count(), most - 4, "the answers took four of its tries");
    }
}
