//! The choice among several upstreams of a relay: the first in the operator's order that answers.

use starhop_proto::hop::{Carried, Upstream};
use starhop_proto::relay::Share;
use starhop_proto::time::{Duration, Instant};
use std::net::SocketAddr;

/// An upstream that was asked for this long without an answer is left.
const PATIENCE: Duration = Duration::from_secs(2);
/// Packets after which a hop's rate is more than its first guess.
const MEASURED: u64 = 100;
/// An upstream without requests is greeted at this interval, to learn whether it is there. On the wire that is 25
/// bit/s.
const GREETED_EVERY: Duration = Duration::from_secs(10);
/// Time for which it is not asked after a failure; doubled at each further failure, up to the most.
const FIRST_HOLD: Duration = Duration::from_secs(30);
const LONGEST_HOLD: Duration = Duration::from_secs(600);

/// One of the upstreams.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    address: SocketAddr,
    /// Time of the first request that it has not answered.
    unanswered_since: Option<Instant>,
    held_until: Instant,
    hold: Duration,
}

impl Candidate {
    fn new(address: SocketAddr) -> Self {
        Self { address, unanswered_since: None, held_until: Instant::ZERO, hold: FIRST_HOLD }
    }

    /// Takes the measurements of its hop.
    fn observe(&mut self, now: Instant, hop: &Upstream) {
        let is_unanswered = hop.last_asked > hop.last_heard;
        self.unanswered_since = is_unanswered.then(|| self.unanswered_since.unwrap_or(now));
        // An upstream that has answered for as long as its hold is trusted again.
        if hop.last_heard.is_some_and(|heard| heard >= self.held_until + self.hold) {
            self.hold = FIRST_HOLD;
        }
    }

    fn is_silent(&self, now: Instant) -> bool {
        self.unanswered_since.is_some_and(|since| now.since(since) >= PATIENCE)
    }
}

/// Another upstream takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// The upstream until now.
    pub from: SocketAddr,
    /// The upstream from now on.
    pub to: SocketAddr,
    /// Whether the upstream until now fell silent; otherwise a preferred upstream is tried again.
    pub is_failure: bool,
}

/// The upstreams of a relay, in the order of preference.
#[derive(Clone, Debug)]
pub struct Failover {
    candidates: Vec<Candidate>,
    current: SocketAddr,
}

impl Failover {
    /// Begins with the first of `upstreams`; `None` if there are none.
    pub fn new(upstreams: &[SocketAddr]) -> Option<Self> {
        let current = *upstreams.first()?;
        Some(Self { candidates: upstreams.iter().copied().map(Candidate::new).collect(), current })
    }

