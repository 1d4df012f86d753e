//! The account of one flow to one neighbour, from its first packet to its end, for the operator's log.

use crate::name::FlowId;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use core::net::SocketAddr;

/// The most transfers that ended and were not taken yet; the oldest are dropped first.
const MAX_KEPT: usize = 1024;

/// Why a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The end of the flow was sent, and the neighbour asked for nothing more.
    Complete,
    /// The neighbour asked for no more, before the end of the flow.
    Stopped,
    /// The neighbour fell silent while bytes that it had asked for were still missing.
    Silent,
    /// The neighbour started anew and knows of no request.
    Restarted,
    /// The neighbour turned to another upstream.
    TurnedAway,
    /// The upstream has no room for it: the neighbour was told when to come back.
    PutOff,
    /// The source no longer has the flow, or never had it.
    Withdrawn,
}

impl Ending {
    /// One word for logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Stopped => "stopped",
            Self::Silent => "silent",
            Self::Restarted => "restarted",
            Self::TurnedAway => "turned-away",
            Self::PutOff => "put-off",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A flow that a neighbour was sent, when it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The flow.
    pub flow: FlowId,
    /// The neighbour.
    pub to: SocketAddr,
    /// Time of its first packet.
    pub began: Instant,
    /// Time of its last packet.
    pub last_sent: Instant,
    /// Payload bytes sent, repairs included.
    pub bytes: u64,
    /// Payload bytes that were sent out of the flow's order: repairs and late arrivals.
    pub repair_bytes: u64,
    /// Why it ended.
    pub ending: Ending,
}

/// Tally of the bytes that a queue has sent of its flow.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    began: Instant,
    last_sent: Instant,
    bytes: u64,
    repair_bytes: u64,
    has_end: bool,
}

impl Default for Tally {
    fn default() -> Self {
        let (began, last_sent) = (Instant::NEVER, Instant::ZERO);
        Self { began, last_sent, bytes: 0, repair_bytes: 0, has_end: false }
    }
}

impl Tally {
    /// `bytes` of payload leave at `now`.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, bytes: u64, is_repair: bool) {
        self.began = self.began.min(now);
        self.last_sent = now;
        self.bytes += bytes;
        self.repair_bytes += if is_repair { bytes } else { 0 };
    }

    /// The bytes that leave now are the last of the flow.
    pub fn on_end(&mut self) {
        self.has_end = true;
    }

    /// Departure of the last packet.
    pub fn last_sent(&self) -> Instant {
        self.last_sent
    }

    /// Whether the end of the flow was sent.
    pub fn has_end(&self) -> bool {
        self.has_end
    }

    /// Whether the end of the flow was sent and nothing has followed for `quiet`.
    pub fn is_over(&self, now: Instant, quiet: Duration) -> bool {
        self.has_end && now.since(self.last_sent) >= quiet
    }

    /// The transfer that this is the account of, when it ends because of `cause` and `is_owing` says whether the
    /// neighbour still waits for bytes. `None` when nothing was sent.
    pub fn close(&self, flow: FlowId, to: SocketAddr, cause: Ending, is_owing: bool) -> Option<Transfer> {
        let Self { began, last_sent, bytes, repair_bytes, has_end } = *self;
        let ending = match cause {
            Ending::Withdrawn => Ending::Withdrawn,
            _ if has_end && !is_owing => Ending::Complete,
            Ending::Silent if !is_owing => Ending::Stopped,
            other => other,
        };
        (bytes > 0).then_some(Transfer { flow, to, began, last_sent, bytes, repair_bytes, ending })
    }
}

/// Transfers that ended, until the driver takes them.
#[derive(Debug, Default)]
pub struct Ended(VecDeque<Transfer>);

impl Ended {
    /// Notes a transfer.
    pub fn push(&mut self, transfer: Transfer) {
        if self.0.len() >= MAX_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(transfer);
    }

    /// The oldest one.
    pub fn pop(&mut self) -> Option<Transfer> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const FLOW: FlowId = FlowId([1; 16]);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn to() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 4433))
    }

    #[test]
    fn a_transfer_counts_what_was_sent_and_when() {
        let mut tally = Tally::default();
        tally.on_sent(at(5), 1000, false);
        tally.on_sent(at(9), 400, true);
        let transfer = tally.close(FLOW, to(), Ending::Silent, true).unwrap();
        assert_eq!((transfer.began, transfer.last_sent), (at(5), at(9)));
        assert_eq!((transfer.bytes, transfer.repair_bytes), (1400, 400));
        assert_eq!(transfer.ending, Ending::Silent);
    }

    #[test]
    fn what_never_sent_a_byte_was_no_transfer() {
        assert_eq!(Tally::default().close(FLOW, to(), Ending::Silent, false), None);
    }

    #[test]
    fn the_end_of_the_flow_makes_it_complete_unless_bytes_are_owed() {
        let mut tally = Tally::default();
        tally.on_sent(at(5), 1000, false);
        let ending = |tally: &Tally, cause, owing| tally.close(FLOW, to(), cause, owing).unwrap().ending;
        assert_eq!(ending(&tally, Ending::Silent, false), Ending::Stopped);
        assert_eq!(ending(&tally, Ending::Restarted, false), Ending::Restarted);
        tally.on_end();
        assert_eq!(ending(&tally, Ending::Silent, false), Ending::Complete);
        assert_eq!(ending(&tally, Ending::Restarted, false), Ending::Complete);
        assert_eq!(ending(&tally, Ending::Silent, true), Ending::Silent);
        assert_eq!(ending(&tally, Ending::Withdrawn, false), Ending::Withdrawn);
    }

    #[test]
    fn a_transfer_is_over_once_its_end_was_followed_by_quiet() {
        let mut tally = Tally::default();
        tally.on_sent(at(5), 1000, false);
        assert!(!tally.is_over(at(5000), Duration::from_secs(1)), "its end was not sent");
        tally.on_end();
        assert!(!tally.is_over(at(900), Duration::from_secs(1)));
        assert!(tally.is_over(at(1005), Duration::from_secs(1)));
    }

    #[test]
    fn transfers_that_nobody_takes_do_not_pile_up() {
        let mut ended = Ended::default();
        let mut tally = Tally::default();
        tally.on_sent(at(5), 1000, false);
        for number in 0..2000 {
            let mut flow = [0; 16];
            flow[..2].copy_from_slice(&u16::to_be_bytes(number));
            ended.push(tally.close(FlowId(flow), to(), Ending::Silent, true).unwrap());
        }
        let kept: Vec<_> = core::iter::from_fn(|| ended.pop()).collect();
        assert_eq!(kept.len(), MAX_KEPT);
        assert_eq!(kept[0].flow.0[..2], u16::to_be_bytes(2000 - MAX_KEPT as u16));
    }
}
