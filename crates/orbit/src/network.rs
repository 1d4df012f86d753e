//! Satellites and stations together: which links are up at a given time, and how long they are.

use crate::constellation::Constellation;
use crate::elements::OrbitError;
use crate::ephemeris::{Ephemeris, KNOT_S};
use crate::frame::{Vec3, dot, eci_to_ecef, sidereal_time_rad, sub};
use crate::ground::Station;
use crate::link::ground::{Horizon, Sight};
use crate::link::{GroundPolicy, GroundRule, IslRule, Selection};
use crate::preset::Preset;

/// Number of a satellite (from 0) or of a station (from the number of satellites on).
pub type NodeId = u32;

/// No satellite over the ground moves faster than this in ECEF, m/s (escape velocity).
const TOP_SPEED_M_S: f64 = 11_200.0;

/// The sky, the ground, and the rules of the links between them.
#[derive(Clone, Debug)]
pub struct Network {
    /// The satellites.
    pub sky: Constellation,
    /// The stations.
    pub stations: Vec<Station>,
    /// Condition under which inter-satellite links are up.
    pub isl_rule: IslRule,
    /// Condition under which ground links are possible.
    pub ground_rule: GroundRule,
    /// Which of the possible ground links a station uses.
    pub selection: Selection,
}

impl Network {
    /// A preset with these stations, each linked to all satellites that it sees.
    ///
    /// # Errors
    /// [`OrbitError`] if the preset's shells were changed into something impossible.
    pub fn from_preset(preset: &Preset, stations: Vec<Station>) -> Result<Self, OrbitError> {
        Ok(Self {
            sky: preset.constellation()?,
            stations,
            isl_rule: preset.isl_rule,
            ground_rule: preset.ground_rule,
            selection: Selection::ALL,
        })
    }

    /// Number of satellites.
    pub fn satellite_count(&self) -> u32 {
        self.sky.satellites.len() as u32
    }

    /// Number of satellites and stations.
    pub fn node_count(&self) -> u32 {
        self.satellite_count() + self.stations.len() as u32
    }

    /// The node of a station, given its place in [`Network::stations`].
    pub fn station_node(&self, station: usize) -> NodeId {
        self.satellite_count() + station as u32
    }

    /// The station that a node is, if it is one.
    pub fn station_of(&self, node: NodeId) -> Option<usize> {
        node.checked_sub(self.satellite_count()).map(|s| s as usize)
    }

    /// The name of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node_name(&self, node: NodeId) -> &str {
        match self.station_of(node) {
            Some(station) => &self.stations[station].name,
            None => &self.sky.satellites[node as usize].name,
        }
    }

    /// ECEF place of a node, m, from its orbit itself, without interpolation.
    ///
    /// # Errors
    /// [`OrbitError::Propagation`] if the satellite has none at that time.
    pub fn place(&self, node: NodeId, t_s: f64) -> Result<Vec3, OrbitError> {
        match self.station_of(node) {
            Some(station) => Ok(self.stations[station].place.to_ecef()),
            None => {
                let satellite = &self.sky.satellites[node as usize];
                let place = satellite.orbit.position_eci(&satellite.name, t_s)?;
                Ok(eci_to_ecef(place, sidereal_time_rad(self.sky.epoch, t_s)))
            }
        }
    }

    /// A cursor over the network's states.
    pub fn observe(&self) -> Observer<'_> {
        Observer {
            network: self,
            ephemeris: Ephemeris::new(&self.sky),
            horizons: self.stations.iter().map(|s| self.ground_rule.at(s)).collect(),
            candidates: vec![Vec::new(); self.stations.len()],
            candidates_at: None,
            chosen_at: None,
            snapshot: Snapshot::default(),
        }
    }
}

/// All links at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds since the epoch.
    pub t_s: f64,
    /// Length of each of the constellation's inter-satellite links in m; infinity while it is down.
    pub isl_m: Vec<f64>,
    /// Ground links of all stations in order.
    sights: Vec<Sight>,
    /// Index in `sights` of each station's first link, and the length of `sights` as the last entry.
    offsets: Vec<u32>,
}

