//! Crowds of real processes: many small files, and many flows at once, through relays on emulated links. The names that
//! begin with `long` are the whole sizes: `cargo test --release --test crowds -- long`.

mod harness;
mod support;

use serde_json::Value;
use starhop_net::emu::{Hop, Process};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::fmt::Write as _;
use std::time::Instant;
use support::{Site, content, peak_memory};

/// Fast and short: the path adds little to the time of small files.
const NEAR: Hop =
    Hop { rate: Rate::from_mbps(1000), delay: Duration::from_millis(1), loss: 0.0, queue: 1000 };
/// A path that a crowd shares.
const SHARED: Hop =
    Hop { rate: Rate::from_mbps(100), delay: Duration::from_millis(5), loss: 0.0, queue: 1000 };

/// A satellite high above.
const FAR: Hop = Hop { rate: Rate::from_mbps(20), delay: Duration::from_millis(250), loss: 0.0, queue: 1000 };

/// Programs that fetch small files side by side.
const GETS: usize = 8;
/// Files that each of them fetches at once.
const AT_ONCE: usize = 8;
const SMALL: usize = 20;

fn main() {
    let tests: &[harness::Test] = &[
        ("hundreds_of_small_files_arrive_and_none_fails", || small_files(400)),
        ("every_program_of_a_crowd_gets_its_file", || crowd(60, 1, 200_000)),
        ("one_program_fetches_a_crowd_of_files_side_by_side", || crowd(1, 60, 200_000)),
        ("the_files_of_one_program_share_their_round_trips_to_a_satellite", distant),
        ("long_thousands_of_small_files_arrive_and_none_fails", || small_files(2_000)),
        ("long_every_one_of_three_hundred_programs_gets_its_file", || crowd(300, 1, 1_000_000)),
        ("long_one_program_fetches_three_hundred_files_side_by_side", || crowd(1, 300, 1_000_000)),
    ];
    harness::run(tests, || None);
}

/// Makes files of different bytes to serve; their names.
fn offer(site: &Site, count: usize, len: usize) -> Vec<String> {
    let make = |n: usize| {
        let name = format!("file-{n}");
        std::fs::write(site.path("served").join(&name), content(len, 1000 + n as u64)).expect("a file");
        name
    };
    (0..count).map(make).collect()
}

/// Starts a program that fetches files, so many at once.
fn fetch(site: &Site, from: usize, names: &[String], at_once: usize) -> Process {
    let mut command = site.command("get");
    command.args(names).args(["--discard", "--from", &site.chain_address(from)]);
    command.args(["--at-once", &at_once.to_string()]);
    site.chain.hosts.last().expect("a host").spawn(command).expect("a process")
}

/// The results that a program told, and what it complained of.
fn results(get: Process) -> (Vec<Value>, String) {
    let output = get.output().expect("its end");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let results = told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (results, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The same of many programs side by side: one that nobody reads from waits.
fn all_results(gets: Vec<Process>) -> Vec<(Vec<Value>, String)> {
    let readers: Vec<_> = gets.into_iter().map(|get| std::thread::spawn(|| results(get))).collect();
    readers.into_iter().map(|reader| reader.join().expect("its results")).collect()
}

fn sum(results: &[Value], field: &str) -> u64 {
    results.iter().filter_map(|result| result[field].as_u64()).sum()
}

/// Results of files that came with all their bytes.
fn whole(results: &[Value], len: usize) -> usize {
    let is_whole =
        |result: &&Value| result["bytes"].as_u64() == Some(len as u64) && result["error"].is_null();
    results.iter().filter(is_whole).count()
}

fn small_files(count: usize) {
    let mut site = Site::new(&[NEAR; 2]);
    site.levels = Some("warn");
    let names = offer(&site, count, SMALL);
    let _server = site.serve();
    let relay = site.relay_with_events(1);
    let before = peak_memory(relay.process.id());
    let start = Instant::now();
    let gets: Vec<_> =
        names.chunks(count.div_ceil(GETS)).map(|names| fetch(&site, 1, names, AT_ONCE)).collect();
    let mut all = Vec::new();
    let mut complaints = String::new();
    for (told, complaint) in all_results(gets) {
        all.extend(told);
        let _ = write!(complaints, "{complaint}");
    }
    let took = start.elapsed().as_secs_f64();
    let after = peak_memory(relay.process.id());
    let end = relay.end("end");
    let neighbours = end["neighbours"].as_u64().unwrap_or(0).max(1);
    // Each neighbour's file is in a block of the cache, which is no memory of the neighbour.
    let cached = end["cache_bytes"].as_u64().unwrap_or(0);
    println!(
        "     {} of {count} files of {SMALL} bytes in {took:.2} s, {:.2} ms each in one of {GETS} programs; {} timeouts; \
         {neighbours} neighbours, {} bytes of memory for each beside the cache",
        all.len(),
        took * 1e3 * GETS as f64 / count as f64,
        sum(&all, "timeouts"),
        (after - before).saturating_sub(cached) / neighbours,
    );
    assert_eq!(whole(&all, SMALL), count, "{complaints}");
    assert_eq!(sum(&all, "timeouts"), 0, "{complaints}");
}

/// Each file takes two round trips of half a second, one for its length and hash and one for its bytes.
fn distant() {
    let mut site = Site::new(&[FAR]);
    site.levels = Some("warn");
    let names = offer(&site, 32, 20_000);
    let _server = site.serve();
    let start = Instant::now();
    let (all, complaints) = results(fetch(&site, 0, &names, 16));
    let took = start.elapsed().as_secs_f64();
    println!(
        "     {} files of 20 kB in {took:.2} s, 16 at once; one after the other they take 32 s",
        all.len()
    );
    assert_eq!(whole(&all, 20_000), names.len(), "{complaints}");
    assert!(took < 8.0, "{took} s");
}

/// Programs that fetch as many files each at the same time, through two relays.
fn crowd(programs: usize, files: usize, len: usize) {
    let mut site = Site::new(&[SHARED; 3]);
    site.levels = Some("warn");
    let count = programs * files;
    let names = offer(&site, count, len);
    let _server = site.serve();
    let _relays = [1, 2].map(|host| site.relay(host));
    let start = Instant::now();
    let gets: Vec<_> = names.chunks(files).map(|names| fetch(&site, 2, names, files)).collect();
    let started = start.elapsed().as_secs_f64();
    let told = all_results(gets);
    let took = start.elapsed().as_secs_f64();
    let complaints: String = told.iter().map(|(_, complaint)| complaint.as_str()).collect();
    let all: Vec<Value> = told.into_iter().flat_map(|(results, _)| results).collect();
    let rates: Vec<f64> = all.iter().filter_map(|result| result["goodput_mbps"].as_f64()).collect();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let jain = rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares);
    // 1350 bytes of payload in at most 1441 on the wire.
    let ideal = (count * len) as f64 * 8.0 / (100e6 * 1350.0 / 1441.0);
    println!(
        "     {} of {count} files of {len} bytes by {programs} programs in {took:.2} s, {:.1} % of the path (the last program started after {started:.2} s); \
         Jain {jain:.3} over transfers; {} timeouts, {} repairs",
        all.len(),
        100.0 * ideal / took,
        sum(&all, "timeouts"),
        sum(&all, "repairs"),
    );
    assert_eq!(whole(&all, len), count, "{complaints}");
}
