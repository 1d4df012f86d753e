//! Starhop's own processes: servers, relays and clients, one set of them for all flows of the same settings.

use super::world::World;
use crate::error::LabError;
use crate::process::{self, Daemon, Sealing, command, make_file, start};
use crate::scenario::{Flow, Scenario, options_of};
use nix::sys::signal::Signal;
use serde_json::Value;
use starhop_net::clock;
use starhop_net::emu::{Namespace, Process};
use starhop_proto::config::{Config, Settings};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::time::Instant;
use starhop_sim::engine::NodeId;
use starhop_sim::run::{FlowSpec, Transport};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// UDP port of the first set of processes; the next takes the next.
pub(super) const FIRST_PORT: u16 = 4433;

/// Up to this size an object is made of bytes that do not compress, and arriving bytes are verified. A larger or
/// endless object is a hole in a file behind a few such bytes: it takes no memory, and its client does not store
/// it.
const VERIFIED: u64 = 256 << 20;

/// Interval at which clients report their progress.
const TELL: &str = "200ms";

/// Longest file, bytes. A flow without an end would need a longer one.
const LONGEST: u64 = 1 << 40;

/// The way in which relays come to stand in a flow's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deployment {
    /// Routers divert packets to them; end points do not know of them (the papers' deployment).
    Transparent,
    /// Each process is told its upstream at its start, and keeps it although routes may change later.
    Overlay,
}

/// The content that one flow fetches.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) file: PathBuf,
    pub(super) hash: blake3::Hash,
    pub(super) is_verified: bool,
}

impl Content {
    pub(super) fn id(&self) -> FlowId {
        FlowId::of_content(self.hash.as_bytes())
    }

    fn name(&self) -> String {
        format!("b3:{}", self.hash)
    }
}

/// Flows of the same settings, and the processes that they share.
pub(super) struct Stack {
    config: Config,
    profile: String,
    port: u16,
    /// Numbers of the flows.
    flows: Vec<usize>,
    servers: BTreeMap<NodeId, Daemon>,
    relays: BTreeMap<NodeId, Daemon>,
    /// Nodes that run a relay, whether it lives or not.
    relay_nodes: BTreeSet<NodeId>,
    /// Final reports of the relays, added up over the lives of each.
    pub(super) told: BTreeMap<NodeId, Vec<Value>>,
}

/// A client, and its reports so far.
struct Client {
    process: Process,
    /// Bytes that it has.
    received: Arc<AtomicU64>,
    /// Reads all reports of the client; returns the last document.
    told: JoinHandle<Value>,
}

impl Client {
    fn start(host: &Namespace, command: std::process::Command) -> std::io::Result<Self> {
        let mut process = host.spawn_ahead(command)?;
        let stdout = process.child().and_then(|child| child.stdout.take());
        let received = Arc::new(AtomicU64::new(0));
        let count = received.clone();
        let told = std::thread::spawn(move || {
            let lines = stdout.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok);
            let events = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
            let mut document = Value::Null;
            for event in events {
                match event["event"].as_str() {
                    Some(_) => count.store(event["bytes"].as_u64().unwrap_or(0), Ordering::Relaxed),
                    None => document = event,
                }
            }
            document
        });
        Ok(Self { process, received, told })
    }
}

/// All processes of all stacks.
pub(super) struct Processes {
    program: PathBuf,
    sealing: Sealing,
    pub(super) scratch: PathBuf,
    pub(super) stacks: Vec<Stack>,
    pub(super) contents: BTreeMap<usize, Content>,
    /// The clients by flow.
    clients: BTreeMap<usize, Client>,
    /// Bytes that those had that have ended.
    received: BTreeMap<usize, u64>,
    deployment: Deployment,
    /// Jumps of the time of day of each node, nanoseconds, one number per time.
    pub(super) clock_steps: BTreeMap<NodeId, Vec<i64>>,
    /// Nodes whose relays let packets pass.
    aside: BTreeSet<NodeId>,
    /// Final reports of clients: exit code and document.
    pub(super) ended: BTreeMap<usize, (i32, Value)>,
    marker: OsString,
}

