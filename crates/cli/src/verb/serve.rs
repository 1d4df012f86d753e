//! `starhop serve`: offers files.

use super::memory::{Division, MemoryArgs};
use super::service::ServiceArgs;
use super::{address, reload, say, tell};
use crate::Cli;
use crate::config::Reread;
use crate::progress::Amount;
use anyhow::Context;
use clap::CommandFactory;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;
use starhop_net::files::{Files, Root};
use starhop_net::operate::paths::Paths;
use starhop_net::operate::transfers::{self, Record};
use starhop_net::operate::{Accounts, Peer, Refusals, Slack, Status, about};
use starhop_net::security::HopSuite;
use starhop_net::{Driver, DriverStats, Endpoint, clock, daemon};
use starhop_proto::config::Config;
use starhop_proto::hop::Transfer;
use starhop_proto::producer::Producer;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serve files to `starhop get`, directly or through relays.
///
/// Files are found and hashed in the background; each is served as soon as its hash is known, and one that
/// changes is served again under its new hash. Symbolic links that leave a directory are not followed.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop key new domain.key\n  starhop serve ~/films --listen 0.0.0.0:4433 --key domain.key\n  starhop get holiday.mkv --from 192.0.2.1:4433 --key domain.key\n\nEnds on SIGINT and SIGTERM with a line of statistics; SIGHUP reads the key and --config anew.\nExit codes: 0; 1 it cannot serve; 2 the command line is wrong."
)]
pub(crate) struct Args {
    /// Directories, whose files are named by their path below them, and files, named by their last part
    #[arg(required = true, value_name = "DIR|FILE")]
    paths: Vec<PathBuf>,
    /// Also serve files and directories whose names begin with a dot; key files of Starhop are never served
    #[arg(long)]
    hidden: bool,
    /// Address and UDP port to listen on; `[::]` takes both IP versions
    #[arg(long, default_value = "[::]:4433", value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    service: ServiceArgs,
    /// Write when which bytes were read to this file, at the end
    #[arg(long, value_name = "FILE", hide = true)]
    trace: Option<PathBuf>,
}

type Server = Driver<Producer<Files, HopSuite>>;

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.service.log.start(args.service.json)?;
    // Before it says that it is ready: a change after that is one.
    let reread = Reread::new(&Cli::command());
    let open = |path: &PathBuf| Root::open(path, args.hidden);
    let roots = args.paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let memory = args.memory.divide(Some(0), Config::default().parity_bound())?;
    let config = args.service.mechanisms.config(|settings| memory.apply(settings))?;
    let paths = Paths::new(config.payload);
    let mut suite = args.service.seal.suite()?;
    memory.apply_to_suite(&mut suite);
    daemon::runtime()?.block_on(async {
        let endpoint = Endpoint::bind(args.listen)?;
        warn(endpoint.buffers().advice());
        let files = Files::new(roots, args.trace.is_some()).context("cannot start to hash")?;
        let mut producer = Producer::new(config, files, suite, clock::seed());
        producer.set_about(about());
        let mut driver = Driver::new(producer, endpoint)?;
        announce(args, &driver, memory);
        let every = args.service.tick(Duration::from_millis(250));
        let mut desk = args.service.desk.open("serve", driver.endpoint().local().port())?;
        let tells_stats = args.service.tells_stats();
        let mut chores = Chores {
            hashing: Hashing::new(args),
            memory,
            record: Record::default(),
            refusals: Refusals::default(),
            paths,
            slack: Slack::default(),
            tells_stats,
            reread,
        };
        daemon::run(&mut driver, every, &mut chores, &mut desk).await?;
        finish(args, &driver)
    })
}

/// The tasks of a server besides answering.
struct Chores {
    hashing: Hashing,
    memory: Division,
    record: Record,
    refusals: Refusals,
    paths: Paths,
    slack: Slack,
    tells_stats: bool,
    reread: Option<Reread>,
}

impl Chores {
    /// Reads the configuration file anew, and applies the options that can change at run time.
    fn reconfigure(&mut self) -> anyhow::Result<()> {
        let Some(reread) = &mut self.reread else { return Ok(()) };
        let Some((changed, args)) = reload::again::<Args>(reread, "serve")? else { return Ok(()) };
        args.service.log.reload(&changed)?;
        reload::settle(reread, &changed, &["log-level"]);
        Ok(())
    }
}

impl daemon::Chores<Producer<Files, HopSuite>> for Chores {
    fn tick(&mut self, driver: &mut Server) {
        self.hashing.show(driver);
        driver.node_mut().set_about(about());
        driver.node_mut().end_complete(clock::now(), transfers::QUIET);
        warn(driver.node_mut().suite_mut().news(clock::now()));
        warn(self.refusals.news(driver.stats()));
        let sent = driver.node().downstreams().map(|hop| (hop.addr, hop.payload));
        self.paths.look(sent);
        let node = driver.node();
        self.slack.look(node.stats().state_bytes + node.suite().memory_held());
        if self.tells_stats {
            tell(stats("stats", driver));
        }
    }

