//! The sending rate of a link: a schedule of rates, and the transmitter that integrates it exactly.

use super::outage::Outage;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

const NANOS_PER_SEC: u64 = 1_000_000_000;
/// Bytes of one delivery opportunity of a mahimahi trace.
const OPPORTUNITY: u64 = 1500;
const NEVER: u64 = u64::MAX;

/// The rate of a link over time.
#[derive(Clone, Debug, PartialEq)]
pub enum RateSchedule {
    /// The same rate for ever; [`Rate::UNLIMITED`] sends in no time.
    Constant(Rate),
    /// `high` for half a period, then `low` for the other half, from time zero on.
    Square {
        /// Rate of the first half.
        high: Rate,
        /// Rate of the second half.
        low: Rate,
        /// Both halves together.
        period: Duration,
    },
    /// Each rate from its instant on; the first also before it. Never empty, ascending.
    Steps(Vec<(Instant, Rate)>),
    /// Delivery opportunities of a mahimahi trace.
    Trace(Opportunities),
}

/// A mahimahi trace: the moments, within a period that repeats, at which 1500 bytes may leave.
///
/// An opportunity serves the bytes that wait at its moment, several small packets or a part of a large one. Its
/// unused rest is lost (mahimahi, `link_queue.cc`).
#[derive(Clone, Debug, PartialEq)]
pub struct Opportunities {
    times: Vec<u64>,
    period: u64,
}

impl Opportunities {
    /// Reads a trace: one millisecond per line, ascending; the last is the period.
    ///
    /// # Errors
    /// Names the line that is not a number or goes back, or says that the trace has no length.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut times: Vec<u64> = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let millis: u64 =
                line.trim().parse().map_err(|_| format!("line {}: `{line}` is no millisecond", index + 1))?;
            let at = millis.saturating_mul(1_000_000);
            if times.last().is_some_and(|&last| at < last) {
                return Err(format!("line {}: {millis} goes back in time", index + 1));
            }
            times.push(at);
        }
        match times.last().copied() {
            Some(period) if period > 0 => Ok(Self { times, period }),
            _ => Err("the trace has no length: it needs a last line above 0".into()),
        }
    }

    /// Opportunities at `times`, ascending nanoseconds below `period`, that repeat after `period`. One at least.
    pub(super) fn repeating(mut times: Vec<u64>, period: u64) -> Self {
        if times.is_empty() {
            times.push(0);
        }
        Self { times, period }
    }

    /// Bits that can leave in `[from, to)`.
    pub fn bits_between(&self, from: Instant, to: Instant) -> f64 {
        let count = self.first_from(to.as_nanos()).saturating_sub(self.first_from(from.as_nanos()));
        (count * OPPORTUNITY * 8) as f64
    }

    /// The moment of the opportunity `index`, counted over all periods.
    fn time(&self, index: u64) -> u64 {
        let count = self.times.len() as u64;
        (index / count) * self.period + self.times[(index % count) as usize]
    }

    /// The first opportunity at or after `at`.
    fn first_from(&self, at: u64) -> u64 {
        // Opportunities on the seam of two periods belong to the earlier one.
        let periods = at.saturating_sub(1) / self.period;
        let within = self.times.partition_point(|&time| time < at - periods * self.period);
        periods * self.times.len() as u64 + within as u64
    }
}

impl RateSchedule {
    /// The rate at `at` and the time until which it holds. A trace has its mean rate.
    fn segment(&self, at: u64) -> (u64, u64) {
        match self {
            Self::Constant(rate) => (rate.as_bps(), NEVER),
            Self::Square { high, low, period } => {
                let (period, half) = (period.as_nanos(), period.as_nanos() / 2);
                let start = at / period * period;
                let is_high = at - start < half;
                if is_high { (high.as_bps(), start + half) } else { (low.as_bps(), start + period) }
            }
            Self::Steps(steps) => {
                let next = steps.partition_point(|(from, _)| from.as_nanos() <= at);
                let until = steps.get(next).map_or(NEVER, |(from, _)| from.as_nanos());
                (steps[next.saturating_sub(1)].1.as_bps(), until)
            }
            Self::Trace(trace) => {
                let bits = trace.times.len() as u128 * OPPORTUNITY as u128 * 8;
                ((bits * NANOS_PER_SEC as u128 / trace.period as u128) as u64, NEVER)
            }
        }
    }

    /// The rate at `at`; the mean rate of a trace.
    pub fn at(&self, at: Instant) -> Rate {
        Rate::from_bps(self.segment(at.as_nanos()).0)
    }

    /// Bits that the schedule can carry in `[from, to)`; infinite for an unlimited rate.
    pub fn bits_between(&self, from: Instant, to: Instant) -> f64 {
        if let Self::Trace(trace) = self {
            return trace.bits_between(from, to);
        }
        let (mut at, to) = (from.as_nanos(), to.as_nanos());
        let mut bits = 0.0;
        while at < to {
            let (bps, until) = self.segment(at);
            let end = until.min(to);
            if bps == u64::MAX {
                return f64::INFINITY;
            }
            bits += bps as f64 * ((end - at) as f64 / NANOS_PER_SEC as f64);
            at = end;
        }
        bits
    }
}

