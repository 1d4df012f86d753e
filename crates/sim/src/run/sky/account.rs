//! The paths of pairs over time, and their capacity.

use super::plan::SkyPlan;
use crate::engine::{LinkId, World};
use crate::record::SharedRecorder;
use starhop_proto::time::{Duration, Instant};

/// The path of a pair over the run, time by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathResult {
    /// Times of its changes, without the first route.
    pub changes: Vec<Instant>,
    /// Mean number of links while there was a path.
    pub mean_hops: f64,
    /// The fewest and the most links.
    pub hops: (u32, u32),
    /// Mean propagation delay while there was a path, milliseconds.
    pub mean_propagation_ms: f64,
    /// The least and the greatest propagation delay, milliseconds.
    pub propagation_ms: (f64, f64),
    /// Time without a path, seconds.
    pub away_s: f64,
}

/// The path of a flow over the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowPath {
    /// The fluid bound for its payload while it was measured, bit/s.
    pub ideal_bps: f64,
    /// Its path.
    pub path: PathResult,
}

/// Adds up hops and propagation over time.
#[derive(Clone, Debug, Default)]
pub(super) struct PathAccount {
    since: Instant,
    hops: u32,
    propagation: Option<Duration>,
    has_begun: bool,
    with_path_s: f64,
    hop_s: f64,
    propagation_ms_s: f64,
    result: PathResult,
}

impl PathAccount {
    /// The route changes at `now` to another one, of `hops` links.
    pub(super) fn set_route(&mut self, now: Instant, hops: usize) {
        self.advance(now);
        if self.has_begun {
            self.result.changes.push(now);
        }
        self.has_begun = true;
        self.hops = hops as u32;
    }

    /// The propagation delay of the route changes at `now`; `None` without a route.
    pub(super) fn set_propagation(&mut self, now: Instant, propagation: Option<Duration>) {
        self.advance(now);
        self.propagation = propagation;
        let Some(delay) = propagation.map(Duration::as_millis_f64) else { return };
        let result = &mut self.result;
        let is_first = result.hops.1 == 0;
        let (low, high) = result.propagation_ms;
        result.propagation_ms = (if is_first { delay } else { low.min(delay) }, high.max(delay));
        let low = if is_first { self.hops } else { result.hops.0.min(self.hops) };
        result.hops = (low, result.hops.1.max(self.hops));
    }

    pub(super) fn advance(&mut self, now: Instant) {
        let seconds = now.since(self.since).as_secs_f64();
        self.since = now;
        match self.propagation {
            Some(delay) => {
                self.with_path_s += seconds;
                self.hop_s += seconds * f64::from(self.hops);
                self.propagation_ms_s += seconds * delay.as_millis_f64();
            }
            None => self.result.away_s += seconds,
        }
    }

    pub(super) fn now(&self) -> Option<(u32, Duration)> {
        self.propagation.map(|delay| (self.hops, delay))
    }

    pub(super) fn changes(&self) -> &[Instant] {
        &self.result.changes
    }

    pub(super) fn result(&self) -> PathResult {
        let seconds = self.with_path_s.max(f64::MIN_POSITIVE);
        PathResult {
            mean_hops: self.hop_s / seconds,
            mean_propagation_ms: self.propagation_ms_s / seconds,
            ..self.result.clone()
        }
    }
}

/// The capacity of a flow's path, per kind of hop, because relays store the bytes that a hop cannot take yet. The
/// kinds are the server's access, the client's access, their two ground links, and all links between, of which the
/// narrowest counts.
#[derive(Clone, Debug)]
pub(crate) struct FlowAccount {
    pub(super) pair: usize,
    /// While it is measured: from the later of its start and the end of the warm-up to its end.
    window: (Instant, Instant),
    /// Bytes of a full IP packet, and the payload in it.
    packet: (u32, u32),
    closed: Instant,
    bits: [f64; KINDS],
}

const KINDS: usize = 5;
const BETWEEN: usize = 2;

impl FlowAccount {
    pub(crate) fn new(pair: usize, window: (Instant, Instant), packet: (u32, u32)) -> Self {
        Self { pair, window, packet, closed: Instant::ZERO, bits: [0.0; KINDS] }
    }

    /// Adds the capacity of `path`, from server to client, since the last call.
    pub(super) fn close(&mut self, plan: &SkyPlan, path: &[LinkId], world: &World<SharedRecorder>) {
        let (from, to) = (self.closed.max(self.window.0), world.now().min(self.window.1));
        self.closed = world.now();
        if from >= to || path.is_empty() {
            return;
        }
        let has_access = |link: &LinkId| plan.access.values().any(|(up, down)| link == up || link == down);
        let first = usize::from(path.first().is_some_and(has_access));
        let last = path.len() - 1 - usize::from(path.last().is_some_and(has_access));
        let mut between = f64::INFINITY;
        let mut bits = [f64::INFINITY; KINDS];
        for (index, &link) in path.iter().enumerate() {
            let wire = self.packet.0 + world.network().header(link);
            let share = f64::from(self.packet.1) / f64::from(wire);
            let carried = world.network().link(link).carried_bits(from, to, wire) * share;
            match index {
                i if i < first => bits[0] = carried,
                i if i == first => bits[1] = carried,
                i if i == last => bits[3] = carried,
                i if i > last => bits[4] = carried,
                _ => between = between.min(carried),
            }
        }
        bits[BETWEEN] = between;
        self.bits.iter_mut().zip(bits).for_each(|(sum, bits)| *sum += bits);
    }

    pub(super) fn ideal_bps(&self) -> f64 {
        let seconds = self.closed.min(self.window.1).since(self.window.0).as_secs_f64();
        let least = self.bits.iter().copied().fold(f64::INFINITY, f64::min);
        if seconds > 0.0 { least / seconds } else { 0.0 }
    }
}
