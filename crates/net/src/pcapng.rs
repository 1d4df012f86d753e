//! Writes pcapng files (draft-ietf-opsawg-pcapng), for Wireshark and its kin.

use std::io::{self, Write};

/// Packets are bare IP of either version (LINKTYPE_RAW).
const LINKTYPE_RAW: u16 = 101;
/// Times are in nanoseconds: 10^-9 s.
const RESOLUTION: u8 = 9;

pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(crate) const INTERFACE: u32 = 1;
pub(crate) const ENHANCED_PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;

/// Which way a packet went at its interface, as pcapng's flags have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// It came in.
    In = 1,
    /// It went out.
    Out = 2,
}

/// A packet, or its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// The number of the interface at which it was seen.
    pub(crate) interface: u32,
    /// Which way it went.
    pub(crate) way: Way,
    /// Time, nanoseconds since 1970.
    pub(crate) unix: u64,
    /// The captured bytes, from the IP header on.
    pub(crate) bytes: &'a [u8],
    /// Bytes of the whole.
    pub(crate) len: usize,
    /// A comment about it.
    pub(crate) comment: Option<&'a str>,
}

/// A file with some interfaces.
#[derive(Debug)]
pub(crate) struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file; interfaces are numbered as in `names`.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn new(mut out: W, names: &[&str]) -> io::Result<Self> {
        let mut header = Vec::new();
        header.extend(BYTE_ORDER.to_ne_bytes());
        header.extend(1u16.to_ne_bytes());
        header.extend(0u16.to_ne_bytes());
        // The section's length is not known beforehand.
        header.extend(u64::MAX.to_ne_bytes());
        block(&mut out, SECTION_HEADER, &header)?;
        for name in names {
            let mut interface = Vec::new();
            interface.extend(LINKTYPE_RAW.to_ne_bytes());
            interface.extend(0u16.to_ne_bytes());
            // No limit to the captured bytes of a packet.
            interface.extend(0u32.to_ne_bytes());
            option(&mut interface, OPTION_NAME, name.as_bytes());
            option(&mut interface, OPTION_RESOLUTION, &[RESOLUTION]);
            option(&mut interface, OPTION_END, &[]);
            block(&mut out, INTERFACE, &interface)?;
        }
        Ok(Self { out })
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let Packet { interface, way, unix, bytes, len, comment } = *packet;
        let mut body = Vec::with_capacity(bytes.len() + 64);
        body.extend(interface.to_ne_bytes());
        body.extend(((unix >> 32) as u32).to_ne_bytes());
        body.extend((unix as u32).to_ne_bytes());
        body.extend((bytes.len() as u32).to_ne_bytes());
        body.extend((len as u32).to_ne_bytes());
        body.extend(bytes);
        pad(&mut body);
        if let Some(comment) = comment {
            option(&mut body, OPTION_COMMENT, comment.as_bytes());
        }
        option(&mut body, OPTION_FLAGS, &(way as u32).to_ne_bytes());
        option(&mut body, OPTION_END, &[]);
        block(&mut self.out, ENHANCED_PACKET, &body)
    }

    /// The output that it writes to.
    pub(crate) fn output(&mut self) -> &mut W {
        &mut self.out
    }

    /// Has everything written.
    ///
    /// # Errors
    /// Those of the output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Everything in a file begins at a multiple of four bytes.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_ne_bytes());
    body.extend((value.len() as u16).to_ne_bytes());
    body.extend(value);
    pad(body);
}

fn block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = body.len() as u32 + 12;
    out.write_all(&kind.to_ne_bytes())?;
    out.write_all(&length.to_ne_bytes())?;
    out.write_all(body)?;
    out.write_all(&length.to_ne_bytes())
}
