use super::binding::{Binding, Receiver};
use super::header::{Direction, SealHeader};
use super::{Keyring, SealKey, Sealing};
use crate::peer::{Addressee, Face, Incarnation, Member};
use crate::table::{Slot, Table};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The sending side: one dense counter per neighbour, direction and epoch, under a key of its own.
pub(super) struct Outgoing<K> {
    boot: u64,
    epoch: u64,
    links: Table<LinkId, Link<K>>,
    /// Never goes back: a number stands for one link, once, as long as the boot id is the same.
    next_number: u16,
    seed: u64,
    limit: usize,
    /// The link of the last packet.
    last: Option<(LinkId, Slot)>,
}

/// A neighbour in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct LinkId {
    remote: SocketAddr,
    /// The member to which replies go; `None` for requests, which go to the address.
    asker: Option<Member>,
}

impl LinkId {
    fn of(to: &Addressee) -> Self {
        match to {
            Addressee::Asked(face) => Self { remote: face.remote, asker: None },
            Addressee::Asker(peer) => Self { remote: peer.face.remote, asker: Some(peer.member) },
            Addressee::Stranger(peer) => Self { remote: Face::ANY, asker: Some(peer.member) },
        }
    }
}

struct Link<K> {
    number: u16,
    epoch: u64,
    counter: u32,
    key: Option<Sealing<K>>,
}

impl<K: SealKey> Outgoing<K> {
    pub(super) fn new(boot: u64, limit: usize, seed: u64) -> Self {
        Self { boot, epoch: 0, links: Table::new(seed), next_number: 0, seed, limit, last: None }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The id of this start.
    pub(super) fn boot(&self) -> u64 {
        self.boot
    }

    /// The keys are others from now on. Counters go on, unless receivers would not find the keys by this boot id.
    pub(super) fn change_keys<R: Keyring<Key = K>>(&mut self, keys: &mut R) {
        self.forget_keys();
        if !keys.is_found_by(self.boot) {
            self.restart(keys);
        }
    }

    /// The next packets are sealed under keys that are looked up anew. Counters go on.
    pub(super) fn forget_keys(&mut self) {
        self.links.iter_mut().for_each(|(_, link)| link.key = None);
    }

    /// The incarnation as which this node asks `remote`, where it does.
    pub(super) fn asker(&self, remote: SocketAddr) -> Option<Incarnation> {
        let id = LinkId { remote, asker: None };
        let slot = match self.last {
            Some((last, slot)) if last == id => Some(slot),
            _ => self.links.find(&id),
        };
        let number = slot.and_then(|slot| self.links.get(slot))?.number;
        Some(Incarnation { boot: self.boot, link: number })
    }

    pub(super) fn seal<R: Keyring<Key = K>>(
        &mut self,
        keys: &mut R,
        epoch: u64,
        to: &Addressee,
        out: &mut Vec<u8>,
        start: usize,
    ) -> bool {
        let Some(slot) = self.ready(keys, epoch, to) else { return false };
        let Some(link) = self.links.get_mut(slot) else { return false };
        let Some(Sealing { algorithm, hint, key, .. }) = &link.key else { return false };
        let (direction, receiver) = match to {
            Addressee::Asked(face) => (Direction::Request, Receiver::Address(face.remote)),
            Addressee::Asker(peer) | Addressee::Stranger(peer) => {
                (Direction::Reply, Receiver::Asker(peer.incarnation))
            }
        };
        let header = SealHeader {
            direction,
            algorithm: *algorithm,
            hint: *hint,
            sender: Incarnation { boot: self.boot, link: link.number },
            epoch: epoch as u16,
            counter: link.counter,
        };
        // Counted before it is used: even if sealing fails, this nonce is spent.
        link.counter += 1;
        let body = start + super::HEADER_LEN;
        if out.len() <= body {
            return false;
        }
        out[start..body].copy_from_slice(&header.emit());
        key.seal(header.nonce(), Binding::new(&header, receiver).bytes(), out, body)
    }

    /// The link to `to`, with a counter to spend and a key in place. Packets to one neighbour come in runs, so that
    /// most need no look-up.
    #[inline]
    fn ready<R: Keyring<Key = K>>(&mut self, keys: &mut R, epoch: u64, to: &Addressee) -> Option<Slot> {
        let id = LinkId::of(to);
        if let Some((_, slot)) = self.last.filter(|&(last, _)| last == id && epoch == self.epoch)
            && let Some(link) = self.links.get(slot)
            && link.epoch == epoch
            && link.counter < SealHeader::COUNTER_END
            && link.key.as_ref().is_some_and(|key| !key.is_trial)
        {
            return Some(slot);
        }
        let slot = self.prepare(keys, epoch, id, to)?;
        self.last = Some((id, slot));
        Some(slot)
    }

    fn prepare<R: Keyring<Key = K>>(
        &mut self,
        keys: &mut R,
        epoch: u64,
        id: LinkId,
        to: &Addressee,
    ) -> Option<Slot> {
        if epoch < self.epoch {
            // The clock went back: the node begins as a new sender.
            self.restart(keys);
        }
        self.epoch = epoch;
        if self.links.find(&id).is_none() && self.links.len() >= self.limit {
            self.make_room(keys);
        }
        let number = match self.links.find(&id).and_then(|slot| self.links.get(slot)) {
            Some(link) if link.epoch != epoch || link.counter < SealHeader::COUNTER_END => link.number,
            // New, or this epoch's counters are spent: the next number has all of them still.
            _ => self.take_number(keys, id),
        };
        let boot = self.boot;
        let slot = self.links.find_or_insert(id, || Link { number, epoch, counter: 0, key: None });
        let link = self.links.get_mut(slot)?;
        if link.number != number || link.epoch != epoch {
            *link = Link { number, epoch, counter: 0, key: None };
        }
        if link.key.as_ref().is_none_or(|key| key.is_trial) {
            link.key = Some(keys.sealing(to, Incarnation { boot, link: number }, epoch)?);
        }
        Some(slot)
    }

    /// Forgets neighbours that nothing was sealed for in this epoch; all of them if there is no such neighbour.
    fn make_room<R: Keyring<Key = K>>(&mut self, keys: &mut R) {
        let epoch = self.epoch;
        let idle = self.links.iter().filter(|(_, link)| link.epoch < epoch).map(|(slot, _)| slot);
        for slot in idle.collect::<Vec<Slot>>() {
            self.links.remove(slot);
        }
        self.last = None;
        if self.links.len() >= self.limit {
            self.restart(keys);
        }
    }

    fn take_number<R: Keyring<Key = K>>(&mut self, keys: &mut R, id: LinkId) -> u16 {
        if self.next_number == u16::MAX {
            self.restart(keys);
        } else if let Some(slot) = self.links.find(&id) {
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
