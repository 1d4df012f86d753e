//! The room that the first packets of a long hop show.

use super::Delivery;
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// On a hop this long the doubling takes so long that chirps are worth their bursts.
const LONG: Duration = Duration::from_millis(100);
/// A link has shown its room for so many hopRTTs, and where that is at least this share of the rate.
const SHOWN_RTTS: u64 = 3;
const SHOWN: f64 = 0.7;

/// Packets of a chirp that are judged, at least.
const LEAST_PACKETS: usize = 16;
/// More packets without a pause are no chirp.
const MOST_PACKETS: usize = 48;
/// The first gap of a chirp is the longest, but for this share: otherwise its sender had nothing to send for a while.
const WHOLE: f64 = 0.75;
/// A gap of so many times the longest in a chirp is the pause after it.
const PAUSE: f64 = 4.0;
/// A chirp is clear if the upper bound is at most so many times the lower one, or the lower one so many times the rate at which
/// it begins: a link that delays even the last packets of a chirp by nothing has no upper bound.
const CLEAR: f64 = 1.25;
const FAR: f64 = 8.0;
/// Delays are no more exact than this, seconds: clocks and schedulers of real machines.
const GRAIN: f64 = 30e-6;
/// The delays of neighbouring packets at the start of a chirp vary by noise alone. So many times their mean variation passes for noise.
const SURE: f64 = 4.0;
/// Gaps at the start of a chirp.
const SLOW_GAPS: usize = 6;
/// The most that a link may carry while it shows its room, as a share of that.
const LIGHT: f64 = 0.85;
/// The room is looked for from half to 64 times the rate at which a chirp begins: the last packets leave at seventeen times that.
const RANGE: (f64, f64) = (0.5, 64.0);
/// Steps of a bisection: seven doublings, to within 0.1 %.
const STEPS: u32 = 13;

/// The rates between which the room of a link lies, bit/s, as a chirp has shown it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Room {
    /// The link carries this without a queue.
    pub(super) least: f64,
    /// And not more than this.
    pub(super) most: f64,
}

/// The outcome of a chirp.
enum Judgement {
    Room(Room),
    /// Its delays vary too much to tell.
    Noise,
}

/// A packet of a chirp.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Time since the packet before left, seconds.
    gap: f64,
    /// Its bits, and those of packets before it that are missing.
    bits: f64,
    /// Its delay, seconds.
    delay: f64,
}

/// Groups of packets that leave ever closer together (chirps, Ribeiro et al., pathChirp, PAM 2003). A link without a queue delays none
/// of them more than the first until they leave faster than it has room for. The queue at the end of a chirp tells how much room
/// there was: it is that of Lindley's recursion for the gaps between departures, which the delays tell.
#[derive(Debug)]
pub(super) struct Chirps {
    /// The packets since the last pause.
    steps: Vec<Step>,
    /// The longest gap within the chirp.
    longest: f64,
    before: Option<(Instant, Duration)>,
    /// The rooms that the last two clear chirps in a row have shown, the latest one last.
    rooms: [Option<Room>; 2],
    /// The last one that was judged showed noise.
    is_noisy: bool,
    is_on: bool,
    is_long: bool,
    shown_until: Instant,
}

