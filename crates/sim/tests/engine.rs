//! The engine by itself, driven by constant-rate probes.

use starhop_proto::name::FlowId;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::engine::{Clock, LinkId, Network, NodeId};
use starhop_sim::link::{Disorder, LinkConfig, LossModel, QueueLimit};
use starhop_sim::run::{Action, FlowSpec, Plan, Simulation, Transport};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn connect(network: &mut Network, a: NodeId, b: NodeId, config: &LinkConfig) -> (LinkId, LinkId) {
    (network.add_link(a, b, config.clone(), 0), network.add_link(b, a, config.clone(), 0))
}

/// Nodes in a row, 20 Mbit/s and 10 ms apart.
fn chain(nodes: usize, config: &LinkConfig) -> (Network, Vec<NodeId>) {
    let mut network = Network::default();
    let ids: Vec<NodeId> = (0..nodes).map(|_| network.add_node(Clock::default())).collect();
    for pair in ids.windows(2) {
        connect(&mut network, pair[0], pair[1], config);
    }
    (network, ids)
}

fn base() -> LinkConfig {
    LinkConfig::ideal(Rate::from_mbps(20), ms(10))
}

/// A probe of 1222 + 28 = 1250 bytes per packet, 1000 packets a second for one second.
fn probe(from: NodeId, to: NodeId) -> FlowSpec {
    FlowSpec {
        content: FlowId([1; 16]),
        from,
        to,
        length: Some(1_222_000),
        start: Instant::ZERO,
        stop: at(10_000),
        transport: Transport::Cbr { rate: Rate::from_bps(9_776_000), payload: 1222 },
        splits: Vec::new(),
        exchange: None,
        crowd: None,
        program: None,
    }
}

fn plan(network: Network, flows: Vec<FlowSpec>) -> Plan {
    Plan::new(network, flows, at(10_000))
}

fn run(plan: Plan) -> Simulation {
    let mut simulation = Simulation::new(plan);
    simulation.run(|_| ());
    simulation
}

#[test]
fn a_packet_takes_every_hop_and_its_delays_add_up() {
    let (network, nodes) = chain(4, &base());
    let simulation = run(plan(network, vec![probe(nodes[0], nodes[3])]));
    let recorder = simulation.recorder().borrow();
    let flow = recorder.flow(0);
    assert_eq!(flow.in_order_bytes, 1_222_000);
    // Three times 10 ms, and 0.5 ms for 1250 bytes at 20 Mbit/s.
    assert_eq!((flow.delays().owd.mean(), flow.delays().owd.max()), (31.5e6, 31_500_000));
    assert_eq!(flow.delays().queueing.max(), 0);
    assert_eq!(simulation.world().counters().link_packets, 3000);
}

#[test]
fn an_overloaded_link_fills_its_queue_and_drops_the_excess() {
    // 10 Mbit/s of packets into 5 Mbit/s: a queue of 100 packets is 200 ms, half of the packets are dropped.
    let slow =
        LinkConfig { queue: QueueLimit::Packets(100), ..LinkConfig::ideal(Rate::from_mbps(5), ms(10)) };
    let (network, nodes) = chain(2, &slow);
    let simulation = run(plan(network, vec![probe(nodes[0], nodes[1])]));
    let link = simulation.link_results()[0];
    assert_eq!(link.counters.packets + link.counters.dropped, 1000);
    // 1000 packets in a second, 500 sent in it, 100 in the queue at its end.
    assert_eq!(link.counters.packets, 600);
    assert!((200..=202).contains(&(link.counters.longest_wait_ns / 1_000_000)), "{link:?}");
}

