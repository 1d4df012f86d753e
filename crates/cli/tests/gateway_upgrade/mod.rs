//! New programs for gateways at work: nobody's connection ends, and a program that cannot go on changes nothing.

use super::gateways::{HUB, LAN, SITE, World};
use super::harness::Test;
use super::support::{Running, Site, content};
use super::{SATELLITE, ask, echo_after_the_end};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[Test] = &[
    ("a_new_program_at_either_end_ends_no_connection", a_new_program_ends_no_connection),
    ("a_new_program_ends_no_connection_of_the_plain_path", a_new_program_goes_on_past_the_peer),
    ("options_take_the_place_of_the_file_through_reload_and_upgrade", options_take_the_place_of_the_file),
    ("a_program_that_cannot_go_on_changes_nothing", a_program_that_cannot_go_on_changes_nothing),
    ("long_a_new_program_every_second_costs_no_byte", a_new_program_every_second),
];

impl World {
    /// Puts a program in the place of that of the gateway with this configuration.
    pub(super) fn give_program(&self, config: &str, program: &Path) {
        let (fresh, name) = (self.site.path("fresh"), self.site.path(&format!("{config}.bin")));
        std::fs::copy(program, &fresh).expect("to copy");
        std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).expect("to set");
        std::fs::rename(fresh, name).expect("to rename");
    }

    /// Gateways with programs of their own.
    fn upgradable(more: &str) -> Self {
        let addresses = ["10.77.1.1", "10.77.1.2"];
        let site = Site::new(&[LAN, SATELLITE, LAN]);
        let world = Self::with_programs(site, addresses, (more, "", ""), &["hub.toml", "local.toml"]);
        world.wait_for_peer(true);
        world
    }
}

/// Tells a gateway to go on as its new program. Returns its answer.
pub(super) fn upgrade(running: Option<&Running>) -> Value {
    let running = running.expect("it runs");
    running.process.signal(Signal::SIGUSR2).expect("it runs");
    let is_answer = |event: &Value| event["event"] == "ready" || event["event"] == "replace";
    running.wait("it took over, or not", is_answer)
}

/// A site without a file: its watchdog, a reload and its successor have the same options.
fn options_take_the_place_of_the_file() {
    let mut world = World::over(Site::new(&[LAN, SATELLITE, LAN]), "", "");
    world.wait_for_peer(true);
    drop(world.local.take());
    std::fs::remove_file(world.site.path("local.toml")).expect("a file");
    let mut command = world.command("local.toml");
    command.args(["--name", "site", "--key", "site.key", "--intercept", "down", "--port", "4999"]);
    command.args(["--peer", "hub=10.77.1.1:4433", "--max-connections", "100"]);
    world.local = Some(Running::start(&world.site.chain.hosts[SITE], command));
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    assert!(world.run(SITE, "nft list ruleset").contains("4999"), "the port of the option");
    let local = world.local.as_ref().expect("it runs");
    local.process.signal(Signal::SIGHUP).expect("it runs");
    let told = local.wait("it read again", |event| event["event"] == "reload");
    assert!(told["error"].is_null(), "{told}");
    let told = upgrade(world.local.as_ref());
    assert_eq!(told["event"], "ready", "{told}");
    world.wait_for_peer(true);
    assert!(world.is_split());
}

/// Answers each byte with the same byte.
fn echo(mut socket: TcpStream) {
    let mut buffer = [0; 1000];
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        if socket.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn exchange(socket: &mut TcpStream) {
    socket.write_all(b"ping").expect("to write");
    let mut answer = [0; 4];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"ping");
}

/// A process, and since when it runs: a program that takes over is the same process.
fn identity(running: Option<&Running>) -> String {
    let id = running.expect("it runs").process.id();
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it lives");
    let start = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).unwrap_or_default();
    format!("{id} {start}")
}

fn a_new_program_ends_no_connection() {
    let world = World::upgradable("hold_seconds = 10\n");
    world.serve(9000, echo_after_the_end);
    world.serve(9007, echo);
    let mut idle = [world.connect(9007), world.dial("[fd77::1]:9007").expect("a connection")];
    idle.iter_mut().for_each(exchange);
    let asking = |seed: u64, len: usize| {
        let socket = world.connect(9000);
        std::thread::spawn(move || {
            let question = content(len, seed);
            ask(socket, &question).is_ok_and(|answer| answer == question)
        })
    };
    let (bulk, before) = (asking(1, 7_000_000), [&world.hub, &world.local].map(|at| identity(at.as_ref())));
    for round in 0..3 {
        std::thread::sleep(Span::from_millis(200));
        let (name, running) = match round % 2 {
            0 => ("local.toml", world.local.as_ref()),
            _ => ("hub.toml", world.hub.as_ref()),
        };
        world.give_program(name, Path::new(env!("CARGO_BIN_EXE_starhop")));
        // It begins before the change and ends after it.
        let short = asking(10 + round, 500_000);
        let start = Instant::now();
        let told = upgrade(running);
        println!("     round {round}: {told} after {:?}", start.elapsed());
        assert!(told["taken_over"].as_u64() >= Some(3), "{told}");
        let fresh = asking(20 + round, 1_000);
        assert!(short.join().expect("no panic"), "across the change");
        assert!(fresh.join().expect("no panic"), "a connection of the new program");
        idle.iter_mut().for_each(exchange);
    }
    assert!(bulk.join().expect("no panic"), "all bytes, across three changes");
    assert!(world.is_split() && world.has_rules());
    let after = [&world.hub, &world.local].map(|at| identity(at.as_ref()));
    assert_eq!(before, after, "the processes are the same");
    for host in [HUB, SITE] {
        assert_eq!(world.run(host, "nft list tables | grep -c starhop_gateway").trim(), "1", "host {host}");
    }
    idle.into_iter().for_each(drop);
}

