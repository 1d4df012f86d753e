//! Names for pairs of addresses.

use starhop_proto::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};

/// A neighbour, and the address as which it knows this relay: that of the end point on the other side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Pair {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
}

impl Pair {
    /// The pair in the other direction: what `peer` asks of `local` this relay asks in the name of `peer`.
    pub(super) fn reversed(self) -> Self {
        Self { peer: self.local, local: self.peer }
    }
}

/// Gives every pair a name in the form of an address, which is all that the relay itself sees of it.
///
/// Names lie in 100::/64, which nobody can have (RFC 6666), and are never given twice.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    by_pair: BTreeMap<Pair, Named>,
    by_name: BTreeMap<SocketAddr, Pair>,
    next: u64,
}

#[derive(Debug)]
struct Named {
    name: SocketAddr,
    last_used: Instant,
}

impl Pairs {
    /// The name of a pair.
    pub(super) fn name(&mut self, now: Instant, pair: Pair) -> SocketAddr {
        let Self { by_pair, by_name, next } = self;
        let named = by_pair.entry(pair).or_insert_with(|| {
            *next += 1;
            let address = Ipv6Addr::from_bits((0x0100 << 112) | u128::from(*next));
            let name = SocketAddr::from((address, 1));
            by_name.insert(name, pair);
            Named { name, last_used: now }
        });
        named.last_used = now;
        named.name
    }

    /// Takes the name of a pair away: what is still meant for it goes nowhere, and it will have another one.
    pub(super) fn rename(&mut self, pair: Pair) {
        if let Some(named) = self.by_pair.remove(&pair) {
            self.by_name.remove(&named.name);
        }
    }

    /// Whether a client's pair, and the one in which it is asked for, can have names when there may be `most`.
    pub(super) fn have_room(&self, client: Pair, most: usize) -> bool {
        self.by_pair.contains_key(&client) || self.by_pair.len() + 2 <= most
    }

    /// The pair of a name.
    pub(super) fn pair(&self, name: SocketAddr) -> Option<Pair> {
        self.by_name.get(&name).copied()
    }

    /// Forgets the names that were not used for `idle`.
    pub(super) fn forget(&mut self, now: Instant, idle: Duration) {
        let by_name = &mut self.by_name;
        self.by_pair.retain(|_, named| {
            let is_used = now.since(named.last_used) < idle;
            if !is_used {
                by_name.remove(&named.name);
            }
            is_used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(port: u16) -> Pair {
        Pair { peer: ([192, 0, 2, 1], port).into(), local: ([198, 51, 100, 1], 4433).into() }
    }

    #[test]
    fn a_pair_keeps_its_name_until_it_is_idle() {
        let mut pairs = Pairs::default();
        let at = |s: u64| Instant::ZERO + Duration::from_secs(s);
        let (a, b) = (pairs.name(at(0), pair(1)), pairs.name(at(0), pair(2)));
        assert_ne!(a, b);
        assert_eq!((pairs.name(at(50), pair(1)), pairs.pair(a)), (a, Some(pair(1))));
        pairs.forget(at(60), Duration::from_secs(60));
        assert_eq!((pairs.pair(a), pairs.pair(b)), (Some(pair(1)), None));
        assert_ne!(pairs.name(at(61), pair(2)), b, "a late packet must not go to somebody else");
        pairs.rename(pair(1));
        assert_eq!(pairs.pair(a), None);
        assert_ne!(pairs.name(at(62), pair(1)), a);
    }
}
