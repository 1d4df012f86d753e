//! What stands between a packet and the datagram that carries it: nothing ([`Plain`]), or a seal.

use crate::time::Instant;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The datagram was not made by who it should have been made by, or was made before. It changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// Turns packets into datagrams for a neighbour and back. Implementations bring their own keys and crypto.
pub trait Suite {
    /// Bytes in front of the packet that [`Suite::seal`] fills in.
    fn room(&self) -> usize;

    /// Bytes that a datagram is longer than its packet.
    fn overhead(&self) -> usize;

    /// Seals in place the packet that stands behind [`Suite::room`] bytes at `start` of `out`.
    ///
    /// # Errors
    /// [`Refused`] when nothing can be sealed for `to`; what stands from `start` on must not be sent.
    fn seal(&mut self, now: Instant, to: SocketAddr, out: &mut Vec<u8>, start: usize) -> Result<(), Refused>;

    /// Checks and opens a datagram in place and returns the packet in it.
    ///
    /// # Errors
    /// [`Refused`] when it does not authenticate or was seen before.
    fn open<'a>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], Refused>;
}

/// No protection: for the simulator, and for real programs behind an explicit flag.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Suite for Plain {
    fn room(&self) -> usize {
        0
    }

    fn overhead(&self) -> usize {
        0
    }

    fn seal(
        &mut self,
        _now: Instant,
        _to: SocketAddr,
        _out: &mut Vec<u8>,
        _start: usize,
    ) -> Result<(), Refused> {
        Ok(())
    }

    fn open<'a>(
        &mut self,
        _now: Instant,
        _from: SocketAddr,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], Refused> {
        Ok(datagram)
    }
}
