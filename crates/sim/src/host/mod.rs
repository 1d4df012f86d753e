//! The programs that run at the nodes.

mod cbr;
mod content;
mod starhop;
pub mod tcp;

pub use cbr::{CbrSink, CbrSource};
pub use content::Pattern;
pub use starhop::{ConsumerHost, ConsumerSpec, ProducerHost, RelayHost};
