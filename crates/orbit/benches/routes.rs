//! The time that routes take, against the bounds that the project set itself:
//! `cargo bench -p starhop-orbit` prints the times and fails if a bound is broken; `-- --day` adds 24 h of 1 s
//! steps.
//!
//! A step is everything: places of 1584 satellites, all links, the trees to 100 stations, and the next hops of all pairs.

#![allow(clippy::disallowed_types, reason = "a bench measures wall time")]

use starhop_orbit::ground;
use starhop_orbit::network::Network;
use starhop_orbit::preset;
use starhop_orbit::route::{Relaying, Router, Steps, sweep};
use starhop_orbit::schedule::{Plan, Schedule};
use std::time::Instant;

fn network(name: &str) -> Network {
    let preset = preset::by_name(name).expect("the preset is built in");
    Network::from_preset(&preset, ground::cities()).expect("its orbits are possible")
}

/// Times of a step, ms.
struct Times {
    /// The fastest tenth: the cost of a step that has a core to itself.
    best: f64,
    median: f64,
    mean: f64,
}

fn step_ms(network: &Network, steps: u32, incremental: bool) -> Times {
    let mut observer = network.observe();
    let mut router = Router::all_pairs(network, Relaying::Satellites);
    let mut times = Vec::new();
    for t in 0..steps {
        let start = Instant::now();
        let snapshot = observer.at(f64::from(t)).expect("the satellites fly");
        if incremental {
            router.advance(snapshot);
        } else {
            router.rebuild(snapshot);
        }
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    // The first step fills all tables; it is no step of a run.
    times.remove(0);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    times.sort_by(f64::total_cmp);
    Times { best: times[times.len() / 10], median: times[times.len() / 2], mean }
}

fn print(what: &str, times: &Times) {
    let Times { best, median, mean } = times;
    println!("{what:<56} p10 {best:8.3} ms, median {median:8.3} ms, mean {mean:8.3} ms");
}

/// The bound is for one core; on a shared machine the median and the mean measure the neighbours as well.
fn check(what: &str, times: &Times, bound: f64) -> bool {
    print(what, times);
    println!("    bound {bound} ms: {}", if times.best <= bound { "ok" } else { "TOO SLOW" });
    times.best <= bound
}

fn peak_memory_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// The time in which one pair's schedule is made for a simulator.
fn plan() {
    let mut network = network("starlink-550");
    network.stations.retain(|s| ["Beijing", "New York"].contains(&s.name.as_str()));
    let start = Instant::now();
    let schedule = Schedule::new(Plan::new(vec![(0, 1)], 600.0), &network).expect("the plan is sound");
    let (changes, seconds) = (schedule.iter().count(), start.elapsed().as_secs_f64());
    println!("schedule of Beijing-New York, 600 s: {changes} changes in {:.0} ms", seconds * 1e3);
}

fn day() -> bool {
    let network = network("starlink-550");
    let start = Instant::now();
    let steps = Steps::until(86_400.0, 1.0);
    let parts =
        sweep(&network, Relaying::Satellites, steps, 2, || 0u64, |n, _, _| *n += 1).expect("satellites fly");
    let seconds = start.elapsed().as_secs_f64();
    let verdict = if seconds <= 90.0 { "ok" } else { "TOO SLOW" };
    println!(
        "24 h at 1 s ({} steps), 2 threads: {seconds:.1} s, bound 90 s: {verdict}",
        parts.iter().sum::<u64>()
    );
    seconds <= 90.0
}

fn main() {
    let small = network("starlink-550");
    let mut good =
        check("1584 satellites, 100 stations, all pairs, from nothing", &step_ms(&small, 120, false), 5.0);
    good &= check("1584 satellites, 100 stations, all pairs, step by step", &step_ms(&small, 600, true), 1.0);
    println!("peak memory so far {:.0} MB", peak_memory_mb());
    let large = network("starlink-42000");
    print("42 000 satellites, 100 stations, from nothing", &step_ms(&large, 4, false));
    print("42 000 satellites, 100 stations, step by step", &step_ms(&large, 12, true));
    println!("peak memory {:.0} MB", peak_memory_mb());
    plan();
    if std::env::args().any(|a| a == "--day") {
        good &= day();
    }
    if !good {
        std::process::exit(1);
    }
}
