//! Two gateways and a link in virtual time.

#[path = "support/line.rs"]
mod line;
#[path = "support/pair.rs"]
mod pair;
#[path = "support/world.rs"]
mod world;

use pair::{Pair, START, ms};
use starhop_proto::config::Config;
use starhop_proto::gateway::{
    Gateway, GatewayEvent, GatewaySettings, NoStream, NotTaken, PeerSpec, Reason, StreamId,
};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_proto::wire::Plain;
use std::collections::BTreeMap;
use world::{World, addr, content, mirrored, target};

fn gateway(now: Instant, side: u8, seed: u64) -> Gateway<Pair> {
    gateway_with(now, side, seed, Plain::new(seed))
}

fn gateway_with(now: Instant, side: u8, seed: u64, suite: Plain) -> Gateway<Pair> {
    let peer = PeerSpec { address: Some(addr(usize::from(1 - side))), bond: Pair { side }, by_rate: None };
    let settings = GatewaySettings::default();
    Gateway::new(now, Config::default(), settings, vec![peer], suite, seed)
}

impl World {
    fn new(delay: Duration, rate: Rate, loss: f64) -> Self {
        let mut world = Self::of([gateway(START, 0, 1), gateway(START, 1, 2)], (delay, rate, loss));
        world.run(ms(10_000), |world| (0..2).all(|side| world.gateways[side].is_up(world.now, 0)));
        world
    }

    fn geo() -> Self {
        Self::new(ms(270), Rate::from_mbps(20), 0.0)
    }
}

#[test]
fn streams_share_a_trunk_by_their_weights() {
    let mut world = World::new(ms(25), Rate::from_mbps(50), 0.0);
    let bytes = content(6_000_000, 1);
    let streams = [80, 81].map(|port| world.open(port));
    world.gateways[0].set_weight(streams[1], 4);
    let mut written = [0; 2];
    for _ in 0..200 {
        for (stream, written) in streams.into_iter().zip(&mut written) {
            *written += world.gateways[0].write(stream, &bytes[*written..]);
        }
        world.run(ms(5), |_| false);
    }
    let [one, four] = streams.map(|stream| world.read[1][&mirrored(stream)].0.len());
    let ratio = four as f64 / one as f64;
    println!("{one} and {four} bytes: {ratio:.2}");
    assert!((3.7..4.3).contains(&ratio), "{one} and {four} bytes: {ratio}");
}

/// Has the gateway at `side` take `many` streams at most from now on.
fn limit(world: &mut World, side: usize, many: usize) {
    world.gateways[side].set_settings(GatewaySettings { max_streams: many, ..GatewaySettings::default() });
}

#[test]
fn a_gateway_without_room_tells_so_before_it_is_asked() {
    let mut world = World::new(ms(25), Rate::from_mbps(50), 0.0);
    limit(&mut world, 1, 3);
    world.run(ms(500), |_| false);
    let streams = [80, 81, 82].map(|port| world.open(port));
    let more = world.gateways[0].open(world.now, 0, target(83));
    assert_eq!(more, Err(NoStream::PeerFull), "before a packet has left");
    world.run(ms(500), |_| false);
    world.write(0, streams[1], b"all", true);
    world.write(1, mirrored(streams[1]), b"said", true);
    world.run(ms(1_000), |_| false);
    world.open(84);
    assert_eq!(world.gateways[0].open(world.now, 0, target(85)), Err(NoStream::PeerFull));
    world.run(ms(500), |_| false);
    assert_eq!((world.resets(0), world.gateways[1].stats().streams), (vec![], 3));
}

#[test]
fn a_stream_that_the_peer_has_no_room_for_after_all_is_told_so() {
    let mut world = World::new(ms(25), Rate::from_mbps(50), 0.0);
    world.run(ms(500), |_| false);
    limit(&mut world, 1, 3);
    for port in 80..88 {
        let stream = world.open(port);
        world.write(0, stream, b"hello", false);
    }
    world.run(ms(500), |_| false);
    assert_eq!(world.resets(0), [Reason::NoRoom; 5]);
    assert_eq!(world.gateways.each_ref().map(|gateway| gateway.stats().streams), [3, 3]);
}

