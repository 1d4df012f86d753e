//! A Notice at a relay: a range that it need not ask for, the end of the bytes sent before a pause, a token, or a
//! refusal for want of room.

use super::Relay;
use crate::hop::{HELLO, Received, Subject};
use crate::peer::Peer;
use crate::time::Instant;
use crate::wire::{News, Notice, Suite};

impl<C: Suite> Relay<C> {
    pub(super) fn on_notice(&mut self, now: Instant, peer: &Peer, notice: Notice) {
        if let (Subject::Neighbour, News::Token(token)) = (Subject::of(notice.flow), notice.news) {
            let link = self.uplinks.find(peer.face, HELLO);
            return link.into_iter().for_each(|link| self.prove(link, HELLO, token));
        }
        let Some(flow_slot) = self.flows.find(&notice.flow) else { return };
        let Some(link) = self.uplink_from(flow_slot, peer.face) else { return };
        let range = match notice.news {
            News::Key(_) => return,
            News::Token(token) => return self.prove(link, notice.flow, token),
            News::NotNow(not_now) if not_now.limit.is_whole() => {
                return self.put_off(now, flow_slot, not_now);
            }
            News::NotNow(not_now) => return self.put_part_off(now, flow_slot, not_now),
            News::Coming(range) => range,
        };
        let Some(heard) = self.uplinks.on_packet(now, link, peer, Received::mark(&notice, range)) else {
            return;
        };
        self.on_heard(now, flow_slot, &heard);
        let Some(flow) = self.flows.get_mut(flow_slot) else { return };
        flow.last_used = now;
        if !range.is_empty() {
            flow.fetch.intake.on_notice(now, range);
            self.reschedule(flow_slot);
        }
    }
}
