//! CZML, Cesium's time-dynamic JSON: satellites, stations, and the ways between pairs of stations.

use crate::elements::OrbitError;
use crate::network::{Network, NodeId};
use crate::schedule::Schedule;
use crate::time::Epoch;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Distance between the places that are written, s: Cesium's Lagrange interpolation of degree 5 hides it.
const SAMPLE_S: f64 = 60.0;

/// A CZML document of a schedule's time. Only satellites that serve a route are written, unless `all`: Cesium slows
/// down beyond some thousand moving entities.
///
/// # Errors
/// [`OrbitError::Propagation`] if a satellite has no place at some time.
pub fn export(network: &Network, schedule: &Schedule, all: bool) -> Result<String, OrbitError> {
    let (from, until) = (schedule.plan.from_s, schedule.plan.until_s);
    let epoch = network.sky.epoch;
    let span = interval(epoch, from, until);
    let mut packets = vec![json!({
        "id": "document", "name": network.sky.name, "version": "1.0",
        "clock": {"interval": span, "currentTime": epoch.after(from).to_string(), "multiplier": 10}
    })];
    packets.extend(network.stations.iter().map(|station| {
        json!({
            "id": station.name, "name": station.name,
            "label": {"text": station.name, "scale": 0.5, "pixelOffset": {"cartesian2": [8, -8]}},
            "point": {"pixelSize": 8, "color": {"rgba": [255, 180, 0, 255]}},
            "position": {"cartesian": station.place.to_ecef()}
        })
    }));
    let links = used_links(network, schedule);
    for number in 0..network.satellite_count() {
        if all || links.keys().any(|(_, ends)| ends.contains(&number)) {
            packets.push(satellite(network, number, from, until)?);
        }
    }
    for ((pair, [a, b]), spells) in &links {
        let shown: Vec<Value> = spells
            .iter()
            .map(|&(s, e)| json!({"interval": interval(epoch, s, e), "boolean": true}))
            .collect();
        let reference = |node: &NodeId| format!("{}#position", network.node_name(*node));
        packets.push(json!({
            "id": format!("route-{pair}-{a}-{b}"), "availability": span,
            "polyline": {
                "positions": {"references": [reference(a), reference(b)]}, "arcType": "NONE", "width": 3,
                "material": {"solidColor": {"color": {"rgba": [255, 80, 0, 255]}}}, "show": shown
            }
        }));
    }
    Ok(Value::Array(packets).to_string())
}

fn interval(epoch: Epoch, from_s: f64, until_s: f64) -> String {
    format!("{}/{}", epoch.after(from_s), epoch.after(until_s))
}

/// The times at which each pair uses each link: (pair, ends) to spells, s since the epoch.
type UsedLinks = BTreeMap<(usize, [NodeId; 2]), Vec<(f64, f64)>>;

fn used_links(network: &Network, schedule: &Schedule) -> UsedLinks {
    let mut links = UsedLinks::new();
    for pair in 0..schedule.plan.pairs.len() {
        let routes: Vec<_> = schedule.routes(pair).collect();
        for (index, (at, nodes)) in routes.iter().enumerate() {
            let end = routes.get(index + 1).map_or(schedule.plan.until_s, |next| next.0.as_secs_f64());
            for hop in nodes.windows(2) {
                links.entry((pair, [hop[0], hop[1]])).or_default().push((at.as_secs_f64(), end));
            }
        }
    }
    debug_assert!(links.keys().all(|(_, ends)| ends.iter().all(|&n| n < network.node_count())));
    links
}

fn satellite(network: &Network, number: NodeId, from: f64, until: f64) -> Result<Value, OrbitError> {
    let mut samples = Vec::new();
    // Two more samples on either side, so that interpolation is exact at the ends too.
    let count = ((until - from) / SAMPLE_S).ceil() as i64;
    for index in -2..=count + 2 {
        let t = index as f64 * SAMPLE_S;
        samples.push(t);
        samples.extend(network.place(number, from + t)?.map(|m| (m * 10.0).round() / 10.0));
    }
    Ok(json!({
        "id": network.node_name(number), "name": network.node_name(number),
        "point": {"pixelSize": 4, "color": {"rgba": [160, 200, 255, 255]}},
        "position": {
            "epoch": network.sky.epoch.after(from).to_string(), "referenceFrame": "FIXED",
            "interpolationAlgorithm": "LAGRANGE", "interpolationDegree": 5, "cartesian": samples
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground;
    use crate::preset;
    use crate::schedule::Plan;

    #[test]
    fn a_document_has_its_stations_its_satellites_and_lines_that_refer_to_them() {
        let cities = ground::cities();
        let stations = ["Beijing", "Paris"].map(|n| ground::find(&cities, n).unwrap().clone()).to_vec();
        let network = Network::from_preset(&preset::by_name("starlink-550").unwrap(), stations).unwrap();
        let schedule = Schedule::new(Plan::new(vec![(0, 1)], 120.0), &network).unwrap();
        let document: Vec<Value> =
            serde_json::from_str(&export(&network, &schedule, false).unwrap()).unwrap();
        assert_eq!(document[0]["version"], "1.0");
        let ids: Vec<&str> = document.iter().filter_map(|p| p["id"].as_str()).collect();
        let mut lines = 0;
        for reference in
            document.iter().filter_map(|p| p["polyline"]["positions"]["references"].as_array()).flatten()
        {
            let id = reference.as_str().unwrap().trim_end_matches("#position");
            assert!(ids.contains(&id), "{id}");
            lines += 1;
        }
        assert!(lines >= 18);
    }
}
