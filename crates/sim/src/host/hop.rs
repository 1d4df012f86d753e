//! The protection of the protocol's packets between two simulated hosts.

use crate::engine::{Clock, IP_HEADER, UDP_HEADER};
use starhop_proto::peer::{Addressee, Face, Opened, Peer, Refusal, Unsealable};
use starhop_proto::security::{HEADER_LEN, Identity, Limits, Seal, SealHeader, TAG_LEN, WallClock};
use starhop_proto::time::Instant;
use starhop_proto::wire::{AnswererKey, Plain, Suite};
use std::net::SocketAddr;

/// The protection of a flow's packets over every hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protection {
    /// Seals without a cipher: identities, sizes and refusals are those of sealed packets.
    #[default]
    Sealed,
    /// None, as `--insecure`; addresses are believed.
    Plain,
}

impl Protection {
    /// Bytes that a packet grows by.
    pub const fn overhead(self) -> u32 {
        match self {
            Self::Sealed => (HEADER_LEN + TAG_LEN) as u32,
            Self::Plain => Plain::TRAILER as u32,
        }
    }

    /// Bytes of an IP packet around a packet of the protocol.
    pub const fn around(self) -> u32 {
        self.overhead() + UDP_HEADER + IP_HEADER
    }

    /// The protocol's packet in a datagram. The first bit of a sealed datagram is set, that of a plain one is not.
    pub(crate) fn packet_in(datagram: &[u8]) -> Option<&[u8]> {
        let is_sealed = datagram.first().is_some_and(|first| first & 0x80 != 0);
        let (front, back) = match SealHeader::parse(datagram) {
            Some(header) => (HEADER_LEN, header.offer_len() + TAG_LEN),
            None if is_sealed => return None,
            None => (0, Plain::TRAILER),
        };
        datagram.get(front..datagram.len().checked_sub(back)?)
    }
}

/// The time of day at the beginning of every run, nanoseconds since 1970: where it stands changes nothing.
const UNIX: u64 = 1_790_000_000_000_000_000;

/// The start of the hosts that are there from the beginning, nanoseconds before it: longer than a node asks who it
/// has met before for another token.
const LONG_AGO: i64 = 600_000_000_000;

/// The hop seals of one host: makes a new [`SimSuite`] at each start of the host.
#[derive(Clone, Copy, Debug)]
pub struct Seals {
    protection: Protection,
    wall: WallClock,
    start: Instant,
}

impl Seals {
    /// The seals of a host on a node whose timers go by `clock`; the time of day is the same everywhere when a run begins. The host is put there when the world's time is `at`.
    pub fn new(protection: Protection, clock: Clock, at: Instant) -> Self {
        Self { protection, wall: WallClock::new(clock.at(Instant::ZERO), UNIX), start: clock.at(at) }
    }

    /// The suite of a host that has run for a while when the world begins.
    pub(super) fn first(&self, seed: u64) -> SimSuite {
        let started = Self { wall: self.wall.stepped(-LONG_AGO), ..*self };
        let mut suite = started.suite(self.start, seed);
        if let SimSuite::Sealed(seal) = &mut suite {
            seal.set_wall_clock(self.wall);
        }
        suite
    }

    /// The time of the node's clock at which the host was put there.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// The suite of a start at `now`.
    pub(super) fn suite(&self, now: Instant, seed: u64) -> SimSuite {
        match self.protection {
            Protection::Plain => SimSuite::Plain(Plain::new(seed)),
            Protection::Sealed => {
                let seal = Seal::new(Identity::new(seed), now, self.wall, Limits::default(), seed);
                SimSuite::Sealed(Box::new(seal))
            }
        }
    }

    /// The time of day jumps.
    pub(super) fn step(&mut self, by: i64, suite: &mut SimSuite) {
        self.wall = self.wall.stepped(by);
        if let SimSuite::Sealed(seal) = suite {
            seal.set_wall_clock(self.wall);
        }
    }
}

/// Either protection.
pub(super) enum SimSuite {
    Sealed(Box<Seal<Identity>>),
    Plain(Plain),
}

impl Suite for SimSuite {
    fn room(&self) -> usize {
        match self {
            Self::Sealed(seal) => seal.room(),
            Self::Plain(plain) => plain.room(),
        }
    }

    fn overhead(&self) -> usize {
        match self {
            Self::Sealed(seal) => seal.overhead(),
            Self::Plain(plain) => plain.overhead(),
        }
    }

    fn seal(
        &mut self,
        now: Instant,
        to: &Addressee,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<(), Unsealable> {
        match self {
            Self::Sealed(seal) => seal.seal(now, to, out, start),
            Self::Plain(plain) => plain.seal(now, to, out, start),
        }
    }

    fn open<'a>(&mut self, now: Instant, face: Face, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        match self {
            Self::Sealed(seal) => seal.open(now, face, datagram),
            Self::Plain(plain) => plain.open(now, face, datagram),
        }
    }

    fn token(&mut self, remote: SocketAddr) -> Option<u32> {
        match self {
            Self::Sealed(seal) => seal.token(remote),
            Self::Plain(plain) => plain.token(remote),
        }
    }

    fn is_young(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.is_young(),
            Self::Sealed(seal) => seal.is_young(),
        }
    }

    fn introduction(&mut self, now: Instant, peer: &Peer) -> Option<AnswererKey> {
        match self {
            Self::Plain(plain) => plain.introduction(now, peer),
            Self::Sealed(seal) => seal.introduction(now, peer),
        }
    }

    fn settle(&mut self, peer: &Peer) {
        match self {
            Self::Sealed(seal) => seal.settle(peer),
            Self::Plain(plain) => plain.settle(peer),
        }
    }
}
