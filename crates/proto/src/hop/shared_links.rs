//! Links of known rate that several hops share: whose packet leaves next, and when.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng 1997): a packet begins at its hop's *tag*, which grows with each packet
//! by its bytes over the hop's weight, and the least tag is next. The link's clock is the tag of the packet sent last. A hop
//! that had nothing to send begins at the clock: before all that wait, with nothing saved up.

use super::pacer::Pacer;
use crate::table::Slot;
use crate::time::Instant;
use crate::units::Rate;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::SocketAddr;

/// A hop's part of a shared link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The link's place in the list of links.
    pub link: u16,
    /// The part beside those of weight 1; 0 counts as 1.
    pub weight: u16,
}

/// Tags count parts of a byte, so that no weight is rounded away.
const TAGS_PER_BYTE: u64 = 1 << 12;

#[derive(Debug)]
struct Hop {
    share: Share,
    tag: u64,
    is_waiting: bool,
}

#[derive(Debug)]
struct Link {
    pacer: Pacer,
    clock: u64,
    waiting: BinaryHeap<Reverse<(u64, Slot)>>,
    /// Weights of those that wait.
    weights: u64,
    /// Whether more waited when the last packet left: the next one waits only for its time.
    had_backlog: bool,
}

/// The shared links of a node, and their hops. Every byte that leaves is taken from its link once: in its hop's turn, or as a
/// datagram that waited for none.
///
/// Inputs: [`SharedLinks::enter`], [`SharedLinks::charge`] and [`SharedLinks::on_datagram`]. Output: [`SharedLinks::take`], due at
/// [`SharedLinks::next_turn`].
#[derive(Debug, Default)]
pub(super) struct SharedLinks {
    links: Vec<Link>,
    hops: BTreeMap<Slot, Hop>,
    /// The neighbours whose hops are on the links.
    shares: BTreeMap<SocketAddr, Share>,
    /// Bytes that the last turn has taken from a link.
    charged: u64,
}

impl SharedLinks {
    /// Takes other links, of these rates and for these neighbours, for packets of at most `packet` bytes on the wire. No hop is on
    /// one until [`SharedLinks::place`] puts it there.
    pub(super) fn set(
        &mut self,
        now: Instant,
        (rates, shares): (&[Rate], BTreeMap<SocketAddr, Share>),
        packet: u64,
    ) {
        self.shares = shares;
        self.hops.clear();
        self.links.truncate(rates.len());
        for link in &mut self.links {
            link.waiting.clear();
            link.weights = 0;
        }
        for (place, &rate) in rates.iter().enumerate() {
            match self.links.get_mut(place) {
                // Packets that have left keep their time.
                Some(link) => link.pacer.set_rate(now, rate),
                None => self.links.push(Link {
                    pacer: Pacer::new(rate, packet),
                    clock: 0,
                    waiting: BinaryHeap::new(),
                    weights: 0,
                    had_backlog: false,
                }),
            }
        }
    }

    /// Puts the hop of the neighbour at `remote` on the neighbour's link, if it has one.
    pub(super) fn place(&mut self, hop: Slot, remote: SocketAddr) {
        let Some(share) = self.shares.get(&remote).copied() else { return };
        if usize::from(share.link) < self.links.len() {
            let share = Share { weight: share.weight.max(1), ..share };
            self.remove(hop);
            self.hops.insert(hop, Hop { share, tag: 0, is_waiting: false });
        }
    }

    /// A hop is no more.
    pub(super) fn remove(&mut self, hop: Slot) {
        let Some(removed) = self.hops.remove(&hop) else { return };
        if let Some(link) = self.links.get_mut(usize::from(removed.share.link)).filter(|_| removed.is_waiting)
        {
            link.waiting.retain(|Reverse((_, waiting))| *waiting != hop);
            link.weights -= u64::from(removed.share.weight);
        }
    }

    /// A hop has something that may leave by its own rate: it waits for its turn. False if it is on no shared link.
    pub(super) fn enter(&mut self, slot: Slot) -> bool {
        let Some(hop) = self.hops.get_mut(&slot) else { return false };
        let Some(link) = self.links.get_mut(usize::from(hop.share.link)) else { return false };
        if !core::mem::replace(&mut hop.is_waiting, true) {
            hop.tag = hop.tag.max(link.clock);
            link.weights += u64::from(hop.share.weight);
            link.waiting.push(Reverse((hop.tag, slot)));
        }
        true
    }

    /// Whether a hop waits for its turn.
    pub(super) fn is_waiting(&self, hop: Slot) -> bool {
        self.hops.get(&hop).is_some_and(|hop| hop.is_waiting)
    }

