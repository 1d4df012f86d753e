//! The binary itself: real processes, real sockets, real files, on emulated links in namespaces that this
//! test makes. `cargo test --test transfers -- WORD` runs the tests whose names hold the word.

mod support;

use starhop_net::emu::{EmuError, Hop, enter, scratch};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::time::{Duration as Span, Instant};
use support::{Lying, Site, content};

/// Lossy enough that every transfer needs repairs, fast enough that the tests do not take minutes.
const LOSSY: Hop =
    Hop { rate: Rate::from_mbps(100), delay: Duration::from_millis(5), loss: 0.02, queue: 1000 };
/// Slow enough that something can be done in the middle of a transfer.
const SLOW: Hop = Hop { rate: Rate::from_mbps(8), delay: Duration::from_millis(5), loss: 0.01, queue: 1000 };

type Test = (&'static str, fn());

fn main() {
    match enter() {
        Ok(_) => {}
        Err(error @ EmuError::Forbidden(_)) => {
            println!("skipped: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    let tests: [Test; 21] = [
        ("a_file_arrives_whole_over_lossy_hops", a_file_arrives_whole_over_lossy_hops),
        ("an_interrupted_download_resumes", an_interrupted_download_resumes),
        ("a_relay_killed_and_restarted_costs_no_byte", a_relay_killed_and_restarted_costs_no_byte),
        ("a_relay_can_be_left_out_in_the_middle", a_relay_can_be_left_out_in_the_middle),
        ("a_name_that_nobody_has_is_told_at_once", a_name_that_nobody_has_is_told_at_once),
        ("a_silent_source_is_given_up_in_time", a_silent_source_is_given_up_in_time),
        ("a_source_that_lies_is_found_out", a_source_that_lies_is_found_out),
        (
            "a_poisoned_part_is_fetched_elsewhere_and_reported",
            a_poisoned_part_is_fetched_elsewhere_and_reported,
        ),
        ("a_poisoned_part_with_nobody_else_to_ask_is_told", a_poisoned_part_with_nobody_else_to_ask_is_told),
        ("a_relay_forgets_what_its_upstream_lied_about", a_relay_forgets_what_its_upstream_lied_about),
        ("junk_at_line_rate_leaves_a_transfer_its_goodput", junk_at_line_rate_leaves_a_transfer_its_goodput),
        (
            "nodes_with_another_key_or_none_get_nothing_and_are_told_why",
            nodes_with_another_key_or_none_get_nothing,
        ),
        ("a_key_is_rotated_under_a_transfer", a_key_is_rotated_under_a_transfer),
        ("nodes_with_keys_of_their_own_speak_to_who_is_on_the_roster", nodes_with_keys_of_their_own),
        ("a_partial_file_that_rotted_is_found_out", a_partial_file_that_rotted_is_found_out),
        ("an_empty_file_is_a_file", an_empty_file_is_a_file),
        (
            "a_target_that_cannot_be_written_is_refused_at_once",
            a_target_that_cannot_be_written_is_refused_at_once,
        ),
        ("the_demo_shows_every_transport", the_demo_shows_every_transport),
        ("the_bench_measures_every_process", the_bench_measures_every_process),
        ("a_killed_parent_leaves_no_process", a_killed_parent_leaves_no_process),
        // Last: its small disk stays mounted.
        ("a_full_disk_is_an_error_and_no_file", a_full_disk_is_an_error_and_no_file),
    ];
    let word = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&word)) {
        let start = Instant::now();
        test();
        println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
    }
}

fn a_file_arrives_whole_over_lossy_hops() {
    let site = Site::new(&[LOSSY; 4]);
    let bytes = site.offer("dir/file", 3_000_000);
    let _server = site.serve();
    let _relays: Vec<_> = (1..4).map(|host| site.relay(host)).collect();
    let (code, result) = site.get("dir/file", 3, &[]);
    assert_eq!(code, 0, "{result}");
    assert_eq!(result["verified"], true, "{result}");
    assert_eq!(result["bytes"], 3_000_000);
    assert!(result["repairs"].as_u64() > Some(0), "2 % of the packets of the last hop got lost: {result}");
    assert!(site.received() == Some(bytes));
    assert!(!site.has_partial());
}

fn an_interrupted_download_resumes() {
    let site = Site::new(&[SLOW]);
    let bytes = site.offer("file", 2_000_000);
    let _server = site.serve();
    let (code, message) = site.get_and_interrupt("file", Span::from_millis(1000));
    assert_eq!(code, Some(130), "{message}");
    assert!(message.contains("resume"), "{message}");
    assert!(site.has_partial() && site.received().is_none());
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    let resumed = result["resumed_from"].as_u64().unwrap_or(0);
    assert!((200_000..2_000_000).contains(&resumed), "{result}");
    assert!(
        result["forward_bytes"].as_u64() < Some(2_200_000 - resumed),
        "only the rest is fetched: {result}"
    );
    assert!(site.received() == Some(bytes));
    assert!(!site.has_partial());
}

fn a_relay_killed_and_restarted_costs_no_byte() {
    let site = Site::new(&[SLOW; 3]);
    let bytes = site.offer("file", 2_000_000);
    let _server = site.serve();
    let _first = site.relay(1);
    let second = site.relay(2);
    let get = site.start_get("file", 2, &[]);
    std::thread::sleep(Span::from_millis(700));
    // Dropping it sends SIGKILL.
    drop(second);
    std::thread::sleep(Span::from_millis(300));
    let _second = site.relay(2);
    let (code, result) = get.finish();
    assert_eq!(code, 0, "{result}");
    assert!(site.received() == Some(bytes));
}

fn a_relay_can_be_left_out_in_the_middle() {
    let site = Site::new(&[SLOW; 2]);
    let bytes = site.offer("file", 2_000_000);
    let _server = site.serve();
    let relay = site.relay(1);
    let get = site.start_get("file", 1, &["--timeout", "1s"]);
    std::thread::sleep(Span::from_millis(800));
    drop(relay);
    let (code, result) = get.finish();
    assert_eq!(code, 4, "{result}");
    // Past the relay, whose host only forwards now.
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(result["resumed_from"].as_u64() > Some(0), "{result}");
    assert!(site.received() == Some(bytes));
}

fn a_name_that_nobody_has_is_told_at_once() {
    let site = Site::new(&[LOSSY; 2]);
    site.offer("file", 1000);
    let _server = site.serve();
    let _relay = site.relay(1);
    let start = Instant::now();
    let hash = format!("b3:{}", "00".repeat(32));
    for name in ["other", &hash] {
        let (code, result) = site.get(name, 1, &[]);
        assert_eq!(code, 3, "{result}");
        assert!(result["error"].as_str().is_some_and(|error| error.contains(name)), "{result}");
    }
    assert!(start.elapsed() < Span::from_secs(10), "{:?}", start.elapsed());
    assert!(site.received().is_none() && !site.has_partial());
    for name in ["../file", "/file", "", "b3:12"] {
        assert_eq!(site.get(name, 1, &[]).0, 2, "{name}");
    }
}

fn a_silent_source_is_given_up_in_time() {
    let site = Site::new(&[LOSSY; 2]);
    site.offer("file", 1000);
    // A relay without its server.
    let _relay = site.relay(1);
    for from in [0, 1] {
        let start = Instant::now();
        let (code, result) = site.get("file", from, &["--timeout", "1s"]);
        assert_eq!(code, 4, "{result}");
        assert!(start.elapsed() < Span::from_secs(3), "{:?}", start.elapsed());
    }
    assert!(site.received().is_none() && !site.has_partial());
}

fn a_source_that_lies_is_found_out() {
    let site = Site::new(&[LOSSY]);
    let promised = content(50_000, 1);
    Lying::serve(&site, "file", &promised, content(50_000, 2));
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 5, "{result}");
    assert!(site.received().is_none() && !site.has_partial(), "wrong bytes are of no use to anybody");
}

