//! A self-contained HTML page with a turning globe: satellites, links, the ways between pairs of stations and how they
//! change. It needs no network, no server and no key.
//!
//! Places are sampled in ECEF and interpolated by the page with the same cubic as [`crate::ephemeris`].

use crate::elements::OrbitError;
use crate::ground::Station;
use crate::network::{Network, NodeId};
use crate::route::Router;
use crate::schedule::Schedule;
use base64::Engine;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TEMPLATE: &str = include_str!("globe.html");
const LAND: &str = include_str!("../data/land.txt");
const PLACEHOLDER: &str = "null/*DATA*/";

/// Places may take this many bytes of the page, before base64.
const PLACE_BYTES: usize = 4_000_000;

/// Points of each pair's delay curve.
const CURVE_POINTS: usize = 600;

/// The page for a schedule.
///
/// # Errors
/// [`OrbitError::Propagation`] if a satellite has no place at some time.
pub fn page(network: &Network, schedule: &Schedule) -> Result<String, OrbitError> {
    let plan = &schedule.plan;
    let (knot_s, unit_m, places) = places(network, plan.from_s, plan.until_s)?;
    let station = |s: &Station| {
        let [x, y, z] = s.place.to_ecef();
        json!([s.name, x, y, z])
    };
    let isls: Vec<NodeId> = network.sky.isls.iter().flat_map(|l| [l.a, l.b]).collect();
    let curves = curves(network, schedule)?;
    let pairs = plan.pairs.iter().zip(curves).enumerate().map(|(index, (&(from, to), curve))| {
        let routes: Vec<Value> =
            schedule.routes(index).map(|(at, nodes)| json!([at.as_secs_f64(), nodes])).collect();
        json!({"from": from, "to": to, "routes": routes, "curve": curve})
    });
    let data = json!({
        "name": network.sky.name, "epoch": network.sky.epoch.to_string(),
        "from": plan.from_s, "until": plan.until_s,
        "count": network.satellite_count(), "knot": knot_s, "unit": unit_m, "places": places,
        "names": names(network, schedule), "stations": network.stations.iter().map(station).collect::<Vec<_>>(), "isls": isls,
        "maxIsl": Some(network.isl_rule.max_length_m).filter(|m| m.is_finite()),
        "pairs": pairs.collect::<Vec<_>>(), "land": land(),
    });
    // A text in the data must not end the script that holds it.
    Ok(TEMPLATE.replace(PLACEHOLDER, &data.to_string().replace("</", "<\\/")))
}

/// Distance of the knots in s, metres per unit, and base64 of little-endian i16 x, y, z of all satellites at all knots,
/// from one knot before the beginning to two after the end.
fn places(network: &Network, from_s: f64, until_s: f64) -> Result<(f64, f64, String), OrbitError> {
    let bytes_per_knot = 6 * network.satellite_count().max(1) as usize;
    let affordable = (PLACE_BYTES / bytes_per_knot).max(8) as f64;
    let knot_s = ((until_s - from_s) / (affordable - 4.0)).max(30.0).ceil();
    let knots = ((until_s - from_s) / knot_s).ceil() as i64 + 4;
    let mut places = Vec::new();
    for knot in -1..knots - 1 {
        for satellite in 0..network.satellite_count() {
            places.push(network.place(satellite, from_s + knot as f64 * knot_s)?);
        }
    }
    let farthest = places.iter().flatten().fold(1.0, |far: f64, x| far.max(x.abs()));
    let unit_m = farthest / f64::from(i16::MAX);
    let bytes: Vec<u8> =
        places.iter().flatten().flat_map(|x| ((x / unit_m).round() as i16).to_le_bytes()).collect();
    Ok((knot_s, unit_m, base64::engine::general_purpose::STANDARD.encode(bytes)))
}

/// One-way delay in ms over time for each pair, null where there is no way.
fn curves(network: &Network, schedule: &Schedule) -> Result<Vec<Vec<Option<f64>>>, OrbitError> {
    let plan = &schedule.plan;
    let mut to: Vec<usize> = plan.pairs.iter().map(|p| p.1).collect();
    to.sort_unstable();
    to.dedup();
    let (mut observer, mut router) = (network.observe(), Router::new(network, &to, plan.relaying));
    let mut curves = vec![Vec::new(); plan.pairs.len()];
    for point in 0..=CURVE_POINTS {
        let t = plan.from_s + (plan.until_s - plan.from_s) * point as f64 / CURVE_POINTS as f64;
        let snapshot = observer.at(t)?;
        router.advance(snapshot);
        for (curve, &(from, to)) in curves.iter_mut().zip(&plan.pairs) {
            let delay_ms = router.path(snapshot, from, to).map(|p| (p.delay_s() * 1e6).round() / 1e3);
            curve.push(delay_ms);
        }
    }
    Ok(curves)
}

/// Names of the satellites that serve a route.
fn names<'a>(network: &'a Network, schedule: &Schedule) -> BTreeMap<NodeId, &'a str> {
    let pairs = 0..schedule.plan.pairs.len();
    let nodes = pairs
        .flat_map(|pair| schedule.routes(pair).flat_map(|(_, nodes)| nodes.to_vec()).collect::<Vec<_>>());
    nodes.filter(|&n| network.station_of(n).is_none()).map(|n| (n, network.node_name(n))).collect()
}

/// Rings of longitude and latitude, degrees, flat.
fn land() -> Vec<Vec<f64>> {
    let rings = LAND.lines().filter(|row| !row.starts_with('#'));
    rings.map(|row| row.split([' ', ',']).filter_map(|n| n.parse().ok()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground;
    use crate::preset;
    use crate::schedule::Plan;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_holds_its_data() {
        let cities = ground::cities();
        let stations = ["Beijing", "New York"].map(|n| ground::find(&cities, n).unwrap().clone()).to_vec();
        let network = Network::from_preset(&preset::by_name("starlink-550").unwrap(), stations).unwrap();
        let schedule = Schedule::new(Plan::new(vec![(0, 1)], 60.0), &network).unwrap();
        let page = page(&network, &schedule).unwrap();
        assert!(!page.contains(PLACEHOLDER) && page.contains("\"New York\""));
        for foreign in ["http://", "https://", "<link", "src=", "@import", "fetch("] {
            assert!(!page.contains(foreign), "the page refers to something outside: {foreign}");
        }
    }

    #[test]
    fn land_is_made_of_closed_rings() {
        let rings = land();
        assert!(rings.len() > 30);
        for ring in rings {
            assert!(ring.len() % 2 == 0 && ring.len() >= 8 && ring[..2] == ring[ring.len() - 2..]);
        }
    }
}
