//! The rules that divert packets to the relay: one table of nftables, and one routing rule for each IP version.

use super::rules;
use super::socket::INTERCEPTED;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// Marks diverted packets, and names the routing table that delivers them here: "SH", and the port.
const MARK: u32 = 0x5348_0000;
/// As [`MARK`], for gateways: "SG", and the port.
pub(crate) const GATEWAY_MARK: u32 = 0x5347_0000;

/// As [`MARK`], for the packets that gateways carry: "SC", and the port.
pub(crate) const CARRY_MARK: u32 = 0x5343_0000;

/// As [`MARK`], for the SYNs that gateways hold: "SN", and the port.
pub(crate) const HOLD_MARK: u32 = 0x534e_0000;

/// The match of a TCP segment by which a connection begins.
pub(crate) const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";

/// The devices that a gateway has, for which its firewall needs rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Devices {
    /// Those of carried packets.
    pub carry: bool,
    /// That of SYNs which wait until their targets have accepted.
    pub hold: bool,
}

impl Devices {
    /// The options of a watchdog for them.
    pub(crate) fn options(self) -> impl Iterator<Item = &'static str> {
        [(self.carry, "--carries"), (self.hold, "--holds")]
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, option)| option)
    }
}

/// The device that gives packets to carry to the gateway of the TCP port `port`, and takes the packets that its peers
/// carried.
pub(crate) fn carry_device(port: u16) -> String {
    format!("starhop{port}")
}

/// The device that takes the packets that the gateway was given and did not carry.
pub(crate) fn pass_device(port: u16) -> String {
    format!("starhop{port}p")
}

/// The device that gives SYNs to the gateway, and takes those that are to be diverted.
pub(crate) fn hold_device(port: u16) -> String {
    format!("starhop{port}h")
}

/// Rules that divert packets matching `matches` to the local port `port`, one for each IP version.
pub(crate) fn divert(matches: &str, port: u16, mark: u32) -> [String; 2] {
    INTERCEPTED.map(|address| {
        let (version, family, to) = match address {
            IpAddr::V4(v4) => ("ipv4", "ip", v4.to_string()),
            IpAddr::V6(v6) => ("ipv6", "ip6", format!("[{v6}]")),
        };
        format!("    meta nfproto {version} {matches} tproxy {family} to {to}:{port} meta mark set {mark} accept\n")
    })
}

/// The words ahead of a policy's number in the comment of its rules.
const POLICY: &str = "policy ";

/// A rule by which packets that match policy number `policy` pass, and are counted.
pub(crate) fn passing(matches: &str, policy: usize) -> String {
    format!("    {matches} counter return comment \"{POLICY}{policy}\"\n")
}

/// The table of the gateway that listens on the TCP port `port`.
pub(crate) fn gateway_table(port: u16) -> String {
    format!("inet starhop_gateway_{port}")
}

/// Packets and bytes that passed by the rules of each policy in `table` since these were set. A connection that was
/// split or carried is not among them.
///
/// # Errors
/// There is no such table, or no `nft`.
pub(crate) fn passed(table: &str) -> io::Result<BTreeMap<usize, [u64; 2]>> {
    let mut command = Command::new("nft");
    command.args(["-j", "list", "table"]).args(table.split(' '));
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(counted(&serde_json::from_slice(&output.stdout)?))
}

/// The counters in a listing of `nft`, by policy.
fn counted(listing: &serde_json::Value) -> BTreeMap<usize, [u64; 2]> {
    let mut passed = BTreeMap::new();
    for rule in listing["nftables"].as_array().into_iter().flatten().map(|object| &object["rule"]) {
        let policy = rule["comment"].as_str().and_then(|comment| comment.strip_prefix(POLICY)?.parse().ok());
        let counter = rule["expr"].as_array().and_then(|all| all.iter().find_map(|one| one.get("counter")));
        let (Some(policy), Some(counter)) = (policy, counter) else { continue };
        let sums: &mut [u64; 2] = passed.entry(policy).or_default();
        for (sum, field) in sums.iter_mut().zip(["packets", "bytes"]) {
            *sum += counter[field].as_u64().unwrap_or(0);
        }
    }
    passed
}

/// One table of rules, and the mark of the packets that they divert.
#[derive(Clone, Debug)]
pub(crate) struct Firewall {
    table: String,
    mark: u32,
    /// Sets and chains of the table beside the chain that diverts.
    beside: String,
    /// Rules ahead of those that the operator's policies make.
    first: String,
    rules: String,
    /// The mark of carried packets, and the device that takes them.
    carry: Option<(u32, String)>,
    /// The mark of SYNs that wait, and the device that takes them.
    hold: Option<(u32, String)>,
    /// Bytes of the longest packet that is carried in one piece: TCP that is carried whole keeps to it.
    whole: Option<u16>,
}

