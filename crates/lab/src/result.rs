//! The result document: the measurements of flows, links and relays in a run, simulated or emulated.

mod group;
mod level;
mod series;

pub(crate) use group::groups;
pub use group::{GroupResult, Quantiles};
pub use level::{Level, Responses};
pub(crate) use series::flow_series;
pub use series::{FlowSeries, LinkSeries, SeriesResult};

use crate::scenario::{Built, Group, Scenario};
use level::{level, responses};
use serde::{Deserialize, Serialize};
use series::series;
use starhop_proto::time::Instant;
use starhop_sim::engine::{HostReport, IP_HEADER, UDP_HEADER};
use starhop_sim::link::LinkCounters;
use starhop_sim::record::{Delays, FlowRecord, Histogram, Recorder};
use starhop_sim::run::{FlowHandle, FlowSample};

/// A run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Version of this document's form.
    pub version: u32,
    /// The scenario's title.
    pub title: String,
    /// "sim" or "emulate".
    pub engine: String,
    /// The seed.
    pub seed: u64,
    /// Hash over all that hosts saw, hexadecimal: same file, seed and build, same hash. Empty when emulated.
    pub trace_hash: String,
    /// Time that passed in the run.
    pub duration_s: f64,
    /// Left out of delays, goodput and links.
    pub warmup_s: f64,
    /// Time that the run took.
    pub wall_s: f64,
    /// Packets put on links.
    pub link_packets: u64,
    /// Events handled.
    pub events: u64,
    /// Peak resident memory of the process.
    pub peak_rss_bytes: u64,
    /// Violations of rules that every run must keep; empty in a good run.
    pub problems: Vec<String>,
    /// Times at which paths changed, seconds.
    pub path_changes_s: Vec<f64>,
    /// One per flow, except for flows of groups of more than 1000.
    pub flows: Vec<FlowResult>,
    /// One per `count`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupResult>,
    /// One per direction of a link.
    pub links: Vec<LinkResult>,
    /// One per relay.
    pub relays: Vec<RelayResult>,
    /// Jain's index of the goodputs.
    pub jain: f64,
    /// Emulated only: how true the links were to the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<AccuracyResult>,
    /// Time series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesResult>,
}

/// Accuracy of the links of an emulated run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccuracyResult {
    /// Median of the packets' delay beyond that of the scenario.
    pub delay_error_p50_ms: f64,
    /// The 99th percentile of this, plus the longest that 99 % may have waited before their link saw them.
    pub delay_error_p99_ms: f64,
    /// The maximum of this.
    pub delay_error_max_ms: f64,
    /// In 99 % of all seconds, a link's packets came out at a rate that differed by at most this share.
    pub rate_error_p99: f64,
    /// Packets that the emulator itself lost.
    pub lost_packets: u64,
    /// CPU time that the links took.
    pub cpu_s: f64,
    /// The links ran ahead of all ordinary processes.
    pub is_real_time: bool,
    /// The errors are within 1 ms (p99) and 2 %, and nothing was lost.
    pub is_good: bool,
}

