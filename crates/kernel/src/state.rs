//! The loaded controls and routers, as values.

use crate::control::Control;
use std::path::PathBuf;

/// Lifetime of a control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    /// As long as the process that loads it.
    Process,
    /// It stays until it is unloaded or the machine restarts.
    Persistent,
}

/// A control of ours that the kernel offers now.
#[derive(Debug)]
pub struct Registered {
    /// The control.
    pub control: &'static Control,
    /// The path at which it is pinned, if it outlives its loader.
    pub pinned: Option<PathBuf>,
    /// Processes that hold it.
    pub holders: Vec<u32>,
    /// Its counters.
    pub counters: Counters,
    /// Connections that go on with an earlier, unloaded instance.
    pub sockets_of_earlier: u64,
}

/// Counters of a control since it was loaded, over all sockets and namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections that use it now.
    pub sockets: u64,
    /// Reductions for losses that were taken for random.
    pub random: u64,
    /// Reductions for losses that may have been random or due to congestion.
    pub unclear: u64,
    /// Reductions for losses that were taken for congestion.
    pub congestion: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl Counters {
    /// Parses the bytes of `struct counters`; zeros if they are too few.
    #[cfg(feature = "loader")]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let field = |index: usize| {
            let bytes = bytes.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let [sockets, random, unclear, congestion, timeouts] = std::array::from_fn(field);
        Self { sockets, random, unclear, congestion, timeouts }
    }
}

/// Settings of an XCP router.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RouterSettings {
    /// Rate of the link behind the device, bits per second of IP packets and `overhead`.
    pub rate_bps: u64,
    /// Share of the spare bandwidth that is handed out per control interval.
    pub alpha: f64,
    /// Share of the standing queue that is taken back per control interval.
    pub beta: f64,
    /// Share of the traffic that is shuffled from flow to flow.
    pub gamma: f64,
    /// Only traffic with XCP's header counts.
    pub own: bool,
    /// Bytes that the queue of the link holds, where that is not the device's own; 0: no bound.
    pub queue_limit: u64,
    /// Bytes that the link adds to every IP packet, and that `rate_bps` includes.
    pub overhead: u32,
}

impl RouterSettings {
    /// The paper's constants.
    pub fn of_rate(rate_bps: u64) -> Self {
        Self { rate_bps, alpha: 0.4, beta: 0.226, gamma: 0.1, own: false, queue_limit: 0, overhead: 0 }
    }

    /// As `struct xcp_settings` of the program.
    #[cfg(feature = "loader")]
    pub(crate) fn values(&self) -> [u64; 7] {
        let q16 = |value: f64| (value * 65_536.0).round() as u64;
        let constants = [self.alpha, self.beta, self.gamma].map(q16);
        let [alpha, beta, gamma] = constants;
        let overhead = u64::from(self.overhead);
        [self.rate_bps / 8, alpha, beta, gamma, u64::from(self.own), self.queue_limit, overhead]
    }
}

/// Counters of an XCP router.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouterState {
    /// The control interval, µs: the mean round trip of the traffic.
    pub interval_us: u64,
    /// Bits per second that came in the last interval.
    pub input_bps: u64,
    /// Bytes that did not drain from the queue.
    pub standing_bytes: u64,
    /// Packets, those with XCP's header, and control intervals since the start.
    pub packets: u64,
    /// Packets with XCP's header.
    pub headers: u64,
    /// Control intervals.
    pub intervals: u64,
}
