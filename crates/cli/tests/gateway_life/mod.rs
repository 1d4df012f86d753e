//! The life of gateways: whatever ends, hangs, is cut or starts anew, bytes are right and ends are true.

use super::gateway_reload::renew;
use super::gateways::{CLIENT, HUB, LAN, SERVER, SITE, World};
use super::harness::Test;
use super::support::{Running, Site, content};
use super::{SATELLITE, ask, echo_after_the_end};
use nix::sys::signal::Signal;
use starhop_net::emu::Hop;
use starhop_proto::time::Duration;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration as Span, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("another_hub_takes_over_from_a_dead_one_and_gives_back", another_hub_takes_over),
    ("a_path_of_1280_bytes_is_noticed_and_carries_everything", a_narrow_path_is_noticed),
    ("doctor_knows_a_live_gateways_table_from_anothers_rules", doctor_knows_a_live_gateways_table),
    ("a_hung_hub_is_passed_by_until_it_goes_on", a_hung_hub_is_passed_by),
    ("the_class_of_a_connection_is_kept_both_ways", the_class_of_a_connection_is_kept),
    ("a_reset_at_any_point_is_a_reset_over_both_ip_versions", a_reset_at_any_point_is_a_reset),
    ("gateways_know_each_other_by_ipv6_addresses", gateways_speak_ipv6),
    ("an_outage_of_two_seconds_costs_no_byte", || outage_costs_no_byte(2)),
    ("long_an_outage_of_ten_seconds_costs_no_byte", || outage_costs_no_byte(10)),
    ("long_an_outage_of_a_minute_costs_no_byte", || outage_costs_no_byte(60)),
    ("a_relay_between_gateways_may_be_killed_and_start_anew", a_relay_may_be_killed),
    ("long_ten_thousand_connections_leave_nothing_behind", ten_thousand_connections_leave_nothing),
    ("long_a_reader_that_takes_nothing_for_a_minute_gets_everything_then", a_reader_pauses_for_a_minute),
];

/// Before, beside and after the rule of another program that takes users' packets.
fn doctor_knows_a_live_gateways_table() {
    let world = World::new();
    let port = world.status(SITE, "local.toml")["listen"].as_str().map_or(String::new(), |listen| {
        listen.rsplit_once(':').map_or(String::new(), |(_, port)| port.to_owned())
    });
    let here = world.site.path("");
    let doctor = || {
        let line = format!(
            "cd '{}'; mkdir -p run; ln -sf ../local.toml.sock run/gateway-{port}.1.sock; \
             STARHOP_RUNTIME_DIR=run '{}' doctor --gateway local.toml",
            here.display(),
            env!("CARGO_BIN_EXE_starhop")
        );
        world.run(SITE, &line)
    };
    let alone = doctor();
    assert!(alone.contains("firewall: ok: packets are diverted by `starhop_gateway"), "{alone}");
    // Not every machine has the descriptors; the process that runs is asked, and not this shell.
    assert!(alone.contains("gateway local.toml: ") && !alone.contains("it does not run"), "{alone}");
    let taker = "nft add table inet theirs; nft add chain inet theirs in '{ type filter hook prerouting priority -160; }'; \
                 nft add rule inet theirs in tcp dport 9000 drop";
    world.run(SITE, taker);
    let beside = doctor();
    assert!(beside.contains("chain `inet theirs in` diverts, marks or drops packets"), "{beside}");
    world.run(SITE, "nft delete table inet theirs");
    let after = doctor();
    assert!(after.contains("firewall: ok"), "{after}");
}

/// Connections that ended at a hub since somebody asked.
fn ended_at(hub: &Running) -> usize {
    std::thread::sleep(Span::from_millis(200));
    hub.events.try_iter().filter(|event| event["event"] == "flow").count()
}

