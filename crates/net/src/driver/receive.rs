use super::DriverStats;
use crate::clock;
use crate::endpoint::Endpoint;
use quinn_udp::{BATCH_SIZE, RecvMeta};
use starhop_proto::peer::Face;
use starhop_proto::time::Instant;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use tokio::io::Interest;

/// Bytes of one slot: the largest UDP datagram, and the longest train that the kernel joins.
const SLOT: usize = 65_536;

/// System calls in one go, so that a flood of datagrams cannot keep the node from sending.
const CALLS_PER_TURN: usize = 4;

/// Buffers for `recvmmsg`, each large enough for a train of GRO.
#[derive(Debug)]
pub(super) struct Receiver {
    bytes: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl Receiver {
    pub(super) fn new(_endpoint: &Endpoint) -> Self {
        // Pages are touched as they are needed: a quiet socket uses one slot of the 2 MiB.
        Self { bytes: vec![0; SLOT * BATCH_SIZE], meta: [RecvMeta::default(); BATCH_SIZE] }
    }

    /// Gives every waiting datagram to `handle`; false when there was none.
    pub(super) fn receive(
        &mut self,
        endpoint: &Endpoint,
        stats: &mut DriverStats,
        mut handle: impl FnMut(Instant, Face, &mut [u8]),
    ) -> io::Result<bool> {
        let bound = endpoint.local();
        for call in 0..CALLS_PER_TURN {
            let count = match self.call(endpoint) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(call > 0),
                // An ICMP message about an earlier packet: the neighbour is away, which is no failure here.
                Err(error) if is_about_a_peer(&error) => {
                    stats.rx_errors += 1;
                    stats.last_errno = error.raw_os_error();
                    endpoint.drop_messages();
                    continue;
                }
                Err(error) => return Err(error),
            };
            stats.rx_calls += 1;
            let now = clock::now();
            for (slot, meta) in self.bytes.chunks_mut(SLOT).zip(&self.meta[..count]) {
                stats.rx_bytes += meta.len as u64;
                let local = SocketAddr::new(meta.dst_ip.unwrap_or(bound.ip()), bound.port());
                let face = Face { remote: meta.addr, local };
                for datagram in slot[..meta.len].chunks_mut(meta.stride.max(1)) {
                    stats.rx_datagrams += 1;
                    handle(now, face, datagram);
                }
            }
            if count < BATCH_SIZE {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn call(&mut self, endpoint: &Endpoint) -> io::Result<usize> {
        let mut slots = self.bytes.chunks_mut(SLOT);
        let mut vectors: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        endpoint.io.try_io(Interest::READABLE, || {
            endpoint.state.recv((&endpoint.io).into(), &mut vectors, &mut self.meta)
        })
    }
}

fn is_about_a_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable)
}
