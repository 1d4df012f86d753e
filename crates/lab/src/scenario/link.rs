//! The link part of a scenario: a link's properties, before its queue and its files are known.

use super::fields::{Fields, ScenarioError};
use super::units::{Bitrate, QueueRoom, Share, Size, Span};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::link::{
    Bursty, DelayModel, Disorder, GilbertElliott, LinkConfig, LossModel, Opportunities, Outage,
    PoliceOptions, QueueLimit, RateSchedule, XcpOptions, XcpTraffic,
};
use std::fmt;
use std::marker::PhantomData;

/// Reads files that a scenario names.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Which directions of a link something holds for. Forward is from the server to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Both directions.
    Both,
    /// Server to client.
    Forward,
    /// Client to server.
    Backward,
}

/// Which packets are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossDirection {
    /// Packets in both directions.
    Both,
    /// Packets from the server to the client.
    Data,
}

/// The router in front of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RouterName {
    /// A queue and nothing else.
    Droptail,
    /// Tells XCP's senders their windows.
    Xcp,
    /// The same, and does so as if traffic without XCP's header were not there.
    XcpOwn,
}

impl RouterName {
    fn xcp(self) -> Option<XcpOptions> {
        let speaks = |traffic| Some(XcpOptions { traffic, ..XcpOptions::default() });
        match self {
            Self::Droptail => None,
            Self::Xcp => speaks(XcpTraffic::All),
            Self::XcpOwn => speaks(XcpTraffic::Own),
        }
    }
}

/// A quantity, or a table for values that a quantity cannot express.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Simple<Q, T> {
    /// The quantity.
    Is(Q),
    /// The table.
    Table(T),
}

impl<'de, Q: std::str::FromStr<Err = String>, T: Deserialize<'de>> Deserialize<'de> for Simple<Q, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<Q, T>(PhantomData<(Q, T)>);
        impl<'de, Q: std::str::FromStr<Err = String>, T: Deserialize<'de>> Visitor<'de> for Either<Q, T> {
            type Value = Simple<Q, T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity with its unit, or a table")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(Simple::Is).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Simple::Table)
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// `{ square = … }`, `{ steps = … }`, `{ bursty = … }` or `{ trace = …, format = "mahimahi" }`.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RateTable {
    square: Option<Square>,
    steps: Option<Vec<(Span, Bitrate)>>,
    bursty: Option<BurstyTable>,
    trace: Option<String>,
    format: Option<TraceFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Square {
    mean: Bitrate,
    amplitude: Bitrate,
    period: Span,
}

/// A synthetic trace of a satellite terminal, which repeats.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstyTable {
    seed: u64,
    period: Option<Span>,
}

/// Long enough for eight levels of 15 s.
const BURSTY_PERIOD: Duration = Duration::from_secs(120);

impl BurstyTable {
    fn trace(self) -> Result<Bursty, String> {
        let period = self.period.map_or(BURSTY_PERIOD, |Span(period)| period);
        if period < Duration::from_secs(1) || period > Duration::from_secs(3600) {
            return Err("the period must lie between 1s and 1h".into());
        }
        Ok(Bursty { seed: self.seed, period })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TraceFormat {
    Mahimahi,
}

/// `{ steps = … }`, `{ trace = … }`, `{ bursty = … }` or `{ mean = …, jitter = …, keeps_order = … }`.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct DelayTable {
    steps: Option<Vec<(Span, Span)>>,
    trace: Option<String>,
    bursty: Option<BurstyTable>,
    mean: Option<Span>,
    jitter: Option<Span>,
    keeps_order: Option<bool>,
}

/// `{ gilbert_elliott = … }` or `{ ber = … }`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LossTable {
    gilbert_elliott: Option<GilbertElliottTable>,
    ber: Option<f64>,
}

/// `{ mean, burst }`, or the four probabilities of the model.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct GilbertElliottTable {
    mean: Option<Share>,
    burst: Option<f64>,
    to_bad: Option<Share>,
    to_good: Option<Share>,
    good_loss: Option<Share>,
    bad_loss: Option<Share>,
}

/// `{ every, last }` or `{ times = [["3s", "4s"]] }`.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OutageTable {
    every: Option<Span>,
    last: Option<Span>,
    times: Option<Vec<(Span, Span)>>,
    #[serde(default)]
    hold: bool,
}

/// `{ rate, burst }`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct PoliceTable {
    rate: Bitrate,
    burst: Size,
}

