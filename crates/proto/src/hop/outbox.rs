use super::intake::Ask;
use super::parity::Sum;
use super::{About, Asked, Asking, Downlinks, Due, HELLO, SizeQuestion, Subject, Uplinks};
use crate::config::{Config, Notices};
use crate::name::{ByteRange, FlowId};
use crate::node::Transmit;
use crate::peer::{Addressee, Peer};
use crate::table::Slot;
use crate::time::{Instant, WireTime};
use crate::units::Rate;
use crate::wire::{
    DataFlags, DataHeader, Echo, Interest, News, NotNow, Notice, ParityHeader, Ranges, Reason, Suite, Waited,
    Way,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// An Interest that waits to leave: a request or, with no ranges, feedback.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The hop.
    pub link: Slot,
    /// The flow.
    pub flow: FlowId,
    /// The subject that the flow's id names.
    pub subject: Subject,
    /// The requested ranges.
    pub ask: Ask,
    /// Number of relays that may pass it on.
    pub hop_limit: u8,
}

impl Request {
    /// Control of a hop with no request.
    pub fn feedback(link: Slot, flow: FlowId) -> Self {
        let ask = Ask { ranges: Ranges::default(), reason: Reason::New };
        Self { link, flow, subject: Subject::Flow, ask, hop_limit: Interest::DEFAULT_HOP_LIMIT }
    }
}

/// A packet without payload, or an answer about this node, that waits to leave. Its counter, clock and rate are written when it leaves.
#[derive(Clone, Copy, Debug)]
pub enum Control {
    /// A request or feedback.
    Interest(Request),
    /// News of a range.
    Notice {
        /// The hop.
        link: Slot,
        /// The flow.
        flow: FlowId,
        /// The news.
        news: News,
    },
    /// Data without payload: it says that the flow ends here, or that no flow has the name.
    Answer {
        /// The hop.
        link: Slot,
        /// The flow.
        flow: FlowId,
        /// The length of the flow.
        offset: u64,
        /// Its flags.
        flags: DataFlags,
    },
    /// News for a neighbour that has no hop here: there is no room for one, or it must show first that it receives.
    Refusal {
        /// The neighbour that asked.
        peer: Peer,
        /// The requested flow.
        flow: FlowId,
        /// Send time of the request, by the neighbour's clock.
        sent: WireTime,
        /// The news.
        news: News,
    },
    /// The answer to a neighbour that asked for this node's identity.
    Hello {
        /// The hop.
        link: Slot,
        /// The facts about this node.
        about: About,
    },
    /// The answer to a question about the length of packets.
    Probe {
        /// The hop.
        link: Slot,
        /// The question.
        question: SizeQuestion,
    },
}

impl Control {
    /// The mark of a flow: everything asked for up to `offset` has been sent.
    pub fn mark(link: Slot, flow: FlowId, offset: u64) -> Self {
        Self::Notice { link, flow, news: News::Coming(ByteRange::at(offset, 0)) }
    }
}

/// Packets without payload, in order. They are not paced: each answers a packet that was.
#[derive(Debug)]
pub struct Outbox {
    queue: VecDeque<Control>,
    /// Bytes that one Interest may ask for.
    request_limit: u64,
    /// Number of relays that may pass on a repeated request.
    repair_hop_limit: u8,
    /// Filled and emptied with every packet, kept for its memory.
    list: Vec<ByteRange>,
    /// The answer to a neighbour that asks who this node is.
    about: About,
}

impl Outbox {
    /// Without packets.
    pub fn new(config: &Config) -> Self {
        Self {
            queue: VecDeque::new(),
            request_limit: config.request_limit,
            repair_hop_limit: config.repair_hop_limit,
            list: Vec::new(),
            about: About::default(),
        }
    }

    /// Changes the facts that neighbours are told about this node.
    pub fn set_about(&mut self, about: About) {
        self.about = about;
    }

