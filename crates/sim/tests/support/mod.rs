//! Chains with one TCP flow, shared by the tests of TCP and of its controls.

use starhop_proto::name::FlowId;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::engine::{Clock, Network, NodeId};
use starhop_sim::host::tcp::congestion::Control;
use starhop_sim::host::tcp::{TcpConfig, TcpSettings};
use starhop_sim::link::{LinkConfig, LossModel, QueueLimit};
use starhop_sim::run::{FlowSpec, Plan, Simulation, Transport};

/// The kernel's defaults with this control.
pub(crate) fn settings(control: &str) -> TcpSettings {
    TcpSettings::new(Control::named(control).unwrap_or_else(|| panic!("there is no {control}")))
}

/// A chain with equal hops and losses in the direction of the data.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) hops: usize,
    pub(crate) mbit: u64,
    pub(crate) delay_ms: u64,
    pub(crate) loss: f64,
    pub(crate) queue: u32,
    pub(crate) length: Option<u64>,
    pub(crate) last: Option<LinkConfig>,
    pub(crate) is_split: bool,
    pub(crate) seed: u64,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            hops: 1,
            mbit: 20,
            delay_ms: 10,
            loss: 0.0,
            queue: 1000,
            length: None,
            last: None,
            is_split: false,
            seed: 1,
        }
    }
}

impl Chain {
    /// The connection is split at every node in between.
    pub(crate) fn split(mut self) -> Self {
        self.is_split = true;
        self
    }

    /// A faultless link.
    pub(crate) fn link(&self, mbit: u64, delay_ms: u64) -> LinkConfig {
        let ideal = LinkConfig::ideal(Rate::from_mbps(mbit), Duration::from_millis(delay_ms));
        LinkConfig { queue: QueueLimit::Packets(self.queue), ..ideal }
    }

    /// A simulation of `seconds` seconds in which nothing has happened.
    pub(crate) fn build(&self, settings: &TcpSettings, seconds: u64) -> Simulation {
        let mut network = Network::default();
        let nodes: Vec<NodeId> = (0..=self.hops).map(|_| network.add_node(Clock::default())).collect();
        let back = self.link(self.mbit, self.delay_ms);
        let loss = if self.loss > 0.0 { LossModel::Bernoulli(self.loss) } else { LossModel::None };
        for (index, pair) in nodes.windows(2).enumerate() {
            let plain = LinkConfig { loss: loss.clone(), ..back.clone() };
            let last = self.last.clone().filter(|_| index + 1 == self.hops);
            network.add_link(pair[0], pair[1], last.unwrap_or(plain), 0);
            network.add_link(pair[1], pair[0], back.clone(), 0);
        }
        let config = TcpConfig::new(settings.clone()).unwrap_or_else(|e| panic!("{e:?}"));
        let end = Instant::ZERO + Duration::from_secs(seconds);
        let flow = FlowSpec {
            content: FlowId([1; 16]),
            from: nodes[0],
            to: nodes[self.hops],
            length: self.length,
            start: Instant::ZERO,
            stop: end,
            transport: Transport::Tcp(config),
            splits: if self.is_split { nodes[1..self.hops].to_vec() } else { Vec::new() },
            exchange: None,
            crowd: None,
            program: None,
        };
        Simulation::new(Plan { seed: self.seed, ..Plan::new(network, vec![flow], end) })
    }

    /// A simulation that has run.
    pub(crate) fn run(&self, settings: &TcpSettings, seconds: u64) -> Simulation {
        let mut simulation = self.build(settings, seconds);
        simulation.run(|_| ());
        simulation
    }
}

/// Mean goodput from second `from` to second `to`.
pub(crate) fn mbps(simulation: &Simulation, from: usize, to: u64) -> f64 {
    let samples = &simulation.series().flows[0];
    let part = &samples[(from * 10).min(samples.len())..(to as usize * 10).min(samples.len())];
    part.iter().map(|sample| sample.goodput_mbps).sum::<f64>() / part.len() as f64
}
