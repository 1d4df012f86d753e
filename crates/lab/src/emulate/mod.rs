//! Runs a scenario for real: its nodes are network namespaces with addresses and routes of their own, its links are
//! the simulator's, driven by the machine's clock, and its flows are Starhop's own processes or the kernel's TCP.

mod guest;
mod interrupt;
mod leftovers;
mod model;
mod record;
mod starhop;
mod tcp;
mod world;

use crate::error::LabError;
use crate::result::{
    AccuracyResult, FlowFacts, FlowResult, RelayResult, RunResult, SeriesResult, flow_result, flow_series,
    jain,
};
use crate::run::peak_rss_bytes;
use crate::scenario::{Blueprint, Scenario, Split, blueprint, link_configs};
pub use guest::Guest;
pub use interrupt::Interrupts;
use model::{Tally, TcpBytes};
use record::{Event, Recorded, Subject, What};
use serde_json::Value;
pub use starhop::Deployment;
use starhop::{Processes, node_of};
use starhop_net::clock;
use starhop_net::emu::{self, Accuracy, Process};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::time::{Duration, Instant};
use starhop_sim::engine::{IP_HEADER, UDP_HEADER};
use starhop_sim::run::{Action, FlowSpec, Transport};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tcp::Connection;
use world::{Reports, Tick, World, on_machine};

/// The most nodes: each has a thread and its devices.
const MOST_NODES: usize = 250;

/// Why there are no satellites here.
const SKY: &str = "a constellation has more nodes than this machine has namespaces for: `starhop sim` runs it. \
                   `starhop orbit path --help` says how to write one path of it as a chain with delay traces, which \
                   runs here";

/// Between the start of the links and the scenario's time zero.
const LEAD: Duration = Duration::from_millis(50);

/// How often processes and signals are looked after.
const TICK: Duration = Duration::from_millis(20);

/// A run with larger errors than these says so: delay in milliseconds (p99), rate as a share.
const GOOD: (f64, f64) = (1.0, 0.02);

/// What is not in the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `starhop` binary.
    pub program: PathBuf,
    /// Flows, by name, that the kernel's TCP carries with this congestion control, whatever the scenario says.
    pub kernel: BTreeMap<String, String>,
    /// How relays are deployed; transparently, where that is possible, unless it is said.
    pub deployment: Option<Deployment>,
    /// A command of the user's.
    pub guest: Option<Guest>,
}

/// How a run is going.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the scenario's time zero.
    pub at: Duration,
    /// How long it lasts at most.
    pub of: Duration,
}

/// Something that happens at a set time.
#[derive(Clone, Debug)]
enum Step {
    Start(usize),
    Stop(usize),
    Do(Action),
}

/// Runs a scenario in real time. The process must have [entered](emu::enter) namespaces. `watch` hears how it goes,
/// many times a second, and ends the run early by answering false.
///
/// # Errors
/// See [`LabError`]; a flow that does not get through is none.
pub fn emulate(
    scenario: &Scenario,
    options: &Options,
    watch: impl FnMut(Progress) -> bool,
) -> Result<RunResult, LabError> {
    leftovers::remove();
    let began = std::time::Instant::now();
    let mut run = Run::prepare(scenario, options)?;
    let done = run.carry_out(options.guest.as_ref(), watch);
    let result = done.and_then(|()| run.finish(began.elapsed().as_secs_f64()));
    drop(run);
    leftovers::remove_own();
    result
}

/// A scenario being run.
struct Run<'a> {
    scenario: &'a Scenario,
    blueprint: Blueprint,
    world: World,
    processes: Processes,
    /// The kernel's congestion controls, by flow.
    controls: BTreeMap<usize, String>,
    /// Flows of the kernel's TCP.
    connections: BTreeMap<usize, Connection>,
    /// What the user runs in a node, while it runs.
    guest: Option<Process>,
    /// A run with a shell in it has no end of its own.
    is_endless: bool,
    epoch: Instant,
    reports: Option<Reports>,
    /// Propagation and serialisation of every flow, from each instant on.
    bases: Vec<Vec<(Instant, Duration)>>,
    /// When it ended.
    end: Instant,
    problems: Vec<String>,
}

