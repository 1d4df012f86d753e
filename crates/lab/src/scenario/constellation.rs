//! `kind = "constellation"`: satellites, stations, and the properties of their links.

use super::fields::{Fields, ScenarioError};
use super::link::{LinkSpec, ReadFile};
use super::topology::{InFlight, Relays, Topology};
use super::units::{Bitrate, QueueRoom, Size, Span};
use starhop_orbit::frame::Geodetic;
use starhop_orbit::ground::{self, Station};
use starhop_orbit::link::{GroundPolicy, Selection};
use starhop_orbit::network::Network;
use starhop_orbit::preset;
use starhop_orbit::route::{Relaying, Router};
use starhop_proto::time::Duration;
use starhop_sim::run::{Handover, VCurve};
use std::sync::Arc;

/// The sky of a scenario.
#[derive(Clone, Debug)]
pub struct Constellation {
    /// The name of its preset.
    pub shell: String,
    /// Satellites and stations: first those that hosts are at, then those that only forward.
    pub network: Arc<Network>,
    /// Number of stations that have hosts.
    pub hosts: usize,
    /// Stations forward as well.
    pub has_ground_relays: bool,
    /// Start of the run, after the constellation's epoch.
    pub start: Duration,
    /// Hosts are a link away from their stations.
    pub has_access: bool,
    /// Inter-satellite links.
    pub isl: SkyLink,
    /// Links from stations to satellites.
    pub uplink: SkyLink,
    /// Links from satellites to stations.
    pub downlink: SkyLink,
    /// Bytes that relays at stations keep, where not as much as the satellites.
    pub station_cache: Option<u64>,
    /// Behaviour when a station changes its satellite.
    pub handover: Handover,
}

/// Constellations with equal settings are equal: the network follows from the settings.
impl PartialEq for Constellation {
    fn eq(&self, other: &Self) -> bool {
        let told = |c: &Self| {
            (
                c.shell.clone(),
                c.hosts,
                c.has_ground_relays,
                c.start,
                c.has_access,
                c.station_cache,
                c.handover,
                c.network.selection,
            )
        };
        let links = |c: &Self| (c.isl.clone(), c.uplink.clone(), c.downlink.clone());
        told(self) == told(other)
            && links(self) == links(other)
            && self.network.stations == other.network.stations
            && self.network.ground_rule == other.network.ground_rule
            && self.network.isl_rule == other.network.isl_rule
            && self.network.sky.isls == other.network.sky.isls
    }
}

/// A kind of link whose delay is the sky's.
#[derive(Clone, Debug, PartialEq)]
pub struct SkyLink {
    /// All but its delay.
    pub spec: LinkSpec,
    /// Its rate over a pass, in place of the one in `spec`.
    pub curve: Option<VCurve>,
}

/// A relay needs at least this for the packets that pass it, bytes.
const LEAST_CACHE: u64 = 256 * 1024;

/// The name of the node that a station itself is; its hosts have the station's name.
pub fn gateway(station: &str) -> String {
    format!("{station}-gateway")
}

impl Constellation {
    /// Reads the sky, and adds hosts, gateways and the links between them to `topology`.
    pub(super) fn parse(
        topology: &mut Topology,
        fields: &mut Fields<'_>,
        default: &LinkSpec,
        read: ReadFile<'_>,
    ) -> Result<Self, ScenarioError> {
        let shell: String = fields.required("shell")?;
        let Some(preset) = preset::by_name(&shell) else {
            let problem = format!("\"{shell}\" is no constellation; there are {}", preset::NAMES.join(", "));
            return Err(fields.error("shell", &problem));
        };
        let (stations, mut hosts) = stations(fields)?;
        let mut network =
            Network::from_preset(&preset, stations).map_err(|e| fields.error("shell", &e.to_string()))?;
        limits(fields, &mut network)?;
        network.selection = selection(fields)?;
        let start = start(fields)?;
        if fields.optional("isl")?.unwrap_or(preset.plus_grid) {
            if network.sky.isls.is_empty() {
                return Err(fields.error("isl", &format!("\"{shell}\" has no inter-satellite links")));
            }
        } else {
            network.sky.isls.clear();
        }
        let has_ground_relays = network.sky.isls.is_empty();
        for user in users(fields, &network, hosts, start)? {
            network.stations.insert(hosts, user);
            hosts += 1;
        }
        if !has_ground_relays && network.stations.len() > hosts {
            return Err(fields.error("ground_relays", "forward only where `isl = false`"));
        }
        let access = access(fields, default, read)?;
        for station in &network.stations {
            let gateway = gateway(&station.name);
            let is_host = topology.nodes.len() < 2 * hosts && access.is_some();
            match (&access, is_host) {
                (Some(spec), true) => drop(topology.connect(&station.name, &gateway, spec)),
                (None, _) if topology.nodes.len() < hosts => topology.nodes.push(station.name.clone()),
                _ => topology.nodes.push(gateway),
            }
        }
        Ok(Self {
            has_ground_relays,
            hosts,
            start,
            has_access: access.is_some(),
            isl: sky_link(fields, "isl_link", default, read)?,
            uplink: sky_link(fields, "uplink", default, read)?,
            downlink: sky_link(fields, "downlink", default, read)?,
            station_cache: station_cache(fields)?,
            handover: handover(fields)?,
            network: Arc::new(network),
            shell,
        })
    }

