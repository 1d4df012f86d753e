//! A node that splits TCP connections: it ends the client's, opens one of its own to the next node, and passes the
//! bytes on. Each half has its own congestion control, so that a loss affects only the half where it happened.

use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// Bytes passed on at once.
const CHUNK: usize = 256 * 1024;

/// Options of a splitting node.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to which clients connect.
    pub listen: SocketAddr,
    /// The server, or the next splitting node on the way to it.
    pub to: SocketAddr,
    /// The kernel's congestion control of both halves.
    pub control: String,
    /// Approximate bytes that it buffers per direction; `None` leaves that to the kernel.
    pub buffer: Option<u64>,
}

/// A node that waits for connections.
#[derive(Debug)]
pub struct Splitter {
    listener: TcpListener,
    options: Options,
}

impl Splitter {
    /// Listens.
    ///
    /// # Errors
    /// The address is taken, or the kernel does not offer the congestion control.
    pub fn bind(options: Options) -> io::Result<Self> {
        let socket = socket(&options, options.listen)?;
        socket.set_reuse_address(true)?;
        socket.bind(&options.listen.into())?;
        socket.listen(128)?;
        Ok(Self { listener: socket.into(), options })
    }

    /// Splits connections, until the process ends.
    ///
    /// # Errors
    /// No connection can be accepted any more. A failure of one connection is reported to its two ends only.
    pub fn run(&self) -> io::Result<()> {
        loop {
            let (client, _) = self.listener.accept()?;
            let options = self.options.clone();
            std::thread::Builder::new().spawn(move || split(&client, &options))?;
        }
    }
}

fn socket(options: &Options, near: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(near), Type::STREAM, None)?;
    socket.set_tcp_congestion(options.control.as_bytes())?;
    if let Some(bytes) = options.buffer {
        // Half of the bytes wait to be read from one connection, half to be sent on the other; the kernel adds its
        // own overhead.
        let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        socket.set_recv_buffer_size(half)?;
        socket.set_send_buffer_size(half)?;
    }
    Ok(socket)
}

fn split(client: &TcpStream, options: &Options) -> io::Result<()> {
    let server = socket(options, options.to)?;
    server.connect(&options.to.into())?;
    let server: TcpStream = server.into();
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    std::thread::scope(|scope| {
        let up = scope.spawn(|| pass(client, &server));
        let down = pass(&server, client);
        let up = up.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        down.and(up)
    })
}

/// Passes one direction on until its end; the end is passed on as well, so that a half-closed connection stays one.
fn pass(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let done = loop {
        match from.read(&mut chunk) {
            Ok(0) => break Ok(()),
            Ok(len) => {
                if let Err(error) = to.write_all(&chunk[..len]) {
                    break Err(error);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    match done {
        Ok(()) => to.shutdown(Shutdown::Write),
        // The peer that still sends in the other direction has no receiver any more.
        Err(error) => {
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_pass_and_an_end_is_an_end() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let options = Options { listen, to, control: "reno".into(), buffer: Some(100_000) };
        let splitter = Splitter::bind(options).unwrap();
        let at = splitter.listener.local_addr().unwrap();
        std::thread::spawn(move || splitter.run());
        let mut client = TcpStream::connect(at).unwrap();
        let (mut far, _) = server.accept().unwrap();
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut question = String::new();
        far.read_to_string(&mut question).unwrap();
        far.write_all(b"answer").unwrap();
        drop(far);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
    }

    #[test]
    fn an_unknown_congestion_control_is_refused() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let options = Options { listen, to: listen, control: "none-such".into(), buffer: None };
        assert!(Splitter::bind(options).is_err());
    }
}
