//! The simulator's link in the hands of the emulator.

use starhop_net::emu::{self, Departures, TcpSegment};
use starhop_proto::peer::Incarnation;
use starhop_proto::rng::Rng;
use starhop_proto::security::{Direction, SealHeader};
use starhop_proto::time::{Duration, Instant};
use starhop_sim::link::{Link, LinkConfig, LinkCounters, Verdict};
use starhop_sim::run::Tuning;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A packet that a link lost: when, and its bytes.
pub(super) type Lost = (Instant, Vec<u8>);

/// An observation that a link reports about its packets.
pub(super) enum Witnessed {
    /// The link lost this packet.
    Lost(Lost),
    /// A requester uses this incarnation: replies to it are bound to that incarnation.
    Asker(Incarnation),
}

/// The model of one direction of a link.
pub(super) struct Model {
    link: Link,
    rng: Rng,
    /// Bytes of link layer that every packet has on top.
    header: u32,
    /// The machine's time at which the scenario's begins; until then nothing passes.
    epoch: Arc<OnceLock<Instant>>,
    is_link_up: bool,
    is_node_up: bool,
    witnessed: Sender<Witnessed>,
    askers: BTreeSet<Incarnation>,
    tally: Tally,
}

/// The state of one direction at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkState {
    pub(super) backlog: Duration,
    pub(super) counters: LinkCounters,
    pub(super) sent_bits: f64,
}

impl Model {
    pub(super) fn new(
        (config, header): (LinkConfig, u32),
        rng: Rng,
        epoch: Arc<OnceLock<Instant>>,
        witnessed: Sender<Witnessed>,
        tally: Tally,
    ) -> Self {
        let (is_link_up, is_node_up, askers) = (true, true, BTreeSet::new());
        Self { link: Link::new(config), rng, header, epoch, is_link_up, is_node_up, witnessed, askers, tally }
    }

    /// The link goes up or down. A link that goes down loses its queue, unless `keep`.
    pub(super) fn set_link_up(&mut self, at: Instant, is_up: bool, keep: bool) {
        self.is_link_up = is_up;
        if !is_up && !keep {
            self.link.reset(at);
        }
    }

    /// The link becomes another.
    pub(super) fn tune(&mut self, at: Instant, tuning: Tuning) {
        tuning.apply(&mut self.link, at);
    }

    /// A node at one end goes up or down.
    pub(super) fn set_node_up(&mut self, at: Instant, is_up: bool) {
        self.is_node_up = is_up;
        if !is_up {
            self.link.reset(at);
        }
    }

    pub(super) fn state(&self, at: Instant) -> LinkState {
        LinkState {
            backlog: self.link.backlog(at),
            counters: self.link.counters(),
            sent_bits: self.link.bits_sent(at),
        }
    }

    fn lose(&self, at: Instant, packet: &[u8]) -> emu::Verdict {
        // The receiver is gone once the run is over.
        let _ = self.witnessed.send(Witnessed::Lost((at, packet.to_vec())));
        emu::Verdict::Lost
    }
}

impl Model {
    fn note_asker(&mut self, packet: &[u8]) {
        let header = datagram_of(packet).and_then(SealHeader::parse);
        let asker =
            header.filter(|header| header.direction == Direction::Request).map(|header| header.sender);
        if let Some(asker) = asker.filter(|asker| self.askers.insert(*asker)) {
            let _ = self.witnessed.send(Witnessed::Asker(asker));
        }
    }
}

/// The UDP datagram of an IP packet (RFC 791, RFC 8200 without extension headers).
pub(super) fn datagram_of(packet: &[u8]) -> Option<&[u8]> {
    const UDP: u8 = 17;
    let header = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&UDP) => usize::from(packet[0] & 15) * 4,
        6 if packet.get(6) == Some(&UDP) => 40,
        _ => return None,
    };
    packet.get(header + 8..)
}

/// A packet of IPv6 to a group (RFC 4291, section 2.7): kernels tell their neighbours what groups they listen to, a few times
/// after a device came up. No flow has such packets.
fn is_announcement(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6) && packet.get(24) == Some(&0xff)
}

