//! The dense counter of a hop: which packets of a neighbour arrived, and which were lost on the way from it.

/// How many of the newest packets are remembered.
const WINDOW: u64 = 1024;
const WORDS: usize = WINDOW as usize / 64;
/// A counter further than this from the newest one is another neighbour's, whatever time has passed.
pub(super) const MAX_JUMP: u16 = 4096;
/// So many packets in a row, all of numbers that had been before, are no copies: their sender counts anew, and its first
/// number happened to lie close behind the last of before.
const MOST_COPIES: u32 = 16;

/// What the counter of one arrival says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The packet's number, extended to 64 bits.
    pub number: u64,
    /// By how much it is newer than the newest before it; 0 for a straggler, 1 for the next.
    pub advance: u32,
    /// Packets that were still missing, and are counted as lost with this arrival.
    pub lost: u32,
    /// Whether the packet had arrived before.
    pub is_duplicate: bool,
    /// The counter does not go on where it was: another node answers under the neighbour's address, or the same one
    /// started anew. Whoever it is, it was not asked for what its predecessor was.
    pub is_new_neighbour: bool,
}

/// The newest packets of one neighbour, as a bitmap over their numbers.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// Number after the newest arrival; zero before the first.
    next: u64,
    seen: [u64; WORDS],
    /// Missing numbers below this one have been counted as lost.
    judged: u64,
    /// A number this far behind the newest is lost if it has not arrived.
    reorder: u64,
    reorder_limit: u64,
    /// What is missing before the next arrival is nobody's loss.
    resumes: bool,
    /// Packets in a row whose numbers had been before.
    copies: u32,
}

impl Arrivals {
    /// A window in which a packet is lost once `reorder` later ones have arrived, or as many more, up to
    /// `limit`, as one was seen to be overtaken by.
    pub fn new(reorder: u32, limit: u32) -> Self {
        Self {
            next: 0,
            seen: [0; WORDS],
            judged: 0,
            reorder: u64::from(reorder),
            reorder_limit: u64::from(limit).min(WINDOW / 2),
            resumes: false,
            copies: 0,
        }
    }

    /// The neighbour was not listened to for a while: the counter is taken up where the next packet finds it.
    pub fn resume(&mut self) {
        self.resumes = true;
        self.judged = self.next;
    }

    /// By how much a counter lies before or behind that of the newest packet.
    pub fn ahead(&self, counter: u16) -> i16 {
        counter.wrapping_sub(self.next.wrapping_sub(1) as u16) as i16
    }

    /// A packet with the wire counter `counter` arrived. A counter more than `plausible` (at most [`MAX_JUMP`]) ahead
    /// of the newest one is another neighbour's: this one cannot have sent so many packets since.
    pub fn on_arrival(&mut self, counter: u16, plausible: u16) -> Arrival {
        let resumes = core::mem::take(&mut self.resumes);
        if self.next == 0 || resumes {
            return self.restart(counter);
        }
        let ahead = self.ahead(counter);
        let most = if ahead > 0 { plausible } else { MAX_JUMP };
        if ahead.unsigned_abs() > most {
            return Arrival { is_new_neighbour: true, ..self.restart(counter) };
        }
        if ahead > 0 {
            self.copies = 0;
            return self.advance(self.next + ahead as u64 - 1);
        }
        let number = self.next.saturating_sub(1 + u64::from(ahead.unsigned_abs()));
        let is_duplicate = number + WINDOW < self.next || self.has(number);
        self.copies = if is_duplicate { self.copies + 1 } else { 0 };
        if self.copies > MOST_COPIES {
            return Arrival { is_new_neighbour: true, ..self.restart(counter) };
        }
        if !is_duplicate {
            self.mark(number);
            // A repair has a number of its own: this one was overtaken.
            let overtaken_by = self.next - 1 - number;
            self.reorder = self.reorder.max((overtaken_by + 1).min(self.reorder_limit));
        }
        Arrival { number, advance: 0, lost: 0, is_duplicate, is_new_neighbour: false }
    }

    /// Later packets that make a missing one a loss.
    pub fn reorder(&self) -> u32 {
        self.reorder as u32
    }

    /// How many packets between `after` and `before`, both excluded, have not arrived. What lies further back
    /// than the window counts as missing.
    pub fn missing_between(&self, after: u64, before: u64) -> u64 {
        let from = (after + 1).max(self.next.saturating_sub(WINDOW));
        let forgotten = from - (after + 1);
        forgotten + (from..before).filter(|&number| !self.has(number)).count() as u64
    }

    /// Counts the packets as lost that are missing and that later arrivals have not condemned: their
    /// reordering time has passed.
    pub fn condemn_rest(&mut self) -> u32 {
        self.judge(self.next)
    }

    /// Whether a packet is missing that has not been counted as lost.
    pub fn has_open_gap(&self) -> bool {
        (self.judged..self.next).any(|number| !self.has(number))
    }

    /// Counts what is missing below `end`, once.
    fn judge(&mut self, end: u64) -> u32 {
        let from = self.judged.max(self.next.saturating_sub(WINDOW));
        let forgotten = from - self.judged;
        let missing = (from..end).filter(|&number| !self.has(number)).count() as u64;
        self.judged = self.judged.max(end);
        (forgotten + missing) as u32
    }

    fn restart(&mut self, counter: u16) -> Arrival {
        // A fresh epoch well beyond the old one: nothing before it counts as missing.
        let epoch = ((self.next >> 16) + 2) << 16;
        self.next = epoch | u64::from(counter);
        self.seen = [u64::MAX; WORDS];
        self.next += 1;
        self.judged = self.next;
        self.copies = 0;
        Arrival { number: self.next - 1, advance: 1, lost: 0, is_duplicate: false, is_new_neighbour: false }
    }

