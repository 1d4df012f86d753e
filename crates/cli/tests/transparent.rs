//! Relays that end points do not know of: real processes, real packets, the firewall of this kernel, in namespaces
//! that this test makes. `cargo test --test transparent -- WORD` runs the tests whose names hold the word.

mod harness;
mod support;

use nix::sys::signal::Signal;
use starhop_net::emu::Hop;
use starhop_net::transparent::can_divert;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration as Span, Instant};
use support::Site;

const LOSSY: Hop =
    Hop { rate: Rate::from_mbps(50), delay: Duration::from_millis(5), loss: 0.01, queue: 1000 };
/// Slow enough that something can be done in the middle of a transfer.
const SLOW: Hop = Hop { rate: Rate::from_mbps(8), delay: Duration::from_millis(5), loss: 0.01, queue: 1000 };

fn main() {
    let tests: &[harness::Test] = &[
        ("a_file_arrives_with_none_some_and_all_relays", a_file_arrives_with_none_some_and_all_relays),
        ("both_ip_versions_are_relayed", both_ip_versions_are_relayed),
        ("a_relay_may_appear_in_the_middle", a_relay_may_appear_in_the_middle),
        ("a_killed_relay_is_passed_by", a_killed_relay_is_passed_by),
        ("a_relay_that_hangs_is_passed_by_and_comes_back", a_relay_that_hangs_is_passed_by_and_comes_back),
        ("a_relay_that_ends_leaves_nothing", a_relay_that_ends_leaves_nothing),
        ("what_is_not_ours_is_not_touched", what_is_not_ours_is_not_touched),
        ("a_relay_can_step_aside", a_relay_can_step_aside),
        ("a_firewall_that_is_held_by_others_ends_no_relay", a_firewall_that_is_held_by_others_ends_no_relay),
        ("rules_that_others_flush_are_set_again", rules_that_others_flush_are_set_again),
        ("a_watchdog_that_is_killed_is_named", a_watchdog_that_is_killed_is_named),
        ("a_key_that_was_rotated_out_is_nowhere_in_memory", a_key_that_was_rotated_out_is_nowhere_in_memory),
        ("a_relay_takes_its_configuration_anew", a_relay_takes_its_configuration_anew),
        ("a_relay_that_cannot_keep_its_time_says_so_and_goes_on", a_relay_that_cannot_keep_its_time_goes_on),
    ];
    harness::run(tests, || {
        let probe = Site::new(&[LOSSY]);
        let can = probe.chain.hosts[0].run(can_divert).and_then(|can| can);
        can.err().map(|error| error.to_string())
    });
}

/// The tables of nftables on a host, and its rules beyond those that every host has.
fn diversions(site: &Site, host: usize) -> String {
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        let output =
            site.chain.hosts[host].run(move || command.output()).expect("a thread").expect("a program");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let rules = [run("ip", &["rule"]), run("ip", &["-6", "rule"])].concat();
    let ours = rules.lines().filter(|line| line.contains("fwmark")).map(str::to_owned);
    std::iter::once(run("nft", &["list", "tables"])).chain(ours).collect()
}

fn wait_until(what: &str, limit: Span, mut is_so: impl FnMut() -> bool) -> Span {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Span::from_millis(20));
    }
    start.elapsed()
}

fn a_file_arrives_with_none_some_and_all_relays() {
    let site = Site::new(&[LOSSY; 4]);
    let bytes = site.offer("file", 3_000_000);
    let _server = site.serve();
    for relays in [&[][..], &[2], &[1, 2, 3]] {
        let running: Vec<_> = relays.iter().map(|&host| site.transparent_relay(host)).collect();
        let (code, result) = site.get("file", 0, &[]);
        assert_eq!((code, &result["verified"]), (0, &true.into()), "{relays:?}: {result}");
        assert!(site.take_received() == Some(bytes.clone()));
        for relay in running {
            let end = relay.end();
            assert!(end["data_out"].as_u64() > Some(2000), "it took part: {end}");
            assert!(end["repairs"].as_u64() > Some(0), "it repaired the hop above: {end}");
        }
    }
}

fn both_ip_versions_are_relayed() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = site.offer("file", 500_000);
    let _server = site.serve();
    let relay = site.transparent_relay(1);
    let (code, result) = site.get_from("file", "[fd77::1]:4433", &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.take_received() == Some(bytes));
    let end = relay.end();
    assert!(end["data_out"].as_u64() > Some(300), "{end}");
}

