//! Two gateways between which connections travel by the rate-based protocol of connection splitting, in virtual time.

#[path = "support/line.rs"]
mod line;
#[path = "support/pair.rs"]
mod pair;
#[path = "support/world.rs"]
mod world;

use pair::{Pair, START, ms};
use starhop_proto::config::{Config, Controller, Profile, Settings};
use starhop_proto::gateway::{
    CarrySettings, FlowKey, Gateway, GatewayEvent, GatewaySettings, NoStream, PeerSpec, Reason, StreamId,
};
use starhop_proto::split::{SplitConfig, SplitSettings};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_proto::wire::Plain;
use world::{World, addr, content, mirrored, target};

const RATE: Rate = Rate::from_mbps(20);
const ONE_WAY: Duration = Duration::from_millis(270);

fn config() -> Config {
    let settings = Profile::Starhop.settings();
    Config::new(Settings { controller: Controller::Fixed(RATE), max_rate: RATE, ..settings })
        .expect("possible")
}

fn by_rate() -> SplitConfig {
    let settings = SplitSettings { mss: 1_300, ack_delay: ms(40), ..SplitSettings::new(RATE) };
    SplitConfig::new(settings).expect("possible")
}

fn gateway_of(
    now: Instant,
    side: u8,
    (rate, carries): (Option<SplitConfig>, bool),
    seed: u64,
) -> Gateway<Pair> {
    let peer = PeerSpec { address: Some(addr(usize::from(1 - side))), bond: Pair { side }, by_rate: rate };
    let carry = carries.then(CarrySettings::default);
    let settings = GatewaySettings { carry, ..GatewaySettings::default() };
    Gateway::new(now, config(), settings, vec![peer], Plain::new(seed), seed)
}

fn gateway(side: u8) -> Gateway<Pair> {
    gateway_of(START, side, (Some(by_rate()), false), 1 + u64::from(side))
}

fn is_up(world: &World) -> bool {
    (0..2).all(|side| world.gateways[side].is_up(world.now, 0))
}

/// A link of 20 Mbit/s over a geostationary satellite, and both gateways ready.
fn world(loss: f64) -> World {
    let mut world = World::of([gateway(0), gateway(1)], (ONE_WAY, RATE, loss));
    world.run(ms(20_000), |world| is_up(world));
    assert!(is_up(&world));
    world
}

/// A stream that the far end knows, too.
fn open(world: &mut World) -> StreamId {
    let stream = world.open(80);
    world.gateways[0].set_user_rtt(stream, ms(20));
    world.run(ms(10_000), |world| world.gateways[1].is_open(mirrored(stream)));
    world.gateways[1].set_user_rtt(mirrored(stream), ms(20));
    stream
}

/// Gives all of `bytes` from a side, and the end.
fn send(world: &mut World, side: usize, stream: StreamId, bytes: &[u8]) {
    world.write(side, stream, bytes, true);
}

#[test]
fn bytes_arrive_whole_both_ways_whatever_is_lost() {
    for loss in [0.0, 0.01, 0.1] {
        let mut world = world(loss);
        let stream = open(&mut world);
        let (up, down) = (content(1_000_000, 1), content(3_000_000, 2));
        send(&mut world, 0, stream, &up);
        send(&mut world, 1, mirrored(stream), &down);
        let done = |world: &World| world.is_read(1, mirrored(stream), &up) && world.is_read(0, stream, &down);
        world.run(ms(60_000), |world| done(world));
        assert!(done(&world), "loss {loss}");
        // Acknowledgements of the end may have been lost.
        world.run(ms(20_000), |world| world.gateways.iter().all(|gateway| gateway.stats().streams == 0));
        let left = world.gateways.each_ref().map(|gateway| gateway.stats().streams);
        assert_eq!((left, world.resets(0), world.resets(1)), ([0, 0], vec![], vec![]), "loss {loss}");
    }
}

