use crate::peer::{Incarnation, Peer};
use crate::time::Instant;

/// The sender of a packet, measured by those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaker {
    /// The incarnation that answered before, or the first one.
    Known,
    /// Another incarnation answers from now on: the neighbour restarted, or another node stands in its place, and
    /// it does not know the requests that its predecessor got. Or this node asks as another incarnation, for which
    /// the neighbour has no state yet.
    New,
    /// An incarnation that no longer answers: its packet was still on its way when the next one took over. Its bytes
    /// count, its counter and its delay do not.
    Former,
}

/// The incarnation that answers a Requester.
///
/// When a path changes, packets of both incarnations arrive mixed for a while. A packet comes from a former
/// incarnation if it answers an Interest from before the present incarnation took over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answerer {
    present: Option<(Memories, Instant)>,
}

/// The two memories at the ends of a hop. The Responder's state belongs to both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Memories {
    answerer: Incarnation,
    asker: Incarnation,
}

impl Answerer {
    /// A packet of `peer` arrived that answers the Interests sent until `answered`; `None` if it does not tell.
    pub(super) fn hear(&mut self, now: Instant, peer: &Peer, answered: Option<Instant>) -> Speaker {
        let memories = Memories { answerer: peer.incarnation, asker: peer.asker };
        let speaker = match self.present {
            None => Speaker::Known,
            Some((present, _)) if present == memories => return Speaker::Known,
            Some((_, since)) if answered.is_some_and(|answered| answered > since) => Speaker::New,
            Some(_) => return Speaker::Former,
        };
        self.present = Some((memories, now));
        speaker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Member;
    use crate::time::Duration;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn node(boot: u64) -> Peer {
        asked_by(boot, 1)
    }

    /// Node `boot` answers the requests that this node sent in its start `own`.
    fn asked_by(boot: u64, own: u64) -> Peer {
        let incarnation = |boot| Incarnation { boot, link: 1 };
        let face = core::net::SocketAddr::from(([192, 0, 2, 1], 1)).into();
        Peer { face, incarnation: incarnation(boot), asker: incarnation(own), member: Member::default() }
    }

    #[test]
    fn a_new_incarnation_takes_over_with_its_first_packet() {
        let mut answerer = Answerer::default();
        let mut hear = |now, boot| answerer.hear(at(now), &node(boot), Some(at(now - 20)));
        assert_eq!(
            [hear(100, 1), hear(110, 1), hear(200, 2)],
            [Speaker::Known, Speaker::Known, Speaker::New]
        );
        assert_eq!(hear(201, 2), Speaker::Known);
    }

    #[test]
    fn packets_on_their_way_from_the_former_one_change_nothing_and_its_return_does() {
        let mut answerer = Answerer::default();
        answerer.hear(at(100), &node(1), Some(at(60)));
        assert_eq!(answerer.hear(at(200), &node(2), Some(at(180))), Speaker::New);
        for now in 200..240 {
            assert_eq!(answerer.hear(at(now), &node(1), Some(at(now - 40))), Speaker::Former);
            assert_eq!(answerer.hear(at(now), &node(2), Some(at(now - 20))), Speaker::Known);
        }
        assert_eq!(answerer.hear(at(241), &node(1), Some(at(201))), Speaker::New, "it has heard us since");
    }

    /// A node whose clock goes back asks as another incarnation, for which the neighbour has no state yet.
    #[test]
    fn a_neighbour_begins_anew_for_a_node_that_asks_as_another() {
        let mut answerer = Answerer::default();
        answerer.hear(at(100), &asked_by(7, 1), Some(at(60)));
        assert_eq!(answerer.hear(at(200), &asked_by(7, 2), Some(at(180))), Speaker::New);
        assert_eq!(answerer.hear(at(201), &asked_by(7, 2), Some(at(181))), Speaker::Known);
    }
}
