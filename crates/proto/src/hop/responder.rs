use super::granted::Granted;
use super::openings::Openings;
use super::parity::{Encoder, Sum};
use super::scheduler::{Scheduler, Turn};
use super::stamps::Stamps;
use super::standing::Standing;
use super::survey::{Carried, Downstream};
use crate::config::{Config, Notices};
use crate::name::ByteRange;
use crate::peer::Peer;
use crate::rng::Rng;
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{CodePlan, DataHeader, Echo, Interest, Reason, Waited};

/// The sending side of a hop: answers one neighbour at the rate that this neighbour grants.
///
/// Inputs: [`Responder::on_interest`] and pushes into the [`Scheduler`]. Outputs: [`Responder::poll`], due at
/// [`Responder::next_turn`].
#[derive(Debug)]
pub struct Responder {
    /// The neighbour.
    pub peer: Peer,
    /// The queues of packets for it.
    pub scheduler: Scheduler,
    /// Bytes that it asked for and that are not here yet, over all flows.
    pub wanted: u64,
    /// Bytes of its queues as they are in the sum over all neighbours.
    pub(super) counted: u64,
    /// The longest payload of this node's configuration.
    payload: u64,
    /// The names that it asked for and that are not known here.
    pub(super) openings: Openings,
    granted: Granted,
    stamps: Stamps,
    encoder: Encoder,
    standing: Standing,
    /// Whether another incarnation speaks at the neighbour's face: then packets for this one have no receiver
    /// there.
    is_held: bool,
    /// Time at which it could send again, after it had to wait for more than its rate.
    open_since: Instant,
    last_heard: Instant,
    /// Bytes that a datagram is longer than its payload, roughly: pacing counts the wire.
    overhead: u64,
    carried: Carried,
}

/// No neighbour can have this node send shorter payloads than this: headers would take more than half of the link.
const LEAST_PAYLOAD: u64 = 256;

/// IPv4, UDP and our header: the overhead of a payload without its seal.
const WIRE_OVERHEAD: u64 = BELOW_US + DataHeader::MAX_USUAL_LEN;

/// IPv4 and UDP.
const BELOW_US: u64 = 20 + 8;

fn scheduler(config: &Config) -> Scheduler {
    let scheduler = Scheduler::new(config.payload, config.notices == Notices::OnRequest);
    if config.mechanisms.repairs_first { scheduler } else { scheduler.with_repairs_in_turn() }
}

impl Responder {
    /// The Responder for a neighbour from which `interest` just came.
    pub fn new(now: Instant, peer: Peer, config: &Config, rng: &mut Rng) -> Self {
        let overhead = WIRE_OVERHEAD + config.seal_overhead();
        Self {
            peer,
            wanted: 0,
            counted: 0,
            payload: config.payload as u64,
            openings: Openings::new(now),
            scheduler: scheduler(config),
            granted: Granted::new(
                now,
                config.max_rate,
                config.payload as u64 + overhead,
                config.initial_window,
            ),
            stamps: Stamps::new(now, rng.next_u64() as u16),
            encoder: Encoder::default(),
            standing: Standing::STRANGER,
            is_held: false,
            open_since: now,
            last_heard: now,
            overhead,
            carried: Carried::default(),
        }
    }

    /// Queues `range` for its turn. `told` is its waiting time until now, and whether its flow was dry at the nodes
    /// before. The flow is dry here, too, only if the link would have had room for it.
    pub fn push(&mut self, now: Instant, queue: Slot, range: ByteRange, reason: Reason, told: Waited) {
        let had_room = self.granted.ready_at() <= now && self.scheduler.is_thirsty(now, queue);
        let told = Waited { is_dry: told.is_dry && had_room, ..told };
        self.scheduler.push(now, queue, range, reason, told);
    }

    /// Takes the hop's control from an Interest, which came in a datagram of `len` bytes.
    pub fn on_interest(&mut self, now: Instant, interest: &Interest, len: usize) {
        self.last_heard = now;
        self.standing.on_received(len as u64);
        self.stamps.on_interest(now, interest.sent);
        self.granted.on_grant(now, interest.link_rate, interest.cold);
        self.granted.set_chirps(interest.chirps);
    }

    /// Sends payloads of at most `limit` bytes from now on; `None`: of this node's own length.
    pub fn set_limit(&mut self, limit: Option<u16>) {
        let limit = limit.map_or(self.payload, |limit| u64::from(limit).max(LEAST_PAYLOAD));
        self.scheduler.set_payload(limit.min(self.payload));
    }

    /// The longest payload that the neighbour is sent.
    pub fn payload(&self) -> u64 {
        self.scheduler.payload()
    }

    /// A probe of `len` bytes leaves: the packets after it wait for its time on the wire.
    pub fn note_probe(&mut self, now: Instant, len: u64) {
        self.granted.on_sent_between(now, len);
    }

    /// A request of `len` bytes leaves for the neighbour.
    pub fn note_request(&mut self, now: Instant, len: u64) {
        self.granted.on_request(now, len);
    }

    /// The neighbour has shown that it receives at its address. True if this was not known before.
    pub fn settle(&mut self) -> bool {
        self.standing.settle()
    }

    /// Whether a stranger must be asked for its token at `now`; if so, it counts as asked.
    pub fn take_token_request(&mut self, now: Instant) -> bool {
        self.standing.take_token_request(now)
    }

