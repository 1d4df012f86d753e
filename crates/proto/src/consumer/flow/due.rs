//! The times at which something is due of a flow, and what is done then: lost repairs, more requests, questions and timeouts.

use super::{Flow, PutOff};
use crate::consumer::{ConsumerEvent, Shared, Sink};
use crate::name::ByteRange;
use crate::time::{Duration, Instant};
use crate::wire::Interest;

/// Time between two looks at how long others wait.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A flow of which nothing has come for so long asks, before its timeout, whether its bytes still wait for their turn.
const QUIET: Duration = Duration::from_millis(1_500);

impl<S: Sink> Flow<S> {
    /// Time of the next [`Flow::on_timeout`], over a hop that takes `hop_rtt`.
    pub(in crate::consumer) fn next_timeout(&self, hop_rtt: Duration) -> Option<Instant> {
        if self.progress.is_over {
            return None;
        }
        let holes = self.fetch.intake.next_timeout(hop_rtt);
        if let Some(PutOff { until, is_whole }) = self.put_off {
            return holes.filter(|_| !is_whole).into_iter().chain([until]).min();
        }
        let timeouts =
            [self.timeout_due(), self.look_due(), self.probe_due(), self.quiet_due(), holes, self.asks_at];
        timeouts.into_iter().flatten().min()
    }

    /// Time of the end-to-end timeout. A silent path is probed, with a timeout that backs off; otherwise every
    /// request has its own.
    fn timeout_due(&self) -> Option<Instant> {
        let silent = self.progress.last + self.rto.timeout(self.progress.probes);
        let due = self.timeouts.next_due(&self.rto)?;
        Some(if self.progress.probes > 0 { due.max(silent) } else { due })
    }

    /// Time to look again how long others wait, where that puts the timeout off: they may have gone, and this flow hears nothing of it.
    fn look_due(&self) -> Option<Instant> {
        let others = self.fetch.intake.patience_for_others();
        let due = self.timeout_due().filter(|_| others > Duration::ZERO)?;
        Some(due.before(others).max(self.looks_at))
    }

    /// Time at which the next hop is asked about a flow that has stopped.
    fn probe_due(&self) -> Option<Instant> {
        let due = self.silence.due().map(|due| due + self.fetch.intake.patience_for_next());
        due.filter(|_| self.is_probed())
    }

    /// True if the flow may be asked about before its timeout.
    fn is_probed(&self) -> bool {
        let is_asking = self.mechanisms.silence_probes && !self.fetch.intake.expected().is_empty();
        is_asking && self.live.is_none()
    }

    /// Time to ask about bytes that wait for their turn for long, as far as is known, or come over a long path: those before them may have
    /// gone, and their request with them.
    fn quiet_due(&self) -> Option<Instant> {
        let waits = self.is_probed() && self.rto.timeout(0) > QUIET && !self.has_asked_in_quiet;
        waits.then(|| (self.progress.last + QUIET).max(self.looks_at))
    }

    /// Asks for the next bytes once, if others had their turn meanwhile. A node that has them in line answers with a Notice.
    fn ask_in_quiet(&mut self, now: Instant, shared: &mut Shared) {
        if !self.fetch.intake.has_turn_in(now.since(self.progress.last)) {
            return;
        }
        self.has_asked_in_quiet = true;
        let Some(missing) = self.fetch.intake.expected().first() else { return };
        self.progress.timed.clear();
        let next = missing.prefix(shared.config.span_bytes());
        self.fetch.ask_again(now, next, Interest::DEFAULT_HOP_LIMIT, &mut shared.outbox);
    }

    /// Packets were lost on the hop that no hole accounts for.
    pub(in crate::consumer) fn on_unexplained_loss(&mut self, now: Instant, shared: &mut Shared) {
        self.stats.repairs += self.fetch.on_unexplained_loss(now, &mut shared.uplinks, &mut shared.outbox);
    }

