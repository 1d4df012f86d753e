//! The checks of `starhop doctor`: obstacles to a node on this host, and their remedies.

use super::socket::mtu_of;
use super::status::{Side, Status};
use super::{ask as ask_node, nodes, reach, ward};
use crate::endpoint::{Buffers, RECEIVE_BUFFER, SEND_BUFFER};
use crate::security::{HopSuite, Sources};
use crate::sys;
use crate::{Driver, Endpoint, clock};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;
use starhop_proto::config::Config;
use starhop_proto::hop::Greeting;
use starhop_proto::relay::Relay;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and could work better.
    Warning,
    /// It does not work.
    Failure,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: String,
    /// Its severity.
    pub verdict: Verdict,
    /// The finding.
    pub found: String,
    /// The remedy; absent if none is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), verdict: Verdict::Ok, found: found.into(), cure: None }
    }

    pub(super) fn warning(check: &str, found: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, cure: Some(cure.into()), ..Self::ok(check, found) }
    }

    pub(super) fn failure(check: &str, found: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failure, cure: Some(cure.into()), ..Self::ok(check, found) }
    }
}

/// The node to check.
#[derive(Clone, Debug)]
pub struct Patient {
    /// The node's keys; absent where none were named.
    pub security: Option<Sources>,
    /// Configurations of this host's gateways.
    pub gateways: Vec<PathBuf>,
    /// Addresses of the peers that the node sends requests to.
    pub peers: Vec<SocketAddr>,
    /// Longest time until a peer answers.
    pub timeout: Duration,
    /// The protocol's configuration.
    pub config: Config,
}

/// Looks at everything. Call within a tokio runtime.
pub async fn examine(patient: &Patient) -> Vec<Finding> {
    let mut findings = vec![clock_is_kept()];
    findings.extend(patient.security.as_ref().map(keys));
    match Endpoint::bind(SocketAddr::from(([0, 0, 0, 0], 0))) {
        Ok(endpoint) => {
            findings.push(buffers(endpoint.buffers()));
            findings.push(offload(&endpoint));
        }
        Err(error) => {
            let cure = "allow this user to open sockets";
            findings.push(Finding::failure("sockets", error.to_string(), cure));
        }
    }
    findings.push(descriptors());
    findings.push(controls());
    let nodes = nodes();
    findings.extend(ward::examine(&patient.gateways, &nodes));
    for node in &nodes {
        let status = ask_node(&node.path, "status").ok();
        let status = status.and_then(|answer| serde_json::from_value::<Status>(answer).ok());
        findings.extend(status.into_iter().flat_map(|status| policers(&node.name, &status)));
    }
    for &peer in &patient.peers {
        findings.push(path(peer, &patient.config));
        if let Some(security) = &patient.security {
            findings.push(answer(peer, security, patient).await);
        }
    }
    findings
}

fn clock_is_kept() -> Finding {
    const CHECK: &str = "clock";
    match sys::clock::is_synchronised() {
        Some(true) => Finding::ok(CHECK, "the kernel says that it is synchronised"),
        Some(false) => Finding::warning(
            CHECK,
            "nothing synchronises it; nodes whose clocks are more than 32 s apart refuse each other's packets",
            "run chrony, systemd-timesyncd or ntpd",
        ),
        None => {
            Finding::warning(CHECK, "the kernel does not say whether it is synchronised", "see `timedatectl`")
        }
    }
}

fn keys(sources: &Sources) -> Finding {
    const CHECK: &str = "keys";
    match (sources, HopSuite::new(sources)) {
        (Sources::Insecure, _) => Finding::warning(
            CHECK,
            "packets are plain: anybody on the way can read, change and forge them",
            "make a key with `starhop key new`, give it to every node, and leave --insecure out",
        ),
        (_, Ok(suite)) => {
            let security = suite.security();
            let domain = security.domain.unwrap_or_default();
            Finding::ok(
                CHECK,
                format!("valid for {domain}, sealing with {}", security.key.unwrap_or_default()),
            )
        }
        (_, Err(error)) => {
            Finding::failure(CHECK, error.to_string(), "`starhop key show FILE` tells what a file holds")
        }
    }
}

fn buffers(given: Buffers) -> Finding {
    let found = format!("{} KiB to receive, {} KiB to send", given.receive >> 10, given.send >> 10);
    if given.receive >= RECEIVE_BUFFER && given.send >= SEND_BUFFER {
        return Finding::ok("socket buffers", found);
    }
    let cure = format!(
        "sysctl -w net.core.rmem_max={RECEIVE_BUFFER} net.core.wmem_max={SEND_BUFFER}; to keep it, in /etc/sysctl.d"
    );
    Finding::warning("socket buffers", format!("{found}; fast flows may lose packets here"), cure)
}