    /// Whether the neighbour has shown that it receives at its address.
    pub fn is_settled(&self) -> bool {
        self.standing.is_settled()
    }

    /// Holds or releases the waiting packets: another incarnation speaks at the face, or this one does again.
    pub fn hold(&mut self, now: Instant, is_held: bool) {
        self.is_held = is_held;
        self.open(now);
    }

    /// Whether the waiting packets are held.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether a datagram of `len` bytes may be sent to the neighbour; if so, it counts as sent.
    pub fn spend(&mut self, len: u64) -> bool {
        self.standing.spend(len)
    }

    /// Whether the next chunk is within a stranger's allowance. It is as long as a packet or as all waiting bytes.
    fn affords_chunk(&self) -> bool {
        let chunk = self.scheduler.total_bytes().min(self.scheduler.payload());
        self.standing.affords(chunk + self.overhead - BELOW_US)
    }

    /// Time at which the neighbour was last heard.
    pub fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// Bytes that the neighbour has asked for and not received.
    pub fn outstanding(&self) -> u64 {
        self.wanted + self.scheduler.total_bytes()
    }

    /// The rate granted for the whole link.
    pub fn link_rate(&self) -> Rate {
        self.granted.rate()
    }

    /// Time from which on the granted rate lets the next packet leave.
    pub(super) fn ready_at(&self) -> Instant {
        self.granted.ready_at()
    }

    /// Bytes on the wire of the packets that took their turn so far.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.carried.bytes
    }

    /// Nothing may leave, whatever the rate, until the neighbour says more.
    pub fn is_stopped(&self) -> bool {
        self.granted.is_spent() || self.is_held || !self.affords_chunk()
    }

    /// Packets may leave from `now` on, after a stop.
    pub fn open(&mut self, now: Instant) {
        self.open_since = now;
    }

    /// Time at which [`Responder::poll`] has something, if no input arrives first.
    pub fn next_turn(&self) -> Instant {
        if self.is_stopped() {
            return Instant::NEVER;
        }
        let parity = self.parity_due().unwrap_or(Instant::NEVER);
        self.scheduler.next_turn().min(parity).max(self.granted.ready_at())
    }

    /// The next action at `now`, charged against the rate.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Turn> {
        if self.next_turn() > now {
            return None;
        }
        if self.parity_due().is_some_and(|at| at <= now) {
            self.charge(now, Duration::ZERO, self.encoder.next_len() as u64);
            self.carried.parity += 1;
            return Some(Turn::Parity);
        }
        let turn = self.scheduler.poll(now, self.granted.ready_since().max(self.open_since))?;
        if let Turn::Send(chunk) = turn {
            self.charge(now, chunk.late, chunk.range.len());
        }
        self.granted.note_backlog(self.scheduler.has_backlog());
        Some(turn)
    }

    /// Time at which parity is due. A stranger gets none: it would only add to the bytes that a stranger can cause.
    fn parity_due(&self) -> Option<Instant> {
        self.encoder.due(!self.scheduler.has_backlog()).filter(|_| self.is_settled())
    }

    /// A packet of `bytes` and a header leaves, and could have left `late` ago.
    fn charge(&mut self, now: Instant, late: Duration, bytes: u64) {
        self.spend(bytes + self.overhead - BELOW_US);
        self.carried.packets += 1;
        self.carried.bytes += bytes + self.overhead;
        self.granted.on_sent(now, late, bytes + self.overhead);
    }

    /// The hop's code.
    pub fn code(&self) -> &Encoder {
        &self.encoder
    }

    /// Sets the parity that the neighbour is sent.
    pub fn set_code(&mut self, plan: Option<CodePlan>) {
        self.encoder.set_plan(plan);
    }

    /// The packet that [`Responder::stamp`] was asked for last is `packet`: parity will cover it.
    #[inline]
    pub fn cover(&mut self, now: Instant, packet: &[u8]) {
        self.encoder.on_packet(now, self.stamps.last(now).0, packet);
    }

    /// The parity that is due, with its counter and echo.
    pub fn take_parity(&mut self, now: Instant) -> Option<(Sum, u16, Echo)> {
        let (counter, echo) = self.stamp(now);
        Some((self.encoder.take(counter)?, counter, echo))
    }

    /// Notes that the neighbour is answered with `bytes` from the cache.
    pub fn note_cached(&mut self, bytes: u64) {
        self.carried.from_cache += bytes;
    }

    /// The hop's state, for the operator.
    pub fn survey(&self) -> Downstream {
        Downstream {
            addr: self.peer.face.remote,
            member: self.peer.member,
            rate: self.link_rate(),
            payload: self.payload(),
            queued: self.scheduler.total_bytes(),
            awaited: self.wanted,
            flows: self.scheduler.open_queues(),
            carried: self.carried,
            last_heard: self.last_heard,
        }
    }

    /// The counter and echo of a packet that does not count on the hop: the neighbour may attribute it to another
    /// node.
    pub fn stamp_uncounted(&self, now: Instant) -> (u16, Echo) {
        self.stamps.last(now)
    }

    /// The packet for which [`Responder::stamp`] was called last does not leave: the neighbour would take a skipped
    /// number for a loss.
    pub fn take_back(&mut self) {
        self.stamps.take_back();
    }

    /// The counter and echo for a packet that leaves now.
    pub fn stamp(&mut self, now: Instant) -> (u16, Echo) {
        self.stamps.next(now)
    }
}