/// The longest IP packet: a bucket that never holds so many tokens lets none through.
const LONGEST_PACKET: u64 = 1_500;

/// A scenario's words about a link. Properties that it leaves out are those of the link's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSpec {
    rate: Option<RateSchedule>,
    delay: Option<DelayModel>,
    loss: Option<LossModel>,
    loss_direction: Option<LossDirection>,
    /// The queue.
    pub queue: Option<QueueRoom>,
    outage: Option<Outage>,
    police: Option<PoliceOptions>,
    reorder: Option<f64>,
    reorder_by: Option<Duration>,
    duplicate: Option<f64>,
    corrupt: Option<f64>,
    header: Option<u32>,
    router: Option<RouterName>,
}

impl LinkSpec {
    pub(super) fn parse(fields: &mut Fields<'_>, read: ReadFile<'_>) -> Result<Self, ScenarioError> {
        Ok(Self {
            rate: checked(fields, "rate", |rate| rate_of(rate, read))?,
            delay: checked(fields, "delay", |delay| delay_of(delay, read))?,
            loss: checked(fields, "loss", loss_of)?,
            loss_direction: fields.optional("loss_direction")?,
            queue: fields.optional("queue")?,
            outage: checked(fields, "outage", outage_of)?,
            police: checked(fields, "police", police_of)?,
            reorder: checked(fields, "reorder", |share: Share| Ok(share.0))?,
            reorder_by: checked(fields, "reorder_by", |span: Span| Ok(span.0))?,
            duplicate: checked(fields, "duplicate", |share: Share| Ok(share.0))?,
            corrupt: checked(fields, "corrupt", |share: Share| Ok(share.0))?,
            header: checked(fields, "header", |size: Size| Ok(size.0 as u32))?,
            router: fields.optional("router")?,
        })
    }

    /// This, and where it says nothing, `base`.
    pub fn over(self, base: &Self) -> Self {
        let base = base.clone();
        Self {
            rate: self.rate.or(base.rate),
            delay: self.delay.or(base.delay),
            loss: self.loss.or(base.loss),
            loss_direction: self.loss_direction.or(base.loss_direction),
            queue: self.queue.or(base.queue),
            outage: self.outage.or(base.outage),
            police: self.police.or(base.police),
            reorder: self.reorder.or(base.reorder),
            reorder_by: self.reorder_by.or(base.reorder_by),
            duplicate: self.duplicate.or(base.duplicate),
            corrupt: self.corrupt.or(base.corrupt),
            header: self.header.or(base.header),
            router: self.router.or(base.router),
        }
    }

    /// Whether it says how fast the link is.
    pub fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Whether it says how long the link is.
    pub fn has_delay(&self) -> bool {
        self.delay.is_some()
    }

    /// Whether only packets from servers to clients are lost.
    pub fn loses_data_only(&self) -> bool {
        self.loss_direction == Some(LossDirection::Data)
    }

    /// A link of the sky, which sets its delay. It has `rate` if this specification has none.
    pub fn sky_config(&self, rate: Rate) -> LinkConfig {
        let fallback = || LinkConfig::ideal(rate, Duration::ZERO);
        let delay = Some(DelayModel::Fixed(Duration::ZERO));
        let rate = Some(self.rate.clone().unwrap_or(RateSchedule::Constant(rate)));
        // Rate and delay are there, so nothing is missing.
        Self { rate, delay, ..self.clone() }.config(true).unwrap_or_else(|_| fallback())
    }

    /// Bytes of link header per packet.
    pub fn header(&self) -> u32 {
        self.header.unwrap_or(0)
    }

    /// The model of one direction of the link, its queue unlimited; or the name of a field that is missing.
    ///
    /// # Errors
    /// The name of the field.
    pub fn config(&self, is_forward: bool) -> Result<LinkConfig, &'static str> {
        let is_lossy = is_forward || self.loss_direction != Some(LossDirection::Data);
        let reorder_by = self.reorder_by.unwrap_or(Duration::from_millis(20));
        Ok(LinkConfig {
            rate: self.rate.clone().ok_or("rate")?,
            queue: QueueLimit::Unlimited,
            loss: self.loss.clone().filter(|_| is_lossy).unwrap_or(LossModel::None),
            delay: self.delay.clone().ok_or("delay")?,
            outage: self.outage.clone(),
            police: self.police,
            disorder: Disorder {
                reorder: self.reorder.unwrap_or(0.0),
                reorder_by,
                duplicate: self.duplicate.unwrap_or(0.0),
                corrupt: self.corrupt.unwrap_or(0.0),
            },
            xcp: self.router.and_then(RouterName::xcp),
        })
    }
}