impl Firewall {
    /// The firewall of a relay for one UDP port. A datagram is diverted if it comes from or goes to the port and
    /// begins as a packet of ours: plain (the first bits of PROTOCOL.md's header: 01, then the kind: 4 to 7) or
    /// sealed (1, then any: 8 to 15). The relay itself looks closer, and passes on packets of other protocols and
    /// for other nodes. `tproxy` lets a packet pass if no socket takes it.
    pub(super) fn relay(port: u16) -> Self {
        let mut rules = "    fib daddr type local return\n".to_owned();
        for side in ["dport", "sport"] {
            let divert = divert(&format!("udp {side} {port} @th,64,4 4-15"), port, MARK | u32::from(port));
            rules.extend(divert);
        }
        let (table, mark) = (format!("inet starhop_relay_{port}"), MARK | u32::from(port));
        let (beside, first) = (String::new(), String::new());
        Self { table, mark, beside, first, rules, carry: None, hold: None, whole: None }
    }

    /// The firewall of a gateway that listens on the TCP port `port`: the lines of `rules`, behind one that brings back
    /// the answers to whom it speaks to in its clients' names, and, where it carries, others that carry back the
    /// answers to packets that its peers carried; where it holds SYNs, one that diverts those that it lets in.
    pub(crate) fn gateway(port: u16, rules: &str, devices: Devices) -> Self {
        let mark = GATEWAY_MARK | u32::from(port);
        let answers = format!("    meta l4proto tcp socket transparent 1 meta mark set {mark} accept\n");
        let local = "    fib daddr type local return\n";
        let carry = devices.carry.then(|| (CARRY_MARK | u32::from(port), carry_device(port)));
        let hold = devices.hold.then(|| (HOLD_MARK | u32::from(port), hold_device(port)));
        let (mut beside, mut first, mut second) = (String::new(), String::new(), String::new());
        if let Some((mark, device)) = &carry {
            beside = carried_flows();
            let pass = pass_device(port);
            first = format!("    iifname \"{pass}\" accept\n    iifname \"{device}\" jump learn\n");
            second = answers_to_carried(*mark);
        }
        if let Some((_, device)) = &hold {
            first.extend(divert(&format!("iifname \"{device}\" {SYN}"), port, mark));
        }
        let first = first + &answers + local + &second;
        let rules = rules.to_owned();
        Self { table: gateway_table(port), mark, beside, first, rules, carry, hold, whole: None }
    }

    /// The same firewall with other rules of the operator's.
    pub(crate) fn with_rules(&self, rules: &str) -> Self {
        Self { rules: rules.to_owned(), ..self.clone() }
    }

    /// The same firewall for packets of which those of at most `whole` bytes are carried in one piece.
    pub(crate) fn with_whole(&self, whole: u16) -> Self {
        Self { whole: Some(whole), ..self.clone() }
    }

    /// The marks of packets that go to devices, and these.
    fn devices(&self) -> impl Iterator<Item = &(u32, String)> {
        self.carry.iter().chain(&self.hold)
    }

    fn script(&self) -> String {
        let Self { table, beside, first, rules, .. } = self;
        let clamp = self.carry.as_ref().zip(self.whole);
        let clamp = clamp.map_or_else(String::new, |((_, device), whole)| clamped(device, whole));
        format!(
            "table {table} {{\n{beside}{clamp}  chain divert {{\n    type filter hook prerouting priority mangle; policy accept;\n\
             {first}{rules}  }}\n}}\n"
        )
    }

    /// A script that puts these rules in the place of any others of the table, whether it is there or not. Flows that peers carried
    /// here stay known: flushing a table empties its chains, and not its sets.
    fn replacement(&self) -> String {
        let script = self.script();
        format!("{script}flush table {}\n{script}", self.table)
    }

    /// Replaces the rules in one transaction: every packet meets the old ones or the new ones.
    pub(super) fn replace(&self) -> io::Result<()> {
        nft(&["-f", "-"], &self.replacement())
    }

    /// Has the kernel check the rules, and changes nothing.
    ///
    /// # Errors
    /// The message of `nft`.
    pub(crate) fn check(&self) -> io::Result<()> {
        nft(&["-c", "-f", "-"], &self.replacement())
    }

    /// Diverts packets from now on.
    pub(super) fn install(&self) -> io::Result<()> {
        self.remove()?;
        rules::add(self.mark)?;
        for (mark, device) in self.devices() {
            rules::add_device(*mark, device)?;
        }
        nft(&["-f", "-"], &self.script())
    }

    /// Diverts packets from now on, whatever of it is installed. What is stays in force until the new rules take its place.
    pub(super) fn restore(&self) -> io::Result<()> {
        if !rules::are_there(self.mark)? {
            rules::remove(self.mark)?;
            rules::add(self.mark)?;
        }
        for (mark, device) in self.devices() {
            if !rules::are_there(*mark)? {
                rules::remove(*mark)?;
                rules::add_device(*mark, device)?;
            }
        }
        self.replace()
    }

