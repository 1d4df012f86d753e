//! `starhop setup`: makes a host a relay, a server or a gateway, and takes that back.

use super::{address, print};
use anyhow::{Context, bail};
use starhop_net::endpoint::{RECEIVE_BUFFER, SEND_BUFFER};
use starhop_net::operate::setup::{Plan, Step, undo};
use starhop_net::security::KeyFile;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make this host a relay, a server or a gateway: settings of the kernel, key, configuration, firewall, unit. Shows
/// the changes, and makes them with --apply.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  starhop setup relay --upstream 192.0.2.1:4433 --key domain.key\n  starhop setup relay --upstream 192.0.2.1:4433 --key domain.key --apply\n  starhop setup gateway --name site --peer hub=192.0.2.1:4433 --intercept lan0 --key domain.key\n  starhop setup relay --undo\n\nIt needs root and the installed package. How the host was before is kept in /var/lib/starhop.\n\nExit code 0, or 1 when something could not be changed; what had been changed is taken back then."
)]
pub(crate) struct Args {
    /// The new role of the host
    role: Role,
    /// The upstream of a relay; given several times, the first that answers
    #[arg(long, value_parser = address, value_name = "ADDR")]
    upstream: Vec<SocketAddr>,
    /// The files and directories that a server serves
    #[arg(long, value_name = "DIR|FILE", default_value = "/srv/starhop")]
    path: Vec<PathBuf>,
    /// The name by which its peers know a gateway
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The gateway at the other end; several times for a hub of several sites
    #[arg(long, value_parser = peer, value_name = "NAME=ADDR")]
    peer: Vec<Peer>,
    /// An interface whose TCP connections a gateway takes; none at a hub
    #[arg(long, value_name = "DEVICE")]
    intercept: Vec<String>,
    /// The domain's key, which is copied to /etc/starhop; a new one is made otherwise
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The UDP port
    #[arg(long, default_value_t = 4433)]
    port: u16,
    /// Change the host
    #[arg(long)]
    apply: bool,
    /// Undo the changes
    #[arg(long, conflicts_with = "apply")]
    undo: bool,
    /// Change files below this directory instead, and nothing that runs
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// The new role of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Role {
    /// A relay
    Relay,
    /// A server of files
    Serve,
    /// A gateway of users' own connections
    Gateway,
}

/// Another gateway: its name and its address.
#[derive(Clone, Debug)]
struct Peer {
    name: String,
    address: SocketAddr,
}

