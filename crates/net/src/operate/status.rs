//! The state of a node, as its operator reads it.

use super::log::timestamp;
use super::transfers::Record;
use crate::DriverStats;
use crate::clock;
use crate::gateway::Questions;
use crate::security::HopSuite;
use serde::{Deserialize, Serialize};
use starhop_proto::hop::{About, Carried, Downstream, FlowView, Upstream, Version};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Flows in a status, at most: the ones used last.
const MOST_FLOWS: usize = 100;
/// Peers in a status, at most: the ones that carried most.
const MOST_PEERS: usize = 256;

/// Which way data goes on a hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The peer is asked.
    Upstream,
    /// The peer asks.
    Downstream,
}

impl Side {
    /// As documents and metrics call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Downstream => "downstream",
        }
    }
}

/// One hop to a neighbour. Values that its side cannot know are absent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Which way data goes.
    pub side: Side,
    /// The owner of its key: a name of the roster, or the domain. Absent if packets are plain or none has come.
    pub identity: Option<String>,
    /// The version of its program, by its own account; absent if this node has not asked it.
    pub version: Option<String>,
    /// Lead of its clock over ours, ms, to within half of the round trip.
    pub clock_ahead_ms: Option<f64>,
    /// Smoothed round trip, ms.
    pub rtt_ms: Option<f64>,
    /// Queueing: the smoothed round trip beyond the smallest, ms.
    pub queueing_ms: Option<f64>,
    /// Lost packets of those that were sent here, from 0 to 1.
    pub loss: Option<f64>,
    /// The rate that its receiving side grants, 10^6 bit/s.
    pub rate_mbps: f64,
    /// The rate above which something on the way drops packets and keeps no queue of them, 10^6 bit/s: a policer.
    #[serde(default)]
    pub policed_mbps: Option<f64>,
    /// Bytes that wait to be sent to it.
    pub queued_bytes: u64,
    /// Bytes that it asked for and that are not here yet.
    pub awaited_bytes: u64,
    /// Flows that it asked for.
    pub flows: usize,
    /// The largest packet that the kernel sends towards it, IP header included.
    pub mtu: Option<u32>,
    /// The longest payload that the path carries, as far as it is needed and known.
    #[serde(default)]
    pub payload_bytes: Option<u64>,
    /// Packets of the hop so far.
    pub packets: u64,
    /// Bytes on the wire so far.
    pub bytes: u64,
    /// Packets lost so far.
    pub lost: u64,
    /// Parity packets of the hop's erasure code so far, which `packets` counts, too.
    #[serde(default)]
    pub parity_packets: u64,
    /// Lost packets that parity restored so far, which `lost` counts, too.
    #[serde(default)]
    pub restored_packets: u64,
    /// Payload bytes that the cache had.
    pub from_cache_bytes: u64,
    /// Seconds since it was last heard; absent when it never was.
    pub silent_s: Option<f64>,
}

/// A flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// Its name, hexadecimal.
    pub flow: String,
    /// The source's name of the flow.
    pub name: Option<String>,
    /// Bytes in all, once known.
    pub length: Option<u64>,
    /// The neighbour that is asked for it.
    pub upstream: Option<SocketAddr>,
    /// Neighbours that asked for it.
    pub subscribers: usize,
    /// Bytes that were asked for upstream and have not arrived.
    pub expected_bytes: u64,
    /// Seconds since it was last used.
    pub idle_s: f64,
}

/// The cache of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cache {
    /// Bytes in it.
    pub used_bytes: u64,
    /// Bytes that it may hold.
    pub limit_bytes: u64,
    /// Bytes answered from it.
    pub hit_bytes: u64,
}

/// The memory that a node may take for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes for everything: neighbours, flows, replay windows, cache.
    pub limit_bytes: u64,
    /// Bytes that neighbours and their flows take at most, as they are now.
    pub state_used_bytes: u64,
    /// Bytes that these may take.
    pub state_limit_bytes: u64,
}

