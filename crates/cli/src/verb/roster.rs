//! `starhop roster`: the signed list of nodes that have keys of their own.

use super::key::{now, public_key};
use super::say;
use crate::quantity;
use clap::Subcommand;
use serde_json::json;
use starhop_net::security::{Authority, Member, Roster};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Keep the signed list of nodes that have keys of their own.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop roster init site.roster --authority authority.key --domain site\n  starhop key new relay1.key --node --authority authority.key --domain site   # on relay1\n  starhop roster add site.roster --name relay1 --public 3c5f… --address 192.0.2.1:4433\n  starhop roster sign site.roster --authority authority.key --valid 90d\n  starhop relay --upstream 192.0.2.9:4433 --key relay1.key --roster site.roster\n\nExit codes: 0; 1 it could not be done or, of verify, the roster is not to be believed; 2 the command line is wrong."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make an empty roster and, unless the file exists, the key of the authority that signs it
    Init {
        /// The roster; it must not exist
        roster: PathBuf,
        /// The authority's key file
        #[arg(long, value_name = "FILE")]
        authority: PathBuf,
        /// Name of the domain
        #[arg(long, default_value = "starhop")]
        domain: String,
    },
    /// Add a node, or replace the one of that name
    Add {
        /// The roster
        roster: PathBuf,
        /// Name of the node
        #[arg(long)]
        name: String,
        /// Its public key, as `starhop key show` prints it; a second one while it rotates
        #[arg(long, required = true, value_name = "HEX")]
        public: Vec<String>,
        /// HOST:PORT at which it listens, if it does
        #[arg(long, value_name = "ADDR")]
        address: Option<String>,
    },
    /// Take a node off, whose keys others then refuse
    Remove {
        /// The roster
        roster: PathBuf,
        /// Name of the node
        #[arg(long)]
        name: String,
    },
    /// Sign a roster
    Sign {
        /// The roster
        roster: PathBuf,
        /// The authority's key file
        #[arg(long, value_name = "FILE")]
        authority: PathBuf,
        /// Time for which nodes trust it
        #[arg(long, default_value = "90d", value_parser = days, value_name = "TIME")]
        valid: Duration,
    },
    /// Verify the signature of a roster, and show its contents
    Verify {
        /// The roster
        roster: PathBuf,
        /// The authority's public key, or its file
        #[arg(long, value_name = "PUBLIC")]
        authority: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// A time as everywhere else, and days.
fn days(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()) {
        Some(days) if days <= 36_500 => Ok(Duration::from_secs(days * 86_400)),
        Some(_) => Err("that is more than a century".to_owned()),
        None => quantity::time(text),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Init { roster, authority, domain } => init(roster, authority, domain)?,
        What::Add { roster: path, name, public, address } => {
            let mut roster = Roster::load(path)?;
            let member = Member { name: name.clone(), public: public.clone(), address: address.clone() };
            roster.add(member).map_err(|problem| anyhow::anyhow!(problem))?;
            roster.save(path)?;
            say(&format!("{} nodes; not signed since the change", roster.members().len()));
        }
        What::Remove { roster: path, name } => {
            let mut roster = Roster::load(path)?;
            roster.remove(name).map_err(|problem| anyhow::anyhow!(problem))?;
            roster.save(path)?;
            say(&format!("{} nodes; not signed since the change", roster.members().len()));
        }
        What::Sign { roster: path, authority, valid } => {
            let mut roster = Roster::load(path)?;
            roster.sign(&Authority::load(authority)?, now(), now() + valid.as_secs());
            roster.save(path)?;
            let (nodes, span) = (roster.members().len(), quantity::span(*valid));
            say(&format!("{nodes} nodes, signed for {span}; give it to each and send it SIGHUP"));
        }
        What::Verify { roster: path, authority, json } => {
            let roster = Roster::load(path)?;
            let verdict = roster.verify(&public_key(authority)?, now());
            if *json {
                let problem = verdict.as_ref().err().map(ToString::to_string);
                let document = json!({"domain": roster.domain(), "serial": roster.serial(), "expires": roster.expires(),
                    "nodes": roster.members(), "problem": problem});
                say(&document.to_string());
                return Ok(if problem.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            verdict?;
            let left = Duration::from_secs(roster.expires().saturating_sub(now()));
            say(&format!("{}: signed, and ends in {}", roster.domain(), quantity::span(left)));
            for member in roster.members() {
                let address = member.address.as_deref().unwrap_or("(no address)");
                say(&format!("  {} {address} {}", member.name, member.public.join(" ")));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn init(path: &std::path::Path, authority: &std::path::Path, domain: &str) -> anyhow::Result<()> {
    if path.exists() {
        anyhow::bail!("`{}` exists, and is not overwritten", path.display());
    }
    let signer = if authority.exists() {
        Authority::load(authority)?
    } else {
        let fresh = Authority::new()?;
        fresh.create(authority)?;
        fresh
    };
    Roster::new(domain).save(path)?;
    let public: String = signer.public().iter().map(|byte| format!("{byte:02x}")).collect();
    say(&format!("authority {public}"));
    Ok(())
}
