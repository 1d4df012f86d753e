//! An Interest at a relay: answered from the cache, joined to bytes under way, or passed on.

use super::{Relay, Taken};
use crate::hop::{Asking, Control, Denied, Ending, Found, Subscriber};
use crate::name::ByteRange;
use crate::table::Slot;
use crate::time::Instant;
use crate::wire::{DataFlags, Interest, NotNow, Reason, Suite, Waited};

impl<C: Suite> Relay<C> {
    pub(super) fn on_interest(&mut self, now: Instant, asking: &Asking<'_>) -> Taken {
        self.stats.interests_in += 1;
        let interest = asking.interest;
        let link = match self.hear(now, asking) {
            Ok(link) => link,
            Err(Denied::NoRoom(not_now)) => return self.over_limit(asking, None, not_now),
            Err(Denied::Unproven(token)) => {
                self.outbox.want_token(asking, token);
                return Taken::Yes;
            }
        };
        self.forget_old_turn(link, interest);
        if interest.ranges.is_empty() {
            self.on_feedback(now, link, interest);
            return Taken::Yes;
        }
        if self.outbox.answer_about_hop(&mut self.downlinks, link, asking.subject) {
            self.next_sweep.get_or_insert(now + self.config.flow_idle);
            return Taken::Yes;
        }
        let flow_slot = match self.subscribe(now, asking, link) {
            Ok(flow_slot) => flow_slot,
            Err(not_now) => return self.over_limit(asking, Some(link), not_now),
        };
        let mut parts = core::mem::take(&mut self.scratch.parts);
        let mut refused = 0;
        for part in parts.drain(..) {
            let taken = self.admit(flow_slot, link, part);
            refused += part.len() - taken.len();
            if !taken.is_empty() {
                self.serve(now, flow_slot, link, taken, interest);
            }
        }
        self.scratch.parts = parts;
        if refused > 0 {
            self.stats.over_credit += refused;
            self.outbox.put_off(asking, Some(link), self.downlinks.too_many_bytes(link));
        }
        self.reschedule(flow_slot);
        Taken::Yes
    }

    /// Notes the request of the neighbour on `link` for a flow, and leaves the parts to answer in the scratch list.
    fn subscribe(&mut self, now: Instant, asking: &Asking<'_>, link: Slot) -> Result<Slot, NotNow> {
        let interest = asking.interest;
        let is_new = self.flows.find(&interest.flow).is_none();
        if is_new {
            self.downlinks.check_flows(self.flows.len() + 1)?;
            self.downlinks.take_opening(now, link)?;
        }
        let flow_slot = self.flow(now, interest.flow, asking.peer.face);
        self.follow(now, flow_slot, asking.peer.face);
        let Some(flow) = self.flows.get_mut(flow_slot) else { return Err(NotNow::NO_ROOM) };
        flow.last_used = now;
        if is_new {
            flow.opened_by = Some(link);
        }
        let (subscribers, of_flow) = (&mut flow.subscribers, (flow.fetch.id, flow_slot, interest.turn));
        let subscriber = Subscriber::find_or_add(subscribers, &mut self.downlinks, now, link, of_flow)?;
        self.downlinks.set_queue_rate(now, link, subscriber.queue, interest.flow_rate);
        let mut allowance = self.config.request_limit;
        for &range in interest.ranges.iter() {
            let range = range.prefix(allowance);
            allowance -= range.len();
            subscriber.take_request(range, interest.reason, &mut self.scratch.parts);
        }
        Ok(flow_slot)
    }

    /// Takes the hop's control, and asks a neighbour that has not proved its address for its token.
    fn hear(&mut self, now: Instant, asking: &Asking<'_>) -> Result<Slot, Denied> {
        let asked = self.downlinks.on_interest(now, asking);
        self.forget_superfluous(now);
        Ok(self.outbox.welcome(now, &mut self.suite, asking, asked?))
    }

    /// A limit keeps the relay from serving a request. A neighbour that addressed the relay is told; an intercepted
    /// request goes on to its server.
    fn over_limit(&mut self, asking: &Asking<'_>, link: Option<Slot>, not_now: NotNow) -> Taken {
        self.stats.over_limit += 1;
        let is_told = link.is_none_or(|link| self.downlinks.is_settled(link));
        if is_told && !self.names.are_by_server() {
            self.outbox.put_off(asking, link, not_now);
        }
        Taken::No
    }

    /// The front of `part` that a neighbour may wait for, too.
    fn admit(&mut self, flow_slot: Slot, link: Slot, part: ByteRange) -> ByteRange {
        let flow = self.flows.get_mut(flow_slot);
        let subscriber = flow.and_then(|flow| flow.subscribers.iter_mut().find(|s| s.link == link));
        let bounds = (self.config.max_ranges_per_flow, self.config.payload as u64);
        subscriber.map_or(part.prefix(0), |subscriber| subscriber.admit(&mut self.downlinks, part, bounds))
    }

