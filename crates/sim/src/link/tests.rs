//! Tests of a whole link, all its parts together.

use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

/// 10 Mbit/s: 1250 bytes take one millisecond.
fn base() -> LinkConfig {
    LinkConfig::ideal(Rate::from_mbps(10), ms(5))
}

fn arrival(verdict: Verdict) -> Arrival {
    match verdict {
        Verdict::Arrives(arrival) => arrival,
        other => panic!("{other:?} where a packet should have arrived"),
    }
}

#[test]
fn a_packet_takes_its_transmission_and_the_propagation() {
    let (mut link, mut rng) = (Link::new(base()), Rng::new(1));
    let first = arrival(link.send(at(0), 1250, &mut rng));
    let second = arrival(link.send(at(0), 1250, &mut rng));
    assert_eq!((first.at, second.at), (at(6), at(7)));
    assert_eq!(link.counters().waited_ns, 1_000_000);
}

#[test]
fn a_queue_of_three_packets_holds_three_and_the_one_on_the_wire() {
    let mut link = Link::new(LinkConfig { queue: QueueLimit::Packets(3), ..base() });
    let mut rng = Rng::new(1);
    let dropped = |link: &mut Link, rng: &mut Rng| link.send(at(0), 1250, rng) == Verdict::Dropped;
    let verdicts: Vec<bool> = (0..6).map(|_| dropped(&mut link, &mut rng)).collect();
    assert_eq!(verdicts, [false, false, false, false, true, true]);
    // One millisecond later exactly one place is free.
    assert!(matches!(link.send(at(1), 1250, &mut rng), Verdict::Arrives(_)));
    assert_eq!(link.send(at(1), 1250, &mut rng), Verdict::Dropped);
    assert_eq!(link.counters().dropped, 3);
}

#[test]
fn a_lost_packet_has_taken_its_time_on_the_wire() {
    let mut link = Link::new(LinkConfig { loss: LossModel::Bernoulli(1.0), ..base() });
    assert_eq!(link.send(at(0), 1250, &mut Rng::new(1)), Verdict::Lost);
    assert_eq!(link.backlog(at(0)), ms(1));
    assert_eq!(link.bits_sent(at(1)), 10_000.0);
}

#[test]
fn a_falling_delay_does_not_reorder() {
    let delay = DelayModel::Steps(vec![(at(0), ms(50)), (at(2), ms(5))]);
    let (mut link, mut rng) = (Link::new(LinkConfig { delay, ..base() }), Rng::new(1));
    let first = arrival(link.send(at(0), 1250, &mut rng));
    let second = arrival(link.send(at(3), 1250, &mut rng));
    assert_eq!((first.at, second.at, second.in_order), (at(51), at(51), true));
}

#[test]
fn a_reordered_packet_is_late_and_holds_nobody_up() {
    let disorder = Disorder { reorder: 1.0, reorder_by: ms(20), ..Disorder::default() };
    let mut link = Link::new(LinkConfig { disorder, ..base() });
    let late = arrival(link.send(at(0), 1250, &mut Rng::new(1)));
    assert_eq!((late.at, late.in_order), (at(26), false));
    link.disorder = None;
    assert_eq!(arrival(link.send(at(1), 1250, &mut Rng::new(1))).at, at(7));
}

#[test]
fn an_outage_loses_what_is_sent_into_it_or_holds_it() {
    let outage = |hold| Some(Outage::times(vec![(at(10), at(20))], hold));
    let mut rng = Rng::new(1);
    let mut losing = Link::new(LinkConfig { outage: outage(false), ..base() });
    assert!(matches!(losing.send(at(8), 1250, &mut rng), Verdict::Arrives(_)));
    assert_eq!(losing.send(at(12), 1250, &mut rng), Verdict::Lost);
    assert_eq!(arrival(losing.send(at(20), 1250, &mut rng)).at, at(26));
    let mut holding = Link::new(LinkConfig { outage: outage(true), ..base() });
    assert_eq!(arrival(holding.send(at(12), 1250, &mut rng)).at, at(26));
}

#[test]
fn the_mean_rate_counts_losses_and_outages() {
    let config = LinkConfig {
        loss: LossModel::Bernoulli(0.1),
        outage: Some(Outage::times(vec![(at(0), at(250))], false)),
        ..base()
    };
    assert!((config.mean_bps(at(0), at(1000), 1250) - 6.75e6).abs() < 1.0);
}
