//! `starhop doctor`: finds obstacles to a node on this host.

use super::sealing::SealArgs;
use super::{address, print};
use crate::quantity;
use starhop_net::daemon;
use starhop_net::operate::doctor::{Finding, Patient, Verdict, examine};
use starhop_proto::config::Config;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Check the needs of a node on this host: keys, clock, sockets, and the paths to its peers.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop doctor 192.0.2.1:4433 --key /etc/starhop/domain.key\n\nThe answer of a peer, and the keys, are checked with --key or --insecure only.\n\nExit code 0 when all is well or could be better, 1 when something does not work."
)]
pub(crate) struct Args {
    /// The upstreams of the node
    #[arg(value_parser = address, value_name = "ADDR")]
    peers: Vec<SocketAddr>,
    /// The configuration of a gateway of this host, whose needs are checked, too; may be repeated. Without it
    /// /etc/starhop/gateway.toml, where that is there
    #[arg(id = "gateway-file", long = "gateway", value_name = "FILE")]
    gateways: Vec<PathBuf>,
    #[command(flatten)]
    seal: SealArgs,
    /// Longest time until a peer answers
    #[arg(long, default_value = "3s", value_parser = quantity::time, value_name = "TIME")]
    timeout: Duration,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// The configuration of this host's gateway, where there is one.
pub(crate) fn usual_gateways() -> Vec<PathBuf> {
    let usual = PathBuf::from("/etc/starhop/gateway.toml");
    if usual.exists() { vec![usual] } else { Vec::new() }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let names_keys = args.seal.key.is_some() || args.seal.insecure;
    let security = names_keys.then(|| args.seal.sources()).transpose()?;
    let (peers, timeout, config) = (args.peers.clone(), args.timeout, Config::default());
    let gateways = if args.gateways.is_empty() { usual_gateways() } else { args.gateways.clone() };
    let patient = Patient { security, gateways, peers, timeout, config };
    let findings = daemon::runtime()?.block_on(examine(&patient));
    if args.json {
        print(&format!("{:#}\n", serde_json::json!(findings)))?;
    } else {
        print(&findings.iter().map(line).collect::<String>())?;
    }
    let is_failure = findings.iter().any(|finding| finding.verdict == Verdict::Failure);
    Ok(if is_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn line(finding: &Finding) -> String {
    let word = match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "could be better",
        Verdict::Failure => "DOES NOT WORK",
    };
    let mut line = format!("{}: {word}: {}\n", finding.check, finding.found);
    if let Some(cure) = &finding.cure {
        // Writing to a string cannot fail.
        let _ = writeln!(line, "    {cure}");
    }
    line
}
