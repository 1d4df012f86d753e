//! `open = "confirmed"`: SYNs that wait until the other gateway has asked their targets.
//!
//! The kernel answers a SYN that it diverts by itself. So the firewall routes the SYNs of such policies to a device of their own
//! instead, and the gateway asks the target first. If that accepts, the SYN comes in by the same device, and only then is diverted to
//! the listener. If it refuses, the client gets the target's answer. Without the gateway the device is gone, and SYNs
//! take the plain path. No packet queue of the kernel's (NFQUEUE) is needed, which not every kernel has.

use super::config::GatewayConfig;
use super::syn::Syn;
use crate::device::{Device, MOST_AT_ONCE};
use crate::transparent::firewall::hold_device;
use starhop_proto::gateway::{Opening, Reason, StreamId};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// SYNs that wait at once. A SYN costs its sender nothing, and the hub a connection: what is more takes the plain path.
const MOST: usize = 1024;
/// SYNs that are remembered, with those that took the plain path.
const MOST_REMEMBERED: usize = 65_536;
/// Time for a client to take the kernel's answer to its SYN: that is sent again after one and after three seconds.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time for which later copies of a SYN that took the plain path take it, too: the sixth copy comes after 63 s.
const COPIES: Duration = Duration::from_secs(70);

/// Client and target.
type Ends = (SocketAddr, SocketAddr);

/// The state of a SYN's connection.
#[derive(Debug)]
enum State {
    /// The other gateway asks the target.
    Asked,
    /// The target has accepted, and the kernel has the SYN.
    Confirmed(StreamId),
    /// The stream ended before the kernel had the client's connection.
    Gone(Reason),
    /// It goes by the plain path.
    Passed,
}

#[derive(Debug)]
struct Entry {
    syn: Syn,
    began: Instant,
    /// The time of the last change of its state.
    since: Instant,
    state: State,
}

/// The verdict on a SYN that came by the device.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// A new connection: the target is to be asked.
    Ask(Syn),
    /// The kernel is to take this packet by the device: to divert it, or as an answer to the client.
    Admit(Vec<u8>),
    /// The packet takes the plain path.
    Pass(Vec<u8>),
    /// Nothing is to be done.
    Wait,
}

/// The answer to a client whose stream has ended.
#[derive(PartialEq, Eq, Debug)]
struct Answer {
    verdict: Verdict,
    /// Opening and beginning of the connection, if that is over now.
    over: Option<(Opening, Instant)>,
}

/// A connection that the kernel has accepted, of a SYN that was held.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Accepted {
    pub(super) began: Instant,
    /// Its stream, or the reason of that one's end.
    pub(super) stream: Result<StreamId, Reason>,
}

/// The SYNs that wait, and their states.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    entries: BTreeMap<Ends, Entry>,
    by_stream: BTreeMap<StreamId, Ends>,
}

impl Waiting {
    /// Their number: their targets have not answered, or their clients have not heard of it.
    pub(super) fn len(&self) -> usize {
        self.by_stream.len()
    }

    /// Looks at a packet of the device.
    fn on_packet(&mut self, packet: &[u8]) -> Verdict {
        let Some(syn) = Syn::of(packet) else { return Verdict::Wait };
        let opening = syn.opening();
        match self.entries.get(&(opening.from, opening.to)).map(|entry| &entry.state) {
            None if self.by_stream.len() >= MOST || self.entries.len() >= MOST_REMEMBERED => {
                Verdict::Pass(packet.to_vec())
            }
            None => Verdict::Ask(syn),
            Some(State::Asked) => Verdict::Wait,
            // The first copy was lost on its way through the kernel, or its answer was.
            Some(State::Confirmed(_) | State::Gone(_)) => Verdict::Admit(packet.to_vec()),
            Some(State::Passed) => Verdict::Pass(packet.to_vec()),
        }
    }

    /// The target of a SYN is asked by `stream`; `None` where that is impossible, and the SYN takes the plain path.
    fn on_asked(&mut self, now: Instant, syn: Syn, stream: Option<StreamId>) -> Verdict {
        let ends = (syn.opening().from, syn.opening().to);
        let (state, verdict) = match stream {
            Some(stream) => {
                self.by_stream.insert(stream, ends);
                (State::Asked, Verdict::Wait)
            }
            None => (State::Passed, Verdict::Pass(syn.packet().to_vec())),
        };
        self.entries.insert(ends, Entry { syn, began: now, since: now, state });
        verdict
    }

