//! `starhop support`: one file for a helper, without secrets.

use super::print;
use anyhow::Context;
use serde_json::{Value, json};
use starhop_net::daemon;
use starhop_net::operate::doctor::{Patient, examine};
use starhop_net::operate::{self, log};
use starhop_proto::config::Config;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Write one JSON file about this host and its nodes, for a person who helps: no key is read.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop support -o support.json\n\nIt holds the versions of program and kernel, what `starhop status` and `starhop doctor` say, the configuration\nfiles of /etc/starhop, network settings, and the last 500 lines of the nodes' journal: addresses of peers and names of\nfiles are in it, keys are not.\n\nExit code 0, or 1 when it cannot be written."
)]
pub(crate) struct Args {
    /// The file, which must not exist
    #[arg(long, short, value_name = "FILE", default_value = "starhop-support.json")]
    output: PathBuf,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (security, peers) = (None, Vec::new());
    let patient = Patient {
        security,
        gateways: super::doctor::usual_gateways(),
        peers,
        timeout: Duration::from_secs(3),
        config: Config::default(),
    };
    let findings = daemon::runtime()?.block_on(examine(&patient));
    let nodes: Vec<Value> = (operate::nodes().iter())
        .map(|node| operate::ask(&node.path, "status").unwrap_or_else(|error| error.to_string().into()))
        .collect();
    let document = json!({
        "timestamp": log::timestamp(),
        "program": crate::BUILD.as_str(),
        "kernel": said("uname", &["-srvm"]),
        "nodes": nodes,
        "doctor": findings,
        "configurations": configurations(),
        "addresses": said("ip", &["-brief", "address"]),
        "links": said("ip", &["-brief", "link"]),
        "routes": said("ip", &["route", "show", "table", "all"]),
        "settings": said("sysctl", &["net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_congestion_control"]),
        "journal": said("journalctl", &["--no-pager", "--output=short-iso", "--lines=500", "--unit=starhop-*"]),
    });
    let path = &args.output;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).open(path);
    let file = file.with_context(|| format!("cannot make `{}`", path.display()))?;
    serde_json::to_writer_pretty(file, &document)?;
    print(&format!("{}: written; look through it before you give it away\n", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The output of a command; null if the command is missing or fails.
fn said(program: &str, arguments: &[&str]) -> Value {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    output.map_or(Value::Null, |output| String::from_utf8_lossy(&output.stdout).into_owned().into())
}

/// The files `*.toml` of /etc/starhop, which name keys and do not hold them.
fn configurations() -> Value {
    let entries = std::fs::read_dir("/etc/starhop").into_iter().flatten().flatten();
    let files =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
    let texts = files
        .filter_map(|path| Some((path.display().to_string(), std::fs::read_to_string(path).ok()?.into())));
    Value::Object(texts.collect())
}
