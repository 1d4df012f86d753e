//! The kinds of topology, each turned into the same thing: named nodes and named links.

use super::constellation::{Constellation, check_relays};
use super::fields::{Fields, ScenarioError};
use super::flow::{ControllerName, controller};
use super::link::{Direction, LinkSpec, ReadFile};
use super::units::{Drift, Share, SignedSpan, Span};
use starhop_proto::config::{Config, Controller};
use starhop_proto::time::Duration;
use starhop_sim::engine::{CLOCK_BASE, Clock};
use std::collections::BTreeMap;

/// The middle nodes that run a relay.
#[derive(Clone, Debug, PartialEq)]
pub enum Relays {
    /// All of them.
    All,
    /// This share of them, chosen by the seed.
    Share(f64),
    /// These.
    Named(Vec<String>),
}

/// A link between two nodes; forward is from the first to the second.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLink {
    /// "server-r1".
    pub name: String,
    /// The end nearer to the server.
    pub from: String,
    /// The other end.
    pub to: String,
    /// Its properties from the first end to the second.
    pub forward: LinkSpec,
    /// Its properties from the second end to the first.
    pub backward: LinkSpec,
}

/// Alternative paths and when they change.
#[derive(Clone, Debug, PartialEq)]
pub struct Switching {
    /// The links of each path.
    pub paths: Vec<Vec<usize>>,
    /// At each multiple of this, the next path in turn is used.
    pub every: Option<Duration>,
    /// At these times, the next path in turn is used.
    pub at: Vec<Duration>,
    /// Packets under way on the old path still arrive.
    pub keep: bool,
}

/// A topology of any kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The kind, as written.
    pub kind: String,
    /// All nodes, in the order in which they appear.
    pub nodes: Vec<String>,
    /// All links.
    pub links: Vec<NamedLink>,
    /// Which middle nodes run a relay.
    pub relays: Relays,
    /// Relays intercept the flows that pass, and no node is told of them.
    pub transparent: bool,
    /// Nodes that control the hop above them by another controller than their flows' settings name.
    pub controllers: BTreeMap<String, Controller>,
    /// Clocks that are not the world's.
    pub clocks: BTreeMap<String, Clock>,
    /// `parallel` only.
    pub switching: Option<Switching>,
    /// `constellation` only: the sky that finds the ways between the nodes.
    pub sky: Option<Constellation>,
}

impl Topology {
    pub(super) fn parse(mut fields: Fields<'_>, read: ReadFile<'_>) -> Result<Self, ScenarioError> {
        let kind: String = fields.required("kind")?;
        let relays = relays(&mut fields)?;
        let transparent = fields.optional("transparent")?.unwrap_or(false);
        let clocks = clocks(&mut fields)?;
        let controllers = controllers(&mut fields)?;
        let default = match fields.table("link")? {
            Some(mut table) => finished(LinkSpec::parse(&mut table, read)?, table)?,
            None => LinkSpec::default(),
        };
        let mut topology = Self {
            kind,
            nodes: Vec::new(),
            links: Vec::new(),
            relays,
            transparent,
            controllers,
            clocks,
            switching: None,
            sky: None,
        };
        match topology.kind.as_str() {
            "chain" => topology.chain(&mut fields, &default)?,
            "dumbbell" => topology.dumbbell(&mut fields, &default, read)?,
            "parallel" => topology.parallel(&mut fields, &default, read)?,
            "graph" => topology.graph(&mut fields, &default, read)?,
            "constellation" => {
                topology.sky = Some(Constellation::parse(&mut topology, &mut fields, &default, read)?);
            }
            other => {
                let problem =
                    format!("\"{other}\" is none of chain, dumbbell, parallel, graph, constellation");
                return Err(fields.error("kind", &problem));
            }
        }
        topology.overrides(&mut fields, read)?;
        topology.check(&fields)?;
        fields.finish()?;
        Ok(topology)
    }

    pub(super) fn connect(&mut self, from: &str, to: &str, spec: &LinkSpec) -> usize {
        for node in [from, to] {
            if !self.nodes.iter().any(|known| known == node) {
                self.nodes.push(node.to_owned());
            }
        }
        let name = format!("{from}-{to}");
        let (forward, backward) = (spec.clone(), spec.clone());
        self.links.push(NamedLink { name, from: from.to_owned(), to: to.to_owned(), forward, backward });
        self.links.len() - 1
    }

    /// server - r1 - … - client.
    fn chain(&mut self, fields: &mut Fields<'_>, default: &LinkSpec) -> Result<(), ScenarioError> {
        let hops: usize = fields.required("hops")?;
        if !(1..=10_000).contains(&hops) {
            return Err(fields.error("hops", "must lie between 1 and 10000"));
        }
        self.row(hops, "r", default);
        Ok(())
    }

