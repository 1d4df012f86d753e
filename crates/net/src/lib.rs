//! Starhop in the real world: the protocol's code of `starhop-proto` on Linux sockets, files and clocks.
//!
//! From the top down: [`fetch`] downloads one object into a file, [`files`] serves files as a Producer's source,
//! [`daemon`] runs a long-lived role until a signal ends it. All of them run a [`Driver`], which carries datagrams
//! between a [`Node`](starhop_proto::Node) and an [`Endpoint`]. [`content`] names objects, [`outboard`] verifies
//! their parts, [`security`] seals packets. [`transparent`] is a relay of which end points do not know, [`split`]
//! ends TCP connections half way, [`fec`] protects packets between two hosts, [`emu`] joins network namespaces by links that lose and delay, so that all of
//! this can be tried on one machine.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod clock;
pub mod content;
pub mod daemon;
mod device;
pub mod driver;
pub mod emu;
pub mod endpoint;
pub mod fec;
pub mod fetch;
pub mod files;
pub mod gateway;
pub mod index;
pub mod operate;
pub mod outboard;
mod pcapng;
mod prefix;
pub mod proofs;
pub mod security;
pub mod split;
mod sys;
mod tap;
pub mod trace;
pub mod transparent;

pub use driver::{Driver, DriverStats};
pub use endpoint::Endpoint;
pub use prefix::Prefix;
pub use starhop_proto as proto;
