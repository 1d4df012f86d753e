//! A gateway as its operator sees it: the sites that it speaks with, their users' connections and bytes, and its hops.

use super::{GatewayConfig, Shared};
use crate::clock;
use crate::driver::DriverStats;
use crate::operate::transfers::Record;
use crate::operate::{Accounts, CarriedPackets, Peer, Segments, Site, Status, UserFlow};
use starhop_proto::gateway::{PeerView, StreamView};

/// Users' connections in a status, at most.
const MOST_CONNECTIONS: usize = 100;

/// The state of a gateway whose sockets counted `sockets`.
pub(super) fn status(
    config: &GatewayConfig,
    shared: &Shared,
    sockets: DriverStats,
    record: &Record,
) -> Status {
    shared.look(|now, gateway| {
        let suite = gateway.suite();
        let mut status = Status::new("gateway", config.listen(), suite, sockets, record);
        status.add_peers(gateway.upstreams().map(|hop| Peer::upstream(now, &hop, suite)));
        status.add_peers(gateway.downstreams().map(|hop| Peer::downstream(now, &hop, suite)));
        let names = config.peer_names();
        status.passes = config.passes().then(|| shared.sockets.questions());
        status.sites = gateway
            .peer_views(now)
            .zip(names)
            .map(|(view, name)| Site {
                name: name.to_owned(),
                address: view.address,
                is_up: view.is_up,
                rtt_ms: view.rtt.map(|rtt| rtt.as_millis_f64()),
                connections: view.streams,
                sessions: view.sessions,
                user_bytes_to: view.account.to_peer,
                user_bytes_from: view.account.from_peer,
                packets: packets(&view),
                segments: None,
            })
            .collect();
        for (site, peer) in status.sites.iter_mut().zip(0..) {
            site.segments = gateway.segments(peer).map(|stats| Segments {
                sent: stats.segments,
                repeated: stats.retransmitted,
                timeouts: stats.timeouts,
            });
        }
        status.connections = gateway
            .stream_views()
            .take(MOST_CONNECTIONS)
            .map(|StreamView { id, opening, waiting }| UserFlow {
                from: opening.from,
                to: opening.to,
                site: status
                    .sites
                    .get(usize::from(id.peer))
                    .map(|site| site.name.clone())
                    .unwrap_or_default(),
                intercepted: id.ours,
                waiting_bytes: waiting as u64,
            })
            .collect();
        let stats = gateway.stats();
        status.connection_count = stats.streams as usize;
        status.accounts =
            Accounts { sent_bytes: stats.sent_bytes, repairs: gateway.repairs(), ..Accounts::default() };
        status.refuse("bad_datagrams", stats.bad_datagrams);
        status.refuse("bad_records", stats.bad_records);
        status.uptime_s = clock::now().since(record.started()).as_secs_f64();
        status
    })
}

fn packets(view: &PeerView) -> CarriedPackets {
    let carried = view.carried;
    CarriedPackets {
        flows: view.packet_flows,
        to: carried.sent_packets,
        bytes_to: carried.sent_bytes,
        from: carried.delivered_packets,
        bytes_from: carried.delivered_bytes,
        overdue: carried.overdue_packets,
        late: carried.late_packets,
        incomplete: carried.incomplete_packets,
        given_up_bytes: carried.given_up_bytes,
        refused: carried.refused_packets,
    }
}
