//! A simulation: a world, and a director that does things to it at set times.

mod build;
mod gateway;
mod overlay;
mod series;
mod sky;
mod split;

pub use build::{FlowSpec, Plan, Transport};
pub use gateway::GatewayTransport;
pub use series::{FlowSample, LinkSample, PathSample, Series};
pub use sky::{
    Deed, FlowPath, GroupResult, Handover, PathResult, SkyLinkConfig, SkyPair, SkyPlan, Tuning, VCurve,
};
pub use split::SplitTransport;

use crate::engine::{HostId, LinkId, NodeId, WindowSample, World};
use crate::link::LinkCounters;
use crate::record::SharedRecorder;
use overlay::Overlay;
use sky::{Feed, Sky, Stage};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::BTreeMap;

/// Something that is done to a running world.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The relays of the node are killed. The node still forwards packets.
    Crash(NodeId),
    /// The relays of the node start again with empty memories.
    Restart(NodeId),
    /// The relays of the node are left out of every path.
    Bypass(NodeId),
    /// They are on the path again.
    Include(NodeId),
    /// The node is switched off whole.
    NodeDown(NodeId),
    /// The node is switched on again; its programs start with empty memories.
    NodeUp(NodeId),
    /// Links go up and down, and routes follow.
    Links {
        /// The links, each with whether it is up.
        states: Vec<(LinkId, bool)>,
        /// Packets under way on a link that goes down still arrive.
        keep: bool,
    },
    /// The programs of the node get new addresses in place of the old ones. No other node is told.
    Readdress(NodeId),
    /// The time of day of the node jumps by this many nanoseconds. Seals go by it; timers do not.
    StepClock(NodeId, i64),
}

/// The director's view of a flow.
#[derive(Clone, Debug)]
pub struct FlowHandle {
    /// Its number in the recorder.
    pub record: usize,
    /// The program that asks, or that sends if there are no requests.
    pub driver: HostId,
    /// The program at the client.
    pub client: HostId,
    /// The TCP senders between source and client, the source first; empty for other transports.
    pub senders: Vec<HostId>,
    /// The gateway that splits its connection by rate, among those of other flows.
    pub gateway: Option<HostId>,
    /// Its TCP connections are open from the start, and their programs start with it.
    is_connected: bool,
    /// Node that has its content.
    pub from: NodeId,
    /// Node that wants the content.
    pub to: NodeId,
    /// Time at which it begins.
    pub start: Instant,
    /// Time at which it ends if it is not complete.
    pub stop: Instant,
    full_packet: u32,
    /// Whether the flow has a time series.
    is_sampled: bool,
    /// Whether the client's program fetches other flows, too.
    is_among_others: bool,
}

/// A relay of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct RelayHandle {
    /// Its node.
    pub node: NodeId,
    /// Its program.
    pub host: HostId,
    /// Which settings it speaks with, counted from 0.
    pub stack: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Start(usize),
    Stop(usize),
    WarmedUp,
    Do(Action),
}

/// A simulation from its plan to its measurements.
pub struct Simulation {
    world: World<SharedRecorder>,
    recorder: SharedRecorder,
    overlay: Overlay,
    sky: Option<Sky>,
    /// The changes that the sky made, if the caller wants to know them.
    deeds: Option<Vec<(Instant, Deed)>>,
    flows: Vec<FlowHandle>,
    /// The remaining steps, latest first.
    steps: Vec<(Instant, Step)>,
    end: Instant,
    series: Series,
    sent_before: Vec<f64>,
    /// Counters and bits sent of every link at the end of the warm-up.
    at_warm_up: (Instant, Vec<LinkState>),
}

/// Counters of a link and the bits that it sent.
type LinkState = (LinkCounters, f64);

/// Counters of a link since the end of the warm-up.
#[derive(Clone, Copy, Debug)]
pub struct LinkResult {
    /// Its counters.
    pub counters: LinkCounters,
    /// Bits that it sent.
    pub sent_bits: f64,
    /// Bits that its schedule could have carried; infinite where it has no limit.
    pub capacity_bits: f64,
}

