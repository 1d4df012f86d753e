//! Routes between stations: the shortest way through the sky at each moment.

use crate::elements::OrbitError;
use crate::frame::light_time_s;
use crate::graph::{FAR, Graph, NONE, Search, Tree, UNIT_M, units};
use crate::network::{Network, NodeId, Observer, Snapshot};

/// The nodes that forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relaying {
    /// Only satellites forward: stations are ends.
    Satellites,
    /// Stations forward as well: for constellations without inter-satellite links.
    Stations,
}

/// A way from one station to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Every node, both ends included.
    pub nodes: Vec<NodeId>,
    /// Length of all links together, m.
    pub length_m: f64,
}

impl Path {
    /// Number of links.
    pub fn hops(&self) -> usize {
        self.nodes.len() - 1
    }

    /// One-way propagation delay, s.
    pub fn delay_s(&self) -> f64 {
        light_time_s(self.length_m)
    }
}

/// Shortest-path trees to a set of stations, and from them the next hops of all nodes.
#[derive(Clone, Debug)]
pub struct Router {
    relaying: Relaying,
    satellites: u32,
    stations: u32,
    graph: Graph,
    destinations: Vec<u32>,
    trees: Vec<Tree>,
    search: Search,
    /// Ground links of all stations, satellite and units of length, and where each station's begin.
    ground: Vec<(u32, u32)>,
    ground_offsets: Vec<usize>,
    /// First satellite of station s on its way to destination d, at d·stations + s.
    first: Vec<u32>,
    total: Vec<u32>,
    fresh: bool,
}

impl Router {
    /// A router to these stations (places in [`Network::stations`]). It knows no routes before
    /// [`Router::rebuild`] or [`Router::advance`].
    pub fn new(network: &Network, destinations: &[usize], relaying: Relaying) -> Self {
        let (satellites, stations) = (network.satellite_count(), network.stations.len() as u32);
        let nodes = match relaying {
            Relaying::Satellites => satellites,
            Relaying::Stations => satellites + stations,
        };
        let cells = destinations.len() * stations as usize;
        Self {
            relaying,
            satellites,
            stations,
            graph: Graph::new(nodes, network.sky.isls.iter().map(|l| (l.a, l.b)).collect()),
            destinations: destinations.iter().map(|&d| d as u32).collect(),
            trees: vec![Tree::new(nodes as usize); destinations.len()],
            search: Search::default(),
            ground: Vec::new(),
            ground_offsets: Vec::new(),
            first: vec![NONE; cells],
            total: vec![u32::MAX; cells],
            fresh: false,
        }
    }

    /// A router between all stations.
    pub fn all_pairs(network: &Network, relaying: Relaying) -> Self {
        Self::new(network, &(0..network.stations.len()).collect::<Vec<_>>(), relaying)
    }

    /// Finds all routes of `snapshot` from nothing.
    pub fn rebuild(&mut self, snapshot: &Snapshot) {
        self.update(snapshot, false);
    }

    /// Finds all routes of `snapshot` from those known before; the fewer changes the faster. The first call, and every
    /// call where stations relay (their links come and go), rebuilds.
    pub fn advance(&mut self, snapshot: &Snapshot) {
        self.update(snapshot, self.fresh && self.relaying == Relaying::Satellites);
    }

    fn update(&mut self, snapshot: &Snapshot, repair: bool) {
        self.load(snapshot);
        for column in 0..self.destinations.len() {
            let to = self.destinations[column] as usize;
            let seeds = &self.ground[self.ground_offsets[to]..self.ground_offsets[to + 1]];
            let tree = &mut self.trees[column];
            if repair {
                self.search.repair(&self.graph, seeds, tree);
            } else {
                self.search.grow(&self.graph, seeds, tree);
            }
            self.choose_first_hops(column);
        }
        self.fresh = true;
    }

    fn load(&mut self, snapshot: &Snapshot) {
        self.ground.clear();
        self.ground_offsets.clear();
        for station in 0..self.stations as usize {
            self.ground_offsets.push(self.ground.len());
            self.ground.extend(snapshot.sights(station).iter().map(|s| (s.satellite, units(s.range_m))));
        }
        self.ground_offsets.push(self.ground.len());
        if self.relaying == Relaying::Satellites {
            return self.search.load(&self.graph, &snapshot.isl_m);
        }
        let mut links = self.graph.links()[..snapshot.isl_m.len()].to_vec();
        let mut lengths_m = snapshot.isl_m.clone();
        for station in 0..self.stations {
            for sight in snapshot.sights(station as usize) {
                links.push((sight.satellite, self.satellites + station));
                lengths_m.push(sight.range_m);
            }
        }
        self.graph = Graph::new(self.satellites + self.stations, links);
        self.search.load(&self.graph, &lengths_m);
    }

    /// Every station's first hop to one destination: the least sum of link and distance from there.
    fn choose_first_hops(&mut self, column: usize) {
        let (distance, to) = (self.trees[column].distances(), self.destinations[column] as usize);
        let row = column * self.stations as usize;
        for (station, ends) in self.ground_offsets.windows(2).enumerate() {
            let (mut best, mut first) = (FAR, NONE);
            for &(satellite, length) in &self.ground[ends[0]..ends[1]] {
                let through = length.saturating_add(distance[satellite as usize]);
                (best, first) = if through < best { (through, satellite) } else { (best, first) };
            }
            let (best, first) = if station == to { (FAR, NONE) } else { (best, first) };
            self.first[row + station] = first;
            self.total[row + station] = best;
        }
    }

