//! The gateway: it ends the TCP connections of servers and begins those over the satellite.

use super::largest_buffer;
use crate::engine::{Backlog, Body, Host, HostReport, TcpStats};
use crate::host::tcp::{Receiver, TcpConfig};
use starhop_proto::name::ByteRange;
use starhop_proto::peer::Face;
use starhop_proto::split::{ConnectionId, Gateway, Heard, Segment, SenderStats, SplitConfig};
use starhop_proto::time::Instant;
use starhop_proto::units::Rate;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A connection that a gateway is to serve.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// The flow, as the recorder numbers it.
    pub flow: u32,
    /// Address of its server.
    pub server: SocketAddr,
    /// TCP towards the server.
    pub terrestrial: TcpConfig,
    /// The connection over the satellite.
    pub satellite: SplitConfig,
}

/// The TCP side of a connection.
#[derive(Debug)]
struct Terrestrial {
    receiver: Receiver,
    server: SocketAddr,
    client: Option<SocketAddr>,
    is_timed: bool,
}

/// All connections of a satellite link at its gateway. The payload that it would keep is a length in this world.
#[derive(Debug)]
pub struct GatewayHost {
    gateway: Gateway,
    connections: BTreeMap<u32, Terrestrial>,
    /// Final counters of connections that are over.
    counted: BTreeMap<u32, SenderStats>,
    released: Vec<ByteRange>,
}

impl GatewayHost {
    /// A gateway to a satellite of `rate`, whose link adds `framing` bytes to every IP packet.
    pub fn new(rate: Rate, framing: u32, upstreams: &[Upstream]) -> Self {
        let mut gateway = Gateway::new(rate, framing);
        let connect = |upstream: &Upstream| {
            gateway.listen(ConnectionId(upstream.flow.into()), &upstream.satellite);
            let bound = largest_buffer(&upstream.satellite);
            let mut receiver = Receiver::new(&upstream.terrestrial, upstream.flow, bound);
            // The buffer is sized when both round trips are known: until then the server gets room for two
            // segments.
            receiver.set_room(2 * u64::from(upstream.terrestrial.mss));
            let (server, client, is_timed) = (upstream.server, None, false);
            (upstream.flow, Terrestrial { receiver, server, client, is_timed })
        };
        let connections = upstreams.iter().map(connect).collect();
        Self { gateway, connections, counted: BTreeMap::new(), released: Vec::new() }
    }

    fn on_client(&mut self, now: Instant, from: SocketAddr, segment: &Segment) {
        let Ok(flow) = u32::try_from(segment.connection.0) else { return };
        let Some(connection) = self.connections.get_mut(&flow) else { return };
        connection.client = Some(from);
        self.released.clear();
        if self.gateway.on_segment(now, segment, &mut self.released) == Heard::Opened {
            connection.receiver.open(now);
        }
        // The client's requests go on to the server.
        let more = self.gateway.asked(segment.connection).saturating_sub(connection.receiver.asked());
        if more > 0 {
            connection.receiver.request(now, more as u32);
        }
        self.tell_room(flow);
        if self.gateway.is_done(segment.connection) {
            self.end(flow);
        }
    }

    /// The satellite part is over. Further segments of the server are answered.
    fn end(&mut self, flow: u32) {
        let id = ConnectionId(flow.into());
        self.counted.entry(flow).or_insert_with(|| self.gateway.stats(id));
        self.gateway.close(id);
    }

    /// The window of a server opens as the client's acknowledgements free the buffer, paced.
    fn tell_room(&mut self, flow: u32) {
        if let Some(connection) = self.connections.get_mut(&flow).filter(|connection| connection.is_timed) {
            connection.receiver.open_room(self.gateway.room(ConnectionId(flow.into())));
        }
    }
}

impl Host for GatewayHost {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        match body {
            Body::Split(segment) => self.on_client(now, face.remote, segment),
            Body::Tcp(segment) => {
                let flow = segment.flow;
                let Some(connection) = self.connections.get_mut(&flow) else { return };
                let (id, receiver) = (ConnectionId(flow.into()), &mut connection.receiver);
                receiver.on_segment(now, segment, |_| ());
                if let Some(rtt) = receiver.handshake_rtt().filter(|_| !connection.is_timed) {
                    connection.is_timed = true;
                    self.gateway.on_server_rtt(id, rtt);
                }
                self.gateway.give(now, id, receiver.next(), receiver.is_complete());
                self.tell_room(flow);
            }
            Body::Datagram(_) | Body::Segment(_) | Body::Opaque(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut woken = Vec::new();
        self.gateway.on_timeout(now, &mut woken);
        woken.into_iter().for_each(|connection| self.tell_room(connection.0 as u32));
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        for connection in self.connections.values_mut() {
            if let Some(segment) = connection.receiver.poll_transmit(now) {
                *out = Body::Tcp(Box::new(segment));
                return Some(connection.server.into());
            }
        }
        let segment = self.gateway.poll(now)?;
        let client = self.connections.get(&(segment.connection.0 as u32))?.client?;
        *out = Body::Split(Box::new(segment));
        Some(client.into())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let terrestrial = self.connections.values().filter_map(|c| c.receiver.poll_timeout());
        terrestrial.chain(self.gateway.poll_timeout()).min()
    }

    fn backlog(&self, flow: u32) -> Option<Backlog> {
        let backlog = self.gateway.backlog(ConnectionId(flow.into()));
        Some(Backlog { unsent: backlog.unsent, held: backlog.held })
    }

    fn flow_report(&self, flow: u32) -> HostReport {
        let counted = self.counted.get(&flow).copied();
        let stats = counted.unwrap_or_else(|| self.gateway.stats(ConnectionId(flow.into())));
        let SenderStats { segments, retransmitted, timeouts } = stats;
        HostReport::Tcp(TcpStats { segments, retransmitted, timeouts, ..TcpStats::default() })
    }

    fn close(&mut self, _now: Instant, flow: u32) {
        self.end(flow);
        self.connections.remove(&flow);
    }
}
