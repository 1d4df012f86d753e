use super::DriverStats;
use crate::clock;
use crate::endpoint::Endpoint;
use quinn_udp::Transmit;
use starhop_proto::Node;
use starhop_proto::peer::Face;
use std::io;
use std::net::IpAddr;
use tokio::io::Interest;

/// Most bytes of one GSO send: the length field of IPv4 counts headers too.
const RUN_BYTES: usize = 65_000;

/// Datagrams on their way to the kernel, grouped into runs that one system call can send.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// Runs that were sent already.
    sent: usize,
}

/// Neighbouring datagrams of one destination and one size; only the last may be shorter.
#[derive(Debug)]
struct Run {
    to: Face,
    start: usize,
    end: usize,
    segment: usize,
    count: usize,
}

impl Run {
    fn takes(&self, to: Face, len: usize, max_segments: usize) -> bool {
        let is_even = self.end - self.start == self.segment * self.count;
        self.to == to
            && is_even
            && len <= self.segment
            && self.count < max_segments
            && self.end - self.start + len <= RUN_BYTES
    }
}

impl Batch {
    /// Whether datagrams wait for the socket.
    pub(super) fn is_waiting(&self) -> bool {
        self.sent < self.runs.len()
    }

    /// Takes datagrams from `node`, slightly more than `limit` bytes at most; false if it had none.
    pub(super) fn fill<N: Node>(&mut self, node: &mut N, endpoint: &Endpoint, limit: usize) -> bool {
        let now = clock::now();
        let max_segments = endpoint.state.max_gso_segments();
        while self.bytes.len() < limit {
            let start = self.bytes.len();
            let Some(transmit) = node.poll_transmit(now, &mut self.bytes) else { break };
            debug_assert_eq!(self.bytes.len(), start + transmit.len, "the node appends what it announces");
            self.append(transmit.to, start, transmit.len, max_segments);
        }
        !self.runs.is_empty()
    }

    fn append(&mut self, to: Face, start: usize, len: usize, max_segments: usize) {
        match self.runs.last_mut() {
            Some(run) if run.takes(to, len, max_segments) => {
                run.end = start + len;
                run.count += 1;
            }
            _ => self.runs.push(Run { to, start, end: start + len, segment: len, count: 1 }),
        }
    }

    /// Sends the queued packets; false if the socket is full, and then the queue keeps them.
    pub(super) fn flush(&mut self, endpoint: &Endpoint, stats: &mut DriverStats) -> io::Result<bool> {
        while let Some(run) = self.runs.get_mut(self.sent) {
            match send(endpoint, &self.bytes[run.start..run.end], run) {
                Ok(()) => {
                    stats.tx_calls += 1;
                    stats.tx_datagrams += run.count as u64;
                    stats.tx_bytes += (run.end - run.start) as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stats.tx_blocked += 1;
                    return Ok(false);
                }
                // A device without segmentation: quinn-udp has noted it, the run goes out piece by piece.
                Err(error) if run.count > 1 && is_about_gso(&error) => {
                    let first = run.start + run.segment;
                    let (to, rest) = (run.to, run.end);
                    (run.end, run.count) = (first, 1);
                    self.split_rest(to, first, rest);
                    continue;
                }
                // The path's fault, or a filter's: to the protocol it is a lost packet.
                Err(error) => {
                    stats.tx_refused += run.count as u64;
                    stats.last_errno = error.raw_os_error();
                }
            }
            self.sent += 1;
        }
        self.bytes.clear();
        self.runs.clear();
        self.sent = 0;
        Ok(true)
    }

    fn split_rest(&mut self, to: Face, start: usize, end: usize) {
        let segment = self.runs[self.sent].segment;
        let pieces = (start..end).step_by(segment).map(|at| {
            let end = (at + segment).min(end);
            Run { to, start: at, end, segment: end - at, count: 1 }
        });
        let next = self.sent + 1;
        self.runs.splice(next..next, pieces);
    }
}

fn send(endpoint: &Endpoint, bytes: &[u8], run: &Run) -> io::Result<()> {
    let transmit = Transmit {
        destination: run.to.remote,
        ecn: None,
        contents: bytes,
        segment_size: (run.count > 1).then_some(run.segment),
        src_ip: source(endpoint, run.to),
    };
    endpoint.io.try_io(Interest::WRITABLE, || endpoint.state.try_send((&endpoint.io).into(), &transmit))
}

/// The address to answer from, if the socket has several: the address that the neighbour knows.
fn source(endpoint: &Endpoint, face: Face) -> Option<IpAddr> {
    let local = face.local.ip();
    (endpoint.local().ip().is_unspecified() && !local.is_unspecified()).then_some(local)
}

fn is_about_gso(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::ENOTSUP))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(datagrams: &[(u16, usize)]) -> Vec<(u16, usize, usize)> {
        let mut batch = Batch::default();
        for &(port, len) in datagrams {
            let start = batch.bytes.len();
            batch.bytes.resize(start + len, 0);
            batch.append(std::net::SocketAddr::from(([127, 0, 0, 1], port)).into(), start, len, 64);
        }
        batch.runs.iter().map(|run| (run.to.remote.port(), run.count, run.end - run.start)).collect()
    }

    #[test]
    fn equal_datagrams_to_one_neighbour_share_a_send_and_the_last_may_be_shorter() {
        assert_eq!(batch(&[(1, 100), (1, 100), (1, 40)]), [(1, 3, 240)]);
    }

    #[test]
    fn a_shorter_datagram_ends_the_run() {
        assert_eq!(batch(&[(1, 100), (1, 40), (1, 40)]), [(1, 2, 140), (1, 1, 40)]);
        assert_eq!(batch(&[(1, 40), (1, 100)]), [(1, 1, 40), (1, 1, 100)]);
    }

    #[test]
    fn another_destination_ends_the_run() {
        assert_eq!(batch(&[(1, 100), (2, 100), (1, 100)]), [(1, 1, 100), (2, 1, 100), (1, 1, 100)]);
    }

    #[test]
    fn a_run_stays_below_the_kernels_bounds() {
        let small: Vec<_> = (0..130).map(|_| (1, 10)).collect();
        assert_eq!(batch(&small), [(1, 64, 640), (1, 64, 640), (1, 2, 20)]);
        let large: Vec<_> = (0..50).map(|_| (1, 1400)).collect();
        assert_eq!(batch(&large), [(1, 46, 64_400), (1, 4, 5600)]);
    }
}
