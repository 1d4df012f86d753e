//! Ephemeral keys: what a reply carries stays secret when the keys of both nodes are taken later, and who takes a
//! node's key cannot answer it as another.
//!
//! Interests carry an [`Offer`] ten times a second: the asker's ephemeral key, and the ids of the answerers' keys that it knows.
//! Where a reply needs the asker's key, all Interests carry one until the first reply has come. So whoever can open an
//! Interest can answer it: a loss, a restart or another node on the path costs no round trip. A reply names the two keys that its secret depends on ([`Exchange`]). The answerer's key travels in a
//! Notice. A secret is agreed on only when an authenticated packet has brought a key, never when a packet is opened.

mod answering;
mod asking;
mod own;

pub(super) use answering::Talk;
pub(super) use asking::Upstreams;
pub(super) use own::Own;

use super::Keyring;
use crate::peer::{Holder, Incarnation};
use crate::table::Table;
use crate::time::{Duration, Instant};
use crate::wire::AnswererKey;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The public half of an ephemeral key.
pub type Public = [u8; 32];

/// A node replaces its ephemeral key after this time of use.
pub const KEY_LIFE: Duration = Duration::from_secs(60);

/// The private half of a key is kept for so long after its successor was drawn: what was sealed for it is on its
/// way, and neighbours have not heard of the successor.
pub(super) const OVERLAP: Duration = Duration::from_secs(15);

/// Between two offers to an answerer that knows the keys in them. On a thin link they would be most of what it carries.
const OFFER_AGAIN: Duration = Duration::from_millis(100);

/// Between the first two Notices of a key to a neighbour that does not repeat its id. The time doubles with each.
const TELL_AGAIN: Duration = Duration::from_millis(100);
const MOST_TELL_AGAIN: Duration = Duration::from_secs(10);

/// Agreements in an epoch of 4 s that one holder can cause. Each is two multiplications on the curve, about
/// 80 µs: a holder that floods a node with fresh keys takes half a percent of a core.
pub const MOST_AGREEMENTS: u32 = 256;

/// The last number of a key; the first is 1. Zero is no key.
const LAST_NUMBER: u8 = 15;

/// The ephemeral keys that the secret of a packet depends on, by the numbers that their owners gave them: four bits each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Exchange {
    /// The asker's; 0 if none.
    pub asker: u8,
    /// The answerer's; 0 if none.
    pub answerer: u8,
}

impl Exchange {
    /// No ephemeral key.
    pub const NONE: Self = Self { asker: 0, answerer: 0 };

    /// The byte that travels.
    pub const fn emit(self) -> u8 {
        (self.asker << 4) | (self.answerer & 0x0f)
    }

    /// The exchange of a byte.
    pub const fn parse(byte: u8) -> Self {
        Self { asker: byte >> 4, answerer: byte & 0x0f }
    }
}

/// The bytes behind a sealed Interest: the asker's key, and the keys that it can open replies with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The asker's key.
    pub public: Public,
    /// Ids of answerers' keys; 0 for none.
    pub known: [u32; 2],
}

impl Offer {
    /// Bytes on the wire.
    pub const LEN: usize = 32 + 2 * 4;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.public);
        self.known.iter().for_each(|id| out.extend_from_slice(&id.to_be_bytes()));
    }

    /// The packet in front of an offer, and the offer.
    pub(super) fn split(packet: &[u8]) -> Option<(&[u8], Self)> {
        let (packet, offer) = packet.split_last_chunk::<{ Self::LEN }>()?;
        let (public, known) = offer.split_first_chunk::<32>()?;
        let [a, b, c, d, e, f, g, h] = *known.first_chunk()?;
        let known = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])];
        Some((packet, Self { public: *public, known }))
    }
}

/// The id of a key: the first bytes of its public half, never 0.
fn id_of(public: &Public) -> u32 {
    let [a, b, c, d, ..] = *public;
    u32::from_be_bytes([a, b, c, d]).max(1)
}

/// The ephemeral keys of a node, and what it agreed on with those that it asks. What it agreed on with those that ask it is kept with
/// their replay windows ([`Talk`]).
pub(super) struct Exchanges<R: Keyring> {
    own: Own<R::Ephemeral>,
    upstreams: Upstreams<R::Agreed>,
    allowance: Allowance,
}

impl<R: Keyring> Exchanges<R> {
    /// `number` is that of the first key. Two nodes that answer at one address rarely have the same.
    pub(super) fn new(number: u8, limit: usize, seed: u64) -> Self {
        Self {
            own: Own::new(number),
            upstreams: Upstreams::new(limit, seed),
            allowance: Allowance::new(limit, seed ^ 1),
        }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.upstreams.set_limit(limit);
        self.allowance.limit = limit;
    }

    /// Appends an offer to an Interest of `asker` for `remote`, if it is time for one, and returns the number of the key in it.
    pub(super) fn offer(
        &mut self,
        keys: &mut R,
        now: Instant,
        (asker, remote): (Incarnation, SocketAddr),
        out: &mut Vec<u8>,
    ) -> Exchange {
        let Some(pair) = self.own.current(keys, now) else { return Exchange::NONE };
        let Some(known) = self.upstreams.ask(keys, now, (asker, remote), pair) else { return Exchange::NONE };
        Offer { public: pair.public, known }.emit(out);
        Exchange { asker: pair.number, answerer: 0 }
    }

