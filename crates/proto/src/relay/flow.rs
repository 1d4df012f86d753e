//! One flow through a relay: its upstream side, its subscribers, and its life.

use super::Relay;
use super::release::Release;
use crate::config::Config;
use crate::hop::{Control, Ending, Fetch, Found, Intake, Requester, Responder, Served, Subscriber};
use crate::name::FlowId;
use crate::peer::Face;
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{News, NotNow, Suite};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The state of a flow: its row of the pending table (the bytes that each neighbour wants), and the intake that
/// fetches it.
pub(super) struct Flow {
    /// Its upstream side. It goes by its name inside the relay (see [`super::names`]).
    pub(super) fetch: Fetch,
    /// Its name as it travels.
    pub(super) name: FlowId,
    pub(super) subscribers: Vec<Subscriber>,
    /// The flow's length, once a packet has told it.
    pub(super) length: Option<u64>,
    /// Its bytes are passed on and not kept.
    pub(super) is_volatile: bool,
    /// Wrong bytes of it were in the cache.
    pub(super) is_suspect: bool,
    /// The earliest time at which its proof is looked for again.
    pub(super) next_look: Instant,
    pub(super) last_used: Instant,
    /// The flow's rate as its upstream was last told it.
    told: Rate,
    /// It was told that it is no longer held back, and may not have heard that.
    release: Option<Release>,
    /// The neighbour that asked for it first, until something of it is known.
    pub(super) opened_by: Option<Slot>,
    /// Time at which the upstream is asked once more after it had no room for the whole request.
    pub(super) asks_at: Option<Instant>,
}

impl Flow {
    /// The name inside the relay of another flow of the same server.
    pub(super) fn sibling(&self, name: FlowId) -> FlowId {
        let mut id = name.0;
        let mask = self.fetch.id.0.iter().zip(self.name.0).map(|(inner, outer)| inner ^ outer);
        id.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        FlowId(id)
    }

    /// Time of the next repeated request, over a hop that takes `hop_rtt`.
    pub(super) fn next_timeout(&self, hop_rtt: Duration) -> Option<Instant> {
        let release = self.release.map(|release| release.again_at());
        [self.asks_at, release, self.fetch.intake.next_timeout(hop_rtt)].into_iter().flatten().min()
    }

    pub(super) fn new(now: Instant, [id, name]: [FlowId; 2], uplink: Slot, config: &Config) -> Self {
        Self {
            fetch: Fetch { id, uplink, intake: Intake::new(now, config, 0) },
            name,
            // Most flows have one.
            subscribers: Vec::with_capacity(1),
            length: None,
            is_volatile: false,
            is_suspect: false,
            next_look: now,
            last_used: now,
            told: Rate::UNLIMITED,
            release: None,
            opened_by: None,
            asks_at: None,
        }
    }
}

impl Served for Flow {
    fn subscribers(&mut self) -> &mut Vec<Subscriber> {
        &mut self.subscribers
    }

    fn last_used(&self) -> Instant {
        self.last_used
    }
}

/// A client that has not asked for this long may be gone, or its path may lead past this relay by now.
const STOPPED: Duration = Duration::from_millis(500);

/// Number of steps from which the delay of a repeated request is drawn, up to half as long again, so that nodes
/// that were put off together do not come back together.
const SPREAD: u64 = 1024;

/// A flow that is held back is still sent one packet in this time.
const TRICKLE: Duration = Duration::from_secs(1);

/// The shortest time over which a queue is brought back to its target: on very short hops a whole queue would
/// otherwise be answered within microseconds.
const MIN_REACTION: Duration = Duration::from_millis(2);
/// … and never less than the time in which the flow's share carries this many packets: one of ten thousand flows on
/// a gigabit has a packet each 115 ms, and would be stopped for every second packet that waits.
const REACTION_PACKETS: u64 = 4;

/// The rate that subscribers with these bounds take: that of the fastest one, and in addition that of each who reads apart. `None`
/// if there is no subscriber.
fn taken<'a>(
    subscribers: impl Iterator<Item = &'a Subscriber>,
    bound: impl Fn(&Subscriber) -> Rate,
) -> Option<Rate> {
    let mut subscribers = subscribers.peekable();
    subscribers.peek()?;
    let (mut fastest, mut apart) = (Rate::ZERO, 0u64);
    for subscriber in subscribers {
        match bound(subscriber) {
            rate if subscriber.reads_apart => apart = apart.saturating_add(rate.as_bps()),
            rate => fastest = fastest.max(rate),
        }
    }
    Some(Rate::from_bps(fastest.as_bps().saturating_add(apart)))
}