fn a_relay_may_appear_in_the_middle() {
    let site = Site::new(&[SLOW; 3]);
    let bytes = site.offer("file", 4_000_000);
    let _server = site.serve();
    let get = site.start_get("file", 0, &[]);
    std::thread::sleep(Span::from_millis(1000));
    let first = site.transparent_relay(1);
    std::thread::sleep(Span::from_millis(700));
    let second = site.transparent_relay(2);
    let start = Instant::now();
    let (code, result) = get.finish();
    assert_eq!(code, 0, "{result}");
    assert!(start.elapsed() < Span::from_secs(8), "{:?}", start.elapsed());
    assert!(site.take_received() == Some(bytes));
    for relay in [first, second] {
        let end = relay.end();
        assert!(end["data_out"].as_u64() > Some(500), "{end}");
    }
}

fn a_killed_relay_is_passed_by() {
    let site = Site::new(&[SLOW; 3]);
    let bytes = site.offer("file", 4_000_000);
    let _server = site.serve();
    let relays = [site.transparent_relay(1), site.transparent_relay(2)];
    let get = site.start_get("file", 0, &[]);
    for relay in relays {
        std::thread::sleep(Span::from_millis(1000));
        // Dropping it sends SIGKILL.
        drop(relay);
    }
    for host in [1, 2] {
        wait_until("the firewall is removed", Span::from_secs(2), || diversions(&site, host).is_empty());
    }
    let (code, result) = get.finish();
    assert_eq!(code, 0, "{result}");
    assert!(result["seconds"].as_f64() < Some(10.0), "{result}");
    assert!(site.take_received() == Some(bytes));
}

fn a_relay_that_hangs_is_passed_by_and_comes_back() {
    let site = Site::new(&[SLOW; 2]);
    let bytes = site.offer("file", 8_000_000);
    let _server = site.serve();
    let relay = site.transparent_relay(1);
    let get = site.start_get("file", 0, &[]);
    std::thread::sleep(Span::from_millis(1000));
    relay.process.signal(Signal::SIGSTOP).expect("it runs");
    wait_until("packets pass a relay that hangs", Span::from_secs(2), || diversions(&site, 1).is_empty());
    std::thread::sleep(Span::from_secs(6));
    relay.process.signal(Signal::SIGCONT).expect("it is there");
    wait_until("packets are diverted again", Span::from_secs(2), || !diversions(&site, 1).is_empty());
    let (code, result) = get.finish();
    assert_eq!(code, 0, "{result}");
    assert!(site.take_received() == Some(bytes));
    // 8.4 s at the rate of the link, of which the relay was away for 6 to 8: a transfer that waited for it took 14.4 or more.
    assert!(result["seconds"].as_f64() < Some(14.0), "{result}");
}

fn a_relay_that_ends_leaves_nothing() {
    let site = Site::new(&[LOSSY; 2]);
    assert_eq!(diversions(&site, 1), "");
    let relay = site.transparent_relay(1);
    let diverting = diversions(&site, 1);
    assert!(diverting.contains("starhop_relay_4433") && diverting.contains("fwmark"), "{diverting}");
    relay.end();
    assert_eq!(diversions(&site, 1), "");
}

fn what_is_not_ours_is_not_touched() {
    let site = Site::new(&[Hop { loss: 0.0, ..LOSSY }; 2]);
    let relay = site.transparent_relay(1);
    // DNS, QUIC's long and short headers, something that looks like us and is not, at our port and at others.
    let datagrams: [(u16, &[u8]); 6] = [
        (53, b"\x12\x34\x01\x00\x00\x01\x00\x00"),
        (443, b"\xc3\x00\x00\x00\x01rest of a long header"),
        (4433, b"\xc3\x00\x00\x00\x01rest of a long header"),
        (4433, b"\x43 a short header of QUIC"),
        (4433, b"\x55 data that are too short"),
        (4433, b""),
    ];
    for (port, bytes) in datagrams {
        let bind = |host: usize, at: (&'static str, u16)| -> UdpSocket {
            let socket =
                site.chain.hosts[host].run(move || UdpSocket::bind(at)).expect("a thread").expect("a socket");
            socket.set_read_timeout(Some(Span::from_secs(2))).expect("a limit");
            socket
        };
        let (server, client) = (bind(0, ("0.0.0.0", port)), bind(2, ("0.0.0.0", 40_000)));
        let mut buffer = [0; 2000];
        client.send_to(bytes, ("10.77.0.1", port)).expect("to send");
        let (len, from) =
            server.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{port} {bytes:?}: {error}"));
        assert_eq!((&buffer[..len], from.to_string()), (bytes, "10.77.1.2:40000".to_owned()));
        server.send_to(bytes, from).expect("to answer");
        let (len, from) =
            client.recv_from(&mut buffer).unwrap_or_else(|error| panic!("{port} {bytes:?}: {error}"));
        assert_eq!((&buffer[..len], from.to_string()), (bytes, format!("10.77.0.1:{port}")));
    }
    let end = relay.end();
    assert_eq!(end["interests_in"], 0, "{end}");
    assert_eq!(end["passed_on"], 6, "three each way looked like ours: {end}");
}

