//! A look at the gateway with every sign of life.

use super::burst::Burst;
use crate::operate::about;
use crate::operate::paths::{self, Paths};
use crate::operate::policing::Policing;
use crate::security::{GatewayBond, HopSuite};
use starhop_proto::gateway::Gateway;
use starhop_proto::time::Instant;

/// Changes of a gateway that its operator hears of in the log, and memory that goes back after a burst.
#[derive(Debug)]
pub(super) struct Outlook {
    paths: Paths,
    policing: Policing,
    burst: Burst,
}

impl Outlook {
    /// Hops begin with packets of `payload` bytes.
    pub(super) fn new(payload: usize) -> Self {
        Self { paths: Paths::new(payload), policing: Policing::default(), burst: Burst::default() }
    }

    /// Looks, and tells the log. Returns the length of the longest packet that a peer's path carries in one piece.
    pub(super) fn look(&mut self, now: Instant, gateway: &mut Gateway<GatewayBond, HopSuite>) -> Option<u16> {
        gateway.set_about(about());
        gateway.suite_mut().tell_news(now);
        self.paths.look(paths::of(gateway.upstreams()));
        self.policing.look(gateway.upstreams());
        self.burst.on_beat(&gateway.stats());
        gateway.longest_whole().and_then(|longest| longest.try_into().ok())
    }
}
