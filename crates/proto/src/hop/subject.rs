//! The subject of a packet, by the id of its flow: two ids are those of no flow, but questions to the neighbour itself.

use super::{HELLO, SizeQuestion};
use crate::name::FlowId;

/// The subject of a request, or of the answer to one. It is read once, where a packet is parsed or a request made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The neighbour itself: facts for operators ([`HELLO`]).
    Neighbour,
    /// The length of the packets that the path from the neighbour carries.
    PathSize(SizeQuestion),
    /// Bytes of a flow.
    Flow,
}

impl Subject {
    /// The subject of a packet that names `flow`.
    #[inline]
    pub fn of(flow: FlowId) -> Self {
        if flow == HELLO {
            return Self::Neighbour;
        }
        SizeQuestion::read(flow).map_or(Self::Flow, Self::PathSize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_but_two_kinds_is_a_flows() {
        let question = SizeQuestion { limit: None, probe: 1350 };
        let of = [HELLO, question.flow(), FlowId([0; 16])].map(Subject::of);
        assert_eq!(of, [Subject::Neighbour, Subject::PathSize(question), Subject::Flow]);
    }
}
