use super::binding::{Binding, Receiver};
use super::header::{Direction, SealHeader};
use super::wall::nearest;
use super::{HEADER_LEN, Keyring, Limits, ReplayWindow, SealKey, TOLERANCE_EPOCHS};
use crate::peer::{Holder, Incarnation, Member, Peer, Refusal};
use crate::table::{Slot, Table};
use alloc::collections::VecDeque;

/// The receiving side: for each sender the windows of its two newest epochs.
pub(super) struct Incoming<K> {
    senders: Table<Incarnation, Sender<K>>,
    /// Senders in the order in which they were first heard, for the newcomers' part of the table.
    newcomers: VecDeque<Incarnation>,
    /// Senders that have proved their address, by whose they are.
    held: Table<Holder, usize>,
    limits: Shares,
    swept: u64,
    /// The epoch of the last packet, by the own clock.
    own: u64,
}

/// The division of the table between senders that have proved their address and all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Senders in all.
    pub(super) all: usize,
    /// The newcomers among them. A further newcomer takes the place of the oldest one: a node cannot keep others
    /// out with packets whose answers it cannot receive. Of the rest, no holder has more than stays free, so that none
    /// can keep others out by starting again and again.
    pub(super) newcomers: usize,
}

impl Shares {
    pub(super) fn of(limits: Limits) -> Self {
        Self { all: limits.senders, newcomers: (limits.senders / 8).max(1) }
    }
}

struct Sender<K> {
    member: Member,
    /// Its holder, once it has shown that it receives where it says that it is.
    holder: Option<Holder>,
    newest: Epoch<K>,
    /// For packets that the turn of the epoch overtook.
    before: Option<Epoch<K>>,
}

struct Epoch<K> {
    number: u64,
    window: ReplayWindow,
    /// The key used last, with the tag that names its secret.
    key: Option<(u8, K)>,
}

/// A datagram that is open, and whose it is.
pub(super) struct Found<'a> {
    pub(super) packet: &'a [u8],
    pub(super) member: Member,
    /// Whether its key was looked up: the first of its sender in an epoch, or under this key.
    pub(super) is_first: bool,
}

impl<K: SealKey> Incoming<K> {
    pub(super) fn new(limits: Shares, seed: u64) -> Self {
        Self {
            senders: Table::new(seed),
            newcomers: VecDeque::new(),
            held: Table::new(seed ^ 1),
            limits,
            swept: 0,
            own: 0,
        }
    }

    pub(super) fn set_limits(&mut self, limits: Shares) {
        self.limits = limits;
    }

    pub(super) fn len(&self) -> usize {
        self.senders.len()
    }

    /// Forgets every key, but no window.
    pub(super) fn forget_keys(&mut self) {
        for (_, sender) in self.senders.iter_mut() {
            sender.newest.key = None;
            if let Some(before) = &mut sender.before {
                before.key = None;
            }
        }
    }

    /// The sender has shown that it receives where it says that it is: newcomers do not displace it any more, unless its
    /// holder has too many already.
    pub(super) fn settle(&mut self, peer: &Peer) {
        let (id, holder) = (peer.incarnation, Holder::of(peer));
        if !self.allows(holder) {
            self.sweep(self.own);
        }
        if !self.allows(holder) {
            return;
        }
        let sender = self.senders.find(&id).and_then(|slot| self.senders.get_mut(slot));
        if let Some(sender) = sender.filter(|sender| sender.holder.is_none()) {
            sender.holder = Some(holder);
            self.newcomers.retain(|newcomer| *newcomer != id);
            let slot = self.held.find_or_insert(holder, || 0);
            if let Some(held) = self.held.get_mut(slot) {
                *held += 1;
            }
        }
    }

    /// Whether one more sender of a holder leaves as much free as the holder has then.
    fn allows(&self, holder: Holder) -> bool {
        let held = self.held.find(&holder).and_then(|slot| self.held.get(slot)).copied().unwrap_or(0);
        let settled = self.senders.len().saturating_sub(self.newcomers.len());
        held + 2 + settled + self.limits.newcomers <= self.limits.all
    }