/// The time that a packet spends on the transmitter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its first bit leaves the queue.
    pub starts: Instant,
    /// Its last bit is sent; the end of time when that never happens.
    pub ends: Instant,
}

/// Sends packets one after the other at the rate of a schedule, exact to the nanosecond over any number of packets:
/// the unused part of a packet's last nanosecond is credited to the next packet.
#[derive(Clone, Debug)]
pub struct Transmitter {
    schedule: RateSchedule,
    held: Option<Outage>,
    free_at: u64,
    /// Bit·nanoseconds per second that the last packet paid for and did not use.
    surplus: u64,
    /// Trace only: the opportunity in use and its bytes left.
    opportunity: (u64, u64),
}

impl Transmitter {
    /// A transmitter that waits while `held` says that the link is away.
    pub fn new(schedule: RateSchedule, held: Option<Outage>) -> Self {
        Self { schedule, held, free_at: 0, surplus: 0, opportunity: (0, OPPORTUNITY) }
    }

    /// Sends by another schedule from now on; packets accepted before keep their times.
    pub fn set_schedule(&mut self, schedule: RateSchedule, held: Option<Outage>) {
        self.schedule = schedule;
        self.held = held;
        self.surplus = 0;
        self.opportunity = (0, OPPORTUNITY);
    }

    /// Bits that it can send in `[from, to)`, by its schedule and without the time in which it waits.
    pub fn bits_between(&self, from: Instant, to: Instant) -> f64 {
        let away = self.held.as_ref().map_or(0.0, |outage| outage.share(from, to));
        self.schedule.bits_between(from, to) * (1.0 - away)
    }

    /// The schedule.
    pub fn schedule(&self) -> &RateSchedule {
        &self.schedule
    }

    /// Time at which all accepted packets will have been sent.
    pub fn free_at(&self) -> Instant {
        Instant::from_nanos(self.free_at)
    }

    /// Takes a packet of `bytes` that is ready at `now`, behind all earlier ones.
    pub fn transmit(&mut self, now: Instant, bytes: u32) -> Service {
        let now = now.as_nanos();
        let starts = now.max(self.free_at);
        if self.free_at < now {
            self.surplus = 0;
        }
        let ends = match &self.schedule {
            RateSchedule::Constant(rate) if self.held.is_none() => {
                self.constant(rate.as_bps(), starts, bytes)
            }
            RateSchedule::Trace(_) => self.by_trace(now, bytes),
            _ => self.by_segments(starts, bytes),
        };
        self.free_at = ends;
        Service { starts: Instant::from_nanos(starts), ends: Instant::from_nanos(ends) }
    }

    /// Forgets the waiting packets: the link was reset at `now`.
    pub fn reset(&mut self, now: Instant) {
        self.free_at = self.free_at.min(now.as_nanos());
        self.surplus = 0;
    }

    fn constant(&mut self, bps: u64, start: u64, bytes: u32) -> u64 {
        if bps == u64::MAX {
            return start;
        }
        if bps == 0 {
            return NEVER;
        }
        let need = u64::from(bytes) * 8 * NANOS_PER_SEC;
        if self.surplus >= need {
            self.surplus -= need;
            return start;
        }
        let need = need - self.surplus;
        let nanos = need.div_ceil(bps);
        self.surplus = nanos * bps - need;
        start + nanos
    }

    fn by_segments(&mut self, start: u64, bytes: u32) -> u64 {
        let mut need = u64::from(bytes) * 8 * NANOS_PER_SEC;
        need = need.saturating_sub(std::mem::take(&mut self.surplus));
        let mut at = start;
        loop {
            let (bps, until) = self.open_segment(at);
            if bps == u64::MAX {
                return at;
            }
            if bps > 0 {
                let nanos = need.div_ceil(bps);
                if nanos <= until - at {
                    self.surplus = nanos * bps - need;
                    return at + nanos;
                }
                // Cannot overflow: it is less than `need`.
                need -= (until - at) * bps;
            }
            if until == NEVER {
                return NEVER;
            }
            at = until;
        }
    }

    /// The segment of the schedule with the outages cut out of it.
    fn open_segment(&self, at: u64) -> (u64, u64) {
        let (bps, until) = self.schedule.segment(at);
        let Some(outage) = &self.held else { return (bps, until) };
        let window = outage.window(Instant::from_nanos(at));
        match window.down_until {
            Some(up) => (0, up.as_nanos()),
            None => (bps, until.min(window.next_down.as_nanos())),
        }
    }