impl<C: Suite> Relay<C> {
    /// The state of `id`, made when it is asked for at `face` and there is none.
    pub(super) fn flow(&mut self, now: Instant, id: FlowId, face: Face) -> Slot {
        if let Some(slot) = self.flows.find(&id) {
            return slot;
        }
        let uplink = self.uplinks.link(self.routes.upstream(id, face), id);
        let name = self.names.translate(id, face.local);
        self.next_sweep = Some(self.downlinks.next_sweep(now, self.next_sweep));
        let config = &self.config;
        self.flows.find_or_insert(id, || Box::new(Flow::new(now, [id, name], uplink, config)))
    }

    /// The backpressure bound of the rate of a flow's upstream (LEOTP eq. 9): the rate that its fastest subscriber
    /// takes, corrected by the distance of that subscriber's queue from its target. A slower subscriber is served
    /// from the cache; those that read where nothing is cached any more add theirs.
    pub(super) fn flow_rate(&self, uplink: Slot, flow: &Flow) -> Rate {
        let reaction = self.uplinks.hop_rtt(uplink).max(MIN_REACTION);
        let noise = self.uplinks.get(uplink).map_or(Duration::ZERO, Requester::noise);
        // A subscriber that waits for nothing takes nothing; if none waits, the next request comes from one of
        // them.
        let waits = |subscriber: &&Subscriber| {
            let is_held = self.downlinks.get(subscriber.link).is_none_or(Responder::is_held);
            let is_queued = self.downlinks.queued_bytes(subscriber.link, subscriber.queue) > 0;
            !is_held && (is_queued || !subscriber.wanted().is_empty())
        };
        let bound = |subscriber: &Subscriber| self.bound(subscriber, reaction, noise);
        taken(flow.subscribers.iter().filter(waits), bound)
            .or_else(|| taken(flow.subscribers.iter(), bound))
            .unwrap_or(Rate::UNLIMITED)
    }

    /// As [`Relay::flow_rate`], for one subscriber. Bytes that arrive in clumps wait here until their turn: the
    /// queue is allowed the `noise` of the hop that they come from.
    fn bound(&self, subscriber: &Subscriber, reaction: Duration, noise: Duration) -> Rate {
        let Some(responder) = self.downlinks.get(subscriber.link) else { return Rate::ZERO };
        let scheduler = &responder.scheduler;
        let queued = scheduler.queued_bytes(subscriber.queue);
        let share = scheduler.share(subscriber.queue, responder.link_rate());
        let next_hop = share.min(scheduler.queue_rate(subscriber.queue));
        if subscriber.reads_apart {
            // To hold it back would hold back the other readers, whose bytes come in the same queue. What it asks ahead bounds
            // what waits for it.
            return next_hop;
        }
        let target = self.config.buffer_target.max(next_hop.bytes_in(self.config.buffer_target_time + noise));
        let turns = share.time_for(REACTION_PACKETS * self.config.payload as u64);
        let correction = (target as f64 - queued as f64) * 8.0 / reaction.max(turns).as_secs_f64();
        // A flow that was stopped goes on slowly by itself, in case its release is lost.
        let trickle = Rate::of(self.config.payload as u64, TRICKLE).as_bps();
        Rate::from_bps(((next_hop.as_bps() as f64 + correction).max(0.0) as u64).max(trickle))
    }

    /// The waiting bytes of a flow for a hop have left. If its upstream was told to hold the flow back, it is told
    /// now that this is over, because no request of the flow may be due for long.
    pub(super) fn on_drained(&mut self, flow_slot: Slot) {
        let Some(flow) = self.flows.get(flow_slot) else { return };
        if flow.told.is_unlimited() || flow.fetch.intake.expected().is_empty() {
            return;
        }
        let bound = self.flow_rate(flow.fetch.uplink, flow);
        if flow.told.as_bps() < bound.as_bps() / 2 {
            self.outbox.feedback(flow.fetch.uplink, flow.fetch.id);
        }
    }

