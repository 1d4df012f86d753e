//! A client that asks a server for one thing after another over one connection.

use crate::record::SharedRecorder;
use starhop_proto::time::{Duration, Instant};

/// Questions and answers on a connection; the flow is all answers, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Number of questions.
    pub requests: u32,
    /// Bytes of a question.
    pub request: u32,
    /// Bytes of an answer.
    pub response: u64,
    /// Pause between an answer and the next question.
    pub think: Duration,
}

impl Exchange {
    /// Bytes of answers that a server owes after `asked` bytes of questions, and whether these are all the answers.
    pub(crate) fn given(&self, asked: u64) -> (u64, bool) {
        let questions = (asked / u64::from(self.request.max(1))).min(u64::from(self.requests));
        (questions * self.response, questions == u64::from(self.requests))
    }
}

/// The asking half, at the client.
#[derive(Debug)]
pub(crate) struct Asker {
    exchange: Exchange,
    asked: u32,
    answered: u32,
    asked_at: Instant,
    /// Time at which the next question is due.
    next: Option<Instant>,
    recorder: SharedRecorder,
    record: usize,
}

impl Asker {
    pub(crate) fn new(exchange: Exchange, recorder: SharedRecorder, record: usize) -> Self {
        let (asked, answered, asked_at, next) = (0, 0, Instant::ZERO, None);
        Self { exchange, asked, answered, asked_at, next, recorder, record }
    }

    /// The first question is asked now, by opening the connection.
    pub(crate) fn start(&mut self, now: Instant) {
        self.next = Some(now);
    }

    /// All answers' bytes below `next` have come.
    pub(crate) fn on_progress(&mut self, now: Instant, next: u64) {
        while self.answered < self.asked && next >= u64::from(self.answered + 1) * self.exchange.response {
            self.answered += 1;
            let took = now.since(self.asked_at);
            self.recorder.borrow_mut().flow_mut(self.record).responses.push(took);
            self.next = (self.asked < self.exchange.requests).then(|| now + self.exchange.think);
        }
    }

    /// Bytes of the question that is asked now, if one is.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<u32> {
        self.next.filter(|at| *at <= now)?;
        self.next = None;
        self.asked += 1;
        self.asked_at = now;
        Some(self.exchange.request)
    }

    /// Time at which the next question is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recorder;
    use starhop_proto::name::FlowId;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_question_waits_for_the_answer_before_it_and_a_moment_of_thought() {
        let recorder = SharedRecorder::new(Recorder::new(Instant::ZERO));
        let record = recorder.borrow_mut().add_flow(FlowId([1; 16]), None);
        let exchange =
            Exchange { requests: 2, request: 300, response: 1000, think: Duration::from_millis(5) };
        let mut asker = Asker::new(exchange, recorder.clone(), record);
        asker.start(at(0));
        assert_eq!((asker.poll(at(0)), asker.poll(at(0))), (Some(300), None));
        asker.on_progress(at(40), 999);
        assert_eq!(asker.poll_timeout(), None);
        asker.on_progress(at(50), 1000);
        assert_eq!((asker.poll(at(54)), asker.poll(at(55))), (None, Some(300)));
        asker.on_progress(at(80), 2000);
        assert_eq!(asker.poll_timeout(), None);
        let took: Vec<u64> =
            recorder.borrow().flow(record).responses.iter().map(|took| took.as_micros()).collect();
        assert_eq!(took, [50_000, 25_000]);
    }

    #[test]
    fn a_server_gives_whole_answers() {
        let exchange = Exchange { requests: 2, request: 300, response: 1000, think: Duration::ZERO };
        let given = [0, 299, 300, 599, 600, 900].map(|asked| exchange.given(asked));
        let first = (1000, false);
        assert_eq!(given, [(0, false), (0, false), first, first, (2000, true), (2000, true)]);
    }
}