impl<'a> Run<'a> {
    fn prepare(scenario: &'a Scenario, options: &Options) -> Result<Self, LabError> {
        if scenario.topology.sky.is_some() {
            return Err(LabError::Scenario(SKY.to_owned()));
        }
        let nodes = scenario.topology.nodes.len();
        if nodes > MOST_NODES {
            return Err(LabError::Scenario(format!("it has {nodes} nodes; the emulator takes {MOST_NODES}")));
        }
        let (mut blueprint, mut problems) = (blueprint(scenario), Vec::new());
        let controls = controls(scenario, options)?;
        let bytes: BTreeMap<usize, Arc<TcpBytes>> =
            controls.keys().map(|&flow| (flow, Arc::default())).collect();
        let network = std::mem::take(&mut blueprint.plan.network);
        let tallies = tallies(scenario, &bytes);
        let world = World::new(scenario, network, link_configs(scenario), &tallies)?;
        let deployment = deployment(&blueprint, options, &world, &mut problems)?;
        let scratch = emu::scratch(scratch_bytes(scenario))?;
        guest::name_nodes(scenario, &world, &scratch)?;
        let processes = Processes::new(
            &options.program,
            &scratch,
            scenario,
            &blueprint.ideal_mbps,
            |flow| !controls.contains_key(&flow),
            deployment,
        )?;
        let mut connections = BTreeMap::new();
        for (&flow, control) in &controls {
            let server = &world.nodes[node_of(scenario, &scenario.flows[flow].from).0 as usize];
            let (port, size) = (tcp_port(flow), scenario.flows[flow].size);
            let bytes = bytes[&flow].clone();
            connections.insert(flow, Connection::listen(server, port, control, size, bytes)?);
        }
        Ok(Self {
            scenario,
            bases: vec![Vec::new(); blueprint.plan.flows.len()],
            blueprint,
            world,
            processes,
            controls,
            connections,
            guest: None,
            is_endless: matches!(options.guest, Some(Guest::Shell { .. })),
            epoch: Instant::ZERO,
            reports: None,
            end: Instant::ZERO,
            problems,
        })
    }

    fn carry_out(
        &mut self,
        guest: Option<&Guest>,
        mut watch: impl FnMut(Progress) -> bool,
    ) -> Result<(), LabError> {
        let actions = std::mem::take(&mut self.blueprint.plan.actions);
        // What holds from the beginning is routed before anybody starts.
        for (_, action) in actions.iter().filter(|(at, _)| *at == Instant::ZERO) {
            self.world.follow(Instant::ZERO, action)?;
        }
        self.world.route(Instant::ZERO)?;
        self.processes.start(self.scenario, &self.world, &self.blueprint.plan.relays)?;
        self.epoch = clock::now() + LEAD;
        self.reports = Some(self.world.start(self.epoch, self.scenario, &actions)?);
        self.note_bases(Instant::ZERO);
        self.guest = guest.map(|guest| guest.start(self.scenario, &self.world)).transpose()?;
        let mut steps = self.steps(actions);
        let end = if self.is_endless { Instant::NEVER } else { Instant::ZERO + self.scenario.duration };
        loop {
            let now = Instant::ZERO + clock::now().since(self.epoch);
            let of = self.scenario.duration;
            if now >= end || self.is_done(now)? || !watch(Progress { at: now.since(Instant::ZERO), of }) {
                self.end = now.min(end);
                return Ok(());
            }
            while steps.last().is_some_and(|(at, _)| *at <= now) {
                if let Some((at, step)) = steps.pop() {
                    self.perform(at, &step)?;
                }
            }
            self.processes.reap()?;
            self.note_bases(now);
            let next = steps.last().map_or(end, |(at, _)| (*at).min(end));
            sleep_until(on_machine(self.epoch, next.min(now + TICK)));
        }
    }

    /// What is to be done, latest first; the beginning was done.
    fn steps(&self, actions: Vec<(Instant, Action)>) -> Vec<(Instant, Step)> {
        let mut steps: Vec<(Instant, Step)> = Vec::new();
        for (at, action) in actions {
            let is_routed = matches!(action, Action::Links { .. } | Action::NodeDown(_) | Action::NodeUp(_));
            if at > Instant::ZERO || !is_routed {
                steps.push((at, Step::Do(action)));
            }
        }
        for (index, flow) in self.blueprint.plan.flows.iter().enumerate() {
            steps.push((flow.start, Step::Start(index)));
            steps.push((flow.stop, Step::Stop(index)));
        }
        steps.sort_by_key(|(at, _)| *at);
        steps.reverse();
        steps
    }

