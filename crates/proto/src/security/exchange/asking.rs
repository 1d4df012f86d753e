use super::own::{Own, Pair};
use super::{Exchange, KEY_LIFE, OFFER_AGAIN, OVERLAP, Public, id_of};
use crate::peer::Incarnation;
use crate::security::Keyring;
use crate::table::{Slot, Table};
use crate::time::Instant;
use crate::wire::AnswererKey;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The secrets that an asker has agreed on, by the address that it asks.
pub(crate) struct Upstreams<A> {
    by_remote: Table<SocketAddr, Upstream<A>>,
    limit: usize,
    seed: u64,
}

/// Secrets with one of the asker's keys each, by its number: that of the newest one first.
type Secrets<A> = [Option<(u8, A)>; 2];

struct Upstream<A> {
    /// Those without a key of the answerer's.
    first: Secrets<A>,
    /// Keys of answerers at the address, the one told last first.
    answerers: [Option<Answerer<A>>; 2],
    /// The newest key of the asker's in use here, and since when.
    number: u8,
    renewed: Instant,
    used: Instant,
    /// The last offer.
    offered: Option<Offered>,
    /// A reply has depended on the newest key.
    is_heard: bool,
}

#[derive(Clone, Copy)]
struct Offered {
    at: Instant,
    /// The incarnation that offered. An answerer knows nothing of the next one.
    asker: Incarnation,
    known: [u32; 2],
}

struct Answerer<A> {
    number: u8,
    public: Public,
    told: Instant,
    secrets: Secrets<A>,
}

fn put<A>(secrets: &mut Secrets<A>, number: u8, agreed: Option<A>) {
    if secrets[0].as_ref().is_some_and(|(newest, _)| *newest != number) {
        secrets.rotate_right(1);
    }
    secrets[0] = agreed.map(|agreed| (number, agreed));
}

fn get<A>(secrets: &Secrets<A>, number: u8) -> Option<&A> {
    secrets.iter().flatten().find(|(of, _)| *of == number).map(|(_, agreed)| agreed)
}

impl<A> Upstream<A> {
    fn new(now: Instant) -> Self {
        Self {
            first: [None, None],
            answerers: [None, None],
            number: 0,
            renewed: now,
            used: now,
            offered: None,
            is_heard: false,
        }
    }

    /// Agrees anew with all that is known at the address.
    fn agree<R: Keyring<Agreed = A>>(&mut self, keys: &mut R, remote: SocketAddr, pair: &Pair<R::Ephemeral>) {
        let ours = (&pair.private, &pair.public);
        put(&mut self.first, pair.number, keys.agree_asking(remote, ours, None));
        for answerer in self.answerers.iter_mut().flatten() {
            let agreed = keys.agree_asking(remote, ours, Some(&answerer.public));
            put(&mut answerer.secrets, pair.number, agreed);
        }
    }
}

