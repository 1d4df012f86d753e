//! The segments of a session as bytes, so that another process goes on with them.
//!
//! Segments under way count as sent now: their acknowledgements come to the next process.

use super::super::handover::{Part, parts};
use super::RateSplit;
use crate::security::SealKey;
use crate::split::{ConnectionId, Receiver, ReceiverState, SenderState};
use crate::time::Instant;
use alloc::vec::Vec;

parts!(SenderState { given, is_all, next, cumulative, received, right_edge, waiting, rtt });
parts!(ReceiverState { next, beyond, end, right_edge, kept, window });

impl<K: SealKey> RateSplit<K> {
    /// Appends the state that is not in the session.
    pub(in crate::gateway) fn put_state(&self, out: &mut Vec<u8>) {
        self.number.put(out);
        self.path.put(out);
        let senders: Vec<(u64, SenderState)> =
            self.sending.states().map(|(id, state)| (id.0, state)).collect();
        senders.put(out);
        let receivers = self.receivers.iter();
        let state = |(slot, receiver): (_, &Receiver)| Some((self.receivers.key(slot)?.0, receiver.state()));
        receivers.filter_map(state).collect::<Vec<(u64, ReceiverState)>>().put(out);
        self.over.iter().map(|(id, end)| (id.0, *end)).collect::<Vec<_>>().put(out);
    }

    /// Goes on with the state of another process.
    pub(in crate::gateway) fn take_state(&mut self, now: Instant, from: &mut &[u8]) -> Option<()> {
        self.number = Part::take(from)?;
        self.path = Part::take(from)?;
        for (id, state) in Vec::<(u64, SenderState)>::take(from)? {
            let mss = self.path.mss()?;
            let config = self.config.of_segments(mss.into(), self.path.room() / u64::from(mss));
            self.sending.resume(now, ConnectionId(id), &config, &state);
        }
        for (id, state) in Vec::<(u64, ReceiverState)>::take(from)? {
            let receiver = self.receiver(ConnectionId(id), state.window)?;
            *receiver = Receiver::resumed(receiver.config(), &state);
            self.rearm(ConnectionId(id));
        }
        for (id, end) in Vec::<(u64, u64)>::take(from)? {
            self.over.insert(ConnectionId(id), end);
            self.eldest.push_back(ConnectionId(id));
        }
        Some(())
    }
}
