//! A running scenario: its steps in time, and the processes that perform them.

use super::choice::{controls, deployment, scratch_bytes, tallies};
use super::gateways::Gateways;
use super::guest::{self, Guest};
use super::kernel::Programs;
use super::model::TcpBytes;
use super::pace::Pace;
use super::splits::{self, Splits};
use super::starhop::Processes;
use super::tcp::{self, Connection};
use super::terrain::Terrain;
use super::world::{Means, Reports, Tick, World, on_machine};
use super::{Options, Progress};
use crate::error::LabError;
use crate::process::Sealing;
use crate::scenario::{Blueprint, Scenario, blueprint};
use starhop_net::clock;
use starhop_net::emu::{self, Process};
use starhop_proto::time::{Duration, Instant};
use starhop_sim::engine::NodeId;
use starhop_sim::host::Protection;
use starhop_sim::run::{Action, FlowSpec, Transport};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Between the start of the links and the scenario's time zero.
const LEAD: Duration = Duration::from_millis(50);

/// Interval at which processes and signals are looked after.
const TICK: Duration = Duration::from_millis(20);

/// Bytes by which IPv6's header is longer than IPv4's.
const V6_HEADER_MORE: u32 = 20;

/// Something that happens at a set time.
#[derive(Clone, Debug)]
enum Step {
    Start(usize),
    Stop(usize),
    Do(Action),
    /// The changes of the sky at one of its times, by number.
    Sky(usize),
}

/// A scenario being run.
pub(super) struct Run<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) blueprint: Blueprint,
    pub(super) world: World,
    pub(super) processes: Processes,
    /// The kernel's congestion controls, by flow.
    pub(super) controls: BTreeMap<usize, String>,
    /// Flows of the kernel's TCP.
    pub(super) connections: BTreeMap<usize, Connection>,
    /// The kernel programs of the run, loaded as long as this value lives.
    _programs: Programs,
    /// Proxies of the connections that are split.
    pub(super) splits: Splits,
    /// Gateways that carry connections.
    pub(super) gateways: Gateways,
    pub(super) sealing: Sealing,
    /// The user's command in a node, while it runs.
    pub(super) guest: Option<Process>,
    /// A run with a shell in it has no end of its own.
    pub(super) is_endless: bool,
    pub(super) epoch: Instant,
    pub(super) reports: Option<Reports>,
    /// Reports of the links so far.
    pub(super) ticks: Vec<Tick>,
    pub(super) pace: Pace,
    is_v6: bool,
    /// Propagation and serialisation of every flow, from each instant on.
    pub(super) bases: Vec<Vec<(Instant, Duration)>>,
    /// Time of its end.
    pub(super) end: Instant,
    pub(super) problems: Vec<String>,
}