impl Simulation {
    /// Runs to the end, or until every flow is done. Calls `progress` after every step of the time series.
    pub fn run(&mut self, progress: impl FnMut(Instant)) {
        let Some((network, plan)) = self.sky.as_ref().map(|sky| sky.sight(self.end)) else {
            return self.run_fed(None, progress);
        };
        match plan.changes(&network) {
            Ok(changes) => self.run_fed(Some(Feed::new(changes, plan.from_s)), progress),
            Err(error) => self.recorder.borrow_mut().on_problem(format!("the sky: {error}")),
        }
    }

    /// Lets the sky pass over a network in which no flow ever starts, and returns its changes with their times.
    /// Nodes, links, paths and the capacity of the paths are known from then on, as after a run.
    pub fn rehearse(&mut self) -> Vec<(Instant, Deed)> {
        self.deeds = Some(Vec::new());
        self.steps.retain(|(_, step)| matches!(step, Step::WarmedUp));
        self.overlay.members.clear();
        self.run(|_| ());
        self.deeds.take().unwrap_or_default()
    }

    fn run_fed(&mut self, mut feed: Option<Feed<'_>>, mut progress: impl FnMut(Instant)) {
        let step = self.series.step;
        let mut tick = Instant::ZERO + step;
        self.reroute();
        while self.world.now() < self.end && !self.is_done() {
            self.run_steps_until(tick.min(self.end), &mut feed);
            self.sample(step);
            progress(self.world.now());
            tick += step;
        }
        if let Some(sky) = &mut self.sky {
            sky.finish(&self.world);
        }
        if let Some(error) = feed.as_mut().and_then(Feed::take_error) {
            self.recorder.borrow_mut().on_problem(format!("the sky: {error}"));
        }
    }

