//! `starhop relay`: stands between source and client, repairs and caches.

use super::memory::{Division, MemoryArgs};
use super::serve::{socket, warn};
use super::service::ServiceArgs;
use super::{address, fix_rate, limit_rate, reload, say, tell};
use crate::Cli;
use crate::config::Reread;
use crate::quantity;
use anyhow::{Context, anyhow, bail};
use clap::CommandFactory;
use indicatif::HumanBytes;
use serde_json::json;
use starhop_net::content::ContentName;
use starhop_net::operate::failover::{Failover, Switch};
use starhop_net::operate::names::{Place, Resolver, is_itself, not_on_roster};
use starhop_net::operate::paths::{self, Paths};
use starhop_net::operate::policing::Policing;
use starhop_net::operate::transfers::{self, Record};
use starhop_net::operate::{Accounts, Cache, Peer, Refusals, Slack, Status, about, reach};
use starhop_net::outboard::outboard_flow;
use starhop_net::proofs::{MAX_PROOF_BYTES, Proofs};
use starhop_net::security::HopSuite;
use starhop_net::transparent::{self, Counters, Transparent};
use starhop_net::{Driver, DriverStats, Endpoint, clock, daemon};
use starhop_proto::config::Config;
use starhop_proto::hop::Transfer;
use starhop_proto::name::FlowId;
use starhop_proto::relay::intercept::Interceptor;
use starhop_proto::relay::{Relay, RelayStats, Scrutiny};
use starhop_proto::time::Instant;
use starhop_proto::units::Rate;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Relay the requests of others: repair losses on the hop above, and keep passing data for the next request.
///
/// A relay keeps nothing that cannot be lost: it may be ended, killed, restarted and left out at any moment.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop relay --listen 0.0.0.0:4433 --upstream 192.0.2.1:4433 --key domain.key --cache 1GiB\n  starhop relay --transparent --key domain.key --cache 1GiB\n\nA transparent relay runs on a router, needs root (or CAP_NET_ADMIN) and nftables, and sets `table inet\nstarhop_relay_PORT` and one routing rule, which it removes when it ends, and a watchdog within two seconds when it\nis killed or hangs. SIGUSR1 lets packets pass until SIGUSR2. It needs the domain's key: nodes with keys of their own\n(--roster) seal for each other, and nobody between them can open that.\n\nEnds on SIGINT and SIGTERM with a line of statistics; SIGHUP reads the key and --config anew.\nExit codes: 0; 1 it cannot relay; 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Address and UDP port to listen on; `[::]` takes both IP versions
    #[arg(long, default_value = "[::]:4433", value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,
    /// The next relay, or the server; given several times, the first of them that answers
    #[arg(long, value_name = "ADDR", required_unless_present = "transparent")]
    upstream: Vec<Place>,
    /// Spread flows over all upstreams that answer, by the measured throughput of their paths; a flow stays where
    /// it is
    #[arg(long, conflicts_with = "transparent")]
    balance: bool,
    /// Relay the flows that pass this router, unasked: packets from and to the UDP port of `--listen` are diverted
    /// by nftables
    #[arg(long, conflicts_with_all = ["upstream", "routes"])]
    transparent: bool,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Of it, memory for data that passed; half of it unless given
    #[arg(long, value_parser = quantity::size, value_name = "SIZE")]
    cache: Option<u64>,
    /// The rate of the link towards the upstream, if it is known; otherwise it is measured
    #[arg(long, value_parser = quantity::rate, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// The highest rate from the upstream, even if its link carries more
    #[arg(long, value_parser = quantity::rate, value_name = "RATE")]
    limit_rate: Option<Rate>,
    /// Which of the 16 KiB groups in the cache are verified against the object's name before they are answered with
    #[arg(long, value_enum, default_value_t = Verify::Full, value_name = "WHICH")]
    verify: Verify,
    /// Ask another neighbour for one object: its hash and the neighbour; may be given several times
    #[arg(long = "route", value_parser = route, value_name = "b3:HASH=ADDR")]
    routes: Vec<(FlowId, SocketAddr)>,
    #[command(flatten)]
    service: ServiceArgs,
}

