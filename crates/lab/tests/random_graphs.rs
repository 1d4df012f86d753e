//! Crowds that share hops with others, on graphs drawn by a seed, which something disturbs. Once that is over each flow has its max-min fair
//! share, or much of it, and no flow is left behind. `CHAOS_SEEDS=1000` runs so many seeds (`make chaos`), and `CHAOS_FROM` is the first.

#[path = "support/seeded.rs"]
mod seeded;
#[path = "support/text.rs"]
mod text;

use starhop_lab::result::RunResult;
use starhop_lab::run::simulate;
use starhop_proto::rng::Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Seeds, where none are asked for.
const SEEDS: u64 = 8;
/// The end of a run is judged, long after the disturbance.
const JUDGED_S: u64 = 12;
/// The least part of its share that each flow has, and that all flows of a group have on average.
const LEAST: f64 = 0.1;
const USUAL: f64 = 0.33;
/// Where the share are so many packets, it is told from chance.
const TELLING_PACKETS: f64 = 40.0;
/// Payload of a full packet, Mbit, and its part of what is on the wire.
const PACKET_MBIT: f64 = 1350.0 * 8e-6;
const PAYLOAD: f64 = 1350.0 / 1412.0;

struct Edge {
    ends: [String; 2],
    mbps: f64,
    loss_percent: f64,
    text: String,
}

/// Unlimited flows on a way over nodes.
struct Group {
    name: String,
    way: Vec<String>,
    count: u64,
}

struct Graph {
    draw: Rng,
    edges: Vec<Edge>,
    groups: Vec<Group>,
}

impl Graph {
    /// One of several.
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.draw.below(choices.len() as u64) as usize]
    }

    /// A hop between two nodes that is no bottleneck.
    fn wide(&mut self, from: &str, to: &str, mbps: f64) {
        self.edge([from, to], mbps, 1, 0.0);
    }

    /// A hop with a delay, noise and losses of its own.
    fn hop(&mut self, from: &str, to: &str, mbps: f64) {
        let (delay_ms, loss_percent) = (self.of(&[1, 5, 20, 60]), self.of(&[0.0, 0.0, 0.5, 2.0, 5.0]));
        self.edge([from, to], mbps, delay_ms, loss_percent);
    }

    fn edge(&mut self, [from, to]: [&str; 2], mbps: f64, delay_ms: u64, loss_percent: f64) {
        let jitter = self.of(&[0.0, 0.0, 2.0_f64]).min(delay_ms as f64 / 2.0);
        let queue = (self.of(&[0.5, 1.0, 4.0]) * mbps * 20.0).max(40.0) as u64;
        let text = format!(
            "[[topology.edge]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{mbps}Mbit\"\n\
             delay = {{ mean = \"{delay_ms}ms\", jitter = \"{jitter}ms\" }}\nloss = \"{loss_percent}%\"\nqueue = \"{queue}p\"\n"
        );
        self.edges.push(Edge { ends: [from.into(), to.into()], mbps, loss_percent, text });
    }

    fn group(&mut self, way: &[&str]) {
        let count = self.of(&[1, 1, 3, 20, 60]);
        let name = format!("f{}", self.groups.len());
        self.groups.push(Group { name, way: way.iter().map(ToString::to_string).collect(), count });
    }

    /// Groups that have one hop each, and one that has all of them: a parking lot.
    fn parking_lot(&mut self, mbps: f64) {
        let hops = self.of(&[2, 3, 4]);
        let nodes: Vec<String> = (0..=hops).map(|n| format!("x{n}")).collect();
        for hop in 0..hops {
            let rate = mbps * self.of(&[0.5, 1.0, 1.0]);
            self.hop(&nodes[hop], &nodes[hop + 1], rate);
            let [server, client] = ["s", "c"].map(|kind| format!("{kind}{hop}"));
            self.wide(&server, &nodes[hop], 4.0 * mbps);
            self.wide(&nodes[hop + 1], &client, 4.0 * mbps);
            self.group(&[&server, &nodes[hop], &nodes[hop + 1], &client]);
        }
        self.wide("server", &nodes[0], 4.0 * mbps);
        self.wide(&nodes[hops], "client", 4.0 * mbps);
        let way: Vec<&str> =
            ["server"].into_iter().chain(nodes.iter().map(String::as_str)).chain(["client"]).collect();
        self.group(&way);
    }

    /// Groups that share a hop, behind which each has one of its own.
    fn tree(&mut self, mbps: f64) {
        self.wide("server", "core", 4.0 * mbps);
        self.hop("core", "hub", mbps);
        for branch in 0..self.of(&[2, 3, 5]) {
            let [node, client] = ["m", "c"].map(|kind| format!("{kind}{branch}"));
            let rate = mbps * self.of(&[0.1, 0.3, 1.0]);
            self.hop("hub", &node, rate);
            self.wide(&node, &client, 4.0 * mbps);
            self.group(&["server", "core", "hub", &node, &client]);
        }
    }

    /// Draws what happens between second 2 and 9: an addition to a hop, and events.
    fn disturb(&mut self) -> String {
        let hops: Vec<usize> = (0..self.edges.len()).filter(|n| self.edges[*n].text.contains("x1")).collect();
        let hop = if hops.is_empty() { 1 } else { hops[self.draw.below(hops.len() as u64) as usize] };
        let (at, lasts) = (2.0 + 3.0 * self.draw.unit(), self.of(&[0.1, 0.5, 2.0, 4.0]));
        let back = at + lasts;
        let [from, to] = self.edges[hop].ends.clone();
        let events = |what: &str, again: &str| {
            format!("[[event]]\nat = \"{at}s\"\n{what}\n[[event]]\nat = \"{back}s\"\n{again}\n")
        };
        match self.of(&["none", "outage", "crash", "down"]) {
            "outage" => {
                let outage = format!("outage = {{ times = [[\"{at}s\", \"{back}s\"]] }}\n");
                self.edges[hop].text.push_str(&outage);
                String::new()
            }
            "crash" => events(&format!("crash = \"{to}\""), &format!("restart = \"{to}\"")),
            "down" => events(&format!("link_down = \"{from}-{to}\""), &format!("link_up = \"{from}-{to}\"")),
            _ => String::new(),
        }
    }

    /// The max-min fair share of a flow of each group, Mbit/s: the narrowest hop parts what it has left, and so on.
    fn shares(&self) -> BTreeMap<&str, f64> {
        let uses = |group: &Group, edge: &Edge| group.way.windows(2).any(|pair| pair == edge.ends);
        let carries = |edge: &Edge| edge.mbps * (1.0 - edge.loss_percent / 100.0) * PAYLOAD;
        let mut left: Vec<f64> = self.edges.iter().map(carries).collect();
        let mut shares = BTreeMap::new();
        while shares.len() < self.groups.len() {
            let open = |edge: &Edge| {
                let groups = self.groups.iter().filter(|group| uses(group, edge));
                groups
                    .filter(|group| !shares.contains_key(&*group.name))
                    .map(|group| group.count)
                    .sum::<u64>()
            };
            let part = |n: usize| left[n] / open(&self.edges[n]) as f64;
            let busy = (0..self.edges.len()).filter(|n| open(&self.edges[*n]) > 0);
            let narrowest = busy.min_by(|a, b| part(*a).total_cmp(&part(*b))).expect("each group has a hop");
            let share = part(narrowest);
            for group in self.groups.iter().filter(|group| uses(group, &self.edges[narrowest])) {
                if shares.contains_key(&*group.name) {
                    continue;
                }
                shares.insert(&*group.name, share);
                let hops = self.edges.iter().zip(&mut left).filter(|(edge, _)| uses(group, edge));
                hops.for_each(|(_, left)| *left -= share * group.count as f64);
            }
        }
        shares
    }
}