    /// The facts that neighbours are told about this node.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// An empty list, for the ranges of requests. [`Outbox::give_list`] takes it back.
    pub fn take_list(&mut self) -> Vec<ByteRange> {
        core::mem::take(&mut self.list)
    }

    /// Takes a list back.
    pub fn give_list(&mut self, mut list: Vec<ByteRange>) {
        list.clear();
        self.list = list;
    }

    /// Adds a packet.
    pub fn push(&mut self, control: Control) {
        self.queue.push_back(control);
    }

    /// The hop of an asker was taken: tells the asker what it needs to know about it.
    pub fn welcome<C: Suite>(
        &mut self,
        now: Instant,
        suite: &mut C,
        asking: &Asking<'_>,
        asked: Asked,
    ) -> Slot {
        let Asked { link, token, is_settled_now } = asked;
        let flow = asking.interest.flow;
        if is_settled_now {
            suite.settle(&asking.peer);
        }
        if let Some(token) = token {
            self.push(Control::Notice { link, flow, news: News::Token(token) });
        }
        if let Some(key) = suite.introduction(now, &asking.peer) {
            self.push(Control::Notice { link, flow, news: News::Key(key) });
        }
        link
    }

    /// Answers a request that is for the neighbour itself, about this node or the length of its packets. False if its
    /// subject is a flow.
    pub fn answer_about_hop(&mut self, downlinks: &mut Downlinks, link: Slot, subject: Subject) -> bool {
        match subject {
            Subject::Flow => return false,
            Subject::Neighbour => self.push(Control::Hello { link, about: self.about }),
            Subject::PathSize(question) => {
                downlinks.on_size_question(link, question);
                if question.probe <= SizeQuestion::MOST {
                    self.push(Control::Probe { link, question });
                }
            }
        }
        true
    }

    /// Answers a repair: its bytes are on their way, or wait for their turn.
    pub fn coming(&mut self, config: &Config, link: Slot, flow: FlowId, range: ByteRange) {
        if config.notices == Notices::OnRequest {
            self.push(Control::Notice { link, flow, news: News::Coming(range) });
        }
    }

    /// Tells an asker that its request was not taken. Feedback asks for nothing, and is not answered.
    pub fn put_off(&mut self, asking: &Asking<'_>, link: Option<Slot>, not_now: NotNow) {
        let Interest { flow, sent, ref ranges, .. } = *asking.interest;
        if ranges.is_empty() {
            return;
        }
        self.push(match link {
            Some(link) => Control::Notice { link, flow, news: News::NotNow(not_now) },
            None => Control::Refusal { peer: asking.peer, flow, sent, news: News::NotNow(not_now) },
        });
    }

    /// Asks a neighbour that has no hop here for its token. The answer is shorter than any Interest.
    pub fn want_token(&mut self, asking: &Asking<'_>, token: u32) {
        let Interest { flow, sent, .. } = *asking.interest;
        self.push(Control::Refusal { peer: asking.peer, flow, sent, news: News::Token(token) });
    }

    /// Asks a hop for bytes of a flow.
    pub fn ask(&mut self, link: Slot, flow: FlowId, ask: Ask, hop_limit: u8) {
        self.push(Control::Interest(Request { link, flow, subject: Subject::Flow, ask, hop_limit }));
    }

    /// Asks a neighbour about itself: the answer, `len` bytes, is nobody else's.
    fn ask_neighbour(&mut self, link: Slot, (flow, subject): (FlowId, Subject), len: u64) {
        let mut ask = Ask { ranges: Ranges::default(), reason: Reason::Lost };
        ask.ranges.push(ByteRange::at(0, len));
        self.push(Control::Interest(Request { link, flow, subject, ask, hop_limit: 1 }));
    }

    /// Asks a neighbour for its identity.
    pub fn greet(&mut self, link: Slot) {
        self.ask_neighbour(link, (HELLO, Subject::Neighbour), About::MAX_LEN);
    }

