//! Both halves against each other, over a path that loses, doubles and reorders.

use super::config::TcpSettings;
use super::congestion::Control;
use super::receiver::Receiver;
use super::sender::Sender;
use super::{LossDetection, TcpConfig};
use crate::engine::{TcpKind, TcpSegment};
use starhop_proto::name::{ByteRange, RangeSet};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use std::collections::BTreeMap;

const MSS: u64 = 1448;

fn config(control: &str, change: impl FnOnce(&mut TcpSettings)) -> TcpConfig {
    let mut settings = TcpSettings::new(Control::named(control).unwrap_or_else(|| panic!("{control}")));
    change(&mut settings);
    TcpConfig::new(settings).unwrap_or_else(|e| panic!("{e:?}"))
}

#[derive(Clone, Copy)]
struct Faults {
    loss: f64,
    duplicate: f64,
    reorder: f64,
}

/// A path of 20 ms each way.
struct Path {
    faults: Faults,
    rng: Rng,
    count: u64,
    under_way: BTreeMap<(Instant, u64), (bool, TcpSegment)>,
}

impl Path {
    fn put(&mut self, now: Instant, is_forward: bool, segment: &TcpSegment) {
        let copies = 1 + u32::from(self.rng.chance(self.faults.duplicate));
        for _ in 0..copies {
            if self.rng.chance(self.faults.loss) {
                continue;
            }
            let late = if self.rng.chance(self.faults.reorder) { self.rng.below(30_000_000) } else { 0 };
            let at = now + Duration::from_nanos(20_000_000 + late);
            self.count += 1;
            self.under_way.insert((at, self.count), (is_forward, segment.clone()));
        }
    }
}

/// Transfers `bytes`; returns the ranges that the application got, and the time of the end.
fn transfer(config: &TcpConfig, bytes: u64, faults: Faults, seed: u64) -> (RangeSet, Instant) {
    let mut sender = Sender::new(config, 0, seed);
    sender.provide(bytes, true);
    let mut receiver = Receiver::new(config, 0, config.receive_window);
    let mut path = Path { faults, rng: Rng::new(seed), count: 0, under_way: BTreeMap::new() };
    let (mut got, mut now) = (RangeSet::new(), Instant::ZERO);
    receiver.open(now);
    while !receiver.is_complete() {
        while let Some(segment) = receiver.poll_transmit(now) {
            path.put(now, false, &segment);
        }
        while let Some(segment) = sender.poll_transmit(now) {
            path.put(now, true, &segment);
        }
        let arrival = path.under_way.first_key_value().map(|((at, _), _)| *at);
        let next = arrival.into_iter().chain(sender.poll_timeout()).chain(receiver.poll_timeout()).min();
        now = next.unwrap_or_else(|| panic!("seed {seed}: nothing will ever happen")).max(now);
        assert!(
            now < Instant::ZERO + Duration::from_secs(3600),
            "seed {seed}: stuck with {sender:?} {receiver:?}"
        );
        sender.on_timeout(now);
        while let Some(entry) = path.under_way.first_entry()
            && entry.key().0 <= now
        {
            let (is_forward, segment) = entry.remove();
            if !is_forward {
                sender.on_segment(now, &segment);
                continue;
            }
            receiver.on_segment(now, &segment, |range: ByteRange| {
                assert!(!got.overlaps(range), "seed {seed}: {range:?} twice");
                got.insert(range);
            });
        }
    }
    (got, now)
}

