//! Rates as packet-delivery traces: the format of mahimahi's `mm-link` (Netravali et al., USENIX ATC 2015).
//!
//! Each line is a whole number of milliseconds, not falling: at that time 1500 bytes can be delivered. The last number
//! is the trace's length, after which it starts again.

/// Bytes that one line delivers.
pub const PACKET_BYTES: u64 = 1_500;

/// A line of a trace that cannot be used.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("line {line}: {reason}")]
pub struct TraceError {
    /// 1-based line; 0 if the trace as a whole is unusable.
    pub line: usize,
    /// The fault.
    pub reason: String,
}

/// A delivery trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    at_ms: Vec<u64>,
}

impl Trace {
    /// Reads a trace; blank lines are skipped.
    ///
    /// # Errors
    /// [`TraceError`] if a line is no whole number or smaller than the one before, or if the trace has no length.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut at_ms: Vec<u64> = Vec::new();
        for (index, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
            let fail = |reason: String| TraceError { line: index + 1, reason };
            let ms =
                row.trim().parse().map_err(|_| fail(format!("`{}` is no whole number of ms", row.trim())))?;
            if let Some(last) = at_ms.last().filter(|&&last| last > ms) {
                return Err(fail(format!("{ms} ms comes after {last} ms; times must not fall")));
            }
            at_ms.push(ms);
        }
        if at_ms.last().is_none_or(|&end| end == 0) {
            return Err(TraceError { line: 0, reason: "the trace is empty or 0 ms long".to_owned() });
        }
        Ok(Self { at_ms })
    }

    /// A trace that delivers at `rate_bit_s`, a function of the time in s, for `length_ms`.
    pub fn from_rate(length_ms: u64, rate_bit_s: impl Fn(f64) -> f64) -> Self {
        let packet_bits = (PACKET_BYTES * 8) as f64;
        let (mut at_ms, mut credit) = (Vec::new(), 0.0);
        for ms in 1..=length_ms {
            credit += rate_bit_s((ms as f64 - 0.5) / 1e3) / 1e3 / packet_bits;
            while credit >= 1.0 {
                at_ms.push(ms);
                credit -= 1.0;
            }
        }
        Self { at_ms }
    }

    /// Length of one round, s.
    pub fn length_s(&self) -> f64 {
        self.at_ms.last().copied().unwrap_or(0) as f64 / 1e3
    }

    /// Rate averaged over a round, bit/s.
    pub fn mean_bit_s(&self) -> f64 {
        (self.at_ms.len() as u64 * PACKET_BYTES * 8) as f64 / self.length_s()
    }

    /// Rates averaged over windows: (beginning of the window in s, bit/s). The last window may be shorter.
    pub fn windows(&self, window_ms: u64) -> Vec<(f64, f64)> {
        let end = self.at_ms.last().copied().unwrap_or(0);
        let rate = |from: u64| {
            let to = (from + window_ms).min(end);
            // A line at t delivers the packets of the millisecond before t.
            let place =
                |ms: u64| self.at_ms.partition_point(|&t| t <= ms) - if ms == 0 { self.at_zero() } else { 0 };
            let first = if from == 0 { 0 } else { place(from) };
            let bits = ((place(to) - first) as u64 * PACKET_BYTES * 8) as f64;
            (from as f64 / 1e3, bits * 1e3 / (to - from) as f64)
        };
        (0..end).step_by(window_ms.max(1) as usize).map(rate).collect()
    }

    fn at_zero(&self) -> usize {
        self.at_ms.partition_point(|&t| t == 0)
    }

    /// The trace as mahimahi reads it.
    pub fn to_text(&self) -> String {
        self.at_ms.iter().map(|ms| format!("{ms}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_survives_a_trip_through_the_format() {
        let trace = Trace::from_rate(10_000, |_| 12e6);
        let back = Trace::parse(&trace.to_text()).unwrap();
        assert_eq!(back, trace);
        assert!((back.mean_bit_s() / 12e6 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn windows_show_how_the_rate_moves_and_lose_no_packet() {
        let trace = Trace::from_rate(4_000, |t| if t < 2.0 { 6e6 } else { 24e6 });
        let windows = trace.windows(1_000);
        assert_eq!(windows.len(), 4);
        for (window, expected) in windows.iter().zip([6e6, 6e6, 24e6, 24e6]) {
            assert!((window.1 / expected - 1.0).abs() < 0.01, "{window:?}");
        }
        let bits: f64 = windows.iter().map(|w| w.1).sum();
        assert_eq!(bits, trace.at_ms.len() as f64 * 12_000.0);
    }

    #[test]
    fn malformed_traces_are_reported_with_their_line() {
        assert_eq!(Trace::parse("1\n2\nx\n").unwrap_err().line, 3);
        assert_eq!(Trace::parse("5\n\n4\n").unwrap_err().line, 3);
        assert_eq!(Trace::parse("0\n0\n").unwrap_err().line, 0);
    }
}
