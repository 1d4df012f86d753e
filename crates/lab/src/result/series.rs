//! A run over time, step by step.

use super::{is_listed, rounded};
use crate::scenario::{Built, Scenario};
use serde::{Deserialize, Serialize};
use starhop_sim::run::{FlowSample, LinkSample};

/// Time series; sample `i` covers the step that ends at `(i + 1) · step_s`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeriesResult {
    /// The step.
    pub step_s: f64,
    /// One per flow that is listed.
    pub flows: Vec<FlowSeries>,
    /// One per direction of a link, in the order of the result's links; none of a constellation's, which come and go.
    pub links: Vec<LinkSeries>,
}

/// The series of a flow; `null` where nothing arrived.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowSeries {
    /// Bytes handed over in order.
    pub goodput_mbps: Vec<Option<f64>>,
    /// Mean delay of arrivals.
    pub owd_ms: Vec<Option<f64>>,
    /// Mean delay of bytes handed over in order.
    pub in_order_owd_ms: Vec<Option<f64>>,
    /// Over a constellation: links of the path at the end of the step, 0 without a path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<u32>,
    /// Over a constellation: propagation delay of the path at the end of the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub propagation_ms: Vec<Option<f64>>,
    /// Congestion window of the TCP source, segments; empty for other transports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cwnd: Vec<Option<f64>>,
    /// Its slow-start threshold, segments; null before the first loss.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssthresh: Vec<Option<f64>>,
    /// Its smoothed round trip.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub srtt_ms: Vec<Option<f64>>,
    /// Segments under way from the TCP source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<Option<f64>>,
    /// Bytes that the first node which splits the connection has not sent on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backlog_bytes: Vec<Option<f64>>,
    /// Bytes at the client that wait for others before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_order_bytes: Vec<Option<f64>>,
    /// Bytes handed over in order so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivered_bytes: Vec<Option<f64>>,
}

/// The series of one direction of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkSeries {
    /// Wait of a packet that arrives at the end of the step.
    pub queue_ms: Vec<Option<f64>>,
    /// Sent bits.
    pub sent_mbps: Vec<Option<f64>>,
    /// Capacity.
    pub capacity_mbps: Vec<Option<f64>>,
}

pub(super) fn series(scenario: &Scenario, built: &Built) -> SeriesResult {
    let series = built.simulation.series();
    let flow = |(index, samples): (usize, &Vec<FlowSample>)| {
        let path = series.paths.get(index).map(Vec::as_slice).unwrap_or_default();
        FlowSeries {
            hops: path.iter().map(|s| s.hops).collect(),
            propagation_ms: column(path, |s| s.propagation_ms),
            ..flow_series(samples)
        }
    };
    let listed = series.flows.iter().enumerate().filter(|(index, _)| is_listed(scenario, *index));
    let link = |samples: &Vec<LinkSample>| LinkSeries {
        queue_ms: column(samples, |s| s.queue_ms),
        sent_mbps: column(samples, |s| s.sent_mbps),
        capacity_mbps: column(samples, |s| s.capacity_mbps),
    };
    SeriesResult {
        step_s: series.step.as_secs_f64(),
        flows: listed.map(flow).collect(),
        links: series.links.iter().map(link).collect(),
    }
}

/// The series of one flow.
pub(crate) fn flow_series(samples: &[FlowSample]) -> FlowSeries {
    FlowSeries {
        hops: Vec::new(),
        propagation_ms: Vec::new(),
        goodput_mbps: column(samples, |s| s.goodput_mbps),
        owd_ms: column(samples, |s| s.owd_ms),
        in_order_owd_ms: column(samples, |s| s.in_order_owd_ms),
        cwnd: sender_column(samples, |s| s.cwnd),
        ssthresh: sender_column(samples, |s| s.ssthresh),
        srtt_ms: sender_column(samples, |s| s.srtt_ms),
        in_flight: sender_column(samples, |s| s.in_flight),
        backlog_bytes: known_column(samples, |s| s.backlog_bytes),
        out_of_order_bytes: known_column(samples, |s| s.out_of_order_bytes),
        delivered_bytes: column(samples, |s| s.delivered_bytes),
    }
}

/// Only flows with a window have one.
fn sender_column(samples: &[FlowSample], value: impl Fn(&FlowSample) -> f64) -> Vec<Option<f64>> {
    if samples.iter().all(|s| s.cwnd.is_nan()) { Vec::new() } else { column(samples, value) }
}

/// Only flows of which it is known at some time have one.
fn known_column(samples: &[FlowSample], value: impl Fn(&FlowSample) -> f64) -> Vec<Option<f64>> {
    if samples.iter().all(|s| value(s).is_nan()) { Vec::new() } else { column(samples, value) }
}

/// JSON knows no NaN and no infinity.
fn column<S>(samples: &[S], value: impl Fn(&S) -> f64) -> Vec<Option<f64>> {
    samples.iter().map(|s| Some(rounded(value(s))).filter(|v| v.is_finite())).collect()
}
