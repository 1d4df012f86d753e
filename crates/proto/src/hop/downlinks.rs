use super::LinkKey;
use super::asking::{Asked, Asking, Denied};
use super::faces::Faces;
use super::ledger::{Ledger, cost};
use super::openings::Misses;
use super::parity::MOST_ENCODERS;
use super::path_size::SizeQuestion;
use super::responder::Responder;
use super::scheduler::Turn;
use super::shared_links::{Share, SharedLinks};
use super::strangers::Strangers;
use super::subscriber::Subscriber;
use super::transfer::{Ended, Ending, Transfer};
use crate::config::Config;
use crate::deadlines::Deadlines;
use crate::name::{ByteRange, FlowId};
use crate::peer::Peer;
use crate::rng::Rng;
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{CodePlan, Limit, NotNow, Reason, Waited};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The Responders of a node, one per downstream hop, and the order in which they may send.
pub struct Downlinks {
    /// Each in its own place: the memory of one that is forgotten is given back.
    links: Table<LinkKey<Peer>, Box<Responder>>,
    faces: Faces,
    strangers: Strangers,
    due: Deadlines,
    /// Links that several hops share. Their hops wait there once their own rates allow a packet.
    shared: SharedLinks,
    /// The memory of all of them.
    ledger: Ledger,
    /// Hops with a code.
    coded: usize,
    /// Bytes that wait in all queues.
    queued: u64,
    ended: Ended,
    config: Config,
    rng: Rng,
}

/// The result for a flow that was not known here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The flow exists.
    Here,
    /// The flow does not exist.
    Nowhere,
    /// The upstream had no room to find out.
    NotAsked,
}

/// Time after which there may be room for more bytes again, as a part of the time in which the outstanding ones leave, within bounds.
const BYTES_BACK: (u64, u64) = (1, 4);
const LEAST_BYTES_BACK: Duration = Duration::from_millis(20);
const MOST_BYTES_BACK: Duration = Duration::from_secs(2);

/// A turn of a Responder.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The hop.
    pub link: Slot,
    /// The next action.
    pub turn: Turn,
    /// Whether more could leave if the rate allowed it.
    pub backlog: bool,
}

/// Headers of a packet in addition to its payload and its seal, at most: IPv6, UDP and ours.
const OTHER_BYTES: u64 = 110;

impl Downlinks {
    /// No hops yet.
    pub fn new(config: &Config, rng: Rng) -> Self {
        Self {
            links: Table::new(rng.fork(2).next_u64()),
            faces: Faces::new(rng.fork(6).next_u64()),
            strangers: Strangers::new(config.state_bytes),
            due: Deadlines::default(),
            shared: SharedLinks::default(),
            ledger: Ledger::new(config.state_bytes, rng.fork(8).next_u64()),
            coded: 0,
            queued: 0,
            ended: Ended::default(),
            config: config.clone(),
            rng,
        }
    }

    /// Takes the hop's control from an Interest and returns the hop. [`Downlinks::take_superfluous`] may have a hop to give
    /// up then.
    ///
    /// # Errors
    /// [`Denied`] says why it was not taken.
    pub fn on_interest(&mut self, now: Instant, asking: &Asking<'_>) -> Result<Asked, Denied> {
        let missing = asking.missing_token();
        if let Some(token) = missing.filter(|_| asking.needs_token || self.strangers.is_full()) {
            return Err(Denied::Unproven(token));
        }
        let Asking { peer, interest, len, wanted_token, .. } = *asking;
        let key = LinkKey::new(peer, interest.flow, self.config.per_flow_control);
        let is_new = self.links.find(&key).is_none();
        if is_new {
            self.ledger.check_hop(&peer).map_err(Denied::NoRoom)?;
            self.ledger.add_hop(&peer);
        }
        let Self { links, config, rng, .. } = self;
        let link = links.find_or_insert(key, || Box::new(Responder::new(now, peer, config, rng)));
        let no_room = Denied::NoRoom(Ledger::full(Limit::Neighbours));
        let responder = links.get_mut(link).ok_or(no_room)?;
        let was_stopped = responder.is_stopped();
        responder.on_interest(now, interest, len);
        if is_new {
            self.shared.place(link, peer.face.remote);
        }
        self.set_code(link, interest.code);
        let responder = self.links.get_mut(link).ok_or(no_room)?;
        let is_settled_now = missing.is_none() && responder.settle();
        let token = wanted_token.filter(|_| responder.take_token_request(now));
        if was_stopped && !responder.is_stopped() {
            responder.open(now);
        }
        if is_settled_now {
            self.strangers.remove(link);
        } else if is_new {
            self.strangers.add(link);
        }
        if let Some(change) = self.faces.hear(now, &peer, link) {
            change.held.into_iter().for_each(|link| self.hold(now, link, true));
            change.resumed.into_iter().for_each(|link| self.hold(now, link, false));
        }
        self.reschedule(link);
        Ok(Asked { link, token, is_settled_now })
    }