/// A distribution of delays, milliseconds, weighted by bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// Mean and 99th percentile, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeanP99 {
    /// Mean.
    pub mean: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowResult {
    /// Its name.
    pub name: String,
    /// Its transport.
    pub transport: String,
    /// Time of its beginning.
    #[serde(default)]
    pub start_s: f64,
    /// Time of its end if it is not complete by then.
    #[serde(default)]
    pub stop_s: f64,
    /// Every byte was handed over.
    pub completed: bool,
    /// Time from its start to its last byte.
    pub completion_s: Option<f64>,
    /// Bytes handed over in order, once, in the whole run.
    pub delivered_bytes: u64,
    /// Bytes handed over in order since the warm-up, by the time that the flow ran since then.
    pub goodput_mbps: f64,
    /// The fluid bound of its path for payload.
    pub ideal_mbps: f64,
    /// `goodput / ideal`.
    pub efficiency: f64,
    /// First arrival since first transmission by the source.
    pub owd_ms: Spread,
    /// Handed over in order since first transmission by the source.
    pub in_order_owd_ms: Spread,
    /// As `owd_ms`, of ranges of which a copy was lost on the way.
    pub retransmitted_owd_ms: Spread,
    /// Propagation of the path at the start; over a constellation the mean over time.
    pub propagation_ms: f64,
    /// Over a constellation: the path over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathResult>,
    /// `owd` less propagation and serialisation.
    pub queueing_ms: MeanP99,
    /// `retransmitted_owd` less the mean `owd` of ranges without a lost copy.
    pub recovery_ms: MeanP99,
    /// Difference between the `owd` of successive arrivals.
    pub jitter_ms: MeanP99,
    /// Segments under way from a TCP source.
    #[serde(default)]
    pub in_flight: Level,
    /// Bytes that the first node which splits the connection has not sent on.
    #[serde(default)]
    pub backlog_bytes: Level,
    /// Bytes at the client that wait for others before them.
    #[serde(default)]
    pub out_of_order_bytes: Level,
    /// Answers to a client that asks for one thing after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
    /// Payload bytes that the source sent, repairs included; flows of equal content share them.
    pub source_bytes: u64,
    /// Bytes of the IP packets that the client sent.
    pub return_bytes: u64,
    /// Ranges that the client asked for again on its hop; for TCP, segments that senders sent again.
    pub repairs: u64,
    /// End-to-end timeouts of the client; for TCP, retransmission timeouts of senders.
    pub timeouts: u64,
    /// Values of `owd` at the shares 0, 0.5 %, 1 %, …, 100 %, for plots.
    pub owd_quantiles_ms: Vec<f64>,
    /// Values of the in-order delay at the same shares.
    pub in_order_quantiles_ms: Vec<f64>,
}

/// The path of a flow over a constellation, in the whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathResult {
    /// Number of changes of the path.
    pub changes: u64,
    /// Mean number of links, those between hosts and stations included.
    pub mean_hops: f64,
    /// The fewest links.
    pub min_hops: u32,
    /// The most links.
    pub max_hops: u32,
    /// Mean propagation delay, one way.
    pub mean_propagation_ms: f64,
    /// Least propagation delay.
    pub min_propagation_ms: f64,
    /// Greatest propagation delay.
    pub max_propagation_ms: f64,
    /// Time without a path.
    pub away_s: f64,
}

/// One direction of a link, since the warm-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkResult {
    /// "server-r1".
    pub name: String,
    /// "forward" or "backward"; between stations and satellites "up" or "down".
    pub direction: String,
    /// Bytes put on the wire.
    pub bytes: u64,
    /// Packets put on the wire, lost ones included.
    pub packets: u64,
    /// Packets lost on the way.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Mean wait in the queue.
    pub mean_queue_ms: f64,
    /// Bits sent by bits that could have been sent; 0 for a link without a limit.
    pub utilisation: f64,
}

impl LinkResult {
    /// A direction with these counters that sent `sent_bits` of the `capacity` bits that it could have sent.
    pub(crate) fn new(
        name: &str,
        direction: &str,
        (counters, sent_bits): (LinkCounters, f64),
        capacity_bits: f64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            direction: direction.to_owned(),
            bytes: counters.bytes,
            packets: counters.packets,
            lost: counters.lost,
            dropped: counters.dropped,
            mean_queue_ms: rounded(counters.waited_ns as f64 * 1e-6 / counters.packets.max(1) as f64),
            utilisation: if capacity_bits > 0.0 { sent_bits / capacity_bits } else { 0.0 },
        }
    }
}

/// A relay, in the whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RelayResult {
    /// Its node; with a number where flows of different settings have relays of their own.
    pub name: String,
    /// Bytes answered from the cache.
    pub cache_hits: u64,
    /// Bytes in the cache at the end.
    pub cache_bytes: u64,
    /// Interests received.
    pub interests_in: u64,
    /// Interests sent.
    pub interests_out: u64,
    /// Bytes asked for that were on their way already.
    pub aggregated: u64,
    /// Ranges asked for again on the upstream hop.
    pub repairs: u64,
    /// Data packets sent.
    #[serde(default)]
    pub data_out: u64,
    /// Emulated only: CPU time of its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<RelayCpu>,
}