fn a_relay_can_step_aside() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = site.offer("file", 500_000);
    let _server = site.serve();
    let relay = site.transparent_relay(1);
    relay.process.signal(Signal::SIGUSR1).expect("it runs");
    wait_until("it steps aside", Span::from_secs(2), || diversions(&site, 1).is_empty());
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.take_received() == Some(bytes.clone()));
    relay.process.signal(Signal::SIGUSR2).expect("it runs");
    wait_until("it comes back", Span::from_secs(2), || !diversions(&site, 1).is_empty());
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.take_received() == Some(bytes));
    let end = relay.end();
    assert!((300..1500).contains(&end["data_out"].as_u64().unwrap_or(0)), "one of two: {end}");
}

/// Changes of the rules fail for longer than the watchdog tries at once; it goes on trying, and no process ends.
fn a_firewall_that_is_held_by_others_ends_no_relay() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new(&[LOSSY; 2]);
    let programs = tempfile::tempdir().expect("a directory");
    let (nft, held) = (programs.path().join("nft"), programs.path().join("held"));
    let path = std::env::var("PATH").unwrap_or_default();
    let script = format!("#!/bin/sh\n[ -e '{}' ] && exit 1\nPATH='{path}' exec nft \"$@\"\n", held.display());
    std::fs::write(&nft, script).expect("a script");
    std::fs::set_permissions(&nft, PermissionsExt::from_mode(0o755)).expect("a program");
    let mut command = site.command("relay");
    command.env("PATH", format!("{}:{path}", programs.path().display()));
    let relay = site.transparent_relay_with(1, command);
    for (signal, is_aside) in [(Signal::SIGUSR1, true), (Signal::SIGUSR2, false)] {
        std::fs::write(&held, "").expect("a file");
        relay.process.signal(signal).expect("it runs");
        std::thread::sleep(Span::from_millis(800));
        assert_eq!(diversions(&site, 1).contains("starhop"), is_aside, "nothing has changed yet");
        std::fs::remove_file(&held).expect("the file");
        wait_until("it changes", Span::from_secs(2), || diversions(&site, 1).contains("starhop") != is_aside);
    }
    relay.end();
    assert_eq!(diversions(&site, 1), "");
}

fn rules_that_others_flush_are_set_again() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = site.offer("file", 500_000);
    let _server = site.serve();
    let relay = site.transparent_relay(1);
    let whole = diversions(&site, 1);
    let flushes: [&[&str]; 3] = [
        &["nft", "flush", "ruleset"],
        &["ip", "rule", "flush", "priority", "100"],
        &["nft", "flush", "ruleset"],
    ];
    for words in flushes {
        let mut flush = Command::new(words[0]);
        flush.args(&words[1..]);
        let done = site.chain.hosts[1].run(move || flush.status()).expect("a thread");
        assert!(done.is_ok_and(|status| status.success()), "{words:?}");
        let took = wait_until("they are set again", Span::from_secs(2), || diversions(&site, 1) == whole);
        println!("     {words:?}: set again after {took:?}");
    }
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.take_received() == Some(bytes));
    let end = relay.end();
    assert!(end["data_out"].as_u64() > Some(300), "the relay took part: {end}");
    assert_eq!(diversions(&site, 1), "");
}

fn a_watchdog_that_is_killed_is_named() {
    let site = Site::new(&[LOSSY; 2]);
    let relay = site.transparent_relay(1);
    let watchdogs = support::children(relay.process.id());
    assert_eq!(watchdogs.len(), 1, "{watchdogs:?}");
    let pid = nix::unistd::Pid::from_raw(watchdogs[0] as i32);
    nix::sys::signal::kill(pid, Signal::SIGKILL).expect("it runs");
    wait_until("packets pass", Span::from_secs(2), || diversions(&site, 1).is_empty());
    let output = relay.process.output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the watchdog of this relay ended") && said.contains("SIGKILL"), "{said}");
}

