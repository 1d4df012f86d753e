//! The state of a node as metrics for Prometheus, in the OpenMetrics text format.
//!
//! Names follow Prometheus' conventions: base units (bytes, seconds, ratios), `_total` for counters. A label `peer`
//! is an address; the busiest peers of each side have series of their own, and the rest is summed up as `other`, so
//! that strangers cannot make series without end.

use super::status::{CarriedPackets, Code, Passed, Peer, Side, Site, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;

/// The media type of the text that [`encode`] returns.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Peers of one side that have series of their own.
const MOST_PEERS: usize = 64;

/// The metrics of a status.
pub(super) fn encode(status: Status) -> String {
    let mut registry = Registry::with_prefix("starhop");
    registry.register_collector(Box::new(Snapshot { peers: peers(&status), status }));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct Snapshot {
    status: Status,
    peers: Vec<Row>,
}

/// The series of a peer, or of all that have none of their own.
#[derive(Debug)]
struct Row {
    labels: [(&'static str, String); 2],
    peer: Peer,
}

/// The busiest peers of each side, which come first in a status, and the sum of the others.
fn peers(status: &Status) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for side in [Side::Upstream, Side::Downstream] {
        let of_side: Vec<&Peer> = status.peers.iter().filter(|peer| peer.side == side).collect();
        let (own, rest) = of_side.split_at(of_side.len().min(MOST_PEERS));
        let row =
            |name: String, peer: Peer| Row { labels: [("peer", name), ("side", side.word().into())], peer };
        rows.extend(own.iter().map(|peer| row(peer.address.to_string(), (*peer).clone())));
        if let Some((first, others)) = rest.split_first() {
            let sum = others.iter().fold((*first).clone(), |sum, peer| add(&sum, peer));
            rows.push(row("other".to_owned(), sum));
        }
    }
    rows
}

/// The sum of the counters of two peers. Values that cannot be added are left out.
fn add(sum: &Peer, peer: &Peer) -> Peer {
    Peer {
        rtt_ms: None,
        queueing_ms: None,
        loss: None,
        mtu: None,
        silent_s: None,
        identity: None,
        version: None,
        clock_ahead_ms: None,
        rate_mbps: sum.rate_mbps + peer.rate_mbps,
        policed_mbps: None,
        queued_bytes: sum.queued_bytes + peer.queued_bytes,
        awaited_bytes: sum.awaited_bytes + peer.awaited_bytes,
        flows: sum.flows + peer.flows,
        packets: sum.packets + peer.packets,
        bytes: sum.bytes + peer.bytes,
        lost: sum.lost + peer.lost,
        parity_packets: sum.parity_packets + peer.parity_packets,
        restored_packets: sum.restored_packets + peer.restored_packets,
        from_cache_bytes: sum.from_cache_bytes + peer.from_cache_bytes,
        ..sum.clone()
    }
}

/// Writes families of metrics, one after the other.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn counters<'l, L>(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (L, u64)>) -> fmt::Result
    where
        L: AsRef<[(&'static str, String)]> + 'l,
    {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            ConstCounter::new(value).encode(family.encode_family(&labels.as_ref())?)?;
        }
        Ok(())
    }

    fn gauges<'l, L>(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (L, f64)>) -> fmt::Result
    where
        L: AsRef<[(&'static str, String)]> + 'l,
    {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            ConstGauge::new(value).encode(family.encode_family(&labels.as_ref())?)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(family)
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(family)
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer(encoder);
        self.node(&mut writer)?;
        self.hops(&mut writer)?;
        self.sites(&mut writer)?;
        self.users(&mut writer)?;
        self.process(&mut writer)
    }
}

impl Snapshot {
    fn node(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let Status { role, version, packets, accounts, .. } = &self.status;
        let labels = [("role", role.clone()), ("version", version.clone()), ("packets", packets.clone())];
        writer.gauges("build_info", "Always 1; labels say what runs", [(labels, 1.0)].into_iter())?;
        writer.gauge("uptime_seconds", "Since the start of the node", self.status.uptime_s)?;
        writer.gauge("flows", "Flows with state", self.status.flow_count as f64)?;
        writer.gauge("peers", "Hops with state", self.status.peer_count as f64)?;
        writer.counter("requests", "Interests received", accounts.interests_in)?;
        writer.counter("repairs", "Ranges asked for or sent again", accounts.repairs)?;
        writer.counter(
            "aggregated_bytes",
            "Bytes that were on their way for another already",
            accounts.aggregated_bytes,
        )?;
        let by_reason = |(reason, &count): (&String, &u64)| ([("reason", reason.clone())], count);
        let refused = self.status.refused.iter().map(by_reason);
        writer.counters("refused", "Datagrams, requests and bytes refused, by reason", refused)?;
        let ended = self.status.transfers.iter().map(by_reason);
        writer.counters("transfers", "Transfers to a neighbour that ended, by reason", ended)?;
        if let Some(code) = self.status.code {
            code_of(writer, &code)?;
        }
        if let Some(memory) = self.status.memory {
            writer.gauge(
                "memory_limit_bytes",
                "Bytes that the node may take for others",
                memory.limit_bytes as f64,
            )?;
            let used = memory.state_used_bytes as f64;
            writer.gauge("state_used_bytes", "Bytes that neighbours and flows take at most", used)?;
            let limit = memory.state_limit_bytes as f64;
            writer.gauge("state_limit_bytes", "Bytes that neighbours and flows may take", limit)?;
        }
        if let Some(cache) = self.status.cache {
            writer.gauge("cache_used_bytes", "Bytes in the cache", cache.used_bytes as f64)?;
            writer.gauge("cache_limit_bytes", "Bytes that the cache may hold", cache.limit_bytes as f64)?;
            writer.counter("cache_hit_bytes", "Bytes answered from the cache", cache.hit_bytes)?;
        }
        Ok(())
    }

    fn hops(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let known = |value: fn(&Peer) -> Option<f64>| {
            self.peers.iter().filter_map(move |row| Some((&row.labels, value(&row.peer)?)))
        };
        let counts =
            |value: fn(&Peer) -> u64| self.peers.iter().map(move |row| (&row.labels, value(&row.peer)));
        writer.gauges(
            "peer_rtt_seconds",
            "Smoothed round trip of the hop",
            known(|p| p.rtt_ms.map(|ms| ms / 1e3)),
        )?;
        writer.gauges(
            "peer_queueing_seconds",
            "Round trip beyond the smallest",
            known(|p| p.queueing_ms.map(|ms| ms / 1e3)),
        )?;
        writer.gauges(
            "peer_rate_bytes_per_second",
            "Rate that the receiving side grants",
            known(|p| Some(p.rate_mbps * 125_000.0)),
        )?;
        writer.gauges(
            "peer_queue_bytes",
            "Bytes that wait to be sent",
            known(|p| Some(p.queued_bytes as f64)),
        )?;
        writer.gauges(
            "peer_awaited_bytes",
            "Bytes asked for and not here yet",
            known(|p| Some(p.awaited_bytes as f64)),
        )?;
        writer.gauges(
            "peer_clock_ahead_seconds",
            "By how much the peer's clock is ahead of this node's",
            known(|p| p.clock_ahead_ms.map(|ms| ms / 1e3)),
        )?;
        writer.gauges("peer_silence_seconds", "Since the peer was last heard", known(|p| p.silent_s))?;
        writer.counters("peer_packets", "Packets of the hop", counts(|p| p.packets))?;
        writer.counters("peer_lost_packets", "Packets that the hop lost", counts(|p| p.lost))?;
        writer.counters("peer_parity_packets", "Parity packets of the hop", counts(|p| p.parity_packets))?;
        writer.counters(
            "peer_restored_packets",
            "Lost packets that parity restored",
            counts(|p| p.restored_packets),
        )?;
        writer.counters("peer_bytes", "Bytes of the hop on the wire", counts(|p| p.bytes))
    }

    /// The accounts of downstream peers: bytes sent to each, and the part of them that came from the cache and not
    /// over the satellite.
    fn sites(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let sites = || self.peers.iter().filter(|row| row.peer.side == Side::Downstream);
        let label = |row: &Row| [row.labels[0].clone()];
        writer.counters(
            "site_bytes",
            "Bytes sent to the site",
            sites().map(|row| (label(row), row.peer.bytes)),
        )?;
        writer.counters(
            "site_saved_bytes",
            "Payload bytes for the site that the cache had",
            sites().map(|row| (label(row), row.peer.from_cache_bytes)),
        )
    }

    /// The accounts of a gateway's sites: its configuration bounds their number.
    fn users(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let sites = &self.status.sites;
        if sites.is_empty() {
            return Ok(());
        }
        let label = |site: &Site| [("site", site.name.clone())];
        let gauge = |value: fn(&Site) -> f64| sites.iter().map(move |site| (label(site), value(site)));
        let up = gauge(|site| f64::from(u8::from(site.is_up)));
        writer.gauges("gateway_up", "1 where the site's gateway answers", up)?;
        let connections = gauge(|site| site.connections as f64);
        writer.gauges("gateway_connections", "Users' connections carried now", connections)?;
        let rtt = sites.iter().filter_map(|site| Some((label(site), site.rtt_ms? / 1e3)));
        writer.gauges("gateway_rtt_seconds", "Round trip to the site's gateway", rtt)?;
        let sessions = sites.iter().map(|site| (label(site), u64::from(site.sessions)));
        writer.counters("gateway_sessions", "Sessions with the site's gateway", sessions)?;
        let directed =
            |site: &Site, word: &str| [("site", site.name.clone()), ("direction", word.to_owned())];
        let bytes = sites.iter().flat_map(|site| {
            [(directed(site, "to"), site.user_bytes_to), (directed(site, "from"), site.user_bytes_from)]
        });
        writer.counters("gateway_user_bytes", "Users' bytes, by direction", bytes)?;
        self.carried(writer)
    }

    /// Users' packets that a gateway carried as they are.
    fn carried(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let sites = &self.status.sites;
        let label = |site: &Site, key: &'static str, word: &str| {
            [("site", site.name.clone()), (key, word.to_owned())]
        };
        let flows = sites.iter().map(|site| ([("site", site.name.clone())], site.packets.flows as f64));
        writer.gauges("gateway_packet_flows", "Users' flows of carried packets now", flows)?;
        let packets = sites.iter().flat_map(|site| {
            [("to", site.packets.to), ("from", site.packets.from)]
                .map(|(way, count)| (label(site, "direction", way), count))
        });
        writer.counters("gateway_packets", "Users' carried packets, by direction", packets)?;
        let bytes = sites.iter().flat_map(|site| {
            [("to", site.packets.bytes_to), ("from", site.packets.bytes_from)]
                .map(|(way, count)| (label(site, "direction", way), count))
        });
        writer.counters("gateway_packet_bytes", "Bytes in carried packets, by direction", bytes)?;
        let dropped = sites.iter().flat_map(|site| {
            let CarriedPackets { overdue, late, incomplete, refused, .. } = site.packets;
            [("overdue", overdue), ("late", late), ("incomplete", incomplete), ("plain", refused)]
                .map(|(reason, count)| (label(site, "reason", reason), count))
        });
        writer.counters("gateway_packets_not_carried", "Users' packets not carried, by reason", dropped)?;
        let given_up = sites.iter().map(|site| ([("site", site.name.clone())], site.packets.given_up_bytes));
        writer.counters("gateway_packet_given_up_bytes", "Bytes lost and not repaired in time", given_up)?;
        let passed = |count: fn(&Passed) -> u64| {
            let all = self.status.passed.iter();
            all.map(move |passed| ([("policy", passed.policy.to_string())], count(passed)))
        };
        let packets = passed(|passed| passed.packets);
        writer.counters("gateway_passed_packets", "Users' packets left alone, by policy", packets)?;
        let bytes = passed(|passed| passed.bytes);
        writer.counters("gateway_passed_bytes", "Bytes in packets left alone, by policy", bytes)
    }

    fn process(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let Status { socket, descriptors, .. } = &self.status;
        writer.counter("socket_received_bytes", "Bytes of datagrams received", socket.rx_bytes)?;
        writer.counter("socket_sent_bytes", "Bytes of datagrams sent", socket.tx_bytes)?;
        writer.counter("socket_refused_datagrams", "Datagrams that the kernel refused", socket.tx_refused)?;
        let mut cpu =
            writer.0.encode_descriptor("cpu_seconds", "User and system time", None, MetricType::Counter)?;
        cpu.encode_counter::<prometheus_client::encoding::NoLabelSet, f64, u64>(
            &self.status.cpu_seconds,
            None,
        )?;
        writer.gauge("memory_bytes", "Resident memory", self.status.memory_bytes as f64)?;
        writer.gauge("open_descriptors", "Open file descriptors", descriptors.0 as f64)?;
        writer.gauge("descriptor_limit", "File descriptors that may be open", descriptors.1 as f64)
    }
}

/// The erasure code of `starhop fec`.
fn code_of(writer: &mut Writer<'_>, code: &Code) -> fmt::Result {
    writer.gauge("code_up", "Whether the other end takes packets", f64::from(u8::from(code.is_up)))?;
    writer.counter("code_sent_packets", "Packets sent to the other end", code.packets_to)?;
    writer.counter("code_sent_parity_packets", "Parity packets sent to the other end", code.parity_to)?;
    writer.counter(
        "code_received_packets",
        "Packets that came, restored ones included",
        code.packets_from,
    )?;
    writer.counter("code_restored_packets", "Lost packets that parity restored", code.restored_from)?;
    writer.counter("code_lost_packets", "Lost packets that parity did not restore", code.given_up_from)?;
    writer.gauge("code_loss_ratio", "Share of packets that the path to the other end loses", code.loss_to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverStats;
    use crate::operate::transfers::Record;
    use crate::security::{HopSuite, Sources};

    #[test]
    fn a_thousand_peers_make_a_bounded_number_of_series_and_none_is_left_out_of_the_sums() {
        let suite = HopSuite::new(&Sources::Insecure).unwrap();
        let listen = "[::]:4433".parse().unwrap();
        let mut status = Status::new("relay", listen, &suite, DriverStats::default(), &Record::default());
        let hop = |number: u16| starhop_proto::hop::Downstream {
            payload: 1350,
            addr: ([10, 0, 0, 1], number).into(),
            member: starhop_proto::peer::Member::default(),
            rate: starhop_proto::units::Rate::from_mbps(1),
            queued: 1,
            awaited: 0,
            flows: 1,
            carried: starhop_proto::hop::Carried { bytes: 1000, packets: 1, ..Default::default() },
            last_heard: crate::clock::now(),
        };
        status
            .add_peers((1..=1000).map(|number| Peer::downstream(crate::clock::now(), &hop(number), &suite)));
        assert_eq!(status.peer_count, 1000);
        let text = encode(status);
        let series: Vec<&str> =
            text.lines().filter(|line| line.starts_with("starhop_peer_bytes_total{")).collect();
        assert_eq!(series.len(), MOST_PEERS + 1);
        assert!(
            series.iter().any(|line| line.contains("peer=\"other\"") && line.ends_with(" 936000")),
            "{series:?}"
        );
    }
}
