//! `starhop split-proxy`: a node that splits TCP connections, for emulations.

use super::{address, say};
use crate::quantity;
use anyhow::Context;
use serde_json::json;
use starhop_net::split::{Options, Splitter};
use std::net::SocketAddr;
use std::process::ExitCode;

/// End TCP connections and pass their bytes on over new ones, each with its own congestion control
///
/// `starhop emulate` starts these where a scenario says `split`. Ends when it is killed.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop split-proxy --listen 0.0.0.0:5001 --to 192.0.2.1:5001 --control bbr"
)]
pub(crate) struct Args {
    /// Address and TCP port to listen on
    #[arg(long, value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,
    /// The server, or the next proxy on the way to it
    #[arg(long, value_parser = address, value_name = "ADDR")]
    to: SocketAddr,
    /// The kernel's congestion control of both halves
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    control: String,
    /// About how much it holds per direction; the kernel decides unless given
    #[arg(long, value_parser = quantity::size, value_name = "SIZE")]
    buffer: Option<u64>,
    /// Print events as JSON lines
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Args { listen, to, buffer, .. } = *args;
    let options = Options { listen, to, control: args.control.clone(), buffer };
    let splitter = Splitter::bind(options).with_context(|| {
        format!("cannot split connections on {listen} with the congestion control {}", args.control)
    })?;
    if args.json {
        say(&json!({"event": "ready", "role": "split-proxy", "listen": listen, "to": to}).to_string());
    } else {
        say(&format!("ready: passing connections to {listen} on to {to}, with {}", args.control));
    }
    splitter.run()?;
    Ok(ExitCode::SUCCESS)
}
