//! Everything between two neighbours.
//!
//! The receiving side of a hop is the [`Requester`]: it measures (`rtt`, `counter`), decides the rate (`rate`) and
//! finds losses per flow ([`Intake`], `loss`). The sending side is the [`Responder`]: it sends the packets that its
//! `scheduler` picks when its `pacer` allows. A relay has one Requester per upstream ([`Uplinks`]) and one
//! Responder per downstream neighbour ([`Downlinks`]).

mod absence;
mod admission;
mod answerer;
mod asking;
mod cold;
pub mod counter;
mod downlinks;
mod faces;
mod fetch;
mod flood;
mod gauge;
mod grant;
mod granted;
mod hello;
mod holes;
mod intake;
mod lateness;
mod ledger;
pub mod loss;
mod missing;
mod openings;
mod outbox;
pub mod pacer;
pub mod parity;
mod path_size;
mod patience;
pub mod rate;
mod repeats;
mod reports;
mod requester;
mod responder;
pub mod rtt;
pub mod scheduler;
mod served;
mod shared_links;
mod stamps;
mod standing;
mod strangers;
mod subject;
mod subscriber;
mod survey;
pub mod transfer;
mod uplinks;
mod waits;
mod ways;

pub use answerer::Speaker;
pub use asking::{Asked, Asking, Denied};
pub use downlinks::{Downlinks, Due, Found};
pub use fetch::{Agenda, Fetch, Noted};
pub use hello::{About, Greeting, HELLO, Version};
pub use intake::{Ask, Intake};
pub use ledger::cost;
pub use outbox::{Control, Outbox, Request, emit_answer, emit_interest, emit_parity, finish};
pub use path_size::{PathSize, SizeQuestion};
pub use requester::Requester;
pub use responder::Responder;
pub use served::Served;
pub use shared_links::Share;
pub use subject::Subject;
pub use subscriber::Subscriber;
pub use survey::{Carried, Downstream, FlowView, Upstream};
pub use transfer::{Ending, Transfer};
pub use uplinks::{Heard, Received, Uplinks, Whole};
pub use waits::Waits;

use crate::name::FlowId;

/// Names one controlled hop: a neighbour, and the flow if control is per flow (LEOTP as published). An upstream is
/// named by its [`Face`](crate::peer::Face), because it is asked before it has spoken; a downstream neighbour by
/// the [`Peer`](crate::peer::Peer) that asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkKey<N> {
    /// The neighbour.
    pub neighbour: N,
    /// The flow, or `None` for all flows together.
    pub flow: Option<FlowId>,
}

impl<N> LinkKey<N> {
    /// The hop that carries `flow` to or from `neighbour`.
    pub fn new(neighbour: N, flow: FlowId, per_flow: bool) -> Self {
        Self { neighbour, flow: per_flow.then_some(flow) }
    }
}