/// The scenario of a seed.
fn scenario_of(seed: u64) -> (String, Graph) {
    let mut graph =
        Graph { draw: Rng::new(seed).fork(0x67_7261_7068), edges: Vec::new(), groups: Vec::new() };
    let mbps = graph.of(&[2.0, 10.0, 30.0, 100.0]);
    if graph.of(&[true, false]) {
        graph.parking_lot(mbps);
    } else {
        graph.tree(mbps);
    }
    let events = graph.disturb();
    let mut text = format!(
        "title = \"random\"\nseed = {seed}\nduration = \"30s\"\nwarmup = \"{}s\"\n\
         [topology]\nkind = \"graph\"\n[topology.link]\nrate = \"100Mbit\"\n",
        30 - JUDGED_S
    );
    graph.edges.iter().for_each(|edge| text.push_str(&edge.text));
    for Group { name, way, count } in &graph.groups {
        let (from, to) = (&way[0], &way[way.len() - 1]);
        write!(text, "[[flow]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\ncount = {count}\n")
            .expect("memory");
    }
    (text + &events, graph)
}

/// The shortcomings of a run.
fn shortcomings(result: &RunResult, graph: &Graph) -> Vec<String> {
    let mut found: Vec<String> = result.problems.iter().map(|problem| format!("{problem:?}")).collect();
    for (name, share) in graph.shares() {
        if share * (JUDGED_S as f64) < TELLING_PACKETS * PACKET_MBIT {
            continue;
        }
        let is_of =
            |flow: &str| flow == name || flow.rsplit_once('-').is_some_and(|(group, _)| group == name);
        let rates: Vec<f64> =
            result.flows.iter().filter(|flow| is_of(&flow.name)).map(|flow| flow.goodput_mbps).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let least = rates.iter().copied().fold(f64::MAX, f64::min);
        if least < LEAST * share || mean < USUAL * share {
            found.push(format!("{name}: the least has {least:.4}, the mean {mean:.4} of {share:.4} Mbit/s"));
        }
    }
    found
}

#[test]
fn on_graphs_drawn_by_a_seed_each_flow_has_much_of_its_share() {
    let mut failed = Vec::new();
    for seed in seeded::seeds(SEEDS) {
        let (text, graph) = scenario_of(seed);
        let result = simulate(&text::parse(&text), |_| ());
        let found = shortcomings(&result, &graph);
        println!("seed {seed}: {} link-packets, {found:?}", result.link_packets);
        if !found.is_empty() {
            failed.push(format!("seed {seed}: {found:?}\n{text}"));
        }
    }
    assert!(failed.is_empty(), "{} seeds\n{}", failed.len(), failed.join("\n"));
}
