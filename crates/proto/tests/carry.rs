//! Users' packets between two gateways, in virtual time, over links that lose, delay and overtake.

#[path = "support/line.rs"]
mod line;
#[path = "support/pair.rs"]
mod pair;

use line::Line;
use pair::{Pair, START, ms};
use starhop_proto::config::{Config, Controller, Profile, Settings};
use starhop_proto::gateway::{
    CarrySettings, CarryStats, FlowKey, Gateway, GatewayEvent, GatewaySettings, NotCarried, Opening, PeerSpec,
};
use starhop_proto::node::Node;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_proto::wire::Plain;
use std::net::SocketAddr;

/// A gateway of side `side` that carries packets as `carry` says.
fn gateway_with(now: Instant, side: u8, carry: CarrySettings, config: &Config) -> Gateway<Pair> {
    let peer = PeerSpec {
        address: Some(SocketAddr::from(([10, 0, 0, 1 - side], 4433))),
        bond: Pair { side },
        by_rate: None,
    };
    let settings = GatewaySettings { carry: Some(carry), ..GatewaySettings::default() };
    let seed = 1 + u64::from(side);
    Gateway::new(now, config.clone(), settings, vec![peer], Plain::new(seed), seed)
}

/// A gateway of side `side` that carries packets if `carries`.
fn gateway(now: Instant, side: u8, seed: u64, carries: bool) -> Gateway<Pair> {
    let peer = PeerSpec {
        address: Some(SocketAddr::from(([10, 0, 0, 1 - side], 4433))),
        bond: Pair { side },
        by_rate: None,
    };
    let carry = carries.then(CarrySettings::default);
    let settings = GatewaySettings { carry, ..GatewaySettings::default() };
    Gateway::new(now, Config::default(), settings, vec![peer], Plain::new(seed), seed)
}

