use super::LinkKey;
use super::responder::Responder;
use super::scheduler::Turn;
use super::transfer::{Ended, Ending, Transfer};
use crate::config::Config;
use crate::deadlines::Deadlines;
use crate::name::{ByteRange, FlowId};
use crate::rng::Rng;
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::Interest;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The Responders of a node, one per downstream hop, and which of them may send next.
pub struct Downlinks {
    links: Table<LinkKey, Responder>,
    due: Deadlines,
    /// Queues that are open, on all hops.
    open: usize,
    ended: Ended,
    config: Config,
    rng: Rng,
}

/// What a Responder has to send.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The hop.
    pub link: Slot,
    /// What to send.
    pub turn: Turn,
    /// Whether more could leave if the rate allowed it.
    pub backlog: bool,
}

impl Downlinks {
    /// No hops yet.
    pub fn new(config: &Config, rng: Rng) -> Self {
        Self {
            links: Table::new(rng.fork(2).next_u64()),
            due: Deadlines::default(),
            open: 0,
            ended: Ended::default(),
            config: config.clone(),
            rng,
        }
    }

    /// Takes the hop's control from an Interest and returns the hop, and whether its neighbour has started anew;
    /// `None` when there is no room for one more neighbour.
    pub fn on_interest(
        &mut self,
        now: Instant,
        from: SocketAddr,
        interest: &Interest,
    ) -> Option<(Slot, bool)> {
        let key = LinkKey::new(from, interest.flow, self.config.per_flow_control);
        let Self { links, config, rng, .. } = self;
        if links.len() >= config.max_neighbours && links.find(&key).is_none() {
            return None;
        }
        let link = links.find_or_insert(key, || Responder::new(now, from, config, rng));
        let is_restart = links.get_mut(link).is_some_and(|responder| responder.on_interest(now, interest));
        self.reschedule(link);
        Some((link, is_restart))
    }

    /// Bytes that the neighbour of a hop may ask for beyond what it waits for.
    pub fn credit(&self, link: Slot) -> u64 {
        let outstanding = self.links.get(link).map_or(0, Responder::outstanding);
        self.config.credit_per_neighbour.saturating_sub(outstanding)
    }

    /// Whether the neighbour of a hop may ask at `now` for a flow that is not known here; if so, it has.
    pub fn take_opening(&mut self, now: Instant, link: Slot) -> bool {
        self.may_open(link) && self.links.get_mut(link).is_some_and(|responder| responder.take_opening(now))
    }

    /// Whether the neighbour of a hop may ask for one more flow.
    pub fn may_open(&self, link: Slot) -> bool {
        let open = self.links.get(link).map_or(0, |responder| responder.scheduler.open_queues());
        open < self.config.max_flows_per_neighbour && self.open < self.config.max_subscriptions
    }

    /// The number of hops.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// The Responders, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Responder> {
        self.links.iter().map(|(_, responder)| responder)
    }

    /// The Responder of a hop.
    pub fn get(&self, link: Slot) -> Option<&Responder> {
        self.links.get(link)
    }

    /// The Responder of a hop; changes to its queues go through [`Downlinks`].
    pub fn get_mut(&mut self, link: Slot) -> Option<&mut Responder> {
        self.links.get_mut(link)
    }

    /// Opens a queue for `flow`, which its owner calls `owner`, on a hop.
    pub fn open(&mut self, link: Slot, flow: FlowId, owner: Slot) -> Option<Slot> {
        let queue = self.links.get_mut(link).map(|responder| responder.scheduler.open(flow, owner))?;
        self.open += 1;
        Some(queue)
    }

    /// Closes a queue because of `cause`; `is_owing` says whether its neighbour waits for more than the queue holds.
    pub fn close(&mut self, link: Slot, queue: Slot, cause: Ending, is_owing: bool) {
        if let Some(responder) = self.links.get_mut(link) {
            let is_owing = is_owing || responder.scheduler.queued_bytes(queue) > 0;
            let tally = responder.scheduler.tally(queue);
            let ended = tally.and_then(|(flow, tally)| tally.close(flow, responder.addr, cause, is_owing));
            ended.into_iter().for_each(|transfer| self.ended.push(transfer));
            let before = responder.scheduler.open_queues();
            responder.scheduler.close(queue);
            self.open -= before - responder.scheduler.open_queues();
        }
        self.reschedule(link);
    }

    /// The oldest transfer that has ended and was not told.
    pub fn pop_ended(&mut self) -> Option<Transfer> {
        self.ended.pop()
    }

    /// Ends the transfers whose last byte was sent `quiet` ago, and that nobody has asked anything of since.
    pub fn end_complete(&mut self, now: Instant, quiet: Duration) {
        for (_, responder) in self.links.iter_mut() {
            while let Some((flow, tally)) = responder.scheduler.take_over(now, quiet) {
                let ended = tally.close(flow, responder.addr, Ending::Silent, false);
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
        for link in silent {
            if let Some(responder) = self.links.remove(link) {
                self.open -= responder.scheduler.open_queues();
            }
            self.due.set(link, None);
        }
    }

    /// Queues bytes on a hop.
    pub fn push(&mut self, now: Instant, link: Slot, queue: Slot, range: ByteRange, is_repair: bool) {
        if let Some(responder) = self.links.get_mut(link) {
            responder.scheduler.push(now, queue, range, is_repair);
        }
        self.reschedule(link);
    }

    /// Bounds the rate of a queue.
    pub fn set_queue_rate(&mut self, now: Instant, link: Slot, queue: Slot, rate: Rate) {
        if let Some(responder) = self.links.get_mut(link) {
            responder.scheduler.set_queue_rate(now, queue, rate);
        }
        self.reschedule(link);
    }

    /// When [`Downlinks::poll`] has something if no input arrives first.
    pub fn next_turn(&self) -> Instant {
        self.due.next()
    }

    /// What to send at `now`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Due> {
        while let Some((at, link)) = self.due.first() {
            if at > now {
                return None;
            }
            let responder = self.links.get_mut(link)?;
            let turn = responder.poll(now);
            let backlog = responder.scheduler.has_backlog();
            self.reschedule(link);
            if let Some(turn) = turn {
                return Some(Due { link, turn, backlog });
            }
        }
        None
    }

    /// How many bytes wait in a queue.
    pub fn queued_bytes(&self, link: Slot, queue: Slot) -> u64 {
        self.links.get(link).map_or(0, |responder| responder.scheduler.queued_bytes(queue))
    }

    fn reschedule(&mut self, link: Slot) {
        let next = self.links.get(link).map_or(Instant::NEVER, Responder::next_turn);
        self.due.set(link, next.if_ever());
    }
}
