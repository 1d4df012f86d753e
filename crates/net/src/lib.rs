//! Starhop in the real world: the protocol's code of `starhop-proto` on Linux sockets, files and clocks.
//!
//! From the top down: [`fetch`] downloads one object into a file, [`files`] is what a Producer serves,
//! [`daemon`] runs a long-lived role until a signal ends it. All of them run a [`Driver`], which carries
//! datagrams between a [`Node`](starhop_proto::Node) and an [`Endpoint`]. [`content`] says how an object is
//! named, [`outboard`] how its parts are verified, [`security`] how packets are sealed. [`transparent`] is a relay that
//! end points do not know of, [`split`] ends TCP connections half way, [`emu`] joins network namespaces by links that
//! lose and delay, so that all of this can be tried on one machine.

pub mod clock;
pub mod content;
pub mod daemon;
pub mod driver;
pub mod emu;
pub mod endpoint;
pub mod fetch;
pub mod files;
pub mod gateway;
pub mod index;
pub mod operate;
pub mod outboard;
mod pcapng;
pub mod proofs;
pub mod security;
pub mod split;
mod sys;
mod tap;
pub mod trace;
pub mod transparent;

pub use driver::{Driver, DriverStats};
pub use endpoint::Endpoint;
pub use starhop_proto as proto;
