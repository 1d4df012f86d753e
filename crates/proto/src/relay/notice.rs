//! A Notice at a relay: a range that it need not ask for, or the end of what was sent before a pause.

use super::Relay;
use crate::hop::Received;
use crate::time::Instant;
use crate::wire::{Notice, Suite};
use core::net::SocketAddr;

impl<C: Suite> Relay<C> {
    pub(super) fn on_notice(&mut self, now: Instant, from: SocketAddr, notice: Notice) {
        let Some(flow_slot) = self.flows.find(&notice.flow) else { return };
        let Some(link) = self.uplink_from(flow_slot, from) else { return };
        let Some(heard) = self.uplinks.on_packet(now, link, Received::notice(&notice)) else { return };
        self.on_heard(now, flow_slot, &heard);
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        flow.last_used = now;
        if !notice.range.is_empty() {
            flow.intake.on_notice(now, notice.range);
            self.reschedule(flow_slot);
        }
    }
}
