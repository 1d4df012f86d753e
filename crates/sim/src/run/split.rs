//! Flows whose connection a gateway splits by rate.

use super::build::{Builder, Ends, FlowSpec, Transport};
use crate::engine::{Address, HostId, IP_HEADER, NodeId};
use crate::host::split::{GatewayHost, SplitSink, TerminalHost, Upstream};
use crate::host::tcp::{TcpConfig, TcpSink, TcpSource};
use starhop_proto::split::{HEADER, SplitConfig};
use starhop_proto::units::Rate;
use std::collections::BTreeMap;

/// TCP to the gateway, and the connection beyond it.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitTransport {
    /// TCP between the server and the gateway.
    pub terrestrial: TcpConfig,
    /// The connection between the gateway and the client.
    pub satellite: SplitConfig,
}

impl SplitTransport {
    /// Bytes of the IP packet around a full payload over the satellite.
    pub(super) fn full_packet(&self) -> u32 {
        self.satellite.mss + HEADER + IP_HEADER
    }
}

/// The server of a flow and its gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    source: HostId,
    gateway: HostId,
}

impl Builder {
    /// Adds one gateway for all flows that are split at the same node for the same satellite, and all their
    /// servers.
    pub(super) fn add_gateways(&mut self, flows: &[FlowSpec]) {
        let mut shared: BTreeMap<(NodeId, Rate), Vec<usize>> = BTreeMap::new();
        for (index, flow) in flows.iter().enumerate() {
            if let (Transport::Split(split), Some(&node)) = (&flow.transport, flow.splits.first()) {
                shared.entry((node, split.satellite.rate)).or_default().push(index);
            }
        }
        for ((node, rate), members) in shared {
            let upstreams: Vec<Upstream> =
                members.iter().filter_map(|&index| self.add_server(&flows[index], index)).collect();
            let framing = members.first().map_or(0, |&index| self.framing(node, flows[index].to));
            let host = GatewayHost::new(rate, framing, &upstreams);
            let gateway = self.world.add_host(node, Box::new(host), false);
            for upstream in &upstreams {
                let source = Address::of(upstream.server).map_or(gateway, |server| server.host);
                self.served.insert(upstream.flow, Served { source, gateway });
            }
        }
    }

    fn add_server(&mut self, flow: &FlowSpec, index: usize) -> Option<Upstream> {
        let Transport::Split(split) = &flow.transport else { return None };
        let SplitTransport { terrestrial, satellite } = split.as_ref().clone();
        let (number, seed) = (index as u32, self.rng.next_u64());
        let source = TcpSource::new(&terrestrial, number, flow.length, seed).answering(flow.exchange);
        let server = self.world.add_host(flow.from, Box::new(source), true).addr();
        Some(Upstream { flow: number, server, terrestrial, satellite })
    }

    /// Bytes that the first link from the gateway to a client adds to a packet.
    fn framing(&self, gateway: NodeId, client: NodeId) -> u32 {
        let network = self.world.network();
        network.path(gateway, client).first().map_or(0, |&link| network.header(link))
    }

    /// The client, over the satellite or behind a terminal. Server and gateway are there already.
    pub(super) fn add_split(&mut self, split: &SplitTransport, spec: &FlowSpec, record: usize) -> Ends {
        let number = record as u32;
        let served = self.served.get(&number).copied();
        let gateway = served.map(|served| served.gateway);
        let upstream = gateway.unwrap_or(HostId(0));
        let mut senders: Vec<HostId> = served.map(|served| served.source).into_iter().collect();
        let (recorder, clock) = (self.recorder.clone(), self.world.network().clock(spec.to));
        let client = match spec.splits.get(1) {
            None => {
                let sink = SplitSink::new(&split.satellite, number, upstream.addr(), recorder, clock);
                self.world.add_host(spec.to, Box::new(sink.asking(spec.exchange)), false)
            }
            Some(&node) => {
                let terminal = self.add_terminal(split, number, upstream, node);
                senders.push(terminal);
                let sink = TcpSink::new(&split.terrestrial, number, recorder, clock);
                let sink = sink.upstream(terminal.addr()).asking(spec.exchange);
                self.world.add_host(spec.to, Box::new(sink), false)
            }
        };
        Ends { driver: client, client, senders, gateway }
    }

    fn add_terminal(&mut self, split: &SplitTransport, flow: u32, gateway: HostId, node: NodeId) -> HostId {
        let seed = self.rng.next_u64();
        let terminal = TerminalHost::new(&split.satellite, &split.terrestrial, flow, gateway.addr(), seed);
        self.world.add_host(node, Box::new(terminal), false)
    }
}