/// An IPv4 packet of UDP from `port`, `len` bytes long, with a number.
fn packet(port: u16, number: u32, len: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0xb8];
    packet.extend_from_slice(&(len as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend_from_slice(&port.to_be_bytes());
    packet.extend_from_slice(&[0, 9, 0, 0, 0, 0]);
    packet.extend_from_slice(&number.to_be_bytes());
    packet.resize(len, number as u8);
    packet
}

fn number(packet: &[u8]) -> u32 {
    packet[28..32].try_into().map(u32::from_be_bytes).expect("32 bytes")
}

struct World {
    now: Instant,
    gateways: [Gateway<Pair>; 2],
    /// The present place of each gateway, in the last byte of its address.
    ports: [u16; 2],
    line: Line,
    /// Bytes of connections that were read.
    read: usize,
    /// The packets that were delivered at each side, with their times.
    delivered: [Vec<(Instant, Vec<u8>)>; 2],
}

impl World {
    fn new(delay: Duration, rate: Rate, loss: f64, seed: u64) -> Self {
        let gateways = [gateway(START, 0, seed, true), gateway(START, 1, seed + 1, true)];
        let mut world = Self::of(gateways, (delay, rate, loss), seed);
        world.run(ms(10_000), |world| (0..2).all(|side| world.gateways[side].carries(world.now, 0)));
        // The sender knows the path's rate by now.
        world.run(ms(2_000), |_| false);
        world
    }

    fn of(gateways: [Gateway<Pair>; 2], link: (Duration, Rate, f64), seed: u64) -> Self {
        Self {
            now: START,
            gateways,
            ports: [4433; 2],
            line: Line::new(link, seed),
            read: 0,
            delivered: [Vec::new(), Vec::new()],
        }
    }

    fn leo(loss: f64, seed: u64) -> Self {
        Self::new(ms(25), Rate::from_mbps(20), loss, seed)
    }

    fn settle(&mut self, side: usize) {
        while let Some(event) = self.gateways[side].poll_event() {
            if let GatewayEvent::Readable { stream } = event {
                let (front, back) = self.gateways[side].readable(stream);
                let len = front.len() + back.len();
                self.gateways[side].consume(self.now, stream, len);
                self.read += len;
            }
        }
        while let Some((_, packet)) = self.gateways[side].poll_packet() {
            self.delivered[side].push((self.now, packet.bytes));
        }
        loop {
            let mut out = Vec::new();
            if self.gateways[side].poll_transmit(self.now, &mut out).is_none() {
                return;
            }
            self.line.send(self.now, side, out, true);
        }
    }

    fn address(&self, side: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, side as u8], self.ports[side]))
    }

    fn run(&mut self, span: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + span;
        self.settle(0);
        self.settle(1);
        while !done(self) {
            let Some(next) = self.line.next(&self.gateways, self.now, end) else {
                self.now = end;
                return;
            };
            self.now = next;
            while let Some((to, mut datagram)) = self.line.take(next) {
                let from = self.address(1 - to);
                self.gateways[to].handle_datagram(next, from.into(), &mut datagram);
            }
            for side in 0..2 {
                self.gateways[side].handle_timeout(next);
                self.settle(side);
            }
        }
    }

    fn send(&mut self, side: usize, packet: &[u8], is_ordered: bool) -> Result<(), NotCarried> {
        let key = FlowKey::of(packet).expect("a packet");
        self.gateways[side].carry(self.now, 0, (key, is_ordered), packet)
    }

    /// Sends `count` packets of `len` bytes, one every `every`, numbered from `first`; returns when each was sent.
    fn stream(
        &mut self,
        (first, count): (u32, u32),
        len: usize,
        every: Duration,
        is_ordered: bool,
    ) -> Vec<Instant> {
        (first..first + count)
            .map(|n| {
                self.send(0, &packet(7, n, len), is_ordered).expect("it is carried");
                let sent = self.now;
                self.run(every, |_| false);
                sent
            })
            .collect()
    }

    fn stats(&self, side: usize) -> CarryStats {
        self.gateways[side].peer_views(self.now).next().expect("a peer").carried
    }

    fn numbers(&self) -> Vec<u32> {
        self.delivered[1].iter().map(|(_, packet)| number(packet)).collect()
    }

    /// The delays of the delivered packets among those that were sent at `sent`, ascending.
    fn delays(&self, sent: &[Instant]) -> Vec<Duration> {
        let delay = |(at, packet): &(Instant, Vec<u8>)| at.since(sent[number(packet) as usize]);
        let mut delays: Vec<Duration> = self.delivered[1].iter().map(delay).collect();
        delays.sort_unstable();
        delays
    }
}

#[test]
fn the_first_packet_of_a_flow_waits_for_nothing_and_arrives_as_it_was() {
    for len in [32, 900, 1_500, 9_000] {
        let mut world = World::leo(0.0, 1);
        let sent = packet(9, 5, len);
        world.send(0, &sent, false).expect("it is carried");
        let start = world.now;
        world.run(ms(200), |world| !world.delivered[1].is_empty());
        let (at, came) = world.delivered[1].pop().expect("it came");
        assert!(came == sent, "{len} bytes");
        // One way, and the packet's time on the link at 20 Mbit/s with its headers.
        let least = ms(25) + Rate::from_mbps(20).time_for(len as u64);
        assert!(at.since(start) < least + ms(2), "{len} bytes took {:?}", at.since(start));
    }
}

#[test]
fn both_directions_carry_without_a_loss_and_count_the_same() {
    let mut world = World::leo(0.0, 2);
    for n in 0..500 {
        world.send(0, &packet(1, n, 700), false).expect("it is carried");
        world.send(1, &packet(2, n, 100), true).expect("it is carried");
        world.run(ms(2), |_| false);
    }
    world.run(ms(500), |_| false);
    assert!(world.numbers() == (0..500).collect::<Vec<u32>>());
    assert_eq!(world.delivered[0].len(), 500);
    let (here, there) = (world.stats(0), world.stats(1));
    assert_eq!((here.sent_packets, there.delivered_packets), (500, 500));
    assert_eq!((here.sent_bytes, there.delivered_bytes), (350_000, 350_000));
    assert_eq!((there.given_up_bytes, there.late_packets, here.overdue_packets), (0, 0, 0));
}

