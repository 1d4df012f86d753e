//! `starhop compare`: a scenario for other programs, to check this one by.

use anyhow::{Context, anyhow};
use starhop_lab::ns3;
use starhop_lab::run::load;
use starhop_lab::scenario::Change;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  starhop compare ns3 scenarios/error-prone-chain.toml --set flow.a.transport=cubic > scratch/chain.cc
  starhop compare ns3 scenarios/geo-answers.toml --set flow.a.transport=hybla --set flow.a.options={} --out geo.cc

In ns-3's directory: cp geo.cc scratch/ && ./ns3 run \"geo --run=1\". It prints a line of JSON per flow, with the names
of `starhop sim --json`. The same scenario by this machine's kernel is `starhop emulate FILE`, and the table of kernel and
model is `starhop figure kernel-tcp`.

Exit codes: 0 fine; 1 a file cannot be written; 2 bad usage, a bad scenario, or one that ns-3 cannot run.";

/// Write a scenario as a program for another simulator
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    with: With,
}

#[derive(clap::Subcommand)]
enum With {
    /// A C++ program for ns-3 (3.41 or later), with the scenario's nodes, links and TCP flows
    Ns3 {
        /// The scenario, a TOML file
        file: PathBuf,
        /// A field of the scenario to change; may be given several times
        #[arg(long = "set", value_name = "PATH=VALUE")]
        changes: Vec<Change>,
        /// Write it here in place of the standard output
        #[arg(long, value_name = "FILE.cc")]
        out: Option<PathBuf>,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let With::Ns3 { file, changes, out } = &args.with;
    let written = load(file, changes).map_err(|error| anyhow!("{error}"));
    let written = written.and_then(|scenario| {
        ns3::program(&scenario).map_err(|problem| anyhow!("{}: {problem}", file.display()))
    });
    let text = match written {
        Ok(text) => text,
        Err(problem) => {
            eprintln!("starhop: {problem}");
            return Ok(ExitCode::from(2));
        }
    };
    match out {
        None => super::print(&text)?,
        Some(out) => {
            std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
