//! The room for the server's bytes: the gateway's buffer, and its effect on throughput.

use super::config::{Buffer, Release};
use crate::time::Duration;
use crate::units::Rate;

/// The buffer of one connection: bytes that arrived from the server and have not left.
#[derive(Clone, Debug)]
pub struct Room {
    capacity: u64,
    release: Release,
    arrived: u64,
    freed: u64,
}

impl Room {
    /// A buffer of `capacity` bytes.
    pub fn new(capacity: u64, release: Release) -> Self {
        Self { capacity, release, arrived: 0, freed: 0 }
    }

    /// Bytes that the buffer is sized to, at least two segments of `mss`, for round trips to the client and to the server.
    pub fn size(buffer: Buffer, to_client: Duration, to_server: Duration, mss: u32) -> u64 {
        match buffer {
            Buffer::Bytes(bytes) => bytes,
            Buffer::PeakRate(rate) => rate.bytes_in(to_client + to_server).max(2 * u64::from(mss)),
        }
    }

    /// Bytes that the buffer is sized to.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Another capacity from now on. Buffered bytes stay.
    pub fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// The bytes below `arrived` have come from the server.
    pub fn on_arrived(&mut self, arrived: u64) {
        self.arrived = self.arrived.max(arrived);
    }

    /// The client has `received` bytes in all, and all below `cumulative`. The bytes that this frees.
    pub fn on_received(&mut self, received: u64, cumulative: u64) -> u64 {
        let before = self.freed;
        let freed = match self.release {
            Release::Selective => received,
            Release::Cumulative => cumulative,
        };
        self.freed = self.freed.max(freed);
        self.freed - before
    }

    /// Bytes in the buffer.
    pub fn held(&self) -> u64 {
        self.arrived.saturating_sub(self.freed)
    }

    /// Bytes beyond those that arrived for which there is room.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.held())
    }
}

/// The steady state of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SteadyState {
    /// Payload over the satellite.
    pub throughput: Rate,
    /// Bytes that wait at the gateway.
    pub backlog: u64,
}

/// Steady state of a connection that has a satellite of `payload_rate` (headers taken off) to itself and `buffer`
/// bytes at the gateway: min(rate, buffer / (both round trips)) and max(0, buffer - rate · both round trips)
/// (paper, II.A).
pub fn steady_state(
    buffer: u64,
    payload_rate: Rate,
    to_client: Duration,
    to_server: Duration,
) -> SteadyState {
    let round_trips = to_client + to_server;
    SteadyState {
        throughput: payload_rate.min(Rate::of(buffer, round_trips)),
        backlog: buffer.saturating_sub(payload_rate.bytes_in(round_trips)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's single connection: 600 kbit/s, segments of 512 bytes in packets of 552.
    const PAYLOAD_RATE: Rate = Rate::from_bps(600_000 * 512 / 552);
    const TO_CLIENT: Duration = Duration::from_millis(500);
    const TO_SERVER: Duration = Duration::from_millis(80);

    #[test]
    fn a_buffer_of_31_41_and_50_kilobytes_gives_three_quarters_all_and_all_with_a_backlog() {
        // The round trips are longer by the time of packets on the wire, and by the time that acknowledgements wait
        // for each other.
        let to_client = TO_CLIENT + Duration::from_micros(7_360 + 7_360);
        let to_server = TO_SERVER + Duration::from_micros(3_680);
        let at = |kibibytes: u64| {
            let state = steady_state(kibibytes << 10, PAYLOAD_RATE, to_client, to_server);
            (state.throughput.as_bps() * 100 / PAYLOAD_RATE.as_bps(), state.backlog)
        };
        let (low, none) = at(31);
        assert!((74..=78).contains(&low) && none == 0, "{low} %, {none}");
        let (full, few) = at(41);
        assert!(full >= 99 && few < 1024, "{full} %, {few}");
        let (all, backlog) = at(50);
        assert!(all == 100 && (8_500..10_500).contains(&backlog), "{all} %, {backlog}");
    }

    #[test]
    fn a_peak_rate_sizes_the_buffer_by_both_round_trips() {
        let peak = Buffer::PeakRate(Rate::from_bps(900_000));
        assert_eq!(Room::size(peak, TO_CLIENT, TO_SERVER, 512), 65_250);
        assert_eq!(Room::size(Buffer::Bytes(7), TO_CLIENT, TO_SERVER, 512), 7);
    }

    #[test]
    fn what_the_client_has_leaves_the_buffer_at_once_or_when_all_before_it_has_come() {
        let mut selective = Room::new(10_000, Release::Selective);
        let mut cumulative = Room::new(10_000, Release::Cumulative);
        for room in [&mut selective, &mut cumulative] {
            room.on_arrived(8_000);
        }
        // One segment of 500 is missing, 5000 beyond it have come.
        assert_eq!((selective.on_received(5_000, 0), cumulative.on_received(5_000, 0)), (5_000, 0));
        assert_eq!((selective.free(), cumulative.free()), (7_000, 2_000));
        assert_eq!((selective.on_received(5_500, 5_500), cumulative.on_received(5_500, 5_500)), (500, 5_500));
        assert_eq!(selective.free(), cumulative.free());
    }

    #[test]
    fn a_full_buffer_has_no_room() {
        let mut room = Room::new(1_000, Release::Selective);
        room.on_arrived(1_200);
        assert_eq!((room.held(), room.free()), (1_200, 0));
    }
}
