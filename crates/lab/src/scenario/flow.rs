//! The flows of a scenario.

use super::fields::{Fields, ScenarioError, put};
use super::gateway::gateway;
use super::leotp::set_rules;
use super::middle::Middles;
use super::split::{RATE_SPLIT, exchange, rate_split};
use super::tcp::tcp;
use super::units::{Bitrate, PacketsOrSize, Size, Span};
use starhop_proto::config::{Config, Controller, LeotpRules, Notices, Profile, Settings};
use starhop_proto::time::Duration;
use starhop_sim::host::tcp::congestion::Control;
use starhop_sim::host::{Exchange, Protection};
use starhop_sim::run::Transport;
use std::sync::Arc;

/// The transports beside TCP's congestion controls.
const OTHERS: [&str; 3] = ["cbr", "arq", RATE_SPLIT];

/// The names of all transports.
pub fn transports() -> Vec<&'static str> {
    let profiles = Profile::ALL.into_iter().map(|(name, _)| name);
    profiles.chain(OTHERS).chain(Control::names()).collect()
}

/// The nodes that split a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Split {
    /// No node.
    None,
    /// Every node between the ends of the flow.
    EveryHop,
    /// These.
    Named(Vec<String>),
}

/// A flow of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// The node that has the content.
    pub from: String,
    /// The node that wants it.
    pub to: String,
    /// The transport, as written.
    pub transport: String,
    /// Its transport.
    pub how: Transport,
    /// Its length; `None` is unlimited.
    pub size: Option<u64>,
    /// Time of its beginning.
    pub start: Duration,
    /// Time of its end if it is not complete by then.
    pub stop: Duration,
    /// Flows of equal content share it; its own name by default.
    pub content: String,
    /// Which nodes split its connection.
    pub split: Split,
    /// The exchange of a client that asks for one thing after the other; the length is that of all answers.
    pub exchange: Option<Exchange>,
    /// Programs through which its packets go on their way.
    pub middles: Middles,
    /// It stands for this many equal flows, named NAME-1, NAME-2, …; `None` is a single flow with its own name.
    pub count: Option<u32>,
    /// The group of equal flows to which it belongs.
    pub group: Option<Group>,
}

/// The flows that one `count` made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their name without its number.
    pub name: Arc<str>,
    /// Number of flows.
    pub count: u32,
}

impl Group {
    /// The largest group whose flows are listed one by one, each with its own delays and time series. Larger groups are
    /// summed up.
    pub const MOST_LISTED: u32 = 1000;

    /// Whether its flows are listed one by one.
    pub fn is_listed(&self) -> bool {
        self.count <= Self::MOST_LISTED
    }
}

/// The most flows that one `count` makes.
const MOST_COPIES: u32 = 1_000_000;

impl Flow {
    /// The flows that it stands for, each `stagger` after the one before.
    pub(super) fn copies(self, stagger: Duration) -> Vec<Self> {
        let Some(count) = self.count else { return vec![self] };
        let group = Group { name: self.name.as_str().into(), count };
        let copy = |number| {
            let start = self.start + stagger.scaled(u64::from(number) - 1, 1);
            let name = format!("{}-{number}", self.name);
            let content = if self.content == self.name { name.clone() } else { self.content.clone() };
            Self { name, content, start, count: None, group: Some(group.clone()), ..self.clone() }
        };
        (1..=count).map(copy).collect()
    }

    pub(super) fn parse(mut fields: Fields<'_>, duration: Duration) -> Result<Self, ScenarioError> {
        let transport: String = fields.optional("transport")?.unwrap_or_else(|| "starhop".to_owned());
        let name: String = fields.required("name")?;
        let mut options = fields.table("options")?;
        let content = match &mut options {
            // TCP has no cache in which content could be shared.
            Some(options) if Control::named(&transport).is_none() && transport != RATE_SPLIT => {
                options.optional("content")?
            }
            _ => None,
        };
        let plain = fields.optional("plain")?;
        let how = protected(how(&transport, &mut options, &fields)?, plain, &fields)?;
        let split = split(&mut fields, &how)?;
        let (how, split) = gateway(&mut fields, how, split)?;
        let (size, exchange) = exchange(&mut fields, &how)?;
        let middles = Middles::parse(&mut fields, &how, split == Split::None)?;
        let count = fields.optional("count")?;
        if count.is_some_and(|count| !(1..=MOST_COPIES).contains(&count)) {
            return Err(fields.error("count", &format!("must lie between 1 and {MOST_COPIES}")));
        }
        let flow = Self {
            from: fields.optional("from")?.unwrap_or_else(|| "server".to_owned()),
            to: fields.optional("to")?.unwrap_or_else(|| "client".to_owned()),
            size,
            start: fields.optional::<Span>("start")?.map_or(Duration::ZERO, |span| span.0),
            stop: fields.optional::<Span>("stop")?.map_or(duration, |span| span.0).min(duration),
            content: content.unwrap_or_else(|| name.clone()),
            name,
            transport,
            how,
            split,
            exchange,
            middles,
            count,
            group: None,
        };
        if flow.start >= flow.stop {
            return Err(fields.error("start", "must lie before the flow's stop and the scenario's duration"));
        }
        fields.finish()?;
        Ok(flow)
    }
}

