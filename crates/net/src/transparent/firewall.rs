//! The rules that divert packets to the relay: one table of nftables, and one routing rule for each IP version.

use super::rules;
use super::socket::INTERCEPTED;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// Marks diverted packets, and names the routing table that delivers them here: "SH", and the port.
const MARK: u32 = 0x5348_0000;
/// As [`MARK`], for gateways: "SG", and the port.
pub(crate) const GATEWAY_MARK: u32 = 0x5347_0000;

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

/// One table of rules, and the mark of the packets that they divert.
#[derive(Clone, Debug)]
pub(crate) struct Firewall {
    table: String,
    mark: u32,
    rules: String,
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
        Self { table: format!("inet starhop_relay_{port}"), mark: MARK | u32::from(port), rules }
    }

    /// The firewall of a gateway that listens on the TCP port `port`: the lines of `rules`, behind one that brings back
    /// the answers to whom it speaks to in its clients' names.
    pub(crate) fn gateway(port: u16, rules: &str) -> Self {
        let mark = GATEWAY_MARK | u32::from(port);
        let answers = format!("    meta l4proto tcp socket transparent 1 meta mark set {mark} accept\n");
        let rules = answers + "    fib daddr type local return\n" + rules;
        Self { table: format!("inet starhop_gateway_{port}"), mark, rules }
    }

    fn script(&self) -> String {
        let Self { table, rules, .. } = self;
        format!(
            "table {table} {{\n  chain divert {{\n    type filter hook prerouting priority mangle; policy accept;\n\
             {rules}  }}\n}}\n"
        )
    }

    /// Diverts packets from now on.
    pub(super) fn install(&self) -> io::Result<()> {
        self.remove()?;
        rules::add(self.mark)?;
        nft(&self.script())
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
        Ok(is_whole && rules::are_there(self.mark)?)
    }

    /// Lets packets pass. What is not there need not be removed.
    pub(super) fn remove(&self) -> io::Result<()> {
        let table = &self.table;
        // Adding a table that exists changes nothing, and makes the deletion succeed.
        nft(&format!("add table {table}\ndelete table {table}\n"))?;
        rules::remove(self.mark)
    }
}

fn nft(script: &str) -> io::Result<()> {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
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
