use super::opening::Beginning;
use super::path_time::PathTime;
use super::rounds::{Round, Rounds};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::Waited;

/// Factor of the requested bytes over the capacity of the path: a quarter more.
const HOLD: (u64, u64) = (5, 4);
/// Requests come in steps of at most this share of the requested bytes, so that a request that is due does not
/// leave the Responder with nothing.
const STEPS: u64 = 4;
/// A path this long leads over a satellite, whose channel back is narrow. A small share asks for more of it at a time there, and for
/// more ahead, so that it does not run out meanwhile.
const FAR: Duration = Duration::from_millis(250);
const HOLD_FAR: (u64, u64) = (3, 2);
const STEPS_FAR: u64 = 3;
/// In addition so many packets: the next request of a flow must be there before its turn …
const LEAST_PACKETS: u64 = 2;
/// … and all bytes of this time, up to so many steps: two Interests are under way while one is written.
const LEAST_TIME: Duration = Duration::from_millis(20);
const LEAST_STEPS: u64 = 2;
/// A waiting time below this, below a quarter of the path's time, or below the time of some packets, needs no
/// reaction.
const SHORT_WAIT: Duration = Duration::from_millis(5);
const SHORT_WAIT_PACKETS: u64 = 4;
/// The most that is asked for, in multiples of the wanted bytes: a flow that doubles each round trip has half of
/// its requests measured.
const MOST: u64 = 3;
/// Over a path that takes less than this time as much less of the limit may be asked for …
const LONG: Duration = Duration::from_millis(500);
/// … and no less than this: a gigabit over an eighth of a second. On a path of two virtual links a flow took the wait in the sockets of
/// nodes that were all busy for the path, asked for up to 128 MiB to fill it, and filled the sockets: 1.1 Gbit/s in place of 3.4.
const NEAR: u64 = 16 << 20;
/// The excess over the measured share shrinks by this divisor per round in which everything waited.
const SHRINK: u64 = 4;

/// The bytes that a flow asks for ahead of arrivals: its share of the path's capacity, and a little more.
///
/// A Responder reports with each packet how long it waited for its turn, and whether the requests of its flow had
/// run out before. So nothing is assumed about the path: the requested bytes double when they run out, shrink while
/// all of them wait, and stay the same otherwise. A thousand flows on a gigabit ask some packets ahead each.
#[derive(Debug)]
pub(super) struct Share {
    limit: u64,
    /// Asked for beyond the capacity of the path, for caches to store.
    ahead: u64,
    payload: u64,
    largest_step: u64,
    /// The first requests of a flow that is alone.
    first: u64,
    size: u64,
    path: PathTime,
    rounds: Rounds,
    /// Requests that were made since the last growth are answered later than this.
    grown_until: Instant,
}

/// Bounds of a [`Share`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The most bytes.
    pub(super) limit: u64,
    /// Bytes beyond the capacity of the path, for caches to store.
    pub(super) ahead: u64,
    /// Bytes of a packet.
    pub(super) payload: u64,
    /// Bytes that one more Interest asks for, at most.
    pub(super) step: u64,
}

/// New bytes of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) now: Instant,
    pub(super) bytes: u64,
    /// Their waiting time, unless they came out of order, because repairs do not wait.
    pub(super) waited: Option<Waited>,
    /// The hop that they came by, where it counts: the requests of the flow had run out.
    pub(super) offer: Option<Offer>,
    /// The rate that the hop's link has shown room for.
    pub(super) shown: Option<Rate>,
}

/// A hop, as one of its flows sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// The rate that the hop is granted, shared by its flows.
    pub(super) rate: Rate,
    /// No answer takes less.
    pub(super) hop_rtt: Duration,
}

impl Share {
    /// For a flow that begins.
    pub(super) fn new(bounds: Bounds, beginning: Beginning) -> Self {
        let Bounds { limit, ahead, payload, step } = bounds;
        Self {
            limit,
            ahead,
            payload,
            largest_step: step,
            first: beginning.alone,
            size: beginning.bytes.max(payload).min(limit),
            path: PathTime::default(),
            rounds: Rounds::default(),
            grown_until: Instant::ZERO,
        }
    }