fn another_hub_takes_over() {
    let second = "name = \"second\"\nkey = \"site.key\"\nlisten = \"[::]:4435\"\nport = 4436\n\
                  [[peer]]\nname = \"site\"\naddress = \"10.77.1.2:4433\"\n";
    let path = Site::new(&[LAN, SATELLITE, LAN]);
    std::fs::write(path.path("second.toml"), second).expect("a file");
    let mut command = path.command("gateway");
    command.args(["--config", "second.toml", "--status-socket", "second.sock"]).stderr(Stdio::inherit());
    let second = Running::start(&path.chain.hosts[HUB], command);
    let peer = "[[peer]]\nname = \"second\"\naddress = \"10.77.1.1:4435\"\n";
    let mut world = World::over(path, "hold_seconds = 4\n", peer);
    let peers = |world: &World, wanted: &[bool]| {
        let local = world.local.as_ref().expect("it runs");
        for is_up in wanted {
            local.wait("a peer changed", |event| event["event"] == "peer" && event["up"] == *is_up);
        }
        std::thread::sleep(Span::from_millis(100));
    };
    peers(&world, &[true, true]);
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    assert_eq!(ended_at(&second), 0, "the first hub of the file has the users");
    world.hub = None;
    let start = Instant::now();
    peers(&world, &[false]);
    println!("     a dead hub was noticed after {:?}", start.elapsed());
    assert!(start.elapsed() < Span::from_secs(4), "{:?}", start.elapsed());
    let question = content(1_000_000, 4);
    assert_eq!(ask(world.connect(9000), &question).expect("an answer"), question);
    assert_eq!(world.flow_end()["carried"], "split", "by the other hub");
    assert_eq!(ended_at(&second), 1);
    world.hub = Some(world.start(HUB, "hub.toml"));
    peers(&world, &[true]);
    assert!(world.is_split());
    assert_eq!(ended_at(&second), 0, "the first one is back");
    // A policy may name another one for some connections.
    let told = renew(&world, world.local.as_ref(), "local.toml", |text| {
        text + "[[policy]]\naction = \"split\"\nto = [\"10.77.0.1/32\"]\npeer = \"second\"\n"
    });
    assert!(told["error"].is_null(), "{told}");
    assert!(world.is_split());
    assert_eq!(ended_at(&second), 1, "the policy's");
}

fn a_hung_hub_is_passed_by() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    let hub = world.hub.as_ref().expect("it runs");
    hub.process.signal(Signal::SIGSTOP).expect("it runs");
    world.wait_for_peer(false);
    assert!(!world.is_split(), "new connections take the plain path");
    hub.process.signal(Signal::SIGCONT).expect("it runs");
    world.wait_for_peer(true);
    assert!(world.is_split(), "back when the peer answers");
}

/// Expedited forwarding, as the field's upper six bits.
const EXPEDITED: u32 = 0xb8;

fn the_class_of_a_connection_is_kept() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    // Both ends count packets that arrive with the class and without it.
    for (host, port) in [(SERVER, "dport"), (CLIENT, "sport")] {
        let rule = |class: &str| format!("nft add rule ip t in ip dscp {class} tcp {port} 9000 counter");
        let table = "nft add table ip t; nft add chain ip t in '{ type filter hook input priority 0; }'";
        world.run(host, &format!("{table}; {}; {}", rule("ef"), rule("!= ef")));
    }
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_tos_v4(EXPEDITED)?;
        socket.connect(&SocketAddr::from(([10, 77, 0, 1], 9000)).into())?;
        Ok::<TcpStream, std::io::Error>(socket.into())
    };
    let socket = world.site.chain.hosts[CLIENT].run(connect).expect("a thread").expect("a connection");
    let question = content(20_000, 1);
    assert!(ask(socket, &question).expect("an answer") == question);
    assert_eq!(world.flow_end()["carried"], "split");
    for host in [SERVER, CLIENT] {
        let told = world.run(host, "nft list table ip t");
        let counters: Vec<Vec<u64>> = told
            .split("counter packets ")
            .skip(1)
            .map(|rest| rest.split_whitespace().filter_map(|word| word.parse().ok()).take(2).collect())
            .collect();
        let [marked, plain] = &counters[..] else { panic!("host {host}: {told}") };
        assert!(marked[0] > 5, "host {host}: {told}");
        // The site's own kernel answers the SYN, and what comes before the gateway has accepted the connection: without
        // a byte of data, so that 60 bytes hold a packet.
        assert!(plain[1] <= plain[0] * 60, "host {host}: {told}");
        assert!(host == CLIENT || plain[0] == 0, "host {host}: {told}");
    }
}

