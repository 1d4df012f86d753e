//! The Starhop protocol, sans-IO: no clock, socket, thread, file or randomness of the operating system.
//!
//! From the top down: the roles [`consumer`], [`relay`] and [`producer`] share one surface, [`node::Node`].
//! They route between small machines: [`hop`] (everything between two neighbours: loss, hopRTT, pacing, rate,
//! scheduling) and [`cache`]. Those speak in names ([`name`]) and packets ([`wire`]), sealed by [`security`]. At the
//! bottom stand
//! [`time`], [`units`], [`rng`] and [`config`].
#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

extern crate alloc;

pub mod cache;
pub mod config;
pub mod consumer;
pub mod deadlines;
pub mod fec;
pub mod gateway;
pub mod hop;
mod lowest;
pub mod name;
pub mod node;
pub mod peer;
pub mod producer;
pub mod relay;
pub mod rng;
pub mod security;
mod smoothed;
pub mod split;
pub mod table;
pub mod time;
pub mod units;
pub mod wire;

pub use node::{Node, Transmit};

/// The example of the developers' guide is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/developers.md")]
struct DevelopersGuide;