    fn perform(&mut self, at: Instant, step: &Step) -> Result<(), LabError> {
        match step {
            Step::Start(flow) => {
                let client = &self.world.nodes[self.blueprint.plan.flows[*flow].to.0 as usize];
                match self.connections.get_mut(flow) {
                    Some(connection) => connection.start(client),
                    None => self.processes.fetch(*flow, self.scenario, &self.world),
                }
            }
            Step::Stop(flow) => {
                self.processes.stop(*flow);
                self.connections.get(flow).into_iter().for_each(Connection::stop);
                Ok(())
            }
            Step::Do(action) => {
                self.world.follow(at, action)?;
                match action {
                    Action::Crash(node) | Action::NodeDown(node) => self.processes.crash(*node),
                    Action::Restart(node) | Action::NodeUp(node) => {
                        self.processes.restart(*node, self.scenario, &self.world)?;
                    }
                    Action::Bypass(node) => self.processes.bypass(*node, true),
                    Action::Include(node) => self.processes.bypass(*node, false),
                    Action::Links { .. } => {}
                }
                Ok(())
            }
        }
    }

    fn is_done(&mut self, now: Instant) -> Result<bool, LabError> {
        if let Some(guest) = &mut self.guest {
            let ended = guest.try_wait().map_err(LabError::system("cannot watch the command"))?;
            if let Some(code) = ended.and_then(|status| status.code()).filter(|&code| code != 0) {
                self.problems.push(format!("the command ended with code {code}"));
            }
            return Ok(ended.is_some());
        }
        let over = |(index, flow): (usize, &FlowSpec)| {
            let is_over = match self.connections.get(&index) {
                Some(connection) => connection.is_over(),
                None => self.processes.ended.contains_key(&index),
            };
            now >= flow.stop || (now > flow.start && is_over)
        };
        Ok(self.blueprint.plan.flows.iter().enumerate().all(over))
    }

    fn note_bases(&mut self, now: Instant) {
        for (index, flow) in self.blueprint.plan.flows.iter().enumerate() {
            let full = match self.connections.contains_key(&index) {
                true => tcp::RECORD as u32 + 52,
                false => flow.transport.full_packet(),
            };
            let Some(base) = self.world.base(flow.from, flow.to, full, now) else { continue };
            if self.bases[index].last().is_none_or(|(_, last)| *last != base) {
                self.bases[index].push((now, base));
            }
        }
    }

    /// Ends everything and says what came of it.
    fn finish(&mut self, wall_s: f64) -> Result<RunResult, LabError> {
        self.connections.values().for_each(Connection::stop);
        self.processes.end()?;
        let drops = self.world.device_drops();
        let accuracy = accuracy(&self.world.stop()?.accuracy, drops);
        let mut events = Vec::new();
        let mut finished = Vec::new();
        for index in 0..self.scenario.flows.len() {
            finished.push(match self.connections.contains_key(&index) {
                true => self.of_tcp(index, &mut events)?,
                false => self.of_starhop(index, &mut events)?,
            });
        }
        let subjects: Vec<Subject> = (finished.into_iter().enumerate())
            .map(|(index, finished)| Subject {
                content: self.content_of(index),
                start: self.blueprint.plan.flows[index].start,
                finished,
                bases: std::mem::take(&mut self.bases[index]),
            })
            .collect();
        let (ticks, lost) = self.reports.take().map_or_else(Default::default, |Reports { ticks, lost }| {
            (ticks.into_iter().collect::<Vec<_>>(), lost.into_iter().collect::<Vec<_>>())
        });
        let flow_of = |id: FlowId| subjects.iter().position(|subject| subject.content == id);
        events.extend(lost.iter().filter_map(|lost| record::lost_bytes(lost, flow_of)));
        let recorded = record::replay(self.scenario, &subjects, events, self.end);
        Ok(self.document(&recorded, ticks, accuracy, wall_s))
    }

    /// Where an instant of the machine lies in the scenario.
    fn at(&self, at: Instant) -> Instant {
        Instant::ZERO + at.since(self.epoch)
    }

    fn content_of(&self, index: usize) -> FlowId {
        match self.processes.contents.get(&index) {
            Some(content) => content.id(),
            None => FlowId::of_content(blake3::hash(format!("flow {index}").as_bytes()).as_bytes()),
        }
    }