/// The values of `--verify`.
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
    let proofs = args.verify.scrutiny().map_or(0, |_| MAX_PROOF_BYTES);
    let memory = args.memory.divide(args.cache, Config::default().parity_bound() + proofs)?;
    args.service.log.start(args.service.json)?;
    let config = args.service.mechanisms.config(|settings| {
        memory.apply(settings);
        fix_rate(settings, args.link_rate);
        limit_rate(settings, args.limit_rate);
    })?;
    if args.transparent {
        return transparent(args, config, memory);
    }
    // Before it says that it is ready: a change after that is one.
    let reread = Reread::new(&Cli::command());
    let mut suite = args.service.seal.suite()?;
    memory.apply_to_suite(&mut suite);
    // Before signal handlers exist, so that a signal can end a process that waits for a name.
    let find = |place: &Place| place.resolve_patiently(|problem| tracing::warn!("{problem}"));
    let upstreams: Vec<SocketAddr> = args.upstream.iter().map(find).collect();
    check_upstreams(args, &upstreams)?;
    daemon::runtime()?.block_on(async {
        let endpoint = Endpoint::bind(args.listen)?;
        warn(endpoint.buffers().advice());
        let reachable = |address: SocketAddr| reachable(&endpoint, address);
        let upstreams = upstreams.iter().copied().map(reachable).collect::<anyhow::Result<Vec<_>>>()?;
        let failover = Failover::new(&upstreams).context("no upstream is given")?;
        let upstream = failover.current();
        let bound = memory_bound(args, &config, &suite);
        let paths = Paths::new(config.payload);
        let mut relay = Relay::new(config, upstream, suite, clock::seed());
        verify(args, &mut relay);
        for &(flow, upstream) in &args.routes {
            let upstream = reachable(upstream)?;
            relay.set_route(clock::now(), flow, upstream);
            // The proof of the object comes the same way.
            relay.set_route(clock::now(), outboard_flow(flow), upstream);
        }
        let mut driver = Driver::new(relay, endpoint)?;
        let greeting = reach(&mut driver, upstream, REACHED_WITHIN).await?;
        announce(
            args,
            &driver,
            (bound, memory),
            greeting.and_then(|told| told.rtt).map(|rtt| rtt.as_millis_f64()),
        );
        let every = args.service.tick(Duration::from_secs(1));
        let mut desk = args.service.desk.open("relay", driver.endpoint().local().port())?;
        let (record, tells_stats) = (Record::default(), args.service.tells_stats());
        let next_look = clock::now();
        let lies = Lies::default();
        let names = Names { places: args.upstream.clone(), ..Names::default() };
        let (balances, refusals) = (args.balance, Refusals::default());
        let mut chores = Chores {
            lies,
            record,
            memory,
            tells_stats,
            failover,
            balances,
            refusals,
            paths,
            policing: Policing::default(),
            slack: Slack::default(),
            names,
            next_look,
            reread,
        };
        daemon::run(&mut driver, every, &mut chores, &mut desk).await?;
        finish(args, &driver);
        Ok(ExitCode::SUCCESS)
    })
}

/// The tasks of a relay besides relaying.
struct Chores {
    lies: Lies,
    record: Record,
    memory: Division,
    tells_stats: bool,
    failover: Failover,
    /// All upstreams are asked, not one.
    balances: bool,
    refusals: Refusals,
    paths: Paths,
    policing: Policing,
    slack: Slack,
    names: Names,
    next_look: Instant,
    reread: Option<Reread>,
}

/// An upstream that does not answer for this long is reported as not reached. A relay serves all the same, because
/// the upstream may come later.
const REACHED_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks at the upstreams.
const LOOK: starhop_proto::time::Duration = starhop_proto::time::Duration::from_secs(1);

impl Chores {
    /// Turns to another upstream when the one that is asked falls silent.
    fn look_at_upstreams(&mut self, driver: &mut Node) {
        let now = clock::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        let found = self.names.look(self.failover.current(), self.failover.is_silent(now));
        let endpoint = driver.endpoint();
        let found = found.into_iter().flatten().filter_map(|address| endpoint.address_of(address));
        let elsewhere = self.failover.replace(&found.collect::<Vec<_>>());
        self.turn(driver, elsewhere);
        if self.balances {
            let shares = self.failover.spread(now, driver.node().upstreams());
            driver.node_mut().set_shares(now, &shares);
        } else {
            let switch = self.failover.judge(now, driver.node().upstreams());
            self.turn(driver, switch);
        }
        let to_greet = self.failover.to_greet(now, driver.node().upstreams());
        to_greet.into_iter().for_each(|upstream| driver.node_mut().greet(upstream));
    }