    /// The target of `stream` has accepted. `None` if that is no connection of here.
    fn on_connected(&mut self, now: Instant, stream: StreamId) -> Option<Verdict> {
        let entry = self.entries.get_mut(self.by_stream.get(&stream)?)?;
        (entry.state, entry.since) = (State::Confirmed(stream), now);
        Some(Verdict::Admit(entry.syn.packet().to_vec()))
    }

    /// A stream has ended. `None` if that is no connection of here.
    fn on_reset(&mut self, now: Instant, stream: StreamId, reason: Reason) -> Option<Answer> {
        let ends = self.by_stream.remove(&stream)?;
        let entry = self.entries.get_mut(&ends)?;
        let over = Some((entry.syn.opening(), entry.began));
        let answer = match (&entry.state, reason) {
            // The kernel has answered the client: only the connection itself can be reset now.
            (State::Confirmed(_), _) => {
                (entry.state, entry.since) = (State::Gone(reason), now);
                return Some(Answer { verdict: Verdict::Wait, over: None });
            }
            (_, Reason::PeerLost | Reason::NoRoom) => {
                (entry.state, entry.since) = (State::Passed, now);
                let verdict = Verdict::Pass(entry.syn.packet().to_vec());
                return Some(Answer { verdict, over: None });
            }
            (_, Reason::Refused | Reason::Reset) => Verdict::Admit(entry.syn.refused()),
            (_, Reason::Unreachable) => Verdict::Admit(entry.syn.unreachable()),
            // The target said nothing, and neither does the gateway.
            (_, Reason::TimedOut) => Verdict::Wait,
        };
        self.entries.remove(&ends);
        Some(Answer { verdict: answer, over })
    }

    /// The streams of SYNs that wait for an answer of this peer.
    pub(super) fn asked_of(&self, peer: u16) -> Vec<StreamId> {
        let is_asked =
            |ends: &Ends| self.entries.get(ends).is_some_and(|entry| matches!(entry.state, State::Asked));
        let asked = self.by_stream.iter().filter(|(stream, ends)| stream.peer == peer && is_asked(ends));
        asked.map(|(stream, _)| *stream).collect()
    }

    /// The kernel has accepted a connection. `None` if its SYN was not held.
    pub(super) fn on_accepted(&mut self, opening: &Opening) -> Option<Accepted> {
        let ends = (opening.from, opening.to);
        let stream = match self.entries.get(&ends)?.state {
            State::Confirmed(stream) => Ok(stream),
            State::Gone(reason) => Err(reason),
            State::Asked | State::Passed => return None,
        };
        let entry = self.entries.remove(&ends)?;
        stream.iter().for_each(|stream| _ = self.by_stream.remove(stream));
        Some(Accepted { began: entry.began, stream })
    }

    /// Forgets what is over. Returns streams that the target accepted, and whose client is gone.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<StreamId> {
        let mut gone = Vec::new();
        self.entries.retain(|_, entry| {
            let age = now.saturating_duration_since(entry.since);
            match entry.state {
                State::Asked => true,
                State::Confirmed(stream) if age >= HANDSHAKE => {
                    gone.push(stream);
                    false
                }
                State::Confirmed(_) => true,
                State::Gone(_) => age < HANDSHAKE,
                State::Passed => age < COPIES,
            }
        });
        gone.iter().for_each(|stream| _ = self.by_stream.remove(stream));
        gone
    }
}

/// The device of SYNs that wait, and their states.
pub(super) struct Hold {
    device: Device,
    pub(super) waiting: Waiting,
    counts: HoldCounts,
}

/// Counters of SYNs since the start.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct HoldCounts {
    /// SYNs that took the plain path.
    pub(super) passed: u64,
    /// Packets that the kernel did not take.
    pub(super) refused: u64,
}

impl Hold {
    /// Makes the device.
    ///
    /// # Errors
    /// When TUN devices are not to be had here.
    pub(super) fn open(config: &GatewayConfig) -> io::Result<Self> {
        Ok(Self::of(Device::open(&hold_device(config.port()), config.carry_mtu())?))
    }

