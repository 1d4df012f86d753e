//! Flows of the kernel's own TCP: real sockets in the nodes, their congestion control set per socket. Delays
//! count from the first transmission at the source's link ([`TcpBytes`]), as for the other transports.

use super::model::TcpBytes;
use super::world::Node;
use crate::error::LabError;
use socket2::{Domain, SockAddr, Socket, Type};
use starhop_net::clock;
use starhop_net::emu::ReceiveWindow;
use starhop_proto::name::ByteRange;
use starhop_proto::time::Instant;
use starhop_sim::host::tcp::TcpSettings;
use starhop_sim::run::Transport;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// TCP port of the first flow; the next takes the next.
const FIRST_PORT: u16 = 5001;

/// The port of a flow.
pub(super) fn port(flow: usize) -> u16 {
    FIRST_PORT + flow as u16
}

/// A record fills a segment of Ethernet's MTU: 1500 less 40 of headers and 12 of options.
pub(super) const RECORD: usize = 1448;
/// Headers of IPv4 and TCP with time stamps, bytes.
pub(super) const HEADERS: u32 = 52;

/// Congestion controls with another name in the kernel: the scenario's name, the kernel's name.
const NAMES: [(&str, &str); 1] = [("newreno", "reno")];

/// The kernel's name of a transport, if it is one of its congestion controls; those that are not compiled in or
/// loaded are not known.
pub(super) fn kernel_name(transport: &str) -> Option<String> {
    let name = NAMES.iter().find(|(ours, _)| *ours == transport).map_or(transport, |(_, kernel)| kernel);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.set_tcp_congestion(name.as_bytes()).is_ok().then(|| name.to_owned())
}

/// The controls that the kernel offers, for messages.
pub(super) fn offered() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().replace(' ', ", "))
}

/// The receive window that a scenario gives a flow. Its default leaves the window to the kernel.
pub(super) fn window(transport: &Transport) -> Option<ReceiveWindow> {
    let Transport::Tcp(config) = transport else { return None };
    let usual = TcpSettings::new(config.control).receive_window;
    let given = Some(config.receive_window).filter(|&bytes| bytes != usual);
    given.and_then(|bytes| u32::try_from(bytes).ok()).map(ReceiveWindow)
}

/// A record that arrived: when its last byte was had, its bytes in the stream.
pub(super) type Piece = (Instant, ByteRange);

/// A flow of TCP.
pub(super) struct Connection {
    /// The node that the client connects to.
    to: SocketAddr,
    size: Option<u64>,
    /// The client's receive window; with `None` the kernel lets it grow.
    window: Option<ReceiveWindow>,
    stop: Arc<AtomicBool>,
    pub(super) received: Arc<AtomicU64>,
    pub(super) bytes: Arc<TcpBytes>,
    receiver: Option<JoinHandle<io::Result<io::Result<Received>>>>,
}

/// The bytes that a flow received.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) pieces: Vec<Piece>,
    pub(super) is_whole: bool,
    /// A byte was not the one that was sent.
    pub(super) is_wrong: bool,
}

impl Connection {
    /// Listens at the server, `at`; bytes flow once the client connects to `to`, the server or the nearest proxy.
    pub(super) fn listen(
        server: &Node,
        at: SocketAddr,
        to: SocketAddr,
        control: &str,
        (size, window): (Option<u64>, Option<ReceiveWindow>),
        bytes: Arc<TcpBytes>,
    ) -> Result<Self, LabError> {
        let failed = || LabError::system(format!("TCP with {control} failed"));
        let name = control.to_owned();
        let opened = server.namespace.run(move || listen(at, &name)).and_then(|opened| opened);
        let listener = opened.map_err(failed())?;
        let length = size.unwrap_or(u64::MAX);
        // The sender's only error is that its peer hangs up, which ends it.
        server.namespace.thread_ahead(move || send(&listener, length)).map_err(failed())?;
        let (stop, received) = Default::default();
        Ok(Self { to, size, window, stop, received, bytes, receiver: None })
    }

    /// Connects from the client.
    pub(super) fn start(&mut self, client: &Node) -> Result<(), LabError> {
        let (to, size, window) = (self.to, self.size, self.window);
        let (stop, count) = (self.stop.clone(), self.received.clone());
        let body = move || receive(to, (size, window), &stop, &count);
        self.receiver =
            Some(client.namespace.thread_ahead(body).map_err(LabError::system("cannot start a client"))?);
        Ok(())
    }

