//! The upstream side of a flow, for the nodes that ask: the Consumer and the Relay.

use super::{Heard, Intake, Outbox, Uplinks};
use crate::deadlines::Deadlines;
use crate::name::{ByteRange, FlowId};
use crate::table::Slot;
use crate::time::Instant;
use crate::wire::Reason;
use alloc::vec::Vec;

/// A flow as it is asked for: of whom, and which bytes of it.
#[derive(Debug)]
pub struct Fetch {
    /// The flow.
    pub id: FlowId,
    /// The hop to the neighbour that is asked.
    pub uplink: Slot,
    /// The bytes that were asked for.
    pub intake: Intake,
}

/// The consequences of a packet's news for its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Noted {
    /// Ranges that were asked for again.
    pub repairs: u64,
    /// Lost packets of the hop that no hole of the flow accounts for.
    pub unexplained: u32,
    /// The neighbour is to be told the rate.
    pub is_feedback_due: bool,
}

impl Fetch {
    /// Asks for bytes that are not expected. Returns the reason: new, or for another reader.
    pub fn ask(&mut self, range: ByteRange, hop_limit: u8, outbox: &mut Outbox) -> Reason {
        let ask = self.intake.ask(range);
        outbox.ask(self.uplink, self.id, ask, hop_limit);
        ask.reason
    }

    /// Asks again for bytes that are missing.
    pub fn ask_again(&mut self, now: Instant, range: ByteRange, hop_limit: u8, outbox: &mut Outbox) {
        let ask = self.intake.ask_again(now, range);
        outbox.ask(self.uplink, self.id, ask, hop_limit);
    }

    /// Asks once more for the expected bytes, of a neighbour that may not have taken the requests; a neighbour that
    /// remembers them does not answer twice.
    pub fn ask_on(&self, outbox: &mut Outbox) {
        outbox.ask_fresh(self.uplink, self.id, self.intake.expected().iter());
    }

    /// Asks another neighbour than before for all that has not arrived: twice, because it does not answer the copies of
    /// arriving bytes.
    pub fn ask_anew(&mut self, now: Instant, outbox: &mut Outbox) {
        self.intake.on_new_path(now);
        self.ask_on(outbox);
        self.ask_on(outbox);
    }

    /// Asks the neighbour on `uplink` from now on. The one before is told.
    pub fn turn_to(&mut self, uplink: Slot, outbox: &mut Outbox) {
        let left = core::mem::replace(&mut self.uplink, uplink);
        outbox.feedback(left, self.id);
    }

    /// Nothing of the flow is wanted any more: the neighbour is told.
    pub fn forget(&mut self, outbox: &mut Outbox) {
        self.intake.forget();
        outbox.feedback(self.uplink, self.id);
    }

    /// A packet or mark of the flow came from the neighbour that is asked, and brought news of its hop: lost bytes are asked for
    /// again.
    pub fn on_heard(
        &mut self,
        now: Instant,
        heard: &Heard,
        uplinks: &mut Uplinks,
        outbox: &mut Outbox,
    ) -> Noted {
        let Some(requester) = uplinks.get_mut(heard.link) else { return Noted::default() };
        let mut repairs = outbox.take_list();
        self.intake.on_others_waited(requester.waits(now));
        let explained = self.intake.on_seen(heard.seen, heard.number, requester, &mut repairs);
        if let Some(waited) = self.intake.take_turn() {
            requester.note_turn(now, waited);
        }
        let unexplained = requester.settle(explained, heard.lost);
        if unexplained > 0 {
            self.intake.on_unexplained_loss(now, requester, &mut repairs);
        }
        let is_feedback_due = requester.feedback_due(now);
        let repairs = self.repair(repairs, outbox);
        Noted { repairs, unexplained, is_feedback_due: is_feedback_due && outbox.is_empty() }
    }

    /// Packets were lost on the hop that no hole accounts for. Returns the number of ranges that were asked for again.
    pub fn on_unexplained_loss(&mut self, now: Instant, uplinks: &mut Uplinks, outbox: &mut Outbox) -> u64 {
        let Some(requester) = uplinks.get_mut(self.uplink) else { return 0 };
        let mut repairs = outbox.take_list();
        self.intake.on_unexplained_loss(now, requester, &mut repairs);
        self.repair(repairs, outbox)
    }

    /// Time passed: bytes that are lost by now are asked for again. Returns the number of ranges.
    pub fn on_timeout(&mut self, now: Instant, uplinks: &mut Uplinks, outbox: &mut Outbox) -> u64 {
        let Some(requester) = uplinks.get_mut(self.uplink) else { return 0 };
        let mut repairs = outbox.take_list();
        self.intake.on_timeout(now, requester.hop_rtt(), requester, &mut repairs);
        self.repair(repairs, outbox)
    }

    /// Asks for ranges that were lost, in their order: from the arrival of one it is known which others are behind it.
    fn repair(&self, mut list: Vec<ByteRange>, outbox: &mut Outbox) -> u64 {
        list.sort_unstable_by_key(|range| range.start);
        outbox.ask_repairs(self.uplink, self.id, &list);
        let count = list.len() as u64;
        outbox.give_list(list);
        count
    }
}

/// The flows of a node that asks: when each is due, and which have holes.
#[derive(Debug, Default)]
pub struct Agenda {
    timeouts: Deadlines,
    /// In slot order.
    with_holes: Vec<Slot>,
}

impl Agenda {
    /// The flow in `slot` is due at `next`, and has holes or none.
    pub fn set(&mut self, slot: Slot, next: Option<Instant>, has_holes: bool) {
        self.timeouts.set(slot, next);
        match self.with_holes.binary_search(&slot) {
            Ok(place) if !has_holes => _ = self.with_holes.remove(place),
            Err(place) if has_holes => self.with_holes.insert(place, slot),
            _ => {}
        }
    }

    /// There is no flow in `slot` any more.
    pub fn remove(&mut self, slot: Slot) {
        self.set(slot, None, false);
    }

    /// Time of the next flow that is due.
    pub fn next(&self) -> Instant {
        self.timeouts.next()
    }

    /// A flow that is due by `now`.
    pub fn due(&self, now: Instant) -> Option<Slot> {
        self.timeouts.first().filter(|(at, _)| *at <= now).map(|(_, slot)| slot)
    }

    /// The first flow with holes after `slot`, or of all. The list may change between two calls.
    pub fn with_hole_after(&self, slot: Option<Slot>) -> Option<Slot> {
        let place = slot.map_or(0, |slot| self.with_holes.partition_point(|listed| *listed <= slot));
        self.with_holes.get(place).copied()
    }
}
