//! The cost of a packet's protection on this machine, in nanoseconds.

use super::{KeyError, KeyFile, Keys, Kind};
use serde::Serialize;
use starhop_proto::cache::Cache;
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::peer::{Addressee, Face};
use starhop_proto::security::{Limits, Seal, WallClock};
use starhop_proto::time::Instant;
use starhop_proto::wire::Suite;
use std::hint::black_box;
use std::net::SocketAddr;

/// Costs of security and of the cache, nanoseconds per packet.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Speed {
    /// Bytes of the packets that are sealed.
    pub packet_bytes: u64,
    /// Time to seal a packet for a known neighbour.
    pub seal_ns: f64,
    /// Time to open a packet of a known sender, replay check included.
    pub open_ns: f64,
    /// Time to refuse a forged packet of an unknown sender: a key is derived and tried.
    pub refuse_ns: f64,
    /// Time to find the bytes of a packet in a full cache of 256 MiB.
    pub lookup_ns: f64,
}

const PACKET: usize = 1378;
/// First bytes of packets.
const INTEREST: u8 = 0x40;
const DATA: u8 = 0x50;
const ROUNDS: u32 = 50_000;
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4433);

/// The face of a datagram that was sent to [`PEER`].
const ARRIVAL: Face = Face { remote: PEER, local: PEER };

/// Measures on one core for about a tenth of a second.
///
/// # Errors
/// No key can be made.
pub fn measure() -> Result<Speed, KeyError> {
    let key = KeyFile::new(Kind::Domain, "speed", None, 0)?;
    let now = Instant::from_nanos(1);
    let suite = || {
        let wall = WallClock::new(now, crate::clock::unix_nanos());
        Seal::new(Keys::domain(&key), now, wall, Limits::default(), 1)
    };
    let (mut sender, mut receiver) = (suite(), suite());
    let mut out = Vec::with_capacity(2048);
    // Data is a reply: somebody has asked for it.
    out.resize(receiver.room() + PACKET, INTEREST);
    let _ = receiver.seal(now, &Addressee::Asked(Face::towards(PEER)), &mut out, 0);
    let to = sender
        .open(now, ARRIVAL, &mut out)
        .map_or(Addressee::Asked(Face::towards(PEER)), |asked| Addressee::Asker(asked.peer));
    let mut sealed = Vec::with_capacity(ROUNDS as usize);
    let mut packet = |out: &mut Vec<u8>| {
        out.clear();
        out.resize(sender.room() + PACKET, DATA);
        // There is a key for every peer.
        let _ = sender.seal(now, &to, out, 0);
    };
    let seal_ns = time(ROUNDS, |_| {
        packet(&mut out);
        black_box(&out);
    });
    // A batch at a time, as they come from a socket.
    let mut open_ns = 0.0;
    for _ in 0..ROUNDS / 500 {
        sealed.clear();
        for _ in 0..500 {
            packet(&mut out);
            sealed.push(out.clone());
        }
        open_ns += time(500, |n| {
            let _ = black_box(receiver.open(now, ARRIVAL, &mut sealed[n as usize]));
        });
    }
    open_ns /= f64::from(ROUNDS / 500);
    let refuse_ns = time(ROUNDS / 10, |n| {
        out[1..5].copy_from_slice(&n.to_be_bytes());
        let _ = black_box(receiver.open(now, ARRIVAL, &mut out));
    });
    Ok(Speed { packet_bytes: PACKET as u64, seal_ns, open_ns, refuse_ns, lookup_ns: lookup_ns() })
}

fn lookup_ns() -> f64 {
    let size = 256 << 20;
    let mut cache = Cache::new(size, 1);
    let flow = FlowId([7; 16]);
    let bytes = vec![1; 1 << 16];
    for at in (0..size).step_by(bytes.len()) {
        cache.insert(flow, at, &bytes);
    }
    let mut found = Vec::new();
    time(ROUNDS, |n| {
        found.clear();
        // A packet's bytes at places that a cache of a processor does not hold.
        let at = u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (size - 2000);
        cache.find(flow, ByteRange::at(at, 1350), &mut found);
        black_box(&found);
    })
}

fn time(rounds: u32, mut work: impl FnMut(u32)) -> f64 {
    let start = std::time::Instant::now();
    (0..rounds).for_each(&mut work);
    start.elapsed().as_nanos() as f64 / f64::from(rounds)
}
