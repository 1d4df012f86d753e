//! Whole transfers over chains of the real roles.

mod support;

use starhop_proto::config::{Config, Profile, Settings};
use starhop_proto::consumer::ConsumerEvent;
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::node::Node;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_proto::wire::Packet;
use support::{FLOW, Path, Rig, addr, ms, packet};

const MB: u64 = 1_000_000;

fn profile(profile: Profile) -> Config {
    Config::new(profile.settings()).expect("a profile is valid")
}

fn assert_whole(rig: &mut Rig, length: u64) {
    let sink = rig.fetched().sink();
    assert_eq!(sink.wrong, 0, "wrong bytes");
    assert_eq!(sink.got.iter().collect::<Vec<_>>(), [ByteRange::new(0, length)]);
}

#[test]
fn a_file_crosses_five_clean_hops_at_the_links_rate() {
    let mut rig = Rig::chain(5, Config::default(), Some(5 * MB), Path::default());
    rig.start();
    let took = rig.finish(ms(10_000)).expect("finished");
    assert_whole(&mut rig, 5 * MB);
    let stats = rig.fetched().stats();
    println!("{took:?} {stats:?}");
    // 5 MB at 20 Mbit/s with 4 % of headers are 2.08 s; start and path add some 250 ms.
    assert!(took < ms(2_450), "{took:?}");
    assert_eq!((stats.timeouts, stats.repairs, stats.duplicate_bytes), (0, 0, 0));
}

#[test]
fn a_file_crosses_five_lossy_hops_without_an_end_to_end_timeout() {
    let mut rig = Rig::chain(5, Config::default(), Some(20 * MB), Path { loss: 0.01, ..Path::default() });
    rig.start();
    let took = rig.finish(ms(30_000)).expect("finished");
    assert_whole(&mut rig, 20 * MB);
    let stats = rig.fetched().stats();
    println!("{took:?} {stats:?} forward {:?} backward {:?}", rig.forward, rig.backward);
    assert!(took < ms(9_200), "{took:?}");
    assert_eq!(stats.timeouts, 0);
    assert!(rig.backward.1 * 100 <= rig.forward.1, "return bytes");
}

/// Every limit that a request may meet, on a path whose losses meet it all the time. The bytes that a neighbour waited for took all its
/// room, and repairs of them were refused for want of room: nothing came any more.
#[test]
fn limits_slow_a_lossy_flow_and_never_stop_it() {
    let path = Path { loss: 0.05, ..Path::default() };
    let usual = || Profile::Starhop.settings();
    for (what, settings) in [
        ("none", usual()),
        ("ranges", Settings { max_ranges_per_flow: 4, ..usual() }),
        ("credit", Settings { credit_per_neighbour: 64 * 1024, ..usual() }),
        ("memory", Settings { state_bytes: 64 * 1024, ..usual() }),
    ] {
        let mut rig = Rig::chain(3, Config::new(settings).expect("valid"), Some(5 * MB), path);
        rig.start();
        let took = rig.finish(ms(60_000));
        println!("{what}: {took:?} {:?}", rig.fetched().stats());
        assert!(took.is_some_and(|took| took < ms(6_000)), "{what}: {took:?}");
        assert_whole(&mut rig, 5 * MB);
    }
}

#[test]
fn a_path_that_drops_long_packets_delivers_every_byte() {
    // 1280 and 1500 bytes with IPv6 and UDP: the usual packet has 1380.
    let paths = [(1232, 1, 0.0), (1232, 4, 0.0), (1232, 3, 0.01), (600, 2, 0.01), (1452, 3, 0.01)];
    for ((longest, hops, loss), least) in paths.into_iter().zip([1170, 1170, 1170, 466, 1350]) {
        let path = Path { longest, loss, ..Path::default() };
        let mut rig = Rig::chain(hops, Config::default(), Some(2 * MB), path);
        rig.start();
        let took = rig.finish(ms(20_000));
        let payload = rig.client().upstreams().next().and_then(|hop| hop.payload);
        println!("{longest} bytes, {hops} hops, {loss}: {took:?}, {payload:?} {:?}", rig.fetched().stats());
        assert!(took.is_some_and(|took| took < ms(4_500)), "{longest} bytes, {hops} hops: {took:?}");
        assert_whole(&mut rig, 2 * MB);
        let payload = payload.map_or(0, usize::from);
        // The header takes 30 bytes. The search may still go on.
        assert!((least..=longest.min(1380) - 30).contains(&payload), "{payload}");
    }
}

