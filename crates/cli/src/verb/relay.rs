//! `starhop relay`: stands between source and client, repairs and caches.

use super::mechanisms::Mechanisms;
use super::serve::{socket, warn};
use super::{address, fix_rate, say};
use crate::quantity;
use anyhow::anyhow;
use indicatif::HumanBytes;
use serde_json::json;
use starhop_net::content::ContentName;
use starhop_net::{Driver, Endpoint, clock, daemon};
use starhop_proto::name::FlowId;
use starhop_proto::relay::Relay;
use starhop_proto::units::Rate;
use starhop_proto::wire::Plain;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Relay what others ask for: repair losses on the hop above, and keep what passes for the next who asks.
///
/// A relay keeps nothing that cannot be lost: it may be ended, killed, restarted and left out at any moment.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop relay --listen 0.0.0.0:4433 --upstream 192.0.2.1:4433 --cache 1GiB\n\nEnds on SIGINT and SIGTERM with a line of statistics. Exit code 0, or 1 when it cannot relay."
)]
pub(crate) struct Args {
    /// Address and UDP port to listen on; `[::]` takes both IP versions
    #[arg(long, default_value = "[::]:4433", value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,
    /// The next relay, or the server
    #[arg(long, value_parser = address, value_name = "ADDR")]
    upstream: SocketAddr,
    /// Memory for data that passed
    #[arg(long, default_value = "256MiB", value_parser = quantity::size, value_name = "SIZE")]
    cache: u64,
    /// The rate of the link towards the upstream, if it is known; otherwise it is measured
    #[arg(long, value_parser = quantity::rate, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// Ask another neighbour for one object: its hash and the neighbour; may be given several times
    #[arg(long = "route", value_parser = route, value_name = "b3:HASH=ADDR")]
    routes: Vec<(FlowId, SocketAddr)>,
    #[command(flatten)]
    mechanisms: Mechanisms,
    /// Print events as JSON lines
    #[arg(long)]
    json: bool,
    /// Print counters as a JSON line this often
    #[arg(long, value_parser = quantity::time, value_name = "TIME")]
    stats_every: Option<Duration>,
}

/// `b3:HASH=HOST:PORT`.
fn route(text: &str) -> Result<(FlowId, SocketAddr), String> {
    let (name, neighbour) = text.split_once('=').ok_or("is not of the form b3:HASH=HOST:PORT")?;
    match ContentName::parse(name) {
        Ok(ContentName::Hash(hash)) => Ok((FlowId::of_content(hash.as_bytes()), address(neighbour)?)),
        Ok(ContentName::Path(_)) => Err("names the object by its hash, as b3:HASH".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = args.mechanisms.config(|settings| {
        settings.cache_bytes = args.cache;
        fix_rate(settings, args.link_rate);
    })?;
    daemon::runtime()?.block_on(async {
        let endpoint = Endpoint::bind(args.listen)?;
        warn(endpoint.buffers().advice());
        let reachable = |address: SocketAddr| {
            let problem = || anyhow!("{address} cannot be reached from {}: another IP version", args.listen);
            endpoint.address_of(address).ok_or_else(problem)
        };
        let mut relay = Relay::new(config, reachable(args.upstream)?, Plain, clock::seed());
        for &(flow, upstream) in &args.routes {
            relay.set_route(clock::now(), flow, reachable(upstream)?);
        }
        let mut driver = Driver::new(relay, endpoint)?;
        announce(args, &driver);
        let print = |driver: &mut Driver<Relay>| say(&stats("stats", driver).to_string());
        daemon::run(&mut driver, args.stats_every, print).await?;
        finish(args, &driver);
        Ok(ExitCode::SUCCESS)
    })
}

fn announce(args: &Args, driver: &Driver<Relay>) {
    let listen = driver.endpoint().local();
    if args.json {
        say(&json!({"event": "ready", "role": "relay", "listen": listen, "upstream": args.upstream})
            .to_string());
    } else {
        say(&format!("ready: relaying on {listen} (UDP) for {}", args.upstream));
    }
}

fn finish(args: &Args, driver: &Driver<Relay>) {
    if args.json {
        say(&stats("end", driver).to_string());
        return;
    }
    let stats = driver.node().stats();
    say(&format!(
        "relayed {} packets; {} came from the cache, {} ranges were repaired above",
        stats.data_out,
        HumanBytes(stats.cache_hit_bytes),
        stats.repairs
    ));
}

fn stats(event: &str, driver: &Driver<Relay>) -> serde_json::Value {
    let stats = driver.node().stats();
    json!({
        "event": event, "role": "relay",
        "interests_in": stats.interests_in, "interests_out": stats.interests_out,
        "aggregated_bytes": stats.aggregated_bytes, "cache_hit_bytes": stats.cache_hit_bytes,
        "cache_bytes": stats.cache_bytes, "data_in": stats.data_in, "data_out": stats.data_out,
        "unasked": stats.unasked, "sent_bytes": stats.sent_bytes, "repairs": stats.repairs,
        "flows": stats.flows, "bad_datagrams": stats.bad_datagrams, "socket": socket(driver.stats()),
        "cpu_seconds": clock::cpu_seconds(),
    })
}