fn how(
    transport: &str,
    options: &mut Option<Fields<'_>>,
    flow: &Fields<'_>,
) -> Result<Transport, ScenarioError> {
    let profile = match transport {
        "cbr" => return cbr(options.take(), flow),
        "arq" => return arq(options.take(), flow),
        RATE_SPLIT => return rate_split(options.take(), flow),
        other => match (Profile::named(other), Control::named(other)) {
            (Some(profile), _) => profile,
            (None, Some(control)) => return tcp(control, options.take(), flow),
            (None, None) => {
                let problem = format!("\"{other}\" is unknown; there are {}", transports().join(", "));
                return Err(flow.error("transport", &problem));
            }
        },
    };
    let mut settings = profile.settings();
    if let Some(mut options) = options.take() {
        set(&mut settings, &mut options)?;
        let named = Config::new(settings.clone()).map_err(|e| options.error(e.field, e.problem));
        options.finish()?;
        named?;
    }
    let config = Config::new(settings).map_err(|e| flow.error("options", &e.to_string()))?;
    Ok(Transport::Starhop(config, Protection::default()))
}

/// A transport whose packets go plain where the flow says so.
fn protected(how: Transport, plain: Option<bool>, flow: &Fields<'_>) -> Result<Transport, ScenarioError> {
    match (how, plain) {
        (Transport::Starhop(config, _), Some(true)) => Ok(Transport::Starhop(config, Protection::Plain)),
        (Transport::Starhop(config, _), Some(false)) => Ok(Transport::Starhop(config, Protection::Sealed)),
        (_, Some(false)) => {
            Err(flow.error("plain", "no other transport than this protocol's is sealed here"))
        }
        // Others are plain as they are.
        (how, None | Some(true)) => Ok(how),
    }
}

