//! Attacks on the binary itself: real processes, real sockets, on emulated links in namespaces that this test
//! makes. docs/SECURITY.md says which defence each one guards. `cargo test --test attacks -- WORD` runs the tests
//! whose names hold the word.

mod harness;
mod support;

use nix::sys::signal::Signal;
use starhop_net::emu::Hop;
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::net::SocketAddr;
use std::time::{Duration as Span, Instant};
use support::attacker::{Attacker, interest};
use support::{Get, Lying, Site, content, peak_memory};

const LOSSY: Hop =
    Hop { rate: Rate::from_mbps(100), delay: Duration::from_millis(5), loss: 0.02, queue: 1000 };
/// For tests in which a loss would blur the counts.
const CLEAN: Hop = Hop { loss: 0.0, ..LOSSY };
/// Slow enough that something can be done in the middle of a transfer.
const SLOW: Hop = Hop { rate: Rate::from_mbps(8), delay: Duration::from_millis(5), loss: 0.01, queue: 1000 };

fn main() {
    let tests: &[harness::Test] = &[
        ("an_outsider_gets_not_one_byte_back", an_outsider_gets_not_one_byte_back),
        (
            "a_request_that_is_played_back_is_not_answered_again",
            a_request_that_is_played_back_is_not_answered_again,
        ),
        (
            "a_node_that_has_just_started_serves_all_clocks_and_no_recording",
            a_node_that_has_just_started_serves_all_clocks_and_no_recording,
        ),
        ("an_insiders_flood_leaves_a_transfer_its_goodput", an_insiders_flood_leaves_a_transfer_its_goodput),
        ("junk_at_line_rate_leaves_a_transfer_its_goodput", junk_at_line_rate_leaves_a_transfer_its_goodput),
        (
            "a_poisoned_part_is_fetched_elsewhere_and_reported",
            a_poisoned_part_is_fetched_elsewhere_and_reported,
        ),
        ("a_poisoned_part_with_nobody_else_to_ask_is_told", a_poisoned_part_with_nobody_else_to_ask_is_told),
        ("a_relay_forgets_what_its_upstream_lied_about", a_relay_forgets_what_its_upstream_lied_about),
        (
            "nodes_with_another_key_or_none_get_nothing_and_are_told_why",
            nodes_with_another_key_or_none_get_nothing,
        ),
        (
            "a_new_transfer_begins_within_two_round_trips_beside_100_000_outsiders_a_second",
            a_new_transfer_begins_beside_outsiders,
        ),
        ("who_runs_insecure_is_told_so", who_runs_insecure_is_told_so),
        ("a_key_is_rotated_under_a_transfer", a_key_is_rotated_under_a_transfer),
        ("keys_of_nodes_are_rotated_under_a_transfer", keys_of_nodes_are_rotated_under_a_transfer),
        ("every_cipher_is_understood", every_cipher_is_understood),
        ("a_planted_partial_file_is_not_followed", a_planted_partial_file_is_not_followed),
        ("a_source_that_trickles_is_given_up", a_source_that_trickles_is_given_up),
        ("an_older_roster_lets_nobody_back_in", an_older_roster_lets_nobody_back_in),
        ("nodes_with_keys_of_their_own_speak_to_who_is_on_the_roster", nodes_with_keys_of_their_own),
    ];
    harness::run(tests, || None);
}

/// The node on a host, as hosts farther from the server reach it.
fn node(site: &Site, host: usize) -> SocketAddr {
    format!("{}:4433", site.chain.address_from_client(host)).parse().expect("an address")
}

/// Fetches a file that is served, so that the relay's cache holds it; its flow.
fn fetched(site: &Site, bytes: &[u8]) -> FlowId {
    let (code, result) = site.get("file", 1, &[]);
    assert_eq!(code, 0, "{result}");
    FlowId::of_content(blake3::hash(bytes).as_bytes())
}

fn count(document: &serde_json::Value, field: &str) -> u64 {
    document["seal"][field].as_u64().unwrap_or(0)
}

