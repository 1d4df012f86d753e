//! The verbs, one file each.

pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod desk;
pub(crate) mod doctor;
pub(crate) mod emulate;
pub(crate) mod fec;
pub(crate) mod figure;
pub(crate) mod gateway;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod key;
pub(crate) mod logging;
pub(crate) mod ls;
pub(crate) mod mechanisms;
mod memory;
pub(crate) mod names;
pub(crate) mod orbit;
pub(crate) mod relay;
mod reload;
pub(crate) mod report;
pub(crate) mod roster;
pub(crate) mod sealing;
pub(crate) mod serve;
mod service;
pub(crate) mod setup;
pub(crate) mod sim;
pub(crate) mod split_proxy;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod sweep;
pub(crate) mod tcp;
pub(crate) mod xcp_router;

use starhop_proto::config::{Controller, Settings};
use starhop_proto::units::Rate;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};

/// A host and port, resolved; the first address wins.
fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| {
        format!("{error}; an address is HOST:PORT, such as 192.0.2.1:4433 or [2001:db8::1]:4433")
    })?;
    found.next().ok_or_else(|| "the host has no address".to_owned())
}

/// The operator knows the rate of the link: nothing need be measured.
fn fix_rate(settings: &mut Settings, rate: Option<Rate>) {
    if let Some(rate) = rate {
        settings.controller = Controller::Fixed(rate);
    }
}

/// The operator wants something left for others.
fn limit_rate(settings: &mut Settings, limit: Option<Rate>) {
    settings.rate_limit = limit.unwrap_or(settings.rate_limit);
}

/// Prints one line to standard output, at once. Errors are ignored, because a closed output has no reader.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// An event as one line of JSON on standard output, with its time.
fn tell(mut event: serde_json::Value) {
    event["timestamp"] = starhop_net::operate::log::timestamp().into();
    say(&event.to_string());
}

/// Prints results to standard output. A reader that closes the pipe early is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(e).context("cannot write the results"))
        }
        _ => Ok(()),
    }
}
