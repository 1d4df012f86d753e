//! Checks of the file: the field at fault, and its fault.

use super::super::by_rate;
use super::super::policy::{protocol, protocol_names};
use super::resolve;
use super::written::{Action, MOST_WEIGHT, Open, Policy, Written};
use crate::security::credential;
use nix::unistd::User;
use starhop_proto::security::Algorithm;

pub(super) type Wrong = (String, String);

pub(super) fn check(written: &Written) -> Result<(), Wrong> {
    let wrong = |field: &str, problem: &str| Err((field.to_owned(), problem.to_owned()));
    if written.name.is_empty() {
        return wrong("name", "is empty: peers know this gateway by it");
    }
    if written.key.is_none() && credential("starhop.key").is_none() && !written.insecure {
        return wrong("key", "is missing: name a key file, or say `insecure = true` for plain packets");
    }
    if let Some(name) = written.user.as_deref().filter(|name| !matches!(User::from_name(name), Ok(Some(_)))) {
        return Err(("user".to_owned(), format!("is `{name}`, whom this host does not know")));
    }
    if written.cipher.as_deref().is_some_and(|name| Algorithm::named(name).is_none()) {
        let names = Algorithm::ALL.map(|(name, _)| name).join(", ");
        return Err(("cipher".to_owned(), format!("is unknown; there are {names}")));
    }
    let is_alone = written.roster.is_some() && written.end_key.is_none();
    if is_alone && !written.insecure {
        let problem =
            "is missing: with a roster each gateway's `key` is its own, and both need one that they share";
        return wrong("end_key", problem);
    }
    if written.peer.is_empty() {
        return wrong("peer", "is missing: a gateway needs at least one [[peer]]");
    }
    if written.window_bytes < 65_536 || written.window_bytes > 256 << 20 {
        return wrong("window_bytes", "must lie between 65536 and 268435456");
    }
    if written.link_rate_in_bits == Some(0) || written.link_rate_out_bits == Some(0) {
        return wrong("link_rate_in_bits, link_rate_out_bits", "cannot be 0: nothing would ever be sent");
    }
    if !(576..=65_535).contains(&written.carry_mtu) {
        return wrong("carry_mtu", "must lie between 576 and 65535");
    }
    if written.carry_deadline_ms == Some(0) {
        return wrong("carry_deadline_ms", "cannot be 0: nothing would ever be carried");
    }
    for (n, policy) in written.policy.iter().enumerate() {
        check_policy(policy, written.carry)
            .map_err(|(field, problem)| (format!("policy[{n}].{field}"), problem))?;
        if let Some(name) =
            policy.peer.as_ref().filter(|name| !written.peer.iter().any(|peer| peer.name == **name))
        {
            return Err((format!("policy[{n}].peer"), format!("is `{name}`, which no [[peer]] is called")));
        }
    }
    if !written.intercept.is_empty() && written.peer.iter().all(|peer| peer.users == Some(false)) {
        return wrong("peer", "has `users = false` everywhere: nobody is left for what `intercept` takes");
    }
    written.shared_link.check()?;
    for (n, peer) in written.peer.iter().enumerate() {
        let shared = written.shared_link.check_peer(peer.shared_link.as_deref(), peer.weight);
        shared.map_err(|(field, problem)| (format!("peer[{n}].{field}"), problem))?;
        let protocol = by_rate::check(peer.protocol(), written.link(peer));
        protocol.map_err(|(field, problem)| (format!("peer[{n}].{field}"), problem))?;
        if peer.name == written.name {
            return Err((format!("peer[{n}].name"), "is this gateway's own name".to_owned()));
        }
        if let Some(address) = peer.address.as_deref().filter(|address| resolve(address).is_none()) {
            let problem = format!("is `{address}`, which is no HOST:PORT with an address");
            return Err((format!("peer[{n}].address"), problem));
        }
    }
    Ok(())
}

fn check_policy(policy: &Policy, carry: Option<bool>) -> Result<(), Wrong> {
    let wrong = |field: &str, problem: String| Err((field.to_owned(), problem));
    if let Some(name) = policy.protocol.as_deref().filter(|name| protocol(name).is_none()) {
        return wrong("protocol", format!("is `{name}`; there are {}", protocol_names()));
    }
    if policy.action == Action::Carry && carry == Some(false) {
        return wrong("action", "is `carry`, and `carry = false` forbids that".to_owned());
    }
    if policy.action == Action::Split && policy.protocol.as_deref().is_some_and(|name| name != "tcp") {
        return wrong("protocol", "must be `tcp` where the action is `split`".to_owned());
    }
    let has_ports = matches!(policy.protocol.as_deref(), None | Some("tcp" | "udp" | "sctp" | "dccp"));
    if !policy.ports.is_empty() && !has_ports {
        return wrong("ports", "are of no use with a protocol that has none".to_owned());
    }
    if policy.order.is_some() && (policy.action != Action::Carry || policy.interface.is_some()) {
        let problem = "goes with the action `carry`, and not with an interface, which packets do not tell";
        return wrong("order", problem.to_owned());
    }
    let is_told = policy.action != Action::Pass && policy.interface.is_none();
    if policy.weight.is_some() && !is_told {
        let problem = "goes with the actions `split` and `carry`, and not with an interface, which neither connections nor packets tell";
        return wrong("weight", problem.to_owned());
    }
    if policy.peer.is_some() && !(is_told && policy.action == Action::Split) {
        let problem =
            "goes with the action `split`, and not with an interface, which connections do not tell";
        return wrong("peer", problem.to_owned());
    }
    if policy.open == Some(Open::Confirmed) && carry == Some(false) {
        let problem =
            "cannot be `confirmed` with `carry = false`: SYNs wait, and pass, by the devices that it forbids";
        return wrong("open", problem.to_owned());
    }
    if policy.open.is_some() && policy.action != Action::Split {
        return wrong("open", "goes with the action `split`: otherwise the target answers itself".to_owned());
    }
    if policy.weight.is_some_and(|weight| !(1..=MOST_WEIGHT).contains(&weight)) {
        return wrong("weight", format!("must lie between 1 and {MOST_WEIGHT}"));
    }
    Ok(())
}
