//! The peer to which users' connections and packets go, where there are several.

use serde::Deserialize;
use starhop_proto::time::Duration;

/// Which of the peers that answer has the users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Prefer {
    /// The first one of the file.
    #[default]
    First,
    /// The one with the shortest round trip.
    Nearest,
}

/// A peer as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) peer: u16,
    /// The round trip, while it answers.
    pub(super) rtt: Option<Duration>,
}

/// Another peer has to be nearer by this share of the round trip, and by this much: a change costs a site's users
/// another address at the hub where that translates addresses, and round trips vary with the queue.
const NEARER: (u64, u64) = (4, 5);
const NEARER_BY: Duration = Duration::from_millis(2);
/// The weight of an earlier round trip beside the present one, less one: eight looks, of which there are four a second.
const SMOOTH: u64 = 7;

/// Looks at the peers from time to time, and chooses.
#[derive(Debug, Default)]
pub(super) struct Choice {
    chosen: Option<u16>,
    /// Smooth round trips of the peers that answer.
    round_trips: Vec<(u16, Duration)>,
}

impl Choice {
    /// The peer that has the users from now on, of those in the order of the file; `None` while nobody answers.
    pub(super) fn look(&mut self, prefer: Prefer, candidates: &[Candidate]) -> Option<u16> {
        let smooth = |candidate: &Candidate| {
            let now = candidate.rtt?;
            let before = self.round_trips.iter().find(|(peer, _)| *peer == candidate.peer);
            let rtt =
                before.map_or(now, |(_, before)| (before.scaled(SMOOTH, 1) + now).scaled(1, SMOOTH + 1));
            Some((candidate.peer, rtt))
        };
        self.round_trips = candidates.iter().filter_map(smooth).collect();
        let first = self.round_trips.first().map(|(peer, _)| *peer);
        self.chosen = match prefer {
            Prefer::First => first,
            Prefer::Nearest => self.nearest(),
        };
        self.chosen
    }

    fn nearest(&self) -> Option<u16> {
        let (peer, rtt) = *self.round_trips.iter().min_by_key(|(_, rtt)| *rtt)?;
        let current = self.round_trips.iter().find(|(peer, _)| Some(*peer) == self.chosen);
        let stays = |(_, current): &(u16, Duration)| {
            rtt > current.scaled(NEARER.0, NEARER.1) || rtt + NEARER_BY > *current
        };
        Some(current.filter(|current| stays(current)).map_or(peer, |(current, _)| *current))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(rtts: [Option<u64>; 3]) -> Vec<Candidate> {
        let of = |(peer, rtt): (u16, Option<u64>)| Candidate { peer, rtt: rtt.map(Duration::from_millis) };
        (0..).zip(rtts).map(of).collect()
    }

    #[test]
    fn the_first_that_answers_has_the_users() {
        let mut choice = Choice::default();
        let mut chosen = |rtts| choice.look(Prefer::First, &peers(rtts));
        assert_eq!(chosen([None, None, None]), None);
        assert_eq!(chosen([None, Some(40), Some(20)]), Some(1));
        assert_eq!(chosen([Some(500), Some(40), Some(20)]), Some(0), "it is back");
    }

    #[test]
    fn the_nearest_has_the_users_until_another_is_clearly_nearer() {
        let mut choice = Choice::default();
        let mut chosen = |rtts| choice.look(Prefer::Nearest, &peers(rtts));
        assert_eq!(chosen([Some(60), Some(40), None]), Some(1));
        for rtt in [33, 60, 33, 60] {
            assert_eq!(chosen([Some(rtt), Some(40), None]), Some(1), "a fifth is the least, of many looks");
        }
        assert_eq!((0..40).map(|_| chosen([Some(20), Some(40), None])).last().unwrap(), Some(0));
        assert_eq!(chosen([None, Some(40), None]), Some(1), "nobody waits for one that is silent");
    }

    #[test]
    fn on_a_short_path_a_little_is_not_nearer() {
        let mut choice = Choice::default();
        assert_eq!(choice.look(Prefer::Nearest, &peers([None, Some(3), None])), Some(1));
        for _ in 0..40 {
            assert_eq!(choice.look(Prefer::Nearest, &peers([Some(2), Some(3), None])), Some(1));
        }
    }
}