    fn run_steps_until(&mut self, end: Instant, feed: &mut Option<Feed<'_>>) {
        loop {
            let step = self.steps.last().map(|(at, _)| *at);
            let change = feed.as_mut().and_then(Feed::next_time);
            // The sky goes first: a flow that starts with it finds its way.
            let Some(at) = step.into_iter().chain(change).min().filter(|at| *at < end) else { break };
            self.world.run_until(at);
            if let (Some(feed), Some(sky)) = (feed.as_mut(), self.sky.as_mut())
                && change == Some(at)
            {
                let mut stage = Stage { world: &mut self.world, log: self.deeds.as_mut() };
                sky.apply(feed, &mut stage, &mut self.overlay);
                self.note_bases();
            } else if let Some((_, step)) = self.steps.pop() {
                self.perform(step);
            }
        }
        self.world.run_until(end);
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Start(flow) => {
                let handle = &self.flows[flow];
                self.recorder.borrow_mut().flow_mut(handle.record).started = Some(self.world.now());
                let (driver, senders) = (handle.driver, handle.senders.clone());
                self.world.begin(driver, self.flows[flow].record as u32);
                // The source starts last, so that its first packets find the other hosts ready.
                for sender in senders.into_iter().rev().filter(|_| self.flows[flow].is_connected) {
                    self.world.start(sender);
                }
            }
            Step::Stop(flow) => {
                let handle = &self.flows[flow];
                if handle.is_among_others {
                    self.world.close(handle.client, handle.record as u32);
                } else {
                    handle.senders.iter().chain([&handle.driver]).for_each(|&host| self.world.kill(host));
                }
                if let Some(gateway) = handle.gateway {
                    self.world.close(gateway, handle.record as u32);
                }
            }
            Step::WarmedUp => {
                self.at_warm_up = (self.world.now(), self.link_counters());
                if let Some(sky) = &mut self.sky {
                    sky.on_warm_up(&self.world);
                }
            }
            Step::Do(action) => self.act(&action),
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Crash(node) => self.relays_at(*node).iter().for_each(|&relay| self.world.kill(relay)),
            Action::Restart(node) => {
                self.relays_at(*node).iter().for_each(|&relay| self.world.restart(relay));
            }
            Action::Bypass(node) => self.overlay.bypass(*node, true, &mut self.world),
            Action::Include(node) => self.overlay.bypass(*node, false, &mut self.world),
            Action::Readdress(node) => self.world.readdress(*node),
            Action::StepClock(node, by) => self.world.step_clock(*node, *by),
            Action::NodeDown(node) => {
                self.world.set_node_up(*node, false);
                self.reroute();
            }
            Action::NodeUp(node) => {
                self.world.set_node_up(*node, true);
                self.reroute();
            }
            Action::Links { states, keep } => {
                states.iter().for_each(|&(link, is_up)| self.world.set_link_up(link, is_up, *keep));
                self.reroute();
            }
        }
    }

    fn relays_at(&self, node: NodeId) -> Vec<HostId> {
        self.overlay.relays_at(node).collect()
    }

    /// Finds new paths, and reports them to the overlay and the recorder.
    fn reroute(&mut self) {
        let now = self.world.now();
        if self.sky.is_none() {
            self.world.network_mut().route_by_delay(now);
        }
        self.overlay.rewire(&mut self.world);
        self.note_bases();
    }

    /// Propagation and serialisation of every flow's path as they are now.
    fn note_bases(&mut self) {
        let now = self.world.now();
        // Flows alike stand next to each other.
        let mut last: Option<(&FlowHandle, Option<Duration>)> = None;
        for flow in &self.flows {
            let is_alike = |other: &FlowHandle| {
                (other.from, other.to, other.full_packet) == (flow.from, flow.to, flow.full_packet)
            };
            let known = last.filter(|(other, _)| is_alike(other)).map(|(_, base)| base);
            let base = known.unwrap_or_else(|| self.base_of(flow, now));
            last = Some((flow, base));
            if let Some(base) = base {
                self.recorder.borrow_mut().flow_mut(flow.record).set_base(now, base);
            }
        }
    }

    fn base_of(&self, flow: &FlowHandle, now: Instant) -> Option<Duration> {
        let network = self.world.network();
        let path = network.path(flow.from, flow.to);
        let over = |link: &LinkId| {
            let model = network.link(*link);
            let bytes = u64::from(flow.full_packet + network.header(*link));
            // A rate that rises and falls with a pass has queues of its own making.
            let best = self.best_rate(*link);
            let serialisation = best.unwrap_or(model.schedule().at(now)).time_for(bytes);
            // A link without capacity has no serialisation time to subtract.
            let serialisation = if serialisation == Duration::MAX { Duration::ZERO } else { serialisation };
            model.propagation(now) + serialisation
        };
        (!path.is_empty()).then(|| path.iter().map(over).fold(Duration::ZERO, |sum, part| sum + part))
    }

    fn is_done(&self) -> bool {
        let recorder = self.recorder.borrow();
        let now = self.world.now();
        self.flows.iter().all(|flow| recorder.flow(flow.record).finished.is_some() || flow.stop <= now)
    }

    fn sample(&mut self, step: Duration) {
        self.note_bases();
        let sampled = self.flows.iter().zip(&mut self.series.flows).filter(|(flow, _)| flow.is_sampled);
        for (flow, samples) in sampled {
            let mut recorder = self.recorder.borrow_mut();
            let record = recorder.flow_mut(flow.record);
            let sums = std::mem::take(&mut record.step);
            let splitter = flow.gateway.or(flow.senders.get(1).copied());
            let backlog = splitter.and_then(|host| self.world.backlog_of(host, flow.record as u32));
            let window = flow.senders.first().and_then(|&sender| self.world.window_of(sender));
            let in_window = |value: fn(WindowSample) -> f64| window.map_or(f64::NAN, value);
            samples.push(FlowSample {
                cwnd: in_window(|window| window.cwnd),
                ssthresh: in_window(|window| window.ssthresh),
                srtt_ms: in_window(|window| window.srtt.map_or(f64::NAN, Duration::as_millis_f64)),
                in_flight: in_window(|window| f64::from(window.in_flight)),
                backlog_bytes: backlog.map_or(f64::NAN, |backlog| backlog.unsent as f64),
                out_of_order_bytes: record.out_of_order() as f64,
                delivered_bytes: record.in_order_bytes as f64,
                goodput_mbps: sums.in_order_bytes as f64 * 8e-6 / step.as_secs_f64(),
                owd_ms: sums.owd / sums.owd_bytes as f64 * 1e-6,
                in_order_owd_ms: sums.in_order_owd / sums.in_order_owd_bytes as f64 * 1e-6,
            });
        }
        if let Some(sky) = &self.sky {
            for (flow, samples) in self.series.paths.iter_mut().enumerate() {
                let path = sky.path_now(flow);
                let (hops, propagation_ms) =
                    path.map_or((0, f64::NAN), |(hops, delay)| (hops, delay.as_millis_f64()));
                samples.push(PathSample { hops, propagation_ms });
            }
        }
        let now = self.world.now();
        for (id, samples) in self.world.network().link_ids().zip(&mut self.series.links) {
            let link = self.world.network().link(id);
            let sent = link.bits_sent(now);
            let before = std::mem::replace(&mut self.sent_before[id.0 as usize], sent);
            samples.push(LinkSample {
                queue_ms: link.backlog(now).as_millis_f64(),
                sent_mbps: (sent - before) * 1e-6 / step.as_secs_f64(),
                capacity_mbps: link.schedule().bits_between(now.before(step), now) * 1e-6
                    / step.as_secs_f64(),
            });
        }
    }

    fn link_counters(&self) -> Vec<LinkState> {
        let (network, now) = (self.world.network(), self.world.now());
        network.link_ids().map(|id| (network.link(id).counters(), network.link(id).bits_sent(now))).collect()
    }
}

