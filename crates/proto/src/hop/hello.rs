//! Hello: the facts that a node tells a neighbour about itself.
//!
//! A node asks its upstream for the flow [`HELLO`], and the upstream answers by itself, with one packet. So a node
//! knows that its upstream is there before any client wants data from it, and how far away it is. Hello is for
//! operators: no part of a hop's control depends on it, it takes no number of the hop's counter, and it is neither
//! kept nor passed on.

use super::Uplinks;
use crate::name::FlowId;
use crate::peer::Peer;
use crate::time::{Duration, Instant};
use crate::wire::DataHeader;
use alloc::vec::Vec;

/// The flow by which a neighbour is asked about itself.
pub const HELLO: FlowId = FlowId(*b"starhop hello v1");

/// Bytes of a version, at most: the answer stays below three times the question, which strangers may be sent.
const MAX_VERSION: usize = 24;

/// The version of a node's program, as it tells it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Version {
    bytes: [u8; MAX_VERSION],
    len: u8,
}

impl Version {
    /// `text`, cut off after 24 bytes.
    pub fn new(text: &str) -> Self {
        let len =
            (0..=text.len().min(MAX_VERSION)).rev().find(|&len| text.is_char_boundary(len)).unwrap_or(0);
        let mut bytes = [0; MAX_VERSION];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self { bytes, len: len as u8 }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl core::fmt::Debug for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The facts that a node tells about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct About {
    /// The version of its program.
    pub version: Version,
    /// The time of day at [`Instant::ZERO`], µs since 1970; `None` where the node does not know it.
    pub epoch: Option<u64>,
}

impl About {
    /// Bytes of the longest answer.
    pub(super) const MAX_LEN: u64 = 8 + MAX_VERSION as u64;

    /// The time of day at `now`, µs since 1970.
    fn time_of_day(&self, now: Instant) -> Option<u64> {
        Some(self.epoch? + now.since(Instant::ZERO).as_nanos() / 1000)
    }

    /// Appends the payload of an answer that leaves at `now`.
    pub(super) fn emit(&self, now: Instant, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.time_of_day(now).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(self.version.as_str().as_bytes());
    }
}

/// A neighbour's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The node that answered.
    pub peer: Peer,
    /// Time of the answer.
    pub at: Instant,
    /// From the question to the answer.
    pub rtt: Option<Duration>,
    /// The version of its program.
    pub version: Version,
    /// Lead of its clock over this node's, µs, to within half of `rtt`; `None` if either does not know the time of
    /// day.
    pub clock_ahead: Option<i64>,
}

impl Greeting {
    /// Reads an answer that arrived at `now`; `None` if it is malformed.
    fn read(now: Instant, peer: Peer, rtt: Option<Duration>, own: &About, payload: &[u8]) -> Option<Self> {
        let (time, version) = payload.split_first_chunk::<8>()?;
        let version = core::str::from_utf8(version).ok().filter(|text| text.len() <= MAX_VERSION)?;
        let theirs = Some(u64::from_be_bytes(*time)).filter(|&time| time > 0);
        let on_the_way = rtt.map_or(0, |rtt| rtt.as_nanos() / 2000);
        let clock_ahead = theirs
            .zip(own.time_of_day(now))
            .map(|(theirs, ours)| theirs.saturating_add(on_the_way).wrapping_sub(ours) as i64);
        Some(Self { peer, at: now, rtt, version: Version::new(version), clock_ahead })
    }
}

impl Uplinks {
    /// An answer of `peer` to [`HELLO`]; `own` is this node's own answer. False if there was no question.
    pub fn on_hello(
        &mut self,
        now: Instant,
        peer: &Peer,
        header: &DataHeader,
        own: &About,
        payload: &[u8],
    ) -> bool {
        let link = self.find(peer.face, HELLO);
        let Some(requester) = link.and_then(|link| self.get_mut(link)) else { return false };
        let rtt = requester.answered(now, header.echo.time).map(|asked| now.since(asked));
        let greeting = Greeting::read(now, *peer, rtt, own, payload);
        requester.greeting = greeting.or(requester.greeting);
        greeting.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{Face, Incarnation, Member};

    fn peer() -> Peer {
        let remote = core::net::SocketAddr::from(([192, 0, 2, 1], 4433));
        Peer {
            face: Face::towards(remote),
            incarnation: Incarnation::default(),
            asker: Incarnation::default(),
            member: Member(7),
        }
    }

    #[test]
    fn an_answer_tells_version_and_clock() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let (mut told, own) = (Vec::new(), About { epoch: Some(1_000_000), ..About::default() });
        let theirs = About { version: Version::new("1.2.3"), epoch: Some(3_000_000) };
        theirs.emit(at(20), &mut told);
        // Both clocks of instants began together: the answer took 10 ms on its way.
        let rtt = Some(Duration::from_millis(20));
        let greeting = Greeting::read(at(30), peer(), rtt, &own, &told).unwrap();
        assert_eq!((greeting.version.as_str(), greeting.clock_ahead), ("1.2.3", Some(2_000_000)));
        let unknown = Greeting::read(at(30), peer(), rtt, &About::default(), &told).unwrap();
        assert_eq!(unknown.clock_ahead, None);
        assert_eq!(Greeting::read(at(30), peer(), rtt, &own, &told[..7]), None);
        assert_eq!(Greeting::read(at(30), peer(), rtt, &own, &[b'x'; 100]), None);
    }

    #[test]
    fn a_long_version_is_cut_between_two_letters() {
        assert_eq!(Version::new(&"ä".repeat(30)).as_str(), "ä".repeat(12));
        assert_eq!(Version::new(&alloc::format!("x{}", "ä".repeat(30))).as_str().len(), 23);
    }
}
