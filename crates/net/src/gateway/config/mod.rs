//! The gateway's configuration file.

mod charge;
mod check;
mod given;
mod rules;
mod written;

pub use given::{KEYS, Source};
pub(super) use written::MOST_WEIGHT;

use super::by_rate;
use super::choice::Prefer;
use super::policy::{CarryPolicies, CarryPolicy, SplitPolicies, SplitPolicy, protocol};
use crate::prefix::Prefix;
use crate::security::{GatewayBond, KeyError, KeyFile, Sources, credential};
use check::check;
use rules::rules;
use starhop_proto::config::{Config, ConfigError, Controller, Profile, Settings};
use starhop_proto::gateway::{CarrySettings, GatewaySettings, PeerSpec, Share};
use starhop_proto::security::Algorithm;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use written::{Action, Open, Policy, Written, WrittenPeer};

/// The checked contents of the file.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    source: Source,
    written: Written,
    /// Rules of the firewall, one a line.
    pub(super) rules: String,
    /// The policies that split.
    pub(super) split: SplitPolicies,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GatewayConfigError {
    /// The file.
    #[error("cannot read `{}`: {cause}", .path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// Its form; the message shows the line.
    #[error("`{}`: {cause}", .path.display())]
    Form {
        /// The path of the file.
        path: PathBuf,
        /// The fault and its place.
        cause: toml::de::Error,
    },
    /// A value.
    #[error("`{}`: `{field}` {problem}", .path.display())]
    Value {
        /// The path of the file.
        path: PathBuf,
        /// The name of the field.
        field: String,
        /// The fault, and the right form.
        problem: String,
    },
    /// A key file.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A setting of the protocol.
    #[error(transparent)]
    Setting(#[from] ConfigError),
}

impl GatewayConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`GatewayConfigError`] names the line or the field.
    pub fn load(source: &Source) -> Result<Self, GatewayConfigError> {
        Self::of(source.read()?, source)
    }

    fn of(written: Written, source: &Source) -> Result<Self, GatewayConfigError> {
        let wrong = |(field, problem): (String, String)| Self::fault(&source.path, &field, &problem);
        check(&written).map_err(wrong)?;
        let rules = rules(&written).map_err(wrong)?;
        let split = split_policies(&written);
        let config = Self { source: source.clone(), written, rules, split };
        config.protocol()?;
        Ok(config)
    }

    /// Reads and checks the file anew, for a gateway that runs by this configuration.
    ///
    /// # Errors
    /// As [`GatewayConfig::load`]; or a key has changed that needs a restart.
    pub(super) fn renewed(&self) -> Result<Self, GatewayConfigError> {
        let new = Self::load(&self.source)?;
        match self.written.lasting_changes(&new.written).next() {
            Some(field) => Err(new.wrong(field, "has changed, which takes a restart")),
            None => Ok(new),
        }
    }

    /// The error of a field whose value cannot be used.
    pub(super) fn wrong(&self, field: &str, problem: &str) -> GatewayConfigError {
        Self::fault(&self.source.path, field, problem)
    }

    /// Address at which datagrams of peers and relays arrive.
    pub fn listen(&self) -> SocketAddr {
        self.written.listen
    }

    /// The names of the peers, in the order of the file.
    pub(super) fn peer_names(&self) -> impl Iterator<Item = &str> {
        self.written.peer.iter().map(|peer| peer.name.as_str())
    }

    /// Which of the peers that answer has the users.
    pub(super) fn prefer(&self) -> Prefer {
        self.written.prefer
    }

    /// The places of the peers to which users' connections and packets of here may go.
    pub(super) fn for_users(&self) -> impl Iterator<Item = u16> {
        let peers = (0..).zip(&self.written.peer);
        peers.filter(|(_, peer)| peer.users != Some(false)).map(|(place, _)| place)
    }

    /// The TCP port to which the firewall diverts connections.
    pub fn port(&self) -> u16 {
        self.written.port
    }

    /// Whether connections are intercepted here.
    pub fn intercepts(&self) -> bool {
        !self.written.intercept.is_empty()
    }

    /// Whether SYNs of some policy are held until their targets have accepted.
    pub(super) fn holds(&self) -> bool {
        self.intercepts() && self.written.policy.iter().any(|policy| policy.open == Some(Open::Confirmed))
    }

    /// Whether targets see this host's address instead of the client's.
    pub(super) fn nat(&self) -> bool {
        self.written.nat
    }

    pub(super) fn max_connections(&self) -> usize {
        self.written.max_connections
    }

    /// The kernel's congestion control of connections with users; `None` leaves the system's.
    pub(super) fn congestion(&self) -> Option<&str> {
        self.written.congestion.as_deref()
    }

    /// A policy leaves packets alone.
    pub(super) fn passes(&self) -> bool {
        self.intercepts() && self.written.policy.iter().any(|policy| policy.action == Action::Pass)
    }

    /// The lines of the firewall, for the watchdog.
    pub fn rules(&self) -> &str {
        &self.rules
    }

    /// The keys that seal packets on the hops.
    ///
    /// # Errors
    /// When no key is named, and plain packets are not allowed either.
    pub fn sources(&self) -> Sources {
        match self.key() {
            Some(key) => Sources::Files { key, roster: self.written.roster.clone(), cipher: self.cipher() },
            None => Sources::Insecure,
        }
    }

    /// The cipher that seals on the hops, where the file names one.
    fn cipher(&self) -> Option<Algorithm> {
        self.written.cipher.as_deref().and_then(Algorithm::named)
    }

    /// The key file of the hops: that of the file, or systemd's credential.
    fn key(&self) -> Option<PathBuf> {
        self.written.key.clone().or_else(|| credential("starhop.key").filter(|_| !self.written.insecure))
    }

    /// Whether packets are carried where this host can.
    pub(super) fn may_carry(&self) -> bool {
        self.written.carry != Some(false)
    }

    /// Whether the file demands that packets are carried. Where it does not, a host without TUN devices lets them pass.
    pub(super) fn must_carry(&self) -> bool {
        self.written.carry == Some(true)
            || self.written.policy.iter().any(|policy| policy.action == Action::Carry)
    }

    /// The longest packet that is carried.
    pub(super) fn carry_mtu(&self) -> u32 {
        self.written.carry_mtu
    }

    /// Which packets are delivered in order.
    pub(super) fn carry_policies(&self) -> CarryPolicies {
        let of = |policy: &Policy| CarryPolicy {
            from: prefixes_of(&policy.from),
            to: prefixes_of(&policy.to),
            ports: policy.ports.clone(),
            protocols: policy.protocol.as_deref().and_then(protocol).unwrap_or_default().to_vec(),
            dscp: policy.dscp,
            order: policy.order,
            weight: policy.weight.unwrap_or(1),
        };
        let carrying = self.written.policy.iter().filter(|policy| policy.action == Action::Carry);
        CarryPolicies(carrying.map(of).collect())
    }

    /// The gateway's settings, where it `carries` packets or cannot.
    pub(super) fn carrying_settings(&self, carries: bool) -> GatewaySettings {
        let settings = self.settings();
        GatewaySettings { carry: settings.carry.filter(|_| carries), ..settings }
    }

    /// The gateway's settings.
    pub(super) fn settings(&self) -> GatewaySettings {
        GatewaySettings {
            window: self.written.window_bytes,
            hold: Duration::from_secs(self.written.hold_seconds),
            max_streams: self.written.max_connections,
            max_waiting: self.written.max_waiting_bytes,
            carry: self.may_carry().then(|| CarrySettings {
                deadline: self.written.carry_deadline_ms.map(Duration::from_millis),
                max_flows: self.written.max_flows,
                ..CarrySettings::default()
            }),
        }
    }

    /// The protocol's settings.
    pub(super) fn protocol(&self) -> Result<Config, ConfigError> {
        let standard = Profile::Starhop.settings();
        let controller = self.written.link_rate_in_bits.map(|bits| Controller::Fixed(Rate::from_bps(bits)));
        Config::new(Settings {
            payload: self.written.payload.unwrap_or(standard.payload),
            controller: controller.unwrap_or(standard.controller),
            max_rate: self.written.link_rate_out_bits.map_or(standard.max_rate, Rate::from_bps),
            ..standard
        })
    }

    /// The rates of links that several peers share, and the share of each peer.
    pub(super) fn shared_links(&self) -> (Vec<Rate>, Vec<Option<Share>>) {
        let links = &self.written.shared_link;
        let share = |peer: &WrittenPeer| links.share(peer.shared_link.as_deref(), peer.weight);
        (links.rates(), self.written.peer.iter().map(share).collect())
    }

    /// The peers.
    pub(super) fn peers(&self) -> Result<Vec<PeerSpec<GatewayBond>>, GatewayConfigError> {
        let path = self.written.end_key.clone().or_else(|| self.key());
        let file = path.map(|path| KeyFile::load(&path)).transpose()?;
        let bond = |peer: &WrittenPeer| GatewayBond::new(file.as_ref(), &self.written.name, &peer.name);
        let known = |peer: &WrittenPeer| PeerSpec {
            address: peer.address.as_deref().and_then(resolve),
            bond: bond(peer),
            by_rate: by_rate::settings(peer.protocol(), self.written.link(peer)),
        };
        Ok(self.written.peer.iter().map(known).collect())
    }
}
fn resolve(address: &str) -> Option<SocketAddr> {
    address.to_socket_addrs().ok().and_then(|mut found| found.next())
}
/// The prefixes of a list that was checked.
fn prefixes_of(list: &[String]) -> Vec<Prefix> {
    list.iter().filter_map(|text| Prefix::parse(text).ok()).collect()
}

