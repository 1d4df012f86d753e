use super::Delivery;
use crate::time::{Duration, Instant};

/// A block of packets is judged for loss; loss well above the usual means a policer or a short queue, which
/// delay does not show.
const PACKETS: u32 = 128;
/// The share of lost packets above which a block alarms.
pub(super) const ALARM: f64 = 0.15;

/// The loss of a block of packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Block {
    /// The share of packets that was lost.
    pub(super) loss: f64,
    /// The rate that came through, bit/s; `None` of the first block, whose beginning is unknown.
    pub(super) came: Option<f64>,
    /// More was lost than is usual on this link.
    pub(super) is_alarm: bool,
}

/// Counts the packets of a hop in blocks, and knows the usual loss. Losses after a silence count in none: the path was gone, which is
/// an outage, not congestion.
#[derive(Debug)]
pub(super) struct Blocks {
    usual_loss: f64,
    sent: u32,
    lost: u32,
    bytes: u64,
    from: Instant,
    /// Arrival of the last packet.
    last_at: Instant,
}

impl Blocks {
    /// Nothing came yet.
    pub(super) fn new() -> Self {
        Self { usual_loss: 0.0, sent: 0, lost: 0, bytes: 0, from: Instant::ZERO, last_at: Instant::ZERO }
    }

    /// A packet arrived; after a time of `silent` without one the path was gone. Losses that are `doubted` may come from the rate, and none
    /// of them is usual. Returns the block that ends with it.
    #[inline]
    pub(super) fn add(&mut self, delivery: &Delivery, silent: Duration, doubted: bool) -> Option<Block> {
        let silence = delivery.now.since(core::mem::replace(&mut self.last_at, delivery.now));
        if delivery.lost > 0 && silence >= silent {
            return None;
        }
        self.sent += delivery.sent;
        self.lost += delivery.lost;
        self.bytes += delivery.bytes;
        (self.sent >= PACKETS).then(|| self.end(delivery.now, doubted))
    }

    fn end(&mut self, now: Instant, doubted: bool) -> Block {
        let loss = f64::from(self.lost) / f64::from(self.sent);
        (self.sent, self.lost) = (0, 0);
        let from = core::mem::replace(&mut self.from, now);
        let bits = core::mem::take(&mut self.bytes) as f64 * 8.0;
        let span = now.since(from).as_secs_f64();
        let came = (from != Instant::ZERO && span != 0.0).then(|| bits / span);
        let usual = if doubted { 0.0 } else { self.usual_loss };
        let is_alarm = loss > ALARM + 1.5 * usual;
        if !is_alarm && !doubted {
            self.usual_loss += (loss - self.usual_loss) / 8.0;
        }
        Block { loss, came, is_alarm }
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
                sent: nth,
                hop_rtt: Duration::from_millis(40),
                backlog: true,
            };
            if let Some(block) = blocks.add(&delivery, SILENT, doubted) {
                return block;
            }
        }
    }

    #[test]
    fn a_block_tells_its_loss_and_from_the_second_on_the_rate_that_came_through() {
        let (mut blocks, mut now) = (Blocks::new(), Instant::from_nanos(1_000_000_000));
        assert_eq!(block(&mut blocks, &mut now, 16), Block { loss: 0.0625, came: None, is_alarm: false });
        let second = block(&mut blocks, &mut now, 16);
        assert_eq!(second, Block { loss: 0.0625, came: Some(7.5e6), is_alarm: false });
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
                &Delivery { now, bytes: 1000, lost, sent: 1 + lost, hop_rtt, backlog: true },
                SILENT,
                false,
            )
        };
        assert_eq!(add(0, 0), None);
        assert_eq!(add(50, 500), None);
        let ended = (51..).find_map(|millis| add(millis, 0)).expect("packets go on");
        assert_eq!(ended.loss, 0.0);
    }
}