    fn turn(&self, driver: &mut Node, switch: Option<Switch>) {
        let Some(Switch { from, to, is_failure }) = switch else { return };
        driver.node_mut().set_upstream(clock::now(), to);
        if is_failure {
            tracing::warn!(%from, %to, "the upstream does not answer; another one is asked");
        } else {
            tracing::info!(%from, %to, "another upstream is asked");
        }
    }

    /// Reads the configuration file anew, and applies the options that can change at run time.
    fn reconfigure(&mut self, driver: &mut Node) -> anyhow::Result<()> {
        let Some(reread) = &mut self.reread else { return Ok(()) };
        let Some((changed, args)) = reload::again::<Args>(reread, "relay")? else { return Ok(()) };
        let endpoint = driver.endpoint();
        let upstreams = args.upstream.iter().map(|place| {
            let address = place.resolve().map_err(|problem| anyhow!(problem))?;
            reachable(endpoint, address)
        });
        let upstreams = upstreams.collect::<anyhow::Result<Vec<_>>>()?;
        args.service.log.reload(&changed)?;
        self.names.places.clone_from(&args.upstream);
        let switch = self.failover.replace(&upstreams);
        self.turn(driver, switch);
        if let Some(reread) = &mut self.reread {
            reload::settle(reread, &changed, &["upstream", "log-level"]);
        }
        Ok(())
    }
}

/// Reads the keys and the configuration file of a transparent relay anew.
fn reload_transparent(suite: &mut HopSuite, reread: Option<&mut Reread>) {
    suite.reload_and_log();
    let Some(reread) = reread else { return };
    let mut reconfigure = || {
        let Some((changed, args)) = reload::again::<Args>(reread, "relay")? else { return anyhow::Ok(()) };
        args.service.log.reload(&changed)?;
        reload::settle(reread, &changed, &["log-level"]);
        Ok(())
    };
    if let Err(error) = reconfigure() {
        tracing::error!("the settings in use stay: {error:#}");
    }
}

/// The names of the upstreams, and whether the one that is asked is silent.
#[derive(Default)]
struct Names {
    places: Vec<Place>,
    resolver: Resolver,
    is_silent: bool,
}

impl Names {
    /// Logs when the upstream falls silent or answers again. The name of a silent upstream may lead elsewhere by
    /// now. Returns the addresses of all names, once they are found.
    fn look(&mut self, upstream: SocketAddr, is_silent: bool) -> Option<Vec<SocketAddr>> {
        let upstream = SocketAddr::new(upstream.ip().to_canonical(), upstream.port());
        match (std::mem::replace(&mut self.is_silent, is_silent), is_silent) {
            (false, true) => tracing::warn!(
                %upstream,
                "the upstream does not answer: is it running, with the same key, and is UDP to it open?"
            ),
            (true, false) => tracing::info!(%upstream, "the upstream answers again"),
            _ => {}
        }
        if is_silent {
            self.resolver.start(&self.places);
        }
        self.resolver.take()
    }
}

/// Refuses a relay whose upstream is itself, and reports other faults that can be seen beforehand.
fn check_upstreams(args: &Args, upstreams: &[SocketAddr]) -> anyhow::Result<()> {
    let sources = args.service.seal.sources()?;
    for &upstream in upstreams {
        if is_itself(upstream, args.listen) {
            bail!("--upstream {upstream} is this relay itself: name the next node towards the server");
        }
        warn(not_on_roster(upstream, &sources));
    }
    Ok(())
}

/// `address` as the socket knows it.
fn reachable(endpoint: &Endpoint, address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let problem = || anyhow!("{address} cannot be reached from {}: another IP version", endpoint.local());
    endpoint.address_of(address).ok_or_else(problem)
}

