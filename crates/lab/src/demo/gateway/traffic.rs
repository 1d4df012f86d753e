//! The users' traffic: they fetch files, and send single bytes there and back. Every byte is compared.

use super::super::Delays;
use super::world::World;
use crate::error::LabError;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub(super) const PORT: u16 = 8080;

/// A request for this many bytes; a request for none asks for an echo.
type Request = [u8; 8];

/// Length of the pattern that every file repeats. A prime, so that bytes that were shifted show.
const PATTERN: usize = 65_521;

fn pattern() -> Vec<u8> {
    let mut bytes = vec![0; PATTERN];
    blake3::Hasher::new().update(b"gateway").finalize_xof().fill(&mut bytes);
    bytes
}

/// A listener whose connections use `control`.
pub(super) fn listen(control: &str) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // Accepted connections inherit it.
    socket.set_tcp_congestion(control.as_bytes())?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

/// Serves every connection in a thread of its own, for as long as the process lives.
pub(super) fn serve(listener: &TcpListener) {
    for socket in listener.incoming().map_while(Result::ok) {
        std::thread::spawn(move || answer(socket));
    }
}

fn answer(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut request: Request = [0; 8];
    socket.read_exact(&mut request)?;
    let mut left = u64::from_be_bytes(request) as usize;
    if left == 0 {
        let mut byte = [0];
        loop {
            socket.read_exact(&mut byte)?;
            socket.write_all(&byte)?;
        }
    }
    let bytes = pattern();
    while left > 0 {
        let part = &bytes[..left.min(PATTERN)];
        socket.write_all(part)?;
        left -= part.len();
    }
    socket.shutdown(Shutdown::Write)
}

/// The outcome of fetching a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched {
    pub(super) wanted: u64,
    /// Right bytes that came.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Between two arrivals, the first not counted.
    pub(super) longest_silence: Duration,
}

impl Fetched {
    pub(super) fn is_whole(&self) -> bool {
        self.bytes == self.wanted
    }

    /// Time of the whole file; extrapolated at the measured rate if time ran out.
    pub(super) fn extrapolated_seconds(&self) -> f64 {
        self.seconds * self.wanted as f64 / self.bytes.max(1) as f64
    }
}

fn dial(to: SocketAddr, control: &str, limit: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_congestion(control.as_bytes())?;
    socket.connect_timeout(&to.into(), limit)?;
    let socket: TcpStream = socket.into();
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Fetches `wanted` bytes within `limit`.
fn download(to: SocketAddr, control: &str, wanted: u64, limit: Duration) -> io::Result<Fetched> {
    let (begin, expected) = (Instant::now(), pattern());
    let mut fetched =
        Fetched { wanted, bytes: 0, seconds: limit.as_secs_f64(), longest_silence: Duration::ZERO };
    let mut socket = match dial(to, control, limit) {
        Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(fetched),
        socket => socket?,
    };
    socket.write_all(&wanted.to_be_bytes())?;
    let (mut buffer, mut last) = (vec![0; 1 << 18], None);
    while let Some(left) = limit.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        socket.set_read_timeout(Some(left))?;
        let count = match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        let silence = last.replace(now).map_or(Duration::ZERO, |before| now.duration_since(before));
        fetched.longest_silence = fetched.longest_silence.max(silence);
        compare(&buffer[..count], fetched.bytes as usize, &expected)?;
        fetched.bytes += count as u64;
    }
    fetched.seconds = begin.elapsed().as_secs_f64();
    Ok(fetched)
}

fn compare(bytes: &[u8], offset: usize, expected: &[u8]) -> io::Result<()> {
    let (mut rest, mut at) = (bytes, offset % PATTERN);
    while !rest.is_empty() {
        let part = rest.len().min(PATTERN - at);
        if rest[..part] != expected[at..at + part] {
            return Err(io::Error::other(format!("wrong bytes arrived behind offset {offset}")));
        }
        (rest, at) = (&rest[part..], 0);
    }
    Ok(())
}

/// Fetches a file from the client's host.
pub(super) fn fetch(world: &World, wanted: u64, limit: Duration) -> Result<Fetched, LabError> {
    let fetched = wait_all(world, &[wanted], limit)?;
    Ok(fetched[0])
}

/// Fetches files at once.
pub(super) fn wait_all(world: &World, wanted: &[u64], limit: Duration) -> Result<Vec<Fetched>, LabError> {
    let failed = || LabError::system("a file could not be fetched");
    let start = |&wanted: &u64| {
        let (to, control) = (world.server(), world.control().to_owned());
        world.client().thread(move || download(to, &control, wanted, limit)).map_err(failed())
    };
    let runs = wanted.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    runs.into_iter().map(|run| ended(run).map_err(failed())).collect()
}

fn ended<T>(run: std::thread::JoinHandle<io::Result<io::Result<T>>>) -> io::Result<T> {
    run.join().map_err(|_| io::Error::other("a thread panicked"))??
}

/// Single bytes there and back for `span`, one after the other; from `ahead` before on beside a long transfer, if that
/// is not nothing.
pub(super) fn exchange(world: &World, ahead: Duration, span: Duration) -> Result<Delays, LabError> {
    let failed = || LabError::system("bytes could not be exchanged");
    let (to, control) = (world.server(), world.control().to_owned());
    let bulk = (!ahead.is_zero()).then(|| {
        let control = control.clone();
        let work = move || download(to, &control, 1 << 40, ahead + span + Duration::from_secs(1));
        world.client().thread(work)
    });
    let bulk = bulk.transpose().map_err(failed())?;
    std::thread::sleep(ahead);
    let times = world.client().thread(move || ping(to, &control, span)).map_err(failed())?;
    let times = ended(times).map_err(failed())?;
    bulk.map(ended).transpose().map_err(failed())?;
    Ok(Delays::of(times))
}

fn ping(to: SocketAddr, control: &str, span: Duration) -> io::Result<Vec<f64>> {
    let begin = Instant::now();
    let mut socket = dial(to, control, span)?;
    socket.set_read_timeout(Some(span))?;
    socket.write_all(&0u64.to_be_bytes())?;
    let (mut times, mut byte) = (Vec::new(), [0]);
    while begin.elapsed() < span {
        let sent = Instant::now();
        socket.write_all(&[times.len() as u8])?;
        socket.read_exact(&mut byte)?;
        if byte[0] != times.len() as u8 {
            return Err(io::Error::other("another byte came back"));
        }
        times.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    // The first one pays for the connection.
    Ok(times.split_off(1.min(times.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_and_shifted_bytes_are_found_wherever_a_file_is_cut() {
        let expected = pattern();
        let file = [&expected[..], &expected[..1000]].concat();
        for cut in [0, 1, 65_000, PATTERN] {
            assert!(compare(&file[cut..], cut, &expected).is_ok(), "{cut}");
            assert!(compare(&file[cut..], cut + 1, &expected).is_err(), "{cut}");
        }
        let mut wrong = file;
        wrong[PATTERN + 5] ^= 1;
        assert!(compare(&wrong, 0, &expected).is_err());
    }
}
