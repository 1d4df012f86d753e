//! What an operator sees of a long-lived role: its log.

pub mod log;
pub mod transfers;