/// User and system time of a relay's process, its start included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayCpu {
    /// In all, seconds.
    pub seconds: f64,
    /// Share of one core over the run, percent.
    pub percent: f64,
    /// Microseconds per Data packet that it sent.
    pub us_per_packet: f64,
}

impl RelayCpu {
    /// The CPU time of a process that used `seconds` in a run of `duration_s` and sent `packets`.
    pub fn new(seconds: f64, duration_s: f64, packets: u64) -> Self {
        let us_per_packet = rounded(seconds * 1e6 / packets.max(1) as f64);
        Self { seconds, percent: rounded(seconds * 100.0 / duration_s.max(1e-3)), us_per_packet }
    }
}

/// The document of a simulation that ran for `wall_s` seconds of real time.
pub fn document(scenario: &Scenario, built: &Built, wall_s: f64, peak_rss_bytes: u64) -> RunResult {
    let simulation = &built.simulation;
    let counters = simulation.world().counters();
    let listed = (0..scenario.flows.len()).filter(|&index| is_listed(scenario, index));
    let flows = listed.map(|index| flow(scenario, built, index)).collect();
    let seconds = |at: &Instant| at.since(Instant::ZERO).as_secs_f64();
    RunResult {
        version: 1,
        title: scenario.title.clone(),
        engine: "sim".to_owned(),
        seed: scenario.seed,
        trace_hash: format!("{:016x}", simulation.world().trace_hash()),
        duration_s: seconds(&simulation.world().now()),
        warmup_s: scenario.warmup.as_secs_f64(),
        wall_s,
        link_packets: counters.link_packets,
        events: counters.events,
        peak_rss_bytes,
        problems: simulation.recorder().borrow().problems().to_vec(),
        path_changes_s: built.changes.iter().chain(&simulation.sky_changes()).map(seconds).collect(),
        jain: jain(&goodputs(scenario, built)),
        accuracy: None,
        flows,
        groups: groups(scenario, &simulation.recorder().borrow(), |index| facts(scenario, built, index)),
        links: links(built),
        relays: relays(scenario, built),
        series: Some(series(scenario, built)),
    }
}

/// Jain's fairness index: 1 when all are equal, 1/n when one has all.
pub fn jain(values: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) = values.iter().fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
    if squares == 0.0 { 1.0 } else { sum * sum / (values.len() as f64 * squares) }
}

/// Whether a flow has an entry of its own.
fn is_listed(scenario: &Scenario, index: usize) -> bool {
    scenario.flows[index].group.as_ref().is_none_or(Group::is_listed)
}

/// Goodput of each flow, Mbit/s.
fn goodputs(scenario: &Scenario, built: &Built) -> Vec<f64> {
    let recorder = built.simulation.recorder().borrow();
    let flows = 0..scenario.flows.len();
    flows.map(|index| group::goodput(scenario, &recorder, &facts(scenario, built, index))).collect()
}

fn facts(scenario: &Scenario, built: &Built, index: usize) -> FlowFacts {
    let simulation = &built.simulation;
    let handle = &simulation.flows()[index];
    let report = simulation.world().flow_report(handle.client, handle.record as u32);
    let ((repairs, timeouts), return_bytes) = match report {
        HostReport::Consumer(stats) => {
            let below_us = u64::from(IP_HEADER + UDP_HEADER) * stats.interests_sent;
            ((stats.repairs, stats.timeouts), stats.sent_bytes + below_us)
        }
        _ => (tcp_counts(built, handle), simulation.world().sent_by(handle.client).1),
    };
    let over_sky = simulation.flow_path(index);
    let propagation_ms = built.propagation[index].as_millis_f64();
    FlowFacts {
        record: handle.record,
        transport: scenario.flows[index].transport.clone(),
        start: handle.start,
        stop: handle.stop,
        end: handle.stop.min(simulation.world().now()),
        ideal_mbps: over_sky.as_ref().map_or(built.ideal_mbps[index], |sky| sky.ideal_bps * 1e-6),
        propagation_ms: over_sky.as_ref().map_or(propagation_ms, |sky| sky.path.mean_propagation_ms),
        path: over_sky.map(|sky| path(&sky.path)),
        return_bytes,
        repairs,
        timeouts,
    }
}

