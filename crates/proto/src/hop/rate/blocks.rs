use super::Delivery;
use crate::time::{Duration, Instant};

/// A block of packets is judged for loss; loss well above the usual means a policer or a short queue, which
/// delay does not show.
const PACKETS: u32 = 128;
/// … but a burst of losses makes it lose much, whatever the link loses: where it seems to, it goes on until so many runs of lost packets
/// without one in between that came have begun. A queue that is full drops one packet of some, or lets one pass of some: so many runs
/// come with eight packets that arrive.
const RUNS: u32 = 8;
/// The share of lost packets above which a block alarms.
pub(super) const ALARM: f64 = 0.15;

/// A block that was sent at less than this part of the rate of one before it, and lost at least that part of its loss, shows that the losses
/// are the link's: a policer, or a short queue of our own, would lose nothing of what it carried a moment ago.
const SLOWER: f64 = 0.85;
const AS_MUCH: f64 = 0.8;
/// More is taken for congestion all the same. Where sixteen hops overfill a queue together, half and more is lost, and the share of each is so small
/// that to send less does not help either.
const MOST_OF_LINK: f64 = 0.36;
/// A block of less than this part of the loss ends the comparison: the losses have gone.
const FEWER: f64 = 0.5;
/// The path is gone when nothing comes for so many times the usual time between two packets.
const PAUSE: u64 = 4;
/// The least share that is taken to have come of a block.
const LEAST_CAME: f64 = 0.01;

/// The loss of a block of packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Block {
    /// The share of packets that was lost.
    pub(super) loss: f64,
    /// The rate that came through, bit/s; `None` of the first block, whose beginning is unknown.
    pub(super) came: Option<f64>,
    /// More was lost than is usual on this link.
    pub(super) is_alarm: bool,
    /// No more was lost than may be usual.
    pub(super) is_usual: bool,
    /// As much was lost as of a block that alarmed before and was sent faster: to send less does not help.
    pub(super) stays: bool,
}

/// A block that alarmed: the rates at which it was sent and came, bit/s, and its loss.
#[derive(Clone, Copy, Debug)]
struct Alarmed {
    sent: f64,
    came: f64,
    loss: f64,
}

/// Counts the packets of a hop in blocks, and knows the usual loss. Losses after a silence count in none: the path was gone, which is
/// an outage, not congestion.
#[derive(Debug)]
pub(super) struct Blocks {
    usual_loss: f64,
    /// Packets that were measured, and those that they are missing.
    sent: u32,
    /// Packets of any length, and those of them that are lost.
    passed: u32,
    lost: u32,
    runs: u32,
    bytes: u64,
    from: Instant,
    /// Arrival of the last packet.
    last_at: Instant,
    /// Usual time between two packets.
    spacing: Duration,
    /// A block that alarmed. Each alarm lowers the rate.
    alarmed: Option<Alarmed>,
}

impl Blocks {
    /// Nothing came yet.
    pub(super) fn new() -> Self {
        Self {
            usual_loss: 0.0,
            sent: 0,
            passed: 0,
            lost: 0,
            runs: 0,
            bytes: 0,
            from: Instant::ZERO,
            last_at: Instant::ZERO,
            spacing: Duration::ZERO,
            alarmed: None,
        }
    }

    /// The usual loss, as a share.
    pub(super) fn usual(&self) -> f64 {
        self.usual_loss
    }

    /// A packet arrived; after a time of `silent` without one the path was gone, or later where packets come rarely. Losses that are `doubted` may come from the rate, and none
    /// of them is usual. Returns the block that ends with it.
    #[inline]
    pub(super) fn add(&mut self, delivery: &Delivery, silent: Duration, doubted: bool) -> Option<Block> {
        let silence = delivery.now.since(core::mem::replace(&mut self.last_at, delivery.now));
        if self.is_gone(silence, silent) && delivery.lost > 0 {
            return None;
        }
        self.sent += delivery.sent;
        self.passed += delivery.passed;
        self.lost += delivery.lost;
        self.runs += delivery.runs;
        self.bytes += delivery.bytes;
        self.is_whole().then(|| self.end(delivery.now, doubted))
    }

    /// True if nothing came for so long, at least `silent`, that the path was gone. Packets of a small share of a link are far apart.
    fn is_gone(&mut self, silence: Duration, silent: Duration) -> bool {
        let gone = silent.max(self.spacing.scaled(PAUSE, 1));
        self.spacing = self.spacing.scaled(7, 8) + silence.min(gone).scaled(1, 8);
        silence >= gone
    }

