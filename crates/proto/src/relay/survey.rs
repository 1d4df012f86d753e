//! The state of a relay, for its operator.

use super::Relay;
use crate::hop::{About, Downstream, FlowView, HELLO, Upstream};
use crate::peer::Face;
use crate::time::{Duration, Instant};
use crate::wire::Suite;

impl<C: Suite> Relay<C> {
    /// Changes the facts that this node tells neighbours about itself.
    pub fn set_about(&mut self, about: About) {
        self.outbox.set_about(about);
    }

    /// Asks `upstream` for its identity; [`Relay::upstreams`] has the answer. The question goes no further: the
    /// answer concerns this node's own neighbour only.
    pub fn greet(&mut self, upstream: impl Into<Face>) {
        let link = self.uplinks.link(upstream.into(), HELLO);
        self.outbox.greet(link);
    }

    /// The neighbours that it asks.
    pub fn upstreams(&self) -> impl Iterator<Item = Upstream> + '_ {
        self.uplinks.survey()
    }

    /// The neighbours that it answers.
    pub fn downstreams(&self) -> impl Iterator<Item = Downstream> + '_ {
        self.downlinks.survey()
    }

    /// The flows that it knows.
    pub fn flow_views(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.flows.iter().map(|(_, flow)| FlowView {
            id: flow.name,
            length: flow.length,
            upstream: self.uplinks.get(flow.fetch.uplink).map(|requester| requester.face.remote),
            subscribers: flow.subscribers.len(),
            expected: flow.fetch.intake.expected().byte_count(),
            last_used: flow.last_used,
        })
    }

    /// Has [`crate::Node::poll_event`] report transfers whose end was sent `quiet` ago, without waiting until their
    /// neighbours are forgotten.
    pub fn end_complete(&mut self, now: Instant, quiet: Duration) {
        self.downlinks.end_complete(now, quiet);
    }
}
