//! The nodes and links of a run: those of the scenario and, over a sky, all that its paths will touch.

use crate::error::LabError;
use crate::scenario::{Blueprint, Scenario, blueprint, link_configs};
use starhop_proto::time::Instant;
use starhop_proto::units::Rate;
use starhop_sim::engine::{Clock, LinkId, Network, NodeId};
use starhop_sim::link::LinkConfig;
use starhop_sim::run::{Deed, Simulation};
use std::collections::BTreeMap;

/// The most nodes: each has a thread and its devices.
const MOST_NODES: usize = 250;

/// All nodes and links that the run will ever have, and the changes that a sky makes to them.
pub(super) struct Terrain {
    /// The names of nodes, in the order of their ids.
    pub(super) names: Vec<String>,
    pub(super) network: Network,
    /// The models of links, in the order of their ids.
    pub(super) configs: Vec<LinkConfig>,
    /// The changes that the sky makes, by time, ascending; empty without a sky.
    pub(super) deeds: Vec<(Instant, Vec<Deed>)>,
    /// Rates of links at their best, where those vary over a pass.
    pub(super) best: BTreeMap<LinkId, Rate>,
    /// Ways are the sky's, not those of the least delay.
    pub(super) has_sky: bool,
}

impl Terrain {
    /// Computes the nodes and links of the run. Takes the network of `blueprint`, and adds to `blueprint` the facts
    /// that are known only now: the relays of satellites, and the ideal rates of flows.
    pub(super) fn new(scenario: &Scenario, blueprint: &mut Blueprint) -> Result<Self, LabError> {
        let mut terrain = Self {
            names: scenario.topology.nodes.clone(),
            network: std::mem::take(&mut blueprint.plan.network),
            configs: link_configs(scenario),
            deeds: Vec::new(),
            best: BTreeMap::new(),
            has_sky: scenario.topology.sky.is_some(),
        };
        if terrain.has_sky {
            terrain.add_sky(scenario, blueprint)?;
        }
        if let Some((node, _)) = scenario.topology.clocks.iter().find(|(_, clock)| clock.gains_ppb != 0) {
            let problem = format!(
                "topology.clock_drift.{node}: the emulator has the one clock of the machine; leave that out, or use `starhop sim`"
            );
            return Err(LabError::Scenario(problem));
        }
        let nodes = terrain.names.len();
        if nodes > MOST_NODES {
            let shorter =
                if terrain.has_sky { ": a shorter `duration` touches fewer satellites" } else { "" };
            let problem = format!("it has {nodes} nodes; the emulator takes {MOST_NODES}{shorter}");
            return Err(LabError::Scenario(problem));
        }
        Ok(terrain)
    }

    fn add_sky(&mut self, scenario: &Scenario, blueprint: &mut Blueprint) -> Result<(), LabError> {
        let (simulation, deeds) = rehearse(scenario, Instant::ZERO + scenario.duration)?;
        for (at, deed) in deeds {
            if let Deed::Join { ends, config, header } = &deed {
                let link =
                    self.network_with(ends.0.max(ends.1)).add_link(ends.0, ends.1, config.clone(), *header);
                // The link is down until a path uses it.
                self.network.mark_link(link, false);
                self.configs.push(config.clone());
                self.best.extend(simulation.best_rate(link).map(|rate| (link, rate)));
            }
            match self.deeds.last_mut() {
                Some((last, deeds)) if *last == at => deeds.push(deed),
                _ => self.deeds.push((at, vec![deed])),
            }
        }
        let names = simulation.sky_names();
        let known = self.names.len();
        self.names.extend((known..self.network.node_count()).map(|node| names[&NodeId(node as u32)].clone()));
        let mut relays: Vec<NodeId> = simulation.relays().iter().map(|relay| relay.node).collect();
        relays.sort_unstable();
        relays.dedup();
        blueprint.plan.relays = relays;
        for (flow, ideal_mbps) in blueprint.ideal_mbps.iter_mut().enumerate() {
            *ideal_mbps = simulation.flow_path(flow).map_or(0.0, |path| path.ideal_bps * 1e-6);
        }
        Ok(())
    }

    /// The network with all nodes up to `last`.
    fn network_with(&mut self, last: NodeId) -> &mut Network {
        while self.network.node_count() <= last.0 as usize {
            self.network.add_node(Clock::default());
        }
        &mut self.network
    }
}

/// Lets the sky of a scenario pass until `end` in virtual time, without flows.
pub(super) fn rehearse(
    scenario: &Scenario,
    end: Instant,
) -> Result<(Simulation, Vec<(Instant, Deed)>), LabError> {
    let mut plan = blueprint(scenario).plan;
    plan.end = end;
    let mut simulation = Simulation::new(plan);
    let deeds = simulation.rehearse();
    match simulation.recorder().borrow().problems().first() {
        Some(problem) => Err(LabError::Scenario(problem.clone())),
        None => Ok(()),
    }?;
    Ok((simulation, deeds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_gains_is_refused_by_name() {
        let text = include_str!("../../../../scenarios/five-lossy-hops.toml")
            .replace("[topology.link]", "[topology.clock_drift]\nr1 = \"50ppm\"\n\n[topology.link]");
        let scenario = Scenario::parse(&text, &|_| Err("no files here".into())).expect("a scenario");
        let refused = Terrain::new(&scenario, &mut blueprint(&scenario)).err().map(|e| e.to_string());
        assert!(refused.is_some_and(|problem| problem.contains("topology.clock_drift.r1")));
    }
}
