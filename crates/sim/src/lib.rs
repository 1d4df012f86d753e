//! The simulated world: events, links and hosts. Runs the very code of `starhop-proto` in virtual time.
//!
//! From the top down: [`run`] turns a plan into a simulation and directs it. [`engine`] orders the events of nodes
//! and links. [`host`] holds the programs at the nodes, [`record`] their measurements, and [`link`] decides the
//! fate of a packet. Links know nothing of the engine, so that real packets can go through them.
//!
//! The crate reads no clock, no file and no randomness of the operating system: same plan, same run.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod engine;
pub mod host;
pub mod link;
pub mod record;
pub mod run;