    /// An Interest of a flow leaves for its upstream on `link` now. Returns the turn and the bound that it carries.
    pub(super) fn tell_bound(&mut self, now: Instant, link: Slot, flow_slot: Slot) -> (u16, Rate) {
        let bound = self.flows.get(flow_slot).map_or(Rate::UNLIMITED, |flow| self.flow_rate(link, flow));
        let (packet, hop_rtt) = (self.config.payload as u64, self.uplinks.hop_rtt(link));
        let Some(flow) = self.flows.get_mut(flow_slot) else { return (0, bound) };
        let before = core::mem::replace(&mut flow.told, bound);
        let release =
            Release::of(now, (before, bound), packet, hop_rtt).filter(|_| self.config.mechanisms.releases);
        // Where it is held back again, the release counts no more.
        let is_over = bound.as_bps() < before.as_bps() / 2;
        let turn = flow.fetch.intake.turn();
        if release.is_some() || (is_over && flow.release.is_some()) {
            flow.release = release;
            self.reschedule(flow_slot);
        }
        (turn, bound)
    }

    /// A packet of a flow came from its upstream.
    pub(super) fn note_release(&mut self, now: Instant, flow_slot: Slot) {
        if let Some(flow) = self.flows.get_mut(flow_slot) {
            flow.release.take_if(|release| release.on_packet(now));
        }
    }

    pub(super) fn on_flow_timeout(&mut self, now: Instant, flow_slot: Slot) {
        let Some(flow) = self.flows.get_mut(flow_slot) else {
            self.agenda.remove(flow_slot);
            return;
        };
        self.stats.repairs += flow.fetch.on_timeout(now, &mut self.uplinks, &mut self.outbox);
        if flow.fetch.intake.expected().is_empty() {
            flow.release = None;
        }
        if flow.release.as_mut().is_some_and(|release| release.repeat(now)) {
            self.outbox.feedback(flow.fetch.uplink, flow.fetch.id);
        }
        if flow.asks_at.is_some_and(|at| at <= now) {
            // The upstream had no room for all that was asked of it, and may have room now.
            flow.asks_at = None;
            flow.fetch.intake.on_resumed(now, false);
            flow.fetch.ask_on(&mut self.outbox);
        }
        self.reschedule(flow_slot);
    }

    /// The upstream has no room for the flow. Then this relay has none either, and the neighbours that asked for it
    /// come back later.
    pub(super) fn put_off(&mut self, now: Instant, flow_slot: Slot, not_now: NotNow) {
        self.close_opening(now, flow_slot, Found::NotAsked);
        let Some(flow) = self.flows.remove(flow_slot) else { return };
        let Flow { fetch: Fetch { id, .. }, subscribers, .. } = *flow;
        self.agenda.remove(flow_slot);
        for subscriber in subscribers {
            subscriber.close(&mut self.downlinks, Ending::PutOff);
            let news = News::NotNow(not_now);
            self.outbox.push(Control::Notice { link: subscriber.link, flow: id, news });
        }
    }

    /// The upstream has no room for the whole request: it is asked once more, and the waiting neighbours are told
    /// the reason.
    pub(super) fn put_part_off(&mut self, now: Instant, flow_slot: Slot, not_now: NotNow) {
        let spread = not_now.after.scaled(self.rng.below(SPREAD), 2 * SPREAD);
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        flow.asks_at = Some(now + not_now.after + spread);
        for subscriber in flow.subscribers.iter().filter(|subscriber| !subscriber.wanted().is_empty()) {
            let news = News::NotNow(not_now);
            self.outbox.push(Control::Notice { link: subscriber.link, flow: flow.fetch.id, news });
        }
        self.reschedule(flow_slot);
    }

    /// Packets were lost on `link` that no hole explains: the losses were late arrivals, of any of its flows.
    pub(super) fn on_unexplained_loss(&mut self, now: Instant, link: Slot) {
        let mut last = None;
        while let Some(flow_slot) = self.agenda.with_hole_after(last) {
            if let Some(flow) = self.flows.get_mut(flow_slot).filter(|flow| flow.fetch.uplink == link) {
                self.stats.repairs +=
                    flow.fetch.on_unexplained_loss(now, &mut self.uplinks, &mut self.outbox);
            }
            self.reschedule(flow_slot);
            last = Some(flow_slot);
        }
    }

