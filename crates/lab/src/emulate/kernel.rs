//! Programs that a run puts into the kernel: congestion controls that it lacks, and XCP's routers. They go with the run.

use super::tcp;
use super::world::World;
use crate::error::LabError;
use starhop_kernel::{Control, Lifetime, Loaded, Options, Router, RouterSettings};
use starhop_net::emu::Namespace;
use starhop_proto::time::Instant;
use starhop_sim::link::{LinkConfig, QueueLimit, XcpTraffic};

/// Bytes of a full IP packet, for queues that are counted in packets.
const PACKET: u64 = 1500;

/// The kernel programs that are loaded for a run.
#[derive(Debug, Default)]
pub(super) struct Programs {
    controls: Vec<Loaded>,
    routers: Vec<Router>,
}

impl Programs {
    /// The kernel's name of the congestion control that a flow wants: its own one, or ours, loaded for this run.
    pub(super) fn control(&mut self, wanted: &str) -> Result<String, String> {
        if let Some(name) = tcp::kernel_name(wanted) {
            return Ok(name);
        }
        let Ok(control) = Control::named(wanted) else {
            let offered = tcp::offered();
            return Err(format!(
                "this kernel does not offer \"{wanted}\", and Starhop has no program for it; it offers {offered} (others \
                 may be loaded: modprobe tcp_{wanted})"
            ));
        };
        // Another flow, or the operator, may have loaded it.
        if tcp::kernel_name(control.kernel_name).is_none() {
            let loaded = starhop_kernel::load(control, &Options::default(), Lifetime::Process);
            self.controls.push(loaded.map_err(|error| error.to_string())?);
        }
        Ok(control.kernel_name.to_owned())
    }

    /// Puts a router in front of every link that has one in the scenario, if one of the flows' controls speaks XCP.
    pub(super) fn route<'a>(
        &mut self,
        world: &World,
        links: &[LinkConfig],
        mut controls: impl Iterator<Item = &'a String>,
    ) -> Result<(), LabError> {
        if !controls.any(|name| Control::named(name).is_ok_and(|control| control.speaks_xcp)) {
            return Ok(());
        }
        for (index, link) in links.iter().enumerate() {
            let Some(options) = link.xcp else { continue };
            let (namespace, device, overhead) = world.egress(index as u32);
            let settings = RouterSettings {
                alpha: options.alpha,
                beta: options.beta,
                gamma: options.gamma,
                own: options.traffic == XcpTraffic::Own,
                queue_limit: room(link.queue),
                overhead,
                ..RouterSettings::of_rate(link.rate.at(Instant::ZERO).as_bps())
            };
            self.routers.push(attach(namespace, device, settings)?);
        }
        Ok(())
    }
}

fn room(queue: QueueLimit) -> u64 {
    match queue {
        QueueLimit::Unlimited => 0,
        QueueLimit::Packets(packets) => u64::from(packets) * PACKET,
        QueueLimit::Bytes(bytes) => bytes,
    }
}

fn attach(namespace: &Namespace, device: String, settings: RouterSettings) -> Result<Router, LabError> {
    let attached = namespace.run(move || Router::attach(&device, &settings));
    let attached = attached.map_err(LabError::system("cannot reach a node"))?;
    attached.map_err(|error| LabError::Scenario(format!("router = \"xcp\": {error}")))
}
