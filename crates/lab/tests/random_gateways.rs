//! Users' TCP through a pair of gateways, over a hop drawn by a seed, beside the same connections without gateways. The gateways fill the
//! link, and are never worse than nothing. `CHAOS_SEEDS=1000` runs so many seeds (`make chaos`), and `CHAOS_FROM` is the first.

#[path = "support/seeded.rs"]
mod seeded;
#[path = "support/text.rs"]
mod text;

use starhop_lab::result::{FlowResult, RunResult};
use starhop_lab::run::simulate;
use starhop_proto::rng::Rng;
use std::fmt::Write as _;

/// Seeds, where none are asked for.
const SEEDS: u64 = 8;
/// The end of a run is judged, long after the disturbance.
const DURATION_S: u64 = 30;
const JUDGED_S: u64 = 12;
/// The least part of what the link can carry that bulk has through gateways, or of what it has without.
const LEAST: f64 = 0.75;
/// Files take at most so many times as long as without gateways, and so much longer, s: bulk that fills the link leaves them their shares.
const MOST_LONGER: f64 = 2.0;
const MOST_LATER_S: f64 = 3.0;
/// Payload of a full packet on the wire, with the frames of the gateways.
const PAYLOAD: f64 = 1320.0 / 1412.0;

struct Path {
    text: String,
    /// Bulk that the hop can carry in the judged time, Mbit/s.
    mbps: f64,
}

fn one_of<T: Copy>(draw: &mut Rng, choices: &[T]) -> T {
    choices[draw.below(choices.len() as u64) as usize]
}

/// A hop between two others that are wide and short.
fn path(draw: &mut Rng) -> Path {
    let (mbps, delay_ms) = (one_of(draw, &[2.0, 10.0, 50.0]), one_of(draw, &[5.0, 20.0, 60.0, 270.0]));
    let (loss, lost) = one_of(
        draw,
        &[
            ("\"0\"", 0.0),
            ("\"1%\"", 0.01),
            ("\"5%\"", 0.05),
            ("{ gilbert_elliott = { mean = \"1%\", burst = 5 } }", 0.01),
            ("{ gilbert_elliott = { mean = \"3%\", burst = 20 } }", 0.03),
        ],
    );
    let jitter_ms: f64 = one_of(draw, &[0.0, 0.0, 2.0, 6.0]);
    let keeps_order = one_of(draw, &[true, false]);
    let queue: f64 = one_of(draw, &[0.5, 1.0, 3.0]) * mbps * (2.0 * delay_ms + 20.0) / 11.2;
    let (at, lasts) = (2.0 + 4.0 * draw.unit(), one_of(draw, &[0.1, 0.5, 2.0, 4.0]));
    let back = at + lasts;
    let mut rate = format!("\"{mbps}Mbit\"");
    let mut delay = format!(
        "{{ mean = \"{delay_ms}ms\", jitter = \"{}ms\", keeps_order = {keeps_order} }}",
        jitter_ms.min(delay_ms / 2.0)
    );
    let mut outage = String::new();
    match one_of(draw, &["none", "outage", "rate", "delay"]) {
        "outage" => outage = format!("outage = {{ times = [[\"{at}s\", \"{back}s\"]] }}\n"),
        "rate" => {
            let other = mbps * one_of(draw, &[0.2, 0.5, 2.0]);
            rate = format!(
                "{{ steps = [[\"0s\", \"{mbps}Mbit\"], [\"{at}s\", \"{other}Mbit\"], [\"{back}s\", \"{mbps}Mbit\"]] }}"
            );
        }
        "delay" => {
            let other = delay_ms * one_of(draw, &[0.5, 2.0, 3.0]);
            delay = format!(
                "{{ steps = [[\"0s\", \"{delay_ms}ms\"], [\"{at}s\", \"{other}ms\"], [\"{back}s\", \"{delay_ms}ms\"]] }}"
            );
        }
        _ => {}
    }
    let text = format!(
        "[topology]\nkind = \"chain\"\nhops = 3\n[topology.link]\nrate = \"{}Mbit\"\ndelay = \"5ms\"\n\
         [[topology.override]]\nhop = 2\nrate = {rate}\ndelay = {delay}\nloss = {loss}\nqueue = \"{}p\"\n{outage}",
        5.0 * mbps,
        queue.max(20.0) as u64
    );
    Path { text, mbps: mbps * (1.0 - lost) * PAYLOAD }
}

