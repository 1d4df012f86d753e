//! Every mechanism of the sender alone, driven by acknowledgements written by hand.

use super::super::config::TcpSettings;
use super::super::congestion::Control;
use super::*;
use crate::engine::SackBlocks;
use starhop_proto::name::ByteRange;

const MSS: u64 = 1448;

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn config(change: impl FnOnce(&mut TcpSettings)) -> TcpConfig {
    let mut settings = TcpSettings::new(Control::named("newreno").unwrap_or_else(|| panic!("newreno")));
    change(&mut settings);
    TcpConfig::new(settings).unwrap_or_else(|e| panic!("{e:?}"))
}

/// An open sender with `segments` segments to send, whose window is `window`.
fn sender(segments: u64, window: u32, change: impl FnOnce(&mut TcpSettings)) -> Sender {
    let config = config(|settings| {
        settings.initial_window = window;
        change(settings);
    });
    let mut sender = Sender::new(&config, 0, 1);
    sender.provide(segments * MSS, true);
    sender.open();
    sender
}

/// The numbers of the segments that leave now.
fn sent(sender: &mut Sender, now: Instant) -> Vec<u64> {
    std::iter::from_fn(|| sender.poll_transmit(now)).map(|segment| segment.seq / MSS).collect()
}

/// An acknowledgement of everything below segment `ack`, and of the segments `[from, to)` of each block.
fn ack(ack: u64, echo: Instant, blocks: &[(u64, u64)]) -> TcpSegment {
    let mut sack = SackBlocks::default();
    blocks.iter().for_each(|(from, to)| sack.push(ByteRange::new(from * MSS, to * MSS)));
    let window = 1 << 24;
    TcpSegment { kind: TcpKind::Ack, ack: ack * MSS, window, echo: Some(echo), sack, ..TcpSegment::default() }
}

fn due(sender: &Sender) -> Instant {
    sender.poll_timeout().unwrap_or(Instant::NEVER)
}

#[test]
fn three_sacked_segments_show_a_loss_and_two_do_not() {
    for detection in [LossDetection::Rack, LossDetection::DupAck] {
        let mut sender = sender(100, 10, |s| s.loss_detection = detection);
        assert_eq!(sent(&mut sender, at(0)), (0..10).collect::<Vec<_>>());
        sender.on_segment(at(100), &ack(0, at(0), &[(1, 2)]));
        sender.on_segment(at(100), &ack(0, at(0), &[(1, 3)]));
        assert!(!sent(&mut sender, at(100)).contains(&0), "{detection:?}");
        sender.on_segment(at(100), &ack(0, at(0), &[(1, 4)]));
        assert_eq!(sent(&mut sender, at(100)).first(), Some(&0), "{detection:?}");
        assert_eq!((sender.stats().recoveries, sender.control.ssthresh() < 10.0), (1, true));
    }
}

#[test]
fn rack_waits_a_quarter_of_a_round_trip_for_a_single_segment_out_of_order() {
    let mut sender = sender(3, 10, |_| ());
    sent(&mut sender, at(0));
    sender.on_segment(at(100), &ack(1, at(0), &[(2, 3)]));
    assert_eq!(sent(&mut sender, at(100)), [0u64; 0]);
    // The segment was sent at 0; the round trip of 100 ms and its quarter are over at 125 ms.
    assert_eq!(due(&sender), at(125));
    sender.on_timeout(at(125));
    assert_eq!(sent(&mut sender, at(125)), [1]);
}

#[test]
fn rack_finds_a_lost_repair_and_three_duplicates_do_not() {
    let repairs = |detection| {
        let mut sender = sender(100, 10, |s| s.loss_detection = detection);
        sent(&mut sender, at(0));
        sender.on_segment(at(100), &ack(0, at(0), &[(1, 10)]));
        let first = sent(&mut sender, at(100));
        assert_eq!(first[0], 0);
        let beyond = first.last().copied().unwrap_or_default();
        // Segments sent after the repair arrive, the repair does not.
        sender.on_segment(at(201), &ack(0, at(100), &[(1, beyond + 1)]));
        sent(&mut sender, at(201)).contains(&0)
    };
    assert!(repairs(LossDetection::Rack));
    assert!(!repairs(LossDetection::DupAck));
}

#[test]
fn a_recovery_ends_with_half_the_window_and_begins_once_per_window() {
    let mut sender = sender(1000, 40, |_| ());
    sent(&mut sender, at(0));
    // Two holes in one window are one episode.
    for top in 2..=40 {
        let blocks = if top <= 20 { vec![(1, top)] } else { vec![(21, top), (1, 20)] };
        sender.on_segment(at(98 + top), &ack(0, at(0), &blocks));
        sent(&mut sender, at(98 + top));
    }
    assert_eq!((sender.stats().recoveries, sender.stats().retransmitted), (1, 2));
    let high = sender.board.next();
    sender.on_segment(at(300), &ack(high, at(150), &[]));
    assert_eq!((sender.phase, sender.window().ssthresh), (Phase::Open, 20.0));
    assert!((20.0..23.0).contains(&sender.window().cwnd));
}

