//! Scenario files: TOML in, a checked [`Scenario`] out, every error with its field and line.

mod build;
mod constellation;
mod event;
mod fields;
mod flow;
mod gateway;
mod leotp;
mod link;
mod middle;
mod settings;
mod sky;
mod split;
mod tcp;
mod topology;
pub mod units;

pub use build::{Blueprint, Built, LinkNames, blueprint, build, link_configs};
pub use constellation::{Constellation, SkyLink, gateway};
pub use event::{Event, What};
pub use fields::ScenarioError;
pub use flow::{Flow, Group, Split, transports};
pub use link::{Direction, LinkSpec, LossDirection, ReadFile};
pub use middle::Middles;
pub use settings::{options_of, with_options};
pub use topology::{InFlight, NamedLink, Relays, Switching, Topology};

use fields::{Fields, Text};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use starhop_sim::engine::NodeId;
use starhop_sim::run::Transport;
use std::collections::{BTreeMap, BTreeSet};
use toml::de::DeTable;
use units::Span;

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Title of the experiment.
    pub title: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Longest duration; the run ends earlier if all its flows are complete.
    pub duration: Duration,
    /// Left out of the statistics.
    pub warmup: Duration,
    /// The step of the time series.
    pub step: Duration,
    /// Hosts verify the UDP checksum; otherwise damaged packets reach them.
    pub udp_checksum: bool,
    /// Nodes and links.
    pub topology: Topology,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Events during the run.
    pub events: Vec<Event>,
}

/// A change to a scenario; entries of a list go by name or by number from 0: `topology.link.loss=0.5%`, `flow.a.transport=leotp`, `flow.0.size=1MB`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The path of the field.
    pub path: Vec<String>,
    /// The value as TOML, or as a bare string.
    pub value: String,
}

impl std::str::FromStr for Change {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text.split_once('=').ok_or("is not of the form path=value")?;
        let path: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(format!("`{text}`: the path has an empty part"));
        }
        Ok(Self { path, value: value.trim().to_owned() })
    }
}

impl Scenario {
    /// The number of a node that is known to be there.
    pub(crate) fn node(&self, name: &str) -> NodeId {
        NodeId(self.topology.node_named(name).unwrap_or_default() as u32)
    }

    /// Reads a scenario; `read` reads the traces that it names.
    ///
    /// # Errors
    /// The first thing that is wrong, with its field and its line.
    pub fn parse(text: &str, read: ReadFile<'_>) -> Result<Self, ScenarioError> {
        Self::parse_text(Text { text, has_lines: true }, read)
    }

    /// Reads a scenario with changes.
    ///
    /// # Errors
    /// As [`Scenario::parse`], without lines where something was changed.
    pub fn parse_changed(text: &str, changes: &[Change], read: ReadFile<'_>) -> Result<Self, ScenarioError> {
        if changes.is_empty() {
            return Self::parse(text, read);
        }
        // Reports faults of the file itself by its lines, before any change moves them.
        let mut table: toml::Table = toml::from_str(text).map_err(|e| syntax(text, &e))?;
        for change in changes {
            apply(&mut table, change).map_err(|problem| ScenarioError {
                line: None,
                field: change.path.join("."),
                problem,
            })?;
        }
        let changed = table.to_string();
        Self::parse_text(Text { text: &changed, has_lines: false }, read)
    }

    fn parse_text(text: Text<'_>, read: ReadFile<'_>) -> Result<Self, ScenarioError> {
        let table = DeTable::parse(text.text).map_err(|e| syntax(text.text, &e))?;
        let mut fields = Fields::new(text, "", table);
        let title = fields.required("title")?;
        let seed = fields.optional("seed")?.unwrap_or(1);
        let Span(duration) = fields.required("duration")?;
        let warmup = fields.optional::<Span>("warmup")?.map_or(Duration::ZERO, |span| span.0);
        if warmup >= duration || duration.is_zero() {
            return Err(fields.error("warmup", "must be shorter than the duration"));
        }
        let step =
            fields.optional::<Span>("series_step")?.map_or_else(|| default_step(duration), |span| span.0);
        if step < Duration::from_millis(1) {
            return Err(fields.error("series_step", "must be at least 1ms"));
        }
        let udp_checksum = fields.optional("udp_checksum")?.unwrap_or(true);
        let Some(topology) = fields.table("topology")? else {
            return Err(fields.error("topology", "is missing"));
        };
        let topology = Topology::parse(topology, read)?;
        let flows = flows(&mut fields, &topology, duration)?;
        let events = fields.tables("event")?;
        let events =
            events.into_iter().map(|event| Event::parse(event, &topology)).collect::<Result<_, _>>()?;
        fields.finish()?;
        Ok(Self { title, seed, duration, warmup, step, udp_checksum, topology, flows, events })
    }
}