fn config_of(flow: &Flow) -> Option<&Config> {
    match &flow.how {
        Transport::Starhop(config, _) => Some(config),
        _ => None,
    }
}

/// Bytes of the file that a flow needs.
fn length(flow: &Flow, ideal_mbps: f64) -> u64 {
    let seconds = flow.stop.as_secs_f64() - flow.start.as_secs_f64();
    // Half as much again as the path can carry: a file must not end before its flow does.
    flow.size.unwrap_or((ideal_mbps.min(1e5) * seconds * 1e6 / 8.0 * 1.5) as u64 + (8 << 20)).min(LONGEST)
}

impl Processes {
    /// Makes the content to be fetched.
    pub(super) fn new(
        (program, sealing): (&Path, Sealing),
        scratch: &Path,
        scenario: &Scenario,
        ideal_mbps: &[f64],
        is_ours: impl Fn(usize) -> bool,
        deployment: Deployment,
    ) -> Result<Self, LabError> {
        let mut stacks: Vec<Stack> = Vec::new();
        let mut made: BTreeMap<(usize, String), Content> = BTreeMap::new();
        let mut contents = BTreeMap::new();
        for (index, flow) in scenario.flows.iter().enumerate().filter(|&(index, _)| is_ours(index)) {
            let Some(config) = config_of(flow) else { continue };
            let number = stacks.iter().position(|stack| stack.config == *config).unwrap_or_else(|| {
                let port = FIRST_PORT + stacks.len() as u16;
                stacks.push(Stack::new(config.clone(), flow.transport.clone(), port));
                stacks.len() - 1
            });
            stacks[number].flows.push(index);
            let key = (number, flow.content.clone());
            if !made.contains_key(&key) {
                // All readers of a content can have the whole of it.
                let alike = scenario.flows.iter().zip(ideal_mbps);
                let alike = alike.filter(|(other, _)| other.content == flow.content);
                let length = alike.map(|(other, &ideal)| length(other, ideal)).max().unwrap_or(0);
                let file = scratch.join(format!("content-{number}-{}", made.len()));
                let seed = scenario.seed.wrapping_mul(1009).wrapping_add(made.len() as u64);
                let content = make(&file, flow.size, length, seed);
                made.insert(
                    key.clone(),
                    content.map_err(LabError::system("cannot make what is to be sent"))?,
                );
            }
            contents.extend(made.get(&key).map(|content| (index, content.clone())));
        }
        Ok(Self {
            program: program.to_owned(),
            sealing,
            scratch: scratch.to_owned(),
            stacks,
            contents,
            clients: BTreeMap::new(),
            received: BTreeMap::new(),
            ended: BTreeMap::new(),
            deployment,
            clock_steps: BTreeMap::new(),
            aside: BTreeSet::new(),
            marker: super::leftovers::marker(),
        })
    }

    fn command(&self, verb: &str, node: NodeId) -> std::process::Command {
        let mut command = command(&self.program, verb, &self.sealing);
        if let (Some(steps), Some(name)) = (self.clock_steps.get(&node), clock::STEPS) {
            let steps: Vec<String> = steps.iter().map(i64::to_string).collect();
            command.env(name, steps.join(","));
        }
        command.env(super::leftovers::MARKER, &self.marker);
        command
    }

    /// Starts servers and relays, and waits until they are ready.
    pub(super) fn start(
        &mut self,
        scenario: &Scenario,
        world: &World,
        relays: &[NodeId],
    ) -> Result<(), LabError> {
        for number in 0..self.stacks.len() {
            let mut files: BTreeMap<NodeId, BTreeSet<PathBuf>> = BTreeMap::new();
            for &flow in &self.stacks[number].flows {
                let file = self.contents[&flow].file.clone();
                files.entry(scenario.node(&scenario.flows[flow].from)).or_default().insert(file);
            }
            for (node, files) in files {
                self.start_server(number, node, &files, world)?;
            }
            for &node in relays {
                self.start_relay(number, node, scenario, world)?;
            }
        }
        Ok(())
    }

