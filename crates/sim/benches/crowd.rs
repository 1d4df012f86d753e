//! Costs of a packet of many flows that share a path, and the goodput of these flows: `cargo bench -p starhop-sim
//! --bench crowd`.
//!
//! Unlimited flows over three hops of 1 Gbit/s or less and 10 ms, all begun at once, fetched by one program through two relays,
//! with caches that have room for them and with those that relays have by themselves. Numbers on the command line set how many
//! seconds are simulated, and the only case: flows, Mbit/s and MiB of cache.

use starhop_proto::config::{Config, ConfigError, Profile, Settings};
use starhop_proto::name::FlowId;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::engine::{Clock, HostReport, Network, NodeId};
use starhop_sim::host::Protection;
use starhop_sim::link::{LinkConfig, QueueLimit};
use starhop_sim::run::{FlowSpec, Plan, Simulation, Transport};

const HOPS: usize = 3;
const WARM_UP: Duration = Duration::from_secs(2);
/// The share of payload: 1350 of at most 1441 bytes of a sealed packet on the wire are payload: 28 for IPv4 and UDP, 33 for the seal, 30 for the header.
const PAYLOAD: f64 = 1350.0 / 1441.0;

/// Flows, the rate of the hops, and the caches of the relays.
#[derive(Clone, Copy)]
struct Case {
    flows: u64,
    mbps: u64,
    cache_mib: u64,
}

fn plan(case: Case, seconds: u64) -> Result<Plan, ConfigError> {
    let mut network = Network::default();
    let nodes: Vec<NodeId> = (0..=HOPS).map(|_| network.add_node(Clock::default())).collect();
    let link = LinkConfig {
        queue: QueueLimit::Packets(10_000),
        ..LinkConfig::ideal(Rate::from_mbps(case.mbps), Duration::from_millis(10))
    };
    for pair in nodes.windows(2) {
        network.add_link(pair[0], pair[1], link.clone(), 0);
        network.add_link(pair[1], pair[0], link.clone(), 0);
    }
    let end = Instant::ZERO + WARM_UP + Duration::from_secs(seconds);
    let config = Config::new(Settings { cache_bytes: case.cache_mib << 20, ..Profile::Starhop.settings() })?;
    let flow = |number: u64| FlowSpec {
        content: FlowId((u128::from(number) + 1).to_be_bytes()),
        from: nodes[0],
        to: nodes[HOPS],
        length: None,
        start: Instant::ZERO,
        stop: end,
        transport: Transport::Starhop(config.clone(), Protection::Sealed),
        splits: Vec::new(),
        exchange: None,
        crowd: Some(0),
        program: Some(0),
    };
    let flows = (0..case.flows).map(flow).collect();
    Ok(Plan {
        relays: nodes[1..HOPS].to_vec(),
        warm_up: Instant::ZERO + WARM_UP,
        ..Plan::new(network, flows, end)
    })
}

/// Nanoseconds for each packet on each link.
fn measure(case: Case, seconds: u64, alone: Option<f64>) -> Result<f64, ConfigError> {
    let mut simulation = Simulation::new(plan(case, seconds)?);
    let Case { flows, mbps, cache_mib } = case;
    let before = cpu_seconds();
    simulation.run(|_| ());
    let cpu = cpu_seconds() - before;
    let packets = simulation.world().counters().link_packets;
    let each = cpu * 1e9 / packets as f64;
    let recorder = simulation.recorder().borrow();
    let rates: Vec<f64> = (simulation.flows().iter())
        .map(|flow| recorder.flow(flow.record).measured_bytes as f64 * 8e-6 / seconds as f64)
        .collect();
    let sum: f64 = rates.iter().sum();
    let jain = sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>());
    let stats = (simulation.flows().iter())
        .map(|flow| simulation.world().flow_report(flow.client, flow.record as u32));
    let (timeouts, repairs) = stats.fold((0, 0), |sums, report| match report {
        HostReport::Consumer(stats) => (sums.0 + stats.timeouts, sums.1 + stats.repairs),
        _ => sums,
    });
    println!(
        "{flows:>6} flows  {mbps:>4} Mbit/s  {cache_mib:>2} MiB  {packets:>9} link-packets  {each:>6.0} ns each, {:>5.2} x that of one flow  {:>6.2} % of the path  \
         Jain {jain:.4}  {timeouts} timeouts  {repairs} repairs  {:>7.1} MB peak",
        each / alone.unwrap_or(each),
        100.0 * sum / (mbps as f64 * PAYLOAD),
        peak_rss_mb(),
    );
    Ok(each)
}

/// Processor time of this thread: on a busy machine wall time measures the others.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) * 1.024e-3
}

fn main() -> Result<(), ConfigError> {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let seconds = numbers.first().copied().unwrap_or(3);
    if let [_, flows, mbps, cache_mib] = numbers[..] {
        return measure(Case { flows, mbps, cache_mib }, seconds, None).map(drop);
    }
    let alone = measure(Case { flows: 1, mbps: 1000, cache_mib: 64 }, seconds, None)?;
    for cache_mib in [64, 4] {
        for (flows, mbps) in [(10, 1000), (100, 1000), (1_000, 1000), (10_000, 1000), (1_000, 100)] {
            measure(Case { flows, mbps, cache_mib }, seconds, Some(alone))?;
        }
    }
    Ok(())
}
