//! Changes of the sky with their times: the form in which a simulator or an emulator consumes the sky.
//!
//! A [`Plan`] names the pairs of stations that talk, and the time for which they do. [`Plan::changes`] walks
//! through that time and yields [`Change`]s one by one; [`Schedule`] holds them all. If two steps differ, bisection
//! finds the moment of the change between them, down to [`RESOLUTION`]. A change that appears and disappears again
//! within one step is missed.
//!
//! A consumer may rely on this:
//! - Changes come in order of time. All times are multiples of [`RESOLUTION`].
//! - At the plan's beginning every link in use is brought up and every pair gets its route, or the empty one.
//! - At one time they come in this order: links up, delays, routes, links down. So a route names only links that are up,
//!   and a link that goes down has been left by every route.
//! - A link is announced when a route first uses it ([`Plan::sighted`] adds all ground links of the pairs' stations) and
//!   goes down when no route does any more. Links have no direction, routes neither: a pair's way back is its way
//!   there, reversed.
//! - While a link is up its delay is known to within [`Plan::delay_tolerance_s`] at every step, and exactly at the time of
//!   a change that tells it.

mod recorded;

pub use recorded::{Pass, Schedule, ScheduleError};

use crate::elements::OrbitError;
use crate::frame::light_time_s;
use crate::network::{Network, NodeId, Observer, Snapshot};
use crate::route::{Path, Relaying, Router};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Times are multiples of this.
pub const RESOLUTION: Duration = Duration::from_millis(RESOLUTION_MS);
const RESOLUTION_MS: u64 = 10;

/// Two nodes with a link between them: the lower number first.
pub type Ends = (NodeId, NodeId);

/// Something that happens at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its time, since the constellation's epoch.
    pub at: Duration,
    /// Its content.
    pub event: Event,
}

/// A change of a link or a route.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A link can be used from now on.
    LinkUp {
        /// Between these nodes.
        ends: Ends,
        /// Its one-way delay, s.
        delay_s: f64,
    },
    /// A link that is up has another length.
    Delay {
        /// Between these nodes.
        ends: Ends,
        /// Its one-way delay from now on, s.
        delay_s: f64,
    },
    /// A pair of stations has another way.
    Route {
        /// Index of the pair in [`Plan::pairs`].
        pair: usize,
        /// All nodes from the first station to the second; empty while there is no way.
        nodes: Vec<NodeId>,
    },
    /// A link cannot be used any more.
    LinkDown {
        /// Between these nodes.
        ends: Ends,
    },
}

/// A plan that cannot be followed.
#[derive(Debug, thiserror::Error, Clone, PartialEq)]
pub enum PlanError {
    /// Times that are not on the grid, or a step of nothing.
    #[error("{what} is {given_s} s; it must be a multiple of 10 ms{more}")]
    Grid {
        /// Which of the times.
        what: &'static str,
        /// Its value, s.
        given_s: f64,
        /// A further condition, in words.
        more: &'static str,
    },
    /// A pair that names no two stations.
    #[error(
        "pair {pair} is of stations {from} and {to}; it needs two different ones of the network's {stations}"
    )]
    Pair {
        /// Index of the pair.
        pair: usize,
        /// Its first station.
        from: usize,
        /// Its second station.
        to: usize,
        /// Number of stations.
        stations: usize,
    },
}

/// The pairs that talk, and the time for which they do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Pairs of places in [`Network::stations`].
    pub pairs: Vec<(usize, usize)>,
    /// The nodes that forward.
    pub relaying: Relaying,
    /// Start, s since the epoch.
    pub from_s: f64,
    /// End, s since the epoch; a change at this very moment still counts.
    pub until_s: f64,
    /// Distance between two looks at the sky, s.
    pub step_s: f64,
    /// A delay is announced anew once it is off by more than this, s.
    pub delay_tolerance_s: f64,
    /// Time for which a pair has no route after a handover at either of its stations, s.
    pub outage_s: f64,
    /// Whether all ground links of the pairs' stations are announced, used or not.
    pub sighted: bool,
}