/// The attacker knows the name of the relay's object, and every format.
fn an_outsider_gets_not_one_byte_back() {
    let site = Site::new(&[CLEAN; 2]);
    site.make_key("other.key");
    let bytes = site.offer("file", 500_000);
    let _server = site.serve();
    let relay = site.relay_with_events(1);
    let flow = fetched(&site, &bytes);
    let mut outsider = Attacker::new(&site, 2, node(&site, 1), "other.key");
    let mut insider = Attacker::insider(&site, 2, node(&site, 1));
    let packet = interest(flow, ByteRange::new(0, 65_536), Rate::UNLIMITED);
    let mut sent = [outsider.send((0..500).map(|_| &packet[..])), 0, 0];
    for n in 0..500 {
        let theirs = outsider.seal(&packet);
        // A packet that only a holder of the key can seal, with one byte changed.
        let mut changed = insider.seal(&packet);
        let at = n % changed.len();
        changed[at] ^= 0x40;
        sent[1] += outsider.send([&theirs[..]]);
        sent[2] += outsider.send([&changed[..]]);
    }
    assert_eq!(outsider.received(), 0, "bytes out per unauthenticated byte in");
    let end = relay.end("end");
    let refused = count(&end, "foreign") + count(&end, "forged") + count(&end, "untimely");
    assert!(refused >= sent.iter().sum::<u64>() * 99 / 100, "{sent:?}: {end}");
}

fn a_request_that_is_played_back_is_not_answered_again() {
    let site = Site::new(&[CLEAN; 2]);
    let bytes = site.offer("file", 500_000);
    let _server = site.serve();
    let relay = site.relay(1);
    let flow = fetched(&site, &bytes);
    let mut insider = Attacker::insider(&site, 2, node(&site, 1));
    let other = Attacker::insider(&site, 2, node(&site, 1));
    let asked = 40_000;
    let stranger = insider.seal(&interest(flow, ByteRange::new(0, asked), Rate::UNLIMITED));
    insider.send([&stranger[..]]);
    let told = insider.received();
    assert!(told > 0 && told <= 3 * stranger.len() as u64, "{told} bytes to an address that proved nothing");
    insider.prove(flow);
    let recorded = insider.request(flow, ByteRange::new(0, asked), Rate::UNLIMITED);
    insider.send([&recorded[..]]);
    let answer = insider.received();
    let most = asked + (asked / 1350 + 10) * 60;
    assert!(
        (asked..=most).contains(&answer),
        "{answer} bytes for {asked}: as much as was asked, and headers"
    );
    let play = || {
        insider.send((0..300).map(|_| &recorded[..]));
        other.send((0..300).map(|_| &recorded[..]));
        insider.received() + other.received()
    };
    assert_eq!(play(), 0);
    // A restarted relay has forgotten the packets that it accepted. It takes each once more, and asks for its token.
    drop(relay);
    let _relay = site.relay(1);
    let told = play();
    assert!(told <= recorded.len() as u64, "{told} bytes after a restart");
    insider.prove(flow);
    let fresh = insider.request(flow, ByteRange::new(0, asked), Rate::UNLIMITED);
    insider.send([&fresh[..]]);
    assert!(insider.received() >= asked, "it answers whoever has the key");
}

/// The clocks of neighbours may differ by half a minute, from the first second on. What they sent before a start brings
/// nothing but the token, whatever their clocks show.
fn a_node_that_has_just_started_serves_all_clocks_and_no_recording() {
    let site = Site::new(&[CLEAN; 2]);
    let bytes = site.offer("file", 500_000);
    let _server = site.serve();
    let relay = site.relay(1);
    let flow = fetched(&site, &bytes);
    let whole = ByteRange::new(0, 40_000);
    let mut neighbours =
        [-28, 0, 28].map(|ahead| Attacker::insider(&site, 2, node(&site, 1)).with_clock_ahead(ahead));
    let recorded = neighbours.each_mut().map(|neighbour| {
        neighbour.prove(flow);
        (0..50).map(|_| neighbour.request(flow, whole, Rate::UNLIMITED)).collect::<Vec<_>>()
    });
    drop(relay);
    let _relay = site.relay(1);
    for (neighbour, recorded) in neighbours.iter_mut().zip(&recorded) {
        let played: u64 = recorded.iter().map(|bytes| bytes.len() as u64).sum();
        neighbour.send(recorded.iter().map(Vec::as_slice));
        let told = neighbour.received();
        assert!(told > 0 && told < played, "{told} bytes for a recording of {played}");
        neighbour.prove(flow);
        let fresh = neighbour.request(flow, whole, Rate::UNLIMITED);
        neighbour.send([&fresh[..]]);
        assert!(neighbour.received() >= whole.len(), "it is served at once");
    }
}

