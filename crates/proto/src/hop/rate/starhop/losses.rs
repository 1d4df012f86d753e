//! The meaning of what a block of packets has lost: the link's own losses, a full queue, or a policer.

use super::{NO_QUEUE, Starhop};
use crate::hop::rate::Delivery;
use crate::hop::rate::blocks::{ALARM, Block};
use crate::hop::rate::interval::Interval;
use crate::hop::rate::policer::Alarm;
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};

/// The grant does not grow for so many hopRTTs after an alarm.
const CALM_RTTS: u64 = 8;
/// … and does not follow what comes for so many: it was sent before, or with what was sent before in the queue.
const CUT_RTTS: u64 = 3;

/// Up to this share of loss a block has passed.
const LOSS_PASSED: f64 = 0.01;

/// The known rate of the link fades by so much with each block.
const FADES: f64 = 1.0 / 64.0;

impl Starhop {
    /// A block of packets has ended with one of this interval.
    pub(super) fn on_block(&mut self, delivery: &Delivery, block: Block, interval: &Interval, rtt: &HopRtt) {
        self.contest.on_block(block.loss);
        self.link = block.came.unwrap_or_default().max(self.link * (1.0 - FADES));
        self.watch_policer(delivery, block, rtt);
        let (delay, floor) = (interval.mean_of_all(), rtt.floor().as_secs_f64());
        let has_queue = self.shows_queue(delay, floor);
        // Above the least of the last minute the path may have become longer, or a queue may pass for that.
        let may_have_queue = self.shows_queue(delay, floor.min(self.contest.least()));
        // Usual losses raise the alarm. Were those of a queue usual, it might lose more the next time, and that were usual, too.
        let is_of_link = match block.is_alarm {
            true => block.stays && !has_queue,
            false => block.is_usual && (block.loss < ALARM || !may_have_queue),
        };
        if is_of_link {
            self.blocks.get_used_to(block.loss);
        }
        if block.is_alarm {
            self.cut(delivery.now, block, interval, (rtt.smoothed(), may_have_queue));
        }
    }

    /// More was lost than is usual: what came is granted.
    fn cut(
        &mut self,
        now: Instant,
        block: Block,
        interval: &Interval,
        (hop_rtt, may_have_queue): (Duration, bool),
    ) {
        let calm_until = now + hop_rtt.scaled(CALM_RTTS, 1);
        let came = interval.received_rate(now).unwrap_or(self.rate / 2.0);
        self.rate = self.rate.min(came);
        if may_have_queue {
            // A moment may have brought more than the block; while the grant doubles, what came a moment ago counts.
            let of_block = block.came.filter(|_| !self.growth.is_startup());
            self.rate = self.rate.min(of_block.unwrap_or(f64::INFINITY));
            self.settling = Some((now + hop_rtt.scaled(CUT_RTTS, 1), self.rate));
            self.growth.carries_no_more(self.rate);
            self.overflow.on_alarm(block.loss, calm_until);
        }
        self.pulses.stop();
        self.growth.leave_startup();
        self.growth.calm_down(calm_until);
    }

    /// True if a hopRTT of `delay` seconds shows a queue, of whomever, on a path that takes `base` seconds. A queue of a few packets of the
    /// link may be less than one packet of a small share of it.
    fn shows_queue(&self, delay: f64, base: f64) -> bool {
        delay - base > NO_QUEUE * self.base.target(self.usual_target(self.link()))
    }

    fn watch_policer(&mut self, delivery: &Delivery, block: Block, rtt: &HopRtt) {
        let (at, loss, Some(came)) = (delivery.now, block.loss, block.came) else { return };
        let (delay, floor) = (delivery.hop_rtt.as_secs_f64(), rtt.floor().as_secs_f64());
        if loss > ALARM && !self.shows_queue(delay, floor) {
            self.policer.on_alarm(Alarm { at, sent: came / (1.0 - loss), came });
        } else if loss <= LOSS_PASSED {
            self.policer.on_passed(at, came);
        }
    }
}
