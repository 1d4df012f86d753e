//! TCP: a sender and a receiver without payload bytes, and the congestion controls.
//!
//! [`TcpSource`], [`TcpSink`] and [`TcpSplice`] are the hosts. The sending half (`sender/`) is a scoreboard and small
//! machines around it, the receiving half (`receiver`) reassembles and acknowledges, and [`congestion`] holds the
//! controls behind one trait.

mod buffer;
mod config;
pub mod congestion;
mod hosts;
mod receiver;
mod runs;
mod sender;
#[cfg(test)]
mod tests;

pub(super) use buffer::ReceiveBuffer;
pub use config::{Count, LossDetection, TcpConfig, TcpConfigError, TcpSettings};
pub use hosts::{TcpSink, TcpSource, TcpSplice};
pub(super) use receiver::Receiver;
pub(crate) use sender::OVERHEAD;
pub(super) use sender::Sender;
