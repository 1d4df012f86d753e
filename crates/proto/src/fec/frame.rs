//! Frames between encoder and decoder. All integers are big-endian.
//!
//! | kind | fields |
//! |---|---|
//! | 0 packet | number u32, place in its block u8, the packet |
//! | 1 parity | number of the block's first packet u32, packets u8, parity packets u8, place among them u8, shard |
//! | 2 report | packets u32, lost u32, runs of lost packets u32, all since the start and modulo 2^32 |
//! | 3 hello | token u32, echo u32, whether the sender counts the receiver's frames u8 |
//!
//! A shard is a packet with its length in front (u16), filled up with zeros to the longest of its block.

use alloc::vec::Vec;

/// A frame, its payload borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FecFrame<'a> {
    /// A packet as it was given to the encoder.
    Packet {
        /// Its number; the first of a block has that of the block.
        number: u32,
        /// Its place in its block.
        place: u8,
        /// The packet.
        packet: &'a [u8],
    },
    /// Parity of a block.
    Parity {
        /// The number of the block's first packet.
        first: u32,
        /// Packets of the block.
        packets: u8,
        /// Parity packets of the block.
        parity: u8,
        /// The place of this one among them.
        place: u8,
        /// Its contents.
        shard: &'a [u8],
    },
    /// The losses so far.
    Report(FecReport),
    /// The sender's start.
    Hello {
        /// A number of this start of the sender, for the receiver.
        token: u32,
        /// The number that the sender last got from the receiver; 0 before that.
        echo: u32,
        /// The sender counts the receiver's frames.
        is_met: bool,
    },
}

/// The losses that the decoder saw since the start, modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FecReport {
    /// Packets that were sent, as far as their numbers tell.
    pub packets: u32,
    /// Those that did not come themselves, repaired ones included.
    pub lost: u32,
    /// Runs of lost packets.
    pub runs: u32,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The kind does not exist.
    UnknownKind(u8),
    /// They end too early.
    TooShort,
    /// Places and counts that contradict each other.
    Impossible,
}

const PACKET: u8 = 0;
const PARITY: u8 = 1;
const REPORT: u8 = 2;
const HELLO: u8 = 3;

impl<'a> FecFrame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// The reason why the bytes are no frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (&kind, rest) = bytes.split_first().ok_or(FrameError::TooShort)?;
        match kind {
            PACKET => {
                let (number, rest) = word(rest)?;
                let (&[place], packet) = rest.split_first_chunk().ok_or(FrameError::TooShort)?;
                Ok(Self::Packet { number, place, packet })
            }
            PARITY => {
                let (first, rest) = word(rest)?;
                let (&[packets, parity, place], shard) =
                    rest.split_first_chunk().ok_or(FrameError::TooShort)?;
                let is_possible = packets > 0 && place < parity && !shard.is_empty() && shard.len() % 2 == 0;
                if !is_possible {
                    return Err(FrameError::Impossible);
                }
                Ok(Self::Parity { first, packets, parity, place, shard })
            }
            REPORT => {
                let (packets, rest) = word(rest)?;
                let (lost, rest) = word(rest)?;
                let (runs, _) = word(rest)?;
                Ok(Self::Report(FecReport { packets, lost, runs }))
            }
            HELLO => {
                let (token, rest) = word(rest)?;
                let (echo, rest) = word(rest)?;
                let &met = rest.first().ok_or(FrameError::TooShort)?;
                if met > 1 {
                    Err(FrameError::Impossible)
                } else {
                    Ok(Self::Hello { token, echo, is_met: met == 1 })
                }
            }
            other => Err(FrameError::UnknownKind(other)),
        }
    }

    /// Appends the frame to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Packet { number, place, packet } => {
                out.push(PACKET);
                out.extend_from_slice(&number.to_be_bytes());
                out.push(place);
                out.extend_from_slice(packet);
            }
            Self::Parity { first, packets, parity, place, shard } => {
                out.push(PARITY);
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(&[packets, parity, place]);
                out.extend_from_slice(shard);
            }
            Self::Report(FecReport { packets, lost, runs }) => {
                out.push(REPORT);
                [packets, lost, runs].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
            }
            Self::Hello { token, echo, is_met } => {
                out.push(HELLO);
                [token, echo].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
                out.push(u8::from(is_met));
            }
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.emit(&mut out);
        out
    }
}

fn word(bytes: &[u8]) -> Result<(u32, &[u8]), FrameError> {
    let (word, rest) = bytes.split_first_chunk().ok_or(FrameError::TooShort)?;
    Ok((u32::from_be_bytes(*word), rest))
}

/// Bytes of a shard that carries a packet of `packet` bytes.
pub(super) fn shard_len(packet: usize) -> usize {
    (packet + 2).next_multiple_of(2)
}

/// A packet as a shard of `len` bytes.
pub(super) fn to_shard(packet: &[u8], len: usize) -> Vec<u8> {
    let mut shard = Vec::with_capacity(len);
    shard.extend_from_slice(&(packet.len() as u16).to_be_bytes());
    shard.extend_from_slice(packet);
    shard.resize(len, 0);
    shard
}

/// The packet of a shard; `None` where its length says more than there is.
pub(super) fn of_shard(shard: &[u8]) -> Option<Vec<u8>> {
    let (len, rest) = shard.split_first_chunk()?;
    Some(rest.get(..usize::from(u16::from_be_bytes(*len)))?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let shard = [1, 2, 3, 4];
        for frame in [
            FecFrame::Packet { number: u32::MAX, place: 7, packet: b"abc" },
            FecFrame::Parity { first: 5, packets: 20, parity: 3, place: 2, shard: &shard },
            FecFrame::Report(FecReport { packets: 9, lost: 2, runs: 1 }),
            FecFrame::Hello { token: u32::MAX, echo: 7, is_met: true },
        ] {
            let bytes = frame.to_bytes();
            assert_eq!(FecFrame::parse(&bytes), Ok(frame));
        }
    }

    #[test]
    fn bytes_that_are_no_frame_say_why() {
        assert_eq!(FecFrame::parse(&[]), Err(FrameError::TooShort));
        assert_eq!(FecFrame::parse(&[9, 1]), Err(FrameError::UnknownKind(9)));
        assert_eq!(FecFrame::parse(&[0, 1, 2]), Err(FrameError::TooShort));
        // A fourth of three, and none of none.
        assert_eq!(FecFrame::parse(&[1, 0, 0, 0, 0, 9, 3, 3, 0, 0]), Err(FrameError::Impossible));
        assert_eq!(FecFrame::parse(&[1, 0, 0, 0, 0, 0, 1, 0, 0, 0]), Err(FrameError::Impossible));
    }

    proptest! {
        #[test]
        fn a_packet_survives_its_shard(packet in proptest::collection::vec(any::<u8>(), 0..300), more in 0..50usize) {
            let shard = to_shard(&packet, shard_len(packet.len()) + 2 * more);
            prop_assert_eq!(of_shard(&shard), Some(packet));
        }

        #[test]
        fn no_bytes_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = FecFrame::parse(&bytes);
            let _ = of_shard(&bytes);
        }
    }
}
