//! The one binary: `starhop`. Each verb has a file; what they do is in the other crates.

mod quantity;
mod verb;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Moves data over satellite paths, hop by hop.
#[derive(Parser)]
#[command(name = "starhop", version, propagate_version = true)]
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
}

fn main() -> ExitCode {
    let result = match &Cli::parse().verb {
        Verb::Serve(args) => verb::serve::run(args),
        Verb::Relay(args) => verb::relay::run(args),
        Verb::Get(args) => verb::get::run(args),
        Verb::Demo(args) => verb::demo::run(args),
        Verb::Bench(args) => verb::bench::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("starhop: {error:#}");
        ExitCode::FAILURE
    })
}
