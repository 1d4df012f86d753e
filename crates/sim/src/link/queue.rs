//! The drop-tail queue in front of a transmitter.

use starhop_proto::time::Instant;
use std::collections::VecDeque;

/// The limit of the waiting packets. The packet on the transmitter does not wait (as in ns-2 and ns-3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueLimit {
    /// Everything.
    Unlimited,
    /// This many packets.
    Packets(u32),
    /// This many bytes on the wire.
    Bytes(u64),
}

/// Remembers for each waiting packet the moment at which it stops waiting, so that a packet needs one event, at its
/// arrival, and none when it leaves the queue.
#[derive(Clone, Debug)]
pub struct DropTail {
    limit: QueueLimit,
    waiting: VecDeque<(Instant, u32)>,
    bytes: u64,
}

impl DropTail {
    /// An empty queue.
    pub fn new(limit: QueueLimit) -> Self {
        Self { limit, waiting: VecDeque::new(), bytes: 0 }
    }

    /// Whether a packet of `bytes` that cannot be sent at once finds room at `now`.
    pub fn has_room(&mut self, now: Instant, bytes: u32) -> bool {
        match self.limit {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(limit) => {
                self.release(now);
                self.waiting.len() < limit as usize
            }
            QueueLimit::Bytes(limit) => {
                self.release(now);
                self.bytes + u64::from(bytes) <= limit
            }
        }
    }

    /// Takes a packet that waits until `leaves`.
    pub fn push(&mut self, leaves: Instant, bytes: u32) {
        if self.limit != QueueLimit::Unlimited {
            self.waiting.push_back((leaves, bytes));
            self.bytes += u64::from(bytes);
        }
    }

    /// Empties the queue.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
    }

    fn release(&mut self, now: Instant) {
        while let Some(&(leaves, bytes)) = self.waiting.front()
            && leaves <= now
        {
            self.bytes -= u64::from(bytes);
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_queue_admits_up_to_its_last_byte() {
        let mut queue = DropTail::new(QueueLimit::Bytes(3000));
        queue.push(Instant::from_nanos(10), 1500);
        assert!(queue.has_room(Instant::ZERO, 1500));
        assert!(!queue.has_room(Instant::ZERO, 1501));
        assert!(queue.has_room(Instant::from_nanos(10), 3000));
    }
}
