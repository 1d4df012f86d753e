//! Addresses that an operator writes as HOST:PORT. The host may be a name that does not resolve yet, or whose
//! address changes.

use crate::security::{Roster, Sources};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::time::Duration;

/// Between two tries to find the address of a name.
const RETRY: Duration = Duration::from_secs(1);
/// Tries between two lines about it.
const TOLD_EVERY: u32 = 10;

/// HOST:PORT, not resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place(String);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "an address is HOST:PORT, such as 192.0.2.1:4433 or [2001:db8::1]:4433".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_host = !host.is_empty() && (!host.contains(':') || text.parse::<SocketAddr>().is_ok());
        if is_port && is_host { Ok(Self(text.to_owned())) } else { Err(wrong()) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Place {
    /// Its address now; the first of several wins.
    ///
    /// # Errors
    /// No address can be found.
    pub fn resolve(&self) -> Result<SocketAddr, String> {
        let mut found =
            self.0.to_socket_addrs().map_err(|error| format!("`{self}` is not found: {error}"))?;
        found.next().ok_or_else(|| format!("`{self}` has no address"))
    }

    /// As [`Place::resolve`], and waits until there is one: at boot a name server may come later than this program.
    pub fn resolve_patiently(&self, mut tell: impl FnMut(&str)) -> SocketAddr {
        let mut round = 0u32;
        loop {
            match self.resolve() {
                Ok(address) => return address,
                Err(problem) if round.is_multiple_of(TOLD_EVERY) => {
                    tell(&format!("{problem}; it is tried again every second"));
                }
                Err(_) => {}
            }
            round = round.wrapping_add(1);
            std::thread::sleep(RETRY);
        }
    }
}

/// Finds out beside the program's work whether names lead elsewhere by now.
#[derive(Debug, Default)]
pub struct Resolver {
    running: Option<std::thread::JoinHandle<Option<Vec<SocketAddr>>>>,
}

impl Resolver {
    /// Begins to look all of `places` up, unless that is under way.
    pub fn start(&mut self, places: &[Place]) {
        if self.running.is_none() {
            let places = places.to_vec();
            let look_up = move || places.iter().map(|place| place.resolve().ok()).collect();
            self.running = std::thread::Builder::new().name("starhop-names".to_owned()).spawn(look_up).ok();
        }
    }

    /// The addresses, once all of them are found.
    pub fn take(&mut self) -> Option<Vec<SocketAddr>> {
        let done = self.running.take_if(|running| running.is_finished())?;
        done.join().ok().flatten()
    }
}

/// Whether a node that listens at `listen` would ask itself at `upstream`.
pub fn is_itself(upstream: SocketAddr, listen: SocketAddr) -> bool {
    upstream.port() == listen.port() && is_here(upstream.ip()) && covers(listen.ip(), upstream.ip())
}

/// Advice if the roster, which lists all nodes, has none that listens at `upstream`.
pub fn not_on_roster(upstream: SocketAddr, sources: &Sources) -> Option<String> {
    let Sources::Files { roster: Some(path), .. } = sources else { return None };
    let roster = Roster::load(path).ok()?;
    (!roster.has_address(upstream)).then(|| {
        format!(
            "no node of the roster `{}` listens at {upstream}: nothing can be sealed for it. Add the address with \
             `starhop roster add`, sign, and send SIGHUP",
            path.display()
        )
    })
}

/// Whether this host has the address: only then can a socket be bound to it.
fn is_here(ip: IpAddr) -> bool {
    UdpSocket::bind((ip.to_canonical(), 0)).is_ok()
}

fn covers(listen: IpAddr, ip: IpAddr) -> bool {
    listen.is_unspecified() || listen.to_canonical() == ip.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_host_and_a_port() {
        for good in ["host:1", "192.0.2.1:4433", "[2001:db8::1]:4433", "a.b-c.example:65535"] {
            assert_eq!(good.parse::<Place>().map(|place| place.to_string()).as_deref(), Ok(good));
        }
        for wrong in ["", "host", ":1", "host:", "host:0", "host:70000", "2001:db8::1", "2001:db8::1:443x"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_node_that_asks_itself_is_told_so() {
        let asks_itself =
            |upstream: &str, listen: &str| is_itself(upstream.parse().unwrap(), listen.parse().unwrap());
        assert!(asks_itself("127.0.0.1:4433", "[::]:4433"));
        assert!(asks_itself("[::ffff:127.0.0.1]:4433", "0.0.0.0:4433"));
        assert!(!asks_itself("127.0.0.1:4434", "[::]:4433"), "another port");
        assert!(!asks_itself("203.0.113.7:4433", "[::]:4433"), "another host");
        assert!(!asks_itself("127.0.0.1:4433", "127.0.0.2:4433"), "another address of this host");
    }

    #[test]
    fn a_name_that_nobody_knows_is_no_address_yet() {
        let place: Place = "no-such-host.invalid:4433".parse().unwrap();
        assert!(place.resolve().is_err_and(|problem| problem.contains("no-such-host")));
        let mut resolver = Resolver::default();
        resolver.start(&["127.0.0.1:5".parse().unwrap()]);
        let found = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            resolver.take()
        });
        assert_eq!(found, Some(vec![([127, 0, 0, 1], 5).into()]));
    }
}