impl Plan {
    /// A plan from the epoch on with steps of 1 s, delays within 10 µs, handovers without outage, links as they are used.
    pub fn new(pairs: Vec<(usize, usize)>, until_s: f64) -> Self {
        Self {
            pairs,
            relaying: Relaying::Satellites,
            from_s: 0.0,
            until_s,
            step_s: 1.0,
            delay_tolerance_s: 10e-6,
            outage_s: 0.0,
            sighted: false,
        }
    }

    /// Walks through the plan's time. The iterator computes as it goes and holds one step.
    ///
    /// # Errors
    /// [`PlanError`] if a time is not on the grid of 10 ms or a pair is invalid.
    pub fn changes<'a>(&'a self, network: &'a Network) -> Result<Changes<'a>, PlanError> {
        let stations = network.stations.len();
        for (pair, &(from, to)) in self.pairs.iter().enumerate() {
            if from == to || from.max(to) >= stations {
                return Err(PlanError::Pair { pair, from, to, stations });
            }
        }
        let from = on_grid("the beginning", self.from_s, "")?;
        let until = on_grid("the end", self.until_s, "")?;
        let step = on_grid("the step", self.step_s, " and not 0")?;
        if step == 0 {
            return Err(PlanError::Grid { what: "the step", given_s: 0.0, more: " and not 0" });
        }
        let destinations: BTreeSet<usize> = self.pairs.iter().map(|p| p.1).collect();
        let talking: BTreeSet<usize> = self.pairs.iter().flat_map(|p| [p.0, p.1]).collect();
        Ok(Changes {
            plan: self,
            stations: if self.sighted { talking.into_iter().collect() } else { Vec::new() },
            observer: network.observe(),
            router: Router::new(network, &destinations.into_iter().collect::<Vec<_>>(), self.relaying),
            outage: on_grid("the outage", self.outage_s, "")?,
            from,
            until,
            step,
            wake: BTreeSet::new(),
            before: None,
            links: BTreeMap::new(),
            pairs: vec![Pair::default(); self.pairs.len()],
            ready: VecDeque::new(),
            over: false,
        })
    }
}

/// Milliseconds, if they are on the grid.
fn on_grid(what: &'static str, given_s: f64, more: &'static str) -> Result<u64, PlanError> {
    let steps = given_s * 1e3 / RESOLUTION_MS as f64;
    if steps < 0.0 || !steps.is_finite() || (steps - steps.round()).abs() > 1e-6 {
        return Err(PlanError::Grid { what, given_s, more });
    }
    Ok(steps.round() as u64 * RESOLUTION_MS)
}

/// The sky as the plan's pairs see it at one moment.
#[derive(Clone)]
struct View<'a> {
    at: u64,
    paths: Vec<Option<Path>>,
    /// Delays of all links that are used or announced.
    delays: BTreeMap<Ends, f64>,
    /// The observer from which the next view continues, if choices of satellites depend on earlier choices.
    observer: Option<Box<Observer<'a>>>,
}

impl View<'_> {
    /// Whether both views have the same links and ways; lengths may differ.
    fn like(&self, other: &Self) -> bool {
        let ways = |v: &Self| v.paths.iter().map(|p| p.as_ref().map(|p| p.nodes.clone())).collect::<Vec<_>>();
        self.delays.keys().eq(other.delays.keys()) && ways(self) == ways(other)
    }
}

/// The last announced state of a pair.
#[derive(Clone, Debug, Default)]
struct Pair {
    told: Option<Vec<NodeId>>,
    /// Satellites that serve the two stations.
    serving: Option<(NodeId, NodeId)>,
    blocked_until: u64,
}

/// Iterator over the changes of a [`Plan`], in the order that the module's documentation promises. It ends after the
/// plan's end, or after the first error.
pub struct Changes<'a> {
    plan: &'a Plan,
    stations: Vec<usize>,
    observer: Observer<'a>,
    router: Router,
    outage: u64,
    from: u64,
    until: u64,
    step: u64,
    /// Moments to look at between the steps: ends of outages.
    wake: BTreeSet<u64>,
    before: Option<View<'a>>,
    links: BTreeMap<Ends, f64>,
    pairs: Vec<Pair>,
    ready: VecDeque<Change>,
    over: bool,
}

