//! Hypatia's directories (Kassing et al., IMC 2020): the satellite network state that its ns-3 simulator reads.
//!
//! `tles.txt`, `isls.txt`, `ground_stations.txt`, `gsl_interfaces_info.txt`, `description.txt`, and one
//! `fstate_<ns>.txt` for each step with the forwarding entries that differ from the step before.
//! Satellites are nodes from 0 on, stations follow.

use crate::constellation::Constellation;
use crate::elements::OrbitError;
use crate::ground::Station;
use crate::link::{GroundRule, IslRule, Selection};
use crate::network::{Network, NodeId, Snapshot};
use crate::route::Router;
use crate::tle;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A file of a Hypatia directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HypatiaError {
    /// A malformed line.
    #[error("{file}, line {line}: {reason}")]
    Line {
        /// The name of the file.
        file: &'static str,
        /// 1-based line.
        line: usize,
        /// The fault, and the expected form.
        reason: String,
    },
    /// Elements that SGP4 refuses.
    #[error(transparent)]
    Orbit(#[from] OrbitError),
    /// Satellites whose elements are not known.
    #[error("satellite `{0}` has no element set, and Hypatia needs one")]
    NoElements(String),
}

fn bad(file: &'static str, line: usize, reason: impl Into<String>) -> HypatiaError {
    HypatiaError::Line { file, line, reason: reason.into() }
}

/// The texts of a directory's static files.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// `tles.txt`
    pub tles: &'a str,
    /// `isls.txt`
    pub isls: &'a str,
    /// `ground_stations.txt`, basic (5 columns) or extended (8 columns).
    pub ground_stations: &'a str,
    /// `description.txt`
    pub description: &'a str,
}

/// Reads a network. The epoch is that of the element sets.
///
/// # Errors
/// [`HypatiaError`] names the file and the line.
pub fn import(texts: Texts<'_>) -> Result<Network, HypatiaError> {
    let (head, rest) = texts.tles.split_once('\n').ok_or_else(|| bad("tles.txt", 1, "the file is empty"))?;
    let counts: Vec<usize> = head.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let [orbits, per_orbit] = counts[..] else {
        return Err(bad("tles.txt", 1, format!("`{head}` is not `<orbits> <satellites per orbit>`")));
    };
    let sets = tle::parse(rest).map_err(|e| bad("tles.txt", e.line + 1, e.reason))?;
    if sets.len() != orbits * per_orbit {
        let reason = format!("{orbits} x {per_orbit} satellites announced, {} found", sets.len());
        return Err(bad("tles.txt", 1, reason));
    }
    let sky = Constellation::from_elements("hypatia", None, &sets)?;
    let isls = read_isls(texts.isls, sets.len())?;
    let (max_gsl, max_isl) = read_description(texts.description)?;
    Ok(Network {
        sky: sky.with_isls(&isls),
        stations: read_stations(texts.ground_stations)?,
        isl_rule: IslRule { max_length_m: max_isl, ..IslRule::default() },
        ground_rule: GroundRule { min_elevation_deg: 0.0, max_range_m: max_gsl },
        selection: Selection::ALL,
    })
}

fn read_isls(text: &str, satellites: usize) -> Result<Vec<(u32, u32)>, HypatiaError> {
    let mut isls = Vec::new();
    for (index, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
        let ends: Vec<u32> = row.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        match ends[..] {
            [a, b] if a != b && (a.max(b) as usize) < satellites => isls.push((a, b)),
            _ => {
                let reason = format!("`{row}` is not two different satellites of {satellites}");
                return Err(bad("isls.txt", index + 1, reason));
            }
        }
    }
    Ok(isls)
}

fn read_stations(text: &str) -> Result<Vec<Station>, HypatiaError> {
    let mut stations: Vec<Station> = Vec::new();
    for (index, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
        let fail = |reason: String| bad("ground_stations.txt", index + 1, reason);
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        if !matches!(cells.len(), 5 | 8) {
            return Err(fail(format!("{} columns; 5 (basic) or 8 (extended) are expected", cells.len())));
        }
        if cells[0].parse() != Ok(stations.len()) {
            return Err(fail(format!(
                "id `{}`; ids count from 0, so {} is expected",
                cells[0],
                stations.len()
            )));
        }
        let number =
            |at: usize| cells[at].parse::<f64>().map_err(|_| fail(format!("`{}` is no number", cells[at])));
        let mut station = Station::new(cells[1], number(2)?, number(3)?);
        station.place.altitude_m = number(4)?;
        stations.push(station);
    }
    Ok(stations)
}

/// Longest ground and inter-satellite links, m.
fn read_description(text: &str) -> Result<(f64, f64), HypatiaError> {
    let value = |key: &str| {
        let row = text.lines().find_map(|row| row.trim().strip_prefix(key)?.strip_prefix('='));
        let missing = || bad("description.txt", 1, format!("no line `{key}=<metres>`"));
        row.and_then(|v| v.trim().parse::<f64>().ok()).filter(|v| *v > 0.0).ok_or_else(missing)
    };
    Ok((value("max_gsl_length_m")?, value("max_isl_length_m")?))
}

