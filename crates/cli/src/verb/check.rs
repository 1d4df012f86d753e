//! `starhop check`: looks for faults in configuration files.

use super::{print, sealing};
use crate::Cli;
use crate::config::File;
use anyhow::Context;
use clap::{CommandFactory, FromArgMatches};
use starhop_net::gateway::{self, GatewayConfig};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check configuration files of long-lived verbs: fields, values, keys and rosters. Nothing is started or sent.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop check /etc/starhop/relay.toml && systemctl reload starhop-relay\n\nA file holds options by their long names, at the top for all verbs and in a table named after a verb:\n  key = \"/etc/starhop/domain.key\"\n  [relay]\n  listen = \"[::]:4433\"\n  upstream = \"192.0.2.1:4433\"\nA gateway's file has a form of its own, known by `[[peer]]`, `intercept` or `[[policy]]`.\n\nExit code 0, or 1 when a file has a fault; the first one is told with its line and field."
)]
pub(crate) struct Args {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = Cli::command();
    let mut out = String::new();
    for path in &args.files {
        if is_gateway(path) {
            let config = GatewayConfig::load(&path.as_path().into())?;
            let shortage = gateway::shortage(&config, gateway::all_descriptors());
            shortage.iter().for_each(|shortage| eprintln!("starhop: {shortage}"));
            writeln!(out, "{}: ok (gateway)", path.display())?;
            continue;
        }
        let file = File::read(path, &program)?;
        let mut checked = Vec::new();
        for verb in file.verbs(&program) {
            let matches = file.check(&program, verb)?;
            let matches = matches.subcommand_matches(verb.get_name()).context("no verb")?;
            let is_sealed = verb.get_arguments().any(|argument| argument.get_id() == "key");
            if is_sealed && let Ok(seal) = sealing::SealArgs::from_arg_matches(matches) {
                seal.suite().with_context(|| format!("{}: [{}]", path.display(), verb.get_name()))?;
            }
            checked.push(verb.get_name().to_owned());
        }
        let checked = if checked.is_empty() { "no table for a verb".to_owned() } else { checked.join(", ") };
        writeln!(out, "{}: ok ({checked})", path.display())?;
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is a gateway's: it has keys that only those have. One that cannot be read or parsed is left to the
/// checks of the other form, which name its fault.
fn is_gateway(path: &Path) -> bool {
    let table = std::fs::read_to_string(path).ok().and_then(|text| text.parse::<toml::Table>().ok());
    let table = table.unwrap_or_default();
    // The other end of `fec` is called `peer`, too, and is an address.
    let has_peers = table.get("peer").is_some_and(toml::Value::is_array);
    has_peers || ["intercept", "policy"].iter().any(|key| table.contains_key(*key))
}