#[test]
fn the_link_is_full_from_the_first_round_trip_on_and_its_rate_is_kept() {
    let mut took = Vec::new();
    for loss in [0.0, 0.01] {
        let mut world = world(loss);
        let (stream, bytes) = (open(&mut world), content(20_000_000, 1));
        let (start, busy) = (world.now, world.line.busy[1]);
        send(&mut world, 1, mirrored(stream), &bytes);
        world.run(ms(60_000), |world| world.is_read(0, stream, &bytes));
        assert!(world.is_read(0, stream, &bytes));
        took.push(world.now.since(start).as_millis_f64());
        // Time on the wire never waits: more than the rate was never sent. Signs of life take turns with segments.
        let ahead = world.line.busy[1].since(busy.max(start)).saturating_sub(world.now.since(start));
        assert!(ahead < ms(5), "{ahead:?} of the link's time waits");
    }
    println!("20 MB took {took:?} ms without loss and at 1 %");
    // 8.0 s of payload; 1,294 of 1,404 bytes on the wire are payload: 8.7 s. And 0.27 s of propagation.
    assert!(took[0] < 9_150.0, "{took:?}");
    // Repairs of repairs at the end cost a round trip and a timer.
    assert!(took[1] < 10_600.0, "{took:?}");
}

#[test]
fn either_side_may_end_its_direction_first() {
    for first in [0, 1] {
        let mut world = world(0.02);
        let stream = open(&mut world);
        let id = |side: usize| if side == 0 { stream } else { mirrored(stream) };
        let (early, late) = (content(40_000, 1), content(90_000, 2));
        send(&mut world, first, id(first), &early);
        world.run(ms(10_000), |world| world.is_read(1 - first, id(1 - first), &early));
        assert!(world.is_read(1 - first, id(1 - first), &early), "first {first}");
        assert!(world.gateways[first].is_open(stream) || world.gateways[first].is_open(mirrored(stream)));
        send(&mut world, 1 - first, id(1 - first), &late);
        world.run(ms(10_000), |world| world.is_read(first, id(first), &late));
        assert!(world.is_read(first, id(first), &late), "first {first}");
    }
}

#[test]
fn an_end_without_bytes_arrives() {
    let mut world = world(0.1);
    let stream = open(&mut world);
    send(&mut world, 0, stream, b"");
    send(&mut world, 1, mirrored(stream), b"");
    world.run(ms(20_000), |world| world.is_read(0, stream, b"") && world.is_read(1, mirrored(stream), b""));
    assert!(world.is_read(0, stream, b"") && world.is_read(1, mirrored(stream), b""));
}

#[test]
fn a_reset_ends_a_stream_at_both_ends_and_is_no_clean_end() {
    let mut world = world(0.02);
    let (stream, bytes) = (open(&mut world), content(2_000_000, 1));
    let mut written = 0;
    for _ in 0..20 {
        written += world.gateways[1].write(mirrored(stream), &bytes[written..]);
        world.run(ms(50), |_| false);
    }
    world.gateways[1].reset(mirrored(stream), Reason::Reset);
    world.run(ms(3_000), |_| false);
    assert_eq!(world.resets(0), [Reason::Reset]);
    let (read, is_end) = &world.read[0][&stream];
    assert!(!is_end && bytes.starts_with(read), "{} bytes", read.len());
    assert_eq!(world.gateways.each_ref().map(|gateway| gateway.stats().streams), [0, 0]);
}

/// Bytes that a reader does not take stay with the sender's user: the gateways hold a window and a buffer.
#[test]
fn a_reader_that_does_not_read_stops_the_writer_and_goes_on_later() {
    let mut world = world(0.01);
    let (stream, bytes) = (open(&mut world), content(12_000_000, 1));
    world.is_reading = false;
    let mut written = 0;
    for _ in 0..600 {
        written += world.gateways[1].write(mirrored(stream), &bytes[written..]);
        world.run(ms(50), |_| false);
    }
    let waiting = world.gateways[0].stats().waiting_bytes;
    assert!(waiting <= 4 << 20, "{waiting} bytes wait for the reader");
    assert!(written < 6_000_000, "{written} bytes were taken");
    world.is_reading = true;
    world.take(0, stream);
    world.write(1, mirrored(stream), &bytes[written..], true);
    world.run(ms(60_000), |world| world.is_read(0, stream, &bytes));
    assert!(world.is_read(0, stream, &bytes));
}

