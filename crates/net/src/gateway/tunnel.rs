//! The device by which users' packets come to the gateway and go from it, and the one by which they pass it.

use super::config::GatewayConfig;
use super::policy::CarryPolicies;
use crate::device::{set_up, watched};
use crate::security::{GatewayBond, HopSuite};
use crate::sys::tun;
use crate::transparent::firewall::{carry_device, pass_device};
use starhop_proto::gateway::{FlowKey, Gateway};
use starhop_proto::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Packets taken from the device before others have their turn.
const MOST_AT_ONCE: usize = 64;
/// Where a flow came from is forgotten after this time without a packet, as the firewall does.
const FORGET_AFTER: Duration = Duration::from_secs(300);
/// Flows of peers that are remembered; answers to others go to the first peer.
const MOST_ORIGINS: usize = 65_536;

/// A peer that sends packets of a flow: their answers go there.
#[derive(Clone, Copy, Debug)]
struct Origin {
    peer: u16,
    is_ordered: bool,
    heard: Instant,
}

/// Users' packets between the kernel and the gateway.
pub(super) struct Tunnel {
    /// The kernel gives packets to be carried, and takes those that peers carried here.
    device: AsyncFd<File>,
    /// The kernel takes packets that are not carried after all; nobody answers them by the other device.
    pass: File,
    policies: CarryPolicies,
    intercepts: bool,
    /// By the flow of the answers.
    origins: BTreeMap<FlowKey, Origin>,
    next_sweep: Instant,
    buffer: Vec<u8>,
    /// Packets that the kernel did not take.
    refused: u64,
}

impl Tunnel {
    /// Makes both devices and sets them up.
    ///
    /// # Errors
    /// When TUN devices are not to be had here.
    pub(super) fn open(now: Instant, config: &GatewayConfig) -> io::Result<Self> {
        let names = [carry_device(config.port()), pass_device(config.port())];
        let [device, pass] = [tun::open(&names[0])?, tun::open(&names[1])?];
        for name in &names {
            set_up(name.clone(), config.carry_mtu())?;
            // Packets come by it from addresses that are elsewhere.
            let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0");
        }
        let device = watched(device)?;
        let buffer = vec![0; 65_536];
        let policies = config.carry_policies();
        let next_sweep = now + FORGET_AFTER;
        let (intercepts, origins) = (config.intercepts(), BTreeMap::new());
        Ok(Self { device, pass, policies, intercepts, origins, next_sweep, buffer, refused: 0 })
    }

    /// Follows another configuration.
    pub(super) fn follow(&mut self, config: &GatewayConfig) {
        self.policies = config.carry_policies();
        self.intercepts = config.intercepts();
    }

    /// Returns when there are packets to be carried.
    pub(super) async fn readable(&self) -> io::Result<()> {
        // Readiness is kept until a read finds nothing.
        self.device.readable().await.map(|mut guard| guard.retain_ready())
    }

    /// Hands packets of the kernel to the gateway. Those that it does not carry take the plain path.
    ///
    /// # Errors
    /// When the device is gone.
    pub(super) fn take(
        &mut self,
        now: Instant,
        gateway: &mut Gateway<GatewayBond, HopSuite>,
    ) -> io::Result<()> {
        for _ in 0..MOST_AT_ONCE {
            let buffer = &mut self.buffer;
            let read = self.device.try_io(Interest::READABLE, |device| {
                let mut device: &File = device;
                device.read(buffer)
            });
            let len = match read {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let packet = &self.buffer[..len];
            // The kernel itself speaks on the device, of neighbours and of groups.
            let Some(key) = FlowKey::of(packet).filter(FlowKey::is_routed) else { continue };
            let origin = self.origins.get(&key).or_else(|| self.origins.get(&pair(key)));
            let is_ordered = match self.origins.get(&key) {
                Some(origin) => origin.is_ordered,
                None => self.policies.is_ordered(&key, packet),
            };
            // Users here speak with the first peer; answers go where the question came from.
            let peer = origin.map(|origin| origin.peer).or(self.intercepts.then_some(0));
            let is_carried =
                peer.is_some_and(|peer| gateway.carry(now, peer, (key, is_ordered), packet).is_ok());
            if !is_carried {
                let mut pass = &self.pass;
                self.refused += u64::from(pass.write(packet).is_err());
            }
        }
        Ok(())
    }

    /// Hands packets of peers to the kernel, and notes where their answers go.
    pub(super) fn give(&mut self, now: Instant, gateway: &mut Gateway<GatewayBond, HopSuite>) {
        while let Some((peer, packet)) = gateway.poll_packet() {
            let Some(key) = FlowKey::of(&packet.bytes).filter(FlowKey::is_routed) else { continue };
            let answers = key.reversed();
            let origin = Origin { peer, is_ordered: packet.is_ordered, heard: now };
            for answers in [answers, pair(answers)] {
                if self.origins.len() < MOST_ORIGINS || self.origins.contains_key(&answers) {
                    self.origins.insert(answers, origin);
                }
            }
            let mut device = self.device.get_ref();
            self.refused += u64::from(device.write(&packet.bytes).is_err());
        }
        if self.next_sweep <= now {
            self.next_sweep = now + FORGET_AFTER.scaled(1, 4);
            self.origins.retain(|_, origin| now.since(origin.heard) < FORGET_AFTER);
        }
    }

    /// Packets that the kernel did not take.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

/// All flows between two hosts: fragments do not tell more.
fn pair(key: FlowKey) -> FlowKey {
    FlowKey { protocol: 0, ports: None, ..key }
}
