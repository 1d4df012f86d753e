use super::header::SealHeader;
use super::wall::nearest;
use super::{HEADER_LEN, Keyring, ReplayWindow, SealKey, SenderId, TOLERANCE_EPOCHS};
use crate::table::{Slot, Table};

/// The receiving side: for each sender the windows of its two newest epochs.
pub(super) struct Incoming<K> {
    senders: Table<SenderId, Sender<K>>,
    limit: usize,
    swept: u64,
}

struct Sender<K> {
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

/// Why a datagram was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// No key fits.
    Forged,
    /// It was taken before, or is so old that nobody can tell.
    Replayed,
    /// There is no room for one more sender.
    Full,
}

impl<K: SealKey> Incoming<K> {
    pub(super) fn new(limit: usize, seed: u64) -> Self {
        Self { senders: Table::new(seed), limit, swept: 0 }
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

    /// Opens a datagram of `epoch`, which `own` allows, and returns the packet in it and the number of the key
    /// that fitted, where that was looked for.
    #[inline]
    pub(super) fn open<'a, R: Keyring<Key = K>>(
        &mut self,
        keys: &mut R,
        (own, epoch): (u64, u64),
        header: &SealHeader,
        datagram: &'a mut [u8],
    ) -> Result<(&'a [u8], Option<usize>), Refusal> {
        let known = self.senders.find(&header.sender);
        if let Some(state) = known.and_then(|slot| self.epoch(slot, epoch)) {
            return open_known(state, keys, epoch, header, datagram);
        }
        if known.and_then(|slot| self.senders.get(slot)).is_some_and(|sender| epoch < sender.newest.number) {
            return Err(Refusal::Replayed);
        }
        let (nth, key) = find_key(keys, epoch, header, datagram).ok_or(Refusal::Forged)?;
        let slot = match known {
            Some(slot) => slot,
            None => self.add(own, epoch, header.sender).ok_or(Refusal::Full)?,
        };
        if let Some(sender) = self.senders.get_mut(slot) {
            let mut fresh = Epoch::new(epoch);
            fresh.window.take(header.counter);
            fresh.key = Some((header.key_tag(), key));
            let old = core::mem::replace(&mut sender.newest, fresh);
            sender.before = (old.number != epoch).then_some(old);
        }
        Ok((body(datagram), Some(nth)))
    }

    fn epoch(&mut self, slot: Slot, number: u64) -> Option<&mut Epoch<K>> {
        let sender = self.senders.get_mut(slot)?;
        if sender.newest.number == number {
            return Some(&mut sender.newest);
        }
        sender.before.as_mut().filter(|before| before.number == number)
    }

    fn add(&mut self, own: u64, epoch: u64, id: SenderId) -> Option<Slot> {
        if self.senders.len() >= self.limit && self.swept != own {
            // Once per epoch: a table full of live senders is not searched for every newcomer.
            self.swept = own;
            self.forget_silent(own);
        }
        (self.senders.len() < self.limit)
            .then(|| self.senders.find_or_insert(id, || Sender { newest: Epoch::new(epoch), before: None }))
    }

    /// Forgets senders whose newest epoch nobody would take any more: nothing of theirs can be replayed.
    fn forget_silent(&mut self, own: u64) {
        let silent: alloc::vec::Vec<Slot> = (self.senders.iter())
            .filter(|(_, sender)| sender.newest.number + TOLERANCE_EPOCHS < own)
            .map(|(slot, _)| slot)
            .collect();
        for slot in silent {
            self.senders.remove(slot);
        }
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
    header: &SealHeader,
    datagram: &'a mut [u8],
) -> Result<(&'a [u8], Option<usize>), Refusal> {
    if !state.window.is_fresh(header.counter) {
        return Err(Refusal::Replayed);
    }
    let found = match &state.key {
        Some((tag, key)) if *tag == header.key_tag() => {
            if !open_with(key, header, datagram) {
                return Err(Refusal::Forged);
            }
            None
        }
        _ => {
            let (nth, key) = find_key(keys, epoch, header, datagram).ok_or(Refusal::Forged)?;
            state.key = Some((header.key_tag(), key));
            Some(nth)
        }
    };
    state.window.take(header.counter);
    Ok((body(datagram), found))
}

/// Opens a datagram for a witness who has the keys: one who reads a capture, or a link that lost it. Whoever sent it, and
/// however often it was seen; `epoch` is that of the witness. No node may take what it opens: nothing stops a replay.
pub fn witness<'a, R: Keyring>(keys: &mut R, epoch: u64, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
    let header = SealHeader::parse(datagram)?;
    find_key(keys, nearest(epoch, header.epoch), &header, datagram)?;
    Some(body(datagram))
}

/// The key that opens the datagram, which is open then.
pub(super) fn find_key<R: Keyring>(
    keys: &mut R,
    epoch: u64,
    header: &SealHeader,
    datagram: &mut [u8],
) -> Option<(usize, R::Key)> {
    let mut key = keys.opening(header, epoch, 0)?;
    let mut nth = 0;
    loop {
        let next = keys.opening(header, epoch, nth + 1);
        // A key that does not fit leaves nothing of the bytes.
        let kept = next.is_some().then(|| datagram.to_vec());
        if open_with(&key, header, datagram) {
            return Some((nth, key));
        }
        datagram.copy_from_slice(&kept?);
        key = next?;
        nth += 1;
    }
}

fn open_with<K: SealKey>(key: &K, header: &SealHeader, datagram: &mut [u8]) -> bool {
    let Some((front, sealed)) = datagram.split_first_chunk_mut::<HEADER_LEN>() else { return false };
    key.open(header.nonce(), front, sealed).is_some()
}

fn body(datagram: &[u8]) -> &[u8] {
    &datagram[HEADER_LEN..datagram.len() - super::TAG_LEN]
}
