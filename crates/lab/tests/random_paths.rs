//! Paths, losses, disturbances and crowds drawn by a seed. In every run files arrive, and once the disturbances are over the path is used and
//! no flow is left behind. `CHAOS_SEEDS=1000` runs so many seeds (`make chaos`), and `CHAOS_FROM` is the first.

#[path = "support/seeded.rs"]
mod seeded;
#[path = "support/text.rs"]
mod text;

use starhop_lab::result::{FlowResult, LinkResult, RunResult};
use starhop_lab::run::simulate;
use starhop_proto::rng::Rng;

/// Seeds, where none are asked for.
const SEEDS: u64 = 8;
/// The end of a run is judged, long after the last disturbance.
const JUDGED_S: u64 = 6;
/// The least share of some link that is in use then. Paths of several hops that lose a tenth have three quarters of the ideal.
const USED: f64 = 0.6;
/// Where the fair share are so many packets, each flow has at least a tenth of it, and the files have come.
const TELLING_PACKETS: f64 = 8.0;
/// Away from the server only: of Interests, twenty are many round trips.
const IN_BURSTS: &str = "{ gilbert_elliott = { mean = \"3%\", burst = 20 } }";
/// Payload of a full packet, Mbit.
const PACKET_MBIT: f64 = 1350.0 * 8e-6;

/// Draws the fields of scenarios.
struct Draw(Rng);

impl Draw {
    /// One of several.
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.below(choices.len() as u64) as usize]
    }

    /// A time between two, seconds.
    fn seconds(&mut self, least: f64, most: f64) -> f64 {
        least + self.0.unit() * (most - least)
    }
}

/// The fields that others depend on.
struct Path {
    mbps: f64,
    delay_ms: u64,
    hops: u64,
    disturbance: &'static str,
}

impl Path {
    fn draw(draw: &mut Draw) -> Self {
        let delay_ms = draw.of(&[1, 5, 20, 50, 120, 280]);
        let hops = draw.of(&[1, 2, 3, 4]).min(if delay_ms >= 120 { 2 } else { 4 });
        let disturbance = draw.of(&["none", "outage", "rate", "delay", "crash"]);
        Self {
            mbps: draw.of(&[if delay_ms >= 120 { 2.0 } else { 0.5 }, 2.0, 10.0, 30.0, 100.0]),
            delay_ms,
            hops,
            disturbance,
        }
    }

    /// Its length in time, seconds: long paths need longer to be found.
    fn duration_s(&self) -> u64 {
        if self.delay_ms >= 120 { 45 } else { 30 }
    }

    /// The queue of a link, packets.
    fn queue(&self, draw: &mut Draw) -> u64 {
        let product = self.mbps * 1e3 * (2 * self.delay_ms * self.hops) as f64 / 8.0 / 1400.0;
        draw.of(&[(0.5 * product) as u64, product as u64, (3.0 * product) as u64, 5_000]).max(20)
    }

    fn rate(&self, draw: &mut Draw) -> String {
        if self.disturbance != "rate" {
            return format!("\"{}Mbit\"", self.mbps);
        }
        let (first, second) = (draw.seconds(1.0, 3.0), draw.seconds(3.1, 8.0));
        let other = self.mbps * draw.of(&[0.2, 0.5, 2.0]);
        let last = draw.of(&[self.mbps, other]);
        format!(
            "{{ steps = [[\"0s\", \"{}Mbit\"], [\"{first:.3}s\", \"{other}Mbit\"], [\"{second:.3}s\", \"{last}Mbit\"]] }}",
            self.mbps
        )
    }

    fn delay(&self, draw: &mut Draw) -> String {
        let (mean, jitter) =
            (self.delay_ms, draw.of(&[0.0_f64, 0.0, 1.0, 4.0]).min(self.delay_ms as f64 / 2.0));
        if self.disturbance == "delay" {
            let (first, second) = (draw.seconds(1.0, 4.0), draw.seconds(5.0, 9.0));
            let other = mean as f64 * draw.of(&[0.5, 1.5, 3.0]);
            return format!(
                "{{ steps = [[\"0s\", \"{mean}ms\"], [\"{first:.3}s\", \"{other}ms\"], [\"{second:.3}s\", \"{mean}ms\"]] }}"
            );
        }
        if jitter == 0.0 {
            return format!("\"{mean}ms\"");
        }
        let order = draw.of(&[true, false]);
        format!("{{ mean = \"{mean}ms\", jitter = \"{jitter}ms\", keeps_order = {order} }}")
    }

    fn outage(&self, draw: &mut Draw) -> String {
        if self.disturbance != "outage" {
            return String::new();
        }
        let (begin, lasts) = (draw.seconds(1.0, 4.0), draw.of(&[0.05, 0.3, 1.0, 3.0]));
        let times: Vec<String> = (0..draw.of(&[1, 3]))
            .map(|turn| begin + 3.5 * f64::from(turn))
            .map(|at| format!("[\"{at:.3}s\", \"{:.3}s\"]", at + lasts))
            .collect();
        format!("outage = {{ times = [{}] }}\n", times.join(", "))
    }

