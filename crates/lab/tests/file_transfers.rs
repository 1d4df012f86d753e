//! Whole transfers through the simulator: on every path the bytes arrive once, whole and right.

use starhop_lab::result::RunResult;
use starhop_lab::run::{load, simulate};
use starhop_lab::scenario::{Change, Scenario};
use std::path::{Path, PathBuf};

const BASE: &str = r#"
title = "Test"
duration = "60s"

[topology]
kind = "chain"
hops = 3

[topology.link]
rate = "20Mbit"
delay = "10ms"
queue = "200p"

[[flow]]
name = "a"
size = "2MB"
"#;

fn run(text: &str, changes: &[&str]) -> RunResult {
    let parsed: Result<Vec<Change>, String> = changes.iter().map(|change| change.parse()).collect();
    let scenario = parsed
        .map_err(|e| e.to_string())
        .and_then(|c| Scenario::parse_changed(text, &c, &|_| Err(String::new())).map_err(|e| e.to_string()));
    match scenario {
        Ok(scenario) => simulate(&scenario, |_| ()),
        Err(error) => panic!("{changes:?}: {error}"),
    }
}

/// The sink checks every byte and the recorder that each is handed over once: no problems is right and whole.
fn assert_whole(result: &RunResult, bytes: u64) {
    assert_eq!(result.problems, [""; 0]);
    for flow in &result.flows {
        assert!(
            flow.completed,
            "{}: {} of {bytes} bytes, seed {}",
            flow.name, flow.delivered_bytes, result.seed
        );
        assert_eq!(flow.delivered_bytes, bytes);
    }
}

const TRANSPORTS: [&str; 5] = ["starhop", "leotp", "leotp-code", "intcp", "intcp-uni"];

#[test]
fn every_transport_gets_a_file_over_a_path_that_does_everything_at_once() {
    for transport in TRANSPORTS {
        let result = run(
            BASE,
            &[
                &format!("flow.a.transport={transport}"),
                "topology.link.loss=2%",
                "topology.link.reorder=2%",
                "topology.link.reorder_by=15ms",
                "topology.link.duplicate=2%",
                "topology.link.corrupt=1%",
            ],
        );
        assert_whole(&result, 2_000_000);
    }
}

#[test]
fn a_file_arrives_with_no_relay_with_one_and_with_all() {
    for relays in ["none", "[\"r2\"]", "all"] {
        let result = run(BASE, &[&format!("topology.relays={relays}"), "topology.link.loss=1%"]);
        assert_whole(&result, 2_000_000);
    }
}

#[test]
fn bursts_and_outages_delay_a_file_and_do_not_damage_it() {
    let loss = "topology.link.loss={ gilbert_elliott = { mean = \"2%\", burst = 8 } }";
    let outage = "topology.link.outage={ every = \"700ms\", last = \"150ms\" }";
    assert_whole(&run(BASE, &[loss, outage]), 2_000_000);
}

#[test]
fn clocks_hours_apart_change_nothing() {
    let same = run(BASE, &["topology.link.loss=1%"]);
    let apart =
        run(BASE, &["topology.link.loss=1%", "topology.clock.r1=-50min", "topology.clock.client=31h"]);
    assert_whole(&apart, 2_000_000);
    // The results are not equal bit for bit: the offsets change how times are rounded to microseconds.
    let (a, b) = (same.flows[0].completion_s, apart.flows[0].completion_s);
    assert!(a.zip(b).is_some_and(|(a, b)| (a - b).abs() < 0.1 * a), "{a:?} {b:?}");
}

#[test]
fn a_relay_may_crash_be_left_out_and_come_back() {
    let events = r#"
[[event]]
at = "300ms"
crash = "r1"
[[event]]
at = "500ms"
bypass = "r1"
[[event]]
at = "800ms"
restart = "r1"
[[event]]
at = "900ms"
include = "r1"
"#;
    for transport in TRANSPORTS {
        let changes = [&format!("flow.a.transport={transport}"), "topology.link.loss=1%"];
        assert_whole(&run(&format!("{BASE}{events}"), &changes), 2_000_000);
    }
}

#[test]
fn a_relay_that_restarts_at_once_needs_no_help() {
    let events = "[[event]]\nat = \"300ms\"\ncrash = \"r2\"\n[[event]]\nat = \"400ms\"\nrestart = \"r2\"\n";
    assert_whole(&run(&format!("{BASE}{events}"), &["topology.link.loss=1%"]), 2_000_000);
}

const TWO_PATHS: &str = r#"
title = "Two paths"
duration = "60s"

[topology]
kind = "parallel"
switch = { every = "500ms" }

[topology.link]
rate = "20Mbit"
queue = "200p"
loss = "0.5%"

[[topology.path]]
hops = 2
delay = "20ms"

[[topology.path]]
hops = 3
delay = "15ms"

[[flow]]
name = "a"
size = "2MB"
"#;

#[test]
fn a_path_may_change_twice_a_second() {
    for in_flight in ["lost", "kept"] {
        for transport in TRANSPORTS {
            let switch = format!("topology.switch.in_flight={in_flight}");
            let result = run(TWO_PATHS, &[&switch, &format!("flow.a.transport={transport}")]);
            assert_whole(&result, 2_000_000);
        }
    }
}

#[test]
fn wrong_bytes_are_never_silently_ignored() {
    // Without UDP's checksum nothing guards plain packets: a damaged packet must fail the run.
    let result =
        run(BASE, &["flow.a.plain=true", "udp_checksum=false", "topology.link.corrupt=5%", "duration=5s"]);
    assert!(result.problems.iter().any(|problem| problem.contains("wrong bytes")), "{:?}", result.problems);
    // A seal finds them all.
    let sealed = run(BASE, &["udp_checksum=false", "topology.link.corrupt=1%"]);
    assert_whole(&sealed, 2_000_000);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let lossy = |seed: &str| run(BASE, &["topology.link.loss=2%", seed]);
    let (first, again, other) = (lossy("seed=1"), lossy("seed=1"), lossy("seed=2"));
    assert_eq!(first.trace_hash, again.trace_hash);
    assert_eq!(first.events, again.events);
    assert_ne!(first.trace_hash, other.trace_hash);
}

#[test]
fn a_stream_beyond_four_gib_does_not_wrap() {
    let changes = [
        "topology.link.rate=8Gbit",
        "topology.link.delay=1ms",
        "flow.a.size=4.4GB",
        "flow.a.options.payload=60000",
        "flow.a.options.buffer_target=8p",
        "flow.a.options.request_limit=48p",
        "topology.hops=2",
        "duration=30s",
    ];
    let result = run(BASE, &changes);
    assert_whole(&result, 4_400_000_000);
}

#[test]
fn every_scenario_in_the_repository_runs_without_a_problem() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() >= 10, "{files:?}");
    for file in files {
        let scenario = load(&file, &[]);
        let Ok(mut scenario) = scenario else { panic!("{:?}", scenario.err()) };
        // Enough to set it up and start every flow; the whole runs are experiments, not tests.
        let latest = scenario.flows.iter().map(|flow| flow.start).max().unwrap_or_default();
        let enough = latest + starhop_proto::time::Duration::from_secs(3);
        scenario.duration = scenario.duration.min(enough);
        let result = simulate(&scenario, |_| ());
        assert_eq!(result.problems, [""; 0], "{}", file.display());
        assert!(result.flows.iter().all(|flow| flow.delivered_bytes > 0), "{}", file.display());
    }
}