fn offload(endpoint: &Endpoint) -> Finding {
    let (send, receive) = (endpoint.state.max_gso_segments(), endpoint.state.gro_segments());
    let found = format!("{send} packets in one send (GSO), {receive} in one receive (GRO)");
    if send > 1 && receive > 1 {
        return Finding::ok("segmentation offload", found);
    }
    let cure = "use a kernel from 5.0 on; above some 500 Mbit/s each packet costs a system call without it";
    Finding::warning("segmentation offload", found, cure)
}

fn descriptors() -> Finding {
    /// Enough descriptors: a relay needs a dozen, a server one per open file, a transparent relay one per pair of
    /// end points. A gateway's need has a check of its own.
    const ENOUGH: u64 = 4096;
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let found = format!("{limit} may be open");
    if limit >= ENOUGH {
        return Finding::ok("file descriptors", found);
    }
    let cure = format!("`ulimit -n {ENOUGH}`, or LimitNOFILE={ENOUGH} in the unit; a plain relay needs few");
    Finding::warning("file descriptors", found, cure)
}

fn controls() -> Finding {
    const CHECK: &str = "congestion controls";
    let read = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap_or_default();
    let (available, default) = (read("available_congestion_control"), read("congestion_control"));
    let found = format!("{}; new connections use {}", available.trim(), default.trim());
    let is_here = |wanted| available.split_whitespace().any(|name| name == wanted);
    if is_here("bbr") || is_here("hybla_veno") {
        return Finding::ok(CHECK, found);
    }
    let cure =
        "`modprobe tcp_bbr`, or `starhop tcp load hybla-veno`, where TCP of this host crosses a satellite";
    Finding::warning(CHECK, found, cure)
}

/// Looks for something on the way to a running node that drops what is above a rate. Says nothing of a node that asks nobody.
fn policers(name: &str, status: &Status) -> Vec<Finding> {
    let check = format!("policing towards {name}");
    let upstreams = || status.peers.iter().filter(|peer| peer.side == Side::Upstream);
    let policed = upstreams().filter_map(|peer| {
        let mbps = peer.policed_mbps?;
        let found = format!(
            "something on the way from {} drops what is above {mbps:.1} Mbit/s and queues nothing",
            peer.address
        );
        let (kbit, bits) = (950.0 * mbps, 950_000.0 * mbps);
        let limit = match status.role.as_str() {
            "gateway" => format!("set link_rate_in_bits = {bits:.0} in the file of {name}"),
            _ => format!("start {name} with --limit-rate {kbit:.0}kbit, or limit_rate in its file"),
        };
        Some(Finding::warning(
            &check,
            found,
            format!("{limit}: what is dropped is sent twice; or buy more rate"),
        ))
    });
    let mut findings: Vec<Finding> = policed.collect();
    if findings.is_empty() && upstreams().next().is_some() {
        let packets: u64 = upstreams().map(|peer| peer.packets).sum();
        findings.push(Finding::ok(&check, format!("none seen in {packets} packets from upstream")));
    }
    findings
}

/// Whether there is a route to a peer that takes whole packets.
fn path(peer: SocketAddr, config: &Config) -> Finding {
    let check = format!("path to {peer}");
    let mtu = match mtu_of(peer) {
        Ok(mtu) => mtu,
        Err(error) => {
            return Finding::failure(
                &check,
                format!("no route: {error}"),
                "see `ip route get`, and the cable",
            );
        }
    };
    let Some(mtu) = mtu else {
        return Finding::ok(&check, "there is a route; the kernel does not tell its MTU");
    };
    let headers = if peer.is_ipv4() { 28 } else { 48 };
    let needed = config.payload as u64 + LONGEST_HEADER + headers;
    if u64::from(mtu) >= needed {
        return Finding::ok(
            &check,
            format!("packets of up to {mtu} bytes pass this host, {needed} are needed"),
        );
    }
    let payload = u64::from(mtu).saturating_sub(LONGEST_HEADER + headers);
    let cure = format!("--options payload={payload} for the nodes that send over this path");
    Finding::failure(&check, format!("packets of {needed} bytes are sent, and {mtu} pass"), cure)
}

/// Bytes of a sealed Data packet beside its payload: docs/SECURITY.md and docs/PROTOCOL.md.
const LONGEST_HEADER: u64 = 64;

