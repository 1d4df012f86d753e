//! The binary itself: real processes, real sockets, real files, on emulated links in namespaces that this
//! test makes. `cargo test --test transfers -- WORD` runs the tests whose names hold the word.

mod harness;
mod support;

use starhop_net::emu::{Hop, scratch};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::time::{Duration as Span, Instant};
use support::{Lying, Site, content};

/// Lossy enough that every transfer needs repairs, fast enough that the tests do not take minutes.
const LOSSY: Hop =
    Hop { rate: Rate::from_mbps(100), delay: Duration::from_millis(5), loss: 0.02, queue: 1000 };
/// Slow enough that something can be done in the middle of a transfer.
const SLOW: Hop = Hop { rate: Rate::from_mbps(8), delay: Duration::from_millis(5), loss: 0.01, queue: 1000 };

fn main() {
    let tests: &[harness::Test] = &[
        ("a_file_arrives_whole_over_lossy_hops", a_file_arrives_whole_over_lossy_hops),
        ("parity_restores_what_a_long_hop_loses", parity_restores_what_a_long_hop_loses),
        ("an_interrupted_download_resumes", an_interrupted_download_resumes),
        ("a_relay_killed_and_restarted_costs_no_byte", a_relay_killed_and_restarted_costs_no_byte),
        ("a_relay_can_be_left_out_in_the_middle", a_relay_can_be_left_out_in_the_middle),
        ("a_name_that_nobody_has_is_told_at_once", a_name_that_nobody_has_is_told_at_once),
        ("a_silent_source_is_given_up_in_time", a_silent_source_is_given_up_in_time),
        ("a_source_that_lies_is_found_out", a_source_that_lies_is_found_out),
        ("a_partial_file_that_rotted_is_found_out", a_partial_file_that_rotted_is_found_out),
        ("an_empty_file_is_a_file", an_empty_file_is_a_file),
        (
            "a_target_that_cannot_be_written_is_refused_at_once",
            a_target_that_cannot_be_written_is_refused_at_once,
        ),
        ("devices_and_pipes_are_written_through", devices_and_pipes_are_written_through),
        ("a_file_that_is_there_is_not_replaced_unasked", a_file_that_is_there_is_not_replaced_unasked),
        ("a_file_that_changes_while_it_is_fetched_is_told", a_file_that_changes_while_it_is_fetched_is_told),
        ("names_as_long_as_a_disk_takes_them", names_as_long_as_a_disk_takes_them),
        ("a_timeout_names_what_was_seen", a_timeout_names_what_was_seen),
        ("a_relay_says_that_its_upstream_is_silent", a_relay_says_that_its_upstream_is_silent),
        ("packets_that_do_not_fit_the_path_are_told_of", packets_that_do_not_fit_the_path_are_told_of),
        (
            "a_path_that_drops_long_packets_is_found_and_told_of",
            a_path_that_drops_long_packets_is_found_and_told_of,
        ),
        ("a_policer_on_the_way_is_named_and_loss_is_not", a_policer_on_the_way_is_named_and_loss_is_not),
        ("several_files_patterns_and_directories", several_files_patterns_and_directories),
        ("the_demo_shows_every_transport", the_demo_shows_every_transport),
        ("the_bench_measures_every_process", the_bench_measures_every_process),
        ("a_killed_parent_leaves_no_process", a_killed_parent_leaves_no_process),
        // Last: its small disk stays mounted.
        ("a_full_disk_is_an_error_and_no_file", a_full_disk_is_an_error_and_no_file),
    ];
    harness::run(tests, || None);
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

/// The hops of a relay's neighbours, as `starhop status` has them.
fn peers_of(site: &Site, socket: &str) -> Vec<serde_json::Value> {
    let output = site.plain_command("status").args([socket, "--json"]).output().expect("it runs");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a document");
    status[0]["peers"].as_array().expect("peers").clone()
}

/// A satellite hop of 250 ms between two relays, sealed: its loss, its parity and what that restored.
fn parity_restores_what_a_long_hop_loses() {
    let ground = Hop { loss: 0.0, ..LOSSY };
    let satellite =
        Hop { rate: Rate::from_mbps(20), delay: Duration::from_millis(250), loss: 0.01, queue: 1000 };
    let site = Site::new(&[ground, satellite, ground]);
    let bytes = site.offer("file", 15_000_000);
    let _server = site.serve();
    let _sender = site.relay_with(1, &["--status-socket", "sender.sock"]);
    let _receiver = site.relay_with(2, &["--status-socket", "receiver.sock"]);
    let (code, result) = site.get("file", 2, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.received() == Some(bytes));
    let hop = |socket: &str, side: &str| {
        peers_of(&site, socket).into_iter().find(|peer| peer["side"] == side).expect("a hop")
    };
    let (sent, received) = (hop("./sender.sock", "downstream"), hop("./receiver.sock", "upstream"));
    let count = |peer: &serde_json::Value, field: &str| peer[field].as_f64().expect("a count");
    let share = count(&sent, "parity_packets") / count(&sent, "packets");
    let restored = count(&received, "restored_packets") / count(&received, "lost");
    println!(
        "     {:.1} % of the packets lost, {:.0} % of those restored by {:.1} % of parity; {} s",
        count(&received, "loss") * 100.0,
        restored * 100.0,
        share * 100.0,
        result["seconds"]
    );
    assert!((0.001..0.06).contains(&share), "{sent}");
    assert!(restored > 0.5, "{received}");
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

/// Runs `get` without `--json` on the last host, from the server.
fn plain_get(site: &Site, name: &str, more: &[&str]) -> std::process::Output {
    let mut command = site.plain_command("get");
    command.args([name, "--from", &site.server()]).args(more);
    let process = site.chain.hosts.last().expect("a host").spawn(command).expect("a process");
    process.output().expect("its end")
}

fn devices_and_pipes_are_written_through() {
    use std::os::unix::fs::FileTypeExt;
    let site = Site::new(&[LOSSY]);
    let large = site.offer("large", 2_000_000);
    let small = site.offer("small", 1000);
    let _server = site.serve();
    let (code, result) = site.get("large", 0, &["--output", "/dev/null"]);
    assert_eq!((code, &result["verified"]), (0, &true.into()), "{result}");
    let null = std::fs::metadata("/dev/null").expect("it is there still");
    assert!(null.file_type().is_char_device(), "it was replaced");
    for (name, bytes) in [("large", &large), ("small", &small)] {
        let output = plain_get(&site, name, &["-o", "-"]);
        assert!(output.status.success() && output.stdout == *bytes, "{name}: {:?}", output.status);
        let pipe = site.path("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe)
        });
        let (code, result) = site.get(name, 0, &["--output", "pipe"]);
        assert_eq!((code, &result["verified"]), (0, &true.into()), "{result}");
        assert!(reader.join().expect("a reader").is_ok_and(|read| read == *bytes), "{name}");
        std::fs::remove_file(&pipe).expect("the pipe is there still");
    }
}

fn a_file_that_is_there_is_not_replaced_unasked() {
    let site = Site::new(&[LOSSY]);
    let bytes = site.offer("file", 100_000);
    let _server = site.serve();
    let mine = site.path("mine");
    std::fs::write(&mine, "mine").expect("a file");
    std::os::unix::fs::symlink("mine", site.path("link")).expect("a link");
    for name in ["mine", "link"] {
        let output = plain_get(&site, "file", &["-o", name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(6) && said.contains("--force"), "{name}: {said}");
        let output = plain_get(&site, "file", &["-o", name, "--no-clobber"]);
        assert!(output.status.success(), "{name}");
        assert_eq!(std::fs::read(&mine).expect("it is there"), b"mine", "{name}");
    }
    assert!(plain_get(&site, "file", &["-o", "link", "--force"]).status.success());
    assert!(site.path("link").is_symlink(), "the link was replaced");
    assert!(std::fs::read(&mine).is_ok_and(|now| now == bytes));
    let (code, result) = (plain_get(&site, "file", &["-o", "mine"]), site.path("mine"));
    assert!(code.status.success(), "the same bytes need not be fetched again: {}", result.display());
}

fn a_file_that_changes_while_it_is_fetched_is_told() {
    let site = Site::new(&[SLOW]);
    site.offer("file", 3_000_000);
    let _server = site.serve();
    let get = site.start_get("file", 0, &[]);
    std::thread::sleep(Span::from_millis(800));
    let bytes = content(2_000_000, 99);
    std::fs::write(site.path("served/file"), &bytes).expect("to change it");
    let (code, result) = get.finish();
    assert_eq!(code, 7, "{result}");
    assert!(result["error"].as_str().is_some_and(|error| error.contains("changed")), "{result}");
    let (code, result) = site.get("file", 0, &[]);
    assert_eq!(code, 0, "{result}");
    assert!(site.received() == Some(bytes) && !site.has_partial());
}

fn names_as_long_as_a_disk_takes_them() {
    let site = Site::new(&[SLOW]);
    for len in [241, 242, 255] {
        let name = "n".repeat(len);
        let bytes = site.offer(&name, 600_000);
        let server = site.serve();
        let mut command = site.plain_command("get");
        command.args([name.as_str(), "--from", &site.server(), "--json"]);
        let process = site.chain.hosts[1].spawn(command).expect("a process");
        std::thread::sleep(Span::from_millis(400));
        process.signal(nix::sys::signal::Signal::SIGINT).expect("it runs");
        assert_eq!(process.output().expect("its end").status.code(), Some(130), "{len}");
        assert!(plain_get(&site, &name, &[]).status.success(), "{len}");
        assert!(std::fs::read(site.path(&name)).is_ok_and(|now| now == bytes), "{len}");
        drop(server);
    }
}

fn a_timeout_names_what_was_seen() {
    // In a second there is one request: a lossy link would lose it, or its refusal, one time in 25.
    let site = Site::new(&[Hop { loss: 0.0, ..LOSSY }]);
    let short = ["--timeout", "1s"];
    let nobody = site.server().replace(":4433", ":9");
    for (from, reason) in
        [("203.0.113.1:4433", "no route to 203.0.113.1"), (nobody.as_str(), "nothing listens on UDP port 9")]
    {
        let (code, result) = site.get_from("file", from, &short);
        assert_eq!(code, 4, "{result}");
        assert!(result["error"].as_str().is_some_and(|error| error.contains(reason)), "{reason}: {result}");
    }
    site.make_key("other.key");
    site.offer("file", 1000);
    let _server = site.serve();
    let (code, result) = site.get("file", 0, &[&short[..], &["--key", "other.key"]].concat());
    assert_eq!(code, 4, "{result}");
    let told = result["error"].as_str().unwrap_or_default();
    assert!(told.contains("another key") && !told.contains("hashed"), "{result}");
}

fn a_relay_says_that_its_upstream_is_silent() {
    let site = Site::new(&[LOSSY; 2]);
    let mut command = site.plain_command("relay");
    command.args(["--upstream", &site.server()]);
    let relay = site.chain.hosts[1].spawn(command).expect("a process");
    std::thread::sleep(Span::from_millis(300));
    assert_eq!(site.get("file", 1, &["--timeout", "8s"]).0, 4);
    relay.signal(nix::sys::signal::Signal::SIGTERM).expect("it runs");
    let said = relay.output().expect("its end").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("the upstream does not answer") && said.contains(&site.server()), "{said}");
}

fn packets_that_do_not_fit_the_path_are_told_of() {
    let site = Site::new(&[LOSSY]);
    let bytes = site.offer("file", 100_000);
    let mut narrow = std::process::Command::new("ip");
    narrow.args(["link", "set", "dev", "down", "mtu", "1280"]);
    let narrowed = site.chain.hosts[0].run(move || narrow.status()).expect("a thread").expect("ip");
    assert!(narrowed.success());
    for (options, is_told) in [("", true), ("payload=1100", false)] {
        let mut command = site.plain_command("serve");
        command.args(["served", "--listen", "[::]:4433", "--options", options]);
        let server = site.chain.hosts[0].spawn(command).expect("a process");
        std::thread::sleep(Span::from_secs(1));
        let (code, result) = site.get("file", 0, &["--timeout", "5s"]);
        assert_eq!(code, 0, "{options}: {result}");
        server.signal(nix::sys::signal::Signal::SIGTERM).expect("it runs");
        let said = String::from_utf8_lossy(&server.output().expect("its end").stderr).into_owned();
        assert_eq!(said.contains("larger than the path takes"), is_told, "{said}");
    }
    assert!(site.received() == Some(bytes));
}

/// Packets of more than 1400 bytes on the server's hop and 1280 on the client's are dropped where they arrive: no
/// interface's MTU tells of it, and no ICMP.
fn a_path_that_drops_long_packets_is_found_and_told_of() {
    let site = Site::new(&[LOSSY; 2]);
    for (host, longest) in [(1, 1400), (2, 1280)] {
        let rule = format!(
            "nft add table inet t; nft add chain inet t in '{{ type filter hook prerouting priority -400; }}'; \
             nft add rule inet t in meta length '>' {longest} drop"
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &rule]);
        assert!(
            site.chain.hosts[host].run(move || command.status()).expect("a thread").expect("sh").success()
        );
    }
    let bytes = site.offer("file", 3_000_000);
    let _server = site.serve();
    let relay = site.relay_with(1, &["--status-socket", "relay.sock"]);
    let began = Instant::now();
    let (code, result) = site.get("file", 1, &["--timeout", "10s"]);
    let took = began.elapsed();
    println!("     3 MB after {took:?}");
    assert_eq!(code, 0, "{result}");
    assert!(site.received() == Some(bytes) && took < Span::from_secs(8), "{took:?}");
    std::thread::sleep(Span::from_millis(2500));
    // IPv4, UDP, the seal and the header take 88 bytes.
    for peer in peers_of(&site, "./relay.sock") {
        let (payload, longest) =
            (peer["payload_bytes"].as_u64(), if peer["side"] == "upstream" { 1312 } else { 1192 });
        assert!(payload.is_some_and(|payload| (longest - 40..=longest).contains(&payload)), "{peer}");
    }
    relay.signal(nix::sys::signal::Signal::SIGTERM).expect("it runs");
    let said = String::from_utf8_lossy(&relay.output().expect("its end").stderr).into_owned();
    assert_eq!(said.matches("the path drops longer packets").count(), 1, "{said}");
}

