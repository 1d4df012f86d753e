//! A relay between end points that do not know of it.

use super::pairs::{Pair, Pairs};
use crate::clock;
use crate::operate::Peer;
use crate::operate::transfers::QUIET;
use crate::security::HopSuite;
use starhop_proto::Node;
use starhop_proto::hop::{FlowView, Transfer};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::relay::{Relay, RelayStats};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::wire::{Interest, Packet, Suite};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What becomes of an intercepted datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The relay took it.
    Taken,
    /// It goes on as it came.
    PassedOn,
    /// It ends here: it is a repetition of one that was opened here before, and who would open it next has not seen it.
    Ended,
}

/// A client that has not asked for this long has gone, or has another address now.
const SILENT: Duration = Duration::from_millis(500);
/// A client that asks again after this long was away: its packets took a path past this relay, on which they and the
/// answers went on. What both ends know of this relay, and it of them, holds no more. Longer than what passes between two
/// questions over a path that is silent.
const AWAY: Duration = Duration::from_millis(800);
/// What was asked for before a relay came has arrived after this time, or is lost.
const INHERITED: Duration = Duration::from_secs(3);
/// Pairs and routes are forgotten after this time.
const IDLE: Duration = Duration::from_secs(120);
/// Flows that are asked for in somebody's name, at most; what is more goes on as it came. A relay has no more.
const MAX_ASKERS: usize = 4096;
/// Pairs that have a name, at most: neighbours in both directions.
const MAX_PAIRS: usize = 8192;

/// In whose name the relay asks for a flow.
#[derive(Clone, Copy, Debug)]
struct Asker {
    /// The client.
    client: Pair,
    last_heard: Instant,
    /// Until then, data may arrive that the client asked for before this relay was there.
    inherited_until: Instant,
    /// Whether it was found to be away.
    is_away: bool,
}

impl Asker {
    /// Whether the client is found to have taken a path past this relay; once, until it asks again.
    fn turns_away(&mut self, now: Instant) -> bool {
        let is_away = now.since(self.last_heard) >= AWAY;
        is_away && !core::mem::replace(&mut self.is_away, true)
    }
}

/// A [`Relay`] that answers each end point under the address of the other.
///
/// To the relay, a neighbour is a pair of addresses: a client and the server that it speaks to, or that server and the
/// client in whose name it is asked. So every hop keeps both end points' addresses, and when the relay goes, the end
/// points go on where it stood.
pub(super) struct Interceptor {
    relay: Relay<HopSuite>,
    pairs: Pairs,
    askers: BTreeMap<FlowId, Asker>,
    next_sweep: Instant,
    /// Where datagrams are opened: those that are not for the relay must go on sealed as they came.
    opened: Vec<u8>,
}

impl Interceptor {
    pub(super) fn new(relay: Relay<HopSuite>, now: Instant) -> Self {
        let (pairs, askers) = (Pairs::default(), BTreeMap::new());
        Self { relay, pairs, askers, next_sweep: now + IDLE, opened: Vec::new() }
    }

    pub(super) fn suite(&self) -> &HopSuite {
        self.relay.suite()
    }

    pub(super) fn suite_mut(&mut self) -> &mut HopSuite {
        self.relay.suite_mut()
    }

    /// The relay's counters, with addresses in place of names.
    pub(super) fn stats(&self) -> RelayStats {
        let stats = self.relay.stats();
        let address = |name| self.pairs.pair(name).map(|pair| pair.peer);
        RelayStats { last_disproved: stats.last_disproved.and_then(address), ..stats }
    }

    /// The relay's hops, with addresses in place of names; a hop whose name was forgotten is left out.
    pub(super) fn peers(&self, now: Instant) -> Vec<Peer> {
        let up = self.relay.upstreams().map(|hop| (hop.addr, Peer::upstream(now, &hop)));
        let down = self.relay.downstreams().map(|hop| (hop.addr, Peer::downstream(now, &hop)));
        let named = |(name, peer)| Some(Peer { address: self.pairs.pair(name)?.peer, ..peer });
        up.chain(down).filter_map(named).collect()
    }