    /// Asks a neighbour for a packet of some length.
    pub fn probe(&mut self, link: Slot, question: SizeQuestion) {
        let subject = Subject::PathSize(question);
        self.ask_neighbour(link, (question.flow(), subject), question.answer_len() as u64);
    }

    /// Asks a hop again for lost bytes, in as few Interests as the bytes per Interest allow.
    pub fn ask_repairs(&mut self, link: Slot, flow: FlowId, repairs: &[ByteRange]) {
        self.ask_all((link, flow), repairs.iter().copied(), Reason::Lost, self.repair_hop_limit);
    }

    /// Asks a hop for bytes that it may have been asked for before.
    pub fn ask_fresh(&mut self, link: Slot, flow: FlowId, ranges: impl IntoIterator<Item = ByteRange>) {
        self.ask_all((link, flow), ranges, Reason::New, Interest::DEFAULT_HOP_LIMIT);
    }

    fn ask_all(
        &mut self,
        (link, flow): (Slot, FlowId),
        ranges: impl IntoIterator<Item = ByteRange>,
        reason: Reason,
        hop_limit: u8,
    ) {
        let limit = self.request_limit;
        let mut ask = Ask { ranges: Ranges::default(), reason };
        let mut bytes = 0;
        for range in ranges {
            let mut rest = range;
            while !rest.is_empty() {
                let piece = rest.prefix(limit - bytes);
                if bytes == limit || !ask.ranges.push(piece) {
                    self.ask(link, flow, ask, hop_limit);
                    ask.ranges = Ranges::default();
                    bytes = 0;
                    continue;
                }
                bytes += piece.len();
                rest.start = piece.end;
            }
        }
        if !ask.ranges.is_empty() {
            self.ask(link, flow, ask, hop_limit);
        }
    }

    /// Gives feedback to a hop.
    pub fn feedback(&mut self, link: Slot, flow: FlowId) {
        self.push(Control::Interest(Request::feedback(link, flow)));
    }

