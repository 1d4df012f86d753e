//! Configuration: [`Settings`] as a user writes them, checked once into a [`Config`] that cannot be wrong.

mod leotp;
mod mechanisms;

pub use leotp::{BaseRtt, Divisor, LeotpRules};
pub use mechanisms::Mechanisms;

use crate::time::Duration;
use crate::units::Rate;
use core::fmt;
use core::ops::Deref;

/// A named set of mechanisms. Selecting one selects values of [`Settings`]; nothing else asks for its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// The best of all: overlapping Interests, repeated repairs, one controller per link.
    #[default]
    Starhop,
    /// LEOTP as its paper prints it: one packet per Interest, Void Packet Headers, one repair per hole, eq. 6-10.
    Leotp,
    /// LEOTP as its authors' program runs it: the same with other constants.
    LeotpCode,
    /// INTCP as published: repairs that travel one hop, a controller per link.
    Intcp,
    /// INTCP without its cache: every request goes to the Producer.
    IntcpUni,
}

/// The rate controller that decides how fast a hop may send.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Controller {
    /// Ours: holds a small queue at the measured capacity.
    Starhop,
    /// LEOTP equations 6 to 8 with these constants.
    Leotp(LeotpRules),
    /// A reading of INTCP's rate-based controller, of which only inputs and goals are published.
    Intcp,
    /// The rate that the operator says the link has.
    Fixed(Rate),
    /// RFC 5681 between two neighbours.
    Reno,
    /// RFC 9438 between two neighbours.
    Cubic,
}

/// The occasions on which Void Packet Headers ([`crate::wire::Notice`]) are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notices {
    /// Never (INTCP).
    Never,
    /// Ahead of every packet that skips bytes (LEOTP).
    OnSkip,
    /// Only as the answer to a repair request for bytes that are on their way, and after the last packet before a
    /// pause: the hop's counter already tells the downstream which hop lost which packets.
    OnRequest,
}

/// Everything that can be set about a node. Start from [`Profile::settings`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Largest payload of a Data packet, bytes.
    pub payload: usize,
    /// The rate controller of the hop towards the upstream.
    pub controller: Controller,
    /// One controller and grant per flow (LEOTP) instead of per link.
    pub per_flow_control: bool,
    /// The Consumer alone controls the rate, by how much it has asked for and not received (LEOTP eq. 6 to 8 over the
    /// whole path); for hops whose own controller does not hold anything back.
    pub end_to_end_control: bool,
    /// hopRTT assumed before the first measurement.
    pub rtt0: Duration,
    /// Packets that a Responder may send before the first feedback.
    pub initial_window: u32,
    /// A hole is a loss after this many later packets of the same hop …
    pub reorder_packets: u32,
    /// … which rises with the reordering that the hop's counter shows, up to this many …
    pub reorder_limit: u32,
    /// … or after this time.
    pub reorder_time: Duration,
    /// Mechanisms of Starhop beyond the published protocols.
    pub mechanisms: Mechanisms,
    /// Number of times that one hop asks for a lost range before it leaves the range to the Consumer.
    pub repair_tries: u32,
    /// Number of hops that a repair request may travel; 1 is "the neighbour only" (INTCP).
    pub repair_hop_limit: u8,
    /// The occasions on which Notices are sent.
    pub notices: Notices,
    /// Fresh packets that one more Interest asks for.
    pub interest_step: u32,
    /// The most packets that one Interest names: beyond the step it repeats earlier requests.
    pub interest_span: u32,
    /// The most bytes that one Interest may name, ours or a neighbour's: the bound of the traffic that a small
    /// packet can cause.
    pub request_limit: u64,
    /// Bytes of cache; also the room for data in transit.
    pub cache_bytes: u64,
    /// Whether requests are answered from the cache.
    pub cache_answers: bool,
    /// Backpressure's target for a flow's queue in a relay (BLtar of eq. 9), bytes …
    pub buffer_target: u64,
    /// … or the bytes that the next hop takes in this time, if that is more.
    pub buffer_target_time: Duration,
    /// Bytes that a Consumer asks for beyond the capacity of the path: relays before a slow or interrupted hop
    /// store them, and serve them when it is fast again (INTCP, section on link multiplexing). `buffer_target` has
    /// to allow as much.
    pub store_ahead: u64,
    /// The most bytes a Consumer has asked for and not received.
    pub receive_window: u64,
    /// The most bytes one neighbour may have asked for, over all flows, and not received.
    pub credit_per_neighbour: u64,
    /// Bytes of memory for the state of neighbours and of flows that they ask for. No neighbour gets more of it than stays
    /// free.
    pub state_bytes: u64,
    /// Names that nobody has: so many may one neighbour ask for per second, on average, and at once. They cost every node
    /// up to the Producer a packet each way.
    pub missed_names_per_second: u32,
    /// The most disjoint ranges that one neighbour waits for in one flow.
    pub max_ranges_per_flow: usize,
    /// The highest rate that a neighbour can grant; a higher grant counts as this one.
    pub max_rate: Rate,
    /// The highest rate that this node grants to an upstream, whatever the controller computes.
    pub rate_limit: Rate,
    /// Consumer's timeout before the first measurement.
    pub initial_rto: Duration,
    /// Lower bound of the Consumer's timeout (RFC 6298 section 2.4).
    pub min_rto: Duration,
    /// Upper bound of the back-off: how long after an outage the Consumer finds out that it is over. A path
    /// whose own timeout is longer is asked once per timeout.
    pub max_rto: Duration,
    /// State of a flow that carried nothing for this long is dropped, although somebody waits for it.
    pub flow_idle: Duration,
}

