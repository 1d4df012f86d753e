//! Devices, addresses and routes. The library's interface changes with every release: it is used here, and for the rules
//! of a transparent relay, only.

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::{Error, Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The way by which packets to one address leave a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The address.
    pub to: IpAddr,
    /// The device by which they leave; without one there is no way to it.
    pub device: Option<String>,
    /// The address that packets of this host carry as their source.
    pub source: IpAddr,
}

/// A change of the calling thread's network namespace.
#[derive(Clone, Debug)]
pub(super) enum Change<'a> {
    Up { device: String },
    Address { device: String, address: IpAddr, prefix: u8 },
    NoAddress { device: String, address: IpAddr, prefix: u8 },
    Route { to: IpAddr, prefix: u8, via: IpAddr },
    Host(Route),
    Veth { device: String, peer: String, namespace: BorrowedFd<'a> },
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { device } => write!(f, "set the device {device} up"),
            Self::Address { device, address, prefix } => {
                write!(f, "give {address}/{prefix} to the device {device}")
            }
            Self::NoAddress { device, address, prefix } => {
                write!(f, "take {address}/{prefix} from the device {device}")
            }
            Self::Route { to, prefix, via } => write!(f, "route {to}/{prefix} via {via}"),
            Self::Host(Route { to, device: Some(device), .. }) => write!(f, "route {to} by {device}"),
            Self::Host(Route { to, device: None, .. }) => write!(f, "withdraw the route to {to}"),
            Self::Veth { device, peer, .. } => write!(f, "make the veth pair {device} and {peer}"),
        }
    }
}

/// Packets that wait in a device for the thread that carries them on. A loaded machine may delay the thread for
/// some milliseconds, and an overflow here would be a loss outside every link model.
const DEVICE_QUEUE: u32 = 4000;

/// Name of the far end of a veth pair until it is moved.
const BORN: &str = "starhop-born";

/// Applies changes in order; an error comes with the change that failed.
pub(super) fn apply(changes: &[Change<'_>]) -> Result<(), (String, String)> {
    let runtime =
        crate::daemon::runtime().map_err(|error| ("talk to netlink".to_owned(), error.to_string()))?;
    runtime.block_on(async {
        let connected = rtnetlink::new_connection();
        let (connection, handle, _) =
            connected.map_err(|error| ("talk to netlink".to_owned(), error.to_string()))?;
        let connection = tokio::spawn(connection);
        for change in changes {
            one(&handle, change).await.map_err(|error| (change.to_string(), error.to_string()))?;
        }
        connection.abort();
        Ok(())
    })
}

async fn one(handle: &Handle, change: &Change<'_>) -> Result<(), Error> {
    match change {
        Change::Up { device } => {
            let index = index(handle, device).await?;
            let message = LinkUnspec::new_with_index(index).txqueuelen(DEVICE_QUEUE).up().build();
            handle.link().set(message).execute().await
        }
        Change::Address { device, address, prefix } => {
            let index = index(handle, device).await?;
            let mut add = handle.address().add(index, *address, *prefix);
            // The address is unique here: routes may name it as their source at once.
            add.message_mut().header.flags |= AddressHeaderFlags::Nodad;
            add.execute().await
        }
        Change::NoAddress { device, address, prefix } => {
            let index = index(handle, device).await?;
            let mut add = handle.address().add(index, *address, *prefix);
            handle.address().del(add.message_mut().clone()).execute().await
        }
        Change::Route { to, prefix, via } => {
            let route = RouteMessageBuilder::<IpAddr>::new();
            let route = route.destination_prefix(*to, *prefix).and_then(|route| route.gateway(*via));
            let route = route.map_err(|error| Error::NamespaceError(error.to_string()))?;
            handle.route().add(route.build()).execute().await
        }
        Change::Host(route) => host(handle, route).await,
        Change::Veth { device, peer, namespace } => {
            // The peer is made here, where its name may be taken, and is renamed on its way to its own namespace.
            handle.link().add(LinkVeth::new(device, BORN).build()).execute().await?;
            let index = index(handle, BORN).await?;
            let moved = LinkUnspec::new_with_index(index).setns_by_fd(namespace.as_raw_fd());
            let message = moved.name(peer.as_str()).build();
            handle.link().set(message).execute().await
        }
    }
}

/// Replaces the route to the address, if there is one.
async fn host(handle: &Handle, route: &Route) -> Result<(), Error> {
    let prefix = if route.to.is_ipv4() { 32 } else { 128 };
    let message = RouteMessageBuilder::<IpAddr>::new().destination_prefix(route.to, prefix);
    let message = message.and_then(|message| match route.device {
        Some(_) => message.pref_source(route.source),
        None => Ok(message),
    });
    let message = message.map_err(|error| Error::NamespaceError(error.to_string()))?;
    match &route.device {
        Some(device) => {
            let message = message.output_interface(index(handle, device).await?);
            handle.route().add(message.build()).replace().execute().await
        }
        None => handle.route().del(message.build()).execute().await,
    }
}

async fn index(handle: &Handle, device: &str) -> Result<u32, Error> {
    let found = handle.link().get().match_name(device.to_owned()).execute().try_next().await?;
    found.map(|link| link.header.index).ok_or(Error::RequestFailed)
}
