//! Experiments: scenario files, their runs, and reports of the results.
//!
//! [`scenario`] reads a file into a checked scenario and builds its world; [`run`] runs it; [`result`] is the
//! document that simulator and emulator both write.

pub mod report;
pub mod result;
pub mod run;
pub mod scenario;
pub mod text;