/// A relay with the domain's key that changes bytes on their way: one in the middle, the rest is true.
fn poisoned(site: &Site) -> Vec<u8> {
    let bytes = site.offer("file", 1_000_000);
    let mut changed = bytes.clone();
    changed[500_000] ^= 1;
    Lying::serve_at(site, 1, "file", &bytes, changed, true);
    bytes
}

fn a_poisoned_part_is_fetched_elsewhere_and_reported() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = poisoned(&site);
    let _server = site.serve();
    let server = format!("{}:4433", site.chain.address_from_client(0));
    let (code, result) = site.get("file", 1, &["--bypass", &server]);
    assert_eq!((code, &result["verified"]), (0, &true.into()), "{result}");
    assert!(site.received() == Some(bytes));
    let culprits = result["culprits"].as_array().expect("culprits");
    let liar = format!("{}:4433", site.chain.address_from_client(1));
    assert_eq!(culprits.len(), 1, "{result}");
    assert_eq!((&culprits[0]["address"], &culprits[0]["groups"]), (&liar.into(), &1.into()), "{result}");
    assert_eq!(culprits[0]["first_offset"], 500_000 / 16_384 * 16_384, "{result}");
}

fn a_poisoned_part_with_nobody_else_to_ask_is_told() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = poisoned(&site);
    let (code, result) = site.get("file", 1, &[]);
    assert_eq!(code, 5, "{result}");
    let told = result["error"].as_str().unwrap_or_default();
    assert!(told.contains("--bypass") && told.contains("byte 491520"), "{result}");
    assert!(site.received().is_none() && site.has_partial(), "what was verified is kept");
    let _server = site.serve();
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(result["resumed_from"].as_u64() > Some(100_000), "{result}");
    assert!(site.received() == Some(bytes));
}