    /// What happened to a flow of TCP; when it was whole.
    fn of_tcp(&mut self, index: usize, events: &mut Vec<Event>) -> Result<Option<Instant>, LabError> {
        let Some(connection) = self.connections.get_mut(&index) else { return Ok(None) };
        let received = connection.finish()?;
        if received.is_wrong {
            self.problems.push(format!("flow {}: wrong bytes arrived", self.scenario.flows[index].name));
        }
        for &(sent, had, range) in &received.pieces {
            events.push(Event { at: self.at(sent), what: What::Sent, flow: index, range });
            events.push(Event { at: self.at(had), what: What::Arrived, flow: index, range });
        }
        let last = received.pieces.last().map(|&(_, had, _)| self.at(had));
        Ok(last.filter(|_| received.is_whole))
    }

    /// What happened to a flow of our own; when it was whole.
    fn of_starhop(&mut self, index: usize, events: &mut Vec<Event>) -> Result<Option<Instant>, LabError> {
        let (name, flow) = (&self.scenario.flows[index].name, &self.blueprint.plan.flows[index]);
        let arrived = self.processes.arrived_of(index)?;
        let add = |what: What, (at, range): (Instant, ByteRange)| Event {
            at: self.at(at),
            what,
            flow: index,
            range,
        };
        // Flows of equal content share what was sent.
        let is_first = (0..index).all(|other| self.content_of(other) != self.content_of(index));
        if is_first {
            events.extend(
                self.processes.sent_of(index, flow.from)?.into_iter().map(|passing| add(What::Sent, passing)),
            );
        }
        let last = arrived.last().map(|&(at, _)| self.at(at));
        events.extend(arrived.into_iter().map(|passing| add(What::Arrived, passing)));
        const INTERRUPTED: i32 = 130;
        match self.processes.ended.get(&index) {
            Some((0, said)) => {
                let is_checked =
                    self.processes.contents.get(&index).is_some_and(|content| content.is_verified);
                if is_checked && said["verified"] != true {
                    self.problems.push(format!("flow {name}: its bytes were not verified"));
                }
                if self.scenario.flows[index].size.is_none() {
                    self.problems.push(format!("flow {name}: its content was too short for the run"));
                }
                Ok(last)
            }
            Some((INTERRUPTED, _)) => Ok(None),
            Some((code, said)) => {
                let said = said["error"].as_str().map_or_else(|| said.to_string(), str::to_owned);
                self.problems.push(format!("flow {name}: its client ended with code {code}: {said}"));
                Ok(None)
            }
            None => Ok(None),
        }
    }

    fn document(
        &self,
        recorded: &Recorded,
        ticks: Vec<Tick>,
        accuracy: AccuracyResult,
        wall_s: f64,
    ) -> RunResult {
        let scenario = self.scenario;
        let recorder = recorded.recorder.borrow();
        let flows: Vec<FlowResult> = (0..scenario.flows.len())
            .map(|index| flow_result(scenario, index, &recorder, self.facts(index)))
            .collect();
        let warm_at = Instant::ZERO + scenario.warmup;
        let (warm, steps): (Vec<Tick>, Vec<Tick>) = split(ticks, warm_at, scenario.step);
        let nothing = Tick { at: Instant::ZERO, links: Vec::new() };
        let (warm, last) = (warm.last().unwrap_or(&nothing), steps.last().unwrap_or(&nothing));
        let network = self.world.network();
        let link_packets = last.links.iter().map(|link| link.counters.packets).sum();
        let mut problems = self.problems.clone();
        problems.extend(recorder.problems().iter().cloned());
        RunResult {
            version: 1,
            title: scenario.title.clone(),
            engine: "emulate".to_owned(),
            seed: scenario.seed,
            trace_hash: String::new(),
            duration_s: self.end.since(Instant::ZERO).as_secs_f64(),
            warmup_s: scenario.warmup.as_secs_f64(),
            wall_s,
            link_packets,
            events: accuracy_events(last),
            peak_rss_bytes: peak_rss_bytes(),
            problems,
            path_changes_s: self
                .blueprint
                .changes
                .iter()
                .map(|at| at.since(Instant::ZERO).as_secs_f64())
                .collect(),
            jain: jain(&flows.iter().map(|flow| flow.goodput_mbps).collect::<Vec<_>>()),
            accuracy: Some(accuracy),
            flows,
            links: record::links(&self.blueprint.links, network, warm, last),
            relays: self.relays(),
            series: Some(SeriesResult {
                step_s: scenario.step.as_secs_f64(),
                flows: recorded.series.iter().map(|samples| flow_series(samples)).collect(),
                links: record::link_series(network, scenario.step, &steps),
            }),
        }
    }

