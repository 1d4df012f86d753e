use super::departures::Departures;
use super::link::PlainLink;
use super::{EmuError, Emulator, Namespace, Running};
use starhop_proto::name::ByteRange;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// One hop of a chain, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Rate of each direction.
    pub rate: Rate,
    /// Delay of each direction.
    pub delay: Duration,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Packets that each queue holds.
    pub queue: usize,
}

/// Hosts in a row: the server, relays, the client. Every host reaches every other.
#[derive(Debug)]
pub struct Chain {
    /// Cut before the hosts go.
    links: Option<Running>,
    /// The hosts from the server to the client.
    pub hosts: Vec<Namespace>,
    departures: Arc<Mutex<Departures>>,
}

impl Chain {
    /// The address of host `index` on its link towards the server (the server: towards the client).
    pub fn address(&self, index: usize) -> IpAddr {
        match index {
            0 => address(0, 1),
            _ => address(index - 1, 2),
        }
    }

    /// The address of host `index` as its neighbour on the client's side sees it.
    pub fn address_from_client(&self, index: usize) -> IpAddr {
        address(index, 1)
    }

    /// The links.
    pub fn links(&self) -> Option<&Running> {
        self.links.as_ref()
    }

    /// Ranges of the server's TCP connection, with the times at which they first left its host.
    pub fn departures(&self) -> Vec<(Instant, ByteRange)> {
        self.departures.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the links, to stop them and to read their report.
    pub fn take_links(&mut self) -> Option<Running> {
        self.links.take()
    }
}

fn address(link: usize, end: u8) -> IpAddr {
    Ipv4Addr::new(10, 77, link as u8, end).into()
}

fn address_v6(link: usize, end: u16) -> IpAddr {
    Ipv6Addr::new(0xfd77, 0, 0, link as u16, 0, 0, 0, end).into()
}

/// Makes a chain of `hops.len() + 1` hosts.
///
/// # Errors
/// See [`EmuError`].
pub fn chain(hops: &[Hop], seed: u64) -> Result<Chain, EmuError> {
    let last = hops.len();
    let name = |index| match index {
        0 => "server".to_owned(),
        _ if index == last => "client".to_owned(),
        _ => format!("r{index}"),
    };
    let hosts = (0..=last).map(|index| Namespace::new(&name(index))).collect::<Result<Vec<_>, _>>()?;
    let mut emulator = Emulator::default();
    let departures = Arc::<Mutex<Departures>>::default();
    for (index, hop) in hops.iter().enumerate() {
        let model = |way: u64| {
            let seed = seed.wrapping_mul(1000) + 2 * index as u64 + way;
            let link = PlainLink::new(hop.rate, hop.delay, hop.loss, hop.queue, seed);
            if index == 0 && way == 0 { link.watched(departures.clone()) } else { link }
        };
        let (near, far) = (&hosts[index], &hosts[index + 1]);
        emulator.join((near, "down"), (far, "up"), model(0), model(1))?;
        for address in [address, |link, end| address_v6(link, u16::from(end))] {
            let prefix = if address(0, 1).is_ipv4() { 24 } else { 64 };
            near.address("down", address(index, 1), prefix)?;
            far.address("up", address(index, 2), prefix)?;
        }
    }
    for (index, host) in hosts.iter().enumerate() {
        route(host, index, last)?;
    }
    let links = emulator.start().map_err(EmuError::system("cannot start the links"))?;
    Ok(Chain { links: Some(links), hosts, departures })
}

/// Routes from host `index` to every link that it does not touch.
fn route(host: &Namespace, index: usize, links: usize) -> Result<(), EmuError> {
    for link in 0..links {
        let (via, via_v6) = if link > index {
            (address(index, 2), address_v6(index, 2))
        } else if link + 1 < index {
            (address(index - 1, 1), address_v6(index - 1, 1))
        } else {
            continue;
        };
        host.route(address(link, 0), 24, via)?;
        host.route(address_v6(link, 0), 64, via_v6)?;
    }
    if index > 0 && index < links { host.forward() } else { Ok(()) }
}
