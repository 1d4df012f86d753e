//! A new configuration for a gateway at work: connections that there are keep what they had.

use super::pool::Questions;
use super::{GatewayConfig, Site, Told, sockets};
use crate::security::GatewayBond;
use crate::transparent::firewall::Devices;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A configuration that was read and found right, or what is wrong with it.
pub(super) type Outcome = Result<(GatewayConfig, Vec<GatewayBond>), String>;

/// The reading of a new configuration. It may wait for the disk and for names, so it has a thread of its own.
#[derive(Debug, Default)]
pub(super) struct Reading {
    task: Option<JoinHandle<Outcome>>,
    /// The operator asked again meanwhile.
    is_stale: bool,
}

impl Reading {
    /// Reads anew the file of `config`.
    pub(super) fn begin(&mut self, config: &GatewayConfig, watchdog: Arc<Questions>, devices: Devices) {
        if self.task.is_some() {
            self.is_stale = true;
            return;
        }
        let config = config.clone();
        self.task = Some(tokio::task::spawn_blocking(move || read(&config, &watchdog, devices)));
    }

    /// Returns the outcome; never if nothing is read.
    pub(super) async fn done(&mut self) -> Outcome {
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let outcome = task.await.unwrap_or_else(|error| Err(error.to_string()));
        self.task = None;
        outcome
    }
}

fn read(config: &GatewayConfig, watchdog: &Questions, devices: Devices) -> Outcome {
    let new = config.renewed().map_err(|error| error.to_string())?;
    if new.holds() && !devices.hold {
        let problem = "has the first `open = \"confirmed\"`, which takes a restart";
        return Err(new.wrong("policy", problem).to_string());
    }
    watchdog.check(new.own_charge().hash())?;
    let bonds = new.peers().map_err(|error| error.to_string())?.into_iter().map(|peer| peer.bond).collect();
    Ok((new, bonds))
}

impl Site {
    /// A new configuration was read.
    pub(super) fn on_read(&mut self, outcome: Outcome) {
        let done = outcome.and_then(|(config, bonds)| self.follow(config, bonds));
        match &done {
            Ok(()) => tracing::info!("configuration and keys were read again"),
            Err(error) => tracing::error!("the configuration in use stays: {error}"),
        }
        (self.tell)(&Told::Reloaded { error: done.err() });
        if std::mem::take(&mut self.reading.is_stale) {
            self.reading.begin(&self.config, self.shared.sockets.questions(), self.devices());
        }
    }

    /// Follows a configuration that was checked. The keys come first: they alone can still be refused.
    fn follow(&mut self, config: GatewayConfig, bonds: Vec<GatewayBond>) -> Result<(), String> {
        let security = self.shared.look(|_, gateway| gateway.suite_mut().reload());
        let security = security.map_err(|error| error.to_string())?;
        tracing::info!("packets are {}", security.packets);
        if config.own_charge() != self.config.own_charge() {
            self.watchdog.set_rules().map_err(|error| error.to_string())?;
        }
        if config.congestion() != self.config.congestion() {
            self.shared.sockets.change_control(self.listeners.as_ref());
        }
        self.shared.said.most.set(config.settings().max_waiting);
        self.shared.change(|now, gateway| {
            gateway.set_settings(config.settings());
            gateway.set_bonds(now, bonds);
            let (rates, shares) = config.shared_links();
            gateway.set_shared_links(now, rates, shares);
        });
        self.tunnel.iter_mut().for_each(|tunnel| tunnel.follow(&config));
        self.config = Rc::new(config);
        self.choose();
        self.listen().map_err(|error| error.to_string())
    }

    /// Takes intercepted connections again if descriptors were scarce and no longer are.
    pub(super) fn look_for_room(&mut self) -> io::Result<()> {
        self.shared.sockets.refill();
        if self.room.may_open(self.listeners.as_ref()) {
            self.listeners = None;
            return self.listen();
        }
        // There may have been no sockets for listeners.
        if self.listeners.is_none() && !self.room.is_shut() { self.listen() } else { Ok(()) }
    }

    /// Takes intercepted connections if there are to be any and a peer for them answers.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        let is_any_up =
            self.shared.look(|now, gateway| self.config.for_users().any(|peer| gateway.is_up(now, peer)));
        if !self.config.intercepts() || !is_any_up {
            self.listeners = None;
            return Ok(());
        }
        if self.listeners.is_none() && !self.room.look() {
            return Ok(());
        }
        if self.listeners.is_none()
            && let Some(pair) = self.shared.sockets.take_pair()
        {
            self.listeners = Some(sockets::listeners(&self.config, pair)?);
        }
        Ok(())
    }
}