/// The upstream of a relay lies to the first who asks, and what it said stays in the relay's cache.
fn a_relay_forgets_what_its_upstream_lied_about() {
    for (verify, second) in [("full", 0), ("off", 5)] {
        // A packet that gets lost would be told the truth about at once.
        let clean = Hop { loss: 0.0, ..LOSSY };
        let site = Site::new(&[clean; 2]);
        let bytes = content(1_000_000, 3);
        let mut changed = bytes.clone();
        changed[500_000] ^= 1;
        Lying::serve_once(&site, "file", &bytes, changed);
        let _relay = site.relay_with(1, &["--verify", verify]);
        let (code, result) = site.get("file", 1, &[]);
        assert_eq!(code, 5, "the first client finds out itself: {result}");
        let (code, result) = site.get("file", 1, &["--output", "again"]);
        assert_eq!(code, second, "--verify {verify}: {result}");
    }
}

fn junk_at_line_rate_leaves_a_transfer_its_goodput() {
    let site = Site::new(&[SLOW; 2]);
    let bytes = site.offer("file", 3_000_000);
    let _server = site.serve();
    let (relay, events) = site.relay_with_events(1);
    let (code, quiet) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{quiet}");
    let junk = site.flood(1, Span::from_secs(20));
    let (code, flooded) = site.get("file", 1, &["--output", "again"]);
    let sent = junk.stop();
    assert_eq!((code, &flooded["verified"]), (0, &true.into()), "{flooded}");
    relay.signal(nix::sys::signal::Signal::SIGTERM).expect("it runs");
    let end = events.iter().find(|event| event["event"] == "end").expect("its totals");
    let refused = end["seal"]["foreign"].as_u64().unwrap_or(0) + end["seal"]["forged"].as_u64().unwrap_or(0);
    let (before, under) = (quiet["goodput_mbps"].as_f64(), flooded["goodput_mbps"].as_f64());
    println!("     {sent} junk datagrams, {refused} refused; {under:?} Mbit/s, {before:?} without");
    assert!(refused > 100_000, "{end}");
    assert!(under > before.map(|goodput| goodput * 0.9), "{under:?} where {before:?} is usual");
    assert_eq!(end["flows"].as_u64().map(|flows| flows <= 3), Some(true), "{end}");
    assert_eq!(bytes.len() as u64, flooded["bytes"]);
}

