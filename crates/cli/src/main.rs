//! The one binary: `starhop`. One file per verb in [`verb`], no logic here.

mod verb;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Moves data over satellite paths, hop by hop.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a scenario in virtual time and say what came of it
    Sim(verb::sim::Args),
    /// Make one report from result documents, to compare runs
    Report(verb::report::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Sim(args) => verb::sim::run(&args),
        Verb::Report(args) => verb::report::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("starhop: {error:#}");
        ExitCode::from(1)
    })
}
