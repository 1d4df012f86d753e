use super::rate::{Delivery, RateController, controller};
use super::rtt::HopRtt;
use crate::config::Config;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use alloc::boxed::Box;

/// The rate that a hop is granted: the controller's, within the operator's bound and within the room at this node. The controller
/// never takes the rate of a sender that was held for want of room for that of the link.
pub(super) struct Grant {
    controller: Box<dyn RateController + Send>,
    /// The operator's bound.
    most: Rate,
    /// The bound for want of room, and the time until which packets may come that were sent under one.
    room: Rate,
    room_shows_until: Instant,
    /// Bytes that the hop has brought since [`Grant::take_brought`] was called last.
    brought: u64,
}

impl Grant {
    /// The rate of the controller that the configuration names.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            controller: controller(config),
            most: config.rate_limit,
            room: Rate::UNLIMITED,
            room_shows_until: Instant::ZERO,
            brought: 0,
        }
    }

    /// The rate that holds now.
    #[inline]
    pub(super) fn rate(&self) -> Rate {
        self.controller.rate().min(self.most).min(self.room)
    }

    /// This node has no room for more than `limit`.
    pub(super) fn limit_to_room(&mut self, limit: Rate) {
        self.room = limit;
    }

    /// The hop has brought so many bytes on the wire.
    #[inline]
    pub(super) fn on_brought(&mut self, bytes: u64) {
        self.brought += bytes;
    }

    /// Bytes on the wire that the hop has brought since the last call.
    pub(super) fn take_brought(&mut self) -> u64 {
        core::mem::take(&mut self.brought)
    }

    /// The controller takes a full packet into account. Returns the new base delay once the path itself has become longer.
    #[inline]
    pub(super) fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration> {
        // A sender that is held for want of room here shows nothing about the link.
        let backlog = delivery.backlog && delivery.now >= self.room_shows_until;
        self.controller.on_delivery(Delivery { backlog, ..delivery }, rtt)
    }

    /// The neighbour is told the present rate. Packets that it sends under it come for two round trips.
    pub(super) fn on_told(&mut self, now: Instant, hop_rtt: Duration) {
        if self.rate() == self.room && !self.room.is_unlimited() {
            self.room_shows_until = now + hop_rtt.scaled(2, 1);
        }
    }

    /// Packets take another path from now on.
    pub(super) fn on_new_path(&mut self) {
        self.controller.on_new_path();
    }

    /// Whether enough is known of the link for the neighbour to be told a rate.
    pub(super) fn is_ready(&self) -> bool {
        self.controller.is_ready()
    }

    /// The link has just shown that it has room for the rate.
    pub(super) fn has_shown_room(&self, now: Instant) -> bool {
        self.controller.has_shown_room(now)
    }

    /// The sender is to let its packets leave in chirps.
    pub(super) fn wants_chirps(&self) -> bool {
        self.controller.wants_chirps()
    }

    /// Time by which arrivals lag behind their mean for a moment.
    pub(super) fn noise(&self) -> Duration {
        self.controller.noise()
    }

    /// The rate above which something on the way drops packets without a queue, where that shows.
    pub(super) fn policed(&self) -> Option<Rate> {
        self.controller.policed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Profile, Settings};
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicBool, Ordering};

    const MBIT: u64 = 1_000_000;

    /// A controller that grants 10 Mbit/s and notes whether the last packet's sender was held by its rate.
    struct Noting(Arc<AtomicBool>);

    impl RateController for Noting {
        fn on_delivery(&mut self, delivery: Delivery, _: &HopRtt) -> Option<Duration> {
            self.0.store(delivery.backlog, Ordering::Relaxed);
            None
        }

        fn rate(&self) -> Rate {
            Rate::from_bps(10 * MBIT)
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn grant(most: Rate) -> (Grant, Arc<AtomicBool>) {
        let settings = Settings { rate_limit: most, ..Profile::default().settings() };
        let config = Config::new(settings).expect("a bound above zero");
        let was_held = Arc::new(AtomicBool::default());
        let controller = Box::new(Noting(Arc::clone(&was_held)));
        (Grant { controller, ..Grant::new(&config) }, was_held)
    }

    #[test]
    fn the_smallest_of_controller_operator_and_room_is_granted() {
        assert_eq!(grant(Rate::UNLIMITED).0.rate(), Rate::from_bps(10 * MBIT));
        let mut grant = grant(Rate::from_bps(8 * MBIT)).0;
        assert_eq!(grant.rate(), Rate::from_bps(8 * MBIT));
        grant.limit_to_room(Rate::from_bps(MBIT));
        assert_eq!(grant.rate(), Rate::from_bps(MBIT));
        grant.limit_to_room(Rate::UNLIMITED);
        assert_eq!(grant.rate(), Rate::from_bps(8 * MBIT));
    }

    #[test]
    fn a_sender_that_want_of_room_holds_shows_no_link_for_two_round_trips() {
        let (mut grant, was_held) = grant(Rate::UNLIMITED);
        let rtt = HopRtt::new(Duration::from_millis(50));
        let shows = |grant: &mut Grant, millis| {
            let (now, hop_rtt) = (at(millis), rtt.smoothed());
            grant.on_delivery(
                Delivery { now, bytes: 1400, passed: 1, lost: 0, runs: 0, sent: 1, hop_rtt, backlog: true },
                &rtt,
            );
            was_held.load(Ordering::Relaxed)
        };
        grant.on_told(at(1000), rtt.smoothed());
        assert!(shows(&mut grant, 1000), "the room bounds nothing");
        grant.limit_to_room(Rate::from_bps(MBIT));
        grant.on_told(at(1000), rtt.smoothed());
        grant.limit_to_room(Rate::UNLIMITED);
        grant.on_told(at(1010), rtt.smoothed());
        assert!(!shows(&mut grant, 1099));
        assert!(shows(&mut grant, 1100));
    }

    #[test]
    fn bytes_are_taken_once() {
        let mut grant = grant(Rate::UNLIMITED).0;
        grant.on_brought(1400);
        grant.on_brought(90);
        assert_eq!((grant.take_brought(), grant.take_brought()), (1490, 0));
    }
}
