//! Many flows at once through one relay: the work of one core, and the memory that a relay keeps for each.

use super::{Measured, Options, Path, RELAY, name, nodes};
use crate::error::LabError;
use crate::process::{Sealing, command, make_file};
use serde::Serialize;
use starhop_net::emu::{self, Process};
use std::time::Instant;

/// Flows at once, each of a client of its own.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Crowd {
    /// The kind of packets.
    pub tool: String,
    /// Number of flows.
    pub flows: u32,
    /// Payload of all, starts of the clients included.
    pub gbit_per_second: f64,
    /// Payload that a core of the relay carries in a second of its time.
    pub gbit_per_core: f64,
    /// The same of one flow alone in this run.
    pub gbit_per_core_alone: f64,
    /// Memory of the relay besides its cache, for each flow and its neighbour.
    pub state_bytes_each: f64,
}

pub(super) fn run(
    options: &Options,
    path: &Path,
    insecure: bool,
    alone: &Measured,
) -> Result<Crowd, LabError> {
    let scratch = emu::scratch(options.size + (16 << 20))?;
    let objects = scratch.join("objects");
    let made = |error| LabError::system("cannot make the objects")(error);
    std::fs::create_dir(&objects).map_err(made)?;
    let each = options.size / u64::from(options.flows);
    for nth in 0..options.flows {
        make_file(&objects.join(nth.to_string()), each, u64::from(nth)).map_err(made)?;
    }
    let sealing = Sealing::throw_away(insecure, &scratch)?;
    let (server, relay) = nodes(options, path, &sealing, &objects)?;
    let start = Instant::now();
    let get = |nth: u32| {
        let mut get = command(&options.program, "get", &sealing);
        get.args([&nth.to_string(), "--from", &format!("{}:4433", RELAY[1]), "--discard"]);
        path.hosts[2].spawn(get)
    };
    let clients = (0..options.flows).map(get).collect::<Result<Vec<_>, _>>();
    for client in clients.map_err(LabError::system("cannot start a client"))? {
        whole(client)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let (relay, _) = (relay.end()?, server.end()?);
    let gbit = (each * u64::from(options.flows)) as f64 * 8e-9;
    let number = |counter: &str| relay[counter].as_f64().unwrap_or(f64::NAN);
    let alone = alone.parts.iter().find(|part| part.name == "relay");
    Ok(Crowd {
        tool: name(insecure).to_owned(),
        flows: options.flows,
        gbit_per_second: gbit / seconds,
        gbit_per_core: gbit / number("cpu_seconds"),
        gbit_per_core_alone: alone.map_or(f64::NAN, |part| part.cpu_seconds_per_gbit.recip()),
        state_bytes_each: number("state_bytes") / f64::from(options.flows),
    })
}

/// Waits for a client, which must have got everything.
fn whole(client: Process) -> Result<(), LabError> {
    let failed = |problem: String| LabError::Process { what: "a client".to_owned(), problem };
    let output = client.output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stdout).trim().to_owned())),
    }
}
