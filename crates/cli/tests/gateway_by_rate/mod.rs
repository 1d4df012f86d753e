//! Gateways between which connections travel by the rate-based protocol of connection splitting.

use super::gateways::{LAN, SITE, World};
use super::harness::Test;
use super::support::{Site, content};
use super::{ask, echo_after_the_end};
use nix::sys::signal::Signal;
use starhop_net::emu::Hop;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[Test] = &[
    ("by_rate_bytes_are_whole_over_geo_with_loss", bytes_are_whole_over_geo_with_loss),
    ("by_rate_the_link_is_full_and_its_rate_kept", the_link_is_full_and_its_rate_kept),
    ("by_rate_refusals_and_resets_are_told", refusals_and_resets_are_told),
    ("by_rate_a_dead_hub_is_a_reset_and_no_clean_end", a_dead_hub_is_a_reset),
    ("by_rate_a_new_program_ends_no_connection", a_new_program_ends_no_connection),
    ("by_rate_a_peer_that_does_not_speak_it_is_passed_by", a_peer_that_does_not_speak_it_is_passed_by),
    ("by_rate_many_connections_at_once_keep_their_bytes", many_connections_keep_their_bytes),
    ("by_rate_a_path_of_short_packets_works", a_path_of_short_packets_works),
];

const GEO: Hop = Hop { rate: Rate::from_mbps(20), delay: Duration::from_millis(270), loss: 0.0, queue: 930 };
/// The link's rate without the Ethernet header of the emulated device.
const RATES: &str = "hold_seconds = 4\nlink_rate_in_bits = 19500000\nlink_rate_out_bits = 19500000\n";
const BY_RATE: &str = "protocol = \"rate-split\"\n";

impl World {
    /// A world over a satellite, whose gateways have these lines for each other.
    fn by_rate(hop: Hop, [of_hub, of_site]: [&str; 2], own_programs: &[&str]) -> Self {
        let site = Site::new(&[LAN, hop, LAN]);
        let world =
            Self::with_programs(site, ["10.77.1.1", "10.77.1.2"], (RATES, of_site, of_hub), own_programs);
        if of_hub == of_site {
            world.wait_for_peer(true);
        }
        world
    }

    /// Segments that the hub sent to the site, and those that it had sent before.
    fn segments(&self) -> [u64; 2] {
        let status = self.status(super::HUB, "hub.toml");
        let segments = &status["sites"][0]["segments"];
        ["sent", "repeated"].map(|field| segments[field].as_u64().unwrap_or_default())
    }
}

fn bytes_are_whole_over_geo_with_loss() {
    for loss in [0.0, 0.01] {
        let world = World::by_rate(Hop { loss, ..GEO }, [BY_RATE; 2], &[]);
        world.serve(9000, echo_after_the_end);
        let question = content(1_500_000, 5);
        for server in ["10.77.0.1", "[fd77::1]"] {
            let socket = world.dial(&format!("{server}:9000")).expect("a connection");
            let answer = ask(socket, &question).expect("an answer");
            assert!(answer == question, "{server}, loss {loss}: {} bytes", answer.len());
            let end = world.flow_end();
            assert_eq!((&end["carried"], &end["reason"]), (&"split".into(), &"done".into()), "{end}");
        }
        let [sent, repeated] = world.segments();
        assert!(sent > 2_000 && (repeated > 0) == (loss > 0.0), "{sent} segments, {repeated} of them again");
    }
}

fn the_link_is_full_and_its_rate_kept() {
    let world = World::by_rate(Hop { loss: 0.001, ..GEO }, [BY_RATE; 2], &[]);
    world.serve(9001, |mut socket| _ = socket.write_all(&content(10_000_000, 3)));
    let (start, mut bytes) = (Instant::now(), Vec::new());
    world.connect(9001).read_to_end(&mut bytes).expect("all of it");
    let took = start.elapsed();
    assert!(bytes == content(10_000_000, 3), "{} bytes", bytes.len());
    let [sent, repeated] = world.segments();
    println!("10 MB took {took:?}: {sent} segments, {repeated} of them again");
    // 4.5 s at 19.5 Mbit/s with headers, a round trip of 0.54 s, and a repair's.
    assert!(took < Span::from_millis(6_600), "{took:?}");
    // A queue that ran over would have lost far more than one in a thousand.
    assert!(repeated < sent / 100, "{repeated} of {sent} segments were sent again");
}

