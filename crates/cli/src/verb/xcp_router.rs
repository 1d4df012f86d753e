//! `starhop xcp-router`: XCP's router at a device's egress.

use super::say;
use crate::config::ConfigArgs;
use crate::quantity;
use serde_json::json;
use starhop_kernel::{Router, RouterSettings};
use starhop_net::daemon;
use starhop_proto::units::Rate;
use std::process::ExitCode;
use std::time::Duration;

/// Tell senders that speak XCP the capacity of the link behind a device.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop xcp-router --dev sat0 --rate 20Mbit       # on the gateway, as root; until this command ends\n  starhop tcp load cubic-xcp --persist              # on the servers\n\nWhat is routed may be encrypted and in IP-in-IP tunnels, as long as the TCP header can be read. Kernel 6.6 or newer.\n\nExit code 0, 1 when it could not be done, 2 for a wrong command, 3 when this machine cannot."
)]
pub(crate) struct Args {
    /// The device through which packets leave for the link
    #[arg(long, value_name = "DEVICE")]
    dev: String,
    /// Rate of the link, counted in IP packets and their --overhead
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    rate: Rate,
    /// Count only packets with XCP's header, as if the rest were not there
    #[arg(long)]
    own: bool,
    /// Size of the link's queue, if it is behind the device
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    queue: Option<u64>,
    /// Bytes that the link adds to every packet, such as 18 for Ethernet
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    overhead: u32,
    /// Share of the spare rate that is handed out per control interval
    #[arg(long, default_value = "40%", value_parser = quantity::share, value_name = "SHARE")]
    alpha: f64,
    /// Share of the standing queue that is taken back per control interval
    #[arg(long, default_value = "22.6%", value_parser = quantity::share, value_name = "SHARE")]
    beta: f64,
    /// Share of the traffic that moves from flow to flow per control interval
    #[arg(long, default_value = "10%", value_parser = quantity::share, value_name = "SHARE")]
    gamma: f64,
    /// Print the router's counters this often, as JSON
    #[arg(long, value_name = "TIME", value_parser = quantity::period)]
    stats_every: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = RouterSettings {
        alpha: args.alpha,
        beta: args.beta,
        gamma: args.gamma,
        own: args.own,
        queue_limit: args.queue.unwrap_or(0),
        overhead: args.overhead,
        ..RouterSettings::of_rate(args.rate.as_bps())
    };
    let router = match Router::attach(&args.dev, &settings) {
        Err(error) if error.is_of_this_machine() => {
            eprintln!("starhop: {error}");
            return Ok(ExitCode::from(3));
        }
        attached => attached?,
    };
    if args.json {
        say(&json!({"event": "ready", "dev": args.dev, "rate_bps": args.rate.as_bps()}).to_string());
    } else {
        say(&format!("ready: at the egress of {}", args.dev));
    }
    daemon::wait_for_end(args.stats_every, || tell(&router))?;
    if args.json {
        tell(&router);
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(router: &Router) {
    match router.state() {
        Ok(state) => say(&json!({
            "event": "stats",
            "packets": state.packets,
            "with_header": state.headers,
            "intervals": state.intervals,
            "interval_ms": state.interval_us as f64 / 1e3,
            "input_mbps": state.input_bps as f64 / 1e6,
            "standing_bytes": state.standing_bytes,
        })
        .to_string()),
        Err(error) => eprintln!("starhop: {error}"),
    }
}
