//! Rate-based connection splitting in the simulator: servers on TCP, a gateway, a satellite, clients.

use starhop_proto::name::FlowId;
use starhop_proto::split::{Buffer, SplitConfig, SplitSettings};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::engine::{Clock, HostReport, Network, NodeId};
use starhop_sim::host::Exchange;
use starhop_sim::host::tcp::congestion::Control;
use starhop_sim::host::tcp::{TcpConfig, TcpSettings};
use starhop_sim::link::{LinkConfig, LossModel, QueueLimit};
use starhop_sim::run::{FlowSpec, Plan, Simulation, SplitTransport, Transport};

const MSS: u64 = 512;

/// Flows from one server over a gateway and a satellite of 3 Mbit/s and 250 ms.
#[derive(Clone)]
struct Sky {
    flows: usize,
    length: Option<u64>,
    ber: f64,
    /// Rate, in kbit/s, of the link between a terminal and its client.
    behind: Option<u64>,
    exchange: Option<Exchange>,
    seconds: u64,
    /// Time at which the first flow stops.
    first_stop: Option<u64>,
    buffer: Buffer,
}

impl Default for Sky {
    fn default() -> Self {
        let buffer = Buffer::PeakRate(Rate::from_mbps(3));
        let (behind, exchange, first_stop) = (None, None, None);
        Self { flows: 1, length: None, ber: 0.0, behind, exchange, seconds: 60, first_stop, buffer }
    }
}

impl Sky {
    fn transport(&self) -> Transport {
        let rate = Rate::from_mbps(3);
        let settings =
            SplitSettings { buffer: self.buffer, receive_window: 2000, ..SplitSettings::new(rate) };
        let satellite = SplitConfig::new(settings).unwrap_or_else(|e| panic!("{e:?}"));
        let control = Control::named("newreno").unwrap_or_else(|| panic!("there is no newreno"));
        let settings = TcpSettings { mss: MSS as u32, ..TcpSettings::new(control) };
        let terrestrial = TcpConfig::new(settings).unwrap_or_else(|e| panic!("{e:?}"));
        Transport::Split(Box::new(SplitTransport { terrestrial, satellite }))
    }

    fn run(&self) -> Simulation {
        let mut network = Network::default();
        let nodes: Vec<NodeId> = (0..4).map(|_| network.add_node(Clock::default())).collect();
        let link = |kbit, millis| {
            let ideal = LinkConfig::ideal(Rate::from_bps(kbit * 1000), Duration::from_millis(millis));
            LinkConfig { queue: QueueLimit::Packets(1000), ..ideal }
        };
        let loss = if self.ber > 0.0 { LossModel::BitErrors(self.ber) } else { LossModel::None };
        let down = LinkConfig { loss, ..link(3000, 250) };
        let pairs = [(link(10_000, 20), link(10_000, 20)), (down, link(3000, 250))];
        // A queue of a second: at the end a longer one would hold back bytes that were sent long before.
        let last = LinkConfig { queue: QueueLimit::Packets(100), ..link(self.behind.unwrap_or(100_000), 1) };
        for (index, (down, up)) in pairs.into_iter().chain([(last.clone(), last)]).enumerate() {
            network.add_link(nodes[index], nodes[index + 1], down, 0);
            network.add_link(nodes[index + 1], nodes[index], up, 0);
        }
        network.route_by_delay(Instant::ZERO);
        let end = Instant::ZERO + Duration::from_secs(self.seconds);
        let (client, splits) = match self.behind {
            Some(_) => (nodes[3], vec![nodes[1], nodes[2]]),
            None => (nodes[2], vec![nodes[1]]),
        };
        let flow = |index: usize| FlowSpec {
            content: FlowId([index as u8; 16]),
            from: nodes[0],
            to: client,
            length: self.length,
            start: Instant::ZERO,
            stop: self
                .first_stop
                .filter(|_| index == 0)
                .map_or(end, |at| Instant::ZERO + Duration::from_secs(at)),
            transport: self.transport(),
            splits: splits.clone(),
            exchange: self.exchange,
            crowd: None,
            program: None,
        };
        let flows = (0..self.flows).map(flow).collect();
        let mut simulation = Simulation::new(Plan::new(network, flows, end));
        simulation.run(|_| ());
        assert_eq!(simulation.recorder().borrow().problems().len(), 0);
        simulation
    }
}

fn delivered(simulation: &Simulation, flow: usize) -> u64 {
    simulation.recorder().borrow().flow(flow).in_order_bytes
}

fn seconds_taken(simulation: &Simulation) -> f64 {
    let finished = simulation.recorder().borrow().flow(0).finished;
    finished.map_or(f64::INFINITY, |at| at.since(Instant::ZERO).as_secs_f64())
}

/// Payload that the satellite carries in a second where bits are lost by themselves.
fn bound(ber: f64) -> f64 {
    3e6 / 8.0 * 512.0 / 552.0 * (1.0 - ber).powi(552 * 8)
}

