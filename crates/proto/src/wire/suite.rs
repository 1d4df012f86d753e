//! What stands between a packet and the datagram that carries it: nothing ([`Plain`]), or a seal.

use alloc::vec::Vec;
use core::net::SocketAddr;

/// The datagram was not made by who it should have been made by, or was made before. It changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// Turns packets into datagrams for a neighbour and back. Implementations bring their own keys and crypto.
pub trait Suite {
    /// Bytes that a datagram is longer than its packet.
    const OVERHEAD: usize;

    /// Seals in place the packet that stands at `packet_start..` of `out`.
    fn seal(&mut self, to: SocketAddr, out: &mut Vec<u8>, packet_start: usize);

    /// Checks and opens a datagram in place and returns the packet in it.
    ///
    /// # Errors
    /// [`Refused`] when it does not authenticate or was seen before.
    fn open<'a>(&mut self, from: SocketAddr, datagram: &'a mut [u8]) -> Result<&'a [u8], Refused>;
}

/// No protection: for the simulator, and for real programs behind an explicit flag.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Suite for Plain {
    const OVERHEAD: usize = 0;

    fn seal(&mut self, _to: SocketAddr, _out: &mut Vec<u8>, _packet_start: usize) {}

    fn open<'a>(&mut self, _from: SocketAddr, datagram: &'a mut [u8]) -> Result<&'a [u8], Refused> {
        Ok(datagram)
    }
}
