//! Encoder and decoder together, over paths that lose.

use super::*;
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// Bytes that cannot be told from ciphertext.
fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Gilbert's channel.
struct Channel {
    rng: Rng,
    share: f64,
    burst: f64,
    is_bad: bool,
}

impl Channel {
    fn new(share: f64, burst: f64) -> Self {
        Self { rng: Rng::new(11), share, burst, is_bad: false }
    }

    fn loses(&mut self) -> bool {
        let to_bad = self.share / (1.0 - self.share) / self.burst;
        self.is_bad = if self.is_bad { !self.rng.chance(1.0 / self.burst) } else { self.rng.chance(to_bad) };
        self.is_bad
    }
}

struct Pair {
    encoder: FecEncoder,
    decoder: FecDecoder,
    channel: Channel,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    handed_on: Vec<Vec<u8>>,
}

/// The one-way delay of the path.
const WAY: Duration = Duration::from_millis(10);

impl Pair {
    fn new(settings: FecSettings, channel: Channel) -> Self {
        let config = FecConfig::new(settings).unwrap_or_default();
        let (encoder, decoder) = (FecEncoder::new(config), FecDecoder::new(config));
        Self { encoder, decoder, channel, under_way: VecDeque::new(), handed_on: Vec::new() }
    }

    fn send(&mut self, now: Instant, packet: Vec<u8>) {
        self.encoder.on_packet(now, packet);
        self.pass(now);
    }

    fn pass(&mut self, now: Instant) {
        self.encoder.on_timeout(now);
        while let Some(frame) = self.encoder.poll_transmit() {
            if !self.channel.loses() {
                self.under_way.push_back((now + WAY, frame));
            }
        }
        while let Some((_, frame)) = self.under_way.pop_front_if(|(at, _)| *at <= now) {
            self.decoder.on_frame(now, &frame).expect("a frame of the encoder");
        }
        self.decoder.on_timeout(now);
        self.handed_on.extend(core::iter::from_fn(|| self.decoder.poll_packet()));
        if let Some(report) = self.decoder.poll_report(now)
            && let Ok(FecFrame::Report(report)) = FecFrame::parse(&report)
        {
            self.encoder.on_report(report);
        }
    }

    /// One packet per millisecond, and time for the last to arrive.
    fn run(&mut self, packets: &[Vec<u8>]) {
        for (index, packet) in packets.iter().enumerate() {
            self.send(at(index as u64), packet.clone());
        }
        (0..1000).for_each(|more| self.pass(at(packets.len() as u64 + more)));
    }
}

fn packets(count: usize) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(5);
    (0..count)
        .map(|_| {
            let len = 40 + rng.below(1400) as usize;
            noise(&mut rng, len)
        })
        .collect()
}

#[test]
fn losses_of_two_percent_are_repaired_byte_for_byte_and_in_order() {
    let sent = packets(20_000);
    let mut pair = Pair::new(FecSettings::default(), Channel::new(0.02, 1.0));
    pair.run(&sent);
    let stats = pair.decoder.stats();
    assert!(stats.repaired > 300, "{stats:?}");
    assert!(stats.given_up <= 2, "{stats:?}");
    assert_eq!(pair.handed_on.len() as u64 + stats.given_up, 20_000);
    let mut rest = sent.iter();
    assert!(pair.handed_on.iter().all(|packet| rest.any(|other| other == packet)), "out of order or changed");
    let encoder = pair.encoder.stats();
    let overhead = encoder.parity as f64 / encoder.packets as f64;
    assert!((0.05..0.35).contains(&overhead), "{overhead}");
}

#[test]
fn parity_follows_the_measured_loss() {
    let overhead = |share, burst| {
        let mut pair = Pair::new(FecSettings::default(), Channel::new(share, burst));
        pair.run(&packets(20_000));
        let (plan, stats) = (pair.encoder.plan(), pair.decoder.stats());
        let left = stats.given_up as f64 / 20_000.0;
        assert!(left < 1e-3, "{share} {burst}: {left} of all packets stayed lost");
        f64::from(plan.parity(plan.block())) / f64::from(plan.block())
    };
    let [none, some, much] = [0.0, 0.005, 0.03].map(|share| overhead(share, 1.0));
    assert!(none < 0.04 && none < some && some < much && much < 0.5, "{none} {some} {much}");
    assert!(overhead(0.005, 3.0) > some);
}

