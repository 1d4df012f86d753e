use crate::table::Slot;
use alloc::collections::VecDeque;

/// The list in which a queue waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// No list: the queue has nothing to send, or its own rate holds it.
    Out,
    /// The list of queues that had nothing to send for a round.
    Sparse,
    /// The list of queues in turn. A queue stays for a round after its last packet, so that a flow that sends one
    /// packet after the other is not sparse.
    InTurn,
}

/// The order of the queues with new data: those that had nothing to send for a round go next, once; then each has its turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    sparse: VecDeque<Slot>,
    ring: VecDeque<Slot>,
}

impl Turns {
    /// The queue whose turn it is.
    #[inline]
    pub(super) fn first(&self) -> Option<Slot> {
        self.sparse.front().or_else(|| self.ring.front()).copied()
    }

    /// Whether there is one queue and no other.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.ring.len() + self.sparse.len() == 1
    }

    /// A queue joins the end of a list.
    pub(super) fn join(&mut self, place: Place, slot: Slot) {
        match place {
            Place::Out => {}
            Place::Sparse => self.sparse.push_back(slot),
            Place::InTurn => self.ring.push_back(slot),
        }
    }

    /// The first queue has had its turn, and has the next one after all that are in turn.
    #[inline]
    pub(super) fn pass(&mut self) {
        match self.sparse.pop_front() {
            Some(slot) => self.ring.push_back(slot),
            None if self.ring.is_empty() => {}
            None => self.ring.rotate_left(1),
        }
    }

    /// The first queue leaves its list.
    pub(super) fn leave(&mut self) -> Option<Slot> {
        self.sparse.pop_front().or_else(|| self.ring.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_quiet_has_one_turn_before_the_others_and_then_one_among_them() {
        let mut turns = Turns::default();
        for (place, n) in [(Place::InTurn, 1), (Place::InTurn, 2), (Place::Sparse, 3)] {
            turns.join(place, Slot(n));
        }
        let order: [Option<Slot>; 5] = core::array::from_fn(|_| {
            let first = turns.first();
            turns.pass();
            first
        });
        assert_eq!(order, [3, 1, 2, 3, 1].map(|n| Some(Slot(n))));
    }

    #[test]
    fn the_first_queue_leaves_and_the_last_one_is_alone() {
        let mut turns = Turns::default();
        turns.join(Place::InTurn, Slot(1));
        turns.join(Place::Sparse, Slot(2));
        assert!(!turns.is_alone());
        assert_eq!(turns.leave(), Some(Slot(2)));
        assert!(turns.is_alone());
        assert_eq!((turns.leave(), turns.leave(), turns.first()), (Some(Slot(1)), None, None));
    }
}
