//! Rate controllers: they decide the rate that a hop may send. One file each.

mod base;
mod blocks;
mod capacity;
mod chirps;
mod clumps;
mod contest;
mod cubic;
mod fixed;
mod grants;
mod growth;
mod intcp;
mod interval;
mod leaps;
mod leotp;
mod longer;
mod overflow;
mod policer;
mod pulses;
mod reno;
mod rivals;
mod starhop;
mod train;
mod trial;

pub use cubic::Cubic;
pub use fixed::Fixed;
pub use intcp::Intcp;
pub use leotp::Leotp;
pub use reno::Reno;
pub use starhop::Starhop;

use super::rtt::HopRtt;
use crate::config::{Config, Controller};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use alloc::boxed::Box;

/// One packet that arrived over the hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Time of the arrival.
    pub now: Instant,
    /// Its bytes on the wire.
    pub bytes: u64,
    /// Packets of any length that the hop's counter has passed since the delivery before.
    pub passed: u32,
    /// Those that are counted as lost since then.
    pub lost: u32,
    /// Runs of packets without one in between that came, which these begin.
    pub runs: u32,
    /// Packets that left the sender, as far as is known since the arrival before: this one and lost ones.
    pub sent: u32,
    /// Its hopRTT.
    pub hop_rtt: Duration,
    /// Its sender had more to send and was held by the granted rate.
    pub backlog: bool,
}

/// Decides the rate of one hop from its arrivals.
pub trait RateController {
    /// A packet arrived; `rtt` includes it already. Returns the new base delay once the controller finds that the path
    /// itself has become longer.
    fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration>;

    /// Packets take another path from now on: delays of the old one tell nothing about it.
    fn on_new_path(&mut self) {}

    /// Time by which arrivals lag behind their mean for a moment: the next hop needs a queue of this length to
    /// bridge it.
    fn noise(&self) -> Duration {
        Duration::ZERO
    }

    /// The rate above which something on the way drops packets without a queue: a policer. `None` where there is none, or
    /// nothing shows it.
    fn policed(&self) -> Option<Rate> {
        None
    }

    /// Enough is known of the link for the sender to be told a rate: until then it sends its first packets only.
    fn is_ready(&self) -> bool {
        true
    }

    /// The link has just shown that it has room for the rate.
    fn has_shown_room(&self, _now: Instant) -> bool {
        false
    }

    /// The sender is to let its packets leave in chirps, so that they show the room of the link.
    fn wants_chirps(&self) -> bool {
        false
    }

    /// The rate that the sender may send, bits per second on the wire.
    fn rate(&self) -> Rate;
}

/// The controller that the configuration names.
pub fn controller(config: &Config) -> Box<dyn RateController + Send> {
    let packet = config.payload as u64 + 56;
    let initial = Rate::of(u64::from(config.initial_window) * packet, config.rtt0);
    match config.controller {
        Controller::Starhop => Box::new(Starhop::new(initial, packet, config.mechanisms.chirps)),
        Controller::Leotp(rules) => Box::new(Leotp::new(rules, packet, config.rtt0)),
        Controller::Intcp => Box::new(Intcp::new(initial, packet)),
        Controller::Fixed(rate) => Box::new(Fixed(rate)),
        Controller::Reno => Box::new(Reno::new(packet, config.rtt0)),
        Controller::Cubic => Box::new(Cubic::new(packet, config.rtt0)),
    }
}