    /// After a change of routes: flows whose upstream changed ask the new one for all that is missing.
    pub(super) fn reroute(&mut self, now: Instant) {
        let slots: Vec<Slot> = self.flows.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|flow_slot| self.reroute_flow(now, flow_slot));
    }

    /// If the upstream of a flow changed, asks the new one for all that is missing.
    pub(super) fn reroute_flow(&mut self, now: Instant, flow_slot: Slot) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let Some(asked) = self.uplinks.get(flow.fetch.uplink).map(|requester| requester.face) else { return };
        let Some(upstream) = self.routes.kept(flow.fetch.id, asked) else { return };
        self.turn_to(now, flow_slot, upstream);
    }

    /// If a flow is asked of the server that its clients address, its requests go out in the name of one client,
    /// and its answers take the way to that client. If that client has stopped asking, the client at `face` takes
    /// its place.
    pub(super) fn follow(&mut self, now: Instant, flow_slot: Slot, face: Face) {
        let Some(flow) = self.flows.get(flow_slot) else { return };
        let asker = self.uplinks.get(flow.fetch.uplink).map(|requester| requester.face.local);
        if self.routes.given(flow.fetch.id).is_some() || asker == Some(face.remote) {
            return;
        }
        let asks = |subscriber: &Subscriber| {
            let responder = self.downlinks.get(subscriber.link);
            responder.is_some_and(|responder| {
                Some(responder.peer.face.remote) == asker && now.since(responder.last_heard()) < STOPPED
            })
        };
        if !flow.subscribers.iter().any(asks) {
            self.turn_to(now, flow_slot, face.reversed());
        }
    }

    fn turn_to(&mut self, now: Instant, flow_slot: Slot, upstream: Face) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let uplink = self.uplinks.link(upstream, flow.fetch.id);
        if uplink == flow.fetch.uplink {
            return;
        }
        if let Some(requester) = self.uplinks.get_mut(uplink) {
            requester.resume();
        }
        flow.fetch.turn_to(uplink, &mut self.outbox);
        if self.config.mechanisms.epochs {
            self.ask_anew(now, flow_slot);
        }
    }

    /// Another node answers under an upstream's address: it is asked for all that its predecessor was.
    pub(super) fn on_new_neighbour(&mut self, now: Instant, link: Slot) {
        let asked = self.flows.iter().filter(|(_, flow)| flow.fetch.uplink == link);
        let slots: Vec<Slot> = asked.map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|flow_slot| self.ask_anew(now, flow_slot));
    }

    /// Asks a flow's new upstream for all bytes that have not arrived.
    fn ask_anew(&mut self, now: Instant, flow_slot: Slot) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        flow.fetch.ask_anew(now, &mut self.outbox);
        self.reschedule(flow_slot);
    }

    /// The upstream wants `token` in every Interest from now on. It may have forgotten earlier requests.
    pub(super) fn prove(&mut self, link: Slot, id: FlowId, token: u32) {
        if !self.uplinks.get_mut(link).is_some_and(|requester| requester.prove(token)) {
            return;
        }
        self.outbox.feedback(link, id);
        for (_, flow) in self.flows.iter_mut().filter(|(_, flow)| flow.fetch.uplink == link) {
            // All of it: no timeout asks for the rest of a live flow.
            flow.fetch.ask_on(&mut self.outbox);
        }
    }

    /// Forgets the neighbours whose hops are given up, and all their requests.
    pub(super) fn forget_superfluous(&mut self, now: Instant) {
        let Self { downlinks, flows, outbox, .. } = self;
        downlinks.forget_superfluous(now, flows, |flow| flow.fetch.forget(outbox));
    }

    /// Forgets flows and neighbours that were silent.
    pub(super) fn sweep(&mut self, now: Instant) {
        let swept = self.downlinks.sweep(now, &mut self.flows);
        self.next_sweep = swept.next;
        for (flow_slot, flow) in swept.gone {
            self.agenda.remove(flow_slot);
            // A hop per flow goes with its flow.
            if self.config.per_flow_control {
                self.uplinks.remove(flow.fetch.uplink);
            }
        }
    }
}
