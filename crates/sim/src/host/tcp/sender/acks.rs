//! The effects of an acknowledgement on a sender.

use super::super::config::{Count, LossDetection};
use super::super::congestion::{Ack, LossKind, Recovery};
use super::prr::Prr;
use super::scoreboard::Delivery;
use super::{Phase, Sender, Undo};
use crate::engine::TcpSegment;
use starhop_proto::time::{Duration, Instant};

impl Sender {
    pub(super) fn on_ack(&mut self, now: Instant, segment: &TcpSegment) {
        self.right_edge = self.right_edge.max(segment.ack + segment.window);
        let before = self.board.first();
        let prior_in_flight = self.board.in_flight();
        let head_sent = self.board.sent(before).map(|sent| sent.at);
        let delivery = self.deliver(segment);
        let has_advanced = self.board.first() > before;
        let rtt = self.measure(now, segment, &delivery, has_advanced);
        self.rack.on_delivery(now, &delivery, self.rtt.min());
        if segment.has_dsack {
            self.rack.on_duplicate();
        }
        let is_undone = self.undo_if_mistaken(now, segment, &delivery);
        self.end_probe(now, segment, &delivery);
        self.end_episode(now);
        if !is_undone {
            self.find_losses(now);
        }
        self.note_marks(now, segment);
        if delivery.count > 0 {
            self.tell_control(now, segment, &delivery, prior_in_flight, rtt);
        }
        self.arm_timers(now, &delivery, has_advanced, head_sent);
    }

    fn deliver(&mut self, segment: &TcpSegment) -> Delivery {
        let mss = u64::from(self.config.mss);
        let mut delivery = Delivery::default();
        let (before, end) = (self.board.first(), self.board.next());
        self.board.acknowledge(segment.ack.div_ceil(mss).min(end), &mut delivery);
        let blocks = segment.sack.as_slice().iter().skip(usize::from(segment.has_dsack));
        // Without SACK the blocks stand for duplicate acknowledgements: how many segments left the network is all that is
        // taken from them, and after a timeout nothing.
        let is_deaf = self.config.loss_detection == LossDetection::NoSack && self.has_timed_out();
        for block in blocks.filter(|_| !is_deaf) {
            self.board.sack(block.start / mss, block.end.div_ceil(mss), &mut delivery);
        }
        delivery.is_sacked_only = self.board.first() == before;
        delivery
    }

    /// Round trip of the newest segment, where there is one that says something.
    fn measure(
        &mut self,
        now: Instant,
        segment: &TcpSegment,
        delivery: &Delivery,
        has_advanced: bool,
    ) -> Option<Duration> {
        let oldest = if delivery.has_repeated { None } else { delivery.first_sent };
        let echo = segment.echo.filter(|_| has_advanced);
        let rtt = now.since(oldest.or(delivery.first_sacked).or(echo)?);
        let newest = delivery.last_sent.map_or(rtt, |sent| now.since(sent));
        self.rtt.on_sample(now, rtt, newest);
        Some(newest)
    }

    /// A repair that was not needed: the acknowledgement that covers it answers a segment older than the repair,
    /// so the original arrived (Eifel, RFC 3522).
    fn undo_if_mistaken(&mut self, now: Instant, segment: &TcpSegment, delivery: &Delivery) -> bool {
        let (Some(repeat), Some(echo)) = (delivery.first_repeat, segment.echo) else { return false };
        let Some(Undo { cwnd, ssthresh }) = self.undo else { return false };
        // Whether it was right or a mistake, the episode is judged by its first repair.
        self.undo = None;
        let is_known = self.config.loss_detection != LossDetection::NoSack;
        if self.phase == Phase::Open || echo >= repeat || !is_known {
            return false;
        }
        self.board.find_all();
        self.control.on_undo(now, cwnd, ssthresh);
        self.stats.undone += 1;
        self.phase = Phase::Open;
        true
    }

    /// The probe was answered. One that was a repetition and was not reported as such repaired a loss (RFC 8985,
    /// section 7.4).
    fn end_probe(&mut self, now: Instant, segment: &TcpSegment, delivery: &Delivery) {
        let Some(probe) = self.probe.filter(|probe| self.board.first() >= probe.end) else { return };
        if !probe.is_repeat || segment.has_dsack {
            self.probe = None;
        } else if self.board.first() > probe.end {
            self.probe = None;
            if self.phase == Phase::Open {
                let loss = self.loss(now, LossKind::Acks);
                self.control.on_loss(&loss);
                self.control.on_recovered(now);
            }
        } else if delivery.count == 0 {
            self.probe = None;
        }
    }

    fn end_episode(&mut self, now: Instant) {
        let high = match self.phase {
            Phase::Open => return,
            Phase::Recovery { high, .. } | Phase::Loss { high } => high,
        };
        if self.board.first() >= high {
            let is_own = self.control.recovery() == Recovery::Own;
            if let Phase::Recovery { high, .. } = &mut self.phase
                && is_own
                && self.board.broken() > 0
            {
                // Episodes without a pause between them are one to a control that counts losses itself (as in Linux' BBR).
                *high = self.board.next();
                return;
            }
            self.phase = Phase::Open;
            self.undo = None;
            self.rack.on_recovered();
            self.control.on_recovered(now);
        }
    }