/// The measurements of a simulation.
impl Simulation {
    /// The world.
    pub fn world(&self) -> &World<SharedRecorder> {
        &self.world
    }

    /// The recorder.
    pub fn recorder(&self) -> &SharedRecorder {
        &self.recorder
    }

    /// The flows, in the order of the plan.
    pub fn flows(&self) -> &[FlowHandle] {
        &self.flows
    }

    /// The relays.
    pub fn relays(&self) -> Vec<RelayHandle> {
        let stacks = self.overlay.stacks.iter().enumerate();
        let relay = |stack| move |(&node, &host)| RelayHandle { node, host, stack };
        stacks.flat_map(|(index, stack)| stack.relays.iter().map(relay(index))).collect()
    }

    /// The path of a flow through the sky; `None` without a sky.
    pub fn flow_path(&self, flow: usize) -> Option<FlowPath> {
        self.sky.as_ref().map(|sky| sky.flow_path(flow))
    }

    /// Counters of the links of the sky since the end of the warm-up, by kind.
    pub fn sky_links(&self) -> Vec<GroupResult> {
        let groups = |sky: &Sky| sky.groups(|link| sky.done(link, &self.world));
        self.sky.as_ref().map(groups).unwrap_or_default()
    }

    /// The links of the sky by kind, with their capacity since the end of the warm-up. `done` gives the counters
    /// and the sent bits of each link.
    pub fn sky_links_elsewhere(&self, done: impl Fn(LinkId) -> (LinkCounters, f64)) -> Vec<GroupResult> {
        self.sky.as_ref().map(|sky| sky.groups(done)).unwrap_or_default()
    }

    /// The rate of a link of the sky at its best, where that varies over a pass.
    pub fn best_rate(&self, link: LinkId) -> Option<Rate> {
        self.sky.as_ref().and_then(|sky| sky.best_rate(link))
    }

    /// The names of nodes that the sky made or knows.
    pub fn sky_names(&self) -> BTreeMap<NodeId, String> {
        self.sky.as_ref().map(Sky::names).unwrap_or_default()
    }

    /// Times at which paths through the sky changed.
    pub fn sky_changes(&self) -> Vec<Instant> {
        self.sky.as_ref().map(Sky::change_times).unwrap_or_default()
    }

    /// The time series.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Counters of each link since the end of the warm-up.
    pub fn link_results(&self) -> Vec<LinkResult> {
        let (since, before) = &self.at_warm_up;
        let (network, now) = (self.world.network(), self.world.now());
        let states = self.link_counters();
        let ids = network.link_ids().zip(states.iter().zip(before));
        let result = |(id, (state, before)): (LinkId, (&LinkState, &LinkState))| LinkResult {
            counters: state.0.since(before.0),
            sent_bits: state.1 - before.1,
            capacity_bits: network.link(id).schedule().bits_between(*since, now),
        };
        ids.map(result).collect()
    }
}
