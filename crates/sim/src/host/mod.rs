//! The programs that run at the nodes.

mod agenda;
mod arq;
mod asker;
mod cbr;
mod content;
mod gateway;
mod hop;
mod middle;
pub mod split;
mod starhop;
pub mod tcp;

pub use arq::{ArqRelay, ArqSink, ArqSource, ArqSpec};
pub use asker::Exchange;
pub use cbr::{CbrSink, CbrSource};
pub use content::Pattern;
pub use gateway::{PairPlace, PairedGateway, ServedFlow};
pub use hop::{Protection, Seals};
pub use middle::{Middle, Side};
pub use starhop::{ConsumerHost, ConsumerSpec, InterceptorHost, ProducerHost, RelayHost};