/// Half the link's rate, at 1 % loss each way: the plain path would deliver 99 %.
#[test]
fn at_one_percent_loss_nearly_everything_arrives_within_the_deadline() {
    for (delay, seed) in [(25, 3), (25, 4), (270, 5), (270, 6)] {
        let mut world = World::new(ms(delay), Rate::from_mbps(20), 0.01, seed);
        let sent = world.stream((0, 20_000), 1_000, Duration::from_micros(800), false);
        world.run(ms(3_000), |_| false);
        let delays = world.delays(&sent);
        let share = delays.len() as f64 / sent.len() as f64;
        // One way, the deadline of 1.5 round trips, and the queue of a link.
        let limit = ms(delay) + ms(3 * delay) + ms(20);
        assert!(share >= 0.999, "{share} of the packets at {delay} ms, {:?}", world.stats(1));
        assert!(delays.last().is_some_and(|last| *last <= limit), "{:?}", delays.last());
        let p99 = delays[delays.len() * 99 / 100];
        println!("{delay} ms: {share:.5}, p99 {p99:?}, last {:?}, {:?}", delays.last(), world.stats(1));
    }
}

#[test]
fn an_ordered_flow_is_delivered_in_order_and_without_holes_where_repairs_come() {
    let delivered = (1..13).map(|seed| {
        let mut world = World::leo(0.01, seed);
        world.line.jitter = ms(3);
        world.stream((0, 5_000), 1_400, ms(2), true);
        world.run(ms(1_000), |_| false);
        let numbers = world.numbers();
        assert!(numbers.is_sorted());
        numbers.len()
    });
    // One seed's 5,000 packets say little of a share of 0.1 %: the twelve have between none and 24 holes.
    let delivered: usize = delivered.sum();
    assert!(delivered >= 12 * 4_995, "{delivered} of 60000");
}

/// If every eighth packet is lost, repairs are lost, too, and requests two at a time: bytes that are given up are not asked for
/// again, and the rest goes on.
#[test]
fn what_is_given_up_holds_nothing_up() {
    let delivered = (1..13).map(|seed| {
        let mut world = World::leo(0.0, seed);
        world.line.loss = 0.12;
        let sent = world.stream((0, 3_000), 500, ms(1), false);
        world.run(ms(1_000), |_| false);
        let stats = world.stats(1);
        assert!(stats.given_up_bytes > 0, "{stats:?}");
        let delays = world.delays(&sent);
        assert!(delays.len() > 2_500, "seed {seed}: {} of 3000", delays.len());
        // Queued at most 75 ms, and waited for 75 ms; where a hop takes the losses for a full queue, some wait longer.
        let (p99, last) = (delays[delays.len() * 99 / 100], delays[delays.len() - 1]);
        assert!(p99 < ms(25 + 75 + 75 + 30) && last < ms(350), "seed {seed}: p99 {p99:?}, last {last:?}");
        world.line.loss = 0.0;
        world.run(ms(2_000), |_| false);
        let before = world.delivered[1].len();
        world.stream((0, 100), 500, ms(1), false);
        world.run(ms(200), |_| false);
        assert_eq!(world.delivered[1].len(), before + 100);
        delays.len()
    });
    let delivered: usize = delivered.sum();
    assert!(delivered >= 12 * 2_850, "{delivered} of 36000");
}

