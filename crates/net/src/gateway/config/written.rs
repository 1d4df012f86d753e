//! The file as it is written.

use super::super::by_rate::{Link, Protocol, WrittenProtocol};
use super::super::choice::Prefer;
use super::super::shared_link::SharedLinks;
use serde::Deserialize;
use starhop_proto::gateway::{CarrySettings, GatewaySettings};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) name: String,
    #[serde(default = "default_listen")]
    pub(super) listen: SocketAddr,
    #[serde(default = "default_port")]
    pub(super) port: u16,
    /// The user that the process becomes if root starts it; `None` stays root.
    pub(super) user: Option<String>,
    pub(super) key: Option<PathBuf>,
    pub(super) roster: Option<PathBuf>,
    pub(super) cipher: Option<String>,
    pub(super) end_key: Option<PathBuf>,
    #[serde(default)]
    pub(super) insecure: bool,
    #[serde(default)]
    pub(super) intercept: Vec<String>,
    #[serde(default)]
    pub(super) nat: bool,
    pub(super) congestion: Option<String>,
    #[serde(default = "default_hold")]
    pub(super) hold_seconds: u64,
    #[serde(default = "default_window")]
    pub(super) window_bytes: u64,
    #[serde(default = "default_connections")]
    pub(super) max_connections: usize,
    #[serde(default = "default_memory")]
    pub(super) max_waiting_bytes: u64,
    pub(super) link_rate_in_bits: Option<u64>,
    pub(super) link_rate_out_bits: Option<u64>,
    pub(super) payload: Option<usize>,
    /// `None`: where this host has TUN devices.
    pub(super) carry: Option<bool>,
    pub(super) carry_deadline_ms: Option<u64>,
    #[serde(default = "default_mtu")]
    pub(super) carry_mtu: u32,
    #[serde(default = "default_flows")]
    pub(super) max_flows: usize,
    #[serde(default)]
    pub(super) prefer: Prefer,
    #[serde(default)]
    pub(super) shared_link: SharedLinks,
    pub(super) peer: Vec<WrittenPeer>,
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenPeer {
    pub(super) name: String,
    /// `None`: where it asks from.
    pub(super) address: Option<String>,
    /// Whether users' connections and packets of here may go to it.
    pub(super) users: Option<bool>,
    /// The name of the link on which it is together with others, and its part of that.
    pub(super) shared_link: Option<String>,
    pub(super) weight: Option<u8>,
    /// The protocol by which users' connections travel to it.
    #[serde(default)]
    pub(super) protocol: Protocol,
    pub(super) ack_every: Option<u32>,
}

impl WrittenPeer {
    /// The keys of a peer that cannot change while a gateway runs.
    pub(super) fn lasting(&self) -> (&str, Option<&str>, Option<bool>, WrittenProtocol) {
        (&self.name, self.address.as_deref(), self.users, self.protocol())
    }

    pub(super) fn protocol(&self) -> WrittenProtocol {
        WrittenProtocol { protocol: self.protocol, ack_every: self.ack_every }
    }
}

impl Written {
    /// The link to a peer.
    pub(super) fn link(&self, peer: &WrittenPeer) -> Link {
        (self.link_rate_in_bits, self.link_rate_out_bits, peer.shared_link.is_some())
    }

    /// The keys that cannot change while a gateway runs, with their values.
    pub(super) fn lasting(&self) -> [(&'static str, String); 16] {
        let Self { key, roster, cipher, end_key, .. } = self;
        [
            ("name", self.name.clone()),
            ("listen", self.listen.to_string()),
            ("port", self.port.to_string()),
            ("user", format!("{:?}", self.user)),
            ("key", format!("{key:?}")),
            ("roster", format!("{roster:?}")),
            ("cipher", format!("{cipher:?}")),
            ("end_key", format!("{end_key:?}")),
            ("insecure", self.insecure.to_string()),
            ("window_bytes", self.window_bytes.to_string()),
            ("link_rate_in_bits", format!("{:?}", self.link_rate_in_bits)),
            ("link_rate_out_bits", format!("{:?}", self.link_rate_out_bits)),
            ("payload", format!("{:?}", self.payload)),
            ("carry", format!("{:?}", self.carry)),
            ("carry_mtu", self.carry_mtu.to_string()),
            ("peer", format!("{:?}", self.peer.iter().map(WrittenPeer::lasting).collect::<Vec<_>>())),
        ]
    }

    /// Those of them that `new` has with other values.
    pub(super) fn lasting_changes(&self, new: &Self) -> impl Iterator<Item = &'static str> + use<> {
        let pairs = self.lasting().into_iter().zip(new.lasting());
        pairs.filter(|(old, new)| old != new).map(|((field, _), _)| field)
    }
}

/// The treatment of connections of some kind; the first policy that matches wins.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    pub(super) action: Action,
    #[serde(default)]
    pub(super) from: Vec<String>,
    #[serde(default)]
    pub(super) to: Vec<String>,
    #[serde(default)]
    pub(super) ports: Vec<u16>,
    pub(super) protocol: Option<String>,
    pub(super) order: Option<bool>,
    pub(super) dscp: Option<u8>,
    pub(super) interface: Option<String>,
    pub(super) weight: Option<u8>,
    pub(super) peer: Option<String>,
    pub(super) open: Option<Open>,
}

/// When a client's SYN is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Open {
    /// At once.
    Early,
    /// When the target has accepted.
    Confirmed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    Split,
    Carry,
    Pass,
}

/// The greatest weight of a policy: 32 packets in a turn are 17 ms at 20 Mbit/s, for which other connections wait.
pub(in crate::gateway) const MOST_WEIGHT: u8 = 32;

fn default_mtu() -> u32 {
    1500
}

fn default_flows() -> usize {
    CarrySettings::default().max_flows
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 4433))
}

fn default_port() -> u16 {
    4434
}

fn default_hold() -> u64 {
    60
}

fn default_window() -> u64 {
    GatewaySettings::default().window
}

fn default_connections() -> usize {
    20_000
}

fn default_memory() -> u64 {
    GatewaySettings::default().max_waiting
}