    fn by_trace(&mut self, now: u64, bytes: u32) -> u64 {
        let RateSchedule::Trace(trace) = &self.schedule else { return NEVER };
        let (mut index, mut left) = self.opportunity;
        if trace.time(index) < now {
            (index, left) = (trace.first_from(now), OPPORTUNITY);
        }
        let mut need = u64::from(bytes);
        loop {
            let is_down = |at| {
                self.held.as_ref().is_some_and(|o| o.window(Instant::from_nanos(at)).down_until.is_some())
            };
            let used = if is_down(trace.time(index)) { 0 } else { need.min(left) };
            need -= used;
            left -= used;
            if need == 0 {
                break;
            }
            (index, left) = (index + 1, OPPORTUNITY);
        }
        self.opportunity = (index, left);
        trace.time(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_thousand_packets_back_to_back_take_exactly_their_bits() {
        // 1000 · 1237 B · 8 bit at 7 Mbit/s are 1413.714285… ms: rounding each packet up would add 0.5 µs.
        let mut tx = Transmitter::new(RateSchedule::Constant(Rate::from_mbps(7)), None);
        let last = (0..1000).map(|_| tx.transmit(Instant::ZERO, 1237)).last().map(|s| s.ends.as_nanos());
        assert_eq!(last, Some(1_413_714_286));
    }

    #[test]
    fn an_idle_transmitter_starts_at_once() {
        let mut tx = Transmitter::new(RateSchedule::Constant(Rate::from_mbps(20)), None);
        tx.transmit(Instant::ZERO, 1500);
        let service = tx.transmit(at(5), 1500);
        assert_eq!(service.starts, at(5));
        assert_eq!(service.ends, at(5) + Duration::from_micros(600));
    }

    #[test]
    fn a_square_wave_carries_its_mean_over_whole_periods() {
        let (high, low) = (Rate::from_mbps(11), Rate::from_mbps(9));
        let square = RateSchedule::Square { high, low, period: Duration::from_secs(2) };
        assert_eq!(square.bits_between(Instant::ZERO, at(2_000)), 20e6);
        assert_eq!(square.bits_between(at(500), at(1_500)), 10e6);
        // 25 Mbit need one high second, one low second, and 5/11 of the next high one.
        let mut tx = Transmitter::new(square, None);
        let end = (0..2500).map(|_| tx.transmit(Instant::ZERO, 1250)).last().map(|s| s.ends.as_nanos());
        assert_eq!(end, Some(2_454_545_455));
    }

    #[test]
    fn steps_change_the_rate_within_a_packet() {
        let steps = RateSchedule::Steps(vec![(at(0), Rate::from_mbps(10)), (at(1), Rate::from_mbps(20))]);
        // 1 ms at 10 Mbit/s are 1250 bytes; the other 1250 take half a millisecond.
        let mut tx = Transmitter::new(steps, None);
        assert_eq!(tx.transmit(Instant::ZERO, 2500).ends.as_nanos(), 1_500_000);
    }

    #[test]
    fn a_rate_of_zero_for_ever_never_ends() {
        let mut tx = Transmitter::new(RateSchedule::Constant(Rate::ZERO), None);
        assert_eq!(tx.transmit(Instant::ZERO, 100).ends.as_nanos(), u64::MAX);
    }

    #[test]
    fn a_held_outage_delays_by_its_length() {
        let outage = Outage::times(vec![(at(1), at(11))], true);
        let mut tx = Transmitter::new(RateSchedule::Constant(Rate::from_mbps(10)), Some(outage));
        assert_eq!(tx.transmit(Instant::ZERO, 2500).ends, at(12));
    }

    #[test]
    fn a_mahimahi_trace_gives_its_rate_and_loops() {
        // Two opportunities in 2 ms: 12 Mbit/s.
        let trace = Opportunities::parse("1\n2\n").map(RateSchedule::Trace);
        let Ok(schedule) = trace else { panic!("{trace:?}") };
        assert_eq!(schedule.bits_between(at(1), at(10_001)), 120e6);
        let mut tx = Transmitter::new(schedule, None);
        let ends: Vec<_> = (0..4).map(|_| tx.transmit(Instant::ZERO, 1500).ends).collect();
        assert_eq!(ends, [at(1), at(2), at(3), at(4)]);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_take_several() {
        let trace = Opportunities::parse("1\n2\n3\n").map(RateSchedule::Trace);
        let Ok(schedule) = trace else { panic!("{trace:?}") };
        let mut tx = Transmitter::new(schedule, None);
        assert_eq!(tx.transmit(Instant::ZERO, 700).ends, at(1));
        assert_eq!(tx.transmit(Instant::ZERO, 700).ends, at(1));
        assert_eq!(tx.transmit(Instant::ZERO, 1700).ends, at(3));
        // Nothing waited at 4, so that opportunity is lost.
        assert_eq!(tx.transmit(at(5), 1500).ends, at(5));
        assert_eq!(tx.transmit(at(5), 1500).ends, at(6));
    }

    #[test]
    fn a_broken_trace_is_refused_with_its_line() {
        assert!(Opportunities::parse("1\nx\n").is_err_and(|e| e.contains("line 2")));
        assert!(Opportunities::parse("5\n4\n").is_err_and(|e| e.contains("line 2")));
        assert!(Opportunities::parse("").is_err());
    }
}
