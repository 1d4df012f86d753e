//! One line of the log for each peer whose path is found to carry shorter packets than usual, or longer ones than before.

use starhop_proto::hop::Upstream;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The lengths that paths from upstream are known to carry.
pub fn of(hops: impl Iterator<Item = Upstream>) -> impl Iterator<Item = (SocketAddr, u64)> {
    hops.filter_map(|hop| Some((hop.addr, u64::from(hop.payload?))))
}

/// The state of a path when it was last seen, and as it was told.
#[derive(Clone, Copy, Debug)]
struct Path {
    seen: u64,
    told: Option<u64>,
}

/// A role's memory of the lengths of its paths.
#[derive(Debug)]
pub struct Paths {
    /// The longest payload of the configuration, bytes.
    usual: u64,
    by_peer: BTreeMap<SocketAddr, Path>,
}

impl Paths {
    /// A memory of nothing; `usual` is the longest payload of the configuration, bytes.
    pub fn new(usual: usize) -> Self {
        Self { usual: usual as u64, by_peer: BTreeMap::new() }
    }

    /// Looks at the longest payloads, in bytes, that paths carry. Called about once a second: a length is told when it
    /// is the same twice, since a search passes through others.
    pub fn look(&mut self, lengths: impl Iterator<Item = (SocketAddr, u64)>) {
        let usual = self.usual;
        for (peer, payload) in self.news(lengths) {
            if payload < usual {
                tracing::warn!(
                    %peer, payload, usual,
                    "the path drops longer packets without a word: packets keep to {payload} bytes of payload"
                );
            } else {
                tracing::info!(%peer, payload, "the path carries packets of full length again");
            }
        }
    }

    fn news(&mut self, lengths: impl Iterator<Item = (SocketAddr, u64)>) -> Vec<(SocketAddr, u64)> {
        let before = std::mem::take(&mut self.by_peer);
        let mut news = Vec::new();
        for (peer, seen) in lengths {
            let known = before.get(&peer).copied();
            let mut path = Path { seen, told: known.and_then(|path| path.told) };
            let is_settled = known.is_some_and(|path| path.seen == seen);
            if is_settled && path.told.unwrap_or(self.usual) != seen {
                path.told = Some(seen);
                news.push((peer, seen));
            }
            self.by_peer.insert(peer, path);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_told_once_when_the_search_has_ended_and_again_when_it_changes() {
        let (mut paths, peer) = (Paths::new(1350), SocketAddr::from(([10, 0, 0, 1], 4433)));
        let told: Vec<Vec<u64>> = [1350, 1350, 1170, 1185, 1192, 1192, 1192, 1350, 1350, 1350]
            .into_iter()
            .map(|length| {
                paths.news(std::iter::once((peer, length))).into_iter().map(|news| news.1).collect()
            })
            .collect();
        let mut expected = vec![Vec::new(); 10];
        (expected[5], expected[8]) = (vec![1192], vec![1350]);
        assert_eq!(told, expected);
        assert!(paths.news(std::iter::empty()).is_empty() && paths.by_peer.is_empty());
    }
}