/// Takes a field and converts it.
fn checked<Q: de::DeserializeOwned, T>(
    fields: &mut Fields<'_>,
    name: &'static str,
    meaning: impl FnOnce(Q) -> Result<T, String>,
) -> Result<Option<T>, ScenarioError> {
    match fields.optional::<Q>(name)? {
        None => Ok(None),
        Some(value) => meaning(value).map(Some).map_err(|problem| fields.error(name, &problem)),
    }
}

fn rate_of(rate: Simple<Bitrate, RateTable>, read: ReadFile<'_>) -> Result<RateSchedule, String> {
    let table = match rate {
        Simple::Is(Bitrate(rate)) => return Ok(RateSchedule::Constant(rate)),
        Simple::Table(table) => table,
    };
    match table {
        RateTable { square: Some(square), steps: None, bursty: None, trace: None, format: None } => {
            square_of(square)
        }
        RateTable { square: None, steps: Some(steps), bursty: None, trace: None, format: None } => {
            let steps = steps.into_iter().map(|(at, rate)| (at, rate.0));
            ascending(steps.collect()).map(RateSchedule::Steps)
        }
        RateTable { square: None, steps: None, bursty: Some(table), trace: None, format: None } => {
            Ok(RateSchedule::Trace(table.trace()?.opportunities()))
        }
        RateTable { square: None, steps: None, bursty: None, trace: Some(file), .. } => {
            Opportunities::parse(&read(&file)?).map(RateSchedule::Trace).map_err(|e| format!("{file}: {e}"))
        }
        _ => Err("is one of \"20Mbit\", { square = … }, { steps = … }, { bursty = … }, { trace = … }".into()),
    }
}

fn square_of(square: Square) -> Result<RateSchedule, String> {
    let Square { mean: Bitrate(mean), amplitude: Bitrate(amplitude), period: Span(period) } = square;
    if amplitude > mean {
        return Err("the amplitude exceeds the mean: the rate would be negative".into());
    }
    if period < Duration::from_millis(1) {
        return Err("the period must be at least 1ms".into());
    }
    let rate = Rate::from_bps;
    let (high, low) = (mean.as_bps() + amplitude.as_bps(), mean.as_bps() - amplitude.as_bps());
    Ok(RateSchedule::Square { high: rate(high), low: rate(low), period })
}

fn delay_of(delay: Simple<Span, DelayTable>, read: ReadFile<'_>) -> Result<DelayModel, String> {
    let table = match delay {
        Simple::Is(Span(delay)) => return Ok(DelayModel::Fixed(delay)),
        Simple::Table(table) => table,
    };
    let kinds = [table.steps.is_some(), table.trace.is_some(), table.bursty.is_some(), table.mean.is_some()];
    if kinds.into_iter().filter(|is_given| *is_given).count() != 1
        || table.mean.is_some() != table.jitter.is_some()
    {
        return Err(
            "is one of \"10ms\", { steps = … }, { trace = … }, { bursty = … }, { mean = …, jitter = … }"
                .into(),
        );
    }
    if table.keeps_order.is_some() && table.jitter.is_none() {
        return Err("`keeps_order` says how packets with `jitter` arrive: other delays keep the order".into());
    }
    let keeps_order = table.keeps_order.unwrap_or(true);
    match table {
        DelayTable { steps: Some(steps), .. } => {
            let steps = steps.into_iter().map(|(at, delay)| (at, delay.0));
            ascending(steps.collect()).map(DelayModel::Steps)
        }
        DelayTable { trace: Some(file), .. } => {
            let points = delay_trace(&read(&file)?).map_err(|e| format!("{file}: {e}"))?;
            ascending(points).map(DelayModel::Trace)
        }
        DelayTable { bursty: Some(table), .. } => Ok(DelayModel::Trace(table.trace()?.delays())),
        DelayTable { mean: Some(Span(mean)), jitter: Some(Span(spread)), .. } if spread <= mean => {
            Ok(DelayModel::Jitter { mean, spread, keeps_order })
        }
        _ => Err("the jitter exceeds the mean: the delay would be negative".into()),
    }
}

