//! Programs that a run puts into the kernel: congestion controls that it lacks, and XCP's routers. They go with the run.

use super::tcp;
use super::world::World;
use crate::error::LabError;
use starhop_kernel::{Control, Lifetime, Loaded, Options, Router, RouterSettings};
use starhop_net::emu::Namespace;
use starhop_proto::time::Instant;
use starhop_sim::host::tcp::congestion::Tuning;
use starhop_sim::link::{LinkConfig, QueueLimit, XcpTraffic};

/// Bytes of a full IP packet, for queues that are counted in packets.
const PACKET: u64 = 1500;

/// The kernel programs that are loaded for a run.
#[derive(Debug, Default)]
pub(super) struct Programs {
    controls: Vec<(&'static Control, Options, Loaded)>,
    routers: Vec<Router>,
}

impl Programs {
    /// The kernel's name of the congestion control that a flow wants: its own one, or ours, loaded for this run with the
    /// parameters of the flow.
    pub(super) fn control(&mut self, wanted: &str, tuning: &Tuning) -> Result<String, String> {
        let known = Control::named(wanted).ok();
        let options = known.map_or_else(|| Ok(Options::default()), |control| options(control, tuning))?;
        let ours = |control: &&Control| self.controls.iter().find(|(held, ..)| held.name == control.name);
        if let Some((control, held, _)) = known.as_ref().and_then(ours) {
            let differ = || format!("another flow has other options of {wanted}, and the kernel has one set");
            return if *held == options { Ok(control.kernel_name.to_owned()) } else { Err(differ()) };
        }
        let name = known.map_or(wanted, |control| control.kernel_name);
        // The kernel has it, or the operator has loaded it.
        match tcp::kernel_name(wanted).or_else(|| tcp::kernel_name(name)) {
            Some(_) if options != Options::default() => Err(format!(
                "{wanted} is in this kernel already, with options that are not the flow's: `starhop tcp unload {wanted}`"
            )),
            Some(name) => Ok(name),
            None => self.load(wanted, options),
        }
    }

    fn load(&mut self, wanted: &str, options: Options) -> Result<String, String> {
        let Ok(control) = Control::named(wanted) else {
            let offered = tcp::offered();
            return Err(format!(
                "this kernel does not offer \"{wanted}\", and Starhop has no program for it; it offers {offered} (others \
                 may be loaded: modprobe tcp_{wanted})"
            ));
        };
        let loaded = starhop_kernel::load(control, &options, Lifetime::Process);
        self.controls.push((control, options, loaded.map_err(|error| error.to_string())?));
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

/// The parameters of a flow that its control has as options and that are not the defaults.
fn options(control: &'static Control, tuning: &Tuning) -> Result<Options, String> {
    let given = [
        ("rtt0", tuning.rtt0.map(|rtt0| rtt0.as_millis_f64())),
        ("alpha", tuning.alpha),
        ("beta", tuning.beta),
        ("beta1", tuning.beta),
        ("gamma", tuning.gamma.map(|share| share * 100.0)),
    ];
    let text = |(name, value): (&str, Option<f64>)| {
        let spec = control.options.iter().find(|spec| spec.name == name)?;
        value.filter(|value| *value != spec.default as f64).map(|value| format!("{name}={value}"))
    };
    let texts: Vec<String> = given.into_iter().filter_map(text).collect();
    Options::parse(&texts, &[control]).map_err(|error| error.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::time::Duration;

    #[test]
    fn a_control_is_loaded_with_the_parameters_of_the_flow() {
        let of = |name: &str, tuning: Tuning| options(Control::named(name).expect("a control"), &tuning);
        let parsed = |name: &str, texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            Ok(Options::parse(&texts, &[Control::named(name).expect("a control")]).expect("options"))
        };
        let rtt0 = |millis| Tuning { rtt0: Some(Duration::from_millis(millis)), ..Tuning::default() };
        assert_eq!(of("hybla", rtt0(25)), Ok(Options::default()), "the default needs no loading anew");
        assert_eq!(of("hybla", rtt0(50)), parsed("hybla", &["rtt0=50ms"]));
        let fast = Tuning { alpha: Some(10.0), gamma: Some(0.25), ..rtt0(50) };
        assert_eq!(of("fast-xcp", fast), parsed("fast-xcp", &["alpha=10", "gamma=25"]));
        assert_eq!(
            of("hybla-veno", Tuning { beta: Some(4.0), ..rtt0(75) }),
            parsed("hybla-veno", &["beta1=4"])
        );
        assert!(
            of("veno", Tuning { beta: Some(2.5), ..rtt0(75) })
                .is_err_and(|problem| problem.contains("whole"))
        );
    }
}