#[test]
fn a_whole_run_of_blocks_may_vanish_and_the_rest_goes_on() {
    let sent = packets(400);
    let mut pair = Pair::new(FecSettings::default(), Channel::new(0.0, 1.0));
    for (index, packet) in sent.iter().enumerate() {
        pair.channel.share = if (100..300).contains(&index) { 0.999_999 } else { 0.0 };
        pair.channel.is_bad = (100..300).contains(&index);
        pair.channel.burst = 1e9;
        pair.send(at(index as u64), packet.clone());
    }
    pair.channel.is_bad = false;
    (400..1000).for_each(|now| pair.pass(at(now)));
    assert_eq!(pair.handed_on[..90], sent[..90]);
    assert_eq!(pair.handed_on[pair.handed_on.len() - 60..], sent[340..]);
    let lost = 400 - pair.handed_on.len() as u64;
    assert_eq!(pair.decoder.stats().given_up, lost);
    // All blocks but the last are counted.
    let report = pair.decoder.report();
    assert!(report.packets > 330 && (195..=210).contains(&report.lost) && report.runs <= 3, "{report:?}");
}

#[test]
fn a_packet_waits_for_a_gap_no_longer_than_it_may() {
    // No parity: a gap is given up when a packet of the next block is there, and the path cannot have reordered.
    let settings = FecSettings { first_guess: 0.0, residual: 0.9, most_block: 4, ..FecSettings::default() };
    let mut decoder = FecDecoder::new(FecConfig::new(settings).unwrap_or_default());
    let frame = |number: u32| {
        FecFrame::Packet { number, place: (number % 4) as u8, packet: &[number as u8] }.to_bytes()
    };
    for number in [0, 1, 3] {
        decoder.on_frame(at(u64::from(number)), &frame(number)).expect("a frame");
    }
    let handed_on = |decoder: &mut FecDecoder| {
        core::iter::from_fn(|| decoder.poll_packet()).flatten().collect::<Vec<u8>>()
    };
    assert_eq!(handed_on(&mut decoder), [0, 1]);
    // 3 came at 3 ms and waits for 2: for 120 ms at most, but 4 comes at 20 ms.
    decoder.on_frame(at(20), &frame(4)).expect("a frame");
    decoder.on_timeout(at(29));
    assert_eq!(handed_on(&mut decoder), []);
    decoder.on_timeout(at(30));
    assert_eq!(handed_on(&mut decoder), [3, 4]);
    // The one that was given up is welcome all the same, and once.
    decoder.on_frame(at(40), &frame(2)).expect("a frame");
    decoder.on_frame(at(41), &frame(2)).expect("a frame");
    assert_eq!(handed_on(&mut decoder), [2]);
}

#[test]
fn an_encoder_that_starts_again_is_understood() {
    let config = FecConfig::default();
    let mut decoder = FecDecoder::new(config);
    for (life, start) in [(0, 0_u64), (1, 5000)] {
        let mut encoder = FecEncoder::new(config);
        // A life is longer than any leap of numbers within one.
        let count = if life == 0 { 70_000 } else { 10 };
        for _ in 0..count {
            encoder.on_packet(at(start), alloc::vec![life]);
            while let Some(frame) = encoder.poll_transmit() {
                decoder.on_frame(at(start), &frame).expect("a frame");
            }
        }
    }
    assert_eq!(decoder.stats().packets, 70_010);
}

proptest! {
    #[test]
    fn whatever_comes_nothing_is_handed_on_twice_and_memory_is_bounded(
        frames in proptest::collection::vec((0..300_u32, 0..6_u8, 1..4_u8), 1..400),
    ) {
        let mut decoder = FecDecoder::new(FecConfig::default());
        let mut handed_on = Vec::new();
        for (index, (number, place, parity)) in frames.into_iter().enumerate() {
            let now = at(index as u64 * 7);
            let packet = number.to_be_bytes();
            let shard = [0; 6];
            let frame = if place < 4 {
                FecFrame::Packet { number, place: (number % 8) as u8, packet: &packet }
            } else {
                FecFrame::Parity { first: number / 8 * 8, packets: 8, parity, place: parity - 1, shard: &shard }
            };
            let _ = decoder.on_frame(now, &frame.to_bytes());
            decoder.on_timeout(now);
            handed_on.extend(core::iter::from_fn(|| decoder.poll_packet()));
        }
        // Made-up parity repairs to made-up packets; those that came are handed on once each.
        let mut real: Vec<&Vec<u8>> = handed_on.iter().filter(|packet| packet.len() == 4).collect();
        real.sort();
        let count = real.len();
        real.dedup();
        prop_assert_eq!(count, real.len());
    }
}
