use super::{CodePlan, Header, Kind, ParseError, Reader, varint};
use crate::name::{ByteRange, FlowId};
use crate::time::WireTime;
use crate::units::Rate;
use alloc::vec::Vec;
use core::ops::Deref;

/// The most ranges that one Interest may name: a small packet never causes unbounded work.
pub const MAX_RANGES: usize = 8;

const FLAG_LOST: u8 = 1;
const FLAG_COLD: u8 = 2;
/// A token follows the rates.
const FLAG_TOKEN: u8 = 4;
/// A plan for parity follows the token.
const FLAG_CODE: u8 = 8;
/// In the byte of the hop limit, because the four flags of the header are taken.
const AGAIN: u8 = 0x80;
/// The same.
const CHIRPS: u8 = 0x40;

/// The reason why bytes are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// They are new. Only those are answered that this neighbour never asked for, so that Interests can overlap and the loss of
    /// one costs nothing.
    New,
    /// They were asked for before and came. Another reader of the flow wants them, and they are kept no longer: they are answered in
    /// turn, as new ones are.
    Again,
    /// They were asked for before and lost. They are answered before new ones.
    Lost,
}

/// A request for ranges of a flow, with the control of the hop that it travels; without ranges feedback only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    /// Dense counter of this hop and direction.
    pub counter: u16,
    /// The flow asked for.
    pub flow: FlowId,
    /// The Requester's clock when it sent this packet.
    pub sent: WireTime,
    /// The reason for the request.
    pub reason: Reason,
    /// The Requester has no measurement of the hop yet: the Responder sends at most its initial window.
    pub cold: bool,
    /// The Responder is to let its packets leave in chirps: the Requester looks for the room of the link.
    pub chirps: bool,
    /// Number, modulo 2^16, of the Requester's turns from one upstream to another with this flow. If it differs
    /// from the last one heard, the Responder forgets this neighbour's earlier requests of the flow.
    pub turn: u16,
    /// The answer to a [`Token`](super::News::Token): the asker receives at the address that it asks from. Never zero.
    pub token: Option<u32>,
    /// The parity that the Requester wants on this hop.
    pub code: Option<CodePlan>,
    /// Number of relays that may still pass this request on, at most [`Interest::MAX_HOP_LIMIT`].
    pub hop_limit: u8,
    /// The rate granted to the Responder for all flows of this hop.
    pub link_rate: Rate,
    /// The rate granted for this flow alone: the backpressure bound (LEOTP eq. 9).
    pub flow_rate: Rate,
    /// The requested ranges, at most [`MAX_RANGES`].
    pub ranges: Ranges,
    /// Bytes of no meaning behind the ranges, not 1: a stranger may be sent three times as much as came from it.
    pub padding: u16,
}

impl Interest {
    /// Relays that a request may pass, unless configured otherwise.
    pub const DEFAULT_HOP_LIMIT: u8 = 32;
    /// The most that an Interest can say.
    pub const MAX_HOP_LIMIT: u8 = CHIRPS - 1;

    /// Control of the hop with no request.
    pub fn feedback(flow: FlowId, sent: WireTime, link_rate: Rate) -> Self {
        Self {
            counter: 0,
            flow,
            sent,
            reason: Reason::New,
            cold: false,
            chirps: false,
            turn: 0,
            token: None,
            code: None,
            hop_limit: Self::DEFAULT_HOP_LIMIT,
            link_rate,
            flow_rate: Rate::UNLIMITED,
            ranges: Ranges::default(),
            padding: 0,
        }
    }

    pub(super) fn parse(header: Header, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let [hop_limit] = reader.take("hop limit")?;
        let reason = match (header.flags & FLAG_LOST != 0, hop_limit & AGAIN != 0) {
            (false, false) => Reason::New,
            (false, true) => Reason::Again,
            (true, false) => Reason::Lost,
            (true, true) => return Err(ParseError::Invalid("reason")),
        };
        let turn = u16::from_be_bytes(reader.take("turn")?);
        let link_rate = decode_rate(u16::from_be_bytes(reader.take("link rate")?));
        let flow_rate = decode_rate(u16::from_be_bytes(reader.take("flow rate")?));
        let token = match header.flags & FLAG_TOKEN {
            0 => None,
            _ => match u32::from_be_bytes(reader.take("token")?) {
                0 => return Err(ParseError::Invalid("token")),
                token => Some(token),
            },
        };
        let code = match header.flags & FLAG_CODE {
            0 => None,
            _ => Some(CodePlan::parse(reader)?),
        };
        let (mut ranges, mut padding) = (Ranges::default(), 0);
        while !reader.rest.is_empty() {
            if reader.rest.starts_with(&[0, 0]) {
                padding = take_padding(reader)?;
                break;
            }
            let range = reader.range("ranges")?;
            if range.is_empty() || !ranges.push(range) {
                return Err(ParseError::Invalid("ranges"));
            }
        }
        Ok(Self {
            counter: header.counter,
            flow: header.flow,
            sent: header.time,
            reason,
            cold: header.flags & FLAG_COLD != 0,
            chirps: hop_limit & CHIRPS != 0,
            turn,
            token,
            code,
            hop_limit: hop_limit & Self::MAX_HOP_LIMIT,
            link_rate,
            flow_rate,
            ranges,
            padding,
        })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flags = if self.reason == Reason::Lost { FLAG_LOST } else { 0 }
            | if self.cold { FLAG_COLD } else { 0 }
            | if self.token.is_some() { FLAG_TOKEN } else { 0 }
            | if self.code.is_some() { FLAG_CODE } else { 0 };
        let header =
            Header { kind: Kind::Interest, flags, counter: self.counter, time: self.sent, flow: self.flow };
        header.emit(out);
        let again = if self.reason == Reason::Again { AGAIN } else { 0 };
        let chirps = if self.chirps { CHIRPS } else { 0 };
        out.push(self.hop_limit.min(Self::MAX_HOP_LIMIT) | chirps | again);
        out.extend_from_slice(&self.turn.to_be_bytes());
        out.extend_from_slice(&encode_rate(self.link_rate).to_be_bytes());
        out.extend_from_slice(&encode_rate(self.flow_rate).to_be_bytes());
        if let Some(token) = self.token {
            out.extend_from_slice(&token.to_be_bytes());
        }
        if let Some(code) = self.code {
            code.emit(out);
        }
        for range in self.ranges.iter() {
            varint::write(range.start, out);
            varint::write(range.len(), out);
        }
        out.resize(out.len() + usize::from(self.padding), 0);
    }
}