/// Lines of "time delay", both with units; lines that begin with # are comments.
fn delay_trace(text: &str) -> Result<Vec<(Span, Duration)>, String> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let point = |(index, line): (usize, &str)| {
        let error = |problem: String| format!("line {}: {problem}", index + 1);
        let mut words = line.split_whitespace();
        let (Some(at), Some(delay), None) = (words.next(), words.next(), words.next()) else {
            return Err(error("is not a time and a delay, as \"1.5s 12ms\"".into()));
        };
        Ok((at.parse::<Span>().map_err(error)?, delay.parse::<Span>().map_err(error)?.0))
    };
    lines.map(point).collect()
}

fn ascending<T>(points: Vec<(Span, T)>) -> Result<Vec<(Instant, T)>, String> {
    if points.is_empty() {
        return Err("is an empty list".into());
    }
    if let Some(pair) = points.windows(2).find(|pair| pair[0].0.0 >= pair[1].0.0) {
        return Err(format!("{:?} does not lie after {:?}", pair[1].0.0, pair[0].0.0));
    }
    Ok(points.into_iter().map(|(Span(at), value)| (Instant::ZERO + at, value)).collect())
}

fn loss_of(loss: Simple<Share, LossTable>) -> Result<LossModel, String> {
    match loss {
        Simple::Is(Share(0.0)) => Ok(LossModel::None),
        Simple::Is(Share(p)) => Ok(LossModel::Bernoulli(p)),
        Simple::Table(LossTable { gilbert_elliott: None, ber: Some(ber) }) => {
            let is_share = (0.0..1.0).contains(&ber);
            if is_share { Ok(LossModel::BitErrors(ber)) } else { Err("`ber` lies outside 0 to 1".into()) }
        }
        Simple::Table(LossTable { gilbert_elliott: Some(table), ber: None }) => {
            gilbert_elliott(table).map(LossModel::GilbertElliott)
        }
        Simple::Table(_) => Err("is one of \"1%\", { gilbert_elliott = … }, { ber = … }".into()),
    }
}

fn gilbert_elliott(table: GilbertElliottTable) -> Result<GilbertElliott, String> {
    match table {
        GilbertElliottTable {
            mean: Some(Share(mean)),
            burst: Some(burst),
            to_bad: None,
            to_good: None,
            good_loss: None,
            bad_loss: None,
        } => {
            if burst < 1.0 || mean >= 1.0 {
                return Err("a burst is at least 1 packet, and the mean loss less than 100%".into());
            }
            Ok(GilbertElliott::bursts(mean, burst))
        }
        GilbertElliottTable {
            mean: None, burst: None, to_bad: Some(to_bad), to_good: Some(to_good), ..
        } => Ok(GilbertElliott {
            to_bad: to_bad.0,
            to_good: to_good.0,
            good_loss: table.good_loss.map_or(0.0, |share| share.0),
            bad_loss: table.bad_loss.map_or(1.0, |share| share.0),
        }),
        _ => {
            Err("gilbert_elliott is { mean = \"1%\", burst = 5 } or { to_bad, to_good, good_loss, bad_loss }"
                .into())
        }
    }
}

fn outage_of(table: OutageTable) -> Result<Outage, String> {
    match table {
        OutageTable { every: Some(Span(every)), last: Some(Span(last)), times: None, hold } => {
            if last >= every {
                return Err("`last` must be shorter than `every`: the link would never be there".into());
            }
            Ok(Outage::periodic(every, last, hold))
        }
        OutageTable { every: None, last: None, times: Some(times), hold } => {
            let flat: Vec<Duration> = times.iter().flat_map(|(from, to)| [from.0, to.0]).collect();
            if flat.windows(2).any(|pair| pair[0] >= pair[1]) {
                return Err("`times` must ascend: [[\"3s\", \"4s\"], [\"7s\", \"9s\"]]".into());
            }
            let at = |span: Span| Instant::ZERO + span.0;
            Ok(Outage::times(times.into_iter().map(|(from, to)| (at(from), at(to))).collect(), hold))
        }
        _ => Err("is { every = …, last = … } or { times = [[from, to], …] }".into()),
    }
}

fn police_of(table: PoliceTable) -> Result<PoliceOptions, String> {
    let PoliceTable { rate: Bitrate(rate), burst: Size(burst) } = table;
    if rate == Rate::ZERO || burst < LONGEST_PACKET {
        return Err(format!(
            "is {{ rate, burst }}: a rate above 0, and a burst of at least {LONGEST_PACKET} B"
        ));
    }
    Ok(PoliceOptions { rate, burst })
}
