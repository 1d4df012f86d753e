//! The checks of `starhop doctor` around the firewall: rules that nobody stands behind, and the needs of the gateways that
//! are configured on this host.

use super::doctor::Finding;
use super::socket::{Address, ask};
use crate::gateway::{GatewayConfig, shortage};
use crate::transparent::firewall::gateway_table;
use nix::sys::resource::{Resource, getrlimit};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Name of the check of rules.
const FIREWALL: &str = "firewall";

/// A gateway of this host.
struct Gateway {
    /// The TCP port, which names its table.
    port: u16,
    /// Whether it answers `starhop status`.
    is_running: bool,
}

/// Looks at rules, and at the gateways of these configurations; `nodes` run on this host.
pub(super) fn examine(configurations: &[PathBuf], nodes: &[Address]) -> Vec<Finding> {
    let (mut findings, mut gateways) = (Vec::new(), Vec::new());
    for path in configurations {
        let check = format!("gateway {}", path.display());
        let config = match GatewayConfig::load(&path.as_path().into()) {
            Ok(config) => config,
            Err(error) => {
                let cure = "`starhop check FILE` looks again";
                findings.push(Finding::failure(&check, error.to_string(), cure));
                continue;
            }
        };
        let name = format!("gateway-{}", config.listen().port());
        let node = nodes.iter().find(|node| node.name == name);
        gateways.push(Gateway { port: config.port(), is_running: node.is_some() });
        findings.push(room(&check, &config, node));
    }
    match ruleset() {
        Some(ruleset) => findings.extend(rules(&ruleset, nodes, &gateways)),
        None => findings.push(Finding::warning(
            FIREWALL,
            "rules cannot be seen: no `nft` here, or no permission",
            "only gateways and transparent relays need nftables; look as root",
        )),
    }
    findings
}

/// Whether a gateway may open a descriptor for each connection: by its own limit if it runs, else by the hard limit of
/// this process, to which a gateway raises its own.
fn room(check: &str, config: &GatewayConfig, node: Option<&Address>) -> Finding {
    let running = node.and_then(|node| ask(&node.path, "status").ok());
    let own = running.as_ref().and_then(|status| status["descriptors"][1].as_u64());
    let limit = own.unwrap_or_else(|| getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard));
    let whose = if own.is_some() { "it" } else { "it does not run; this shell" };
    match shortage(config, limit) {
        Some(shortage) => {
            let cure = "a descriptor for each connection and 128 for itself; its unit has LimitNOFILE=131072";
            Finding::warning(check, shortage, cure)
        }
        None => {
            let found = format!("{whose} may open {limit} file descriptors, enough for `max_connections`");
            Finding::ok(check, found)
        }
    }
}

fn ruleset() -> Option<Value> {
    let listed = Command::new("nft").args(["-j", "list", "ruleset"]).stdin(Stdio::null()).output();
    let output = listed.ok().filter(|output| output.status.success())?;
    serde_json::from_slice(&output.stdout).ok()
}

/// Findings about a listing of all rules: tables without their node, gateways without their table, and rules of others
/// in their way.
fn rules(ruleset: &Value, nodes: &[Address], gateways: &[Gateway]) -> Vec<Finding> {
    let tables: Vec<&str> = objects(ruleset, "table").filter_map(|table| table["name"].as_str()).collect();
    let mut findings = Vec::new();
    for Gateway { port, is_running } in gateways {
        let table = gateway_table(*port);
        let is_there = tables.iter().any(|name| table.ends_with(&format!(" {name}")));
        let found = format!("a gateway runs, and its table `{table}` is not there: connections pass it by");
        let cure = "its log says why; it sets its rules again within a second where somebody removes them";
        if *is_running && !is_there {
            findings.push(Finding::failure(FIREWALL, found, cure));
        }
    }
    let has_gateway = nodes.iter().any(|node| node.name.starts_with("gateway-"));
    let is_stale = |name: &&&str| match (port(name, "relay"), port(name, "gateway")) {
        (Some(port), _) => !nodes.iter().any(|node| node.name == format!("relay-{port}")),
        (_, Some(port)) => match gateways.iter().find(|gateway| gateway.port == port) {
            Some(gateway) => !gateway.is_running,
            None => !has_gateway,
        },
        _ => false,
    };
    let ours: Vec<&&str> = tables.iter().filter(|name| is_ours(name)).collect();
    for name in ours.iter().filter(|name| is_stale(name)) {
        let found = format!("`{name}` diverts packets, and no such node answers `starhop status`");
        let cure = format!("if none runs: nft delete table inet {name}");
        findings.push(Finding::warning(FIREWALL, found, cure));
    }
    if !ours.is_empty() {
        findings.extend(others(ruleset).map(|chain| {
            let found = format!("{chain} diverts, marks or drops packets before they are routed, as our rules do");
            let cure = "see `nft list ruleset` whether it takes packets of users, or changes their mark (`meta mark`)";
            Finding::warning(FIREWALL, found, cure)
        }));
    }
    if findings.is_empty() {
        let ours = ours.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let found = format!("packets are diverted by {ours}, and nobody is in the way");
        let nothing = "nothing is diverted".to_owned();
        findings.push(Finding::ok(FIREWALL, if ours.is_empty() { nothing } else { found }));
    }
    findings
}

