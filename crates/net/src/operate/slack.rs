//! The memory of neighbours that are forgotten goes back to the system.

use crate::sys::heap;

/// State that must have been forgotten to be worth a walk over the heap, bytes, and as a part of the most: a busy node forgets and learns
/// all the time.
const WORTH: u64 = 1 << 20;
const PART: u64 = 4;

/// A role's memory of the state that it held.
///
/// The C library gives back the end of its heap only, and there is always something there that stays.
#[derive(Debug, Default)]
pub struct Slack {
    /// The most since memory was given back.
    most: u64,
}

impl Slack {
    /// Looks at the state that the role holds, bytes. Called about once a second.
    pub fn look(&mut self, held: u64) {
        if self.is_worth(held) {
            heap::trim();
        }
    }

    fn is_worth(&mut self, held: u64) -> bool {
        self.most = self.most.max(held);
        let is_worth = self.most - held >= WORTH.max(self.most / PART);
        if is_worth {
            self.most = held;
        }
        is_worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_each_time_that_much_was_forgotten() {
        let mut slack = Slack::default();
        let is_worth: Vec<bool> = [0, 3 * WORTH, 2 * WORTH + 1, 2 * WORTH, 2 * WORTH, 4 * WORTH, 0, 0]
            .map(|held| slack.is_worth(held))
            .to_vec();
        assert_eq!(is_worth, [false, false, false, true, false, false, true, false]);
    }

    #[test]
    fn a_node_that_forgets_a_little_of_much_is_left_alone() {
        let mut slack = Slack::default();
        let is_worth: Vec<bool> = [80, 70, 80, 61, 60].map(|held| slack.is_worth(held * WORTH)).to_vec();
        assert_eq!(is_worth, [false, false, false, false, true]);
    }
}
