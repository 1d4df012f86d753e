use super::binding::{Binding, Receiver};
use super::exchange::{Exchange, Exchanges, Offer, Talk};
use super::header::{Direction, SealHeader};
use super::wall::nearest;
use super::{HEADER_LEN, Keyring, Limits, ReplayWindow, SealKey, TOLERANCE_EPOCHS};
use crate::peer::{Holder, Incarnation, Member, Peer, Refusal};
use crate::table::{Slot, Table};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddr;

/// The receiving side: for each sender the windows of its two newest epochs.
pub(super) struct Incoming<R: Keyring> {
    senders: Table<Incarnation, Box<Sender<R>>>,
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

struct Sender<R: Keyring> {
    member: Member,
    /// Its holder, once it has shown that it receives where it says that it is.
    holder: Option<Holder>,
    newest: Epoch<R::Key>,
    /// For packets that the turn of the epoch overtook.
    before: Option<Epoch<R::Key>>,
    /// The ephemeral keys of replies to it, if it asks.
    talk: Option<Talk<R::Agreed>>,
}

struct Epoch<K> {
    number: u64,
    window: ReplayWindow,
    /// The key used last, with the tag that names its secret.
    key: Option<(u16, K)>,
}

/// A datagram that is open, and whose it is.
pub(super) struct Found<'a> {
    pub(super) packet: &'a [u8],
    pub(super) member: Member,
    /// Whether its key was looked up: the first of its sender in an epoch, or under this key.
    pub(super) is_first: bool,
}

/// A sealed datagram, and all that is known of it before it is open.
#[derive(Clone, Copy)]
pub(super) struct Sealed<'a> {
    pub(super) header: &'a SealHeader,
    pub(super) receiver: Receiver,
    /// Its address.
    pub(super) remote: SocketAddr,
    pub(super) epoch: u64,
}

impl<R: Keyring> Incoming<R> {
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
            if let Some(talk) = &mut sender.talk {
                talk.forget();
            }
        }
    }

    /// Takes the offer of an Interest that was opened; true if replies to `asker` may depend on other keys from now on.
    pub(super) fn take_offer(&mut self, asker: Incarnation, number: u8, offer: &Offer) -> bool {
        let sender = self.senders.find(&asker).and_then(|slot| self.senders.get_mut(slot));
        let Some(sender) = sender else { return false };
        match &mut sender.talk {
            Some(talk) => talk.offer(number, offer),
            None => {
                sender.talk = Some(Talk::new(number, *offer));
                true
            }
        }
    }

    /// The offer of an asker, and whether it has proved its address.
    pub(super) fn talk(&mut self, asker: Incarnation) -> Option<(&mut Talk<R::Agreed>, bool)> {
        let sender = self.senders.find(&asker).and_then(|slot| self.senders.get_mut(slot))?;
        let is_proved = sender.holder.is_some();
        sender.talk.as_mut().map(|talk| (talk, is_proved))
    }

    /// The sender has shown that it receives where it says that it is: newcomers do not displace it any more, unless its
    /// holder has too many already. True if replies to it may depend on other keys from now on.
    pub(super) fn settle(&mut self, peer: &Peer) -> bool {
        let (id, holder) = (peer.incarnation, Holder::of(peer));
        if !self.allows(holder) {
            self.sweep(self.own);
        }
        if !self.allows(holder) {
            return false;
        }
        let sender = self.senders.find(&id).and_then(|slot| self.senders.get_mut(slot));
        let Some(sender) = sender.filter(|sender| sender.holder.is_none()) else { return false };
        sender.holder = Some(holder);
        let has_offered = sender.talk.as_mut().map(Talk::prove).is_some();
        self.newcomers.retain(|newcomer| *newcomer != id);
        let slot = self.held.find_or_insert(holder, || 0);
        if let Some(held) = self.held.get_mut(slot) {
            *held += 1;
        }
        has_offered
    }

    /// Whether one more sender of a holder leaves as much free as the holder has then.
    fn allows(&self, holder: Holder) -> bool {
        let held = self.held.find(&holder).and_then(|slot| self.held.get(slot)).copied().unwrap_or(0);
        let settled = self.senders.len().saturating_sub(self.newcomers.len());
        held + 2 + settled + self.limits.newcomers <= self.limits.all
    }

    /// Opens a datagram of an epoch that `own` allows.
    #[inline]
    pub(super) fn open<'a>(
        &mut self,
        (keys, exchanges): (&mut R, &Exchanges<R>),
        own: u64,
        sealed: Sealed<'_>,
        datagram: &'a mut [u8],
    ) -> Result<Found<'a>, Refusal> {
        let Sealed { header, epoch, .. } = sealed;
        self.own = own;
        let known = self.senders.find(&header.sender);
        if let Some(sender) = known.and_then(|slot| self.senders.get_mut(slot)) {
            let member = sender.member;
            if let Some(state) = sender.epoch(epoch) {
                return open_known(state, (keys, exchanges), sealed, datagram)
                    .map(|(packet, is_first)| Found { packet, member, is_first });
            }
            if epoch < sender.newest.number {
                return Err(Refusal::Replayed);
            }
        }
        let Fitting { key, member, is_alone } =
            find_key((keys, exchanges), sealed, datagram).ok_or(Refusal::Forged)?;
        let slot = match known {
            Some(slot) => slot,
            None => self.add(own, epoch, (header.sender, member)).ok_or(Refusal::Full)?,
        };
        if let Some(sender) = self.senders.get_mut(slot) {
            let mut fresh = Epoch::new(epoch);
            fresh.window.take(header.counter);
            fresh.key = is_alone.then_some((header.key_tag(), key));
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
        let fresh = Sender { member, holder: None, newest: Epoch::new(epoch), before: None, talk: None };
        Some(self.senders.find_or_insert(id, || Box::new(fresh)))
    }

    /// Once per epoch: a table full of live senders is not searched for every newcomer.
    fn sweep(&mut self, own: u64) {
        if self.swept != own {
            self.swept = own;
            self.forget_silent(own.saturating_sub(TOLERANCE_EPOCHS));
        }
    }

    /// Forgets senders that have been silent since `epoch`, with all keys. It must be too old to be accepted: then nothing of theirs
    /// can be replayed.
    pub(super) fn forget_silent(&mut self, epoch: u64) {
        let silent: alloc::vec::Vec<Slot> = (self.senders.iter())
            .filter(|(_, sender)| sender.newest.number < epoch)
            .map(|(slot, _)| slot)
            .collect();
        if silent.is_empty() {
            return;
        }
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
        let Self { newcomers, senders, .. } = self;
        newcomers.retain(|newcomer| senders.find(newcomer).is_some());
    }
}