impl Profile {
    /// Every profile by its name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("starhop", Self::Starhop),
        ("leotp", Self::Leotp),
        ("leotp-code", Self::LeotpCode),
        ("intcp", Self::Intcp),
        ("intcp-uni", Self::IntcpUni),
    ];

    /// The profile of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, profile)| profile)
    }

    /// The settings of the profile.
    pub fn settings(self) -> Settings {
        match self {
            Self::Starhop => Self::starhop(),
            Self::Leotp => Settings {
                per_flow_control: true,
                reorder_packets: 5,
                reorder_limit: 5,
                notices: Notices::OnSkip,
                ..Self::published()
            },
            // Its holes are confirmed by 10 ms alone; nothing that stands in the program is in the paper's way.
            Self::LeotpCode => Settings {
                controller: Controller::Leotp(LeotpRules::PROGRAM),
                reorder_packets: 512,
                reorder_limit: 512,
                buffer_target: 5 * 1350,
                initial_rto: Duration::from_secs(10),
                ..Self::Leotp.settings()
            },
            Self::Intcp => Settings {
                controller: Controller::Intcp,
                repair_hop_limit: 1,
                notices: Notices::Never,
                buffer_target: 7 * 1350,
                initial_rto: Duration::from_millis(200),
                min_rto: Duration::from_millis(100),
                ..Self::published()
            },
            // Without a cache a neighbour has nothing to repair from: requests travel to the Producer.
            Self::IntcpUni => Settings {
                cache_answers: false,
                repair_hop_limit: crate::wire::Interest::DEFAULT_HOP_LIMIT,
                ..Self::Intcp.settings()
            },
        }
    }

    fn starhop() -> Settings {
        Settings {
            payload: 1350,
            controller: Controller::Starhop,
            per_flow_control: false,
            end_to_end_control: false,
            rtt0: Duration::from_millis(25),
            initial_window: 32,
            reorder_packets: 2,
            reorder_limit: 512,
            reorder_time: Duration::from_millis(10),
            mechanisms: Mechanisms::ALL,
            repair_tries: 8,
            repair_hop_limit: crate::wire::Interest::DEFAULT_HOP_LIMIT,
            notices: Notices::OnRequest,
            interest_step: 12,
            interest_span: 48,
            request_limit: 64 * 1024,
            cache_bytes: 4 * 1024 * 1024,
            cache_answers: true,
            buffer_target: 1350,
            buffer_target_time: Duration::from_micros(1_350),
            store_ahead: 0,
            receive_window: 128 * 1024 * 1024,
            credit_per_neighbour: 256 * 1024 * 1024,
            state_bytes: 128 * 1024 * 1024,
            missed_names_per_second: 200,
            max_ranges_per_flow: 16_384,
            max_rate: Rate::from_mbps(100_000),
            rate_limit: Rate::UNLIMITED,
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_millis(600),
            flow_idle: Duration::from_secs(30),
        }
    }

    /// Both papers ask for each packet by itself and for each hole once; no Interest repeats another.
    fn published() -> Settings {
        Settings {
            controller: Controller::Leotp(LeotpRules::printed(Self::starhop().payload)),
            mechanisms: Mechanisms::NONE,
            repair_tries: 1,
            // RFC 6298 as the papers cite it. Its bounds are those of LEOTP's program: 20 ms and 60 s.
            min_rto: Duration::from_millis(20),
            max_rto: Duration::from_secs(60),
            reorder_packets: 3,
            reorder_limit: 3,
            interest_step: 1,
            interest_span: 1,
            buffer_target: 20 * 1350,
            buffer_target_time: Duration::ZERO,
            ..Self::starhop()
        }
    }
}

/// A setting that cannot work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The field of [`Settings`].
    pub field: &'static str,
    /// The fault, and the right form.
    pub problem: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.field, self.problem)
    }
}

impl core::error::Error for ConfigError {}

