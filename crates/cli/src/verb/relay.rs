//! `starhop relay`: stands between source and client, repairs and caches.

use super::sealing::SealArgs;
use super::serve::{reload, socket, warn};
use super::{address, config, say};
use crate::quantity;
use anyhow::bail;
use indicatif::HumanBytes;
use serde_json::json;
use starhop_net::proofs::{MAX_PROOF_BYTES, Proofs};
use starhop_net::security::HopSuite;
use starhop_net::{Driver, Endpoint, clock, daemon};
use starhop_proto::config::{Controller, Profile};
use starhop_proto::relay::{Relay, RelayStats, Scrutiny};
use starhop_proto::time::Instant;
use starhop_proto::units::Rate;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Relay what others ask for: repair losses on the hop above, and keep what passes for the next who asks.
///
/// A relay keeps nothing that cannot be lost: it may be ended, killed, restarted and left out at any moment.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop relay --listen 0.0.0.0:4433 --upstream 192.0.2.1:4433 --key domain.key --cache 1GiB\n\nEnds on SIGINT and SIGTERM with a line of statistics; SIGHUP reads the key anew. Exit code 0, or 1 when it cannot relay."
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
    /// Which of the 16 KiB groups in the cache are verified against the object's name before they are answered with
    #[arg(long, value_enum, default_value_t = Verify::Full, value_name = "WHICH")]
    verify: Verify,
    /// The set of mechanisms
    #[arg(long, default_value = "starhop", value_parser = super::get::profile, value_name = "PROFILE")]
    profile: Profile,
    #[command(flatten)]
    seal: SealArgs,
    /// Print events as JSON lines
    #[arg(long)]
    json: bool,
    /// Print counters as a JSON line this often
    #[arg(long, value_parser = quantity::time, value_name = "TIME")]
    stats_every: Option<Duration>,
}

/// What `--verify` takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Verify {
    /// None: clients find out themselves
    Off,
    /// One in eight, and all of an object once one was wrong
    Sample,
    /// All
    Full,
}

impl Verify {
    fn scrutiny(self) -> Option<Scrutiny> {
        match self {
            Self::Off => None,
            Self::Sample => Some(Scrutiny::Sample),
            Self::Full => Some(Scrutiny::Full),
        }
    }
}

type Node = Driver<Relay<HopSuite>>;

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut settings = args.profile.settings();
    settings.cache_bytes = args.cache;
    if let Some(rate) = args.link_rate {
        settings.controller = Controller::Fixed(rate);
    }
    let config = config(settings)?;
    let suite = args.seal.suite()?;
    daemon::runtime()?.block_on(async {
        let endpoint = Endpoint::bind(args.listen)?;
        warn(endpoint.buffers().advice());
        let Some(upstream) = endpoint.address_of(args.upstream) else {
            bail!("{} cannot be reached from {}: another IP version", args.upstream, args.listen);
        };
        let proofs = args.verify.scrutiny().map_or(0, |_| MAX_PROOF_BYTES);
        let memory = config.memory_bound() + suite.memory_bound() + proofs;
        let mut relay = Relay::new(config, upstream, suite, clock::seed());
        if let Some(scrutiny) = args.verify.scrutiny() {
            relay.set_verifier(Box::new(Proofs::default()), scrutiny, clock::seed());
        }
        let mut driver = Driver::new(relay, endpoint)?;
        announce(args, &driver, memory);
        let every = args.stats_every.unwrap_or(Duration::from_secs(1));
        let mut lies = Lies::default();
        let tick = |driver: &mut Node| {
            warn(driver.node_mut().suite_mut().news(clock::now()));
            warn(lies.news(clock::now(), driver.node().stats()));
            if args.stats_every.is_some() {
                say(&stats("stats", driver).to_string());
            }
        };
        daemon::run(&mut driver, Some(every), tick, |driver| reload(driver.node_mut().suite_mut())).await?;
        finish(args, &driver);
        Ok(ExitCode::SUCCESS)
    })
}

fn announce(args: &Args, driver: &Node, memory: u64) {
    let listen = driver.endpoint().local();
    if args.json {
        say(&json!({"event": "ready", "role": "relay", "listen": listen, "upstream": args.upstream,
            "security": driver.node().suite().security(), "memory_bound": memory})
        .to_string());
    } else {
        say(&format!(
            "ready: relaying on {listen} (UDP) for {}, {}; state and cache take {} at most",
            args.upstream,
            driver.node().suite().security().packets,
            HumanBytes(memory)
        ));
    }
}

/// What was told about wrong bytes, and when there may be news.
#[derive(Default)]
struct Lies {
    told: u64,
    next_news: Instant,
}

impl Lies {
    /// The neighbour that wrong bytes came from, when there are new ones; at most every ten seconds.
    fn news(&mut self, now: Instant, stats: RelayStats) -> Option<String> {
        let (fresh, from) = (stats.disproved_groups - self.told, stats.last_disproved?);
        if fresh == 0 || now < self.next_news {
            return None;
        }
        self.told = stats.disproved_groups;
        self.next_news = now + starhop_proto::time::Duration::from_secs(10);
        Some(format!(
            "{fresh} groups of 16 KiB in the cache were not what their name says, and were forgotten. {from} was asked for them"
        ))
    }
}

fn finish(args: &Args, driver: &Node) {
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

fn stats(event: &str, driver: &Node) -> serde_json::Value {
    let stats = driver.node().stats();
    json!({
        "event": event, "role": "relay",
        "interests_in": stats.interests_in, "interests_out": stats.interests_out,
        "aggregated_bytes": stats.aggregated_bytes, "cache_hit_bytes": stats.cache_hit_bytes,
        "cache_bytes": stats.cache_bytes, "data_in": stats.data_in, "data_out": stats.data_out,
        "unasked": stats.unasked, "sent_bytes": stats.sent_bytes, "repairs": stats.repairs,
        "flows": stats.flows, "neighbours": stats.neighbours, "over_limit": stats.over_limit, "bad_datagrams": stats.bad_datagrams, "over_credit": stats.over_credit,
        "disproved_groups": stats.disproved_groups, "last_disproved": stats.last_disproved,
        "security": driver.node().suite().security(), "seal": driver.node().suite().stats_json(), "socket": socket(driver.stats()),
        "cpu_seconds": clock::cpu_seconds(),
    })
}
