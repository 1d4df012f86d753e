//! Proportional rate reduction (RFC 6937): how much is sent while losses are repaired.

/// One repair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Prr {
    /// The window before the reduction, segments.
    prior_cwnd: f64,
    delivered: f64,
    out: f64,
}

impl Prr {
    /// A repair begins.
    pub(crate) fn new(prior_cwnd: f64) -> Self {
        Self { prior_cwnd: prior_cwnd.max(1.0), delivered: 0.0, out: 0.0 }
    }

    /// A segment was sent.
    pub(crate) fn on_sent(&mut self) {
        self.out += 1.0;
    }

    /// The window after an acknowledgement that delivered `acked` segments. `is_clean`: it moved the cumulative
    /// acknowledgement and showed no further loss, and slow start towards the threshold is safe.
    pub(crate) fn on_ack(&mut self, acked: f64, in_flight: f64, ssthresh: f64, is_clean: bool) -> f64 {
        self.delivered += acked;
        let count = if in_flight > ssthresh {
            (self.delivered * ssthresh / self.prior_cwnd).ceil() - self.out
        } else {
            let bound = (self.delivered - self.out).max(acked) + f64::from(u8::from(is_clean));
            bound.min(ssthresh.floor() - in_flight)
        };
        // The first retransmission leaves at once.
        let least = if self.out == 0.0 { 1.0 } else { 0.0 };
        in_flight + count.max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends the segments that the window allows after each of `acks` acknowledgements of one segment.
    fn sent(prr: &mut Prr, mut in_flight: f64, ssthresh: f64, acks: usize) -> (f64, f64) {
        let mut total = 0.0;
        for _ in 0..acks {
            in_flight -= 1.0;
            let window = prr.on_ack(1.0, in_flight, ssthresh, false);
            while in_flight < window.floor() {
                in_flight += 1.0;
                total += 1.0;
                prr.on_sent();
            }
        }
        (total, in_flight)
    }

    #[test]
    fn half_the_window_leaves_evenly_over_a_round_trip() {
        let mut prr = Prr::new(100.0);
        let (first, in_flight) = sent(&mut prr, 99.0, 50.0, 49);
        assert!((24.0..=26.0).contains(&first), "{first}");
        let (_, in_flight) = sent(&mut prr, in_flight, 50.0, 50);
        assert_eq!(in_flight, 50.0);
    }

    #[test]
    fn after_heavy_losses_no_more_leaves_than_arrives() {
        let mut prr = Prr::new(100.0);
        // 80 of 100 were lost: the reduction bound holds the sender to one for one, and one more at the start.
        let (total, _) = sent(&mut prr, 20.0, 50.0, 10);
        assert_eq!(total, 10.0);
        let grown = prr.on_ack(1.0, 20.0, 50.0, true);
        assert_eq!(grown, 22.0);
    }
}
