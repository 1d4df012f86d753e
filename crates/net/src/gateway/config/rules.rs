//! The firewall's rules of a file.

use super::super::policy::{FOR_THE_LINK, protocol};
use super::check::Wrong;
use super::written::{Action, Open, Policy, Written};
use crate::prefix::Prefix;
use crate::transparent::firewall::{CARRY_MARK, GATEWAY_MARK, HOLD_MARK, SYN, divert, passing};

/// The firewall's rules: the policies in turn, then that TCP of the interfaces is split, and that the rest is carried.
pub(super) fn rules(written: &Written) -> Result<String, Wrong> {
    let mut lines = String::new();
    let Some(interfaces) = interfaces(&written.intercept)? else { return Ok(lines) };
    let mark = GATEWAY_MARK | u32::from(written.port);
    // Later packets of a connection follow its socket. A connection that began on the plain path has none here, and the
    // listener would reset it.
    let split = |matches: &str| divert(&format!("{matches} {SYN}"), written.port, mark);
    let hold_mark = HOLD_MARK | u32::from(written.port);
    let hold = |matches: &str| format!("    {matches} {SYN} meta mark set {hold_mark} accept\n");
    let carry_mark = CARRY_MARK | u32::from(written.port);
    let carry = |matches: &str| format!("    {matches} meta mark set {carry_mark} accept\n");
    let carries = written.carry != Some(false);
    if carries {
        lines += FOR_THE_LINK;
    }
    for (n, policy) in written.policy.iter().enumerate() {
        let on = match &policy.interface {
            Some(name) => interfaces_of(std::slice::from_ref(name), &format!("policy[{n}].interface"))?,
            None => interfaces.clone(),
        };
        for (is_v4, matches) in matches(policy, n)? {
            let matches = format!("{on}{matches}");
            match policy.action {
                Action::Pass => lines += &passing(&matches, n),
                Action::Carry => lines += &carry(&matches),
                Action::Split if policy.open == Some(Open::Confirmed) => lines += &hold(&matches),
                Action::Split => {
                    let [v4, v6] = split(&matches);
                    lines += if is_v4 { &v4 } else { &v6 };
                }
            }
        }
    }
    lines.extend(split(&format!("{interfaces} meta l4proto tcp")));
    if carries {
        lines += &carry(&format!("{interfaces} meta l4proto != tcp"));
    }
    Ok(lines)
}

fn interfaces(names: &[String]) -> Result<Option<String>, Wrong> {
    if names.is_empty() { Ok(None) } else { interfaces_of(names, "intercept").map(Some) }
}

fn interfaces_of(names: &[String], field: &str) -> Result<String, Wrong> {
    let is_name = |name: &String| {
        (1..=15).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_@".contains(c))
    };
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        return Err((field.to_owned(), format!("names `{name}`, which is no name of a network interface")));
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    Ok(format!("iifname {{ {} }}", quoted.join(", ")))
}

/// The conditions of a policy as rules of the firewall, one for each IP version that it names, and whether that is IPv4.
fn matches(policy: &Policy, n: usize) -> Result<Vec<(bool, String)>, Wrong> {
    let rest = of_protocol(policy);
    let prefixes = |list: &[String], field: &str, is_v4: bool| -> Result<Option<String>, Wrong> {
        let mut of_version = Vec::new();
        for text in list {
            let prefix = Prefix::parse(text)
                .map_err(|problem| (format!("policy[{n}].{field}"), format!("has `{text}`, {problem}")))?;
            if prefix.is_ipv4() == is_v4 {
                of_version.push(text.clone());
            }
        }
        Ok(Some(of_version.join(", ")).filter(|joined| !joined.is_empty()))
    };
    if policy.dscp.is_some_and(|dscp| dscp > 63) {
        return Err((format!("policy[{n}].dscp"), "must lie between 0 and 63".to_owned()));
    }
    let mut all = Vec::new();
    for (is_v4, family, version) in [(true, "ip", "ipv4"), (false, "ip6", "ipv6")] {
        let (from, to) = (prefixes(&policy.from, "from", is_v4)?, prefixes(&policy.to, "to", is_v4)?);
        let is_other = |list: &[String], found: &Option<String>| !list.is_empty() && found.is_none();
        if is_other(&policy.from, &from) || is_other(&policy.to, &to) {
            continue;
        }
        let mut line = format!(" meta nfproto {version}");
        from.iter().for_each(|from| line += &format!(" {family} saddr {{ {from} }}"));
        to.iter().for_each(|to| line += &format!(" {family} daddr {{ {to} }}"));
        policy.dscp.iter().for_each(|dscp| line += &format!(" {family} dscp {dscp}"));
        all.push((is_v4, line + &rest));
    }
    Ok(all)
}

/// The matches of a policy for a packet's protocol and ports.
fn of_protocol(policy: &Policy) -> String {
    let numbers = match (policy.action, policy.protocol.as_deref().and_then(protocol)) {
        (Action::Split, _) => Some(&[6][..]),
        (_, Some(numbers)) => Some(numbers),
        (_, None) if policy.ports.is_empty() => None,
        (_, None) => Some(&[6, 17][..]),
    };
    let list = |numbers: Vec<String>| format!("{{ {} }}", numbers.join(", "));
    let mut rest = String::new();
    if let Some(numbers) = numbers {
        rest += &format!(" meta l4proto {}", list(numbers.iter().map(u8::to_string).collect()));
    }
    if !policy.ports.is_empty() {
        rest += &format!(" th dport {}", list(policy.ports.iter().map(u16::to_string).collect()));
    }
    rest
}