#[test]
fn every_byte_arrives_exactly_once_whatever_the_path_does() {
    let bytes = 300 * MSS + 700;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let faults =
            Faults { loss: rng.unit() * 0.3, duplicate: rng.unit() * 0.2, reorder: rng.unit() * 0.3 };
        let detection = if seed % 2 == 0 { LossDetection::Rack } else { LossDetection::DupAck };
        let control = if seed % 3 == 0 { "cubic" } else { "newreno" };
        let config = config(control, |s| {
            s.loss_detection = detection;
            s.receive_window = 20_000 + rng.below(200_000);
            s.pacing = rng.chance(0.3);
            s.ack_every = 1 + rng.below(4) as u32;
        });
        let (got, _) = transfer(&config, bytes, faults, seed);
        assert_eq!(got.iter().collect::<Vec<_>>(), [ByteRange::new(0, bytes)], "seed {seed}");
    }
}

const CLEAN: Faults = Faults { loss: 0.0, duplicate: 0.0, reorder: 0.0 };

#[test]
fn a_short_transfer_pays_for_its_handshake() {
    let bytes = 10 * MSS;
    let with = transfer(&config("newreno", |_| ()), bytes, CLEAN, 1).1;
    // SYN, SYN-ACK, request, data: two round trips of 40 ms.
    assert_eq!(with, Instant::ZERO + Duration::from_millis(80));
    // Thirty segments: 10, then 20 a round trip later.
    let longer = transfer(&config("newreno", |_| ()), 3 * bytes, CLEAN, 1).1;
    assert_eq!(longer.since(with), Duration::from_millis(40));
}

#[test]
fn a_lost_syn_costs_a_second() {
    let config = config("newreno", |_| ());
    let mut receiver = Receiver::new(&config, 0, 1 << 20);
    receiver.open(Instant::ZERO);
    assert!(receiver.poll_transmit(Instant::ZERO).is_some_and(|s| s.kind == TcpKind::Syn));
    assert_eq!(receiver.poll_timeout(), Some(Instant::ZERO + Duration::from_secs(1)));
    let again = Instant::ZERO + Duration::from_secs(1);
    assert!(receiver.poll_transmit(again).is_some_and(|s| s.kind == TcpKind::Syn));
    assert_eq!(receiver.poll_timeout(), Some(again + Duration::from_secs(2)));
}

fn data(seq: u64) -> TcpSegment {
    TcpSegment { kind: TcpKind::Data, len: MSS as u32, seq: seq * MSS, ..TcpSegment::default() }
}

/// A receiver that has got over the quick acknowledgements of the start, and has everything below 32.
fn receiver(change: impl FnOnce(&mut TcpSettings)) -> Receiver {
    let config = config("newreno", |s| {
        s.handshake = false;
        change(s);
    });
    let mut receiver = Receiver::new(&config, 0, config.receive_window);
    receiver.open(Instant::ZERO);
    for seq in 0..32 {
        receiver.on_segment(Instant::ZERO, &data(seq), |_| ());
        let acks = std::iter::from_fn(|| receiver.poll_transmit(Instant::ZERO)).count();
        assert!(seq >= 16 || acks == 1, "the first segments are acknowledged one by one");
    }
    receiver
}

#[test]
fn the_second_segment_is_acknowledged_at_once_and_a_single_one_after_40_ms() {
    let mut receiver = receiver(|_| ());
    let now = Instant::ZERO + Duration::from_millis(5);
    receiver.on_segment(now, &data(32), |_| ());
    assert!(receiver.poll_transmit(now).is_none());
    let due = now + Duration::from_millis(40);
    assert_eq!(receiver.poll_timeout(), Some(due));
    receiver.on_segment(now, &data(33), |_| ());
    assert!(receiver.poll_transmit(now).is_some_and(|s| s.ack == 34 * MSS));
    receiver.on_segment(now, &data(34), |_| ());
    assert!(receiver.poll_transmit(due).is_some_and(|s| s.ack == 35 * MSS));
}

#[test]
fn every_eighth_segment_when_told_so() {
    let mut receiver = receiver(|s| s.ack_every = 8);
    let acks = (32..96).filter(|&seq| {
        receiver.on_segment(Instant::ZERO, &data(seq), |_| ());
        receiver.poll_transmit(Instant::ZERO).is_some()
    });
    assert_eq!(acks.count(), 8);
}

