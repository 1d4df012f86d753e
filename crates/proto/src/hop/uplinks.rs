use super::LinkKey;
use super::absence::Absence;
use super::answerer::Speaker;
use super::loss::Seen;
use super::parity::{MOST_DECODERS, Restored};
use super::path_size::SizeQuestion;
use super::requester::Requester;
use super::waits::Waits;
use crate::config::Config;
use crate::deadlines::Deadlines;
use crate::name::{ByteRange, FlowId};
use crate::peer::{Face, Peer};
use crate::rng::Rng;
use crate::table::{Slot, Table};
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{DataHeader, Echo, Notice, ParityHeader};

/// The Requesters of a node, one per upstream hop.
pub struct Uplinks {
    links: Table<LinkKey<Face>, Requester>,
    timeouts: Deadlines,
    /// When hops are asked for the length of their packets.
    probes: Deadlines,
    absence: Absence,
    config: Config,
    rng: Rng,
}

/// The part of a packet from upstream that is about its hop.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    counter: u16,
    echo: Echo,
    /// The bytes of the flow that it carries; empty for a Notice.
    range: ByteRange,
    wire_bytes: u64,
    backlog: bool,
    waited: Duration,
    whole: Whole<'a>,
}

/// A packet from upstream as it came, for the hop's code.
#[derive(Clone, Copy, Debug)]
pub enum Whole<'a> {
    /// Data, by the name that its flow has on the wire.
    Data(&'a DataHeader, &'a [u8]),
    /// Parity.
    Parity(ParityHeader, &'a [u8]),
    /// Neither.
    Other,
}

/// UDP and IPv4 below a datagram.
const BELOW_US: u64 = 8 + 20;

impl<'a> Received<'a> {
    /// A Data packet as it came.
    pub fn data(header: &'a DataHeader, payload: &'a [u8]) -> Self {
        let DataHeader { counter, echo, flags, waited, .. } = *header;
        Self {
            counter,
            echo,
            range: header.range(payload.len()),
            wire_bytes: payload.len() as u64 + DataHeader::MAX_USUAL_LEN + BELOW_US,
            backlog: flags.backlog,
            waited: waited.time,
            whole: Whole::Data(header, payload),
        }
    }

    /// A Parity packet.
    pub fn parity(header: &ParityHeader, sum: &'a [u8]) -> Self {
        let ParityHeader { counter, echo, backlog, .. } = *header;
        let wire_bytes = (sum.len() + ParityHeader::LEN) as u64 + BELOW_US;
        Self {
            counter,
            echo,
            range: ByteRange::default(),
            wire_bytes,
            backlog,
            waited: Duration::ZERO,
            whole: Whole::Parity(*header, sum),
        }
    }

    /// A Notice that `range` is coming: it tells how far its sender got, like Data without bytes.
    pub fn mark(notice: &Notice, range: ByteRange) -> Self {
        let range = ByteRange::at(range.start, 0);
        let wire_bytes = Notice::USUAL_LEN + BELOW_US;
        Self {
            counter: notice.counter,
            echo: notice.echo,
            range,
            wire_bytes,
            backlog: false,
            waited: Duration::ZERO,
            whole: Whole::Other,
        }
    }
}

/// The news of a packet from upstream about its hop.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// The hop.
    pub link: Slot,
    /// The packet's number on it.
    pub number: u64,
    /// Packets that are counted as lost on the hop with this arrival.
    pub lost: u32,
    /// Another node answers now at the neighbour's face: every request to it must be repeated.
    pub is_new_neighbour: bool,
    /// The packet is of a node that answered before: its bytes count, and nothing else.
    pub is_former: bool,
    /// For the flow's [`super::Intake`], without the flow's own count of missing packets.
    pub seen: Seen,
}

impl Heard {
    fn former(now: Instant, link: Slot, range: ByteRange) -> Self {
        let seen = Seen {
            now,
            range,
            answers_until: Instant::ZERO,
            missing_on_hop: 0,
            between: None,
            waited: Duration::ZERO,
            hop_rtt: Duration::ZERO,
            reorder: 0,
            reorder_time: Duration::ZERO,
            patience: Duration::ZERO,
        };
        Self { link, number: 0, lost: 0, is_new_neighbour: false, is_former: true, seen }
    }
}

impl Uplinks {
    /// No hops yet.
    pub fn new(config: &Config, rng: Rng) -> Self {
        Self {
            links: Table::new(rng.fork(1).next_u64()),
            timeouts: Deadlines::default(),
            probes: Deadlines::default(),
            absence: Absence::default(),
            config: config.clone(),
            rng,
        }
    }

