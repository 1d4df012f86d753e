use super::loss::{Between, Hop, LossDetector, LossRules, Seen};
use super::patience::Patience;
use super::subscriber::MAX_ASKED_RANGES;
use super::waits::Waits;
use crate::config::{Config, Mechanisms};
use crate::name::{ByteRange, RangeSet};
use crate::time::{Duration, Instant};
use crate::wire::{Ranges, Reason};
use alloc::vec::Vec;

/// The request of an Interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The bytes.
    pub ranges: Ranges,
    /// The reason.
    pub reason: Reason,
}

/// Shorter pauses come from the Producer and are no outages.
const MIN_SILENCE: Duration = Duration::from_millis(100);

/// The receiving side of one flow: the bytes that were asked for upstream and have not arrived, and their losses.
#[derive(Debug)]
pub struct Intake {
    expected: RangeSet,
    /// Every range that was asked of this upstream, which answers overlapping requests once: to get a range again,
    /// the request must say that it was lost.
    asked: RangeSet,
    /// Number of changes to another upstream, modulo 2^16, and the time of the last one.
    turn: u16,
    turned_at: Instant,
    loss: LossDetector,
    /// Number of the hop's packet that last carried bytes beyond those seen.
    last_in_order: Option<u64>,
    last_arrival: Instant,
    /// Something of the flow has arrived. No silence ends before: the path may be longer than the hop.
    has_begun: bool,
    patience: Patience,
    payload: u64,
    span: u64,
    mechanisms: Mechanisms,
    /// Requested bytes may not exist yet: their absence means nothing.
    is_live: bool,
    /// Packets were lost in a silence of the path, and [`Intake::take_wake`] has not told it.
    has_woken: bool,
}

impl Intake {
    /// An intake that will ask for bytes from `next` on first.
    pub fn new(now: Instant, config: &Config, next: u64) -> Self {
        let rules = LossRules { reorder_time: config.reorder_time, tries: config.repair_tries };
        Self {
            expected: RangeSet::new(),
            asked: RangeSet::new(),
            turn: 0,
            turned_at: Instant::ZERO,
            loss: LossDetector::new(rules, next),
            last_in_order: None,
            last_arrival: now,
            has_begun: false,
            patience: Patience::new(now),
            payload: config.payload as u64,
            span: config.span_bytes(),
            mechanisms: config.mechanisms,
            is_live: false,
            has_woken: false,
        }
    }

    /// As [`Intake::new`], for a flow whose bytes are asked for before they exist.
    pub fn live(now: Instant, config: &Config) -> Self {
        Self { is_live: true, ..Self::new(now, config, 0) }
    }

    /// Bytes that were asked for and have not arrived.
    pub fn expected(&self) -> &RangeSet {
        &self.expected
    }

    /// Offset after the highest byte that arrived.
    pub fn seen_end(&self) -> u64 {
        self.loss.next()
    }

    /// Whether `range` needs no repair: it is in order and still to come, or its loss is being repaired.
    pub fn is_on_its_way(&self, range: ByteRange, now: Instant, patience: Duration) -> bool {
        // Where nobody else's bytes wait on the hop, its neighbour knows better whether these do.
        let patience = patience + self.patience.turns(2);
        let still_to_come = range.start >= self.loss.next() && now.since(self.last_arrival) < patience;
        self.expected.contains(range) && (still_to_come || self.loss.is_tracking(range))
    }

    /// Asks for fresh bytes. The Interest also repeats the last requests that have not been answered, up to the
    /// span, so that its predecessor may be lost.
    pub fn ask(&mut self, range: ByteRange) -> Ask {
        if self.asked.overlaps(range) {
            // Another reader wants them. They lie below those seen, so the downstream notices their loss first and asks again.
            self.expected.insert(range);
            let mut ranges = Ranges::default();
            ranges.push(range);
            return Ask { ranges, reason: Reason::Again };
        }
        self.asked.insert(range);
        while self.asked.range_count() > MAX_ASKED_RANGES {
            let lowest = self.asked.first().unwrap_or_default();
            self.asked.remove(lowest);
        }
        self.expected.insert(range);
        let run =
            self.expected.intersect(ByteRange::new(range.end.saturating_sub(self.span), range.end)).last();
        let mut ranges = Ranges::default();
        ranges.push(run.filter(|run| run.contains(range)).unwrap_or(range));
        Ask { ranges, reason: Reason::New }
    }

