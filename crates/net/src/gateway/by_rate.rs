//! Peers to which connections travel by the rate-based protocol of connection splitting.

use super::shared::Shared;
use crate::sys::tcp_rtt::tcp_rtt;
use serde::Deserialize;
use socket2::SockRef;
use starhop_proto::gateway::StreamId;
use starhop_proto::split::{SplitConfig, SplitSettings};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::os::fd::AsFd;
use tokio::net::TcpStream;

/// A receiver acknowledges no later than this after a segment, as Linux' TCP does.
const ACK_DELAY: Duration = Duration::from_millis(40);
/// Acknowledgements of one segment each, at most: 1,000 segments are 0.6 s at 20 Mbit/s.
const ACK_EVERY: std::ops::RangeInclusive<u32> = 1..=1_000;
/// The kernel's least buffer of a socket that makes sense, bytes: two segments of a local network.
const LEAST_BUFFER: u64 = 2 * 1_460;

/// The protocol by which connections travel to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Protocol {
    /// Starhop's own, hop by hop.
    #[default]
    Starhop,
    /// The rate-based protocol of connection splitting, over one link of known rate.
    RateSplit,
}

/// The keys of a peer that say by which protocol its connections travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WrittenProtocol {
    pub(super) protocol: Protocol,
    pub(super) ack_every: Option<u32>,
}

/// The rates of the link, from the peers and to them, and whether the peer shares its link with others.
pub(super) type Link = (Option<u64>, Option<u64>, bool);

/// Checks the keys of a peer on a link.
///
/// # Errors
/// The field at fault, and its fault.
pub(super) fn check(written: WrittenProtocol, (into, out, is_shared): Link) -> Result<(), (String, String)> {
    let wrong = |field: &str, problem: &str| Err((field.to_owned(), problem.to_owned()));
    if written.protocol == Protocol::Starhop {
        return match written.ack_every {
            None => Ok(()),
            Some(_) => wrong("ack_every", "goes with `protocol = \"rate-split\"`"),
        };
    }
    if into.is_none() || out.is_none() {
        let problem = "is `rate-split`, which sends at the rate of a link that is known: `link_rate_in_bits` and `link_rate_out_bits` are missing";
        return wrong("protocol", problem);
    }
    if is_shared {
        let problem = "is `rate-split`, which has the link to itself: take `shared_link` away";
        return wrong("protocol", problem);
    }
    match written.ack_every {
        Some(every) if !ACK_EVERY.contains(&every) => wrong("ack_every", "must lie between 1 and 1000"),
        _ => Ok(()),
    }
}

/// The settings of a peer that was checked; `None` where Starhop's own protocol carries its connections.
pub(super) fn settings(written: WrittenProtocol, (_, out, _): Link) -> Option<SplitConfig> {
    let rate = out.filter(|_| written.protocol == Protocol::RateSplit).map(Rate::from_bps)?;
    let standard = SplitSettings::new(rate);
    let ack_every = written.ack_every.unwrap_or(standard.ack_every);
    SplitConfig::new(SplitSettings { ack_every, ack_delay: ACK_DELAY, ..standard }).ok()
}

/// The round trip of a user's connection, as the kernel has measured it.
pub(super) fn user_rtt(socket: &TcpStream) -> Option<Duration> {
    tcp_rtt(socket.as_fd()).map(|rtt| Duration::from_nanos(rtt.as_nanos() as u64))
}

/// Sizes the buffers of a user's connection for the rate of the link and both round trips, where its bytes travel by
/// that protocol. The kernel's buffer is TCP's window towards the user: what is not read is not sent.
pub(super) fn size_buffers(shared: &Shared, stream: StreamId, socket: &TcpStream) {
    let Some(rtt) = user_rtt(socket) else { return };
    let size = shared.change(|_, gateway| gateway.set_user_rtt(stream, rtt));
    if let Some(size) = size {
        // A refusal leaves the kernel's own size, which is larger.
        let _ = SockRef::from(socket).set_recv_buffer_size(size.max(LEAST_BUFFER) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = (Some(20_000_000), Some(5_000_000), false);

    fn written(protocol: Protocol, ack_every: Option<u32>) -> WrittenProtocol {
        WrittenProtocol { protocol, ack_every }
    }

    #[test]
    fn the_protocol_needs_both_rates_and_the_link_for_itself() {
        let by_rate = written(Protocol::RateSplit, Some(16));
        assert_eq!(check(by_rate, LINK), Ok(()));
        for link in [(None, LINK.1, false), (LINK.0, None, false), (LINK.0, LINK.1, true)] {
            let (field, problem) = check(by_rate, link).unwrap_err();
            assert_eq!(field, "protocol", "{problem}");
        }
        let field =
            |every| check(written(Protocol::RateSplit, Some(every)), LINK).map_err(|(field, _)| field);
        assert_eq!((field(0), field(1_001)), (Err("ack_every".to_owned()), Err("ack_every".to_owned())));
        assert!(check(written(Protocol::Starhop, Some(2)), LINK).is_err());
        assert_eq!(check(written(Protocol::Starhop, None), (None, None, true)), Ok(()));
    }

    #[test]
    fn segments_leave_at_the_rate_towards_the_peer() {
        let settings = settings(written(Protocol::RateSplit, Some(16)), LINK).unwrap();
        assert_eq!((settings.rate, settings.ack_every), (Rate::from_bps(5_000_000), 16));
        assert!(super::settings(written(Protocol::Starhop, None), LINK).is_none());
    }
}
