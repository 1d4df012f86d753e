//! The length of packets that a path carries (RFC 8899), found by the side that receives them.
//!
//! A path that drops long packets drops them silently. The Requester sees which lengths come: as long as packets of full
//! length do, nothing is asked. Where none has come for a second, and the length is unknown or packets were lost, it
//! asks for a probe, a packet of that length without content; where shorter probes come and this one does not, it tells
//! its Responder the length to keep to, and searches for the longest. A question is an Interest for a flow of its own, whose id tells both numbers, so that whoever answers for
//! data answers for its length, and no packet has a new field.

use crate::name::FlowId;
use crate::time::{Duration, Instant};

/// The first part of the flow's id; two numbers of 2 bytes follow.
const NAME: [u8; 12] = *b"starhop size";
/// A probe is longer than its size says by so much: Parity and far offsets make packets longer than usual.
const MARGIN: usize = 16;
/// Tries before a length counts as too long (RFC 8899, section 5.1.2: MAX_PROBES).
const MOST_TRIES: u8 = 3;
/// Time without a packet of full length after which one is asked for; doubled while only probes come.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(32);
/// After losses a packet of full length has this long to come: after an outage the first packets are often short.
const DOUBT: Duration = Duration::from_millis(250);
/// So many shorter packets come where long ones do not; the Responder's two marks are such.
const LEAST_SHORT: u8 = 2;
/// A neighbour that is asked nothing for this long is not asked for probes, either.
const QUIET_AFTER: Duration = Duration::from_secs(5);
/// A path may have become wider after this time (RFC 8899: PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// The wait for a probe's answer beyond one and a half round trips; six times as long before the first measurement.
const GRACE: Duration = Duration::from_millis(50);
/// The search ends at this difference: a hundredth of a packet.
const STEP: u16 = 16;
/// Payloads with which a path is tried that does not carry the full length, beside the second and third try: on paths of 1280
/// bytes (the least of IPv6) and 576 bytes; headers and seals take up to 110 of them.
const RUNGS: [u16; 2] = [1170, 466];

/// A question about the length of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeQuestion {
    /// The payload that the neighbour is to keep to; `None`: its own.
    pub limit: Option<u16>,
    /// The payload of the probe that it is to send.
    pub probe: u16,
}

impl SizeQuestion {
    /// Longer probes are not sent: a few bytes shall not call for many.
    pub const MOST: u16 = 9216;

    /// Reads a question from the id of the flow that is asked for; `None` if the flow is another one.
    #[inline]
    pub fn read(flow: FlowId) -> Option<Self> {
        let [a, b, c, d] = *flow.0.strip_prefix(&NAME)?.first_chunk::<4>()?;
        let limit = u16::from_be_bytes([a, b]);
        Some(Self { limit: (limit > 0).then_some(limit), probe: u16::from_be_bytes([c, d]) })
    }

    /// The flow that is asked for.
    pub fn flow(self) -> FlowId {
        let mut id = [0; FlowId::LEN];
        id[..12].copy_from_slice(&NAME);
        id[12..14].copy_from_slice(&self.limit.unwrap_or(0).to_be_bytes());
        id[14..].copy_from_slice(&self.probe.to_be_bytes());
        FlowId(id)
    }

    /// Bytes of the answer's payload.
    pub fn answer_len(self) -> usize {
        usize::from(self.probe) + MARGIN
    }
}

/// The state of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is asked of the neighbour.
    Quiet,
    /// Packets of the present length are expected.
    Watch,
    /// The longest packet between the limit and the shortest that failed is searched for.
    Search,
}

/// The length of the payloads that come from one neighbour.
#[derive(Clone, Copy, Debug)]
pub struct PathSize {
    /// The longest that this node asks for.
    most: u16,
    /// The longest that came.
    came: u16,
    /// The neighbour keeps to it; `None`: to its own.
    limit: Option<u16>,
    /// The limit that the neighbour has last shown to know.
    acknowledged: Option<u16>,
    /// The shortest that failed; beyond `most`: none.
    failed: u16,
    step: Step,
    tries: u8,
    /// The longest shorter probe that came while the present length is tried.
    shorter: u16,
    /// Packets were lost since the last one of the present length came.
    is_doubtful: bool,
    /// Shorter packets that came since then: without them it is the path that is gone.
    short_ones: u8,
    /// A shorter probe that is due, too.
    second: Option<u16>,
    asked_at: Instant,
    /// Time of the last packet of the present length.
    full_at: Instant,
    pause: Duration,
    raise_at: Instant,
    due: Instant,
}

