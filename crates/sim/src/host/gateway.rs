//! A gateway of a pair: it ends the users' TCP connections of its side and carries their bytes to its peer over the protocol,
//! with the very code that runs on Linux.

use super::agenda::Agenda;
use super::content::Pattern;
use super::hop::{Seals, SimSuite};
use super::tcp::{ReceiveBuffer, Receiver, Sender, TcpConfig};
use crate::engine::{Backlog, Body, Host, HostReport, TcpSegment};
use crate::record::SharedRecorder;
use starhop_proto::config::Config;
use starhop_proto::gateway::{
    Bond, Gateway, GatewayEvent, GatewaySettings, Opening, PeerSpec, PlainKey, Reason, StreamId,
};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::node::{Node, Transmit};
use starhop_proto::peer::Face;
use starhop_proto::split::SplitConfig;
use starhop_proto::time::Instant;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The most bytes of a stream that are handled at once.
const PIECE: u64 = 16 << 10;
/// The only peer of a gateway.
const PEER: u16 = 0;

/// Names and keys of a pair of gateways, by the pair's number and the side.
#[derive(Clone, Copy, Debug)]
struct Pair {
    number: u32,
    side: u8,
}

impl Bond for Pair {
    type Key = PlainKey;

    fn hello(&self, of_us: bool) -> [u8; 8] {
        let side = if of_us { self.side } else { 1 - self.side };
        ((u64::from(self.number) << 8) | u64::from(side)).to_be_bytes()
    }

    fn trunk(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, PlainKey) {
        let mut id = [0; FlowId::LEN];
        id[..8].copy_from_slice(&(producer ^ asker.rotate_left(17)).to_be_bytes());
        id[8..].copy_from_slice(&self.hello(ours));
        (FlowId(id), PlainKey(producer ^ asker))
    }

    fn segments(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, PlainKey) {
        let (mut flow, key) = self.trunk(ours, producer, asker);
        flow.0[8] |= 0x40;
        (flow, key)
    }

    fn packets(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, PlainKey) {
        let (mut flow, key) = self.trunk(ours, producer, asker);
        flow.0[8] |= 0x80;
        (flow, key)
    }
}

/// The end of a flow's connection at a gateway.
#[derive(Debug)]
enum End {
    /// TCP from the flow's server; the bytes that were given to the stream.
    Server { receiver: Box<Receiver>, buffer: ReceiveBuffer, server: SocketAddr, given: u64, is_timed: bool },
    /// TCP to the flow's client, whose socket holds so many bytes; the bytes that were taken from the stream, and those of its requests that were given.
    Client {
        sender: Box<Sender>,
        buffer: u64,
        client: Option<SocketAddr>,
        taken: u64,
        requested: u64,
        is_end: bool,
    },
}

impl End {
    /// The next segment, and where to.
    fn poll_transmit(&mut self, now: Instant) -> Option<(TcpSegment, SocketAddr)> {
        match self {
            Self::Server { receiver, server, .. } => Some((receiver.poll_transmit(now)?, *server)),
            Self::Client { sender, client, .. } => {
                let client = (*client)?;
                Some((sender.poll_transmit(now)?, client))
            }
        }
    }

    /// Time of the next timer.
    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Server { receiver, .. } => receiver.poll_timeout(),
            Self::Client { sender, .. } => sender.poll_timeout(),
        }
    }
}

/// A flow's connection.
#[derive(Debug)]
struct Line {
    content: FlowId,
    stream: Option<StreamId>,
    end: End,
}

/// A flow at the gateway near its server.
#[derive(Clone, Debug)]
pub struct ServedFlow {
    /// The flow, as the recorder numbers it.
    pub flow: u32,
    /// Its content.
    pub content: FlowId,
    /// TCP between gateways and users.
    pub tcp: TcpConfig,
    /// The side of the pair on which its server is: 0 or 1.
    pub server_side: u8,
    /// Address of its server.
    pub server: SocketAddr,
    /// Chooses the random numbers of its sender.
    pub seed: u64,
}

/// The place of a gateway in its pair.
#[derive(Clone, Copy, Debug)]
pub struct PairPlace {
    /// Number of the pair.
    pub pair: u32,
    /// The side: 0 or 1.
    pub side: u8,
    /// Address of the other gateway.
    pub peer: SocketAddr,
}

/// One of two gateways between which the connections of flows are split.
pub struct PairedGateway {
    gateway: Gateway<Pair, SimSuite>,
    lines: BTreeMap<u32, Line>,
    agenda: Agenda,
    by_stream: BTreeMap<StreamId, u32>,
    pattern: Pattern,
    recorder: SharedRecorder,
    bytes: Vec<u8>,
}

