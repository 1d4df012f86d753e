//! The one binary: `starhop`.

mod verb;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Moves data over satellite paths, hop by hop.
#[derive(Parser)]
#[command(name = "starhop", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Orbit(verb::orbit::Args),
}

fn main() -> ExitCode {
    let result = match &Cli::parse().verb {
        Verb::Orbit(args) => verb::orbit::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