    /// The hop to the neighbour at `face` for `flow`, made if there is none.
    pub fn link(&mut self, face: Face, flow: FlowId) -> Slot {
        let key = LinkKey::new(face, flow, self.config.per_flow_control);
        let Self { links, config, rng, .. } = self;
        links.find_or_insert(key, || Requester::new(face, config, rng))
    }

    /// The hop on which packets from `face` for `flow` were asked for, if there is one: in the name of the face's
    /// own local address, or in that of the node, even if the answer came to another address.
    pub fn find(&self, face: Face, flow: FlowId) -> Option<Slot> {
        self.at(face, self.config.per_flow_control.then_some(flow))
    }

    /// The hop on which packets from `face` arrive, for any flow; `None` if each flow is a hop of its own.
    pub fn find_shared(&self, face: Face) -> Option<Slot> {
        self.at(face, None)
    }

    fn at(&self, face: Face, flow: Option<FlowId>) -> Option<Slot> {
        let by = |neighbour| self.links.find(&LinkKey { neighbour, flow });
        by(face).or_else(|| by(face.anywhere()))
    }

    /// The hop by which `flow` arrives at `face`, which nearly always is the `usual` one.
    pub fn answering(&self, usual: Option<Slot>, face: Face, flow: FlowId) -> Option<Slot> {
        let asked = |link: Slot| self.links.get(link).map(|requester| requester.face);
        let is_usual = |link: &Slot| asked(*link).is_some_and(|of| of == face || of == face.anywhere());
        usual.filter(is_usual).or_else(|| self.find(face, flow))
    }

    /// The Requester of a hop.
    pub fn get(&self, link: Slot) -> Option<&Requester> {
        self.links.get(link)
    }

    /// The Requester of a hop, to change it.
    pub fn get_mut(&mut self, link: Slot) -> Option<&mut Requester> {
        self.links.get_mut(link)
    }

    /// Bounds the rates of all hops for want of room: to `limit` of payload together, of which `brought` bytes came since
    /// the call before. Each hop may bring what it brought, more or less in the same measure.
    pub fn limit_to_room(&mut self, limit: Option<Rate>, brought: u64) {
        let packet = self.config.payload as u64;
        for (_, requester) in self.links.iter_mut() {
            // A hop that brought nothing may begin.
            let share = requester.take_brought().max(packet) as f64 / brought.max(packet) as f64;
            let bound = |limit: Rate| Rate::from_bps((limit.as_bps() as f64 * share) as u64);
            requester.limit_to_room(limit.map_or(Rate::UNLIMITED, bound));
        }
    }