    /// A row of links from server to client; the links.
    fn row(&mut self, hops: usize, middle: &str, spec: &LinkSpec) -> Vec<usize> {
        let name = |i: usize| match i {
            0 => "server".to_owned(),
            i if i == hops => "client".to_owned(),
            i => format!("{middle}{i}"),
        };
        (0..hops).map(|i| self.connect(&name(i), &name(i + 1), spec)).collect()
    }

    /// s1…sn - left - right - c1…cn.
    fn dumbbell(
        &mut self,
        fields: &mut Fields<'_>,
        default: &LinkSpec,
        read: ReadFile<'_>,
    ) -> Result<(), ScenarioError> {
        let senders: usize = fields.required("senders")?;
        let receivers: usize = fields.required("receivers")?;
        if !(1..=1000).contains(&senders) || !(1..=1000).contains(&receivers) {
            return Err(fields.error("senders", "and receivers must lie between 1 and 1000"));
        }
        let Some(mut table) = fields.table("bottleneck")? else {
            return Err(fields.error("bottleneck", "is missing: the table of the shared link"));
        };
        let bottleneck = finished(LinkSpec::parse(&mut table, read)?, table)?.over(default);
        for i in 1..=senders {
            self.connect(&format!("s{i}"), "left", default);
        }
        self.connect("left", "right", &bottleneck);
        for i in 1..=receivers {
            self.connect("right", &format!("c{i}"), default);
        }
        Ok(())
    }

    /// Alternative paths from server to client; the nodes of path 2 are p2r1, p2r2, ….
    fn parallel(
        &mut self,
        fields: &mut Fields<'_>,
        default: &LinkSpec,
        read: ReadFile<'_>,
    ) -> Result<(), ScenarioError> {
        let mut paths = Vec::new();
        for (index, mut path) in fields.tables("path")?.into_iter().enumerate() {
            let hops = path.optional::<usize>("hops")?.unwrap_or(1);
            let spec = LinkSpec::parse(&mut path, read)?.over(default);
            path.finish()?;
            paths.push(self.row(hops.max(1), &format!("p{}r", index + 1), &spec));
        }
        if paths.len() < 2 {
            return Err(fields.error("path", "must stand there at least twice, as [[topology.path]]"));
        }
        self.switching = Some(switching(fields, paths)?);
        Ok(())
    }

    /// Nodes and links one by one.
    fn graph(
        &mut self,
        fields: &mut Fields<'_>,
        default: &LinkSpec,
        read: ReadFile<'_>,
    ) -> Result<(), ScenarioError> {
        for mut edge in fields.tables("edge")? {
            let (from, to): (String, String) = (edge.required("from")?, edge.required("to")?);
            if from == to {
                return Err(edge.error("to", "is the node that the link begins at"));
            }
            let spec = LinkSpec::parse(&mut edge, read)?.over(default);
            edge.finish()?;
            self.connect(&from, &to, &spec);
        }
        if self.links.is_empty() {
            return Err(fields.error("edge", "is missing: a graph names its links as [[topology.edge]]"));
        }
        Ok(())
    }

    fn overrides(&mut self, fields: &mut Fields<'_>, read: ReadFile<'_>) -> Result<(), ScenarioError> {
        for mut table in fields.tables("override")? {
            let index = self.overridden(&mut table)?;
            let direction = table.optional("direction")?.unwrap_or(Direction::Both);
            let spec = LinkSpec::parse(&mut table, read)?;
            table.finish()?;
            let link = &mut self.links[index];
            if direction != Direction::Backward {
                link.forward = spec.clone().over(&link.forward);
            }
            if direction != Direction::Forward {
                link.backward = spec.over(&link.backward);
            }
        }
        Ok(())
    }

    fn overridden(&self, table: &mut Fields<'_>) -> Result<usize, ScenarioError> {
        let count = self.links.len();
        let hop_error = table.error("hop", &format!("must lie between 1 and {count}"));
        let link_error = table.error("link", "is no link");
        match (table.optional::<usize>("hop")?, table.optional::<String>("link")?) {
            (Some(hop), None) if self.kind == "chain" => {
                if (1..=count).contains(&hop) {
                    Ok(hop - 1)
                } else {
                    Err(hop_error)
                }
            }
            (Some(_), _) => Err(ScenarioError {
                problem: "counts the hops of a chain only; here name the `link`".into(),
                ..hop_error
            }),
            (None, Some(name)) => self.link_named(&name).ok_or_else(|| {
                let names: Vec<&str> = self.links.iter().take(12).map(|link| link.name.as_str()).collect();
                ScenarioError {
                    problem: format!("\"{name}\" is no link; links are {}", names.join(", ")),
                    ..link_error
                }
            }),
            (None, None) => {
                Err(ScenarioError { problem: "is missing: which `hop` or `link`".into(), ..link_error })
            }
        }
    }

