//! A capture of a live node: its packets as they are before they are sealed and after they were opened, as a pcapng file.
//!
//! Every client that may ask the node for its status may see headers. The payload of sealed packets is only for
//! clients that prove that they have the node's key. tools/starhop.lua dissects the file.

use crate::pcapng::{Packet, Way, Writer};
use crate::security::KeyFile;
use crate::tap::{self, Open, Tapped};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// No capture is longer: a forgotten one would hold the tap.
const LONGEST: Duration = Duration::from_secs(3600);
/// Packets that are written at once.
const AT_ONCE: usize = 64;

/// Options of a capture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Its duration, ms.
    pub for_ms: u64,
    /// Beginning of the flows' ids, hexadecimal; empty for all.
    pub flow: String,
    /// Proof that the client has the node's key, hexadecimal.
    pub pass: Option<String>,
}

impl Wanted {
    /// A capture of `span`; with payload where `key` is a key of the node.
    pub fn new(span: Duration, flow: &str, key: Option<&KeyFile>) -> Self {
        let pass = key.and_then(|key| key.passes().first().map(|pass| pass.to_hex().to_string()));
        Self { for_ms: span.as_millis() as u64, flow: flow.to_owned(), pass }
    }
}

/// Has the node behind the socket `path` capture, and writes the file to `out`. Returns the number of packets in
/// it.
///
/// # Errors
/// The node does not answer or refuses, or `out` cannot be written.
pub fn capture(path: &Path, wanted: &Wanted, out: &mut impl Write) -> io::Result<u64> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_millis(wanted.for_ms) + Duration::from_secs(10)))?;
    writeln!(stream, "capture {}", serde_json::to_string(wanted)?)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let answer: serde_json::Value = serde_json::from_str(&line)?;
    if let Some(error) = answer["error"].as_str() {
        return Err(io::Error::other(error.to_owned()));
    }
    copy(&mut reader, out)
}

/// Copies the blocks of a file and counts its packets.
fn copy(from: &mut impl Read, out: &mut impl Write) -> io::Result<u64> {
    /// No block of ours is longer.
    const LONGEST_BLOCK: usize = 1 << 20;
    let mut packets = 0;
    let mut head = [0; 8];
    loop {
        match from.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return out.flush().map(|()| packets);
            }
            Err(error) => return Err(error),
        }
        let [a, b, c, d, e, f, g, h] = head;
        let (kind, len) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]) as usize);
        if !(12..LONGEST_BLOCK).contains(&len) {
            return Err(io::Error::other("the node's answer is no capture"));
        }
        let mut rest = vec![0; len - head.len()];
        from.read_exact(&mut rest)?;
        out.write_all(&head)?;
        out.write_all(&rest)?;
        packets += u64::from(kind == crate::pcapng::ENHANCED_PACKET);
    }
}

/// The node's end: captures the packets that `question` selects and writes the file to the client.
pub(super) async fn serve(question: &str, out: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let wanted: Result<Wanted, _> = serde_json::from_str(question);
    let pass = |wanted: &Wanted| wanted.pass.as_ref().and_then(|pass| blake3::Hash::from_hex(pass).ok());
    let opened = match &wanted {
        Ok(wanted) => tap::open(&wanted.flow, pass(wanted)).ok_or("another capture of this node is running"),
        Err(_) => Err("what is to be captured cannot be read"),
    };
    let (mut tap, wanted) = match opened.and_then(|tap| Ok((tap, wanted.map_err(|_| "")?))) {
        Ok(started) => started,
        Err(error) => {
            return out.write_all(format!("{}\n", serde_json::json!({"error": error})).as_bytes()).await;
        }
    };
    tracing::info!("packets of this node are captured for {} s", wanted.for_ms / 1000);
    out.write_all(b"{\"capturing\":true}\n").await?;
    let end = tokio::time::Instant::now() + Duration::from_millis(wanted.for_ms).min(LONGEST);
    let mut file = Writer::new(Buffer::default(), &["starhop"])?;
    out.write_all(&file.take()).await?;
    let mut packets = Vec::with_capacity(AT_ONCE);
    while let Ok(1..) = tokio::time::timeout_at(end, tap.0.recv_many(&mut packets, AT_ONCE)).await {
        for packet in packets.drain(..) {
            file.tapped(&packet)?;
        }
        put(out, file.take()).await?;
    }
    let missed = Open::missed();
    if missed > 0 {
        file.say(&format!("{missed} packets came too fast for this capture"))?;
        put(out, file.take()).await?;
    }
    Ok(())
}

