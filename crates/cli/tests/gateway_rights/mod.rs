//! The rights of gateways: their watchdogs have one capability, and they have none once they work.

use super::gateway_reload::renew;
use super::gateway_upgrade::upgrade;
use super::gateways::{HUB, LAN, SERVER, SITE, World};
use super::harness::Test;
use super::support::{Running, Site, children, content};
use super::{SATELLITE, ask, echo_after_the_end};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[Test] = &[
    ("a_gateway_at_work_has_no_capability_and_does_its_work", a_gateway_at_work_has_no_capability),
    ("a_gateway_needs_one_capability_and_no_root", a_gateway_needs_one_capability),
    ("a_gateway_becomes_the_user_of_its_configuration", a_gateway_becomes_a_user),
    ("faults_of_a_gateways_user_are_named", faults_of_a_user_are_named),
    ("a_gateway_that_stays_root_names_files_that_are_not_roots", a_root_names_files),
    ("without_any_capability_a_gateway_says_so", without_any_capability),
    ("a_gateway_whose_watchdog_is_killed_says_so_and_is_passed_by", a_killed_watchdog_is_named),
    ("connections_wait_for_a_watchdog_that_pauses_and_none_is_reset", a_pausing_watchdog),
    ("clients_of_privileged_ports_are_served", clients_of_privileged_ports),
    ("a_reserved_congestion_control_is_used_and_changed", a_reserved_control),
];

/// Neither root nor anybody else who has a login.
const NOBODY: u32 = 65_534;

/// The number of CAP_NET_ADMIN, as a set of capabilities.
const NET_ADMIN: &str = "0000000000001000";
const NONE: &str = "0000000000000000";

/// A line of the kernel's account of each thread of a process, without its name.
fn accounts(process: u32, name: &str) -> Vec<Vec<String>> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
    let of = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.split_whitespace().map(str::to_owned).collect()
    };
    // A thread may end meanwhile.
    threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok()).map(of).collect()
}

/// Checks sets of capabilities of all threads of a process, of which there are several.
fn has_sets(process: u32, sets: &[(&str, &str)]) {
    for (set, value) in sets.iter().chain(&[("NoNewPrivs:", "1")]) {
        let found = accounts(process, set);
        assert!(found.len() > 1, "{found:?}");
        assert!(found.iter().all(|found| found == &[*value]), "{set} {found:?} and not {value}");
    }
}

const GATEWAYS: [&str; 5] = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:", "CapBnd:"];

fn gateways(world: &World) -> impl Iterator<Item = &Running> {
    [world.hub.as_ref(), world.local.as_ref()].into_iter().flatten()
}

fn watchdog(gateway: &Running) -> u32 {
    let watchdogs = children(gateway.process.id());
    let [watchdog] = &watchdogs[..] else { panic!("a gateway and its watchdog: {watchdogs:?}") };
    *watchdog
}

/// Has a gateway have more threads than its own: who answers questions, and who reads a configuration.
fn have_threads(world: &World) {
    for (host, running, config) in
        [(HUB, world.hub.as_ref(), "hub.toml"), (SITE, world.local.as_ref(), "local.toml")]
    {
        assert_eq!(renew(world, running, config, |text| text)["error"], Value::Null);
        assert_eq!(world.status(host, config)["role"], "gateway");
    }
}

/// Serves connections to a port with the client's address.
fn serve_addresses(world: &World) {
    world.serve(9002, |mut socket| {
        let peer = socket.peer_addr().map(|peer| (peer.ip().to_canonical(), peer.port()));
        let text = peer.map(|(ip, port)| format!("{ip} {port}")).unwrap_or_default();
        let _ = std::io::Write::write_all(&mut socket, text.as_bytes());
    });
}

fn server_sees_the_client(world: &World) {
    for (server, client) in [("10.77.0.1:9002", "10.77.2.2"), ("[fd77::1]:9002", "fd77:0:0:2::2")] {
        let mut seen = String::new();
        let mut socket = world.dial(server).expect("a connection");
        let port = socket.local_addr().expect("an address").port();
        socket.read_to_string(&mut seen).expect("an address");
        drop(socket);
        let client: IpAddr = client.parse().expect("an address");
        assert_eq!(seen, format!("{client} {port}"));
        assert_eq!(world.flow_end()["carried"], "split");
    }
}

