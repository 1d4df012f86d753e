//! Resolves a scenario and the user's options to a run on this machine.

use super::Options;
use super::kernel::Programs;
use super::model::{Tally, TcpBytes};
use super::starhop::Deployment;
use super::tcp;
use super::world::World;
use crate::error::LabError;
use crate::scenario::{Blueprint, Scenario};
use starhop_proto::time::Instant;
use starhop_sim::host::tcp::congestion::Tuning;
use starhop_sim::run::{Action, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which flows the kernel carries, with which of its congestion controls.
pub(super) fn controls(
    scenario: &Scenario,
    options: &Options,
    loaded: &mut Programs,
) -> Result<BTreeMap<usize, String>, LabError> {
    let mut controls = BTreeMap::new();
    for (index, flow) in scenario.flows.iter().enumerate() {
        if !flow.middles.is_empty() {
            let problem = format!("flow {}: `tunnel` and `fec` exist in the simulator only", flow.name);
            return Err(LabError::Scenario(problem));
        }
        if flow.exchange.is_some() {
            let problem = format!("flow {}: `requests` exist in the simulator only", flow.name);
            return Err(LabError::Scenario(problem));
        }
        let wanted = match (options.kernel.get(&flow.name), &flow.how) {
            (Some(wanted), _) => wanted,
            (None, Transport::Tcp(_) | Transport::Gateway(_)) => &flow.transport,
            (None, Transport::Starhop(..)) => continue,
            (None, Transport::Cbr { .. } | Transport::Arq { .. } | Transport::Split(_)) => {
                let problem = format!("flow {}: {} exists in the simulator only", flow.name, flow.transport);
                return Err(LabError::Scenario(problem));
            }
        };
        let tuning = if let Transport::Tcp(config) = &flow.how { config.tuning } else { Tuning::default() };
        let control = loaded.control(wanted, &tuning);
        let control =
            control.map_err(|problem| LabError::Scenario(format!("flow {}: {problem}", flow.name)))?;
        controls.insert(index, control);
    }
    let names = |name: &&String| scenario.flows.iter().all(|flow| flow.name != **name);
    match options.kernel.keys().find(names) {
        Some(name) => Err(LabError::Scenario(format!("there is no flow \"{name}\""))),
        None => Ok(controls),
    }
}

/// The deployment of relays. In an overlay, routes of which relays know nothing are a problem of the run.
pub(super) fn deployment(
    blueprint: &Blueprint,
    options: &Options,
    world: &World,
    problems: &mut Vec<String>,
) -> Result<Deployment, LabError> {
    let wanted = options.deployment.unwrap_or(Deployment::Transparent);
    let Some(first) = blueprint.plan.relays.first().map(|node| &world.nodes[node.0 as usize]) else {
        return Ok(wanted);
    };
    if wanted == Deployment::Transparent {
        let can = first.namespace.run(starhop_net::transparent::can_divert).and_then(|can| can);
        match (can, options.deployment) {
            (Ok(()), _) => return Ok(Deployment::Transparent),
            (Err(why), Some(_)) => return Err(LabError::Scenario(format!("no transparent relays: {why}"))),
            (Err(_), None) => {}
        }
    }
    if world.has_sky() {
        let problem = "paths over a sky change, and only transparent relays follow them; this kernel has no TPROXY, or \
                       `--relays overlay` was given";
        return Err(LabError::Scenario(problem.to_owned()));
    }
    let follows = |(at, action): &(Instant, Action)| match action {
        Action::Links { .. } => *at > Instant::ZERO,
        Action::Bypass(_) | Action::Include(_) => true,
        _ => false,
    };
    if blueprint.plan.actions.iter().any(follows) {
        problems.push(
            "paths change, and relays of an overlay do not follow them: transparent ones would".to_owned(),
        );
    }
    Ok(Deployment::Overlay)
}

/// Which flows of TCP are counted as they leave each node.
pub(super) fn tallies(scenario: &Scenario, bytes: &BTreeMap<usize, Arc<TcpBytes>>) -> BTreeMap<usize, Tally> {
    let mut tallies: BTreeMap<usize, Tally> = BTreeMap::new();
    for (&flow, bytes) in bytes {
        let node = |name: &str| scenario.node(name).0 as usize;
        let spec = &scenario.flows[flow];
        tallies.entry(node(&spec.from)).or_default().served.insert(tcp::port(flow), bytes.clone());
        tallies.entry(node(&spec.to)).or_default().fetched.insert(tcp::port(flow), bytes.clone());
    }
    tallies
}

/// Files that are verified lie there twice; traces have 60 bytes per packet at both ends.
pub(super) fn scratch_bytes(scenario: &Scenario) -> u64 {
    scenario.flows.iter().map(|flow| flow.size.unwrap_or(0).min(1 << 30) * 3).sum::<u64>() + (2 << 30)
}