    fn start_server(
        &mut self,
        number: usize,
        node: NodeId,
        files: &BTreeSet<PathBuf>,
        world: &World,
    ) -> Result<(), LabError> {
        let stack = &self.stacks[number];
        let mut serve = self.command("serve", node);
        serve.args(files).arg("--trace").arg(self.sent(number, node));
        serve.arg("--listen").arg(format!("[::]:{}", stack.port)).args(stack.mechanisms());
        let host = &world.nodes[node.0 as usize].namespace;
        let server = start(&format!("the server of {}", host.name()), host, serve, "hashed")?;
        self.stacks[number].servers.insert(node, server);
        Ok(())
    }

    fn sent(&self, number: usize, node: NodeId) -> PathBuf {
        self.scratch.join(format!("sent-{number}-{}", node.0))
    }

    fn arrived(&self, flow: usize) -> PathBuf {
        self.scratch.join(format!("arrived-{flow}"))
    }

    fn start_relay(
        &mut self,
        number: usize,
        node: NodeId,
        scenario: &Scenario,
        world: &World,
    ) -> Result<(), LabError> {
        self.stacks[number].relay_nodes.insert(node);
        let stack = &self.stacks[number];
        let mut relay = self.command("relay", node);
        relay.args(["--listen", &format!("[::]:{}", stack.port)]);
        relay.args(stack.mechanisms_at(node, scenario, world));
        match self.deployment {
            Deployment::Transparent => relay.arg("--transparent"),
            Deployment::Overlay => match self.routes(number, node, scenario, world).as_slice() {
                // A relay that no flow passes has no upstream and nothing to request.
                [] => return Ok(()),
                routes => relay.arg("--upstream").arg(routes[0].1.to_string()).args(
                    routes
                        .iter()
                        .flat_map(|(name, upstream)| ["--route".to_owned(), format!("{name}={upstream}")]),
                ),
            },
        };
        let host = &world.nodes[node.0 as usize].namespace;
        let relay = start(&format!("the relay of {}", host.name()), host, relay, "ready")?;
        self.stacks[number].relays.insert(node, relay);
        Ok(())
    }

    /// The upstream of each content at a relay of the overlay.
    fn routes(
        &self,
        number: usize,
        node: NodeId,
        scenario: &Scenario,
        world: &World,
    ) -> Vec<(String, SocketAddr)> {
        let stack = &self.stacks[number];
        let mut routes = BTreeMap::new();
        for &flow in &stack.flows {
            let chain = stack.chain(&scenario.flows[flow], scenario, world);
            let after = chain.iter().position(|&at| at == node).and_then(|at| chain.get(at + 1));
            routes.extend(after.map(|&next| (self.contents[&flow].name(), stack.address(next, world))));
        }
        routes.into_iter().collect()
    }

    /// Starts the client of a flow.
    pub(super) fn fetch(&mut self, index: usize, scenario: &Scenario, world: &World) -> Result<(), LabError> {
        let flow = &scenario.flows[index];
        let stack = self.stacks.iter().find(|stack| stack.flows.contains(&index));
        let Some((stack, content)) = stack.zip(self.contents.get(&index)) else { return Ok(()) };
        let upstream = match self.deployment {
            Deployment::Transparent => scenario.node(&flow.from),
            Deployment::Overlay => {
                let chain = stack.chain(flow, scenario, world);
                chain.get(1).copied().unwrap_or(scenario.node(&flow.from))
            }
        };
        let client = scenario.node(&flow.to);
        let mut get = self.command("get", client);
        get.arg(content.name()).arg("--from").arg(stack.address(upstream, world).to_string());
        get.arg("--trace").arg(self.arrived(index)).args(stack.mechanisms_at(client, scenario, world));
        // The emulator ends it.
        get.args(["--timeout", &format!("{}s", scenario.duration.as_secs_f64() + 10.0)]);
        get.args(["--tell-every", TELL]);
        match content.is_verified {
            true => get.arg("--output").arg(self.scratch.join(format!("received-{index}"))),
            false => get.arg("--discard"),
        };
        let host = &world.nodes[scenario.node(&flow.to).0 as usize].namespace;
        let failed = LabError::system(format!("cannot start the client of flow {}", flow.name));
        self.clients.insert(index, Client::start(host, get).map_err(failed)?);
        Ok(())
    }