/// Asks a peer for its identity. An answer shows that UDP passes both ways and that the peer's key is ours, and
/// tells the offset of its clock.
async fn answer(peer: SocketAddr, security: &Sources, patient: &Patient) -> Finding {
    let check = format!("answer of {peer}");
    let greeting = match ask(peer, security, patient).await {
        Ok(Some(greeting)) => greeting,
        Ok(None) => {
            return Finding::failure(
                &check,
                format!("none within {:.0} s", patient.timeout.as_secs_f64()),
                "look with `starhop status` on that host what it refused: an entry `forged` means another key, none means \
                 that UDP is filtered on the way, or that nothing listens there",
            );
        }
        Err(problem) => return Finding::failure(&check, problem, "mend the checks above first"),
    };
    let after = greeting.rtt.map_or_else(String::new, |rtt| format!(" after {:.1} ms", rtt.as_millis_f64()));
    let ahead = greeting.clock_ahead.map(|micros| micros as f64 / 1e6);
    let clock = ahead.map_or_else(String::new, |ahead| format!("; its clock is {ahead:+.3} s off ours"));
    let found = format!("version {}{after}{clock}", greeting.version.as_str());
    if ahead.is_some_and(|ahead| ahead.abs() > CLOCKS_APART) {
        return Finding::warning(
            &check,
            found,
            "run chrony, systemd-timesyncd or ntpd on both: beyond 32 s nodes refuse each other",
        );
    }
    Finding::ok(&check, found)
}

/// Difference of clocks that deserves a warning, seconds: at 32 s nodes refuse each other.
const CLOCKS_APART: f64 = 4.0;

async fn ask(peer: SocketAddr, security: &Sources, patient: &Patient) -> Result<Option<Greeting>, String> {
    let endpoint = Endpoint::towards(peer).map_err(|error| error.to_string())?;
    let suite = HopSuite::new(security).map_err(|error| error.to_string())?;
    let upstream = endpoint.address_of(peer).unwrap_or(peer);
    let asker = Relay::new(patient.config.clone(), upstream, suite, clock::seed());
    let mut driver = Driver::new(asker, endpoint).map_err(|error| error.to_string())?;
    reach(&mut driver, upstream, patient.timeout).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{Peer, transfers::Record};
    use super::*;
    use starhop_proto::hop::Upstream;
    use starhop_proto::units::Rate;

    #[test]
    fn small_buffers_are_a_warning_with_the_setting_that_cures_them() {
        let finding = buffers(Buffers { receive: 200 << 10, send: SEND_BUFFER });
        assert_eq!(finding.verdict, Verdict::Warning);
        assert!(finding.cure.is_some_and(|cure| cure.contains("net.core.rmem_max=8388608")));
        let finding = buffers(Buffers { receive: RECEIVE_BUFFER, send: SEND_BUFFER });
        assert_eq!((finding.verdict, finding.cure), (Verdict::Ok, None));
    }

    #[test]
    fn the_path_of_the_loopback_interface_takes_whole_packets() {
        let finding = path("127.0.0.1:4433".parse().unwrap(), &Config::default());
        assert_eq!(finding.verdict, Verdict::Ok, "{finding:?}");
    }

    #[test]
    fn a_policer_on_the_way_is_a_warning_with_the_rate_to_set() {
        let suite = HopSuite::new(&Sources::Insecure).unwrap();
        let record = Record::default();
        let listen = "127.0.0.1:4433".parse().unwrap();
        let mut status = Status::new("relay", listen, &suite, crate::DriverStats::default(), &record);
        assert_eq!(policers("relay-4433", &status), []);
        let mut hop = Upstream::unheard("192.0.2.1:4433".parse().unwrap());
        let mut finding = |policed| {
            hop.policed = policed;
            status.peers = vec![Peer::upstream(clock::now(), &hop, &suite)];
            policers("relay-4433", &status).remove(0)
        };
        assert_eq!(finding(None).verdict, Verdict::Ok);
        let cure = finding(Some(Rate::from_mbps(12))).cure;
        assert!(cure.is_some_and(|cure| cure.contains("--limit-rate 11400kbit")));
        status.role = "gateway".to_owned();
        let cure = policers("gateway-4433", &status).remove(0).cure;
        assert!(cure.is_some_and(|cure| cure.contains("link_rate_in_bits = 11400000")));
    }

    #[test]
    fn plain_packets_are_a_warning_and_a_missing_key_a_failure() {
        assert_eq!(keys(&Sources::Insecure).verdict, Verdict::Warning);
        let missing = Sources::Files { key: "/no/such/key".into(), roster: None, cipher: None };
        assert_eq!(keys(&missing).verdict, Verdict::Failure);
    }
}