fn nodes_with_another_key_or_none_get_nothing() {
    let site = Site::new(&[LOSSY]);
    site.offer("file", 1000);
    let _server = site.serve();
    site.make_key("other.key");
    let short = ["--timeout", "1s"];
    let (code, result) = site.get("file", 0, &[&short[..], &["--key", "other.key"]].concat());
    assert_eq!(code, 4, "{result}");
    let (code, result) = site.get_without_key("file", 0, &[&short[..], &["--insecure"]].concat());
    assert_eq!(code, 4, "{result}");
    let (code, result) = site.get_without_key("file", 0, &[]);
    assert_eq!(code, 1, "{result}");
    assert!(result.as_str().is_some_and(|told| told.contains("starhop key new")), "{result}");
    // Whoever may be read by others is no key.
    site.open_to_others("other.key");
    let (code, result) = site.get("file", 0, &["--key", "other.key"]);
    assert_eq!(code, 1, "{result}");
    assert!(result["error"].as_str().is_some_and(|told| told.contains("chmod 600")), "{result}");
    assert!(site.received().is_none() && !site.has_partial());
}

fn a_key_is_rotated_under_a_transfer() {
    let site = Site::new(&[SLOW; 2]);
    let bytes = site.offer("file", 3_000_000);
    let server = site.serve();
    let relay = site.relay(1);
    let get = site.start_get("file", 1, &[]);
    std::thread::sleep(Span::from_millis(500));
    // Added and switched; the client has the file of before, whose key opens still but would not be sealed with.
    site.key(&["rotate", "site.key"]);
    for node in [&server, &relay] {
        node.signal(nix::sys::signal::Signal::SIGHUP).expect("it runs");
    }
    let (code, result) = get.finish();
    assert_eq!((code, &result["timeouts"]), (0, &0.into()), "{result}");
    assert!(site.received() == Some(bytes));
    // With the new key, whoever has not heard of the switch yet understands who has.
    site.key(&["rotate", "site.key"]);
    relay.signal(nix::sys::signal::Signal::SIGHUP).expect("it runs");
    let (code, result) = site.get("file", 1, &["--output", "again"]);
    assert_eq!((code, &result["verified"]), (0, &true.into()), "{result}");
}

fn nodes_with_keys_of_their_own() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = site.offer("file", 500_000);
    site.key_verb("roster", &["init", "r", "--authority", "authority", "--domain", "d"]);
    for (name, host) in [("server", Some(0)), ("relay", Some(1)), ("client", None), ("stranger", None)] {
        site.key(&["new", name, "--node", "--authority", "authority", "--domain", "d"]);
        let shown: serde_json::Value =
            serde_json::from_str(&site.key(&["show", name, "--json"])).expect("a document");
        let public = shown["public"][0].as_str().unwrap_or_default().to_owned();
        let address = host.map(|host| format!("{}:4433", site.chain.address_from_client(host)));
        let mut add = vec!["add", "r", "--name", name, "--public", &public];
        address.iter().for_each(|address| add.extend(["--address", address]));
        if name != "stranger" {
            site.key_verb("roster", &add);
        }
    }
    let unsigned = site.start_with_keys(0, "serve", "server");
    assert!(unsigned.is_err(), "an unsigned roster is not believed");
    site.key_verb("roster", &["sign", "r", "--authority", "authority"]);
    let _server = site.start_with_keys(0, "serve", "server").expect("a server");
    let _relay = site.start_with_keys(1, "relay", "relay").expect("a relay");
    let (code, result) = site.get_without_key("file", 1, &["--key", "client", "--roster", "r"]);
    assert_eq!((code, &result["verified"]), (0, &true.into()), "{result}");
    assert!(site.received() == Some(bytes));
    let arguments = ["--key", "stranger", "--roster", "r", "--output", "again"];
    let (code, result) = site.get_without_key("file", 1, &arguments);
    assert_eq!(code, 1, "{result}");
    assert!(result["error"].as_str().is_some_and(|told| told.contains("not on the roster")), "{result}");
}

fn a_partial_file_that_rotted_is_found_out() {
    let site = Site::new(&[SLOW]);
    let bytes = site.offer("file", 1_500_000);
    let _server = site.serve();
    site.get_and_interrupt("file", Span::from_millis(900));
    site.damage_partial();
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 5, "{result}");
    assert!(site.received().is_none() && !site.has_partial());
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!((code, &result["resumed_from"]), (0, &0.into()), "{result}");
    assert!(site.received() == Some(bytes));
}