#[test]
fn a_path_that_begins_to_drop_long_packets_goes_on_within_seconds() {
    let mut rig = Rig::chain(2, Config::default(), Some(8 * MB), Path::default());
    rig.start();
    assert!(rig.finish(ms(1_000)).is_none());
    rig.path.longest = 1232;
    let took = rig.finish(ms(20_000)).expect("finished");
    println!("{took:?} {:?}", rig.fetched().stats());
    assert_whole(&mut rig, 8 * MB);
    assert!(took < ms(8_000), "{took:?}");
}

#[test]
fn every_profile_delivers_every_byte_over_loss() {
    for (_, which) in Profile::ALL {
        let mut rig = Rig::chain(4, profile(which), Some(2 * MB), Path { loss: 0.02, ..Path::default() });
        rig.start();
        let took = rig.finish(ms(60_000));
        println!("{which:?} {took:?} {:?}", rig.fetched().stats());
        assert!(took.is_some(), "{which:?}");
        assert_whole(&mut rig, 2 * MB);
    }
}

#[test]
fn reordering_duplication_and_corruption_leave_the_bytes_whole() {
    let path = Path { loss: 0.01, duplicate: 0.05, reorder: 0.05, ..Path::default() };
    let mut rig = Rig::chain(4, Config::default(), Some(3 * MB), path);
    rig.start();
    assert!(rig.finish(ms(20_000)).is_some());
    assert_whole(&mut rig, 3 * MB);
}

#[test]
fn in_order_delivery_goes_on_after_the_first_loss() {
    let mut rig = Rig::chain(1, Config::default(), None, Path { loss: 0.01, ..Path::default() });
    rig.start();
    rig.run(ms(5_000), |_| false);
    // 5 s at 20 Mbit/s: the prefix that is whole must be nearly all of it.
    assert!(rig.fetched().in_order_end() > 11 * MB, "{}", rig.fetched().in_order_end());
}

#[test]
fn a_relay_that_is_killed_and_restarted_loses_nothing() {
    let mut rig = Rig::chain(5, Config::default(), Some(8 * MB), Path { loss: 0.01, ..Path::default() });
    rig.start();
    rig.run(ms(1_000), |_| false);
    rig.kill(2);
    rig.run(ms(300), |_| false);
    rig.restart(2, 1, 77);
    let took = rig.finish(ms(20_000)).expect("finished");
    assert_whole(&mut rig, 8 * MB);
    println!("{took:?} {:?}", rig.fetched().stats());
    assert!(took < ms(4_500), "{took:?}");
}

#[test]
fn a_relay_left_out_in_mid_transfer_loses_nothing() {
    let mut rig = Rig::chain(3, Config::default(), Some(8 * MB), Path { loss: 0.01, ..Path::default() });
    rig.start();
    rig.run(ms(1_000), |_| false);
    rig.kill(2);
    let now = rig.now;
    rig.client().set_upstream(now, FLOW, addr(1));
    let client = rig.roles.len() - 1;
    rig.drain(client);
    let took = rig.finish(ms(20_000)).expect("finished");
    assert_whole(&mut rig, 8 * MB);
    println!("{took:?} {:?}", rig.fetched().stats());
    assert!(took < ms(3_800), "{took:?}");
}

#[test]
fn an_outage_of_the_whole_path_ends_within_a_second_of_its_return() {
    let mut rig = Rig::chain(4, Config::default(), None, Path::default());
    rig.start();
    rig.run(ms(2_000), |_| false);
    rig.path.loss = 1.0;
    rig.run(ms(10_000), |_| false);
    rig.path.loss = 0.0;
    let before = rig.fetched().in_order_end();
    rig.run(ms(1_500), |_| false);
    let after = rig.fetched().in_order_end();
    rig.run(ms(1_000), |_| false);
    let last = rig.fetched().in_order_end();
    println!("{} then {} in the second after", after - before, last - after);
    assert!(last - after > 2_300_000, "the old rate");
}