#[test]
fn streams_share_the_link_segment_by_segment() {
    let mut world = world(0.0);
    let streams = [80, 81, 82].map(|_| open(&mut world));
    let bytes = content(20_000_000, 1);
    let mut written = [0; 3];
    for _ in 0..1_000 {
        for (stream, written) in streams.iter().zip(&mut written) {
            *written += world.gateways[1].write(mirrored(*stream), &bytes[*written..]);
        }
        world.run(ms(5), |_| false);
    }
    let read = streams.map(|stream| world.read[0][&stream].0.len());
    let (least, most) = (read.iter().min().expect("three"), read.iter().max().expect("three"));
    assert!(*least > 3_000_000 && most - least < 100_000, "{read:?}");
}

fn packet(number: u32) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&1_200u16.to_be_bytes());
    packet
        .extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 0, 0, 0]);
    packet.extend_from_slice(&number.to_be_bytes());
    packet.resize(1_200, 7);
    packet
}

/// Neither shuts the other out, and both together keep the rate. Packets have two turns to one, because the hop may send two at once.
#[test]
fn carried_packets_and_segments_share_the_link() {
    let both = |side: u8| gateway_of(START, side, (Some(by_rate()), true), 1 + u64::from(side));
    let mut world = World::of([both(0), both(1)], (ONE_WAY, RATE, 0.0));
    world.run(ms(20_000), |world| is_up(world) && world.gateways[1].carries(world.now, 0));
    let (stream, bytes) = (open(&mut world), content(20_000_000, 1));
    let (mut written, mut came, start) = (0, 0u64, world.now);
    for number in 0..5_000u32 {
        written += world.gateways[1].write(mirrored(stream), &bytes[written..]);
        let packet = packet(number);
        let key = FlowKey::of(&packet).expect("a packet");
        // 9.6 packets of 1,200 bytes in 5 ms are more than the link's 20 Mbit/s.
        (0..10).for_each(|_| _ = world.gateways[1].carry(world.now, 0, (key, false), &packet));
        world.run(ms(1), |_| false);
        while let Some((_, packet)) = world.gateways[0].poll_packet() {
            came += packet.bytes.len() as u64;
        }
        let ahead = world.line.busy[1].since(world.now.min(world.line.busy[1]));
        assert!(ahead < ms(30), "{ahead:?} of the link's time waits at {:?}", world.now.since(start));
    }
    let read = world.read[0][&stream].0.len() as u64;
    println!("{read} bytes of a stream and {came} of packets in 5 s");
    let share = read as f64 / (read + came) as f64;
    assert!((0.3..0.6).contains(&share), "{read} bytes of a stream, {came} of packets");
    assert!(read + came > 9_500_000, "{}", read + came);
}

/// One that does not speak the protocol keeps what it is asked for on the plain path; none waits.
#[test]
fn a_peer_that_does_not_speak_it_is_told_of_and_its_streams_are_refused() {
    let usual = gateway_of(START, 1, (None, false), 2);
    let mut world = World::of([gateway(0), usual], (ONE_WAY, RATE, 0.0));
    world.run(ms(8_000), |_| false);
    assert_eq!(world.gateways[0].open(world.now, 0, target(80)), Err(NoStream::PeerDown));
    let told = |(_, event): &&(Instant, GatewayEvent)| matches!(event, GatewayEvent::NotByRate { peer: 0 });
    assert_eq!(world.events[0].iter().filter(told).count(), 1);
    assert_eq!(world.events[1].iter().filter(told).count(), 0);
    // The other gateway believes that all is well, and has to take another way.
    let stream = world.gateways[1].open(world.now, 0, target(81)).expect("it answers");
    world.write(1, stream, b"hello", true);
    world.run(ms(2_000), |_| false);
    assert_eq!((world.resets(1), world.resets(0)), (vec![Reason::NoRoom], vec![]));
}

