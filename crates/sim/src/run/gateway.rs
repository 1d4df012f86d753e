//! Flows whose connection a pair of gateways carries over the protocol.

use super::build::{Builder, Ends, FlowSpec, Transport};
use crate::engine::{HostId, NodeId};
use crate::host::tcp::{TcpConfig, TcpSink, TcpSource};
use crate::host::{PairPlace, PairedGateway, Protection, ServedFlow};
use starhop_proto::config::Config;
use starhop_proto::name::FlowId;
use starhop_proto::split::SplitConfig;

/// TCP at both ends of a flow, and the protocol between the gateways.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayTransport {
    /// TCP between users and gateways.
    pub tcp: TcpConfig,
    /// The protocol's settings at both gateways.
    pub config: Config,
    /// Bytes that a gateway asks of the other ahead.
    pub window: u64,
    /// Connections travel by the rate-based protocol of connection splitting, with these settings.
    pub by_rate: Option<SplitConfig>,
}

/// The flows that one pair of gateways carries.
struct Carried {
    /// The nodes near the server and near the client of the first flow.
    nodes: [NodeId; 2],
    config: Config,
    window: u64,
    by_rate: Option<SplitConfig>,
    /// Each flow, and the side of its server.
    members: Vec<(usize, u8)>,
}

impl Builder {
    /// Adds one pair of gateways for all flows between the same nodes with the same settings, in both directions, and all their servers.
    pub(super) fn add_pairs(&mut self, flows: &[FlowSpec]) {
        let mut pairs: Vec<Carried> = Vec::new();
        for (index, flow) in flows.iter().enumerate() {
            let (Transport::Gateway(how), &[left, right]) = (&flow.transport, &flow.splits[..]) else {
                continue;
            };
            let (nodes, config, window, by_rate) = ([left, right], &how.config, how.window, how.by_rate);
            let is_it = |pair: &&mut Carried| {
                [nodes, [right, left]].contains(&pair.nodes)
                    && (&pair.config, pair.window, pair.by_rate) == (config, window, by_rate)
            };
            match pairs.iter_mut().find(is_it) {
                Some(pair) => pair.members.push((index, u8::from(pair.nodes != nodes))),
                None => pairs.push(Carried {
                    nodes,
                    config: config.clone(),
                    window,
                    by_rate,
                    members: vec![(index, 0)],
                }),
            }
        }
        (0..).zip(pairs).for_each(|(number, pair)| self.add_pair(number, &pair, flows));
    }

    fn add_pair(&mut self, number: u32, pair: &Carried, flows: &[FlowSpec]) {
        let members: Vec<(HostId, ServedFlow)> =
            pair.members.iter().filter_map(|&member| self.add_user(member, flows)).collect();
        let served: Vec<ServedFlow> = members.iter().map(|(_, flow)| flow.clone()).collect();
        // Hosts are numbered as they are added.
        let first = self.world.host_count() as u32;
        let gateways = [HostId(first), HostId(first + 1)];
        for (side, &node) in pair.nodes.iter().enumerate() {
            let place = PairPlace { pair: number, side: side as u8, peer: gateways[1 - side].addr() };
            let (seals, seed) = (self.seals(Protection::Sealed, node), self.rng.next_u64());
            let shown = (self.recorder.clone(), self.pattern.clone());
            let settings = (&pair.config, pair.window, pair.by_rate);
            let host = PairedGateway::new(place, settings, (seals, seed), &served, shown);
            self.world.add_host(node, Box::new(host), false);
        }
        gateways.into_iter().for_each(|gateway| self.world.start(gateway));
        let pairs = members.iter().map(|(source, flow)| {
            let near_client = gateways[usize::from(1 - flow.server_side)];
            (flow.flow, (*source, near_client))
        });
        self.carried.extend(pairs);
    }

    /// The server of a flow, which is on this side.
    fn add_user(
        &mut self,
        (index, server_side): (usize, u8),
        flows: &[FlowSpec],
    ) -> Option<(HostId, ServedFlow)> {
        let (number, flow) = (index as u32, &flows[index]);
        let Transport::Gateway(how) = &flow.transport else { return None };
        let tcp = how.tcp.clone();
        let source = TcpSource::new(&tcp, number, flow.length, self.rng.next_u64()).answering(flow.exchange);
        let source = self.world.add_host(flow.from, Box::new(source), true);
        let (content, seed): (FlowId, u64) = (flow.content, self.rng.next_u64());
        Some((source, ServedFlow { flow: number, content, tcp, server_side, server: source.addr(), seed }))
    }

    /// The client. Its server and the gateways are there already.
    pub(super) fn add_carried(&mut self, how: &GatewayTransport, spec: &FlowSpec, record: usize) -> Ends {
        let number = record as u32;
        let carried = self.carried.get(&number).copied();
        let upstream = carried.map_or(HostId(0), |(_, gateway)| gateway);
        let clock = self.world.network().clock(spec.to);
        let sink = TcpSink::new(&how.tcp, number, self.recorder.clone(), clock);
        let sink = sink.upstream(upstream.addr()).asking(spec.exchange);
        let client = self.world.add_host(spec.to, Box::new(sink), false);
        let senders = carried.map(|(source, _)| source).into_iter().collect();
        Ends { driver: client, client, senders, gateway: carried.map(|(_, gateway)| gateway) }
    }
}