impl daemon::Chores<Relay<HopSuite>> for Chores {
    fn tick(&mut self, driver: &mut Node) {
        driver.node_mut().set_about(about());
        driver.node_mut().end_complete(clock::now(), transfers::QUIET);
        warn(driver.node_mut().suite_mut().news(clock::now()));
        warn(self.lies.news(clock::now(), driver.node().stats()));
        warn(self.refusals.news(driver.stats()));
        self.paths.look(paths::of(driver.node().upstreams()));
        self.policing.look(driver.node().upstreams());
        let node = driver.node();
        self.slack.look(node.stats().state_bytes + node.suite().memory_held());
        self.look_at_upstreams(driver);
        if self.tells_stats {
            tell(stats("stats", driver));
        }
    }

    fn reload(&mut self, driver: &mut Node) {
        driver.node_mut().suite_mut().reload_and_log();
        if let Err(error) = self.reconfigure(driver) {
            tracing::error!("the settings in use stay: {error:#}");
        }
    }

    fn event(&mut self, _driver: &mut Node, transfer: Transfer) {
        self.record.note(&transfer, None);
    }

    fn status(&mut self, driver: &Node) -> Status {
        let (node, now) = (driver.node(), clock::now());
        let local = driver.endpoint().local();
        let mut status = Status::new("relay", local, node.suite(), driver.stats(), &self.record);
        status.add_peers(node.upstreams().map(|hop| Peer::upstream(now, &hop, node.suite())));
        status.add_peers(node.downstreams().map(|hop| Peer::downstream(now, &hop, node.suite())));
        status.add_flows(now, node.flow_views(), |_| None);
        account(&mut status, node.stats(), &self.memory);
        status
    }
}

/// Adds a relay's counters to its status.
fn account(status: &mut Status, stats: RelayStats, memory: &Division) {
    let (used_bytes, hit_bytes) = (stats.cache_bytes, stats.cache_hit_bytes);
    status.cache = Some(Cache { used_bytes, limit_bytes: memory.cache, hit_bytes });
    status.memory = Some(memory.status(stats.state_bytes));
    status.accounts = Accounts {
        interests_in: stats.interests_in,
        data_out: stats.data_out,
        sent_bytes: stats.sent_bytes,
        repairs: stats.repairs,
        aggregated_bytes: stats.aggregated_bytes,
    };
    status.refuse("bad_datagrams", stats.bad_datagrams);
    status.refuse("bytes_over_credit", stats.over_credit);
    status.refuse("requests_over_limit", stats.over_limit);
    status.refuse("data_unasked", stats.unasked);
    status.refuse("groups_disproved", stats.disproved_groups);
}

/// Upper bound of the memory of state and cache.
fn memory_bound(args: &Args, config: &Config, suite: &HopSuite) -> u64 {
    let proofs = args.verify.scrutiny().map_or(0, |_| MAX_PROOF_BYTES);
    config.memory_bound() + suite.memory_bound() + proofs
}

/// Has the relay verify the groups that `--verify` selects.
fn verify(args: &Args, relay: &mut Relay<HopSuite>) {
    if let Some(scrutiny) = args.verify.scrutiny() {
        relay.set_verifier(Box::new(Proofs::default()), scrutiny, clock::seed());
    }
}