fn flow(scenario: &Scenario, built: &Built, index: usize) -> FlowResult {
    let level = |value: fn(&FlowSample) -> f64| level(scenario, built, index, value);
    FlowResult {
        in_flight: level(|s| s.in_flight),
        backlog_bytes: level(|s| s.backlog_bytes),
        out_of_order_bytes: level(|s| s.out_of_order_bytes),
        ..flow_result(scenario, index, &built.simulation.recorder().borrow(), facts(scenario, built, index))
    }
}

/// Facts about a flow that a recorder does not know.
pub(crate) struct FlowFacts {
    /// Its number in the recorder.
    pub(crate) record: usize,
    pub(crate) transport: String,
    pub(crate) start: Instant,
    /// Time at which it stops if it is not complete before.
    pub(crate) stop: Instant,
    /// Time at which its measurement ends: `stop`, or the end of the run if that is earlier.
    pub(crate) end: Instant,
    pub(crate) ideal_mbps: f64,
    /// Mean propagation delay over the run.
    pub(crate) propagation_ms: f64,
    /// Changes of its path, over a constellation.
    pub(crate) path: Option<PathResult>,
    pub(crate) return_bytes: u64,
    pub(crate) repairs: u64,
    pub(crate) timeouts: u64,
}

/// The result of a flow of the scenario.
pub(crate) fn flow_result(
    scenario: &Scenario,
    index: usize,
    recorder: &Recorder,
    facts: FlowFacts,
) -> FlowResult {
    let spec = &scenario.flows[index];
    let record = recorder.flow(facts.record);
    let goodput_mbps = group::goodput(scenario, recorder, &facts);
    let Delays { owd, in_order, retransmitted, undisturbed, queueing, jitter } = &*record.delays();
    let recovery = |nanos: f64| ((nanos - undisturbed.mean()) * 1e-6).max(0.0);
    let has_losses = retransmitted.total() > 0;
    FlowResult {
        name: spec.name.clone(),
        transport: facts.transport,
        start_s: facts.start.since(Instant::ZERO).as_secs_f64(),
        stop_s: facts.stop.since(Instant::ZERO).as_secs_f64(),
        completed: record.finished.is_some(),
        completion_s: record.finished.map(|at| at.since(facts.start).as_secs_f64()),
        delivered_bytes: record.in_order_bytes,
        goodput_mbps,
        ideal_mbps: facts.ideal_mbps,
        efficiency: goodput_mbps / facts.ideal_mbps,
        owd_ms: spread(owd),
        in_order_owd_ms: spread(in_order),
        retransmitted_owd_ms: spread(retransmitted),
        propagation_ms: facts.propagation_ms,
        path: facts.path,
        queueing_ms: mean_p99(queueing),
        recovery_ms: MeanP99 {
            mean: if has_losses { recovery(retransmitted.mean()) } else { 0.0 },
            p99: if has_losses { recovery(retransmitted.quantile(0.99)) } else { 0.0 },
        },
        jitter_ms: mean_p99(jitter),
        in_flight: Level::default(),
        backlog_bytes: Level::default(),
        out_of_order_bytes: Level::default(),
        responses: responses(&record.responses),
        source_bytes: recorder.source_bytes(facts.record),
        return_bytes: facts.return_bytes,
        repairs: facts.repairs,
        timeouts: facts.timeouts,
        owd_quantiles_ms: quantiles(owd),
        in_order_quantiles_ms: quantiles(in_order),
    }
}