/// Checks what a transfer beside an attack keeps of its usual goodput.
fn assert_goodput_is_left(share: impl Fn() -> f64) {
    harness::timing::measure(|| {
        let share = share();
        harness::timing::unless(share > 0.9, || format!("{share} of the usual goodput"))
    });
}

fn an_insiders_flood_leaves_a_transfer_its_goodput() {
    assert_goodput_is_left(share_beside_an_insider);
}

/// A node with the key asks the relay, from its own host, for names that do not exist and for its bytes again.
fn share_beside_an_insider() -> f64 {
    let site = Site::new(&[SLOW; 2]);
    site.offer("file", 3_000_000);
    let _server = site.serve();
    let relay = site.relay_with_events(1);
    let (code, quiet) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{quiet}");
    let mut insider = Attacker::insider(&site, 1, SocketAddr::from(([127, 0, 0, 1], 4433)));
    let get = site.start_get("file", 1, &["--output", "again"]);
    let flow = FlowId::of_content(blake3::hash(&content(3_000_000, 7)).as_bytes());
    insider.prove(flow);
    let (start, mut sent) = (Instant::now(), 0u64);
    while start.elapsed() < Span::from_millis(2500) {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&sent.to_be_bytes());
        let datagram = match sent % 4 {
            0 => insider.request(flow, ByteRange::new(0, 1350), Rate::from_mbps(1)),
            _ => insider.request(FlowId(name), ByteRange::new(0, 65_536), Rate::UNLIMITED),
        };
        sent += insider.send([&datagram[..]]);
        if sent.is_multiple_of(10) {
            std::thread::sleep(Span::from_millis(1));
        }
    }
    let (code, flooded) = get.finish();
    assert_eq!((code, &flooded["verified"]), (0, &true.into()), "{flooded}");
    let (peak, bound) = (peak_memory(relay.process.id()), relay.ready["memory_bound"].as_u64().unwrap_or(0));
    println!("     memory at its peak: {} KiB of {} KiB promised", peak / 1024, bound / 1024);
    // The program itself takes some, too.
    assert!(peak < bound + (32 << 20), "{peak} bytes where {bound} were promised");
    let end = relay.end("end");
    let (before, under) = (quiet["goodput_mbps"].as_f64(), flooded["goodput_mbps"].as_f64());
    println!("     {sent} requests; {under:?} Mbit/s, {before:?} without");
    assert!(end["over_limit"].as_u64() > Some(sent / 2), "{sent} requests: {end}");
    assert!(end["flows"].as_u64() <= Some(513), "names that nobody has are few at a time: {end}");
    under.zip(before).map_or(0.0, |(under, before)| under / before)
}

fn who_runs_insecure_is_told_so() {
    let site = Site::new(&[CLEAN]);
    site.offer("file", 1000);
    for (verb, arguments) in
        [("serve", &["served", "--listen", "[::]:4433"][..]), ("relay", &["--upstream", "127.0.0.1:9"][..])]
    {
        // A relay whose upstream does not answer says after a second that it is ready.
        let output = site.run_for(verb, arguments, Span::from_millis(2_000));
        let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("PLAIN"), "{verb}: {said}");
        let plain = told.lines().filter(|line| line.contains("\"packets\":\"plain\"")).count();
        assert!(plain >= 3, "{verb} says so when it starts, in each of its metrics, and at its end: {told}");
    }
    let _server = site.serve_insecure();
    let (code, result) = site.get_without_key("file", 0, &["--insecure"]);
    assert_eq!((code, &result["security"]["packets"]), (0, &"plain".into()), "{result}");
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

