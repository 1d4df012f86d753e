//! Rate-based connection splitting at the gateway of a geostationary satellite.
//!
//! A connection ends at the gateway and another begins there. The one towards the server is regular TCP and not
//! part of this module. The one over the satellite is TCP's wire format with other machines behind it: the link's
//! rate is known and its order is kept, so no probing is needed and a segment that was overtaken is lost.
//!
//! [`Gateway`] routes between the machines of its connections and of the link: [`Scheduler`] (the turns of
//! connections, at the satellite's rate), [`Sender`] (the next segment, and losses, over a [`SentList`] and a
//! [`RepairTimer`]), [`Room`] (the bytes that the server may send) and [`AckPacer`] (the pace at which the server
//! is told of room). [`Receiver`] is the client.
//!
//! Source: the paper on rate-based connection splitting for satellite hybrid networks, sections II to IV.

mod ack_pacer;
mod config;
mod core;
mod receiver;
mod repair_timer;
mod room;
mod scheduler;
mod segment;
mod sender;
mod sent_list;
mod state;
#[cfg(test)]
mod tests;

pub use self::core::{Backlog, Gateway, Heard};
pub use ack_pacer::AckPacer;
pub use config::{Buffer, Release, SplitConfig, SplitConfigError, SplitSettings};
pub use receiver::Receiver;
pub use repair_timer::RepairTimer;
pub use room::{Room, SteadyState, steady_state};
pub use scheduler::Scheduler;
pub use segment::{Acknowledgement, Blocks, ConnectionId, HEADER, MOST_BLOCKS, Message, Segment};
pub use sender::{Sender, SenderStats};
pub use sent_list::SentList;
pub use state::{ReceiverState, SenderState};