    /// Another path has asked for `range` in our place, and it will come.
    pub fn adopt(&mut self, range: ByteRange) {
        self.expected.insert(range);
    }

    /// Asks again for missing bytes.
    pub fn ask_again(&mut self, now: Instant, range: ByteRange) -> Ask {
        self.expected.insert(range);
        self.loss.on_asked(now, range);
        let mut ranges = Ranges::default();
        ranges.push(range);
        Ask { ranges, reason: Reason::Lost }
    }

    /// Extra time for an answer that waits for its turn, beyond the time of its path: twice the recent waiting
    /// time; that of others on the hop until the flow's own packets have told enough.
    pub fn patience_for_turn(&self) -> Duration {
        if self.mechanisms.share { self.patience.for_turn() } else { Duration::ZERO }
    }

    /// The part of [`Intake::patience_for_turn`] that others' waits make.
    pub fn patience_for_others(&self) -> Duration {
        if self.mechanisms.share { self.patience.for_others() } else { Duration::ZERO }
    }

    /// True if the flow would have had its turn in `time`, as far as packets of the hop tell, of whatever flow.
    pub fn has_turn_in(&self, time: Duration) -> bool {
        time > self.patience.turns(3)
    }

    /// The time that the bytes of the last packet waited at the front of the flow's line, if they were in order.
    pub fn take_turn(&mut self) -> Option<Duration> {
        self.patience.take_turn()
    }

    /// Others' bytes on the hop have waited up to `waits` lately.
    pub fn on_others_waited(&mut self, waits: Waits) {
        self.patience.on_others_waited(waits);
    }

    /// Extra time for the next packet, beyond the last one's: twice the distance of the flow's turns.
    pub fn patience_for_next(&self) -> Duration {
        let packets = self.expected.byte_count().div_ceil(self.payload).max(1);
        self.patience_for_turn().scaled(2, packets)
    }

    /// Whether the present arrival ends a silence of the path, as far as can be known.
    fn wakes(&self, seen: &Seen) -> bool {
        let silence = seen.now.since(self.last_arrival).saturating_sub(self.patience_for_turn());
        self.mechanisms.wake_up && self.has_begun && silence > seen.hop_rtt.scaled(3, 1).max(MIN_SILENCE)
    }

    /// A packet or mark of this flow arrived as number `number` of the hop; `hop` counts its missing packets.
    /// Bytes to ask for again are added to `repairs`. Returns how many missing packets are accounted for.
    pub fn on_seen(
        &mut self,
        mut seen: Seen,
        number: u64,
        hop: &mut impl Hop,
        repairs: &mut Vec<ByteRange>,
    ) -> u64 {
        if self.is_of_former_turn(&seen) {
            self.on_former(seen.range);
            return 0;
        }
        // Counted from the last packet in the flow's order: any packet lost between these two may belong to the
        // flow, even if repairs arrived in between. With no packet to count from, a hole may well be this hop's
        // loss.
        seen.between = (self.last_in_order)
            .filter(|_| self.mechanisms.loss_attribution)
            .map(|after| Between { after, before: number });
        seen.missing_on_hop = seen.between.map_or(1, |between| hop.missing(between));
        if seen.range.start >= self.loss.next() {
            self.patience.on_packet(seen.now, seen.waited, !seen.range.is_empty());
            self.last_in_order = Some(self.last_in_order.map_or(number, |last| last.max(number)));
        }
        self.expected.remove(seen.range);
        if self.wakes(&seen) {
            self.has_woken |= seen.missing_on_hop > 0;
            self.suspect(&seen);
        }
        (self.last_arrival, self.has_begun) = (seen.now, true);
        self.loss.on_seen(seen, &self.expected, self.payload, hop, repairs)
    }

