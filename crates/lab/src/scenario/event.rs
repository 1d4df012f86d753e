//! The events of a scenario: changes of nodes and links at set times.

use super::fields::{Fields, ScenarioError};
use super::topology::{InFlight, Topology};
use super::units::{SignedSpan, Span};
use starhop_proto::time::Duration;

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its time.
    pub at: Duration,
    /// Its content.
    pub what: What,
}

/// The change that happens; nodes, links and paths by their numbers in the topology.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The relay program of a node is killed.
    Crash(usize),
    /// It starts again, its memory empty.
    Restart(usize),
    /// The node's neighbours bypass its relay from now on.
    Bypass(usize),
    /// The node's neighbours use its relay again.
    Include(usize),
    /// The node is switched off.
    NodeDown(usize),
    /// The node is switched on.
    NodeUp(usize),
    /// A link, both directions, goes up or down.
    Link {
        /// The number of the link.
        link: usize,
        /// Up or down.
        is_up: bool,
        /// Packets under way still arrive.
        keep: bool,
    },
    /// `parallel` only: this path from now on.
    Path(usize),
    /// The host gets other addresses in place of those that it had.
    Readdress(usize),
    /// The time of day of a node's programs jumps.
    StepClock {
        /// The number of the node.
        node: usize,
        /// Size of the jump, nanoseconds.
        by: i64,
    },
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    node: String,
    by: SignedSpan,
}

type NodeEvent = fn(usize) -> What;

const NODE_EVENTS: [(&str, NodeEvent); 7] = [
    ("crash", What::Crash),
    ("restart", What::Restart),
    ("bypass", What::Bypass),
    ("include", What::Include),
    ("node_down", What::NodeDown),
    ("node_up", What::NodeUp),
    ("readdress", What::Readdress),
];

impl Event {
    pub(super) fn parse(mut fields: Fields<'_>, topology: &Topology) -> Result<Self, ScenarioError> {
        let Span(at) = fields.required("at")?;
        let keep = fields.optional("in_flight")?.unwrap_or(InFlight::Lost) == InFlight::Kept;
        let mut found = Vec::new();
        for (name, what) in NODE_EVENTS {
            if let Some(node) = named(&mut fields, name, "node", |node| topology.node_named(node))? {
                found.push(what(node));
            }
        }
        for (name, is_up) in [("link_down", false), ("link_up", true)] {
            if let Some(link) = named(&mut fields, name, "link", |link| topology.link_named(link))? {
                found.push(What::Link { link, is_up, keep });
            }
        }
        found.extend(path(&mut fields, topology)?);
        found.extend(step_clock(&mut fields, topology)?);
        let wrong = "names one thing that happens: crash, restart, bypass, include, node_down, node_up, link_down, \
                     link_up, path, readdress or clock_step";
        let error = fields.text.error(Some(fields.span()), &fields.path, wrong);
        let moves_links =
            |what: &What| matches!(what, What::NodeDown(_) | What::NodeUp(_) | What::Link { .. });
        if topology.sky.is_some() && found.iter().any(moves_links) {
            let problem = "nodes and links come and go with the sky in a constellation";
            return Err(ScenarioError { problem: problem.into(), ..error });
        }
        fields.finish()?;
        if found.len() > 1 {
            return Err(error);
        }
        found.pop().map(|what| Self { at, what }).ok_or(error)
    }
}

fn named(
    fields: &mut Fields<'_>,
    name: &'static str,
    kind: &str,
    find: impl Fn(&str) -> Option<usize>,
) -> Result<Option<usize>, ScenarioError> {
    let Some(wanted) = fields.optional::<String>(name)? else { return Ok(None) };
    let problem = format!("\"{wanted}\" is no {kind} of this topology");
    find(&wanted).map(Some).ok_or_else(|| fields.error(name, &problem))
}

fn step_clock(fields: &mut Fields<'_>, topology: &Topology) -> Result<Option<What>, ScenarioError> {
    let Some(StepTable { node: name, by }) = fields.optional("clock_step")? else { return Ok(None) };
    let problem = format!("\"{name}\" is no node of this topology");
    let node = topology.node_named(&name).ok_or_else(|| fields.error("clock_step", &problem))?;
    Ok(Some(What::StepClock { node, by: by.nanos }))
}

fn path(fields: &mut Fields<'_>, topology: &Topology) -> Result<Option<What>, ScenarioError> {
    let count = topology.switching.as_ref().map_or(0, |switching| switching.paths.len());
    match fields.optional::<usize>("path")? {
        None => Ok(None),
        Some(path) if (1..=count).contains(&path) => Ok(Some(What::Path(path - 1))),
        Some(_) => {
            let problem = format!("must be the number of one of {count} paths, counted from 1");
            Err(fields.error("path", &problem))
        }
    }
}