impl<'a> Run<'a> {
    pub(super) fn prepare(scenario: &'a Scenario, options: &Options) -> Result<Self, LabError> {
        let (mut blueprint, mut problems) = (blueprint(scenario), Vec::new());
        let mut programs = Programs::default();
        let controls = controls(scenario, options, &mut programs)?;
        let bytes: BTreeMap<usize, Arc<TcpBytes>> =
            controls.keys().map(|&flow| (flow, Arc::default())).collect();
        let terrain = Terrain::new(scenario, &mut blueprint)?;
        let tallies = tallies(scenario, &bytes);
        let links = terrain.configs.clone();
        let means = Means { is_v6: options.is_v6, captures: options.captures.clone() };
        let world = World::new(scenario, terrain, &tallies, means)?;
        programs.route(&world, &links, controls.values())?;
        let deployment = deployment(&blueprint, options, &world, &mut problems)?;
        let scratch = emu::scratch(scratch_bytes(scenario))?;
        guest::name_nodes(&world, &scratch)?;
        let sealing = Sealing::throw_away(options.insecure, &scratch)?;
        let processes = Processes::new(
            (&options.program, sealing.clone()),
            &scratch,
            scenario,
            &blueprint.ideal_mbps,
            |flow| !controls.contains_key(&flow),
            deployment,
        )?;
        let mut connections = BTreeMap::new();
        for (&flow, control) in &controls {
            let spec = &scenario.flows[flow];
            let node = scenario.node(&spec.from);
            let at = SocketAddr::new(world.address(node), tcp::port(flow));
            let first = splits::first(scenario, flow, &blueprint.plan.flows[flow]);
            let to = SocketAddr::new(world.address(first), tcp::port(flow));
            let server = &world.nodes[node.0 as usize];
            let how = (spec.size, tcp::window(&blueprint.plan.flows[flow].transport));
            let connection = Connection::listen(server, at, to, control, how, bytes[&flow].clone())?;
            connections.insert(flow, connection);
        }
        let mut splits = Splits::default();
        splits.start(&options.program, scenario, &world, &blueprint.plan.flows, &controls)?;
        let mut gateways = Gateways::default();
        let means = (options.program.as_path(), &sealing, scratch.as_path());
        gateways.start(means, &world, &blueprint.plan.flows, &controls)?;
        Ok(Self {
            scenario,
            bases: vec![Vec::new(); blueprint.plan.flows.len()],
            blueprint,
            world,
            processes,
            controls,
            connections,
            _programs: programs,
            splits,
            gateways,
            sealing,
            guest: None,
            is_endless: matches!(options.guest, Some(Guest::Shell { .. })),
            epoch: Instant::ZERO,
            reports: None,
            ticks: Vec::new(),
            pace: Pace::default(),
            is_v6: options.is_v6,
            end: Instant::ZERO,
            problems,
        })
    }

