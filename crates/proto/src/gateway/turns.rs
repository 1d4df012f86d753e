use super::StreamId;
use alloc::collections::{BTreeMap, VecDeque};

/// Bytes that a turn of a stream of weight 1 is worth: about one packet.
const PACKET: i64 = 1350;

/// Most answers are no longer. A stream of weight 1 may send as much ahead of its turns, and as much in one turn. Clients that ask together
/// are answered one after another, all but the last of them earlier than if their answers went packet by packet in turn.
pub(super) const ANSWER: u64 = 16 << 10;

/// Whose bytes go next: streams in turn by bytes and weight, and those that sent little of late before the others (deficit round robin
/// with a list for new streams, RFC 8290 section 4.2; here a stream has a credit of one answer, which its turns renew).
///
/// The first packet of a stream with nearly its whole credit goes before all else: a keystroke waits for no answer. The rest of its credit
/// goes before those that have none, which keep their part, or half, as soon as that was an answer in all. Without credit a stream waits
/// for a turn that brings some, and then ends the answer that it has begun; a longer transfer sends a packet. What was sent in
/// advance is paid back in turns, also by a stream that has run empty: short answers without end get no more than a long transfer does.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Ready streams with nearly their whole credit.
    first: VecDeque<StreamId>,
    /// Ready streams with some credit.
    ahead: VecDeque<StreamId>,
    /// The ready stream whose turn it is.
    holder: Option<StreamId>,
    /// All streams without a whole credit: each turn adds to it.
    line: VecDeque<StreamId>,
    /// Of all streams that are in a list.
    shares: BTreeMap<StreamId, Share>,
    /// The sum of the weights of ready streams: those that have something to send.
    weight: u32,
    /// The part of it that is in `first` and `ahead`.
    in_front: u32,
    /// Bytes that these have sent beyond their part, while others waited for a turn.
    lead: u64,
    /// Bytes that all have sent.
    sent: u64,
}

/// The least part, of [`WHOLE`], of those in front: an answer waits for no more than as much of long transfers.
const LEAST_PART: u64 = WHOLE / 2;
const WHOLE: u64 = 1 << 10;

#[derive(Debug)]
struct Share {
    weight: u8,
    /// Bytes that it may send before it waits for a turn. Negative: to be paid back.
    credit: i64,
    /// Bytes that it has sent of its present answer. What comes after others have sent as much as an answer is another one.
    burst: i64,
    /// The value of [`Turns::sent`] when it ran empty.
    emptied_at: u64,
    state: State,
    is_in_line: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It has nothing to send.
    Empty,
    /// It is in `first` or `ahead`.
    InFront,
    /// It waits for a turn, or has it.
    Waits,
}

impl Share {
    /// With a whole credit.
    fn new(weight: u8) -> Self {
        let empty =
            Self { weight, credit: 0, burst: 0, emptied_at: 0, state: State::Empty, is_in_line: false };
        Self { credit: empty.answer(), ..empty }
    }

    fn packet(&self) -> i64 {
        PACKET * i64::from(self.weight)
    }

    fn answer(&self) -> i64 {
        ANSWER as i64 * i64::from(self.weight)
    }

    /// Credit that is missing from a whole one.
    fn owed(&self) -> i64 {
        self.answer() - self.credit
    }

    /// Half a packet in keystrokes does not count.
    fn is_nearly_whole(&self) -> bool {
        self.owed() < self.packet() / 2
    }

    /// It may send on, once it has begun.
    fn holds_on(&self) -> bool {
        self.credit > 0 || self.burst < self.answer()
    }
}

impl Turns {
    /// A stream of this weight has something to send.
    pub(super) fn add(&mut self, stream: StreamId, weight: u8) {
        let share = self.shares.entry(stream).or_insert_with(|| Share::new(weight.max(1)));
        if share.state != State::Empty {
            return;
        }
        self.weight += u32::from(share.weight);
        if self.sent - share.emptied_at >= ANSWER {
            share.burst = 0;
        }
        // Only a part of an answer may have been here: the rest follows it.
        let goes_on = share.burst > 0 && share.holds_on();
        share.state = State::Waits;
        if goes_on || share.credit > 0 {
            let list = if share.is_nearly_whole() { &mut self.first } else { &mut self.ahead };
            list.push_back(stream);
            share.state = State::InFront;
            self.in_front += u32::from(share.weight);
        }
    }

    /// The stream whose bytes are next: it may send one packet, which is charged to it afterwards.
    pub(super) fn next(&mut self) -> Option<StreamId> {
        if self.is_empty() {
            // Nobody waited for what these sent in advance.
            self.line.clear();
            self.shares.clear();
            return None;
        }
        if let Some(stream) = self.first.front() {
            return Some(*stream);
        }
        let may_lead = self.lead < ANSWER || self.in_front == self.weight;
        if let Some(stream) = self.ahead.front().filter(|_| may_lead) {
            return Some(*stream);
        }
        while self.holder.is_none() {
            let stream = self.line.pop_front()?;
            self.take_turn(stream);
        }
        self.holder
    }

