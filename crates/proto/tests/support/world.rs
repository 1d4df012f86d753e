//! Two gateways and a link in virtual time.

use super::line::Line;
use super::pair::{Pair, START, ms};
use starhop_proto::gateway::{Gateway, GatewayEvent, Opening, Reason, StreamId};
use starhop_proto::node::Node;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::BTreeMap;
use std::net::SocketAddr;

pub(crate) fn addr(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, side as u8], 4433))
}

pub(crate) fn target(port: u16) -> Opening {
    let from = SocketAddr::from(([192, 0, 2, 1], 50_000));
    Opening { from, to: SocketAddr::from(([198, 51, 100, 1], port)), dscp: 0 }
}

pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) gateways: [Gateway<Pair>; 2],
    /// Where they are; what is sent elsewhere is lost.
    pub(crate) places: [SocketAddr; 2],
    pub(crate) line: Line,
    pub(crate) events: [Vec<(Instant, GatewayEvent)>; 2],
    /// The bytes read of each stream, at each side; reading stops where `is_reading` is false.
    pub(crate) read: [BTreeMap<StreamId, (Vec<u8>, bool)>; 2],
    pub(crate) is_reading: bool,
}

impl World {
    pub(crate) fn of(gateways: [Gateway<Pair>; 2], link: (Duration, Rate, f64)) -> Self {
        Self {
            now: START,
            gateways,
            places: [addr(0), addr(1)],
            line: Line::new(link, 3),
            events: [Vec::new(), Vec::new()],
            read: [BTreeMap::new(), BTreeMap::new()],
            is_reading: true,
        }
    }

    pub(crate) fn settle(&mut self, side: usize) {
        loop {
            while let Some(event) = self.gateways[side].poll_event() {
                self.events[side].push((self.now, event));
                if let (GatewayEvent::Readable { stream }, true) = (event, self.is_reading) {
                    self.take(side, stream);
                }
            }
            let mut out = Vec::new();
            let Some(sent) = self.gateways[side].poll_transmit(self.now, &mut out) else { return };
            let is_there = sent.to.remote == self.places[1 - side];
            self.line.send(self.now, side, out, is_there);
        }
    }

    pub(crate) fn take(&mut self, side: usize, stream: StreamId) {
        let (front, back) = self.gateways[side].readable(stream);
        let bytes = [front, back].concat();
        let is_end = self.gateways[side].consume(self.now, stream, bytes.len());
        let read = self.read[side].entry(stream).or_default();
        read.0.extend(bytes);
        read.1 |= is_end;
    }

    pub(crate) fn run(&mut self, span: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + span;
        self.settle(0);
        self.settle(1);
        while !done(self) {
            let Some(next) = self.line.next(&self.gateways, self.now, end) else {
                self.now = end;
                return;
            };
            self.now = next;
            while let Some((to, mut datagram)) = self.line.take(next) {
                self.gateways[to].handle_datagram(next, self.places[1 - to].into(), &mut datagram);
            }
            for side in 0..2 {
                self.gateways[side].handle_timeout(next);
                self.settle(side);
            }
        }
    }

    pub(crate) fn open(&mut self, port: u16) -> StreamId {
        self.gateways[0].open(self.now, 0, target(port)).expect("the peer answers")
    }

    /// Writes all of `bytes`, as room comes, and ends the direction if so told.
    pub(crate) fn write(&mut self, side: usize, stream: StreamId, bytes: &[u8], finish: bool) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.gateways[side].write(stream, &bytes[at..]);
            if at < bytes.len() {
                self.run(ms(10), |_| false);
            }
        }
        if finish {
            self.gateways[side].finish(stream);
        }
    }

    pub(crate) fn is_read(&self, side: usize, stream: StreamId, expected: &[u8]) -> bool {
        self.read[side].get(&stream).is_some_and(|(bytes, is_end)| *is_end && bytes == expected)
    }

    pub(crate) fn resets(&self, side: usize) -> Vec<Reason> {
        let reason = |(_, event): &(Instant, GatewayEvent)| match event {
            GatewayEvent::Reset { reason, .. } => Some(*reason),
            _ => None,
        };
        self.events[side].iter().filter_map(reason).collect()
    }
}

/// As the other side calls it, where both count as many sessions.
pub(crate) fn mirrored(stream: StreamId) -> StreamId {
    StreamId { ours: !stream.ours, ..stream }
}