/// The site has room for one connection; others are past its peer.
fn a_new_program_goes_on_past_the_peer() {
    let world = World::upgradable("hold_seconds = 10\nmax_connections = 1\n");
    world.serve(9000, echo_after_the_end);
    world.serve(9007, echo);
    let mut split = world.connect(9007);
    exchange(&mut split);
    let mut plain = [world.connect(9007), world.dial("[fd77::1]:9007").expect("a connection")];
    plain.iter_mut().for_each(exchange);
    // Bytes that a socket does not take yet wait in the gateway: nobody reads the answer before the change.
    let mut slow = world.connect(9000);
    let question = content(2_000_000, 8);
    let mut writer = slow.try_clone().expect("a socket");
    let asking = {
        let question = question.clone();
        std::thread::spawn(move || {
            writer.write_all(&question).and_then(|()| writer.shutdown(std::net::Shutdown::Write))
        })
    };
    for round in 0..2 {
        std::thread::sleep(Span::from_millis(700));
        let told = upgrade(world.local.as_ref());
        assert_eq!(told["taken_over"], 4, "round {round}: {told}");
        plain.iter_mut().for_each(exchange);
        exchange(&mut split);
    }
    asking.join().expect("no panic").expect("all of the question");
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).expect("all of the answer");
    assert!(answer == question, "{} bytes of {}", answer.len(), question.len());
    let end = world.flow_end();
    assert_eq!((&end["carried"], &end["reason"]), (&"plain".into(), &"done".into()), "{end}");
    assert_eq!((&end["up_bytes"], &end["down_bytes"]), (&2_000_000.into(), &2_000_000.into()), "{end}");
    // A user's reset is a reset, and an end is an end, in the program after the change, too.
    let [mut ended, reset] = plain;
    ended.shutdown(std::net::Shutdown::Write).expect("to end");
    assert_eq!(ended.read(&mut [0]).expect("the server's end"), 0);
    assert_eq!(world.flow_end()["reason"], "done");
    socket2::SockRef::from(&reset).set_linger(Some(Span::ZERO)).expect("an option");
    drop(reset);
    assert_eq!(world.flow_end()["reason"], "reset");
}

fn a_program_that_cannot_go_on_changes_nothing() {
    let world = World::upgradable("hold_seconds = 10\n");
    world.serve(9000, echo_after_the_end);
    world.serve(9007, echo);
    let mut idle = world.connect(9007);
    exchange(&mut idle);
    let script = |text: &str| {
        let path = world.site.path("script");
        std::fs::write(&path, text).expect("a file");
        path
    };
    let answer = |wanted: &str| {
        for (running, name) in [(&world.local, "local"), (&world.hub, "hub")] {
            let told = upgrade(running.as_ref());
            let error = told["error"].as_str().unwrap_or_default();
            assert!(told["event"] == "replace" && error.contains(wanted), "{name}: {told}");
        }
    };
    let give =
        |program: &Path| ["local.toml", "hub.toml"].iter().for_each(|name| world.give_program(name, program));
    give(Path::new("/bin/true"));
    answer("cannot go on");
    give(&script("#!/bin/sh\necho broken >&2; exit 3\n"));
    answer("broken");
    give(&script("no program at all"));
    answer("cannot start");
    exchange(&mut idle);
    // A program that says that it can, and cannot be started then: the connections are taken back.
    let one_trial = "#!/bin/sh\ncat >/dev/null; echo can take over; chmod 000 \"$0\"\n";
    give(&script(one_trial));
    if nix::unistd::geteuid().is_root() {
        // Root may read it still, but nobody may execute it.
        answer("Permission denied");
    }
    exchange(&mut idle);
    assert!(world.is_split());
    // A configuration that needs a restart, or is wrong, is found by the trial as well.
    give(Path::new(env!("CARGO_BIN_EXE_starhop")));
    let path = world.site.path("local.toml");
    let right = std::fs::read_to_string(&path).expect("a file");
    for (more, wanted) in [("port = 9999\n", "takes a restart"), ("nonsense = 1\n", "nonsense")] {
        std::fs::write(&path, format!("{more}{right}")).expect("a file");
        let told = upgrade(world.local.as_ref());
        assert!(told["error"].as_str().is_some_and(|error| error.contains(wanted)), "{told}");
    }
    std::fs::write(&path, right).expect("a file");
    exchange(&mut idle);
    assert_eq!(upgrade(world.local.as_ref())["taken_over"], 1);
    exchange(&mut idle);
    assert!(world.is_split());
}

fn a_new_program_every_second() {
    let world = World::upgradable("hold_seconds = 10\n");
    world.serve(9000, echo_after_the_end);
    let start = Instant::now();
    let socket = world.connect(9000);
    let bulk = std::thread::spawn(move || {
        let question = content(40_000_000, 1);
        ask(socket, &question).is_ok_and(|answer| answer == question)
    });
    let mut changes = 0;
    while !bulk.is_finished() {
        std::thread::sleep(Span::from_secs(1));
        for running in [&world.local, &world.hub] {
            assert!(upgrade(running.as_ref())["taken_over"].is_u64());
            changes += 1;
        }
        let question = content(100_000, changes);
        assert!(ask(world.connect(9000), &question).expect("an answer") == question);
    }
    assert!(bulk.join().expect("no panic"));
    println!("     40 MB there and back with {changes} changes of program: {:?}", start.elapsed());
}