impl Chirps {
    /// None came yet. `is_on` says whether any may be asked for.
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            steps: Vec::new(),
            longest: 0.0,
            before: None,
            rooms: [None; 2],
            is_noisy: false,
            is_on,
            is_long: false,
            shown_until: Instant::ZERO,
        }
    }

    /// A full packet arrived.
    pub(super) fn on_packet(&mut self, delivery: &Delivery, rtt: &HopRtt) {
        self.is_long = rtt.min() >= LONG;
        if !self.are_worth_it() {
            return;
        }
        let bits = delivery.bytes as f64 * 8.0;
        let delay = delivery.hop_rtt.as_secs_f64();
        let Some((at, before)) = self.before.replace((delivery.now, delivery.hop_rtt)) else { return };
        let gap = delivery.now.since(at).as_secs_f64() - (delay - before.as_secs_f64());
        let is_pause = self.steps.len() > 1 && gap > PAUSE * self.longest;
        if is_pause {
            match self.judge() {
                Some(Judgement::Room(room)) => {
                    self.is_noisy = false;
                    self.rooms = [self.rooms[1], Some(room)];
                    self.shown_until = delivery.now + rtt.smoothed().scaled(SHOWN_RTTS, 1);
                }
                Some(Judgement::Noise) => {
                    self.is_noisy = true;
                    self.rooms = if self.shown().is_none() { [None; 2] } else { self.rooms };
                }
                None => {}
            }
        }
        // The gaps of packets that left evenly are no measure of the pauses between chirps after them.
        if is_pause || self.steps.len() > MOST_PACKETS {
            self.steps.clear();
            self.longest = 0.0;
        }
        if !self.steps.is_empty() {
            self.longest = self.longest.max(gap);
        }
        self.steps.push(Step { gap, bits: bits * f64::from(delivery.sent), delay });
    }

    /// The room that the last chirps have shown, if that is not long ago.
    pub(super) fn room(&self, now: Instant) -> Option<Room> {
        self.shown().filter(|_| now < self.shown_until)
    }

    /// The least of each bound.
    fn shown(&self) -> Option<Room> {
        let [Some(a), Some(b)] = self.rooms else { return None };
        Some(Room { least: a.least.min(b.least), most: a.most.min(b.most) })
    }

    /// True if the delays of the last one varied too much to tell the room.
    pub(super) fn have_found_noise(&self) -> bool {
        self.is_noisy
    }

    /// True on a hop that is long enough for chirps.
    pub(super) fn are_worth_it(&self) -> bool {
        self.is_on && self.is_long
    }

    /// True if chirps have just shown room for `rate`, bit/s.
    pub(super) fn have_shown(&self, now: Instant, rate: f64) -> bool {
        self.room(now).is_some_and(|room| room.least >= SHOWN * rate)
    }

    /// Packets take another path: of that one nothing was shown.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.is_on);
    }

    /// The room that the packets have shown.
    fn judge(&self) -> Option<Judgement> {
        let steps = &self.steps[..];
        if !(LEAST_PACKETS..=MOST_PACKETS).contains(&steps.len()) {
            return None;
        }
        let slow = steps.get(1..=SLOW_GAPS)?;
        let begins = slow.first()?;
        if begins.gap < WHOLE * self.longest {
            return None;
        }
        // The pause tells nothing: a sender may have nothing to send for long.
        let pace = begins.bits / begins.gap;
        // A queue that grows has no packets that are earlier than those before them, noise has as many as later ones.
        let earlier = slow.windows(2).map(|pair| (pair[0].delay - pair[1].delay).max(0.0)).sum::<f64>();
        let variation = 2.0 * earlier / (slow.len() - 1) as f64;
        let first = slow.iter().map(|step| step.delay).fold(f64::INFINITY, f64::min);
        let queue = steps.last()?.delay - first;
        let doubt = GRAIN + SURE * variation;
        // Packets whose delays fall by more than that came together in noise.
        if queue < -doubt {
            return Some(Judgement::Noise);
        }
        let least = room_of(steps, queue + doubt, pace);
        let most = if queue > doubt { room_of(steps, queue - doubt, pace) } else { f64::INFINITY };
        if most > CLEAR * least && least < FAR * pace {
            return Some(Judgement::Noise);
        }
        // A link that is nearly full has a queue between chirps, too.
        (pace <= LIGHT * least).then_some(Judgement::Room(Room { least, most }))
    }
}

/// The rate with which a link has this queue after the packets, seconds, where they begin at a rate of `pace`.
fn room_of(steps: &[Step], queue: f64, pace: f64) -> f64 {
    let (mut low, mut high) = (RANGE.0 * pace, RANGE.1 * pace);
    for _ in 0..STEPS {
        let middle = libm::sqrt(low * high);
        if queue_after(steps, middle) > queue { low = middle } else { high = middle }
    }
    low
}