/// [`Settings`] that were checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    settings: Settings,
    /// Bytes that a seal adds to a packet, which the wire carries, too.
    seal_overhead: u64,
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// Names the first field that cannot work.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        let s = &settings;
        let rules: [(bool, &str, &str); 17] = [
            ((64..=60_000).contains(&s.payload), "payload", "must lie between 64 and 60000 bytes"),
            (s.initial_window > 0, "initial_window", "must be at least 1 packet"),
            (
                (1..=512).contains(&s.reorder_packets) && s.reorder_packets <= s.reorder_limit,
                "reorder_packets",
                "must lie between 1 and reorder_limit, and that at most at 512",
            ),
            (s.interest_step > 0, "interest_step", "must be at least 1 packet"),
            (s.interest_span >= s.interest_step, "interest_span", "must not be smaller than interest_step"),
            (s.cache_bytes >= 256 * 1024, "cache_bytes", "must be at least 256 KiB, the data in transit"),
            (
                u64::from(s.interest_span) * s.payload as u64 <= s.request_limit,
                "request_limit",
                "must hold an Interest of interest_span packets",
            ),
            (s.receive_window >= s.request_limit, "receive_window", "must not be smaller than request_limit"),
            (s.state_bytes >= 64 * 1024, "state_bytes", "must be at least 64 KiB, some neighbours and flows"),
            (
                (1..=1_000_000_000).contains(&s.missed_names_per_second),
                "missed_names_per_second",
                "must lie between 1 and 10^9",
            ),
            (s.max_ranges_per_flow > 0, "max_ranges_per_flow", "must be at least 1"),
            (s.max_rate != Rate::ZERO, "max_rate", "cannot be 0: nothing would ever be sent"),
            (s.rate_limit != Rate::ZERO, "rate_limit", "cannot be 0: nothing would ever arrive"),
            (s.repair_hop_limit > 0, "repair_hop_limit", "must be at least 1"),
            (
                !s.min_rto.is_zero() && s.min_rto <= s.max_rto,
                "min_rto",
                "must be above 0 and at most max_rto",
            ),
            (
                s.controller != Controller::Fixed(Rate::ZERO),
                "controller",
                "cannot be a fixed rate of 0: nothing would ever be sent",
            ),
            (
                !matches!(s.controller, Controller::Leotp(rules) if !rules.is_possible()),
                "controller",
                "needs k above 0 and at most 1, an increment above 0 and at most 1000, and cut_every of at least 1",
            ),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            Some(&(_, field, problem)) => Err(ConfigError { field, problem }),
            None => Ok(Self { settings, seal_overhead: 0 }),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { settings: Profile::default().settings(), seal_overhead: 0 }
    }
}

impl Config {
    /// The same for packets that `suite` seals.
    #[must_use]
    pub fn for_suite(self, suite: &impl crate::wire::Suite) -> Self {
        Self { seal_overhead: suite.overhead() as u64, ..self }
    }

    /// The same for a node that asks for others, as much as they ask it for: however much room a link shows, no more comes.
    #[must_use]
    pub fn for_others(mut self) -> Self {
        self.settings.mechanisms.chirps = false;
        self
    }

    /// Bytes that a datagram is longer than its packet.
    pub fn seal_overhead(&self) -> u64 {
        self.seal_overhead
    }

    /// Bytes of memory that the state of a node can take, whatever its neighbours do: its cache, its flows, and its
    /// records of requests. An upper estimate; the memory of the driver and the seal comes on top.
    pub fn memory_bound(&self) -> u64 {
        Self::cache_bound(self.cache_bytes) + self.state_bytes + self.parity_bound()
    }

    /// Bytes of memory that a cache of `bytes` takes.
    pub fn cache_bound(bytes: u64) -> u64 {
        // A block's bytes and its entry.
        const BLOCK_ENTRY: u64 = 128;
        bytes + bytes / crate::cache::BLOCK * BLOCK_ENTRY
    }

    /// Bytes of memory that the codes of hops take at most.
    pub fn parity_bound(&self) -> u64 {
        // A kept packet's header and entry.
        const PACKET: u64 = 64;
        crate::hop::parity::memory_bound(self.payload as u64 + PACKET)
    }

    /// The same with another controller.
    ///
    /// # Errors
    /// When the controller cannot work.
    pub fn with_controller(&self, controller: Controller) -> Result<Self, ConfigError> {
        let config = Self::new(Settings { controller, ..self.settings.clone() })?;
        Ok(Self { seal_overhead: self.seal_overhead, ..config })
    }

    /// Fresh bytes that one more Interest asks for.
    pub fn step_bytes(&self) -> u64 {
        u64::from(self.interest_step) * self.payload as u64
    }

    /// The most bytes that one Interest of ours names.
    pub fn span_bytes(&self) -> u64 {
        u64::from(self.interest_span) * self.payload as u64
    }
}

impl Deref for Config {
    type Target = Settings;
    fn deref(&self) -> &Settings {
        &self.settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_a_valid_configuration() {
        for (_, profile) in Profile::ALL {
            assert!(Config::new(profile.settings()).is_ok(), "{profile:?}");
        }
    }

    #[test]
    fn the_published_profiles_have_none_of_our_mechanisms_whatever_their_tries() {
        for (_, profile) in Profile::ALL.into_iter().skip(1) {
            assert_eq!(profile.settings().mechanisms, Mechanisms::NONE, "{profile:?}");
        }
        assert_eq!(Profile::Starhop.settings().mechanisms, Mechanisms::ALL);
    }

    #[test]
    fn an_impossible_setting_is_refused_by_name() {
        let settings = Settings { interest_span: 1, ..Profile::Starhop.settings() };
        assert_eq!(Config::new(settings).map_err(|e| e.field), Err("interest_span"));
    }
}