impl<R: Keyring> Sender<R> {
    #[inline]
    fn epoch(&mut self, number: u64) -> Option<&mut Epoch<R::Key>> {
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

#[inline]
fn open_known<'a, R: Keyring>(
    state: &mut Epoch<R::Key>,
    from: (&mut R, &Exchanges<R>),
    sealed: Sealed<'_>,
    datagram: &'a mut [u8],
) -> Result<(&'a [u8], bool), Refusal> {
    let Sealed { header, receiver, .. } = sealed;
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
            let Fitting { key, is_alone, .. } = find_key(from, sealed, datagram).ok_or(Refusal::Forged)?;
            state.key = is_alone.then_some((header.key_tag(), key));
            is_first = true;
        }
    }
    state.window.take(header.counter);
    Ok((body(datagram), is_first))
}

/// A witness who has the static keys opens a reply: a reader of a capture, or of the packets that a link lost. A reply is
/// bound to one of the `askers`. Its secret depends on what was `agreed` with ephemeral keys, unless it says that there are
/// none; a witness mostly has none. `epoch` is that of the witness. No node may accept a packet that a witness opens:
/// nothing stops a replay.
pub fn witness<'a, R: Keyring>(
    keys: &mut R,
    agreed: Option<&R::Agreed>,
    epoch: u64,
    askers: &[Incarnation],
    datagram: &'a mut [u8],
) -> Option<&'a [u8]> {
    let header = SealHeader::parse(datagram)
        .filter(|header| header.direction == Direction::Reply)
        .filter(|header| (header.exchange == Exchange::NONE) == agreed.is_none())?;
    let (epoch, kept) = (nearest(epoch, header.epoch), datagram.to_vec());
    askers.iter().find(|asker| {
        datagram.copy_from_slice(&kept);
        try_keys(keys, agreed, (&header, Receiver::Asker(**asker)), epoch, datagram).is_some()
    })?;
    Some(body(datagram))
}

/// The key that opened a datagram.
pub(super) struct Fitting<K> {
    pub(super) key: K,
    pub(super) member: Member,
    /// No other key has its hint. Two keys of a node that rotates share one in one of sixteen cases: then the hint of the
    /// next packet does not tell which of them it is.
    is_alone: bool,
}

/// The key that opens the datagram, which is open then.
pub(super) fn find_key<R: Keyring>(
    (keys, exchanges): (&mut R, &Exchanges<R>),
    Sealed { header, receiver, remote, epoch }: Sealed<'_>,
    datagram: &mut [u8],
) -> Option<Fitting<R::Key>> {
    let exchange = match header.direction {
        Direction::Request => Exchange::NONE,
        Direction::Reply => header.exchange,
    };
    match exchanges.candidates(remote, exchange) {
        [Some(agreed), None] | [None, Some(agreed)] => {
            try_keys(keys, agreed, (header, receiver), epoch, datagram)
        }
        [Some(first), Some(second)] => {
            let kept = datagram.to_vec();
            try_keys(keys, first, (header, receiver), epoch, datagram).or_else(|| {
                datagram.copy_from_slice(&kept);
                try_keys(keys, second, (header, receiver), epoch, datagram)
            })
        }
        [None, None] => None,
    }
}

fn try_keys<R: Keyring>(
    keys: &mut R,
    agreed: Option<&R::Agreed>,
    (header, receiver): (&SealHeader, Receiver),
    epoch: u64,
    datagram: &mut [u8],
) -> Option<Fitting<R::Key>> {
    let (mut key, mut member) = keys.opening(header, epoch, agreed, 0)?;
    for nth in 1.. {
        let next = keys.opening(header, epoch, agreed, nth);
        // A key that does not fit leaves nothing of the bytes.
        let kept = next.is_some().then(|| datagram.to_vec());
        if open_with(&key, (header, receiver), datagram) {
            return Some(Fitting { key, member, is_alone: nth == 1 && next.is_none() });
        }
        datagram.copy_from_slice(&kept?);
        (key, member) = next?;
    }
    None
}

#[inline]
fn open_with<K: SealKey>(key: &K, (header, receiver): (&SealHeader, Receiver), datagram: &mut [u8]) -> bool {
    let Some((front, sealed)) = datagram.split_first_chunk_mut::<HEADER_LEN>() else { return false };
    key.open(header.nonce(), Binding::new(front, receiver).bytes(), sealed).is_some()
}

fn body(datagram: &[u8]) -> &[u8] {
    &datagram[HEADER_LEN..datagram.len() - super::TAG_LEN]
}
