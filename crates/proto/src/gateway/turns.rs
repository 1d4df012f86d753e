use super::StreamId;
use alloc::collections::{BTreeMap, VecDeque};

/// Bytes that a stream of weight 1 may send per turn: about one packet.
const QUANTUM: i64 = 1350;

/// Whose bytes go next: streams in turn by bytes and weight, and those that had nothing to send until now before the others
/// (deficit round robin with two lists, RFC 8290 section 4.2). A short exchange does not wait behind a long transfer.
#[derive(Debug, Default)]
pub(super) struct Turns {
    fresh: VecDeque<StreamId>,
    busy: VecDeque<StreamId>,
    /// Of each stream that is in a list.
    shares: BTreeMap<StreamId, Share>,
    /// The sum of the weights of these.
    weight: u32,
}

#[derive(Debug)]
struct Share {
    /// Bytes left in its turn.
    left: i64,
    /// Bytes of a turn.
    quantum: i64,
    weight: u8,
}

impl Turns {
    /// A stream of this weight has something to send.
    pub(super) fn add(&mut self, stream: StreamId, weight: u8) {
        self.shares.entry(stream).or_insert_with(|| {
            self.fresh.push_back(stream);
            let weight = weight.max(1);
            self.weight += u32::from(weight);
            let quantum = QUANTUM * i64::from(weight);
            Share { left: quantum, quantum, weight }
        });
    }

    /// The stream whose turn it is: it may send one packet, which is charged to it afterwards.
    pub(super) fn next(&mut self) -> Option<StreamId> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh { &mut self.fresh } else { &mut self.busy };
            let stream = *list.front()?;
            let Some(share) = self.shares.get_mut(&stream) else {
                list.pop_front();
                continue;
            };
            if share.left > 0 {
                return Some(stream);
            }
            share.left += share.quantum;
            list.pop_front();
            self.busy.push_back(stream);
        }
    }

    /// The stream whose turn it is sent `bytes`; `is_done` says that it has no more to send.
    pub(super) fn on_sent(&mut self, stream: StreamId, bytes: usize, is_done: bool) {
        if is_done {
            self.remove(stream);
        } else if let Some(share) = self.shares.get_mut(&stream) {
            share.left -= bytes as i64;
        }
    }

    /// A stream has nothing more to send. The list drops it when its turn comes.
    pub(super) fn remove(&mut self, stream: StreamId) {
        let share = self.shares.remove(&stream);
        self.weight -= share.map_or(0, |share| u32::from(share.weight));
        for list in [&mut self.fresh, &mut self.busy] {
            if list.front() == Some(&stream) {
                list.pop_front();
            } else if let Some(place) = list.iter().position(|other| *other == stream) {
                list.remove(place);
            }
        }
    }

    /// The sum of the weights of streams that have something to send.
    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    /// Whether no stream has anything to send.
    pub(super) fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn stream(number: u64) -> StreamId {
        StreamId { peer: 0, session: 1, ours: true, number }
    }

    #[test]
    fn streams_share_by_bytes() {
        let mut turns = Turns::default();
        let mut sent = [0; 3];
        (0..3).for_each(|number| turns.add(stream(number), 1));
        for _ in 0..3_000 {
            let next = turns.next().unwrap();
            // The third sends in small pieces.
            let bytes = if next.number == 2 { 100 } else { 1_300 };
            sent[next.number as usize] += bytes;
            turns.on_sent(next, bytes, false);
        }
        let most = *sent.iter().max().unwrap();
        assert!(sent.iter().all(|bytes| most - bytes <= 2_700), "{sent:?}");
    }

    #[test]
    fn streams_share_by_weight() {
        let mut turns = Turns::default();
        let mut sent = [0; 3];
        (0..3).for_each(|number| turns.add(stream(number), [1, 4, 10][number as usize]));
        for _ in 0..15_000 {
            let next = turns.next().unwrap();
            sent[next.number as usize] += 1_300;
            turns.on_sent(next, 1_300, false);
        }
        let of_first = [1, 4, 10].map(|weight| weight * sent[0]);
        let are_near = sent.iter().zip(of_first).all(|(sent, fair)| i64::abs(sent - fair) <= fair / 50);
        assert!(are_near, "{sent:?}");
    }

    #[test]
    fn who_had_nothing_to_send_goes_before_who_always_has() {
        let mut turns = Turns::default();
        turns.add(stream(0), 1);
        for _ in 0..10 {
            let next = turns.next().unwrap();
            turns.on_sent(next, 1_300, false);
        }
        turns.add(stream(1), 1);
        assert_eq!(turns.next(), Some(stream(1)));
        turns.on_sent(stream(1), 1, true);
        let order: Vec<u64> = (0..3).filter_map(|_| turns.next().map(|next| next.number)).collect();
        assert_eq!(order, [0, 0, 0]);
    }
}
