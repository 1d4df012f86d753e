//! The parts of a sky.

use crate::engine::{LinkId, NodeId};
use crate::link::{LinkConfig, RateSchedule};
use starhop_orbit::link::{LinkView, RatePolicy};
use starhop_orbit::network::Network;
use starhop_orbit::route::Relaying;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A sky to be.
#[derive(Debug)]
pub struct SkyPlan {
    /// Satellites and stations.
    pub network: Arc<Network>,
    /// The nodes that forward.
    pub relaying: Relaying,
    /// Start of the run, s since the constellation's epoch; a multiple of 10 ms.
    pub from_s: f64,
    /// The node of each station, in the order of [`Network::stations`].
    pub gateways: Vec<NodeId>,
    /// Links between a host and its gateway, up and down, by host; a host that is its own gateway has none.
    pub access: BTreeMap<NodeId, (LinkId, LinkId)>,
    /// The pairs of hosts that talk.
    pub pairs: Vec<SkyPair>,
    /// Inter-satellite links.
    pub isl: SkyLinkConfig,
    /// Links from stations to satellites.
    pub uplink: SkyLinkConfig,
    /// Links from satellites to stations.
    pub downlink: SkyLinkConfig,
    /// Which satellites run relays.
    pub relays: Vec<bool>,
    /// Bytes that relays on the ground keep, where not as much as those in the sky.
    pub station_cache: Option<u64>,
    /// The behaviour when a station changes its satellite.
    pub handover: Handover,
}

impl SkyPlan {
    /// Whether a rate depends on when the link will be given up.
    pub(super) fn has_curve(&self) -> bool {
        self.uplink.curve.is_some() || self.downlink.curve.is_some()
    }
}

/// Two hosts that talk over the sky.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkyPair {
    /// The station of the client, by its place in [`Network::stations`].
    pub client_station: usize,
    /// The station of the server.
    pub server_station: usize,
    /// The client's node.
    pub client: NodeId,
    /// The server's node.
    pub server: NodeId,
}

/// One direction of a kind of link. The sky sets its delay.
#[derive(Clone, Debug)]
pub struct SkyLinkConfig {
    /// Rate, queue, loss.
    pub config: LinkConfig,
    /// Loses only packets from servers to clients.
    pub is_lossy_for_data_only: bool,
    /// Bytes of link-layer header per packet.
    pub header: u32,
    /// The rate over a pass, in place of the configured one.
    pub curve: Option<VCurve>,
}

/// The behaviour when a station changes its satellite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Time for which the new link carries nothing.
    pub outage: Duration,
    /// Packets wait meanwhile; otherwise they are lost.
    pub hold: bool,
    /// A link that no path uses any more still delivers the packets under way.
    pub keep: bool,
}

/// A rate that is least at handovers and greatest between them: an inverted parabola
/// (`starhop_orbit::link::RatePolicy::VCurve`) on a floor, with noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VCurve {
    /// The rate in the middle of a pass.
    pub max: Rate,
    /// The rate at the ends of a pass.
    pub floor: Rate,
    /// Largest noise that is added or subtracted, drawn uniformly every second.
    pub noise: Rate,
}

/// A step of a curve: short against the time in which a rate changes, and against the noise's second.
const STEP: Duration = Duration::from_millis(100);
/// The most steps of a pass; longer passes have longer steps.
const MOST_STEPS: u64 = 3_000;
/// A link in use always carries a little: at a rate of nothing a packet would never leave.
const LEAST_SHARE: f64 = 0.005;
const NOISE_PERIOD: Duration = Duration::from_secs(1);

impl VCurve {
    /// The rate over a pass.
    pub fn over(&self, from: Instant, until: Instant, rng: &mut Rng) -> RateSchedule {
        let life = until.since(from);
        let step = STEP.max(life.scaled(1, MOST_STEPS));
        let height = self.max.as_bps().saturating_sub(self.floor.as_bps());
        let parabola = RatePolicy::VCurve(height as f64);
        let least = LEAST_SHARE * self.max.as_bps() as f64;
        let (mut steps, mut at, mut redraw, mut noise) = (Vec::new(), from, from, 0.0);
        while at < until || steps.is_empty() {
            if at >= redraw {
                noise = (2.0 * rng.unit() - 1.0) * self.noise.as_bps() as f64;
                redraw = at + NOISE_PERIOD;
            }
            // A step has the rate of its middle.
            let since_s = (at.since(from) + step.scaled(1, 2)).as_secs_f64().min(life.as_secs_f64());
            let until_s = life.as_secs_f64() - since_s;
            let view = LinkView { since_s, until_s, range_m: 0.0, elevation_deg: 0.0 };
            let bps = self.floor.as_bps() as f64 + parabola.bit_s(&view) + noise;
            steps.push((at, Rate::from_bps(bps.max(least) as u64)));
            at += step;
        }
        // Packets that wait when the pass is over leave soon.
        steps.push((until.max(at), self.max));
        RateSchedule::Steps(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_carries_its_floor_and_two_thirds_of_the_rest() {
        let curve = VCurve { max: Rate::from_mbps(10), floor: Rate::from_mbps(4), noise: Rate::ZERO };
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let schedule = curve.over(at(5), at(95), &mut Rng::new(1));
        let mean = schedule.bits_between(at(5), at(95)) / 90.0;
        assert!((mean - 8e6).abs() < 1e3, "{mean}");
        assert!(schedule.at(at(5)).as_mbps() < 4.1 && schedule.at(at(50)).as_mbps() > 9.99);
    }

    #[test]
    fn at_a_floor_of_nothing_a_packet_still_leaves() {
        let noise = Rate::from_bps(500_000);
        let curve = VCurve { max: Rate::from_mbps(10), floor: Rate::ZERO, noise };
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let schedule = curve.over(at(0), at(60), &mut Rng::new(1));
        for second in 0..60 {
            assert!(schedule.at(at(second)) >= Rate::from_bps(50_000), "at {second} s");
        }
        // Packets that still wait when the pass is over are gone soon after.
        assert_eq!(schedule.at(at(61)), Rate::from_mbps(10));
    }

    #[test]
    fn noise_stays_in_its_band_and_does_not_move_the_mean() {
        let noise = Rate::from_bps(500_000);
        let curve = VCurve { max: Rate::from_mbps(10), floor: Rate::from_mbps(10), noise };
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let RateSchedule::Steps(steps) = curve.over(at(0), at(200), &mut Rng::new(1)) else {
            panic!("steps")
        };
        assert!(steps.iter().all(|(_, rate)| (9_500_000..=10_500_000).contains(&rate.as_bps())));
        let mean = steps.iter().map(|(_, rate)| rate.as_mbps()).sum::<f64>() / steps.len() as f64;
        assert!((mean - 10.0).abs() < 0.1, "{mean}");
    }
}
