//! A table with stable small handles: look a key up once, then go by [`Slot`].

use crate::rng::Rng;
use alloc::vec::Vec;
use core::cell::Cell;
use core::hash::Hash;
use core::hash::{BuildHasher, Hasher};
use foldhash::fast::{FixedState, FoldHasher};
use hashbrown::HashTable;

/// Handle of an entry of a [`Table`]. Reused after the entry is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// Entries by key and by [`Slot`], both O(1). The hash is keyed by a seed, so that a stranger who chooses keys
/// cannot choose collisions; iteration is in slot order, so that it replays.
#[derive(Debug)]
pub struct Table<K, V> {
    /// By the hash of the key, which only `entries` holds: what was removed leaves some ten bytes behind.
    slots: HashTable<Slot>,
    hasher: Keyed,
    entries: Vec<Option<(K, V)>>,
    free: Vec<Slot>,
    /// The entry that was found last. Packets come in runs: mostly the next look-up is for it, and needs no hash.
    last: Cell<Slot>,
}

/// foldhash, behind a mask that is drawn from the seed.
///
/// foldhash multiplies one half of its input with the other, each combined with a constant; the seed enters one
/// half only. An attacker who makes the other half equal to its constant makes the product zero, and all such keys
/// collide under any seed. A mask on both halves leaves nothing to aim at.
#[derive(Clone, Debug)]
struct Keyed {
    state: FixedState,
    mask: [u64; 2],
}

impl Keyed {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self { state: FixedState::with_seed(rng.next_u64()), mask: [rng.next_u64(), rng.next_u64()] }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Masked;

    #[inline]
    fn build_hasher(&self) -> Masked {
        Masked { inner: self.state.build_hasher(), mask: self.mask }
    }
}

struct Masked {
    inner: FoldHasher<'static>,
    mask: [u64; 2],
}

impl Hasher for Masked {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(16) {
            let mut block = [0; 16];
            block[..chunk.len()].copy_from_slice(chunk);
            let mask = u128::from(self.mask[0]) << 64 | u128::from(self.mask[1]);
            self.inner.write_u128(u128::from_le_bytes(block) ^ mask);
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.inner.write_u8(value ^ self.mask[0] as u8);
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.inner.write_u16(value ^ self.mask[0] as u16);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.inner.write_u32(value ^ self.mask[0] as u32);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.inner.write_u64(value ^ self.mask[0]);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.inner.write_u64(value as u64 ^ self.mask[1]);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.inner.finish()
    }
}

impl<K: Hash + Eq + Copy, V> Table<K, V> {
    /// An empty table whose hash is keyed by `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: HashTable::new(),
            hasher: Keyed::new(seed),
            entries: Vec::new(),
            free: Vec::new(),
            last: Cell::new(Slot(0)),
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The handle of `key`.
    #[inline]
    pub fn find(&self, key: &K) -> Option<Slot> {
        if self.key(self.last.get()) == Some(key) {
            return Some(self.last.get());
        }
        let slot = self.slots.find(self.hasher.hash_one(key), |slot| self.key(*slot) == Some(key)).copied();
        slot.inspect(|slot| self.last.set(*slot))
    }

    /// The handle of `key`, whose value is made if there is none.
    pub fn find_or_insert(&mut self, key: K, make: impl FnOnce() -> V) -> Slot {
        if let Some(slot) = self.find(&key) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or(Slot(self.entries.len() as u32));
        if slot.0 as usize == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[slot.0 as usize] = Some((key, make()));
        let Self { slots, hasher, entries, .. } = self;
        slots.insert_unique(hasher.hash_one(key), slot, |slot| hash_at(hasher, entries, *slot));
        slot
    }

    /// The value at `slot`.
    pub fn get(&self, slot: Slot) -> Option<&V> {
        self.entries.get(slot.0 as usize)?.as_ref().map(|(_, value)| value)
    }

    /// The value at `slot`, to change it.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut V> {
        self.entries.get_mut(slot.0 as usize)?.as_mut().map(|(_, value)| value)
    }

    /// The key at `slot`.
    pub fn key(&self, slot: Slot) -> Option<&K> {
        self.entries.get(slot.0 as usize)?.as_ref().map(|(key, _)| key)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, slot: Slot) -> Option<V> {
        let (key, value) = self.entries.get_mut(slot.0 as usize)?.take()?;
        if let Ok(found) = self.slots.find_entry(self.hasher.hash_one(key), |other| *other == slot) {
            found.remove();
        }
        self.free.push(slot);
        Some(value)
    }

    /// All entries in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &V)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(i, e)| e.as_ref().map(|(_, value)| (Slot(i as u32), value)))
    }

    /// All entries in slot order, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut V)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(i, e)| e.as_mut().map(|(_, value)| (Slot(i as u32), value)))
    }
}

/// The hash of the key at `slot`.
fn hash_at<K: Hash, V>(hasher: &Keyed, entries: &[Option<(K, V)>], slot: Slot) -> u64 {
    entries.get(slot.0 as usize).and_then(Option::as_ref).map_or(0, |(key, _)| hasher.hash_one(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// foldhash's constants (its ARBITRARY6 and 7), with which it combines the second half of 16 bytes.
    const FOLDED_WITH: [u64; 2] = [0xc0ac_29b7_c97c_50dd, 0x3f84_d5b5_b547_0917];

    /// Names that all hash to the same value in foldhash, under any seed.
    fn aimed_at_foldhash(constant: u64) -> impl Iterator<Item = crate::name::FlowId> {
        (0..2000u64).map(move |n| {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&n.to_le_bytes());
            name[8..].copy_from_slice(&constant.to_le_bytes());
            crate::name::FlowId(name)
        })
    }

    fn distinct_hashes(state: &impl BuildHasher, constant: u64) -> usize {
        let hashes: alloc::collections::BTreeSet<u64> =
            aimed_at_foldhash(constant).map(|name| state.hash_one(name)).collect();
        hashes.len()
    }

    #[test]
    fn names_made_to_collide_do_not() {
        for seed in 0..20 {
            let bare = FOLDED_WITH.map(|constant| distinct_hashes(&FixedState::with_seed(seed), constant));
            assert!(bare.contains(&1), "the attack works on foldhash as it is: {bare:?}");
            let ours = FOLDED_WITH.map(|constant| distinct_hashes(&Keyed::new(seed), constant));
            assert_eq!(ours, [2000; 2], "and not here");
        }
    }

    #[test]
    fn a_slot_is_reused_and_the_old_key_is_gone() {
        let mut table = Table::new(1);
        let a = table.find_or_insert("a", || 1);
        assert_eq!(table.find_or_insert("a", || 2), a);
        assert_eq!(table.remove(a), Some(1));
        assert_eq!(table.find_or_insert("b", || 3), a);
        assert_eq!((table.find(&"a"), table.get(a), table.key(a)), (None, Some(&3), Some(&"b")));
    }
}
