//! `starhop relay`: stands between source and client, repairs and caches.

use super::mechanisms::Mechanisms;
use super::serve::{socket, warn};
use super::{address, fix_rate, say};
use crate::quantity;
use anyhow::{Context, anyhow};
use indicatif::HumanBytes;
use serde_json::json;
use starhop_net::content::ContentName;
use starhop_net::transparent::{self, Counters, Transparent};
use starhop_net::{Driver, DriverStats, Endpoint, clock, daemon};
use starhop_proto::config::Config;
use starhop_proto::name::FlowId;
use starhop_proto::relay::{Relay, RelayStats};
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
    after_help = "Example:\n  starhop relay --listen 0.0.0.0:4433 --upstream 192.0.2.1:4433 --cache 1GiB\n  starhop relay --transparent --cache 1GiB\n\nA transparent relay runs on a router, needs root (or CAP_NET_ADMIN) and nftables, and sets `table inet\nstarhop_relay_PORT` and one routing rule, which it removes when it ends, and a watchdog within two seconds when it\nis killed or hangs. SIGUSR1 lets packets pass until SIGUSR2.\n\nEnds on SIGINT and SIGTERM with a line of statistics. Exit code 0, or 1 when it cannot relay."
)]
pub(crate) struct Args {
    /// Address and UDP port to listen on; `[::]` takes both IP versions
    #[arg(long, default_value = "[::]:4433", value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,
    /// The next relay, or the server
    #[arg(long, value_parser = address, value_name = "ADDR", required_unless_present = "transparent")]
    upstream: Option<SocketAddr>,
    /// Relay what passes this router, unasked: packets from and to the UDP port of `--listen` are diverted by nftables
    #[arg(long, conflicts_with_all = ["upstream", "routes"])]
    transparent: bool,
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
    if args.transparent {
        return transparent(args, config);
    }
    daemon::runtime()?.block_on(async {
        let endpoint = Endpoint::bind(args.listen)?;
        warn(endpoint.buffers().advice());
        let reachable = |address: SocketAddr| {
            let problem = || anyhow!("{address} cannot be reached from {}: another IP version", args.listen);
            endpoint.address_of(address).ok_or_else(problem)
        };
        // Given, unless this relay is transparent.
        let upstream = reachable(args.upstream.unwrap_or(args.listen))?;
        let mut relay = Relay::new(config, upstream, Plain, clock::seed());
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

/// Runs a relay that end points do not know of.
fn transparent(args: &Args, config: Config) -> anyhow::Result<ExitCode> {
    let port = args.listen.port();
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let watchdog = (program, vec!["relay-watchdog".to_owned(), port.to_string()]);
    daemon::runtime()?.block_on(async {
        // Nobody is asked but whom the clients ask.
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let relay = Relay::new(config, nowhere, Plain, clock::seed());
        let options = transparent::Options { port, watchdog };
        let mut relay = Transparent::start(relay, &options).context("cannot relay transparently")?;
        if args.json {
            say(&json!({"event": "ready", "role": "relay", "transparent": true, "port": port}).to_string());
        } else {
            say(&format!("ready: relaying what passes from and to UDP port {port}"));
        }
        let document = |event, counters: Counters| {
            let mut document = document(event, counters.relay, counters.sockets);
            document["passed_on"] = counters.passed_on.into();
            say(&document.to_string());
        };
        relay.run(args.stats_every, |counters| document("stats", counters)).await?;
        match args.json {
            true => document("end", relay.counters()),
            false => say_stats(relay.counters().relay),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn announce(args: &Args, driver: &Driver<Relay>) {
    let listen = driver.endpoint().local();
    if args.json {
        say(&json!({"event": "ready", "role": "relay", "listen": listen, "upstream": args.upstream})
            .to_string());
    } else {
        let upstream = args.upstream.map_or_else(String::new, |upstream| format!(" for {upstream}"));
        say(&format!("ready: relaying on {listen} (UDP){upstream}"));
    }
}

fn finish(args: &Args, driver: &Driver<Relay>) {
    if args.json {
        say(&stats("end", driver).to_string());
        return;
    }
    say_stats(driver.node().stats());
}

fn say_stats(stats: RelayStats) {
    say(&format!(
        "relayed {} packets; {} came from the cache, {} ranges were repaired above",
        stats.data_out,
        HumanBytes(stats.cache_hit_bytes),
        stats.repairs
    ));
}

fn stats(event: &str, driver: &Driver<Relay>) -> serde_json::Value {
    document(event, driver.node().stats(), driver.stats())
}

fn document(event: &str, stats: RelayStats, sockets: DriverStats) -> serde_json::Value {
    json!({
        "event": event, "role": "relay",
        "interests_in": stats.interests_in, "interests_out": stats.interests_out,
        "aggregated_bytes": stats.aggregated_bytes, "cache_hit_bytes": stats.cache_hit_bytes,
        "cache_bytes": stats.cache_bytes, "data_in": stats.data_in, "data_out": stats.data_out,
        "unasked": stats.unasked, "sent_bytes": stats.sent_bytes, "repairs": stats.repairs,
        "flows": stats.flows, "bad_datagrams": stats.bad_datagrams, "socket": socket(sockets),
        "cpu_seconds": clock::cpu_seconds(),
    })
}
