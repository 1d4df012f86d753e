//! The measurements of one flow.

use super::histogram::Histogram;
use super::sent::Sent;
use starhop_proto::name::{ByteRange, RangeSet};
use starhop_proto::time::{Duration, Instant};
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// Delays of a flow since the end of the warm-up, weighted by bytes.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    /// First arrival at the client since the first transmission by the source.
    pub owd: Histogram,
    /// Handed over in order since the first transmission by the source.
    pub in_order: Histogram,
    /// As `owd`, of ranges of which a copy was lost on the way.
    pub retransmitted: Histogram,
    /// As `owd`, of ranges of which no copy was lost.
    pub undisturbed: Histogram,
    /// `owd` less propagation and serialisation.
    pub queueing: Histogram,
    /// Difference between the `owd` of one arrival and of the one before.
    pub jitter: Histogram,
}

impl Delays {
    /// Adds those of other flows.
    pub fn add(&mut self, other: &Self) {
        let Self { owd, in_order, retransmitted, undisturbed, queueing, jitter } = self;
        owd.add(&other.owd);
        in_order.add(&other.in_order);
        retransmitted.add(&other.retransmitted);
        undisturbed.add(&other.undisturbed);
        queueing.add(&other.queueing);
        jitter.add(&other.jitter);
    }
}

/// Sums since the last sample of the time series.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepSums {
    /// Bytes handed over in order.
    pub in_order_bytes: u64,
    /// Sum of owd · bytes, nanosecond bytes.
    pub owd: f64,
    /// Bytes that arrived.
    pub owd_bytes: u64,
    /// Sum of in-order owd · bytes.
    pub in_order_owd: f64,
    /// Bytes handed over in order that had a delay.
    pub in_order_owd_bytes: u64,
}

/// The record of one flow.
#[derive(Debug, Default)]
pub struct FlowRecord {
    pub(super) content: usize,
    received: RangeSet,
    last_owd: Option<u64>,
    /// Propagation and serialisation of a full packet, from each instant on.
    base: Vec<(Instant, Duration)>,
    /// Time at which its application began.
    pub started: Option<Instant>,
    /// Time at which its last byte was handed over.
    pub finished: Option<Instant>,
    /// Delays since the end of the warm-up; several flows may have them in common.
    pub(super) delays: Rc<RefCell<Delays>>,
    /// Bytes handed over in order, once.
    pub in_order_bytes: u64,
    /// Bytes that were handed over since the end of the warm-up.
    pub measured_bytes: u64,
    /// Sums since the last sample.
    pub step: StepSums,
    /// Times from each question to the last byte of its answer, for a client that asks for one thing after the
    /// other.
    pub responses: Vec<Duration>,
}

impl FlowRecord {
    pub(super) fn of(content: usize, delays: Rc<RefCell<Delays>>) -> Self {
        Self { content, delays, ..Self::default() }
    }

    /// Delays since the end of the warm-up, of all flows that are measured together with this one.
    pub fn delays(&self) -> Ref<'_, Delays> {
        self.delays.borrow()
    }

    /// From `at` on a full packet takes `base` over the path with empty queues.
    pub fn set_base(&mut self, at: Instant, base: Duration) {
        if self.base.last().is_none_or(|(_, last)| *last != base) {
            self.base.push((at, base));
        }
    }

    /// The first offset that has not arrived.
    pub fn in_order_end(&self) -> u64 {
        self.received.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    /// Bytes that arrived and wait for others before them.
    pub fn out_of_order(&self) -> u64 {
        self.received.byte_count() - self.in_order_end()
    }

    /// Takes note of an arrival; the bytes that it completes. `None`: some of them arrived before.
    pub(crate) fn insert(&mut self, range: ByteRange) -> Option<ByteRange> {
        if self.received.overlaps(range) {
            return None;
        }
        let before = self.in_order_end();
        self.received.insert(range);
        Some(ByteRange::new(before, self.in_order_end()))
    }

    pub(crate) fn on_arrived(&mut self, now: Instant, sent: Sent, is_measured: bool) {
        if self.started.is_none_or(|started| sent.at < started) {
            return;
        }
        let (owd, bytes) = (now.since(sent.at).as_nanos(), sent.range.len());
        self.step.owd += owd as f64 * bytes as f64;
        self.step.owd_bytes += bytes;
        let last = self.last_owd.replace(owd);
        if !is_measured {
            return;
        }
        let delays = &mut *self.delays.borrow_mut();
        delays.owd.record(owd, bytes);
        let queueing = owd.saturating_sub(self.base_at(sent.at).as_nanos());
        delays.queueing.record(queueing, bytes);
        let class = if sent.is_lost { &mut delays.retransmitted } else { &mut delays.undisturbed };
        class.record(owd, bytes);
        if let Some(last) = last {
            delays.jitter.record(owd.abs_diff(last), 1);
        }
    }

    pub(crate) fn on_in_order(&mut self, now: Instant, sent: Sent, is_measured: bool) {
        if self.started.is_none_or(|started| sent.at < started) {
            return;
        }
        let (owd, bytes) = (now.since(sent.at).as_nanos(), sent.range.len());
        self.step.in_order_owd += owd as f64 * bytes as f64;
        self.step.in_order_owd_bytes += bytes;
        if is_measured {
            self.delays.borrow_mut().in_order.record(owd, bytes);
        }
    }

    pub(crate) fn count_in_order(&mut self, bytes: u64, is_measured: bool) {
        self.in_order_bytes += bytes;
        self.step.in_order_bytes += bytes;
        self.measured_bytes += if is_measured { bytes } else { 0 };
    }

    fn base_at(&self, at: Instant) -> Duration {
        let next = self.base.partition_point(|(from, _)| *from <= at);
        self.base.get(next.saturating_sub(1)).map_or(Duration::ZERO, |(_, base)| *base)
    }
}