    fn crash(&self, draw: &mut Draw) -> String {
        if self.disturbance != "crash" || self.hops == 1 {
            return String::new();
        }
        let relay = 1 + draw.0.below(self.hops - 1);
        let (at, gone) = (draw.seconds(1.0, 8.0), draw.of(&[0.05, 0.5, 2.0]));
        format!(
            "[[event]]\nat = \"{at:.3}s\"\ncrash = \"r{relay}\"\n[[event]]\nat = \"{:.3}s\"\nrestart = \"r{relay}\"\n",
            at + gone
        )
    }
}

/// The scenario of a seed.
fn scenario_of(seed: u64) -> String {
    let draw = &mut Draw(Rng::new(seed).fork(0x7261_6e64_6f6d));
    let path = Path::draw(draw);
    let (duration, hops) = (path.duration_s(), path.hops);
    let (rate, delay, queue) = (path.rate(draw), path.delay(draw), path.queue(draw));
    let loss = draw.of(&[
        "\"0%\"",
        "\"0.5%\"",
        "\"2%\"",
        "\"5%\"",
        "{ gilbert_elliott = { mean = \"1%\", burst = 5 } }",
        IN_BURSTS,
    ]);
    let both = if loss == IN_BURSTS { "data" } else { "both" };
    let direction = draw.of(&[both, "data"]);
    let outage = path.outage(draw);
    let narrow = match draw.of(&[1.0, 1.0, 0.5, 0.1]) {
        share if share < 1.0 && hops > 1 && path.disturbance != "rate" => {
            let hop = 1 + draw.0.below(hops);
            format!("[[topology.override]]\nhop = {hop}\nrate = \"{}Mbit\"\n", path.mbps * share)
        }
        _ => String::new(),
    };
    let (count, stagger) = (draw.of(&[1, 2, 10, 60, 200]), draw.of(&[0, 1, 20]));
    let cache = draw.of(&["512KiB", "4MiB", "64MiB"]);
    let crash = path.crash(draw);
    format!(
        "title = \"random\"\nseed = {seed}\nduration = \"{duration}s\"\nwarmup = \"{}s\"\n\
         [topology]\nkind = \"chain\"\nhops = {hops}\nrelays = \"all\"\n\
         [topology.link]\nrate = {rate}\ndelay = {delay}\nloss = {loss}\nloss_direction = \"{direction}\"\nqueue = \"{queue}p\"\n\
         {outage}{narrow}\
         [[flow]]\nname = \"a\"\ncount = {count}\nstagger = \"{stagger}ms\"\noptions = {{ cache = \"{cache}\" }}\n\
         [[flow]]\nname = \"file\"\ncount = 5\nstagger = \"300ms\"\nsize = \"4kB\"\noptions = {{ cache = \"{cache}\" }}\n{crash}",
        duration - JUDGED_S
    )
}

fn run(seed: u64) -> (String, RunResult) {
    let text = scenario_of(seed);
    let result = simulate(&text::parse(&text), |_| ());
    (text, result)
}

/// The shortcomings of a run.
fn shortcomings(result: &RunResult) -> Vec<String> {
    let mut found: Vec<String> = result.problems.iter().map(|problem| format!("{problem:?}")).collect();
    let is_away = |link: &&LinkResult| link.direction.starts_with('f');
    let used = result.links.iter().filter(is_away).map(|link| link.utilisation).fold(0.0, f64::max);
    if used < USED {
        found.push(format!("{:.1} % of the busiest link are used", 100.0 * used));
    }
    let (bulk, files): (Vec<&FlowResult>, Vec<&FlowResult>) =
        result.flows.iter().partition(|flow| flow.name.starts_with("a-"));
    let share = bulk.iter().map(|flow| flow.goodput_mbps).sum::<f64>() / bulk.len() as f64;
    if share * JUDGED_S as f64 >= TELLING_PACKETS * PACKET_MBIT {
        let behind = bulk.iter().filter(|flow| flow.goodput_mbps < share / 10.0).map(|flow| &*flow.name);
        found.extend(behind.map(|name| format!("{name} has less than a tenth of {share:.4} Mbit/s")));
        let missing = files.iter().filter(|file| !file.completed);
        found.extend(missing.map(|file| format!("{} is not there", file.name)));
    }
    found
}

#[test]
fn on_paths_drawn_by_a_seed_files_arrive_and_no_flow_is_left_behind() {
    let mut failed = Vec::new();
    for seed in seeded::seeds(SEEDS) {
        let (text, result) = run(seed);
        let found = shortcomings(&result);
        println!("seed {seed}: {} link-packets, {found:?}", result.link_packets);
        if !found.is_empty() {
            failed.push(format!("seed {seed}: {found:?}\n{text}"));
        }
    }
    assert!(failed.is_empty(), "{} seeds\n{}", failed.len(), failed.join("\n"));
}