impl PairedGateway {
    /// A gateway for `flows`, which asks at most `window` bytes of its peer ahead, or has connections travel by rate.
    pub fn new(
        place: PairPlace,
        (config, window, by_rate): (&Config, u64, Option<SplitConfig>),
        (seals, seed): (Seals, u64),
        flows: &[ServedFlow],
        (recorder, pattern): (SharedRecorder, Pattern),
    ) -> Self {
        let bond = Pair { number: place.pair, side: 1 - place.side };
        let peer = PeerSpec { address: Some(place.peer), bond, by_rate };
        let settings = GatewaySettings { window, ..GatewaySettings::default() };
        let suite = seals.first(seed);
        let gateway = Gateway::new(seals.start(), config.clone(), settings, vec![peer], suite, seed);
        let lines =
            flows.iter().map(|flow| (flow.flow, Line::new(flow, flow.server_side == place.side))).collect();
        let (agenda, by_stream, bytes) = (Agenda::default(), BTreeMap::new(), Vec::new());
        Self { gateway, lines, agenda, by_stream, pattern, recorder, bytes }
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.gateway.poll_event() {
            match event {
                GatewayEvent::Opened { stream, opening } => self.on_opened(now, stream, opening),
                GatewayEvent::Readable { stream } | GatewayEvent::Writable { stream } => {
                    if let Some(flow) = self.by_stream.get(&stream).copied() {
                        self.serve(now, flow);
                    }
                }
                GatewayEvent::Reset { stream, .. } => {
                    let flow = self.by_stream.remove(&stream);
                    flow.map(|flow| self.lines.remove(&flow));
                }
                // Connections that came before the peer answered.
                GatewayEvent::Peer { .. } => {
                    let flows: Vec<u32> = self.lines.keys().copied().collect();
                    flows.into_iter().for_each(|flow| self.serve(now, flow));
                }
                GatewayEvent::Connected { .. } | GatewayEvent::NotByRate { .. } => {}
            }
        }
    }

    /// The peer's client wants a server on this side.
    fn on_opened(&mut self, now: Instant, stream: StreamId, opening: Opening) {
        let flow = flow_of(opening);
        match self.lines.get_mut(&flow) {
            Some(Line { stream: place, end: End::Server { receiver, .. }, .. }) => {
                *place = Some(stream);
                self.by_stream.insert(stream, flow);
                receiver.open(now);
                self.agenda.touch(flow);
            }
            _ => self.gateway.reset(stream, Reason::Refused),
        }
    }

    /// Passes on the bytes of a flow for which there is room.
    fn serve(&mut self, now: Instant, flow: u32) {
        self.agenda.touch(flow);
        let Some(line) = self.lines.get_mut(&flow) else { return };
        match line.end {
            End::Server { .. } => self.serve_server(now, flow),
            End::Client { .. } => self.serve_client(now, flow),
        }
    }

    fn serve_server(&mut self, now: Instant, flow: u32) {
        let Some(Line { content, stream: Some(stream), end }) = self.lines.get_mut(&flow) else { return };
        let End::Server { receiver, buffer, given, is_timed, .. } = end else { return };
        if let Some(rtt) = receiver.handshake_rtt().filter(|_| !*is_timed) {
            *is_timed = true;
            self.gateway.connected(*stream);
            self.gateway.set_user_rtt(*stream, rtt);
        }
        let (front, back) = self.gateway.readable(*stream);
        let requested = front.len() + back.len();
        if requested > 0 {
            receiver.request(now, requested as u32);
        }
        self.gateway.consume(now, *stream, requested);
        let before = *given;
        while receiver.next() > *given {
            let range = ByteRange::new(*given, receiver.next().min(*given + PIECE));
            self.bytes.clear();
            self.pattern.write(*content, range, &mut self.bytes);
            let taken = self.gateway.write(*stream, &self.bytes);
            *given += taken as u64;
            if taken < self.bytes.len() {
                break;
            }
        }
        if receiver.is_complete() && receiver.next() == *given {
            self.gateway.finish(*stream);
        }
        let rtt = receiver.handshake_rtt();
        buffer.bound(self.gateway.bound_of_socket(*stream, || rtt));
        buffer.on_read(now, *given - before, rtt.unwrap_or_default());
        receiver.open_room(buffer.window().saturating_sub(receiver.next() - *given));
    }