#[test]
fn what_is_out_of_order_is_reported_at_once_the_latest_first() {
    let mut receiver = receiver(|_| ());
    let mut arrive = |seq| {
        receiver.on_segment(Instant::ZERO, &data(seq), |_| ());
        let ack =
            receiver.poll_transmit(Instant::ZERO).unwrap_or_else(|| panic!("{seq} is not acknowledged"));
        let blocks: Vec<(u64, u64)> =
            ack.sack.as_slice().iter().map(|block| (block.start / MSS, block.end / MSS)).collect();
        (ack.ack / MSS, ack.has_dsack, blocks)
    };
    assert_eq!(arrive(33), (32, false, vec![(33, 34)]));
    assert_eq!(arrive(36), (32, false, vec![(36, 37), (33, 34)]));
    assert_eq!(arrive(34), (32, false, vec![(33, 35), (36, 37)]));
    assert_eq!(arrive(36), (32, true, vec![(36, 37), (33, 35), (36, 37)]));
    // A filled hole is acknowledged at once, and so is a segment that arrived twice.
    assert_eq!(arrive(32), (35, false, vec![(36, 37)]));
    assert_eq!(arrive(3), (35, true, vec![(3, 4), (36, 37)]));
}

#[test]
fn a_window_that_was_shut_is_opened_without_being_asked() {
    let mut receiver = receiver(|s| s.receive_window = 64_000);
    receiver.set_room(0);
    let mut last = 0;
    for seq in 32..80 {
        receiver.on_segment(Instant::ZERO, &data(seq), |_| ());
        receiver.set_room(0);
        while let Some(ack) = receiver.poll_transmit(Instant::ZERO) {
            last = ack.ack + ack.window;
        }
    }
    // The receiver took the window that it had promised, and not a byte more.
    assert!(receiver.next() <= last && last - receiver.next() < MSS, "{} of {last}", receiver.next());
    receiver.set_room(MSS);
    assert!(receiver.poll_transmit(Instant::ZERO).is_none());
    receiver.set_room(10 * MSS);
    assert!(receiver.poll_transmit(Instant::ZERO).is_some_and(|ack| ack.window >= 9 * MSS));
}

/// The segments of questions that leave at this time, as the bytes asked with in all and those of the segment.
fn questions(receiver: &mut Receiver, now: Instant) -> Vec<(u64, u32)> {
    let segments = std::iter::from_fn(|| receiver.poll_transmit(now));
    segments.filter(|segment| segment.len > 0).map(|segment| (segment.seq, segment.len)).collect()
}

#[test]
fn more_of_a_question_leaves_at_once_and_is_repeated_with_the_rest() {
    let mut receiver = receiver(|_| ());
    let (asked_at, more_at) =
        (Instant::ZERO + Duration::from_secs(1), Instant::ZERO + Duration::from_millis(1_001));
    receiver.request(asked_at, 296);
    assert_eq!(questions(&mut receiver, asked_at), [(296, 296)]);
    receiver.request(more_at, 204);
    assert_eq!(questions(&mut receiver, more_at), [(500, 500)]);
}

/// Ten questions were answered, and the eleventh is lost.
#[test]
fn a_question_is_repeated_after_the_same_time_however_many_were_answered() {
    let mut receiver = receiver(|_| ());
    let mut now = Instant::ZERO + Duration::from_secs(1);
    for seq in 32..42 {
        receiver.request(now, 500);
        assert_eq!(questions(&mut receiver, now).len(), 1);
        now += Duration::from_millis(10);
        receiver.on_segment(now, &data(seq), |_| ());
    }
    receiver.request(now, 500);
    assert_eq!(questions(&mut receiver, now), [(5_500, 500)]);
    let repeated = receiver.poll_timeout().expect("a timer");
    assert!(repeated.since(now) <= Duration::from_secs(1), "{:?}", repeated.since(now));
}
