use super::openings::Misses;
use crate::peer::{Holder, Peer};
use crate::table::{Slot, Table};
use crate::time::Duration;
use crate::wire::{Limit, NotNow};

/// The cost of state, bytes: upper estimates of the memory of a node's tables and lists for one of each.
pub mod cost {
    /// A neighbour with its own tables.
    pub const NEIGHBOUR: u64 = 2048;
    /// A neighbour's interest in a flow: the flow itself, its queue, and some ranges of each of their sets.
    pub const FLOW: u64 = 4096;
    /// One more range: it is waited for, or queued twice over (in order and as a set), and asked for upstream, where it may be a
    /// hole: 104 bytes, and half as much again for room in the nodes of its trees.
    pub const RANGE: u64 = 3 * 16 + 156;
    /// Ranges that are in the cost of a flow.
    pub const FREE_RANGES: u64 = 16;
}

/// Time after which there may be room again, once memory is full: the state of silent neighbours is forgotten after
/// half a minute, and bytes that others asked for arrive meanwhile.
const BACK: Duration = Duration::from_millis(500);

/// Time after which a flow that no neighbour waits for is forgotten, and the interval between two searches for such flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Patience {
    quiet: Duration,
    sweep: Duration,
}

/// Usually. Whoever asks again finds the bytes in the cache.
const USUAL: Patience = Patience { quiet: Duration::from_secs(5), sweep: Duration::from_secs(5) };
/// If memory is short. Repetitions of the last requests have come by then.
const PRESSED: Patience = Patience { quiet: Duration::from_secs(2), sweep: Duration::from_secs(1) };

#[derive(Debug, Default)]
struct Account {
    bytes: u64,
    misses: Misses,
    hops: u32,
}

/// Memory for the state of neighbours and their flows, and the share that each neighbour holds.
///
/// No neighbour may hold more than stays free (a dynamic threshold, Choudhury and Hahne 1998, with a factor of
/// one). One neighbour alone may have half of all, n greedy neighbours an (n + 1)th part each, and as much is
/// always left for the next one. So a relay that speaks for thousands has room, and one neighbour's flood leaves
/// room.
pub(super) struct Ledger {
    budget: u64,
    used: u64,
    accounts: Table<Holder, Account>,
}

impl Ledger {
    /// All of `budget` bytes are free.
    pub(super) fn new(budget: u64, seed: u64) -> Self {
        Self { budget, used: 0, accounts: Table::new(seed) }
    }

    /// Bytes that are held.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of all.
    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    fn account(&self, peer: &Peer) -> Option<Slot> {
        self.accounts.find(&Holder::of(peer))
    }

    /// The refusal of what `limit` names, for want of memory.
    pub(super) fn full(limit: Limit) -> NotNow {
        NotNow::new(limit, BACK)
    }

    /// Whether `peer` may hold `more` bytes than it does.
    fn allows(&self, peer: &Peer, more: u64) -> bool {
        let held = self.account(peer).and_then(|slot| self.accounts.get(slot)).map_or(0, |held| held.bytes);
        held + 2 * more <= self.budget.saturating_sub(self.used)
    }

    /// Whether `peer` may have one more hop.
    pub(super) fn check_hop(&self, peer: &Peer) -> Result<(), NotNow> {
        if self.allows(peer, cost::NEIGHBOUR) { Ok(()) } else { Err(Self::full(Limit::Neighbours)) }
    }

    /// Whether `peer` may have one more flow.
    pub(super) fn check_flow(&self, peer: &Peer) -> Result<(), NotNow> {
        if self.allows(peer, cost::FLOW) { Ok(()) } else { Err(Self::full(Limit::Flows)) }
    }

    /// Whether so many flows, of whomever, are within the memory.
    pub(super) fn check_flows(&self, flows: usize) -> Result<(), NotNow> {
        let is_within = flows as u64 * cost::FLOW <= self.budget;
        if is_within { Ok(()) } else { Err(Self::full(Limit::Flows)) }
    }

