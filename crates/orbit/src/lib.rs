//! The sky of Starhop: orbits, visibility, links, routes, and schedules of their changes. It knows no packets.
//!
//! From the bottom up:
//! - [`time`] and [`frame`]: epochs; inertial, Earth-fixed and geodetic places.
//! - [`elements`], [`tle`], [`omm`], [`walker`]: one satellite's orbit, and where orbits come from.
//! - [`constellation`], [`preset`], [`ephemeris`]: many satellites, by name, and where they all are.
//! - [`ground`]: stations; a hundred cities are built in.
//! - [`link`]: times at which links are up, their rates and losses.
//! - [`network`]: sky and ground together, as a [`network::Snapshot`] of all links at one moment.
//! - [`graph`] and [`route`]: shortest ways, from nothing or from those of the moment before.
//! - [`schedule`]: link up, link down, delay, route, each at its moment: the input of a simulator.
//! - [`hypatia`], [`mahimahi`], [`czml`], [`globe`]: other programs' formats, as texts; files are the caller's business.
//!
//! Units are SI (m, s, Hz, bit/s); angles at the user's edge are degrees; times are seconds since the constellation's
//! [`time::Epoch`]. Places are ECEF unless a name says `eci`. Nothing here reads a clock, a file or a random number.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod constellation;
pub mod czml;
pub mod elements;
pub mod ephemeris;
pub mod frame;
pub mod globe;
pub mod graph;
pub mod ground;
pub mod hypatia;
pub mod link;
pub mod mahimahi;
pub mod network;
pub mod omm;
pub mod preset;
pub mod route;
pub mod schedule;
pub mod time;
pub mod tle;
pub mod walker;