    /// The turn of a stream that was at the front of the line.
    fn take_turn(&mut self, stream: StreamId) {
        let Some(share) = self.shares.get_mut(&stream) else { return };
        share.credit = (share.credit + share.packet()).min(share.answer());
        if share.state == State::Empty && share.owed() == 0 {
            self.shares.remove(&stream);
            return;
        }
        self.line.push_back(stream);
        if share.state == State::Waits && share.credit > 0 {
            self.holder = Some(stream);
        }
    }

    /// The stream whose bytes were next sent `bytes`; `is_done` says that it has no more to send.
    pub(super) fn on_sent(&mut self, stream: StreamId, bytes: usize, is_done: bool) {
        self.sent += bytes as u64;
        self.count_lead(bytes as u64, self.holder != Some(stream));
        let Some(share) = self.shares.get_mut(&stream) else { return };
        share.credit -= bytes as i64;
        share.burst += bytes as i64;
        if !core::mem::replace(&mut share.is_in_line, true) {
            self.line.push_back(stream);
        }
        let goes_on = !is_done && share.holds_on();
        let weight = u32::from(share.weight);
        let is_first = self.first.pop_front().inspect(|first| debug_assert_eq!(*first, stream)).is_some();
        match (share.state == State::InFront, goes_on) {
            (true, true) if is_first => self.ahead.push_back(stream),
            (_, true) => {}
            (true, false) => {
                if !is_first {
                    self.ahead.pop_front();
                }
                self.in_front -= weight;
            }
            (false, false) => self.holder = None,
        }
        if !goes_on {
            share.state = State::Waits;
        }
        if is_done {
            (share.state, share.emptied_at) = (State::Empty, self.sent);
            self.weight -= weight;
        }
    }

    /// Bytes of a stream in front, or of one that had waited for its turn.
    fn count_lead(&mut self, bytes: u64, is_in_front: bool) {
        if self.in_front == self.weight {
            self.lead = 0;
            return;
        }
        let part = (u64::from(self.in_front) * WHOLE / u64::from(self.weight.max(1))).max(LEAST_PART);
        if is_in_front {
            self.lead += bytes * (WHOLE - part) / WHOLE;
        } else {
            self.lead = self.lead.saturating_sub(bytes * part / WHOLE);
        }
    }

    /// A stream has ended: it sends nothing more.
    pub(super) fn remove(&mut self, stream: StreamId) {
        let Some(share) = self.shares.remove(&stream) else { return };
        let weight = u32::from(share.weight);
        if share.state != State::Empty {
            self.weight -= weight;
        }
        if share.state == State::InFront {
            self.in_front -= weight;
        }
        self.holder.take_if(|holder| *holder == stream);
        for list in [&mut self.first, &mut self.ahead, &mut self.line] {
            if let Some(place) = list.iter().position(|other| *other == stream) {
                list.remove(place);
            }
        }
    }