    /// Sends the neighbour of a hop the parity that it wants, if there is room for one more code.
    fn set_code(&mut self, link: Slot, plan: Option<CodePlan>) {
        let Some(responder) = self.links.get_mut(link) else { return };
        let is_on = responder.code().is_on();
        let plan = plan.filter(|_| is_on || self.coded < MOST_ENCODERS);
        responder.set_code(plan);
        self.coded = self.coded + usize::from(plan.is_some()) - usize::from(is_on);
    }

    /// The neighbour of a hop tells the length of the packets that reach it.
    pub fn on_size_question(&mut self, link: Slot, question: SizeQuestion) {
        if let Some(responder) = self.links.get_mut(link) {
            responder.set_limit(question.limit);
        }
    }

    fn hold(&mut self, now: Instant, link: Slot, is_held: bool) {
        if let Some(responder) = self.links.get_mut(link) {
            responder.hold(now, is_held);
        }
        self.reschedule(link);
    }

    /// A hop to be forgotten: its neighbour was replaced at its face a while ago, or it is the oldest of too many
    /// strangers. Returns it with the owners of its queues, which must be closed before [`Downlinks::forget`].
    pub fn take_superfluous(&mut self, now: Instant) -> Option<(Slot, Vec<Slot>)> {
        let last_heard = |link| self.links.get(link).map(|responder| responder.last_heard());
        let stranger = self.strangers.take_forgettable(now, last_heard);
        let link = stranger.or_else(|| self.faces.take_replaced(now))?;
        let owners = self.links.get(link).map(|responder| responder.scheduler.owners().collect());
        Some((link, owners.unwrap_or_default()))
    }

