//! The links of the sky that were ever used.

use super::deed::{Stage, Tuning};
use super::plan::{Handover, SkyLinkConfig, SkyPlan};
use crate::engine::{LinkId, NodeId, World};
use crate::link::{LinkConfig, LinkCounters, LossModel, Outage, RateSchedule};
use crate::record::SharedRecorder;
use starhop_orbit::network::NodeId as Body;
use starhop_orbit::schedule::Ends;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Time for which a link outside every path still forwards packets: longer than any packet is under way.
const DRAIN: Duration = Duration::from_secs(1);

/// Counters of the links of one kind since the end of the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupResult {
    /// "Beijing-sky" or "isl".
    pub name: String,
    /// Between satellites "forward", with the data, and "backward"; at a station "up" and "down".
    pub direction: &'static str,
    /// Their counters together.
    pub counters: LinkCounters,
    /// Bits that they sent.
    pub sent_bits: f64,
    /// Bits that they could have sent while they were in use.
    pub capacity_bits: f64,
}

#[derive(Debug)]
struct SkyLink {
    /// The direction from the lower number to the higher, and the one back. At a station: down, and up.
    ids: [LinkId; 2],
    /// Time since which a path uses it.
    used_since: Option<Instant>,
    /// Time at which the last path left it.
    left_at: Instant,
    counted: [Counted; 2],
}

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Counters and bits at the end of the warm-up.
    before: (LinkCounters, f64),
    capacity_bits: f64,
    /// It carries data, not requests, on the path that uses it.
    is_data: bool,
}

/// All links that were ever used.
#[derive(Debug)]
pub(super) struct Links {
    links: BTreeMap<Ends, SkyLink>,
    by_id: BTreeMap<LinkId, (Ends, usize)>,
    left: VecDeque<(Instant, Ends)>,
    warm_up: Instant,
    rng: Rng,
}

fn ordered(a: Body, b: Body) -> Ends {
    (a.min(b), a.max(b))
}

/// The configuration of direction `index` of a link.
fn kind(plan: &SkyPlan, ends: Ends, index: usize) -> &SkyLinkConfig {
    match (ends.1 >= plan.network.satellite_count(), index) {
        (false, _) => &plan.isl,
        (true, 0) => &plan.downlink,
        (true, _) => &plan.uplink,
    }
}

/// Loss where a direction is not known to carry data.
fn quiet(kind: &SkyLinkConfig) -> LossModel {
    if kind.is_lossy_for_data_only { LossModel::None } else { kind.config.loss.clone() }
}

fn seconds(delay_s: f64) -> Duration {
    Duration::from_secs_f64(delay_s)
}

impl Links {
    pub(super) fn new(rng: Rng) -> Self {
        let (links, by_id, left) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { links, by_id, left, warm_up: Instant::ZERO, rng }
    }