/// Writes, unless the client has stopped reading.
async fn put(out: &mut (impl AsyncWrite + Unpin), bytes: Vec<u8>) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(5);
    tokio::time::timeout(PATIENCE, out.write_all(&bytes)).await?
}

/// Bytes that wait to be written.
type Buffer = Vec<u8>;

impl Writer<Buffer> {
    fn tapped(&mut self, tapped: &Tapped) -> io::Result<()> {
        let Tapped { way, unix, face, bytes, len } = tapped;
        let (from, to) = match way {
            Way::In => (face.remote, face.local),
            Way::Out => (face.local, face.remote),
        };
        let mut datagram = headers(from, to, len + TRAILER.len());
        let whole = datagram.len() + len + TRAILER.len();
        datagram.extend_from_slice(bytes);
        datagram.extend(TRAILER);
        let comment = (bytes.len() < *len).then_some("the payload is left out: --key FILE shows it");
        let (way, unix) = (*way, *unix);
        self.packet(&Packet { interface: 0, way, unix, bytes: &datagram, len: whole, comment })
    }

    fn say(&mut self, comment: &str) -> io::Result<()> {
        let (way, unix) = (Way::In, crate::clock::unix_nanos());
        self.packet(&Packet { interface: 0, way, unix, bytes: &[], len: 0, comment: Some(comment) })
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.output())
    }
}

/// The trailer of a plain packet on the wire, the incarnations, which are unknown here: docs/PROTOCOL.md.
const TRAILER: [u8; 2] = [0, 0];

/// The IP and UDP headers of a datagram of `len` bytes.
fn headers(from: SocketAddr, to: SocketAddr, len: usize) -> Vec<u8> {
    const UDP: u8 = 17;
    let (source, target) = (from.ip().to_canonical(), to.ip().to_canonical());
    let udp_len = (len + 8).min(0xffff) as u16;
    let mut out = match (source, target) {
        (IpAddr::V6(_), IpAddr::V6(_)) => {
            let mut out = vec![0x60, 0, 0, 0];
            out.extend(udp_len.to_be_bytes());
            out.extend([UDP, 64]);
            out.extend([source, target].into_iter().flat_map(|ip| v6(ip).octets()));
            out
        }
        // An address that the socket decides is unspecified, of either version.
        _ => {
            let mut out = vec![0x45, 0];
            out.extend((udp_len.saturating_add(20)).to_be_bytes());
            out.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
            out.extend([source, target].into_iter().flat_map(v4));
            let sum = checksum(&out);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            out
        }
    };
    out.extend(from.port().to_be_bytes());
    out.extend(to.port().to_be_bytes());
    out.extend(udp_len.to_be_bytes());
    // No checksum: the packet was never on a wire like this.
    out.extend([0, 0]);
    out
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V6(ip) => ip,
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
    }
}

fn v4(ip: IpAddr) -> [u8; 4] {
    match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => [0; 4],
    }
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_who_speaks_and_how_long() {
        let (a, b) = ("192.0.2.1:4433".parse().unwrap(), "198.51.100.7:40000".parse().unwrap());
        let v4 = headers(a, b, 100);
        assert_eq!((v4.len(), v4[0], &v4[12..16]), (28, 0x45, &[192, 0, 2, 1][..]));
        assert_eq!(u16::from_be_bytes([v4[2], v4[3]]), 128);
        assert_eq!(checksum(&v4[..20]), 0, "the sum over a header with its checksum");
        let v6 = headers("[2001:db8::1]:1".parse().unwrap(), "[2001:db8::2]:2".parse().unwrap(), 100);
        assert_eq!((v6.len(), v6[0], u16::from_be_bytes([v6[4], v6[5]])), (48, 0x60, 108));
        let decided = headers("[::]:0".parse().unwrap(), b, 1);
        assert_eq!((decided.len(), &decided[12..16]), (28, &[0; 4][..]));
    }
}
