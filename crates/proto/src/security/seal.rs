use super::binding::Receiver;
use super::exchange::{Exchange, Exchanges, KEY_LIFE, OVERLAP, Offer};
use super::header::Direction;
use super::incoming::{Incoming, Sealed, Shares, find_key};
use super::outgoing::Outgoing;
use super::wall::{TOLERANCE_EPOCHS, WallClock, nearest};
use super::{HEADER_LEN, Keyring, SealHeader, TAG_LEN};
use crate::peer::{Addressee, Face, Holder, Opened, Peer, Refusal, Unsealable};
use crate::rng::Rng;
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::wire::{AnswererKey, Notice, Suite, VERSION, is_interest};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Bounds of a seal's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Senders whose windows are kept, about 2.5 KiB each. Only a node with a key can make one. An eighth of them
    /// may be newcomers, which have not shown that they receive at their address.
    pub senders: usize,
    /// Neighbours that are sent to.
    pub neighbours: usize,
}

impl Limits {
    /// Bytes of memory for one sender, at most: two keys of AES-GCM with their tables, two windows, the ephemeral keys of
    /// replies to it, the table's entry.
    pub const SENDER_BYTES: u64 = 4608;
    /// The same for a neighbour that is sent to: a key, and what was agreed on with up to two answerers at its address.
    pub const NEIGHBOUR_BYTES: u64 = 4096;

    /// As many of each as `bytes` hold; at least some of each.
    pub fn within(bytes: u64) -> Self {
        let count = (bytes / (Self::SENDER_BYTES + Self::NEIGHBOUR_BYTES)).max(64) as usize;
        Self { senders: count, neighbours: count }
    }

    /// Memory of all senders and neighbours together, bytes.
    pub fn bytes(self) -> u64 {
        self.senders as u64 * Self::SENDER_BYTES + self.neighbours as u64 * Self::NEIGHBOUR_BYTES
    }
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
    /// Datagrams that no key opens, or that are bound to another receiver.
    pub forged: u64,
    /// Replies at a face where this node sent no request, and this node's own packets.
    pub not_for_me: u64,
    /// Datagrams that had been taken before, or are too old to tell.
    pub replayed: u64,
    /// Authentic datagrams from a time too far off: a wrong clock, or an old recording.
    pub untimely: u64,
    /// By how many seconds the last of these was ahead; negative when behind.
    pub last_untimely_s: i64,
    /// Authentic datagrams for whose sender there was no room.
    pub over_limit: u64,
    /// Packets for whose neighbour there is no key.
    pub unsealable: u64,
    /// Secrets that were agreed on with ephemeral keys of neighbours.
    pub agreements: u64,
    /// Agreements that were put off, because a neighbour had caused as many as it may.
    pub agreements_put_off: u64,
    /// Replies that were sealed and opened without a key of the answerer's: the first ones of each exchange. If they go
    /// on, somebody on the path drops offers or keys, or the neighbour's table is full.
    pub replies_before_keys: u64,
    /// Senders that are remembered now.
    pub senders: u64,
}

