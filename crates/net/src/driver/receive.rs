use super::DriverStats;
use super::backlog::Backlog;
use crate::clock;
use crate::endpoint::Endpoint;
use quinn_udp::{BATCH_SIZE, RecvMeta};
use starhop_proto::peer::Face;
use starhop_proto::time::{Duration as Span, Instant};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
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
    /// No datagram that comes now arrived earlier: the last arrival, or the last moment at which the socket was empty.
    not_before: Instant,
    backlog: Backlog,
    /// The socket may hold more.
    is_behind: bool,
}

impl Receiver {
    pub(super) fn new(_endpoint: &Endpoint) -> Self {
        // Pages are touched as they are needed: a quiet socket uses one slot of the 2 MiB.
        let bytes = vec![0; SLOT * BATCH_SIZE];
        Self {
            bytes,
            meta: [RecvMeta::default(); BATCH_SIZE],
            not_before: Instant::ZERO,
            backlog: Backlog::default(),
            is_behind: false,
        }
    }

    /// The time up to which the node knows what came, where the runtime heard last of datagrams at `informed_at`.
    pub(super) fn known_until(&self, informed_at: Instant) -> Instant {
        if self.is_behind { self.not_before } else { self.not_before.max(informed_at) }
    }

    /// Gives every waiting datagram to `handle` with the time of its arrival; false when there was none.
    pub(super) fn receive(
        &mut self,
        endpoint: &Endpoint,
        stats: &mut DriverStats,
        mut handle: impl FnMut(Instant, Face, &mut [u8]),
    ) -> io::Result<bool> {
        let bound = endpoint.local();
        self.is_behind = false;
        for call in 0..CALLS_PER_TURN {
            let asked_at = clock::now();
            let count = match self.call(endpoint, asked_at) {
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
            let mut arrivals = Arrivals::now(self.not_before, &mut self.backlog);
            for (slot, meta) in self.bytes.chunks_mut(SLOT).zip(&self.meta[..count]) {
                stats.rx_bytes += meta.len as u64;
                let local = SocketAddr::new(meta.dst_ip.unwrap_or(bound.ip()), bound.port());
                let face = Face { remote: meta.addr, local };
                let now = arrivals.next(meta.timestamp);
                for datagram in slot[..meta.len].chunks_mut(meta.stride.max(1)) {
                    stats.rx_datagrams += 1;
                    handle(now, face, datagram);
                }
            }
            self.not_before = arrivals.not_before;
            if count < BATCH_SIZE {
                self.was_empty(asked_at);
                return Ok(true);
            }
        }
        self.is_behind = true;
        Ok(true)
    }

    fn call(&mut self, endpoint: &Endpoint, asked_at: Instant) -> io::Result<usize> {
        let mut slots = self.bytes.chunks_mut(SLOT);
        let mut vectors: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(slots.next().unwrap_or_default()));
        // The runtime answers by itself as long as it has not heard of another datagram: then nobody looked.
        let mut has_looked = false;
        let received = endpoint.io.try_io(Interest::READABLE, || {
            has_looked = true;
            endpoint.state.recv((&endpoint.io).into(), &mut vectors, &mut self.meta)
        });
        if has_looked && received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.was_empty(asked_at);
        }
        received
    }

    fn was_empty(&mut self, at: Instant) {
        self.backlog.clear();
        self.not_before = self.not_before.max(at);
    }
}

/// Tells when datagrams arrived at this host. They wait until this process has a processor, and while it handles others: that
/// wait is no queue in the network, and no length of the path, but for the part that stays. The time that a node was told last is
/// no bound for them: with it the waits of a busy host counted as the path, and flows asked ahead without end.
struct Arrivals<'a> {
    /// Arrivals stay in their order, and a clock that somebody sets moves none further.
    not_before: Instant,
    now: Instant,
    /// The same time as the kernel's stamps tell it: since 1970.
    unix: Duration,
    backlog: &'a mut Backlog,
}

impl<'a> Arrivals<'a> {
    fn now(not_before: Instant, backlog: &'a mut Backlog) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { not_before, now: clock::now(), unix, backlog }
    }

    /// Of the next datagram, which has the kernel's `stamp`.
    fn next(&mut self, stamp: Option<Duration>) -> Instant {
        let waited = stamp.and_then(|stamp| self.unix.checked_sub(stamp)).unwrap_or_default();
        let waited = Span::from_nanos(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        let stays = self.backlog.take(self.now, waited);
        let arrived = self.now.before(waited.saturating_sub(stays));
        self.not_before = arrived.max(self.not_before.min(self.now));
        self.not_before
    }
}

fn is_about_a_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    const SPAN: Duration = Duration::from_millis(60);

    /// A thread that sleeps lets a datagram wait as a busy processor does.
    #[tokio::test]
    async fn a_datagram_arrived_when_it_came_and_not_when_this_process_had_time() {
        let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut arrivals = Vec::new();
        let mut receiver = Receiver::new(&endpoint);
        // The kernel begins to stamp a moment after the first socket asks for it.
        std::thread::sleep(2 * SPAN);
        for _ in 0..2 {
            sender.send_to(b"late", endpoint.local()).unwrap();
            std::thread::sleep(SPAN);
        }
        endpoint.io.readable().await.unwrap();
        let mut note = |now, _: Face, _: &mut [u8]| arrivals.push(now);
        while !receiver.receive(&endpoint, &mut DriverStats::default(), &mut note).unwrap() {}
        let now = clock::now();
        let ages: Vec<f64> = arrivals.iter().map(|at| now.since(*at).as_secs_f64()).collect();
        assert_eq!(ages.len(), 2);
        assert!(ages[0] > 1.8 * SPAN.as_secs_f64() && ages[1] > 0.9 * SPAN.as_secs_f64(), "{ages:?}");
    }

    #[tokio::test]
    async fn what_came_after_the_socket_was_empty_arrived_after_that() {
        let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut receiver = Receiver::new(&endpoint);
        std::thread::sleep(2 * SPAN);
        let mut arrivals = Vec::new();
        for _ in 0..2 {
            sender.send_to(b"one", endpoint.local()).unwrap();
            std::thread::sleep(SPAN);
            endpoint.io.readable().await.unwrap();
            let looked = clock::now();
            let mut note = |now, _: Face, _: &mut [u8]| arrivals.push(now);
            while !receiver.receive(&endpoint, &mut DriverStats::default(), &mut note).unwrap() {}
            assert!(receiver.not_before >= looked, "the call found less than it has room for");
        }
        let apart = arrivals[1].since(arrivals[0]).as_secs_f64();
        assert!(apart > 0.9 * SPAN.as_secs_f64(), "{apart} s");
    }

    #[test]
    fn no_arrival_lies_before_the_last_or_after_now() {
        let at = Instant::from_nanos;
        let mut backlog = Backlog::default();
        let mut arrivals =
            Arrivals { not_before: at(900), now: at(1_000), unix: SPAN, backlog: &mut backlog };
        let stamp = |ago: u64| Some(SPAN - Duration::from_nanos(ago));
        assert_eq!(arrivals.next(stamp(300)), at(900), "somebody set the clock forward");
        assert_eq!(arrivals.next(stamp(30)), at(970));
        assert_eq!(arrivals.next(stamp(50)), at(970), "in the order of their coming");
        assert_eq!(arrivals.next(Some(2 * SPAN)), at(1_000), "the clock was set back");
        assert_eq!(arrivals.next(None), at(1_000), "no stamp");
    }
}
