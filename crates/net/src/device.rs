//! TUN devices at work: set up, routed to, and watched by the runtime.

use crate::prefix::Prefix;
use crate::sys::tun;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Packets taken from a device before others have their turn.
pub(crate) const MOST_AT_ONCE: usize = 64;
/// The longest packet of IP.
const LONGEST: usize = 65_536;

/// A device that the runtime watches. It goes when this is dropped.
pub(crate) struct Device {
    file: AsyncFd<File>,
    buffer: Vec<u8>,
}

impl Device {
    /// Makes a device and sets it up, for packets of at most `mtu` bytes: the kernel answers longer ones.
    ///
    /// # Errors
    /// TUN devices are not to be had here, or there is a device of the name.
    pub(crate) fn open(name: &str, mtu: u32) -> io::Result<Self> {
        Ok(Self { file: watched(unwatched(name, mtu)?)?, buffer: vec![0; LONGEST] })
    }

    /// The device of a descriptor that the program before this one had.
    ///
    /// # Errors
    /// The runtime cannot watch it.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { file: watched(File::from(fd))?, buffer: vec![0; LONGEST] })
    }

    /// The descriptor.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.get_ref().as_fd()
    }

    /// Returns when there are packets to be read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        // Readiness is kept until a read finds nothing.
        self.file.readable().await.map(|mut guard| guard.retain_ready())
    }

    /// The next packet; `None` when there is none.
    ///
    /// # Errors
    /// The device is gone.
    pub(crate) fn read(&mut self) -> io::Result<Option<&[u8]>> {
        let buffer = &mut self.buffer;
        let read = self.file.try_io(Interest::READABLE, |device| {
            let mut device: &File = device;
            device.read(buffer)
        });
        match read {
            Ok(len) => Ok(Some(&self.buffer[..len])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a packet to the kernel. False if the kernel does not take it.
    pub(crate) fn give(&self, packet: &[u8]) -> bool {
        let mut device = self.file.get_ref();
        device.write(packet).is_ok()
    }
}

/// Makes a device that nobody watches, because it is only written to.
///
/// # Errors
/// As [`Device::open`].
pub(crate) fn unwatched(name: &str, mtu: u32) -> io::Result<File> {
    let file = tun::open(name)?;
    set_up(name.to_owned(), mtu)?;
    // Packets come by it from addresses that are elsewhere.
    let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0");
    Ok(file)
}

/// Has the runtime watch a device.
#[allow(unsafe_code, reason = "tokio cannot see that the descriptor stays the same while it is registered")]
fn watched(device: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: the file owns its descriptor, which stays open, and the same, until the AsyncFd is dropped.
    unsafe { AsyncFd::register_with_interest(device, Interest::READABLE) }.map_err(io::Error::from)
}

/// Sets a device up, for packets of at most `mtu` bytes: the kernel answers longer ones.
///
/// # Errors
/// A refusal of the kernel.
fn set_up(name: String, mtu: u32) -> io::Result<()> {
    asking(move |handle| async move {
        let index = nix::net::if_::if_nametoindex(name.as_str())?;
        let message = LinkUnspec::new_with_index(index).mtu(mtu).up().build();
        let done = handle.link().set(message).execute().await;
        done.map_err(|error| io::Error::other(format!("cannot set the device {name} up: {error}")))
    })
}

/// Routes prefixes to a device, or no longer. The routes go with the device at the latest.
///
/// # Errors
/// A refusal of the kernel, such as for a route that is there already.
pub(crate) fn route(name: String, routes: Vec<Prefix>, is_wanted: bool) -> io::Result<()> {
    asking(move |handle| async move {
        let index = nix::net::if_::if_nametoindex(name.as_str())?;
        for route in routes {
            let (to, bits) = (route.address(), route.bits());
            let problem = |error: &dyn std::fmt::Display| {
                io::Error::other(format!(
                    "cannot change the route to {to}/{bits} by the device {name}: {error}"
                ))
            };
            let message = RouteMessageBuilder::<IpAddr>::new().output_interface(index);
            let message = message.destination_prefix(to, bits).map_err(|error| problem(&error))?.build();
            let done = match is_wanted {
                true => handle.route().add(message).execute().await,
                false => handle.route().del(message).execute().await,
            };
            done.map_err(|error| problem(&error))?;
        }
        Ok(())
    })
}

/// Asks the kernel by netlink. A thread of its own: the caller may be within a runtime, in which another cannot be
/// waited for.
fn asking<F: Future<Output = io::Result<()>>>(
    ask: impl FnOnce(Handle) -> F + Send + 'static,
) -> io::Result<()> {
    let body = move || {
        crate::daemon::runtime()?.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            let connection = tokio::spawn(connection);
            let done = ask(handle).await;
            connection.abort();
            done
        })
    };
    std::thread::spawn(body).join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}
