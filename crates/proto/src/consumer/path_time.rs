use crate::lowest::Lowest;
use crate::smoothed::Smoothed;
use crate::time::{Duration, Instant};

/// The least time of a path counts for one to two of these spans.
const SPAN: Duration = Duration::from_secs(15);

/// The time that an answer takes, its waiting for its turn not counted.
#[derive(Debug)]
pub(super) struct PathTime {
    usual: Option<Smoothed>,
    /// Seconds.
    least: Lowest,
    /// No answer takes less. Counts until the path is measured, which takes a request whose first packet was not lost.
    hop_rtt: Duration,
    is_old: bool,
}

impl Default for PathTime {
    fn default() -> Self {
        Self { usual: None, least: Lowest::new(SPAN), hop_rtt: Duration::ZERO, is_old: false }
    }
}

impl PathTime {
    /// A range asked for once was answered after `rtt`, its wait not counted.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        match self.usual.as_mut().filter(|_| !core::mem::take(&mut self.is_old)) {
            Some(usual) => {
                usual.on_sample(rtt);
                self.least.on_value(now, rtt.as_secs_f64());
            }
            None => {
                self.usual = Some(Smoothed::first(rtt, rtt.scaled(1, 8)));
                self.least.reset(rtt.as_secs_f64());
            }
        }
    }

    /// The first hop of the path takes so long.
    pub(super) fn on_hop_rtt(&mut self, hop_rtt: Duration) {
        self.hop_rtt = hop_rtt;
    }

    /// The path has changed: it has to be measured anew. Until then the old time is a better guess than none.
    pub(super) fn on_new_path(&mut self) {
        self.is_old = true;
    }

    /// Most answers take no longer.
    pub(super) fn usual(&self) -> Duration {
        self.usual.map_or(self.hop_rtt, |usual| usual.mean + usual.deviation.scaled(2, 1))
    }

    /// The least of the last 15 to 30 s; without end before the first answer.
    pub(super) fn least(&self) -> Duration {
        Duration::from_secs_f64(self.least.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hop_counts_until_the_path_is_measured_and_an_old_path_until_the_new_one_is() {
        let ms = Duration::from_millis;
        let mut path = PathTime::default();
        path.on_hop_rtt(ms(10));
        assert_eq!(path.usual(), ms(10));
        path.on_rtt(Instant::ZERO, ms(80));
        assert_eq!((path.usual(), path.least()), (ms(100), ms(80)));
        path.on_new_path();
        assert_eq!((path.usual(), path.least()), (ms(100), ms(80)));
        path.on_rtt(Instant::ZERO, ms(160));
        assert_eq!(
            (path.usual(), path.least()),
            (ms(200), ms(160)),
            "the shorter path of before is forgotten"
        );
    }
}