#[test]
fn a_loss_during_a_repair_that_is_not_repaired_at_its_end_begins_another() {
    let mut sender = sender(1000, 40, |_| ());
    sent(&mut sender, at(0));
    for top in 2..=40 {
        sender.on_segment(at(98 + top), &ack(0, at(0), &[(1, top)]));
        sent(&mut sender, at(98 + top));
    }
    let Phase::Recovery { high, .. } = sender.phase else { panic!("{:?}", sender.phase) };
    let (lost, next) = (high + 2, sender.board.next());
    assert!(next > lost + 1 && sender.window().ssthresh == 20.0);
    // One of the segments that were sent meanwhile is lost, which shows before the first hole is filled.
    sender.on_segment(at(240), &ack(0, at(130), &[(lost + 1, next), (1, lost)]));
    assert!(sent(&mut sender, at(240)).contains(&lost));
    assert_eq!((sender.stats().recoveries, sender.window().ssthresh), (1, 20.0));
    sender.on_segment(at(340), &ack(lost, at(240), &[(lost + 1, next)]));
    assert_eq!((sender.stats().recoveries, sender.window().ssthresh), (2, 10.0));
}

#[test]
fn the_timer_repeats_the_first_segment_and_backs_off() {
    // Without probes no segments are sent beyond those in flight.
    let mut sender = sender(5, 10, |s| s.loss_detection = LossDetection::DupAck);
    assert_eq!(sent(&mut sender, at(0)).len(), 5);
    assert_eq!(due(&sender), at(1000));
    sender.on_timeout(at(1000));
    assert_eq!(sent(&mut sender, at(1000)), [0]);
    assert_eq!((due(&sender), sender.window().cwnd), (at(3000), 1.0));
    sender.on_timeout(at(3000));
    assert_eq!(sent(&mut sender, at(3000)), [0]);
    assert_eq!((due(&sender), sender.stats().timeouts), (at(7000), 2));
    // The threshold was halved once: the second timeout was of a repair.
    assert_eq!(sender.window().ssthresh, 5.0);
    // Karn: the answer to a repeated segment is timed by its timestamp, and the timeout keeps its value.
    sender.on_segment(at(3100), &ack(1, at(3000), &[]));
    assert_eq!(sender.window().srtt, Some(Duration::from_millis(100)));
    assert_eq!(due(&sender), at(3100 + 300));
}

#[test]
fn a_timeout_that_was_only_delay_is_taken_back() {
    let mut sender = sender(100, 10, |s| s.loss_detection = LossDetection::DupAck);
    sent(&mut sender, at(0));
    sender.on_timeout(at(1000));
    assert_eq!(sent(&mut sender, at(1000)), [0]);
    // The originals arrive after all; their acknowledgement echoes a clock older than the repair.
    sender.on_segment(at(1010), &ack(2, at(0), &[]));
    assert_eq!((sender.stats().undone, sender.stats().retransmitted), (1, 1));
    assert!(sender.window().cwnd >= 10.0 && sender.window().ssthresh.is_infinite());
    assert!(sent(&mut sender, at(1010)).iter().all(|segment| *segment >= 10));
}

#[test]
fn a_lost_tail_is_found_by_a_probe_and_costs_no_timeout() {
    let mut sender = sender(12, 10, |_| ());
    sent(&mut sender, at(0));
    sender.on_segment(at(100), &ack(10, at(0), &[]));
    assert_eq!(sent(&mut sender, at(100)), [10, 11]);
    // Two round trips and a little, well before the timeout of 100 + 300 ms.
    assert_eq!(due(&sender), at(302));
    sender.on_timeout(at(302));
    assert_eq!(sent(&mut sender, at(302)), [11]);
    sender.on_segment(at(402), &ack(10, at(302), &[(11, 12)]));
    assert_eq!(sent(&mut sender, at(402)), [10]);
    assert_eq!((sender.stats().timeouts, sender.stats().probes), (0, 1));
}

#[test]
fn the_receivers_window_holds_the_sender_and_is_probed() {
    let mut sender = sender(100, 10, |_| ());
    sent(&mut sender, at(0));
    let shut = TcpSegment { window: 0, ..ack(10, at(0), &[]) };
    // The edge never moves back: the window that was promised before may be used.
    sender.right_edge = 12 * MSS;
    sender.on_segment(at(100), &shut);
    assert_eq!(sent(&mut sender, at(100)), [10, 11]);
    sender.on_segment(at(200), &TcpSegment { ack: 12 * MSS, ..shut });
    assert_eq!(sent(&mut sender, at(200)), [0u64; 0]);
    let probe_at = due(&sender);
    assert!(probe_at > at(400) && probe_at < at(600), "{probe_at:?}");
    let probe = sender.poll_transmit(probe_at).unwrap_or_default();
    assert_eq!((probe.kind, probe.len), (TcpKind::Data, 0));
    assert!(due(&sender).since(probe_at) > probe_at.since(at(200)));
}