fn an_empty_file_is_a_file() {
    let site = Site::new(&[LOSSY]);
    let bytes = site.offer("file", 0);
    let _server = site.serve();
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.received() == Some(bytes));
}

fn a_target_that_cannot_be_written_is_refused_at_once() {
    let site = Site::new(&[LOSSY]);
    site.offer("file", 1000);
    let _server = site.serve();
    for target in ["/", "/proc", "/proc/x", "/no/such/directory/x"] {
        let (code, result) = site.get("file", 0, &["--output", target]);
        assert_eq!(code, 6, "{target}: {result}");
        assert!(result["error"].as_str().is_some_and(|error| error.contains('/')), "{result}");
    }
}

fn the_demo_shows_every_transport() {
    let site = Site::new(&[LOSSY]);
    let (code, result) = site.run(
        "demo",
        &["--size", "500kB", "--hops", "3", "--delay", "2ms", "--tcp", "reno", "--tcp-limit", "2s"],
    );
    assert_eq!(code, 0, "{result}");
    let flows = result["flows"].as_array().expect("flows");
    assert_eq!(flows.len(), 2);
    assert_eq!(flows[0]["verified"], true, "{result}");
    for flow in flows {
        assert!(flow["in_order_owd_ms"]["p50"].as_f64() > Some(6.0), "three hops of 2 ms: {flow}");
        assert!(flow["delivered_bytes"].as_u64() > Some(100_000), "{flow}");
        assert!(flow["return_bytes"].as_u64() > Some(0), "{flow}");
    }
    assert!(site.has_report("results/demo"));
}

fn the_bench_measures_every_process() {
    let site = Site::new(&[LOSSY]);
    let (code, result) = site.run("bench", &["--size", "20MB", "--iperf-seconds", "0"]);
    assert_eq!(code, 0, "{result}");
    let parts = result["tools"][0]["parts"].as_array().expect("parts");
    assert_eq!(parts.len(), 3, "{result}");
    assert!(result["per_packet"]["seal_ns"].as_f64() > Some(0.0), "{result}");
    assert!(parts.iter().all(|part| part["cpu_seconds"].as_f64() > Some(0.0)), "{result}");
    assert!(result["tools"][0]["gbit_per_second"].as_f64() > Some(0.05), "{result}");
}

fn a_killed_parent_leaves_no_process() {
    let site = Site::new(&[LOSSY]);
    let demo = site.start_command("demo", &["--size", "20MB", "--tcp", "reno"]);
    let started = Instant::now();
    while support::children(demo.id()).len() < 6 {
        assert!(started.elapsed() < Span::from_secs(20), "six processes never ran");
        std::thread::sleep(Span::from_millis(20));
    }
    let children = support::children(demo.id());
    drop(demo);
    std::thread::sleep(Span::from_millis(500));
    let alive: Vec<_> = children.into_iter().filter(|&pid| support::is_running(pid)).collect();
    assert!(alive.is_empty(), "{alive:?} outlived their parent");
}

fn a_full_disk_is_an_error_and_no_file() {
    let site = Site::new(&[LOSSY]);
    let bytes = site.offer("file", 1_000_000);
    let _server = site.serve();
    let disk = match scratch(300_000) {
        Ok(disk) => disk,
        Err(error) => {
            println!("skipped: {error}");
            return;
        }
    };
    let output = disk.join("out");
    let output = output.to_str().unwrap_or_default();
    // By its name the length is known beforehand; by its hash the disk fills up on the way.
    for name in ["file".to_owned(), format!("b3:{}", blake3::hash(&bytes))] {
        let (code, result) = site.get(&name, 0, &["--output", output]);
        assert_eq!(code, 6, "{result}");
        assert!(result["error"].as_str().is_some_and(|error| error.contains("space")), "{result}");
        assert!(!std::path::Path::new(output).exists(), "a file that looks whole");
    }
}
