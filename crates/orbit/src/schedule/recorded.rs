//! A plan's changes in a list, and values computed from them.

use super::{Change, Ends, Event, Plan, PlanError};
use crate::elements::OrbitError;
use crate::network::{Network, NodeId};
use std::time::Duration;

/// All changes of a plan.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The plan that it follows.
    pub plan: Plan,
    changes: Vec<Change>,
}

/// A time during which one satellite serves a station of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// The satellite.
    pub satellite: NodeId,
    /// Start, s since the epoch.
    pub from_s: f64,
    /// End, s since the epoch: the next handover, or the plan's end.
    pub until_s: f64,
}

/// Why a plan gives no schedule.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// The plan is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A satellite has no place.
    #[error(transparent)]
    Orbit(#[from] OrbitError),
}

impl Schedule {
    /// Follows a plan to its end.
    ///
    /// # Errors
    /// [`ScheduleError`] if the plan is wrong or a satellite has no place at some time.
    pub fn new(plan: Plan, network: &Network) -> Result<Self, ScheduleError> {
        let changes = plan.changes(network)?.collect::<Result<_, _>>()?;
        Ok(Self { plan, changes })
    }

    /// The changes, in the order that the module's documentation promises.
    pub fn iter(&self) -> std::slice::Iter<'_, Change> {
        self.changes.iter()
    }

    /// The ways of a pair with the times at which they begin, the first at the plan's beginning.
    pub fn routes(&self, pair: usize) -> impl Iterator<Item = (Duration, &[NodeId])> {
        self.changes.iter().filter_map(move |change| match &change.event {
            Event::Route { pair: index, nodes } if *index == pair => Some((change.at, nodes.as_slice())),
            _ => None,
        })
    }

    /// The satellites that serve the first station of a pair (or the second, if `far_end`), with their times: the
    /// input of [`crate::link::RatePolicy::VCurve`].
    pub fn passes(&self, pair: usize, far_end: bool) -> Vec<Pass> {
        let mut passes: Vec<Pass> = Vec::new();
        for (at, nodes) in self.routes(pair) {
            let at_s = at.as_secs_f64();
            let satellite = if far_end { nodes.iter().rev().nth(1) } else { nodes.get(1) };
            if let Some(last) = passes.last_mut().filter(|p| p.until_s == self.plan.until_s) {
                if satellite == Some(&last.satellite) {
                    continue;
                }
                last.until_s = at_s;
            }
            passes.extend(satellite.map(|&satellite| Pass {
                satellite,
                from_s: at_s,
                until_s: self.plan.until_s,
            }));
        }
        passes
    }
}

impl Schedule {
    /// The changes as CSV, one line for each: `at_s,event,pair,a,b,delay_ms,path`, nodes by name, a path's nodes
    /// separated by `>`.
    pub fn to_csv(&self, network: &Network) -> String {
        let mut text = "at_s,event,pair,a,b,delay_ms,path\n".to_owned();
        for change in self {
            let link = |what: &str, ends: &Ends, delay: Option<&f64>| {
                let delay = delay.map(|s| format!("{:.6}", s * 1e3)).unwrap_or_default();
                format!(
                    "{what},,{},{},{delay},",
                    quoted(network.node_name(ends.0)),
                    quoted(network.node_name(ends.1))
                )
            };
            let row = match &change.event {
                Event::LinkUp { ends, delay_s } => link("up", ends, Some(delay_s)),
                Event::Delay { ends, delay_s } => link("delay", ends, Some(delay_s)),
                Event::LinkDown { ends } => link("down", ends, None),
                Event::Route { pair, nodes } => {
                    let names: Vec<&str> = nodes.iter().map(|&n| network.node_name(n)).collect();
                    format!("route,{pair},,,,{}", quoted(&names.join(">")))
                }
            };
            text.push_str(&format!("{:.2},{row}\n", change.at.as_secs_f64()));
        }
        text
    }
}

/// A CSV field, quoted where it must be (RFC 4180, section 2).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

impl<'a> IntoIterator for &'a Schedule {
    type Item = &'a Change;
    type IntoIter = std::slice::Iter<'a, Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
