/// The most repairs that may be asked for again without a packet in between: those of a second of silence on a gigabit that loses a
/// hundredth; and as many of a hop that has brought nothing yet.
const MOST: u32 = 1_024;
const AT_FIRST: u32 = 128;

/// The number of repairs that may be asked for again on a hop: one for each packet that it brings, of whatever flow.
///
/// Each flow of a crowd on a slow hop repeats what it takes for lost, and each repetition is answered, even if only by a word that
/// the bytes are in line. With a bound for each flow 200 flows filled half a megabit with such words. And a neighbour that lies about
/// times, or a hop that is nearly gone, is not sent more requests than it answers.
#[derive(Debug)]
pub(super) struct Repeats(u32);

impl Default for Repeats {
    fn default() -> Self {
        Self(AT_FIRST)
    }
}

impl Repeats {
    /// The hop brought a packet of Data.
    #[inline]
    pub(super) fn on_data(&mut self) {
        self.0 = (self.0 + 1).min(MOST);
    }

    /// True if one more repair may be asked for again: then it counts.
    pub(super) fn take(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_allows_for_one() {
        let mut repeats = Repeats::default();
        let taken = |repeats: &mut Repeats| (0..).take_while(|_| repeats.take()).count();
        assert_eq!(taken(&mut repeats), AT_FIRST as usize);
        repeats.on_data();
        assert_eq!(taken(&mut repeats), 1);
        (0..2 * MOST).for_each(|_| repeats.on_data());
        assert_eq!(taken(&mut repeats), MOST as usize);
    }
}
