//! One line of the log for each peer from which something on the way drops what is above a rate.

use starhop_proto::hop::Upstream;
use starhop_proto::units::Rate;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A role's memory of the peers that it has told of.
#[derive(Debug, Default)]
pub struct Policing {
    told: BTreeSet<SocketAddr>,
}

impl Policing {
    /// Looks at the hops from upstream. Called about once a second.
    pub fn look(&mut self, hops: impl Iterator<Item = Upstream>) {
        for (peer, rate) in self.news(hops) {
            tracing::warn!(
                %peer, mbps = rate.as_mbps(),
                "something on the way drops what is above {:.1} Mbit/s and queues nothing: a limit of the rate just below loses less",
                rate.as_mbps()
            );
        }
    }

    fn news(&mut self, hops: impl Iterator<Item = Upstream>) -> Vec<(SocketAddr, Rate)> {
        let policed: Vec<_> = hops.filter_map(|hop| Some((hop.addr, hop.policed?))).collect();
        let before = std::mem::take(&mut self.told);
        self.told = policed.iter().map(|(peer, _)| *peer).collect();
        policed.into_iter().filter(|(peer, _)| !before.contains(peer)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policer_is_told_of_once_and_again_when_it_comes_back() {
        let hop =
            |policed| Upstream { policed, ..Upstream::unheard(SocketAddr::from(([10, 0, 0, 1], 4433))) };
        let mut policing = Policing::default();
        let rate = Some(Rate::from_mbps(12));
        let told =
            [None, rate, rate, None, rate].map(|policed| policing.news(std::iter::once(hop(policed))).len());
        assert_eq!(told, [0, 1, 0, 0, 1]);
    }
}