/// Connections, a peer that comes back, rules that somebody flushed, and a new configuration.
fn does_its_work(world: &mut World, start_hub: impl Fn(&World) -> Running) {
    server_sees_the_client(world);
    world.hub = None;
    world.wait_for_peer(false);
    assert!(!world.is_split(), "the listeners are closed");
    world.hub = Some(start_hub(world));
    world.wait_for_peer(true);
    server_sees_the_client(world);
    world.run(SITE, "nft flush ruleset");
    std::thread::sleep(Span::from_secs(2));
    assert!(world.has_rules() && world.is_split());
    let pass = "[[policy]]\naction = \"pass\"\nports = [9000]\n";
    let told = renew(world, world.local.as_ref(), "local.toml", |text| text + pass);
    assert_eq!(told["error"], Value::Null, "{told}");
    std::thread::sleep(Span::from_millis(300));
    assert!(!world.is_split(), "the rules have changed");
    assert!(world.status(SITE, "local.toml")["passed"][0]["packets"].as_u64() > Some(0), "and count");
    let told = renew(world, world.local.as_ref(), "local.toml", |text| text.replace(pass, ""));
    assert_eq!(told["error"], Value::Null, "{told}");
    std::thread::sleep(Span::from_millis(300));
    assert!(world.is_split(), "and have changed back");
}

fn a_gateway_at_work_has_no_capability() {
    let mut world = World::new();
    world.serve(9000, echo_after_the_end);
    serve_addresses(&world);
    let check = |world: &World| {
        have_threads(world);
        for gateway in gateways(world) {
            has_sets(gateway.process.id(), &GATEWAYS.map(|set| (set, NONE)));
            has_sets(watchdog(gateway), &GATEWAYS.map(|set| (set, NET_ADMIN)));
        }
    };
    check(&world);
    does_its_work(&mut world, |world| world.start(HUB, "hub.toml"));
    check(&world);
}