    /// Opens a datagram of `epoch`, which `own` allows, that is bound to `receiver`.
    #[inline]
    pub(super) fn open<'a, R: Keyring<Key = K>>(
        &mut self,
        keys: &mut R,
        (own, epoch): (u64, u64),
        (header, receiver): (&SealHeader, Receiver),
        datagram: &'a mut [u8],
    ) -> Result<Found<'a>, Refusal> {
        self.own = own;
        let known = self.senders.find(&header.sender);
        if let Some(sender) = known.and_then(|slot| self.senders.get_mut(slot)) {
            let member = sender.member;
            if let Some(state) = sender.epoch(epoch) {
                return open_known(state, keys, epoch, (header, receiver), datagram)
                    .map(|(packet, is_first)| Found { packet, member, is_first });
            }
            if epoch < sender.newest.number {
                return Err(Refusal::Replayed);
            }
        }
        let (key, member) = find_key(keys, epoch, (header, receiver), datagram).ok_or(Refusal::Forged)?;
        let slot = match known {
            Some(slot) => slot,
            None => self.add(own, epoch, (header.sender, member)).ok_or(Refusal::Full)?,
        };
        if let Some(sender) = self.senders.get_mut(slot) {
            let mut fresh = Epoch::new(epoch);
            fresh.window.take(header.counter);
            fresh.key = Some((header.key_tag(), key));
            let old = core::mem::replace(&mut sender.newest, fresh);
            sender.before = (old.number != epoch).then_some(old);
        }
        Ok(Found { packet: body(datagram), member, is_first: true })
    }

    fn add(&mut self, own: u64, epoch: u64, (id, member): (Incarnation, Member)) -> Option<Slot> {
        if self.newcomers.len() >= self.limits.newcomers
            && let Some(oldest) = self.newcomers.pop_front()
            && let Some(slot) = self.senders.find(&oldest)
        {
            self.senders.remove(slot);
        }
        if self.senders.len() >= self.limits.all {
            self.sweep(own);
        }
        if self.senders.len() >= self.limits.all {
            return None;
        }
        self.newcomers.push_back(id);
        let fresh = || Sender { member, holder: None, newest: Epoch::new(epoch), before: None };
        Some(self.senders.find_or_insert(id, fresh))
    }

    /// Once per epoch: a table full of live senders is not searched for every newcomer.
    fn sweep(&mut self, own: u64) {
        if self.swept != own {
            self.swept = own;
            self.forget_silent(own);
        }
    }

    /// Forgets senders whose newest epoch is too old to be accepted: nothing of theirs can be replayed.
    fn forget_silent(&mut self, own: u64) {
        let silent: alloc::vec::Vec<Slot> = (self.senders.iter())
            .filter(|(_, sender)| sender.holder.is_some() && sender.newest.number + TOLERANCE_EPOCHS < own)
            .map(|(slot, _)| slot)
            .collect();
        for slot in silent {
            let holder = self.senders.remove(slot).and_then(|sender| sender.holder);
            let Some(held) = holder.and_then(|holder| self.held.find(&holder)) else { continue };
            let is_last = self.held.get_mut(held).is_none_or(|count| {
                *count -= 1;
                *count == 0
            });
            if is_last {
                self.held.remove(held);
            }
        }
    }
}

impl<K> Sender<K> {
    fn epoch(&mut self, number: u64) -> Option<&mut Epoch<K>> {
        if self.newest.number == number {
            return Some(&mut self.newest);
        }
        self.before.as_mut().filter(|before| before.number == number)
    }
}

impl<K> Epoch<K> {
    fn new(number: u64) -> Self {
        Self { number, window: ReplayWindow::default(), key: None }
    }
}

fn open_known<'a, R: Keyring>(
    state: &mut Epoch<R::Key>,
    keys: &mut R,
    epoch: u64,
    (header, receiver): (&SealHeader, Receiver),
    datagram: &'a mut [u8],
) -> Result<(&'a [u8], bool), Refusal> {
    let mut is_first = false;
    if !state.window.is_fresh(header.counter) {
        return Err(Refusal::Replayed);
    }
    match &state.key {
        Some((tag, key)) if *tag == header.key_tag() => {
            if !open_with(key, (header, receiver), datagram) {
                return Err(Refusal::Forged);
            }
        }
        _ => {
            let (key, _) = find_key(keys, epoch, (header, receiver), datagram).ok_or(Refusal::Forged)?;
            state.key = Some((header.key_tag(), key));
            is_first = true;
        }
    }
    state.window.take(header.counter);
    Ok((body(datagram), is_first))
}

/// A witness who has the keys opens a reply: a reader of a capture, or of the packets that a link lost. A reply is
/// bound to one of the `askers`. `epoch` is that of the witness. No node may accept a packet that a witness opens:
/// nothing stops a replay.
pub fn witness<'a, R: Keyring>(
    keys: &mut R,
    epoch: u64,
    askers: &[Incarnation],
    datagram: &'a mut [u8],
) -> Option<&'a [u8]> {
    let header = SealHeader::parse(datagram).filter(|header| header.direction == Direction::Reply)?;
    let (epoch, kept) = (nearest(epoch, header.epoch), datagram.to_vec());
    askers.iter().find(|asker| {
        datagram.copy_from_slice(&kept);
        find_key(keys, epoch, (&header, Receiver::Asker(**asker)), datagram).is_some()
    })?;
    Some(body(datagram))
}

/// The key that opens the datagram, which is open then.
pub(super) fn find_key<R: Keyring>(
    keys: &mut R,
    epoch: u64,
    (header, receiver): (&SealHeader, Receiver),
    datagram: &mut [u8],
) -> Option<(R::Key, Member)> {
    let (mut key, mut member) = keys.opening(header, epoch, 0)?;
    for nth in 1.. {
        let next = keys.opening(header, epoch, nth);
        // A key that does not fit leaves nothing of the bytes.
        let kept = next.is_some().then(|| datagram.to_vec());
        if open_with(&key, (header, receiver), datagram) {
            return Some((key, member));
        }
        datagram.copy_from_slice(&kept?);
        (key, member) = next?;
    }
    None
}

fn open_with<K: SealKey>(key: &K, (header, receiver): (&SealHeader, Receiver), datagram: &mut [u8]) -> bool {
    let Some((_, sealed)) = datagram.split_first_chunk_mut::<HEADER_LEN>() else { return false };
    key.open(header.nonce(), Binding::new(header, receiver).bytes(), sealed).is_some()
}

fn body(datagram: &[u8]) -> &[u8] {
    &datagram[HEADER_LEN..datagram.len() - super::TAG_LEN]
}
