//! The one surface of every role, for the simulator and for the real drivers.

use crate::peer::Face;
use crate::time::Instant;
use alloc::vec::Vec;

/// Destination of a datagram that a node appended to the driver's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The neighbour.
    pub to: Face,
    /// Bytes of the datagram.
    pub len: usize,
}

impl Transmit {
    /// Its bytes on the wire, with IPv4 or IPv6, and UDP.
    pub fn wire_bytes(&self) -> u64 {
        let below = if self.to.remote.ip().to_canonical().is_ipv6() { 48 } else { 28 };
        self.len as u64 + below
    }
}

/// A role: Consumer, Relay or Producer.
///
/// Inputs are `handle_datagram` and `handle_timeout`; outputs are `poll_transmit`, `poll_event` and
/// `poll_timeout`. After any input (and after any other method of a role that takes `now`) the driver takes
/// transmits and events until there are none, then asks `poll_timeout` when to come back. `now` never goes
/// back, but for one case: a datagram that waited in a socket's buffer while the node was busy is told with the time
/// of its arrival, which may lie before that of the last departure. Times of arrival never go back among themselves, and a
/// timeout comes after the arrivals before it, as far as the driver can see, with a time that may lie behind departures, too.
/// Calling `handle_timeout` early or twice is harmless. A timeout that is due asks for
/// `handle_timeout(now)` and then for transmits: paced packets become available by the passing of time.
pub trait Node {
    /// An event for the role's application.
    type Event;

    /// A datagram arrived at `face` at the time `now`. Its bytes may be changed (opened in place).
    fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &mut [u8]);

    /// Time passed.
    fn handle_timeout(&mut self, now: Instant);

    /// Appends at most one datagram to `out` and says where it goes.
    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit>;

    /// The next thing that the application should know.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Time of the next timeout, in absolute time; may lie in the past.
    fn poll_timeout(&self) -> Option<Instant>;
}