    fn facts(&self, index: usize) -> FlowFacts {
        let flow = &self.blueprint.plan.flows[index];
        let ideal = self.blueprint.ideal_mbps[index];
        let facts = FlowFacts {
            record: index,
            transport: self.controls.get(&index).unwrap_or(&self.scenario.flows[index].transport).clone(),
            start: flow.start,
            end: flow.stop.min(self.end),
            ideal_mbps: ideal,
            propagation_ms: self.blueprint.propagation[index].as_millis_f64(),
            path: None,
            return_bytes: 0,
            repairs: 0,
            timeouts: 0,
        };
        if let Some(connection) = self.connections.get(&index) {
            let share = |payload: f64, packet: f64| payload / packet;
            let ours = share(f64::from(flow.transport.payload()), f64::from(flow.transport.full_packet()));
            let theirs = share(tcp::RECORD as f64, tcp::RECORD as f64 + 52.0);
            let return_bytes = connection.bytes.back.load(Ordering::Relaxed);
            return FlowFacts { ideal_mbps: ideal * theirs / ours, return_bytes, ..facts };
        }
        let Some((_, said)) = self.processes.ended.get(&index) else { return facts };
        let cost = |name: &str| said[name].as_u64().or_else(|| said["cost"][name].as_u64()).unwrap_or(0);
        let packets = said["socket"]["tx_datagrams"].as_u64().unwrap_or_else(|| cost("return_packets"));
        let headers = u64::from(IP_HEADER + UDP_HEADER) * packets;
        let return_bytes = cost("return_bytes") + headers;
        FlowFacts { return_bytes, repairs: cost("repairs"), timeouts: cost("timeouts"), ..facts }
    }

    fn relays(&self) -> Vec<RelayResult> {
        let stacks = &self.processes.stacks;
        let mut all = Vec::new();
        for (number, stack) in stacks.iter().enumerate() {
            for (node, lives) in &stack.told {
                let sum = |name: &str| lives.iter().filter_map(|life| life[name].as_u64()).sum();
                let node = &self.scenario.topology.nodes[node.0 as usize];
                let last = lives.last().unwrap_or(&Value::Null);
                all.push(RelayResult {
                    name: if stacks.len() > 1 { format!("{node}/{}", number + 1) } else { node.clone() },
                    cache_hits: sum("cache_hit_bytes"),
                    cache_bytes: last["cache_bytes"].as_u64().unwrap_or(0),
                    interests_in: sum("interests_in"),
                    interests_out: sum("interests_out"),
                    aggregated: sum("aggregated_bytes"),
                    repairs: sum("repairs"),
                });
            }
        }
        all
    }
}

/// Which flows the kernel carries, with which of its congestion controls.
fn controls(scenario: &Scenario, options: &Options) -> Result<BTreeMap<usize, String>, LabError> {
    let mut controls = BTreeMap::new();
    for (index, flow) in scenario.flows.iter().enumerate() {
        let wanted = match (options.kernel.get(&flow.name), &flow.how) {
            (Some(wanted), _) => wanted,
            (None, Transport::Tcp(_)) => &flow.transport,
            (None, Transport::Starhop(_)) => continue,
            (None, Transport::Cbr { .. } | Transport::Arq { .. }) => {
                let problem = format!("flow {}: {} exists in the simulator only", flow.name, flow.transport);
                return Err(LabError::Scenario(problem));
            }
        };
        if flow.split != Split::None {
            return Err(LabError::Scenario(format!("flow {}: connections are not split here", flow.name)));
        }
        let Some(control) = tcp::kernel_name(wanted) else {
            let problem = format!(
                "flow {}: this kernel does not offer \"{wanted}\"; it offers {} (others may be loaded: modprobe \
                 tcp_{wanted})",
                flow.name,
                tcp::offered()
            );
            return Err(LabError::Scenario(problem));
        };
        controls.insert(index, control);
    }
    let names = |name: &&String| scenario.flows.iter().all(|flow| flow.name != **name);
    match options.kernel.keys().find(names) {
        Some(name) => Err(LabError::Scenario(format!("there is no flow \"{name}\""))),
        None => Ok(controls),
    }
}

