//! Keys of gateways are replaced, by the guide's three steps, while a user's connection is carried.

use super::gateways::{HUB, LAN, SITE, World};
use super::support::Running;
use super::{SATELLITE, echo_after_the_end, harness};
use crate::support::{Site, content};
use nix::sys::signal::Signal;
use starhop_net::clock::STEPS;
use std::fs::{File, read_to_string};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[harness::Test] = &[
    ("a_key_is_rotated_under_a_connection", a_key_is_rotated),
    ("keys_of_gateways_are_rotated_under_a_connection", keys_of_gateways_are_rotated),
    ("a_roster_that_ends_while_gateways_run_ends_their_trust", a_roster_ends_while_gateways_run),
];

/// The logs of the hub and of the site.
const LOGS: [&str; 2] = ["hub.log", "local.log"];
/// Longer than the gateways wait for a silent peer, and than two of their looks at the roster.
const HOLD: Span = Span::from_secs(5);

/// Five seconds of the satellite's rate.
const LENGTH: usize = 30_000_000;

fn send_all(mut socket: TcpStream) {
    let _ = socket.write_all(&content(LENGTH, 9));
}

/// The bytes that a client received, and the longest time in which nothing came.
fn receive(mut socket: TcpStream) -> (Vec<u8>, Span) {
    let (mut bytes, mut part, mut longest) = (Vec::new(), vec![0; 1 << 16], Span::ZERO);
    let mut last = Instant::now();
    while let Ok(count @ 1..) = socket.read(&mut part) {
        longest = longest.max(last.elapsed());
        last = Instant::now();
        bytes.extend_from_slice(&part[..count]);
    }
    (bytes, longest)
}

/// Takes the three steps while a client downloads. Each is `step`'s, and then told to both gateways. A hub that starts after
/// them has the new keys alone.
fn rotate_under_a_connection(world: &mut World, step: impl Fn(&World, &dyn Fn(), usize)) {
    world.serve(9000, echo_after_the_end);
    world.serve(9008, send_all);
    let socket = world.connect(9008);
    let receiving = std::thread::spawn(move || receive(socket));
    let reload = || {
        let running = [&world.hub, &world.local].map(|gateway| gateway.as_ref().expect("it runs"));
        running.iter().for_each(|Running { process, .. }| process.signal(Signal::SIGHUP).expect("it runs"));
    };
    for index in 0..3 {
        std::thread::sleep(Span::from_millis(1000));
        step(world, &reload, index);
    }
    assert!(!receiving.is_finished(), "the connection was over before the keys were replaced");
    let (bytes, longest) = receiving.join().expect("a thread");
    println!("     longest stall: {} ms", longest.as_millis());
    assert!(bytes == content(LENGTH, 9), "{} bytes arrived", bytes.len());
    assert!(longest < Span::from_secs(1), "nothing came for {longest:?}");
    assert_eq!(world.flow_end()["carried"], "split");
    world.hub = None;
    world.hub = Some(world.start(HUB, "hub.toml"));
    world.wait_for_peer(true);
    assert!(world.is_split(), "the site derives the session from the new keys, too");
}

fn a_key_is_rotated() {
    let mut world = World::new();
    rotate_under_a_connection(&mut world, |world, reload, _| {
        world.site.key(&["rotate", "site.key"]);
        reload();
    });
}

/// Each gateway has a key of its own. The roster is signed once more in all, when both keys of each are known.
fn keys_of_gateways_are_rotated() {
    let mut world = on_a_roster();
    rotate_under_a_connection(&mut world, |world, reload, index| {
        GATEWAYS.iter().for_each(|(name, _)| drop(world.site.key(&["rotate", name])));
        reload();
        if index == 0 {
            enrol(&world.site, &[]);
            reload();
        }
    });
}

const GATEWAYS: [(&str, &str); 2] = [("hub.key", "10.77.1.1:4433"), ("local.key", "10.77.1.2:4433")];

/// Puts both gateways on the roster, with all their public keys, and signs it with more arguments.
fn enrol(site: &Site, sign: &[&str]) {
    GATEWAYS.iter().for_each(|(name, address)| site.enrol(name, Some(address)));
    site.key_verb("roster", &[&["sign", "r", "--authority", "authority"], sign].concat());
}

/// A roster for an hour, and clocks that jump: by ten minutes, and then beyond the grace of a day. A new roster brings the
/// peer back, so that it was not the jump that put it out.
fn a_roster_ends_while_gateways_run() {
    const HOUR: i64 = 3_600_000_000_000;
    let steps = format!("{},{}", HOUR / 6, 25 * HOUR);
    let environment = [(STEPS.expect("a build for tests"), steps.as_str())];
    let world = on_a_roster_with(&["--valid", "1h"], &environment);
    let gateways = || [&world.hub, &world.local].map(|gateway| &gateway.as_ref().expect("it runs").process);
    let tell = |signal| gateways().iter().for_each(|process| process.signal(signal).expect("it runs"));
    let told = |word: &str| {
        LOGS.map(|log| read_to_string(world.site.path(log)).expect("a log").matches(word).count())
    };
    world.serve(9000, echo_after_the_end);
    tell(Signal::SIGURG);
    std::thread::sleep(HOLD);
    assert!(world.is_split(), "the roster holds for 50 minutes more");
    assert_eq!(told("believes nobody"), [0; 2]);
    tell(Signal::SIGURG);
    world.wait_for_peer(false);
    assert!(!world.is_split(), "connections take the plain path");
    std::thread::sleep(HOLD);
    assert_eq!(told("this node believes nobody until it has a new one"), [1; 2], "each says so, and once");
    enrol(&world.site, &[]);
    tell(Signal::SIGHUP);
    world.wait_for_peer(true);
    assert!(world.is_split(), "there is a new one");
}

fn on_a_roster() -> World {
    on_a_roster_with(&[], &[])
}

/// Gateways with a roster that is signed with more arguments, and with variables for the gateways.
fn on_a_roster_with(sign: &[&str], environment: &[(&str, &str)]) -> World {
    let site = Site::new(&[LAN, SATELLITE, LAN]);
    site.key_verb("roster", &["init", "r", "--authority", "authority", "--domain", "d"]);
    for (name, _) in GATEWAYS {
        site.key(&["new", name, "--node", "--authority", "authority", "--domain", "d"]);
    }
    enrol(&site, sign);
    let configs =
        [("hub", "site", "10.77.1.2", ""), ("site", "hub", "10.77.1.1", "intercept = [\"down\"]\n")];
    for ((name, peer, address, more), file) in configs.into_iter().zip(["hub", "local"]) {
        let text = format!(
            "name = \"{name}\"\nkey = \"{file}.key\"\nroster = \"r\"\nend_key = \"site.key\"\nhold_seconds = 4\n\
             congestion = \"cubic\"\n{more}[[peer]]\nname = \"{peer}\"\naddress = \"{address}:4433\"\n"
        );
        std::fs::write(site.path(&format!("{file}.toml")), text).expect("a file");
    }
    let mut world = World { site, hub: None, local: None };
    let start = |host: usize, config: &str, log: &str| {
        let mut command = world.command(config);
        command.envs(environment.iter().copied()).stderr(File::create(world.site.path(log)).expect("a file"));
        Some(Running::start(&world.site.chain.hosts[host], command))
    };
    let [hub, local] = LOGS;
    (world.hub, world.local) = (start(HUB, "hub.toml", hub), start(SITE, "local.toml", local));
    world.wait_for_peer(true);
    world
}
