//! TCP: a sender and a receiver without payload bytes, and the congestion controls.

pub mod congestion;
