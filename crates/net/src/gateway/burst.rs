use crate::sys::heap;
use starhop_proto::gateway::GatewayStats;

/// State of a connection beside users' bytes: task, socket, stream. Idle ones that carried 100 bytes take 1.6 to 2.1 KiB.
const STATE: u64 = 2 << 10;
/// Bytes through the gateway that may leave enough unused memory behind to be worth a walk over the heap.
const WORTH: u64 = 1 << 20;
/// Heartbeats after which the heap is looked through although there was no pause: a minute.
const PATIENCE: u32 = 240;

/// Gives memory back to the system after a burst.
///
/// A burst's buffers lie between the states of connections, which stay. So the heap does not shrink by itself, and
/// idle connections would take what the largest burst took.
#[derive(Debug, Default)]
pub(super) struct Burst {
    /// Bytes through the gateway when memory was given back.
    returned_at: u64,
    /// The same at the last heartbeat.
    last: u64,
    /// Heartbeats since memory was given back.
    beats: u32,
}

impl Burst {
    /// A heartbeat: the gateway is at rest between two packets.
    pub(super) fn on_beat(&mut self, stats: &GatewayStats) {
        if self.is_over(stats.user_bytes + STATE * (stats.opened + stats.accepted)) {
            heap::trim();
        }
    }

    /// True once there was a burst and then a pause of a heartbeat's length. `bytes` have gone through so far.
    fn is_over(&mut self, bytes: u64) -> bool {
        self.beats += 1;
        let is_pause = std::mem::replace(&mut self.last, bytes) == bytes || self.beats >= PATIENCE;
        let is_over = is_pause && bytes - self.returned_at >= WORTH;
        if is_over {
            (self.returned_at, self.beats) = (bytes, 0);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_once_and_when_it_pauses() {
        let mut burst = Burst::default();
        let over: Vec<bool> = [0, WORTH - 1, WORTH - 1, WORTH, 2 * WORTH, 2 * WORTH, 2 * WORTH]
            .map(|bytes| burst.is_over(bytes))
            .to_vec();
        assert_eq!(over, [false, false, false, false, false, true, false]);
    }

    #[test]
    fn a_gateway_without_pauses_gives_memory_back_every_minute() {
        let mut burst = Burst::default();
        let count = (1..=1200).filter(|beat| burst.is_over(beat * WORTH)).count();
        assert_eq!(count, 5);
    }
}