    /// It is known now whether the name that a neighbour asked for first exists.
    pub(super) fn close_opening(&mut self, now: Instant, flow_slot: Slot, found: Found) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let Some(link) = flow.opened_by.take() else { return };
        if flow.subscribers.iter().any(|subscriber| subscriber.link == link) {
            self.downlinks.note_opening(now, link, found);
        }
    }

    fn on_feedback(&mut self, now: Instant, link: Slot, interest: &Interest) {
        let flow = self.flows.find(&interest.flow).and_then(|slot| self.flows.get(slot));
        let subscriber = flow.and_then(|flow| flow.subscribers.iter().find(|s| s.link == link));
        if let Some(subscriber) = subscriber {
            self.downlinks.set_queue_rate(now, link, subscriber.queue, interest.flow_rate);
        }
    }

    /// A neighbour that has turned to another upstream, or back to us, no longer wants the bytes that it asked for
    /// before. If no other neighbour wants them, our own upstream is told the same.
    fn forget_old_turn(&mut self, link: Slot, interest: &Interest) {
        let Some(flow) = self.flows.find(&interest.flow).and_then(|slot| self.flows.get_mut(slot)) else {
            return;
        };
        let has_turned = flow.subscribers.iter().any(|s| s.link == link && s.turn != interest.turn);
        if !has_turned {
            return;
        }
        Subscriber::drop_link(&mut flow.subscribers, &mut self.downlinks, link, Ending::TurnedAway);
        if flow.subscribers.is_empty() {
            flow.fetch.forget(&mut self.outbox);
        }
    }

    /// Answers one requested range as far as it is here, and asks for the rest.
    fn serve(&mut self, now: Instant, flow_slot: Slot, link: Slot, part: ByteRange, interest: &Interest) {
        let Some(flow) = self.flows.get(flow_slot) else { return };
        if let Some(length) = flow.length.filter(|&length| part.end > length) {
            if part.start >= length {
                if flow.subscribers.iter().any(|s| s.link == link && s.is_short_of(&self.downlinks, length)) {
                    return;
                }
                let flags = DataFlags { end: true, ..DataFlags::default() };
                self.outbox.push(Control::Answer { link, flow: flow.fetch.id, offset: length, flags });
                return;
            }
            self.serve(now, flow_slot, link, ByteRange::new(part.start, length), interest);
            return;
        }
        let (id, mut found) = (flow.fetch.id, core::mem::take(&mut self.scratch.found));
        if self.config.cache_answers && !flow.is_volatile {
            self.cache.find(id, part, &mut found);
            if !found.is_empty() && self.forget_wrong(now, flow_slot, part) {
                found.clear();
                self.cache.find(id, part, &mut found);
            }
        }
        if !found.is_empty() {
            self.close_opening(now, flow_slot, Found::Here);
        }
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let Some(subscriber) = flow.subscribers.iter_mut().find(|s| s.link == link) else { return };
        subscriber.reads_apart &= found.is_empty();
        self.downlinks.note_cached(link, found.iter().map(|hit| hit.len()).sum());
        let mut from = part.start;
        for &hit in &found {
            self.stats.cache_hit_bytes += hit.len();
            if interest.reason == Reason::Lost && subscriber.has_queued(&self.downlinks, hit) {
                // It waits for its turn, and is not lost.
                self.outbox.coming(&self.config, link, flow.fetch.id, hit);
                continue;
            }
            let how = (interest.reason, Waited::DRY);
            subscriber.enqueue(now, &mut self.downlinks, hit, how, &mut self.scratch.gaps);
        }
        for hit in found.drain(..).chain([ByteRange::at(part.end, 0)]) {
            let miss = ByteRange::new(from, hit.start);
            from = hit.end;
            if !miss.is_empty() {
                self.fetch(now, flow_slot, link, miss, interest);
            }
        }
        self.scratch.found = found;
    }

    /// Asks the upstream for bytes that are not here, unless they are under way.
    fn fetch(&mut self, now: Instant, flow_slot: Slot, link: Slot, miss: ByteRange, interest: &Interest) {
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        let Some(subscriber) = flow.subscribers.iter_mut().find(|s| s.link == link) else { return };
        // Queued bytes of a volatile flow are here, although the cache does not answer with them.
        if subscriber.has_queued(&self.downlinks, miss) {
            if interest.reason == Reason::Lost {
                self.outbox.coming(&self.config, link, flow.fetch.id, miss);
            }
            return;
        }
        if interest.reason == Reason::Lost {
            let patience = self.uplinks.hop_rtt(flow.fetch.uplink).scaled(2, 1).max(self.config.reorder_time);
            flow.fetch.intake.on_others_waited(self.uplinks.waits(now, flow.fetch.uplink));
            if flow.fetch.intake.is_on_its_way(miss, now, patience) {
                subscriber.want(&mut self.downlinks, miss, interest.reason);
                self.stats.aggregated_bytes += miss.len();
                self.outbox.coming(&self.config, link, flow.fetch.id, miss);
                return;
            }
        }
        if interest.hop_limit <= 1 {
            return;
        }
        subscriber.want(&mut self.downlinks, miss, interest.reason);
        let hop_limit = interest.hop_limit.min(Interest::DEFAULT_HOP_LIMIT) - 1;
        if interest.reason == Reason::Lost {
            flow.fetch.ask_again(now, miss, hop_limit, &mut self.outbox);
            return;
        }
        let new: u64 = flow.fetch.intake.expected().gaps(miss).map(ByteRange::len).sum();
        self.stats.aggregated_bytes += miss.len() - new;
        let mut gaps = core::mem::take(&mut self.scratch.gaps);
        gaps.extend(flow.fetch.intake.expected().gaps(miss));
        subscriber.reads_apart = false;
        for gap in gaps.drain(..) {
            let reason = flow.fetch.ask(gap, hop_limit, &mut self.outbox);
            subscriber.reads_apart |= reason == Reason::Again;
        }
        self.scratch.gaps = gaps;
    }
}
