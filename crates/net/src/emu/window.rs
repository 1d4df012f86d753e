//! A receive window of a set size, in place of the one that the kernel lets grow.

use crate::sys::window;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::os::fd::AsFd;

/// A receive window, bytes. A socket takes it in two steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveWindow(pub u32);

impl ReceiveWindow {
    /// Gives a socket that is not connected yet a buffer for the window. The kernel counts a packet's own memory in: half of
    /// the buffer is payload until the first segments show more. Beyond `net.core.rmem_max` it takes CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The socket is none, or the system's bound is lower.
    pub fn reserve(self, socket: &impl AsFd) -> io::Result<()> {
        let bytes = self.0 as usize;
        if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_ok() {
            return Ok(());
        }
        setsockopt(socket, sockopt::RcvBuf, &bytes)?;
        // The kernel doubles the size.
        let got = nix::sys::socket::getsockopt(socket, sockopt::RcvBuf)? / 2;
        if got >= bytes {
            return Ok(());
        }
        Err(io::Error::other(format!("net.core.rmem_max leaves {got} of {bytes} bytes of receive window")))
    }

    /// Takes what is more than the window away, once the first segments have come.
    ///
    /// # Errors
    /// The socket is none.
    pub fn clamp(self, socket: &impl AsFd) -> io::Result<()> {
        window::clamp(socket, self.0)
    }
}
