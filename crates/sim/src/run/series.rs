//! Time series at a fixed step.

use starhop_proto::time::Duration;

/// A flow in one step of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowSample {
    /// Goodput: bytes handed over in order, Mbit/s.
    pub goodput_mbps: f64,
    /// Mean delay of arriving bytes, milliseconds; NaN if nothing arrived.
    pub owd_ms: f64,
    /// Mean delay of bytes handed over in order, milliseconds; NaN if nothing was handed over.
    pub in_order_owd_ms: f64,
    /// Congestion window of a TCP source at the end of the step, segments; NaN for other transports.
    pub cwnd: f64,
    /// Its slow-start threshold, segments; infinite before the first loss.
    pub ssthresh: f64,
    /// Its smoothed round trip, milliseconds; NaN before the first sample.
    pub srtt_ms: f64,
    /// Its segments under way, neither acknowledged nor taken for lost; NaN for other transports.
    pub in_flight: f64,
    /// Bytes that the first node which splits the connection has not sent on; NaN where none does.
    pub backlog_bytes: f64,
    /// Bytes at the client that wait for others before them.
    pub out_of_order_bytes: f64,
    /// Bytes handed over in order so far.
    pub delivered_bytes: f64,
}

/// The path of a flow through the sky at the end of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathSample {
    /// Its links; 0 without a path.
    pub hops: u32,
    /// Its propagation delay, milliseconds; NaN without a path.
    pub propagation_ms: f64,
}

/// A direction of a link in one step of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSample {
    /// Time that a packet arriving at the end of the step would wait, milliseconds.
    pub queue_ms: f64,
    /// Bits sent in the step, Mbit/s.
    pub sent_mbps: f64,
    /// Capacity by the schedule, Mbit/s; infinite for an unlimited link.
    pub capacity_mbps: f64,
}

/// The series of a run. Sample `i` covers the step that ends at `(i + 1) · step`.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The step.
    pub step: Duration,
    /// One list per flow.
    pub flows: Vec<Vec<FlowSample>>,
    /// One list per flow over a sky; empty without one.
    pub paths: Vec<Vec<PathSample>>,
    /// One list per direction of a link.
    pub links: Vec<Vec<LinkSample>>,
}
