//! The packets that travel over links.

use super::host::Address;
use super::segment::{TcpKind, TcpSegment, XCP_HEADER};
use crate::link::XcpHeader;
use starhop_proto::split::Segment as SplitSegment;

/// The contents of a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// A UDP datagram, byte by byte.
    Datagram(Vec<u8>),
    /// A segment of a model whose payload is a length and no bytes.
    Segment(Segment),
    /// A TCP segment. Boxed, so that other packets stay small.
    Tcp(Box<TcpSegment>),
    /// A segment between a gateway that splits connections by rate and a client.
    Split(Box<SplitSegment>),
    /// A packet whose contents no node on the way can see.
    Opaque(Box<Opaque>),
}

/// An IP packet around bytes that mean something to its two ends only: a tunnel's ciphertext, or a frame of an erasure
/// code.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Opaque {
    /// XCP's header, outside as the congestion bits of IP are (RFC 6040): routers write into it.
    pub xcp: Option<XcpHeader>,
    /// Bytes of headers between IP's and the contents, beside XCP's.
    pub header: u32,
    /// The contents.
    pub bytes: Vec<u8>,
}

/// A packet of a transport that exists as a model only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// The flow, as the recorder numbers it.
    pub flow: u32,
    /// Bytes of payload that the segment stands for.
    pub len: u32,
    /// Offset of the payload in the flow.
    pub offset: u64,
    /// Bytes of the transport's header on the wire.
    pub header: u32,
}

/// IPv4 header without options, bytes (RFC 791).
pub const IP_HEADER: u32 = 20;
/// UDP header, bytes (RFC 768).
pub const UDP_HEADER: u32 = 8;

impl Body {
    /// The header into which XCP routers write: that of data, not the one that an acknowledgement takes back.
    pub(crate) fn xcp_mut(&mut self) -> Option<&mut XcpHeader> {
        match self {
            Self::Tcp(segment) if segment.kind == TcpKind::Data => segment.xcp.as_mut(),
            Self::Opaque(packet) => packet.xcp.as_mut(),
            _ => None,
        }
    }

    /// XCP's header as routers see it.
    pub(crate) fn xcp(&self) -> Option<&XcpHeader> {
        match self {
            Self::Tcp(segment) if segment.kind == TcpKind::Data => segment.xcp.as_ref(),
            Self::Opaque(packet) => packet.xcp.as_ref(),
            _ => None,
        }
    }

    /// Bytes of the IP packet that carries it.
    pub fn ip_len(&self) -> u32 {
        match self {
            Self::Datagram(bytes) => bytes.len() as u32 + UDP_HEADER + IP_HEADER,
            Self::Segment(segment) => segment.header + segment.len + IP_HEADER,
            Self::Tcp(segment) => segment.header() + segment.len + IP_HEADER,
            Self::Split(segment) => segment.header() + segment.payload() + IP_HEADER,
            Self::Opaque(packet) => {
                let xcp = if packet.xcp.is_some() { XCP_HEADER } else { 0 };
                IP_HEADER + xcp + packet.header + packet.bytes.len() as u32
            }
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::Datagram(Vec::new())
    }
}

/// A packet under way between two hosts.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) is_damaged: bool,
    pub(crate) body: Body,
}

/// Keeps the memory of packets that arrived for packets to come.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Vec<Vec<u8>>,
}

impl Buffers {
    pub(crate) fn take(&mut self) -> Body {
        Body::Datagram(self.free.pop().unwrap_or_default())
    }

    pub(crate) fn give(&mut self, body: Body) {
        if let Body::Datagram(mut bytes) = body {
            bytes.clear();
            self.free.push(bytes);
        }
    }
}
