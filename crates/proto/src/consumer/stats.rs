/// Counters of one flow since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowStats {
    /// New bytes received.
    pub received_bytes: u64,
    /// Bytes received again.
    pub duplicate_bytes: u64,
    /// Interests sent.
    pub interests_sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Ranges asked for again on the last hop.
    pub repairs: u64,
    /// End-to-end timeouts.
    pub timeouts: u64,
    /// Number of times that it was told "not now".
    pub put_off: u64,
    /// Bytes that the application found to be wrong.
    pub rejected_bytes: u64,
}

impl FlowStats {
    /// Adds the counters of another flow.
    pub fn add(&mut self, other: Self) {
        self.received_bytes += other.received_bytes;
        self.duplicate_bytes += other.duplicate_bytes;
        self.interests_sent += other.interests_sent;
        self.sent_bytes += other.sent_bytes;
        self.repairs += other.repairs;
        self.timeouts += other.timeouts;
        self.put_off += other.put_off;
        self.rejected_bytes += other.rejected_bytes;
    }
}

/// Counters of a Consumer since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerStats {
    /// Sums over all flows, closed ones included.
    pub flows: FlowStats,
    /// Datagrams that were refused, did not parse, or came from a node that was not asked.
    pub bad_datagrams: u64,
}
