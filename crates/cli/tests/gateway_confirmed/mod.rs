//! `open = "confirmed"`: a client's SYN waits until the far side has connected.

use super::gateway_reload::renew;
use super::gateway_upgrade::upgrade;
use super::gateways::{HUB, LAN, SERVER, SITE, World};
use super::harness::{Test, timing};
use super::support::{Site, content};
use super::{SATELLITE, ask, echo_after_the_end};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use starhop_net::emu::Hop;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[Test] = &[
    ("a_confirmed_connection_begins_when_its_target_has_accepted", a_client_hears_when_the_target_accepts),
    ("a_refused_connection_never_begins_where_it_is_confirmed", a_refused_connection_never_begins),
    ("a_target_that_says_nothing_is_confirmed_by_nothing", a_silent_target_is_silent),
    (
        "a_syn_that_nobody_confirms_takes_the_plain_path_when_the_hub_is_gone",
        a_waiting_syn_passes_without_the_hub,
    ),
    ("many_connections_that_are_confirmed_keep_their_bytes", many_connections_keep_their_bytes),
    ("forged_syns_take_no_room_for_long_and_stop_nobody", forged_syns_stop_nobody),
    ("a_new_program_and_a_new_configuration_go_on_confirming", a_new_program_goes_on_confirming),
];

/// Connections to ports from 9000 to 9010 are confirmed, and others are not.
const CONFIRMED: &str = "[[policy]]\naction = \"split\"\nopen = \"confirmed\"\n\
                         ports = [9000, 9001, 9002, 9003, 9004, 9005, 9006, 9007, 9008, 9009, 9010]\n";

/// The path's round trip, in milliseconds.
const ROUND_TRIP: f64 = 50.8;

/// A world without loss, where the site confirms.
fn world() -> World {
    let world =
        World::over(Site::new(&[LAN, Hop { loss: 0.0, ..SATELLITE }, LAN]), "hold_seconds = 4\n", CONFIRMED);
    world.wait_for_peer(true);
    world
}

impl World {
    /// Connects within `limit`. Returns the milliseconds that it took, too.
    fn dial_within(&self, to: &str, limit: Span) -> (std::io::Result<TcpStream>, f64) {
        let (to, start): (SocketAddr, _) = (to.parse().expect("an address"), Instant::now());
        let client = &self.site.chain.hosts[self.client()];
        let done = client.run(move || TcpStream::connect_timeout(&to, limit)).expect("a thread");
        (done, start.elapsed().as_secs_f64() * 1e3)
    }
}

fn a_client_hears_when_the_target_accepts() {
    let world = world();
    world.serve(9000, echo_after_the_end);
    world.serve(9011, echo_after_the_end);
    world.serve(9001, |mut socket| {
        let peer = socket.peer_addr().map(|peer| peer.ip().to_canonical().to_string()).unwrap_or_default();
        let _ = socket.write_all(peer.as_bytes());
    });
    for (server, client) in [("10.77.0.1", "10.77.2.2"), ("[fd77::1]", "fd77:0:0:2::2")] {
        let (socket, confirmed) = world.dial_within(&format!("{server}:9000"), Span::from_secs(5));
        let question = content(1_000_000, 7);
        assert!(ask(socket.expect("a connection"), &question).expect("an answer") == question, "{server}");
        let end = world.flow_end();
        assert_eq!((&end["carried"], &end["reason"]), (&"split".into(), &"done".into()), "{end}");
        assert_eq!((&end["up_bytes"], &end["down_bytes"]), (&1_000_000.into(), &1_000_000.into()));
        let (socket, early) = world.dial_within(&format!("{server}:9011"), Span::from_secs(5));
        assert!(ask(socket.expect("a connection"), b"early").expect("an answer") == b"early");
        world.flow_end();
        println!(
            "     {server}: connected after {confirmed:.1} ms, and after {early:.1} ms where nothing is confirmed"
        );
        assert!(confirmed >= ROUND_TRIP && early < ROUND_TRIP / 2.0, "{confirmed} and {early} ms");
        let mut seen = String::new();
        let (socket, _) = world.dial_within(&format!("{server}:9001"), Span::from_secs(5));
        socket.expect("a connection").read_to_string(&mut seen).expect("a server that speaks first");
        assert_eq!(seen, client, "the server sees the client");
        assert_eq!(world.flow_end()["reason"], "done");
    }
    timing::measure(|| {
        let (socket, confirmed) = world.dial_within("10.77.0.1:9000", Span::from_secs(5));
        assert!(ask(socket.expect("a connection"), b"?").expect("an answer") == b"?");
        timing::unless(confirmed < 1.3 * ROUND_TRIP, || format!("connected after {confirmed} ms"))
    });
}