#[test]
fn a_peer_whose_address_was_not_given_is_asked_where_it_asks_from() {
    let site = PeerSpec { address: None, bond: Pair { side: 1 }, by_rate: None };
    let hub =
        Gateway::new(START, Config::default(), GatewaySettings::default(), vec![site], Plain::new(2), 2);
    let mut world = World::of([gateway(START, 0, 1), hub], (ms(25), Rate::from_mbps(20), 0.01));
    let known = |world: &World| world.gateways[1].peer_views(world.now).next().and_then(|peer| peer.address);
    assert_eq!(known(&world), None);
    world.run(ms(10_000), |world| (0..2).all(|side| world.gateways[side].is_up(world.now, 0)));
    assert_eq!(known(&world), Some(addr(0)));
    let (stream, bytes, start) = (world.open(80), content(2_000_000, 5), world.now);
    world.write(0, stream, &bytes[..1_000_000], false);
    world.places[0] = addr(9);
    world.write(0, stream, &bytes[1_000_000..], true);
    world.run(ms(20_000), |world| world.read[1].values().any(|(_, is_end)| *is_end));
    let (read, is_end) = world.read[1].values().next().expect("a stream");
    assert!(*is_end && *read == bytes, "{} bytes of {}", read.len(), bytes.len());
    assert_eq!(known(&world), Some(addr(9)));
    // 2 MB take 0.84 s, and a link that nothing is known of takes four round trips to fill, twice.
    let took = world.now.since(start);
    assert!(took < ms(2_000), "{took:?}");
}

#[test]
fn a_request_and_an_answer_of_100_kb_cost_one_round_trip_and_their_serialisation() {
    let mut world = World::geo();
    // A transfer before it: the path is warm.
    let (first, bulk) = (world.open(80), content(4_000_000, 1));
    world.write(1, mirrored(first), &[], false);
    world.run(ms(400), |_| false);
    world.write(1, mirrored(first), &bulk, true);
    world.run(ms(20_000), |world| world.is_read(0, first, &bulk));
    world.run(ms(5_000), |_| false);
    let (start, answer) = (world.now, content(100_000, 2));
    let stream = world.open(81);
    world.write(0, stream, b"GET / HTTP/1.1", false);
    let asked =
        |world: &mut World| world.read[1].get(&mirrored(stream)).is_some_and(|(bytes, _)| bytes.len() == 14);
    world.run(ms(1_000), asked);
    let there = world.now.since(start);
    assert!(there < ms(273), "the request came with the opening, after {there:?}");
    world.write(1, mirrored(stream), &answer, true);
    world.run(ms(2_000), |world| world.is_read(0, stream, &answer));
    let took = world.now.since(start);
    // 540 ms, and 78 packets at 20 Mbit/s: 585 ms.
    println!("100 kB took {took:?}");
    assert!(took < ms(600), "{took:?}");
}

#[test]
fn both_directions_carry_bulk_whoever_starts_first_and_whoever_has_to_prove_its_address() {
    for (first, is_guarded) in [(0, false), (0, true), (1, false), (1, true)] {
        let suite = |seed| if is_guarded { Plain::guarded(seed) } else { Plain::new(seed) };
        let start = |side: usize| {
            let now = if side == first { START } else { START + ms(3_000) };
            gateway_with(now, side as u8, side as u64 + 1, suite(side as u64 + 1))
        };
        let mut world = World::of([start(0), start(1)], (ms(25), Rate::from_mbps(50), 0.0));
        // Packets to the one that does not run yet are lost.
        world.line.is_cut = true;
        world.run(ms(3_000), |_| false);
        world.line.is_cut = false;
        world.run(ms(3_000), |world| (0..2).all(|side| world.gateways[side].is_up(world.now, 0)));
        let (stream, bytes) = (world.open(80), content(1_000_000, 6));
        world.write(0, stream, &bytes, true);
        world.write(1, mirrored(stream), &bytes, true);
        let done =
            |world: &World| world.is_read(0, stream, &bytes) && world.is_read(1, mirrored(stream), &bytes);
        world.run(ms(3_000), |world| done(world));
        assert!(done(&world), "first {first}, guarded {is_guarded}");
    }
}