impl Snapshot {
    /// The ground links of a station, by satellite number.
    pub fn sights(&self, station: usize) -> &[Sight] {
        match self.offsets.get(station..station + 2) {
            Some(ends) => &self.sights[ends[0] as usize..ends[1] as usize],
            None => &[],
        }
    }
}

/// A cursor over the network's states. Any time may be asked for; small steps forwards are cheapest, and with a
/// policy that keeps satellites the choice made at the time asked for before is where the next one starts.
#[derive(Clone, Debug)]
pub struct Observer<'a> {
    network: &'a Network,
    ephemeris: Ephemeris<'a>,
    horizons: Vec<Horizon>,
    candidates: Vec<Vec<u32>>,
    candidates_at: Option<f64>,
    chosen_at: Option<f64>,
    snapshot: Snapshot,
}

impl<'a> Observer<'a> {
    /// The links `t_s` seconds after the epoch.
    ///
    /// # Errors
    /// [`OrbitError::Propagation`] names the first satellite that has no place at that time.
    pub fn at(&mut self, t_s: f64) -> Result<&Snapshot, OrbitError> {
        self.ephemeris.at(t_s)?;
        let places = self.ephemeris.places();
        let rule = self.network.isl_rule;
        self.snapshot.isl_m.clear();
        let lengths = self
            .network
            .sky
            .isls
            .iter()
            .map(|&l| rule.length_m(l, places[l.a as usize], places[l.b as usize]));
        self.snapshot.isl_m.extend(lengths);
        self.find_candidates(t_s);
        self.link_stations(t_s);
        self.snapshot.t_s = t_s;
        Ok(&self.snapshot)
    }

    /// The state last asked for.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// ECEF places of the satellites at the time last asked for, m.
    pub fn places(&self) -> &[Vec3] {
        self.ephemeris.places()
    }

    /// The network observed.
    pub fn network(&self) -> &'a Network {
        self.network
    }

    /// Keeps, for each station, a list of the satellites that it may see within [`KNOT_S`].
    fn find_candidates(&mut self, t_s: f64) {
        if self.candidates_at.is_some_and(|at| (t_s - at).abs() <= KNOT_S) {
            return;
        }
        let places = self.ephemeris.places();
        let highest = places.iter().map(|p| dot(*p, *p)).fold(0.0, f64::max).sqrt();
        for (horizon, list) in self.horizons.iter().zip(&mut self.candidates) {
            let (station, reach) = horizon.reach(highest, TOP_SPEED_M_S * KNOT_S);
            let near = |place: Vec3| {
                let line = sub(place, station);
                dot(line, line) <= reach * reach
            };
            list.clear();
            list.extend((0u32..).zip(places).filter(|&(_, &place)| near(place)).map(|(n, _)| n));
        }
        self.candidates_at = Some(t_s);
    }

    fn link_stations(&mut self, t_s: f64) {
        let selection = self.network.selection;
        let keeps = self.chosen_at.is_some_and(|before| selection.keeps(before, t_s));
        let before = std::mem::take(&mut self.snapshot);
        let (mut sights, mut offsets) = (Vec::with_capacity(before.sights.len()), Vec::new());
        let places = self.ephemeris.places();
        let mut usable = Vec::new();
        for (station, horizon) in self.horizons.iter().enumerate() {
            offsets.push(sights.len() as u32);
            usable.clear();
            usable.extend(
                self.candidates[station].iter().filter_map(|&n| horizon.sight(n, places[n as usize])),
            );
            let kept: Vec<u32> =
                if keeps { before.sights(station).iter().map(|s| s.satellite).collect() } else { Vec::new() };
            let antennas = self.network.stations[station].antennas;
            let default = if selection.policy == GroundPolicy::All { u32::MAX } else { 1 };
            let wanted = antennas.unwrap_or(default) as usize;
            selection
                .choose(&mut usable, &kept, wanted, |s| remaining_s(self.network, horizon, s.satellite, t_s));
            sights.extend_from_slice(&usable);
        }
        offsets.push(sights.len() as u32);
        if !keeps {
            self.chosen_at = Some(t_s);
        }
        self.snapshot = Snapshot { sights, offsets, ..before };
    }
}