#[test]
fn a_flow_that_stops_is_asked_about_once_and_soon() {
    let mut rig = Rig::chain(2, Config::default(), None, Path::default());
    rig.start();
    rig.run(ms(1_000), |_| false);
    rig.path.loss = 1.0;
    // Packets under way still arrive, and are answered by requests.
    rig.run(ms(12), |_| false);
    let before = rig.fetched().stats().interests_sent;
    rig.run(ms(10), |_| false);
    assert_eq!(rig.fetched().stats().interests_sent, before, "too soon");
    rig.run(ms(25), |_| false);
    assert_eq!(rig.fetched().stats().interests_sent, before + 1, "one question");
    assert_eq!(rig.fetched().stats().timeouts, 0);
}

#[test]
fn a_name_that_nobody_has_is_refused_within_a_round_trip() {
    let mut rig =
        Rig::with_request(4, Config::default(), None, Path::default(), RangeSet::new(), FlowId([9; 16]));
    rig.start();
    rig.run(ms(1_000), |rig| !rig.events.is_empty());
    assert_eq!(rig.events[0].1, ConsumerEvent::NoSuchName { flow: FlowId([9; 16]) });
    assert!(rig.now.since(Instant::ZERO).as_secs_f64() < 1000.1);
}

#[test]
fn an_empty_object_is_finished_at_once() {
    let mut rig = Rig::chain(3, Config::default(), Some(0), Path::default());
    rig.start();
    assert!(rig.finish(ms(500)).is_some());
}

#[test]
fn what_is_here_already_is_not_fetched_again() {
    let mut have = RangeSet::new();
    have.insert(ByteRange::new(0, MB));
    have.insert(ByteRange::new(MB + 100_000, 2 * MB));
    let mut rig = Rig::with_request(3, Config::default(), Some(2 * MB + 5), Path::default(), have, FLOW);
    rig.start();
    assert!(rig.finish(ms(3_000)).is_some());
    assert_eq!(rig.fetched().stats().received_bytes, 100_005);
    assert_eq!(rig.server().source().reads, 100_005);
}

#[test]
fn clocks_hours_apart_change_nothing() {
    let run = |offsets: &[u64]| {
        let mut rig = Rig::chain(3, Config::default(), Some(3 * MB), Path { loss: 0.01, ..Path::default() });
        for (index, secs) in offsets.iter().enumerate() {
            rig.clock_offset[index] = ms(secs * 1_000);
        }
        rig.start();
        rig.finish(ms(10_000)).expect("finished")
    };
    assert_eq!(run(&[0, 0, 0, 0]), run(&[7_200, 3, 86_400, 1_000_000]));
}

/// The time of a whole transfer, which arrives within half a minute.
fn time_of_transfer(hops: usize, len: u64, path: Path) -> Duration {
    let mut rig = Rig::chain(hops, Config::default(), Some(len), path);
    rig.start();
    let took = rig.finish(ms(30_000)).expect("finished");
    assert_whole(&mut rig, len);
    took
}

/// Packets wait in the sockets of busy hosts, whose nodes are told times of arrival before those of their last departure.
#[test]
fn waits_in_sockets_of_busy_hosts_are_no_length_of_the_path() {
    let run = |turn| {
        let path = Path { delay: ms(2), rate: Rate::from_mbps(100), turn, ..Path::default() };
        time_of_transfer(3, 30 * MB, path).as_secs_f64()
    };
    let idle = run(ms(0));
    // 1.04 times as long; with the times at which they are handled in place of those of arrival 1.08, and 5.4 with turns of 10 ms.
    for (turn, most) in [(3, 1.05), (10, 1.9)] {
        let busy = run(ms(turn));
        assert!(busy <= most * idle, "turns of {turn} ms: {busy} s, {idle} s on idle hosts");
    }
}

