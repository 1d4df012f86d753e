use super::opening::Habit;
use crate::table::Slot;
use crate::time::Instant;
use alloc::vec::Vec;

/// A neighbour that flows are asked of.
#[derive(Clone, Copy, Debug, Default)]
struct Neighbour {
    flows: u32,
    habit: Habit,
}

/// The flows that are asked of each neighbour, by the slot of its hop: their number, and what they came to so far.
#[derive(Debug, Default)]
pub(super) struct Neighbours(Vec<Neighbour>);

impl Neighbours {
    /// One more flow is asked of a hop.
    pub(super) fn add_flow(&mut self, link: Slot) {
        let index = link.0 as usize;
        self.0.resize(self.0.len().max(index + 1), Neighbour::default());
        self.0[index].flows += 1;
    }

    /// One flow less is asked of a hop.
    pub(super) fn remove_flow(&mut self, link: Slot) {
        self.0[link.0 as usize].flows -= 1;
    }

    /// Flows that are asked of a hop.
    pub(super) fn flows(&self, link: Slot) -> u32 {
        self.0.get(link.0 as usize).map_or(0, |neighbour| neighbour.flows)
    }

    /// The bytes with which the newest flow of a hop begins.
    pub(super) fn first(&self, now: Instant, link: Slot) -> u64 {
        let Neighbour { flows, habit } = self.0[link.0 as usize];
        habit.first(now, flows)
    }

    /// A flow of a hop is complete; `bytes` asked for ahead turned out to fill its path.
    pub(super) fn note_habit(&mut self, now: Instant, link: Slot, bytes: u64) {
        let neighbour = &mut self.0[link.0 as usize];
        neighbour.habit.note(now, bytes, neighbour.flows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    #[test]
    fn flows_are_counted_by_their_hop() {
        let mut neighbours = Neighbours::default();
        [7, 2, 7].into_iter().for_each(|link| neighbours.add_flow(Slot(link)));
        neighbours.remove_flow(Slot(2));
        assert_eq!([2, 7, 99].map(|link| neighbours.flows(Slot(link))), [0, 2, 0]);
    }

    #[test]
    fn a_flow_begins_with_what_the_last_one_of_its_hop_and_no_other_came_to() {
        let mut neighbours = Neighbours::default();
        [0, 1].into_iter().for_each(|link| neighbours.add_flow(Slot(link)));
        let fresh = neighbours.first(NOW, Slot(1));
        neighbours.note_habit(NOW, Slot(0), 5_000_000);
        let later = NOW + Duration::from_secs(1);
        assert!(neighbours.first(later, Slot(0)) > fresh);
        assert_eq!(neighbours.first(later, Slot(1)), fresh);
    }
}