/// A peer of a gateway, and the bytes that its users exchanged with ours. The hops in between count their cost on
/// the wire.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Site {
    /// Its name in the configuration.
    pub name: String,
    /// The neighbour that the gateway asks for its bytes; `None` if its address is not known yet.
    pub address: Option<SocketAddr>,
    /// Whether it answers.
    pub is_up: bool,
    /// The round trip to it, ms.
    pub rtt_ms: Option<f64>,
    /// Users' connections with this peer now.
    pub connections: usize,
    /// Number of times that one of the two began anew.
    pub sessions: u32,
    /// Users' bytes that went there.
    pub user_bytes_to: u64,
    /// Users' bytes that came from there.
    pub user_bytes_from: u64,
    /// Users' packets that were carried as they are.
    #[serde(default)]
    pub packets: CarriedPackets,
    /// Segments, where users' connections travel by the rate-based protocol of connection splitting.
    #[serde(default)]
    pub segments: Option<Segments>,
}

/// Segments that a gateway sent to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Segments {
    /// All of them.
    pub sent: u64,
    /// Those that it had sent before.
    pub repeated: u64,
    /// Those that a timer found lost.
    pub timeouts: u64,
}

/// Users' packets that a gateway exchanged with a peer, as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CarriedPackets {
    /// Users' flows towards the peer now.
    pub flows: usize,
    /// Packets that went there.
    pub to: u64,
    /// Bytes in them.
    pub bytes_to: u64,
    /// Packets that came from there.
    pub from: u64,
    /// Bytes in them.
    pub bytes_from: u64,
    /// Packets dropped before they were sent, because they had waited until their deadline.
    pub overdue: u64,
    /// Packets that came from there too late.
    pub late: u64,
    /// Packets from there of which a part did not come.
    pub incomplete: u64,
    /// Bytes from there that were lost and not repaired in time.
    pub given_up_bytes: u64,
    /// Packets that took the plain path, because there was no room.
    pub refused: u64,
}

/// Users' packets that a gateway left alone by one of its policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Passed {
    /// The policy's place in the configuration, from 0.
    pub policy: usize,
    /// Packets since the rules were set.
    pub packets: u64,
    /// Bytes in them, with their IP headers.
    pub bytes: u64,
}

/// The erasure code between this host and another.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Code {
    /// The other end takes packets. While it does not, they take the plain path.
    pub is_up: bool,
    /// Packets sent to the other end.
    pub packets_to: u64,
    /// Parity packets sent there.
    pub parity_to: u64,
    /// Packets that came from there, restored ones included.
    pub packets_from: u64,
    /// Lost packets from there that parity restored.
    pub restored_from: u64,
    /// Lost packets from there that it did not.
    pub given_up_from: u64,
    /// The share of packets that the path to the other end loses, by its reports, from 0 to 1.
    pub loss_to: f64,
    /// Packets of a full block, and parity packets after it.
    pub block: (u8, u8),
    /// Times that the other end started anew.
    pub starts: u64,
    /// Packets to the other end that came by the device, because a route leads them there: dropped.
    pub looped: u64,
    /// Packets that the kernel did not take from the device.
    pub refused_by_kernel: u64,
}

/// A user's connection that a gateway carries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UserFlow {
    /// Its client.
    pub from: SocketAddr,
    /// Its target.
    pub to: SocketAddr,
    /// The gateway at the other end.
    pub site: String,
    /// Whether it was intercepted here, or opened by the other gateway.
    pub intercepted: bool,
    /// Bytes that its user here has not taken yet.
    pub waiting_bytes: u64,
}

/// Counters of a node since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Accounts {
    /// Requests received.
    pub interests_in: u64,
    /// Data packets sent.
    pub data_out: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Ranges sent again, or asked for again.
    pub repairs: u64,
    /// Requested bytes that were already under way for another neighbour.
    pub aggregated_bytes: u64,
}