/// The queue after the packets in front of a link of this rate, seconds (Lindley's recursion).
fn queue_after(steps: &[Step], rate: f64) -> f64 {
    steps.windows(2).fold(0.0, |queue: f64, pair| (queue + pair[0].bits / rate - pair[1].gap).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::ways::Detained;
    use crate::rng::Rng;

    /// Packets of a chirp as the sender sends them, their bytes, and the rate at which they leave, bit/s.
    const CHIRP: usize = 32;
    const BYTES: u64 = 1_400;
    const SENT: f64 = 14e6;

    /// A hop of which a link of so many bit/s is a part.
    struct Rig {
        chirps: Chirps,
        rtt: HopRtt,
        rng: Rng,
        /// One way, seconds.
        delay: f64,
        noise: f64,
        link: f64,
        sent: f64,
        free: f64,
    }

    fn instant(at: f64) -> Instant {
        Instant::ZERO + Duration::from_secs_f64(at)
    }

    impl Rig {
        fn new(link: f64) -> Self {
            let rtt = HopRtt::new(Duration::from_millis(600));
            let (chirps, rng) = (Chirps::new(true), Rng::new(5));
            Self { chirps, rtt, rng, delay: 0.3, noise: 0.0, link, sent: 1.0, free: 0.0 }
        }

        fn now(&self) -> Instant {
            instant(self.free + self.delay)
        }

        /// A packet leaves `gap` seconds after the one before.
        fn send(&mut self, gap: f64) {
            self.sent += gap;
            self.free = self.free.max(self.sent) + BYTES as f64 * 8.0 / self.link;
            let noise = self.noise * self.rng.next_u64() as f64 / u64::MAX as f64;
            let arrives = self.free + self.delay + noise;
            let now = instant(arrives);
            let hop_rtt = self.rtt.on_echo(now, instant(self.sent - self.delay), Detained::default());
            let delivery =
                Delivery { now, bytes: BYTES, passed: 1, lost: 0, runs: 0, sent: 1, hop_rtt, backlog: true };
            self.chirps.on_packet(&delivery, &self.rtt);
        }

        fn chirp(&mut self) {
            let turn = BYTES as f64 * 8.0 / SENT;
            let mut gap = turn;
            let mut left = CHIRP as f64 * turn;
            for _ in 1..CHIRP {
                self.send(gap);
                left -= gap;
                gap *= 10.0 / 11.0;
            }
            self.send(left);
        }

        fn room_after(&mut self, chirps: usize) -> Option<Room> {
            (0..chirps).for_each(|_| self.chirp());
            self.chirps.room(self.now())
        }
    }

    /// Packets that jitter has made come together are the earlier the later they left. As chirps they would show 64 times their rate.
    #[test]
    fn delays_that_fall_during_a_chirp_are_noise() {
        let mut rig = Rig::new(1e9);
        for _ in 0..4 {
            rig.delay = 0.306;
            for packet in 0..CHIRP {
                rig.delay -= 0.1e-3;
                rig.send(if packet == 0 { 5e-3 } else { 0.4e-3 });
            }
        }
        assert_eq!(rig.chirps.room(rig.now()), None);
    }

    #[test]
    fn the_room_of_a_link_lies_between_the_bounds() {
        for link in [20e6, 50e6, 100e6] {
            let room = Rig::new(link).room_after(4).unwrap();
            assert!(
                room.least <= link && link <= room.most && room.most < 1.1 * room.least,
                "{link} {room:?}"
            );
        }
    }

    #[test]
    fn a_link_that_delays_no_packet_of_a_chirp_has_no_upper_bound() {
        let room = Rig::new(2e9).room_after(4).unwrap();
        assert!(room.least > FAR * SENT && room.most.is_infinite(), "{room:?}");
    }

    #[test]
    fn one_chirp_shows_nothing_and_a_full_link_neither() {
        assert_eq!(Rig::new(50e6).room_after(1), None);
        assert_eq!(Rig::new(1.1 * SENT).room_after(20), None);
    }

    #[test]
    fn noise_shows_nothing() {
        for noise in [1e-3, 6e-3] {
            let mut rig = Rig::new(250e6);
            rig.noise = noise;
            let shown = (0..200).filter(|_| rig.room_after(1).is_some()).count();
            assert_eq!(shown, 0, "{noise}");
        }
    }

    #[test]
    fn packets_that_leave_evenly_show_nothing() {
        let mut rig = Rig::new(50e6);
        for _ in 0..10 {
            (0..100).for_each(|_| rig.send(0.8e-3));
            rig.send(0.05);
        }
        assert_eq!(rig.chirps.room(rig.now()), None);
    }

    #[test]
    fn chirps_after_packets_that_left_evenly_and_more_slowly_show_the_room() {
        let mut rig = Rig::new(50e6);
        (0..200).for_each(|_| rig.send(8e-3));
        assert!(rig.room_after(5).is_some_and(|room| room.least > 40e6));
    }

    #[test]
    fn packets_before_a_long_pause_are_no_sign_of_a_slow_link() {
        let mut rig = Rig::new(50e6);
        for _ in 0..4 {
            (0..30).for_each(|_| rig.send(0.8e-3));
            rig.send(0.6);
        }
        assert_eq!(rig.chirps.shown(), None);
    }

    #[test]
    fn what_was_shown_is_believed_for_a_while_and_on_the_same_path() {
        let mut rig = Rig::new(50e6);
        assert!(rig.room_after(4).is_some() && rig.chirps.have_shown(rig.now(), 60e6));
        assert!(!rig.chirps.have_shown(rig.now(), 90e6));
        assert_eq!(rig.chirps.room(rig.now() + Duration::from_secs(3)), None);
        rig.chirps.forget();
        assert_eq!(rig.chirps.room(rig.now()), None);
    }

    #[test]
    fn there_are_none_on_a_short_hop_and_where_they_are_off() {
        let mut short = Rig::new(50e6);
        short.delay = 0.04;
        assert_eq!(short.room_after(10), None);
        assert!(!short.chirps.are_worth_it());
        let mut off = Rig::new(50e6);
        off.chirps = Chirps::new(false);
        assert_eq!(off.room_after(10), None);
        assert!(!off.chirps.are_worth_it());
    }
}