#[test]
fn an_outage_of_ten_seconds_ends_no_stream() {
    let mut world = world(0.0);
    let (stream, bytes) = (open(&mut world), content(6_000_000, 1));
    let mut written = 0;
    for step in 0..400 {
        world.line.is_cut = (20..220).contains(&step);
        written += world.gateways[1].write(mirrored(stream), &bytes[written..]);
        world.run(ms(50), |_| false);
    }
    world.write(1, mirrored(stream), &bytes[written..], true);
    world.run(ms(30_000), |world| world.is_read(0, stream, &bytes));
    assert!(world.is_read(0, stream, &bytes));
    assert_eq!((world.resets(0), world.resets(1)), (vec![], vec![]));
}

#[test]
fn another_process_goes_on_with_streams_in_both_directions() {
    let mut world = world(0.01);
    let stream = open(&mut world);
    let (up, down) = (content(3_000_000, 1), content(6_000_000, 2));
    let (mut at_up, mut at_down) = (0, 0);
    for step in 0..60 {
        if step % 20 == 10 {
            let side = step / 20 % 2;
            let state = world.gateways[side].hand_over();
            let next = gateway_of(world.now, side as u8, (Some(by_rate()), false), 90 + step as u64);
            world.gateways[side] = next;
            world.gateways[side].take_over(world.now, &state).expect("the same pair");
            let id = if side == 0 { stream } else { mirrored(stream) };
            world.gateways[side].set_user_rtt(id, ms(20));
            world.take(side, id);
        }
        at_up += world.gateways[0].write(stream, &up[at_up..]);
        at_down += world.gateways[1].write(mirrored(stream), &down[at_down..]);
        world.run(ms(50), |_| false);
    }
    send(&mut world, 0, stream, &up[at_up..]);
    send(&mut world, 1, mirrored(stream), &down[at_down..]);
    let done = |world: &World| world.is_read(1, mirrored(stream), &up) && world.is_read(0, stream, &down);
    world.run(ms(60_000), |world| done(world));
    assert!(
        done(&world),
        "{:?}",
        world.read.each_ref().map(|read| read.values().map(|r| r.0.len()).collect::<Vec<_>>())
    );
    assert_eq!((world.resets(0), world.resets(1)), (vec![], vec![]));
}

#[test]
fn a_gateway_that_starts_anew_ends_old_streams_in_resets_and_takes_new_ones() {
    let mut world = world(0.01);
    let (stream, bytes) = (open(&mut world), content(2_000_000, 1));
    let written = world.gateways[1].write(mirrored(stream), &bytes);
    world.run(ms(300), |_| false);
    world.gateways[1] = gateway_of(world.now, 1, (Some(by_rate()), false), 77);
    world.run(ms(20_000), |world| !world.resets(0).is_empty() && is_up(world));
    assert_eq!(world.resets(0), [Reason::PeerLost], "after {written} bytes");
    let next = world.open(81);
    let opened = |world: &World| {
        let found = |(_, event): &(Instant, GatewayEvent)| match event {
            GatewayEvent::Opened { stream, .. } => Some(*stream),
            _ => None,
        };
        world.events[1].iter().rev().find_map(found).filter(|id| world.gateways[1].is_open(*id))
    };
    world.run(ms(10_000), |world| opened(world).is_some());
    let far = opened(&world).expect("it takes streams");
    send(&mut world, 1, far, &bytes);
    world.run(ms(20_000), |world| world.is_read(0, next, &bytes));
    assert!(world.is_read(0, next, &bytes));
}
