use super::HEADER_LEN;
use crate::peer::Incarnation;
use core::net::SocketAddr;

/// Bytes of the header in front of epoch and counter, which the key and the nonce depend on.
const FRONT_LEN: usize = 12;
/// With the bytes that bind a packet to its receiver, an address and port or an incarnation, and zeros: whole blocks of
/// GCM, which are hashed at once.
const BINDING_LEN: usize = 32;

/// The receiver to which a seal binds a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiver {
    /// Any node that listens at this address, for a request.
    Address(SocketAddr),
    /// The incarnation that asked, for a reply.
    Asker(Incarnation),
}

impl Receiver {
    /// The memory of this node that a packet is for; no particular one for a request.
    pub(super) fn asker(self) -> Incarnation {
        match self {
            Self::Address(_) => Incarnation::default(),
            Self::Asker(asker) => asker,
        }
    }
}

/// The authenticated data of a packet: the front of its header, and its receiver, which does not travel.
#[derive(Clone, Copy)]
pub(super) struct Binding([u8; BINDING_LEN]);

impl Binding {
    #[inline]
    pub(super) fn new(header: &[u8; HEADER_LEN], receiver: Receiver) -> Self {
        let mut bytes = [0; BINDING_LEN];
        bytes[..FRONT_LEN].copy_from_slice(&header[..FRONT_LEN]);
        let bound = &mut bytes[FRONT_LEN..];
        match receiver {
            // Sockets of both IP versions name an IPv4 host in two ways.
            Receiver::Address(address) => {
                let ip = match address.ip() {
                    core::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    core::net::IpAddr::V6(v6) => v6,
                };
                bound[..16].copy_from_slice(&ip.octets());
                bound[16..18].copy_from_slice(&address.port().to_be_bytes());
            }
            Receiver::Asker(asker) => {
                bound[..8].copy_from_slice(&asker.boot.to_be_bytes());
                bound[8..10].copy_from_slice(&asker.link.to_be_bytes());
            }
        }
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
