//! The one binary: `starhop`. Each verb has a file; its work is done in the other crates.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod config;
mod progress;
mod quantity;
mod verb;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use std::sync::LazyLock;

/// Moves data over satellite paths, hop by hop.
#[derive(Parser)]
#[command(name = "starhop", version, long_version = BUILD.as_str(), propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 it worked, 1 it did not, 2 the command line is wrong; `starhop help VERB` tells \
                        those of a verb. Asking for help or the version is no error."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Serve(verb::serve::Args),
    Relay(verb::relay::Args),
    /// Hold the firewall open for a transparent relay as long as that lives
    #[command(hide = true)]
    RelayWatchdog {
        /// Its UDP port
        port: u16,
    },
    #[command(hide = true)]
    SplitProxy(verb::split_proxy::Args),
    Gateway(verb::gateway::Args),
    /// Hold the firewall open for a gateway as long as that lives
    #[command(hide = true)]
    GatewayWatchdog {
        #[command(flatten)]
        source: verb::gateway::SourceArgs,
        /// Packets are carried, too
        #[arg(long)]
        carries: bool,
        /// SYNs are held, too
        #[arg(long)]
        holds: bool,
        /// The rules are to take the place of those in force
        #[arg(long)]
        in_force: bool,
    },
    Get(verb::get::Args),
    Ls(verb::ls::Args),
    Status(verb::status::Args),
    Capture(verb::capture::Args),
    Check(verb::check::Args),
    Doctor(verb::doctor::Args),
    Setup(verb::setup::Args),
    Support(verb::support::Args),
    #[command(hide = true)]
    Generate(verb::generate::Args),
    #[command(hide = true)]
    Names(verb::names::Args),
    Key(verb::key::Args),
    Roster(verb::roster::Args),
    Demo(verb::demo::Args),
    Bench(verb::bench::Args),
    /// Run a scenario in virtual time and print the results
    Sim(verb::sim::Args),
    /// Run a scenario for real, in network namespaces, and print the results
    Emulate(verb::emulate::Args),
    /// Make one report from result documents, to compare runs
    Report(verb::report::Args),
    Sweep(verb::sweep::Args),
    Figure(verb::figure::Args),
    Compare(verb::compare::Args),
    Orbit(verb::orbit::Args),
    Tcp(verb::tcp::Args),
    XcpRouter(verb::xcp_router::Args),
    Fec(verb::fec::Args),
}

/// The version, the commit and the features of this program, for reports of faults.
static BUILD: LazyLock<String> = LazyLock::new(|| {
    let features = if starhop_net::clock::STEPS.is_some() { "clock-steps (for tests)" } else { "none" };
    format!(
        "{}\ncommit: {}\nbuild: {} for {}\nfeatures: {features}",
        env!("CARGO_PKG_VERSION"),
        env!("STARHOP_COMMIT"),
        env!("STARHOP_PROFILE"),
        env!("STARHOP_TARGET")
    )
});

fn main() -> ExitCode {
    let arguments = match config::expand(&Cli::command(), std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("starhop: {error}");
            return ExitCode::from(2);
        }
    };
    let done = match &Cli::parse_from(arguments).verb {
        Verb::Serve(args) => verb::serve::run(args),
        Verb::Relay(args) => verb::relay::run(args),
        Verb::RelayWatchdog { port } => {
            starhop_net::transparent::watch(*port).map(|()| ExitCode::SUCCESS).map_err(anyhow::Error::from)
        }
        Verb::SplitProxy(args) => verb::split_proxy::run(args),
        Verb::Gateway(args) => verb::gateway::run(args),
        Verb::GatewayWatchdog { source, carries, holds, in_force } => {
            let devices = starhop_net::transparent::Devices { carry: *carries, hold: *holds };
            starhop_net::gateway::watch(source.source(), devices, *in_force)
                .map(|()| ExitCode::SUCCESS)
                .map_err(anyhow::Error::from)
        }
        Verb::Get(args) => verb::get::run(args),
        Verb::Ls(args) => verb::ls::run(args),
        Verb::Generate(args) => verb::generate::run(args),
        Verb::Names(args) => verb::names::run(args),
        Verb::Setup(args) => verb::setup::run(args),
        Verb::Support(args) => verb::support::run(args),
        Verb::Doctor(args) => verb::doctor::run(args),
        Verb::Capture(args) => verb::capture::run(args),
        Verb::Check(args) => verb::check::run(args),
        Verb::Status(args) => verb::status::run(args),
        Verb::Key(args) => verb::key::run(args),
        Verb::Roster(args) => verb::roster::run(args),
        Verb::Demo(args) => verb::demo::run(args),
        Verb::Bench(args) => verb::bench::run(args),
        Verb::Sim(args) => verb::sim::run(args),
        Verb::Emulate(args) => verb::emulate::run(args),
        Verb::Report(args) => verb::report::run(args),
        Verb::Sweep(args) => verb::sweep::run(args),
        Verb::Figure(args) => verb::figure::run(args),
        Verb::Compare(args) => verb::compare::run(args),
        Verb::Orbit(args) => verb::orbit::run(args),
        Verb::Tcp(args) => verb::tcp::run(args),
        Verb::XcpRouter(args) => verb::xcp_router::run(args),
        Verb::Fec(args) => verb::fec::run(args),
    };
    done.unwrap_or_else(|error| {
        if let Some(usage) = error.downcast_ref::<clap::Error>() {
            usage.exit();
        }
        eprintln!("starhop: {error:#}");
        ExitCode::FAILURE
    })
}