    /// The Requesters, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Requester> {
        self.links.iter().map(|(_, requester)| requester)
    }

    /// Forgets a hop.
    pub fn remove(&mut self, link: Slot) {
        self.links.remove(link);
        self.timeouts.set(link, None);
        self.probes.set(link, None);
    }

    /// The hopRTT of a hop.
    pub fn hop_rtt(&self, link: Slot) -> Duration {
        self.links.get(link).map_or(self.config.rtt0, Requester::hop_rtt)
    }

    /// The longest waits of the packets of a hop's last moments, of whatever flow.
    pub fn waits(&self, now: Instant, link: Slot) -> Waits {
        self.links.get(link).map_or(Waits::default(), |requester| requester.waits(now))
    }

    /// The node runs at `now`. True if it may have been away: then [`Uplinks::note_due`] is to tell.
    #[inline]
    pub fn run(&mut self, now: Instant) -> bool {
        self.absence.run(now)
    }

    /// The node, which did not run for a while, had asked to run at `due`. If it was away, what it takes only now was sent
    /// meanwhile, and measures nothing.
    pub fn note_due(&mut self, now: Instant, due: Option<Instant>) {
        self.absence.note_due(now, due);
    }

    /// A Data packet or Notice of `peer` on a hop: measures it.
    #[inline]
    pub fn on_packet(
        &mut self,
        now: Instant,
        link: Slot,
        peer: &Peer,
        received: Received<'_>,
    ) -> Option<Heard> {
        let Received { counter, echo, range, wire_bytes, backlog, waited, whole } = received;
        let wire_bytes = wire_bytes + self.config.seal_overhead();
        self.review(now, link);
        let requester = self.links.get_mut(link)?;
        let answered = requester.answered(now, echo.time);
        let speaker = requester.hear(now, peer, answered);
        let timed = answered.filter(|&answered| self.absence.is_over_for(now, answered)).zip(Some(echo.way));
        if speaker == Speaker::Former {
            return Some(Heard::former(now, link, range));
        }
        let arrival = requester.on_packet(now, counter, timed, wire_bytes, backlog);
        if arrival.lost > 0 {
            requester.doubt_size(now);
        }
        requester.on_length(now, range.len());
        requester.feed_code(now, arrival.number, whole);
        requester.note_waited(now, waited);
        let patience = requester.patience(now);
        let hop_rtt = requester.hop_rtt();
        let (reorder, reorder_time) = (requester.reorder(), requester.reorder_time(now));
        let next = requester.next_timeout();
        self.timeouts.set(link, next);
        if arrival.lost > 0 {
            self.plan_probe(link);
        }
        Some(Heard {
            link,
            number: arrival.number,
            lost: arrival.lost,
            is_new_neighbour: speaker == Speaker::New && self.config.mechanisms.neighbour_detection,
            is_former: false,
            seen: Seen {
                now,
                range,
                answers_until: answered.unwrap_or(Instant::ZERO),
                missing_on_hop: 0,
                between: None,
                hop_rtt,
                reorder,
                reorder_time,
                patience,
                waited,
            },
        })
    }

    /// A packet that parity has restored on a hop. [`Uplinks::heard_restored`] has its news.
    #[inline]
    pub fn poll_restored(&mut self, now: Instant, link: Slot) -> Option<Restored> {
        self.links.get_mut(link)?.poll_restored(now)
    }

    /// The news of a packet with `range` of a flow that parity has restored: it fills a hole, and measures nothing.
    pub fn heard_restored(&self, now: Instant, link: Slot, number: u64, range: ByteRange) -> Option<Heard> {
        let requester = self.links.get(link)?;
        let seen = Seen {
            now,
            range,
            answers_until: Instant::ZERO,
            missing_on_hop: 0,
            between: None,
            hop_rtt: requester.hop_rtt(),
            reorder: requester.reorder(),
            reorder_time: requester.reorder_time(now),
            patience: requester.patience(now),
            waited: Duration::ZERO,
        };
        Some(Heard { link, number, lost: 0, is_new_neighbour: false, is_former: false, seen })
    }

    /// Reviews a hop's parity, if a review is due.
    fn review(&mut self, now: Instant, link: Slot) {
        if !self.links.get(link).is_some_and(|requester| requester.is_review_due(now)) {
            return;
        }
        let may_begin =
            self.links.iter().filter(|(_, requester)| requester.is_coded()).count() < MOST_DECODERS;
        if let Some(requester) = self.links.get_mut(link) {
            requester.review_code(now, may_begin);
        }
    }

    /// Time of the next [`Uplinks::on_timeout`].
    pub fn next_timeout(&self) -> Instant {
        self.timeouts.next().min(self.probes.next())
    }

    /// An Interest leaves on a hop: the length of its packets may be asked for some time later.
    #[inline]
    pub fn plan_probe(&mut self, link: Slot) {
        let due = self.links.get(link).and_then(Requester::size_due);
        self.probes.set(link, due);
    }

    /// A hop that is due to be asked for the length of its packets, and the question.
    pub fn poll_probe(&mut self, now: Instant) -> Option<(Slot, SizeQuestion)> {
        while let Some((at, link)) = self.probes.first() {
            if at > now {
                return None;
            }
            let question = self.links.get_mut(link).and_then(|requester| requester.poll_size(now));
            self.plan_probe(link);
            if let Some(question) = question {
                return Some((link, question));
            }
        }
        None
    }

    /// The answer of `peer` to a question about the length of packets came. False if there was no question.
    pub fn on_probe(
        &mut self,
        now: Instant,
        peer: &Peer,
        (header, question): (&DataHeader, SizeQuestion),
        len: usize,
    ) -> bool {
        let Some(link) = self.find(peer.face, header.flow) else { return false };
        let Some(requester) = self.links.get_mut(link) else { return false };
        let question = Some(question).filter(|question| question.answer_len() == len);
        let question = question.filter(|_| requester.answered(now, header.echo.time).is_some());
        question.iter().for_each(|question| requester.on_probe(now, *question));
        self.plan_probe(link);
        question.is_some()
    }

    /// A hop on which packets were lost, by time, that nothing accounts for.
    pub fn on_timeout(&mut self, now: Instant) -> Option<Slot> {
        while let Some((at, link)) = self.timeouts.first() {
            if at > now {
                return None;
            }
            let unexplained = self.links.get_mut(link).map_or(0, |requester| requester.on_timeout(now));
            self.timeouts.set(link, self.links.get(link).and_then(Requester::next_timeout));
            self.plan_probe(link);
            if unexplained > 0 {
                return Some(link);
            }
        }
        None
    }
}