    /// Time passed: bytes that are lost by now are asked for again.
    pub(in crate::consumer) fn on_timeout(&mut self, now: Instant, shared: &mut Shared) {
        if self.progress.is_over {
            return;
        }
        if self.put_off.is_none_or(|put_off| !put_off.is_whole) {
            self.stats.repairs += self.fetch.on_timeout(now, &mut shared.uplinks, &mut shared.outbox);
        }
        if let Some(put_off) = self.put_off {
            if put_off.until <= now {
                self.resume(now, shared);
            }
            return;
        }
        if self.asks_at.is_some_and(|at| at <= now) {
            self.refill(now, shared);
        }
        if self.probe_due().is_some_and(|at| at <= now) {
            self.probe(now, shared);
        }
        if self.quiet_due().is_some_and(|at| at <= now) {
            self.ask_in_quiet(now, shared);
        }
        if self.timeout_due().is_some_and(|at| at <= now) {
            self.on_request_timeout(now, shared);
        }
        self.looks_at = now + LOOK_EVERY;
    }

    /// Asks for one packet of the overdue bytes, all the way up: its answer shows which node answers now.
    pub(in crate::consumer) fn probe(&mut self, now: Instant, shared: &mut Shared) {
        self.silence.on_probe();
        let Some(missing) = self.fetch.intake.expected().first() else { return };
        let packet = missing.prefix(shared.config.payload as u64);
        // The answer may belong to either request, and times neither (Karn's rule).
        self.progress.timed.retain(|(offset, _)| !packet.contains(ByteRange::at(*offset, 1)));
        self.fetch.ask_again(now, packet, Interest::DEFAULT_HOP_LIMIT, &mut shared.outbox);
    }

    /// The last resort: asks once more, all the way up, for bytes that have been missing too long.
    fn on_request_timeout(&mut self, now: Instant, shared: &mut Shared) {
        if !self.mechanisms.patient_timeouts {
            return self.on_each_timeout(now, shared);
        }
        let is_silent = now.since(self.progress.last) >= self.rto.timeout(0);
        while let Some((range, tries)) = self.timeouts.take_due(now, &self.rto) {
            let missing = self.fetch.intake.expected().intersect(range).next();
            let Some(missing) = missing else { continue };
            if !is_silent
                && (missing.start >= self.fetch.intake.seen_end() || self.fetch.intake.is_tracking(missing))
            {
                // Its turn has not come yet, or the hops know of its loss and repair it.
                self.timeouts.put_back(now, range, tries);
                continue;
            }
            self.stats.timeouts += 1;
            self.progress.timed.clear();
            self.repeat(now, range, tries, shared);
            if is_silent {
                // The others would meet the same silence: one asks for all.
                self.progress.probes += 1;
                self.progress.last = now;
                let count = self.progress.probes;
                shared.events.push_back(ConsumerEvent::TimedOut { flow: self.fetch.id, count });
                return;
            }
        }
    }

    /// Every request that has waited too long is asked once more by itself (LEOTP section III.B).
    fn on_each_timeout(&mut self, now: Instant, shared: &mut Shared) {
        let is_silent = now.since(self.progress.last) >= self.rto.timeout(0);
        let before = self.stats.timeouts;
        while let Some((range, tries)) = self.timeouts.take_due(now, &self.rto) {
            if !self.fetch.intake.expected().overlaps(range) {
                continue;
            }
            self.stats.timeouts += 1;
            // The answer may belong to either request, and times neither (Karn's rule).
            self.progress.timed.retain(|(offset, _)| !range.contains(ByteRange::at(*offset, 1)));
            self.repeat(now, range, tries, shared);
            if is_silent {
                let count = tries + 1;
                shared.events.push_back(ConsumerEvent::TimedOut { flow: self.fetch.id, count });
            }
        }
        if self.stats.timeouts > before {
            self.rto.back_off();
        }
    }

    /// Asks for the missing bytes of `range`, which has timed out `tries` times before.
    fn repeat(&mut self, now: Instant, range: ByteRange, tries: u32, shared: &mut Shared) {
        self.timeouts.put_back(now, range, tries + 1);
        let mut list = shared.outbox.take_list();
        list.extend(self.fetch.intake.expected().intersect(range));
        for &missing in &list {
            self.fetch.ask_again(now, missing, Interest::DEFAULT_HOP_LIMIT, &mut shared.outbox);
        }
        shared.outbox.give_list(list);
    }
}