    /// Hangs up.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.receiver.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// The received bytes. Call [`Connection::stop`] before.
    pub(super) fn finish(&mut self) -> Result<Received, LabError> {
        let Some(receiver) = self.receiver.take() else { return Ok(Received::default()) };
        let joined = receiver.join().map_err(|_| io::Error::other("a thread panicked"));
        joined.and_then(|entered| entered).and_then(|done| done).map_err(LabError::system("a client failed"))
    }
}

fn listen(at: SocketAddr, control: &str) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    // Accepted connections inherit it.
    socket.set_tcp_congestion(control.as_bytes())?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(1)?;
    Ok(socket.into())
}

/// Eight bytes of the stream's payload by the place of the first of them (SplitMix64's finaliser), so that missing,
/// doubled or misplaced bytes show.
fn word(place: u64) -> [u8; 8] {
    let mut z = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// The record at `start` of the stream.
fn fill(record: &mut [u8], start: u64) {
    for (index, chunk) in record.chunks_mut(8).enumerate() {
        let word = word(start + 8 * index as u64);
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

fn send(listener: &TcpListener, length: u64) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let (mut record, mut at) = ([0; RECORD], 0);
    while at < length {
        let part = (length - at).min(RECORD as u64) as usize;
        fill(&mut record[..part], at);
        stream.write_all(&record[..part])?;
        at += part as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read(&mut record).map(drop)
}

/// Connects with a receive window of its own, or with the kernel's.
fn connect(at: SocketAddr, window: Option<ReceiveWindow>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    window.map_or(Ok(()), |window| window.reserve(&socket))?;
    socket.connect_timeout(&SockAddr::from(at), Duration::from_secs(1))?;
    Ok(socket.into())
}

fn receive(
    at: SocketAddr,
    (size, window): (Option<u64>, Option<ReceiveWindow>),
    stop: &AtomicBool,
    count: &AtomicU64,
) -> io::Result<Received> {
    let mut records = Records::new();
    let mut stream = loop {
        match connect(at, window) {
            Ok(stream) => break stream,
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(records.received),
            // Lost requests are repeated by the kernel after a second and more; a new one is no slower.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
    };
    stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => {
                records.end_record(clock::now());
                break;
            }
            Ok(read) => {
                if let Some(window) = window.filter(|_| records.end == 0) {
                    window.clamp(&stream)?;
                }
                records.take(clock::now(), &buffer[..read]);
                count.store(records.end, Ordering::Relaxed);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    records.received.is_whole = size == Some(records.end);
    Ok(records.received)
}

/// Takes the stream of records apart.
struct Records {
    record: Vec<u8>,
    expected: Vec<u8>,
    /// Bytes of the stream until now.
    end: u64,
    received: Received,
}

impl Records {
    fn new() -> Self {
        let record = Vec::with_capacity(RECORD);
        Self { record, expected: vec![0; RECORD], end: 0, received: Received::default() }
    }

    fn take(&mut self, now: Instant, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let part = bytes.len().min(RECORD - self.record.len());
            self.record.extend_from_slice(&bytes[..part]);
            self.end += part as u64;
            bytes = &bytes[part..];
            if self.record.len() == RECORD {
                self.end_record(now);
            }
        }
    }

    fn end_record(&mut self, now: Instant) {
        let len = self.record.len();
        let start = self.end - len as u64;
        if len > 0 {
            fill(&mut self.expected[..len], start);
            self.received.is_wrong |= self.record != self.expected[..len];
            self.received.pieces.push((now, ByteRange::new(start, self.end)));
        }
        self.record.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(length: u64) -> Vec<u8> {
        let mut stream = Vec::new();
        while (stream.len() as u64) < length {
            let mut record = vec![0; RECORD.min(length as usize - stream.len())];
            fill(&mut record, stream.len() as u64);
            stream.extend_from_slice(&record);
        }
        stream
    }

    fn received(stream: &[u8], cut: usize) -> Received {
        let mut records = Records::new();
        stream.chunks(cut).for_each(|piece| records.take(Instant::from_nanos(9_000_000), piece));
        records.end_record(Instant::from_nanos(9_000_000));
        records.received
    }

    #[test]
    fn records_are_taken_apart_wherever_the_stream_is_cut() {
        for cut in [1, 7, 1448, 4000] {
            let received = received(&stream(5000), cut);
            assert!(!received.is_wrong, "{cut}");
            assert_eq!(received.pieces.len(), 4);
            assert_eq!(received.pieces[3].1, ByteRange::new(4344, 5000));
        }
    }

    #[test]
    fn a_byte_out_of_place_is_noticed() {
        let mut damaged = stream(5000);
        damaged[3000] ^= 1;
        assert!(received(&damaged, 1448).is_wrong);
        let mut shifted = stream(5000);
        shifted.remove(2000);
        assert!(received(&shifted, 1448).is_wrong);
    }
}