    /// `peer` holds memory for `after` ranges of a flow where it held it for `before`. False, and nothing changed, when it
    /// may not.
    pub(super) fn hold_ranges(&mut self, peer: &Peer, before: u64, after: u64) -> bool {
        let more = after.saturating_sub(before) * cost::RANGE;
        if more > 0 && !self.allows(peer, more) {
            return false;
        }
        self.hold(peer, more);
        self.release(peer, before.saturating_sub(after) * cost::RANGE);
        true
    }

    /// Whether so much memory is in use that flows without requests should not be kept for long. One neighbour can
    /// have half of the memory.
    fn is_pressed(&self) -> bool {
        self.used > self.budget / 4
    }

    fn patience(&self) -> Patience {
        if self.is_pressed() { PRESSED } else { USUAL }
    }

    /// Time between two looks for flows to forget that have been idle for `long`.
    pub(super) fn sweep_interval(&self, long: Duration) -> Duration {
        self.patience().sweep.min(long)
    }

    /// True if a flow that has been `idle` is to be forgotten: for as `long` as one may be, or for a while and the flow `is_quiet`, which
    /// says that nobody waits for anything of it.
    pub(super) fn is_over(&self, idle: Duration, long: Duration, is_quiet: impl FnOnce() -> bool) -> bool {
        idle >= long || (idle >= self.patience().quiet && is_quiet())
    }

    /// The names of `peer` that were not found.
    pub(super) fn misses(&mut self, peer: &Peer) -> Option<&mut Misses> {
        self.account(peer).and_then(|slot| self.accounts.get_mut(slot)).map(|account| &mut account.misses)
    }

    /// `peer` has one more hop.
    pub(super) fn add_hop(&mut self, peer: &Peer) {
        let slot = self.accounts.find_or_insert(Holder::of(peer), Account::default);
        if let Some(account) = self.accounts.get_mut(slot) {
            account.hops += 1;
        }
        self.hold(peer, cost::NEIGHBOUR);
    }

    /// `peer` holds `more` bytes.
    pub(super) fn hold(&mut self, peer: &Peer, more: u64) {
        if let Some(account) = self.account(peer).and_then(|slot| self.accounts.get_mut(slot)) {
            account.bytes += more;
            self.used += more;
        }
    }

    /// `peer` gives back `bytes`.
    pub(super) fn release(&mut self, peer: &Peer, bytes: u64) {
        if let Some(account) = self.account(peer).and_then(|slot| self.accounts.get_mut(slot)) {
            account.bytes -= bytes;
            self.used -= bytes;
        }
    }