    /// The next packet.
    pub fn pop(&mut self) -> Option<Control> {
        self.queue.pop_front()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Writes an Interest for a hop with the flow's turn and its backpressure bound.
pub fn emit_interest<C: Suite>(
    uplinks: &mut Uplinks,
    suite: &mut C,
    now: Instant,
    request: Request,
    (turn, flow_rate): (u16, Rate),
    out: &mut Vec<u8>,
) -> Option<Transmit> {
    let requester = uplinks.get_mut(request.link)?;
    let interest = Interest {
        reason: request.ask.reason,
        ranges: request.ask.ranges,
        hop_limit: request.hop_limit,
        turn,
        flow_rate,
        ..requester.stamp(now, request.flow, request.subject)
    };
    let to = Addressee::Asked(requester.face);
    uplinks.plan_probe(request.link);
    finish(suite, now, &to, out, |out| interest.emit(out))
}

/// Writes a Notice, an empty Data packet or a Hello for a hop; `None` when its neighbour may not be sent one.
pub fn emit_answer<C: Suite>(
    downlinks: &mut Downlinks,
    suite: &mut C,
    now: Instant,
    control: Control,
    out: &mut Vec<u8>,
) -> Option<Transmit> {
    if let Control::Refusal { peer, flow, sent, news } = control {
        let echo = Echo { time: sent, way: Way::between(sent, WireTime::at(now)) };
        let notice = Notice { counter: 0, flow, echo, news };
        return finish(suite, now, &Addressee::Stranger(peer), out, |out| notice.emit(out));
    }
    let (Control::Notice { link, .. }
    | Control::Answer { link, .. }
    | Control::Hello { link, .. }
    | Control::Probe { link, .. }) = control
    else {
        return None;
    };
    let payload = match control {
        Control::Hello { .. } => About::MAX_LEN,
        Control::Probe { question, .. } => question.answer_len() as u64,
        Control::Notice { news: News::Key(_), .. } => Notice::KEY_LEN,
        _ => 0,
    };
    let len = DataHeader::MAX_USUAL_LEN.max(Notice::USUAL_LEN) + payload + suite.overhead() as u64;
    let responder = downlinks.get_mut(link)?;
    if responder.is_held() || !responder.spend(len) {
        return None;
    }
    if matches!(control, Control::Probe { .. }) {
        responder.note_probe(now, len);
    }
    let to = Addressee::Asker(responder.peer);
    let is_uncounted = matches!(
        control,
        Control::Notice { news: News::Token(_) | News::NotNow(_) | News::Key(_), .. }
            | Control::Hello { .. }
            | Control::Probe { .. }
    );
    let (counter, echo) = if is_uncounted { responder.stamp_uncounted(now) } else { responder.stamp(now) };
    finish(suite, now, &to, out, |out| match control {
        Control::Notice { flow, news, .. } => Notice { counter, flow, echo, news }.emit(out),
        Control::Answer { flow, offset, flags, .. } => {
            let waited = Waited::default();
            DataHeader { counter, flow, offset, echo, flags, waited }.emit(out);
        }
        Control::Hello { about, .. } => {
            let flags = DataFlags { end: true, is_volatile: true, ..DataFlags::default() };
            let waited = Waited::default();
            DataHeader { counter, flow: HELLO, offset: 0, echo, flags, waited }.emit(out);
            about.emit(now, out);
        }
        Control::Probe { question, .. } => {
            let flags = DataFlags { end: true, is_volatile: true, ..DataFlags::default() };
            let (flow, waited) = (question.flow(), Waited::default());
            DataHeader { counter, flow, offset: 0, echo, flags, waited }.emit(out);
            out.resize(out.len() + question.answer_len(), 0);
        }
        Control::Interest(_) | Control::Refusal { .. } => {}
    })
}

/// Writes the Parity packet that a hop is due to send.
pub fn emit_parity<C: Suite>(
    downlinks: &mut Downlinks,
    suite: &mut C,
    now: Instant,
    due: &Due,
    out: &mut Vec<u8>,
) -> Option<Transmit> {
    let responder = downlinks.get_mut(due.link)?;
    let (sum, counter, echo) = responder.take_parity(now)?;
    let back = sum.previous.map_or(0, |previous| counter.wrapping_sub(previous));
    let previous = u8::try_from(back).unwrap_or(0);
    let Sum { first, count, seed, bytes, .. } = sum;
    let header = ParityHeader { counter, echo, backlog: due.backlog, first, count, previous, seed };
    finish(suite, now, &Addressee::Asker(responder.peer), out, |out| {
        header.emit(out);
        out.extend_from_slice(&bytes);
    })
}

/// Appends one packet to `out` and seals it; `None` if it could not be sealed.
#[inline]
pub fn finish<C: Suite>(
    suite: &mut C,
    now: Instant,
    to: &Addressee,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) -> Option<Transmit> {
    let start = out.len();
    out.resize(start + suite.room(), 0);
    write(out);
    if suite.seal(now, to, out, start).is_err() {
        out.truncate(start);
        return None;
    }
    Some(Transmit { to: to.face(), len: out.len() - start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_repairs_are_split_and_small_ones_share_an_interest() {
        let mut outbox = Outbox { request_limit: 100, ..Outbox::new(&Config::default()) };
        let repairs = [ByteRange::at(0, 150), ByteRange::at(500, 10), ByteRange::at(600, 10)];
        outbox.ask_repairs(Slot(0), FlowId([0; 16]), &repairs);
        let mut sent = Vec::new();
        while let Some(Control::Interest(Request { ask, .. })) = outbox.pop() {
            assert_eq!(ask.reason, Reason::Lost);
            assert!(ask.ranges.iter().map(|r| r.len()).sum::<u64>() <= 100);
            sent.push(ask.ranges.to_vec());
        }
        assert_eq!(
            sent,
            [
                alloc::vec![ByteRange::at(0, 100)],
                alloc::vec![ByteRange::at(100, 50), ByteRange::at(500, 10), ByteRange::at(600, 10)]
            ]
        );
    }
}
