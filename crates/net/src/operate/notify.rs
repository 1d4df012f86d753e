//! Messages of a node to systemd (sd_notify(3)): that it is ready, that it lives, that it ends.

use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// A node's end of the talk; silent if the supervisor does not listen.
#[derive(Debug)]
pub struct Notifier {
    /// Ticks twice as often as systemd's watchdog demands.
    beats: Option<Interval>,
}

impl Notifier {
    /// Says that the node is ready. Call within a tokio runtime.
    pub fn ready() -> Self {
        tell(&[NotifyState::Ready]);
        let period = sd_notify::watchdog_enabled().map(|period| (period / 2).max(Duration::from_millis(10)));
        let beats = period.map(|period| {
            let mut beats = interval(period);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            beats
        });
        Self { beats }
    }

    /// Waits until it is time for a sign of life, and sends it. Never returns if systemd wants no signs.
    pub async fn beat(&mut self) {
        match &mut self.beats {
            Some(beats) => {
                beats.tick().await;
                tell(&[NotifyState::Watchdog]);
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("systemd cannot be told: {error}");
    }
}
