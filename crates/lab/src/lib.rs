//! Experiments: scenario files, their runs, and reports of the results; and measurements of real processes.
//!
//! [`scenario`] reads a file into a checked scenario and builds its world; [`run`] runs it; [`result`] is the
//! document that simulator and emulator both write. [`bound`] computes what a link of changing capacity allows. [`emulate`] runs a scenario with real processes. [`demo`] shows the main job on emulated links, [`bench`]
//! measures a real relay on a plain path.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod bench;
pub mod bound;
pub mod demo;
pub mod emulate;
pub mod error;
pub mod figure;
pub mod ns3;
mod process;
pub mod report;
pub mod result;
pub mod run;
pub mod scenario;
pub mod sweep;
pub mod text;
