//! The loss of a path: its share, and the length of its runs.

use super::FecReport;

/// Older packets than this, about, do not count any more.
const MEMORY: f64 = 5_000.0;
/// The guess before the first report weighs as much as so many packets.
const PRIOR: f64 = 200.0;

/// The loss of a path, from the reports of its far end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossEstimate {
    packets: f64,
    lost: f64,
    runs: f64,
    last: FecReport,
}

impl LossEstimate {
    /// An estimate that knows nothing but a guess at the share of packets lost.
    pub fn new(first_guess: f64) -> Self {
        let lost = PRIOR * first_guess;
        Self { packets: PRIOR, lost, runs: lost, last: FecReport::default() }
    }

    /// A report came; reports count from the start, so that lost ones and doubled ones do no harm.
    pub fn on_report(&mut self, report: FecReport) {
        let packets = report.packets.wrapping_sub(self.last.packets);
        // One that is older than the last.
        if packets == 0 || packets > u32::MAX / 2 {
            return;
        }
        let weight = (MEMORY / f64::from(packets)).min(1.0);
        let new = |now: u32, before: u32| weight * f64::from(now.wrapping_sub(before).min(packets));
        let kept = (1.0 - f64::from(packets) / MEMORY).max(0.0);
        self.packets = self.packets * kept + weight * f64::from(packets);
        self.lost = self.lost * kept + new(report.lost, self.last.lost);
        self.runs = self.runs * kept + new(report.runs, self.last.runs);
        self.last = report;
    }

    /// The far end counts from the beginning again; the path is the same.
    pub fn begin_anew(&mut self) {
        self.last = FecReport::default();
    }

    /// The share of packets lost. Never zero: a loss that was not seen among so many packets may still happen once
    /// in them.
    pub fn share(&self) -> f64 {
        (self.lost + 0.5) / (self.packets + 1.0)
    }

    /// Packets that a run of losses takes, on average.
    pub fn burst(&self) -> f64 {
        ((self.lost + 0.5) / (self.runs + 0.5)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_replace_the_guess() {
        let mut estimate = LossEstimate::new(0.01);
        assert!((estimate.share() - 0.0124).abs() < 1e-3, "{}", estimate.share());
        for thousands in 1..=20 {
            let report = FecReport { packets: 1000 * thousands, lost: 40 * thousands, runs: 10 * thousands };
            estimate.on_report(report);
            // A repeated report says nothing new.
            estimate.on_report(report);
        }
        assert!((estimate.share() - 0.04).abs() < 1e-3, "{}", estimate.share());
        assert!((estimate.burst() - 4.0).abs() < 0.1, "{}", estimate.burst());
    }

    #[test]
    fn a_path_that_stopped_losing_is_believed_after_a_while_and_never_quite() {
        let mut estimate = LossEstimate::new(0.05);
        (1..=50).for_each(|k| estimate.on_report(FecReport { packets: 1000 * k, lost: 0, runs: 0 }));
        assert!((1e-5..3e-4).contains(&estimate.share()), "{}", estimate.share());
    }

    #[test]
    fn counters_wrap() {
        let mut estimate = LossEstimate::new(0.0);
        estimate.on_report(FecReport { packets: u32::MAX / 2, lost: 0, runs: 0 });
        estimate.on_report(FecReport { packets: u32::MAX - 499, lost: 0, runs: 0 });
        estimate.on_report(FecReport { packets: 500, lost: 100, runs: 100 });
        assert!((estimate.share() - 100.0 / 5000.0).abs() < 2e-3, "{}", estimate.share());
    }
}
