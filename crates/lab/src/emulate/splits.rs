//! Nodes that split the connections of the kernel's TCP: a proxy process at each.

use super::tcp;
use super::world::World;
use crate::error::LabError;
use crate::process::{Daemon, bare_command, start};
use crate::scenario::Scenario;
use starhop_sim::engine::NodeId;
use starhop_sim::run::{FlowSpec, Transport};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

/// All proxies of all flows.
#[derive(Default)]
pub(super) struct Splits {
    running: Vec<(NodeId, Daemon)>,
}

impl Splits {
    /// Starts the proxies of every flow that `controls` names, and waits until they are ready.
    pub(super) fn start(
        &mut self,
        program: &Path,
        scenario: &Scenario,
        world: &World,
        flows: &[FlowSpec],
        controls: &BTreeMap<usize, String>,
    ) -> Result<(), LabError> {
        for (&flow, control) in controls {
            let mut before = scenario.node(&scenario.flows[flow].from);
            for &node in proxies(&flows[flow]) {
                let port = tcp::port(flow);
                let to = SocketAddr::new(world.address(before), port);
                let listen = SocketAddr::new(world.address(node), port);
                let mut proxy = bare_command(program, "split-proxy");
                proxy.env(super::leftovers::MARKER, super::leftovers::marker());
                proxy.args(["--listen", &listen.to_string(), "--to", &to.to_string(), "--control", control]);
                if let Transport::Tcp(config) = &flows[flow].transport
                    && let Some(bytes) = config.split_buffer
                {
                    proxy.args(["--buffer", &format!("{bytes}B")]);
                }
                let host = &world.nodes[node.0 as usize].namespace;
                let what = format!("the proxy of {}", host.name());
                self.running.push((node, start(&what, host, proxy, "ready")?));
                before = node;
            }
        }
        Ok(())
    }

    /// Whether a proxy runs at a node.
    pub(super) fn is_at(&self, node: NodeId) -> bool {
        self.running.iter().any(|(at, _)| *at == node)
    }
}

/// The nodes of a flow's proxies: gateways need none.
fn proxies(spec: &FlowSpec) -> &[NodeId] {
    if matches!(spec.transport, Transport::Gateway(_)) { &[] } else { &spec.splits }
}

/// The node that the client of a flow connects to: the nearest proxy, or the server.
pub(super) fn first(scenario: &Scenario, flow: usize, spec: &FlowSpec) -> NodeId {
    proxies(spec).last().copied().unwrap_or_else(|| scenario.node(&scenario.flows[flow].from))
}