    /// `peer` has one hop less.
    pub(super) fn remove_hop(&mut self, peer: &Peer) {
        self.release(peer, cost::NEIGHBOUR);
        let Some(slot) = self.account(peer) else { return };
        let Some(account) = self.accounts.get_mut(slot) else { return };
        account.hops -= 1;
        if account.hops == 0 {
            debug_assert_eq!(account.bytes, 0, "all that a neighbour held is given back");
            self.used -= account.bytes;
            self.accounts.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{Face, Incarnation, Member};
    use core::net::SocketAddr;

    /// A start of a node: of a member, or of the domain's at an address of its own.
    fn peer(boot: u64, member: u64) -> Peer {
        at([192, 0, 2, boot as u8], boot, member)
    }

    fn at(address: [u8; 4], boot: u64, member: u64) -> Peer {
        let face = Face::towards(SocketAddr::from((address, 9)));
        let incarnation = Incarnation { boot, link: 0 };
        Peer { face, incarnation, member: Member(member), asker: Incarnation::default() }
    }

    /// `peer` takes all that it gets in pieces of `piece` bytes; returns how much that is.
    fn fill(ledger: &mut Ledger, peer: &Peer, piece: u64) -> u64 {
        ledger.add_hop(peer);
        let mut held = 0;
        while ledger.allows(peer, piece) {
            ledger.hold(peer, piece);
            held += piece;
        }
        held
    }

    #[test]
    fn one_neighbour_gets_half_and_leaves_room_for_those_who_come_after_it() {
        let mut ledger = Ledger::new(1 << 20, 1);
        let first = fill(&mut ledger, &peer(1, 0), 1000);
        assert!((500_000..=524_288).contains(&first), "{first}");
        let second = fill(&mut ledger, &peer(2, 0), 1000);
        assert!((250_000..=262_144).contains(&second), "{second}");
        assert!(fill(&mut ledger, &peer(3, 0), 1000) > 100_000);
    }

    #[test]
    fn what_a_neighbour_gives_back_is_free_again() {
        let mut ledger = Ledger::new(1 << 20, 1);
        for _ in 0..3 {
            let held = fill(&mut ledger, &peer(1, 0), 1000);
            assert!(held >= 500_000);
            ledger.release(&peer(1, 0), held);
            ledger.remove_hop(&peer(1, 0));
            assert_eq!(ledger.used(), 0);
        }
    }

    #[test]
    fn the_nodes_at_an_address_have_one_share_however_often_they_start() {
        let mut ledger = Ledger::new(1 << 20, 1);
        fill(&mut ledger, &at([192, 0, 2, 1], 1, 0), 1000);
        assert!(fill(&mut ledger, &at([192, 0, 2, 1], 2, 0), 1000) < 5_000);
        assert!(fill(&mut ledger, &at([192, 0, 2, 2], 3, 0), 1000) > 250_000);
    }

    #[test]
    fn a_member_of_a_roster_has_one_share_however_often_it_starts() {
        let mut ledger = Ledger::new(1 << 20, 1);
        fill(&mut ledger, &peer(1, 7), 1000);
        assert!(fill(&mut ledger, &peer(2, 7), 1000) < 5_000);
        assert!(fill(&mut ledger, &peer(2, 8), 1000) > 250_000);
    }

    #[test]
    fn ranges_are_held_as_far_as_there_is_memory_and_given_back() {
        let (mut ledger, neighbour) = (Ledger::new(1 << 20, 1), peer(1, 0));
        ledger.add_hop(&neighbour);
        let before = ledger.used();
        assert!(ledger.hold_ranges(&neighbour, 2, 100));
        assert_eq!(ledger.used(), before + 98 * cost::RANGE);
        assert!(!ledger.hold_ranges(&neighbour, 100, 1 << 20));
        assert_eq!(ledger.used(), before + 98 * cost::RANGE);
        assert!(ledger.hold_ranges(&neighbour, 100, 2));
        assert_eq!(ledger.used(), before);
    }

    #[test]
    fn where_memory_is_short_a_quiet_flow_is_forgotten_early_and_looked_for_often() {
        let long = Duration::from_secs(30);
        let mut ledger = Ledger::new(1 << 20, 1);
        assert_eq!((ledger.sweep_interval(long), ledger.is_pressed()), (USUAL.sweep, false));
        assert!(!ledger.is_over(PRESSED.quiet, long, || true) && ledger.is_over(long, long, || false));
        assert!(ledger.is_over(USUAL.quiet, long, || true) && !ledger.is_over(USUAL.quiet, long, || false));
        fill(&mut ledger, &peer(1, 0), 1000);
        assert_eq!((ledger.sweep_interval(long), ledger.is_pressed()), (PRESSED.sweep, true));
        assert!(
            ledger.is_over(PRESSED.quiet, long, || true) && !ledger.is_over(PRESSED.quiet, long, || false)
        );
    }

    #[test]
    fn a_neighbour_without_room_is_told_the_limit() {
        let mut ledger = Ledger::new(cost::FLOW, 1);
        assert_eq!(ledger.check_hop(&peer(1, 0)), Ok(()));
        ledger.add_hop(&peer(1, 0));
        assert_eq!(ledger.check_hop(&peer(2, 0)), Err(Ledger::full(Limit::Neighbours)));
        assert_eq!(ledger.check_flow(&peer(1, 0)), Err(Ledger::full(Limit::Flows)));
        assert_eq!((ledger.check_flows(1), ledger.check_flows(2)), (Ok(()), Err(Ledger::full(Limit::Flows))));
    }
}