/// The upstream of a relay lies to the first client, and its wrong bytes stay in the relay's cache.
fn a_relay_forgets_what_its_upstream_lied_about() {
    for (verify, second) in [("full", 0), ("off", 5)] {
        // The truth would be served at once in place of a packet that was lost.
        let site = Site::new(&[CLEAN; 2]);
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
    assert_goodput_is_left(share_beside_junk);
}

fn share_beside_junk() -> f64 {
    let site = Site::new(&[SLOW; 2]);
    let bytes = site.offer("file", 4_000_000);
    let _server = site.serve();
    let relay = site.relay_with_events(1);
    let (code, quiet) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{quiet}");
    // A busy 100 Mbit/s link of mean packets, on a machine that tests share.
    let junk = site.flood(1, 40, Span::from_secs(20));
    let (code, flooded) = site.get("file", 1, &["--output", "again"]);
    let sent = junk.stop();
    assert_eq!((code, &flooded["verified"]), (0, &true.into()), "{flooded}");
    let end = relay.end("end");
    let refused: u64 = ["foreign", "forged", "not_for_me"].iter().map(|why| count(&end, why)).sum();
    let (before, under) = (quiet["goodput_mbps"].as_f64(), flooded["goodput_mbps"].as_f64());
    println!("     {sent} junk datagrams, {refused} refused; {under:?} Mbit/s, {before:?} without");
    assert_eq!(
        Some(refused),
        end["bad_datagrams"].as_u64(),
        "the seal refused all of it, and said why: {end}"
    );
    // The number of datagrams that a machine can send differs. A flood is ten junk datagrams for each true one that
    // the relay opened.
    assert!(refused > 10 * count(&end, "opened"), "{end}");
    assert_eq!(end["flows"].as_u64().map(|flows| flows <= 3), Some(true), "{end}");
    assert_eq!(bytes.len() as u64, flooded["bytes"]);
    under.zip(before).map_or(0.0, |(under, before)| under / before)
}

fn a_new_transfer_begins_beside_outsiders() {
    harness::timing::measure(|| {
        let (per_second, beside, quiet) = beside_outsiders();
        if per_second < 0.9 * f64::from(OUTSIDERS) {
            harness::timing::doubt(format!("only {per_second:.0} packets a second were sent"));
        }
        // Two round trips to the relay.
        harness::timing::unless(beside < quiet + 20.0 && per_second > 0.9 * f64::from(OUTSIDERS), || {
            format!("{beside} ms beside {per_second} packets a second, {quiet} ms without")
        })
    });
}

/// Packets a second of nodes without a key.
const OUTSIDERS: u32 = 100_000;

/// The packets per second that were sent, and how long a whole `get` of a small file takes beside them and without, in
/// milliseconds, each the median of nine.
fn beside_outsiders() -> (f64, f64, f64) {
    let site = Site::new(&[CLEAN; 2]);
    site.offer("file", 1000);
    let _server = site.serve();
    let _relay = site.relay(1);
    let took_ms = |name: &str| {
        let start = Instant::now();
        let (code, result) = site.get("file", 1, &["--output", name]);
        assert_eq!(code, 0, "{result}");
        start.elapsed().as_secs_f64() * 1e3
    };
    let median = |of: &str| {
        let mut times: Vec<f64> = (0..9).map(|n| took_ms(&format!("{of}{n}"))).collect();
        times.sort_by(f64::total_cmp);
        times[4]
    };
    took_ms("first");
    let quiet = median("quiet");
    let junk = site.flood(1, u64::from(OUTSIDERS) / 1000, Span::from_secs(20));
    let start = Instant::now();
    let beside = median("beside");
    let per_second = junk.stop() as f64 / start.elapsed().as_secs_f64();
    println!("     {beside:.1} ms beside {per_second:.0} packets a second, {quiet:.1} ms without");
    (per_second, beside, quiet)
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
    // A file that others may read is not accepted as a key.
    site.open_to_others("other.key");
    let (code, result) = site.get("file", 0, &["--key", "other.key"]);
    assert_eq!(code, 1, "{result}");
    assert!(result["error"].as_str().is_some_and(|told| told.contains("chmod 600")), "{result}");
    assert!(site.received().is_none() && !site.has_partial());
}

/// The guide's three steps, all within one transfer.
fn a_key_is_rotated_under_a_transfer() {
    let site = Site::new(&[SLOW; 2]);
    let bytes = site.offer("file", 4_000_000);
    let server = site.serve();
    let relay = site.relay(1);
    let get = site.start_get("file", 1, &["--tell-every", "50ms"]);
    for step in 0..3 {
        std::thread::sleep(Span::from_millis(700));
        site.key(&["rotate", "site.key"]);
        for node in [&server, &relay] {
            node.signal(Signal::SIGHUP).expect("it runs");
        }
        // It looks after the file itself, within a second.
        if step == 1 {
            get.signal(Signal::SIGHUP);
        }
        std::thread::sleep(Span::from_millis(1100 * u64::from(step == 0)));
    }
    assert_never_stalled(&site, get, &bytes);
}

/// The download is whole, and at no time did it stand still for more than a second.
fn assert_never_stalled(site: &Site, get: Get, bytes: &[u8]) {
    let (code, events) = get.finish_with_events();
    let result = events.last().expect("a result");
    assert_eq!((code, &result["verified"]), (0, &true.into()), "{result}");
    assert!(site.received() == Some(bytes.to_vec()));
    let counts: Vec<u64> = events.iter().filter_map(|event| event["bytes"].as_u64()).collect();
    let stalls = counts.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(0);
    println!("     longest stall: {} ms", stalls * 100);
    assert!(stalls <= 10, "it stalled for more than a second: {counts:?}");
}

/// Server, relay and client replace their own keys while bytes flow; the guide's steps.
fn keys_of_nodes_are_rotated_under_a_transfer() {
    let site = Site::new(&[SLOW; 2]);
    let bytes = site.offer("file", 6_000_000);
    site.key_verb("roster", &["init", "r", "--authority", "authority", "--domain", "d"]);
    let nodes = [("server", Some(0)), ("relay", Some(1)), ("client", None)];
    for (name, host) in nodes {
        site.key(&["new", name, "--node", "--authority", "authority", "--domain", "d"]);
        enrol(&site, name, host);
    }
    let sign = || site.key_verb("roster", &["sign", "r", "--authority", "authority"]);
    sign();
    let server = site.start_with_keys(0, "serve", "server").expect("a server");
    let relay = site.start_with_keys(1, "relay", "relay").expect("a relay");
    let arguments = ["--key", "client", "--roster", "r", "--tell-every", "50ms"];
    let get = site.start_get_without_key("file", 1, &arguments);
    let reload = || {
        [&server, &relay].iter().for_each(|node| node.signal(Signal::SIGHUP).expect("it runs"));
        get.signal(Signal::SIGHUP);
    };
    for step in 0..3 {
        std::thread::sleep(Span::from_millis(900));
        nodes.iter().for_each(|(name, _)| drop(site.key(&["rotate", name])));
        reload();
        if step == 0 {
            // Both public keys of each go onto the roster before anybody seals with the second. Others seal for the key
            // that they hear, so that the roster need not change again.
            nodes.iter().for_each(|(name, host)| enrol(&site, name, *host));
            sign();
            reload();
        }
    }
    assert_never_stalled(&site, get, &bytes);
}

/// Puts a node with all public keys of its file on the roster `r`, at the address of its host.
fn enrol(site: &Site, name: &str, host: Option<usize>) {
    let address = host.map(|host| format!("{}:4433", site.chain.address_from_client(host)));
    site.enrol(name, address.as_deref());
}

/// Each node seals with a cipher of its own choice, and they understand each other.
fn every_cipher_is_understood() {
    for cipher in ["aes-128-gcm", "chacha20-poly1305", "aes-256-gcm", "aes-256-gcm-siv"] {
        let site = Site::new(&[CLEAN]);
        let bytes = site.offer("file", 200_000);
        let _server = site.serve();
        let (code, result) = site.get("file", 0, &["--cipher", cipher]);
        assert_eq!((code, &result["security"]["cipher"]), (0, &cipher.into()), "{result}");
        assert!(site.received() == Some(bytes));
    }
}

fn a_planted_partial_file_is_not_followed() {
    let site = Site::new(&[CLEAN]);
    let bytes = site.offer("file", 100_000);
    let _server = site.serve();
    let (victim, part) = (site.path("victim"), site.path("received.starhop-part"));
    std::fs::write(&victim, "precious").expect("a file");
    for is_hard in [false, true] {
        match is_hard {
            false => std::os::unix::fs::symlink(&victim, &part).expect("a link"),
            true => std::fs::hard_link(&victim, &part).expect("a link"),
        }
        let (code, result) = site.get("file", 0, &[]);
        assert_eq!(code, 6, "{result}");
        assert!(result["error"].as_str().is_some_and(|error| error.contains("remove it")), "{result}");
        assert_eq!(std::fs::read(&victim).expect("it is there"), b"precious");
        std::fs::remove_file(&part).expect("the link");
    }
    // The state beside it is replaced, not written through.
    std::os::unix::fs::symlink(&victim, site.path("received.starhop-state.new")).expect("a link");
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.received() == Some(bytes));
    assert_eq!(std::fs::read(&victim).expect("it is there"), b"precious");
}