/// A path over the sky.
pub(crate) fn path(path: &starhop_sim::run::PathResult) -> PathResult {
    PathResult {
        changes: path.changes.len() as u64,
        mean_hops: rounded(path.mean_hops),
        min_hops: path.hops.0,
        max_hops: path.hops.1,
        mean_propagation_ms: rounded(path.mean_propagation_ms),
        min_propagation_ms: rounded(path.propagation_ms.0),
        max_propagation_ms: rounded(path.propagation_ms.1),
        away_s: path.away_s,
    }
}

/// Segments sent again and retransmission timeouts of all TCP senders between source and client, and of a gateway that
/// splits the connection by rate.
fn tcp_counts(built: &Built, handle: &FlowHandle) -> (u64, u64) {
    let world = built.simulation.world();
    let flow = handle.record as u32;
    let reports = handle.senders.iter().chain(&handle.gateway).map(|&sender| world.flow_report(sender, flow));
    reports.fold((0, 0), |(repairs, timeouts), report| match report {
        HostReport::Tcp(stats) => (repairs + stats.retransmitted, timeouts + stats.timeouts),
        _ => (repairs, timeouts),
    })
}

/// Bytes, and their time: since the end of the warm-up, or since the start of the flow if it was complete before.
fn measured(scenario: &Scenario, record: &FlowRecord, facts: &FlowFacts) -> (u64, f64) {
    let end = record.finished.unwrap_or(facts.end);
    let warm = Instant::ZERO + scenario.warmup;
    if end <= warm {
        return (record.in_order_bytes, end.since(facts.start).as_secs_f64());
    }
    (record.measured_bytes, end.since(warm.max(facts.start)).as_secs_f64())
}

fn spread(histogram: &Histogram) -> Spread {
    let mut quantile = histogram.ascending();
    let mut at = |q| rounded(quantile(q) * 1e-6);
    Spread {
        mean: rounded(histogram.mean() * 1e-6),
        p5: at(0.05),
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        max: rounded(histogram.max() as f64 * 1e-6),
    }
}

fn mean_p99(histogram: &Histogram) -> MeanP99 {
    let Spread { mean, p99, .. } = spread(histogram);
    MeanP99 { mean, p99 }
}

fn quantiles(histogram: &Histogram) -> Vec<f64> {
    if histogram.total() == 0 {
        return Vec::new();
    }
    let mut quantile = histogram.ascending();
    (0..=200).map(|i| rounded(quantile(f64::from(i) / 200.0) * 1e-6)).collect()
}

/// To the microsecond, where the value is in milliseconds.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn links(built: &Built) -> Vec<LinkResult> {
    let links = built.links.iter().zip(built.simulation.link_results()).map(|(of, link)| {
        LinkResult::new(&of.name, of.direction, (link.counters, link.sent_bits), link.capacity_bits)
    });
    let sky = built.simulation.sky_links().into_iter().map(|link| {
        LinkResult::new(&link.name, link.direction, (link.counters, link.sent_bits), link.capacity_bits)
    });
    links.chain(sky).collect()
}

fn relays(scenario: &Scenario, built: &Built) -> Vec<RelayResult> {
    let relays = built.simulation.relays();
    let sky_names = built.simulation.sky_names();
    let has_several = relays.iter().any(|relay| relay.stack > 0);
    let result = |relay: &starhop_sim::run::RelayHandle| {
        let HostReport::Relay(stats) = built.simulation.world().report(relay.host) else { return None };
        let listed = scenario.topology.nodes.get(relay.node.0 as usize);
        let node = listed.or_else(|| sky_names.get(&relay.node)).map_or("", String::as_str);
        Some(RelayResult {
            name: if has_several { format!("{node}/{}", relay.stack + 1) } else { node.to_owned() },
            cache_hits: stats.cache_hit_bytes,
            cache_bytes: stats.cache_bytes,
            interests_in: stats.interests_in,
            interests_out: stats.interests_out,
            aggregated: stats.aggregated_bytes,
            repairs: stats.repairs,
            data_out: stats.data_out,
            cpu: None,
        })
    };
    relays.iter().filter_map(result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_a_share_for_a_monopoly() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert!((jain(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(jain(&[]), 1.0);
    }
}
