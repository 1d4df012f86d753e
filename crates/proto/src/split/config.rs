//! The options of a split connection, checked once.

use crate::time::Duration;
use crate::units::Rate;

const LEAST_MSS: u32 = 64;
const MOST_MSS: u32 = 60_000;

/// The bytes that a connection may buffer at the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffer {
    /// So many bytes.
    Bytes(u64),
    /// The bytes of this rate over both round trips together, as they are measured when the connection opens
    /// (paper, section II.A).
    PeakRate(Rate),
}

/// Which segments leave the gateway's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// All segments that the client reports, in any order: it never reneges (paper, section IV).
    Selective,
    /// Those below the cumulative acknowledgement, as in TCP.
    Cumulative,
}

/// Settings of the satellite part of a connection. [`SplitConfig::new`] checks them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitSettings {
    /// Payload bytes of a full segment; equal for all connections of a gateway, or turns would not be fair.
    pub mss: u32,
    /// The rate of the gateway over the satellite, all connections together, headers included.
    pub rate: Rate,
    /// The bytes that the connection may buffer at the gateway.
    pub buffer: Buffer,
    /// Which segments leave that buffer.
    pub release: Release,
    /// The client's buffer, segments.
    pub receive_window: u16,
    /// The client acknowledges every so many segments.
    pub ack_every: u32,
    /// The client acknowledges segments out of order at once.
    pub ack_disorder: bool,
    /// The client acknowledges no later than this after a segment.
    pub ack_delay: Duration,
    /// The repair timer is looked at this often.
    pub granularity: Duration,
    /// Acknowledgements of the server are spread over the time between those of the client.
    pub pacing: bool,
}

impl SplitSettings {
    /// The settings of the paper's simulations of a single connection, for a satellite of `rate`.
    pub fn new(rate: Rate) -> Self {
        Self {
            mss: 512,
            rate,
            buffer: Buffer::PeakRate(rate),
            release: Release::Selective,
            // Four round trips of a megabit per second over a geostationary satellite.
            receive_window: 512,
            ack_every: 2,
            ack_disorder: true,
            // The longest that TCP allows (RFC 9293, section 3.8.6.3).
            ack_delay: Duration::from_millis(500),
            granularity: Duration::from_millis(100),
            pacing: true,
        }
    }
}

/// An impossible setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitConfigError {
    /// Its name.
    pub field: &'static str,
    /// The fault of the setting.
    pub problem: &'static str,
}

/// Settings that make a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitConfig(SplitSettings);

impl SplitConfig {
    /// Checks settings.
    ///
    /// # Errors
    /// The first setting with which no connection works.
    pub fn new(settings: SplitSettings) -> Result<Self, SplitConfigError> {
        let s = &settings;
        let is_rate = |rate: Rate| rate > Rate::ZERO && !rate.is_unlimited();
        let holds_two = match s.buffer {
            Buffer::Bytes(bytes) => bytes >= 2 * u64::from(s.mss),
            Buffer::PeakRate(_) => true,
        };
        let peak_is_rate = if let Buffer::PeakRate(rate) = s.buffer { is_rate(rate) } else { true };
        let checks = [
            ("mss", (LEAST_MSS..=MOST_MSS).contains(&s.mss), "must lie between 64 and 60000 bytes"),
            ("rate", is_rate(s.rate), "must be above 0 and limited: it is the satellite's"),
            ("buffer", holds_two, "must hold two segments"),
            ("peak_rate", peak_is_rate, "must be above 0 and limited"),
            ("receive_window", s.receive_window >= 2, "must hold two segments"),
            ("ack_every", (1..=1000).contains(&s.ack_every), "must lie between 1 and 1000 segments"),
            ("ack_delay", s.ack_delay >= Duration::from_millis(1), "must be at least 1ms"),
            ("granularity", s.granularity >= Duration::from_millis(1), "must be at least 1ms"),
        ];
        match checks.iter().find(|(_, is_fine, _)| !is_fine) {
            Some(&(field, _, problem)) => Err(SplitConfigError { field, problem }),
            None => Ok(Self(settings)),
        }
    }

    /// The same with full segments of `mss` bytes, and a client that has room for `window` of them: as near to both as is
    /// possible.
    #[must_use]
    pub fn of_segments(self, mss: u32, window: u64) -> Self {
        let receive_window = u16::try_from(window).unwrap_or(u16::MAX).max(2);
        Self(SplitSettings { mss: mss.clamp(LEAST_MSS, MOST_MSS), receive_window, ..self.0 })
    }
}

impl core::ops::Deref for SplitConfig {
    type Target = SplitSettings;
    fn deref(&self) -> &SplitSettings {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_are_named() {
        let good = SplitSettings::new(Rate::from_mbps(1));
        assert!(SplitConfig::new(good).is_ok());
        let field = |settings| SplitConfig::new(settings).map_err(|error| error.field).err();
        assert_eq!(field(SplitSettings { rate: Rate::ZERO, ..good }), Some("rate"));
        assert_eq!(field(SplitSettings { buffer: Buffer::Bytes(600), ..good }), Some("buffer"));
        assert_eq!(field(SplitSettings { ack_every: 0, ..good }), Some("ack_every"));
    }
}
