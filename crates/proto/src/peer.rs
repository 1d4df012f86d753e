//! The sender of a packet: the address of a neighbour ([`Face`]), and which of its memories speaks from there
//! ([`Incarnation`]).
//!
//! A [`Suite`](crate::wire::Suite) knows both for every packet that it opens, because both are authenticated. All
//! state about a neighbour is keyed by them, so that a restart, a node that takes another's place on the path, and
//! a copy are known, not inferred.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The two addresses between which datagrams of a neighbour travel, as this node sees them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Face {
    /// The neighbour's address.
    pub remote: SocketAddr,
    /// The address that the neighbour uses for this node; [`Face::ANY`] where the socket decides.
    pub local: SocketAddr,
}

impl Face {
    /// The local address of a face that is about to be spoken to: the socket decides.
    pub const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// The face of a neighbour that this node asks by its address.
    pub const fn towards(remote: SocketAddr) -> Self {
        Self { remote, local: Self::ANY }
    }

    /// The face as the other side sees it.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { remote: self.local, local: self.remote }
    }

    /// The same neighbour, for any address of this node.
    #[must_use]
    pub const fn anywhere(self) -> Self {
        Self::towards(self.remote)
    }
}

impl From<SocketAddr> for Face {
    fn from(remote: SocketAddr) -> Self {
        Self::towards(remote)
    }
}

/// One memory of one node about one neighbour.
///
/// A node draws `boot` when it starts and numbers its neighbours. Two packets of one incarnation come from one start of
/// one node: it remembers the first when it sends the second, unless the hop was silent for so long that both sides
/// forget it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation {
    /// Drawn by the node at its start.
    pub boot: u64,
    /// The node's number for this neighbour.
    pub link: u16,
}

/// The owner of the key that authenticated a packet: a node of the roster, by a number that stays when the roster changes.
/// All nodes of a domain are one member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Member(pub u64);

/// A neighbour that has spoken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// Its address.
    pub face: Face,
    /// Which memory of it speaks.
    pub incarnation: Incarnation,
    /// Which memory of this node a reply is for. Requests are for none in particular.
    pub asker: Incarnation,
    /// Whose key it has.
    pub member: Member,
}

/// The holder of a share of a node's tables.
///
/// A member of a roster is one, wherever and however often it starts. The nodes of a domain have one key, and whoever has
/// it can start as often as it likes; it cannot receive at an address that is not its own. So all nodes at an address
/// are one holder: an IPv4 address, or the 64 leading bits of an IPv6 address, which a network gives out as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Holder {
    /// A member of a roster.
    Member(Member),
    /// The nodes of a domain at an address.
    Address(IpAddr),
}

impl Holder {
    /// The holder of what is kept for `peer`.
    pub fn of(peer: &Peer) -> Self {
        match (peer.member, peer.face.remote.ip().to_canonical()) {
            (Member(0), IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                Self::Address(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            (Member(0), address) => Self::Address(address),
            (member, _) => Self::Member(member),
        }
    }
}

/// The nodes that may open a packet that is about to be sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressee {
    /// Any node that listens at a face: the packet is a request. It opens only where it was sent to.
    Asked(Face),
    /// The incarnation that asked: the packet is a reply. A node that takes its place cannot open it.
    Asker(Peer),
    /// The same for an incarnation of which nothing is kept. All such replies share counters, so that a flood from ever
    /// other addresses takes no room.
    Stranger(Peer),
}

impl Addressee {
    /// Destination of the packet.
    pub const fn face(&self) -> Face {
        match self {
            Self::Asked(face) => *face,
            Self::Asker(peer) | Self::Stranger(peer) => peer.face,
        }
    }
}

/// A datagram that a suite took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened<'a> {
    /// Its sender.
    pub peer: Peer,
    /// The packet in it.
    pub packet: &'a [u8],
}

/// The reason for which a datagram was not taken. It changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is no packet of this suite: another program's, or sealed although this suite is plain, or the reverse.
    Foreign,
    /// No key opens it: of another domain, changed on the way, or bound to another receiver by a seal.
    Forged,
    /// It was accepted before, or is too old to know.
    Replayed,
    /// Its time is too far from the own clock.
    Untimely,
    /// It is bound to another receiver, or it was sent by this node itself.
    NotForMe,
    /// There is no room for one more sender.
    Full,
}

/// No key is shared with the addressee: the packet must not be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsealable;
