//! The time for which a running node trusts a roster.

use super::roster::GRACE;
use serde::Serialize;

/// Warnings begin this long before a roster ends, seconds.
const SOON: u64 = 7 * 86_400;
/// Between two warnings, seconds: before the end, and after it.
const DAILY: u64 = 86_400;
const HOURLY: u64 = 3600;

/// Number and end of a roster that was verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Term {
    /// Grows with each signature.
    pub serial: u64,
    /// Seconds since 1970.
    pub expires: u64,
}

/// A message for the operator, and the state of the keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// They are in use; something should be done.
    Warning(String),
    /// No node is trusted any more.
    Over(String),
}

/// The last message about a term, and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Told {
    term: Option<Term>,
    /// Seconds since 1970.
    at: u64,
    is_over: bool,
}

impl Told {
    /// Looks at `term` at `unix`, seconds since 1970.
    pub(super) fn news(&mut self, term: Term, unix: u64) -> Option<Notice> {
        if self.term != Some(term) {
            *self = Self { term: Some(term), ..Self::default() };
        }
        let end = term.expires + GRACE;
        if unix >= end {
            let notice = (!self.is_over).then(|| Notice::Over(over(unix - term.expires)));
            self.is_over = true;
            return notice;
        }
        // A clock that was set back makes a term run again, but only a new roster restores trust.
        let pause = if unix >= term.expires { HOURLY } else { DAILY };
        if self.is_over || unix + SOON < term.expires || unix < self.at + pause {
            return None;
        }
        self.at = unix;
        Some(Notice::Warning(match unix.checked_sub(term.expires) {
            Some(_) => format!(
                "the roster has expired. This node goes on with it for {} more hours; then it believes nobody. Sign it \
                 anew, give it to every node, and send each SIGHUP",
                (end - unix).div_ceil(3600)
            ),
            None => format!(
                "the roster expires in {} hours: sign it anew, give it to every node, and send each SIGHUP",
                (term.expires - unix) / 3600
            ),
        }))
    }
}

fn over(seconds: u64) -> String {
    format!(
        "the roster expired {} hours ago, and its grace is over: this node believes nobody until it has a new one. Sign \
         it anew, give it to every node, and send each SIGHUP",
        seconds / 3600
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Term = Term { serial: 1, expires: 1_800_000_000 };

    fn is_warning(notice: Option<&Notice>, word: &str) -> bool {
        matches!(notice, Some(Notice::Warning(text)) if text.contains(word))
    }

    #[test]
    fn the_end_is_told_daily_before_it_and_hourly_in_the_grace() {
        let mut told = Told::default();
        assert_eq!(told.news(TERM, TERM.expires - SOON - 1), None);
        assert!(is_warning(told.news(TERM, TERM.expires - SOON).as_ref(), "in 168 hours"));
        assert_eq!(told.news(TERM, TERM.expires - SOON + DAILY - 1), None);
        assert!(is_warning(told.news(TERM, TERM.expires - SOON + DAILY).as_ref(), "in 144 hours"));
        assert!(is_warning(told.news(TERM, TERM.expires).as_ref(), "24 more hours"));
        assert!(is_warning(told.news(TERM, TERM.expires + HOURLY).as_ref(), "23 more hours"));
    }

    #[test]
    fn after_the_grace_nobody_is_believed_until_there_is_a_new_roster() {
        let mut told = Told::default();
        let end = TERM.expires + GRACE;
        assert!(matches!(told.news(TERM, end), Some(Notice::Over(_))));
        assert_eq!(told.news(TERM, end + 1), None, "it is told once");
        assert_eq!(told.news(TERM, TERM.expires - 5), None, "a clock that is set back brings nothing back");
        let newer = Term { serial: 2, expires: end + 86_400 };
        assert!(is_warning(told.news(newer, end + 1).as_ref(), "in 23 hours"));
    }
}
