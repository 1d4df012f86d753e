//! The dense counter of a hop: which packets of a neighbour arrived, and which were lost on the way from it.

use alloc::boxed::Box;

/// Number of the newest packets that are remembered.
const WINDOW: u64 = 1024;
const WORDS: usize = WINDOW as usize / 64;
/// Of older packets, the count of missing ones is remembered once per so many packets, often for the last 65,536 and seldom for the
/// last four million: between two packets of one flow lie those of all others, and a gigabit of thousands has 90,000 a second.
const STRIDES: [u64; 2] = [64, 4096];
const MARKS: usize = 1024;

/// The meaning of the counter of one arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The packet's number, extended to 64 bits.
    pub number: u64,
    /// By how much it is newer than the newest before it; 0 for a straggler, 1 for the next.
    pub advance: u32,
    /// Packets that were still missing, and are counted as lost with this arrival.
    pub lost: u32,
    /// Runs of packets without a gap that these lie in.
    pub runs: u32,
    /// Whether the packet had arrived before, or is too old to tell.
    pub is_duplicate: bool,
    /// The packet had counted as lost, or been repaired by other means. It was only late.
    pub is_found: bool,
}

/// The newest packets of one neighbour, as a bitmap over their numbers.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// Number after the newest arrival; zero before the first.
    next: u64,
    seen: [u64; WORDS],
    /// Those of them that were repaired by other means, and have not come since.
    filled: [u64; WORDS],
    /// Missing numbers below this one have been counted as lost.
    judged: u64,
    /// A number this far behind the newest is lost if it has not arrived; at least and at most so far.
    reorder: u64,
    reorder_least: u64,
    reorder_limit: u64,
    /// Packets missing before the next arrival were not lost on this hop.
    resumes: bool,
    /// Count of missing packets older than the window, and its value at every stride. Both wrap.
    gone: u32,
    /// The first packet of the present epoch: the marks know nothing of those before.
    epoch: u64,
    marks: [Box<[u32; MARKS]>; STRIDES.len()],
}

impl Arrivals {
    /// A window in which a packet is lost once `reorder` later ones have arrived. This number grows, up to `limit`,
    /// to the largest number of packets that overtook one.
    pub fn new(reorder: u32, limit: u32) -> Self {
        Self {
            next: 0,
            seen: [0; WORDS],
            filled: [0; WORDS],
            judged: 0,
            reorder: u64::from(reorder),
            reorder_least: u64::from(reorder),
            reorder_limit: u64::from(limit).min(WINDOW / 2),
            resumes: false,
            gone: 0,
            epoch: 0,
            marks: [Box::new([0; MARKS]), Box::new([0; MARKS])],
        }
    }

    /// This node did not listen to the neighbour for a while: counting goes on from the next packet.
    pub fn resume(&mut self) {
        self.resumes = true;
        self.judged = self.next;
    }

    /// A packet with the wire counter `counter` arrived. Its number is the nearest to the newest one (RFC 9000,
    /// appendix A.3): a sender never has more than half of the 2^16 counters under way.
    pub fn on_arrival(&mut self, counter: u16) -> Arrival {
        let resumes = core::mem::take(&mut self.resumes);
        if self.next == 0 || resumes {
            return self.restart(counter);
        }
        let ahead = counter.wrapping_sub(self.next.wrapping_sub(1) as u16) as i16;
        if ahead > 0 {
            return self.advance(self.next + ahead as u64 - 1);
        }
        let number = self.next.saturating_sub(1 + u64::from(ahead.unsigned_abs()));
        let is_duplicate = number + WINDOW < self.next || self.has(number);
        let is_found = self.is_found(number, is_duplicate);
        if !is_duplicate {
            self.mark(number);
            // A repair has a number of its own: this one was overtaken.
            let overtaken_by = self.next - 1 - number;
            self.reorder = self.reorder.max((overtaken_by + 1).min(self.reorder_limit));
        }
        Arrival { number, advance: 0, lost: 0, runs: 0, is_duplicate, is_found }
    }

    /// True if a straggler counts as lost. It does so no more.
    fn is_found(&mut self, number: u64, is_duplicate: bool) -> bool {
        if !is_duplicate {
            return number < self.judged;
        }
        let (word, bit) = place(number);
        let is_filled = number + WINDOW >= self.next && self.filled[word] & bit != 0;
        if is_filled {
            self.filled[word] &= !bit;
        }
        is_filled
    }