/// The static files of a network: (name, text).
///
/// # Errors
/// [`HypatiaError::NoElements`] if a satellite's elements are not known.
pub fn export_static(network: &Network) -> Result<Vec<(&'static str, String)>, HypatiaError> {
    let sky = &network.sky;
    let (orbits, per_orbit) = match &sky.shells[..] {
        [shell] => (shell.planes, shell.per_plane),
        // The format knows one shell: several, or none, are one orbit of all satellites.
        _ => (1, network.satellite_count()),
    };
    let mut tles = format!("{orbits} {per_orbit}\n");
    for number in 0..network.satellite_count() {
        let satellite = &sky.satellites[number as usize];
        let elements =
            sky.elements(number).ok_or_else(|| HypatiaError::NoElements(satellite.name.clone()))?;
        let [one, two] = tle::write(&elements);
        let _ = writeln!(tles, "{}\n{one}\n{two}", satellite.name);
    }
    let isls = sky.isls.iter().fold(String::new(), |text, l| text + &format!("{} {}\n", l.a, l.b));
    let mut stations = String::new();
    for (id, station) in network.stations.iter().enumerate() {
        let (place, [x, y, z]) = (station.place, station.place.to_ecef());
        let (lat, lon, alt) = (place.latitude_deg, place.longitude_deg, place.altitude_m);
        let _ = writeln!(stations, "{id},{},{lat},{lon},{alt},{x},{y},{z}", station.name.replace(',', ";"));
    }
    let interfaces =
        (0..network.node_count()).fold(String::new(), |text, node| text + &format!("{node},1,1.0\n"));
    // The format has no infinity; a million kilometres is beyond every link.
    let finite = |m: f64| m.min(1e9);
    let (gsl, isl) = (longest_ground_link_m(network), finite(network.isl_rule.max_length_m));
    let description = format!("max_gsl_length_m={:.10}\nmax_isl_length_m={isl:.10}\n", finite(gsl));
    Ok(vec![
        ("tles.txt", tles),
        ("isls.txt", isls),
        ("ground_stations.txt", stations),
        ("gsl_interfaces_info.txt", interfaces),
        ("description.txt", description),
    ])
}

/// The format limits ground links by length only: the slant range at the lowest elevation from the highest shell.
fn longest_ground_link_m(network: &Network) -> f64 {
    let highest = network.sky.shells.iter().map(|s| s.altitude_m).fold(0.0, f64::max);
    let rule = network.ground_rule;
    let slant = crate::frame::slant_range_m(crate::frame::EARTH_RADIUS_M + highest, rule.min_elevation_deg);
    if highest > 0.0 { rule.max_range_m.min(slant) } else { rule.max_range_m }
}

/// Writes forwarding states one after the other.
#[derive(Debug)]
pub struct Forwarding<'a> {
    network: &'a Network,
    /// Interface of each inter-satellite link at both of its ends.
    interfaces: BTreeMap<(NodeId, NodeId), u32>,
    ground_interface: Vec<u32>,
    told: BTreeMap<(NodeId, NodeId), Option<NodeId>>,
}

impl<'a> Forwarding<'a> {
    /// Nothing has been written yet: the first state will be complete.
    pub fn new(network: &'a Network) -> Self {
        let mut ground_interface = vec![0; network.node_count() as usize];
        let mut interfaces = BTreeMap::new();
        for link in &network.sky.isls {
            for (from, to) in [(link.a, link.b), (link.b, link.a)] {
                interfaces.insert((from, to), ground_interface[from as usize]);
                ground_interface[from as usize] += 1;
            }
        }
        Self { network, interfaces, ground_interface, told: BTreeMap::new() }
    }

    /// Name and text of the state at `snapshot`: the entries that differ from the state before,
    /// `current,destination,next hop,own interface,next hop's interface`, with -1 where there is no way.
    pub fn state(&mut self, snapshot: &Snapshot, router: &Router) -> (String, String) {
        let mut text = String::new();
        for current in 0..self.network.node_count() {
            for station in 0..self.network.stations.len() {
                let to = self.network.station_node(station);
                let next = router.next_hop(current, station).filter(|_| current != to);
                if current == to || self.told.insert((current, to), next) == Some(next) {
                    continue;
                }
                let interface = |a: NodeId, b: NodeId| {
                    self.interfaces.get(&(a, b)).unwrap_or(&self.ground_interface[a as usize])
                };
                let _ = match next {
                    Some(n) => writeln!(
                        text,
                        "{current},{to},{n},{},{}",
                        interface(current, n),
                        interface(n, current)
                    ),
                    None => writeln!(text, "{current},{to},-1,-1,-1"),
                };
            }
        }
        (format!("fstate_{}.txt", (snapshot.t_s * 1e9).round() as u64), text)
    }
}