    fn serve_client(&mut self, now: Instant, flow: u32) {
        let Some(Line { content, stream, end }) = self.lines.get_mut(&flow) else { return };
        let End::Client { sender, buffer, taken, requested, is_end, .. } = end else { return };
        if stream.is_none() && sender.is_open() {
            *stream = self.gateway.open(now, PEER, opening_of(flow)).ok();
            stream.map(|stream| self.by_stream.insert(stream, flow));
        }
        let Some(stream) = *stream else { return };
        let questions = vec![0; sender.asked().saturating_sub(*requested) as usize];
        *requested += self.gateway.write(stream, &questions) as u64;
        while !*is_end && *taken - sender.acknowledged() < *buffer {
            let (front, back) = self.gateway.readable(stream);
            let (len, mut at) = (front.len() + back.len(), *taken);
            for piece in [front, back] {
                let range = ByteRange::new(at, at + piece.len() as u64);
                if !self.pattern.matches(*content, range, piece) {
                    let problem = format!("flow {flow}: wrong bytes in {range:?} at a gateway");
                    self.recorder.borrow_mut().on_problem(problem);
                }
                at = range.end;
            }
            *is_end = self.gateway.consume(now, stream, len);
            *taken += len as u64;
            sender.provide(*taken, *is_end);
            if len == 0 {
                break;
            }
        }
        if *is_end {
            self.gateway.finish(stream);
        }
    }
}

impl Line {
    fn new(spec: &ServedFlow, is_near_server: bool) -> Self {
        let ServedFlow { flow, content, ref tcp, server, seed, .. } = *spec;
        let end = if is_near_server {
            let mut receiver = Box::new(Receiver::new(tcp, flow, tcp.receive_window));
            let buffer = ReceiveBuffer::new(tcp.receive_window, tcp.mss);
            receiver.set_room(buffer.window());
            End::Server { receiver, buffer, server, given: 0, is_timed: false }
        } else {
            let sender = Box::new(Sender::new(tcp, flow, seed));
            let buffer = tcp.receive_window;
            End::Client { sender, buffer, client: None, taken: 0, requested: 0, is_end: false }
        };
        Self { content, stream: None, end }
    }
}

/// The flow's number travels as the target of its stream.
fn opening_of(flow: u32) -> Opening {
    let address = SocketAddr::from((Ipv4Addr::from(flow), 0));
    Opening { from: address, to: address, dscp: 0 }
}

fn flow_of(opening: Opening) -> u32 {
    match opening.to {
        SocketAddr::V4(address) => u32::from(*address.ip()),
        SocketAddr::V6(_) => u32::MAX,
    }
}

impl Host for PairedGateway {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        match body {
            Body::Datagram(bytes) => self.gateway.handle_datagram(now, face, bytes),
            Body::Tcp(segment) => {
                let flow = segment.flow;
                match self.lines.get_mut(&flow).map(|line| &mut line.end) {
                    Some(End::Server { receiver, .. }) => receiver.on_segment(now, segment, |_| ()),
                    Some(End::Client { sender, client, .. }) => {
                        *client = Some(face.remote);
                        sender.on_segment(now, segment);
                    }
                    None => return,
                }
                self.serve(now, flow);
            }
            Body::Segment(_) | Body::Split(_) | Body::Opaque(_) => {}
        }
        self.take_events(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.gateway.handle_timeout(now);
        while let Some(flow) = self.agenda.take_due(now) {
            if let Some(Line { end: End::Client { sender, .. }, .. }) = self.lines.get_mut(&flow) {
                sender.on_timeout(now);
            }
            self.agenda.touch(flow);
        }
        self.take_events(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        if let Body::Datagram(bytes) = out
            && let Some(Transmit { to, .. }) = self.gateway.poll_transmit(now, bytes)
        {
            return Some(to);
        }
        while let Some(flow) = self.agenda.first_touched() {
            let end = self.lines.get_mut(&flow).map(|line| &mut line.end);
            if let Some((segment, to)) = end.and_then(|end| end.poll_transmit(now)) {
                *out = Body::Tcp(Box::new(segment));
                return Some(to.into());
            }
            let next = self.lines.get(&flow).and_then(|line| line.end.poll_timeout());
            self.agenda.rest(flow, next);
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.next().into_iter().chain(self.gateway.poll_timeout()).min()
    }

    fn backlog(&self, flow: u32) -> Option<Backlog> {
        let held = match &self.lines.get(&flow)?.end {
            End::Server { receiver, given, .. } => receiver.next() - given,
            End::Client { sender, taken, .. } => taken - sender.acknowledged(),
        };
        Some(Backlog { unsent: held, held })
    }

    fn flow_report(&self, flow: u32) -> HostReport {
        match self.lines.get(&flow).map(|line| &line.end) {
            Some(End::Client { sender, .. }) => HostReport::Tcp(sender.stats()),
            _ => HostReport::Other,
        }
    }

    fn close(&mut self, _now: Instant, flow: u32) {
        if let Some(Line { stream: Some(stream), .. }) = self.lines.remove(&flow) {
            self.by_stream.remove(&stream);
            self.gateway.reset(stream, Reason::Reset);
        }
    }
}