impl<A> Upstreams<A> {
    pub(super) fn new(limit: usize, seed: u64) -> Self {
        Self { by_remote: Table::new(seed), limit, seed }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Prepares for replies from `remote` to an Interest of `asker` with the key `pair`. Returns the ids of the answerers' keys that
    /// they may be sealed with, if the Interest is to carry an offer.
    pub(super) fn ask<R: Keyring<Agreed = A>>(
        &mut self,
        keys: &mut R,
        now: Instant,
        (asker, remote): (Incarnation, SocketAddr),
        pair: &Pair<R::Ephemeral>,
    ) -> Option<[u32; 2]> {
        if self.by_remote.len() >= self.limit && self.by_remote.find(&remote).is_none() {
            // Answerers say their keys again as soon as Interests do not name them any more.
            self.by_remote = Table::new(self.seed);
        }
        let slot = self.by_remote.find_or_insert(remote, || Upstream::new(now));
        let upstream = self.by_remote.get_mut(slot)?;
        upstream.used = now;
        if upstream.number != pair.number {
            (upstream.number, upstream.renewed) = (pair.number, now);
            (upstream.offered, upstream.is_heard) = (None, false);
            upstream.agree(keys, remote, pair);
        }
        let known =
            upstream.answerers.each_ref().map(|answerer| answerer.as_ref().map_or(0, |a| id_of(&a.public)));
        if upstream.offered.is_some_and(|last| last.asker != asker) {
            (upstream.offered, upstream.is_heard) = (None, false);
        }
        let is_old = |last: Offered| last.known != known || now.since(last.at) >= OFFER_AGAIN;
        let is_needed = keys.agrees_alone() && !upstream.is_heard;
        if !is_needed && !upstream.offered.is_none_or(is_old) {
            return None;
        }
        upstream.offered = Some(Offered { at: now, asker, known });
        Some(known)
    }

    /// A reply from `remote` was opened that depends on the asker's key of this number.
    pub(super) fn heard(&mut self, remote: SocketAddr, number: u8) {
        let upstream = self.by_remote.find(&remote).and_then(|slot| self.by_remote.get_mut(slot));
        if let Some(upstream) = upstream.filter(|upstream| upstream.number == number) {
            upstream.is_heard = true;
        }
    }

    /// Whether a key of an answerer at `remote`, who was asked, is not known yet.
    pub(super) fn is_news(&self, remote: SocketAddr, key: &AnswererKey) -> bool {
        let upstream = self.by_remote.find(&remote).and_then(|slot| self.by_remote.get(slot));
        upstream.is_some_and(|upstream| {
            upstream.answerers.iter().flatten().all(|answerer| answerer.public != key.public)
        })
    }

    /// Takes a new key of an answerer.
    pub(super) fn told<R: Keyring<Agreed = A>>(
        &mut self,
        keys: &mut R,
        now: Instant,
        remote: SocketAddr,
        key: &AnswererKey,
        pair: &Pair<R::Ephemeral>,
    ) {
        let Some(upstream) = self.by_remote.find(&remote).and_then(|slot| self.by_remote.get_mut(slot))
        else {
            return;
        };
        let ours = (&pair.private, &pair.public);
        let Some(agreed) = keys.agree_asking(remote, ours, Some(&key.public)) else { return };
        let secrets = [Some((pair.number, agreed)), None];
        upstream.answerers.rotate_right(1);
        upstream.answerers[0] = Some(Answerer { number: key.number, public: key.public, told: now, secrets });
    }

    /// The secrets that `exchange` names.
    pub(super) fn candidates(&self, remote: SocketAddr, exchange: Exchange) -> [Option<&A>; 2] {
        let Some(upstream) = self.by_remote.find(&remote).and_then(|slot| self.by_remote.get(slot)) else {
            return [None, None];
        };
        if exchange.answerer == 0 {
            return [get(&upstream.first, exchange.asker), None];
        }
        upstream.answerers.each_ref().map(|answerer| {
            let named = answerer.as_ref().filter(|answerer| answerer.number == exchange.answerer)?;
            get(&named.secrets, exchange.asker)
        })
    }

    /// The static keys are others now.
    pub(super) fn renew<R: Keyring<Agreed = A>>(&mut self, keys: &mut R, own: &Own<R::Ephemeral>) {
        let remotes: Vec<(Slot, SocketAddr)> = (self.by_remote.iter())
            .filter_map(|(slot, _)| Some((slot, *self.by_remote.key(slot)?)))
            .collect();
        for (slot, remote) in remotes {
            let Some(upstream) = self.by_remote.get_mut(slot) else { continue };
            let number = upstream.number;
            if let Some(pair) = own.all().find(|pair| pair.number == number) {
                upstream.agree(keys, remote, pair);
            }
        }
    }

    /// Forgets what no reply can be sealed with any more.
    pub(super) fn wipe(&mut self, now: Instant) {
        let is_idle = |upstream: &Upstream<A>| now.since(upstream.used) >= KEY_LIFE + OVERLAP;
        let idle: Vec<Slot> =
            self.by_remote.iter().filter(|(_, upstream)| is_idle(upstream)).map(|(slot, _)| slot).collect();
        for slot in idle {
            self.by_remote.remove(slot);
        }
        for (_, upstream) in self.by_remote.iter_mut() {
            let is_settled = now.since(upstream.renewed) >= OVERLAP;
            if is_settled {
                upstream.first[1] = None;
            }
            for place in &mut upstream.answerers {
                let Some(answerer) = place else { continue };
                if is_settled {
                    answerer.secrets[1] = None;
                }
                if now.since(answerer.told) >= KEY_LIFE + OVERLAP {
                    *place = None;
                }
            }
        }
    }
}
