use super::opening::Beginning;
use super::share::{Arrived, Bounds, Share};
use super::window::Window;
use crate::config::Config;
use crate::time::{Duration, Instant};

/// The bytes that are asked for ahead of arrivals: the flow's share, or the window of the published protocols.
#[derive(Debug)]
pub(super) enum Ahead {
    Share(Share),
    Window(Window),
}

impl Ahead {
    /// For a flow that begins.
    pub(super) fn new(config: &Config, beginning: Beginning) -> Self {
        let (limit, ahead) = (config.receive_window, config.store_ahead);
        if !config.mechanisms.share {
            return Self::Window(Window::new(limit, config.span_bytes(), ahead));
        }
        let bounds = Bounds { limit, ahead, payload: config.payload as u64, step: config.step_bytes() };
        Self::Share(Share::new(bounds, beginning))
    }

    /// A range asked for once was answered after `rtt`.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        match self {
            Self::Share(share) => share.on_rtt(now, rtt),
            Self::Window(window) => window.on_rtt(rtt),
        }
    }

    /// New bytes arrived.
    pub(super) fn on_bytes(&mut self, arrived: Arrived) {
        match self {
            Self::Share(share) => share.on_bytes(arrived),
            Self::Window(window) => window.on_bytes(arrived.now, arrived.bytes),
        }
    }

    /// The bytes that may be asked for and missing.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Share(share) => share.size(),
            Self::Window(window) => window.size(),
        }
    }

    /// The bytes that turned out to fill the path; `None` before a round trip was measured.
    pub(super) fn learnt(&self) -> Option<u64> {
        match self {
            Self::Share(share) => share.learnt(),
            Self::Window(_) => None,
        }
    }

    /// The bytes that the next Interest asks for.
    pub(super) fn step(&self, config: &Config) -> u64 {
        match self {
            Self::Share(share) => share.step(),
            Self::Window(_) => config.step_bytes(),
        }
    }

    /// A node on the way has no room for the whole request.
    pub(super) fn on_refused(&mut self) {
        if let Self::Share(share) = self {
            share.on_refused();
        }
    }

    /// The path has changed: its round trip has to be measured anew.
    pub(super) fn on_new_path(&mut self) {
        match self {
            Self::Share(share) => share.on_new_path(),
            Self::Window(window) => window.on_new_path(),
        }
    }
}
