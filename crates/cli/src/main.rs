//! The one binary: `starhop`. Each verb has a file; what they do is in the other crates.

mod quantity;
mod verb;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Moves data over satellite paths, hop by hop.
#[derive(Parser)]
#[command(name = "starhop", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Serve(verb::serve::Args),
    Relay(verb::relay::Args),
    Get(verb::get::Args),
    Demo(verb::demo::Args),
    Bench(verb::bench::Args),
    /// Run a scenario in virtual time and say what came of it
    Sim(verb::sim::Args),
}

fn main() -> ExitCode {
    let result = match &Cli::parse().verb {
        Verb::Serve(args) => verb::serve::run(args),
        Verb::Relay(args) => verb::relay::run(args),
        Verb::Get(args) => verb::get::run(args),
        Verb::Demo(args) => verb::demo::run(args),
        Verb::Bench(args) => verb::bench::run(args),
        // Its errors are those of the scenario file, so of the command line.
        Verb::Sim(args) => return verb::sim::run(args).unwrap_or_else(|error| complain(&error, 2)),
    };
    result.unwrap_or_else(|error| complain(&error, 1))
}

fn complain(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("starhop: {error:#}");
    ExitCode::from(code)
}