    /// Time at which [`SharedLinks::take`] has a hop, if no input arrives first.
    pub(super) fn next_turn(&self) -> Instant {
        let busy = self.links.iter().filter(|link| !link.waiting.is_empty());
        busy.map(|link| link.pacer.ready_at()).min().unwrap_or(Instant::NEVER)
    }

    /// The hop that may send a packet at `now`. It waits no longer, until it enters again.
    pub(super) fn take(&mut self, now: Instant) -> Option<Slot> {
        let is_due = |link: &&mut Link| !link.waiting.is_empty() && link.pacer.ready_at() <= now;
        let link = self.links.iter_mut().find(is_due)?;
        let Reverse((tag, slot)) = link.waiting.pop()?;
        link.clock = link.clock.max(tag);
        if let Some(hop) = self.hops.get_mut(&slot) {
            hop.is_waiting = false;
            link.weights -= u64::from(hop.share.weight);
        }
        Some(slot)
    }

    /// A hop sent `bytes` on the wire in its turn. `has_more` says whether it holds more to send. Returns the time at which its link
    /// takes the next packet; `None` if the hop is on none.
    pub(super) fn charge(&mut self, now: Instant, slot: Slot, bytes: u64, has_more: bool) -> Option<Instant> {
        let hop = self.hops.get_mut(&slot)?;
        let link = self.links.get_mut(usize::from(hop.share.link))?;
        self.charged = bytes;
        if bytes > 0 {
            hop.tag += bytes * TAGS_PER_BYTE / u64::from(hop.share.weight);
            if link.had_backlog {
                link.pacer.on_sent_of_backlog(now, bytes);
            } else {
                link.pacer.on_sent(now, bytes);
            }
            link.had_backlog = has_more || !link.waiting.is_empty();
        }
        Some(link.pacer.ready_at())
    }

    /// A datagram for `remote` has left, with so many bytes on the wire. Those that no turn has taken from the link are taken now:
    /// the packets after them wait for their time.
    pub(super) fn on_datagram(&mut self, now: Instant, remote: SocketAddr, bytes: u64) {
        if self.links.is_empty() {
            return;
        }
        let rest = bytes.saturating_sub(core::mem::take(&mut self.charged));
        let Some(share) = self.shares.get(&remote).filter(|_| rest > 0) else { return };
        if let Some(link) = self.links.get_mut(usize::from(share.link)) {
            link.pacer.on_sent(now, rest);
        }
    }