    /// Looks for losses, and begins an episode when there are any.
    pub(super) fn find_losses(&mut self, now: Instant) {
        let (lost, repeats) = (self.board.lost_total(), self.board.lost_repeats());
        let in_flight = f64::from(self.board.in_flight());
        self.timers.reordering = None;
        match self.config.loss_detection {
            LossDetection::DupAck => self.board.lose_below_three(),
            LossDetection::NoSack => self.lose_first_of_hole(),
            LossDetection::Rack => {
                let is_recovering = self.phase != Phase::Open;
                let (min_rtt, srtt) = (self.rtt.min(), self.rtt.srtt().unwrap_or_default());
                let sacked = self.board.sacked_count();
                let (newest, patience) = self.rack.limits(is_recovering, sacked, min_rtt, srtt);
                self.timers.reordering = self.board.lose_older(newest, patience, now);
            }
        }
        let found = self.board.lost_total() - lost;
        self.untold_losses += found;
        // A repair that is lost after a timeout is congestion anew (as in Linux).
        let is_lost_again = matches!(self.phase, Phase::Loss { .. }) && self.board.lost_repeats() > repeats;
        // A segment that was sent during a repair, is lost and has not arrived when the repair ends begins a new episode (as in
        // Linux).
        let is_left = self.phase == Phase::Open && self.board.broken() > 0;
        if is_left || (found > 0 && is_lost_again) {
            self.begin_recovery(now, LossKind::Acks, in_flight);
        }
    }

    fn has_timed_out(&self) -> bool {
        matches!(self.phase, Phase::Loss { .. })
    }

    /// Three duplicates condemn the first segment, and a partial acknowledgement the next one (RFC 6582, section 3.2).
    fn lose_first_of_hole(&mut self) {
        let is_lost = match self.phase {
            Phase::Open => self.board.sacked_count() >= 3,
            Phase::Recovery { .. } => true,
            Phase::Loss { .. } => false,
        };
        if is_lost {
            self.board.lose_first();
        }
    }

    fn begin_recovery(&mut self, now: Instant, kind: LossKind, in_flight: f64) {
        let (cwnd, ssthresh) = (self.control.cwnd(), self.control.ssthresh());
        if self.phase == Phase::Open {
            self.undo = Some(Undo { cwnd, ssthresh });
        }
        self.stats.recoveries += 1;
        self.timers.probe = None;
        let loss = super::Loss { in_flight, ..self.loss(now, kind) };
        self.control.on_loss(&loss);
        let window = f64::from(self.board.in_flight());
        self.phase = Phase::Recovery { high: self.board.next(), prr: Prr::new(cwnd), window };
        if kind == LossKind::Acks {
            // The first repair leaves at once (RFC 5681, section 3.2, step 3).
            self.must_send = true;
        }
    }

    /// Congestion marks reduce the window once per round trip, as a loss does (RFC 3168, section 6.1.2).
    fn note_marks(&mut self, now: Instant, segment: &TcpSegment) {
        if segment.marks > self.marks && self.phase == Phase::Open {
            self.begin_recovery(now, LossKind::Mark, f64::from(self.board.in_flight()));
        }
    }

    fn tell_control(
        &mut self,
        now: Instant,
        segment: &TcpSegment,
        delivery: &Delivery,
        prior_in_flight: u32,
        rtt: Option<Duration>,
    ) {
        let lost_total = self.board.lost_total();
        let (is_round_start, sample) = self.meter.on_delivery(now, delivery, lost_total, self.rtt.min());
        let marked = segment.marks.saturating_sub(self.marks);
        self.marks = self.marks.max(segment.marks);
        let lost = std::mem::take(&mut self.untold_losses);
        let (cwnd, ssthresh) = (self.control.cwnd(), self.control.ssthresh());
        // Between the first SACK block and the verdict the window stands still (Linux's state of disorder).
        let is_unclear = self.phase == Phase::Open && delivery.is_sacked_only;
        let acked = f64::from(delivery.count);
        let counted = match self.config.count {
            Count::Segments => acked,
            Count::Acks => 1.0,
        };
        let in_flight = f64::from(self.board.in_flight());
        self.control.on_ack(&Ack {
            now,
            acked,
            counted,
            lost: lost as f64,
            prior_in_flight: f64::from(prior_in_flight),
            in_flight,
            delivered: self.meter.delivered() as f64,
            rtt,
            srtt: self.rtt.srtt().unwrap_or_default(),
            min_rtt: self.rtt.min(),
            is_round_start,
            is_cwnd_limited: !is_unclear && self.limit.may_grow(cwnd, cwnd < ssthresh),
            is_recovering: matches!(self.phase, Phase::Recovery { .. }),
            marked: marked as f64,
            sample,
            xcp_feedback: segment.xcp.map(|xcp| xcp.feedback_bytes / self.xcp_packet()),
        });
        let ssthresh = self.control.ssthresh();
        if let Phase::Recovery { prr, window, .. } = &mut self.phase {
            *window = prr.on_ack(acked, in_flight, ssthresh, !delivery.is_sacked_only && lost == 0);
        }
    }

    fn arm_timers(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        has_advanced: bool,
        head_sent: Option<Instant>,
    ) {
        if self.board.outstanding() == 0 {
            self.timers.retransmission = None;
            self.timers.probe = None;
        } else if has_advanced
            || delivery.first_sacked.is_some_and(|sent| head_sent.is_none_or(|head| sent < head))
        {
            self.timers.retransmission = Some(now + self.rtt.rto());
            self.arm_probe(now);
        } else if self.board.sacked_count() > 0 {
            self.timers.probe = None;
        }
        let (start, end) = self.extent(self.board.next());
        let is_blocked = self.board.outstanding() == 0 && end > start && end > self.right_edge;
        self.timers.persist = is_blocked.then(|| self.timers.persist.unwrap_or(now + self.rtt.rto()));
    }
}