fn a_refused_connection_never_begins() {
    let world = world();
    for server in ["10.77.0.1", "[fd77::1]"] {
        let (done, after) = world.dial_within(&format!("{server}:9009"), Span::from_secs(5));
        assert_eq!(done.map(|_| ()).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{server}");
        println!("     {server}: refused after {after:.1} ms");
        assert!(after >= ROUND_TRIP, "{after} ms: it is the target's word");
        assert_eq!(world.flow_end()["reason"], "refused");
    }
    // No route leads there from the hub.
    world.run(HUB, "ip route add unreachable 10.77.0.77; ip -6 route add unreachable fd77::77");
    for target in ["10.77.0.77:9009", "[fd77::77]:9009"] {
        let (done, _) = world.dial_within(target, Span::from_secs(5));
        assert_eq!(done.map(|_| ()).unwrap_err().kind(), ErrorKind::HostUnreachable, "{target}");
        assert_eq!(world.flow_end()["reason"], "unreachable");
    }
}

fn a_silent_target_is_silent() {
    let world = world();
    world.run(
        SERVER,
        "nft 'add table inet mute; add chain inet mute in { type filter hook input priority 0; }; \
                       add rule inet mute in tcp dport 9008 drop'",
    );
    let (done, after) = world.dial_within("10.77.0.1:9008", Span::from_secs(4));
    assert_eq!(done.map(|_| ()).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(after >= 4_000.0, "{after} ms");
    // The client's kernel has sent three copies by now: there was one question for all of them.
    let end = world.flow_end();
    assert_eq!(end["reason"], "timed-out", "{end}");
    assert!((9.5..12.0).contains(&end["seconds"].as_f64().expect("a time")), "{end}");
}

fn a_waiting_syn_passes_without_the_hub() {
    let mut world = World::over(Site::new(&[LAN, SATELLITE, LAN]), "hold_seconds = 60\n", CONFIRMED);
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    world.hub = None;
    // The site does not know yet that its hub is gone: the SYN waits for a hub that never answers, for 2 s.
    let (socket, after) = world.dial_within("10.77.0.1:9000", Span::from_secs(10));
    println!("     connected by the plain path after {after:.0} ms");
    assert!((1_000.0..4_000.0).contains(&after), "{after} ms");
    assert!(ask(socket.expect("the plain path"), b"plain").expect("an answer") == b"plain");
    world.wait_for_peer(false);
    let (socket, after) = world.dial_within("10.77.0.1:9000", Span::from_secs(5));
    assert!(ask(socket.expect("the plain path"), b"plain").expect("an answer") == b"plain");
    assert!(after < 1_000.0, "{after} ms: a SYN that nobody can ask for passes at once");
    world.hub = Some(world.start(HUB, "hub.toml"));
    world.wait_for_peer(true);
    assert!(world.is_split(), "the hub is back");
    world.local = None;
    let (socket, after) = world.dial_within("10.77.0.1:9000", Span::from_secs(5));
    assert!(ask(socket.expect("the plain path"), b"plain").expect("an answer") == b"plain");
    println!("     without the gateway after {after:.0} ms");
    assert!(after < 1_000.0 && !world.has_rules(), "{after} ms");
}

fn many_connections_keep_their_bytes() {
    let world = World::over(Site::new(&[LAN, SATELLITE, LAN]), "", CONFIRMED);
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    // A socket belongs to the namespace where it was made.
    let make =
        || (0..200).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None)).collect::<Result<Vec<_>, _>>();
    let sockets = world.site.chain.hosts[world.client()].run(make).expect("a thread").expect("sockets");
    let to: SocketAddr = "10.77.0.1:9000".parse().expect("an address");
    let asking: Vec<_> = (0..)
        .zip(sockets)
        .map(|(n, socket)| {
            std::thread::spawn(move || {
                socket.connect(&to.into()).expect("a connection");
                let question = content(1_000 + 137 * n as usize, n);
                ask(socket.into(), &question).is_ok_and(|answer| answer == question)
            })
        })
        .collect();
    assert!(asking.into_iter().all(|asking| asking.join().expect("no panic")));
    let ways: Vec<Value> = (0..200).map(|_| world.flow_end()["carried"].clone()).collect();
    assert!(ways.iter().all(|way| way == "split"), "{ways:?}");
}