    /// The rate that a hop has while those that wait now go on; `None` if it is on no shared link.
    pub(super) fn rate(&self, slot: Slot) -> Option<Rate> {
        let hop = self.hops.get(&slot)?;
        let link = self.links.get(usize::from(hop.share.link))?;
        let weight = u64::from(hop.share.weight);
        let weights = link.weights + if hop.is_waiting { 0 } else { weight };
        Some(link.pacer.rate().scaled(weight as f64 / weights as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);
    const RATE: Rate = Rate::from_mbps(8);
    const PACKET: u64 = 1_000;

    fn link(weights: &[u16]) -> SharedLinks {
        let mut links = SharedLinks::default();
        let shares = (0..).zip(weights).map(|(n, &weight)| (remote(n), Share { link: 0, weight }));
        links.set(NOW, (&[RATE], shares.collect()), PACKET);
        (0..weights.len() as u32).for_each(|n| links.place(Slot(n), remote(n)));
        links
    }

    /// The address of the neighbour whose hop is at slot `n`.
    fn remote(n: u32) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, n as u8], 9))
    }

    /// Sends from `*now` until `end`; `next` says how long the packet is that a hop holds at a time, if it holds one. Returns
    /// the bytes of each hop.
    fn send(
        links: &mut SharedLinks,
        now: &mut Instant,
        end: Instant,
        next: impl Fn(u32, Instant) -> Option<u64>,
    ) -> Vec<u64> {
        let mut sent = alloc::vec![0; links.hops.len()];
        loop {
            (0..sent.len() as u32)
                .filter(|n| next(*n, *now).is_some())
                .for_each(|n| _ = links.enter(Slot(n)));
            let Some(slot) = links.take(*now) else {
                *now = links.next_turn().min(*now + Duration::from_millis(1)).max(*now);
                if *now >= end {
                    return sent;
                }
                continue;
            };
            let bytes = next(slot.0, *now).expect("nobody leaves here");
            sent[slot.0 as usize] += bytes;
            links.charge(*now, slot, bytes, true);
        }
    }

    #[test]
    fn hops_share_a_link_by_their_weights_whatever_the_length_of_their_packets() {
        let (mut links, mut now) = (link(&[1, 3, 32]), NOW);
        let lengths = [1_000, 700, 90];
        let sent =
            send(&mut links, &mut now, NOW + Duration::from_secs(36), |n, _| Some(lengths[n as usize]));
        let all: u64 = sent.iter().sum();
        assert!((36_000_000..36_002_100).contains(&all), "the link's rate and one burst: {all}");
        for (bytes, weight) in sent.iter().zip([1, 3, 32]) {
            assert!(bytes.abs_diff(weight * 1_000_000) <= 2 * PACKET, "{sent:?}");
        }
    }

    #[test]
    fn the_share_of_an_idle_hop_goes_to_the_others_and_is_not_saved_up() {
        let (mut links, mut now) = (link(&[1, 3]), NOW);
        let back = NOW + Duration::from_secs(10);
        let next = |n, now| (n == 0 || now >= back).then_some(PACKET);
        let alone = send(&mut links, &mut now, back, next);
        assert!(alone[0] >= 10_000_000 && alone[1] == 0, "{alone:?}");
        let both = send(&mut links, &mut now, back + Duration::from_secs(4), next);
        assert!(both[0].abs_diff(1_000_000) <= 3 * PACKET, "{both:?}");
        assert!(both[1].abs_diff(3_000_000) <= 3 * PACKET, "{both:?}");
    }

    #[test]
    fn a_packet_of_a_hop_that_was_idle_waits_for_no_more_than_the_one_that_is_leaving() {
        let (mut links, mut now) = (link(&[32, 1]), NOW);
        for n in 1..50 {
            let at = NOW + Duration::from_millis(100 * n);
            send(&mut links, &mut now, at, |n, _| (n == 0).then_some(PACKET));
            assert!(links.enter(Slot(0)) && links.enter(Slot(1)));
            now = now.max(links.next_turn());
            assert_eq!(links.take(now), Some(Slot(1)), "the light one, beside the bulk of the heavy one");
            links.charge(now, Slot(1), 100, false);
        }
    }

    #[test]
    fn what_waits_for_no_turn_takes_its_time_from_the_link() {
        let (mut links, mut now) = (link(&[1]), NOW);
        links.on_datagram(now, remote(0), 500_000);
        let sent = send(&mut links, &mut now, NOW + Duration::from_secs(1), |_, _| Some(PACKET));
        assert!((500_000..=502_000).contains(&sent[0]), "{sent:?}");
    }

    #[test]
    fn a_datagram_that_had_its_turn_takes_its_time_once() {
        let mut links = link(&[1]);
        assert!(links.enter(Slot(0)) && links.take(NOW).is_some());
        let ready = links.charge(NOW, Slot(0), PACKET, true);
        links.on_datagram(NOW, remote(0), PACKET);
        assert_eq!(links.charge(NOW, Slot(0), 0, true), ready);
        links.on_datagram(NOW, remote(0), PACKET);
        assert!(links.charge(NOW, Slot(0), 0, true) > ready, "the second one had no turn");
        links.on_datagram(NOW, remote(9), PACKET);
        assert_eq!(links.charge(NOW, Slot(9), PACKET, true), None, "on no shared link");
    }

    #[test]
    fn a_neighbour_is_on_the_link_that_its_address_names() {
        let mut links = link(&[1]);
        links.place(Slot(7), remote(7));
        assert_eq!(links.rate(Slot(7)), None);
        let shares = [(remote(7), Share { link: 1, weight: 0 }), (remote(8), Share { link: 2, weight: 1 })];
        links.set(NOW, (&[RATE, Rate::from_mbps(2)], shares.into()), PACKET);
        assert_eq!(links.rate(Slot(0)), None, "no hop is on one of the new links yet");
        links.place(Slot(7), remote(7));
        links.place(Slot(8), remote(8));
        assert_eq!((links.rate(Slot(7)), links.rate(Slot(8))), (Some(Rate::from_mbps(2)), None));
    }

    #[test]
    fn a_hop_that_is_removed_while_it_waits_leaves_its_share() {
        let mut links = link(&[1, 3]);
        assert!(links.enter(Slot(0)) && links.enter(Slot(1)) && !links.enter(Slot(2)));
        assert_eq!(links.rate(Slot(0)), Some(Rate::from_mbps(2)));
        links.remove(Slot(1));
        assert_eq!((links.rate(Slot(0)), links.rate(Slot(1))), (Some(RATE), None));
        assert_eq!((links.take(NOW), links.take(NOW)), (Some(Slot(0)), None));
        assert_eq!(links.next_turn(), Instant::NEVER);
    }
}
