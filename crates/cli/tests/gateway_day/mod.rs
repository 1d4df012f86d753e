//! A day of mixed traffic, compressed: users come and go in all ways, and the gateways keep no more than they had.

use super::gateway_crowd::Needs;
use super::gateways::{CLIENT, LAN, SERVER, World};
use super::harness::Test;
use super::support::{Site, content};
use super::{SATELLITE, ask, echo_after_the_end};
use nix::sys::signal::Signal;
use starhop_proto::rng::Rng;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[Test] = &[
    ("mixed_traffic_leaves_nothing_behind", || mixed(Span::from_secs(3))),
    ("long_a_day_of_mixed_traffic_leaves_nothing_behind", || mixed(Span::from_secs(300))),
];

/// Connections to port 9020 are confirmed, those to 9001 pass, and the rest is split or carried.
const POLICIES: &str = "[[policy]]\naction = \"split\"\nopen = \"confirmed\"\nports = [9020]\n\
                        [[policy]]\naction = \"pass\"\nprotocol = \"tcp\"\nports = [9001]\n";
const USERS: u64 = 12;
/// Time after which nothing of the last connections is left, and memory has gone back.
const CALM: Span = Span::from_secs(4);
/// Sockets that a gateway keeps ready for new connections, at most: 17 of each IP version.
const READY: usize = 34;
/// Growth that is none: the heap's own, and what a later quarter needed at once.
const MOST_GROWTH: u64 = 3 << 20;

/// Four quarters of `quarter` each, with a pause after each; a new configuration is read in the middle of them.
fn mixed(quarter: Span) {
    let world = World::over(Site::new(&[LAN, SATELLITE, LAN]), "hold_seconds = 10\n", POLICIES);
    world.wait_for_peer(true);
    [9000, 9001, 9020].into_iter().for_each(|port| world.serve(port, echo_after_the_end));
    world.serve(9003, |mut socket| {
        let _ = socket.write_all(&content(20_000, 1));
        let _ = socket2::SockRef::from(&socket).set_linger(Some(Span::ZERO));
    });
    let bind = || UdpSocket::bind("[::]:5000");
    let echo = world.site.chain.hosts[SERVER].run(bind).expect("a thread").expect("a port");
    std::thread::spawn(move || {
        let mut buffer = [0; 2_000];
        while let Ok((len, from)) = echo.recv_from(&mut buffer) {
            let _ = echo.send_to(&buffer[..len], from);
        }
    });
    let mut samples = Vec::new();
    for round in 0..4 {
        let until = Instant::now() + quarter;
        let users: Vec<_> = (0..USERS)
            .map(|user| {
                let work = move || a_user(round * USERS + user, until);
                world.site.chain.hosts[CLIENT].thread(work).expect("a thread")
            })
            .collect();
        std::thread::sleep(quarter / 2);
        for running in [&world.hub, &world.local].into_iter().flatten() {
            running.process.signal(Signal::SIGHUP).expect("it runs");
        }
        let mut done: BTreeMap<&str, u64> = BTreeMap::new();
        for user in users {
            for (what, count) in user.join().expect("no panic").expect("to enter") {
                *done.entry(what).or_default() += count;
            }
        }
        std::thread::sleep(CALM);
        let needs = Needs::of_both(&world);
        println!(
            "     quarter {round}: {done:?}; hub and site have {:?} KiB, {:?} descriptors",
            needs.map(|needs| needs.bytes >> 10),
            needs.map(|needs| needs.descriptors)
        );
        assert!(done.values().sum::<u64>() > USERS, "{done:?}");
        samples.push(needs);
    }
    for (first, last) in samples[0].iter().zip(&samples[3]) {
        let (before, after) = (first.descriptors, last.descriptors);
        assert!(after <= before + READY, "{before} descriptors, and {after} later");
        assert!(last.bytes <= first.bytes + MOST_GROWTH, "{} bytes, and {} later", first.bytes, last.bytes);
    }
}

/// A user of many kinds until a point in time. Returns how often it did what; bytes that came are compared.
fn a_user(seed: u64, until: Instant) -> BTreeMap<&'static str, u64> {
    let (mut rng, mut done) = (Rng::new(seed), BTreeMap::new());
    while Instant::now() < until {
        let chance = rng.next_u64();
        let host = if chance & 1 == 0 { "10.77.0.1" } else { "[fd77::1]" };
        let exchange = |port: u16, len: u64| {
            let question = content(len as usize, chance);
            let answer = ask(dial(host, port), &question).unwrap_or_else(|error| panic!("{port}: {error}"));
            assert!(answer == question, "{port}: {} bytes of {len}", answer.len());
        };
        let what = match (chance >> 8) % 20 {
            0..10 => {
                exchange(9000, chance % 50_000);
                "short"
            }
            10 | 11 => {
                exchange(9000, 500_000);
                "long"
            }
            12 | 13 => {
                exchange(9020, chance % 50_000);
                "confirmed"
            }
            14 => {
                exchange(9001, chance % 5_000);
                "passed"
            }
            15 => {
                let mut socket = dial(host, 9000);
                socket.write_all(&content(10_000, chance)).expect("to write");
                socket2::SockRef::from(&socket).set_linger(Some(Span::ZERO)).expect("an option");
                "reset here"
            }
            16 => {
                let error = dial(host, 9003).read_to_end(&mut Vec::new()).expect_err("a reset is no end");
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                "reset there"
            }
            17 => {
                let error = dial(host, 9999).read(&mut [0]).expect_err("nobody listens there");
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                "refused"
            }
            _ => {
                datagrams(host);
                "datagrams"
            }
        };
        *done.entry(what).or_default() += 1;
    }
    done
}

fn dial(host: &str, port: u16) -> TcpStream {
    let to: SocketAddr = format!("{host}:{port}").parse().expect("an address");
    let socket = TcpStream::connect_timeout(&to, Span::from_secs(20)).expect("a connection");
    socket.set_read_timeout(Some(Span::from_secs(60))).expect("an option");
    socket
}

/// Ten datagrams and their answers: some may be lost, and none is another's.
fn datagrams(host: &str) {
    let socket = UdpSocket::bind("[::]:0").expect("a port");
    let to: SocketAddr = format!("{host}:5000").parse().expect("an address");
    let to = match to {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        v6 @ SocketAddr::V6(_) => v6,
    };
    socket.set_read_timeout(Some(Span::from_millis(300))).expect("an option");
    for n in 0..10_u8 {
        socket.send_to(&[n; 700], to).expect("a route");
    }
    let mut buffer = [0; 2_000];
    while let Ok((len, _)) = socket.recv_from(&mut buffer) {
        assert!(len == 700 && buffer[0] < 10 && buffer[..len].iter().all(|byte| *byte == buffer[0]));
    }
}