/// How relays are deployed. In an overlay, routes of which relays know nothing are a problem of the run.
fn deployment(
    blueprint: &Blueprint,
    options: &Options,
    world: &World,
    problems: &mut Vec<String>,
) -> Result<Deployment, LabError> {
    let wanted = options.deployment.unwrap_or(Deployment::Transparent);
    let Some(first) = blueprint.plan.relays.first().map(|node| &world.nodes[node.0 as usize]) else {
        return Ok(wanted);
    };
    if wanted == Deployment::Transparent {
        let can = first.namespace.run(starhop_net::transparent::can_divert).and_then(|can| can);
        match (can, options.deployment) {
            (Ok(()), _) => return Ok(Deployment::Transparent),
            (Err(why), Some(_)) => return Err(LabError::Scenario(format!("no transparent relays: {why}"))),
            (Err(_), None) => {}
        }
    }
    let follows = |(at, action): &(Instant, Action)| match action {
        Action::Links { .. } => *at > Instant::ZERO,
        Action::Bypass(_) | Action::Include(_) => true,
        _ => false,
    };
    if blueprint.plan.actions.iter().any(follows) {
        problems.push(
            "paths change, and relays of an overlay do not follow them: transparent ones would".to_owned(),
        );
    }
    Ok(Deployment::Overlay)
}

fn tcp_port(flow: usize) -> u16 {
    tcp::FIRST_PORT + flow as u16
}

/// Which flows of TCP are counted as they leave each node.
fn tallies(scenario: &Scenario, bytes: &BTreeMap<usize, Arc<TcpBytes>>) -> BTreeMap<usize, Tally> {
    let mut tallies: BTreeMap<usize, Tally> = BTreeMap::new();
    for (&flow, bytes) in bytes {
        let node = |name: &str| node_of(scenario, name).0 as usize;
        let spec = &scenario.flows[flow];
        tallies.entry(node(&spec.from)).or_default().served.insert(tcp_port(flow), bytes.clone());
        tallies.entry(node(&spec.to)).or_default().fetched.insert(tcp_port(flow), bytes.clone());
    }
    tallies
}

/// Files that are verified lie there twice; traces have 60 bytes per packet at both ends.
fn scratch_bytes(scenario: &Scenario) -> u64 {
    scenario.flows.iter().map(|flow| flow.size.unwrap_or(0).min(1 << 30) * 3).sum::<u64>() + (2 << 30)
}

fn accuracy(measured: &Accuracy, drops: u64) -> AccuracyResult {
    let result = AccuracyResult {
        delay_error_p50_ms: measured.late_p50_us * 1e-3,
        delay_error_p99_ms: (measured.late_p99_us + measured.unseen_p99_us) * 1e-3,
        delay_error_max_ms: measured.late_max_us * 1e-3,
        rate_error_p99: measured.rate_error_p99,
        lost_packets: measured.failed + drops,
        cpu_s: measured.cpu_seconds,
        is_real_time: measured.is_real_time,
        is_good: false,
    };
    let is_good =
        result.delay_error_p99_ms <= GOOD.0 && result.rate_error_p99 <= GOOD.1 && result.lost_packets == 0;
    AccuracyResult { is_good, ..result }
}

/// Ticks of the warm-up's end, and those at the ends of steps.
fn split(ticks: Vec<Tick>, warm_at: Instant, step: Duration) -> (Vec<Tick>, Vec<Tick>) {
    let mut warm = Vec::new();
    let mut steps = Vec::new();
    for tick in ticks {
        if tick.at == warm_at && warm.is_empty() {
            warm.push(Tick { at: tick.at, links: tick.links.clone() });
        }
        if tick.at.as_nanos().is_multiple_of(step.as_nanos()) && tick.at > Instant::ZERO {
            steps.push(tick);
        }
    }
    steps.dedup_by_key(|tick| tick.at);
    (warm, steps)
}

/// Verdicts of links: the events of an emulation.
fn accuracy_events(last: &Tick) -> u64 {
    last.links.iter().map(|link| link.counters.packets + link.counters.dropped).sum()
}

fn sleep_until(at: Instant) {
    let left = at.since(clock::now());
    std::thread::sleep(std::time::Duration::from_nanos(left.as_nanos()));
}
