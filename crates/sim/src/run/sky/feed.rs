//! The events of the constellation, read ahead as far as needed and no further.

use starhop_orbit::elements::OrbitError;
use starhop_orbit::schedule::{Change, Changes, Ends, Event};
use starhop_proto::time::{Duration, Instant};
use std::collections::VecDeque;

/// The changes of a sky in the time of the run.
pub(crate) struct Feed<'a> {
    changes: Changes<'a>,
    from: std::time::Duration,
    ahead: VecDeque<Change>,
    error: Option<OrbitError>,
}

impl<'a> Feed<'a> {
    /// A feed whose run begins `from_s` seconds after the constellation's epoch.
    pub(crate) fn new(changes: Changes<'a>, from_s: f64) -> Self {
        let from = std::time::Duration::from_secs_f64(from_s);
        Self { changes, from, ahead: VecDeque::new(), error: None }
    }

    /// The time of the next change.
    pub(crate) fn next_time(&mut self) -> Option<Instant> {
        if self.ahead.is_empty() {
            self.read();
        }
        self.ahead.front().map(|change| self.in_run(change))
    }

    /// The next change, if it happens at `now` or before.
    pub(super) fn next_at(&mut self, now: Instant) -> Option<Event> {
        self.next_time().filter(|at| *at <= now)?;
        self.ahead.pop_front().map(|change| change.event)
    }

    /// Time at which a link that is up will go down; the end of the plan if it stays up.
    pub(super) fn down_at(&mut self, ends: Ends) -> Option<Instant> {
        let mut index = 0;
        loop {
            while index >= self.ahead.len() {
                if !self.read() {
                    return self.ahead.back().map(|last| self.in_run(last));
                }
            }
            let change = &self.ahead[index];
            if change.event == (Event::LinkDown { ends }) {
                return Some(self.in_run(change));
            }
            index += 1;
        }
    }

    /// Why the feed ended early.
    pub(crate) fn take_error(&mut self) -> Option<OrbitError> {
        self.error.take()
    }

    fn in_run(&self, change: &Change) -> Instant {
        let since = change.at.saturating_sub(self.from);
        Instant::ZERO + Duration::from_nanos(since.as_nanos() as u64)
    }

    fn read(&mut self) -> bool {
        match self.changes.next() {
            Some(Ok(change)) => self.ahead.push_back(change),
            Some(Err(error)) => {
                self.error = Some(error);
                return false;
            }
            None => return false,
        }
        true
    }
}