    /// The node of a station: its gateway, or the host where the two are one.
    pub fn station_node(&self, station: usize) -> String {
        let name = &self.network.stations[station].name;
        if self.has_access || station >= self.hosts { gateway(name) } else { name.clone() }
    }

    /// The station of a host.
    pub fn station_of(&self, host: &str) -> Option<usize> {
        self.network.stations[..self.hosts].iter().position(|station| station.name == host)
    }

    /// The satellite of this name.
    pub fn satellite_named(&self, name: &str) -> Option<usize> {
        self.network.sky.satellites.iter().position(|satellite| satellite.name == name)
    }
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum GroundRelays {
    Word(String),
    Names(Vec<String>),
}

/// Stations with hosts, built-in cities and own ones, then those that only forward.
fn stations(fields: &mut Fields<'_>) -> Result<(Vec<Station>, usize), ScenarioError> {
    let cities = ground::cities();
    let mut stations = Vec::new();
    let names = fields.optional::<Vec<String>>("stations")?.unwrap_or_default();
    for name in names {
        let city = city(&cities, &name).map_err(|problem| fields.error("stations", &problem))?;
        add(&mut stations, city).map_err(|problem| fields.error("stations", &problem))?;
    }
    for mut table in fields.tables("station")? {
        let name: String = table.required("name")?;
        let place = Geodetic {
            latitude_deg: between(&mut table, "latitude", -90.0, 90.0)?,
            longitude_deg: between(&mut table, "longitude", -180.0, 180.0)?,
            altitude_m: 0.0,
        };
        let antennas: Option<u32> = table.optional("antennas")?;
        if antennas == Some(0) {
            return Err(table.error("antennas", "must be at least 1"));
        }
        let station = Station { name, place, min_elevation_deg: None, antennas };
        add(&mut stations, station).map_err(|problem| table.error("name", &problem))?;
        table.finish()?;
    }
    if stations.len() < 2 {
        return Err(fields.error("stations", "must name at least two, here or as [[topology.station]]"));
    }
    let hosts = stations.len();
    let more = match fields.optional("ground_relays")? {
        None => Vec::new(),
        Some(GroundRelays::Names(names)) => names,
        Some(GroundRelays::Word(word)) if word == "cities" => {
            let names = cities.iter().map(|city| city.name.clone());
            names.filter(|name| ground::find(&stations, name).is_none()).collect()
        }
        Some(GroundRelays::Word(_)) => {
            return Err(fields.error("ground_relays", "is \"cities\" or a list of cities"));
        }
    };
    for name in more {
        let city = city(&cities, &name).map_err(|problem| fields.error("ground_relays", &problem))?;
        add(&mut stations, city).map_err(|problem| fields.error("ground_relays", &problem))?;
    }
    Ok((stations, hosts))
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersTable {
    from: String,
    to: String,
    count: usize,
}

/// More users than this are no experiment but a mistake.
const MOST_USERS: usize = 1_000;

/// `users = { from, to, count }`: stations user1, user2, … evenly spread on the ground below the way between two
/// stations at the run's beginning.
fn users(
    fields: &mut Fields<'_>,
    network: &Network,
    hosts: usize,
    start: Duration,
) -> Result<Vec<Station>, ScenarioError> {
    let Some(table) = fields.optional::<UsersTable>("users")? else { return Ok(Vec::new()) };
    let named = |name: &str| network.stations[..hosts].iter().position(|station| station.name == name);
    let (Some(from), Some(to)) = (named(&table.from), named(&table.to)) else {
        return Err(fields.error("users", "must name two of the stations as `from` and `to`"));
    };
    if from == to || !(1..=MOST_USERS).contains(&table.count) {
        return Err(fields.error("users", "needs two different stations and a count of 1 to 1000"));
    }
    let relaying = if network.sky.isls.is_empty() { Relaying::Stations } else { Relaying::Satellites };
    let (mut observer, mut router) = (network.observe(), Router::new(network, &[to], relaying));
    let places = (|| {
        let snapshot = observer.at(start.as_secs_f64()).ok()?;
        router.advance(snapshot);
        let path = router.path(snapshot, from, to)?;
        let place = |node: &u32| network.place(*node, start.as_secs_f64()).ok();
        path.nodes.iter().map(place).collect::<Option<Vec<_>>>()
    })();
    let Some(places) = places else {
        return Err(
            fields.error("users", "lie below the way between two stations, and there is none at the start")
        );
    };
    let user = |number: usize| {
        let along = number as f64 / (table.count + 1) as f64 * (places.len() - 1) as f64;
        let (before, share) = (along as usize, along.fract());
        let (a, b) = (places[before], places[(before + 1).min(places.len() - 1)]);
        let point = [0, 1, 2].map(|axis| a[axis] + share * (b[axis] - a[axis]));
        let place = Geodetic { altitude_m: 0.0, ..Geodetic::from_ecef(point) };
        Station { place, ..Station::new(&format!("user{number}"), 0.0, 0.0) }
    };
    Ok((1..=table.count).map(user).collect())
}

fn city(cities: &[Station], name: &str) -> Result<Station, String> {
    ground::find(cities, name).cloned().ok_or_else(|| {
        let near = ground::similar(cities, name).join(", ");
        format!("\"{name}\" is no built-in city; near it are {near}. Give others as [[topology.station]]")
    })
}

fn add(stations: &mut Vec<Station>, station: Station) -> Result<(), String> {
    if ground::find(stations, &station.name).is_some() {
        return Err(format!("\"{}\" stands there twice", station.name));
    }
    stations.push(station);
    Ok(())
}

fn between(fields: &mut Fields<'_>, name: &'static str, low: f64, high: f64) -> Result<f64, ScenarioError> {
    let value: f64 = fields.required(name)?;
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(fields.error(name, &format!("must lie between {low} and {high} degrees")))
    }
}

/// Limits of links other than the preset's.
fn limits(fields: &mut Fields<'_>, network: &mut Network) -> Result<(), ScenarioError> {
    if let Some(degrees) = fields.optional::<f64>("min_elevation_deg")? {
        if !(0.0..90.0).contains(&degrees) {
            return Err(fields.error("min_elevation_deg", "must lie between 0 and 90 degrees"));
        }
        network.ground_rule.min_elevation_deg = degrees;
    }
    let ground = &mut network.ground_rule.max_range_m;
    let isl = &mut network.isl_rule.max_length_m;
    for (name, place) in [("max_ground_km", ground), ("max_isl_km", isl)] {
        let Some(km) = fields.optional::<f64>(name)? else { continue };
        if km <= 0.0 || !km.is_finite() {
            return Err(fields.error(name, "must be a length above 0 km"));
        }
        *place = km * 1e3;
    }
    Ok(())
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyName {
    All,
    Nearest,
    Highest,
    LongestVisible,
}

fn selection(fields: &mut Fields<'_>) -> Result<Selection, ScenarioError> {
    let policy = match fields.optional("ground_policy")? {
        None | Some(PolicyName::All) => GroundPolicy::All,
        Some(PolicyName::Nearest) => GroundPolicy::Nearest,
        Some(PolicyName::Highest) => GroundPolicy::HighestElevation,
        Some(PolicyName::LongestVisible) => GroundPolicy::LongestVisible,
    };
    let every_s = fields.optional::<Span>("reselect")?.map(|span| span.0.as_secs_f64());
    if every_s.is_some() && policy == GroundPolicy::All {
        return Err(fields.error("reselect", "needs a `ground_policy` that selects satellites"));
    }
    if every_s.is_some_and(|every| every < 0.01) {
        return Err(fields.error("reselect", "must be at least 10ms"));
    }
    Ok(Selection { policy, every_s })
}

fn station_cache(fields: &mut Fields<'_>) -> Result<Option<u64>, ScenarioError> {
    match fields.optional::<Size>("station_cache")? {
        Some(Size(bytes)) if bytes < LEAST_CACHE => {
            Err(fields.error("station_cache", "must be at least 256 KiB, the data in transit"))
        }
        cache => Ok(cache.map(|Size(bytes)| bytes)),
    }
}

fn start(fields: &mut Fields<'_>) -> Result<Duration, ScenarioError> {
    let start = fields.optional::<Span>("start")?.map_or(Duration::ZERO, |span| span.0);
    if start.as_nanos() % 10_000_000 != 0 {
        return Err(fields.error("start", "must be a multiple of 10ms, to which the sky is timed"));
    }
    Ok(start)
}

fn access(
    fields: &mut Fields<'_>,
    default: &LinkSpec,
    read: ReadFile<'_>,
) -> Result<Option<LinkSpec>, ScenarioError> {
    let Some(mut table) = fields.table("ground_link")? else { return Ok(None) };
    let spec = LinkSpec::parse(&mut table, read)?.over(default);
    not_in_bdp(&table, &spec)?;
    table.finish()?;
    Ok(Some(spec))
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveTable {
    max: Bitrate,
    floor: Option<Bitrate>,
    noise: Option<Bitrate>,
}

fn sky_link(
    fields: &mut Fields<'_>,
    name: &'static str,
    default: &LinkSpec,
    read: ReadFile<'_>,
) -> Result<SkyLink, ScenarioError> {
    let Some(mut table) = fields.table(name)? else {
        let sky_link = SkyLink { spec: default.clone(), curve: None };
        whole(fields, name, &sky_link)?;
        return Ok(sky_link);
    };
    let curve = match table.optional::<CurveTable>("v_curve")? {
        Some(_) if name == "isl_link" => {
            return Err(table.error("v_curve", "is of ground links only: it follows their passes"));
        }
        Some(curve) => Some(v_curve(&curve).map_err(|problem| table.error("v_curve", problem))?),
        None => None,
    };
    let spec = LinkSpec::parse(&mut table, read)?;
    if curve.is_some() && spec.has_rate() {
        return Err(table.error("v_curve", "stands in place of `rate`: give one of them"));
    }
    if spec.has_delay() {
        return Err(table.error("delay", "follows from the sky"));
    }
    let spec = spec.over(default);
    not_in_bdp(&table, &spec)?;
    let sky_link = SkyLink { spec, curve };
    whole(&table, "rate", &sky_link)?;
    table.finish()?;
    Ok(sky_link)
}

fn whole(fields: &Fields<'_>, name: &str, link: &SkyLink) -> Result<(), ScenarioError> {
    if link.curve.is_none() && !link.spec.has_rate() {
        return Err(fields.error(name, "has no rate: give one here or in [topology.link]"));
    }
    Ok(())
}

fn not_in_bdp(fields: &Fields<'_>, spec: &LinkSpec) -> Result<(), ScenarioError> {
    match spec.queue {
        Some(QueueRoom::Bdp(_)) => {
            Err(fields.error("queue", "in bdp has no size where paths change: give packets or bytes"))
        }
        _ => Ok(()),
    }
}

fn v_curve(table: &CurveTable) -> Result<VCurve, &'static str> {
    let zero = Bitrate(starhop_proto::units::Rate::ZERO);
    let (floor, noise) = (table.floor.unwrap_or(zero).0, table.noise.unwrap_or(zero).0);
    let max = table.max.0;
    if max.is_unlimited() || max.as_bps() == 0 || floor > max || noise > max {
        return Err("needs a limited `max` above 0, and `floor` and `noise` not above it");
    }
    Ok(VCurve { max, floor, noise })
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct HandoverTable {
    outage: Option<Span>,
    #[serde(default)]
    hold: bool,
    in_flight: Option<InFlight>,
}

fn handover(fields: &mut Fields<'_>) -> Result<Handover, ScenarioError> {
    let table = fields.optional::<HandoverTable>("handover")?;
    let table = table.unwrap_or(HandoverTable { outage: None, hold: false, in_flight: None });
    Ok(Handover {
        outage: table.outage.map_or(Duration::ZERO, |span| span.0),
        hold: table.hold,
        keep: table.in_flight != Some(InFlight::Lost),
    })
}

/// Names of relays that are neither satellite nor station.
pub(super) fn check_relays(topology: &Topology, sky: &Constellation) -> Result<(), String> {
    let Relays::Named(names) = &topology.relays else { return Ok(()) };
    let is_known = |name: &String| topology.node_named(name).is_some() || sky.satellite_named(name).is_some();
    match names.iter().find(|name| !is_known(name)) {
        Some(name) => {
            let example = sky.network.sky.satellites.first().map_or("", |satellite| satellite.name.as_str());
            Err(format!(
                "\"{name}\" is no satellite (as \"{example}\") and no node: {}",
                topology.nodes.join(", ")
            ))
        }
        None => Ok(()),
    }
}