#[test]
fn a_path_that_nobody_used_is_full_after_a_few_round_trips() {
    // A round trip to open; 1324 bytes of a stream in every 1409 on the link: 8.5 s and 4.25 s; and until the rate of
    // 14 Mbit/s that it begins with is the link's, one round trip for one doubling, or eight for three. Of the first round trip 0.15 s are used,
    // because no more is asked for than shows the rate: chirps make good most of that.
    for (delay, mbps, bytes, limit) in [(270, 20, 20_000_000, 9_640), (25, 100, 50_000_000, 4_700)] {
        let mut world = World::new(ms(delay), Rate::from_mbps(mbps), 0.0);
        // Signs of life have gone to and fro: they are short, and take less time on the wire.
        world.run(ms(1_000), |_| false);
        let (start, bytes) = (world.now, content(bytes, 1));
        let stream = world.open(80);
        world.run(ms(delay + 5), |_| false);
        let mut written = 0;
        while !world.is_read(0, stream, &bytes) && world.now.since(start) < ms(2 * limit) {
            written += world.gateways[1].write(mirrored(stream), &bytes[written..]);
            if written == bytes.len() {
                world.gateways[1].finish(mirrored(stream));
            }
            world.run(ms(5), |_| false);
        }
        let took = world.now.since(start);
        println!("{} MB at {mbps} Mbit/s, {delay} ms: {took:?}", bytes.len() / 1_000_000);
        assert!(took < ms(limit), "{took:?}");
    }
}

#[test]
fn many_streams_over_a_lossy_link_keep_their_bytes_and_their_ends() {
    let mut world = World::new(ms(25), Rate::from_mbps(50), 0.02);
    let streams: Vec<StreamId> = (0..50).map(|port| world.open(port)).collect();
    let (ups, downs): (Vec<_>, Vec<_>) = (0..50)
        .map(|n| (content(20_000 + n * 777, n as u64), content(90_000 - n * 777, 99 + n as u64)))
        .unzip();
    for (stream, up) in streams.iter().zip(&ups) {
        world.write(0, *stream, up, true);
    }
    world.run(ms(100), |_| false);
    for (stream, down) in streams.iter().zip(&downs) {
        world.write(1, mirrored(*stream), down, true);
    }
    let all = |world: &World| {
        streams.iter().zip(&ups).all(|(stream, up)| world.is_read(1, mirrored(*stream), up))
            && streams.iter().zip(&downs).all(|(stream, down)| world.is_read(0, *stream, down))
    };
    world.run(ms(30_000), |world| all(world));
    assert!(all(&world));
    assert_eq!([0, 1].map(|side| world.gateways[side].stats().streams), [0, 0], "nothing is left");
    assert_eq!([0, 1].map(|side| world.gateways[side].stats().waiting_bytes), [0, 0]);
    assert!(world.resets(0).is_empty() && world.resets(1).is_empty());
}

#[test]
fn a_repair_of_what_arrived_after_all_ends_no_stream() {
    let mut world = World::new(ms(25), Rate::from_mbps(50), 0.01);
    let (stream, bytes) = (world.open(80), content(30_000_000, 6));
    let mut written = 0;
    for round in 0..3_000 {
        // The order of packets is lost for a while, and again: needless repairs are asked for.
        world.line.jitter = if round % 40 < 5 { ms(30) } else { Duration::ZERO };
        written += world.gateways[0].write(stream, &bytes[written..]);
        world.run(ms(10), |_| false);
        if written == bytes.len() {
            break;
        }
    }
    world.gateways[0].finish(stream);
    world.run(ms(5_000), |world| world.is_read(1, mirrored(stream), &bytes));
    assert_eq!((world.resets(0), world.resets(1)), (vec![], vec![]));
    assert!(world.is_read(1, mirrored(stream), &bytes));
}