/// The policies that split, for what the firewall cannot do. Those of an interface have no weight.
fn split_policies(written: &Written) -> SplitPolicies {
    let place = |name: &String| written.peer.iter().position(|peer| peer.name == *name);
    let of = |policy: &Policy| SplitPolicy {
        from: prefixes_of(&policy.from),
        to: prefixes_of(&policy.to),
        ports: policy.ports.clone(),
        dscp: policy.dscp,
        weight: policy.weight.unwrap_or(1),
        peer: policy.peer.as_ref().and_then(place).map(|place| place as u16),
    };
    let is_told = |policy: &&Policy| policy.action == Action::Split && policy.interface.is_none();
    SplitPolicies(written.policy.iter().filter(is_told).map(of).collect())
}
#[cfg(test)]
mod tests {
    use super::super::policy::FOR_THE_LINK;
    use super::*;

    fn parse(text: &str) -> Result<GatewayConfig, GatewayConfigError> {
        let source = Source::from(std::path::Path::new("gateway.toml"));
        GatewayConfig::of(source.parse(text)?, &source)
    }

    const GOOD: &str = "name = \"site\"\ninsecure = true\nintercept = [\"lan0\"]\n\
                        [[peer]]\nname = \"hub\"\naddress = \"192.0.2.1:4433\"\n";

