use crate::name::FlowId;
use core::hash::BuildHasher;
use core::net::SocketAddr;
use foldhash::fast::FixedState;

/// The key by which a relay tells flows apart.
#[derive(Clone, Debug)]
pub(super) enum Names {
    /// Flows have their ids alone as keys: the operator has configured the upstreams.
    ById,
    /// The key is the id and the server that the client asks for the flow, because each client chooses its server.
    /// Both halves of a mask are hashed from the server's address, under seeds of this start.
    ByServer([FixedState; 2]),
}

impl Names {
    pub(super) fn by_server(seeds: [u64; 2]) -> Self {
        Self::ByServer(seeds.map(FixedState::with_seed))
    }

    /// Whether clients choose their servers.
    pub(super) fn are_by_server(&self) -> bool {
        matches!(self, Self::ByServer(_))
    }

    /// The name inside the relay of a flow that travels as `flow` from `server`. The function is its own inverse.
    pub(super) fn translate(&self, flow: FlowId, server: SocketAddr) -> FlowId {
        let Self::ByServer(states) = self else { return flow };
        let half = |state: &FixedState| state.hash_one(server).to_be_bytes();
        let mut name = flow.0;
        let mask = states.iter().flat_map(half);
        name.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        FlowId(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_of_two_servers_has_two_names_that_lead_back() {
        let names = Names::by_server([1, 2]);
        let servers = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let flow = FlowId([7; 16]);
        let inner = servers.map(|server| names.translate(flow, server));
        assert!(inner[0] != inner[1] && inner[0] != flow);
        assert_eq!(names.translate(inner[0], servers[0]), flow);
        assert_eq!(Names::ById.translate(flow, servers[0]), flow);
    }
}
