//! The cache of a relay, which is also the room for data in transit.
//!
//! Data lies in blocks of 4096 bytes (LEOTP section IV.A), found by (flow, block number) in O(1) and evicted
//! least recently used first. The memory is bounded by configuration and, once used, never given back.
//!
//! Written bytes wait to be read, that is, sent. [`Cache::make_room`] evicts no block with bytes that nobody has read
//! and whose owner says that it is waited for: rather the new bytes find no place. [`Cache::insert`] by itself passes
//! such a block over once. So bytes that were sent make room for those in transit.

mod block;

use crate::name::{ByteRange, FlowId};
use crate::table::{Slot, Table};
use alloc::boxed::Box;
use alloc::vec::Vec;
use block::Bytes;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// Blocks that [`Cache::make_room`] looks at for each that it needs, so that a full cache costs little per packet. The blocks that
/// it passes over have their next turn last: the next call looks at others.
const LOOKS: usize = 16;

const NONE: Slot = Slot(u32::MAX);

struct Block {
    bytes: Box<[u8; BLOCK as usize]>,
    /// Which of the bytes were written. Set after the bytes are in place, never before.
    valid: Bytes,
    /// The valid bytes were verified.
    is_verified: bool,
    /// Those that nobody has read since they were written; none once the block was passed over for them.
    unread: Bytes,
    newer: Slot,
    older: Slot,
}

/// Bytes of flows by name.
pub struct Cache {
    blocks: Table<(FlowId, u64), Block>,
    /// Memory of evicted blocks, to be used again.
    spare: Vec<Box<[u8; BLOCK as usize]>>,
    newest: Slot,
    oldest: Slot,
    capacity: usize,
    /// Blocks with bytes that nobody has read.
    unread: usize,
    /// The block written last and the one read last: packets are shorter than blocks and come in order, so
    /// two look-ups of three end here.
    last_written: Option<((FlowId, u64), Slot)>,
    last_read: Option<((FlowId, u64), Slot)>,
}

impl Cache {
    /// A cache of at most `bytes` (at least one block), with a hash keyed by `seed`.
    pub fn new(bytes: u64, seed: u64) -> Self {
        let capacity = (bytes / BLOCK).max(1) as usize;
        Self {
            blocks: Table::new(seed),
            spare: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity,
            unread: 0,
            last_written: None,
            last_read: None,
        }
    }