#[test]
fn a_direction_that_ended_leaves_the_other_alone() {
    let mut world = World::geo();
    let stream = world.open(80);
    world.write(0, stream, b"question", true);
    world.run(ms(3_000), |_| false);
    assert!(world.is_read(1, mirrored(stream), b"question"));
    let answer = content(1_000_000, 5);
    world.write(1, mirrored(stream), &answer, true);
    world.run(ms(5_000), |world| world.is_read(0, stream, &answer));
    assert!(world.is_read(0, stream, &answer));
}

#[test]
fn a_reset_and_its_reason_reach_the_other_side_and_end_the_stream() {
    let mut world = World::geo();
    let stream = world.open(80);
    world.write(0, stream, &content(200_000, 1), false);
    world.run(ms(350), |_| false);
    world.gateways[1].reset(mirrored(stream), Reason::Refused);
    world.run(ms(1_000), |_| false);
    assert_eq!((world.resets(0), world.resets(1)), (vec![Reason::Refused], vec![]));
    assert_eq!([0, 1].map(|side| world.gateways[side].stats().streams), [0, 0]);
    assert_eq!(world.gateways[0].write(stream, b"more"), 0, "it is gone");
}

#[test]
fn what_a_slow_reader_does_not_take_is_not_sent_and_others_go_on() {
    let mut world = World::new(ms(10), Rate::from_mbps(100), 0.0);
    world.is_reading = false;
    let slow = world.open(80);
    let bytes = content(8_000_000, 1);
    let mut written = 0;
    for _ in 0..500 {
        written += world.gateways[0].write(slow, &bytes[written..]);
        world.run(ms(10), |_| false);
    }
    let held = world.gateways[1].stats().waiting_bytes;
    assert!(held <= 2 << 20 && written < 3_000_000, "{held} held, {written} taken");
    world.is_reading = true;
    let other = world.open(81);
    world.write(0, other, b"hello", true);
    world.run(ms(100), |world| world.is_read(1, mirrored(other), b"hello"));
    assert!(world.is_read(1, mirrored(other), b"hello"));
    // The reader wakes up.
    world.take(1, mirrored(slow));
    while written < bytes.len() {
        written += world.gateways[0].write(slow, &bytes[written..]);
        world.run(ms(10), |_| false);
    }
    world.gateways[0].finish(slow);
    world.run(ms(5_000), |world| world.is_read(1, mirrored(slow), &bytes));
    assert!(world.is_read(1, mirrored(slow), &bytes));
}

#[test]
#[ignore = "fails: 32 ms where 30 are allowed, since the queue follows excursions of the delay"]
fn a_short_exchange_does_not_wait_behind_a_long_transfer() {
    let mut world = World::new(ms(25), Rate::from_mbps(100), 0.0);
    let bulk = world.open(80);
    world.run(ms(100), |_| false);
    let bytes = content(60_000_000, 1);
    let mut written = 0;
    let mut longest = Duration::ZERO;
    let ping = world.open(81);
    for round in 1..60 {
        for _ in 0..5 {
            written += world.gateways[1].write(mirrored(bulk), &bytes[written..]);
            world.run(ms(10), |_| false);
        }
        let sent = world.now;
        world.gateways[1].write(mirrored(ping), b"x");
        let is_here = |world: &World| world.read[0].get(&ping).is_some_and(|(read, _)| read.len() == round);
        while !is_here(&world) {
            written += world.gateways[1].write(mirrored(bulk), &bytes[written..]);
            world.run(ms(1), |world| is_here(world));
        }
        // The first second is the start.
        longest = if round > 20 { longest.max(world.now.since(sent)) } else { longest };
    }
    let rate = world.read[0][&bulk].0.len() as f64 * 8e-6 / world.now.since(START).as_secs_f64();
    println!("one way beside {rate:.0} Mbit/s: {longest:?}");
    assert!(longest < ms(30), "{longest:?} instead of 25 ms");
}

