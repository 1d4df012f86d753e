//! The file by the kernel's TCP. Delays count from the first transmission at the source's link.

use super::delays::{Delays, Passings, deliveries, series};
use super::{FlowResult, Live, Options, ideal_mbps, read_links};
use crate::error::LabError;
use socket2::{Domain, Socket, Type};
use starhop_net::clock;
use starhop_net::emu::Chain;
use starhop_net::proto::name::ByteRange;
use starhop_net::proto::time::Instant as Moment;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A record fills a segment of Ethernet's MTU: 1500 less 40 of headers and 12 of options.
const RECORD: u64 = 1448;

pub(super) fn run(
    options: &Options,
    mut chain: Chain,
    file: &Path,
    control: &str,
    live: &Live,
) -> Result<FlowResult, LabError> {
    let failed = || LabError::system(format!("TCP with {control} failed"));
    let at = SocketAddr::new(chain.address(0), 5000);
    let name = control.to_owned();
    let listener =
        chain.hosts[0].run(move || listen(at, &name)).and_then(|opened| opened).map_err(failed())?;
    let source = File::open(file).map_err(failed())?;
    // If the file does not get through in time, this thread stays blocked in a write until the process ends.
    let sender = chain.hosts[0].thread(move || send(&listener, source)).map_err(failed())?;
    let limit = options.tcp_limit;
    let size = options.size;
    live.begin(&chain);
    let receiver = chain.hosts[options.hops].thread(move || receive(at, size, limit)).map_err(failed())?;
    let joined =
        receiver.join().map_err(|_| io::Error::other("a thread panicked")).and_then(|entered| entered);
    let received = joined.and_then(|done| done).map_err(failed())?;
    let (source_bytes, return_bytes, accuracy) = read_links(&mut chain)?;
    let delivered = deliveries(&chain.departures(), &received.arrived);
    drop(chain);
    // Its own error, if any, is that the receiver hung up.
    drop(sender);
    let expected = hash_of(file).map_err(failed())?;
    let completed = received.bytes == size;
    let rate = received.bytes as f64 / received.seconds;
    Ok(FlowResult {
        transport: control.to_owned(),
        completed,
        verified: completed && received.hash == expected,
        seconds: received.seconds,
        extrapolated_seconds: if completed { received.seconds } else { size as f64 / rate },
        delivered_bytes: received.bytes,
        goodput_mbps: rate * 8e-6,
        ideal_mbps: ideal_mbps(options.hop, RECORD as f64, 1500.0),
        in_order_owd_ms: Delays::of(delivered.iter().map(|d| d.delay_ms).collect()),
        source_bytes,
        return_bytes,
        series: series(received.start, &delivered),
        accuracy,
    })
}

fn listen(at: SocketAddr, control: &str) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    // Accepted connections inherit it.
    socket.set_tcp_congestion(control.as_bytes())?;
    socket.bind(&at.into())?;
    socket.listen(1)?;
    Ok(socket.into())
}

fn send(listener: &TcpListener, mut file: File) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    io::copy(&mut file, &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    stream.read(&mut [0]).map(drop)
}

struct Received {
    start: Moment,
    seconds: f64,
    bytes: u64,
    hash: blake3::Hash,
    arrived: Passings,
}

fn receive(at: SocketAddr, size: u64, limit: Duration) -> io::Result<Received> {
    let (start, begin) = (clock::now(), Instant::now());
    let mut stream = TcpStream::connect_timeout(&at, limit)?;
    let mut reader = Records::new(size);
    let mut buffer = vec![0; 1 << 16];
    while reader.bytes < size && begin.elapsed() < limit {
        stream
            .set_read_timeout(Some((limit.saturating_sub(begin.elapsed())).max(Duration::from_millis(1))))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => reader.take(clock::now(), &buffer[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let (bytes, hash) = (reader.bytes, reader.hasher.finalize());
    Ok(Received { start, seconds, bytes, hash, arrived: reader.arrived })
}

/// Notes when the records of a stream are whole.
struct Records {
    bytes: u64,
    size: u64,
    hasher: blake3::Hasher,
    arrived: Passings,
}

impl Records {
    fn new(size: u64) -> Self {
        Self { bytes: 0, size, hasher: blake3::Hasher::new(), arrived: Passings::new() }
    }

    fn take(&mut self, now: Moment, bytes: &[u8]) {
        self.hasher.update(bytes);
        let mut from = self.bytes - self.bytes % RECORD;
        self.bytes += bytes.len() as u64;
        while from < self.bytes {
            let end = (from + RECORD).min(self.size);
            if end <= self.bytes {
                self.arrived.push((now, ByteRange::new(from, end)));
            }
            from += RECORD;
        }
    }
}

fn hash_of(path: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_noted_once_wherever_the_stream_is_cut() {
        let payload: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
        for cut in [1, 7, 1448, 4000] {
            let mut records = Records::new(5000);
            for piece in payload.chunks(cut) {
                records.take(Moment::from_nanos(9_000_000), piece);
            }
            assert_eq!((records.bytes, records.hasher.finalize()), (5000, blake3::hash(&payload)), "{cut}");
            let starts: Vec<u64> = records.arrived.iter().map(|(_, range)| range.start).collect();
            assert_eq!(starts, [0, 1448, 2896, 4344], "{cut}");
        }
    }
}
