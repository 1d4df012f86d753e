//! The file by the kernel's TCP, with time stamps in it.

use super::delays::{Delays, Delivery, series};
use super::{FlowResult, Live, Options, ideal_mbps, read_links};
use crate::error::LabError;
use socket2::{Domain, Socket, Type};
use starhop_net::clock;
use starhop_net::emu::Chain;
use starhop_net::proto::time::Instant as Moment;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A record fills a segment of Ethernet's MTU: 1500 less 40 of headers and 12 of options.
const RECORD: usize = 1448;
/// Its first bytes: when it was given to the kernel, in nanoseconds.
const STAMP: usize = 8;

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
    // Where the file does not get through in time, this thread stays blocked in a write until the process ends.
    let sender = chain.hosts[0].thread(move || send(&listener, source)).map_err(failed())?;
    let limit = options.tcp_limit;
    let size = options.size;
    live.begin(&chain);
    let receiver = chain.hosts[options.hops].thread(move || receive(at, size, limit)).map_err(failed())?;
    let joined =
        receiver.join().map_err(|_| io::Error::other("a thread panicked")).and_then(|entered| entered);
    let received = joined.and_then(|done| done).map_err(failed())?;
    let (source_bytes, return_bytes, accuracy) = read_links(&mut chain)?;
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
        ideal_mbps: ideal_mbps(options.hop, (RECORD - STAMP) as f64, 1500.0),
        in_order_owd_ms: Delays::of(received.deliveries.iter().map(|d| d.delay_ms).collect()),
        source_bytes,
        return_bytes,
        series: series(received.start, &received.deliveries),
        accuracy,
    })
}

fn listen(at: SocketAddr, control: &str) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    // Accepted connections inherit both.
    socket.set_tcp_congestion(control.as_bytes())?;
    // No more than this waits unsent in the kernel, so that a stamp is close to the first transmission.
    socket.set_tcp_notsent_lowat(2 * RECORD as u32)?;
    socket.bind(&at.into())?;
    socket.listen(1)?;
    Ok(socket.into())
}

fn send(listener: &TcpListener, mut file: File) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut record = [0; RECORD];
    loop {
        let mut filled = 0;
        while filled < RECORD - STAMP {
            match file.read(&mut record[STAMP + filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        if filled == 0 {
            stream.shutdown(Shutdown::Write)?;
            return stream.read(&mut record).map(drop);
        }
        record[..STAMP].copy_from_slice(&clock::now().as_nanos().to_be_bytes());
        stream.write_all(&record[..STAMP + filled])?;
    }
}

struct Received {
    start: Moment,
    seconds: f64,
    bytes: u64,
    hash: blake3::Hash,
    deliveries: Vec<Delivery>,
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
    Ok(Received { start, seconds, bytes, hash, deliveries: reader.deliveries })
}

/// Takes the stamps out of the stream of records.
struct Records {
    left: u64,
    bytes: u64,
    stamp: [u8; STAMP],
    /// Bytes of the current record that were taken, stamp included.
    at: usize,
    hasher: blake3::Hasher,
    deliveries: Vec<Delivery>,
}

impl Records {
    fn new(size: u64) -> Self {
        Self {
            left: size,
            bytes: 0,
            stamp: [0; STAMP],
            at: 0,
            hasher: blake3::Hasher::new(),
            deliveries: Vec::new(),
        }
    }

    fn take(&mut self, now: Moment, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.at < STAMP {
                let part = bytes.len().min(STAMP - self.at);
                self.stamp[self.at..self.at + part].copy_from_slice(&bytes[..part]);
                self.at += part;
                bytes = &bytes[part..];
                continue;
            }
            let record = ((RECORD - STAMP) as u64).min(self.left) as usize;
            let part = bytes.len().min(STAMP + record - self.at);
            self.hasher.update(&bytes[..part]);
            self.bytes += part as u64;
            self.at += part;
            bytes = &bytes[part..];
            if self.at == STAMP + record {
                self.end_record(now, record as u64);
            }
        }
    }

    fn end_record(&mut self, now: Moment, bytes: u64) {
        let sent = Moment::from_nanos(u64::from_be_bytes(self.stamp));
        self.deliveries.push(Delivery { at: now, bytes, delay_ms: now.since(sent).as_millis_f64() });
        self.left -= bytes;
        self.at = 0;
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
    fn records_are_taken_apart_wherever_the_stream_is_cut() {
        let payload: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
        let mut stream = Vec::new();
        for part in payload.chunks(RECORD - STAMP) {
            stream.extend_from_slice(&7_000_000u64.to_be_bytes());
            stream.extend_from_slice(part);
        }
        for cut in [1, 7, 1448, 4000] {
            let mut records = Records::new(5000);
            for piece in stream.chunks(cut) {
                records.take(Moment::from_nanos(9_000_000), piece);
            }
            assert_eq!((records.bytes, records.hasher.finalize()), (5000, blake3::hash(&payload)), "{cut}");
            assert_eq!(records.deliveries.len(), 4);
            assert!(records.deliveries.iter().all(|d| d.delay_ms == 2.0));
        }
    }
}
