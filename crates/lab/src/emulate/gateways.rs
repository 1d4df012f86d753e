//! Pairs of real gateways that carry the connections of the kernel's TCP.

use super::tcp;
use super::world::World;
use crate::error::LabError;
use crate::process::{Daemon, Sealing, bare_command, start};
use starhop_proto::config::{Config, Controller, Profile, Settings};
use starhop_proto::units::Rate;
use starhop_sim::engine::NodeId;
use starhop_sim::run::{FlowSpec, GatewayTransport, Transport};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

/// UDP port of a gateway.
const PORT: u16 = 4433;

/// All gateways of all flows.
#[derive(Default)]
pub(super) struct Gateways {
    running: Vec<(NodeId, Daemon)>,
}

/// A pair of gateways and the flows that it carries.
struct Pair<'a> {
    nodes: [NodeId; 2],
    how: &'a GatewayTransport,
    flows: Vec<usize>,
}

impl Gateways {
    /// Starts the gateways of every flow that has some, and waits until they listen. They meet when the links begin.
    pub(super) fn start(
        &mut self,
        (program, sealing, scratch): (&Path, &Sealing, &Path),
        world: &World,
        flows: &[FlowSpec],
        controls: &BTreeMap<usize, String>,
    ) -> Result<(), LabError> {
        for (number, pair) in pairs(flows)?.iter().enumerate() {
            for (side, &node) in pair.nodes.iter().enumerate() {
                let text = configuration(world, sealing, pair, side, (flows, controls))?;
                let file = scratch.join(format!("gateway-{number}-{side}.toml"));
                std::fs::write(&file, text).map_err(LabError::system("cannot write a configuration"))?;
                let mut command = bare_command(program, "gateway");
                command.env(super::leftovers::MARKER, super::leftovers::marker());
                command.arg("--config").arg(&file);
                let host = &world.nodes[node.0 as usize].namespace;
                let what = format!("the gateway of {}", host.name());
                self.running.push((node, start(&what, host, command, "ready")?));
            }
        }
        Ok(())
    }

    /// Whether a gateway runs at a node.
    pub(super) fn is_at(&self, node: NodeId) -> bool {
        self.running.iter().any(|(at, _)| *at == node)
    }
}

/// A node has one gateway: two of them would take each other's packets.
fn pairs(flows: &[FlowSpec]) -> Result<Vec<Pair<'_>>, LabError> {
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for (index, flow) in flows.iter().enumerate() {
        let (Transport::Gateway(how), &[near, far]) = (&flow.transport, &flow.splits[..]) else { continue };
        let nodes = [near, far];
        let is_it = |pair: &Pair<'_>| {
            let settings = |how: &GatewayTransport| (how.config.clone(), how.window, how.by_rate);
            pair.nodes == nodes && settings(pair.how) == settings(how)
        };
        if let Some(at) = pairs.iter().position(is_it) {
            pairs[at].flows.push(index);
            continue;
        }
        if pairs.iter().any(|pair| pair.nodes.iter().any(|node| nodes.contains(node))) {
            let problem = "`gateway`: a node is in two pairs; emulate has one gateway on a node";
            return Err(LabError::Scenario(problem.to_owned()));
        }
        pairs.push(Pair { nodes, how, flows: vec![index] });
    }
    Ok(pairs)
}

/// The file of the gateway near the servers (0) or near the clients (1). Only connections of the pair's flows are split.
fn configuration(
    world: &World,
    sealing: &Sealing,
    pair: &Pair<'_>,
    side: usize,
    (flows, controls): (&[FlowSpec], &BTreeMap<usize, String>),
) -> Result<String, LabError> {
    let key = match sealing {
        Sealing::Insecure => "insecure = true".to_owned(),
        Sealing::Key(path) => format!("key = \"{}\"", path.display()),
    };
    let control = pair.flows.first().and_then(|flow| controls.get(flow)).map_or("cubic", String::as_str);
    let rate = known_rate(&pair.how.config)?;
    let rates = rate.map_or_else(String::new, |rate| {
        format!("link_rate_in_bits = {0}\nlink_rate_out_bits = {0}\n", rate.as_bps())
    });
    let protocol = pair.how.by_rate.map_or("", |_| "protocol = \"rate-split\"\n");
    let names = ["near-servers", "near-clients"];
    let peer = SocketAddr::new(world.address(pair.nodes[1 - side]), PORT);
    let mut devices: Vec<String> = Vec::new();
    for flow in pair.flows.iter().map(|&flow| &flows[flow]).filter(|_| side == 1) {
        let towards_client = world.network().path(pair.nodes[1], flow.to).first().copied();
        let device = towards_client.map(|link| format!("\"{}\"", world.egress(link.0).1));
        devices.extend(device.filter(|device| !devices.contains(device)));
    }
    let intercept = if side == 1 { format!("intercept = [{}]\n", devices.join(", ")) } else { String::new() };
    let ports: Vec<String> = pair.flows.iter().map(|&flow| tcp::port(flow).to_string()).collect();
    Ok(format!(
        "name = \"{}\"\n{key}\nwindow_bytes = {}\ncongestion = \"{control}\"\ncarry = false\n{rates}{intercept}\
         [[peer]]\nname = \"{}\"\naddress = \"{peer}\"\n{protocol}\
         [[policy]]\naction = \"split\"\nports = [{}]\n[[policy]]\naction = \"pass\"\n",
        names[side],
        pair.how.window,
        names[1 - side],
        ports.join(", "),
    ))
}

/// The rate that `gateway_options` give. Of the options of the protocol a real gateway has no others.
fn known_rate(config: &Config) -> Result<Option<Rate>, LabError> {
    let usual = Profile::Starhop.settings();
    let rate = if let Controller::Fixed(rate) = config.controller { Some(rate) } else { None };
    let controller = rate.map_or(usual.controller, Controller::Fixed);
    if **config == (Settings { controller, ..usual }) {
        return Ok(rate);
    }
    let problem =
        "`gateway_options`: real gateways have `window`, `protocol` and `controller = { fixed = … }` only";
    Err(LabError::Scenario(problem.to_owned()))
}
