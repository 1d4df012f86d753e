//! The device by which users' packets come to the gateway and go from it, and the one by which they pass it.

use super::config::GatewayConfig;
use super::policy::CarryPolicies;
use crate::device::{Device, MOST_AT_ONCE, unwatched};
use crate::security::{GatewayBond, HopSuite};
use crate::transparent::firewall::{carry_device, pass_device};
use starhop_proto::gateway::{FlowKey, Gateway};
use starhop_proto::time::{Duration, Instant};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
    device: Device,
    /// The kernel takes packets that are not carried after all; nobody answers them by the other device.
    pass: File,
    policies: CarryPolicies,
    intercepts: bool,
    /// The peer of what users here begin.
    peer: Option<u16>,
    /// By the flow of the answers.
    origins: BTreeMap<FlowKey, Origin>,
    next_sweep: Instant,
    /// Packets that the kernel did not take.
    refused: u64,
    /// Bytes of the longest packet that travels in one piece.
    longest: Option<u16>,
}

impl Tunnel {
    /// Makes both devices and sets them up.
    ///
    /// # Errors
    /// When TUN devices are not to be had here.
    pub(super) fn open(now: Instant, config: &GatewayConfig) -> io::Result<Self> {
        let names = [carry_device(config.port()), pass_device(config.port())];
        let device = Device::open(&names[0], config.carry_mtu())?;
        let pass = unwatched(&names[1], config.carry_mtu())?;
        Ok(Self::of(now, config, device, pass))
    }

    /// Goes on with the devices of the program before this one.
    ///
    /// # Errors
    /// The runtime cannot watch them.
    pub(super) fn adopt(
        now: Instant,
        config: &GatewayConfig,
        [device, pass]: [OwnedFd; 2],
    ) -> io::Result<Self> {
        Ok(Self::of(now, config, Device::adopt(device)?, pass.into()))
    }

    fn of(now: Instant, config: &GatewayConfig, device: Device, pass: File) -> Self {
        let policies = config.carry_policies();
        let next_sweep = now + FORGET_AFTER;
        let (intercepts, origins) = (config.intercepts(), BTreeMap::new());
        Self {
            device,
            pass,
            policies,
            intercepts,
            origins,
            peer: None,
            next_sweep,
            refused: 0,
            longest: None,
        }
    }

    /// The descriptors of both devices.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.device.descriptor(), self.pass.as_fd()]
    }

    /// Follows another configuration.
    pub(super) fn follow(&mut self, config: &GatewayConfig) {
        self.policies = config.carry_policies();
        self.intercepts = config.intercepts();
    }

    /// Users' packets that no peer asked for go to `peer` from now on.
    pub(super) fn set_peer(&mut self, peer: Option<u16>) {
        self.peer = peer;
    }

    /// Returns when there are packets to be carried.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.device.readable().await
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
            let Some(packet) = self.device.read()? else { return Ok(()) };
            // The kernel itself speaks on the device, of neighbours and of groups.
            let Some(key) = FlowKey::of(packet).filter(FlowKey::is_routed) else { continue };
            let origin = self.origins.get(&key).or_else(|| self.origins.get(&pair(key)));
            let is_ordered = match self.origins.get(&key) {
                Some(origin) => origin.is_ordered,
                None => self.policies.is_ordered(&key, packet),
            };
            // Answers go where the question came from.
            let peer = origin.map(|origin| origin.peer).or(self.peer.filter(|_| self.intercepts));
            let is_carried =
                peer.is_some_and(|peer| gateway.carry(now, peer, (key, is_ordered), packet).is_ok());
            if let Some(peer) = peer.filter(|_| is_carried && self.policies.has_weights()) {
                let question = if origin.is_some() { key.reversed() } else { key };
                gateway.set_packets_weight(peer, &key, self.policies.weight(&question, packet));
            }
            if !is_carried {
                self.refused += u64::from((&self.pass).write(packet).is_err());
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
            self.refused += u64::from(!self.device.give(&packet.bytes));
        }
        if self.next_sweep <= now {
            self.next_sweep = now + FORGET_AFTER.scaled(1, 4);
            self.origins.retain(|_, origin| now.since(origin.heard) < FORGET_AFTER);
        }
    }

    /// Puts a packet on the plain path.
    pub(super) fn pass(&mut self, packet: &[u8]) {
        self.refused += u64::from((&self.pass).write(packet).is_err());
    }

    /// Notes the length of the longest packet that travels in one piece. Returns whether it is another than before.
    pub(super) fn has_changed(&mut self, longest: u16) -> bool {
        self.longest.replace(longest) != Some(longest)
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