#[test]
fn the_satellite_is_filled_whatever_its_bit_errors() {
    for ber in [0.0, 1e-6, 1e-5, 1e-4] {
        // A hole holds back more than a window's worth of segments that came after it.
        let simulation =
            Sky { ber, flows: 4, buffer: Buffer::PeakRate(Rate::from_mbps(2)), ..Sky::default() }.run();
        let sum: u64 = (0..4).map(|flow| delivered(&simulation, flow)).sum();
        // Two seconds for handshakes, slow starts and the bytes under way at the end.
        let share = sum as f64 / (bound(ber) * 58.0);
        assert!(share > 0.97 && share < 1.03, "{ber}: {share}");
    }
}

#[test]
fn flows_share_the_satellite_and_what_one_leaves_goes_to_the_others() {
    let sky = Sky { flows: 3, ber: 1e-6, first_stop: Some(30), ..Sky::default() };
    let simulation = sky.run();
    let got: Vec<f64> = (0..3).map(|flow| delivered(&simulation, flow) as f64 / bound(1e-6)).collect();
    // A third for half a minute; then a half for another.
    assert!((got[0] - 10.0).abs() < 1.0, "{got:?}");
    assert!(got[1..].iter().all(|share| (share - 25.0).abs() < 1.2), "{got:?}");
}

#[test]
fn the_gateways_buffer_holds_the_server_back() {
    for bytes in [50_000, 300_000] {
        let sky = Sky { flows: 4, buffer: Buffer::Bytes(bytes), ..Sky::default() };
        let simulation = sky.run();
        for flow in simulation.flows() {
            let HostReport::Tcp(stats) = simulation.world().report(flow.senders[0]) else { panic!("no TCP") };
            let ahead = (stats.segments - stats.retransmitted) * MSS - delivered(&simulation, flow.record);
            assert!(ahead <= bytes, "{ahead} of {bytes}: {stats:?}");
            assert_eq!(stats.timeouts, 0);
        }
    }
}

#[test]
fn a_transfer_ends_and_counts_its_repairs() {
    let sky = Sky { length: Some(1_000_001), ber: 1e-5, ..Sky::default() };
    let simulation = sky.run();
    let least = 1e6 / bound(1e-5);
    let took = seconds_taken(&simulation);
    assert!(took > least && took < least + 3.0, "{took} for {least}");
    let flow = &simulation.flows()[0];
    let Some(gateway) = flow.gateway else { panic!("no gateway") };
    let HostReport::Tcp(stats) = simulation.world().flow_report(gateway, 0) else { panic!("no TCP") };
    // 4.3 % of 1954 segments; the end of a transfer may need the timer, which sends two copies.
    assert!((55..=125).contains(&stats.retransmitted), "{stats:?}");
    assert_eq!(simulation.world().trace_hash(), sky.run().world().trace_hash());
}

#[test]
fn a_client_behind_a_terminal_is_served_at_its_own_pace() {
    let fast = Sky { length: Some(1_000_000), ber: 1e-5, behind: Some(10_000), ..Sky::default() }.run();
    assert!(seconds_taken(&fast) < 1e6 / bound(1e-5) + 3.5, "{}", seconds_taken(&fast));
    let sky = Sky { ber: 1e-5, behind: Some(500), ..Sky::default() };
    let slow = sky.run();
    let share = delivered(&slow, 0) as f64 / (58.0 * 500_000.0 / 8.0 * 512.0 / 564.0);
    assert!(share > 0.97, "{share}");
    // Gateway and terminal buffer as much as they may, and the server waits.
    let HostReport::Tcp(stats) = slow.world().report(slow.flows()[0].senders[0]) else { panic!("no TCP") };
    let ahead = stats.segments * MSS - delivered(&slow, 0);
    assert!(ahead < 2000 * MSS + 250_000, "{ahead}");
}

#[test]
fn one_thing_after_another_over_one_connection_saves_the_handshakes() {
    let think = Duration::from_millis(100);
    let exchange = Exchange { requests: 5, request: 300, response: 20 * MSS, think };
    for behind in [None, Some(10_000)] {
        let sky = Sky { length: Some(100 * MSS), exchange: Some(exchange), behind, ..Sky::default() };
        let simulation = sky.run();
        let recorder = simulation.recorder().borrow();
        let took: Vec<f64> = recorder.flow(0).responses.iter().map(|took| took.as_secs_f64()).collect();
        assert_eq!(took.len(), 5, "{behind:?}");
        // A round trip of 540 ms, with slow start to the server and the transmission of 20 segments: 30 ms.
        assert!(took[1..].iter().all(|took| (0.54..0.70).contains(took)), "{behind:?} {took:?}");
        // The satellite's handshake, and the server's.
        assert!((took[0] - took[1] - 0.54).abs() < 0.12, "{behind:?} {took:?}");
    }
}
