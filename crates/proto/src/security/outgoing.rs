use super::binding::{Binding, Receiver};
use super::exchange::Exchange;
use super::header::{Direction, SealHeader};
use super::{Keyring, SealKey, Sealing};
use crate::peer::{Addressee, Face, Incarnation, Member, Peer};
use crate::table::{Slot, Table};
use alloc::boxed::Box;
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
    replies_before_keys: u64,
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
    key: Option<Box<Keyed<K>>>,
}

struct Keyed<K> {
    sealing: Sealing<K>,
    /// The asker for whom it seals; of requests none.
    asker: Incarnation,
    /// The ephemeral keys that a reply's secret depends on.
    exchange: Exchange,
}

/// The asker for whom a packet is sealed; none for a request.
fn asker_of(to: &Addressee) -> Incarnation {
    match to {
        Addressee::Asked(_) => Incarnation::default(),
        Addressee::Asker(peer) | Addressee::Stranger(peer) => peer.incarnation,
    }
}

impl<K: SealKey> Outgoing<K> {
    pub(super) fn new(boot: u64, limit: usize, seed: u64) -> Self {
        Self {
            boot,
            epoch: 0,
            links: Table::new(seed),
            next_number: 0,
            seed,
            limit,
            last: None,
            replies_before_keys: 0,
        }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Replies that were sealed without an ephemeral key of this node.
    pub(super) fn replies_before_keys(&self) -> u64 {
        self.replies_before_keys
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

    /// Forgets the keys of neighbours that nothing was sealed for in `epoch`. Counters stay.
    pub(super) fn wipe(&mut self, epoch: u64) {
        self.links.iter_mut().filter(|(_, link)| link.epoch < epoch).for_each(|(_, link)| link.key = None);
    }

    /// The incarnation as which this node asks `remote`, where it does.
    #[inline]
    pub(super) fn asker(&self, remote: SocketAddr) -> Option<Incarnation> {
        let id = LinkId { remote, asker: None };
        let slot = match self.last {
            Some((last, slot)) if last == id => Some(slot),
            _ => self.links.find(&id),
        };
        let number = slot.and_then(|slot| self.links.get(slot))?.number;
        Some(Incarnation { boot: self.boot, link: number })
    }

    /// Seals on the link that is ready for `to`. `offered` is the exchange of a request.
    #[inline]
    pub(super) fn seal(
        &mut self,
        slot: Slot,
        (to, offered): (&Addressee, Exchange),
        out: &mut Vec<u8>,
        start: usize,
    ) -> bool {
        let epoch = self.epoch;
        let Some(link) = self.links.get_mut(slot) else { return false };
        let Some(Keyed { sealing, exchange, .. }) = link.key.as_deref() else { return false };
        let Sealing { algorithm, hint, key, .. } = sealing;
        let (direction, receiver, exchange) = match to {
            Addressee::Asked(face) => (Direction::Request, Receiver::Address(face.remote), offered),
            Addressee::Asker(peer) | Addressee::Stranger(peer) => {
                (Direction::Reply, Receiver::Asker(peer.incarnation), *exchange)
            }
        };
        let header = SealHeader {
            direction,
            algorithm: *algorithm,
            hint: *hint,
            exchange,
            sender: Incarnation { boot: self.boot, link: link.number },
            epoch: epoch as u16,
            counter: link.counter,
        };
        self.replies_before_keys += u64::from(direction == Direction::Reply && exchange.answerer == 0);
        // Counted before it is used: even if sealing fails, this nonce is spent.
        link.counter += 1;
        let body = start + super::HEADER_LEN;
        if out.len() <= body {
            return false;
        }
        let front = header.emit();
        out[start..body].copy_from_slice(&front);
        key.seal(header.nonce(), Binding::new(&front, receiver).bytes(), out, body)
    }

    /// The link to `to`, with a counter to spend and a key in place. Packets to one neighbour come in runs, so that
    /// most need no look-up.
    #[inline]
    pub(super) fn ready(&self, epoch: u64, to: &Addressee) -> Option<Slot> {
        let id = LinkId::of(to);
        if let Some((_, slot)) = self.last.filter(|&(last, _)| last == id && epoch == self.epoch)
            && let Some(link) = self.links.get(slot)
            && link.epoch == epoch
            && link.counter < SealHeader::COUNTER_END
            && link.key.as_ref().is_some_and(|key| !key.sealing.is_trial && key.asker == asker_of(to))
        {
            return Some(slot);
        }
        None
    }

    /// Makes the link to `to` ready. `exchange` names what was `agreed` with an asker.
    pub(super) fn prepare<R: Keyring<Key = K>>(
        &mut self,
        keys: &mut R,
        epoch: u64,
        to: &Addressee,
        (exchange, agreed): (Exchange, Option<&R::Agreed>),
    ) -> Option<Slot> {
        let id = LinkId::of(to);
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
        let (sender, asker) = (Incarnation { boot, link: number }, asker_of(to));
        let is_ready = |key: &Keyed<K>| !key.sealing.is_trial && key.asker == asker;
        if !link.key.as_deref().is_some_and(is_ready) {
            let sealing = keys.sealing(to, sender, epoch, agreed)?;
            link.key = Some(Box::new(Keyed { sealing, asker, exchange }));
        }
        self.last = Some((id, slot));
        Some(slot)
    }

    /// The replies to an asker are sealed under a key that is looked up anew.
    pub(super) fn forget_key_for(&mut self, peer: &Peer) {
        for to in [Addressee::Asker(*peer), Addressee::Stranger(*peer)] {
            let link = self.links.find(&LinkId::of(&to)).and_then(|slot| self.links.get_mut(slot));
            if let Some(link) =
                link.filter(|link| link.key.as_ref().is_some_and(|key| key.asker == asker_of(&to)))
            {
                link.key = None;
            }
        }
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