#[test]
fn a_flood_waits_no_longer_than_the_deadline() {
    let known = Controller::Fixed(Rate::from_mbps(19));
    let settings = Settings { controller: known, ..Profile::Starhop.settings() };
    let config = Config::new(settings).expect("a configuration");
    let carry = CarrySettings { deadline: Some(ms(75)), ..CarrySettings::default() };
    let gateways = [0, 1].map(|side| gateway_with(START, side, carry, &config));
    let mut world = World::of(gateways, (ms(25), Rate::from_mbps(20), 0.0), 9);
    world.run(ms(3_000), |_| false);
    let sent = world.stream((0, 10_000), 1_250, Duration::from_micros(250), false);
    world.run(ms(1_000), |_| false);
    let (delays, overdue) = (world.delays(&sent), world.stats(0).overdue_packets);
    assert_eq!(delays.len() as u64 + overdue, 10_000);
    let (last, share) = (*delays.last().expect("some came"), delays.len() as f64 / 10_000.0);
    // One way, the deadline, two packets ahead and the beats between.
    assert!(last < ms(25 + 75 + 3), "{last:?}");
    assert!((0.40..0.47).contains(&share), "{share} of what is sent fits");
}

#[test]
fn packets_flow_again_after_an_outage_without_old_ones() {
    for outage in [300, 1_500, 20_000] {
        let mut world = World::leo(0.0, 10);
        world.stream((0, 200), 1_000, ms(1), false);
        world.line.is_cut = true;
        let mut refused = 0;
        for n in 0..outage {
            refused += u64::from(world.send(0, &packet(7, 1_000_000 + n, 1_000), false).is_err());
            world.run(ms(1), |_| false);
        }
        world.line.is_cut = false;
        if outage > 3_000 {
            assert!(refused > 0, "the plain path was to be taken");
        }
        world.run(ms(5_000), |world| world.gateways[0].carries(world.now, 0));
        world.run(ms(3_000), |_| false);
        world.delivered[1].clear();
        let sent = world.stream((0, 1_000), 1_000, ms(1), false);
        world.run(ms(500), |_| false);
        let delays = world.delays(&sent);
        assert_eq!(delays.len(), 1_000, "after {outage} ms");
        assert!(delays[999] < ms(40), "after {outage} ms: {:?}", delays[999]);
    }
}

#[test]
fn an_idle_hour_loses_nothing() {
    let mut world = World::leo(0.0, 11);
    world.stream((0, 10), 1_000, ms(1), true);
    world.run(ms(3_600_000), |_| false);
    world.stream((10, 10), 1_000, ms(1), true);
    world.run(ms(500), |_| false);
    assert_eq!(world.numbers(), (0..20).collect::<Vec<u32>>());
}

#[test]
fn a_restart_of_either_end_and_a_while_at_another_address_are_survived() {
    for side in 0..2 {
        let mut world = World::leo(0.001, 12);
        world.stream((0, 100), 1_000, ms(1), false);
        world.gateways[side] = gateway(world.now, side as u8, 99, true);
        world.run(ms(2_000), |_| false);
        world.delivered[1].clear();
        world.stream((0, 500), 1_000, ms(1), false);
        world.run(ms(500), |_| false);
        assert!(world.delivered[1].len() >= 499, "after a restart of {side}");
    }
    let mut world = World::leo(0.0, 13);
    world.stream((0, 100), 1_000, ms(1), false);
    // Peers have fixed addresses: from another one, its packets are a stranger's.
    world.ports[1] = 5_000;
    world.run(ms(3_000), |_| false);
    assert_eq!(world.send(0, &packet(7, 0, 100), false), Err(NotCarried::PeerDown));
    world.ports[1] = 4_433;
    world.run(ms(3_000), |_| false);
    world.delivered[1].clear();
    world.stream((0, 500), 1_000, ms(1), false);
    world.run(ms(500), |_| false);
    assert_eq!(world.delivered[1].len(), 500, "back at its address");
}

#[test]
fn a_peer_that_takes_no_packets_is_sent_none_and_its_streams_work() {
    let gateways = [gateway(START, 0, 1, true), gateway(START, 1, 2, false)];
    let mut world = World::of(gateways, (ms(25), Rate::from_mbps(20), 0.0), 14);
    world.run(ms(3_000), |_| false);
    assert!(world.gateways[0].is_up(world.now, 0));
    assert_eq!(world.send(0, &packet(1, 1, 100), false), Err(NotCarried::PeerDown));
    assert_eq!(world.gateways[1].stats().bad_records, 0);
}

