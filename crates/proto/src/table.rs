//! A table with stable small handles: look a key up once, then go by [`Slot`].

use alloc::vec::Vec;
use core::hash::Hash;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Handle of an entry of a [`Table`]. Reused after the entry is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// Entries by key and by [`Slot`], both O(1). The hash is keyed by a seed, so that a stranger who chooses
/// keys cannot choose collisions; iteration is in slot order, so that it replays.
#[derive(Debug)]
pub struct Table<K, V> {
    slots: HashMap<K, Slot, FixedState>,
    entries: Vec<Option<(K, V)>>,
    free: Vec<Slot>,
}

impl<K: Hash + Eq + Copy, V> Table<K, V> {
    /// An empty table whose hash is keyed by `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: HashMap::with_hasher(FixedState::with_seed(seed)),
            entries: Vec::new(),
            free: Vec::new(),
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
    pub fn find(&self, key: &K) -> Option<Slot> {
        self.slots.get(key).copied()
    }

    /// The handle of `key`, whose value is made when there is none.
    pub fn find_or_insert(&mut self, key: K, make: impl FnOnce() -> V) -> Slot {
        if let Some(slot) = self.find(&key) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or(Slot(self.entries.len() as u32));
        if slot.0 as usize == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[slot.0 as usize] = Some((key, make()));
        self.slots.insert(key, slot);
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
        self.slots.remove(&key);
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

#[cfg(test)]
mod tests {
    use super::*;

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