#[test]
fn paced_segments_leave_one_by_one() {
    let mut sender = sender(1000, 10, |s| s.pacing = true);
    // There is no round trip to pace by yet.
    assert_eq!(sent(&mut sender, at(0)).len(), 10);
    sender.on_segment(at(100), &ack(10, at(0), &[]));
    assert_eq!(sent(&mut sender, at(100)).len(), 1);
    // Twice 20 segments in 100 ms: one every 2.5 ms.
    assert_eq!(due(&sender), at(100) + Duration::from_micros(2500));
    let next = due(&sender);
    assert_eq!(sent(&mut sender, next).len(), 1);
}

#[test]
fn marks_reduce_the_window_once_and_repeat_nothing() {
    let mut sender = sender(1000, 20, |_| ());
    sent(&mut sender, at(0));
    sender.on_segment(at(100), &TcpSegment { marks: 2, ..ack(2, at(0), &[]) });
    sender.on_segment(at(101), &TcpSegment { marks: 4, ..ack(4, at(0), &[]) });
    assert_eq!((sender.window().ssthresh, sender.stats().retransmitted), (10.0, 0));
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut sender = sender(4, 40, |_| ());
    sender.provide(1000 * MSS, false);
    sender.right_edge = 4 * MSS;
    for round in 0..10 {
        assert_eq!(sent(&mut sender, at(100 * round)).len(), 4);
        let window = 4 * MSS;
        sender.on_segment(
            at(100 * round + 99),
            &TcpSegment { window, ..ack(4 * round + 4, at(100 * round), &[]) },
        );
    }
    assert_eq!(sender.window().cwnd, 40.0);
}

/// A window that nothing changes.
#[derive(Debug)]
struct Fixed(f64);

impl CongestionControl for Fixed {
    fn on_ack(&mut self, _ack: &super::super::congestion::Ack) {}

    fn on_loss(&mut self, _loss: &Loss) {}

    fn cwnd(&self) -> f64 {
        self.0
    }

    fn recovery(&self) -> Recovery {
        Recovery::Own
    }
}

/// Processor time of this thread, nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Nanoseconds per transmission with a window of 20 000 segments, of which the share `loss` is lost.
fn cost(loss: f64, detection: LossDetection) -> u64 {
    const SEGMENTS: u64 = 200_000;
    let mut sender = sender(SEGMENTS, 10, |s| {
        s.loss_detection = detection;
        s.receive_window = 1 << 29;
    });
    sender.control = Box::new(Fixed(20_000.0));
    let mut receiver = super::super::receiver::Receiver::new(&config(|s| s.handshake = false), 0, 1 << 29);
    receiver.open(at(0));
    let mut under_way = std::collections::VecDeque::new();
    let (mut now, mut count, mut rng) = (at(0), 0, starhop_proto::rng::Rng::new(1));
    let before = cpu_ns();
    while !receiver.is_complete() {
        while let Some(segment) = sender.poll_transmit(now) {
            count += 1;
            if !rng.chance(loss) {
                under_way.push_back((now + Duration::from_millis(100), segment));
            }
        }
        let arrival = under_way.front().map_or(Instant::NEVER, |(arrival, _)| *arrival);
        now = arrival.min(due(&sender)).max(now + Duration::from_nanos(100));
        sender.on_timeout(now);
        if under_way.front().is_some_and(|(arrival, _)| *arrival <= now)
            && let Some((_, segment)) = under_way.pop_front()
        {
            receiver.on_segment(now, &segment, |_| ());
            while let Some(ack) = receiver.poll_transmit(now) {
                sender.on_segment(now, &ack);
            }
        }
    }
    (cpu_ns() - before) / count
}

#[test]
fn losses_in_a_window_of_twenty_thousand_segments_cost_little() {
    let best = |loss, detection| (0..3).map(|_| cost(loss, detection)).min().unwrap_or_default();
    let clean = best(0.0, LossDetection::Rack);
    for detection in [LossDetection::Rack, LossDetection::DupAck] {
        for loss in [0.01, 0.1] {
            let lossy = best(loss, detection);
            // With losses, receivers send twice as many acknowledgements, with SACK blocks: several times the work.
            // A walk over the window for each would cost a thousand times as much.
            assert!(lossy < 10 * clean, "{detection:?}, {loss}: {lossy} ns, {clean} ns without losses");
        }
    }
}
