//! The world: a total order of events over nodes, links and hosts.
//!
//! [`World::run_until`] is the whole engine. A packet is one event per link: [`crate::link::Link`] knows its
//! arrival when it is sent. Links keep their packets in lines of their own, so the event queue holds one key
//! per busy link and one per host with a timer.

mod bytes;
mod clock;
mod hash;
mod host;
mod network;
mod packet;
mod queue;
mod routes;
mod segment;
mod world;

pub use clock::{CLOCK_BASE, Clock};
pub(crate) use host::Address;
pub use host::{Backlog, Host, HostId, HostReport, TcpStats, WindowSample};
pub use network::{LinkId, Network, NodeId};
pub use packet::{Body, IP_HEADER, Opaque, Segment, UDP_HEADER};
pub(crate) use segment::XCP_HEADER;
pub use segment::{MOST_SACK_BLOCKS, SackBlocks, TCP_HEADER, TCP_TIMESTAMPS, TcpKind, TcpSegment};
pub use world::{EngineCounters, Observer, World};