    /// Time at which [`Downlinks::take_superfluous`] has something, if no input arrives first.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.faces.next_timeout()
    }

    /// Bytes that the neighbour of a hop may ask for in addition to those that it waits for.
    pub fn credit(&self, link: Slot) -> u64 {
        let outstanding = self.get(link).map_or(0, Responder::outstanding);
        self.config.credit_per_neighbour.saturating_sub(outstanding)
    }

    /// The refusal for the neighbour of a hop that may not ask for so many more bytes.
    pub fn too_many_bytes(&self, link: Slot) -> NotNow {
        let drain = |responder: &Responder| responder.link_rate().time_for(responder.outstanding());
        let drain = self.get(link).map_or(MOST_BYTES_BACK, drain);
        let after = drain.min(MOST_BYTES_BACK.scaled(BYTES_BACK.1, BYTES_BACK.0));
        let after = after.scaled(BYTES_BACK.0, BYTES_BACK.1).max(LEAST_BYTES_BACK);
        NotNow::new(Limit::Bytes, after)
    }

    /// The neighbour of a hop asks at `now` for a flow that is not known here.
    ///
    /// # Errors
    /// It may not.
    pub fn take_opening(&mut self, now: Instant, link: Slot) -> Result<(), NotNow> {
        self.check_room(link)?;
        let Some(responder) = self.links.get_mut(link) else { return Ok(()) };
        let misses = misses_of(responder, &mut self.ledger, &mut self.strangers.misses);
        responder.openings.take(now, misses).map_err(|after| NotNow::new(Limit::Names, after))
    }

    /// Whether the neighbour of a hop has shown that it receives at its address. Others are told nothing but their token,
    /// with which they ask again.
    pub fn is_settled(&self, link: Slot) -> bool {
        self.get(link).is_some_and(Responder::is_settled)
    }

    /// Reports the result for a flow for which [`Downlinks::take_opening`] let the neighbour of a hop ask.
    pub fn note_opening(&mut self, now: Instant, link: Slot, found: Found) {
        let Some(responder) = self.links.get_mut(link) else { return };
        let misses = misses_of(responder, &mut self.ledger, &mut self.strangers.misses);
        let interval = Duration::from_nanos(1_000_000_000 / u64::from(self.config.missed_names_per_second));
        match found {
            Found::Here => responder.openings.on_found(),
            Found::Nowhere => responder.openings.on_missed(now, misses, interval),
            Found::NotAsked => responder.openings.on_put_off(),
        }
    }

    /// Whether there is room for one more flow of the neighbour of a hop.
    ///
    /// # Errors
    /// There is none.
    pub fn check_room(&self, link: Slot) -> Result<(), NotNow> {
        self.links.get(link).map_or(Ok(()), |hop| self.ledger.check_flow(&hop.peer))
    }

    /// Whether so many flows, of whomever, are within the memory.
    ///
    /// # Errors
    /// They are not.
    pub fn check_flows(&self, flows: usize) -> Result<(), NotNow> {
        self.ledger.check_flows(flows)
    }

    /// The neighbour of a hop holds memory for `after` ranges of a flow where it held it for `before`. False, and nothing
    /// changed, when it may not.
    pub fn hold_ranges(&mut self, link: Slot, before: u64, after: u64) -> bool {
        self.links.get(link).is_some_and(|hop| self.ledger.hold_ranges(&hop.peer, before, after))
    }

    /// Time between two looks for flows and neighbours to forget.
    pub fn sweep_interval(&self) -> Duration {
        self.ledger.sweep_interval(self.config.flow_idle)
    }

    /// The next of these looks once a flow begins at `now`.
    pub fn next_sweep(&self, now: Instant, planned: Option<Instant>) -> Instant {
        let at = now + self.sweep_interval();
        planned.map_or(at, |planned| planned.min(at))
    }

    /// Whether a flow that was last used at `last_used` is to be forgotten: it is idle, or memory is short and none of
    /// its subscribers waits for anything.
    pub fn is_over(&self, now: Instant, last_used: Instant, subscribers: &[Subscriber]) -> bool {
        let is_quiet = || subscribers.iter().all(|subscriber| subscriber.is_quiet(self));
        self.ledger.is_over(now.since(last_used), self.config.flow_idle, is_quiet)
    }

    /// Whether nothing waits in a queue.
    pub fn is_drained(&self, link: Slot, queue: Slot) -> bool {
        self.queued_bytes(link, queue) == 0
    }

    /// Bytes of memory for neighbours and their flows: in use, and all.
    pub fn memory(&self) -> (u64, u64) {
        (self.ledger.used(), self.ledger.budget())
    }

    /// The number of hops.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// The Responders, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Responder> {
        self.links.iter().map(|(_, responder)| &**responder)
    }

    /// The Responder of a hop.
    pub fn get(&self, link: Slot) -> Option<&Responder> {
        self.links.get(link).map(|responder| &**responder)
    }

    /// The Responder of a hop; changes to its queues go through [`Downlinks`].
    pub fn get_mut(&mut self, link: Slot) -> Option<&mut Responder> {
        self.links.get_mut(link).map(|responder| &mut **responder)
    }

    /// Opens a queue for `flow`, which its owner calls `owner`, on a hop.
    pub fn open(&mut self, link: Slot, flow: FlowId, owner: Slot) -> Option<Slot> {
        let responder = self.links.get_mut(link)?;
        self.ledger.hold(&responder.peer, cost::FLOW);
        Some(responder.scheduler.open(flow, owner))
    }

    /// Closes a queue because of `cause`; `is_owing` says whether its neighbour waits for more than the queue holds.
    pub fn close(&mut self, link: Slot, queue: Slot, cause: Ending, is_owing: bool) {
        if let Some(responder) = self.links.get_mut(link) {
            let is_owing = is_owing || responder.scheduler.queued_bytes(queue) > 0;
            let tally = responder.scheduler.tally(queue);
            let ended = tally
                .and_then(|(flow, tally)| tally.close(flow, responder.peer.face.remote, cause, is_owing));
            ended.into_iter().for_each(|transfer| self.ended.push(transfer));
            if responder.scheduler.close(queue) {
                self.ledger.release(&responder.peer, cost::FLOW);
            }
        }
        self.reschedule(link);
    }

    /// The oldest transfer that has ended and was not told.
    pub fn pop_ended(&mut self) -> Option<Transfer> {
        self.ended.pop()
    }

    /// Ends the transfers whose last byte was sent `quiet` ago, and that were not requested since.
    pub fn end_complete(&mut self, now: Instant, quiet: Duration) {
        for (_, responder) in self.links.iter_mut() {
            while let Some((flow, tally)) = responder.scheduler.take_over(now, quiet) {
                let ended = tally.close(flow, responder.peer.face.remote, Ending::Silent, false);
                ended.into_iter().for_each(|transfer| self.ended.push(transfer));
            }
        }
    }

    /// The chunk that a hop was due to send holds the end of its flow.
    pub fn note_end(&mut self, link: Slot, queue: Slot) {
        if let Some(responder) = self.links.get_mut(link) {
            responder.scheduler.note_end(queue);
        }
    }

    /// Whether there is no hop.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Forgets hops whose neighbour has said nothing for `span`. Their queues must have been closed.
    pub fn forget_silent(&mut self, now: Instant, span: Duration) {
        let silent: Vec<Slot> = (self.links.iter())
            .filter(|(_, responder)| now.since(responder.last_heard()) >= span)
            .map(|(link, _)| link)
            .collect();
        silent.into_iter().for_each(|link| self.forget(link));
    }

    /// A neighbour that was not heard for this long is forgotten.
    pub fn forget_after(&self) -> Duration {
        self.config.flow_idle.scaled(2, 1)
    }

    /// Forgets a hop. Its queues must have been closed.
    pub fn forget(&mut self, link: Slot) {
        if let Some(responder) = self.links.remove(link) {
            self.ledger.release(&responder.peer, responder.scheduler.open_queues() as u64 * cost::FLOW);
            self.ledger.remove_hop(&responder.peer);
            self.coded -= usize::from(responder.code().is_on());
            self.queued -= responder.counted;
            self.faces.remove(&responder.peer, link);
            self.strangers.remove(link);
        }
        self.shared.remove(link);
        self.due.set(link, None);
    }

    /// Queues bytes on a hop, as [`Responder::push`].
    pub fn push(
        &mut self,
        now: Instant,
        (link, queue): (Slot, Slot),
        range: ByteRange,
        reason: Reason,
        told: Waited,
    ) {
        if let Some(responder) = self.links.get_mut(link) {
            responder.push(now, queue, range, reason, told);
        }
        self.reschedule(link);
    }

    /// Bounds the rate of a queue.
    pub fn set_queue_rate(&mut self, now: Instant, link: Slot, queue: Slot, rate: Rate) {
        if let Some(responder) = self.links.get_mut(link) {
            let link_rate = responder.link_rate();
            responder.scheduler.set_queue_rate(now, queue, rate, link_rate);
        }
        self.reschedule(link);
    }

    /// Gives a queue `weight` packets in its turns from now on, at least one.
    pub fn set_queue_weight(&mut self, link: Slot, queue: Slot, weight: u8) {
        if let Some(responder) = self.links.get_mut(link) {
            responder.scheduler.set_weight(queue, weight);
        }
    }

    /// Time at which [`Downlinks::poll`] has something, if no input arrives first.
    pub fn next_turn(&self) -> Instant {
        self.due.next().min(self.shared.next_turn())
    }

    /// The next action at `now`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        loop {
            let link = match self.due.first().filter(|(at, _)| *at <= now) {
                Some((_, link)) if self.shared.enter(link) => {
                    self.due.set(link, None);
                    continue;
                }
                Some((_, link)) => link,
                None => self.shared.take(now)?,
            };
            let responder = self.links.get_mut(link)?;
            let before = responder.sent_bytes();
            let turn = responder.poll(now);
            let mut backlog = responder.scheduler.has_backlog();
            let bytes = responder.sent_bytes() - before;
            if let Some(ready) = self.shared.charge(now, link, bytes, backlog) {
                // A hop that the shared link holds has not used up its grant.
                backlog &= responder.ready_at() > ready;
            }
            self.reschedule(link);
            if let Some(turn) = turn {
                return Some(Due { link, turn, backlog });
            }
        }
    }

    /// Has the hops of these neighbours share links of these rates, instead of those before.
    pub fn set_shared(&mut self, now: Instant, rates: &[Rate], shares: BTreeMap<SocketAddr, Share>) {
        let packet = (self.config.payload + self.config.seal_overhead() as usize) as u64 + OTHER_BYTES;
        self.shared.set(now, (rates, shares), packet);
        let hops: Vec<(Slot, SocketAddr)> =
            self.links.iter().map(|(link, responder)| (link, responder.peer.face.remote)).collect();
        for (link, remote) in hops {
            self.shared.place(link, remote);
            self.reschedule(link);
        }
    }

    /// A request of `bytes` on the wire has left for a neighbour that may ask as well: it takes a part of the rate that the neighbour
    /// grants.
    pub fn note_request(&mut self, now: Instant, remote: SocketAddr, bytes: u64) {
        let Some(link) = self.faces.at(remote) else { return };
        if let Some(responder) = self.links.get_mut(link) {
            responder.note_request(now, bytes);
            self.reschedule(link);
        }
    }

    /// A datagram for `remote` has left, with so many bytes on the wire: those that no turn has taken from the link are
    /// taken now.
    pub fn note_sent(&mut self, now: Instant, remote: SocketAddr, bytes: u64) {
        self.shared.on_datagram(now, remote, bytes);
    }

    /// The rate at which a hop sends while others go on as now: the neighbour's grant, or its part of a shared link.
    pub fn rate(&self, link: Slot) -> Rate {
        let granted = self.get(link).map_or(Rate::ZERO, Responder::link_rate);
        self.shared.rate(link).map_or(granted, |share| share.min(granted))
    }

    /// Bytes that wait in the queues of all hops.
    pub fn all_queued_bytes(&self) -> u64 {
        self.queued
    }

    /// The most memory that the bytes in the queues of all hops can take in blocks of `block` bytes, of which a queue may fill
    /// its first and its last in part.
    pub fn most_held_bytes(&self, block: u64) -> u64 {
        let busy = self.links.iter().map(|(_, responder)| responder.scheduler.busy_queues() as u64);
        self.queued + 2 * block * busy.sum::<u64>()
    }

    /// Neighbours that wait for bytes.
    pub fn waiting(&self) -> usize {
        self.links.iter().filter(|(_, responder)| responder.outstanding() > 0).count()
    }

    /// Bytes that wait in a queue.
    pub fn queued_bytes(&self, link: Slot, queue: Slot) -> u64 {
        self.links.get(link).map_or(0, |responder| responder.scheduler.queued_bytes(queue))
    }

    fn reschedule(&mut self, link: Slot) {
        let mut next = Instant::NEVER;
        if let Some(responder) = self.links.get_mut(link) {
            next = responder.next_turn();
            let total = responder.scheduler.total_bytes();
            self.queued = self.queued + total - core::mem::replace(&mut responder.counted, total);
        }
        if !self.shared.is_waiting(link) {
            self.due.set(link, next.if_ever());
        }
    }
}

/// The names that the holder of a hop's neighbour missed; of a neighbour that may be anybody, those of all strangers.
fn misses_of<'a>(responder: &Responder, ledger: &'a mut Ledger, strangers: &'a mut Misses) -> &'a mut Misses {
    let of_holder = responder.is_settled().then(|| ledger.misses(&responder.peer)).flatten();
    of_holder.unwrap_or(strangers)
}