fn open_files(running: Option<&Running>) -> usize {
    let id = running.map_or(0, |running| running.process.id());
    std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count)
}

fn ten_thousand_connections_leave_nothing() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    let files = || [open_files(world.hub.as_ref()), open_files(world.local.as_ref())];
    let (before, start) = (files(), Instant::now());
    let users: Vec<_> = (0..50)
        .map(|user| {
            let work = move || {
                (0..200u64)
                    .filter(|&n| {
                        let question = content(100, 1_000 * user + n);
                        let socket = TcpStream::connect((std::net::Ipv4Addr::new(10, 77, 0, 1), 9000));
                        socket
                            .and_then(|socket| ask(socket, &question))
                            .is_ok_and(|answer| answer == question)
                    })
                    .count()
            };
            world.site.chain.hosts[CLIENT].thread(work).expect("a thread")
        })
        .collect();
    let right: usize = users.into_iter().map(|user| user.join().expect("no panic").expect("to enter")).sum();
    println!("10000 connections in {:?}", start.elapsed());
    assert_eq!(right, 10_000);
    assert!(start.elapsed() < Span::from_secs(60), "{:?}", start.elapsed());
    std::thread::sleep(Span::from_secs(2));
    assert_eq!(files(), before, "descriptors of the hub and the site");
}

fn a_reader_pauses_for_a_minute() {
    let world = World::new();
    world.serve(9005, |mut socket| _ = socket.write_all(&content(30_000_000, 3)));
    let mut slow = world.connect(9005);
    std::thread::sleep(Span::from_secs(60));
    let mut bytes = Vec::new();
    slow.read_to_end(&mut bytes).expect("all of it");
    assert!(bytes == content(30_000_000, 3), "{} bytes", bytes.len());
}

fn a_narrow_path_is_noticed() {
    let site = Site::new(&[LAN, SATELLITE, LAN]);
    for (host, device) in [(HUB, "down"), (SITE, "up")] {
        let mut command = Command::new("ip");
        command.args(["link", "set", "dev", device, "mtu", "1280"]);
        let set = site.chain.hosts[host].run(move || command.status());
        assert!(set.expect("a thread").expect("a program").success());
    }
    let world = World::over(site, "", "");
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    let question = content(500_000, 5);
    let start = Instant::now();
    for _ in 0..2 {
        assert!(ask(world.connect(9000), &question).expect("an answer") == question);
        println!("     500 kB there and back by {:?}", start.elapsed());
        assert_eq!(world.flow_end()["carried"], "split");
    }
    std::thread::sleep(Span::from_secs(2));
    for (host, config) in [(SITE, "local.toml"), (HUB, "hub.toml")] {
        let status = world.status(host, config);
        for peer in status["peers"].as_array().expect("peers") {
            // IPv4, UDP, seal and header take 88 bytes; a search ends 16 below the path's, and probes are 12 longer.
            let payload = peer["payload_bytes"].as_u64();
            assert!(payload.is_some_and(|payload| (1160..=1192).contains(&payload)), "{peer}");
        }
    }
}

/// A client's order to [`break_off`]: the end that resets, whether the client ends its direction before, and the
/// number of bytes before the reset.
#[derive(Clone, Copy, Debug)]
struct Break {
    by_server: bool,
    is_half_closed: bool,
    after: usize,
}

impl Break {
    const LEN: usize = 6;

