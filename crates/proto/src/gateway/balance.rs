//! A peer's connections beside its carried packets: the hop knows them as two flows, each of which stands for many.

use super::{Bond, Gateway};
use crate::wire::Suite;

/// Packets of the longest turn. Of two flows of weight 8 and 1 on 20 Mbit/s the lighter one waits for 4.5 ms.
const LONGEST_TURN: u32 = 8;

/// Packets per turn of two flows that stand for as many as `weights`, each at least one.
fn turns(weights: [u32; 2]) -> [u8; 2] {
    let most = weights[0].max(weights[1]);
    let scaled =
        |weight: u32| if most <= LONGEST_TURN { weight } else { (LONGEST_TURN * weight).div_ceil(most) };
    weights.map(|weight| scaled(weight).max(1) as u8)
}

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// Shares the hop towards a peer between the connections and the carried packets that have something to send, by the
    /// sums of their weights.
    pub(super) fn balance(&mut self, index: u16) {
        let Some(peer) = self.peers.get(usize::from(index)) else { return };
        let (Some(session), Some(carry)) = (&peer.session, &peer.carry) else { return };
        let [connections, packets] = turns([session.turns.weight(), carry.weight()]);
        self.producer.set_weight(session.out.flow, connections);
        self.producer.set_weight(carry.out.flow, packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_as_the_weights_and_no_longer_than_eight_packets() {
        assert_eq!(turns([0, 0]), [1, 1]);
        assert_eq!(turns([3, 1]), [3, 1]);
        assert_eq!(turns([8, 5]), [8, 5]);
        assert_eq!(turns([30, 10]), [8, 3]);
        assert_eq!(turns([1, 4_000_000]), [1, 8]);
    }
}