    /// Asks a client to end.
    pub(super) fn stop(&self, flow: usize) {
        if let Some(client) = self.clients.get(&flow) {
            // Gone already is as good.
            let _ = client.process.signal(Signal::SIGINT);
        }
    }

    /// Takes note of clients that have ended.
    pub(super) fn reap(&mut self) -> Result<(), LabError> {
        let mut over = Vec::new();
        for (&flow, client) in &mut self.clients {
            if client.process.try_wait().map_err(LabError::system("cannot watch a client"))?.is_some() {
                over.push(flow);
            }
        }
        for flow in over {
            self.collect(flow)?;
        }
        Ok(())
    }

    fn collect(&mut self, flow: usize) -> Result<(), LabError> {
        let Some(client) = self.clients.remove(&flow) else { return Ok(()) };
        let output = client.process.output().map_err(LabError::system("cannot read what a client said"))?;
        let said = match client.told.join() {
            Ok(Value::Null) | Err(_) => {
                Value::String(String::from_utf8_lossy(&output.stderr).trim().to_owned())
            }
            Ok(said) => said,
        };
        let received = said["bytes"].as_u64().unwrap_or_else(|| client.received.load(Ordering::Relaxed));
        self.received.insert(flow, received);
        self.ended.insert(flow, (output.status.code().unwrap_or(-1), said));
        Ok(())
    }

    /// Bytes that the client of a flow has.
    pub(super) fn received_of(&self, flow: usize) -> u64 {
        let live = self.clients.get(&flow).map(|client| client.received.load(Ordering::Relaxed));
        live.or_else(|| self.received.get(&flow).copied()).unwrap_or(0)
    }

    /// State of a node's relay, if the node is one for a relay.
    pub(super) fn relay_at(&self, node: NodeId) -> Option<&'static str> {
        let mut stacks = self.stacks.iter().filter(|stack| stack.relay_nodes.contains(&node)).peekable();
        stacks.peek()?;
        let is_alive = stacks.all(|stack| stack.relays.contains_key(&node));
        Some(match (is_alive, self.aside.contains(&node)) {
            (false, _) => "relay, dead",
            (true, true) => "relay, passed by",
            (true, false) => "relay",
        })
    }

    /// Kills the relays of a node.
    pub(super) fn crash(&mut self, node: NodeId) {
        for stack in &mut self.stacks {
            drop(stack.relays.remove(&node));
        }
    }

    /// The time of day of a node's programs jumps, by the next of its steps.
    pub(super) fn step_clock(&self, node: NodeId, flows: &[FlowSpec]) {
        for stack in &self.stacks {
            let daemons = stack.relays.get(&node).into_iter().chain(stack.servers.get(&node));
            daemons.for_each(|daemon| daemon.signal(Signal::SIGURG));
        }
        for (_, client) in self.clients.iter().filter(|(flow, _)| flows[**flow].to == node) {
            // Gone already is as good.
            let _ = client.process.signal(Signal::SIGURG);
        }
    }

    /// Takes the relays of a node out of all paths, or back into them.
    pub(super) fn bypass(&mut self, node: NodeId, is_bypassed: bool) {
        match is_bypassed {
            true => self.aside.insert(node),
            false => self.aside.remove(&node),
        };
        let signal = if is_bypassed { Signal::SIGUSR1 } else { Signal::SIGUSR2 };
        for relay in self.stacks.iter().filter_map(|stack| stack.relays.get(&node)) {
            relay.signal(signal);
        }
    }

    /// Starts the relays of a node again.
    pub(super) fn restart(
        &mut self,
        node: NodeId,
        scenario: &Scenario,
        world: &World,
    ) -> Result<(), LabError> {
        for number in 0..self.stacks.len() {
            if self.stacks[number].relay_nodes.contains(&node)
                && !self.stacks[number].relays.contains_key(&node)
            {
                self.start_relay(number, node, scenario, world)?;
            }
        }
        Ok(())
    }

    /// Ends everything: clients first, then relays, then servers, whose traces are complete then. A relay that had
    /// ended by itself is a problem of the run.
    pub(super) fn end(&mut self, problems: &mut Vec<String>) -> Result<(), LabError> {
        let running: Vec<usize> = self.clients.keys().copied().collect();
        running.iter().for_each(|&flow| self.stop(flow));
        for flow in running {
            self.collect(flow)?;
        }
        for stack in &mut self.stacks {
            for (node, relay) in std::mem::take(&mut stack.relays) {
                match relay.end() {
                    Ok(told) => stack.told.entry(node).or_default().push(told),
                    Err(error) => problems.push(error.to_string()),
                }
            }
            for (_, server) in std::mem::take(&mut stack.servers) {
                server.end()?;
            }
        }
        Ok(())
    }

    /// The bytes that the source of a flow sent, by time.
    pub(super) fn sent_of(&self, flow: usize, from: NodeId) -> Result<Vec<(Instant, ByteRange)>, LabError> {
        let Some(content) = self.contents.get(&flow) else { return Ok(Vec::new()) };
        let number = self.stacks.iter().position(|stack| stack.flows.contains(&flow)).unwrap_or(0);
        passings(&self.sent(number, from), content.id())
    }

    /// The bytes that reached the client of a flow, by time.
    pub(super) fn arrived_of(&self, flow: usize) -> Result<Vec<(Instant, ByteRange)>, LabError> {
        let Some(content) = self.contents.get(&flow) else { return Ok(Vec::new()) };
        passings(&self.arrived(flow), content.id())
    }
}

