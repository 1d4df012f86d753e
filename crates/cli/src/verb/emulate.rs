//! `starhop emulate`: runs a scenario with real processes and real kernels.

mod live;
mod view;

use super::sim::{What, say_problems};
use anyhow::Context;
use live::Live;
use starhop_lab::emulate::{Deployment, Guest, Interrupts, Options, emulate};
use starhop_net::emu;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  starhop emulate scenarios/five-lossy-hops.toml
  starhop emulate scenarios/five-lossy-hops.toml --tcp a=bbr --set duration=30s
  starhop emulate scenarios/five-lossy-hops.toml --exec client -- ping -c 3 server
  starhop emulate scenarios/five-lossy-hops.toml --shell r2
  starhop emulate scenarios/parallel-switching.toml --json result.json --report report.html
  starhop emulate scenarios/five-lossy-hops.toml --insecure --pcap captures && tshark -X lua_script:tools/starhop.lua \
    -r captures/server-r1.pcapng

Every node is a network namespace, every flow a real process or a real TCP of this kernel; takes as long as the
scenario says. Needs root, or unprivileged user namespaces; touches nothing of this host's network and leaves nothing
behind but the results.

Exit codes: 0 fine; 1 the run failed, or its results cannot be written; 2 bad usage or a bad scenario;
130 interrupted.";

/// Ended by SIGINT, as a shell counts it.
const INTERRUPTED: u8 = 130;

/// Run a scenario for real, in network namespaces, and print the results
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Let this kernel's TCP carry a flow, with this congestion control; may be given several times
    #[arg(long = "tcp", value_name = "FLOW=CONTROL", value_parser = pair)]
    tcp: Vec<(String, String)>,
    /// Deployment of relays; transparent if the machine can, unless given
    #[arg(long, value_enum, value_name = "WAY")]
    relays: Option<Relays>,
    /// Nodes speak IPv6 with each other
    #[arg(long)]
    ipv6: bool,
    /// Capture the packets of every link into this directory, one pcapng file per link
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Send plain packets, so that a capture shows their contents; otherwise they are sealed with a key made for
    /// the run
    #[arg(long)]
    insecure: bool,
    /// Run a command in a node, from the beginning; the run ends with it
    #[arg(long, value_name = "NODE", requires = "command")]
    exec: Option<String>,
    /// Open a shell in a node; the run ends with it
    #[arg(long, value_name = "NODE", conflicts_with = "exec")]
    shell: Option<String>,
    /// The command of --exec
    #[arg(last = true, requires = "exec", value_name = "CMD")]
    command: Vec<String>,
}

impl Args {
    fn guest(&self) -> Option<Guest> {
        let command = || self.exec.clone().map(|node| Guest::Command { node, words: self.command.clone() });
        self.shell.clone().map(|node| Guest::Shell { node }).or_else(command)
    }
}

/// The deployment of relays.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Relays {
    /// Routers divert packets to them
    Transparent,
    /// Each process is told its upstream
    Overlay,
}

impl From<Relays> for Deployment {
    fn from(relays: Relays) -> Self {
        match relays {
            Relays::Transparent => Self::Transparent,
            Relays::Overlay => Self::Overlay,
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (flow, control) = text.split_once('=').ok_or("is not of the form FLOW=CONTROL, as a=bbr")?;
    Ok((flow.to_owned(), control.to_owned()))
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scenario = match args.what.load() {
        Ok(scenario) => scenario,
        Err(code) => return Ok(code),
    };
    let program = std::env::current_exe().context("cannot find this program itself")?;
    // Ctrl-C in a shell is for the programs in that shell.
    let mut interrupts = args.shell.is_none().then(Interrupts::hold_back).transpose()?;
    // Before any thread is started: a process with threads cannot enter a user namespace.
    emu::enter()?;
    let kernel = args.tcp.iter().cloned().collect();
    let deployment = args.relays.map(Deployment::from);
    let (is_v6, captures) = (args.ipv6, args.pcap.clone());
    let (guest, insecure) = (args.guest(), args.insecure);
    let options = Options { program, kernel, deployment, guest, is_v6, captures, insecure };
    // The terminal is the guest's.
    let mut live = Live::new(&scenario.title, args.what.output.quiet || args.guest().is_some());
    let mut is_interrupted = false;
    let result = emulate(&scenario, &options, |progress| {
        let came = interrupts.as_mut().is_some_and(Interrupts::came);
        is_interrupted = came || !live.show(progress);
        !is_interrupted
    });
    drop(live);
    let result = result?;
    if is_interrupted {
        eprintln!("starhop: interrupted; everything was removed");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    args.what.output.write(&result)?;
    if let Some(accuracy) = result.accuracy.filter(|accuracy| !accuracy.is_good) {
        eprintln!(
            "starhop: WARNING: this machine was too slow for the scenario: delays were wrong by up to {:.2} ms (p99), \
             rates by {:.1} %, {} packets were lost by the emulator. Do not trust this result.",
            accuracy.delay_error_p99_ms,
            accuracy.rate_error_p99 * 100.0,
            accuracy.lost_packets
        );
    }
    Ok(say_problems(&result))
}