    /// A range asked for once was answered after `rtt`, its wait not counted.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.path.on_rtt(now, rtt);
    }

    /// New bytes arrived.
    pub(super) fn on_bytes(&mut self, arrived: Arrived) {
        let Arrived { now, bytes, waited, offer, shown } = arrived;
        if let Some(waited) = waited {
            self.rounds.on_waited(waited);
        }
        if let Some(offer) = offer.filter(|_| waited.is_some_and(|waited| waited.is_dry)) {
            self.rounds.on_dry();
            self.path.on_hop_rtt(offer.hop_rtt);
            self.grow(now, offer.rate);
        }
        if let Some(rate) = shown {
            self.size = self.size.max(self.offered(rate));
        }
        if let Some(round) = self.rounds.on_bytes(now, bytes, self.path.usual()) {
            self.end_round(round);
        }
    }

    /// The upstream had no request left to answer: the share doubles, at most once per round trip, and is no less than
    /// what the hop offers at the start: later a flow knows its share better than the hop does.
    fn grow(&mut self, now: Instant, offer: Rate) {
        if now < self.grown_until {
            return;
        }
        // The first requests of a flow find an empty queue. They were enough if they were the usual ones.
        let is_first = self.grown_until == Instant::ZERO;
        self.grown_until = now + self.path.usual();
        let most = if is_first { self.first } else { self.most() };
        self.size = self.size.max((2 * self.size).min(most)).max(self.offered(offer));
    }

    /// The bytes that a hop offers to a flow that begins, at this rate.
    fn offered(&self, rate: Rate) -> u64 {
        if self.rounds.are_complete() { 0 } else { rate.bytes_in(self.path.usual()).min(self.most_on_path()) }
    }

    fn end_round(&mut self, round: Round) {
        let wanted = self.wanted();
        if self.size < wanted {
            self.size = wanted;
        } else if !round.is_dry && round.least_waited > self.short_wait() {
            self.size -= (self.size - wanted) / SHRINK;
        }
    }

    /// The bound of growth. If the requests ran out because the path was interrupted, more of them would not have
    /// helped.
    fn most(&self) -> u64 {
        if self.rounds.ended() == 0 {
            self.most_on_path()
        } else {
            (MOST * self.wanted()).min(self.most_on_path())
        }
    }

    /// The share of the path's capacity, and a little more.
    fn wanted(&self) -> u64 {
        let rate = self.rounds.rate();
        let carries = rate.bytes_in(self.path.usual());
        let hold = if self.is_small_and_far(carries) { HOLD_FAR } else { HOLD };
        let on_path = carries * hold.0 / hold.1;
        let least = LEAST_PACKETS * self.payload;
        let spare = rate.bytes_in(LEAST_TIME).max(least).min(LEAST_STEPS * self.largest_step);
        (on_path + spare).min(self.most_on_path())
    }

    /// True if so many bytes are a small share, whose Interests are smaller than they could be, of a path that is far.
    fn is_small_and_far(&self, bytes: u64) -> bool {
        self.path.usual() >= FAR && bytes < STEPS * self.largest_step
    }

    fn short_wait(&self) -> Duration {
        let turns = self.rounds.rate().time_for(SHORT_WAIT_PACKETS * self.payload);
        SHORT_WAIT.max(self.path.usual().scaled(1, 4)).max(turns)
    }

    /// The most bytes on the path, by its least time.
    fn most_on_path(&self) -> u64 {
        let least = self.path.least().min(LONG);
        let long = u128::from(self.limit) * u128::from(least.as_nanos()) / u128::from(LONG.as_nanos());
        self.limit.min(NEAR.max(long as u64))
    }

    /// The bytes that may be asked for and missing.
    pub(super) fn size(&self) -> u64 {
        self.size.min(self.most_on_path()).saturating_add(self.ahead).min(self.limit)
    }

    /// The bytes that turned out to fill the path; `None` before a round trip was measured.
    pub(super) fn learnt(&self) -> Option<u64> {
        (self.rounds.ended() > 0).then_some(self.size)
    }

    /// The bytes that the next Interest asks for.
    pub(super) fn step(&self) -> u64 {
        let steps = if self.is_small_and_far(self.size()) { STEPS_FAR } else { STEPS };
        let packets = (self.size() / steps / self.payload).max(1);
        (packets * self.payload).min(self.largest_step)
    }

    /// So much has no room on the way: half of it may.
    pub(super) fn on_refused(&mut self) {
        self.size = (self.size / 2).max(LEAST_PACKETS * self.payload).min(self.size);
    }

    /// The path has changed.
    pub(super) fn on_new_path(&mut self) {
        self.path.on_new_path();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1350;
    const FIRST: u64 = 256 * 1024;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn share(opening: u64) -> Share {
        let bounds = Bounds { limit: 16 << 20, ahead: 0, payload: PACKET, step: 12 * PACKET };
        Share::new(bounds, Beginning { bytes: opening, alone: FIRST })
    }

    /// A packet of a flow whose hop offers nothing.
    fn arrived(now: Instant, waited: Waited) -> Arrived {
        Arrived {
            now,
            bytes: PACKET,
            waited: Some(waited),
            offer: Some(Offer { rate: Rate::ZERO, hop_rtt: ms(10) }),
            shown: None,
        }
    }

    /// A path of `rtt` that serves the flow at `rate` for `span`, with all that is asked for. Returns the last wait.
    fn serve(share: &mut Share, now: &mut Instant, rate: Rate, rtt: Duration, span: Duration) -> Duration {
        let end = *now + span;
        let mut wait = Duration::ZERO;
        while *now < end {
            let carried = rate.bytes_in(rtt);
            let is_dry = share.size() < carried;
            wait = rate.time_for(share.size().saturating_sub(carried));
            // While the requests run out, exactly the requested bytes arrive.
            *now += if is_dry { rtt.scaled(PACKET, share.size()) } else { rate.time_for(PACKET) };
            share.on_rtt(*now, rtt);
            share.on_bytes(arrived(*now, Waited { time: wait, is_dry }));
        }
        wait
    }

    /// The first packet of the first request was lost: the requests after it are answered before the path is measured.
    #[test]
    fn an_unmeasured_path_takes_as_long_as_its_first_hop_at_least() {
        let mut share = share(FIRST);
        (0..20).for_each(|packet| share.on_bytes(arrived(Instant::ZERO + ms(30 + packet), Waited::DRY)));
        // Grown after 30, 40 and 50 ms: to what the first requests are, and twice as much each time.
        assert!(share.size() <= 4 * FIRST, "{}", share.size());
    }

    #[test]
    fn a_flow_that_runs_dry_doubles_each_round_trip() {
        let (mut share, mut now) = (share(FIRST), Instant::ZERO);
        let (rate, rtt) = (Rate::from_mbps(250), ms(600));
        serve(&mut share, &mut now, rate, rtt, ms(10 * 600));
        // 250 Mbit/s over 600 ms are 18.75 MB: more than the limit.
        assert_eq!(share.size(), 16 << 20);
    }

    #[test]
    fn what_waits_shrinks_to_the_share() {
        let (mut share, mut now) = (share(FIRST), Instant::ZERO);
        // One of a thousand flows on a gigabit, over 60 ms: 5.3 packets are on their way.
        let rate = Rate::from_bps(960_000);
        let wait = serve(&mut share, &mut now, rate, ms(60), ms(5_000));
        let packets = share.size() as f64 / PACKET as f64;
        assert!((7.0..12.0).contains(&packets), "{packets} packets");
        assert!(wait < ms(60), "{wait:?}");
        assert_eq!(share.step(), 2 * PACKET);
    }

    /// One of a thousand flows on 250 Mbit/s, over a satellite and over a short path: 14 packets are on their way on either.
    #[test]
    fn a_small_share_of_a_far_path_is_asked_for_in_fewer_interests() {
        let steps = [(250_000, 600), (2_500_000, 60)].map(|(bps, millis)| {
            let (mut share, mut now) = (share(FIRST), Instant::ZERO);
            serve(&mut share, &mut now, Rate::from_bps(bps), ms(millis), ms(100 * millis));
            share.step() / PACKET
        });
        assert_eq!(steps, [7, 5]);
    }

    #[test]
    fn a_share_that_grows_is_taken_within_some_round_trips() {
        let (mut share, mut now) = (share(FIRST), Instant::ZERO);
        serve(&mut share, &mut now, Rate::from_mbps(1), ms(60), ms(3_000));
        serve(&mut share, &mut now, Rate::from_mbps(20), ms(60), ms(600));
        assert!(share.size() >= Rate::from_mbps(20).bytes_in(ms(60)), "{}", share.size());
    }

    #[test]
    fn a_small_opening_may_grow_to_the_usual_one_with_the_first_answer_and_no_further() {
        let mut small = share(2 * PACKET);
        let mut usual = share(FIRST);
        for share in [&mut small, &mut usual] {
            share.on_bytes(arrived(Instant::ZERO + ms(50), Waited::DRY));
        }
        assert_eq!((small.size(), usual.size()), (4 * PACKET, FIRST));
    }

    #[test]
    fn an_interruption_does_not_inflate_what_is_asked_for() {
        let (mut share, mut now) = (share(FIRST), Instant::ZERO);
        let (rate, rtt) = (Rate::from_mbps(20), ms(100));
        serve(&mut share, &mut now, rate, rtt, ms(3_000));
        let before = share.size();
        for _ in 0..20 {
            now += ms(1_000);
            share.on_new_path();
            share.on_bytes(arrived(now, Waited::DRY));
        }
        assert!(share.size() <= MOST * before, "{} after {before}", share.size());
    }

    #[test]
    fn a_near_path_is_asked_for_less_than_a_far_one_and_a_path_that_became_longer_for_more_in_time() {
        let bounds = Bounds { limit: 128 << 20, ahead: 0, payload: PACKET, step: 12 * PACKET };
        let mut share = Share::new(bounds, Beginning { bytes: FIRST, alone: FIRST });
        let mut now = Instant::ZERO + ms(600);
        let mut serve = |share: &mut Share, rtt: u64, seconds: u64| {
            let end = now + Duration::from_secs(seconds);
            while now < end {
                // Each answer takes as long as it does on busy nodes, but for one in a while.
                share.on_rtt(now, ms(if now.as_nanos() / 1_000_000 % 5_000 < 20 { rtt } else { rtt + 200 }));
                let arrived = Arrived { bytes: 4_000_000, ..arrived(now, Waited::DRY) };
                share.on_bytes(arrived);
                now += ms(10);
            }
            share.size()
        };
        assert_eq!(serve(&mut share, 1, 40), 16 << 20);
        assert_eq!(serve(&mut share, 100, 10), 16 << 20);
        assert!((24 << 20..28 << 20).contains(&serve(&mut share, 100, 30)), "a fifth of half a second");
        assert_eq!(serve(&mut share, 600, 40), 128 << 20);
        share.on_new_path();
        share.on_rtt(now, ms(1));
        assert_eq!(share.size(), 16 << 20);
    }

    #[test]
    fn a_flow_asks_at_once_for_what_a_link_has_shown_room_for() {
        let (mut share, now) = (share(FIRST), Instant::ZERO + ms(600));
        share.on_rtt(now, ms(600));
        // More of it is on the way.
        let waited = Waited { is_dry: false, ..Waited::DRY };
        let shown = Some(Rate::from_mbps(20));
        share.on_bytes(Arrived { offer: None, shown, ..arrived(now, waited) });
        assert!(share.size() >= 1_500_000, "{}", share.size());
    }

    #[test]
    fn a_dry_flow_that_begins_asks_for_what_its_hop_offers_at_most_once_per_round_trip() {
        let (mut share, mut now) = (share(FIRST), Instant::ZERO + ms(600));
        share.on_rtt(now, ms(600));
        let offer = |mbps| Some(Offer { rate: Rate::from_mbps(mbps), hop_rtt: ms(10) });
        let dry = |now, mbps| Arrived { offer: offer(mbps), ..arrived(now, Waited::DRY) };
        share.on_bytes(dry(now, 20));
        // 1.5 MB in 600 ms, and a quarter more for the deviation of the path's time.
        assert!((1_500_000..2_000_000).contains(&share.size()), "{}", share.size());
        let offered = share.size();
        share.on_bytes(dry(now + ms(100), 200));
        assert_eq!(share.size(), offered);
        share.on_bytes(dry(now + ms(1_000), 200));
        assert_eq!(share.size(), 16 << 20);

        let mut experienced = self::share(FIRST);
        for _ in 0..=8 {
            now += ms(1_000);
            experienced.on_rtt(now, ms(600));
            experienced.on_bytes(arrived(now, Waited { time: ms(0), is_dry: false }));
        }
        experienced.on_bytes(dry(now, 200));
        assert!(experienced.size() <= 2 * FIRST, "{}", experienced.size());
    }
}