/// Zeros to the end of the packet. The first two would be an empty range.
fn take_padding(reader: &mut Reader<'_>) -> Result<u16, ParseError> {
    let padding = core::mem::take(&mut reader.rest);
    let is_blank = padding.iter().all(|byte| *byte == 0);
    u16::try_from(padding.len()).ok().filter(|_| is_blank).ok_or(ParseError::Invalid("padding"))
}

/// Up to [`MAX_RANGES`] ranges, inline.
#[derive(Clone, Copy, Default)]
pub struct Ranges {
    items: [ByteRange; MAX_RANGES],
    count: u8,
}

impl Ranges {
    /// Adds a range; false, and no change, when there are [`MAX_RANGES`] already.
    pub fn push(&mut self, range: ByteRange) -> bool {
        let Some(slot) = self.items.get_mut(usize::from(self.count)) else { return false };
        *slot = range;
        self.count += 1;
        true
    }
}

impl Deref for Ranges {
    type Target = [ByteRange];
    fn deref(&self) -> &[ByteRange] {
        &self.items[..usize::from(self.count)]
    }
}

impl PartialEq for Ranges {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Ranges {}

impl core::fmt::Debug for Ranges {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The highest rate that has a code of its own.
const MAX_CODED_BPS: u64 = 0x7fe << 31;

/// A rate in 16 bits: 5 bits of exponent, 11 of mantissa, so bit/s to 4.4 Tbit/s within 0.05 %. The highest
/// code stands for "no bound".
fn encode_rate(rate: Rate) -> u16 {
    if rate.is_unlimited() {
        return u16::MAX;
    }
    let bps = rate.as_bps().min(MAX_CODED_BPS);
    let exponent = (64 - bps.leading_zeros()).saturating_sub(11);
    let rounded = if exponent == 0 { bps } else { (bps + (1 << (exponent - 1))) >> exponent };
    // Rounding up may carry into a twelfth bit.
    let (mantissa, exponent) =
        if rounded >> 11 != 0 { (rounded >> 1, exponent + 1) } else { (rounded, exponent) };
    (((exponent as u16) << 11) | mantissa as u16).min(u16::MAX - 1)
}

fn decode_rate(code: u16) -> Rate {
    if code == u16::MAX {
        return Rate::UNLIMITED;
    }
    Rate::from_bps(u64::from(code & 0x7ff) << (code >> 11))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_extremes_of_a_rate_survive() {
        assert_eq!(decode_rate(encode_rate(Rate::UNLIMITED)), Rate::UNLIMITED);
        assert_eq!(decode_rate(encode_rate(Rate::ZERO)), Rate::ZERO);
        assert_eq!(decode_rate(encode_rate(Rate::from_bps(1))), Rate::from_bps(1));
        assert!(!decode_rate(encode_rate(Rate::from_bps(u64::MAX - 1))).is_unlimited());
    }

    #[test]
    fn the_reason_chirps_and_the_hop_limit_share_a_byte_and_two_reasons_are_none() {
        let mut bytes = Vec::new();
        for (reason, chirps) in
            [(Reason::New, true), (Reason::Again, false), (Reason::Again, true), (Reason::Lost, false)]
        {
            let interest = Interest {
                reason,
                chirps,
                hop_limit: Interest::MAX_HOP_LIMIT,
                ..Interest::feedback(FlowId([7; 16]), WireTime::default(), Rate::ZERO)
            };
            bytes.clear();
            interest.emit(&mut bytes);
            assert_eq!(crate::wire::Packet::parse(&bytes), Ok(crate::wire::Packet::Interest(interest)));
        }
        bytes[Header::LEN] |= AGAIN;
        assert_eq!(crate::wire::Packet::parse(&bytes), Err(ParseError::Invalid("reason")));
    }

    proptest! {
        #[test]
        fn a_rate_is_kept_within_a_twentieth_of_a_percent(bps in 1u64..4_000_000_000_000) {
            let back = decode_rate(encode_rate(Rate::from_bps(bps))).as_bps();
            prop_assert!(back.abs_diff(bps) as f64 <= bps as f64 * 0.0005, "{bps} became {back}");
        }
    }
}