    /// Later packets that make a missing one a loss.
    pub fn reorder(&self) -> u32 {
        self.reorder as u32
    }

    /// No packet has been overtaken for long.
    pub fn forget_reordering(&mut self) {
        self.reorder = self.reorder_least;
    }

    /// Number of packets between `after` and `before`, both excluded, that have not arrived. Further back than the window it
    /// may be too high, by packets missing just before `after`. Packets further back than the history count as missing.
    pub fn missing_between(&self, after: u64, before: u64) -> u64 {
        // Of those before the present epoch, which a fresh counter began, nothing is known: they count as one.
        let unknown = u64::from(after + 1 < self.epoch);
        let (first, window) = ((after + 1).max(self.epoch), self.next.saturating_sub(WINDOW));
        let before_window =
            if first >= window { 0 } else { self.gone_since(first, window).unwrap_or(window - first) };
        unknown + before_window + self.missing_in_window(first.max(window), before)
    }

    /// Missing packets between `first` and the begin of the window; `None` where nobody remembers.
    fn gone_since(&self, first: u64, window: u64) -> Option<u64> {
        let is_kept = |stride: u64| first >= self.epoch && first + stride * MARKS as u64 > window + stride;
        let (stride, marks) = STRIDES.iter().zip(&self.marks).find(|(stride, _)| is_kept(**stride))?;
        Some(u64::from(self.gone.wrapping_sub(marks[mark(first, *stride)])))
    }

    /// As [`Arrivals::missing_between`], from `from` on, which lies in the window: a word at a time.
    fn missing_in_window(&self, from: u64, before: u64) -> u64 {
        let (mut at, mut missing) = (from, 0);
        while at < before {
            let end = before.min((at / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (end - at))) << (at % 64);
            missing += u64::from((!self.seen[(at / 64) as usize % WORDS] & mask).count_ones());
            at = end;
        }
        missing
    }

    /// Counts the packets below `end` as lost that are still missing and not counted: their reordering time has passed. Returns their
    /// number, and that of the runs that they begin.
    pub fn condemn_below(&mut self, end: u64) -> (u32, u32) {
        self.judge(end.min(self.next).max(self.judged))
    }

    /// Number after the newest arrival.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A missing packet was repaired by other means. True if it had not been counted as lost, and will not be.
    pub fn fill(&mut self, number: u64) -> bool {
        let is_known = number + WINDOW < self.next || number >= self.next || self.has(number);
        if is_known {
            return false;
        }
        self.mark(number);
        let (word, bit) = place(number);
        self.filled[word] |= bit;
        number >= self.judged
    }

    /// Whether a packet is missing that has not been counted as lost.
    pub fn has_open_gap(&self) -> bool {
        self.has_open_gap_below(self.next)
    }

    /// As [`Arrivals::has_open_gap`], of the packets below `end`.
    pub fn has_open_gap_below(&self, end: u64) -> bool {
        (self.judged..end.min(self.next)).any(|number| !self.has(number))
    }

    /// Counts the missing packets below `end`, each once, and the runs that they begin.
    fn judge(&mut self, end: u64) -> (u32, u32) {
        let from = self.judged.max(self.next.saturating_sub(WINDOW));
        let forgotten = from - self.judged;
        let (mut missing, mut runs) = (forgotten, u64::from(forgotten > 0));
        for number in (from..end).filter(|&number| !self.has(number)) {
            missing += 1;
            runs += u64::from(self.has(number - 1));
        }
        self.judged = self.judged.max(end);
        (missing as u32, runs as u32)
    }

    fn restart(&mut self, counter: u16) -> Arrival {
        // A fresh epoch well beyond the old one: nothing before it counts as missing.
        let epoch = ((self.next >> 16) + 2) << 16;
        self.next = epoch | u64::from(counter);
        self.epoch = self.next;
        (self.seen, self.filled) = ([u64::MAX; WORDS], [0; WORDS]);
        self.next += 1;
        self.judged = self.next;
        self.marks.iter_mut().for_each(|marks| **marks = [self.gone; MARKS]);
        Arrival { number: self.next - 1, advance: 1, lost: 0, runs: 0, is_duplicate: false, is_found: false }
    }