    /// Whether all of it is still installed: other programs may change rules, too.
    ///
    /// # Errors
    /// The state cannot be read now.
    pub(super) fn is_installed(&self) -> io::Result<bool> {
        let mut command = Command::new("nft");
        command.args(["list", "table"]).args(self.table.split(' '));
        let output = command.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        // ENOENT, as nft says it in every version.
        if !output.status.success() && !said.contains("No such file or directory") {
            return Err(io::Error::other(said.into_owned()));
        }
        let count = |text: &str| text.matches("mark set").count();
        let is_whole = count(&String::from_utf8_lossy(&output.stdout)) == count(&self.script());
        for mark in std::iter::once(self.mark).chain(self.devices().map(|(mark, _)| *mark)) {
            if !rules::are_there(mark)? {
                return Ok(false);
            }
        }
        Ok(is_whole)
    }

    /// Lets packets pass. What is not there need not be removed.
    pub(super) fn remove(&self) -> io::Result<()> {
        let table = &self.table;
        // Adding a table that exists changes nothing, and makes the deletion succeed.
        nft(&["-f", "-"], &format!("add table {table}\ndelete table {table}\n"))?;
        for (mark, _) in self.devices() {
            rules::remove(*mark)?;
        }
        rules::remove(self.mark)
    }
}

/// Protocols with ports where TCP has them.
const WITH_PORTS: &str = "{ tcp, udp, udplite, sctp, dccp }";

/// The sets of flows that peers carried here lately, and the chain that fills them. Fragments, and protocols without
/// ports, are told by the pair of their addresses.
fn carried_flows() -> String {
    let (mut sets, mut learn) = (String::new(), String::new());
    for (family, version) in [("ip", "ipv4"), ("ip6", "ipv6")] {
        let of = |name: &str, fields: &str| {
            format!(
                "  set {name}_{family} {{ type {version}_addr . {version}_addr . inet_proto{fields}; \
                 flags dynamic,timeout; timeout 5m; size 65535; }}\n"
            )
        };
        sets += &of("pairs", "");
        sets += &of("flows", " . inet_service . inet_service");
        let pair = format!("{family} saddr . {family} daddr . meta l4proto");
        learn += &format!("    meta nfproto {version} update @pairs_{family} {{ {pair} }}\n");
        learn += &format!(
            "    meta nfproto {version} meta l4proto {WITH_PORTS} \
             update @flows_{family} {{ {pair} . th sport . th dport }}\n"
        );
    }
    format!("{sets}  chain learn {{\n{learn}    accept\n  }}\n")
}

/// A chain that lowers the segment size in SYNs by `device`, so that packets of full segments have `whole` bytes. The
/// kernel never raises it.
fn clamped(device: &str, whole: u16) -> String {
    let rule = |side: &str, version: &str, headers: u16| {
        let segment = whole.saturating_sub(headers);
        format!(
            "    {side} \"{device}\" meta nfproto {version} tcp flags syn tcp option maxseg size set {segment}\n"
        )
    };
    let of_side = |side| rule(side, "ipv4", 40) + &rule(side, "ipv6", 60);
    let rules = ["iifname", "oifname"].map(of_side).concat();
    format!("  chain clamp {{\n    type filter hook forward priority mangle; policy accept;\n{rules}  }}\n")
}

/// Rules that mark the answers to flows that peers carried here.
fn answers_to_carried(mark: u32) -> String {
    let of = |(family, fragment, whole): (&str, &str, &str)| {
        let pair = format!("{family} daddr . {family} saddr . meta l4proto");
        let carry = format!("meta mark set {mark} accept");
        format!(
            "    {fragment} {pair} @pairs_{family} {carry}\n    \
             meta l4proto != {WITH_PORTS} {pair} @pairs_{family} {carry}\n    \
             {whole} meta l4proto {WITH_PORTS} {pair} . th dport . th sport @flows_{family} {carry}\n"
        )
    };
    let v4 = ("ip", "ip frag-off & 0x3fff != 0", "ip frag-off & 0x3fff == 0");
    [v4, ("ip6", "exthdr frag exists", "exthdr frag missing")].map(of).concat()
}

fn nft(arguments: &[&str], script: &str) -> io::Result<()> {
    let mut command = Command::new("nft");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::other("there is no `nft` here, which diverts packets: install nftables")
        }
        _ => error,
    })?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("nft refused: {}", said.trim())))
}

/// Whether packets can be diverted here: `nft` is there, and the kernel knows `tproxy`. Leaves nothing behind.
pub fn can_divert() -> io::Result<()> {
    // A port that nobody sends from.
    let firewall = Firewall::relay(1);
    let done = firewall.install();
    firewall.remove().and(done)
}
