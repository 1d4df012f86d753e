use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::time::Duration;
use crate::units::Rate;

/// The rate that the operator or the modem says the link has: nothing to probe.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub Rate);

impl RateController for Fixed {
    fn on_delivery(&mut self, _delivery: Delivery, _rtt: &HopRtt) -> Option<Duration> {
        None
    }

    fn rate(&self) -> Rate {
        self.0
    }
}
