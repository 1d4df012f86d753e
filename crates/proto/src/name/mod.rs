//! Names of data: a flow and a range of its bytes.

mod flow_id;
mod range;
mod range_set;

pub use flow_id::FlowId;
pub use range::{ByteRange, MAX_OFFSET};
pub use range_set::RangeSet;
