//! The programs that run at the nodes.

mod arq;
mod asker;
mod cbr;
mod content;
pub mod split;
mod starhop;
pub mod tcp;

pub use arq::{ArqRelay, ArqSink, ArqSource, ArqSpec};
pub use asker::Exchange;
pub use cbr::{CbrSink, CbrSource};
pub use content::Pattern;
pub use starhop::{ConsumerHost, ConsumerSpec, ProducerHost, RelayHost};