/// Forwarding entries read from a directory's states.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    next: BTreeMap<(NodeId, NodeId), NodeId>,
}

impl Entries {
    /// Applies a state on top of those before.
    ///
    /// # Errors
    /// [`HypatiaError::Line`] if a line is not five whole numbers.
    pub fn apply(&mut self, text: &str) -> Result<(), HypatiaError> {
        for (index, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
            let cells: Vec<i64> = row.split(',').filter_map(|n| n.trim().parse().ok()).collect();
            let [current, to, next, ..] = cells[..] else {
                return Err(bad("fstate", index + 1, format!("`{row}` is not five whole numbers")));
            };
            let node =
                |n: i64| NodeId::try_from(n).map_err(|_| bad("fstate", index + 1, format!("no node {n}")));
            let key = (node(current)?, node(to)?);
            if next == -1 {
                self.next.remove(&key);
            } else {
                self.next.insert(key, node(next)?);
            }
        }
        Ok(())
    }

    /// The way from one node to another, both included; `None` if it ends or goes in a circle.
    pub fn path(&self, from: NodeId, to: NodeId) -> Option<Vec<NodeId>> {
        let mut nodes = vec![from];
        while *nodes.last()? != to {
            let next = *self.next.get(&(*nodes.last()?, to))?;
            if nodes.contains(&next) {
                return None;
            }
            nodes.push(next);
        }
        Some(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground;
    use crate::preset;
    use crate::route::Relaying;

    fn network() -> Network {
        let stations = ground::cities().into_iter().take(4).collect();
        Network::from_preset(&preset::by_name("starlink-550").unwrap(), stations).unwrap()
    }

    fn texts<'a>(files: &'a [(&'static str, String)]) -> Texts<'a> {
        Texts { tles: &files[0].1, isls: &files[1].1, ground_stations: &files[2].1, description: &files[4].1 }
    }

    #[test]
    fn an_exported_network_reads_back_with_the_same_routes() {
        let ours = network();
        let files = export_static(&ours).unwrap();
        let theirs = import(texts(&files)).unwrap();
        assert_eq!(theirs.sky.isls.len(), ours.sky.isls.len());
        let routes = |network: &Network| {
            let (mut observer, mut router) =
                (network.observe(), Router::all_pairs(network, Relaying::Satellites));
            let snapshot = observer.at(100.0).unwrap();
            router.rebuild(snapshot);
            router.path(snapshot, 0, 3).unwrap()
        };
        let (a, b) = (routes(&ours), routes(&theirs));
        assert_eq!(a.nodes, b.nodes);
        // Angles are rounded to 1e-4 degrees in the format: up to 6 m on the orbit.
        assert!((a.length_m - b.length_m).abs() < 100.0, "{} {}", a.length_m, b.length_m);
    }

    #[test]
    fn forwarding_states_lead_along_the_routers_paths_though_each_tells_only_changes() {
        let network = network();
        let (mut observer, mut router) =
            (network.observe(), Router::all_pairs(&network, Relaying::Satellites));
        let (mut forwarding, mut entries) = (Forwarding::new(&network), Entries::default());
        let mut sizes = Vec::new();
        for t in [0.0, 1.0, 30.0] {
            let snapshot = observer.at(t).unwrap();
            router.advance(snapshot);
            let (name, text) = forwarding.state(snapshot, &router);
            assert_eq!(name, format!("fstate_{}.txt", t as u64 * 1_000_000_000));
            entries.apply(&text).unwrap();
            sizes.push(text.lines().count());
            for (from, to) in [(0, 1), (3, 2), (1, 3)] {
                let ours = router.path(snapshot, from, to).unwrap().nodes;
                assert_eq!(entries.path(ours[0], *ours.last().unwrap()), Some(ours));
            }
        }
        assert_eq!(sizes[0], (1584 + 4) * 4 - 4);
        assert!(sizes[1] < sizes[0] / 4, "{sizes:?}");
    }

    #[test]
    fn broken_files_are_named_with_their_line() {
        let files = export_static(&network()).unwrap();
        let good = texts(&files);
        let message = |texts| import(texts).unwrap_err().to_string();
        let fewer = good.tles.replacen("72", "71", 1);
        assert!(message(Texts { isls: "0 1\n5 9999\n", ..good }).starts_with("isls.txt, line 2"));
        assert!(message(Texts { tles: &fewer, ..good }).contains("71 x 22"));
        assert!(
            message(Texts { ground_stations: "0,a,1,2\n", ..good })
                .starts_with("ground_stations.txt, line 1")
        );
        assert!(message(Texts { description: "max_gsl_length_m=1\n", ..good }).contains("max_isl_length_m"));
    }
}
