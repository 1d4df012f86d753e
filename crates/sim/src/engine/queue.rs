//! The total order of events.

use starhop_proto::time::Instant;

/// The cause of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The packet in front of a link's line of packets under way.
    Link(u32),
    /// The timer of a host.
    Timer(u32),
    /// A packet that keeps no order.
    Stray(u32),
}

/// An event: its time, then its sequence number, then its source, packed so that one comparison orders two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u128);

const SEQUENCE_BITS: u32 = 40;
const SOURCE_BITS: u32 = 24;
const INDEX_BITS: u32 = 22;

impl Key {
    /// Sequence numbers are unique below 2^40, a trillion events; indices stay below 2^22.
    pub(crate) fn new(at: Instant, sequence: u64, source: Source) -> Self {
        debug_assert!(sequence >> SEQUENCE_BITS == 0, "more than a trillion events");
        let (kind, index) = match source {
            Source::Link(index) => (0, index),
            Source::Timer(index) => (1, index),
            Source::Stray(index) => (2, index),
        };
        debug_assert!(index >> INDEX_BITS == 0, "more than four million sources");
        let low = (sequence << SOURCE_BITS) | (kind << INDEX_BITS) | u64::from(index);
        Self((u128::from(at.as_nanos()) << 64) | u128::from(low))
    }

    pub(crate) fn at(self) -> Instant {
        Instant::from_nanos((self.0 >> 64) as u64)
    }

    pub(crate) fn source(self) -> Source {
        let low = self.0 as u32;
        let index = low & ((1 << INDEX_BITS) - 1);
        match (low >> INDEX_BITS) & 3 {
            0 => Source::Link(index),
            1 => Source::Timer(index),
            _ => Source::Stray(index),
        }
    }
}

/// A 4-ary heap. It holds one key per busy link and host, not one per packet, so it stays in the first-level
/// cache and a few comparisons deep.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: Vec<Key>,
}

const ARITY: usize = 4;

impl EventQueue {
    pub(crate) fn first(&self) -> Option<Key> {
        self.heap.first().copied()
    }

    pub(crate) fn push(&mut self, key: Key) {
        self.heap.push(key);
        let mut child = self.heap.len() - 1;
        while child > 0 {
            let parent = (child - 1) / ARITY;
            if self.heap[parent] <= key {
                break;
            }
            self.heap[child] = self.heap[parent];
            child = parent;
        }
        self.heap[child] = key;
    }

    /// Takes the first key out.
    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sink(last);
        }
    }

    /// Takes the first key out and puts another in: half the work of doing both.
    pub(crate) fn replace_first(&mut self, key: Key) {
        self.sink(key);
    }

    fn sink(&mut self, key: Key) {
        let heap = &mut self.heap[..];
        let mut parent = 0;
        loop {
            let from = parent * ARITY + 1;
            let children = heap.get(from..).unwrap_or_default();
            let least = match children.first_chunk::<ARITY>() {
                Some(all) => Some(least_of_all(all)),
                None => least_of(children),
            };
            let Some((offset, least)) = least else { break };
            if key <= least {
                break;
            }
            heap[parent] = least;
            parent = from + offset;
        }
        heap[parent] = key;
    }
}

/// A knock-out: no processor can predict which key is least, and this needs no branch.
fn least_of_all(&[a, b, c, d]: &[Key; ARITY]) -> (usize, Key) {
    let left = if b < a { (1, b) } else { (0, a) };
    let right = if d < c { (3, d) } else { (2, c) };
    if right.1 < left.1 { right } else { left }
}

fn least_of(keys: &[Key]) -> Option<(usize, Key)> {
    let mut least = (0, *keys.first()?);
    for (offset, &key) in keys.iter().enumerate().skip(1) {
        if key < least.1 {
            least = (offset, key);
        }
    }
    Some(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::rng::Rng;

    #[test]
    fn a_key_gives_back_what_went_in() {
        let at = Instant::from_nanos(u64::MAX - 3);
        for source in [Source::Link(7), Source::Timer((1 << 22) - 1), Source::Stray(0)] {
            let key = Key::new(at, (1 << 40) - 1, source);
            assert_eq!((key.at(), key.source()), (at, source));
        }
    }

    #[test]
    fn events_come_out_by_time_and_then_in_the_order_they_were_made() {
        let (mut queue, mut rng, mut expected) = (EventQueue::default(), Rng::new(1), Vec::new());
        for sequence in 0..10_000 {
            let key = Key::new(Instant::from_nanos(rng.below(500)), sequence, Source::Link(0));
            queue.push(key);
            expected.push(key);
        }
        expected.sort();
        for key in expected {
            assert_eq!(queue.first(), Some(key));
            queue.pop();
        }
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn replacing_the_first_is_popping_and_pushing() {
        let (mut one, mut two, mut rng) = (EventQueue::default(), EventQueue::default(), Rng::new(2));
        for sequence in 0..50 {
            let key = Key::new(Instant::from_nanos(rng.below(100)), sequence, Source::Link(0));
            one.push(key);
            two.push(key);
        }
        for sequence in 50..5_000 {
            let after = one.first().map_or(Instant::ZERO, Key::at).as_nanos() + rng.below(100);
            let key = Key::new(Instant::from_nanos(after), sequence, Source::Link(0));
            one.replace_first(key);
            two.pop();
            two.push(key);
            assert_eq!(one.first(), two.first());
        }
    }
}