/// A policer lets 12 Mbit/s pass and drops the rest. Loss of 2 % is none, nor is loss of 30 % at a rate that is limited here.
fn a_policer_on_the_way_is_named_and_loss_is_not() {
    const POLICE: &str = "limit rate over 1500 kbytes/second burst 15 kbytes";
    const LOSE: &str = "numgen random mod 100 < 30";
    for (drops, limit) in [(Some(POLICE), "1Gbit"), (None, "1Gbit"), (Some(LOSE), "20Mbit")] {
        let is_policed = drops == Some(POLICE);
        let site = Site::new(&[if drops.is_some() { Hop { loss: 0.0, ..LOSSY } } else { LOSSY }; 2]);
        let rule = format!(
            "nft add table inet t; nft add chain inet t in '{{ type filter hook prerouting priority -400; }}'; \
             nft add rule inet t in 'udp sport 4433 {} drop'",
            drops.unwrap_or_default()
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", drops.map_or("true", |_| &rule)]);
        assert!(site.chain.hosts[1].run(move || command.status()).expect("a thread").expect("sh").success());
        let bytes = site.offer("file", 12_000_000);
        let _server = site.serve();
        let relay = site.relay_with(1, &["--status-socket", "./relay-4433.1.sock", "--limit-rate", limit]);
        let (code, result) = site.get("file", 1, &["--timeout", "10s"]);
        assert!(code == 0 && site.received() == Some(bytes), "{result}");
        let upstream =
            peers_of(&site, "./relay-4433.1.sock").into_iter().find(|peer| peer["side"] == "upstream");
        let upstream = upstream.expect("an upstream");
        println!("     {drops:?}: {} Mbit/s, {} of loss", upstream["policed_mbps"], upstream["loss"]);
        let mut doctor = site.plain_command("doctor");
        doctor.env("STARHOP_RUNTIME_DIR", site.path(""));
        let found = site.chain.hosts[1].spawn(doctor).expect("a process").output().expect("its end").stdout;
        let found = String::from_utf8_lossy(&found).into_owned();
        // The log is written once a second.
        std::thread::sleep(Span::from_millis(1_500));
        relay.signal(nix::sys::signal::Signal::SIGTERM).expect("it runs");
        let said = String::from_utf8_lossy(&relay.output().expect("its end").stderr).into_owned();
        if is_policed {
            let mbps = upstream["policed_mbps"].as_f64();
            assert!(mbps.is_some_and(|mbps| (11.0..13.0).contains(&mbps)), "{upstream}");
            // A half of it was lost when the hop did not keep to the rate that it knew.
            assert!(upstream["loss"].as_f64().is_some_and(|loss| loss < 0.2), "{upstream}");
            assert!(found.contains("policing towards relay-4433: could be better"), "{found}");
            assert!(found.contains("--limit-rate 11"), "{found}");
        } else {
            assert!(upstream["policed_mbps"].is_null(), "{upstream}");
            assert!(found.contains("policing towards relay-4433: ok"), "{found}");
        }
        // On a busy machine packets bunch, which refutes the policer for a moment; then it is told of twice.
        assert_eq!(said.contains("queues nothing"), is_policed, "{said}");
    }
}

fn several_files_patterns_and_directories() {
    let site = Site::new(&[LOSSY; 2]);
    let names = ["a.mkv", "b.mkv", "c.txt", "d/e/two", "d/one"];
    let bytes: Vec<_> = names.iter().zip(40_000..).map(|(name, len)| site.offer(name, len)).collect();
    let _server = site.serve();
    let _relay = site.relay(1);
    let run = |verb: &str, more: &[&str]| {
        let mut command = site.plain_command(verb);
        command.args(["--from", &site.chain_address(1)]).args(more);
        site.chain.hosts[2].spawn(command).expect("a process").output().expect("its end")
    };
    let listed = run("ls", &["--json"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let found: Vec<serde_json::Value> =
        listed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(
        found.iter().filter_map(|offer| offer["name"].as_str()).collect::<Vec<_>>(),
        names,
        "{listed}"
    );
    assert_eq!(found[0]["blake3"], blake3::hash(&bytes[0]).to_hex().as_str());
    assert_eq!(run("ls", &["*.txt"]).stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(run("ls", &["no*"]).status.code(), Some(3));
    let got = run("get", &["*.mkv", "d/", "c.txt", "-o", "here", "--quiet"]);
    assert!(got.status.success() && got.stdout.is_empty(), "{}", String::from_utf8_lossy(&got.stderr));
    for (name, bytes) in names.iter().zip(&bytes) {
        assert!(std::fs::read(site.path("here").join(name)).is_ok_and(|read| read == *bytes), "{name}");
    }
    assert_eq!(run("get", &["*.zip"]).status.code(), Some(3), "nothing matches");
    // One of them is not there; the others are fetched nevertheless.
    let got = run("get", &["a.mkv", "missing", "b.mkv", "-o", "there"]);
    assert_eq!(got.status.code(), Some(3));
    assert!(site.path("there/a.mkv").exists() && site.path("there/b.mkv").exists());
    // The first source is silent.
    let nobody = site.server().replace(":4433", ":9");
    let mut command = site.plain_command("get");
    command.args(["c.txt", "--from", &nobody, "--from", &site.server(), "--timeout", "1s"]);
    let got = site.chain.hosts[2].spawn(command).expect("a process").output().expect("its end");
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
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
    let (code, result) =
        site.run("bench", &["--size", "20MB", "--rounds", "1", "--iperf-seconds", "0", "--flows", "10"]);
    assert_eq!(code, 0, "{result}");
    let parts = result["tools"][0]["parts"].as_array().expect("parts");
    assert_eq!(parts.len(), 3, "{result}");
    assert!(result["per_packet"]["seal_ns"].as_f64() > Some(0.0), "{result}");
    assert!(parts.iter().all(|part| part["cpu_seconds"].as_f64() > Some(0.0)), "{result}");
    assert!(result["tools"][0]["gbit_per_second"].as_f64() > Some(0.05), "{result}");
    let crowd = |field: &str| result["crowds"][0][field].as_f64().expect("a number");
    assert!(crowd("flows") == 10.0 && crowd("gbit_per_second") > 0.01, "{result}");
    assert!(crowd("gbit_per_core") > 0.05 && crowd("gbit_per_core_alone") > 0.05, "{result}");
    assert!((500.0..100_000.0).contains(&crowd("state_bytes_each")), "{result}");
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
            println!("skipped 1 tests: {error}");
            return;
        }
    };
    let output = disk.join("out");
    let output = output.to_str().unwrap_or_default();
    // The length is known beforehand by its name; by its hash the disk fills up on the way.
    for name in ["file".to_owned(), format!("b3:{}", blake3::hash(&bytes))] {
        let (code, result) = site.get(&name, 0, &["--output", output]);
        assert_eq!(code, 6, "{result}");
        assert!(result["error"].as_str().is_some_and(|error| error.contains("space")), "{result}");
        assert!(!std::path::Path::new(output).exists(), "a file that looks whole");
    }
}