/// The state of a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Time of the snapshot: RFC 3339, UTC.
    pub timestamp: String,
    /// `serve`, `relay`, `gateway` or `fec`.
    pub role: String,
    /// The program's version.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// `sealed` or `plain`.
    pub packets: String,
    /// The security domain.
    pub domain: Option<String>,
    /// Its hops.
    pub peers: Vec<Peer>,
    /// The peers of a gateway.
    #[serde(default)]
    pub sites: Vec<Site>,
    /// Users' packets that policies of a gateway left alone.
    #[serde(default)]
    pub passed: Vec<Passed>,
    /// The way to ask the watchdog, which counts these.
    #[serde(skip)]
    pub(crate) passes: Option<Arc<Questions>>,
    /// Users' connections that a gateway carries, 100 at most.
    #[serde(default)]
    pub connections: Vec<UserFlow>,
    /// Users' connections in all.
    #[serde(default)]
    pub connection_count: usize,
    /// Hops in all: a status lists 256 at most.
    pub peer_count: usize,
    /// Its flows, those used last first.
    pub flows: Vec<Flow>,
    /// Flows in all: a status lists 100 at most.
    pub flow_count: usize,
    /// Its erasure code, where that is its task.
    #[serde(default)]
    pub code: Option<Code>,
    /// Its cache, where it has one.
    pub cache: Option<Cache>,
    /// The memory that it may take for others.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Its counters since the start.
    pub accounts: Accounts,
    /// Datagrams, requests and bytes that it refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Transfers that ended, by reason.
    pub transfers: BTreeMap<String, u64>,
    /// Its socket.
    pub socket: DriverStats,
    /// User and system time, seconds.
    pub cpu_seconds: f64,
    /// Resident memory, bytes.
    pub memory_bytes: u64,
    /// Open file descriptors, and how many may be.
    pub descriptors: (u64, u64),
}

impl Status {
    /// The part that every role has alike.
    pub fn new(
        role: &str,
        listen: SocketAddr,
        suite: &HopSuite,
        socket: DriverStats,
        record: &Record,
    ) -> Self {
        let security = suite.security();
        Self {
            timestamp: timestamp(),
            role: role.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            listen,
            uptime_s: clock::now().since(record.started()).as_secs_f64(),
            packets: security.packets.to_owned(),
            domain: security.domain,
            peers: Vec::new(),
            sites: Vec::new(),
            passed: Vec::new(),
            passes: None,
            connections: Vec::new(),
            connection_count: 0,
            peer_count: 0,
            flows: Vec::new(),
            flow_count: 0,
            code: None,
            cache: None,
            memory: None,
            accounts: Accounts::default(),
            refused: refused_by(suite),
            transfers: record.endings().clone(),
            socket,
            cpu_seconds: clock::cpu_seconds(),
            memory_bytes: resident(),
            descriptors: descriptors(),
        }
    }

    /// Adds hops.
    pub fn add_peers(&mut self, peers: impl IntoIterator<Item = Peer>) {
        self.peers.extend(peers);
        self.peer_count = self.peers.len();
        self.peers.sort_by_key(|peer| (peer.side, std::cmp::Reverse(peer.bytes), peer.address));
    }

    /// Leaves out the peers beyond the 256 that carried most on their side.
    pub(super) fn shorten(&mut self) {
        self.peers.truncate(MOST_PEERS);
    }

    /// Adds flows; `name` gives the source's name of a flow.
    pub fn add_flows(
        &mut self,
        now: Instant,
        flows: impl Iterator<Item = FlowView>,
        name: impl Fn(&FlowView) -> Option<String>,
    ) {
        let mut flows: Vec<FlowView> = flows.collect();
        self.flow_count = flows.len();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.last_used));
        flows.truncate(MOST_FLOWS);
        self.flows.extend(flows.iter().map(|flow| Flow {
            flow: flow.id.to_string(),
            name: name(flow),
            length: flow.length,
            upstream: flow.upstream.map(plain),
            subscribers: flow.subscribers,
            expected_bytes: flow.expected,
            idle_s: now.since(flow.last_used).as_secs_f64(),
        }));
    }

    /// Adds refusals of one reason; reasons that never happened are left out.
    pub fn refuse(&mut self, reason: &str, count: u64) {
        if count > 0 {
            self.refused.insert(reason.to_owned(), count);
        }
    }
}

impl Peer {
    /// A neighbour that is asked.
    pub fn upstream(now: Instant, hop: &Upstream, suite: &HopSuite) -> Self {
        let millis = |span: Duration| span.as_millis_f64();
        let Carried { packets, lost, .. } = hop.carried;
        Self {
            rtt_ms: hop.rtt.map(|(rtt, _)| millis(rtt)),
            queueing_ms: hop.rtt.map(|(rtt, least)| (millis(rtt) - millis(least)).max(0.0)),
            loss: (packets > 0).then(|| lost as f64 / (packets + lost) as f64),
            silent_s: hop.last_heard.map(|at| now.since(at).as_secs_f64()),
            identity: hop.greeting.and_then(|told| suite.name_of(told.peer.member)).map(str::to_owned),
            version: hop
                .greeting
                .map(|told| told.version.as_str().to_owned())
                .filter(|text| !text.is_empty()),
            clock_ahead_ms: hop.greeting.and_then(|told| told.clock_ahead).map(|micros| micros as f64 / 1e3),
            payload_bytes: hop.payload.map(u64::from),
            policed_mbps: hop.policed.map(Rate::as_mbps),
            ..Self::new(hop.addr, Side::Upstream, hop.rate.as_mbps(), hop.carried)
        }
    }