/// A command that runs as nobody, with these capabilities alone.
fn confined(world: &World, config: &str, capabilities: &str) -> Command {
    let whole = world.command(config);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]);
    for set in ["inh-caps", "ambient-caps", "bounding-set"] {
        command.arg(format!("--{set}=-all{capabilities}"));
    }
    command.arg(whole.get_program()).args(whole.get_args()).current_dir(world.site.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// A world whose gateways do not run, with more lines in both configurations, and all of whose files are nobody's; `None`
/// where there is one user.
fn world_of_nobody(of_both: &str) -> Option<World> {
    let mut world = World::with_programs(
        Site::new(&[LAN, SATELLITE, LAN]),
        ["10.77.1.1", "10.77.1.2"],
        ("hold_seconds = 10\n", "", ""),
        &["hub.toml", "local.toml"],
    );
    for gateway in [world.hub.take(), world.local.take()].into_iter().flatten() {
        gateway.end("end");
    }
    for config in ["hub.toml", "local.toml"].map(|config| world.site.path(config)) {
        let text = std::fs::read_to_string(&config).expect("a file");
        std::fs::write(config, format!("{of_both}{text}")).expect("a file");
    }
    if !give(&world, NOBODY) {
        println!("     skipped: there is one user here");
        return None;
    }
    Some(world)
}

/// Gives all files of a world to a user. False where there is one user alone.
fn give(world: &World, user: u32) -> bool {
    let directory = world.site.path("");
    let entries = std::fs::read_dir(&directory).expect("a directory").flatten().map(|entry| entry.path());
    entries.chain([directory.clone()]).all(|path| chown(path, Some(user), Some(user)).is_ok())
}

/// New programs, twice for each gateway, while a connection goes on.
fn new_programs(world: &World) {
    let socket = world.connect(9000);
    let bulk = std::thread::spawn(move || {
        let question = content(4_000_000, 7);
        ask(socket, &question).is_ok_and(|answer| answer == question)
    });
    for _ in 0..2 {
        for (name, running) in [("local.toml", world.local.as_ref()), ("hub.toml", world.hub.as_ref())] {
            let before = watchdog(running.expect("it runs"));
            world.give_program(name, Path::new(env!("CARGO_BIN_EXE_starhop")));
            let told = upgrade(running);
            assert!(told["taken_over"].is_u64(), "{told}");
            let program = world.site.path(&format!("{name}.bin"));
            let running = std::fs::read_link(format!("/proc/{before}/exe")).expect("it runs");
            assert_eq!(
                running,
                program.canonicalize().expect("a file"),
                "the watchdog is the new program, too"
            );
            assert!(world.is_split(), "by the new program");
        }
    }
    assert!(bulk.join().expect("no panic"), "all bytes, across four changes");
}

/// As the unit of the package runs it. Devices are root's on some machines; so nothing is carried here.
fn a_gateway_needs_one_capability() {
    let Some(mut world) = world_of_nobody("carry = false\n") else { return };
    let start = |world: &World, host: usize, config: &str| {
        Running::start(&world.site.chain.hosts[host], confined(world, config, ",+net_admin"))
    };
    world.hub = Some(start(&world, HUB, "hub.toml"));
    world.local = Some(start(&world, SITE, "local.toml"));
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    serve_addresses(&world);
    let check = |world: &World| {
        have_threads(world);
        for gateway in gateways(world) {
            let [held @ .., bound] = GATEWAYS;
            has_sets(gateway.process.id(), &held.map(|set| (set, NONE)));
            // It takes CAP_SETPCAP to change the bound.
            has_sets(gateway.process.id(), &[(bound, NET_ADMIN)]);
            has_sets(watchdog(gateway), &GATEWAYS.map(|set| (set, NET_ADMIN)));
            for process in [gateway.process.id(), watchdog(gateway)] {
                assert_eq!(accounts(process, "Uid:")[0], [NOBODY.to_string().as_str(); 4]);
            }
        }
    };
    check(&world);
    does_its_work(&mut world, |world| start(world, HUB, "hub.toml"));
    new_programs(&world);
    check(&world);
    for gateway in [world.hub.take(), world.local.take()].into_iter().flatten() {
        gateway.end("end");
    }
    assert!(!world.has_rules(), "and takes them away as nobody");
}

fn a_gateway_becomes_a_user() {
    let Some(mut world) = world_of_nobody("user = \"nobody\"\n") else { return };
    world.hub = Some(world.start(HUB, "hub.toml"));
    world.local = Some(world.start(SITE, "local.toml"));
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    serve_addresses(&world);
    let carries = world.run(SITE, "ls /dev/net/tun").contains("tun");
    let check = |world: &World| {
        have_threads(world);
        for gateway in gateways(world) {
            has_sets(gateway.process.id(), &GATEWAYS.map(|set| (set, NONE)));
            has_sets(watchdog(gateway), &GATEWAYS.map(|set| (set, NET_ADMIN)));
            for process in [gateway.process.id(), watchdog(gateway)] {
                for (line, count) in [("Uid:", 4), ("Gid:", 4)] {
                    let found = accounts(process, line);
                    let is_nobodys = |found: &Vec<String>| found == &vec![NOBODY.to_string(); count];
                    assert!(found.iter().all(is_nobodys), "{line} {found:?}");
                }
                let groups = &accounts(process, "Groups:")[0];
                assert_eq!(groups, &[NOBODY.to_string()], "and none of root's");
            }
        }
        let devices = world.run(SITE, "ip -br link show type tun");
        assert_eq!(devices.contains("starhop4434"), carries, "{devices}");
    };
    check(&world);
    does_its_work(&mut world, |world| world.start(HUB, "hub.toml"));
    new_programs(&world);
    check(&world);
    for gateway in [world.hub.take(), world.local.take()].into_iter().flatten() {
        gateway.end("end");
    }
    assert!(!world.has_rules());
    assert!(!world.site.path("local.toml.sock").exists(), "its socket is gone");
}

/// Runs a gateway that cannot start. Returns its end and what it says.
fn refused(world: &World, command: Command) -> (Output, String) {
    let mut command = command;
    command.stderr(Stdio::piped());
    let output = world.site.chain.hosts[SITE].run(move || command.output());
    let output = output.expect("a thread").expect("a program");
    let said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    assert!(!output.status.success(), "{said}");
    (output, said)
}

fn faults_of_a_user_are_named() {
    let Some(world) = world_of_nobody("user = \"nobody\"\n") else { return };
    let says = |command: Command, wanted: &[&str]| {
        let (_, said) = refused(&world, command);
        assert!(wanted.iter().all(|wanted| said.contains(wanted)), "{wanted:?}: {said}");
        assert!(!world.has_rules(), "nothing was begun");
    };
    let path = world.site.path("local.toml");
    let right = std::fs::read_to_string(&path).expect("a file");
    let write = |text: &str| std::fs::write(&path, text).expect("a file");
    write(&right.replace("\"nobody\"", "\"nobodys-cat\""));
    says(world.command("local.toml"), &["local.toml", "`user` is `nobodys-cat`", "does not know"]);
    write(&right.replace("\"nobody\"", "\"daemon\""));
    says(confined(&world, "local.toml", ",+net_admin"), &["`user` is `daemon`", "takes root"]);
    write(&right);
    // Each file in turn is root's alone.
    for (name, mode) in [("site.key", 0o600), ("local.toml", 0o600)] {
        let file = world.site.path(name);
        let old = std::fs::metadata(&file).expect("a file").permissions();
        chown(&file, Some(0), Some(0)).expect("root's");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("a mode");
        says(world.command("local.toml"), &[name, "Permission denied"]);
        chown(&file, Some(NOBODY), Some(NOBODY)).expect("nobody's");
        std::fs::set_permissions(&file, old).expect("a mode");
    }
    // The record beside its key, and its socket.
    let directory = world.site.path("");
    chown(&directory, Some(0), Some(0)).expect("root's");
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).expect("a mode");
    says(world.command("local.toml"), &["site.key.clock", "Permission denied", "STARHOP_STATE"]);
    let state = world.site.path("state");
    std::fs::create_dir(&state).expect("a directory");
    chown(&state, Some(NOBODY), Some(NOBODY)).expect("nobody's");
    let with_state = || {
        let mut command = world.command("local.toml");
        command.env("STARHOP_STATE", &state);
        command
    };
    says(with_state(), &["local.toml.sock", "Permission denied"]);
    let record = state.join("site.key.clock");
    std::fs::write(&record, "5\n").expect("a file");
    std::fs::set_permissions(&record, PermissionsExt::from_mode(0o600)).expect("a mode");
    says(with_state(), &["site.key.clock", "Permission denied"]);
}

