use crate::time::{Duration, WireTime};

/// The Requester's clock in a packet that answers it, and the way of the Interest that brought it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Echo {
    /// The Requester's clock of the newest Interest, advanced by the time since the Responder received that.
    pub time: WireTime,
    /// The way of that Interest.
    pub way: Way,
}

/// The time that an Interest took, by two clocks: that of the Responder when it came, less that of the Requester when it left. The clocks
/// may be years apart, so it tells only by how much one Interest took longer than another.
///
/// Two bytes on the wire: units of 16 µs, modulo 2^16 of them (1.05 s).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Way(u16);

impl Way {
    const UNIT_MICROS: u64 = 16;

    /// The way of an Interest that left at `sent` and came at `received`.
    pub const fn between(sent: WireTime, received: WireTime) -> Self {
        Self((received.since(sent).as_micros() / Self::UNIT_MICROS) as u16)
    }

    /// Reads the bytes that travel.
    pub const fn from_be_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes(bytes))
    }

    /// The bytes that travel.
    pub const fn to_be_bytes(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// By how many units this way is longer than `other`, where they differ by less than 0.52 s.
    pub const fn longer_than(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i16 as i64
    }

    /// The time of so many units.
    pub const fn time_of(units: u64) -> Duration {
        Duration::from_micros(units * Self::UNIT_MICROS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_ways_is_told_whatever_the_clocks_are() {
        for ahead in [0, 1, 9_999_999, 0xff_ffff] {
            let way = |micros: u32| {
                let sent = WireTime::from_micros(0xff_f000);
                Way::between(sent, sent.plus(Duration::from_micros(u64::from(ahead + micros))))
            };
            let difference = way(30_000).longer_than(way(10_000));
            assert!((difference - 1_250).abs() <= 1, "{difference}");
            assert!((way(10_000).longer_than(way(510_000)) + 31_250).abs() <= 1);
        }
        assert_eq!(Way::time_of(1_250), Duration::from_millis(20));
    }
}