    /// Goes on with the device of the program before this one.
    ///
    /// # Errors
    /// The runtime cannot watch it.
    pub(super) fn adopt(device: OwnedFd) -> io::Result<Self> {
        Ok(Self::of(Device::adopt(device)?))
    }

    fn of(device: Device) -> Self {
        Self { device, waiting: Waiting::default(), counts: HoldCounts::default() }
    }

    /// The device's descriptor.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.device.descriptor()
    }

    /// Counters since the start.
    pub(super) fn counts(&self) -> HoldCounts {
        self.counts
    }

    /// Returns when there are packets to be read.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.device.readable().await
    }

    /// Reads SYNs. New ones are asked for by `ask`, which returns the stream, or `None` where a SYN has to take the plain path;
    /// `pass` puts a packet on that.
    ///
    /// # Errors
    /// When the device is gone.
    pub(super) fn take(
        &mut self,
        now: Instant,
        mut ask: impl FnMut(Opening, usize) -> Option<StreamId>,
        mut pass: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        for _ in 0..MOST_AT_ONCE {
            let Some(packet) = self.device.read()? else { return Ok(()) };
            let mut verdict = self.waiting.on_packet(packet);
            if let Verdict::Ask(syn) = verdict {
                let stream = ask(syn.opening(), self.waiting.len());
                verdict = self.waiting.on_asked(now, syn, stream);
            }
            Self::act(&self.device, &mut self.counts, &verdict, &mut pass);
        }
        Ok(())
    }

    /// The target of `stream` has accepted. Returns whether that is a connection of here.
    pub(super) fn on_connected(&mut self, now: Instant, stream: StreamId) -> bool {
        let Some(verdict) = self.waiting.on_connected(now, stream) else { return false };
        Self::act(&self.device, &mut self.counts, &verdict, &mut |_| {});
        true
    }

    /// A stream has ended. `None` if that was no connection of here. Else its client is told, and the connection's opening and
    /// beginning are returned if it is over now.
    pub(super) fn on_reset(
        &mut self,
        now: Instant,
        stream: StreamId,
        reason: Reason,
        mut pass: impl FnMut(&[u8]),
    ) -> Option<Option<(Opening, Instant)>> {
        let Answer { verdict, over } = self.waiting.on_reset(now, stream, reason)?;
        Self::act(&self.device, &mut self.counts, &verdict, &mut pass);
        Some(over)
    }

    fn act(device: &Device, counts: &mut HoldCounts, verdict: &Verdict, pass: &mut impl FnMut(&[u8])) {
        match verdict {
            Verdict::Admit(packet) => counts.refused += u64::from(!device.give(packet)),
            Verdict::Pass(packet) => {
                counts.passed += 1;
                pass(packet);
            }
            Verdict::Ask(_) | Verdict::Wait => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::syn::tests::syn;
    use super::*;

    const STREAM: StreamId = StreamId { peer: 0, session: 1, ours: true, number: 2 };

    /// A SYN that waits for the answer of its target.
    fn asked(now: Instant) -> (Waiting, Vec<u8>, Opening) {
        let (mut waiting, packet) = (Waiting::default(), syn("10.0.0.1", "192.0.2.1:80"));
        let held = Syn::of(&packet).unwrap();
        let opening = held.opening();
        assert_eq!(waiting.on_packet(&packet), Verdict::Ask(held.clone()));
        assert_eq!(waiting.on_asked(now, held, Some(STREAM)), Verdict::Wait);
        assert_eq!(waiting.len(), 1);
        (waiting, packet, opening)
    }

    #[test]
    fn a_syn_is_admitted_when_its_target_has_accepted_and_its_copies_with_it() {
        let now = Instant::now();
        let (mut waiting, packet, opening) = asked(now);
        assert_eq!(waiting.on_packet(&packet), Verdict::Wait, "one question for all copies");
        assert_eq!(waiting.on_accepted(&opening), None, "not yet");
        assert_eq!((waiting.asked_of(0), waiting.asked_of(1)), (vec![STREAM], vec![]));
        assert_eq!(waiting.on_connected(now, STREAM), Some(Verdict::Admit(packet.clone())));
        assert_eq!(waiting.asked_of(0), [], "it has answered");
        assert_eq!(waiting.on_packet(&packet), Verdict::Admit(packet.clone()), "the first one may be lost");
        assert_eq!(waiting.on_accepted(&opening), Some(Accepted { began: now, stream: Ok(STREAM) }));
        assert_eq!((waiting.len(), waiting.on_accepted(&opening)), (0, None));
        assert_eq!(
            waiting.on_packet(&packet),
            Verdict::Ask(Syn::of(&packet).unwrap()),
            "a connection of later"
        );
    }

    #[test]
    fn a_client_hears_what_its_target_says() {
        let now = Instant::now();
        let answer = |reason| {
            let (mut waiting, packet, opening) = asked(now);
            let held = Syn::of(&packet).unwrap();
            let Answer { verdict, over } = waiting.on_reset(now, STREAM, reason).unwrap();
            assert_eq!(waiting.on_reset(now, STREAM, reason), None, "once");
            let later = waiting.on_packet(&packet);
            (verdict, over == Some((opening, now)), held, later == Verdict::Ask(Syn::of(&packet).unwrap()))
        };
        let (verdict, is_over, held, is_asked_again) = answer(Reason::Refused);
        assert_eq!((verdict, is_over, is_asked_again), (Verdict::Admit(held.refused()), true, true));
        let (verdict, is_over, held, _) = answer(Reason::Unreachable);
        assert_eq!((verdict, is_over), (Verdict::Admit(held.unreachable()), true));
        assert_eq!(answer(Reason::TimedOut).0, Verdict::Wait, "silence for silence");
        for reason in [Reason::PeerLost, Reason::NoRoom] {
            let (verdict, is_over, held, is_asked_again) = answer(reason);
            assert_eq!(verdict, Verdict::Pass(held.packet().to_vec()), "{reason:?}");
            assert!(!is_over && !is_asked_again, "its copies take the plain path, too");
        }
    }

    #[test]
    fn a_stream_that_ends_before_its_client_is_accepted_resets_that() {
        let now = Instant::now();
        let (mut waiting, _, opening) = asked(now);
        waiting.on_connected(now, STREAM).unwrap();
        let answer = waiting.on_reset(now, STREAM, Reason::Reset).unwrap();
        assert_eq!(answer, Answer { verdict: Verdict::Wait, over: None });
        let accepted = Accepted { began: now, stream: Err(Reason::Reset) };
        assert_eq!(waiting.on_accepted(&opening), Some(accepted));
    }

    #[test]
    fn a_client_that_is_gone_leaves_no_stream_behind() {
        let now = Instant::now();
        let (mut waiting, _, _) = asked(now);
        assert_eq!(waiting.sweep(now + COPIES), [], "the target takes its time");
        waiting.on_connected(now, STREAM).unwrap();
        assert_eq!(waiting.sweep(now + HANDSHAKE / 2), []);
        assert_eq!(waiting.sweep(now + HANDSHAKE), [STREAM]);
        assert_eq!((waiting.len(), waiting.entries.len()), (0, 0));
    }

    #[test]
    fn more_than_the_most_take_the_plain_path_and_so_does_what_cannot_be_asked() {
        let now = Instant::now();
        let mut waiting = Waiting::default();
        for number in 0..MOST as u64 {
            let packet = syn("10.0.0.1", &format!("192.0.2.1:{}", number + 1));
            waiting.on_asked(now, Syn::of(&packet).unwrap(), Some(StreamId { number, ..STREAM }));
        }
        let packet = syn("10.0.0.1", "192.0.2.1:9999");
        assert_eq!(waiting.on_packet(&packet), Verdict::Pass(packet.clone()));
        let mut waiting = Waiting::default();
        assert_eq!(waiting.on_asked(now, Syn::of(&packet).unwrap(), None), Verdict::Pass(packet.clone()));
        assert_eq!(waiting.on_packet(&packet), Verdict::Pass(packet.clone()), "its copies, too");
        waiting.sweep(now + COPIES);
        assert!(matches!(waiting.on_packet(&packet), Verdict::Ask(_)), "a connection of later");
    }
}
