use super::incoming::{Incoming, Refusal, find_key};
use super::outgoing::Outgoing;
use super::wall::{TOLERANCE_EPOCHS, WallClock, nearest};
use super::{HEADER_LEN, Keyring, SealHeader, TAG_LEN};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use crate::wire::{Refused, Suite, is_interest};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Bounds of what a seal remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Senders whose windows are kept, about 1.5 KiB each. Only who has a key can make one.
    pub senders: usize,
    /// Neighbours that are sent to.
    pub neighbours: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { senders: 4096, neighbours: 4096 }
    }
}

/// Far more than reading two clocks takes, far less than an epoch.
const READING_ERROR: Duration = Duration::from_millis(50);

/// Counters of a seal since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SealStats {
    /// Datagrams that were taken.
    pub opened: u64,
    /// Packets that were sealed.
    pub sealed: u64,
    /// Datagrams that are no sealed packet: another program's, or of a node that runs `--insecure`.
    pub foreign: u64,
    /// Datagrams that no key opens.
    pub forged: u64,
    /// Datagrams that had been taken before, or are too old to tell.
    pub replayed: u64,
    /// Those of them that are requests of before this node started, which nobody may have taken.
    pub predating: u64,
    /// Authentic datagrams from a time too far off: a wrong clock, or an old recording.
    pub untimely: u64,
    /// By how many seconds the last of these was ahead; negative when behind.
    pub last_untimely_s: i64,
    /// Authentic datagrams for whose sender there was no room.
    pub over_limit: u64,
    /// Packets for whose neighbour there is no key.
    pub unsealable: u64,
    /// Senders that are remembered now.
    pub senders: u64,
}

/// The hop seal as a [`Suite`]: counters and windows around the keys of a [`Keyring`].
pub struct Seal<R: Keyring> {
    keys: R,
    wall: WallClock,
    outgoing: Outgoing<R::Key>,
    incoming: Incoming<R::Key>,
    /// Requests that were sealed before this epoch may have been taken by who ran here before.
    started: u64,
    /// The latest epoch that the clock has shown.
    latest: u64,
    limits: Limits,
    stats: SealStats,
    seed: u64,
}

impl<R: Keyring> Seal<R> {
    /// A seal that begins at `now`. `seed` keys its tables.
    pub fn new(mut keys: R, now: Instant, wall: WallClock, limits: Limits, seed: u64) -> Self {
        let rng = Rng::new(seed);
        let epoch = wall.epoch(now);
        Self {
            outgoing: Outgoing::new(keys.boot_id(), limits.neighbours, rng.fork(1).next_u64()),
            incoming: Incoming::new(limits.senders, rng.fork(2).next_u64()),
            keys,
            wall,
            started: epoch,
            latest: epoch,
            limits,
            stats: SealStats::default(),
            seed: rng.fork(3).next_u64(),
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> SealStats {
        SealStats { senders: self.incoming.len() as u64, ..self.stats }
    }

    /// Replaces the keys: the next packet is sealed under the new ones. Counters and windows stay.
    pub fn set_keys(&mut self, keys: R) {
        self.keys = keys;
        self.outgoing.forget_keys();
        self.incoming.forget_keys();
    }

    /// The time of day was looked up anew. What two clocks differ by when they are read one after the other is no
    /// change.
    pub fn set_wall_clock(&mut self, wall: WallClock) {
        if wall.distance(self.wall) > READING_ERROR {
            self.wall = wall;
        }
    }

    /// The epoch at `now`. A clock that is set back by more than the tolerance makes packets timely again whose
    /// senders are forgotten: it is a start anew.
    fn epoch(&mut self, now: Instant) -> u64 {
        let own = self.wall.epoch(now);
        if own + TOLERANCE_EPOCHS < self.latest {
            self.incoming = Incoming::new(self.limits.senders, self.seed);
            self.started = own;
            self.latest = own;
        }
        self.latest = self.latest.max(own);
        own
    }

    /// Whether a datagram of `epoch` is taken when the own epoch is `own`.
    fn is_timely(&self, own: u64, epoch: u64) -> bool {
        epoch <= own + TOLERANCE_EPOCHS && epoch + TOLERANCE_EPOCHS >= self.latest
    }

    fn refuse_untimely(&mut self, own: u64, epoch: u64, header: &SealHeader, datagram: &mut [u8]) -> Refused {
        if find_key(&mut self.keys, epoch, header, datagram).is_some() {
            self.stats.untimely += 1;
            self.stats.last_untimely_s =
                (epoch as i64 - own as i64) * (super::EPOCH.as_nanos() / 1_000_000_000) as i64;
        } else {
            self.stats.forged += 1;
        }
        Refused
    }
}

impl<R: Keyring> Suite for Seal<R> {
    fn room(&self) -> usize {
        HEADER_LEN
    }

    fn overhead(&self) -> usize {
        HEADER_LEN + TAG_LEN
    }

    #[inline]
    fn seal(&mut self, now: Instant, to: SocketAddr, out: &mut Vec<u8>, start: usize) -> Result<(), Refused> {
        let epoch = self.epoch(now);
        if !self.outgoing.seal(&mut self.keys, epoch, to, out, start) {
            self.stats.unsealable += 1;
            return Err(Refused);
        }
        self.stats.sealed += 1;
        Ok(())
    }

    #[inline]
    fn open<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], Refused> {
        let Some(header) = SealHeader::parse(datagram) else {
            self.stats.foreign += 1;
            return Err(Refused);
        };
        let own = self.epoch(now);
        let epoch = nearest(own, header.epoch);
        if !self.is_timely(own, epoch) {
            return Err(self.refuse_untimely(own, epoch, &header, datagram));
        }
        let opened = self.incoming.open(&mut self.keys, (own, epoch), &header, datagram);
        let (packet, found) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                let refused = match refusal {
                    Refusal::Forged => &mut self.stats.forged,
                    Refusal::Replayed => &mut self.stats.replayed,
                    Refusal::Full => &mut self.stats.over_limit,
                };
                *refused += 1;
                return Err(Refused);
            }
        };
        // Who ran here before may have answered it already. Data and Notices make nobody send.
        if epoch < self.started && is_interest(packet) {
            self.stats.replayed += 1;
            self.stats.predating += 1;
            return Err(Refused);
        }
        if let Some(nth) = found {
            self.keys.on_opened(from, &header, nth);
        }
        self.stats.opened += 1;
        Ok(packet)
    }
}
