//! Congestion controls: one file each, behind one trait.
//!
//! The sender owns the scoreboard, loss detection, recovery and timers, and reports events to its control. The
//! control owns the window. Windows are counted in segments of MSS bytes and may be fractions, as in the papers and
//! RFCs that define the controls; the sender rounds down when it sends.

mod backlog;
mod bbr;
mod bbr3;
mod bbr3_bounds;
mod bbr_parts;
mod cubic;
mod fast;
#[cfg(test)]
pub(crate) mod harness;
mod hybla;
mod hybla_veno;
mod hystart;
mod newreno;
mod tahoe;
mod vegas;
mod veno;
mod vivace;
mod vivace_interval;
mod westwood;
mod window;
mod xcp;

pub use bbr::Bbr;
pub use bbr3::Bbr3;
pub use cubic::Cubic;
pub use fast::{Fast, FastOptions};
pub use hybla::{Hybla, HyblaOptions};
pub use hybla_veno::{HyblaVeno, HyblaVenoOptions};
pub use hystart::HyStart;
pub use newreno::NewReno;
pub use tahoe::Tahoe;
pub use vegas::{Vegas, VegasOptions};
pub use veno::{Veno, VenoOptions};
pub use vivace::{Vivace, VivaceOptions};
pub use westwood::Westwood;
pub use window::{Window, WindowControl};
pub use xcp::{WithXcp, Xcp};

use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// The smallest window after a reduction, segments (RFC 5681, section 3.1, equation 4).
pub const LEAST_SSTHRESH: f64 = 2.0;

/// Makes a control at the start of a connection.
type Construct = fn(&Setup) -> Box<dyn CongestionControl>;

/// Every control by the name that scenarios use.
const CONTROLS: &[(&str, Construct)] = &[
    ("newreno", |setup| Box::new(NewReno::new(setup))),
    ("tahoe", |setup| Box::new(Tahoe::new(setup))),
    ("cubic", |setup| Box::new(Cubic::new(setup))),
    ("hybla", |setup| Box::new(Hybla::new(setup, HyblaOptions::of(&setup.tuning)))),
    ("veno", |setup| Box::new(Veno::new(setup, VenoOptions::of(&setup.tuning)))),
    ("hybla-veno", |setup| Box::new(HyblaVeno::new(setup, HyblaVenoOptions::of(&setup.tuning)))),
    ("vegas", |setup| Box::new(Vegas::new(setup, VegasOptions::of(&setup.tuning)))),
    ("westwood", |setup| Box::new(Westwood::new(setup))),
    ("fast", |setup| Box::new(Fast::new(setup, FastOptions::of(&setup.tuning)))),
    ("bbr", |setup| Box::new(Bbr::new(setup))),
    ("bbr3", |setup| Box::new(Bbr3::new(setup))),
    ("vivace", |setup| Box::new(Vivace::new(setup, VivaceOptions::default()))),
    ("pcc", |setup| Box::new(Vivace::new(setup, VivaceOptions::default()))),
    ("xcp", |setup| Box::new(Xcp::new(setup))),
    ("cubic-xcp", |setup| Box::new(WithXcp::new(setup, Cubic::new(setup)))),
    ("fast-xcp", |setup| Box::new(WithXcp::new(setup, Fast::new(setup, FastOptions::of(&setup.tuning))))),
];

/// The choice of a congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control(usize);

impl Control {
    /// The control of this name.
    pub fn named(name: &str) -> Option<Self> {
        CONTROLS.iter().position(|(known, _)| *known == name).map(Self)
    }

    /// The names of all controls.
    pub fn names() -> impl Iterator<Item = &'static str> {
        CONTROLS.iter().map(|(name, _)| *name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        CONTROLS[self.0].0
    }

    /// A control at the start of a connection.
    pub fn construct(self, setup: &Setup) -> Box<dyn CongestionControl> {
        CONTROLS[self.0].1(setup)
    }
}

/// Parameters of controls. A control uses its default for a parameter that is not given, and ignores the parameters
/// of other controls.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tuning {
    /// The round trip of the reference connection (Hybla, Hybla-Veno).
    pub rtt0: Option<Duration>,
    /// Queued segments: the least of Vegas, the aim of FAST.
    pub alpha: Option<f64>,
    /// Queued segments: the most of Vegas, those of Veno that mean congestion, β1 of Hybla-Veno.
    pub beta: Option<f64>,
    /// Vegas' bound of slow start in segments, FAST's step in (0, 1].
    pub gamma: Option<f64>,
}

/// The facts that a connection gives its control at the start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Bytes that a full segment adds to its payload on the wire (IP, TCP and options).
    pub overhead: u32,
    /// The window that it begins with, segments (RFC 6928).
    pub initial_window: f64,
    /// Threshold at which its first slow start ends, segments; infinite if the first loss ends it.
    pub initial_ssthresh: f64,
    /// The peer's receive window, segments.
    pub receive_window: f64,
    /// The user's settings in place of the control's defaults.
    pub tuning: Tuning,
    /// Slow start ends when the round trip grows, in controls that know HyStart.
    pub hystart: bool,
    /// Seed of controls that draw random numbers.
    pub seed: u64,
}

