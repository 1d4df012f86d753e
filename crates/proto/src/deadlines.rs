//! The next deadline of each of many things, the earliest first.

use crate::table::Slot;
use crate::time::Instant;
use alloc::vec::Vec;

const ABSENT: u32 = u32::MAX;

/// A binary heap of deadlines with at most one per [`Slot`], which can be moved: O(log n), no allocation once
/// it has grown. Ties go to the lower slot, so that runs replay.
#[derive(Debug, Default)]
pub struct Deadlines {
    heap: Vec<(Instant, Slot)>,
    /// Position of each slot in the heap.
    places: Vec<u32>,
}

impl Deadlines {
    /// The earliest deadline and whose it is.
    pub fn first(&self) -> Option<(Instant, Slot)> {
        self.heap.first().copied()
    }

    /// Whether `slot` has a deadline.
    pub fn has(&self, slot: Slot) -> bool {
        self.places.get(slot.0 as usize).is_some_and(|&place| place != ABSENT)
    }

    /// The earliest deadline, or [`Instant::NEVER`].
    pub fn next(&self) -> Instant {
        self.heap.first().map_or(Instant::NEVER, |&(at, _)| at)
    }

    /// Sets, moves or (with `None`) removes the deadline of `slot`.
    pub fn set(&mut self, slot: Slot, deadline: Option<Instant>) {
        let index = slot.0 as usize;
        if index >= self.places.len() {
            if deadline.is_none() {
                return;
            }
            self.places.resize(index + 1, ABSENT);
        }
        match (self.places[index], deadline) {
            (ABSENT, None) => {}
            (ABSENT, Some(at)) => {
                self.heap.push((at, slot));
                self.rise(self.heap.len() - 1);
            }
            (place, Some(at)) => {
                if self.heap[place as usize].0 == at {
                    return;
                }
                self.heap[place as usize].0 = at;
                self.settle(place as usize);
            }
            (place, None) => {
                self.heap.swap_remove(place as usize);
                self.places[index] = ABSENT;
                if (place as usize) < self.heap.len() {
                    self.settle(place as usize);
                }
            }
        }
    }

    fn settle(&mut self, place: usize) {
        let place = self.rise(place);
        self.sink(place);
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.heap.swap(place, (place - 1) / 2);
            self.places[self.heap[place].1.0 as usize] = place as u32;
            place = (place - 1) / 2;
        }
        self.places[self.heap[place].1.0 as usize] = place as u32;
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let child = 2 * place + 1;
            let Some(left) = self.heap.get(child) else { break };
            let child =
                if self.heap.get(child + 1).is_some_and(|right| right < left) { child + 1 } else { child };
            if self.heap[place] <= self.heap[child] {
                break;
            }
            self.heap.swap(place, child);
            self.places[self.heap[place].1.0 as usize] = place as u32;
            place = child;
        }
        self.places[self.heap[place].1.0 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_always_the_earliest_of_those_set(
            ops in prop::collection::vec((0u32..12, prop::option::of(0u64..50)), 0..200)
        ) {
            let mut deadlines = Deadlines::default();
            let mut model = BTreeMap::new();
            for (slot, at) in ops {
                let slot = Slot(slot);
                deadlines.set(slot, at.map(Instant::from_nanos));
                match at {
                    Some(at) => { model.insert(slot, Instant::from_nanos(at)); }
                    None => { model.remove(&slot); }
                }
                let expected = model.iter().map(|(&slot, &at)| (at, slot)).min();
                prop_assert_eq!(deadlines.first(), expected);
            }
        }
    }
}