    /// A path is about to use a link, until `until` as far as that is known.
    pub(super) fn bring_up(
        &mut self,
        plan: &SkyPlan,
        (ends, nodes): (Ends, [NodeId; 2]),
        delay_s: f64,
        until: Option<Instant>,
        stage: &mut Stage<'_>,
    ) {
        let now = stage.now();
        let link = match self.links.entry(ends) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let ids = [0, 1].map(|index| {
                    let kind = kind(plan, ends, index);
                    let config = LinkConfig { loss: quiet(kind), ..kind.config.clone() };
                    stage.join((nodes[index], nodes[1 - index]), config, kind.header)
                });
                self.by_id.extend(ids.into_iter().enumerate().map(|(index, id)| (id, (ends, index))));
                let counted = [Counted::default(); 2];
                entry.insert(SkyLink { ids, used_since: None, left_at: now, counted })
            }
        };
        link.used_since = Some(now);
        // At the very beginning nothing is handed over.
        let is_handover = now > Instant::ZERO && ends.1 >= plan.network.satellite_count();
        let outage = if is_handover { outage(plan.handover, now) } else { None };
        for (index, id) in link.ids.into_iter().enumerate() {
            let kind = kind(plan, ends, index);
            let rate = match (&kind.curve, until) {
                (Some(curve), Some(until)) => curve.over(now, until, &mut self.rng),
                _ => kind.config.rate.clone(),
            };
            stage.switch(id, true, true);
            stage.tune(id, Tuning::Delay(seconds(delay_s)));
            stage.tune(id, Tuning::Rate(rate, outage.clone()));
        }
    }

    pub(super) fn set_delay(&self, ends: Ends, delay_s: f64, stage: &mut Stage<'_>) {
        for id in self.links.get(&ends).into_iter().flat_map(|link| link.ids) {
            stage.tune(id, Tuning::Delay(seconds(delay_s)));
        }
    }

    /// No path uses the link any more.
    pub(super) fn take_down(&mut self, plan: &SkyPlan, ends: Ends, stage: &mut Stage<'_>) {
        let (now, warm_up) = (stage.now(), self.warm_up);
        let Some(link) = self.links.get_mut(&ends) else { return };
        link.count_capacity(warm_up, stage.world);
        link.used_since = None;
        link.left_at = now;
        for (index, id) in link.ids.into_iter().enumerate() {
            if !plan.handover.keep {
                stage.switch(id, false, false);
            }
            stage.tune(id, Tuning::Loss(quiet(kind(plan, ends, index))));
        }
        self.left.push_back((now, ends));
    }

    /// Switches off links that have drained, and forgets the rates of their passes.
    pub(super) fn retire(&mut self, stage: &mut Stage<'_>) {
        let now = stage.now();
        while let Some(&(at, ends)) = self.left.front()
            && at + DRAIN <= now
        {
            self.left.pop_front();
            let Some(link) = self.links.get(&ends).filter(|l| l.used_since.is_none() && l.left_at == at)
            else {
                continue;
            };
            for id in link.ids {
                let last = stage.network().link(id).schedule().at(now);
                stage.tune(id, Tuning::Rate(RateSchedule::Constant(last), None));
                stage.tune(id, Tuning::Empty);
                stage.switch(id, false, true);
            }
        }
    }

    /// The link from one body to another and the one back.
    pub(super) fn way(&self, from: Body, to: Body) -> Option<(LinkId, LinkId)> {
        let [there, back] = self.links.get(&ordered(from, to))?.ids;
        Some(if from < to { (there, back) } else { (back, there) })
    }

    /// These links carry data from now on.
    pub(super) fn mark_data(&mut self, plan: &SkyPlan, path: &[LinkId], stage: &mut Stage<'_>) {
        for id in path {
            let Some(&(ends, index)) = self.by_id.get(id) else { continue };
            let kind = kind(plan, ends, index);
            if kind.is_lossy_for_data_only {
                stage.tune(*id, Tuning::Loss(kind.config.loss.clone()));
            }
            let Some(link) = self.links.get_mut(&ends) else { continue };
            link.counted[index].is_data = true;
        }
    }

    /// The rate of a link at its best.
    pub(super) fn best_rate(&self, plan: &SkyPlan, link: LinkId) -> Option<Rate> {
        let &(ends, index) = self.by_id.get(&link)?;
        Some(kind(plan, ends, index).curve?.max)
    }

    pub(super) fn on_warm_up(&mut self, world: &World<SharedRecorder>) {
        self.warm_up = world.now();
        for link in self.links.values_mut() {
            for (id, counted) in link.ids.iter().zip(&mut link.counted) {
                let model = world.network().link(*id);
                counted.before = (model.counters(), model.bits_sent(world.now()));
                counted.capacity_bits = 0.0;
            }
        }
    }

    pub(super) fn finish(&mut self, world: &World<SharedRecorder>) {
        for link in self.links.values_mut() {
            link.count_capacity(self.warm_up, world);
        }
    }

    /// Counters of a link of the sky in the simulation since the end of the warm-up.
    pub(super) fn done(&self, link: LinkId, world: &World<SharedRecorder>) -> (LinkCounters, f64) {
        let of = self.by_id.get(&link).and_then(|(ends, index)| Some(self.links.get(ends)?.counted[*index]));
        let before = of.unwrap_or_default().before;
        let model = world.network().link(link);
        (model.counters().since(before.0), model.bits_sent(world.now()) - before.1)
    }

    /// The links by kind; `done` gives the counters of each since the end of the warm-up.
    pub(super) fn groups(
        &self,
        plan: &SkyPlan,
        done: impl Fn(LinkId) -> (LinkCounters, f64),
    ) -> Vec<GroupResult> {
        let satellites = plan.network.satellite_count();
        let mut groups: BTreeMap<(Body, &'static str), GroupResult> = BTreeMap::new();
        for (&ends, link) in &self.links {
            for (index, (id, counted)) in link.ids.iter().zip(&link.counted).enumerate() {
                let (group, direction, name) = match ends.1.checked_sub(satellites) {
                    Some(_) if index == 0 => (ends.1, "down", plan.network.node_name(ends.1)),
                    Some(_) => (ends.1, "up", plan.network.node_name(ends.1)),
                    None if counted.is_data => (0, "forward", "isl"),
                    None => (0, "backward", "isl"),
                };
                let name = if group == 0 { name.to_owned() } else { format!("{name}-sky") };
                let empty = || GroupResult {
                    name,
                    direction,
                    counters: LinkCounters::default(),
                    sent_bits: 0.0,
                    capacity_bits: 0.0,
                };
                let sum = groups.entry((group, direction)).or_insert_with(empty);
                let (counters, sent_bits) = done(*id);
                sum.counters = sum.counters.and(counters);
                sum.sent_bits += sent_bits;
                sum.capacity_bits += counted.capacity_bits;
            }
        }
        groups.into_values().collect()
    }
}

impl SkyLink {
    /// Adds the bits that the link could have sent while it was used.
    fn count_capacity(&mut self, warm_up: Instant, world: &World<SharedRecorder>) {
        let Some(since) = self.used_since.replace(world.now()) else { return };
        for (id, counted) in self.ids.iter().zip(&mut self.counted) {
            let model = world.network().link(*id);
            counted.capacity_bits += model.schedule().bits_between(since.max(warm_up), world.now());
        }
    }
}

fn outage(handover: Handover, now: Instant) -> Option<Outage> {
    let times = vec![(now, now + handover.outage)];
    (!handover.outage.is_zero()).then(|| Outage::times(times, handover.hold))
}