/// Six hundred steps, and none shorter than 10 ms.
fn default_step(duration: Duration) -> Duration {
    duration.scaled(1, 600).max(Duration::from_millis(10))
}

fn flows(
    fields: &mut Fields<'_>,
    topology: &Topology,
    duration: Duration,
) -> Result<Vec<Flow>, ScenarioError> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut taken = Taken::default();
    for mut table in fields.tables("flow")? {
        let stagger = table.optional::<Span>("stagger")?.map(|span| span.0);
        let errors = FlowErrors::of(&table);
        let flow = Flow::parse(table, duration)?;
        let is_to_several = flow.to.ends_with('*');
        if stagger.is_some() && !is_to_several && flow.count.is_none() {
            let problem = "is for a flow to several nodes, as `to = \"user*\"`, or with a `count`";
            return Err(errors.of_field("stagger", problem.into()));
        }
        let stagger = stagger.unwrap_or(Duration::ZERO);
        let (by_node, by_count) =
            if is_to_several { (stagger, Duration::ZERO) } else { (Duration::ZERO, stagger) };
        for flow in copies(flow, by_node, topology).into_iter().flat_map(|flow| flow.copies(by_count)) {
            errors.check(&flow, &taken, topology)?;
            taken.add(&flow);
            flows.push(flow);
        }
    }
    if flows.is_empty() { Err(fields.error("flow", "is missing: nothing would be sent")) } else { Ok(flows) }
}