/// Delivery rate sample of an acknowledgement (draft-ietf-ccwg-bbr, section 4.1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateSample {
    /// Segments delivered over `interval`.
    pub delivered: f64,
    /// The longer of the time they took to be sent and to be acknowledged.
    pub interval: Duration,
    /// Segments delivered in the whole connection when the newest acknowledged segment was sent.
    pub prior_delivered: f64,
    /// Segments in flight when that segment was sent.
    pub tx_in_flight: f64,
    /// Segments lost since that segment was sent.
    pub lost: f64,
    /// The application had too little to send.
    pub is_app_limited: bool,
}

/// An acknowledgement that covers something new, in the sender's words.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ack {
    /// Time of its arrival.
    pub now: Instant,
    /// Segments newly covered, cumulatively or selectively.
    pub acked: f64,
    /// Segments by which it makes a window grow: `acked`, or 1 if acknowledgements are counted.
    pub counted: f64,
    /// Segments that it showed to be lost.
    pub lost: f64,
    /// Segments in flight before it, and after it.
    pub prior_in_flight: f64,
    /// After it: sent, neither acknowledged nor deemed lost.
    pub in_flight: f64,
    /// Segments delivered in the whole connection.
    pub delivered: f64,
    /// Round trip of the newest segment that it covers, where that was sent once or has a timestamp.
    pub rtt: Option<Duration>,
    /// Smoothed round trip (RFC 6298).
    pub srtt: Duration,
    /// The shortest round trip of the connection.
    pub min_rtt: Duration,
    /// The first acknowledgement of something sent after the last one for which this was true: once per round trip.
    pub is_round_start: bool,
    /// The window, not the application, held the sender back.
    pub is_cwnd_limited: bool,
    /// The sender repairs losses: most controls leave the window alone.
    pub is_recovering: bool,
    /// Segments whose arrival the peer reported with a congestion mark (RFC 3168).
    pub marked: f64,
    /// Delivery rate, where the acknowledged segments allow one.
    pub sample: Option<RateSample>,
    /// Change of the window that the routers allow, segments (XCP).
    pub xcp_feedback: Option<f64>,
}

/// Cause by which a loss was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// Acknowledgements showed it (three duplicates, SACK, RACK): fast recovery begins.
    Acks,
    /// The retransmission timer ran out: everything in flight is deemed lost.
    Timeout,
    /// A congestion mark in place of a loss.
    Mark,
}

/// The beginning of a loss episode: at most one per window of data, and every timeout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loss {
    /// Time at which the loss was found.
    pub now: Instant,
    /// Cause by which it was found.
    pub kind: LossKind,
    /// Segments in flight before it was found.
    pub in_flight: f64,
    /// Smoothed and shortest round trip.
    pub srtt: Duration,
    /// The shortest round trip of the connection.
    pub min_rtt: Duration,
}

/// The rule that decides which segments may leave during a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// Proportional rate reduction towards `ssthresh` (RFC 6937), then `cwnd = ssthresh`.
    Proportional,
    /// No fast recovery: the control's window applies at once (Tahoe).
    Immediate,
    /// The control counts losses itself and its window holds at all times (BBR, Vivace, XCP).
    Own,
}

/// A congestion control of a sender.
///
/// Order of calls: `on_ack` for every acknowledgement that covers something new; `on_loss` when an episode
/// begins, before the `on_ack` of the acknowledgement that showed it; `on_recovered` when everything that was in flight
/// at its beginning is covered.
pub trait CongestionControl: std::fmt::Debug {
    /// Something was acknowledged.
    fn on_ack(&mut self, ack: &Ack);

    /// A loss episode begins.
    fn on_loss(&mut self, loss: &Loss);

    /// The timer ran out a second time before the repaired segments were covered, or in the middle of a repair. The
    /// threshold was lowered already (RFC 5681, section 3.1); only the window starts again.
    fn on_repeated_timeout(&mut self, loss: &Loss) {
        self.on_loss(loss);
    }

    /// The last episode was a mistake: nothing had been lost, only late. The window and the threshold before it.
    fn on_undo(&mut self, _now: Instant, _cwnd: f64, _ssthresh: f64) {}

    /// The episode is over. The sender has set nothing; the control decides the window.
    fn on_recovered(&mut self, _now: Instant) {}

    /// A segment was sent; `in_flight` counts it.
    fn on_sent(&mut self, _now: Instant, _in_flight: f64) {}

    /// The time of [`Self::poll_timeout`] has come.
    fn on_timer(&mut self, _now: Instant) {}

    /// Time of the next call of [`Self::on_timer`], for monitor intervals and probes.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The congestion window, segments.
    fn cwnd(&self) -> f64;

    /// The slow-start threshold, segments; infinite before the first loss.
    fn ssthresh(&self) -> f64 {
        f64::INFINITY
    }

    /// Wire rate at which segments leave, if the control sets one. Otherwise a sender with pacing computes it from
    /// the window and the smoothed round trip.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// The rule that decides which segments may leave during a repair.
    fn recovery(&self) -> Recovery {
        Recovery::Proportional
    }

    /// The segments carry XCP's congestion header, and this is the window change that the sender wishes for over
    /// the next round trip, segments.
    fn xcp_demand(&self, _srtt: Duration) -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests;