    fn reload(&mut self, driver: &mut Server) {
        driver.node_mut().suite_mut().reload_and_log();
        if let Err(error) = self.reconfigure() {
            tracing::error!("the settings in use stay: {error:#}");
        }
    }

    fn event(&mut self, driver: &mut Server, transfer: Transfer) {
        let name = driver.node().source().name_of(transfer.flow);
        self.record.note(&transfer, name.as_deref());
    }

    fn status(&mut self, driver: &Server) -> Status {
        let (node, now) = (driver.node(), clock::now());
        let stats = node.stats();
        let local = driver.endpoint().local();
        let mut status = Status::new("serve", local, node.suite(), driver.stats(), &self.record);
        status.add_peers(node.downstreams().map(|hop| Peer::downstream(now, &hop, node.suite())));
        status.add_flows(now, node.flow_views(), |flow| node.source().name_of(flow.id));
        status.accounts = Accounts {
            interests_in: stats.interests_in,
            data_out: stats.data_sent,
            sent_bytes: stats.sent_bytes,
            repairs: stats.repairs,
            aggregated_bytes: 0,
        };
        status.memory = Some(self.memory.status(stats.state_bytes));
        status.refuse("bad_datagrams", stats.bad_datagrams);
        status.refuse("bytes_over_credit", stats.over_credit);
        status.refuse("requests_over_limit", stats.over_limit);
        status
    }
}

fn announce(args: &Args, driver: &Server, memory: Division) {
    let listen = driver.endpoint().local();
    if args.service.json {
        let security = driver.node().suite().security();
        tell(json!({"event": "ready", "role": "serve", "listen": listen, "security": security,
            "memory": memory.all}));
    } else {
        let packets = driver.node().suite().security().packets;
        say(&format!(
            "ready: serving on {listen} (UDP), {packets}; what is kept for others takes {} at most",
            HumanBytes(memory.all)
        ));
    }
}

fn finish(args: &Args, driver: &Server) -> anyhow::Result<ExitCode> {
    let files = driver.node().source();
    if let Some((path, trace)) = args.trace.as_ref().zip(files.trace()) {
        trace.write(path).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    if args.service.json {
        tell(stats("end", driver));
    } else {
        let stats = driver.node().stats();
        say(&format!(
            "served {} in {} packets, {} of them repairs, for {} requests",
            HumanBytes(stats.payload_sent),
            stats.data_sent,
            stats.repairs,
            stats.interests_in
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn stats(event: &str, driver: &Server) -> serde_json::Value {
    let stats = driver.node().stats();
    json!({
        "event": event, "role": "serve",
        "interests_in": stats.interests_in, "data_sent": stats.data_sent, "payload_sent": stats.payload_sent,
        "sent_bytes": stats.sent_bytes, "repairs": stats.repairs, "bad_datagrams": stats.bad_datagrams,
        "over_credit": stats.over_credit, "over_limit": stats.over_limit, "flows": stats.flows,
        "neighbours": stats.neighbours, "security": driver.node().suite().security(),
        "seal": driver.node().suite().stats_json(), "socket": socket(driver.stats()), "cpu_seconds": clock::cpu_seconds(),
    })
}

/// The counters of a socket.
pub(super) fn socket(stats: DriverStats) -> serde_json::Value {
    serde_json::to_value(stats).unwrap_or_default()
}

/// Logs a warning for the operator, if there is one.
pub(super) fn warn(warning: Option<String>) {
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
}

/// Shows hashing while it lasts.
struct Hashing {
    amount: Amount,
    is_done: bool,
    json: bool,
}

impl Hashing {
    fn new(args: &Args) -> Self {
        let with_total = "hashing {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
        let amount = Amount::new(ProgressBar::no_length(), "{spinner} looking for files {bytes}", with_total);
        Self { amount, is_done: false, json: args.service.json }
    }

    fn show(&mut self, driver: &Server) {
        let files = driver.node().source();
        for warning in files.take_warnings() {
            self.amount.bar().suspend(|| warn(Some(warning)));
        }
        let progress = files.progress();
        if self.is_done {
            return;
        }
        self.amount.show(progress.hashed_bytes, Some(progress.total_bytes));
        if progress.is_complete {
            self.is_done = true;
            self.amount.bar().finish_and_clear();
            if self.json {
                let cpu = clock::cpu_seconds();
                let (files, skipped) = (progress.files, progress.skipped);
                tell(json!({"event": "hashed", "files": files, "skipped": skipped, "cpu_seconds": cpu}));
            } else {
                let skipped = match progress.skipped {
                    0 => String::new(),
                    count => format!("; {count} cannot, as told on standard error"),
                };
                say(&format!("hashed: {} files can be had{skipped}", progress.files));
            }
        }
    }
}
