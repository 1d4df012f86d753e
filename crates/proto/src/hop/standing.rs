use crate::time::{Duration, Instant};

/// A stranger is sent at most this many bytes for each that came from its address (RFC 9000, section 8).
const AMPLIFICATION: u64 = 3;

/// A burst of Interests is asked for its token once: on a slow link the answers would take the place of Data.
const TOKEN_INTERVAL: Duration = Duration::from_millis(100);

/// The standing of a neighbour's address. As long as another node may have it, no more is sent there than the bytes that came from
/// there allow; a neighbour that has shown that it receives there never has to show it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Unproved: at most `allowance` bytes may be sent there.
    Stranger {
        /// Bytes that came, three times over, less those that were sent.
        allowance: u64,
        /// Time at which the neighbour was asked for its token last.
        asked_at: Option<Instant>,
    },
    /// The neighbour receives there.
    Settled,
}

impl Standing {
    /// A neighbour that was never heard.
    pub(super) const STRANGER: Self = Self::Stranger { allowance: 0, asked_at: None };

    /// A datagram of `len` bytes came from there.
    pub(super) fn on_received(&mut self, len: u64) {
        if let Self::Stranger { allowance, .. } = self {
            *allowance += AMPLIFICATION * len;
        }
    }

    /// The neighbour has shown that it receives there. True if this was not known before.
    pub(super) fn settle(&mut self) -> bool {
        core::mem::replace(self, Self::Settled) != Self::Settled
    }

    /// Whether the neighbour has shown that it receives there.
    pub(super) fn is_settled(self) -> bool {
        self == Self::Settled
    }

    /// Whether a stranger must be asked for its token at `now`; if so, it counts as asked.
    pub(super) fn take_token_request(&mut self, now: Instant) -> bool {
        let Self::Stranger { asked_at, .. } = self else { return false };
        if asked_at.is_some_and(|at| now.since(at) < TOKEN_INTERVAL) {
            return false;
        }
        *asked_at = Some(now);
        true
    }

    /// Whether a datagram of `len` bytes may be sent there.
    #[inline]
    pub(super) fn affords(self, len: u64) -> bool {
        match self {
            Self::Settled => true,
            Self::Stranger { allowance, .. } => allowance >= len,
        }
    }

    /// As [`Standing::affords`]; if it may, it counts as sent.
    #[inline]
    pub(super) fn spend(&mut self, len: u64) -> bool {
        let affords = self.affords(len);
        if let Self::Stranger { allowance, .. } = self
            && affords
        {
            *allowance -= len;
        }
        affords
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_stranger_is_sent_three_bytes_for_each_that_came() {
        let mut standing = Standing::STRANGER;
        assert!(!standing.spend(1));
        standing.on_received(100);
        assert!(standing.affords(300) && !standing.affords(301));
        assert!(standing.spend(200) && !standing.spend(101) && standing.spend(100) && !standing.spend(1));
    }

    #[test]
    fn a_neighbour_settles_once_and_is_sent_anything_from_then_on() {
        let mut standing = Standing::STRANGER;
        assert!(!standing.is_settled() && standing.settle() && standing.is_settled() && !standing.settle());
        assert!(standing.spend(u64::MAX) && standing.spend(u64::MAX));
    }

    #[test]
    fn a_burst_of_a_stranger_is_asked_for_its_token_once() {
        let mut standing = Standing::STRANGER;
        let asked = [0, 1, 99, 100, 150].map(|millis| standing.take_token_request(at(millis)));
        assert_eq!(asked, [true, false, false, true, false]);
        standing.settle();
        assert!(!standing.take_token_request(at(900)));
    }
}