/// The scenario of a seed, with gateways and without, and what its hop can carry.
fn scenarios_of(seed: u64) -> ([String; 2], f64) {
    let mut draw = Rng::new(seed).fork(0x6761_7465);
    let Path { text, mbps } = path(&mut draw);
    let head = format!(
        "title = \"random\"\nseed = {seed}\nduration = \"{DURATION_S}s\"\nwarmup = \"{}s\"\n{text}",
        DURATION_S - JUDGED_S
    );
    let bulk = (one_of(&mut draw, &["cubic", "cubic", "bbr"]), one_of(&mut draw, &[1, 2, 10, 40]));
    let up = one_of(&mut draw, &[0, 0, 1, 5]);
    let files = (one_of(&mut draw, &[1, 10]), one_of(&mut draw, &[20_000, 200_000]), 1.0 + 6.0 * draw.unit());
    let flows = |[gateway, back]: [&str; 2]| {
        let mut text = head.clone();
        let ((control, bulk), (count, size, start)) = (bulk, files);
        write!(
            text,
            "[[flow]]\nname = \"bulk\"\ntransport = \"{control}\"\ncount = {bulk}\n{gateway}\
             [[flow]]\nname = \"file\"\ntransport = \"cubic\"\ncount = {count}\nsize = \"{size}B\"\nstart = \"{start}s\"\n{gateway}"
        )
        .expect("memory");
        if up > 0 {
            write!(
                text,
                "[[flow]]\nname = \"up\"\nfrom = \"client\"\nto = \"server\"\ntransport = \"cubic\"\ncount = {up}\n{back}"
            )
            .expect("memory");
        }
        text
    };
    let with = ["gateway = [\"r1\", \"r2\"]\n", "gateway = [\"r2\", \"r1\"]\n"];
    ([flows(with), flows([""; 2])], mbps)
}

fn flows<'a>(result: &'a RunResult, group: &'a str) -> impl Iterator<Item = &'a FlowResult> {
    result.flows.iter().filter(move |flow| flow.name.starts_with(group))
}

/// The goodput of all bulk of a direction, Mbit/s.
fn bulk(result: &RunResult, direction: &str) -> f64 {
    flows(result, direction).fold(0.0, |sum, flow| sum + flow.goodput_mbps)
}

/// The mean time of a file, s. One that is not complete takes as long as the run.
fn file_s(result: &RunResult) -> f64 {
    let times: Vec<f64> =
        flows(result, "file").map(|flow| flow.completion_s.unwrap_or(DURATION_S as f64)).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

/// True if all files are complete before bulk is judged: afterwards it has the link for itself.
fn files_are_over(result: &RunResult) -> bool {
    let end = |flow: &FlowResult| flow.completion_s.map(|s| flow.start_s + s);
    flows(result, "file").all(|flow| end(flow).is_some_and(|s| s <= (DURATION_S - JUDGED_S) as f64))
}

/// The shortcomings of gateways beside none.
fn shortcomings(with: &RunResult, without: &RunResult, mbps: f64) -> Vec<String> {
    let mut found: Vec<String> = with.problems.iter().map(|problem| format!("{problem:?}")).collect();
    for direction in ["bulk", "up"] {
        let (through, plain) = (bulk(with, direction), bulk(without, direction));
        let is_judged =
            flows(with, direction).next().is_some() && (direction == "up" || files_are_over(with));
        if is_judged && through < LEAST * mbps.max(plain) {
            found.push(format!("{direction} has {through:.2} of {mbps:.2} Mbit/s, without {plain:.2}"));
        }
    }
    if file_s(with) > MOST_LONGER * file_s(without) + MOST_LATER_S {
        found.push(format!("files take {:.2} s, without {:.2}", file_s(with), file_s(without)));
    }
    found
}

#[test]
fn over_paths_drawn_by_a_seed_gateways_fill_the_link_and_are_never_worse_than_nothing() {
    let mut failed = Vec::new();
    for seed in seeded::seeds(SEEDS) {
        let (texts, mbps) = scenarios_of(seed);
        let [with, without] = texts.each_ref().map(|text| simulate(&text::parse(text), |_| ()));
        let found = shortcomings(&with, &without, mbps);
        println!(
            "seed {seed}: bulk {:.2} of {mbps:.2}, without {:.2}; up {:.2}, without {:.2}; files {:.2} s, without {:.2}; {found:?}",
            bulk(&with, "bulk"),
            bulk(&without, "bulk"),
            bulk(&with, "up"),
            bulk(&without, "up"),
            file_s(&with),
            file_s(&without)
        );
        if !found.is_empty() {
            failed.push(format!("seed {seed}: {found:?}\n{}", texts[0]));
        }
    }
    assert!(failed.is_empty(), "{} seeds\n{}", failed.len(), failed.join("\n"));
}
