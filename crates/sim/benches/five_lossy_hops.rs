//! Speed of the simulator on the chain of `scenarios/five-lossy-hops.toml`: `cargo bench -p starhop-sim`.
//!
//! The cases are the protocol without loss and with 1 % loss in both directions, TCP without loss and with 1 %, and
//! constant-rate packets that no relay touches. The last case is the cost of the engine itself.

use starhop_proto::config::{Config, Profile};
use starhop_proto::name::FlowId;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::engine::{Clock, Network, NodeId};
use starhop_sim::host::Protection;
use starhop_sim::host::tcp::congestion::Control;
use starhop_sim::host::tcp::{TcpConfig, TcpSettings};
use starhop_sim::link::{LinkConfig, LossModel, QueueLimit};
use starhop_sim::run::{FlowSpec, Plan, Simulation, Transport};

const HOPS: usize = 5;
const SECONDS: u64 = 60;

fn plan(transport: Transport, loss: f64) -> Plan {
    let mut network = Network::default();
    let nodes: Vec<NodeId> = (0..=HOPS).map(|_| network.add_node(Clock::default())).collect();
    let link = LinkConfig {
        queue: QueueLimit::Packets(1000),
        loss: if loss > 0.0 { LossModel::Bernoulli(loss) } else { LossModel::None },
        ..LinkConfig::ideal(Rate::from_mbps(20), Duration::from_millis(10))
    };
    for pair in nodes.windows(2) {
        network.add_link(pair[0], pair[1], link.clone(), 0);
        network.add_link(pair[1], pair[0], link.clone(), 0);
    }
    let end = Instant::ZERO + Duration::from_secs(SECONDS);
    let flow = FlowSpec {
        content: FlowId([1; 16]),
        from: nodes[0],
        to: nodes[HOPS],
        length: None,
        start: Instant::ZERO,
        stop: end,
        transport,
        splits: Vec::new(),
        exchange: None,
        crowd: None,
        program: None,
    };
    Plan {
        relays: nodes[1..HOPS].to_vec(),
        warm_up: Instant::ZERO + Duration::from_secs(5),
        ..Plan::new(network, vec![flow], end)
    }
}

/// The best of a few runs: other load on the machine only ever makes a run slower.
/// An argument leaves out the cases whose names do not contain it: `-- "starhop, no"`.
fn measure(name: &str, transport: &Transport, loss: f64) {
    if std::env::args().skip(1).any(|word| !word.starts_with('-') && !name.contains(&word)) {
        return;
    }
    let mut best = f64::INFINITY;
    let mut counters = Default::default();
    for _ in 0..5 {
        let mut simulation = Simulation::new(plan(transport.clone(), loss));
        let before = cpu_seconds();
        simulation.run(|_| ());
        best = best.min(cpu_seconds() - before);
        counters = simulation.world().counters();
    }
    let packets = counters.link_packets;
    println!(
        "{name:<22} {:>9} events  {packets:>8} link-packets  {best:>6.3} s CPU  {:>5.0} x real time  {:>6.2} million link-packets/s  {:>5.0} ns each  {:>6.1} MB peak",
        counters.events,
        SECONDS as f64 / best,
        packets as f64 / best / 1e6,
        best * 1e9 / packets as f64,
        peak_rss_mb(),
    );
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

fn main() {
    let sealed = |config| Transport::Starhop(config, Protection::Sealed);
    let starhop = Config::new(Profile::Starhop.settings()).map(sealed);
    // As many packets per second as fill 20 Mbit/s.
    measure("engine alone (cbr)", &Transport::Cbr { rate: Rate::from_bps(19_500_000), payload: 1378 }, 0.01);
    if let Ok(starhop) = starhop {
        measure("starhop, no loss", &starhop, 0.0);
        measure("starhop, 1 % both ways", &starhop, 0.01);
    }
    for (name, control, loss) in
        [("cubic, no loss", "cubic", 0.0), ("bbr, no loss", "bbr", 0.0), ("bbr, 1 % both ways", "bbr", 0.01)]
    {
        let config =
            Control::named(control).and_then(|control| TcpConfig::new(TcpSettings::new(control)).ok());
        if let Some(config) = config {
            measure(name, &Transport::Tcp(config), loss);
        }
    }
}