fn a_root_names_files() {
    let Some(world) = world_of_nobody("carry = false\n") else { return };
    chown(world.site.path("site.key"), Some(0), Some(0)).expect("a key is root's or one's own");
    let closed = std::fs::set_permissions(world.site.path("local.toml"), PermissionsExt::from_mode(0o600));
    closed.expect("a mode");
    let said = |world: &World| {
        let mut command = world.command("local.toml");
        command.stderr(Stdio::piped());
        let gateway = Running::start(&world.site.chain.hosts[SITE], command);
        gateway.process.signal(Signal::SIGTERM).expect("it runs");
        let output = gateway.process.output().expect("its end");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let theirs = said(&world);
    for wanted in
        ["stays root", "`local.toml` is not root's to read", "site.key.clock` is not for the user `root`"]
    {
        assert!(theirs.contains(wanted), "{wanted}: {theirs}");
    }
    assert!(give(&world, 0));
    let own = said(&world);
    assert!(own.contains("stays root") && !own.contains("is not"), "{own}");
}

fn without_any_capability() {
    let Some(world) = world_of_nobody("carry = false\n") else { return };
    let (_, said) = refused(&world, confined(&world, "local.toml", ""));
    assert!(said.contains("Operation not permitted"), "{said}");
    assert!(!world.has_rules());
}

fn a_killed_watchdog_is_named() {
    let mut world = World::new();
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    world.local.take().expect("it runs").end("end");
    let mut command = world.command("local.toml");
    command.stderr(Stdio::piped());
    let local = Running::start(&world.site.chain.hosts[SITE], command);
    local.wait("its peer answers", |event| event["event"] == "peer" && event["up"] == true);
    kill(Pid::from_raw(watchdog(&local) as i32), Signal::SIGKILL).expect("it runs");
    let output = local.process.output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("the watchdog of this relay ended") && said.contains("SIGKILL"), "{said}");
    // Rules may be there still; without listener and device they take nothing.
    assert!(ask(world.connect(9000), b"plain").expect("an answer") == b"plain");
    let bind = || UdpSocket::bind("0.0.0.0:5000");
    let sender = world.site.chain.hosts[world.client()].run(bind).expect("a thread").expect("a port");
    let receiver = world.site.chain.hosts[SERVER].run(bind).expect("a thread").expect("a port");
    receiver.set_read_timeout(Some(Span::from_secs(5))).expect("an option");
    sender.send_to(b"passes", "10.77.0.1:5000").expect("to send");
    receiver.recv_from(&mut [0; 100]).expect("a packet");
    world.local = Some(world.start(SITE, "local.toml"));
    world.wait_for_peer(true);
    assert!(world.is_split());
    world.local = None;
    std::thread::sleep(Span::from_millis(1500));
    assert!(!world.has_rules(), "the next one takes them away");
    assert_eq!(world.run(SITE, "ip rule | grep fwmark"), "");
}