    fn advance(&mut self, number: u64) -> Arrival {
        let advance = (number + 1 - self.next) as u32;
        for newer in self.next..=number {
            // The newer packet takes the place of the oldest one in the window.
            let oldest = newer.saturating_sub(WINDOW);
            for (stride, marks) in STRIDES.iter().zip(&mut self.marks) {
                if oldest.is_multiple_of(*stride) {
                    marks[mark(oldest, *stride)] = self.gone;
                }
            }
            self.gone = self.gone.wrapping_add(u32::from(!self.has(oldest)));
            self.clear(newer);
        }
        self.next = number + 1;
        self.mark(number);
        let (lost, runs) = self.judge(self.next.saturating_sub(self.reorder).max(self.judged));
        Arrival { number, advance, lost, runs, is_duplicate: false, is_found: false }
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen[word] & bit != 0
    }

    fn mark(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.seen[word] |= bit;
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.seen[word] &= !bit;
        self.filled[word] &= !bit;
    }
}

/// The word and the bit of a number in the window.
fn place(number: u64) -> (usize, u64) {
    ((number / 64) as usize % WORDS, 1 << (number % 64))
}

/// Index of the count of packets that are missing before `number`, rounded down to a stride.
fn mark(number: u64, stride: u64) -> usize {
    (number / stride) as usize % MARKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn lost_by(counters: &[u16]) -> Vec<u32> {
        lost_from(&mut Arrivals::new(3, 32), counters)
    }

    fn lost_from(arrivals: &mut Arrivals, counters: &[u16]) -> Vec<u32> {
        counters.iter().map(|&c| arrivals.on_arrival(c).lost).collect()
    }

    #[test]
    fn a_packet_may_be_missing_between_a_counter_and_the_fresh_one_after_it_and_not_a_hundred_thousand() {
        let mut arrivals = Arrivals::new(3, 32);
        let before = arrivals.on_arrival(100).number;
        arrivals.resume();
        let first = arrivals.on_arrival(60_000).number;
        assert_eq!(arrivals.missing_between(before, first), 1);
        let later = arrivals.on_arrival(60_003).number;
        assert_eq!(arrivals.missing_between(before, later), 1 + 2);
    }

    #[test]
    fn what_counted_as_lost_and_comes_after_all_is_found_once() {
        let mut arrivals = Arrivals::new(2, 2);
        arrivals.on_arrival(0);
        assert_eq!(arrivals.on_arrival(5).lost, 3, "1, 2 and 3; 4 may still come");
        assert!(arrivals.on_arrival(2).is_found);
        let again = arrivals.on_arrival(2);
        assert!(again.is_duplicate && !again.is_found);
        assert!(!arrivals.on_arrival(4).is_found, "it had not counted");
        // Restored by parity: it is a duplicate when it comes.
        let newest = arrivals.on_arrival(8).number;
        assert!(arrivals.fill(newest - 1));
        let restored = arrivals.on_arrival(7);
        assert!(restored.is_duplicate && restored.is_found);
        assert!(!arrivals.on_arrival(7).is_found);
    }

    #[test]
    fn a_gap_is_a_loss_once_three_later_packets_arrived() {
        assert_eq!(lost_by(&[10, 12, 13, 14]), [0, 0, 0, 1]);
        assert_eq!(lost_by(&[10, 12, 13, 11, 14, 15]), [0; 6]);
        assert_eq!(lost_by(&[10, 20]), [0, 7]);
    }

    #[test]
    fn packets_lost_in_a_row_are_one_run() {
        let mut arrivals = Arrivals::new(2, 4);
        let runs = [10, 14, 15, 17, 18, 19].map(|counter| arrivals.on_arrival(counter));
        let sum = |of: fn(&Arrival) -> u32| runs.iter().map(of).sum::<u32>();
        assert_eq!((sum(|arrival| arrival.lost), sum(|arrival| arrival.runs)), (4, 2));
    }

    /// Between two packets of one flow lie those of ten thousand others.
    #[test]
    fn what_is_missing_is_known_far_further_back_than_the_window() {
        let mut arrivals = Arrivals::new(2, 4);
        let lost = |n: u64| n == 7_000 || n == 30_001;
        let kept: Vec<u64> = (0..60_000).filter(|n| !lost(*n)).collect();
        let first = arrivals.on_arrival(100).number;
        for n in &kept[1..] {
            let number = arrivals.on_arrival((n + 100) as u16).number;
            assert_eq!(number - first, *n);
            let missing = |after: u64| arrivals.missing_between(first + after, number);
            let between = |after: u64| u64::from(after < 7_000 && *n > 7_000) + u64::from(*n > 30_001);
            if n % 997 == 0 {
                for after in [0, 5_000, 6_900].into_iter().filter(|after| after < n) {
                    assert_eq!(missing(after), between(after), "between {after} and {n}");
                }
            }
            if *n > 31_000 && n % 997 == 0 {
                assert_eq!(missing(30_100), 0, "between 30100 and {n}");
            }
        }
        arrivals.resume();
        let later = arrivals.on_arrival(9).number;
        assert!(arrivals.missing_between(first, later) > 0, "nothing is known of the time between");
    }

    /// A flow among ten thousand on a gigabit has a turn each 100 ms, and waits for a second if its share falls.
    #[test]
    fn a_packet_before_many_thousands_of_others_was_not_lost() {
        let mut arrivals = Arrivals::new(2, 4);
        let first = arrivals.on_arrival(0).number;
        let is_lost = |n: u64| n == 3_000 || n == 500_000;
        let last = 700_000;
        (1..=last).filter(|n| !is_lost(*n)).for_each(|n| _ = arrivals.on_arrival(n as u16));
        let missing =
            [0, 4_096, 490_000, 510_000].map(|after| arrivals.missing_between(first + after, first + last));
        assert_eq!(missing, [2, 1, 1, 0]);
    }

    #[test]
    fn a_packet_that_was_made_good_is_missing_no_more() {
        let mut arrivals = Arrivals::new(2, 4);
        let [first, last] = [10, 13].map(|counter| arrivals.on_arrival(counter).number);
        assert!(!arrivals.fill(first + 1), "it had been counted");
        assert!(arrivals.fill(first + 2) && !arrivals.fill(first + 2));
        assert_eq!(arrivals.missing_between(first, last), 0);
        assert!(!arrivals.has_open_gap());
    }

    #[test]
    fn the_counter_wraps_without_a_gap() {
        let mut arrivals = Arrivals::new(3, 32);
        for n in 0..200_000u32 {
            assert_eq!(arrivals.on_arrival((n + 65_000) as u16).lost, 0);
        }
    }

    #[test]
    fn duplicates_and_stragglers_are_told_apart() {
        let mut arrivals = Arrivals::new(3, 32);
        for c in [1, 2, 4] {
            arrivals.on_arrival(c);
        }
        assert!(arrivals.on_arrival(2).is_duplicate);
        assert!(!arrivals.on_arrival(3).is_duplicate);
        assert!(arrivals.on_arrival(3).is_duplicate);
    }

    #[test]
    fn the_patience_grows_with_the_reordering_seen() {
        let mut arrivals = Arrivals::new(2, 4);
        for c in [1, 3, 4, 5, 2] {
            arrivals.on_arrival(c);
        }
        assert_eq!(arrivals.reorder(), 4);
        assert_eq!([7, 8, 9].map(|c| arrivals.on_arrival(c).lost), [0; 3]);
        assert_eq!(arrivals.on_arrival(10).lost, 1);
    }

    #[test]
    fn a_neighbour_that_is_resumed_has_lost_nothing_whatever_its_counter() {
        for first in [10, 11, 500, 40_000] {
            let mut arrivals = Arrivals::new(2, 4);
            lost_from(&mut arrivals, &[10, 11]);
            arrivals.resume();
            let seen = [first, first + 1].map(|counter| arrivals.on_arrival(counter));
            assert!(seen.iter().all(|arrival| arrival.lost == 0 && !arrival.is_duplicate), "{seen:?}");
        }
    }

    #[test]
    fn copies_among_new_packets_restart_nothing() {
        let mut arrivals = Arrivals::new(3, 32);
        let lost: u32 = (0..6000u16).map(|c| arrivals.on_arrival(c).lost + arrivals.on_arrival(c).lost).sum();
        assert_eq!((lost, arrivals.next & 0xffff), (0, 6000));
    }

    #[test]
    fn missing_packets_are_counted_between_two_numbers() {
        let mut arrivals = Arrivals::new(3, 32);
        let first = arrivals.on_arrival(5).number;
        let last = arrivals.on_arrival(9).number;
        assert_eq!(arrivals.missing_between(first, last), 3);
        arrivals.on_arrival(7);
        assert_eq!(arrivals.missing_between(first, last), 2);
        assert!(arrivals.has_open_gap());
        assert_eq!(arrivals.condemn_below(last), (1, 1));
        assert!(!arrivals.has_open_gap());
    }
}