    /// Bytes of memory in use for blocks.
    pub fn used_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    /// Bytes of memory for blocks, used or not.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity as u64 * BLOCK
    }

    /// Bytes of memory in use for blocks with bytes that nobody has read.
    pub fn unread_bytes(&self) -> u64 {
        self.unread as u64 * BLOCK
    }

    /// Sees to it that [`Cache::insert`] of `range` evicts nothing. False if too many blocks are waited for: `is_awaited`
    /// tells of a block's bytes whether somebody is to read them.
    pub fn make_room(
        &mut self,
        flow: FlowId,
        range: ByteRange,
        is_awaited: impl Fn(FlowId, ByteRange) -> bool,
    ) -> bool {
        let mut missing = 0;
        for number in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            match self.blocks.find(&(flow, number)) {
                Some(slot) => self.touch(slot),
                None => missing += 1,
            }
        }
        let mut looks = missing * LOOKS;
        while self.blocks.len() + missing > self.capacity {
            let Some(oldest) = self.blocks.get(self.oldest).filter(|_| looks > 0) else { return false };
            looks -= 1;
            let is_kept = !oldest.unread.is_empty()
                && self
                    .blocks
                    .key(self.oldest)
                    .is_some_and(|&(flow, number)| is_awaited(flow, ByteRange::at(number * BLOCK, BLOCK)));
            if is_kept { self.touch(self.oldest) } else { self.evict(self.oldest) }
        }
        true
    }

    /// Keeps `bytes`, which start at `offset` of `flow`. Bytes that are there already stay: first writer wins.
    pub fn insert(&mut self, flow: FlowId, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let within = (at % BLOCK) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(BLOCK as usize - within));
            let slot = self.block_for((flow, at / BLOCK));
            if let Some(block) = self.blocks.get_mut(slot) {
                let end = within + piece.len();
                if !block.valid.contains(within, end) {
                    block.is_verified = false;
                    block.valid.write(&mut block.bytes[..], within, piece);
                    self.unread += usize::from(block.unread.is_empty());
                    block.unread.mark(within, end);
                }
            }
            at += piece.len() as u64;
            rest = tail;
        }
    }

    /// Adds to `found` which parts of `range` are here, ascending.
    pub fn find(&self, flow: FlowId, range: ByteRange, found: &mut Vec<ByteRange>) {
        for number in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            let Some(block) = self.blocks.find(&(flow, number)).and_then(|slot| self.blocks.get(slot)) else {
                continue;
            };
            for (start, end) in block.valid.iter() {
                let part = ByteRange::new(number * BLOCK + start as u64, number * BLOCK + end as u64)
                    .intersect(range);
                match found.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ if part.is_empty() => {}
                    _ => found.push(part),
                }
            }
        }
    }

    /// Appends the bytes of `range` to `out`; false, and nothing appended, when some of them are not here.
    pub fn read(&mut self, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        let start_len = out.len();
        let mut at = range.start;
        while at < range.end {
            let within = (at % BLOCK) as usize;
            let len = (range.end - at).min(BLOCK - within as u64) as usize;
            let key = (flow, at / BLOCK);
            let slot = match self.last_read {
                Some((last, slot)) if last == key => Some(slot),
                _ => self.blocks.find(&key),
            };
            self.last_read = slot.map(|slot| (key, slot));
            let block = slot.and_then(|slot| self.blocks.get_mut(slot));
            let Some(block) = block.filter(|block| block.valid.contains(within, within + len)) else {
                out.truncate(start_len);
                return false;
            };
            out.extend_from_slice(&block.bytes[within..within + len]);
            if !block.unread.is_empty() {
                block.unread.remove(within, within + len);
                self.unread -= usize::from(block.unread.is_empty());
            }
            at += len as u64;
            if let Some(slot) = slot {
                self.touch(slot);
            }
        }
        true
    }

    /// Notes that the bytes of `range`, whose blocks hold no others, are true.
    pub fn mark_verified(&mut self, flow: FlowId, range: ByteRange) {
        for number in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            let slot = self.blocks.find(&(flow, number));
            if let Some(block) = slot.and_then(|slot| self.blocks.get_mut(slot)) {
                block.is_verified = true;
            }
        }
    }

    /// Whether all blocks of `range` are here and were marked, and nothing was added to them since.
    pub fn is_verified(&self, flow: FlowId, range: ByteRange) -> bool {
        (range.start / BLOCK..range.end.div_ceil(BLOCK)).all(|number| {
            let slot = self.blocks.find(&(flow, number));
            slot.and_then(|slot| self.blocks.get(slot)).is_some_and(|block| block.is_verified)
        })
    }

    /// Forgets the bytes of `range`.
    pub fn remove(&mut self, flow: FlowId, range: ByteRange) {
        for number in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            let Some(slot) = self.blocks.find(&(flow, number)) else { continue };
            let Some(block) = self.blocks.get_mut(slot) else { continue };
            let part = range.intersect(ByteRange::at(number * BLOCK, BLOCK));
            block.valid.remove((part.start % BLOCK) as usize, ((part.end - 1) % BLOCK) as usize + 1);
            if block.valid.is_empty() {
                self.evict(slot);
            }
        }
    }

    fn block_for(&mut self, key: (FlowId, u64)) -> Slot {
        if let Some((last, slot)) = self.last_written
            && last == key
        {
            self.touch(slot);
            return slot;
        }
        let slot = self.find_or_make(key);
        self.last_written = Some((key, slot));
        slot
    }

    fn find_or_make(&mut self, key: (FlowId, u64)) -> Slot {
        if let Some(slot) = self.blocks.find(&key) {
            self.touch(slot);
            return slot;
        }
        if self.blocks.len() == self.capacity {
            self.evict_oldest();
        }
        let spare = &mut self.spare;
        let slot = self.blocks.find_or_insert(key, || Block {
            bytes: spare.pop().unwrap_or_else(|| Box::new([0; BLOCK as usize])),
            valid: Bytes::default(),
            is_verified: false,
            unread: Bytes::default(),
            newer: NONE,
            older: NONE,
        });
        self.link_newest(slot);
        slot
    }

    fn touch(&mut self, slot: Slot) {
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    /// Evicts the oldest block, but those that are passed over. Each write lets a block be passed over once.
    fn evict_oldest(&mut self) {
        while let Some(oldest) = self.blocks.get_mut(self.oldest).filter(|oldest| !oldest.unread.is_empty()) {
            oldest.unread = Bytes::default();
            self.unread -= 1;
            self.touch(self.oldest);
        }
        self.evict(self.oldest);
    }

    fn evict(&mut self, slot: Slot) {
        self.unlink(slot);
        self.last_written = self.last_written.filter(|&(_, last)| last != slot);
        self.last_read = self.last_read.filter(|&(_, last)| last != slot);
        if let Some(block) = self.blocks.remove(slot) {
            self.unread -= usize::from(!block.unread.is_empty());
            self.spare.push(block.bytes);
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Some(block) = self.blocks.get(slot) else { return };
        let (newer, older) = (block.newer, block.older);
        match self.blocks.get_mut(newer) {
            Some(block) => block.older = older,
            None => self.newest = older,
        }
        match self.blocks.get_mut(older) {
            Some(block) => block.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, slot: Slot) {
        let before = self.newest;
        if let Some(block) = self.blocks.get_mut(slot) {
            block.newer = NONE;
            block.older = before;
        }
        match self.blocks.get_mut(before) {
            Some(block) => block.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const FLOW: FlowId = FlowId([1; 16]);

    #[test]
    fn bytes_never_written_are_never_read() {
        let mut cache = Cache::new(1 << 20, 1);
        cache.insert(FLOW, 100, &[7; 50]);
        let mut out = Vec::new();
        assert!(!cache.read(FLOW, ByteRange::new(90, 150), &mut out));
        assert!(out.is_empty());
        assert!(cache.read(FLOW, ByteRange::new(100, 150), &mut out));
        assert_eq!(out, [7; 50]);
    }

    #[test]
    fn the_least_recently_used_block_goes_first_and_memory_is_bounded() {
        let mut cache = Cache::new(3 * BLOCK, 1);
        for number in 0..3 {
            cache.insert(FLOW, number * BLOCK, &[number as u8; 10]);
        }
        for number in [1, 2, 0] {
            assert!(
                cache.read(FLOW, ByteRange::at(number * BLOCK, 10), &mut Vec::new()),
                "block 0 is used last"
            );
        }
        cache.insert(FLOW, 3 * BLOCK, &[3; 10]);
        assert_eq!(cache.used_bytes(), 3 * BLOCK);
        let mut here = Vec::new();
        cache.find(FLOW, ByteRange::new(0, 4 * BLOCK), &mut here);
        assert_eq!(here.iter().map(|r| r.start / BLOCK).collect::<Vec<_>>(), [0, 2, 3]);
    }

    #[test]
    fn bytes_that_wait_to_be_sent_outlive_sent_ones_but_not_for_ever() {
        let mut cache = Cache::new(4 * BLOCK, 1);
        // Block 0 waits; of every later one, all bytes are read at once.
        cache.insert(FLOW, 0, &[1; 2_000]);
        assert!(cache.read(FLOW, ByteRange::new(0, 1_000), &mut Vec::new()), "half of it is sent");
        let mut lasted = 0;
        for number in 1..20 {
            cache.insert(FLOW, number * BLOCK, &[2; 1_000]);
            assert!(cache.read(FLOW, ByteRange::at(number * BLOCK, 1_000), &mut Vec::new()));
            let mut here = Vec::new();
            cache.find(FLOW, ByteRange::new(0, 2_000), &mut here);
            lasted = if here.is_empty() { lasted } else { number };
        }
        assert_eq!(lasted, 6, "twice as long as a sent block");
    }

    #[test]
    fn a_hole_that_was_filled_and_read_leaves_nothing_unread() {
        let mut cache = Cache::new(1 << 20, 1);
        let (first, lost, last) =
            (ByteRange::new(0, 1_350), ByteRange::new(1_350, 2_700), ByteRange::new(2_700, 4_050));
        for piece in [first, last, lost] {
            cache.insert(FLOW, piece.start, &[1; 1_350]);
            assert_eq!(cache.unread_bytes(), BLOCK);
            assert!(cache.read(FLOW, piece, &mut Vec::new()));
            assert_eq!(cache.unread_bytes(), 0, "{piece:?}");
        }
        cache.insert(FLOW, lost.start, &[1; 1_350]);
        assert_eq!(cache.unread_bytes(), 0, "a copy is nothing new");
    }

    #[test]
    fn what_is_waited_for_is_kept_and_new_bytes_find_no_place() {
        let mut cache = Cache::new(4 * BLOCK, 1);
        let awaited = |_, block: ByteRange| block.start / BLOCK != 2;
        for number in 0..4 {
            assert!(cache.make_room(FLOW, ByteRange::at(number * BLOCK, 1_000), awaited));
            cache.insert(FLOW, number * BLOCK, &[number as u8; 1_000]);
        }
        assert!(cache.read(FLOW, ByteRange::new(0, 1_000), &mut Vec::new()), "sent");
        assert_eq!(cache.unread_bytes(), 3 * BLOCK);
        let mut place = |number| {
            let has_place = cache.make_room(FLOW, ByteRange::at(number * BLOCK, 1_000), awaited);
            if has_place {
                cache.insert(FLOW, number * BLOCK, &[number as u8; 1_000]);
            }
            has_place
        };
        assert_eq!(
            [4, 5, 6, 7].map(&mut place),
            [true, true, false, false],
            "0 was sent, nobody waits for 2"
        );
        let mut here = Vec::new();
        cache.find(FLOW, ByteRange::new(0, 8 * BLOCK), &mut here);
        assert_eq!(here.iter().map(|r| r.start / BLOCK).collect::<Vec<_>>(), [1, 3, 4, 5]);
    }

    #[test]
    fn what_was_verified_counts_until_something_is_added() {
        let mut cache = Cache::new(1 << 20, 1);
        let group = ByteRange::new(0, 2 * BLOCK - 100);
        cache.insert(FLOW, 0, &[1; 2 * BLOCK as usize - 100]);
        assert!(!cache.is_verified(FLOW, group));
        cache.mark_verified(FLOW, group);
        cache.insert(FLOW, 10, &[2; 100]);
        assert!(cache.is_verified(FLOW, group), "nothing was written");
        assert!(!cache.is_verified(FLOW, ByteRange::at(0, 3 * BLOCK)));
        cache.insert(FLOW, group.end, &[2; 100]);
        assert!(!cache.is_verified(FLOW, group));
    }

    #[test]
    fn the_first_writer_wins() {
        let mut cache = Cache::new(1 << 20, 1);
        cache.insert(FLOW, 0, &[1; 10]);
        cache.insert(FLOW, 5, &[2; 10]);
        let mut out = Vec::new();
        assert!(cache.read(FLOW, ByteRange::new(0, 15), &mut out));
        assert_eq!(out, [&[1u8; 10][..], &[2; 5]].concat());
    }

    proptest! {
        /// A cache may forget, but the bytes that it returns were written there, and not removed since.
        #[test]
        fn a_cache_never_lies(ops in prop::collection::vec((0u8..3, 0u64..40_000, 1usize..6_000), 1..80)) {
            let mut cache = Cache::new(5 * BLOCK, 1);
            let mut written: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            for (step, (op, offset, len)) in ops.into_iter().enumerate() {
                let range = ByteRange::at(offset, len as u64);
                match op {
                    0 => {
                        let bytes: Vec<u8> = (0..len).map(|i| (step * 31 + i) as u8).collect();
                        cache.insert(FLOW, offset, &bytes);
                        for (i, &byte) in bytes.iter().enumerate() {
                            written.entry(offset + i as u64).or_default().push(byte);
                        }
                    }
                    1 => {
                        cache.remove(FLOW, range);
                        written.retain(|byte, _| !range.contains(ByteRange::at(*byte, 1)));
                    }
                    _ => {
                        let mut out = Vec::new();
                        if cache.read(FLOW, range, &mut out) {
                            for (i, byte) in out.iter().enumerate() {
                                let candidates = written.get(&(offset + i as u64));
                                prop_assert!(candidates.is_some_and(|bytes| bytes.contains(byte)));
                            }
                        }
                    }
                }
                prop_assert!(cache.used_bytes() <= 5 * BLOCK);
                let mut here = Vec::new();
                cache.find(FLOW, ByteRange::new(0, 50_000), &mut here);
                for range in here {
                    let mut out = Vec::new();
                    prop_assert!(cache.read(FLOW, range, &mut out));
                }
            }
        }
    }
}