/// The hop seal as a [`Suite`]: counters and windows around the keys of a [`Keyring`].
pub struct Seal<R: Keyring> {
    keys: R,
    wall: WallClock,
    outgoing: Outgoing<R::Key>,
    incoming: Incoming<R>,
    exchanges: Exchanges<R>,
    /// Requests that were sealed up to this epoch may have been accepted before what this node remembers.
    forgotten_until: u64,
    /// The latest epoch that the clock has shown.
    latest: u64,
    limits: Limits,
    /// Keys the tokens of this start.
    secret: u64,
    /// Another address to which packets for this node may have been sent: its address before a NAT.
    public: Option<SocketAddr>,
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
            incoming: Incoming::new(Shares::of(limits), rng.fork(2).next_u64()),
            exchanges: Exchanges::new(keys.boot_id() as u8, limits.neighbours, rng.fork(4).next_u64()),
            secret: keys.boot_id(),
            public: None,
            keys,
            wall,
            // The clock of the start before this one may have been ahead, and that of its neighbour, too.
            forgotten_until: epoch + 2 * TOLERANCE_EPOCHS,
            latest: epoch,
            limits,
            stats: SealStats::default(),
            seed: rng.fork(3).next_u64(),
        }
    }

    /// An earlier start of this node may have taken requests when its clock showed `epoch`, or earlier.
    pub fn was_at(&mut self, epoch: u64) {
        // The clocks of those that asked may have been ahead of it.
        self.forgotten_until = self.forgotten_until.max(epoch + TOLERANCE_EPOCHS);
    }

    /// The latest epoch that the clock has shown, since it was set back by more than the tolerance.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// The bounds of the memory.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes the bounds of the memory. Entries that are there already stay.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.incoming.set_limits(Shares::of(limits));
        self.outgoing.set_limit(limits.neighbours);
        self.exchanges.set_limit(limits.neighbours);
    }

    /// Counters since the start.
    pub fn stats(&self) -> SealStats {
        let (agreements, agreements_put_off) = self.exchanges.counts();
        SealStats {
            senders: self.incoming.len() as u64,
            agreements,
            agreements_put_off,
            replies_before_keys: self.stats.replies_before_keys + self.outgoing.replies_before_keys(),
            ..self.stats
        }
    }

    /// Replaces the keys: the next packet is sealed under the new ones. Counters and windows stay. Where receivers find the
    /// new keys by another boot id, this node is a new incarnation to them.
    pub fn set_keys(&mut self, keys: R) {
        let former = core::mem::replace(&mut self.keys, keys);
        self.keys.succeed(&former);
        self.outgoing.change_keys(&mut self.keys);
        self.incoming.forget_keys();
        self.exchanges.renew(&mut self.keys);
    }

    /// Forgets ephemeral keys whose time is over at `now`, and what was agreed on with them. Sealing and opening do so by
    /// themselves; a node that nobody speaks to is to do it now and then.
    pub fn wipe(&mut self, now: Instant) {
        self.exchanges.wipe(now);
        let (life, epoch) = (KEY_LIFE.as_nanos() + OVERLAP.as_nanos(), super::EPOCH.as_nanos());
        self.incoming.forget_silent(self.latest.saturating_sub(life.div_ceil(epoch)));
        self.outgoing.wipe(self.latest);
    }

    /// The time of day was looked up anew. The difference between two clocks that are read one after the other is
    /// no change.
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
            self.incoming = Incoming::new(Shares::of(self.limits), self.seed);
            // Recorded requests carry tokens of before.
            self.secret = self.keys.boot_id();
            self.forgotten_until = self.forgotten_until.max(self.latest + TOLERANCE_EPOCHS);
            self.latest = own;
        }
        if own > self.latest {
            self.latest = own;
            self.wipe(now);
        }
        own
    }

    /// Whether a datagram of `epoch` is taken when the own epoch is `own`.
    fn is_timely(&self, own: u64, epoch: u64) -> bool {
        epoch <= own + TOLERANCE_EPOCHS && epoch + TOLERANCE_EPOCHS >= self.latest
    }

    /// Counts a refusal, and distinguishes a datagram of another time from a forgery.
    fn refuse(&mut self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Foreign => self.stats.foreign += 1,
            Refusal::Forged => self.stats.forged += 1,
            Refusal::Replayed => self.stats.replayed += 1,
            Refusal::Untimely => self.stats.untimely += 1,
            Refusal::NotForMe => self.stats.not_for_me += 1,
            Refusal::Full => self.stats.over_limit += 1,
        }
        refusal
    }

    /// This node is behind a NAT that others know as `public`: packets that were sent there are for it, too.
    pub fn set_public(&mut self, public: Option<SocketAddr>) {
        self.public = public;
    }

    /// Whether a request was sent to the address before the NAT.
    fn is_for_public(&mut self, epoch: u64, header: &SealHeader, datagram: &[u8]) -> bool {
        let public = self.public.filter(|_| header.direction == Direction::Request);
        public.is_some_and(|public| {
            let sealed = Sealed { header, receiver: Receiver::Address(public), remote: public, epoch };
            find_key((&mut self.keys, &self.exchanges), sealed, &mut datagram.to_vec()).is_some()
        })
    }

    /// The receiver to which a datagram at `face` must be bound to be taken.
    #[inline]
    fn receiver(&self, header: &SealHeader, face: Face) -> Result<Receiver, Refusal> {
        if header.sender.boot == self.outgoing.boot() {
            return Err(Refusal::NotForMe);
        }
        match header.direction {
            Direction::Request => Ok(Receiver::Address(face.local)),
            Direction::Reply => {
                self.outgoing.asker(face.remote).map(Receiver::Asker).ok_or(Refusal::NotForMe)
            }
        }
    }

    fn untimely(&mut self, own: u64, sealed: Sealed<'_>, bytes: &mut [u8]) -> Refusal {
        if find_key((&mut self.keys, &self.exchanges), sealed, bytes).is_none() {
            return Refusal::Forged;
        }
        let epoch_s = (super::EPOCH.as_nanos() / 1_000_000_000) as i64;
        self.stats.last_untimely_s = (sealed.epoch as i64 - own as i64) * epoch_s;
        Refusal::Untimely
    }

    /// The offer of a request, or the key of an answerer, in a packet that was opened; the packet without the offer.
    #[inline]
    fn take_keys<'a>(
        &mut self,
        (now, own): (Instant, u64),
        (header, peer): (&SealHeader, &Peer),
        packet: &'a [u8],
    ) -> Result<&'a [u8], Refusal> {
        if header.offer_len() > 0 {
            let (packet, offer) = Offer::split(packet).ok_or(Refusal::Forged)?;
            if self.incoming.take_offer(header.sender, header.exchange.asker, &offer) {
                self.outgoing.forget_key_for(peer);
            }
            return Ok(packet);
        }
        if let Some(key) = Notice::key_in(packet).filter(|_| header.direction == Direction::Reply) {
            let from = (peer.face.remote, Holder::of(peer));
            self.exchanges.on_told(&mut self.keys, (now, own), from, &key);
        }
        Ok(packet)
    }

    #[inline]
    fn try_open<'a>(
        &mut self,
        now: Instant,
        face: Face,
        datagram: &'a mut [u8],
    ) -> Result<Opened<'a>, Refusal> {
        let header = SealHeader::parse(datagram).ok_or(Refusal::Foreign)?;
        let mut receiver = self.receiver(&header, face)?;
        let own = self.epoch(now);
        let epoch = nearest(own, header.epoch);
        if let Some(public) = self.public
            && self.is_for_public(epoch, &header, datagram)
        {
            receiver = Receiver::Address(public);
        }
        let sealed = Sealed { header: &header, receiver, remote: face.remote, epoch };
        if !self.is_timely(own, epoch) {
            return Err(self.untimely(own, sealed, datagram));
        }
        let from = (&mut self.keys, &self.exchanges);
        let found = self.incoming.open(from, own, sealed, datagram)?;
        let is_request = is_interest(found.packet);
        if is_request != (header.direction == Direction::Request) {
            return Err(Refusal::Forged);
        }
        if self.keys.owner(face.remote).is_some_and(|owner| owner != found.member) {
            return Err(Refusal::Forged);
        }
        if found.is_first && self.keys.heard(found.member, header.sender, own) {
            self.outgoing.forget_keys();
        }
        if found.is_first && header.direction == Direction::Reply {
            self.exchanges.on_reply(face.remote, header.exchange);
        }
        let peer = Peer { face, incarnation: header.sender, asker: receiver.asker(), member: found.member };
        let packet = self.take_keys((now, own), (&header, &peer), found.packet)?;
        self.stats.opened += 1;
        self.stats.replies_before_keys +=
            u64::from(header.direction == Direction::Reply && header.exchange.answerer == 0);
        Ok(Opened { peer, packet })
    }
}