/// `"none"`, `"every-hop"` or a list of nodes.
fn split(fields: &mut Fields<'_>, how: &Transport) -> Result<Split, ScenarioError> {
    let name = fields.optional::<SplitName>("split")?;
    if matches!(how, Transport::Split(_)) {
        return match name {
            Some(SplitName::Nodes(nodes)) if (1..=2).contains(&nodes.len()) => Ok(Split::Named(nodes)),
            _ => {
                let problem = "names the gateway of a rate-split flow, and the terminal if the client is behind one: \
                     split = [\"gateway\", \"terminal\"]";
                Err(fields.error("split", problem))
            }
        };
    }
    let split = match name {
        None => return Ok(Split::None),
        Some(SplitName::Word(word)) if word == "none" => return Ok(Split::None),
        Some(SplitName::Word(word)) if word == "every-hop" => Split::EveryHop,
        Some(SplitName::Word(word)) => {
            let problem = format!("\"{word}\" is none of \"none\", \"every-hop\" and a list of nodes");
            return Err(fields.error("split", &problem));
        }
        Some(SplitName::Nodes(nodes)) => Split::Named(nodes),
    };
    if matches!(how, Transport::Tcp(_)) {
        return Ok(split);
    }
    let controls = Control::names().collect::<Vec<_>>().join(", ");
    Err(fields.error("split", &format!("is for TCP transports: {controls}")))
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum SplitName {
    Word(String),
    Nodes(Vec<String>),
}

fn cbr(options: Option<Fields<'_>>, flow: &Fields<'_>) -> Result<Transport, ScenarioError> {
    let Some(mut options) = options else {
        return Err(flow.error("options", "is missing: cbr needs { rate = \"5Mbit\" }"));
    };
    let Bitrate(rate) = options.required("rate")?;
    let payload: u32 = options.optional("payload")?.unwrap_or(1350);
    if rate.as_bps() == 0 || rate.is_unlimited() || !(1..=60_000).contains(&payload) {
        return Err(options.error("rate", "must be above 0 and limited, and payload between 1 and 60000"));
    }
    options.finish()?;
    Ok(Transport::Cbr { rate, payload })
}

fn arq(options: Option<Fields<'_>>, flow: &Fields<'_>) -> Result<Transport, ScenarioError> {
    let Some(mut options) = options else {
        let problem = "is missing: arq needs { rate = \"5Mbit\", timeout = \"200ms\" }, the timeout a round trip of what repairs";
        return Err(flow.error("options", problem));
    };
    let (Bitrate(rate), Span(timeout)) = (options.required("rate")?, options.required("timeout")?);
    let payload: u32 = options.optional("payload")?.unwrap_or(1350);
    let every_hop = options.optional("every_hop")?.unwrap_or(false);
    if rate.as_bps() == 0 || rate.is_unlimited() || !(1..=60_000).contains(&payload) || timeout.is_zero() {
        let problem = "must be above 0 and limited, payload between 1 and 60000, and timeout above 0";
        return Err(options.error("rate", problem));
    }
    options.finish()?;
    Ok(Transport::Arq { rate, payload, timeout, every_hop })
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ControllerName {
    Starhop,
    Leotp,
    LeotpCode,
    Intcp,
    Reno,
    Cubic,
    #[serde(untagged)]
    Fixed {
        fixed: Bitrate,
    },
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NoticesName {
    Never,
    OnSkip,
    OnRequest,
}

/// Sets the fields that the options name; the names are those of [`Settings`].
pub(super) fn set(settings: &mut Settings, options: &mut Fields<'_>) -> Result<(), ScenarioError> {
    let s = settings;
    put(options.optional("payload")?, &mut s.payload);
    put(options.optional("mss")?, &mut s.payload);
    let named = options.optional::<ControllerName>("controller")?;
    put(named.map(|name| controller(name, s.payload)), &mut s.controller);
    if let Controller::Leotp(rules) = &mut s.controller {
        set_rules(rules, options)?;
    }
    put(options.optional("per_flow_control")?, &mut s.per_flow_control);
    put(options.optional("end_to_end_control")?, &mut s.end_to_end_control);
    put(options.optional::<Bitrate>("rate_limit")?.map(|limit| limit.0), &mut s.rate_limit);
    put(options.optional("initial_window")?, &mut s.initial_window);
    put(options.optional("reorder_packets")?, &mut s.reorder_packets);
    put(options.optional("repair_tries")?, &mut s.repair_tries);
    put(options.optional("repair_hop_limit")?, &mut s.repair_hop_limit);
    put(options.optional("cache_answers")?, &mut s.cache_answers);
    put(options.optional::<NoticesName>("notices")?.map(notices), &mut s.notices);
    for (name, value) in s.mechanisms.by_name() {
        put(options.optional(name)?, value);
    }
    for (name, value) in [
        ("rtt0", &mut s.rtt0),
        ("reorder_time", &mut s.reorder_time),
        ("initial_rto", &mut s.initial_rto),
        ("min_rto", &mut s.min_rto),
        ("max_rto", &mut s.max_rto),
        ("flow_idle", &mut s.flow_idle),
    ] {
        put(options.optional::<Span>(name)?.map(|span| span.0), value);
    }
    for (name, value) in
        [("cache", &mut s.cache_bytes), ("credit_per_neighbour", &mut s.credit_per_neighbour)]
    {
        put(options.optional::<Size>(name)?.map(|size| size.0), value);
    }
    let payload = s.payload as f64;
    for (name, value) in [("interest_step", &mut s.interest_step), ("interest_span", &mut s.interest_span)] {
        let packets = |amount| match amount {
            PacketsOrSize::Packets(packets) => packets as u32,
            PacketsOrSize::Bytes(bytes) => (bytes as f64 / payload).ceil() as u32,
        };
        put(options.optional(name)?.map(packets), value);
    }
    for (name, value) in [
        ("buffer_target", &mut s.buffer_target),
        ("store_ahead", &mut s.store_ahead),
        ("receive_window", &mut s.receive_window),
        ("request_limit", &mut s.request_limit),
    ] {
        let bytes = |amount| match amount {
            PacketsOrSize::Packets(packets) => (packets * payload) as u64,
            PacketsOrSize::Bytes(bytes) => bytes,
        };
        put(options.optional(name)?.map(bytes), value);
    }
    Ok(())
}

/// The controller of that name, for packets of `payload` bytes.
pub(super) fn controller(name: ControllerName, payload: usize) -> Controller {
    match name {
        ControllerName::Starhop => Controller::Starhop,
        ControllerName::Leotp => Controller::Leotp(LeotpRules::printed(payload)),
        ControllerName::LeotpCode => Controller::Leotp(LeotpRules::PROGRAM),
        ControllerName::Intcp => Controller::Intcp,
        ControllerName::Reno => Controller::Reno,
        ControllerName::Cubic => Controller::Cubic,
        ControllerName::Fixed { fixed: Bitrate(rate) } => Controller::Fixed(rate),
    }
}

fn notices(name: NoticesName) -> Notices {
    match name {
        NoticesName::Never => Notices::Never,
        NoticesName::OnSkip => Notices::OnSkip,
        NoticesName::OnRequest => Notices::OnRequest,
    }
}