#[test]
fn streams_outlive_an_outage_and_end_with_a_reset_when_it_lasts_too_long() {
    let mut world = World::new(ms(25), Rate::from_mbps(20), 0.001);
    let (stream, bytes) = (world.open(80), content(3_000_000, 1));
    let mut written = 0;
    for round in 0..2_000 {
        world.line.is_cut = (20..1_020).contains(&round);
        written += world.gateways[0].write(stream, &bytes[written..]);
        world.run(ms(10), |_| false);
    }
    assert_eq!(written, bytes.len());
    world.gateways[0].finish(stream);
    world.run(ms(5_000), |world| world.is_read(1, mirrored(stream), &bytes));
    assert!(world.is_read(1, mirrored(stream), &bytes));
    assert!(world.events[0].iter().any(|(_, event)| *event == GatewayEvent::Peer { peer: 0, is_up: false }));
    world.gateways[1].finish(mirrored(stream));
    world.run(ms(500), |_| false);
    let stream = world.open(81);
    world.write(0, stream, b"hello", false);
    world.run(ms(100), |_| false);
    world.line.is_cut = true;
    world.run(ms(61_000), |_| false);
    assert_eq!((world.resets(0), world.resets(1)), (vec![Reason::PeerLost], vec![Reason::PeerLost]));
    assert_eq!(world.gateways[0].open(world.now, 0, target(82)), Err(NoStream::PeerDown));
    world.line.is_cut = false;
    world.run(ms(5_000), |world| (0..2).all(|side| world.gateways[side].is_up(world.now, 0)));
    let again = world.open(83);
    world.write(0, again, b"hello", true);
    world.run(ms(1_000), |world| world.is_read(1, mirrored(again), b"hello"));
    assert!(world.is_read(1, mirrored(again), b"hello"));
}

#[test]
fn a_gateway_that_starts_anew_ends_the_old_streams_and_takes_new_ones() {
    for restarted in 0..2 {
        let mut world = World::new(ms(25), Rate::from_mbps(20), 0.0);
        let stream = world.open(80);
        world.write(0, stream, b"hello", false);
        world.run(ms(500), |_| false);
        world.gateways[restarted] = gateway(world.now, restarted as u8, 7);
        world.run(ms(200), |_| false);
        assert_eq!(world.resets(1 - restarted), [Reason::PeerLost], "told within two round trips");
        world.read = [BTreeMap::new(), BTreeMap::new()];
        world.run(ms(2_000), |world| (0..2).all(|side| world.gateways[side].is_up(world.now, 0)));
        let again = world.open(81);
        world.write(0, again, b"again", true);
        world.run(ms(300), |_| false);
        let opened = world.events[1].iter().rev().find_map(|(_, event)| match event {
            GatewayEvent::Opened { stream, .. } => Some(*stream),
            _ => None,
        });
        assert!(world.is_read(1, opened.expect("it came"), b"again"));
    }
}

#[test]
fn idle_gateways_stay_together_and_say_little() {
    let mut world = World::new(ms(25), Rate::from_mbps(20), 0.0);
    let stream = world.open(80);
    world.run(ms(1_000), |_| false);
    let before = world.gateways[0].stats().sent_bytes;
    world.run(ms(200_000), |_| false);
    let rate = (world.gateways[0].stats().sent_bytes - before) as f64 / 200.0;
    println!("{rate:.0} bytes a second each way");
    assert!(rate < 600.0, "{rate} bytes a second");
    world.write(0, stream, b"still there", true);
    world.run(ms(100), |world| world.is_read(1, mirrored(stream), b"still there"));
    assert!(world.is_read(1, mirrored(stream), b"still there"));
}