    /// The relay's flows, with addresses in place of names.
    pub(super) fn flow_views(&self) -> impl Iterator<Item = FlowView> + '_ {
        let address = |name| self.pairs.pair(name).map(|pair| pair.peer);
        self.relay
            .flow_views()
            .map(move |flow| FlowView { upstream: flow.upstream.and_then(address), ..flow })
    }

    /// The oldest transfer that ended and was not told, with the client's address in place of its name.
    pub(super) fn pop_ended(&mut self) -> Option<Transfer> {
        self.relay.end_complete(clock::now(), QUIET);
        let ended = self.relay.poll_event()?;
        Some(Transfer { to: self.pairs.pair(ended.to).map_or(ended.to, |pair| pair.peer), ..ended })
    }

    /// A datagram on its way from `from` to `to` was intercepted.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &[u8],
    ) -> Verdict {
        self.sweep(now);
        let mut opened = std::mem::take(&mut self.opened);
        opened.clear();
        opened.extend_from_slice(datagram);
        let repeated = |suite: &HopSuite| suite.stats().replayed - suite.stats().predating;
        let before = repeated(self.suite());
        let verdict = match self.suite_mut().open(now, from, &mut opened) {
            Ok(packet) => self.handle_packet(now, Pair { peer: from, local: to }, packet),
            Err(_) if repeated(self.suite()) > before => Verdict::Ended,
            // Of another domain, or with a key of two nodes' own, or of before this relay was there: not for it.
            Err(_) => Verdict::PassedOn,
        };
        self.opened = opened;
        verdict
    }

    fn handle_packet(&mut self, now: Instant, pair: Pair, packet: &[u8]) -> Verdict {
        let is_taken = match Packet::parse(packet) {
            Ok(Packet::Interest(interest)) => self.route(now, &interest, pair),
            Ok(Packet::Data(header, payload)) => {
                self.is_ours(now, header.flow, pair, header.range(payload.len()))
            }
            Ok(Packet::Notice(notice)) => self.is_ours(now, notice.flow, pair, notice.range.prefix(0)),
            // Of a later version, or not Starhop's at all.
            Err(_) => false,
        };
        if !is_taken {
            return Verdict::PassedOn;
        }
        let name = self.pairs.name(now, pair);
        self.relay.handle_packet(now, name, packet);
        Verdict::Taken
    }

    /// Whether an answer of `server` is for this relay, which asks for the flow in the name of the same client. What it
    /// did not ask for is a copy, and ends here, unless it was asked for before the relay came: then it goes on as the
    /// relay's own, so that the client hears one counter only.
    fn is_ours(&mut self, now: Instant, flow: FlowId, server: Pair, range: ByteRange) -> bool {
        let asker = self.askers.get_mut(&flow).filter(|asker| asker.client.reversed() == server);
        let Some(asker) = asker else { return false };
        let Asker { client, inherited_until, .. } = *asker;
        if asker.turns_away(now) {
            self.relay.forget_wants(flow);
        }
        if now < inherited_until && !range.is_empty() && !self.relay.expects(flow, range) {
            let client = self.pairs.name(now, client);
            self.relay.adopt(flow, range, client);
        }
        true
    }

    /// The flow is asked of whom its client asks; of several clients, the first that is still there. False when there is
    /// no room for who asks.
    fn route(&mut self, now: Instant, interest: &Interest, client: Pair) -> bool {
        let flow = interest.flow;
        let is_full = self.askers.len() >= MAX_ASKERS && !self.askers.contains_key(&flow);
        if is_full || !self.pairs.have_room(client, MAX_PAIRS) {
            return false;
        }
        match self.askers.get_mut(&flow) {
            Some(asker) if asker.client == client && now.since(asker.last_heard) < AWAY => {
                asker.last_heard = now;
            }
            Some(asker) if now.since(asker.last_heard) < SILENT => {}
            known => {
                if known.is_some_and(|asker| asker.client == client && asker.turns_away(now)) {
                    self.relay.forget_wants(flow);
                }
                let is_away = |asker: &Asker| now.since(asker.last_heard) >= AWAY;
                let mut own = self.askers.values().filter(|asker| asker.client == client).peekable();
                if own.peek().is_some() && own.all(is_away) {
                    self.pairs.rename(client);
                    self.pairs.rename(client.reversed());
                }
                // A client that knows nothing of its neighbour yet has not asked for anything.
                let inherited = if interest.cold { Duration::ZERO } else { INHERITED };
                let asker =
                    Asker { client, last_heard: now, inherited_until: now + inherited, is_away: false };
                self.askers.insert(flow, asker);
                let upstream = self.pairs.name(now, client.reversed());
                self.relay.set_route(now, flow, upstream);
            }
        }
        true
    }

    fn sweep(&mut self, now: Instant) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + IDLE;
        let silent = self.askers.iter().filter(|(_, asker)| now.since(asker.last_heard) >= IDLE);
        let silent: Vec<FlowId> = silent.map(|(flow, _)| *flow).collect();
        for flow in silent {
            self.askers.remove(&flow);
            self.relay.clear_route(now, flow);
        }
        self.pairs.forget(now, IDLE.scaled(2, 1));
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.relay.handle_timeout(now);
    }

    /// Appends at most one datagram to `out` and says between whom it travels.
    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<(Pair, usize)> {
        loop {
            let start = out.len();
            let transmit = self.relay.poll_transmit(now, out)?;
            if let Some(pair) = self.pairs.pair(transmit.to) {
                self.pairs.name(now, pair);
                return Some((pair, transmit.len));
            }
            // For a neighbour that was forgotten.
            out.truncate(start);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::security::{KeyFile, Kind, Sources};
    use starhop_proto::config::{Config, Profile};
    use starhop_proto::time::WireTime;
    use starhop_proto::units::Rate;
    use starhop_proto::wire::Ranges;
    use std::path::Path;

    const RANGE: ByteRange = ByteRange { start: 0, end: 5000 };

    fn client() -> SocketAddr {
        ([192, 0, 2, 1], 50_000).into()
    }

    fn server() -> SocketAddr {
        ([198, 51, 100, 1], 4433).into()
    }

    fn key(directory: &Path, name: &str) -> Sources {
        let key = directory.join(name);
        KeyFile::new(Kind::Domain, name, None, 0).unwrap().create(&key).unwrap();
        Sources::Files { key, roster: None }
    }

    fn interceptor(sources: &Sources) -> Interceptor {
        let config = Config::new(Profile::Starhop.settings()).unwrap();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let relay = Relay::new(config, nowhere, HopSuite::new(sources).unwrap(), 1);
        Interceptor::new(relay, clock::now())
    }

    fn request(flow: u8) -> Interest {
        let mut interest = Interest::feedback(FlowId([flow; 16]), WireTime(1), Rate::from_mbps(10));
        interest.cold = true;
        interest.ranges.push(RANGE);
        interest
    }

    fn sealed(suite: &mut HopSuite, interest: &Interest) -> Vec<u8> {
        let mut out = vec![0; suite.room()];
        interest.emit(&mut out);
        suite.seal(clock::now(), server(), &mut out, 0).unwrap();
        out
    }

    #[test]
    fn a_request_of_the_domain_is_taken_and_asked_of_the_server_in_the_clients_name() {
        let directory = tempfile::tempdir().unwrap();
        let key = key(directory.path(), "home");
        let (mut node, mut asking) = (interceptor(&key), HopSuite::new(&key).unwrap());
        let datagram = sealed(&mut asking, &request(1));
        assert_eq!(node.handle(clock::now(), client(), server(), &datagram), Verdict::Taken);
        let mut out = Vec::new();
        let (pair, len) = node.poll_transmit(clock::now(), &mut out).unwrap();
        assert_eq!(pair, Pair { peer: server(), local: client() });
        let mut answering = HopSuite::new(&key).unwrap();
        let packet = answering.open(clock::now(), client(), &mut out[..len]).unwrap();
        assert!(
            matches!(Packet::parse(packet), Ok(Packet::Interest(asked)) if asked.flow == FlowId([1; 16]))
        );
    }

    /// Who stands behind this relay has not seen what it took, and would answer it.
    #[test]
    fn a_repetition_of_what_was_taken_ends_here() {
        let directory = tempfile::tempdir().unwrap();
        let key = key(directory.path(), "home");
        let (mut node, mut asking) = (interceptor(&key), HopSuite::new(&key).unwrap());
        let datagram = sealed(&mut asking, &request(1));
        assert_eq!(node.handle(clock::now(), client(), server(), &datagram), Verdict::Taken);
        assert_eq!(node.handle(clock::now(), client(), server(), &datagram), Verdict::Ended);
    }

    #[test]
    fn what_it_has_no_key_for_goes_on_as_it_came_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (home, other) = (key(directory.path(), "home"), key(directory.path(), "other"));
        let mut node = interceptor(&home);
        let mut plain = Vec::new();
        request(1).emit(&mut plain);
        let foreign = sealed(&mut HopSuite::new(&other).unwrap(), &request(2));
        for datagram in [plain, foreign, b"not ours".to_vec()] {
            assert_eq!(node.handle(clock::now(), client(), server(), &datagram), Verdict::PassedOn);
        }
        assert!(node.askers.is_empty());
        assert_eq!((node.stats().interests_in, node.stats().flows), (0, 0));
        assert_eq!(node.poll_transmit(clock::now(), &mut Vec::new()), None);
    }

    /// The Interests that it sends, at `now`.
    fn asked(node: &mut Interceptor, now: Instant) -> Vec<Interest> {
        let mut out = Vec::new();
        let mut interests = Vec::new();
        while let Some((_, len)) = node.poll_transmit(now, &mut out) {
            if let Ok(Packet::Interest(interest)) = Packet::parse(&out[..len]) {
                interests.push(interest);
            }
            out.clear();
        }
        interests
    }

    #[test]
    fn what_a_client_wanted_before_it_went_past_is_not_asked_for_when_it_comes_back() {
        let mut node = interceptor(&Sources::Insecure);
        let (start, mut out) = (clock::now(), Vec::new());
        request(1).emit(&mut out);
        node.handle(start, client(), server(), &out);
        assert_eq!(asked(&mut node, start)[0].ranges[0], RANGE);
        let (back, mut out) = (start + AWAY, Vec::new());
        let mut later = request(1);
        later.cold = false;
        later.ranges = Ranges::default();
        later.ranges.push(ByteRange::at(90_000, 1_000));
        later.emit(&mut out);
        node.handle(back, client(), server(), &out);
        let wanted: Vec<ByteRange> =
            asked(&mut node, back).iter().flat_map(|interest| interest.ranges.iter().copied()).collect();
        assert!(!wanted.is_empty() && wanted.iter().all(|range| range.start == 90_000), "{wanted:?}");
    }

    #[test]
    fn clients_and_flows_are_bounded() {
        let mut node = interceptor(&Sources::Insecure);
        let mut most = 0;
        for nth in 0..20_000_u32 {
            let mut interest = request(0);
            interest.flow.0[..4].copy_from_slice(&nth.to_be_bytes());
            let client = SocketAddr::from(([10, 0, (nth >> 8) as u8, nth as u8], 50_000));
            let mut out = Vec::new();
            interest.emit(&mut out);
            most += u32::from(node.handle(clock::now(), client, server(), &out) == Verdict::Taken);
        }
        assert_eq!(most as usize, MAX_ASKERS);
        assert_eq!(node.askers.len(), MAX_ASKERS);
        assert!(!node.pairs.have_room(Pair { peer: server(), local: server() }, MAX_PAIRS));
    }
}