/// Timers ring late there, too.
#[test]
fn hosts_that_run_every_few_milliseconds_lose_little() {
    let run = |turn| {
        let path = Path { delay: ms(2), rate: Rate::from_mbps(100), turn, timers: turn, ..Path::default() };
        time_of_transfer(3, 30 * MB, path).as_secs_f64()
    };
    let idle = run(ms(0));
    // 1.01 to 1.05 times as long; 4.4, 8.7, 13 and 17 times when a flow's own rate let two packets leave in a turn.
    for (turn, most) in [(1, 1.02), (2, 1.03), (3, 1.03), (4, 1.07)] {
        let busy = run(ms(turn));
        assert!(busy <= most * idle, "turns of {turn} ms: {busy} s, {idle} s on idle hosts");
    }
}

/// Bursts of late hosts wait in front of a fast near link for their own packets. They were taken for a queue, and where they were shorter
/// than an interval nothing was measured at all: 68 of 512 Mbit/s were granted for ever.
#[test]
fn the_bursts_of_late_hosts_are_no_queue() {
    for (delay, hops, most) in [(200, 1, 1.2), (10_000, 1, 1.2), (2_000, 2, 2.3), (200, 3, 3.4)] {
        let run = |turn| {
            let (rate, delay) = (Rate::from_mbps(512), Duration::from_micros(delay));
            let path = Path { delay, rate, turn, timers: turn, queue: ms(100), ..Path::default() };
            time_of_transfer(hops, 100 * MB, path).as_secs_f64()
        };
        let (idle, late) = (run(ms(0)), run(ms(4)));
        println!("{delay} us, {hops} hops: {:.2}", late / idle);
        assert!(late <= most * idle, "{delay} us, {hops} hops: {late} s, {idle} s on idle hosts");
    }
}

/// Random paths with loss, up to 512 Mbit/s. A node makes up for 128 KiB each time that it runs: at 512 Mbit/s half of what it loses in
/// 4 ms.
#[test]
fn hosts_that_run_every_few_milliseconds_cost_their_turns_on_any_path() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (rate, delay) =
            (Rate::from_bps(1_000_000 << rng.below(10)), Duration::from_micros(200 << rng.below(9)));
        let turn = Duration::from_micros(250 << rng.below(5));
        let path = Path {
            rate,
            delay,
            turn,
            timers: turn,
            loss: [0.0, 0.0, 0.01][rng.below(3) as usize],
            queue: ms(100),
            ..Path::default()
        };
        let hops = 1 + rng.below(3) as usize;
        let len = (20 * MB).min(path.rate.bytes_in(Duration::from_secs(5)));
        let took = time_of_transfer(hops, len, path);
        // The start takes some round trips of all hops, and the end one or two repairs.
        let carried = path.rate.time_for(len).max(path.turn.scaled(len, 128 << 10));
        let least = carried + (path.turn + path.delay).scaled(12 * hops as u64, 1);
        // Of 800 seeds the worst took 2.06 times as long, with turns of 4 ms; 1.52 with shorter ones.
        let most = if turn < ms(4) { (3, 2) } else { (2, 1) };
        assert!(
            took <= least.scaled(most.0, most.1),
            "seed {seed}, {hops} hops, turns of {turn:?}: {took:?}, {least:?}"
        );
    }
}

/// Ranges that the client asks of a new upstream at the moment of the change.
fn ranges_asked_of_a_new_upstream(epochs: bool) -> usize {
    let mut settings = Profile::Starhop.settings();
    settings.mechanisms.epochs = epochs;
    let config = Config::new(settings).expect("valid");
    let mut rig = Rig::chain(3, config, Some(MB), Path::default());
    rig.start();
    rig.run(ms(100), |_| false);
    let now = rig.now;
    rig.client().set_upstream(now, FLOW, addr(1));
    let (mut out, mut ranges) = (Vec::new(), 0);
    while rig.client().poll_transmit(now, &mut out).is_some() {
        if let Ok(Packet::Interest(interest)) = Packet::parse(packet(&out)) {
            ranges += interest.ranges.iter().count();
        }
        out.clear();
    }
    ranges
}

#[test]
fn only_with_epochs_a_new_upstream_is_asked_for_what_the_old_one_owes() {
    assert!(ranges_asked_of_a_new_upstream(true) > 0);
    assert_eq!(ranges_asked_of_a_new_upstream(false), 0);
}