    /// Whether the one that is asked has not answered for a while.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.candidates.iter().any(|candidate| candidate.address == self.current && candidate.is_silent(now))
    }

    /// The upstream in use.
    pub fn current(&self) -> SocketAddr {
        self.current
    }

    /// Takes other upstreams, or another order. The state of upstreams that stay is kept; the upstream in use
    /// changes if it is no longer in the list.
    pub fn replace(&mut self, upstreams: &[SocketAddr]) -> Option<Switch> {
        let first = *upstreams.first()?;
        let known = |address| self.candidates.iter().find(|known| known.address == address).copied();
        self.candidates = upstreams.iter().map(|&a| known(a).unwrap_or(Candidate::new(a))).collect();
        if upstreams.contains(&self.current) {
            return None;
        }
        self.turn(first, false)
    }

    /// The upstreams that should be asked for their identity, to learn whether they answer: those that were silent
    /// for a while, and those that have not answered. To be called about once a second.
    pub fn to_greet(&self, now: Instant, hops: impl Iterator<Item = Upstream>) -> Vec<SocketAddr> {
        let mut to_greet: Vec<SocketAddr> =
            self.candidates.iter().map(|candidate| candidate.address).collect();
        for hop in hops {
            let is_known = hop.last_heard.is_some_and(|heard| now.since(heard) < GREETED_EVERY);
            if is_known && hop.last_asked <= hop.last_heard {
                to_greet.retain(|address| *address != hop.addr);
            }
        }
        to_greet
    }

    /// Evaluates the measurements of the hops, and spreads flows over the upstreams that answer, in proportion to
    /// the throughput of their paths. An upstream that has carried too little to judge is expected to deliver the
    /// mean of the others. To be called about once a second.
    pub fn spread(&mut self, now: Instant, hops: impl Iterator<Item = Upstream>) -> Vec<Share> {
        let hops: Vec<Upstream> = hops.collect();
        self.observe(now, &hops);
        let delivered = |address: SocketAddr| {
            let hop = hops.iter().find(|hop| hop.addr == address && hop.carried.packets >= MEASURED)?;
            let Carried { packets, lost, .. } = hop.carried;
            Some(hop.rate.as_mbps() * packets as f64 / (packets + lost) as f64)
        };
        let known: Vec<f64> =
            self.candidates.iter().filter_map(|candidate| delivered(candidate.address)).collect();
        let mean = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        // If no upstream answers, any of them may be the first that does again.
        let is_any = self.candidates.iter().any(|candidate| !candidate.is_silent(now));
        let answering = self.candidates.iter().filter(|candidate| !is_any || !candidate.is_silent(now));
        let share = |candidate: &Candidate| Share {
            upstream: candidate.address.into(),
            weight: (delivered(candidate.address).unwrap_or(mean) * 1e3).clamp(1.0, 1e9) as u32,
        };
        answering.map(share).collect()
    }

    fn observe(&mut self, now: Instant, hops: &[Upstream]) {
        for hop in hops {
            let candidate = self.candidates.iter_mut().find(|candidate| candidate.address == hop.addr);
            if let Some(candidate) = candidate {
                candidate.observe(now, hop);
            }
        }
    }

    /// Evaluates the measurements of the hops; to be called about once a second.
    pub fn judge(&mut self, now: Instant, hops: impl Iterator<Item = Upstream>) -> Option<Switch> {
        self.observe(now, &hops.collect::<Vec<_>>());
        let is_alone = self.candidates.len() < 2;
        let current = self.candidates.iter_mut().find(|candidate| candidate.address == self.current)?;
        let is_failure = !is_alone && current.is_silent(now);
        if is_failure {
            current.held_until = now + current.hold;
            current.hold = current.hold.scaled(2, 1).min(LONGEST_HOLD);
            current.unanswered_since = None;
        }
        // If all are held, the one whose hold ends first is asked.
        let free =
            self.candidates.iter().find(|candidate| candidate.held_until <= now && !candidate.is_silent(now));
        let best = free.or_else(|| self.candidates.iter().min_by_key(|candidate| candidate.held_until))?;
        self.turn(best.address, is_failure)
    }

    fn turn(&mut self, to: SocketAddr, is_failure: bool) -> Option<Switch> {
        let from = std::mem::replace(&mut self.current, to);
        (from != to).then_some(Switch { from, to, is_failure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::units::Rate;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn address(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    fn hop(port: u16, asked: u64, heard: Option<u64>) -> Upstream {
        Upstream {
            last_heard: heard.map(at),
            last_asked: Some(at(asked)),
            ..Upstream::unheard(address(port))
        }
    }

    fn judged(failover: &mut Failover, now: u64, hop: Upstream) -> Option<(SocketAddr, bool)> {
        failover.judge(at(now), [hop].into_iter()).map(|switch| (switch.to, switch.is_failure))
    }

    #[test]
    fn one_that_does_not_answer_for_two_seconds_is_left_for_the_next_and_tried_again_later() {
        let mut failover = Failover::new(&[address(1), address(2)]).unwrap();
        assert_eq!(judged(&mut failover, 100, hop(1, 100, Some(100))), None);
        assert_eq!(judged(&mut failover, 101, hop(1, 101, Some(100))), None);
        assert_eq!(judged(&mut failover, 102, hop(1, 102, Some(100))), None);
        assert_eq!(judged(&mut failover, 103, hop(1, 103, Some(100))), Some((address(2), true)));
        assert_eq!(judged(&mut failover, 132, hop(2, 132, Some(132))), None);
        assert_eq!(judged(&mut failover, 133, hop(2, 133, Some(133))), Some((address(1), false)));
        assert_eq!(judged(&mut failover, 134, hop(1, 134, None)), None);
        assert_eq!(judged(&mut failover, 136, hop(1, 136, None)), Some((address(2), true)));
        assert_eq!(judged(&mut failover, 190, hop(2, 190, Some(190))), None, "twice as long the second time");
        assert_eq!(judged(&mut failover, 196, hop(2, 196, Some(196))), Some((address(1), false)));
    }

    #[test]
    fn one_that_is_asked_nothing_is_not_silent() {
        let mut failover = Failover::new(&[address(1), address(2)]).unwrap();
        for now in 100..200 {
            assert_eq!(judged(&mut failover, now, hop(1, 100, Some(100))), None);
        }
    }

    #[test]
    fn the_only_one_is_asked_whatever_it_does() {
        let mut failover = Failover::new(&[address(1)]).unwrap();
        for now in 100..200 {
            assert_eq!(judged(&mut failover, now, hop(1, now, None)), None);
        }
    }

    #[test]
    fn where_all_fail_they_are_tried_in_turn() {
        let mut failover = Failover::new(&[address(1), address(2)]).unwrap();
        let mut asked = Vec::new();
        for now in 100..200 {
            let port = failover.current().port();
            asked.extend(judged(&mut failover, now, hop(port, now, None)).map(|(to, _)| to.port()));
        }
        assert_eq!(asked[..3], [2, 1, 2], "{asked:?}");
    }

    #[test]
    fn one_that_is_known_not_to_answer_is_not_turned_to() {
        let mut failover = Failover::new(&[address(1), address(2), address(3)]).unwrap();
        let hops = |now| [hop(1, now, Some(100)), hop(2, now, None), hop(3, now, Some(now))];
        let turned = |failover: &mut Failover, now| failover.judge(at(now), hops(now).into_iter());
        let first = (101..110).find_map(|now| turned(&mut failover, now)).unwrap();
        assert_eq!((first.to, first.is_failure), (address(3), true));
    }

    #[test]
    fn flows_are_spread_by_what_paths_deliver_and_none_goes_to_a_silent_one() {
        let mut failover = Failover::new(&[address(1), address(2), address(3)]).unwrap();
        let measured = |port, mbps, lost, heard| Upstream {
            rate: Rate::from_mbps(mbps),
            carried: Carried { packets: 1000 - lost, lost, ..Carried::default() },
            ..hop(port, 200, Some(heard))
        };
        let hops = [measured(1, 20, 0, 200), measured(2, 10, 100, 200), hop(3, 200, Some(200))];
        let weights = |shares: &[Share]| -> Vec<u32> { shares.iter().map(|share| share.weight).collect() };
        assert_eq!(weights(&failover.spread(at(200), hops.into_iter())), [20_000, 9_000, 14_500]);
        let silent = [measured(1, 20, 0, 100), measured(2, 10, 100, 200), hop(3, 200, Some(200))];
        failover.spread(at(201), silent.into_iter());
        assert_eq!(weights(&failover.spread(at(204), silent.into_iter())), [9_000, 14_500]);
    }

    #[test]
    fn upstreams_are_greeted_until_they_answer_and_every_ten_idle_seconds() {
        let failover = Failover::new(&[address(1), address(2)]).unwrap();
        let greeted = |now, hops: &[Upstream]| -> Vec<u16> {
            failover.to_greet(at(now), hops.iter().copied()).iter().map(SocketAddr::port).collect()
        };
        assert_eq!(greeted(100, &[]), [1, 2]);
        assert_eq!(greeted(101, &[hop(1, 100, Some(100)), hop(2, 100, None)]), [2]);
        assert_eq!(greeted(110, &[hop(1, 100, Some(100)), hop(2, 109, Some(109))]), [1]);
        assert_eq!(greeted(111, &[hop(1, 110, Some(100)), hop(2, 109, Some(109))]), [1]);
    }

    #[test]
    fn a_new_list_keeps_the_one_that_is_asked_if_it_is_still_there() {
        let mut failover = Failover::new(&[address(1), address(2)]).unwrap();
        assert_eq!(failover.replace(&[address(3), address(1)]), None);
        let switch = failover.replace(&[address(4)]).unwrap();
        assert_eq!((switch.from, switch.to, switch.is_failure), (address(1), address(4), false));
        assert_eq!(failover.replace(&[]), None);
    }
}