impl PathSize {
    /// A path of which nothing is known yet; payloads of `most` bytes are expected.
    pub fn new(most: usize) -> Self {
        let most = u16::try_from(most).unwrap_or(u16::MAX - 1);
        Self {
            most,
            came: 0,
            limit: None,
            acknowledged: None,
            failed: most + 1,
            step: Step::Quiet,
            tries: 0,
            shorter: 0,
            is_doubtful: false,
            short_ones: 0,
            second: None,
            asked_at: Instant::ZERO,
            full_at: Instant::ZERO,
            pause: PAUSE,
            raise_at: Instant::NEVER,
            due: Instant::NEVER,
        }
    }

    /// Another node answers, perhaps by another path.
    pub fn on_new_path(&mut self) {
        *self = Self { asked_at: self.asked_at, ..Self::new(usize::from(self.most)) };
    }

    /// The longest payload that is known to come; `None` before the first packet of the present length.
    pub fn known(&self) -> Option<u16> {
        (self.came >= self.present()).then(|| self.present())
    }

    /// Time of the next [`PathSize::poll`].
    pub fn due(&self) -> Instant {
        if self.second.is_some() { Instant::ZERO } else { self.due }
    }

    /// An Interest for anything leaves.
    #[inline]
    pub fn on_asked(&mut self, now: Instant) {
        self.asked_at = now;
        if self.step == Step::Quiet {
            self.watch(now);
        }
    }

    /// Packets were lost.
    pub fn on_lost(&mut self, now: Instant) {
        if self.step == Step::Watch && !self.is_doubtful {
            self.is_doubtful = true;
            self.due = self.due.min((self.full_at + self.pause).max(now + DOUBT));
        }
    }