    /// The path was silent: bytes of old requests that do not come now were lost in the silence. Many such bytes of
    /// a live flow may not exist yet; but the hop knows the number of packets that it lost, and nothing arrived
    /// behind these.
    fn suspect(&mut self, seen: &Seen) {
        if !self.is_live {
            return self.loss.suspect(seen.now, self.expected.iter());
        }
        // Repeated requests for an older hole may have been lost too, even all tries.
        self.loss.forgive(seen.now);
        self.suspect_missing(seen.now);
        let next = self.loss.next();
        if seen.range.start <= next {
            let lost = ByteRange::at(next.max(seen.range.end), seen.missing_on_hop * self.payload);
            self.loss.suspect(seen.now, self.expected.intersect(lost));
        }
    }

    /// Tells once that packets were lost in a silence of the path: requests may have been lost as well.
    pub fn take_wake(&mut self) -> bool {
        core::mem::take(&mut self.has_woken)
    }

    /// Suspects bytes that are missing below the newest arrival and not tracked yet.
    pub fn suspect_missing(&mut self, now: Instant) {
        let come = ByteRange::new(0, self.loss.next());
        self.loss.suspect(now, self.expected.intersect(come));
    }

    /// True if the neighbour sent this before it had heard the requests of the present turn, as far as is known.
    fn is_of_former_turn(&self, seen: &Seen) -> bool {
        seen.answers_until > Instant::ZERO && seen.answers_until < self.turned_at
    }

    /// Bytes arrived that were not asked for in the present turn: their order shows nothing.
    pub fn on_former(&mut self, range: ByteRange) {
        self.expected.remove(range);
    }

    /// Refused requests are sent again: the absence of their bytes means nothing. Where a part of them was taken, missing bytes below
    /// the newest arrival were lost, whether or not their repair was refused, too.
    pub fn on_resumed(&mut self, now: Instant, was_whole: bool) {
        self.last_arrival = now;
        if !was_whole {
            self.suspect_missing(now);
        }
    }

    /// The upstream says that `range` is on its way.
    pub fn on_notice(&mut self, now: Instant, range: ByteRange) {
        self.last_arrival = now;
        self.loss.on_notice(now, range, &self.expected);
    }

    /// Packets were lost on the hop that no hole accounts for.
    pub fn on_unexplained_loss(&mut self, now: Instant, hop: &mut impl Hop, repairs: &mut Vec<ByteRange>) {
        self.loss.on_unexplained_loss(now, hop, repairs);
    }

    /// Time of the next [`Intake::on_timeout`].
    pub fn next_timeout(&self, hop_rtt: Duration) -> Option<Instant> {
        self.loss.next_timeout(hop_rtt)
    }

    /// Adds to `repairs` the bytes that have to be asked for again by now.
    pub fn on_timeout(
        &mut self,
        now: Instant,
        hop_rtt: Duration,
        hop: &mut impl Hop,
        repairs: &mut Vec<ByteRange>,
    ) {
        self.loss.on_timeout(now, hop_rtt, hop, repairs);
    }

    /// Nothing below `end` is wanted any more.
    pub fn skip(&mut self, now: Instant, end: u64) {
        self.expected.remove(ByteRange::new(0, end));
        self.loss.skip(now, end);
    }

    /// The flow ends at `length`: nothing beyond it will come.
    pub fn on_length(&mut self, length: u64) {
        self.expected.remove(ByteRange::new(length, u64::MAX));
        self.loss.forget_beyond(length);
    }

    /// Another upstream is asked from now on, for all expected bytes.
    pub fn on_new_path(&mut self, now: Instant) {
        self.next_turn();
        self.turned_at = now;
        self.asked = self.expected.clone();
        self.last_in_order = None;
        self.last_arrival = now;
        self.loss.rewind(self.expected.first().map_or(u64::MAX, |first| first.start));
    }

    /// All requests so far are void.
    fn next_turn(&mut self) {
        if self.mechanisms.epochs {
            self.turn = self.turn.wrapping_add(1);
        }
    }