    fn problem(text: &str) -> String {
        parse(text).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_short_file_is_enough() {
        let config = parse(GOOD).unwrap();
        assert_eq!((config.listen().port(), config.port(), config.intercepts()), (4433, 4434, true));
        let lines: Vec<&str> = config.rules.lines().skip(FOR_THE_LINK.lines().count()).collect();
        assert_eq!(lines.len(), 3, "TCP is split, and the rest carried");
        assert!(lines[2].contains("meta l4proto != tcp meta mark set"), "{}", lines[2]);
        let without = parse(&GOOD.replace("insecure", "carry = false\ninsecure"));
        assert_eq!(without.unwrap().rules.lines().count(), 2);
    }

    #[test]
    fn a_policy_that_confirms_sends_the_first_packets_of_connections_to_their_device() {
        let text = format!("{GOOD}[[policy]]\naction = \"split\"\nopen = \"confirmed\"\nports = [25]\n");
        let config = parse(&text).unwrap();
        assert!(config.holds() && !parse(GOOD).unwrap().holds());
        let lines: Vec<&str> = config.rules.lines().skip(FOR_THE_LINK.lines().count()).collect();
        let mark = 0x534e_0000 | 4434;
        for line in &lines[..2] {
            assert!(line.contains("th dport { 25 } tcp flags & (fin | syn | rst | ack) == syn"), "{line}");
            assert!(line.ends_with(&format!("meta mark set {mark} accept")), "{line}");
        }
        assert!(lines[2].contains("tproxy"), "other connections are split at once: {}", lines[2]);
    }

    #[test]
    fn keys_that_need_a_restart_are_named() {
        let config = |text: &str| parse(text).unwrap().written;
        let changed = |text: &str| config(GOOD).lasting_changes(&config(text)).collect::<Vec<_>>();
        assert_eq!(changed(&GOOD.replace("lan0", "lan1")), [""; 0]);
        assert_eq!(changed(&format!("nat = true\nhold_seconds = 9\nmax_connections = 7\n{GOOD}")), [""; 0]);
        assert_eq!(changed(&GOOD.replace("4433", "4444")), ["peer"]);
        let shared = GOOD.replace("[[peer]]", "[[shared_link]]\nname = \"sat\"\nrate_out_bits = 9\n[[peer]]");
        assert_eq!(changed(&format!("{shared}shared_link = \"sat\"\nweight = 3\n")), [""; 0]);
        assert_eq!(changed(&format!("port = 5\npayload = 1200\n{GOOD}")), ["port", "payload"]);
    }

    #[test]
    fn the_example_of_the_guide_is_right() {
        let text = include_str!("../../../../../docs/guide/gateway.toml");
        parse(text).unwrap();
    }

    #[test]
    fn policies_come_before_the_rule_for_all() {
        let text = GOOD.to_owned()
            + "[[policy]]\naction = \"pass\"\nto = [\"10.0.0.0/8\", \"fd00::/8\"]\nports = [22, 25]\n";
        let rules = parse(&text).unwrap().rules;
        let lines: Vec<&str> = rules.lines().skip(FOR_THE_LINK.lines().count()).collect();
        assert_eq!(lines.len(), 5);
        let expected = "ip daddr { 10.0.0.0/8 } meta l4proto { 6, 17 } th dport { 22, 25 } counter return comment \"policy 0\"";
        assert!(lines[0].contains(expected), "{}", lines[0]);
        assert!(lines[1].contains("ip6 daddr { fd00::/8 }"), "{}", lines[1]);
    }

    #[test]
    fn a_policy_that_splits_has_one_rule_for_each_ip_version() {
        let rules = |policy: &str| {
            let text = format!("{GOOD}[[policy]]\naction = \"split\"\n{policy}");
            let rules = parse(&text).unwrap().rules;
            rules.lines().skip(FOR_THE_LINK.lines().count()).map(str::to_owned).collect::<Vec<_>>()
        };
        let both = rules("");
        assert_eq!(both.len(), 5, "{both:?}");
        assert!(both[0].contains("tproxy ip to") && !both[0].contains("ipv6"), "{}", both[0]);
        assert!(both[1].contains("tproxy ip6 to") && !both[1].contains("ipv4"), "{}", both[1]);
        assert_eq!(rules("to = [\"10.0.0.0/8\"]\n").len(), 4);
    }

    #[test]
    fn the_first_policy_that_splits_tells_the_weight() {
        let text = GOOD.to_owned()
            + "[[policy]]\naction = \"split\"\ndscp = 46\nweight = 8\n\
               [[policy]]\naction = \"split\"\nto = [\"192.0.2.0/24\"]\nports = [443]\nweight = 4\n";
        let policies = parse(&text).unwrap().split;
        let weight = |to: &str, dscp: u8| {
            let from = SocketAddr::from(([10, 0, 0, 1], 40_000));
            policies.weight(&starhop_proto::gateway::Opening { from, to: to.parse().unwrap(), dscp })
        };
        let weights = [
            weight("192.0.2.9:443", 46),
            weight("192.0.2.9:443", 0),
            weight("192.0.2.9:80", 0),
            weight("[::1]:443", 0),
        ];
        assert_eq!(weights, [8, 4, 1, 1]);
    }

    #[test]
    fn peers_name_their_shared_links_and_weights() {
        let with = |link: &str, peer: &str| GOOD.replace("[[peer]]", &format!("{link}[[peer]]")) + peer;
        let link = "[[shared_link]]\nname = \"sat\"\nrate_out_bits = 8000000\n";
        let good = with(link, "shared_link = \"sat\"\nweight = 3\n[[peer]]\nname = \"alone\"\n");
        let shared = parse(&good).unwrap().shared_links();
        assert_eq!(shared, (vec![Rate::from_mbps(8)], vec![Some(Share { link: 0, weight: 3 }), None]));
        let wrong = |peer: &str| problem(&with(link, peer));
        assert!(wrong("shared_link = \"set\"\n").contains("`peer[0].shared_link` is `set`, which no"));
        assert!(wrong("weight = 3\n").contains("`peer[0].weight` goes with `shared_link`"));
        assert!(
            wrong("shared_link = \"sat\"\nweight = 33\n")
                .contains("`peer[0].weight` must lie between 1 and 32")
        );
        assert!(
            problem(&with(&link.replace("8000000", "0"), ""))
                .contains("`shared_link[0].rate_out_bits` cannot be 0")
        );
        assert!(problem(&with(&link.repeat(2), "")).contains("`shared_link[1].name` is another link's"));
        assert!(problem(&with(&link.replace("rate_out", "rate"), "")).contains("line 6"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        assert!(problem(&GOOD.replace("name = \"site\"", "nam = \"site\"")).contains("line 1"));
        assert!(problem(&GOOD.replace("insecure = true", "")).contains("`key` is missing"));
        let cipher = problem(&GOOD.replace("insecure = true", "insecure = true\ncipher = \"rot13\""));
        assert!(cipher.contains("`cipher` is unknown"), "{cipher}");
        let alone = problem(&GOOD.replace("insecure = true", "key = \"k\"\nroster = \"r\""));
        assert!(alone.contains("`end_key` is missing"), "{alone}");
        assert!(problem(&GOOD.replace("192.0.2.1:4433", "nowhere")).contains("`peer[0].address`"));
        assert!(problem(&GOOD.replace("lan0", "lan0; drop")).contains("`intercept`"));
        let policy = |line: &str| problem(&format!("{GOOD}[[policy]]\naction = \"pass\"\n{line}\n"));
        assert!(policy("to = [\"10.0.0.0/40\"]").contains("`policy[0].to`"));
        assert!(policy("dscp = 64").contains("`policy[0].dscp`"));
        assert!(policy("action2 = 1").contains("line 9"));
        assert!(policy("protocol = \"tpc\"").contains("there are tcp, udp, icmp"));
        assert!(policy("protocol = \"esp\"\nports = [1]").contains("`policy[0].ports`"));
        assert!(policy("order = true").contains("`policy[0].order`"));
        assert!(policy("weight = 2").contains("`policy[0].weight`"));
        let carried = |line: &str| problem(&format!("{GOOD}[[policy]]\naction = \"carry\"\n{line}\n"));
        assert!(carried("weight = 33").contains("between 1 and 32"));
        assert!(carried("weight = 2\ninterface = \"lan0\"").contains("`policy[0].weight` goes with"));
        assert!(carried("peer = \"hub\"").contains("`policy[0].peer` goes with"));
        let split = |line: &str| problem(&format!("{GOOD}[[policy]]\naction = \"split\"\n{line}\n"));
        assert!(split("weight = 0").contains("between 1 and 32"));
        assert!(split("open = \"later\"").contains("line 9"));
        assert!(policy("open = \"early\"").contains("`policy[0].open` goes with"));
        assert!(split("peer = \"other\"").contains("`policy[0].peer` is `other`"));
        assert!(policy("peer = \"hub\"").contains("`policy[0].peer` goes with"));
        assert!(problem(&format!("{GOOD}users = false\n")).contains("nobody is left"));
        assert!(split("weight = 2\ninterface = \"lan0\"").contains("not with an interface"));
        let carry = GOOD.replace("insecure", "carry = false\ninsecure") + "[[policy]]\naction = \"carry\"\n";
        assert!(problem(&carry).contains("`carry = false` forbids"));
        let confirmed = carry.replace("action = \"carry\"", "action = \"split\"\nopen = \"confirmed\"");
        assert!(problem(&confirmed).contains("`policy[0].open` cannot be `confirmed` with `carry = false`"));
    }
}
