use crate::peer::{Face, Incarnation, Peer};
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// An incarnation that another one has replaced at its face is forgotten after this time. A path that alternates between
/// two nodes more often than this keeps the state of both.
const MEMORY: Duration = Duration::from_secs(1);

/// The incarnations that ask from each face. A face speaks with one of them at a time, the one heard last: packets
/// for another incarnation have no receiver there.
pub(super) struct Faces {
    by_face: Table<Face, Speakers>,
    /// The hop of the incarnation that spoke last at each address.
    by_remote: BTreeMap<SocketAddr, Slot>,
    /// Hops whose incarnation was replaced, with the time of that, the earliest first.
    replaced: VecDeque<(Instant, Slot)>,
}

#[derive(Debug)]
struct Speakers {
    present: Incarnation,
    /// Every hop of the face, with its incarnation.
    links: Vec<(Incarnation, Slot)>,
}

/// The hops whose turn a new speaker changes.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// They may send.
    pub(super) resumed: Vec<Slot>,
    /// They wait, and are forgotten before long.
    pub(super) held: Vec<Slot>,
}

impl Faces {
    /// No face has spoken.
    pub(super) fn new(seed: u64) -> Self {
        Self { by_face: Table::new(seed), by_remote: BTreeMap::new(), replaced: VecDeque::new() }
    }

    /// A peer was heard on `link`. Returns the change if another peer spoke last at its face.
    pub(super) fn hear(&mut self, now: Instant, peer: &Peer, link: Slot) -> Option<Change> {
        let incarnation = peer.incarnation;
        let fresh = || Speakers { present: incarnation, links: Vec::new() };
        let slot = self.by_face.find_or_insert(peer.face, fresh);
        let speakers = self.by_face.get_mut(slot)?;
        if !speakers.links.contains(&(incarnation, link)) {
            speakers.links.push((incarnation, link));
            self.by_remote.insert(peer.face.remote, link);
        }
        if speakers.present == incarnation {
            return None;
        }
        speakers.present = incarnation;
        self.by_remote.insert(peer.face.remote, link);
        let mut change = Change::default();
        for &(of, link) in &speakers.links {
            if of == incarnation { change.resumed.push(link) } else { change.held.push(link) }
        }
        self.replaced.retain(|(_, link)| !change.resumed.contains(link) && !change.held.contains(link));
        self.replaced.extend(change.held.iter().map(|&link| (now, link)));
        Some(change)
    }

    /// The hop of a neighbour that asks from this address.
    pub(super) fn at(&self, remote: SocketAddr) -> Option<Slot> {
        self.by_remote.get(&remote).copied()
    }

    /// A hop that was replaced long enough ago to be forgotten.
    pub(super) fn take_replaced(&mut self, now: Instant) -> Option<Slot> {
        let (since, _) = *self.replaced.front()?;
        if now.since(since) < MEMORY {
            return None;
        }
        self.replaced.pop_front().map(|(_, link)| link)
    }

    /// Time at which [`Faces::take_replaced`] has something.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.replaced.front().map(|(since, _)| *since + MEMORY)
    }

    /// The hop of a peer is forgotten.
    pub(super) fn remove(&mut self, peer: &Peer, link: Slot) {
        self.replaced.retain(|(_, of)| *of != link);
        if self.at(peer.face.remote) == Some(link) {
            self.by_remote.remove(&peer.face.remote);
        }
        let Some(slot) = self.by_face.find(&peer.face) else { return };
        let Some(speakers) = self.by_face.get_mut(slot) else { return };
        speakers.links.retain(|(_, of)| *of != link);
        if speakers.links.is_empty() {
            self.by_face.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Member;

    fn peer(boot: u64) -> Peer {
        let face = SocketAddr::from(([192, 0, 2, 1], 9)).into();
        let incarnation = Incarnation { boot, link: 0 };
        Peer { face, incarnation, asker: Incarnation::default(), member: Member::default() }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_face_speaks_with_the_incarnation_heard_last_and_forgets_the_other_after_a_second() {
        let mut faces = Faces::new(1);
        assert!(faces.hear(at(0), &peer(1), Slot(0)).is_none());
        let change = faces.hear(at(10), &peer(2), Slot(1)).unwrap();
        assert_eq!((change.resumed, change.held), (alloc::vec![Slot(1)], alloc::vec![Slot(0)]));
        assert_eq!(faces.take_replaced(at(1009)), None);
        assert_eq!((faces.next_timeout(), faces.take_replaced(at(1010))), (Some(at(1010)), Some(Slot(0))));
        faces.remove(&peer(1), Slot(0));
        assert_eq!(faces.at(peer(2).face.remote), Some(Slot(1)), "the one heard last");
        assert!(faces.hear(at(1011), &peer(2), Slot(1)).is_none());
    }

    #[test]
    fn incarnations_that_alternate_are_both_remembered() {
        let mut faces = Faces::new(1);
        faces.hear(at(0), &peer(1), Slot(0));
        for turn in 1..20 {
            let (boot, link) = if turn % 2 == 0 { (1, Slot(0)) } else { (2, Slot(1)) };
            assert!(faces.hear(at(turn * 500), &peer(boot), link).is_some());
            assert_eq!(faces.take_replaced(at(turn * 500 + 499)), None);
        }
    }
}