    /// True if the packets so far tell how much is lost.
    fn is_whole(&self) -> bool {
        let is_clear = || self.runs >= RUNS || f64::from(self.lost) <= ALARM * f64::from(self.passed);
        self.sent >= PACKETS && is_clear()
    }

    fn end(&mut self, now: Instant, doubted: bool) -> Block {
        let loss = f64::from(self.lost) / f64::from(self.passed.max(1));
        (self.sent, self.passed, self.lost, self.runs) = (0, 0, 0, 0);
        let from = core::mem::replace(&mut self.from, now);
        let bits = core::mem::take(&mut self.bytes) as f64 * 8.0;
        let span = now.since(from).as_secs_f64();
        let came = (from != Instant::ZERO && span != 0.0).then(|| bits / span);
        let usual = if doubted { 0.0 } else { self.usual_loss };
        let is_alarm = loss > ALARM + 1.5 * usual;
        self.alarmed = self.alarmed.filter(|before| loss > FEWER * before.loss);
        let stays = is_alarm && !doubted && loss <= MOST_OF_LINK && self.stays(came, loss);
        Block { loss, came, is_alarm, is_usual: !is_alarm && !doubted, stays }
    }

    /// A block lost this share, which is the link's.
    pub(super) fn get_used_to(&mut self, loss: f64) {
        self.usual_loss += (loss - self.usual_loss) / 8.0;
    }

