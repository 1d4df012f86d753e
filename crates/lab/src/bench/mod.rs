//! Speed and cost of a real relay on a plain path: server, relay and client in three namespaces joined by veth
//! pairs, one flow, beside iperf3 on the same path.

mod crowd;
mod iperf;

pub use crowd::Crowd;

use crate::error::LabError;
use crate::process::{Daemon, Sealing, command, fetch, make_file, start};
use serde::Serialize;
use serde_json::Value;
use starhop_net::emu::{self, Namespace};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the object.
    pub size: u64,
    /// Write the object to memory and verify it, instead of throwing it away.
    pub verify: bool,
    /// Seconds of each run of iperf3; none without it.
    pub iperf_seconds: u64,
    /// Only with plain packets.
    pub insecure_only: bool,
    /// Sealed and plain, in turns.
    pub compare: bool,
    /// Number of measurements of each kind; the median counts.
    pub rounds: NonZeroU32,
    /// Flows at once of the last measurement, of objects that are as large as `size` together; 0 leaves it out.
    pub flows: u32,
    /// The `starhop` binary.
    pub program: PathBuf,
}

/// One process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// User and system time during the transfer.
    pub cpu_seconds: f64,
    /// CPU time per 10^9 bit of payload.
    pub cpu_seconds_per_gbit: f64,
    /// Datagrams received and sent, per second.
    pub packets_per_second: f64,
    /// Datagrams per system call that received or sent.
    pub packets_per_call: f64,
}

/// One tool on the path.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// Its name.
    pub tool: String,
    /// Payload.
    pub gbit_per_second: f64,
    /// Rate of every round, the slowest first; all other fields are those of the median round.
    pub rounds: Vec<f64>,
    /// Its processes; of iperf3 only the two ends, the kernel forwards between them.
    pub parts: Vec<Part>,
    /// A remark on the measurement.
    pub note: String,
}

const SERVER: &str = "10.78.0.1";
const RELAY: [&str; 2] = ["10.78.0.2", "10.78.1.1"];
const CLIENT: &str = "10.78.1.2";

/// Server, relay, client.
struct Path {
    hosts: [Namespace; 3],
}

/// Measures one flow at a time, and many at once. The process must have [entered](emu::enter) namespaces.
///
/// # Errors
/// See [`LabError`]; a missing iperf3 is no error.
pub fn run(options: &Options) -> Result<(Vec<Measured>, Vec<Crowd>), LabError> {
    let path = path()?;
    let mut all = starhops(options, &path)?;
    let mut crowds = Vec::new();
    if options.flows > 0 {
        for (insecure, alone) in kinds(options).into_iter().zip(&all) {
            crowds.push(crowd::run(options, &path, insecure, alone)?);
        }
    }
    if options.iperf_seconds > 0 {
        all.extend(iperf::run(&path.hosts[0], &path.hosts[2], SERVER, options.iperf_seconds)?);
    }
    Ok((all, crowds))
}

/// The kinds of packets to measure: whether they are plain.
fn kinds(options: &Options) -> Vec<bool> {
    let is_wanted = |insecure: &bool| options.compare || *insecure == options.insecure_only;
    [false, true].into_iter().filter(is_wanted).collect()
}

/// Measures the kinds in turns, so that other load on the machine meets all alike. Returns the median round of
/// each.
fn starhops(options: &Options, path: &Path) -> Result<Vec<Measured>, LabError> {
    let kinds = kinds(options);
    let mut rounds = vec![Vec::new(); kinds.len()];
    for _ in 0..options.rounds.get() {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            rounds.push(starhop(options, path, *kind)?);
        }
    }
    Ok(rounds.into_iter().map(median).collect())
}

/// The median of `rounds`, of which there is one at least.
fn median(mut rounds: Vec<Measured>) -> Measured {
    rounds.sort_by(|one, other| one.gbit_per_second.total_cmp(&other.gbit_per_second));
    let speeds = rounds.iter().map(|round| round.gbit_per_second).collect();
    let middle = (rounds.len() - 1) / 2;
    Measured { rounds: speeds, ..rounds.swap_remove(middle) }
}