/// The result of a transfer with an outage in it.
#[derive(Clone, Copy, Debug)]
struct Outage {
    /// Time from the end of the outage until the next byte came.
    first: Option<Duration>,
    /// Time from the end of the outage until all bytes had come.
    all: Option<Duration>,
    /// Bytes that were still to come at the end of the outage, in the direction with more of them.
    left: usize,
}

/// Both directions carry `bytes`, and all packets are lost for `span` from 500 ms on.
fn transfer_with_outage(world: &mut World, span: Duration, bytes: &[u8]) -> Outage {
    let stream = world.open(80);
    world.run(ms(600), |_| false);
    let (begin, end) = (world.now + ms(500), world.now + ms(500) + span);
    let ids = [stream, mirrored(stream)];
    let here =
        |world: &World, side: usize| world.read[side].get(&ids[side]).map_or(0, |(read, _)| read.len());
    let (mut written, mut before, mut outage) = ([0; 2], None, Outage { first: None, all: None, left: 0 });
    while world.now < end + ms(30_000) && outage.all.is_none() {
        world.line.is_cut = world.now >= begin && world.now < end;
        for side in 0..2 {
            written[side] += world.gateways[side].write(ids[side], &bytes[written[side]..]);
            if written[side] == bytes.len() {
                world.gateways[side].finish(ids[side]);
            }
        }
        if world.now >= end {
            let before = *before.get_or_insert_with(|| {
                outage.left = bytes.len() - here(world, 0).min(here(world, 1));
                here(world, 0)
            });
            outage.first = outage.first.or((here(world, 0) > before).then(|| world.now.since(end)));
            let is_all = (0..2).all(|side| world.is_read(side, ids[side], bytes));
            outage.all = is_all.then(|| world.now.since(end));
        }
        world.run(ms(5), |_| false);
    }
    outage
}

/// Beside bytes at the full rate, 200 transfers at 1 % loss (40 seeds at 0.5, 1, 2, 5 and 11 s) take 0.29 s on average, and 0.54 s
/// at most. It was 0.35 s, up to 2.06 s, and five of them more than one, while repairs that still waited in line were asked for again
/// until their tries were used up.
#[test]
fn an_outage_of_any_length_is_over_soon_and_bulk_goes_on() {
    let rate = Rate::from_mbps(50);
    let bytes = content(8_000_000, 1);
    let spans = [100, 500, 1_000, 2_000, 5_000, 9_000, 11_000, 30_000];
    let (mut beside, mut questions_lost) = (Vec::new(), 0);
    for (span, loss) in spans.into_iter().flat_map(|span| [0.0, 0.01].map(|loss| (span, loss))) {
        for seed in if loss > 0.0 { 1..9 } else { 1..2 } {
            let mut world = World::new(ms(25), rate, loss);
            world.line.rng = Rng::new(seed);
            let outage = transfer_with_outage(&mut world, ms(span), &bytes);
            let least = rate.time_for(outage.left as u64 * 1409 / 1324);
            println!("{span} ms, loss {loss}, seed {seed}: {outage:?}, at the full rate {least:?}");
            // A question every 250 ms at most, its answer after 50 ms, and the same again for an older hole. A question or its
            // answer is lost in two of a hundred outages at 1 % of loss: then the next one tells.
            let first = outage.first.expect("a byte comes");
            questions_lost += u32::from(first >= ms(360));
            assert!(first < if loss > 0.0 { ms(610) } else { ms(360) }, "{span} ms, loss {loss}: {outage:?}");
            let all = outage.all.expect("all bytes come").saturating_sub(least);
            if loss > 0.0 {
                beside.push(all.as_secs_f64());
            } else {
                assert!(all < ms(1_000), "{span} ms: {outage:?}");
            }
        }
    }
    let mean = beside.iter().sum::<f64>() / beside.len() as f64;
    let longest = beside.iter().copied().fold(0.0, f64::max);
    println!("{mean:.3} s beside the full rate, {longest:.3} s at most");
    assert!(questions_lost <= 3, "{questions_lost} of {}", beside.len());
    assert!(mean < 0.33 && longest < 0.65, "{mean} s beside the full rate, {longest} s at most");
}

