//! `starhop key`: makes, shows and rotates the keys that packets are sealed with.

use super::say;
use crate::quantity;
use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::json;
use starhop_net::clock;
use starhop_net::security::{Authority, KeyError, KeyFile, Kind, Step};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Make, show and rotate the keys that packets are sealed with.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop key new domain.key            # copy it to every node, over a safe way\n  starhop serve ~/films --key domain.key\n  starhop key rotate domain.key         # three times, each followed by a copy to every node and a SIGHUP\n\nExit codes: 0; 1 it could not be done; 2 the command line is wrong."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a key file: one for the whole domain, or with --node one for this node alone
    New {
        /// The file; it must not exist
        file: PathBuf,
        /// Name of the domain; part of every key
        #[arg(long, default_value = "starhop")]
        domain: String,
        /// A key of one node, which speaks to those on a roster
        #[arg(long, requires = "authority")]
        node: bool,
        /// The authority that signs the roster: the key that `starhop roster init` printed
        #[arg(long, value_name = "PUBLIC", requires = "node")]
        authority: Option<String>,
    },
    /// Show the contents of a key file, but no secret
    Show {
        /// The file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Go one step further in replacing a key: add another, seal with it, drop the old one
    Rotate {
        /// The file
        file: PathBuf,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::New { file, domain, node, authority } => {
            let kind = if *node { Kind::Node } else { Kind::Domain };
            let authority = authority.as_deref().map(public_key).transpose()?;
            let key = KeyFile::new(kind, domain, authority, now())?;
            key.create(file)?;
            show(&key);
        }
        What::Show { file, json } => match KeyFile::load(file) {
            Ok(key) if *json => say(&document(&key).to_string()),
            Ok(key) => show(&key),
            Err(KeyError::Authority { .. }) => show_authority(&Authority::load(file)?, *json),
            Err(error) => return Err(error.into()),
        },
        What::Rotate { file } => {
            let mut key = KeyFile::load(file)?;
            let step = key.rotate(now())?;
            key.replace(file)?;
            show(&key);
            say(next(step, key.kind()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    clock::unix_nanos() / 1_000_000_000
}

/// A public key as 64 hexadecimal digits, or the file of an authority.
pub(super) fn public_key(text: &str) -> anyhow::Result<[u8; 32]> {
    let digits = blake3::Hash::from_hex(text);
    if let Ok(key) = digits {
        return Ok(*key.as_bytes());
    }
    let path = PathBuf::from(text);
    if !path.exists() {
        bail!("`{text}` is neither a public key of 64 hexadecimal digits nor the file of an authority");
    }
    let authority = Authority::load(&path).context("it holds no authority")?;
    Ok(authority.public())
}

fn show(key: &KeyFile) {
    let whose = match key.kind() {
        Kind::Domain => "shared by every node of the domain",
        Kind::Node => "of this node alone",
    };
    say(&format!("{}: {whose}", key.domain()));
    for (id, seals, created) in key.ids() {
        let age = quantity::span(Duration::from_secs(now().saturating_sub(created)));
        say(&format!("  key {id}: {}, {age} old", if seals { "seals and opens" } else { "opens only" }));
    }
    for public in key.public_keys() {
        say(&format!("  public {public}"));
    }
}

fn show_authority(authority: &Authority, json: bool) {
    let public = blake3::Hash::from_bytes(authority.public()).to_hex();
    if json {
        say(&json!({"kind": "authority", "public": [public.as_str()]}).to_string());
        return;
    }
    say("an authority, which signs rosters; keep it where no node runs");
    say(&format!("  public {public}"));
}

fn document(key: &KeyFile) -> serde_json::Value {
    let keys: Vec<_> = (key.ids())
        .map(|(id, seals, created)| json!({"id": id, "seals": seals, "created": created}))
        .collect();
    let kind = if key.kind() == Kind::Domain { "domain" } else { "node" };
    json!({"domain": key.domain(), "kind": kind, "keys": keys, "public": key.public_keys()})
}

fn next(step: Step, kind: Kind) -> &'static str {
    match (step, kind) {
        (Step::Added, Kind::Domain) => {
            "Next: give the file to every node and send each SIGHUP. When all have it, rotate again."
        }
        (Step::Added, Kind::Node) => {
            "Next: add both public keys to the roster, sign it, give it to every node, and send each SIGHUP, this \
             one too. When all have it, rotate again."
        }
        (Step::Switched, Kind::Domain) => {
            "Next: give the file to every node and send each SIGHUP. When all have it, and half a minute has passed, \
             rotate again."
        }
        (Step::Switched, Kind::Node) => {
            "Next: send this node SIGHUP, put the public keys onto the roster in the order of `key show`, sign it, give it to \
             every node, and send each SIGHUP. After half a minute rotate again."
        }
        (Step::Retired, Kind::Domain) => "Done. Give the file to every node and send each SIGHUP.",
        (Step::Retired, Kind::Node) => "Done. Send this node SIGHUP.",
    }
}