    /// The link of that name, whichever end is named first.
    pub fn link_named(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name || format!("{}-{}", link.to, link.from) == name)
    }

    /// The number of a node.
    pub fn node_named(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node == name)
    }

    fn check(&self, fields: &Fields<'_>) -> Result<(), ScenarioError> {
        for link in &self.links {
            for (spec, is_forward) in [(&link.forward, true), (&link.backward, false)] {
                if let Err(missing) = spec.config(is_forward) {
                    let problem = format!("has no `{missing}`: give one in [topology.link]");
                    return Err(ScenarioError {
                        field: format!("link {}", link.name),
                        ..fields.error("link", &problem)
                    });
                }
            }
        }
        if let Some((node, _)) = self.clocks.iter().find(|(_, clock)| clock.ahead <= -CLOCK_BASE) {
            return Err(fields.error("clock", &format!("\"{node}\" is more than an hour behind")));
        }
        if let Some(sky) = &self.sky {
            check_relays(self, sky).map_err(|problem| fields.error("relays", &problem))?;
        }
        let named = match &self.relays {
            Relays::Named(names) if self.sky.is_none() => names.as_slice(),
            _ => &[],
        };
        let named = named.iter().map(|name| ("relays", name));
        let named = named.chain(self.clocks.keys().map(|name| ("clock", name)));
        let mut named = named.chain(self.controllers.keys().map(|name| ("controllers", name)));
        match named.find(|(_, name)| self.node_named(name).is_none()) {
            Some((field, name)) => {
                let problem = format!("\"{name}\" is no node; nodes are {}", self.nodes.join(", "));
                Err(fields.error(field, &problem))
            }
            None => Ok(()),
        }
    }
}

fn finished<T>(value: T, table: Fields<'_>) -> Result<T, ScenarioError> {
    table.finish()?;
    Ok(value)
}

fn clocks(fields: &mut Fields<'_>) -> Result<BTreeMap<String, Clock>, ScenarioError> {
    let ahead: BTreeMap<String, SignedSpan> = fields.optional("clock")?.unwrap_or_default();
    let drifts: BTreeMap<String, Drift> = fields.optional("clock_drift")?.unwrap_or_default();
    let mut clocks: BTreeMap<String, Clock> = BTreeMap::new();
    for (node, SignedSpan { nanos }) in ahead {
        clocks.entry(node).or_default().ahead = nanos;
    }
    for (node, Drift { ppb }) in drifts {
        clocks.entry(node).or_default().gains_ppb = ppb;
    }
    Ok(clocks)
}

fn controllers(fields: &mut Fields<'_>) -> Result<BTreeMap<String, Controller>, ScenarioError> {
    let named: BTreeMap<String, ControllerName> = fields.optional("controllers")?.unwrap_or_default();
    let payload = Config::default().payload;
    let named: BTreeMap<_, _> =
        named.into_iter().map(|(node, name)| (node, controller(name, payload))).collect();
    for (node, &controller) in &named {
        let works = Config::default().with_controller(controller);
        works.map_err(|e| fields.error(&format!("controllers.{node}"), e.problem))?;
    }
    Ok(named)
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum RelaysField {
    Word(String),
    Names(Vec<String>),
}

fn relays(fields: &mut Fields<'_>) -> Result<Relays, ScenarioError> {
    let error = fields.error("relays", "");
    let wrong = |problem: String| ScenarioError { problem, ..error };
    match fields.optional("relays")? {
        None => Ok(Relays::All),
        Some(RelaysField::Names(names)) => Ok(Relays::Named(names)),
        Some(RelaysField::Word(word)) => match word.as_str() {
            "all" => Ok(Relays::All),
            "none" => Ok(Relays::Named(Vec::new())),
            share => match share.parse() {
                Ok(Share(share)) => Ok(Relays::Share(share)),
                Err(problem) => {
                    Err(wrong(format!("is \"all\", \"none\", a share or a list of nodes: {problem}")))
                }
            },
        },
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchTable {
    every: Option<Span>,
    times: Option<Vec<Span>>,
    #[serde(default)]
    in_flight: InFlight,
}

/// The fate of packets under way on a path that is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InFlight {
    /// They are lost.
    #[default]
    Lost,
    /// They arrive.
    Kept,
}

fn switching(fields: &mut Fields<'_>, paths: Vec<Vec<usize>>) -> Result<Switching, ScenarioError> {
    let error = fields.error("switch", "is { every = \"5s\" } or { times = [\"3s\", \"8s\"] }");
    let table: SwitchTable = fields.required("switch")?;
    let (every, at) = match (table.every, table.times) {
        (Some(Span(every)), None) if every >= Duration::from_millis(1) => (Some(every), Vec::new()),
        (None, Some(times)) => (None, times.into_iter().map(|span| span.0).collect()),
        _ => return Err(error),
    };
    Ok(Switching { paths, every, at, keep: table.in_flight == InFlight::Kept })
}