    /// The turn that Interests of this flow carry.
    pub fn turn(&self) -> u16 {
        self.turn
    }

    /// The requested bytes are not wanted any more.
    pub fn forget(&mut self) {
        self.next_turn();
        self.expected.clear();
        self.asked.clear();
        self.loss.rewind(u64::MAX);
    }

    /// Whether the loss of some of `range` is known and being repaired.
    pub fn is_tracking(&self, range: ByteRange) -> bool {
        self.loss.is_tracking(range)
    }

    /// Whether anything is known to be missing.
    pub fn has_holes(&self) -> bool {
        self.loss.has_holes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::loss::tests::Fixed;

    const STEP: u64 = 12 * 1350;

    fn seen(millis: u64, range: ByteRange) -> Seen {
        Seen {
            now: Instant::ZERO + Duration::from_millis(millis),
            range,
            answers_until: Instant::ZERO,
            missing_on_hop: 0,
            between: None,
            hop_rtt: Duration::from_millis(20),
            reorder: 3,
            reorder_time: Duration::from_millis(10),
            patience: Duration::ZERO,
            waited: Duration::ZERO,
        }
    }

    #[test]
    fn after_an_outage_a_live_flow_asks_for_as_much_as_the_hop_lost_and_not_for_what_is_to_come() {
        let mut intake = Intake::live(Instant::ZERO, &Config::default());
        intake.ask(ByteRange::new(0, 100 * 1350));
        let (mut repairs, payload) = (Vec::new(), Config::default().payload as u64);
        intake.on_seen(seen(10, ByteRange::new(0, payload)), 1, &mut Fixed::missing(0), &mut repairs);
        // Twenty packets were lost with the path; the next one was asked for once more, and has number 22.
        intake.on_seen(
            seen(1_000, ByteRange::at(payload, payload)),
            22,
            &mut Fixed::missing(20),
            &mut repairs,
        );
        assert!(intake.take_wake() && !intake.take_wake(), "requests may be lost, too");
        let due = intake.next_timeout(Duration::from_millis(20)).expect("they are missed");
        intake.on_timeout(due, Duration::from_millis(20), &mut Fixed::missing(20), &mut repairs);
        assert_eq!(repairs, [ByteRange::at(2 * payload, 20 * payload)]);
    }

    /// A neighbour that had forgotten us sends what was written just now, and hears the requests for the rest later. Taken for lost,
    /// four megabytes that had just been asked for were asked for again.
    #[test]
    fn what_a_neighbour_sends_before_it_hears_the_requests_of_a_turn_makes_no_hole() {
        let mut intake = Intake::live(Instant::ZERO, &Config::default());
        let (mut repairs, rtt) = (Vec::new(), Duration::from_millis(20));
        intake.ask(ByteRange::new(0, 100 * 1350));
        intake.on_new_path(Instant::ZERO + Duration::from_millis(1_000));
        let heard = |millis, until, range| Seen {
            answers_until: Instant::ZERO + Duration::from_millis(until),
            ..seen(millis, range)
        };
        intake.on_seen(
            heard(1_005, 985, ByteRange::new(80 * 1350, 81 * 1350)),
            5,
            &mut Fixed::missing(1),
            &mut repairs,
        );
        assert_eq!((intake.next_timeout(rtt), intake.has_holes()), (None, false));
        assert!(!intake.expected().contains(ByteRange::new(80 * 1350, 81 * 1350)), "the bytes count");
        // Its answers to them do.
        intake.on_seen(heard(1_020, 1_000, ByteRange::new(0, 1350)), 6, &mut Fixed::missing(0), &mut repairs);
        intake.on_seen(
            heard(1_022, 1_002, ByteRange::new(2 * 1350, 3 * 1350)),
            8,
            &mut Fixed::missing(1),
            &mut repairs,
        );
        assert!(
            intake.is_tracking(ByteRange::new(1350, 2 * 1350)) && !intake.is_tracking(ByteRange::new(0, 1))
        );
    }

    /// A path of four hops answers after four times the hop's round trip, and nothing is lost: all that had just been asked for was
    /// asked for again, and came before its turn.
    #[test]
    fn the_first_answer_ends_no_silence_and_a_later_one_does() {
        let (mut intake, mut repairs, rtt) = (intake(), Vec::new(), Duration::from_millis(20));
        intake.ask(ByteRange::new(0, 10 * STEP));
        intake.on_seen(seen(900, ByteRange::new(0, 1350)), 1, &mut Fixed::missing(0), &mut repairs);
        assert_eq!((intake.next_timeout(rtt), intake.has_holes()), (None, false));
        intake.on_seen(seen(1_900, ByteRange::new(1350, 2700)), 22, &mut Fixed::missing(20), &mut repairs);
        assert!(intake.has_holes(), "twenty packets were lost in a second of silence");
    }

    /// The last flows of a crowd had seen waits of ten seconds, and their relays said for as long that lost bytes were on their way.
    #[test]
    fn bytes_of_a_flow_that_waited_long_are_on_their_way_while_those_of_others_wait() {
        let (mut intake, packet) = (intake(), ByteRange::new(0, 1350));
        intake.ask(ByteRange::new(0, 10 * 1350));
        let waited = Duration::from_secs(10);
        intake.on_seen(Seen { waited, ..seen(1_000, packet) }, 1, &mut Fixed::missing(0), &mut Vec::new());
        let next = ByteRange::at(1350, 1350);
        let mut is_on_its_way = |others, millis: u64| {
            intake.on_others_waited(Waits { in_front: Duration::from_millis(others), ..Waits::default() });
            let now = Instant::ZERO + Duration::from_millis(1_000 + millis);
            intake.is_on_its_way(next, now, Duration::from_millis(40))
        };
        assert!(is_on_its_way(9_000, 15_000) && !is_on_its_way(9_000, 21_000));
        assert!(is_on_its_way(2_000, 3_000) && !is_on_its_way(2_000, 5_000), "those after it wait far less");
        assert!(!is_on_its_way(0, 50), "nothing comes any more");
    }

    fn intake() -> Intake {
        Intake::new(Instant::ZERO, &Config::default(), 0)
    }

    #[test]
    fn an_interest_repeats_what_has_not_arrived_up_to_the_span() {
        let mut intake = intake();
        let asked: Vec<ByteRange> =
            (0..6).map(|n| intake.ask(ByteRange::at(n * STEP, STEP)).ranges[0]).collect();
        assert_eq!(asked[0], ByteRange::new(0, STEP));
        assert_eq!(asked[3], ByteRange::new(0, 4 * STEP));
        assert_eq!(asked[5], ByteRange::new(2 * STEP, 6 * STEP));
    }

    #[test]
    fn bytes_that_another_reader_had_are_asked_for_again_and_are_no_loss() {
        let mut intake = intake();
        intake.ask(ByteRange::new(0, 10 * STEP));
        intake.on_seen(seen(0, ByteRange::new(0, 10 * STEP)), 0, &mut Fixed::missing(0), &mut Vec::new());
        let ask = intake.ask(ByteRange::new(STEP, 2 * STEP));
        assert_eq!((ask.reason, ask.ranges[0]), (Reason::Again, ByteRange::new(STEP, 2 * STEP)));
        assert!(!intake.has_holes() && intake.expected().contains(ByteRange::new(STEP, 2 * STEP)));
        assert_eq!(intake.ask(ByteRange::new(10 * STEP, 11 * STEP)).reason, Reason::New);
    }

    #[test]
    fn what_has_arrived_is_not_repeated() {
        let mut intake = intake();
        intake.ask(ByteRange::new(0, STEP));
        intake.on_seen(seen(0, ByteRange::new(0, 1_000)), 0, &mut Fixed::missing(0), &mut Vec::new());
        assert_eq!(intake.ask(ByteRange::at(STEP, STEP)).ranges[0], ByteRange::new(1_000, 2 * STEP));
    }
}