impl emu::Link for Model {
    fn send(&mut self, now: Instant, packet: &[u8]) -> emu::Verdict {
        let Some(&epoch) = self.epoch.get() else { return emu::Verdict::Lost };
        let at = Instant::ZERO + now.since(epoch);
        if !self.is_link_up || !self.is_node_up {
            return self.lose(at, packet);
        }
        if is_announcement(packet) {
            // The scenario knows nothing of it: it takes neither the link nor the random numbers of its packets.
            return emu::Verdict::Arrives(emu::Arrival::at(now));
        }
        self.tally.count(at, packet);
        self.note_asker(packet);
        match self.link.send(at, packet.len() as u32 + self.header, &mut self.rng) {
            Verdict::Dropped => emu::Verdict::Dropped,
            Verdict::Lost => self.lose(at, packet),
            Verdict::Arrives(arrival) => emu::Verdict::Arrives(emu::Arrival {
                at: epoch + arrival.at.since(Instant::ZERO),
                is_doubled: arrival.is_doubled,
                is_damaged: arrival.is_damaged,
            }),
        }
    }
}

/// Bytes that a flow of the kernel's TCP sent, counted where they leave its hosts.
#[derive(Debug, Default)]
pub(super) struct TcpBytes {
    /// Payload that the server sent, repairs included.
    pub(super) source: AtomicU64,
    /// IP packets that the client sent.
    pub(super) back: AtomicU64,
    /// The times at which bytes left the server for the first time, in the scenario's time.
    pub(super) departures: Mutex<Departures>,
}

/// The flows of TCP that begin or end at the near end of a direction, by the port of their server.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) served: BTreeMap<u16, Arc<TcpBytes>>,
    pub(super) fetched: BTreeMap<u16, Arc<TcpBytes>>,
}

impl Tally {
    fn count(&self, at: Instant, packet: &[u8]) {
        if self.served.is_empty() && self.fetched.is_empty() {
            return;
        }
        let Some(segment) = TcpSegment::parse(packet) else { return };
        if let Some(bytes) = self.served.get(&segment.from) {
            bytes.source.fetch_add(u64::from(segment.payload), Ordering::Relaxed);
            bytes.departures.lock().unwrap_or_else(PoisonError::into_inner).on_segment(at, &segment);
        }
        if let Some(bytes) = self.fetched.get(&segment.to) {
            bytes.back.fetch_add(packet.len() as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::units::Rate;
    use starhop_sim::link::LossModel;

    #[test]
    fn what_kernels_announce_changes_no_flow() {
        let fates = |announcements: bool| {
            let ideal = LinkConfig::ideal(Rate::from_mbps(10), Duration::from_millis(5));
            let config = LinkConfig { loss: LossModel::Bernoulli(0.5), ..ideal };
            let epoch = Arc::new(OnceLock::from(Instant::ZERO));
            let (witnessed, _told) = std::sync::mpsc::channel();
            let mut model = Model::new((config, 0), Rng::new(1), epoch, witnessed, Tally::default());
            let mut announcement = [0; 76];
            (announcement[0], announcement[24]) = (0x60, 0xff);
            let send = |packet: &[u8], model: &mut Model| emu::Link::send(model, Instant::ZERO, packet);
            let fate = |_| {
                let arrived = emu::Verdict::Arrives(emu::Arrival::at(Instant::ZERO));
                assert!(!announcements || send(&announcement, &mut model) == arrived);
                send(&[0x45; 100], &mut model)
            };
            (0..50).map(fate).collect::<Vec<_>>()
        };
        assert_eq!(fates(true), fates(false));
        assert!(fates(true).contains(&emu::Verdict::Lost));
    }

    #[test]
    fn the_server_is_told_of_payload_and_the_client_of_packets() {
        let mut packet = vec![0; 20 + 32 + 100];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[20..22].copy_from_slice(&5001u16.to_be_bytes());
        packet[22..24].copy_from_slice(&5002u16.to_be_bytes());
        packet[32] = 8 << 4;
        let bytes = [5001, 5002].map(|port| (port, Arc::new(TcpBytes::default())));
        let both = BTreeMap::from(bytes.clone());
        let tally = Tally { served: both.clone(), fetched: both };
        tally.count(Instant::ZERO, &packet);
        packet[9] = 17;
        tally.count(Instant::ZERO, &packet);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!((read(&bytes[0].1.source), read(&bytes[0].1.back)), (100, 0));
        assert_eq!((read(&bytes[1].1.source), read(&bytes[1].1.back)), (0, 152));
    }
}