    /// A block alarms. True if as much was lost as of one that alarmed before and was sent faster.
    fn stays(&mut self, came: Option<f64>, loss: f64) -> bool {
        let Some(came) = came else { return false };
        let sent = came / (1.0 - loss).max(LEAST_CAME);
        let block = Alarmed { sent, came, loss };
        let before = *self.alarmed.get_or_insert(block);
        // A link that carries what it carried then, and no more, would lose this.
        let of_rate = (1.0 - before.came / sent).max(0.0);
        if loss < (AS_MUCH * before.loss).max(f64::midpoint(before.loss, of_rate)) || sent > before.sent {
            self.alarmed = Some(block);
            return false;
        }
        sent < SLOWER * before.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: Duration = Duration::from_millis(50);

    /// A block of packets, one each millisecond, of which every `nth` is lost.
    fn block(blocks: &mut Blocks, now: &mut Instant, nth: u32) -> Block {
        doubted_block(blocks, now, nth, false)
    }

    fn doubted_block(blocks: &mut Blocks, now: &mut Instant, nth: u32, doubted: bool) -> Block {
        loop {
            *now += Duration::from_millis(u64::from(nth));
            let delivery = Delivery {
                now: *now,
                bytes: u64::from(nth - 1) * 1000,
                lost: 1,
                runs: 1,
                passed: nth,
                sent: nth,
                hop_rtt: Duration::from_millis(40),
                backlog: true,
            };
            if let Some(block) = blocks.add(&delivery, SILENT, doubted) {
                if block.is_usual {
                    blocks.get_used_to(block.loss);
                }
                return block;
            }
        }
    }

    #[test]
    fn a_block_tells_its_loss_and_from_the_second_on_the_rate_that_came_through() {
        let (mut blocks, mut now) = (Blocks::new(), Instant::from_nanos(1_000_000_000));
        let first = Block { loss: 0.0625, came: None, is_alarm: false, is_usual: true, stays: false };
        assert_eq!(block(&mut blocks, &mut now, 16), first);
        assert_eq!(block(&mut blocks, &mut now, 16), Block { came: Some(7.5e6), ..first });
    }

    #[test]
    fn loss_far_above_the_usual_alarms_and_does_not_become_usual() {
        let (mut blocks, mut now) = (Blocks::new(), Instant::from_nanos(1_000_000_000));
        assert!(!block(&mut blocks, &mut now, 8).is_alarm, "an eighth");
        for _ in 0..9 {
            assert!(block(&mut blocks, &mut now, 4).is_alarm, "a quarter");
        }
        for _ in 0..30 {
            block(&mut blocks, &mut now, 8);
        }
        assert!(!block(&mut blocks, &mut now, 4).is_alarm, "an eighth is usual now");
    }

    /// Blocks of which a quarter is lost, each sent at this part of the rate of the one before. Returns the number that alarm before one
    /// that does not.
    fn alarms(slower: f64, loss: impl Fn(f64) -> f64) -> usize {
        let (mut blocks, mut rate, mut now) = (Blocks::new(), 20e6, Instant::from_nanos(1_000_000_000));
        let alarm = || {
            let loss = loss(rate);
            now += Duration::from_secs_f64(f64::from(PACKETS) * 8e3 / rate);
            rate *= slower;
            let lost = (loss * f64::from(PACKETS)) as u32;
            let bytes = u64::from(PACKETS - lost) * 1000;
            let delivery = Delivery {
                now,
                bytes,
                passed: PACKETS,
                lost,
                runs: lost,
                sent: PACKETS,
                hop_rtt: SILENT,
                backlog: true,
            };
            let block = blocks.add(&delivery, Duration::MAX, false).filter(|block| block.is_alarm)?;
            if block.stays {
                blocks.get_used_to(block.loss);
            }
            Some(block)
        };
        core::iter::repeat_with(alarm).take(100).take_while(Option::is_some).count()
    }

    #[test]
    fn losses_that_stay_when_less_is_sent_become_usual() {
        assert_eq!(alarms(0.75, |_| 0.25), 5);
        assert_eq!(alarms(0.6, |_| 0.4), 100, "too much for a link");
        assert_eq!(alarms(1.0, |_| 0.25), 100, "nothing shows whose they are");
        assert_eq!(alarms(0.9, |rate| 1.0 - 2e6 / rate), 21, "a policer's fall with the rate");
    }

    #[test]
    fn a_burst_is_no_alarm_and_a_queue_that_lets_few_pass_is() {
        let (mut blocks, mut now) = (Blocks::new(), Instant::from_nanos(1_000_000_000));
        let mut add = |lost, runs| {
            now += Duration::from_millis(1);
            let hop_rtt = Duration::from_millis(40);
            let delivery = Delivery {
                now,
                bytes: 1000,
                passed: 1 + lost,
                lost,
                runs,
                sent: 1 + lost,
                hop_rtt,
                backlog: true,
            };
            blocks.add(&delivery, SILENT, false)
        };
        (0..100).for_each(|_| assert_eq!(add(0, 0), None));
        assert_eq!(add(60, 1), None, "160 packets, of which a burst took a third");
        let ended = (162..).find_map(|packets| Some((packets, add(0, 0)?))).expect("packets go on");
        assert!(ended.0 == 400 && !ended.1.is_alarm, "{ended:?}");
        let jammed = (1..).find_map(|passed| Some((passed, add(99, 1)?))).expect("packets go on");
        assert!(jammed.0 == 8 && jammed.1.is_alarm && jammed.1.loss == 0.99, "{jammed:?}");
    }

    #[test]
    fn losses_that_are_doubted_do_not_become_usual() {
        let (mut blocks, mut now) = (Blocks::new(), Instant::from_nanos(1_000_000_000));
        for _ in 0..30 {
            doubted_block(&mut blocks, &mut now, 8, true);
        }
        assert!(block(&mut blocks, &mut now, 4).is_alarm, "an eighth is not usual");
        for _ in 0..30 {
            block(&mut blocks, &mut now, 8);
        }
        assert!(!block(&mut blocks, &mut now, 4).is_alarm);
        assert!(
            doubted_block(&mut blocks, &mut now, 4, true).is_alarm,
            "what was usual may come from the rate, too"
        );
    }

    #[test]
    fn losses_after_a_silence_count_in_no_block() {
        let mut blocks = Blocks::new();
        let mut add = |millis: u64, lost| {
            let now = Instant::ZERO + Duration::from_millis(1000 + millis);
            let hop_rtt = Duration::from_millis(40);
            blocks.add(
                &Delivery {
                    now,
                    bytes: 1000,
                    lost,
                    runs: lost.min(1),
                    passed: 1 + lost,
                    sent: 1 + lost,
                    hop_rtt,
                    backlog: true,
                },
                SILENT,
                false,
            )
        };
        assert_eq!(add(0, 0), None);
        assert_eq!(add(50, 500), None);
        let ended = (51..).find_map(|millis| add(millis, 0)).expect("packets go on");
        assert_eq!(ended.loss, 0.0);
    }

    #[test]
    fn losses_of_a_small_share_of_a_link_count_although_its_packets_are_far_apart() {
        let (mut blocks, mut now) = (Blocks::new(), Instant::from_nanos(1_000_000_000));
        let mut ended = None;
        for n in 0..200 {
            now += SILENT.scaled(4, 1);
            let lost = u32::from(n % 2 == 0);
            let (passed, hop_rtt) = (1 + lost, Duration::from_millis(40));
            let delivery =
                Delivery { now, bytes: 1000, lost, runs: lost, passed, sent: passed, hop_rtt, backlog: true };
            ended = ended.or(blocks.add(&delivery, SILENT, false));
        }
        assert!(
            ended.is_some_and(|block| block.is_alarm && (block.loss - 1.0 / 3.0).abs() < 0.05),
            "{ended:?}"
        );
    }
}