#[test]
fn the_same_seed_gives_the_same_hash_and_another_seed_another() {
    let lossy = LinkConfig { loss: LossModel::Bernoulli(0.05), ..base() };
    let hash = |seed| {
        let (network, nodes) = chain(3, &lossy);
        let plan = Plan { seed, ..plan(network, vec![probe(nodes[0], nodes[2])]) };
        run(plan).world().trace_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
    // The same in debug and in release, and on every machine.
    assert_eq!(hash(1), RECORDED_HASH);
}

const RECORDED_HASH: u64 = 11_866_049_319_987_981_919;

/// Two ways from the server to the client: 10 ms over `a`, 30 ms over `b`.
fn two_ways() -> (Network, [NodeId; 2], [LinkId; 4]) {
    let mut network = Network::default();
    let [server, a, b, client] = [(); 4].map(|()| network.add_node(Clock::default()));
    let (short, long) =
        (LinkConfig::ideal(Rate::from_mbps(20), ms(5)), LinkConfig::ideal(Rate::from_mbps(20), ms(15)));
    let (to_a, from_a) = connect(&mut network, server, a, &short);
    let (a_out, a_in) = connect(&mut network, a, client, &short);
    connect(&mut network, server, b, &long);
    connect(&mut network, b, client, &long);
    (network, [server, client], [to_a, from_a, a_out, a_in])
}

fn switched(keep: bool) -> Simulation {
    let (network, [server, client], links) = two_ways();
    let states = links.map(|link| (link, false)).to_vec();
    let actions = vec![(at(500), Action::Links { states, keep })];
    run(Plan { actions, ..plan(network, vec![probe(server, client)]) })
}

#[test]
fn a_path_switch_takes_packets_another_way() {
    let simulation = switched(true);
    let recorder = simulation.recorder().borrow();
    let flow = recorder.flow(0);
    // Packets between the two links of the old path find the second one gone: those that had 5 ms to go
    // to `a` when it happened. The rest arrives, half of it over each path.
    assert_eq!((1_222_000 - flow.in_order_bytes) / 1222, 5);
    assert!((flow.delays().owd.quantile(0.25) - 11e6).abs() < 5e4);
    assert_eq!(flow.delays().owd.max(), 31_000_000);
    assert_eq!(flow.delays().queueing.max(), 0);
}

#[test]
fn a_path_switch_can_lose_what_is_under_way() {
    let simulation = switched(false);
    // Ten milliseconds of propagation and one of transmission, one packet each.
    let recorder = simulation.recorder().borrow();
    let lost = (1_222_000 - recorder.flow(0).in_order_bytes) / 1222;
    assert!((10..=12).contains(&lost), "{lost}");
}

#[test]
fn a_node_that_is_off_loses_packets_until_it_is_on_again() {
    let (network, nodes) = chain(3, &base());
    let actions = vec![(at(200), Action::NodeDown(nodes[1])), (at(400), Action::NodeUp(nodes[1]))];
    let simulation = run(Plan { actions, ..plan(network, vec![probe(nodes[0], nodes[2])]) });
    let lost = 1000 - simulation.recorder().borrow().flow(0).in_order_bytes / 1222;
    assert!((200..=212).contains(&lost), "{lost}");
}

#[test]
fn clocks_apart_do_not_change_what_is_measured() {
    let mut network = Network::default();
    let nodes = [(-1_800_000_000_000, 500_000), (90_000_000_000_000, -80_000)]
        .map(|(ahead, gains_ppb)| network.add_node(Clock { ahead, gains_ppb }));
    connect(&mut network, nodes[0], nodes[1], &base());
    let simulation = run(plan(network, vec![probe(nodes[0], nodes[1])]));
    assert_eq!(simulation.recorder().borrow().flow(0).delays().owd.max(), 10_500_000);
}

#[test]
fn disorder_reorders_doubles_and_damages_in_the_given_shares() {
    let disorder = Disorder { reorder: 0.1, reorder_by: ms(20), duplicate: 0.2, corrupt: 0.3 };
    let (network, nodes) = chain(2, &LinkConfig { disorder, ..base() });
    let flow = FlowSpec { length: Some(1_222_000 * 5), ..probe(nodes[0], nodes[1]) };
    let simulation = run(plan(network, vec![flow]));
    let counters = simulation.world().counters();
    // 5000 packets, a fifth of them twice, three tenths of all copies damaged.
    assert!((5_900..6_100).contains(&counters.events.saturating_sub(5_000)), "{counters:?}");
    assert!((1_700..1_900).contains(&counters.bad_checksums), "{counters:?}");
    assert_eq!(simulation.recorder().borrow().flow(0).delays().owd.max(), 30_500_000);
}