/// A process has `bytes` in memory that it can write to.
fn holds(pid: u32, bytes: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("it is ours");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
    let mut writable = maps.lines().filter(|line| line.contains(" rw")).filter_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let mut part = vec![0; (number(to) - number(from)) as usize];
        memory.read_exact_at(&mut part, number(from)).ok()?;
        Some(part)
    });
    let first = bytes[0];
    writable.any(|part| {
        let starts = part.iter().enumerate().filter(|(_, byte)| **byte == first);
        starts.into_iter().any(|(at, _)| part[at..].starts_with(bytes))
    })
}

/// The secret of a domain's key file: as it is written, its bytes, and what keys of packets are derived from.
fn secrets(site: &Site) -> [(&'static str, Vec<u8>); 3] {
    const CONTEXT: &str = "starhop 2026 hop seal, domain v1";
    let file = std::fs::read_to_string(site.path("site.key")).expect("the key");
    let text = file.split("secret = \"").nth(1).expect("a secret").split('"').next().expect("its end");
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    let bytes: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect();
    let domain = blake3::derive_key(CONTEXT, b"site");
    let root = blake3::derive_key(CONTEXT, &[&domain[..], &bytes].concat());
    [("text", text.into()), ("bytes", bytes), ("root", root.into())]
}

/// The key is replaced by the guide's three steps. Memory is looked through as whoever takes a host would.
fn a_key_that_was_rotated_out_is_nowhere_in_memory() {
    let site = Site::new(&[LOSSY; 2]);
    site.offer("file", 200_000);
    let server = site.serve();
    let relay = site.transparent_relay(1);
    let old = secrets(&site);
    let get = || {
        let (code, result) = site.get("file", 0, &[]);
        assert!(code == 0 && site.take_received().is_some(), "{result}");
    };
    get();
    let found = || old.each_ref().map(|(name, bytes)| (*name, holds(relay.process.id(), bytes)));
    assert!(found().contains(&("root", true)), "it is in use: {:?}", found());
    for _ in 0..3 {
        site.key(&["rotate", "site.key"]);
        [&server, &relay.process].iter().for_each(|node| node.signal(Signal::SIGHUP).expect("it runs"));
        std::thread::sleep(Span::from_millis(300));
    }
    get();
    assert_eq!(found(), ["text", "bytes", "root"].map(|name| (name, false)));
    assert!(holds(relay.process.id(), &secrets(&site)[2].1), "the new one is in use");
    assert!(relay.end()["data_out"].as_u64() > Some(150), "it relayed both");
}

fn a_relay_takes_its_configuration_anew() {
    let site = Site::new(&[LOSSY; 2]);
    site.offer("file", 200_000);
    let _server = site.serve();
    let (log, config) = (site.path("log"), site.path("relay.toml"));
    std::fs::write(&config, "[relay]\nlog-level = \"error\"\n").expect("a file");
    let mut command = site.command("relay");
    command.arg("--config").arg(&config).stderr(std::fs::File::create(&log).expect("a file"));
    let relay = site.transparent_relay_with(1, command);
    let told = || std::fs::read_to_string(&log).expect("the log");
    std::fs::write(&config, "[relay]\nlog-level = \"info\"\ncache = \"1MiB\"\n").expect("a file");
    relay.process.signal(Signal::SIGHUP).expect("it runs");
    wait_until("it names the key", Span::from_secs(5), || {
        told().contains("a change of cache takes effect when the node is restarted")
    });
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    wait_until("the new level", Span::from_secs(10), || told().contains("transfer ended"));
}

fn a_relay_that_cannot_keep_its_time_goes_on() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = site.offer("file", 200_000);
    let _server = site.serve();
    let log = site.path("log");
    let mut command = site.command("relay");
    // Nobody can make a file there, not even root.
    command.env("STARHOP_STATE", "/proc").stderr(std::fs::File::create(&log).expect("a file"));
    let relay = site.transparent_relay_with(1, command);
    let told = || std::fs::read_to_string(&log).expect("the log");
    wait_until("it says so", Span::from_secs(5), || {
        told().contains("cannot be kept in `/proc/site.key.clock`")
    });
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.take_received() == Some(bytes));
    assert!(relay.end()["data_out"].as_u64() > Some(100), "it relayed");
    assert_eq!(told().matches("cannot be kept in").count(), 1, "{}", told());
}
