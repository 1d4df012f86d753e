//! `starhop fec`: an erasure code between two hosts, for other people's packets.

use super::desk::DeskArgs;
use super::logging::LogArgs;
use super::sealing::SealArgs;
use super::{address, reload, say, tell};
use crate::Cli;
use crate::config::{ConfigArgs, Reread};
use crate::quantity;
use clap::CommandFactory;
use serde_json::json;
use starhop_net::Prefix;
use starhop_net::fec::{self, FecError, FecHost, FecOptions, Ticks};
use starhop_proto::fec::{FecConfig, FecSettings};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Protect the packets between two hosts by an erasure code: what is routed to its device goes to the other end, with parity
#[derive(clap::Args)]
#[command(
    after_help = "Example, a server behind a lossy terrestrial path and the satellite gateway 192.0.2.1 at its end:\n  starhop fec --peer 192.0.2.1:4434 --route 198.51.100.0/24 --key domain.key          # on the server: the users' network\n  starhop fec --peer 203.0.113.5:4434 --route 203.0.113.5 --by eth0 --key domain.key  # on the gateway: the server\n\nPackets may be of any kind, encrypted ones included; they arrive as they were sent, and in order. The share of parity\nfollows the loss that the other end reports. Needs CAP_NET_ADMIN and /dev/net/tun. The device and its routes go when\nthis command ends, and packets take the plain path again. SIGHUP reads the key anew, and\nof a configuration file routes and levels of the log; `starhop status` has the counters.\n\nExit code 0, 1 when it could not be done, 2 for a wrong command, 3 when this machine cannot."
)]
pub(crate) struct Args {
    /// The other end, which runs this command, too
    #[arg(long, value_parser = address, value_name = "ADDR")]
    peer: SocketAddr,
    /// Address and UDP port to listen on; `[::]` takes both IP versions
    #[arg(long, default_value = "[::]:4434", value_parser = address, value_name = "ADDR")]
    listen: SocketAddr,
    /// The device to make
    #[arg(long, default_value = "fec0", value_name = "NAME")]
    dev: String,
    /// Route this prefix to the device; may be given several times
    #[arg(long, value_parser = prefix, value_name = "PREFIX")]
    route: Vec<Prefix>,
    /// Reach the other end by this device only: needed where its own address is among the routes
    #[arg(long, value_name = "DEVICE")]
    by: Option<String>,
    /// The longest packet that the path to the other end takes, IP header included, bytes
    #[arg(long, default_value_t = 1500, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=65_000))]
    path_mtu: u32,
    /// The share of packets that may stay lost; a smaller one takes more parity
    #[arg(long, value_parser = quantity::share, value_name = "SHARE", default_value = "0.001%")]
    residual: f64,
    /// Parity at most, as a share of the packets, three per block apart
    #[arg(long, value_parser = quantity::share, value_name = "SHARE", default_value = "50%")]
    most_overhead: f64,
    /// Close a block after this time, whether or not it is full
    #[arg(long, value_parser = quantity::period, value_name = "TIME", default_value = "60ms")]
    block_time: Duration,
    #[command(flatten)]
    seal: SealArgs,
    /// Print the counters this often, as JSON
    #[arg(long, value_name = "TIME", value_parser = quantity::period)]
    stats_every: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    desk: DeskArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

fn prefix(text: &str) -> Result<Prefix, String> {
    Prefix::parse(text).map_err(|wrong| format!("`{text}`, {wrong}"))
}

impl Args {
    fn options(&self) -> anyhow::Result<FecOptions> {
        let block_time = starhop_proto::time::Duration::from_nanos(self.block_time.as_nanos() as u64);
        let settings = FecSettings {
            residual: self.residual,
            most_overhead: self.most_overhead,
            block_time,
            // A block, and as long again for its parity to come.
            hold: block_time.scaled(2, 1),
            ..FecSettings::default()
        };
        let code = FecConfig::new(settings)
            .map_err(|error| anyhow::anyhow!("--{} {}", error.field.replace('_', "-"), error.problem))?;
        Ok(FecOptions {
            listen: self.listen,
            peer: self.peer,
            device: self.dev.clone(),
            path_mtu: self.path_mtu,
            routes: self.route.clone(),
            by: self.by.clone(),
            code,
        })
    }

    fn ready(&self, host: &FecHost) {
        let (peer, mtu) = (self.peer, host.mtu());
        if self.json {
            tell(
                json!({"event": "ready", "role": "fec", "listen": self.listen, "peer": peer, "dev": self.dev,
                "mtu": mtu, "packets": host.status().packets}),
            );
        } else {
            say(&format!("ready: packets of up to {mtu} bytes by {} to {peer}", self.dev));
        }
    }
}

/// Reads keys and configuration file anew, and applies the options that can change at run time.
fn reread(host: &mut FecHost, reread: Option<&mut Reread>) {
    host.reload_keys();
    let Some(reread) = reread else { return };
    let mut reconfigure = || {
        let Some((changed, args)) = reload::again::<Args>(reread, "fec")? else { return anyhow::Ok(()) };
        host.set_routes(&args.route)?;
        args.log.reload(&changed)?;
        reload::settle(reread, &changed, &["route", "log-level"]);
        Ok(())
    };
    if let Err(error) = reconfigure() {
        tracing::error!("the settings in use stay: {error:#}");
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.log.start(args.json)?;
    let (options, suite) = (args.options()?, args.seal.suite()?);
    let desk = args.desk.open("fec", args.listen.port())?;
    let is_told = args.json || args.stats_every.is_some();
    let counters = |host: &FecHost| {
        if is_told {
            let status = host.status();
            tell(json!({"event": "stats", "role": "fec", "code": status.code, "refused": status.refused,
                "socket": status.socket, "cpu_seconds": status.cpu_seconds}));
        }
    };
    let ticks = Ticks { every: args.stats_every, tell: &counters };
    let mut file = Reread::new(&Cli::command());
    let reload = |host: &mut FecHost| reread(host, file.as_mut());
    match fec::run_alone(&options, suite, |host| args.ready(host), ticks, reload, desk) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.is_of_this_machine() => {
            eprintln!("starhop: {error}");
            Ok(ExitCode::from(3))
        }
        Err(error @ FecError::Loop(_)) => {
            eprintln!("starhop: {error}");
            Ok(ExitCode::from(2))
        }
        Err(error) => Err(error.into()),
    }
}