    /// A packet with a payload of `len` bytes came.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, len: u64) {
        if len >= u64::from(self.present()) {
            self.full_at = now;
            self.pause = PAUSE;
            self.on_full(now, u16::try_from(len).unwrap_or(u16::MAX).min(self.most));
        } else if self.is_doubtful {
            self.short_ones = self.short_ones.saturating_add(1);
        }
    }

    /// The probe that `question` asked for came.
    pub fn on_answer(&mut self, now: Instant, question: SizeQuestion) {
        let size = question.probe;
        if size > self.most {
            return;
        }
        self.acknowledged = question.limit;
        if size >= self.present() {
            self.full_at = now;
            self.pause = self.pause.scaled(2, 1).min(LONGEST_PAUSE);
            return self.on_full(now, size);
        }
        self.came = self.came.max(size);
        self.shorter = self.shorter.max(size);
        if self.step == Step::Watch && self.tries > 0 {
            self.due = self.due.min(now + GRACE);
        }
    }

    /// The next question, if one is due. `rtt` is the round trip to the neighbour, once it is measured.
    pub fn poll(&mut self, now: Instant, rtt: Option<Duration>) -> Option<SizeQuestion> {
        if let Some(probe) = self.second.take() {
            return Some(SizeQuestion { limit: self.limit, probe });
        }
        let probe = loop {
            if self.due > now {
                return None;
            }
            match self.step {
                Step::Quiet => self.due = Instant::NEVER,
                Step::Watch if now.since(self.asked_at) >= QUIET_AFTER => self.step = Step::Quiet,
                Step::Watch if self.raise_at <= now => self.search(now, self.most + 1),
                Step::Watch if !self.is_in_doubt() => self.due = self.raise_at,
                Step::Watch if self.is_gone() => self.due = now + DOUBT,
                Step::Watch if now.since(self.full_at) < self.pause => self.due = self.full_at + self.pause,
                Step::Watch if self.tries == MOST_TRIES => self.give_up(now),
                Step::Watch => break self.try_present(),
                Step::Search if self.candidate().is_none() => self.watch(now),
                Step::Search if self.tries == MOST_TRIES => {
                    self.failed = self.candidate().unwrap_or(self.failed);
                    self.tries = 0;
                }
                Step::Search => {
                    self.tries += 1;
                    break self.candidate()?;
                }
            }
        };
        self.due = now + rtt.map_or(GRACE.scaled(6, 1), |rtt| rtt.scaled(3, 2) + GRACE);
        Some(SizeQuestion { limit: self.limit, probe })
    }

    /// The present length may not come, or the neighbour may not know it.
    fn is_in_doubt(&self) -> bool {
        self.is_doubtful || self.known().is_none() || self.acknowledged != self.limit
    }

    /// Nothing comes at all, long or short.
    fn is_gone(&self) -> bool {
        self.is_doubtful && self.tries == 0 && self.short_ones < LEAST_SHORT
    }

    /// The length that packets have now if there is enough to send.
    fn present(&self) -> u16 {
        self.limit.unwrap_or(self.most)
    }

    /// A packet of at least the present length came.
    fn on_full(&mut self, now: Instant, size: u16) {
        self.came = self.came.max(size);
        (self.is_doubtful, self.short_ones) = (false, 0);
        if self.step == Step::Watch {
            self.tries = 0;
        }
        if self.limit.is_none_or(|limit| size <= limit) {
            return;
        }
        // Longer packets come than the neighbour was told to keep to.
        self.limit = (size < self.most).then_some(size);
        self.tries = 0;
        match self.limit {
            Some(_) => self.due = now,
            None => self.watch(now),
        }
    }

    fn watch(&mut self, now: Instant) {
        self.step = Step::Watch;
        self.tries = 0;
        (self.is_doubtful, self.short_ones) = (false, 0);
        self.pause = PAUSE;
        self.full_at = now;
        self.due = now + PAUSE;
        if self.limit.is_none() {
            self.raise_at = Instant::NEVER;
        }
    }

    fn search(&mut self, now: Instant, failed: u16) {
        self.step = Step::Search;
        self.tries = 0;
        self.failed = failed;
        self.raise_at = now + RAISE_AFTER;
    }

    /// Asks for a probe of the present length, and for a shorter one where the long one may not come.
    fn try_present(&mut self) -> u16 {
        if self.tries == 0 {
            self.shorter = 0;
        }
        let mut shorter = RUNGS.into_iter().filter(|rung| *rung < self.present());
        self.second = usize::from(self.tries).checked_sub(1).and_then(|place| shorter.nth(place));
        self.tries += 1;
        self.present()
    }

    /// The present length did not come.
    fn give_up(&mut self, now: Instant) {
        if self.shorter > 0 {
            // Its probes may have been lost by chance: the full length is tried once more, while shorter packets flow.
            let failed = self.present() + 1;
            self.limit = Some(self.shorter);
            self.came = self.shorter;
            return self.search(now, failed);
        }
        // Nothing comes, or the neighbour does not know the question.
        self.tries = 0;
        self.pause = self.pause.scaled(2, 1).min(LONGEST_PAUSE);
        self.full_at = now;
    }

    /// The next length to try in a search; `None` when it is over.
    fn candidate(&self) -> Option<u16> {
        let limit = self.limit?;
        if self.failed > self.most {
            return Some(self.most);
        }
        (self.failed.saturating_sub(limit) > STEP).then(|| limit.midpoint(self.failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::vec::Vec;

    const MOST: usize = 1350;
    const RTT: Duration = Duration::from_millis(60);

    /// A path, its two ends, and what the Responder sends if there is enough to send.
    struct Path {
        size: PathSize,
        now: Instant,
        carries: usize,
        loss: f64,
        rng: Rng,
        /// The limit that the Responder knows.
        told: Option<u16>,
        under_way: Vec<(Instant, SizeQuestion)>,
        questions: usize,
    }

    impl Path {
        fn new(carries: usize, loss: f64) -> Self {
            let (size, rng) = (PathSize::new(MOST), Rng::new(7));
            let now = Instant::ZERO + Duration::from_secs(1);
            Self { size, now, carries, loss, rng, told: None, under_way: Vec::new(), questions: 0 }
        }

        /// Time passes, during which data is asked for if `is_asking`, and comes if `has_data`.
        fn run(&mut self, span: Duration, (is_asking, has_data): (bool, bool)) {
            let end = self.now + span;
            while self.now < end {
                self.now += Duration::from_millis(5);
                if is_asking {
                    self.size.on_asked(self.now);
                }
                let full = usize::from(self.told.unwrap_or(MOST as u16));
                let len = if has_data { full } else { 50 };
                if len <= self.carries && !self.rng.chance(self.loss) {
                    self.size.on_packet(self.now, len as u64);
                } else {
                    self.size.on_lost(self.now);
                    self.size.on_packet(self.now, 0);
                }
                while let Some(question) = self.size.poll(self.now, Some(RTT)) {
                    self.questions += 1;
                    self.told = question.limit;
                    let probe = usize::from(question.probe);
                    if probe <= self.carries && !self.rng.chance(self.loss) {
                        self.under_way.push((self.now + RTT, question));
                    }
                }
                let now = self.now;
                let (came, still) = self.under_way.iter().partition(|(at, _)| *at <= now);
                self.under_way = still;
                let came: Vec<(Instant, SizeQuestion)> = came;
                came.iter().for_each(|(_, question)| self.size.on_answer(now, *question));
            }
        }
    }

    const BUSY: (bool, bool) = (true, true);

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for limit in [None, Some(1), Some(1170)] {
            let question = SizeQuestion { limit, probe: 1350 };
            assert_eq!(SizeQuestion::read(question.flow()), Some(question));
        }
        assert_eq!(SizeQuestion::read(crate::hop::HELLO), None);
    }

    #[test]
    fn a_path_that_carries_full_packets_is_not_probed() {
        let mut path = Path::new(9000, 0.01);
        path.run(Duration::from_secs(60), BUSY);
        assert_eq!((path.questions, path.told, path.size.known()), (0, None, Some(1350)));
    }

    #[test]
    fn a_narrow_path_is_found_and_measured() {
        for carries in [1349, 1300, 1171, 1170, 1000, 900, 500, 466] {
            for loss in [0.0, 0.02] {
                let mut path = Path::new(carries, loss);
                path.run(Duration::from_millis(2000), BUSY);
                let told = path.told.map_or(MOST, usize::from);
                assert!(told <= carries, "after 2 s: {carries}: {told}");
                path.run(Duration::from_secs(10), BUSY);
                let told = path.told.map_or(MOST, usize::from);
                assert!((carries.saturating_sub(17)..=carries).contains(&told), "{carries}: {told}");
            }
        }
    }

    #[test]
    fn a_path_that_changes_under_way_is_followed() {
        let mut path = Path::new(1500, 0.0);
        path.run(Duration::from_secs(20), BUSY);
        path.carries = 1200;
        path.run(Duration::from_millis(2500), BUSY);
        assert!(path.told.is_some_and(|told| told <= 1200), "{:?}", path.told);
        path.carries = 900;
        path.run(Duration::from_secs(10), BUSY);
        assert!(path.told.is_some_and(|told| (880..=900).contains(&told)), "{:?}", path.told);
        path.carries = 1500;
        path.run(RAISE_AFTER, BUSY);
        path.run(Duration::from_secs(10), BUSY);
        assert_eq!(path.told, None);
        path.size.on_new_path();
        assert_eq!(path.size.known(), None);
    }

    #[test]
    fn losses_do_not_make_a_path_narrow() {
        let mut path = Path::new(1500, 0.2);
        // Small packets only: probes alone tell the length.
        for _ in 0..200 {
            path.run(Duration::from_secs(10), (true, false));
        }
        path.run(Duration::from_secs(2), BUSY);
        assert_eq!(path.told, None);
    }

    #[test]
    fn an_idle_path_costs_little_and_one_that_nobody_uses_nothing() {
        let mut path = Path::new(1500, 0.0);
        path.run(Duration::from_secs(640), (true, false));
        assert!(path.questions <= 2, "{}", path.questions);
        path.loss = 0.01;
        path.run(Duration::from_secs(640), (true, false));
        assert!(path.questions <= 30, "one in 32 s: {}", path.questions);
        path.run(Duration::from_secs(10), (false, false));
        let before = path.questions;
        path.run(Duration::from_secs(640), (false, false));
        assert_eq!(path.questions, before);
        // A neighbour that does not answer is asked no more often.
        let mut silent = Path::new(0, 0.0);
        silent.run(Duration::from_secs(640), (true, false));
        assert!(silent.questions <= 150, "{}", silent.questions);
        assert_eq!(silent.told, None);
    }
}