#[test]
fn beyond_the_limit_of_flows_packets_are_refused_and_the_others_go_on() {
    let carry = CarrySettings { max_flows: 4, ..CarrySettings::default() };
    let gateways = [0, 1].map(|side| gateway_with(START, side, carry, &Config::default()));
    let mut world = World::of(gateways, (ms(25), Rate::from_mbps(20), 0.0), 15);
    world.run(ms(3_000), |_| false);
    let taken = (0..10).filter(|port| world.send(0, &packet(*port, 0, 100), false).is_ok()).count();
    assert_eq!((taken, world.stats(0).refused_packets), (4, 6));
    world.run(ms(100), |_| false);
    assert_eq!(world.delivered[1].len(), 4);
}

/// Another process goes on at either side: what is on its way is repaired, and nothing comes twice.
#[test]
fn a_process_that_takes_over_carries_on_with_flows_and_their_order() {
    for (delay, side, is_ordered) in
        [(25, 0, true), (25, 1, true), (25, 1, false), (270, 0, false), (270, 1, true)]
    {
        let mut world = World::new(ms(delay), Rate::from_mbps(20), 0.0, 3);
        world.stream((0, 500), 700, ms(2), is_ordered);
        let state = world.gateways[side].hand_over();
        let mut next = gateway(world.now, side as u8, 99, true);
        next.take_over(world.now, &state).expect("the same version");
        world.gateways[side] = next;
        for n in 500..2_500 {
            world.send(0, &packet(7, n, 700), is_ordered).expect("it is carried");
            world.run(ms(2), |_| false);
        }
        world.run(ms(2_000), |_| false);
        let mut numbers = world.numbers();
        assert!(!is_ordered || numbers.is_sorted(), "{delay} ms, side {side}");
        numbers.sort_unstable();
        let came = numbers.len();
        numbers.dedup();
        assert_eq!(came, numbers.len(), "nothing comes twice");
        assert_eq!(came, 2_500, "{delay} ms, side {side}");
        assert_eq!([0, 1].map(|side| world.gateways[side].stats().bad_records), [0, 0]);
    }
}

/// Users send more packets than the link carries, of weight `weight`, beside connections that want all of it as well: the
/// bytes of packets for each byte of connections, in three seconds.
fn packets_beside(connections: u16, weight: u8) -> f64 {
    let mut world = World::new(ms(25), Rate::from_mbps(20), 0.0, 1);
    let data = vec![7; 1 << 20];
    let open = |world: &mut World, port| {
        let [from, to] = [50_000, port].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        world.gateways[0].open(world.now, 0, Opening { from, to, dscp: 0 }).expect("the peer answers")
    };
    let streams: Vec<_> = (0..connections).map(|port| open(&mut world, port)).collect();
    let mut before = (0, 0);
    for turn in 0..4_000 {
        streams.iter().for_each(|stream| _ = world.gateways[0].write(*stream, &data));
        // 24 Mbit/s.
        for n in 0..2 {
            let bytes = packet(7, 2 * turn + n, 1_500);
            world.send(0, &bytes, false).expect("it is carried");
            world.gateways[0].set_packets_weight(0, &FlowKey::of(&bytes).expect("a packet"), weight);
        }
        world.run(ms(1), |_| false);
        if turn == 1_000 {
            before = (world.read, world.delivered[1].len());
        }
    }
    (world.delivered[1].len() - before.1) as f64 * 1_500.0 / (world.read - before.0) as f64
}

/// For the hop they are two flows, and would have half of it each.
#[test]
fn packets_and_connections_share_by_the_sums_of_their_weights() {
    for (connections, weight, share) in [(1, 1, 1.0), (3, 1, 1.0 / 3.0), (2, 4, 2.0), (16, 1, 1.0 / 8.0)] {
        let measured = packets_beside(connections, weight);
        println!("{connections} connections, packets of weight {weight}: {measured:.2} of {share:.2}");
        assert!((0.8 * share..1.25 * share).contains(&measured), "{connections}, {weight}: {measured}");
    }
}