/// More connections than sockets lie ready at the hub.
fn a_pausing_watchdog() {
    const MANY: usize = 60;
    const PAUSE: Span = Span::from_millis(1_500);
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    let pid = Pid::from_raw(watchdog(world.hub.as_ref().expect("it runs")) as i32);
    kill(pid, Signal::SIGSTOP).expect("it runs");
    let start = Instant::now();
    let askers: Vec<_> = (0..MANY)
        .map(|n| {
            let socket = world.connect(9000);
            std::thread::spawn(move || {
                let question = content(2_000, n as u64);
                let is_right = ask(socket, &question).is_ok_and(|answer| answer == question);
                (is_right, Instant::now())
            })
        })
        .collect();
    std::thread::sleep(PAUSE.saturating_sub(start.elapsed()));
    kill(pid, Signal::SIGCONT).expect("it is there");
    let back = Instant::now();
    let done: Vec<_> = askers.into_iter().map(|asker| asker.join().expect("no panic")).collect();
    let before = done.iter().filter(|(_, at)| *at < back).count();
    println!("     {before} of {MANY} answers came while the hub's watchdog paused");
    assert!(done.iter().all(|(is_right, _)| *is_right), "answers");
    assert!((1..MANY).contains(&before), "{before}: those whose sockets lay ready, and not all");
    assert!((0..MANY).all(|_| world.flow_end()["carried"] == "split"));
}

/// A connection from a port that takes a right to bind.
fn from_port(world: &World, port: u16) -> TcpStream {
    let connect = move || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([10, 77, 2, 2], port)).into())?;
        socket.connect(&SocketAddr::from(([10, 77, 0, 1], 9002)).into())?;
        Ok::<TcpStream, std::io::Error>(socket.into())
    };
    world.site.chain.hosts[world.client()].run(connect).expect("a thread").expect("a connection")
}

fn clients_of_privileged_ports() {
    let world = World::new();
    serve_addresses(&world);
    let seen = |port: u16| {
        let mut seen = String::new();
        from_port(&world, port).read_to_string(&mut seen).expect("an address");
        assert_eq!(world.flow_end()["carried"], "split");
        seen
    };
    let other = seen(900);
    assert!(other.starts_with("10.77.2.2 ") && !other.ends_with(" 900"), "{other}");
    world.run(HUB, "sysctl -qw net.ipv4.ip_unprivileged_port_start=0");
    assert_eq!(seen(901), "10.77.2.2 901", "where the kernel lets everybody have it");
}

/// The controls of connections to port 9007 that this host has, in the words of `ss`.
fn controls(world: &World, host: usize) -> Vec<String> {
    let told = world.run(host, "ss -tinH '( sport = 9007 or dport = 9007 )'");
    let of = |line: &str| line.split_whitespace().next().map(str::to_owned);
    told.lines().filter(|line| line.starts_with(char::is_whitespace)).filter_map(of).collect()
}

fn a_reserved_control() {
    let world = World::new();
    if world.run(SITE, "command -v ss").is_empty() {
        return println!("skipped 1 tests: there is no ss here");
    }
    let allowed = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    // Of those of this kernel, everybody may use reno alone.
    let here = std::fs::read_to_string(allowed).unwrap_or_default();
    println!("     everybody may use {}", here.trim());
    world.serve(9007, |mut socket| _ = socket.read(&mut [0; 1]));
    let first = world.connect(9007);
    std::thread::sleep(Span::from_millis(500));
    // With the client, or the server, whom `congestion` is for.
    assert_eq!(controls(&world, SITE), ["cubic"], "towards the client");
    assert_eq!(controls(&world, HUB), ["cubic"], "towards the server");
    for (running, config) in [(world.local.as_ref(), "local.toml"), (world.hub.as_ref(), "hub.toml")] {
        let told = renew(&world, running, config, |text| text.replace("\"cubic\"", "\"reno\""));
        assert_eq!(told["error"], Value::Null, "{told}");
    }
    let second = world.connect(9007);
    std::thread::sleep(Span::from_millis(500));
    for host in [SITE, HUB] {
        let mut found = controls(&world, host);
        found.sort();
        assert_eq!(found, ["cubic", "reno"], "what began before keeps its own, host {host}");
    }
    for (running, config) in [(world.local.as_ref(), "local.toml"), (world.hub.as_ref(), "hub.toml")] {
        let told = renew(&world, running, config, |text| text.replace("\"reno\"", "\"cubic\""));
        assert_eq!(told["error"], Value::Null, "{told}");
    }
    let third = world.connect(9007);
    std::thread::sleep(Span::from_millis(500));
    for host in [SITE, HUB] {
        assert_eq!(
            controls(&world, host).iter().filter(|control| *control == "cubic").count(),
            2,
            "host {host}"
        );
    }
    drop((first, second, third));
}
