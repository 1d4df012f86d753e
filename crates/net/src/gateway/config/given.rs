//! Keys that are given beside the file, as options.

use super::GatewayConfigError;
use super::written::Written;
use serde::Deserialize;
use serde::de::Error;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The options that keys of the file have, with dashes for underscores, and their help. Policies and shared links, which are
/// tables, are in the file alone.
pub const KEYS: [(&str, &str); 25] = [
    ("name", "Name of this gateway, by which its peers know it"),
    ("listen", "Address of UDP at which datagrams of peers and relays arrive"),
    ("peer", "The other gateways: NAME=ADDRESS,…; NAME alone for one that asks from wherever it is"),
    ("intercept", "Interfaces whose TCP connections are taken: lan0,lan1"),
    ("port", "The TCP port to which the firewall diverts connections"),
    ("user", "The user that the process becomes when root starts it"),
    ("key", "Key file of the hops"),
    ("roster", "Roster of the domain, instead of a common key"),
    ("cipher", "Cipher of the hops"),
    ("end-key", "Key file with which users' bytes are sealed from gateway to gateway"),
    ("insecure", "Plain packets: `true` without a key"),
    ("nat", "`true`: targets see this host's address, not the client's"),
    ("congestion", "The kernel's congestion control of connections with users"),
    ("hold-seconds", "Time until connections of a silent peer are reset"),
    ("window-bytes", "Bytes asked of a peer ahead at first; more where the path holds more"),
    ("max-connections", "Connections beyond which new ones take the plain path"),
    ("max-waiting-bytes", "Users' bytes that wait here beyond which new connections take the plain path"),
    ("link-rate-in-bits", "Rate of the link from the peers in bit/s, where it is known"),
    ("link-rate-out-bits", "Rate of the link to the peers in bit/s, where it is known"),
    ("payload", "The longest payload of a packet in bytes"),
    ("carry", "`false`: packets that are not split take the plain path"),
    ("carry-deadline-ms", "Time that a packet may wait to be sent and for its repair"),
    ("carry-mtu", "The longest packet that is carried"),
    ("max-flows", "Flows of packets at once with each peer"),
    ("prefer", "Choice among the peers that answer: `first` or `nearest`"),
];

/// The places that a configuration comes from: a file, and keys that are given beside it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// They take the place of the file's.
    given: Table,
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self { path: path.to_owned(), given: Table::new() }
    }
}

impl Source {
    /// Gives the key of this option a value: a number or a truth value as TOML has it, or text. Lists are separated by commas.
    pub fn give(&mut self, option: &str, value: &str) {
        let key = option.replace('-', "_");
        let value = match &*key {
            "intercept" => Value::Array(value.split(',').map(Value::from).collect()),
            "peer" => Value::Array(value.split(',').map(peer).collect()),
            "name" | "user" | "key" | "roster" | "end_key" => Value::from(value),
            _ => scalar(value),
        };
        self.given.insert(key, value);
    }

    /// Reads the file, if there is one, and puts the given keys over its own. Without a file all keys have to be given.
    pub(super) fn read(&self) -> Result<Written, GatewayConfigError> {
        let text = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.given.is_empty() => {
                String::new()
            }
            read => read.map_err(|cause| GatewayConfigError::Read { path: self.path.clone(), cause })?,
        };
        self.parse(&text)
    }

    /// The same of a file with this text.
    pub(super) fn parse(&self, text: &str) -> Result<Written, GatewayConfigError> {
        let form = |cause| GatewayConfigError::Form { path: self.path.clone(), cause };
        if self.given.is_empty() {
            // The error has the line.
            return toml::from_str(text).map_err(form);
        }
        let mut table: Table = toml::from_str(text).map_err(form)?;
        table.extend(self.given.clone());
        let with_options =
            |error: toml::de::Error| toml::de::Error::custom(format!("with the options: {error}"));
        Written::deserialize(table).map_err(with_options).map_err(form)
    }
}

/// `NAME=ADDRESS`, or `NAME`.
fn peer(text: &str) -> Value {
    let entries = match text.split_once('=') {
        Some((name, address)) => vec![("name", name), ("address", address)],
        None => vec![("name", text)],
    };
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect())
}

/// A number or a truth value as it is; everything else is text.
fn scalar(text: &str) -> Value {
    let number = text.parse::<i64>().map(Value::from);
    let truth = || text.parse::<bool>().map(Value::from);
    number.or_else(|_| truth()).unwrap_or_else(|_| Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::super::GatewayConfig;
    use super::*;

    fn source(given: &[(&str, &str)]) -> Source {
        let mut source = Source::from(Path::new("/nowhere/gateway.toml"));
        given.iter().for_each(|(key, value)| source.give(key, value));
        source
    }

    #[test]
    fn a_gateway_needs_no_file_if_all_is_given() {
        let given = [
            ("name", "hub"),
            ("insecure", "true"),
            ("peer", "site=10.0.0.2:4433,ship"),
            ("intercept", "a,b"),
        ];
        let written = source(&given).read().unwrap();
        assert_eq!((written.name.as_str(), written.insecure), ("hub", true));
        assert_eq!(written.intercept, ["a", "b"]);
        let peers: Vec<_> = written.peer.iter().map(|peer| (&*peer.name, peer.address.as_deref())).collect();
        assert_eq!(peers, [("site", Some("10.0.0.2:4433")), ("ship", None)]);
        assert!(GatewayConfig::load(&source(&given)).is_ok());
        assert!(source(&[]).read().is_err(), "there is no file");
    }

    #[test]
    fn a_given_key_takes_the_place_of_the_files() {
        let text = "name = \"site\"\ninsecure = true\nport = 9\n[[peer]]\nname = \"hub\"\n";
        let written = source(&[("port", "4434"), ("congestion", "bbr")]).parse(text).unwrap();
        assert_eq!((written.name.as_str(), written.port), ("site", 4434));
        assert_eq!(written.congestion.as_deref(), Some("bbr"));
    }

    #[test]
    fn a_wrong_value_is_named() {
        let text = "name = \"site\"\ninsecure = true\n[[peer]]\nname = \"hub\"\n";
        let error = source(&[("port", "lan")]).parse(text).unwrap_err().to_string();
        assert!(error.contains("port") && error.contains("options"), "{error}");
    }

    #[test]
    fn every_key_of_the_commented_example_is_an_option_unless_it_is_a_table() {
        let example = include_str!("../../../../../docs/guide/gateway.toml");
        let top = example.split("\n# [[").next().unwrap_or(example).split("\n[[").next().unwrap_or(example);
        let keys = top.lines().filter_map(|line| {
            let (key, _) = line.trim_start_matches("# ").split_once(" = ")?;
            key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_').then_some(key)
        });
        let mut seen = 0;
        for key in keys {
            assert!(KEYS.iter().any(|(known, _)| known.replace('-', "_") == key), "`{key}` is no option");
            seen += 1;
        }
        assert!(seen > 15, "{seen} keys");
    }
}