/// A flow to `user*` stands for flows to user1, user2, …, each `stagger` after the one before. All have the same
/// content, unless the content's name has a `*` for the node's name.
fn copies(flow: Flow, stagger: Duration, topology: &Topology) -> Vec<Flow> {
    let Some(prefix) = flow.to.strip_suffix('*') else { return vec![flow] };
    let is_meant = |node: &&String| {
        let number = node.strip_prefix(prefix).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let nodes: Vec<&String> = topology.nodes.iter().filter(is_meant).collect();
    if nodes.is_empty() {
        return vec![flow];
    }
    let copy = |(index, node): (u64, &&String)| Flow {
        name: format!("{}-{node}", flow.name),
        to: (*node).clone(),
        content: flow.content.replace('*', node),
        start: flow.start + stagger.scaled(index, 1),
        ..flow.clone()
    };
    (0..).zip(&nodes).map(copy).collect()
}

/// Errors about a flow as a whole, with its place in the file.
struct FlowErrors {
    at: ScenarioError,
}

impl FlowErrors {
    fn of(table: &Fields<'_>) -> Self {
        Self { at: table.text.error(Some(table.span()), &table.path, "") }
    }

    fn of_field(&self, field: &str, problem: String) -> ScenarioError {
        ScenarioError { field: format!("{}.{field}", self.at.field), problem, ..self.at.clone() }
    }

    fn check(&self, flow: &Flow, others: &Taken, topology: &Topology) -> Result<(), ScenarioError> {
        if let Some(sky) = &topology.sky {
            sky_ends(sky, flow, self)?;
        }
        let splits = if let Split::Named(nodes) = &flow.split { &nodes[..] } else { &[] };
        let nodes = [("from", &flow.from), ("to", &flow.to)];
        let field = if matches!(flow.how, Transport::Gateway(_)) { "gateway" } else { "split" };
        let splits = splits.iter().map(|node| (field, node));
        for (field, node) in nodes.into_iter().chain(splits).chain(flow.middles.nodes()) {
            if topology.node_named(node).is_none() {
                let problem = format!("\"{node}\" is no node; nodes are {}", topology.nodes.join(", "));
                return Err(self.of_field(field, problem));
            }
        }
        let rate = gateway_of(flow).and_then(|gateway| others.rates.get(gateway));
        if rate.is_some_and(|&rate| satellite_rate(flow) != Some(rate)) {
            let problem = "is another than that of a flow through the same gateway: it sends for all of them at one rate";
            return Err(self.of_field("options.rate", problem.into()));
        }
        if flow.start >= flow.stop {
            return Err(self.of_field("stagger", "starts the last copy after its stop".into()));
        }
        if others.names.contains(&flow.name) {
            return Err(self.of_field("name", format!("\"{}\" is taken by another flow", flow.name)));
        }
        if others.sizes.get(&flow.content).is_some_and(|&size| size != flow.size) {
            let problem = "has two sizes: flows of equal content have equal sizes".into();
            return Err(self.of_field("options.content", problem));
        }
        Ok(())
    }
}

/// Names, sizes and rates that earlier flows have taken, and with which later flows must agree.
#[derive(Default)]
struct Taken {
    names: BTreeSet<String>,
    /// Size of each content.
    sizes: BTreeMap<String, Option<u64>>,
    /// Rate of each gateway.
    rates: BTreeMap<String, Rate>,
}

impl Taken {
    fn add(&mut self, flow: &Flow) {
        self.names.insert(flow.name.clone());
        self.sizes.insert(flow.content.clone(), flow.size);
        if let (Some(gateway), Some(rate)) = (gateway_of(flow), satellite_rate(flow)) {
            self.rates.insert(gateway.clone(), rate);
        }
    }
}

/// The gateway that splits a flow's connection by rate.
fn gateway_of(flow: &Flow) -> Option<&String> {
    match &flow.split {
        Split::Named(nodes) => satellite_rate(flow).and(nodes.first()),
        Split::None | Split::EveryHop => None,
    }
}

/// Rate at which the gateway of a flow may send.
fn satellite_rate(flow: &Flow) -> Option<Rate> {
    if let Transport::Split(split) = &flow.how { Some(split.satellite.rate) } else { None }
}

/// Over a sky, flows go from one station to another.
fn sky_ends(sky: &Constellation, flow: &Flow, errors: &FlowErrors) -> Result<(), ScenarioError> {
    for (field, node) in [("from", &flow.from), ("to", &flow.to)] {
        if sky.station_of(node).is_none() {
            let names: Vec<&str> =
                sky.network.stations[..sky.hosts].iter().map(|s| s.name.as_str()).collect();
            let problem = format!("\"{node}\" is no station with hosts; those are {}", names.join(", "));
            return Err(errors.of_field(field, problem));
        }
    }
    if flow.from == flow.to {
        return Err(errors.of_field("to", "is the station that the flow begins at".into()));
    }
    if flow.split == Split::EveryHop {
        let problem = "\"every-hop\" needs a path that stays: name gateways";
        return Err(errors.of_field("split", problem.into()));
    }
    Ok(())
}

fn syntax(text: &str, error: &toml::de::Error) -> ScenarioError {
    Text { text, has_lines: true }.error(error.span(), "", error.message())
}

fn apply(table: &mut toml::Table, change: &Change) -> Result<(), String> {
    let (last, way) = change.path.split_last().ok_or("is empty")?;
    let mut at = table;
    for name in way {
        // An array of tables is entered by number or by the name of the entry; a missing table is made.
        let next = at.entry(name.as_str()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = match next {
            toml::Value::Table(table) => table,
            toml::Value::Array(_) => return apply_in_array(next, name, change),
            _ => return Err(format!("`{name}` is no table")),
        };
    }
    at.insert(last.clone(), value_of(&change.value));
    Ok(())
}

fn apply_in_array(array: &mut toml::Value, name: &str, change: &Change) -> Result<(), String> {
    let position = change.path.iter().position(|part| part == name).unwrap_or(0) + 1;
    let (Some(key), toml::Value::Array(items)) = (change.path.get(position), array) else {
        return Err(format!("`{name}` is a list: say which entry, by name or by number"));
    };
    let by_name = |item: &toml::Value| item.get("name").and_then(toml::Value::as_str) == Some(key);
    let index = key.parse::<usize>().ok().or_else(|| items.iter().position(by_name));
    let rest = Change { path: change.path[position + 1..].to_vec(), value: change.value.clone() };
    match index.and_then(|index| items.get_mut(index)) {
        Some(toml::Value::Table(table)) if !rest.path.is_empty() => apply(table, &rest),
        _ => Err(format!("`{name}` has no entry `{key}`, or no field of it is named")),
    }
}

/// A TOML value, or else the text itself as a string.
fn value_of(text: &str) -> toml::Value {
    let parsed: Result<toml::Table, _> = toml::from_str(&format!("value = {text}"));
    parsed
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests;