impl<R: Keyring> Seal<R> {
    /// Looks up the key for `to`.
    fn make_ready(&mut self, epoch: u64, to: &Addressee) -> Option<Slot> {
        let peer = match to {
            Addressee::Asked(_) => None,
            Addressee::Asker(peer) | Addressee::Stranger(peer) => Some(peer),
        };
        let talk = peer.and_then(|peer| Some((Holder::of(peer), self.incoming.talk(peer.incarnation)?)));
        let secret = match talk {
            Some((holder, (talk, is_proved))) => {
                self.exchanges.answer(&mut self.keys, epoch, (holder, is_proved), talk)
            }
            None => (Exchange::NONE, None),
        };
        self.outgoing.prepare(&mut self.keys, epoch, to, secret)
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
    fn seal(
        &mut self,
        now: Instant,
        to: &Addressee,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<(), Unsealable> {
        let epoch = self.epoch(now);
        let ready = self.outgoing.ready(epoch, to).or_else(|| self.make_ready(epoch, to));
        let mut offered = Exchange::NONE;
        if let Addressee::Asked(face) = to
            && out.get(start + HEADER_LEN).is_some_and(|first| first >> 4 == VERSION << 2)
            && let Some(asker) = self.outgoing.asker(face.remote)
        {
            offered = self.exchanges.offer(&mut self.keys, now, (asker, face.remote), out);
        }
        if !ready.is_some_and(|slot| self.outgoing.seal(slot, (to, offered), out, start)) {
            self.stats.unsealable += 1;
            return Err(Unsealable);
        }
        self.stats.sealed += 1;
        Ok(())
    }

    #[inline]
    fn open<'a>(&mut self, now: Instant, face: Face, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        self.try_open(now, face, datagram).map_err(|refusal| self.refuse(refusal))
    }

    fn token(&mut self, remote: SocketAddr) -> Option<u32> {
        // The member that is listed there has a key of its own, which no other node can use from there.
        let is_listed = self.keys.owner(remote).is_some();
        if is_listed && !self.is_young() { None } else { self.keys.token(self.secret, remote) }
    }

    fn is_young(&self) -> bool {
        // No packet of an epoch that was forgotten is timely any more, once this is over.
        self.latest <= self.forgotten_until + TOLERANCE_EPOCHS
    }

    fn introduction(&mut self, now: Instant, peer: &Peer) -> Option<AnswererKey> {
        let (talk, is_proved) = self.incoming.talk(peer.incarnation)?;
        if is_proved { self.exchanges.introduction(&mut self.keys, now, talk) } else { None }
    }

    fn settle(&mut self, peer: &Peer) {
        if self.incoming.settle(peer) {
            self.outgoing.forget_key_for(peer);
        }
    }
}
