//! Peers behind one link of known rate, such as the sites of a satellite: each has its share of what is sent to them.

use super::{Bond, Gateway};
use crate::hop::Share;
use crate::node::Transmit;
use crate::time::Instant;
use crate::units::Rate;
use crate::wire::Suite;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The shared links, and the peers that are behind them.
#[derive(Debug, Default)]
pub(super) struct Links {
    rates: Vec<Rate>,
    /// The share of each peer, in the order of the peers.
    shares: Vec<Option<Share>>,
    /// The address from which each peer asks.
    places: BTreeMap<u16, SocketAddr>,
}

impl Links {
    /// The share of each address. Peers behind one relay are one hop, which has the weight of all of them.
    fn by_address(&self) -> BTreeMap<SocketAddr, Share> {
        let mut shares: BTreeMap<SocketAddr, Share> = BTreeMap::new();
        for (index, address) in &self.places {
            let Some(share) = self.shares.get(usize::from(*index)).copied().flatten() else { continue };
            let of_address = shares.entry(*address).or_insert(Share { weight: 0, ..share });
            of_address.weight = of_address.weight.saturating_add(share.weight);
        }
        shares
    }
}

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// Has peers share links of these rates. `shares` has the share of each peer, in the order in which they were given.
    /// All that is sent to the peers of a link keeps within its rate, and peers for which there is nothing leave their shares to
    /// the others.
    /// A peer to which connections travel by rate has a link of its own, on which they take turns with all else.
    pub fn set_shared_links(&mut self, now: Instant, mut rates: Vec<Rate>, mut shares: Vec<Option<Share>>) {
        shares.resize(self.peers.len(), None);
        for (peer, share) in self.peers.iter().zip(&mut shares) {
            if let Some(config) = &peer.by_rate {
                *share = Some(Share { link: rates.len() as u16, weight: 1 });
                rates.push(config.rate);
            }
        }
        if (&rates, &shares) == (&self.shared.rates, &self.shared.shares) {
            return;
        }
        (self.shared.rates, self.shared.shares) = (rates, shares);
        self.share_links(now);
    }

    /// A peer asks from `address`.
    pub(super) fn found_at(&mut self, now: Instant, index: u16, address: SocketAddr) {
        if self.shared.places.insert(index, address) != Some(address) && !self.shared.rates.is_empty() {
            self.share_links(now);
        }
    }

    fn share_links(&mut self, now: Instant) {
        let shares = self.shared.by_address();
        self.producer.downlinks_mut().set_shared(now, &self.shared.rates, shares);
    }

    /// A datagram leaves: all of it counts on the link.
    pub(super) fn note_sent(&mut self, now: Instant, sent: &Transmit) {
        if !self.shared.rates.is_empty() {
            self.producer.downlinks_mut().note_sent(now, sent.to.remote, sent.wire_bytes());
        }
    }
}
