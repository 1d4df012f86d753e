//! An attacker that writes datagrams of its own, with a key or without.

use super::{KEY, Site};
use starhop_net::clock;
use starhop_net::security::{KeyFile, Keys};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::peer::{Addressee, Face};
use starhop_proto::security::{Limits, Seal, WallClock};
use starhop_proto::time::WireTime;
use starhop_proto::units::Rate;
use starhop_proto::wire::{Interest, News, Notice, Packet, Reason, Suite};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Time for which it listens for an answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// A request for bytes by a node that has not proved its address.
pub(crate) fn interest(flow: FlowId, range: ByteRange, rate: Rate) -> Vec<u8> {
    proven(flow, range, rate, None)
}

fn proven(flow: FlowId, range: ByteRange, rate: Rate, token: Option<u32>) -> Vec<u8> {
    let mut interest = Interest::feedback(flow, WireTime::from_micros(1), rate);
    interest.reason = Reason::Lost;
    interest.token = token;
    interest.ranges.push(range);
    let mut out = Vec::new();
    interest.emit(&mut out);
    out
}

/// A node that attacks another.
pub(crate) struct Attacker {
    socket: UdpSocket,
    suite: Seal<Keys>,
    target: SocketAddr,
    /// The target's proof that this socket receives, once known.
    token: Option<u32>,
}

impl Attacker {
    /// An attacker on a host, against the node at `target`, with the site's key or another one.
    pub(crate) fn new(site: &Site, host: usize, target: SocketAddr, key: &str) -> Self {
        let bind = || UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let socket = site.chain.hosts[host].run(bind).expect("a thread on the host");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let keys = Keys::domain(&KeyFile::load(&site.path(key)).expect("keys"));
        let (now, unix) = (clock::now(), clock::unix_nanos());
        let suite = Seal::new(keys, now, WallClock::new(now, unix), Limits::default(), 1);
        Self { socket, suite, target, token: None }
    }

    /// The same attacker with a clock that is so many seconds fast.
    #[must_use]
    pub(crate) fn with_clock_ahead(mut self, seconds: i64) -> Self {
        let wall = WallClock::new(clock::now(), clock::unix_nanos());
        self.suite.set_wall_clock(wall.stepped(seconds * 1_000_000_000));
        self
    }

    /// An attacker with the site's key.
    pub(crate) fn insider(site: &Site, host: usize, target: SocketAddr) -> Self {
        Self::new(site, host, target, KEY)
    }

    /// The datagram that carries `packet` under its key.
    pub(crate) fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.suite.room()];
        out.extend_from_slice(packet);
        self.suite.seal(clock::now(), &Addressee::Asked(self.target.into()), &mut out, 0).expect("it seals");
        out
    }

    /// Asks the target for its token, as an honest node does by itself.
    pub(crate) fn prove(&mut self, flow: FlowId) {
        let request = self.seal(&interest(flow, ByteRange::at(1 << 40, 1), Rate::UNLIMITED));
        self.send([&request[..]]);
        let face = Face { remote: self.target, local: Face::ANY };
        let mut buffer = [0; 2048];
        while let Ok(len) = self.socket.recv(&mut buffer) {
            let opened = self.suite.open(clock::now(), face, &mut buffer[..len]).expect("it is for us");
            if let Ok(Packet::Notice(Notice { news: News::Token(token), .. })) = Packet::parse(opened.packet)
            {
                self.token = Some(token);
            }
        }
        assert!(self.token.is_some(), "the target asks strangers for a proof");
    }

    /// The datagram of a request that carries the proof.
    pub(crate) fn request(&mut self, flow: FlowId, range: ByteRange, rate: Rate) -> Vec<u8> {
        let packet = proven(flow, range, rate, self.token);
        self.seal(&packet)
    }

    /// Sends datagrams, and not faster than a receive buffer of the usual size is emptied.
    pub(crate) fn send<'a>(&self, datagrams: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let mut count = 0;
        for datagram in datagrams {
            count += u64::from(self.socket.send_to(datagram, self.target).is_ok());
            if count.is_multiple_of(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        count
    }

    /// Bytes that come back until nothing more does.
    pub(crate) fn received(&self) -> u64 {
        let (mut bytes, mut buffer) = (0, [0; 2048]);
        while let Ok(len) = self.socket.recv(&mut buffer) {
            bytes += len as u64;
        }
        bytes
    }
}
