use super::ledger::cost;
use super::openings::Misses;
use crate::table::Slot;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;

/// A stranger that has not repeated its token by then is forgotten where there are many: on a silent path a Consumer
/// repeats a request after 600 ms at most.
const TIME: Duration = Duration::from_secs(2);

/// Strangers may have this part of the memory: one divided by the number.
const SHARE: u64 = 8;

/// Hops of neighbours that have not shown that they receive at their address. Anybody can use such an address: all of them share one
/// bound of names that were not found, and nothing is kept of more than fit into their part of the memory.
#[derive(Debug)]
pub(super) struct Strangers {
    /// The one heard first is the first.
    hops: VecDeque<Slot>,
    most: usize,
    /// Names that they asked for and that were not found.
    pub(super) misses: Misses,
}

impl Strangers {
    /// No strangers, who may have their part of `memory` bytes.
    pub(super) fn new(memory: u64) -> Self {
        let most = (memory / cost::NEIGHBOUR / SHARE).max(1) as usize;
        Self { hops: VecDeque::new(), most, misses: Misses::default() }
    }

    /// Whether there are as many as may be kept: then an Interest without its token makes no state.
    pub(super) fn is_full(&self) -> bool {
        self.hops.len() >= self.most
    }

    /// A stranger was heard for the first time.
    pub(super) fn add(&mut self, hop: Slot) {
        self.hops.push_back(hop);
    }

    /// A hop is no stranger's any more, or is forgotten.
    pub(super) fn remove(&mut self, hop: Slot) {
        self.hops.retain(|stranger| *stranger != hop);
    }

    /// The stranger that was heard first, if there are many and its time to show that it receives is over; `last_heard` tells when a
    /// hop was heard last.
    pub(super) fn take_forgettable(
        &mut self,
        now: Instant,
        last_heard: impl Fn(Slot) -> Option<Instant>,
    ) -> Option<Slot> {
        let first = *self.hops.front()?;
        if self.hops.len() < self.most / 2 || last_heard(first).is_some_and(|at| now.since(at) < TIME) {
            return None;
        }
        self.hops.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Room for four, of which the first were heard at 0, 100, … ms.
    fn strangers(count: u32) -> Strangers {
        let mut strangers = Strangers::new(4 * SHARE * cost::NEIGHBOUR);
        (0..count).for_each(|n| strangers.add(Slot(n)));
        strangers
    }

    fn heard(hop: Slot) -> Option<Instant> {
        Some(at(100 * u64::from(hop.0)))
    }

    #[test]
    fn where_strangers_are_many_the_first_is_forgotten_once_its_time_is_over() {
        let mut few = strangers(1);
        assert_eq!(few.take_forgettable(at(9000), heard), None);
        let mut many = strangers(3);
        assert_eq!(many.take_forgettable(at(1999), heard), None);
        assert_eq!(many.take_forgettable(at(2000), heard), Some(Slot(0)));
        assert_eq!(many.take_forgettable(at(2000), heard), None, "the next one has time");
        assert_eq!(many.take_forgettable(at(2000), |_| None), Some(Slot(1)), "of a hop that is no more");
    }

    #[test]
    fn one_that_has_shown_that_it_receives_makes_room_for_another() {
        let mut strangers = strangers(4);
        assert!(strangers.is_full());
        strangers.remove(Slot(2));
        assert!(!strangers.is_full());
    }

    #[test]
    fn the_smallest_memory_has_room_for_one() {
        let mut strangers = Strangers::new(0);
        assert!(!strangers.is_full());
        strangers.add(Slot(1));
        assert!(strangers.is_full());
    }
}