    pub(super) fn carry_out(
        &mut self,
        guest: Option<&Guest>,
        mut watch: impl FnMut(Progress<'_>) -> bool,
    ) -> Result<(), LabError> {
        let actions = std::mem::take(&mut self.blueprint.plan.actions);
        // Routes that hold from the beginning are set before any process starts.
        for (_, action) in actions.iter().filter(|(at, _)| *at == Instant::ZERO) {
            self.world.follow(Instant::ZERO, action)?;
        }
        self.world.route(Instant::ZERO)?;
        if self.world.sky_times().next() == Some(Instant::ZERO) {
            self.world.follow_sky(Instant::ZERO, 0)?;
        }
        self.processes.clock_steps = clock_steps(&actions);
        if clock::STEPS.is_none() && !self.processes.clock_steps.is_empty() {
            let problem = "clock_step needs a program that was built with the feature `clock-steps`";
            return Err(LabError::Scenario(problem.to_owned()));
        }
        self.processes.start(self.scenario, &self.world, &self.blueprint.plan.relays)?;
        self.epoch = clock::now() + LEAD;
        self.reports = Some(self.world.start(self.epoch, self.scenario, &actions)?);
        self.note_bases(Instant::ZERO);
        self.guest = guest.map(|guest| guest.start(&self.world, &self.sealing)).transpose()?;
        let mut steps = self.steps(actions);
        let end = if self.is_endless { Instant::NEVER } else { Instant::ZERO + self.scenario.duration };
        loop {
            let now = self.now();
            self.look(now);
            let at = now.since(Instant::ZERO);
            if now >= end
                || self.is_done(now)?
                || !watch(Progress { at, of: self.scenario.duration, run: self })
            {
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

    /// The steps of the run, latest first; those of time zero are done already.
    fn steps(&self, actions: Vec<(Instant, Action)>) -> Vec<(Instant, Step)> {
        let mut steps: Vec<(Instant, Step)> = Vec::new();
        for (at, action) in actions {
            let is_routed = matches!(action, Action::Links { .. } | Action::NodeDown(_) | Action::NodeUp(_));
            if at > Instant::ZERO || !is_routed {
                steps.push((at, Step::Do(action)));
            }
        }
        let sky = self.world.sky_times().enumerate().filter(|(_, at)| *at > Instant::ZERO);
        steps.extend(sky.map(|(number, at)| (at, Step::Sky(number))));
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
            Step::Sky(number) => self.world.follow_sky(at, *number),
            Step::Do(action) => {
                self.world.follow(at, action)?;
                match action {
                    Action::Crash(node) | Action::NodeDown(node) => self.processes.crash(*node),
                    Action::Restart(node) | Action::NodeUp(node) => {
                        self.processes.restart(*node, self.scenario, &self.world)?;
                    }
                    Action::Bypass(node) => self.processes.bypass(*node, true),
                    Action::Include(node) => self.processes.bypass(*node, false),
                    Action::StepClock(node, _) => {
                        self.processes.step_clock(*node, &self.blueprint.plan.flows);
                    }
                    Action::Links { .. } | Action::Readdress(_) => {}
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
        let over =
            |(index, flow): (usize, &FlowSpec)| now >= flow.stop || (now > flow.start && self.is_over(index));
        Ok(self.blueprint.plan.flows.iter().enumerate().all(over))
    }

    /// Whether a flow's client has ended.
    pub(super) fn is_over(&self, flow: usize) -> bool {
        match self.connections.get(&flow) {
            Some(connection) => connection.is_over(),
            None => self.processes.ended.contains_key(&flow),
        }
    }

    /// Bytes that a flow's client has.
    pub(super) fn bytes_of(&self, flow: usize) -> u64 {
        match self.connections.get(&flow) {
            Some(connection) => connection.received.load(Ordering::Relaxed),
            None => self.processes.received_of(flow),
        }
    }

    /// The scenario's time.
    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + clock::now().since(self.epoch)
    }

    /// Collects the reports of links and clients.
    fn look(&mut self, now: Instant) {
        self.ticks.extend(self.reports.iter().flat_map(|reports| reports.ticks.try_iter()));
        self.pace.note(now, (0..self.scenario.flows.len()).map(|flow| self.bytes_of(flow)).collect());
    }

    /// Bytes of a flow's full packet, headers of IP included.
    pub(super) fn full_packet(&self, flow: usize) -> u32 {
        let more = if self.is_v6 { V6_HEADER_MORE } else { 0 };
        match (self.connections.contains_key(&flow), &self.sealing) {
            (true, _) => tcp::RECORD as u32 + tcp::HEADERS + more,
            (false, Sealing::Insecure) => self.planned(flow).full_packet_as(Protection::Plain) + more,
            (false, Sealing::Key(_)) => self.planned(flow).full_packet_as(Protection::Sealed) + more,
        }
    }

    fn planned(&self, flow: usize) -> &Transport {
        &self.blueprint.plan.flows[flow].transport
    }

    fn note_bases(&mut self, now: Instant) {
        for (index, flow) in self.blueprint.plan.flows.iter().enumerate() {
            let Some(base) = self.world.base(flow.from, flow.to, self.full_packet(index), now) else {
                continue;
            };
            if self.bases[index].last().is_none_or(|(_, last)| *last != base) {
                self.bases[index].push((now, base));
            }
        }
    }
}

/// Jumps of the clock of each node, nanoseconds, in the order of time.
fn clock_steps(actions: &[(Instant, Action)]) -> BTreeMap<NodeId, Vec<i64>> {
    let mut sorted: Vec<_> = actions.iter().collect();
    sorted.sort_by_key(|(at, _)| *at);
    let mut steps: BTreeMap<NodeId, Vec<i64>> = BTreeMap::new();
    for (_, action) in sorted {
        if let Action::StepClock(node, by) = action {
            steps.entry(*node).or_default().push(*by);
        }
    }
    steps
}

fn sleep_until(at: Instant) {
    let left = at.since(clock::now());
    std::thread::sleep(std::time::Duration::from_nanos(left.as_nanos()));
}