/// Time for which a satellite stays usable at a station, s: exact to 5 s, and at most an hour, after which a
/// satellite counts as standing still.
fn remaining_s(network: &Network, horizon: &Horizon, satellite: u32, t_s: f64) -> f64 {
    let seen = |after: f64| {
        network.place(satellite, t_s + after).is_ok_and(|place| horizon.sight(satellite, place).is_some())
    };
    (1..=720).map(|n| f64::from(n) * 5.0).find(|&after| !seen(after)).unwrap_or(3_600.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground;
    use crate::preset;

    fn network(selection: Selection) -> Network {
        let preset = preset::by_name("starlink-550").unwrap();
        let mut network = Network::from_preset(&preset, ground::cities()).unwrap();
        network.selection = selection;
        network
    }

    #[test]
    fn candidates_miss_no_satellite_that_is_in_sight() {
        let network = network(Selection::ALL);
        let mut observer = network.observe();
        for t in [0.0, 4.0, 9.9, 10.0, 19.0, 3_000.0] {
            observer.at(t).unwrap();
            for (station, horizon) in observer.horizons.iter().enumerate() {
                let places = observer.places();
                let all: Vec<u32> = (0u32..)
                    .zip(places)
                    .filter(|&(n, &p)| horizon.sight(n, p).is_some())
                    .map(|(n, _)| n)
                    .collect();
                let linked: Vec<u32> =
                    observer.snapshot().sights(station).iter().map(|s| s.satellite).collect();
                assert_eq!(linked, all, "station {station} at {t} s");
            }
        }
    }

    #[test]
    fn on_a_grid_satellites_change_at_its_points_or_when_lost() {
        let network = network(Selection { policy: GroundPolicy::HighestElevation, every_s: Some(15.0) });
        let mut observer = network.observe();
        let mut before: Vec<u32> = Vec::new();
        let mut changes = 0;
        for t in 0..300 {
            let snapshot = observer.at(f64::from(t)).unwrap();
            let now: Vec<u32> =
                (0..100).map(|s| snapshot.sights(s).first().map_or(u32::MAX, |l| l.satellite)).collect();
            if t % 15 != 0 {
                for (station, (was, is)) in before.iter().zip(&now).enumerate() {
                    let horizon = &observer.horizons[station];
                    let lost =
                        *was == u32::MAX || horizon.sight(*was, observer.places()[*was as usize]).is_none();
                    assert!(was == is || lost, "station {station} changed at {t} s without need");
                }
            } else if t > 0 {
                changes += before.iter().zip(&now).filter(|(a, b)| a != b).count();
            }
            before = now;
        }
        assert!(changes > 100, "{changes} changes on the grid");
    }

    #[test]
    fn the_longest_visible_satellite_is_kept_until_it_sets_and_needs_fewer_handovers() {
        let handovers = |policy| {
            let network = network(Selection { policy, every_s: None });
            let mut observer = network.observe();
            let mut last: Vec<u32> = Vec::new();
            let mut count = 0;
            for t in (0..600).step_by(2) {
                let snapshot = observer.at(f64::from(t)).unwrap();
                let now: Vec<u32> =
                    (0..20).filter_map(|s| snapshot.sights(s).first().map(|l| l.satellite)).collect();
                count += last.iter().zip(&now).filter(|(a, b)| a != b).count();
                last = now;
            }
            count
        };
        let (longest, nearest) = (handovers(GroundPolicy::LongestVisible), handovers(GroundPolicy::Nearest));
        assert!(longest < nearest && longest > 0, "longest {longest}, nearest {nearest}");
    }
}
