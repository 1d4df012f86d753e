//! The routing rules that deliver diverted packets to this host, for any destination address.

use futures_util::TryStreamExt;
use rtnetlink::packet_route::route::{RouteMessage, RouteScope, RouteType};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleMessage};
use rtnetlink::{Error, Handle, IpVersion, RouteMessageBuilder};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Ahead of the rules of an ordinary host, which begin at 32766.
const PRIORITY: u32 = 100;
/// The loopback device is always the first.
const LOOPBACK: u32 = 1;

/// Delivers packets that carry `mark` here, by a rule and a routing table of the same number.
pub(super) fn add(mark: u32) -> io::Result<()> {
    run(async move |handle| {
        for rule in rules(&handle, mark) {
            // The message says for which IP version it is; the type does not matter.
            let mut request = handle.rule().add().v4();
            *request.message_mut() = rule;
            request.execute().await?;
        }
        for route in routes(mark) {
            handle.route().add(route).replace().execute().await?;
        }
        Ok(())
    })
}

/// Gives packets that carry `mark` to a device, by a rule and a routing table of the same number. Without the device the
/// table is empty, and packets go on as without a mark.
pub(super) fn add_device(mark: u32, device: &str) -> io::Result<()> {
    let index = nix::net::if_::if_nametoindex(device)?;
    run(async move |handle| {
        for rule in rules(&handle, mark) {
            let mut request = handle.rule().add().v4();
            *request.message_mut() = rule;
            request.execute().await?;
        }
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new().table_id(mark).output_interface(index);
        let v6 = RouteMessageBuilder::<Ipv6Addr>::new().table_id(mark).output_interface(index);
        for route in [v4.scope(RouteScope::Link).build(), v6.build()] {
            handle.route().add(route).replace().execute().await?;
        }
        Ok(())
    })
}

/// Whether the rules of both IP versions are there.
pub(super) fn are_there(mark: u32) -> io::Result<bool> {
    run(async move |handle| {
        for version in [IpVersion::V4, IpVersion::V6] {
            let rules: Vec<RuleMessage> = handle.rule().get(version).execute().try_collect().await?;
            let is_ours = |rule: &RuleMessage| rule.attributes.contains(&RuleAttribute::FwMark(mark));
            if !rules.iter().any(is_ours) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

/// Removes the rules of [`add`]; missing rules are no error.
pub(super) fn remove(mark: u32) -> io::Result<()> {
    run(async move |handle| {
        for rule in rules(&handle, mark) {
            missing_is_fine(handle.rule().del(rule).execute().await)?;
        }
        for route in routes(mark) {
            missing_is_fine(handle.route().del(route).execute().await)?;
        }
        Ok(())
    })
}

fn rules(handle: &Handle, mark: u32) -> [RuleMessage; 2] {
    let rule = || {
        let action = rtnetlink::packet_route::rule::RuleAction::ToTable;
        handle.rule().add().fw_mark(mark).table_id(mark).priority(PRIORITY).action(action)
    };
    [rule().v4().message_mut().clone(), rule().v6().message_mut().clone()]
}

fn routes(mark: u32) -> [RouteMessage; 2] {
    let v4 = RouteMessageBuilder::<Ipv4Addr>::new().table_id(mark).output_interface(LOOPBACK);
    let v6 = RouteMessageBuilder::<Ipv6Addr>::new().table_id(mark).output_interface(LOOPBACK);
    [
        v4.kind(RouteType::Local).scope(RouteScope::Host).build(),
        v6.kind(RouteType::Local).scope(RouteScope::Host).build(),
    ]
}

fn missing_is_fine(done: Result<(), Error>) -> Result<(), Error> {
    const MISSING: [i32; 2] = [libc::ENOENT, libc::ESRCH];
    match done {
        Err(Error::NetlinkError(message)) if MISSING.contains(&-message.raw_code()) => Ok(()),
        // A kernel without the IP version has nothing to remove.
        Err(Error::NetlinkError(message)) if -message.raw_code() == libc::EAFNOSUPPORT => Ok(()),
        done => done,
    }
}

fn run<T: Send + 'static, W: Future<Output = Result<T, Error>> + Send + 'static>(
    work: impl FnOnce(Handle) -> W + Send + 'static,
) -> io::Result<T> {
    // A thread of its own: the caller may be within a runtime, in which another cannot be waited for.
    let body = move || {
        crate::daemon::runtime()?.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            let connection = tokio::spawn(connection);
            let done =
                work(handle).await.map_err(|error| io::Error::other(format!("routing rules: {error}")));
            connection.abort();
            done
        })
    };
    std::thread::spawn(body).join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}
