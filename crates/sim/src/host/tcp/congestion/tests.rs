//! Properties that every control has, for any input.

use super::harness::setup;
use super::{Ack, CongestionControl, Control, Loss, LossKind, RateSample, Tuning};
use crate::host::tcp::congestion::Setup;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};

/// An extreme peer and path: round trips from nothing to seconds, samples of no length, losses of more than was in
/// flight, timeouts in between.
fn nonsense(rng: &mut Rng, now: Instant, cwnd: f64, delivered: f64) -> Ack {
    let rtt = Duration::from_nanos(rng.below(3_000_000_000) * rng.below(2));
    let acked = rng.below(50) as f64;
    let in_flight = rng.below(2 + cwnd as u64) as f64;
    let sample = RateSample {
        delivered: rng.below(200) as f64,
        interval: Duration::from_nanos(rng.below(2_000_000_000) * rng.below(2)),
        prior_delivered: delivered - rng.below(100) as f64,
        tx_in_flight: rng.below(200) as f64,
        lost: rng.below(100) as f64,
        is_app_limited: rng.chance(0.1),
    };
    Ack {
        now,
        acked,
        counted: acked,
        lost: if rng.chance(0.2) { rng.below(100) as f64 } else { 0.0 },
        prior_in_flight: in_flight + acked,
        in_flight,
        delivered,
        rtt: rng.chance(0.9).then_some(rtt),
        srtt: rtt,
        min_rtt: if rng.chance(0.1) { Duration::MAX } else { rtt },
        is_round_start: rng.chance(0.1),
        is_cwnd_limited: rng.chance(0.8),
        is_recovering: rng.chance(0.3),
        marked: 0.0,
        sample: rng.chance(0.9).then_some(sample),
        xcp_feedback: rng.chance(0.9).then_some(rng.below(2000) as f64 / 100.0 - 10.0),
    }
}

fn torment(cc: &mut dyn CongestionControl, rng: &mut Rng, name: &str) {
    let (mut now, mut delivered) = (Instant::ZERO, 0.0);
    for step in 0..5_000 {
        now += Duration::from_nanos(rng.below(50_000_000));
        let in_flight = cc.cwnd();
        let loss = |kind| Loss { now, kind, in_flight, srtt: Duration::ZERO, min_rtt: Duration::ZERO };
        match rng.below(40) {
            0 => cc.on_loss(&loss(LossKind::Acks)),
            1 => cc.on_loss(&loss(LossKind::Timeout)),
            2 => cc.on_repeated_timeout(&loss(LossKind::Timeout)),
            3 => cc.on_loss(&loss(LossKind::Mark)),
            4 | 5 => cc.on_recovered(now),
            6 => cc.on_undo(now, in_flight, cc.ssthresh()),
            7 => cc.on_sent(now, in_flight),
            _ => {
                let ack = nonsense(rng, now, in_flight, delivered);
                delivered += ack.acked;
                cc.on_ack(&ack);
            }
        }
        if cc.poll_timeout().is_some_and(|due| due <= now) {
            cc.on_timer(now);
            assert!(cc.poll_timeout().is_none_or(|due| due > now), "{name}: a timer that never ends");
        }
        let (cwnd, ssthresh) = (cc.cwnd(), cc.ssthresh());
        assert!(cwnd.is_finite() && cwnd >= 1.0, "{name}, step {step}: a window of {cwnd}");
        assert!(ssthresh >= 1.0, "{name}, step {step}: a threshold of {ssthresh}");
        assert!(cc.pacing_rate().is_none_or(|rate| rate.as_bps() > 0), "{name}, step {step}: stands still");
        let demand = cc.xcp_demand(Duration::ZERO).unwrap_or(0.0);
        assert!(demand.is_finite() && demand >= 0.0, "{name}, step {step}: wishes for {demand}");
    }
}

#[test]
fn no_control_loses_its_mind() {
    for name in Control::names() {
        for seed in 0..20 {
            let control = Control::named(name).unwrap_or_else(|| panic!("{name} has no constructor"));
            let mut cc = control.construct(&Setup { seed, ..setup() });
            torment(cc.as_mut(), &mut Rng::new(seed), name);
        }
    }
}

#[test]
fn parameters_that_the_user_sets_reach_their_control() {
    let rtt0 = Some(Duration::from_millis(40));
    let tuning = Tuning { rtt0, alpha: Some(7.0), beta: Some(9.0), gamma: Some(0.25) };
    let with = Setup { tuning, ..setup() };
    for (name, field) in [
        ("hybla", "rtt0: 40ms"),
        ("hybla-veno", "rtt0: 40ms"),
        ("hybla-veno", "beta1: 9.0"),
        ("veno", "beta: 9.0"),
        ("vegas", "alpha: 7.0"),
        ("vegas", "beta: 9.0"),
        ("fast", "alpha: 7.0"),
        ("fast-xcp", "gamma: 0.25"),
    ] {
        let control = Control::named(name).map(|control| control.construct(&with));
        let shown = format!("{control:?}");
        assert!(shown.contains(field), "{name} has no {field}: {shown}");
    }
}