/// Runs a relay that end points do not know of.
fn transparent(args: &Args, config: Config, memory: Division) -> anyhow::Result<ExitCode> {
    if args.service.seal.roster.is_some() {
        bail!(
            "a transparent relay needs the domain's key: nodes with keys of their own (--roster) seal for each other, \
             and a relay that they do not know of can open nothing. Tell them of the relay, with --upstream and \
             --from, or use one key for the domain"
        );
    }
    let port = args.listen.port();
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let watchdog = (program, vec!["relay-watchdog".to_owned(), port.to_string()]);
    let mut suite = args.service.seal.suite()?;
    memory.apply_to_suite(&mut suite);
    let mut reread = Reread::new(&Cli::command());
    daemon::runtime()?.block_on(async {
        let (security, bound) = (suite.security(), memory_bound(args, &config, &suite));
        let mut paths = Paths::new(config.payload);
        let mut relay = Interceptor::new(config, suite, clock::seed());
        verify(args, relay.relay_mut());
        let options = transparent::Options { port, watchdog };
        let mut relay = Transparent::start(relay, &options).context("cannot relay transparently")?;
        if args.service.json {
            tell(json!({"event": "ready", "role": "relay", "transparent": true, "port": port,
                "security": security, "memory_bound": bound, "memory": memory.all}));
        } else {
            say(&format!(
                "ready: relaying what passes from and to UDP port {port}, {}; state and cache take {} at most",
                security.packets,
                HumanBytes(memory.all)
            ));
        }
        let document = |event, counters: Counters, suite: &HopSuite| {
            let mut document = document(event, counters.relay, counters.sockets, suite);
            document["passed_on"] = counters.passed_on.into();
            tell(document);
        };
        let (mut lies, mut slack) = (Lies::default(), Slack::default());
        let record = RefCell::new(Record::default());
        let tick = |relay: &mut Transparent| {
            relay.take_ended().iter().for_each(|transfer| record.borrow_mut().note(transfer, None));
            relay.suite_mut().tidy(clock::now());
            warn(lies.news(clock::now(), relay.counters().relay));
            paths.look(relay.path_lengths());
            slack.look(relay.counters().relay.state_bytes + relay.suite().memory_held());
            if args.service.tells_stats() {
                document("stats", relay.counters(), relay.suite());
            }
        };
        let every = args.service.tick(Duration::from_secs(1));
        let mut desk = args.service.desk.open("relay", port)?;
        let status = |relay: &Transparent| {
            let (counters, local) = (relay.counters(), SocketAddr::new(args.listen.ip(), port));
            let mut status = Status::new("relay", local, relay.suite(), counters.sockets, &record.borrow());
            status.add_peers(relay.peers());
            status.add_flows(clock::now(), relay.flow_views(), |_| None);
            account(&mut status, counters.relay, &memory);
            status
        };
        let reload = |suite: &mut HopSuite| reload_transparent(suite, reread.as_mut());
        relay.run(Some(every), tick, reload, (&mut desk, status)).await?;
        match args.service.json {
            true => document("end", relay.counters(), relay.suite()),
            false => say_stats(relay.counters().relay),
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn announce(args: &Args, driver: &Node, (bound, memory): (u64, Division), rtt_ms: Option<f64>) {
    let listen = driver.endpoint().local();
    if args.service.json {
        tell(
            json!({"event": "ready", "role": "relay", "listen": listen, "upstream": args.upstream.first().map(Place::to_string), "reached": rtt_ms.is_some(), "upstream_rtt_ms": rtt_ms,
            "security": driver.node().suite().security(), "memory_bound": bound, "memory": memory.all}),
        );
    } else {
        let reached =
            rtt_ms.map_or_else(|| "has not answered yet".to_owned(), |ms| format!("answers in {ms:.1} ms"));
        let upstream = args
            .upstream
            .first()
            .map_or_else(String::new, |upstream| format!(" for {upstream}, which {reached}"));
        say(&format!(
            "ready: relaying on {listen} (UDP){upstream}, {}; state and cache take {} at most",
            driver.node().suite().security().packets,
            HumanBytes(memory.all)
        ));
    }
}

/// Number of wrong groups that were reported, and the earliest time of the next report.
#[derive(Default)]
struct Lies {
    told: u64,
    next_news: Instant,
}

impl Lies {
    /// A message about the neighbour that new wrong bytes came from; at most every ten seconds.
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
    if args.service.json {
        tell(stats("end", driver));
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

fn stats(event: &str, driver: &Node) -> serde_json::Value {
    document(event, driver.node().stats(), driver.stats(), driver.node().suite())
}

fn document(event: &str, stats: RelayStats, sockets: DriverStats, suite: &HopSuite) -> serde_json::Value {
    json!({
        "event": event, "role": "relay",
        "interests_in": stats.interests_in, "interests_out": stats.interests_out,
        "aggregated_bytes": stats.aggregated_bytes, "cache_hit_bytes": stats.cache_hit_bytes,
        "cache_bytes": stats.cache_bytes, "data_in": stats.data_in, "data_out": stats.data_out,
        "unasked": stats.unasked, "sent_bytes": stats.sent_bytes, "repairs": stats.repairs,
        "flows": stats.flows, "neighbours": stats.neighbours,
        "state_bytes": stats.state_bytes, "state_limit": stats.state_limit, "over_limit": stats.over_limit, "bad_datagrams": stats.bad_datagrams, "over_credit": stats.over_credit,
        "disproved_groups": stats.disproved_groups, "last_disproved": stats.last_disproved,
        "security": suite.security(), "seal": suite.stats_json(), "socket": socket(sockets),
        "cpu_seconds": clock::cpu_seconds(),
    })
}