fn path() -> Result<Path, LabError> {
    let [server, relay, client] =
        [Namespace::new("server")?, Namespace::new("relay")?, Namespace::new("client")?];
    let address = |text: &str| text.parse::<IpAddr>().unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let join = |near: &Namespace, far: &Namespace, ends: [&str; 2]| {
        near.veth("down", far, "up")?;
        near.address("down", address(ends[0]), 24)?;
        far.address("up", address(ends[1]), 24)?;
        near.up("down")?;
        far.up("up")
    };
    join(&server, &relay, [SERVER, RELAY[0]])?;
    join(&relay, &client, [RELAY[1], CLIENT])?;
    server.route(address("10.78.1.0"), 24, address(RELAY[0]))?;
    client.route(address("10.78.0.0"), 24, address(RELAY[1]))?;
    relay.forward()?;
    Ok(Path { hosts: [server, relay, client] })
}

fn name(insecure: bool) -> &'static str {
    if insecure { "starhop, plain" } else { "starhop" }
}

/// A server of `what` and a relay below it.
fn nodes(
    options: &Options,
    path: &Path,
    sealing: &Sealing,
    what: &std::path::Path,
) -> Result<(Daemon, Daemon), LabError> {
    let mut serve = command(&options.program, "serve", sealing);
    serve.arg(what).args(["--listen", "0.0.0.0:4433"]);
    let server = start("the server", &path.hosts[0], serve, "hashed")?;
    let mut relay = command(&options.program, "relay", sealing);
    relay.args(["--listen", "0.0.0.0:4433", "--upstream", &format!("{SERVER}:4433")]);
    let relay = start("the relay", &path.hosts[1], relay, "ready")?;
    Ok((server, relay))
}

fn starhop(options: &Options, path: &Path, insecure: bool) -> Result<Measured, LabError> {
    let copies = if options.verify { 2 } else { 1 };
    let scratch = emu::scratch(options.size * copies + (16 << 20))?;
    let file = scratch.join("object");
    make_file(&file, options.size, 1).map_err(LabError::system("cannot make the object"))?;
    let sealing = Sealing::throw_away(insecure, &scratch)?;
    let (server, relay) = nodes(options, path, &sealing, &file)?;
    let hashing = server.cpu_when_ready();
    let mut get = command(&options.program, "get", &sealing);
    get.args(["object", "--from", &format!("{}:4433", RELAY[1])]);
    if options.verify {
        get.args(["--force", "--output"]).arg(scratch.join("received"));
    } else {
        get.arg("--discard");
    }
    let result = fetch("the client", &path.hosts[2], get)?;
    let (relay, server) = (relay.end()?, server.end()?);
    let seconds = result["seconds"].as_f64().unwrap_or(f64::NAN);
    let gbit = options.size as f64 * 8e-9;
    let part = |name: &str, end: &Value, before: f64| part(name, end, before, seconds, gbit);
    Ok(Measured {
        tool: name(insecure).to_owned(),
        gbit_per_second: gbit / seconds,
        rounds: Vec::new(),
        parts: vec![
            part("server", &server, hashing),
            part("relay", &relay, 0.0),
            part("client", &result, 0.0),
        ],
        note: format!(
            "{} repairs, {} timeouts, {}",
            result["repairs"],
            result["timeouts"],
            if options.verify { "written and verified" } else { "thrown away" }
        ),
    })
}

fn part(name: &str, end: &Value, cpu_before: f64, seconds: f64, gbit: f64) -> Part {
    let socket = &end["socket"];
    let sum = |names: [&str; 2]| names.iter().map(|name| socket[name].as_f64().unwrap_or(0.0)).sum::<f64>();
    let packets = sum(["rx_datagrams", "tx_datagrams"]);
    let cpu_seconds = end["cpu_seconds"].as_f64().unwrap_or(f64::NAN) - cpu_before;
    Part {
        name: name.to_owned(),
        cpu_seconds,
        cpu_seconds_per_gbit: cpu_seconds / gbit,
        packets_per_second: packets / seconds,
        packets_per_call: packets / sum(["rx_calls", "tx_calls"]).max(1.0),
    }
}
