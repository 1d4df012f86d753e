//! The options of the erasure code, checked once.

use crate::time::Duration;
use core::ops::Deref;

/// Settings of an encoder and its decoder. [`FecConfig::new`] checks them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FecSettings {
    /// The share of packets that may stay lost: as much parity is sent as this needs at the measured loss.
    pub residual: f64,
    /// Parity packets per packet at most, three per block apart: a path that loses by congestion must not be flooded.
    pub most_overhead: f64,
    /// Packets of a block at most.
    pub most_block: u8,
    /// A block that has not filled up is closed after this.
    pub block_time: Duration,
    /// Longest time for which the decoder keeps packets behind a gap.
    pub hold: Duration,
    /// A gap is not repaired any more this long after a packet of a later block arrived: the allowance for
    /// reordering by the path.
    pub reorder: Duration,
    /// Interval of the decoder's loss reports.
    pub report_every: Duration,
    /// The share of packets lost that the encoder expects before the first report.
    pub first_guess: f64,
}

impl Default for FecSettings {
    fn default() -> Self {
        Self {
            // One in 100,000: a window of a GEO path of 10 Mbit/s is 600 packets, so every 160 windows.
            residual: 1e-5,
            most_overhead: 0.5,
            most_block: 64,
            // Packets that waited behind a gap leave at once: 60 ms at 1 Mbit/s are eight packets, which a
            // gateway's queue of 20 takes.
            block_time: Duration::from_millis(60),
            // A block, and as long again for its parity to come.
            hold: Duration::from_millis(120),
            reorder: Duration::from_millis(10),
            report_every: Duration::from_millis(200),
            first_guess: 0.01,
        }
    }
}

/// An impossible setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FecConfigError {
    /// Its name.
    pub field: &'static str,
    /// The fault of the setting.
    pub problem: &'static str,
}

/// Settings that make a code.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FecConfig(FecSettings);

/// A frame names a packet's place in its block, and so does one of parity, with a byte.
const MOST_BLOCK: u8 = 128;

impl FecConfig {
    /// Checks settings.
    ///
    /// # Errors
    /// The first field that is impossible.
    pub fn new(settings: FecSettings) -> Result<Self, FecConfigError> {
        let error = |field, problem| Err(FecConfigError { field, problem });
        let s = &settings;
        if !(s.residual > 0.0 && s.residual < 1.0) {
            return error("residual", "must lie between 0 and 1, both excluded");
        }
        if !(s.most_overhead > 0.0 && s.most_overhead <= 1.0) {
            return error("most_overhead", "must lie above 0 and not above 1");
        }
        if !(1..=MOST_BLOCK).contains(&s.most_block) {
            return error("most_block", "must lie between 1 and 128 packets");
        }
        if s.block_time.is_zero() {
            return error("block_time", "must be above 0");
        }
        if s.hold < s.block_time {
            return error("hold", "must not be shorter than block_time: parity would come too late");
        }
        if s.report_every.is_zero() {
            return error("report_every", "must be above 0");
        }
        if !(0.0..1.0).contains(&s.first_guess) {
            return error("first_guess", "must lie between 0 and 1, 1 excluded");
        }
        Ok(Self(settings))
    }
}

impl Deref for FecConfig {
    type Target = FecSettings;
    fn deref(&self) -> &FecSettings {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named() {
        let field = |change: fn(&mut FecSettings)| {
            let mut settings = FecSettings::default();
            change(&mut settings);
            FecConfig::new(settings).err().map(|error| error.field)
        };
        assert_eq!(field(|_| ()), None);
        assert_eq!(field(|s| s.residual = 0.0), Some("residual"));
        assert_eq!(field(|s| s.most_overhead = f64::NAN), Some("most_overhead"));
        assert_eq!(field(|s| s.most_block = 129), Some("most_block"));
        assert_eq!(field(|s| s.hold = Duration::from_millis(59)), Some("hold"));
        assert_eq!(field(|s| s.first_guess = 1.0), Some("first_guess"));
    }
}
