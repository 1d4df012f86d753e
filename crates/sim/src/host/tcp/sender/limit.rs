//! Whether the window held the sender back (RFC 7661, in the way that Linux does it).

/// Remembers over a window of data whether it was used up.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct CwndLimit {
    is_limited: bool,
    most_out: u32,
    until: u64,
}

impl CwndLimit {
    /// The sender stopped with `out` segments unacknowledged of which the last is before `next`; `is_limited`: for
    /// want of window.
    pub(crate) fn on_stop(&mut self, is_limited: bool, out: u32, first: u64, next: u64) {
        if first >= self.until || is_limited || (!self.is_limited && out > self.most_out) {
            *self = Self { is_limited, most_out: out, until: next };
        }
    }

    /// Whether the window may grow: it was used up, or in slow start more than half of it was.
    pub(crate) fn may_grow(&self, cwnd: f64, is_slow_start: bool) -> bool {
        self.is_limited || (is_slow_start && cwnd < 2.0 * f64::from(self.most_out))
    }
}
