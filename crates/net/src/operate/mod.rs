//! The operator's view of a long-lived role, and the questions that it answers.
//!
//! A role describes itself in a [`Status`]. Its [`Desk`], a thread of its own, hands the status out: over a Unix
//! socket, as metrics for Prometheus, and as a page. [`log`] and [`transfers`] are its log.

pub mod capture;
mod desk;
pub mod doctor;
pub mod failover;
mod history;
mod http;
pub mod log;
mod metrics;
pub mod names;
pub mod notify;
pub mod paths;
pub mod policing;
mod reach;
mod refusals;
pub mod setup;
mod slack;
mod socket;
mod status;
pub mod transfers;
mod ward;

pub use desk::{Desk, Doors, Inquiry};
pub use reach::reach;
pub use refusals::Refusals;
pub use slack::Slack;
pub use socket::{Address, NodeError, ask, nodes};
pub use status::{
    Accounts, Cache, CarriedPackets, Code, Flow, Memory, Passed, Peer, Segments, Side, Site, Status,
    UserFlow, about,
};