    /// The sum of the weights of streams that have something to send.
    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    /// Whether no stream has anything to send.
    pub(super) fn is_empty(&self) -> bool {
        self.weight == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn stream(number: u64) -> StreamId {
        StreamId { peer: 0, session: 1, ours: true, number }
    }

    /// Sends `count` packets of the streams whose turn it is, `bytes` long, and returns the order. None runs empty.
    fn send(turns: &mut Turns, count: usize, bytes: impl Fn(StreamId) -> usize) -> Vec<u64> {
        let mut order = Vec::new();
        for _ in 0..count {
            let next = turns.next().unwrap();
            turns.on_sent(next, bytes(next), false);
            order.push(next.number);
        }
        order
    }

    #[test]
    fn streams_share_by_bytes() {
        let mut turns = Turns::default();
        (0..3).for_each(|number| turns.add(stream(number), 1));
        // The third sends in small pieces.
        let bytes = |next: StreamId| if next.number == 2 { 100 } else { 1_300 };
        let order = send(&mut turns, 3_000, bytes);
        let sent = [0, 1, 2]
            .map(|number| order.iter().filter(|sender| **sender == number).count() * bytes(stream(number)));
        let most = *sent.iter().max().unwrap();
        assert!(sent.iter().all(|bytes| most - bytes <= ANSWER as usize), "{sent:?}");
    }

    #[test]
    fn streams_share_by_weight() {
        let mut turns = Turns::default();
        (0..3).for_each(|number| turns.add(stream(number), [1, 4, 10][number as usize]));
        let order = send(&mut turns, 15_000, |_| 1_300);
        let sent = [0, 1, 2].map(|number| order.iter().filter(|sender| **sender == number).count());
        let of_first = [1, 4, 10].map(|weight| weight * sent[0]);
        let are_near = sent.iter().zip(of_first).all(|(sent, fair)| sent.abs_diff(fair) <= fair / 50);
        assert!(are_near, "{sent:?}");
    }

    #[test]
    fn answers_leave_one_after_another_before_long_transfers() {
        let mut turns = Turns::default();
        turns.add(stream(0), 1);
        send(&mut turns, 100, |_| 1_300);
        (1..=3).for_each(|number| turns.add(stream(number), 1));
        let mut order = Vec::new();
        let mut left = [usize::MAX, 11, 11, 11];
        for _ in 0..34 {
            let next = turns.next().unwrap();
            let packets = &mut left[next.number as usize];
            *packets -= 1;
            turns.on_sent(next, 1_300, *packets == 0);
            order.push(next.number);
        }
        // The first packet of each, then what is left of each.
        let expected: Vec<u64> =
            [1, 2, 3].into_iter().chain([1, 2, 3].into_iter().flat_map(|n| [n; 10])).collect();
        assert_eq!(order[..33], expected);
        assert_eq!(order[33], 0);
    }

    #[test]
    fn a_keystroke_waits_for_one_packet_of_an_answer() {
        let mut turns = Turns::default();
        (0..5).for_each(|number| turns.add(stream(number), 1));
        send(&mut turns, 20, |_| 1_300);
        for _ in 0..10 {
            turns.add(stream(9), 1);
            assert_eq!(turns.next(), Some(stream(9)));
            turns.on_sent(stream(9), 10, true);
            send(&mut turns, 1, |_| 1_300);
        }
    }

    #[test]
    fn answers_without_end_get_no_more_than_a_long_transfer() {
        let mut turns = Turns::default();
        let mut sent = [0; 2];
        turns.add(stream(0), 1);
        for _ in 0..10_000 {
            // The second sends one packet at a time, and has the next as soon as that has left.
            turns.add(stream(1), 1);
            let next = turns.next().unwrap();
            turns.on_sent(next, 1_300, next.number == 1);
            sent[next.number as usize] += 1;
        }
        assert!(sent[1] <= sent[0] + 15 && sent[0] <= sent[1] + 15, "{sent:?}");
    }

    #[test]
    fn a_crowd_that_always_asks_is_answered_one_after_another_and_pays_a_long_transfer_its_part() {
        let (mut turns, mut sent, mut answers) = (Turns::default(), [0; 11], 0);
        let mut thinking = VecDeque::new();
        let mut left = [11; 10];
        (0..=10).for_each(|number| turns.add(stream(number), 1));
        let mut last = 0;
        for _ in 0..20_000 {
            let next = turns.next().unwrap();
            let number = next.number as usize;
            sent[number] += 1;
            if number < 10 {
                answers += usize::from(last != number && left[number] < 11);
                last = number;
                left[number] -= 1;
            }
            let is_done = number < 10 && left[number] == 0;
            turns.on_sent(next, 1_300, is_done);
            if is_done {
                left[number] = 11;
                thinking.push_back(next);
            }
            if thinking.len() > 3 {
                thinking.pop_front().into_iter().for_each(|next| turns.add(next, 1));
            }
        }
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(most - least <= 30, "{sent:?}");
        assert!(answers <= 100, "{answers} of 1,650 answers were taken up again after others");
    }

    /// Files that are a little longer than an answer arrive as fast as they leave, while twenty are there already: the ends of
    /// these do not wait for the beginnings of all others.
    #[test]
    fn longer_answers_are_not_left_behind_by_new_ones() {
        let (mut turns, mut left) = (Turns::default(), alloc::vec![16; 20]);
        (0..20).for_each(|number| turns.add(stream(number), 1));
        let mut sent = 0;
        while left[..20].iter().any(|left| *left > 0) {
            sent += 1;
            if sent % 16 == 0 {
                turns.add(stream(left.len() as u64), 1);
                left.push(16);
            }
            let next = turns.next().unwrap();
            let packets = &mut left[next.number as usize];
            *packets -= 1;
            turns.on_sent(next, 1_300, *packets == 0);
        }
        assert!(sent <= 2 * 20 * 16, "{sent} packets until 320 had left");
    }

    #[test]
    fn what_nobody_waited_for_is_not_owed() {
        let mut turns = Turns::default();
        turns.add(stream(0), 1);
        send(&mut turns, 100, |_| 1_300);
        turns.on_sent(stream(0), 1_300, true);
        assert_eq!((turns.next(), turns.weight(), turns.shares.len()), (None, 0, 0));
        turns.add(stream(1), 1);
        turns.add(stream(0), 1);
        assert_eq!(send(&mut turns, 3, |_| 1_300), [1, 0, 1]);
    }

    #[test]
    fn an_ended_stream_is_in_no_list() {
        let mut turns = Turns::default();
        (0..3).for_each(|number| turns.add(stream(number), 2));
        send(&mut turns, 5, |_| 1_300);
        (0..3).for_each(|number| turns.remove(stream(number)));
        let lists = [&turns.first, &turns.ahead, &turns.line];
        assert!(lists.iter().all(|list| list.is_empty()) && turns.weight() == 0, "{turns:?}");
    }
}
