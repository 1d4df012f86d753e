//! What is loaded, as a value.

use crate::control::Control;
use std::path::PathBuf;

/// How long a control stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lifetime {
    /// As long as the process that loads it.
    Process,
    /// Until it is unloaded or the machine restarts.
    Persistent,
}

/// A control of ours that the kernel offers now.
#[derive(Debug)]
pub struct Registered {
    /// Which control.
    pub control: &'static Control,
    /// Where it is pinned, if it outlives its loader.
    pub pinned: Option<PathBuf>,
    /// Processes that hold it.
    pub holders: Vec<u32>,
    /// What it has counted.
    pub counters: Counters,
    /// Connections that go on with an earlier, unloaded instance.
    pub sockets_of_earlier: u64,
}

/// What a control has counted since it was loaded, over all sockets and namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections that use it now.
    pub sockets: u64,
    /// Reductions for losses that were taken for random.
    pub random: u64,
    /// Those that may have been either.
    pub unclear: u64,
    /// Those that were taken for congestion.
    pub congestion: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl Counters {
    /// From the bytes of `struct counters`; zero where they are too few.
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