impl Stack {
    fn new(config: Config, profile: String, port: u16) -> Self {
        Self {
            config,
            profile,
            port,
            flows: Vec::new(),
            servers: BTreeMap::new(),
            relays: BTreeMap::new(),
            relay_nodes: BTreeSet::new(),
            told: BTreeMap::new(),
        }
    }

    fn mechanisms(&self) -> [String; 4] {
        self.told_as(&self.config)
    }

    /// Options for the mechanisms of a requesting process: its node may control the hop above it by another
    /// controller, and a station may keep less or more than a satellite.
    fn mechanisms_at(&self, node: NodeId, scenario: &Scenario, world: &World) -> [String; 4] {
        let controller = scenario.topology.controllers.get(world.name(node));
        let is_on_the_ground = (node.0 as usize) < scenario.topology.nodes.len();
        let cache =
            scenario.topology.sky.as_ref().and_then(|sky| sky.station_cache).filter(|_| is_on_the_ground);
        let mut settings: Settings = (*self.config).clone();
        settings.controller = controller.copied().unwrap_or(settings.controller);
        settings.cache_bytes = cache.unwrap_or(settings.cache_bytes);
        // Impossible settings change nothing, as in the simulator.
        self.told_as(Config::new(settings).as_ref().unwrap_or(&self.config))
    }

    fn told_as(&self, config: &Config) -> [String; 4] {
        ["--profile".to_owned(), self.profile.clone(), "--options".to_owned(), options_of(config)]
    }

    fn address(&self, node: NodeId, world: &World) -> SocketAddr {
        SocketAddr::new(world.address(node), self.port)
    }

    /// The client, the relays on its way to the server, the server.
    fn chain(&self, flow: &Flow, scenario: &Scenario, world: &World) -> Vec<NodeId> {
        let (client, server) = (scenario.node(&flow.to), scenario.node(&flow.from));
        let path = world.network().path(client, server);
        let passed = path.iter().map(|&link| world.network().ends(link).1);
        let relays = passed.filter(|node| *node != server && self.relay_nodes.contains(node));
        std::iter::once(client).chain(relays).chain([server]).collect()
    }
}

fn make(file: &Path, size: Option<u64>, length: u64, seed: u64) -> std::io::Result<Content> {
    let is_verified = size.is_some_and(|size| size <= VERIFIED);
    if is_verified {
        make_file(file, length, seed)?;
    } else {
        let hole = std::fs::File::create(file)?;
        hole.set_len(length)?;
        hole.write_all_at(&seed.to_be_bytes()[..length.min(8) as usize], 0)?;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(file)?)?;
    Ok(Content { file: file.to_owned(), hash: hasher.finalize(), is_verified })
}

/// A run that is interrupted right after its start ends processes that have not opened their trace yet.
fn passings(path: &Path, flow: FlowId) -> Result<Vec<(Instant, ByteRange)>, LabError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    process::passings(path, &flow.to_string())
}
