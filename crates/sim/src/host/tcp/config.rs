//! The options of a TCP connection, checked once.

use super::congestion::{Control, Tuning};
use starhop_proto::time::Duration;

/// Method of loss detection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossDetection {
    /// By time: a segment is lost if one that was sent sufficiently later has arrived (RACK-TLP, RFC 8985).
    Rack,
    /// By three later segments that arrived (RFC 6675). Lost retransmissions wait for the timer.
    DupAck,
    /// By three duplicate acknowledgements, without SACK (RFC 6582): one repair per round trip, and after a timeout
    /// everything that was under way is sent again.
    NoSack,
}

/// The unit in which acknowledgements make a window grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// The segments that an acknowledgement covers (RFC 3465).
    Segments,
    /// Acknowledgements, as in RFC 5681's formula, simulators of 2003 and Linux' Hybla: with delayed acknowledgements
    /// windows grow half as fast.
    Acks,
}

/// The settings of a connection. [`TcpConfig::new`] checks them.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpSettings {
    /// The congestion control.
    pub control: Control,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// The window at the start, segments (RFC 6928).
    pub initial_window: u32,
    /// The receiver's buffer, bytes.
    pub receive_window: u64,
    /// The receiver acknowledges every so many full segments (RFC 5681, section 4.2).
    pub ack_every: u32,
    /// The receiver acknowledges no later than this after a segment.
    pub delayed_ack: Duration,
    /// The least distance of the retransmission timeout from the smoothed round trip, as Linux counts it.
    pub min_rto: Duration,
    /// Segments leave at a rate where the control sets none, instead of as acknowledgements come.
    pub pacing: bool,
    /// Method of loss detection.
    pub loss_detection: LossDetection,
    /// The unit in which acknowledgements make windows grow.
    pub count: Count,
    /// Threshold at which the first slow start ends, segments; with `None` it ends at the first loss.
    pub initial_ssthresh: Option<u32>,
    /// Slow start ends when the round trip grows, in controls that know HyStart.
    pub hystart: bool,
    /// The client opens the connection with SYN and SYN-ACK.
    pub handshake: bool,
    /// Parameters of the control.
    pub tuning: Tuning,
    /// Bytes that a node splitting the connection holds; `None` is no limit.
    pub split_buffer: Option<u64>,
    /// Segments are sent as capable of congestion marks (RFC 3168).
    pub ecn: bool,
}

impl TcpSettings {
    /// The defaults of the Linux kernel, except for the differences that [`Self::linux`] lists.
    pub fn new(control: Control) -> Self {
        Self {
            control,
            mss: 1448,
            initial_window: 10,
            receive_window: 16_000_000,
            ack_every: 2,
            delayed_ack: Duration::from_millis(40),
            min_rto: Duration::from_millis(200),
            pacing: false,
            loss_detection: LossDetection::Rack,
            count: Count::Segments,
            initial_ssthresh: None,
            hystart: true,
            handshake: true,
            tuning: Tuning::default(),
            split_buffer: None,
            ecn: false,
        }
    }

    /// The Linux kernel, single controls included: its Hybla adds one increment per acknowledgement, however many
    /// segments that covers (net/ipv4/tcp_hybla.c), and so grows half as fast as the paper's.
    pub fn linux(control: Control) -> Self {
        let count = if control.name() == "hybla" { Count::Acks } else { Count::Segments };
        Self { count, ..Self::new(control) }
    }

    /// The simulator ns-2 as papers of 2000 to 2010 used it: NewReno's recovery without SACK, every segment
    /// acknowledged, a first window of two, a first threshold of the receiver's window, and growth per
    /// acknowledgement (tcp/tcp-newreno.cc; ns-default.tcl).
    pub fn ns2(control: Control) -> Self {
        let settings = Self::new(control);
        let window = settings.receive_window / u64::from(settings.mss);
        Self {
            initial_window: 2,
            ack_every: 1,
            loss_detection: LossDetection::NoSack,
            count: Count::Acks,
            initial_ssthresh: Some(window as u32),
            hystart: false,
            ..settings
        }
    }
}

/// An impossible setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpConfigError {
    /// Its name.
    pub field: &'static str,
    /// The rule that the setting breaks.
    pub problem: &'static str,
}

/// Settings that make a connection.
#[derive(Clone, PartialEq, Debug)]
pub struct TcpConfig(TcpSettings);

impl TcpConfig {
    /// Checks settings.
    ///
    /// # Errors
    /// The first setting with which no connection works.
    pub fn new(settings: TcpSettings) -> Result<Self, TcpConfigError> {
        let s = &settings;
        let checks: [(&'static str, bool, &'static str); 11] = [
            ("mss", (64..=60_000).contains(&s.mss), "must lie between 64 and 60000 bytes"),
            (
                "initial_window",
                (1..=1000).contains(&s.initial_window),
                "must lie between 1 and 1000 segments",
            ),
            (
                "receive_window",
                (2 * u64::from(s.mss)..=1 << 30).contains(&s.receive_window),
                "must hold two segments, and at most 1 GiB as window scaling goes (RFC 7323)",
            ),
            ("ack_every", (1..=1000).contains(&s.ack_every), "must lie between 1 and 1000 segments"),
            (
                "initial_ssthresh",
                s.initial_ssthresh.is_none_or(|segments| segments >= 2),
                "must be at least 2 segments",
            ),
            ("min_rto", s.min_rto >= Duration::from_millis(1), "must be at least 1ms"),
            (
                "rtt0",
                s.tuning.rtt0.is_none_or(|rtt0| rtt0 >= Duration::from_millis(1)),
                "must be at least 1ms",
            ),
            ("alpha", is_count(s.tuning.alpha), "must lie between 0 and 1000000 segments"),
            ("beta", is_count(s.tuning.beta), "must lie between 0 and 1000000 segments"),
            ("gamma", is_count(s.tuning.gamma), "must lie between 0 and 1000000"),
            (
                "split_buffer",
                s.split_buffer.is_none_or(|bytes| bytes >= 2 * u64::from(s.mss)),
                "must hold two segments",
            ),
        ];
        match checks.iter().find(|(_, is_fine, _)| !is_fine) {
            Some(&(field, _, problem)) => Err(TcpConfigError { field, problem }),
            None => Ok(Self(settings)),
        }
    }
}

fn is_count(value: Option<f64>) -> bool {
    value.is_none_or(|value| (0.0..=1e6).contains(&value))
}

impl std::ops::Deref for TcpConfig {
    type Target = TcpSettings;
    fn deref(&self) -> &TcpSettings {
        &self.0
    }
}
