//! `starhop status`: asks running nodes how they are.

use super::print;
use anyhow::{Context, bail};
use indicatif::{HumanBytes, HumanDuration};
use starhop_net::operate::{
    self, Address, CarriedPackets, Code, Flow, Passed, Peer, Segments, Site, Status, UserFlow,
};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Show the peers, flows, cache and refusals of the nodes that run on this host.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  starhop status\n  starhop status relay-4433 --watch\n  starhop status --json | jq '.[0].peers'\n\nExit code 0; 1 when no node runs here that this user may ask (nodes of the package: root, or a member of the\ngroup starhop), 2 for a wrong use."
)]
pub(crate) struct Args {
    /// Its name, such as relay-4433, or the path of its socket; all nodes of this host otherwise
    node: Option<String>,
    /// Print a JSON array of documents
    #[arg(long)]
    json: bool,
    /// Show it anew every second, until it is interrupted
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Change the levels that the node logs, as --log-level has them, and show nothing
    #[arg(long, value_name = "LEVELS", conflicts_with_all = ["json", "watch"])]
    log_level: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let nodes = chosen(args.node.as_deref())?;
    if let Some(levels) = &args.log_level {
        for node in &nodes {
            operate::ask(&node.path, &format!("log {levels}"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        let documents = nodes.iter().map(|node| operate::ask(&node.path, "status"));
        let documents = documents.collect::<Result<Vec<_>, _>>()?;
        print(&format!("{:#}\n", serde_json::Value::from(documents)))?;
        return Ok(ExitCode::SUCCESS);
    }
    loop {
        let shown = nodes.iter().map(show).collect::<anyhow::Result<String>>()?;
        if !args.watch {
            print(&shown)?;
            return Ok(ExitCode::SUCCESS);
        }
        // Cursor home, the text with the rest of each old line cleared, and all lines below it cleared.
        print(&format!("\x1b[H{}\x1b[J", shown.replace('\n', "\x1b[K\n")))?;
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The nodes of this name; all of this host without one.
pub(super) fn chosen(name: Option<&str>) -> anyhow::Result<Vec<Address>> {
    if let Some(path) = name.filter(|name| name.contains('/')) {
        return Ok(vec![Address { name: path.to_owned(), path: path.into() }]);
    }
    let all = operate::nodes();
    let names = all.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    let chosen: Vec<Address> =
        all.iter().filter(|node| name.is_none_or(|name| node.name == name)).cloned().collect();
    match (chosen.is_empty(), names.is_empty()) {
        (false, _) => Ok(chosen),
        (true, true) => {
            bail!("no node runs on this host that this user may ask; as root, others may be seen")
        }
        (true, false) => bail!("no node of that name runs here; there are {names}"),
    }
}

fn show(node: &Address) -> anyhow::Result<String> {
    let answer = operate::ask(&node.path, "status")?;
    let status: Status = serde_json::from_value(answer)
        .with_context(|| format!("`{}` runs another version of starhop", node.name))?;
    Ok(render(&node.name, &status))
}

/// The status for people.
fn render(name: &str, status: &Status) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, name, status)
        .and_then(|()| peers(&mut out, status))
        .and_then(|()| sites(&mut out, status))
        .and_then(|()| flows(&mut out, status))
        .and_then(|()| tail(&mut out, status));
    out
}

fn head(out: &mut String, name: &str, status: &Status) -> std::fmt::Result {
    let Status { role, listen, packets, version, pid, .. } = status;
    let domain = status.domain.as_ref().map_or_else(String::new, |domain| format!(" in {domain}"));
    let uptime = HumanDuration(Duration::from_secs(status.uptime_s as u64));
    writeln!(
        out,
        "{name}: {role} on {listen}, {packets}{domain}, up {uptime}, version {version}, pid {pid}"
    )?;
    if let Some(code) = status.code {
        code_of(out, &code)?;
    }
    if let Some(memory) = status.memory {
        let sizes = [memory.state_used_bytes, memory.state_limit_bytes, memory.limit_bytes];
        let [used, limit, all] = sizes.map(HumanBytes);
        writeln!(out, "  neighbours and flows {used} of {limit}; {all} for everything")?;
    }
    if let Some(cache) = status.cache {
        let [used, limit, hit] = [cache.used_bytes, cache.limit_bytes, cache.hit_bytes].map(HumanBytes);
        writeln!(out, "  cache {used} of {limit}; {hit} answered from it")?;
    }
    Ok(())
}

fn code_of(out: &mut String, code: &Code) -> std::fmt::Result {
    let Code { packets_to, parity_to, packets_from, restored_from, given_up_from, loss_to, block, .. } = code;
    let met = if code.is_up { "" } else { "; the other end is silent, and packets take the plain path" };
    writeln!(
        out,
        "  to the other end: {packets_to} packets and {parity_to} of parity, {} after each {}; {:.2} % of the packets get \
         lost there{met}",
        block.1,
        block.0,
        loss_to * 100.0
    )?;
    writeln!(
        out,
        "  from the other end: {packets_from} packets, {restored_from} of them restored; {given_up_from} stayed lost"
    )
}

fn peers(out: &mut String, status: &Status) -> std::fmt::Result {
    if status.code.is_some() {
        return Ok(());
    }
    if status.peers.is_empty() {
        return writeln!(out, "  no peers yet");
    }
    let columns = [
        "peer", "identity", "version", "clock ms", "side", "rtt ms", "queue ms", "loss %", "parity %",
        "Mbit/s", "queued", "bytes", "mtu", "payload", "heard",
    ];
    row(out, columns.map(str::to_owned))?;
    for peer in &status.peers {
        row(out, peer_columns(peer))?;
    }
    for (peer, mbps) in status.peers.iter().filter_map(|peer| Some((peer, peer.policed_mbps?))) {
        writeln!(
            out,
            "  from {} whatever is above {mbps:.1} Mbit/s is dropped on the way: limit the rate (starhop doctor)",
            peer.address
        )?;
    }
    let left_out = status.peer_count - status.peers.len();
    if left_out > 0 { writeln!(out, "  and {left_out} more") } else { Ok(()) }
}

fn peer_columns(peer: &Peer) -> [String; 15] {
    let known = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    [
        peer.address.to_string(),
        peer.identity.clone().unwrap_or_else(|| "-".to_owned()),
        peer.version.clone().unwrap_or_else(|| "-".to_owned()),
        peer.clock_ahead_ms.map_or_else(|| "-".to_owned(), |ahead| format!("{ahead:+.0}")),
        peer.side.word().to_owned(),
        known(peer.rtt_ms, 1),
        known(peer.queueing_ms, 1),
        known(peer.loss.map(|loss| loss * 100.0), 2),
        known((peer.packets > 0).then(|| peer.parity_packets as f64 * 100.0 / peer.packets as f64), 1),
        format!("{:.1}", peer.rate_mbps),
        HumanBytes(peer.queued_bytes).to_string(),
        HumanBytes(peer.bytes).to_string(),
        peer.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
        peer.payload_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        peer.silent_s.map_or_else(|| "never".to_owned(), |silent| format!("{silent:.1} s ago")),
    ]
}

fn row(out: &mut String, columns: [String; 15]) -> std::fmt::Result {
    let [
        address,
        identity,
        version,
        clock,
        side,
        rtt,
        queue,
        loss,
        parity,
        rate,
        queued,
        bytes,
        mtu,
        payload,
        heard,
    ] = columns;
    writeln!(
        out,
        "  {address:<24} {identity:<12} {version:<8} {clock:>8} {side:<10} {rtt:>8} {queue:>8} {loss:>7} {parity:>8} {rate:>9} {queued:>11} {bytes:>11} {mtu:>6} {payload:>7} {heard:>12}"
    )
}

/// The peers of a gateway, and users' connections.
fn sites(out: &mut String, status: &Status) -> std::fmt::Result {
    const SHOWN: usize = 10;
    for site in &status.sites {
        let state = if site.is_up { "answers" } else { "does not answer" };
        let rtt = site.rtt_ms.map_or_else(String::new, |ms| format!(" in {ms:.1} ms"));
        let [to, from] = [site.user_bytes_to, site.user_bytes_from].map(HumanBytes);
        let Site { name, connections, .. } = site;
        let address = site.address.map_or_else(|| "no known address".to_owned(), |at| at.to_string());
        writeln!(
            out,
            "  site {name} at {address} {state}{rtt}; {connections} connections; users' bytes: {to} there, {from} from there"
        )?;
        if let Some(Segments { sent, repeated, timeouts }) = site.segments {
            writeln!(
                out,
                "    rate-split: {sent} segments there, {repeated} of them again; {timeouts} found lost by the timer"
            )?;
        }
        let CarriedPackets { flows, to, from, overdue, late, refused, .. } = site.packets;
        if to + from + overdue + late + refused > 0 {
            writeln!(
                out,
                "    packets carried: {to} there, {from} from there, {flows} flows; not carried: {overdue} waited too long, \
                 {late} came too late, {refused} took the plain path for want of room"
            )?;
        }
    }
    for Passed { policy, packets, bytes } in &status.passed {
        writeln!(out, "  passed by policy[{policy}]: {packets} packets, {}", HumanBytes(*bytes))?;
    }
    for UserFlow { from, to, site, intercepted, waiting_bytes } in status.connections.iter().take(SHOWN) {
        let (way, waiting) = (if *intercepted { "over" } else { "from" }, HumanBytes(*waiting_bytes));
        writeln!(out, "  {from} -> {to} {way} {site}, {waiting} wait for its user")?;
    }
    let left_out = status.connection_count.saturating_sub(SHOWN);
    if left_out > 0 { writeln!(out, "  and {left_out} more connections") } else { Ok(()) }
}

fn flows(out: &mut String, status: &Status) -> std::fmt::Result {
    const SHOWN: usize = 10;
    for Flow { flow, name, length, subscribers, idle_s, expected_bytes, .. } in
        status.flows.iter().take(SHOWN)
    {
        let name = name.as_deref().unwrap_or("");
        let length =
            length.map_or_else(|| "length unknown".to_owned(), |length| HumanBytes(length).to_string());
        let expected = HumanBytes(*expected_bytes);
        writeln!(
            out,
            "  flow {flow} {name} {length}, {subscribers} asking, {expected} on the way, used {idle_s:.1} s ago"
        )?;
    }
    let left_out = status.flow_count.saturating_sub(SHOWN);
    if left_out > 0 { writeln!(out, "  and {left_out} more flows") } else { Ok(()) }
}

fn tail(out: &mut String, status: &Status) -> std::fmt::Result {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        let counts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
    };
    writeln!(out, "  transfers ended: {}", list(&status.transfers))?;
    writeln!(out, "  refused: {}", list(&status.refused))?;
    let memory = HumanBytes(status.memory_bytes);
    writeln!(out, "  {:.1} CPU s, {memory} of memory", status.cpu_seconds)
}
