//! Makes the simulator's sky from a constellation scenario.

use super::constellation::{Constellation, SkyLink};
use super::units::QueueRoom;
use super::{Relays, Scenario};
use starhop_orbit::route::Relaying;
use starhop_proto::rng::Rng;
use starhop_proto::units::Rate;
use starhop_sim::engine::{LinkId, NodeId};
use starhop_sim::run::{SkyLinkConfig, SkyPair, SkyPlan};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The sky of a scenario that has one.
pub(super) fn plan(scenario: &Scenario) -> Option<SkyPlan> {
    let sky = scenario.topology.sky.as_ref()?;
    let gateway = |station| scenario.node(&sky.station_node(station));
    let mut pairs: Vec<SkyPair> = Vec::new();
    for flow in &scenario.flows {
        let (Some(server_station), Some(client_station)) =
            (sky.station_of(&flow.from), sky.station_of(&flow.to))
        else {
            continue;
        };
        let (client, server) = (scenario.node(&flow.to), scenario.node(&flow.from));
        let pair = SkyPair { client_station, server_station, client, server };
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    Some(SkyPlan {
        network: Arc::clone(&sky.network),
        relaying: if sky.has_ground_relays { Relaying::Stations } else { Relaying::Satellites },
        from_s: sky.start.as_secs_f64(),
        gateways: (0..sky.network.stations.len()).map(gateway).collect(),
        access: access(scenario, sky),
        pairs,
        isl: link(&sky.isl),
        uplink: link(&sky.uplink),
        downlink: link(&sky.downlink),
        relays: satellites(scenario, sky),
        station_cache: sky.station_cache,
        handover: sky.handover,
    })
}

/// Links between hosts and gateways: up forward, down backward.
fn access(scenario: &Scenario, sky: &Constellation) -> BTreeMap<NodeId, (LinkId, LinkId)> {
    let ids = (0..).step_by(2).map(|id| (LinkId(id), LinkId(id + 1)));
    let links = scenario.topology.links.iter().zip(ids);
    let access = links.map(|(link, ids)| (scenario.node(&link.from), ids));
    if sky.has_access { access.collect() } else { BTreeMap::new() }
}

fn link(link: &SkyLink) -> SkyLinkConfig {
    let mut config = link.spec.sky_config(link.curve.map_or(Rate::UNLIMITED, |curve| curve.max));
    config.queue = QueueRoom::limit(link.spec.queue);
    SkyLinkConfig {
        config,
        is_lossy_for_data_only: link.spec.loses_data_only(),
        header: link.spec.header(),
        curve: link.curve,
    }
}

/// Which satellites run relays.
fn satellites(scenario: &Scenario, sky: &Constellation) -> Vec<bool> {
    let count = sky.network.satellite_count() as usize;
    match &scenario.topology.relays {
        Relays::All => vec![true; count],
        Relays::Named(names) => {
            let mut relays = vec![false; count];
            names.iter().filter_map(|name| sky.satellite_named(name)).for_each(|at| relays[at] = true);
            relays
        }
        Relays::Share(share) => {
            let mut rng = Rng::new(scenario.seed).fork(0x7265_6c61_7973);
            let mut drawn: Vec<(u64, usize)> = (0..count).map(|at| (rng.next_u64(), at)).collect();
            drawn.sort_unstable();
            let mut relays = vec![false; count];
            let wanted = (share * count as f64).round() as usize;
            drawn.iter().take(wanted).for_each(|&(_, at)| relays[at] = true);
            relays
        }
    }
}

/// The gateways that run relays: all of them, for any share of satellites, or those that are named.
pub(super) fn gateways(scenario: &Scenario, sky: &Constellation) -> Vec<NodeId> {
    let is_relay = |name: &String| match &scenario.topology.relays {
        Relays::All | Relays::Share(_) => true,
        Relays::Named(names) => names.contains(name),
    };
    // A host that is its own gateway is the end of flows.
    let stations = (0..sky.network.stations.len()).filter(|&station| sky.has_access || station >= sky.hosts);
    let names = stations.map(|station| sky.station_node(station)).filter(is_relay);
    names.map(|name| scenario.node(&name)).collect()
}