impl World {
    /// Another process of the node goes on at `side`, as a new version does.
    fn replace(&mut self, side: usize, seed: u64) {
        let state = self.gateways[side].hand_over();
        let mut next = gateway(self.now, side as u8, seed);
        next.take_over(self.now, &state).expect("the same version, and the same peer");
        self.gateways[side] = next;
    }
}

/// Bulk both ways, and a new process every second, here and there in turn: how long the transfer takes.
fn transfer_with_changes(delay: Duration, loss: f64, changes: usize) -> Duration {
    let mut world = World::new(delay, Rate::from_mbps(20), loss);
    let (stream, bytes) = (world.open(80), content(8_000_000, 6));
    let idle = world.open(22);
    world.write(0, idle, b"hello", false);
    world.run(ms(1_000), |_| false);
    let start = world.now;
    let mut written = [0; 2];
    let mut next_change = (world.now + ms(1_000), 0);
    let is_over =
        |world: &World| world.is_read(0, stream, &bytes) && world.is_read(1, mirrored(stream), &bytes);
    while !is_over(&world) && world.now.since(start) < ms(60_000) {
        for (side, written) in written.iter_mut().enumerate() {
            let stream = if side == 0 { stream } else { mirrored(stream) };
            if *written < bytes.len() {
                *written += world.gateways[side].write(stream, &bytes[*written..]);
                if *written == bytes.len() {
                    world.gateways[side].finish(stream);
                }
            }
        }
        if world.now >= next_change.0 && next_change.1 < changes {
            next_change = (world.now + ms(1_000), next_change.1 + 1);
            world.replace(next_change.1 % 2, 100 + next_change.1 as u64);
            // The application looks at every stream when it goes on.
            let side = next_change.1 % 2;
            for stream in [stream, idle] {
                world.take(side, if side == 0 { stream } else { mirrored(stream) });
            }
        }
        world.run(ms(10), |_| false);
    }
    let took = world.now.since(start);
    assert!(is_over(&world), "after {took:?}");
    assert_eq!((world.resets(0), world.resets(1)), (vec![], vec![]));
    // A stream of before the changes that said nothing meanwhile goes on as well, and new ones begin.
    world.write(1, mirrored(idle), b"world", true);
    let fresh = world.open(81);
    world.write(0, fresh, b"new", true);
    world.run(ms(3_000), |_| false);
    assert_eq!(world.read[1][&mirrored(idle)].0, b"hello");
    assert!(world.is_read(0, idle, b"world") && world.is_read(1, mirrored(fresh), b"new"));
    assert_eq!([0, 1].map(|side| world.gateways[side].stats().bad_records), [0, 0]);
    took
}

/// Requests take a round trip, the first answers tell the rate in another, and a third is for losses. This holds on average: the
/// queue that one direction makes while it finds its rate delays the other, a little or much, by when the change comes.
#[test]
fn a_process_that_takes_over_goes_on_with_every_stream_and_every_byte() {
    let mut round_trips = Vec::new();
    for delay in [15, 20, 25, 30, 35, 40, 60, 80, 270].map(ms) {
        for loss in [0.0, 0.01] {
            let [alone, with] = [0, 4].map(|changes| transfer_with_changes(delay, loss, changes));
            let each = (with.as_secs_f64() - alone.as_secs_f64()) / (4.0 * 2.0 * delay.as_secs_f64());
            println!(
                "{delay:?}, loss {loss}: {alone:?}, and {with:?} with 4 changes: {each:.2} round trips each"
            );
            assert!(each < 8.0, "{delay:?}, loss {loss}: {alone:?}, {with:?}");
            round_trips.push(each);
        }
    }
    let mean = round_trips.iter().sum::<f64>() / round_trips.len() as f64;
    assert!(mean < 3.0, "{mean} round trips: {round_trips:?}");
}