    /// A neighbour that asks.
    pub fn downstream(now: Instant, hop: &Downstream, suite: &HopSuite) -> Self {
        Self {
            identity: suite.name_of(hop.member).map(str::to_owned),
            payload_bytes: Some(hop.payload),
            queued_bytes: hop.queued,
            awaited_bytes: hop.awaited,
            flows: hop.flows,
            silent_s: Some(now.since(hop.last_heard).as_secs_f64()),
            ..Self::new(hop.addr, Side::Downstream, hop.rate.as_mbps(), hop.carried)
        }
    }

    fn new(addr: SocketAddr, side: Side, rate_mbps: f64, carried: Carried) -> Self {
        let Carried { packets, bytes, lost, from_cache, parity, restored } = carried;
        Self {
            address: plain(addr),
            side,
            identity: None,
            version: None,
            clock_ahead_ms: None,
            rtt_ms: None,
            queueing_ms: None,
            loss: None,
            rate_mbps,
            policed_mbps: None,
            queued_bytes: 0,
            awaited_bytes: 0,
            flows: 0,
            mtu: None,
            payload_bytes: None,
            packets,
            bytes,
            lost,
            from_cache_bytes: from_cache,
            parity_packets: parity,
            restored_packets: restored,
            silent_s: None,
        }
    }
}

/// The facts that a node of this program tells its neighbours about itself, as of now.
pub fn about() -> About {
    let epoch = (clock::unix_nanos() / 1000).checked_sub(clock::now().since(Instant::ZERO).as_nanos() / 1000);
    About { version: Version::new(env!("CARGO_PKG_VERSION")), epoch }
}

/// An address without the form that an IPv6 socket gives to IPv4 hosts.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn refused_by(suite: &HopSuite) -> BTreeMap<String, u64> {
    let stats = suite.stats();
    let counts = [
        ("foreign", stats.foreign),
        ("forged", stats.forged),
        ("replayed", stats.replayed),
        ("untimely", stats.untimely),
        ("senders_over_limit", stats.over_limit),
        ("unsealable", stats.unsealable),
    ];
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(reason, n)| (reason.to_owned(), n)).collect()
}

/// Resident memory of this process, bytes; 0 where /proc is not mounted.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|field| field.parse().ok());
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096);
    pages.unwrap_or(0) * page as u64
}

/// Open descriptors of this process, and the limit.
fn descriptors() -> (u64, u64) {
    use nix::sys::resource::{Resource, getrlimit};
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    (open, getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_tells_its_queueing_and_its_loss() {
        let ms = Duration::from_millis;
        let now = Instant::ZERO + ms(10_000);
        let hop = Upstream {
            payload: None,
            addr: "[::ffff:192.0.2.1]:4433".parse().unwrap(),
            rtt: Some((ms(25), ms(20))),
            rate: Rate::from_mbps(20),
            carried: Carried { packets: 99, bytes: 120_000, lost: 1, ..Carried::default() },
            last_heard: Some(now.before(ms(500))),
            last_asked: None,
            greeting: None,
            policed: Some(Rate::from_mbps(12)),
        };
        let suite = HopSuite::new(&crate::security::Sources::Insecure).unwrap();
        let peer = Peer::upstream(now, &hop, &suite);
        assert_eq!(peer.address, "192.0.2.1:4433".parse().unwrap());
        assert_eq!((peer.rtt_ms, peer.queueing_ms, peer.loss), (Some(25.0), Some(5.0), Some(0.01)));
        assert_eq!(peer.policed_mbps, Some(12.0));
        assert_eq!((peer.rate_mbps, peer.silent_s), (20.0, Some(0.5)));
        let unheard = Upstream { rtt: None, carried: Carried::default(), last_heard: None, ..hop };
        let peer = Peer::upstream(now, &unheard, &suite);
        assert_eq!((peer.rtt_ms, peer.loss, peer.silent_s), (None, None, None));
    }
}