    /// A reply from `remote` was opened, the first of its sender in an epoch or with these keys.
    pub(super) fn on_reply(&mut self, remote: SocketAddr, exchange: Exchange) {
        self.upstreams.heard(remote, exchange.asker);
    }

    /// An answerer at `remote`, whose share `holder` has, told its key.
    pub(super) fn on_told(
        &mut self,
        keys: &mut R,
        (now, epoch): (Instant, u64),
        (remote, holder): (SocketAddr, Holder),
        key: &AnswererKey,
    ) {
        let Some(pair) = self.own.newest() else { return };
        if !self.upstreams.is_news(remote, key) || !self.allowance.take(epoch, holder) {
            return;
        }
        self.upstreams.told(keys, now, remote, key, pair);
    }

    /// The secrets under which a reply from `remote` may be sealed, by its header. `Some(None)` is no secret besides the
    /// static ones. There are two only if two answerers gave their keys one number.
    pub(super) fn candidates(
        &self,
        remote: SocketAddr,
        exchange: Exchange,
    ) -> [Option<Option<&R::Agreed>>; 2] {
        match exchange {
            Exchange::NONE => [Some(None), None],
            _ => self.upstreams.candidates(remote, exchange).map(|agreed| agreed.map(Some)),
        }
    }

    /// The secret for a reply in `talk`, which belongs to `holder` once its node has proved its address.
    pub(super) fn answer<'a>(
        &mut self,
        keys: &mut R,
        epoch: u64,
        (holder, is_proved): (Holder, bool),
        talk: &'a mut Talk<R::Agreed>,
    ) -> (Exchange, Option<&'a R::Agreed>) {
        let Self { own, allowance, .. } = self;
        talk.answer(keys, own, is_proved, || allowance.take(epoch, holder))
    }

    /// The key to tell the asker of `talk` at `now`, unless it has it, or was just told.
    pub(super) fn introduction(
        &mut self,
        keys: &mut R,
        now: Instant,
        talk: &mut Talk<R::Agreed>,
    ) -> Option<AnswererKey> {
        let pair = self.own.current(keys, now)?;
        let key = AnswererKey { number: pair.number, public: pair.public };
        talk.is_to_be_told(now, id_of(&pair.public)).then_some(key)
    }

    /// The static keys are others now: what depends on them is agreed on anew, as far as private halves are there still.
    pub(super) fn renew(&mut self, keys: &mut R) {
        self.upstreams.renew(keys, &self.own);
    }

    /// Agreements with others' keys that were made, and that were put off.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.allowance.granted, self.allowance.refused)
    }

    /// Forgets what nobody has used for a while.
    pub(super) fn wipe(&mut self, now: Instant) {
        self.own.wipe(now);
        self.upstreams.wipe(now);
    }
}

/// Bounds the agreements that a holder causes.
struct Allowance {
    epoch: u64,
    taken: Table<Holder, u32>,
    limit: usize,
    seed: u64,
    granted: u64,
    refused: u64,
}

impl Allowance {
    fn new(limit: usize, seed: u64) -> Self {
        Self { epoch: 0, taken: Table::new(seed), limit, seed, granted: 0, refused: 0 }
    }

    /// Takes one agreement of `holder` in `epoch`; false if there is none left.
    fn take(&mut self, epoch: u64, holder: Holder) -> bool {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.taken = Table::new(self.seed);
        }
        let has_room = self.taken.find(&holder).is_some() || self.taken.len() < self.limit;
        let is_granted = has_room && {
            let slot = self.taken.find_or_insert(holder, || 0);
            self.taken.get_mut(slot).is_some_and(|taken| {
                *taken = taken.saturating_add(1);
                *taken <= MOST_AGREEMENTS
            })
        };
        *(if is_granted { &mut self.granted } else { &mut self.refused }) += 1;
        is_granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Member;

    #[test]
    fn an_exchange_and_an_offer_survive_their_journey() {
        for asker in 0..=LAST_NUMBER {
            for answerer in 0..=LAST_NUMBER {
                let exchange = Exchange { asker, answerer };
                assert_eq!(Exchange::parse(exchange.emit()), exchange);
            }
        }
        let offer = Offer { public: core::array::from_fn(|at| at as u8), known: [7, u32::MAX] };
        let mut bytes = b"packet".to_vec();
        offer.emit(&mut bytes);
        assert_eq!(bytes.len(), 6 + Offer::LEN);
        assert_eq!(Offer::split(&bytes), Some((&b"packet"[..], offer)));
        assert_eq!(Offer::split(&bytes[..Offer::LEN - 1]), None);
    }

    #[test]
    fn a_holder_has_its_agreements_and_no_more_and_leaves_others_theirs() {
        let mut allowance = Allowance::new(8, 1);
        let holder = |member| Holder::Member(Member(member));
        let granted = (0..1000).filter(|_| allowance.take(5, holder(1))).count();
        assert_eq!(granted, MOST_AGREEMENTS as usize);
        assert!(allowance.take(5, holder(2)));
        assert!(allowance.take(6, holder(1)), "the next epoch has new ones");
    }
}
