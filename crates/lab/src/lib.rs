//! Experiments: what shows that Starhop does what it says.

pub mod demo;
