use crate::time::{Duration, Instant};

/// Decay of the longest pause, per packet.
const FORGET: (u64, u64) = (31, 32);
/// Shorter pauses are due to schedulers and bursts.
const MIN_QUIET: Duration = Duration::from_millis(20);

/// Notices that a flow has stopped in the middle: no byte for twice its longest earlier pause. If the way leads
/// through other nodes from one packet to the next, no packet says so: one early request finds out which node
/// answers now, long before a timeout would, and costs a duplicate packet if nothing has changed. (TCP's tail loss
/// probe, RFC 8985 section 7.2, waits for two round trips, because its answer begins a repair.)
#[derive(Debug, Default)]
pub(super) struct Silence {
    last: Option<Instant>,
    longest: Duration,
    /// Whether this silence has been asked about.
    is_probed: bool,
}

impl Silence {
    /// New bytes arrived.
    pub(super) fn on_bytes(&mut self, now: Instant) {
        let pause = self.last.map_or(Duration::ZERO, |last| now.since(last));
        self.longest = pause.max(self.longest.scaled(FORGET.0, FORGET.1));
        self.last = Some(now);
        self.is_probed = false;
    }

    /// Time of the probe; once per silence.
    pub(super) fn due(&self) -> Option<Instant> {
        let last = self.last.filter(|_| !self.is_probed)?;
        Some(last + self.longest.scaled(2, 1).max(MIN_QUIET))
    }

    /// The question is asked.
    pub(super) fn on_probe(&mut self) {
        self.is_probed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A flow with a packet every millisecond, and after every `burst` a pause.
    fn flow(burst: u64, pause: u64, packets: u64) -> (Silence, Instant, u32) {
        let (mut silence, mut now, mut probes) = (Silence::default(), Instant::ZERO, 0);
        for packet in 0..packets {
            now += ms(if packet % burst == burst - 1 { pause } else { 1 });
            if silence.due().is_some_and(|due| due <= now) {
                silence.on_probe();
                probes += 1;
            }
            silence.on_bytes(now);
        }
        (silence, now, probes)
    }

    #[test]
    fn a_steady_flow_that_stops_is_asked_about_once() {
        let (mut silence, last, probes) = flow(1, 1, 100);
        assert_eq!(probes, 0);
        assert_eq!(silence.due(), Some(last + ms(20)));
        silence.on_probe();
        assert_eq!(silence.due(), None);
        silence.on_bytes(last + ms(500));
        assert!(silence.due().is_some());
    }

    #[test]
    fn pauses_that_repeat_themselves_are_the_flows_own() {
        for (burst, pause) in [(1, 100), (5, 100), (10, 300)] {
            let probes = flow(burst, pause, 1_000).2;
            assert!(probes <= 2, "{probes} probes in bursts of {burst} every {pause} ms");
        }
    }

    #[test]
    fn nothing_is_asked_about_before_the_first_byte() {
        assert_eq!(Silence::default().due(), None);
    }
}