    fn bytes(self) -> [u8; Self::LEN] {
        let [a, b, c, d] = (self.after as u32).to_be_bytes();
        [u8::from(self.by_server), u8::from(self.is_half_closed), a, b, c, d]
    }

    fn parse([by_server, is_half_closed, after @ ..]: [u8; Self::LEN]) -> Self {
        let after = u32::from_be_bytes(after) as usize;
        Self { by_server: by_server == 1, is_half_closed: is_half_closed == 1, after }
    }
}

/// The errors by which the server noticed connections that the client broke off.
static BROKEN: Mutex<Vec<ErrorKind>> = Mutex::new(Vec::new());

fn abort(socket: TcpStream) {
    let _ = socket2::SockRef::from(&socket).set_linger(Some(Span::ZERO));
    drop(socket);
}

/// The server's part: resets after as many bytes as the client orders, or notes the error of the client's reset.
fn break_off(mut socket: TcpStream) {
    let mut told = [0; Break::LEN];
    socket.read_exact(&mut told).expect("what is to be done");
    let Break { by_server, is_half_closed, after } = Break::parse(told);
    if by_server {
        if is_half_closed {
            assert_eq!(socket.read(&mut [0; 1]).expect("an end"), 0);
        }
        let _ = socket.write_all(&content(after, 1));
        // The client has the most of it by then.
        std::thread::sleep(Span::from_millis(200));
        return abort(socket);
    }
    let bytes = content(65_536, 1);
    let broken = loop {
        let done = if is_half_closed { socket.write(&bytes) } else { socket.read(&mut [0; 4096]) };
        match done {
            Ok(0) => break ErrorKind::UnexpectedEof,
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    BROKEN.lock().expect("no panic").push(broken);
}

fn a_reset_at_any_point_is_a_reset() {
    let world = World::new();
    world.serve(9003, break_off);
    let mut by_client = 0;
    for server in ["10.77.0.1:9003", "[fd77::1]:9003"] {
        for (by_server, is_half_closed) in [(true, false), (true, true), (false, false), (false, true)] {
            for after in [0, 1, 20_000, 300_000] {
                let what = Break { by_server, is_half_closed, after };
                let mut socket = world.dial(server).expect("a connection");
                socket.write_all(&what.bytes()).expect("to write");
                if is_half_closed {
                    socket.shutdown(Shutdown::Write).expect("to end");
                }
                if by_server {
                    let mut bytes = Vec::new();
                    let end = socket.read_to_end(&mut bytes);
                    let kind = end.expect_err(&format!("no clean end: {what:?}")).kind();
                    assert_eq!(kind, ErrorKind::ConnectionReset, "{what:?}");
                    assert!(content(after, 1).starts_with(&bytes), "{what:?}");
                } else {
                    if is_half_closed {
                        socket.read_exact(&mut vec![0; after]).expect("what the server says");
                    } else {
                        socket.write_all(&content(after, 1)).expect("to write");
                    }
                    // The server would not see a client that is gone before its connection is accepted.
                    std::thread::sleep(Span::from_millis(100));
                    abort(socket);
                }
                by_client += usize::from(!by_server);
                assert_eq!(world.flow_end()["reason"], "reset", "{what:?}");
            }
        }
    }
    let limit = Instant::now() + Span::from_secs(5);
    while BROKEN.lock().expect("no panic").len() < by_client && Instant::now() < limit {
        std::thread::sleep(Span::from_millis(50));
    }
    let broken = BROKEN.lock().expect("no panic");
    // A write after the reset has arrived fails with a broken pipe.
    let is_reset = |kind: &ErrorKind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    assert!(broken.len() == by_client && broken.iter().all(is_reset), "{by_client}: {broken:?}");
}

fn gateways_speak_ipv6() {
    let site = Site::new(&[LAN, SATELLITE, LAN]);
    let addresses = ["[fd77:0:0:1::1]", "[fd77:0:0:1::2]"];
    let world = World::between(site, addresses, "hold_seconds = 4\n", "");
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    let question = content(500_000, 5);
    for server in ["10.77.0.1:9000", "[fd77::1]:9000"] {
        assert!(ask(world.dial(server).expect("a connection"), &question).expect("an answer") == question);
        assert_eq!(world.flow_end()["carried"], "split");
    }
}

/// From now on a host drops all packets to UDP port 4433.
const CUT: &str = "nft add table inet cut; nft add chain inet cut in '{ type filter hook prerouting priority -300; }'; \
                   nft add rule inet cut in udp dport 4433 drop";

/// Bytes go both ways when all packets of the gateways are lost for `seconds`. All bytes arrive, and soon.
fn outage_costs_no_byte(seconds: u64) {
    let world = World::patient(90);
    world.serve(9000, |mut socket| {
        let copy = socket.try_clone();
        let answering =
            std::thread::spawn(move || copy.and_then(|mut socket| socket.write_all(&content(8_000_000, 2))));
        let mut question = Vec::new();
        let _ = socket.read_to_end(&mut question);
        assert!(question == content(8_000_000, 1), "{} bytes of another kind", question.len());
        let _ = answering.join();
        let _ = socket.shutdown(Shutdown::Write);
    });
    let mut socket = world.connect(9000);
    socket.set_read_timeout(Some(Span::from_secs(seconds + 20))).expect("an option");
    let mut writer = socket.try_clone().expect("a socket");
    let asking = std::thread::spawn(move || {
        writer.write_all(&content(8_000_000, 1)).and_then(|()| writer.shutdown(Shutdown::Write))
    });
    let start = Instant::now();
    let reading = std::thread::spawn(move || {
        let (mut bytes, mut buffer, mut arrivals) = (Vec::new(), [0; 65_536], Vec::new());
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => return Ok((bytes, arrivals)),
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) => return Err(error),
            }
            arrivals.push(Instant::now());
        }
    });
    std::thread::sleep(Span::from_millis(600));
    for host in [HUB, SITE] {
        world.run(host, CUT);
    }
    std::thread::sleep(Span::from_secs(seconds));
    for host in [HUB, SITE] {
        world.run(host, "nft delete table inet cut");
    }
    let back = Instant::now();
    let (answer, arrivals) = reading.join().expect("no panic").expect("all of it");
    asking.join().expect("no panic").expect("to write");
    assert!(answer == content(8_000_000, 2), "{} bytes", answer.len());
    let first = arrivals.iter().find(|at| **at > back).expect("it was not over").duration_since(back);
    println!(
        "after {seconds} s: first byte {first:?} after the path was back, all after {:?}",
        start.elapsed()
    );
    assert!(first < Span::from_secs(1), "{first:?}");
    assert_eq!(world.flow_end()["reason"], "done");
}

fn a_relay_may_be_killed() {
    let hop = Hop { delay: Duration::from_millis(12), ..SATELLITE };
    let site = Site::new(&[LAN, hop, hop, LAN]);
    let relay = site.transparent_relay(2);
    let world = World::between(site, ["10.77.1.1", "10.77.2.2"], "hold_seconds = 10\n", "");
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    let asking = |seed: u64| {
        let socket = world.connect(9000);
        std::thread::spawn(move || {
            let question = content(6_000_000, seed);
            ask(socket, &question).is_ok_and(|answer| answer == question)
        })
    };
    let first = asking(1);
    std::thread::sleep(Span::from_millis(500));
    // Dropping it sends SIGKILL.
    drop(relay);
    std::thread::sleep(Span::from_millis(1_000));
    let second = asking(2);
    std::thread::sleep(Span::from_millis(300));
    let relay = world.site.transparent_relay(2);
    assert!(first.join().expect("no panic") && second.join().expect("no panic"));
    assert!(asking(3).join().expect("no panic"));
    let end = relay.end();
    assert!(end["data_out"].as_u64() > Some(2_000), "it took part: {end}");
    assert!((0..3).all(|_| world.flow_end()["carried"] == "split"));
}
