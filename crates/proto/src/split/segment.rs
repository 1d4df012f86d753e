//! Segments between gateway and client: TCP with a window in segments and up to four SACK blocks.

use crate::name::ByteRange;

/// SACK blocks in one acknowledgement: four fit because there are no timestamps beside them (RFC 2018, section 3).
pub const MOST_BLOCKS: usize = 4;
/// Header of a segment with data, bytes: TCP's without options (RFC 9293, section 3.1).
pub const HEADER: u32 = 20;
/// Options of a SYN: maximum segment size, SACK permitted, padding.
const OPEN_OPTIONS: u32 = 8;
/// Kind, length and padding of a SACK option; each block takes 8 bytes more (RFC 2018).
const SACK_OPTION: u32 = 4;

/// A split connection, as its gateway numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ConnectionId(pub u64);

/// Ranges beyond the cumulative acknowledgement that arrived, those that changed last first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    blocks: [ByteRange; MOST_BLOCKS],
    count: u8,
}

impl Blocks {
    /// The first four of `ranges`.
    pub fn of(ranges: impl IntoIterator<Item = ByteRange>) -> Self {
        let mut all = Self::default();
        for (place, range) in all.blocks.iter_mut().zip(ranges) {
            *place = range;
            all.count += 1;
        }
        all
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.blocks[..usize::from(self.count)]
    }
}

/// The client's received ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledgement {
    /// Everything below arrived.
    pub next: u64,
    /// Full segments after `next` for which there is room. TCP's window field in another unit, so that 16 bits are
    /// enough and no scale makes it inexact.
    pub window: u16,
    /// Ranges that arrived beyond `next`. The client keeps them in any case.
    pub blocks: Blocks,
    /// Bytes that the client has asked with, all in all: its own sequence number.
    pub asked: u64,
}

impl Acknowledgement {
    /// The end of the last range that it acknowledges.
    pub fn rightmost(&self) -> u64 {
        self.blocks.as_slice().iter().map(|block| block.end).fold(self.next, u64::max)
    }
}

/// The message of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The client opens the connection (SYN).
    Open,
    /// The gateway accepts it (SYN-ACK).
    Accept,
    /// Bytes for the client.
    Data {
        /// Their range in the flow.
        range: ByteRange,
        /// The flow ends with them.
        is_last: bool,
    },
    /// The client's received ranges; the first acknowledgement completes the handshake.
    Ack(Acknowledgement),
    /// Bytes for the server, the last `len` of those that the client has asked with.
    Request {
        /// The client's received ranges.
        ack: Acknowledgement,
        /// Bytes of the request.
        len: u32,
    },
}

/// A segment without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its connection; ports on the wire.
    pub connection: ConnectionId,
    /// Its message.
    pub message: Message,
}

impl Segment {
    /// TCP's header bytes on the wire, options included and IP's header not.
    pub fn header(&self) -> u32 {
        HEADER
            + match &self.message {
                Message::Open | Message::Accept => OPEN_OPTIONS,
                Message::Data { .. } => 0,
                Message::Ack(ack) | Message::Request { ack, .. } => {
                    match ack.blocks.as_slice().len() as u32 {
                        0 => 0,
                        blocks => SACK_OPTION + 8 * blocks,
                    }
                }
            }
    }

    /// Bytes of payload.
    pub fn payload(&self) -> u32 {
        match &self.message {
            Message::Data { range, .. } => range.len() as u32,
            Message::Request { len, .. } => *len,
            Message::Open | Message::Accept | Message::Ack(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_carries_four_blocks_in_the_bytes_of_tcps_options() {
        let ranges = |count: u64| (0..count).map(|i| ByteRange::at(i * 100, 50));
        let header = |count| {
            let blocks = Blocks::of(ranges(count));
            let message = Message::Ack(Acknowledgement { blocks, ..Acknowledgement::default() });
            Segment { connection: ConnectionId(0), message }.header()
        };
        assert_eq!([0, 1, 4, 9].map(header), [20, 32, 56, 56]);
        assert_eq!(Blocks::of(ranges(9)).as_slice().len(), MOST_BLOCKS);
    }
}
