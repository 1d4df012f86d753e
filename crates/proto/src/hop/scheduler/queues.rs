use super::queue::Queue;
use crate::table::Slot;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The queues of a link by their slots, and the number of lists that name each slot. The slot of a closed queue is used again
/// only when no list names it: what a list says of a slot is never about the queue that took it over.
#[derive(Debug, Default)]
pub(super) struct Queues {
    queues: Vec<Option<Box<Queue>>>,
    free: Vec<Slot>,
    listed: Vec<u8>,
    open: usize,
}

impl Queues {
    /// Gives a queue a slot.
    pub(super) fn open(&mut self, queue: Queue) -> Slot {
        let slot = self.free.pop().unwrap_or(Slot(self.queues.len() as u32));
        if slot.0 as usize == self.queues.len() {
            self.queues.push(None);
            self.listed.push(0);
        }
        self.queues[slot.0 as usize] = Some(Box::new(queue));
        self.open += 1;
        slot
    }

    /// Takes a queue out of its slot.
    pub(super) fn close(&mut self, slot: Slot) -> Option<Box<Queue>> {
        let queue = self.queues.get_mut(slot.0 as usize)?.take()?;
        self.open -= 1;
        if self.listed[slot.0 as usize] == 0 {
            self.free.push(slot);
        }
        Some(queue)
    }

    /// One more list names `slot`.
    pub(super) fn list(&mut self, slot: Slot) {
        self.listed[slot.0 as usize] += 1;
    }

    /// A list names `slot` no longer.
    pub(super) fn unlist(&mut self, slot: Slot) {
        let listed = &mut self.listed[slot.0 as usize];
        *listed -= 1;
        if *listed == 0 && self.queues[slot.0 as usize].is_none() {
            self.free.push(slot);
        }
    }

    /// The queue at `slot`, if it is open.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&Queue> {
        self.queues.get(slot.0 as usize)?.as_deref()
    }

    /// The queue at `slot`, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Queue> {
        self.queues.get_mut(slot.0 as usize)?.as_deref_mut()
    }

    /// Those that are open.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().flatten().map(|queue| &**queue)
    }

    /// The number of those that are open.
    pub(super) fn open_count(&self) -> usize {
        self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::FlowId;

    fn queue(n: u8) -> Queue {
        Queue::new(FlowId([n; 16]), Slot(u32::from(n)), 1000)
    }

    #[test]
    fn the_slot_of_a_closed_queue_is_used_again_once_no_list_names_it() {
        let mut queues = Queues::default();
        let first = queues.open(queue(1));
        queues.list(first);
        queues.list(first);
        assert_eq!(queues.close(first).map(|queue| queue.owner()), Some(Slot(1)));
        assert!(queues.close(first).is_none() && queues.get(first).is_none());
        assert_ne!(queues.open(queue(2)), first);
        queues.unlist(first);
        assert_ne!(queues.open(queue(3)), first);
        queues.unlist(first);
        assert_eq!(queues.open(queue(4)), first);
        assert_eq!((queues.open_count(), queues.iter().count()), (3, 3));
    }
}
