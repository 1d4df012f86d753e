use super::header::{Algorithm, SealHeader};
use super::{Keyring, SealKey, SenderId};
use crate::table::{Slot, Table};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The sending side: one dense counter per neighbour and epoch, under a key of its own.
pub(super) struct Outgoing<K> {
    boot: u64,
    epoch: u64,
    links: Table<SocketAddr, Link<K>>,
    /// Never goes back: a number stands for one neighbour, once, as long as the boot id is the same.
    next_number: u16,
    seed: u64,
    limit: usize,
    /// Where the last packet went.
    last: Option<(SocketAddr, Slot)>,
}

struct Link<K> {
    number: u16,
    epoch: u64,
    counter: u32,
    key: Option<(Algorithm, u8, K)>,
}

impl<K: SealKey> Outgoing<K> {
    pub(super) fn new(boot: u64, limit: usize, seed: u64) -> Self {
        Self { boot, epoch: 0, links: Table::new(seed), next_number: 0, seed, limit, last: None }
    }

    /// Forgets every key, but no counter.
    pub(super) fn forget_keys(&mut self) {
        self.links.iter_mut().for_each(|(_, link)| link.key = None);
    }

    pub(super) fn seal<R: Keyring<Key = K>>(
        &mut self,
        keys: &mut R,
        epoch: u64,
        to: SocketAddr,
        out: &mut Vec<u8>,
        start: usize,
    ) -> bool {
        let Some(slot) = self.ready(keys, epoch, to) else { return false };
        let Some(link) = self.links.get_mut(slot) else { return false };
        let Some((algorithm, hint, key)) = &link.key else { return false };
        let header = SealHeader {
            algorithm: *algorithm,
            hint: *hint,
            sender: SenderId { boot: self.boot, link: link.number },
            epoch: epoch as u16,
            counter: link.counter,
        };
        // Counted before it is used: whatever happens next, this nonce is spent.
        link.counter += 1;
        let bytes = header.emit();
        let body = start + super::HEADER_LEN;
        if out.len() <= body {
            return false;
        }
        out[start..body].copy_from_slice(&bytes);
        key.seal(header.nonce(), &bytes, out, body)
    }

    /// The link to `to`, with a counter to spend and a key in place. Packets to one neighbour come in runs, so that
    /// most need no look-up.
    #[inline]
    fn ready<R: Keyring<Key = K>>(&mut self, keys: &mut R, epoch: u64, to: SocketAddr) -> Option<Slot> {
        if let Some((_, slot)) = self.last.filter(|&(last, _)| last == to && epoch == self.epoch)
            && let Some(link) = self.links.get(slot)
            && link.epoch == epoch
            && link.counter < SealHeader::COUNTER_END
            && link.key.is_some()
        {
            return Some(slot);
        }
        let slot = self.prepare(keys, epoch, to)?;
        self.last = Some((to, slot));
        Some(slot)
    }

    fn prepare<R: Keyring<Key = K>>(&mut self, keys: &mut R, epoch: u64, to: SocketAddr) -> Option<Slot> {
        if epoch < self.epoch || (self.links.find(&to).is_none() && self.links.len() >= self.limit) {
            // The clock went back, or neighbours came and went without end: a sender that nobody knows begins.
            self.restart(keys);
        }
        self.epoch = epoch;
        let number = match self.links.find(&to).and_then(|slot| self.links.get(slot)) {
            Some(link) if link.epoch != epoch || link.counter < SealHeader::COUNTER_END => link.number,
            // New, or this epoch's counters are spent: the next number has all of them still.
            _ => self.take_number(keys, to),
        };
        let boot = self.boot;
        let slot = self.links.find_or_insert(to, || Link { number, epoch, counter: 0, key: None });
        let link = self.links.get_mut(slot)?;
        if link.number != number || link.epoch != epoch {
            *link = Link { number, epoch, counter: 0, key: None };
        }
        let sender = SenderId { boot, link: number };
        if link.key.is_none() {
            link.key = Some(keys.sealing(to, sender, epoch)?);
        }
        Some(slot)
    }

    fn take_number<R: Keyring<Key = K>>(&mut self, keys: &mut R, to: SocketAddr) -> u16 {
        if self.next_number == u16::MAX {
            self.restart(keys);
        } else if let Some(slot) = self.links.find(&to) {
            self.links.remove(slot);
            self.last = None;
        }
        self.next_number += 1;
        self.next_number
    }

    fn restart<R: Keyring<Key = K>>(&mut self, keys: &mut R) {
        self.boot = keys.boot_id();
        self.links = Table::new(self.seed);
        self.last = None;
        self.next_number = 0;
    }
}