/// Chains of others that see packets before they are routed and do more than let them pass.
fn others(ruleset: &Value) -> impl Iterator<Item = String> {
    let chains = objects(ruleset, "chain")
        .filter(|chain| chain["hook"] == "prerouting" && !chain["table"].as_str().is_some_and(is_ours));
    chains.filter_map(|chain| {
        let is_of_it = |rule: &&Value| {
            ["family", "table"].iter().all(|key| rule[key] == chain[key]) && rule["chain"] == chain["name"]
        };
        let changes =
            chain["policy"] == "drop" || objects(ruleset, "rule").filter(is_of_it).any(takes_packets);
        let word = |key: &str| chain[key].as_str().unwrap_or_default();
        changes.then(|| format!("chain `{} {} {}`", word("family"), word("table"), word("name")))
    })
}

fn takes_packets(rule: &Value) -> bool {
    let is_mark = |one: &Value| one["mangle"]["key"]["meta"]["key"] == "mark";
    let takes =
        |one: &Value| is_mark(one) || ["drop", "tproxy", "reject"].iter().any(|word| one.get(word).is_some());
    rule["expr"].as_array().is_some_and(|all| all.iter().any(takes))
}

fn objects<'a>(ruleset: &'a Value, kind: &'static str) -> impl Iterator<Item = &'a Value> + use<'a> {
    ruleset["nftables"].as_array().into_iter().flatten().filter_map(move |object| object.get(kind))
}

fn is_ours(table: &str) -> bool {
    port(table, "relay").is_some() || port(table, "gateway").is_some()
}

/// The port in the name of a table of this role.
fn port(table: &str, role: &str) -> Option<u16> {
    table.strip_prefix("starhop_")?.strip_prefix(role)?.strip_prefix('_')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::doctor::Verdict;
    use super::*;
    use serde_json::json;

    fn table(name: &str) -> Value {
        json!({"table": {"family": "inet", "name": name, "handle": 1}})
    }

    fn foreign(expr: &Value) -> [Value; 3] {
        let of = |name: &str| json!({"family": "ip", "table": "site", name: "early", "hook": "prerouting"});
        let mut rule = of("chain");
        rule["expr"] = expr.clone();
        [table("site"), json!({"chain": of("name")}), json!({"rule": rule})]
    }

    fn node(name: &str) -> Address {
        Address { name: name.to_owned(), path: PathBuf::new() }
    }

    fn verdict(objects: &[Value], nodes: &[&str], gateways: &[Gateway]) -> (Verdict, String) {
        let nodes: Vec<Address> = nodes.iter().map(|name| node(name)).collect();
        let findings = rules(&json!({"nftables": objects}), &nodes, gateways);
        assert_eq!(findings.len(), 1, "{findings:?}");
        (findings[0].verdict, findings[0].found.clone())
    }

    #[test]
    fn a_running_gateway_without_its_table_does_not_work() {
        let gateways = [Gateway { port: 4434, is_running: true }];
        let (verdict_without, found) = verdict(&[table("site")], &["gateway-4433"], &gateways);
        assert!(verdict_without == Verdict::Failure && found.contains("starhop_gateway_4434"), "{found}");
        let (verdict_with, found) = verdict(&[table("starhop_gateway_4434")], &["gateway-4433"], &gateways);
        assert!(verdict_with == Verdict::Ok && found.contains("starhop_gateway_4434"), "{found}");
    }

    #[test]
    fn tables_of_nodes_that_are_gone_are_named() {
        for name in ["starhop_gateway_4434", "starhop_relay_4433"] {
            let (verdict, found) = verdict(&[table(name)], &[], &[]);
            assert!(verdict == Verdict::Warning && found.contains(name), "{found}");
        }
        let gateways = [Gateway { port: 4434, is_running: false }];
        assert_eq!(verdict(&[table("starhop_gateway_4434")], &[], &gateways).0, Verdict::Warning);
        assert_eq!(verdict(&[table("starhop_relay_4433")], &["relay-4433"], &[]).0, Verdict::Ok);
    }

    #[test]
    fn rules_of_others_that_take_or_mark_packets_are_named_beside_ours_only() {
        let mark = json!([{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 7}}]);
        for expr in [mark, json!([{"drop": null}]), json!([{"tproxy": {"port": 3128}}])] {
            let beside = |ours: &str| [&[table(ours)][..], &foreign(&expr)].concat();
            let found = verdict(&beside("starhop_relay_4433"), &["relay-4433"], &[]);
            assert!(found.0 == Verdict::Warning && found.1.contains("`ip site early`"), "{found:?}");
            assert_eq!(verdict(&beside("unrelated"), &[], &[]).0, Verdict::Ok);
        }
        let counting = [&[table("starhop_relay_4433")][..], &foreign(&json!([{"counter": {}}]))].concat();
        assert_eq!(verdict(&counting, &["relay-4433"], &[]).0, Verdict::Ok);
    }
}
