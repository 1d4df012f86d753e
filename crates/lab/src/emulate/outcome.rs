//! Makes the result document from the records of a run.

use super::model::Witnessed;
use super::record::{self, Event, Recorded, Seals, Subject, What};
use super::run::Run;
use super::tcp::{self, Connection};
use super::terrain;
use super::world::Tick;
use crate::error::LabError;
use crate::process::Sealing;
use crate::result::{
    AccuracyResult, FlowFacts, FlowResult, RelayCpu, RelayResult, RunResult, SeriesResult, flow_result,
    flow_series, groups, jain, path,
};
use crate::run::peak_rss_bytes;
use serde_json::Value;
use starhop_net::emu::Accuracy;
use starhop_net::security::{KeyError, KeyFile};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::peer::Incarnation;
use starhop_proto::time::{Duration, Instant};
use starhop_sim::engine::{IP_HEADER, UDP_HEADER};
use starhop_sim::run::Simulation;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Largest errors of a good run: delay in milliseconds (p99), rate as a share. Larger errors are reported.
const GOOD: (f64, f64) = (1.0, 0.02);

impl Run<'_> {
    /// Ends everything and returns the result.
    pub(super) fn finish(&mut self, wall_s: f64) -> Result<RunResult, LabError> {
        self.connections.values().for_each(Connection::stop);
        self.processes.end(&mut self.problems)?;
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
        let mut ticks = std::mem::take(&mut self.ticks);
        let (mut lost, mut askers) = (Vec::new(), Vec::new());
        if let Some(reports) = self.reports.take() {
            ticks.extend(reports.ticks);
            for witnessed in reports.witnessed {
                match witnessed {
                    Witnessed::Lost(packet) => lost.push(packet),
                    Witnessed::Asker(asker) => askers.push(asker),
                }
            }
        }
        let flow_of = |id: FlowId| subjects.iter().position(|subject| subject.content == id);
        let mut seals = self.seals(askers)?;
        events.extend(lost.iter().filter_map(|lost| record::lost_bytes(lost, seals.as_mut(), flow_of)));
        let recorded = record::replay(self.scenario, &subjects, events, self.end);
        // The capacity of a sky's paths is computed for the length of the run.
        let sky = match self.world.has_sky() {
            true => Some(terrain::rehearse(self.scenario, self.end)?.0),
            false => None,
        };
        Ok(self.document(&recorded, sky.as_ref(), ticks, accuracy, wall_s))
    }

    fn seals(&self, askers: Vec<Incarnation>) -> Result<Option<Seals>, LabError> {
        let Sealing::Key(path) = &self.sealing else { return Ok(None) };
        let failed =
            |error: KeyError| LabError::Process { what: "the key".into(), problem: error.to_string() };
        KeyFile::load(path).map(|file| Some(Seals::new(&file, askers))).map_err(failed)
    }

    /// An instant of the machine in the scenario's time.
    fn at(&self, at: Instant) -> Instant {
        Instant::ZERO + at.since(self.epoch)
    }

    fn content_of(&self, index: usize) -> FlowId {
        match self.processes.contents.get(&index) {
            Some(content) => content.id(),
            None => FlowId::of_content(blake3::hash(format!("flow {index}").as_bytes()).as_bytes()),
        }
    }

    /// Adds the events of a TCP flow. Returns the time at which the flow was complete.
    fn of_tcp(&mut self, index: usize, events: &mut Vec<Event>) -> Result<Option<Instant>, LabError> {
        let Some(connection) = self.connections.get_mut(&index) else { return Ok(None) };
        let received = connection.finish()?;
        if received.is_wrong {
            self.problems.push(format!("flow {}: wrong bytes arrived", self.scenario.flows[index].name));
        }
        let departures = connection.bytes.departures.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sent =
            departures.into_iter().map(|(at, range)| Event { at, what: What::Sent, flow: index, range });
        events.extend(sent);
        for &(had, range) in &received.pieces {
            events.push(Event { at: self.at(had), what: What::Arrived, flow: index, range });
        }
        let last = received.pieces.last().map(|&(had, _)| self.at(had));
        Ok(last.filter(|_| received.is_whole))
    }

    /// Adds the events of a flow of our own. Returns the time at which the flow was complete.
    fn of_starhop(&mut self, index: usize, events: &mut Vec<Event>) -> Result<Option<Instant>, LabError> {
        let (name, flow) = (&self.scenario.flows[index].name, &self.blueprint.plan.flows[index]);
        let arrived = self.processes.arrived_of(index)?;
        let add = |what: What, (at, range): (Instant, ByteRange)| Event {
            at: self.at(at),
            what,
            flow: index,
            range,
        };
        // Flows of equal content share their transmissions.
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
        sky: Option<&Simulation>,
        ticks: Vec<Tick>,
        accuracy: AccuracyResult,
        wall_s: f64,
    ) -> RunResult {
        let scenario = self.scenario;
        let recorder = recorded.recorder.borrow();
        let flows: Vec<FlowResult> = (0..scenario.flows.len())
            .map(|index| flow_result(scenario, index, &recorder, self.facts(index, sky)))
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
                .chain(&sky.map(Simulation::sky_changes).unwrap_or_default())
                .map(|at| at.since(Instant::ZERO).as_secs_f64())
                .collect(),
            jain: jain(&flows.iter().map(|flow| flow.goodput_mbps).collect::<Vec<_>>()),
            accuracy: Some(accuracy),
            flows,
            groups: groups(scenario, &recorder, |index| self.facts(index, sky)),
            links: record::links(&self.blueprint.links, network, sky, warm, last),
            relays: self.relays(),
            series: Some(SeriesResult {
                step_s: scenario.step.as_secs_f64(),
                flows: recorded.series.iter().map(|samples| flow_series(samples)).collect(),
                links: record::link_series(network, self.blueprint.links.len(), scenario.step, &steps),
            }),
        }
    }

    fn facts(&self, index: usize, sky: Option<&Simulation>) -> FlowFacts {
        let flow = &self.blueprint.plan.flows[index];
        // The blueprint's is for the scenario's transport, over IPv4.
        let planned = f64::from(flow.transport.payload()) / f64::from(flow.transport.full_packet());
        let payload = match self.connections.contains_key(&index) {
            true => tcp::RECORD as f64,
            false => f64::from(flow.transport.payload()),
        };
        let real = payload / f64::from(self.full_packet(index));
        let over_sky = sky.and_then(|sky| sky.flow_path(index));
        let planned_mbps =
            over_sky.as_ref().map_or(self.blueprint.ideal_mbps[index], |sky| sky.ideal_bps * 1e-6);
        let propagation_ms = self.blueprint.propagation[index].as_millis_f64();
        let facts = FlowFacts {
            record: index,
            transport: self.controls.get(&index).unwrap_or(&self.scenario.flows[index].transport).clone(),
            start: flow.start,
            stop: flow.stop,
            end: flow.stop.min(self.end),
            ideal_mbps: planned_mbps * real / planned,
            propagation_ms: over_sky.as_ref().map_or(propagation_ms, |sky| sky.path.mean_propagation_ms),
            path: over_sky.map(|sky| path(&sky.path)),
            return_bytes: 0,
            repairs: 0,
            timeouts: 0,
        };
        if let Some(connection) = self.connections.get(&index) {
            let return_bytes = connection.bytes.back.load(Ordering::Relaxed);
            return FlowFacts { return_bytes, ..facts };
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
                let node = self.world.name(*node);
                let last = lives.last().unwrap_or(&Value::Null);
                let seconds: f64 = lives.iter().filter_map(|life| life["cpu_seconds"].as_f64()).sum();
                let (duration_s, data_out) = (self.end.since(Instant::ZERO).as_secs_f64(), sum("data_out"));
                all.push(RelayResult {
                    name: if stacks.len() > 1 { format!("{node}/{}", number + 1) } else { node.to_owned() },
                    cache_hits: sum("cache_hit_bytes"),
                    cache_bytes: last["cache_bytes"].as_u64().unwrap_or(0),
                    interests_in: sum("interests_in"),
                    interests_out: sum("interests_out"),
                    aggregated: sum("aggregated_bytes"),
                    repairs: sum("repairs"),
                    data_out,
                    cpu: Some(RelayCpu::new(seconds, duration_s, data_out)),
                });
            }
        }
        all
    }
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
