//! `starhop ls`: lists the objects of a server.

use super::address;
use super::mechanisms::Mechanisms;
use super::print;
use super::sealing::{SealArgs, warn_insecure};
use crate::quantity;
use clap::{Args as _, Command, FromArgMatches as _};
use indicatif::HumanBytes;
use starhop_net::content::ContentName;
use starhop_net::daemon;
use starhop_net::fetch::{self, FetchError, Job, Output, Source};
use starhop_net::index::{self, Offer};
use starhop_proto::units::Rate;
use std::fmt::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// List the files that a server offers, directly or through relays: hash, length and name of each.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop ls --from 192.0.2.1:4433 --key domain.key\n  starhop ls 'films/*.mkv' --from 192.0.2.1:4433 --key domain.key\n\nA server has its list ready when all of its files have been hashed.\n\nExit codes: 0; 1 it could not be listed; 2 the command line is wrong; 3 the source has no list, or nothing matches;\n4 the source was silent for too long."
)]
pub(crate) struct Args {
    /// Only these: a name, `dir/` for all below a directory, or a pattern with `*` and `?`
    patterns: Vec<String>,
    /// The server, or the relay next to this host
    #[arg(long, value_parser = address, value_name = "ADDR")]
    pub(super) from: SocketAddr,
    /// Longest silence of the source
    #[arg(long, default_value = "30s", value_parser = quantity::time, value_name = "TIME")]
    timeout: Duration,
    /// Print one JSON object per file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    seal: SealArgs,
    #[command(flatten)]
    mechanisms: Mechanisms,
}

/// The arguments of a command line that begins with `ls`.
pub(super) fn parse(line: &[String]) -> Option<Args> {
    let matches = Args::augment_args(Command::new("ls")).try_get_matches_from(line).ok()?;
    Args::from_arg_matches(&matches).ok()
}

/// Everything that the source offers.
pub(super) fn offers(args: &Args, timeout: Duration) -> anyhow::Result<Vec<Offer>> {
    let job = Job {
        name: ContentName::Path("the list of files".to_owned()),
        bypass: Vec::new(),
        output: Output::Discard,
        timeout,
        least_rate: Rate::from_bps(1000),
        trace: None,
    };
    let source = Source {
        address: args.from,
        config: args.mechanisms.config(|_| {})?,
        security: args.seal.sources()?,
    };
    let listing = fetch::with(&source, async |client| client.list(&job).await);
    Ok(daemon::runtime()?.block_on(listing).and_then(|offers| offers)?)
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.seal.insecure {
        warn_insecure();
    }
    let offers = match offers(args, args.timeout) {
        Ok(offers) => offers,
        Err(error) => {
            let code = error.downcast_ref::<FetchError>().map(FetchError::exit_code);
            let Some(code) = code else { return Err(error) };
            eprintln!("starhop: {error}");
            return Ok(ExitCode::from(code));
        }
    };
    let is_wanted = |name: &str| {
        args.patterns.is_empty() || args.patterns.iter().any(|pattern| index::matches(pattern, name))
    };
    let mut text = String::new();
    for offer in offers.iter().filter(|offer| is_wanted(&offer.name)) {
        match args.json {
            true => text += &(serde_json::to_string(offer)? + "\n"),
            // Writing to a string cannot fail.
            false => drop(writeln!(
                text,
                "{} {:>11} {}",
                &offer.blake3[..16],
                HumanBytes(offer.length).to_string(),
                offer.name
            )),
        }
    }
    print(&text)?;
    Ok(if text.is_empty() && !args.patterns.is_empty() { ExitCode::from(3) } else { ExitCode::SUCCESS })
}