/// Something new comes before each timeout, and never enough.
fn a_source_that_trickles_is_given_up() {
    let site = Site::new(&[Hop { rate: Rate::from_bps(32_000), ..CLEAN }]);
    site.offer("file", 1_000_000);
    let _server = site.serve();
    let start = Instant::now();
    let (code, result) = site.get("file", 0, &["--timeout", "4s", "--min-rate", "64kbit"]);
    assert_eq!(code, 4, "{result}");
    assert!(start.elapsed() < Span::from_secs(20), "{:?}", start.elapsed());
    assert!(result["error"].as_str().is_some_and(|error| error.contains("only ")), "{result}");
}

/// Makes keys for a server on the first host and a client, and an unsigned roster `r` with both.
fn make_roster(site: &Site) {
    site.key_verb("roster", &["init", "r", "--authority", "authority", "--domain", "d"]);
    for (name, host) in [("server", Some(0)), ("client", None), ("other", None)] {
        site.key(&["new", name, "--node", "--authority", "authority", "--domain", "d"]);
        enrol(site, name, host);
    }
}

/// A client is removed from the roster; then its server is given the earlier roster, which is signed and has not
/// expired.
fn an_older_roster_lets_nobody_back_in() {
    let site = Site::new(&[CLEAN]);
    site.offer("file", 10_000);
    make_roster(&site);
    let sign = || site.key_verb("roster", &["sign", "r", "--authority", "authority"]);
    let get = |key: &str, roster: &str| {
        let arguments = ["--key", key, "--roster", roster, "--timeout", "1s"];
        site.get_without_key("file", 0, &arguments).0
    };
    sign();
    let server = site.start_with_keys(0, "serve", "server").expect("a server");
    let (roster, old) = (site.path("r"), site.path("old"));
    std::fs::copy(&roster, &old).expect("a copy");
    assert_eq!(get("client", "old"), 0, "it is on the roster");
    site.key_verb("roster", &["remove", "r", "--name", "client"]);
    sign();
    server.signal(Signal::SIGHUP).expect("it runs");
    std::thread::sleep(Span::from_millis(200));
    assert_eq!((get("client", "old"), get("other", "r")), (4, 0), "it was put out");
    std::fs::copy(&old, &roster).expect("the old one");
    server.signal(Signal::SIGHUP).expect("it runs");
    std::thread::sleep(Span::from_millis(200));
    assert_eq!(get("client", "old"), 4, "the server runs");
    drop(server);
    let refused = site.start_with_keys(0, "serve", "server").expect_err("it starts with an old roster");
    assert!(refused.contains("an old one"), "{refused}");
}

fn nodes_with_keys_of_their_own() {
    let site = Site::new(&[LOSSY; 2]);
    let bytes = site.offer("file", 500_000);
    site.key_verb("roster", &["init", "r", "--authority", "authority", "--domain", "d"]);
    for (name, host) in [("server", Some(0)), ("relay", Some(1)), ("client", None), ("stranger", None)] {
        site.key(&["new", name, "--node", "--authority", "authority", "--domain", "d"]);
        if name != "stranger" {
            enrol(&site, name, host);
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
