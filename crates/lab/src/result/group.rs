//! The flows that one `count` made, summed up.

use super::{FlowFacts, MeanP99, Spread, jain, mean_p99, measured, rounded, spread};
use crate::scenario::{Group, Scenario};
use serde::{Deserialize, Serialize};
use starhop_sim::record::{Delays, Recorder};

/// A group of flows alike. Large groups (more than 1000 flows) have no entries in the list of flows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupResult {
    /// The flows' name without their numbers.
    pub name: String,
    /// Their transport.
    pub transport: String,
    /// Number of flows.
    pub count: u64,
    /// Number of flows that were handed every byte.
    pub completed: u64,
    /// The fluid bound of the path for payload, which the flows share.
    pub ideal_mbps: f64,
    /// The sum of the goodputs by `ideal_mbps`.
    pub efficiency: f64,
    /// Jain's index of the goodputs.
    pub jain: f64,
    /// As for a flow, over the flows.
    pub goodput_mbps: Quantiles,
    /// Over the flows that completed.
    pub completion_s: Quantiles,
    /// Bytes handed over in order, once, by all flows in the whole run.
    pub delivered_bytes: u64,
    /// As for a flow, over the bytes of all flows.
    pub owd_ms: Spread,
    /// As for a flow, over the bytes of all flows.
    pub in_order_owd_ms: Spread,
    /// As for a flow, over the bytes of all flows.
    pub queueing_ms: MeanP99,
    /// Sum over all flows; flows of equal content count their source's bytes each.
    pub source_bytes: u64,
    /// Sum over all flows.
    pub return_bytes: u64,
    /// Sum over all flows.
    pub repairs: u64,
    /// Sum over all flows.
    pub timeouts: u64,
}

/// The values of a group's flows, each flow counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Sum over all flows.
    pub sum: f64,
    /// Mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// 1st percentile.
    pub p1: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

impl Quantiles {
    /// Quantiles of values in any order; zeros if there are no values.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Self::default() };
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        let sum: f64 = values.iter().sum();
        let mean = sum / values.len() as f64;
        let six_digits = |value: f64| (value * 1e6).round() / 1e6;
        let [sum, mean, min, p1, p50, p99, max] =
            [sum, mean, min, at(0.01), at(0.5), at(0.99), max].map(six_digits);
        Self { sum, mean, min, p1, p50, p99, max }
    }
}

/// The groups of a scenario, each with the numbers of its flows, in the order of the file.
fn members(scenario: &Scenario) -> Vec<(&Group, Vec<usize>)> {
    let mut groups: Vec<(&Group, Vec<usize>)> = Vec::new();
    for (index, flow) in scenario.flows.iter().enumerate() {
        let Some(group) = &flow.group else { continue };
        // A group's flows stand next to each other.
        match groups.last_mut().filter(|(last, _)| *last == group) {
            Some((_, flows)) => flows.push(index),
            None => groups.push((group, vec![index])),
        }
    }
    groups
}

/// The results of the groups of a scenario.
pub(crate) fn groups(
    scenario: &Scenario,
    recorder: &Recorder,
    facts: impl Fn(usize) -> FlowFacts,
) -> Vec<GroupResult> {
    let groups = members(scenario).into_iter();
    let of = |flows: Vec<usize>| flows.into_iter().map(&facts).collect::<Vec<_>>();
    groups.map(|(group, flows)| summary(scenario, recorder, group, &of(flows))).collect()
}

fn summary(scenario: &Scenario, recorder: &Recorder, group: &Group, facts: &[FlowFacts]) -> GroupResult {
    let record = |facts: &FlowFacts| recorder.flow(facts.record);
    let goodputs: Vec<f64> = facts.iter().map(|facts| goodput(scenario, recorder, facts)).collect();
    let completions = facts
        .iter()
        .filter_map(|facts| record(facts).finished.map(|finished| finished.since(facts.start).as_secs_f64()));
    let completions: Vec<f64> = completions.collect();
    let delays = delays(recorder, group, facts);
    let ideal_mbps = facts.first().map_or(0.0, |facts| facts.ideal_mbps);
    let sum = |value: fn(&FlowFacts) -> u64| facts.iter().map(value).sum();
    GroupResult {
        name: group.name.to_string(),
        transport: facts.first().map_or_else(String::new, |facts| facts.transport.clone()),
        count: facts.len() as u64,
        completed: completions.len() as u64,
        ideal_mbps,
        efficiency: goodputs.iter().sum::<f64>() / ideal_mbps,
        jain: rounded(jain(&goodputs)),
        goodput_mbps: Quantiles::of(goodputs),
        completion_s: Quantiles::of(completions),
        delivered_bytes: facts.iter().map(|facts| record(facts).in_order_bytes).sum(),
        owd_ms: spread(&delays.owd),
        in_order_owd_ms: spread(&delays.in_order),
        queueing_ms: mean_p99(&delays.queueing),
        source_bytes: facts.iter().map(|facts| recorder.source_bytes(facts.record)).sum(),
        return_bytes: sum(|facts| facts.return_bytes),
        repairs: sum(|facts| facts.repairs),
        timeouts: sum(|facts| facts.timeouts),
    }
}

/// Mbit/s.
pub(super) fn goodput(scenario: &Scenario, recorder: &Recorder, facts: &FlowFacts) -> f64 {
    let (bytes, seconds) = measured(scenario, recorder.flow(facts.record), facts);
    if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 }
}

/// Delays of all flows of a group: the flows of a large group share theirs.
fn delays(recorder: &Recorder, group: &Group, facts: &[FlowFacts]) -> Delays {
    let apart = if group.is_listed() { facts } else { &facts[..facts.len().min(1)] };
    apart.iter().fold(Delays::default(), |mut sum, facts| {
        sum.add(&recorder.flow(facts.record).delays());
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_flows() {
        let quantiles = Quantiles::of((0..=100).rev().map(f64::from).collect());
        let expected =
            Quantiles { sum: 5050.0, mean: 50.0, min: 0.0, p1: 1.0, p50: 50.0, p99: 99.0, max: 100.0 };
        assert_eq!(quantiles, expected);
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }
}