impl Iterator for Changes<'_> {
    type Item = Result<Change, OrbitError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.over {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => self.over = true,
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

impl<'a> Changes<'a> {
    /// Looks at the next moment; false if there is none.
    fn advance(&mut self) -> Result<bool, OrbitError> {
        let next = match &self.before {
            None => self.from,
            Some(view) => self.from + ((view.at - self.from) / self.step + 1) * self.step,
        };
        if next > self.until {
            return Ok(false);
        }
        match self.before.take() {
            None => {
                let view = self.look(None, next)?;
                self.tell(&view);
                self.before = Some(view);
            }
            Some(before) => {
                let after = self.look(Some(&before), next)?;
                self.before = Some(self.refine(before, after)?);
            }
        }
        Ok(true)
    }

    /// Announces the changes after `before` up to and at `after`, each at its moment. Returns the last view.
    fn refine(&mut self, mut before: View<'a>, after: View<'a>) -> Result<View<'a>, OrbitError> {
        while let Some(&wake) = self.wake.range(before.at + 1..after.at).next() {
            self.wake.remove(&wake);
            let awake = self.look(Some(&before), wake)?;
            before = self.refine(before, awake)?;
        }
        if after.at - before.at <= RESOLUTION_MS || before.like(&after) {
            self.tell(&after);
            return Ok(after);
        }
        let middle = (before.at + after.at) / (2 * RESOLUTION_MS) * RESOLUTION_MS;
        let middle = self.look(Some(&before), middle)?;
        if !before.like(&middle) {
            let middle = self.refine(before, middle)?;
            return self.refine(middle, after);
        }
        self.refine(middle, after)
    }

    fn look(&mut self, before: Option<&View<'a>>, at: u64) -> Result<View<'a>, OrbitError> {
        if let Some(observer) = before.and_then(|view| view.observer.as_ref()) {
            self.observer = (**observer).clone();
        }
        let network = self.observer.network();
        let snapshot = self.observer.at(at as f64 / 1e3)?;
        self.router.advance(snapshot);
        let path = |&(from, to): &(usize, usize)| self.router.path(snapshot, from, to);
        let paths: Vec<Option<Path>> = self.plan.pairs.iter().map(path).collect();
        let mut delays = BTreeMap::new();
        for path in paths.iter().flatten() {
            delays.extend(self.router.links(snapshot, path).map(|(ends, m)| (ends, light_time_s(m))));
        }
        for &station in &self.stations {
            let node = network.station_node(station);
            let link = |s: &crate::link::ground::Sight| ((s.satellite, node), light_time_s(s.range_m));
            delays.extend(snapshot.sights(station).iter().map(link));
        }
        let remembers = network.selection.remembers();
        let observer = remembers.then(|| Box::new(self.observer.clone()));
        Ok(View { at, paths, delays, observer })
    }

    /// Queues the changes that lead from the announced state to `view`.
    fn tell(&mut self, view: &View<'a>) {
        let at = Duration::from_millis(view.at);
        let mut routes = Vec::new();
        let mut used: BTreeSet<Ends> = BTreeSet::new();
        for (index, path) in view.paths.iter().enumerate() {
            let nodes = self.open_way(index, path.as_ref(), view.at);
            used.extend(nodes.windows(2).map(ends));
            if self.pairs[index].told.as_ref() != Some(&nodes) {
                self.pairs[index].told = Some(nodes.clone());
                routes.push(Event::Route { pair: index, nodes });
            }
        }
        // Links of ways that an outage blocks are up only if they are announced for another reason.
        let satellites = self.observer.network().satellite_count();
        let announced = |ends: &Ends| {
            let station = ends.1.checked_sub(satellites).map(|s| s as usize);
            used.contains(ends) || station.is_some_and(|s| self.stations.contains(&s))
        };
        let mut events = Vec::new();
        let mut delays = Vec::new();
        for (&ends, &delay_s) in view.delays.iter().filter(|(ends, _)| announced(ends)) {
            match self.links.get(&ends) {
                None => events.push(Event::LinkUp { ends, delay_s }),
                Some(told) if (told - delay_s).abs() > self.plan.delay_tolerance_s => {
                    delays.push(Event::Delay { ends, delay_s });
                }
                Some(_) => continue,
            }
            self.links.insert(ends, delay_s);
        }
        let gone: Vec<Ends> =
            self.links.keys().filter(|e| !view.delays.contains_key(e) || !announced(e)).copied().collect();
        for ends in &gone {
            self.links.remove(ends);
        }
        events.append(&mut delays);
        events.append(&mut routes);
        events.extend(gone.into_iter().map(|ends| Event::LinkDown { ends }));
        self.ready.extend(events.into_iter().map(|event| Change { at, event }));
    }

    /// The nodes of a pair's way, or none while it is blocked by a handover.
    fn open_way(&mut self, index: usize, path: Option<&Path>, at: u64) -> Vec<NodeId> {
        let Some(path) = path else { return Vec::new() };
        let pair = &mut self.pairs[index];
        let serving = Some((path.nodes[1], path.nodes[path.nodes.len() - 2]));
        if pair.serving.is_some() && pair.serving != serving && self.outage > 0 {
            pair.blocked_until = at + self.outage;
            self.wake.insert(pair.blocked_until);
        }
        pair.serving = serving;
        if at < pair.blocked_until { Vec::new() } else { path.nodes.clone() }
    }
}

fn ends(pair: &[NodeId]) -> Ends {
    (pair[0].min(pair[1]), pair[0].max(pair[1]))
}

/// Exact length of the links of a path, for [`Changes`].
impl Router {
    fn links<'p>(&'p self, snapshot: &'p Snapshot, path: &'p Path) -> impl Iterator<Item = (Ends, f64)> + 'p {
        path.nodes.windows(2).map(ends).zip(self.lengths_m(snapshot, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground;
    use crate::link::{GroundPolicy, Selection};
    use crate::preset;

    fn network() -> Network {
        let cities = ground::cities();
        let stations =
            ["Beijing", "New York", "Paris"].map(|n| ground::find(&cities, n).unwrap().clone()).to_vec();
        Network::from_preset(&preset::by_name("starlink-550").unwrap(), stations).unwrap()
    }

    /// Plays a schedule back and checks every promise of the module's documentation.
    fn assert_promises(schedule: &Schedule) {
        let rank = |e: &Event| match e {
            Event::LinkUp { .. } => 0,
            Event::Delay { .. } => 1,
            Event::Route { .. } => 2,
            Event::LinkDown { .. } => 3,
        };
        let mut up = BTreeSet::new();
        let mut routes = vec![Vec::new(); schedule.plan.pairs.len()];
        let mut last = (Duration::ZERO, 0);
        for change in schedule {
            let now = (change.at, rank(&change.event));
            assert!(now >= last && change.at.as_millis() % 10 == 0, "{change:?} after {last:?}");
            last = now;
            match &change.event {
                Event::LinkUp { ends, .. } => assert!(up.insert(*ends), "{change:?}: it was up"),
                Event::Delay { ends, .. } => assert!(up.contains(ends), "{change:?}: it was down"),
                Event::Route { pair, nodes } => {
                    assert!(
                        nodes.windows(2).all(|w| up.contains(&ends(w))),
                        "{change:?} uses a link that is down"
                    );
                    routes[*pair].clone_from(nodes);
                }
                Event::LinkDown { ends: gone } => {
                    let used =
                        routes.iter().any(|nodes: &Vec<NodeId>| nodes.windows(2).any(|w| ends(w) == *gone));
                    assert!(up.remove(gone) && !used, "{change:?}");
                }
            }
        }
    }

    #[test]
    fn a_consumer_can_rely_on_order_and_on_links_before_routes() {
        let network = network();
        for (outage_s, sighted) in [(0.0, false), (0.5, false), (0.0, true)] {
            let plan = Plan { outage_s, sighted, ..Plan::new(vec![(0, 1), (2, 0)], 200.0) };
            let schedule = Schedule::new(plan, &network).unwrap();
            assert_promises(&schedule);
            assert!(schedule.routes(0).count() > 2);
        }
    }

    #[test]
    fn a_route_changes_at_its_moment_not_at_the_step() {
        let network = network();
        let coarse = Plan { step_s: 5.0, ..Plan::new(vec![(0, 1)], 120.0) };
        let fine = Plan { step_s: 0.01, ..coarse.clone() };
        let times =
            |plan: Plan| Schedule::new(plan, &network).unwrap().routes(0).map(|r| r.0).collect::<Vec<_>>();
        let (coarse, fine) = (times(coarse), times(fine));
        assert_eq!(coarse, fine);
        assert!(coarse.iter().any(|t| t.as_millis() % 1_000 != 0), "{coarse:?}");
    }

    #[test]
    fn a_ground_link_rises_and_sets_when_the_satellite_does() {
        let network = network();
        let plan = Plan { sighted: true, ..Plan::new(vec![(0, 1)], 60.0) };
        let schedule = Schedule::new(plan, &network).unwrap();
        let horizon = network.ground_rule.at(&network.stations[0]);
        let sees =
            |satellite, t_s| horizon.sight(satellite, network.place(satellite, t_s).unwrap()).is_some();
        let mut checked = 0;
        for change in schedule.iter().filter(|c| c.at > Duration::ZERO) {
            let t = change.at.as_secs_f64();
            // 15 ms either side: the grid's 10 ms and the centimetre of interpolation.
            match change.event {
                Event::LinkUp { ends: (a, 1584), .. } => assert!(!sees(a, t - 0.015) && sees(a, t + 0.005)),
                Event::LinkDown { ends: (a, 1584) } => assert!(sees(a, t - 0.015) && !sees(a, t + 0.005)),
                _ => continue,
            }
            checked += 1;
        }
        assert!(checked > 3, "{checked} rises and sets");
    }

    #[test]
    fn told_delays_stay_within_the_tolerance() {
        let network = network();
        let schedule = Schedule::new(Plan::new(vec![(0, 1)], 30.0), &network).unwrap();
        let mut told = BTreeMap::new();
        let mut changes = schedule.iter().peekable();
        for second in 0..30u64 {
            while let Some(change) = changes.next_if(|c| c.at <= Duration::from_secs(second)) {
                match change.event {
                    Event::LinkUp { ends, delay_s } | Event::Delay { ends, delay_s } => {
                        told.insert(ends, delay_s);
                    }
                    Event::LinkDown { ends } => {
                        told.remove(&ends);
                    }
                    Event::Route { .. } => {}
                }
            }
            for (&(a, b), &delay_s) in &told {
                let place = |n| network.place(n, second as f64).unwrap();
                let true_s = light_time_s(crate::frame::distance(place(a), place(b)));
                assert!(
                    (true_s - delay_s).abs() < 10.1e-6,
                    "{a}-{b} at {second} s: {true_s} against {delay_s}"
                );
            }
        }
    }

    #[test]
    fn a_handover_with_an_outage_leaves_no_route_for_that_long() {
        let network = network();
        let plan = Plan { outage_s: 0.35, ..Plan::new(vec![(0, 1)], 300.0) };
        let schedule = Schedule::new(plan, &network).unwrap();
        let routes: Vec<_> = schedule.routes(0).collect();
        let gaps: Vec<_> = routes.windows(2).filter(|w| w[0].1.is_empty()).map(|w| w[1].0 - w[0].0).collect();
        assert!(!gaps.is_empty() && gaps.iter().all(|g| *g >= Duration::from_millis(350)), "{gaps:?}");
    }

    #[test]
    fn passes_follow_each_other_at_handovers() {
        let mut network = network();
        network.selection = Selection { policy: GroundPolicy::HighestElevation, every_s: Some(15.0) };
        let schedule = Schedule::new(Plan::new(vec![(0, 1)], 120.0), &network).unwrap();
        let passes = schedule.passes(0, false);
        assert!(passes.len() > 2 && passes.last().unwrap().until_s == 120.0);
        for pair in passes.windows(2) {
            assert_eq!(pair[0].until_s, pair[1].from_s);
            assert_ne!(pair[0].satellite, pair[1].satellite);
            assert_eq!(pair[1].from_s % 15.0, 0.0, "a handover on the grid");
        }
    }

    #[test]
    fn a_plan_off_the_grid_or_without_two_stations_is_refused() {
        let network = network();
        let refused = |plan: Plan| plan.changes(&network).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(
            refused(Plan { step_s: 0.015, ..Plan::new(vec![(0, 1)], 1.0) }).contains("the step is 0.015 s")
        );
        assert!(refused(Plan { step_s: 0.0, ..Plan::new(vec![(0, 1)], 1.0) }).contains("not 0"));
        assert!(refused(Plan::new(vec![(0, 0)], 1.0)).contains("pair 0"));
        assert!(refused(Plan::new(vec![(0, 9)], 1.0)).contains("network's 3"));
    }
}