/// The sum of 16-bit words that IP and TCP have (RFC 1071).
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// A SYN without options, from an address of the client's network at which nobody is.
fn forged_syn(number: u16, to: SocketAddrV4) -> Vec<u8> {
    let (from, port) = (Ipv4Addr::new(10, 77, 2, 10 + (number % 200) as u8), 10_000 + number);
    let mut tcp = [&port.to_be_bytes()[..], &to.port().to_be_bytes(), &[7; 4], &[0; 4]].concat();
    tcp.extend([0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    let pseudo = [&from.octets()[..], &to.ip().octets(), &[0, 6, 0, 20]].concat();
    let sum = checksum(&[&pseudo, &tcp]);
    tcp[16..18].copy_from_slice(&sum);
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    ip.extend([from.octets(), to.ip().octets()].concat());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum);
    [ip, tcp].concat()
}

/// Nobody answers for forged SYNs: their targets accept, and the clients never do. Those that find no room here pass by.
fn forged_syns_stop_nobody() {
    let world = world();
    world.serve(9000, echo_after_the_end);
    let make = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255)));
    let raw = world.site.chain.hosts[world.client()].run(make).expect("a thread").expect("a socket");
    let flood = std::thread::spawn(move || {
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 9000);
        for number in 0..20_000 {
            let _ = raw.send_to(&forged_syn(number, to), &SocketAddr::V4(to).into());
            if number % 100 == 0 {
                std::thread::sleep(Span::from_millis(10));
            }
        }
    });
    let mut slowest: f64 = 0.0;
    for n in 0..10 {
        let (socket, after) = world.dial_within("10.77.0.1:9000", Span::from_secs(5));
        let question = content(3_000, n);
        assert!(ask(socket.expect("a connection"), &question).expect("an answer") == question);
        slowest = slowest.max(after);
    }
    flood.join().expect("no panic");
    let held = || world.run(HUB, "ss -tnH dport = :9000 | wc -l").trim().parse::<usize>().expect("a number");
    let (most, start) = (held(), Instant::now());
    while held() > 20 {
        assert!(start.elapsed() < Span::from_secs(20), "{} connections to the target stay", held());
        std::thread::sleep(Span::from_millis(200));
    }
    let refused = world.status(SITE, "local.toml")["refused"]["syns_not_asked"].as_u64();
    assert!(most <= 1_024 && refused.is_some_and(|refused| refused > 10_000), "{most} and {refused:?}");
    println!(
        "     10 clients beside 20,000 forged SYNs: connected within {slowest:.0} ms; {refused:?} SYNs passed by; \
         the hub's {most} connections were gone after {:?}",
        start.elapsed()
    );
    let (socket, _) = world.dial_within("10.77.0.1:9000", Span::from_secs(5));
    assert!(ask(socket.expect("a connection"), b"?").expect("an answer") == b"?");
}

fn a_new_program_goes_on_confirming() {
    let world = world();
    world.serve(9000, echo_after_the_end);
    let is_confirmed = || {
        let (socket, after) = world.dial_within("10.77.0.1:9000", Span::from_secs(5));
        assert!(ask(socket.expect("a connection"), b"?").expect("an answer") == b"?");
        assert_eq!(world.flow_end()["carried"], "split");
        after >= ROUND_TRIP
    };
    assert!(is_confirmed());
    let told = upgrade(world.local.as_ref());
    assert_eq!(told["event"], "ready", "{told}");
    std::thread::sleep(Span::from_millis(1_500));
    assert!(is_confirmed(), "the next program has the device");
    let set = |change: &dyn Fn(String) -> String| renew(&world, world.local.as_ref(), "local.toml", change);
    assert_eq!(set(&|text| text.replace("confirmed", "early"))["error"], Value::Null);
    std::thread::sleep(Span::from_millis(300));
    assert!(!is_confirmed(), "the new policy");
    assert_eq!(set(&|text| text.replace("early", "confirmed"))["error"], Value::Null);
    std::thread::sleep(Span::from_millis(300));
    assert!(is_confirmed(), "and the old one again");
    // A gateway that began without has no device for it.
    let plain = World::over(Site::new(&[LAN, SATELLITE, LAN]), "", "");
    plain.wait_for_peer(true);
    let told = renew(&plain, plain.local.as_ref(), "local.toml", |text| text + CONFIRMED);
    assert!(told["error"].as_str().is_some_and(|said| said.contains("takes a restart")), "{told}");
    assert!(plain.run(SITE, "ip link").contains("starhop4434p"), "it carries on");
}