fn peer(text: &str) -> Result<Peer, String> {
    let (name, at) = text.split_once('=').ok_or("a peer is NAME=ADDR, as hub=192.0.2.1:4433")?;
    if name.is_empty() {
        return Err("the peer has no name before `=`".to_owned());
    }
    Ok(Peer { name: name.to_owned(), address: address(at)? })
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Serve => "serve",
            Self::Gateway => "gateway",
        }
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let role = args.role.name();
    if args.undo {
        undo(&args.root, role)?;
        print(&format!("{role}: taken back\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan(args)?;
    print(&plan.steps.iter().map(Step::to_string).collect::<String>())?;
    if args.apply {
        plan.carry_out()?;
        print(&format!(
            "{role}: done. `starhop status` shows it; `starhop setup {role} --undo` takes it back\n"
        ))?;
    } else {
        print("Nothing was changed: --apply does this\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Kernel settings of a gateway. It forwards, and the answers to its clients' addresses arrive where no route to those
/// addresses leads.
const ROUTER: &str = "\
net.ipv4.ip_forward = 1
net.ipv6.conf.all.forwarding = 1
net.ipv4.conf.all.rp_filter = 2
net.ipv4.conf.default.rp_filter = 2
";

/// The options without which a role makes no sense.
fn check(args: &Args) -> anyhow::Result<()> {
    let missing = match args.role {
        Role::Relay if args.upstream.is_empty() => "--upstream <ADDR>, the node that it asks",
        Role::Gateway if args.name.is_none() => "--name <NAME>, by which its peers know it",
        Role::Gateway if args.peer.is_empty() => "--peer <NAME=ADDR>, the gateway at the other end",
        _ => return Ok(()),
    };
    let message = format!("the role `{}` needs {missing}\n", args.role.name());
    Err(clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, message).into())
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    check(args)?;
    let role = args.role.name();
    let mut sysctl = format!("net.core.rmem_max = {RECEIVE_BUFFER}\nnet.core.wmem_max = {SEND_BUFFER}\n");
    if args.role == Role::Gateway {
        sysctl.push_str(ROUTER);
    }
    let mut steps = vec![file("/etc/sysctl.d/60-starhop.conf", sysctl, 0o644)];
    steps.push(file(format!("/etc/starhop/{role}.toml"), configuration(args), 0o640));
    let key = args.root.join("etc/starhop/domain.key");
    match (&args.key, key.exists()) {
        (Some(_), true) => bail!("`{}` exists: remove it, or leave --key out", key.display()),
        (None, true) => {}
        (given, false) => steps.push(new_key(given.as_deref(), &key)?),
    }
    if args.root == Path::new("/") {
        steps.extend(commands(args));
    }
    Ok(Plan { role: role.to_owned(), root: args.root.clone(), steps })
}

fn file(path: impl Into<PathBuf>, content: String, mode: u32) -> Step {
    Step::Write { path: path.into(), content, mode }
}

/// The step that makes the key by a command, so that no secret gets into the journal of the steps.
fn new_key(given: Option<&Path>, key: &Path) -> anyhow::Result<Step> {
    let key = key.display().to_string();
    let command = match given {
        Some(given) => {
            KeyFile::load(given)?;
            vec![
                "install".to_owned(),
                "-m".to_owned(),
                "600".to_owned(),
                given.display().to_string(),
                key.clone(),
            ]
        }
        None => {
            let program = std::env::current_exe().context("cannot find this program itself")?;
            vec![program.display().to_string(), "key".to_owned(), "new".to_owned(), key.clone()]
        }
    };
    Ok(Step::Run { command, undo: vec!["rm".to_owned(), "-f".to_owned(), key] })
}

fn configuration(args: &Args) -> String {
    let list =
        |items: Vec<String>| items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ");
    let (role, port) = (args.role.name(), args.port);
    let own = match args.role {
        Role::Gateway => return gateway(args),
        Role::Relay => {
            let upstreams = list(args.upstream.iter().map(ToString::to_string).collect());
            format!("upstream = [{upstreams}]\ncache = \"256MiB\"\n")
        }
        Role::Serve => {
            format!("paths = [{}]\n", list(args.path.iter().map(|path| path.display().to_string()).collect()))
        }
    };
    format!("key = \"/etc/starhop/domain.key\"\n\n[{role}]\nlisten = \"[::]:{port}\"\n{own}")
}

/// The file of a gateway, which has a form of its own.
fn gateway(args: &Args) -> String {
    let name = args.name.as_deref().unwrap_or_default();
    let mut text =
        format!("name = {name:?}\nlisten = \"[::]:{}\"\nkey = \"/etc/starhop/domain.key\"\n", args.port);
    text.push_str(&format!("intercept = {:?}\n", args.intercept));
    for Peer { name, address } in &args.peer {
        text.push_str(&format!("\n[[peer]]\nname = {name:?}\naddress = \"{address}\"\n"));
    }
    text
}

/// Commands that make the host use the files: owners, kernel settings, the firewall if `ufw` keeps it, and the
/// unit.
fn commands(args: &Args) -> Vec<Step> {
    let run = |command: &str, undo: &str| {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Step::Run { command: words(command), undo: words(undo) }
    };
    let (role, port) = (args.role.name(), args.port);
    let mut steps = vec![
        run("sysctl -q -p /etc/sysctl.d/60-starhop.conf", ""),
        run("chown starhop:starhop /etc/starhop/domain.key", ""),
        run(&format!("chgrp starhop /etc/starhop/{role}.toml"), ""),
    ];
    let ufw = std::process::Command::new("ufw").arg("status").output();
    if ufw.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Status: active")) {
        steps.push(run(&format!("ufw allow {port}/udp"), &format!("ufw delete allow {port}/udp")));
    }
    let unit = format!("starhop-{role}");
    steps.push(run(&format!("systemctl enable --now {unit}"), &format!("systemctl disable --now {unit}")));
    steps
}
