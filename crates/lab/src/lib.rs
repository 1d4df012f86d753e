//! Experiments: what shows that Starhop does what it says.

pub mod bench;
pub mod demo;
pub mod error;
mod process;