fn refusals_and_resets_are_told() {
    let world = World::by_rate(Hop { loss: 0.01, ..GEO }, [BY_RATE; 2], &[]);
    let error = world.connect(9999).read(&mut [0; 10]).expect_err("nobody listens there");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(world.flow_end()["reason"], "refused");
    world.serve(9003, |mut socket| {
        let _ = socket.write_all(&content(100_000, 1));
        std::thread::sleep(Span::from_millis(300));
        let _ = socket2::SockRef::from(&socket).set_linger(Some(Span::ZERO));
    });
    let error =
        world.connect(9003).read_to_end(&mut Vec::new()).expect_err("a truncated answer is no clean end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(world.flow_end()["reason"], "reset");
}

fn a_dead_hub_is_a_reset() {
    let mut world = World::by_rate(GEO, [BY_RATE; 2], &[]);
    world.serve(9001, |mut socket| _ = socket.write_all(&content(30_000_000, 3)));
    let mut socket = world.connect(9001);
    socket.read_exact(&mut [0; 100_000]).expect("the first bytes");
    drop(world.hub.take());
    let error = socket.read_to_end(&mut Vec::new()).expect_err("a truncated answer is no clean end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(world.flow_end()["reason"], "peer-lost");
}

fn a_new_program_ends_no_connection() {
    let world = World::by_rate(Hop { loss: 0.01, ..GEO }, [BY_RATE; 2], &["hub.toml", "local.toml"]);
    world.serve(9001, |mut socket| _ = socket.write_all(&content(8_000_000, 3)));
    world.serve(9000, echo_after_the_end);
    let mut down = world.connect(9001);
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        down.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut up = world.connect(9000);
    let question = content(400_000, 7);
    up.write_all(&question[..200_000]).expect("to write");
    for running in [&world.hub, &world.local] {
        std::thread::sleep(Span::from_secs(1));
        let running = running.as_ref().expect("it runs");
        running.process.signal(Signal::SIGUSR2).expect("it runs");
        running.wait("it took over", |event| event["event"] == "ready");
    }
    up.write_all(&question[200_000..]).expect("to write");
    up.shutdown(Shutdown::Write).expect("to end");
    let mut answer = Vec::new();
    up.read_to_end(&mut answer).expect("an answer");
    assert!(answer == question, "{} bytes", answer.len());
    let bytes = reading.join().expect("no panic").expect("no reset");
    assert!(bytes == content(8_000_000, 3), "{} bytes", bytes.len());
}

fn a_peer_that_does_not_speak_it_is_passed_by() {
    for lines in [["", BY_RATE], [BY_RATE, ""]] {
        let world = World::by_rate(Hop { delay: Duration::from_millis(25), ..GEO }, lines, &[]);
        world.serve(9000, echo_after_the_end);
        std::thread::sleep(Span::from_secs(2));
        let question = content(50_000, 5);
        let answer = ask(world.connect(9000), &question).expect("an answer");
        assert!(answer == question, "{} bytes", answer.len());
    }
}

fn many_connections_keep_their_bytes() {
    let world = World::by_rate(Hop { loss: 0.005, ..GEO }, [BY_RATE; 2], &[]);
    world.serve(9000, echo_after_the_end);
    let start = Instant::now();
    let sockets: Vec<_> = (0..500).map(|_| world.connect(9000)).collect();
    let asking: Vec<_> = (sockets.into_iter().enumerate())
        .map(|(n, socket)| {
            std::thread::spawn(move || {
                let question = content(500 + 31 * n, n as u64);
                ask(socket, &question).is_ok_and(|answer| answer == question)
            })
        })
        .collect();
    let right =
        asking.into_iter().filter_map(|thread| thread.join().ok()).filter(|is_right| *is_right).count();
    assert_eq!(right, 500);
    println!("500 connections of 0.5 to 16 kB took {:?}", start.elapsed());
}

/// The path drops packets above 1,280 bytes without a word.
fn a_path_of_short_packets_works() {
    let site = Site::new(&[LAN, GEO, LAN]);
    let shorten = "nft add table inet short && nft 'add chain inet short pass { type filter hook prerouting priority -300; }' \
                   && nft 'add rule inet short pass udp dport 4433 meta length > 1280 drop'";
    let lines = (RATES, BY_RATE, BY_RATE);
    let world = World::with_programs(site, ["10.77.1.1", "10.77.1.2"], lines, &[]);
    for host in [super::HUB, SITE] {
        world.run(host, shorten);
    }
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    let question = content(300_000, 5);
    let answer = ask(world.connect(9000), &question).expect("an answer");
    assert!(answer == question, "{} bytes", answer.len());
    assert_eq!(world.flow_end()["carried"], "split");
}