    fn advance(&mut self, number: u64) -> Arrival {
        let advance = (number + 1 - self.next) as u32;
        // All but the newest window of what was jumped over is lost for good.
        for jumped in self.next.max(number.saturating_sub(WINDOW))..number {
            self.clear(jumped);
        }
        self.next = number + 1;
        self.mark(number);
        let lost = self.judge(self.next.saturating_sub(self.reorder).max(self.judged));
        Arrival { number, advance, lost, is_duplicate: false, is_new_neighbour: false }
    }

    fn has(&self, number: u64) -> bool {
        self.seen[(number / 64) as usize % WORDS] & (1 << (number % 64)) != 0
    }

    fn mark(&mut self, number: u64) {
        self.seen[(number / 64) as usize % WORDS] |= 1 << (number % 64);
    }

    fn clear(&mut self, number: u64) {
        self.seen[(number / 64) as usize % WORDS] &= !(1 << (number % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn lost_by(counters: &[u16]) -> Vec<u32> {
        let mut arrivals = Arrivals::new(3, 32);
        counters.iter().map(|&c| arrivals.on_arrival(c, MAX_JUMP).lost).collect()
    }

    #[test]
    fn a_gap_is_a_loss_once_three_later_packets_arrived() {
        assert_eq!(lost_by(&[10, 12, 13, 14]), [0, 0, 0, 1]);
        assert_eq!(lost_by(&[10, 12, 13, 11, 14, 15]), [0; 6]);
        assert_eq!(lost_by(&[10, 20]), [0, 7]);
    }

    #[test]
    fn the_counter_wraps_without_a_gap() {
        let mut arrivals = Arrivals::new(3, 32);
        for n in 0..200_000u32 {
            assert_eq!(arrivals.on_arrival((n + 65_000) as u16, MAX_JUMP).lost, 0);
        }
    }

    #[test]
    fn duplicates_and_stragglers_are_told_apart() {
        let mut arrivals = Arrivals::new(3, 32);
        for c in [1, 2, 4] {
            arrivals.on_arrival(c, MAX_JUMP);
        }
        assert!(arrivals.on_arrival(2, MAX_JUMP).is_duplicate);
        assert!(!arrivals.on_arrival(3, MAX_JUMP).is_duplicate);
        assert!(arrivals.on_arrival(3, MAX_JUMP).is_duplicate);
    }

    #[test]
    fn the_patience_grows_with_the_reordering_seen() {
        let mut arrivals = Arrivals::new(2, 4);
        for c in [1, 3, 4, 5, 2] {
            arrivals.on_arrival(c, MAX_JUMP);
        }
        assert_eq!(arrivals.reorder(), 4);
        assert_eq!([7, 8, 9].map(|c| arrivals.on_arrival(c, MAX_JUMP).lost), [0; 3]);
        assert_eq!(arrivals.on_arrival(10, MAX_JUMP).lost, 1);
    }

    #[test]
    fn a_neighbour_that_restarts_loses_nothing() {
        assert_eq!(lost_by(&[10, 11, 40_000, 40_001]), [0; 4]);
        let mut arrivals = Arrivals::new(2, 4);
        let is_new = [10, 11, 40_000, 40_001].map(|c| arrivals.on_arrival(c, MAX_JUMP).is_new_neighbour);
        assert_eq!(is_new, [false, false, true, false]);
    }

    #[test]
    fn a_jump_that_nobody_can_have_sent_is_another_neighbours() {
        let mut arrivals = Arrivals::new(3, 32);
        let is_new = [(10, 100), (110, 100), (211, 100), (212, 100)];
        let is_new =
            is_new.map(|(counter, plausible)| arrivals.on_arrival(counter, plausible).is_new_neighbour);
        assert_eq!(is_new, [false, false, true, false]);
    }

    #[test]
    fn a_neighbour_that_restarts_just_behind_is_believed_before_long() {
        for behind in [1, 500, 1500, 4000] {
            let mut arrivals = Arrivals::new(3, 32);
            for counter in 0..6000 {
                arrivals.on_arrival(counter, MAX_JUMP);
            }
            let first = 6000 - behind;
            let ignored =
                (first..first + 100).filter(|&c| arrivals.on_arrival(c, MAX_JUMP).advance == 0).count();
            assert!(ignored <= MOST_COPIES as usize, "{behind} behind: {ignored}");
        }
    }

    #[test]
    fn copies_among_new_packets_restart_nothing() {
        let mut arrivals = Arrivals::new(3, 32);
        let lost: u32 = (0..6000u16)
            .map(|c| arrivals.on_arrival(c, MAX_JUMP).lost + arrivals.on_arrival(c, MAX_JUMP).lost)
            .sum();
        assert_eq!((lost, arrivals.next & 0xffff), (0, 6000));
    }

    #[test]
    fn missing_packets_are_counted_between_two_numbers() {
        let mut arrivals = Arrivals::new(3, 32);
        let first = arrivals.on_arrival(5, MAX_JUMP).number;
        let last = arrivals.on_arrival(9, MAX_JUMP).number;
        assert_eq!(arrivals.missing_between(first, last), 3);
        arrivals.on_arrival(7, MAX_JUMP);
        assert_eq!(arrivals.missing_between(first, last), 2);
        assert!(arrivals.has_open_gap());
        assert_eq!(arrivals.condemn_rest(), 1);
        assert!(!arrivals.has_open_gap());
    }
}
