//! Scenarios in the making, and their results.

use super::harness::timing;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;

/// A scenario file to be.
#[derive(Clone)]
pub(crate) struct Scenario {
    topology: String,
    link: String,
    rest: String,
    flow: String,
    duration: u64,
    directory: Rc<TempDir>,
}

impl Scenario {
    fn new(topology: String, link: String) -> Self {
        let directory = Rc::new(tempfile::tempdir().unwrap());
        Self { topology, link, rest: String::new(), flow: String::new(), duration: 60, directory }
    }

    pub(crate) fn chain(hops: usize, rate: &str, delay: &str, loss: &str) -> Self {
        let link = format!(
            "rate = \"{rate}\"\ndelay = \"{delay}\"\nloss = \"{loss}\"\nloss_direction = \"data\"\nqueue = \"1000p\"\n"
        );
        Self::new(format!("kind = \"chain\"\nhops = {hops}\n"), link)
    }

    /// Two paths of two hops that take turns.
    pub(crate) fn parallel(rate: &str, delays: [&str; 2], every: &str) -> Self {
        let topology =
            format!("kind = \"parallel\"\nswitch = {{ every = \"{every}\", in_flight = \"lost\" }}\n");
        let mut scenario = Self::new(topology, format!("rate = \"{rate}\"\nqueue = \"1000p\"\n"));
        for delay in delays {
            let _ = write!(scenario.rest, "[[topology.path]]\nhops = 2\ndelay = \"{delay}\"\n");
        }
        scenario
    }

    pub(crate) fn graph(links: &[(String, String)], from: &str, to: &str) -> Self {
        let link = "rate = \"20Mbit\"\ndelay = \"2ms\"\nqueue = \"1000p\"\n".to_owned();
        let mut scenario = Self::new("kind = \"graph\"\n".to_owned(), link);
        for (a, b) in links {
            let _ = write!(scenario.rest, "[[topology.edge]]\nfrom = \"{a}\"\nto = \"{b}\"\n");
        }
        scenario.flow = format!("from = \"{from}\"\nto = \"{to}\"\n");
        scenario
    }

    /// Beijing and Hong Kong over five hops of the 550 km shell; the path changes at 8.93 s.
    pub(crate) fn sky(rate: &str) -> Self {
        let topology =
            "kind = \"constellation\"\nshell = \"starlink-550\"\nstations = [\"Beijing\", \"Hong Kong\"]\n";
        let link = format!("rate = \"{rate}\"\nqueue = \"1000p\"\n");
        let mut scenario = Self::new(topology.to_owned(), link);
        scenario.rest =
            "[topology.ground_link]\ndelay = \"5ms\"\n[topology.uplink]\nloss = \"0.5%\"\n".to_owned();
        scenario.flow = "from = \"Hong Kong\"\nto = \"Beijing\"\n".to_owned();
        scenario
    }

    pub(crate) fn link_field(mut self, text: &str) -> Self {
        self.link += text;
        self
    }

    pub(crate) fn flow_field(mut self, text: &str) -> Self {
        self.flow += &format!("{text}\n");
        self
    }

    pub(crate) fn file(self, transport: &str, bytes: u64) -> Self {
        self.flow_field(&format!("transport = \"{transport}\"\nsize = \"{bytes}B\""))
    }

    pub(crate) fn unlimited(self, transport: &str) -> Self {
        self.flow_field(&format!("transport = \"{transport}\"\nsize = \"unlimited\""))
    }

    pub(crate) fn lasting(mut self, seconds: u64) -> Self {
        self.duration = seconds;
        self
    }

    pub(crate) fn event(mut self, text: &str) -> Self {
        let _ = write!(self.rest, "[[event]]\n{text}\n");
        self
    }

