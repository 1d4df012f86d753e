//! `starhop bench`: how fast a relay is on a plain path, beside iperf3.

use super::say;
use crate::quantity;
use anyhow::Context;
use starhop_lab::bench::{self, Crowd, Measured, Options};
use starhop_net::emu;
use starhop_net::security::speed;
use std::num::NonZeroU32;
use std::process::ExitCode;

/// Measure one flow through one relay over plain veth pairs, beside iperf3 on the same path.
///
/// Server, relay and client are processes in three network namespaces. Needs root, or unprivileged user
/// namespaces, and memory for the object.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop bench\n  starhop bench --size 500MB --verify --json\n\nExit codes: 0; 1 nothing could be measured; 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Size of the object
    #[arg(long, default_value = "1GB", value_parser = quantity::size)]
    size: u64,
    /// Write the object (to memory) and verify it, instead of throwing it away
    #[arg(long)]
    verify: bool,
    /// Length of each run of iperf3, in seconds; 0 leaves it out
    #[arg(long, default_value_t = 5)]
    iperf_seconds: u64,
    /// Only with plain packets
    #[arg(long, conflicts_with = "compare")]
    insecure: bool,
    /// Sealed and plain in turns, to see the cost of the seal
    #[arg(long)]
    compare: bool,
    /// Number of measurements of each kind; the median counts
    #[arg(long, default_value = "3")]
    rounds: NonZeroU32,
    /// Flows at once of the last measurement, each of a client of its own; together they are as large as `--size`. 0 leaves it out
    #[arg(long, default_value_t = 32)]
    flows: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program itself")?;
    emu::enter()?;
    if args.insecure {
        super::sealing::warn_insecure();
    }
    let options = Options {
        size: args.size,
        verify: args.verify,
        iperf_seconds: args.iperf_seconds,
        insecure_only: args.insecure,
        compare: args.compare,
        rounds: args.rounds,
        flows: args.flows,
        program,
    };
    let (all, crowds) = bench::run(&options)?;
    let speed = speed::measure()?;
    if args.json {
        say(&serde_json::to_string(
            &serde_json::json!({"tools": all, "crowds": crowds, "per_packet": speed}),
        )?);
        return Ok(ExitCode::SUCCESS);
    }
    all.iter().for_each(show);
    compare(&all);
    crowds.iter().for_each(show_crowd);
    say(&format!(
        "per packet of {} bytes: seal {:.0} ns, open {:.0} ns, refuse a forged one {:.0} ns, find in the cache {:.0} ns",
        speed.packet_bytes, speed.seal_ns, speed.open_ns, speed.refuse_ns, speed.lookup_ns
    ));
    Ok(ExitCode::SUCCESS)
}

/// Prints the ratio of the sealed to the plain relay's speed, if both were measured.
fn compare(all: &[Measured]) {
    let [sealed, plain, ..] = all else { return };
    if plain.tool.starts_with("starhop") {
        let share = 100.0 * sealed.gbit_per_second / plain.gbit_per_second;
        let relay = |measured: &Measured| {
            let part = measured.parts.iter().find(|part| part.name == "relay");
            part.map_or(f64::NAN, |part| part.cpu_seconds_per_gbit)
        };
        let alone = 100.0 * relay(plain) / relay(sealed);
        say(&format!(
            "sealed: {share:.0} % of the speed of plain packets; the relay by its own processor time: {alone:.0} %"
        ));
    }
}

fn show_crowd(crowd: &Crowd) {
    say(&format!(
        "{:14} {:6.2} Gbit/s with {} flows at once; per core of the relay {:.2} Gbit/s, {:.2} of the {:.2} with one flow; \
         the relay keeps {:.1} kB for each",
        crowd.tool,
        crowd.gbit_per_second,
        crowd.flows,
        crowd.gbit_per_core,
        crowd.gbit_per_core / crowd.gbit_per_core_alone,
        crowd.gbit_per_core_alone,
        crowd.state_bytes_each / 1e3
    ));
}

fn show(measured: &Measured) {
    say(&format!(
        "{:14} {:6.2} Gbit/s of payload  {}",
        measured.tool, measured.gbit_per_second, measured.note
    ));
    if measured.rounds.len() > 1 {
        let rounds: Vec<String> = measured.rounds.iter().map(|rate| format!("{rate:.2}")).collect();
        say(&format!("    median of {} Gbit/s", rounds.join(", ")));
    }
    for part in &measured.parts {
        say(&format!(
            "    {:8} {:6.3} CPU s/Gbit  {:9.0} packets/s  {:5.1} packets per system call",
            part.name, part.cpu_seconds_per_gbit, part.packets_per_second, part.packets_per_call
        ));
    }
}