    fn cell(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let column = self.destinations.iter().position(|&d| d as usize == to)?;
        (from < self.stations as usize).then_some((column, column * self.stations as usize + from))
    }

    /// Length of the way between two stations, m, to [`UNIT_M`] a link; `None` if there is none or `to` is no destination
    /// of this router.
    pub fn length_m(&self, from: usize, to: usize) -> Option<f64> {
        let (_, cell) = self.cell(from, to)?;
        Some(self.total[cell]).filter(|&units| units < FAR).map(|units| f64::from(units) * UNIT_M)
    }

    /// The way between two stations with its exact length; `None` if there is none or `to` is no destination of
    /// this router. The routes must have been found in `snapshot`.
    pub fn path(&self, snapshot: &Snapshot, from: usize, to: usize) -> Option<Path> {
        let (column, cell) = self.cell(from, to)?;
        let first = Some(self.first[cell]).filter(|&n| n != NONE)?;
        let tree = &self.trees[column];
        let mut nodes = vec![self.satellites + from as u32];
        nodes.extend(tree.walk(first));
        nodes.push(self.satellites + to as u32);
        let mut path = Path { nodes, length_m: 0.0 };
        path.length_m = self.lengths_m(snapshot, &path).sum();
        Some(path)
    }

    /// Exact lengths of the links of a path found in this snapshot, m.
    pub fn lengths_m<'a>(&'a self, snapshot: &'a Snapshot, path: &'a Path) -> impl Iterator<Item = f64> + 'a {
        path.nodes.windows(2).map(|pair| {
            let (low, high) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            match high.checked_sub(self.satellites) {
                Some(station) => ground_m(snapshot, station as usize, low),
                None => {
                    let arc = self.graph.arcs(low).iter().find(|arc| arc.to == high);
                    arc.map_or(f64::INFINITY, |arc| snapshot.isl_m[arc.link as usize])
                }
            }
        })
    }

    /// The next node on the way from `node` to station `to`.
    pub fn next_hop(&self, node: NodeId, to: usize) -> Option<NodeId> {
        if let Some(station) = node.checked_sub(self.satellites) {
            let (_, cell) = self.cell(station as usize, to)?;
            return Some(self.first[cell]).filter(|&n| n != NONE);
        }
        let column = self.destinations.iter().position(|&d| d as usize == to)?;
        let tree = &self.trees[column];
        tree.distance(node)?;
        Some(Some(tree.hop(node).to).filter(|&next| next != NONE).unwrap_or(self.satellites + to as u32))
    }
}

/// Length of a ground link, m; infinity if it is not there.
fn ground_m(snapshot: &Snapshot, station: usize, satellite: NodeId) -> f64 {
    snapshot.sights(station).iter().find(|s| s.satellite == satellite).map_or(f64::INFINITY, |s| s.range_m)
}

/// A span of time cut into equal steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// First moment, s since the epoch.
    pub from_s: f64,
    /// Distance between moments, s.
    pub step_s: f64,
    /// Number of moments.
    pub count: u64,
}

impl Steps {
    /// Moments from 0 on, one every `step_s`, before `end_s`.
    pub fn until(end_s: f64, step_s: f64) -> Self {
        Self { from_s: 0.0, step_s, count: (end_s / step_s).ceil().max(0.0) as u64 }
    }

    /// The time of a moment, s since the epoch.
    pub fn time_s(&self, index: u64) -> f64 {
        self.from_s + index as f64 * self.step_s
    }
}

/// Walks `steps` with all routes between all stations, on `threads` threads, each over one contiguous part: `start` makes
/// a part's result and `visit` adds a moment to it. The parts come back in order. With a policy that keeps satellites
/// ([`crate::link::Selection`] without a grid), each part begins with a free choice.
///
/// # Errors
/// [`OrbitError::Propagation`] if a satellite has no place at some moment.
///
/// # Panics
/// If `visit` panics.
pub fn sweep<T: Send>(
    network: &Network,
    relaying: Relaying,
    steps: Steps,
    threads: usize,
    start: impl Fn() -> T + Sync,
    visit: impl Fn(&mut T, &Observer<'_>, &Router) + Sync,
) -> Result<Vec<T>, OrbitError> {
    let part = steps.count.div_ceil(threads.max(1) as u64).max(1);
    let job = |first: u64| {
        let (mut observer, mut router) = (network.observe(), Router::all_pairs(network, relaying));
        let mut result = start();
        for index in first..(first + part).min(steps.count) {
            observer.at(steps.time_s(index))?;
            router.advance(observer.snapshot());
            visit(&mut result, &observer, &router);
        }
        Ok(result)
    };
    std::thread::scope(|scope| {
        let job = &job;
        let firsts = (0..steps.count).step_by(part as usize);
        let parts: Vec<_> = firsts.map(|first| scope.spawn(move || job(first))).collect();
        parts.into_iter().map(|p| p.join().expect("a visitor panicked")).collect()
    })
}