#[test]
fn a_state_of_another_version_or_of_another_peer_is_not_taken() {
    let mut world = World::geo();
    let stream = world.open(80);
    world.write(0, stream, b"hello", false);
    let state = world.gateways[0].hand_over();
    let taken = |side: u8, state: &[u8]| gateway(world.now, side, 9).take_over(world.now, state);
    assert_eq!(taken(0, &state), Ok(()));
    assert_eq!(taken(1, &state), Err(NotTaken::OtherPeer(0)));
    let mut other = state.clone();
    other[3] += 1;
    assert_eq!(taken(0, &other), Err(NotTaken::OtherForm));
    for end in 0..state.len() {
        assert_eq!(taken(0, &state[..end]), Err(NotTaken::OtherForm), "cut at {end}");
    }
}

/// Requests of 20 kB, 500 at any time; each next one is made as one is complete. Returns the rate of their bytes, Mbit/s.
fn rate_of_requests(world: &mut World, count: usize) -> f64 {
    let (body, start) = (content(20_000, 4), world.now);
    let mut asked: Vec<StreamId> = Vec::new();
    let (mut opened, mut done) = (0, 0);
    while done < count && world.now.since(start) < ms(60_000) {
        while opened < count && asked.len() < 500 {
            let stream = world.open(opened as u16);
            world.write(0, stream, b"GET / HTTP/1.1", true);
            asked.push(stream);
            opened += 1;
        }
        world.run(ms(1), |_| false);
        for (_, event) in core::mem::take(&mut world.events[1]) {
            if let GatewayEvent::Opened { stream, .. } = event {
                world.write(1, stream, &body, true);
            }
        }
        let before = asked.len();
        asked.retain(|stream| {
            !world.read[0].get(stream).is_some_and(|(bytes, is_end)| *is_end && *bytes == body)
        });
        done += before - asked.len();
    }
    done as f64 * 20_000.0 * 8.0 / 1e6 / world.now.since(start).as_secs_f64()
}

#[test]
fn short_streams_that_come_and_go_share_the_whole_link() {
    for (loss, least) in [(0.0, 165.0), (0.01, 150.0)] {
        let rate = rate_of_requests(&mut World::new(ms(10), Rate::from_mbps(200), loss), 4_000);
        println!("loss {loss}: {rate:.1} of 200 Mbit/s");
        assert!(rate >= least, "loss {loss}: {rate} Mbit/s");
    }
}

/// Two Interests name each byte of a live flow. Where both are lost, the peer sees a gap between requests, and takes it for
/// asked.
#[test]
fn requests_that_are_lost_two_at_a_time_stop_no_stream() {
    let mut longest = Duration::ZERO;
    for seed in 0..12 {
        let mut world =
            World::of([gateway(START, 0, 1), gateway(START, 1, 2)], (ms(25), Rate::from_mbps(50), 0.08));
        world.line.rng = Rng::new(seed);
        world.run(ms(10_000), |world| (0..2).all(|side| world.gateways[side].is_up(world.now, 0)));
        let (stream, bytes, start) = (world.open(80), content(5_000_000, seed), world.now);
        world.write(0, stream, &bytes, true);
        world.run(ms(60_000), |world| world.read[1].values().any(|(_, is_end)| *is_end));
        let (read, is_end) = world.read[1].values().next().expect("a stream");
        assert!(*is_end && *read == bytes, "seed {seed}: {} bytes of {}", read.len(), bytes.len());
        longest = longest.max(world.now.since(start));
    }
    println!("at most {longest:?}");
    assert!(longest < ms(2_000), "{longest:?}");
}