    fn text(&self) -> String {
        // A transfer without an end is measured after it has reached its speed.
        let warmup = if self.flow.contains("unlimited") { "1s" } else { "0s" };
        format!(
            "title = \"test\"\nduration = \"{}s\"\nwarmup = \"{warmup}\"\nseries_step = \"100ms\"\n[topology]\n{}\
             [topology.link]\n{}\n{}[[flow]]\nname = \"flow\"\n{}",
            self.duration, self.topology, self.link, self.rest, self.flow
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The binary's verb on this scenario.
    pub(crate) fn command(&self, verb: &str, arguments: &[&str]) -> Command {
        std::fs::write(self.path("scenario.toml"), self.text()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
        command.args([verb, "scenario.toml"]).args(arguments).current_dir(self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn simulate(&self, seed: u32) -> Run {
        self.run("sim", &["--seed", &seed.to_string()], Duration::ZERO, |_| {})
    }

    /// Runs it for real.
    pub(crate) fn emulate(&self, arguments: &[&str]) -> Run {
        self.emulate_with(arguments, Duration::ZERO, |_| {})
    }

    /// Runs it for real, and does something to its relays, in the order of the path, once its flow runs for `after`.
    pub(crate) fn emulate_and(&self, after: Duration, act: impl Fn(&[u32])) -> Run {
        self.emulate_with(&[], after, act)
    }

    fn emulate_with(&self, arguments: &[&str], after: Duration, act: impl Fn(&[u32])) -> Run {
        let run = self.run("emulate", arguments, after, &act);
        let accuracy = &run.document["accuracy"];
        if accuracy["is_good"] != true {
            timing::doubt(format!("the emulator's links came late, by its own measure: {accuracy}"));
        }
        run
    }

    fn run(&self, verb: &str, arguments: &[&str], after: Duration, act: impl Fn(&[u32])) -> Run {
        let mut command = self.command(verb, &["-q", "--json", "result.json", "--series", "series"]);
        let child = command.args(arguments).spawn().unwrap();
        if !after.is_zero() {
            let relays = wait_for_client(child.id());
            std::thread::sleep(after);
            act(&relays);
        }
        let output = child.wait_with_output().unwrap();
        let text = std::fs::read_to_string(self.path("result.json")).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stderr);
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no result: {said}"));
        let series = std::fs::read_to_string(self.path("series/flow-flow.csv")).unwrap();
        let row = |line: &str| {
            let mut cells = line.split(',');
            Some((cells.next()?.parse().ok()?, cells.next()?.parse().ok()?))
        };
        Run { document, series: series.lines().filter_map(row).collect(), scenario: self.clone() }
    }
}

/// Waits until a client runs below `emulator`. Returns the relays, in the order of their start.
fn wait_for_client(emulator: u32) -> Vec<u32> {
    loop {
        let mut children = children(emulator);
        children.sort_unstable();
        let of = |verb: &str| {
            let is_one = |pid: &&u32| words(**pid).get(1).is_some_and(|word| word == verb);
            children.iter().filter(is_one).copied().collect::<Vec<u32>>()
        };
        if !of("get").is_empty() {
            return of("relay");
        }
        assert!(is_running(emulator), "it ended");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn words(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, parentheses included.
    let mut fields = text.rsplit(") ").next()?.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Whether the process still runs; a dead process that was not waited for does not.
pub(crate) fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The processes that `parent` started.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| stat(pid).is_some_and(|(_, of)| of == parent)).collect()
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap();
}

/// The result of a scenario.
pub(crate) struct Run {
    pub(crate) document: Value,
    /// Time in seconds and goodput in Mbit/s, step by step.
    pub(crate) series: Vec<(f64, f64)>,
    scenario: Scenario,
}

impl Run {
    /// A file that the run left.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scenario.path(name)
    }

    /// A number of its flow.
    pub(crate) fn flow(&self, field: &str) -> f64 {
        self.document["flows"][0][field].as_f64().unwrap_or(f64::NAN)
    }

    pub(crate) fn in_order_owd_ms(&self) -> f64 {
        self.document["flows"][0]["in_order_owd_ms"]["mean"].as_f64().unwrap_or(f64::NAN)
    }

    /// A count of one direction of a link.
    pub(crate) fn link(&self, name: &str, direction: &str, field: &str) -> u64 {
        let links = self.document["links"].as_array().unwrap();
        let link = links.iter().find(|link| link["name"] == name && link["direction"] == direction);
        link.and_then(|link| link[field].as_u64()).unwrap()
    }

    /// Every byte arrived and was the right one: the client compared the hash.
    pub(crate) fn is_whole(&self) -> bool {
        let has_problems = self.document["problems"].as_array().is_some_and(|problems| !problems.is_empty());
        self.document["flows"][0]["completed"] == true && !has_problems
    }

    /// Mean goodput from `from` to `to`, Mbit/s.
    pub(crate) fn rate(&self, from: f64, to: f64) -> f64 {
        let within = |at: f64| at > from + 1e-6 && at < to + 1e-6;
        let rates: Vec<f64> =
            self.series.iter().filter(|(at, _)| within(*at)).map(|(_, rate)| *rate).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    /// The bytes are whole. Checks that after the event `at` they come in `after` as fast as in `before`.
    pub(crate) fn back(&self, at: f64, before: (f64, f64), after: (f64, f64)) -> Result<(), String> {
        assert!(self.is_whole(), "{}", self.document);
        let (old, new) = (self.rate(before.0, before.1), self.rate(after.0, after.1));
        let said = || format!("what happened at {at} s: {old} Mbit/s before, {new} after; {:?}", self.series);
        if new > 0.9 * old { Ok(()) } else { Err(said()) }
    }
}
