//! The programs that run at the nodes.

mod cbr;
mod content;
mod starhop;

pub use cbr::{CbrSink, CbrSource};
pub use content::Pattern;
pub use starhop::{ConsumerHost, ConsumerSpec, ProducerHost, RelayHost};
