//! The constants of LEOTP's controller, which its paper and its authors' program set differently.

use crate::time::Duration;

/// By which hopRTT the window is divided to give a rate (eq. 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Divisor {
    /// The smoothed hopRTT, as printed.
    Smoothed,
    /// The smallest hopRTT, as in the program.
    Base,
}

/// Of which hopRTTs the smallest is taken (eq. 6 and 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BaseRtt {
    /// Single samples.
    Raw,
    /// The smoothed hopRTT, as printed and as in the program.
    Smoothed,
}

/// The constants of LEOTP's equations 6 to 10.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeotpRules {
    /// M: the queue that counts as congestion, bytes.
    pub m: u64,
    /// k: the share of the bandwidth-delay product that is left after congestion.
    pub k: f64,
    /// Packets by which the window grows per hopRTT without congestion.
    pub increment: f64,
    /// The divisor of the window.
    pub divisor: Divisor,
    /// The base round trip is the smallest of these …
    pub base_rtt: BaseRtt,
    /// … over this time.
    pub base_window: Duration,
    /// After a cut, the window stays as it is for this many hopRTTs.
    pub cut_every: u32,
    /// The window grows only while at least half of it is used, and shrinks by a tenth of a packet otherwise.
    pub validates: bool,
}

impl LeotpRules {
    /// The constants as the paper prints them. It leaves M open. It calls its algorithm one "like TCP-Vegas", whose
    /// own upper threshold is four packets of queue (Brakmo and Peterson, 1995, β = 4): M is four packets of
    /// `payload` bytes and their headers.
    pub fn printed(payload: usize) -> Self {
        Self {
            m: 4 * (payload as u64 + 56),
            k: 0.8,
            increment: 1.0,
            divisor: Divisor::Smoothed,
            base_rtt: BaseRtt::Smoothed,
            base_window: Duration::from_secs(5),
            cut_every: 1,
            validates: false,
        }
    }

    /// The constants of the authors' program (github.com/jl99888/LEOTP, `leotp.h` and `leotp.cpp`).
    pub const PROGRAM: Self = Self {
        m: 3000,
        k: 0.8,
        increment: 10.0,
        divisor: Divisor::Base,
        base_rtt: BaseRtt::Smoothed,
        base_window: Duration::from_secs(10),
        cut_every: 2,
        validates: true,
    };

    /// Whether a controller can work with them.
    pub(super) fn is_possible(&self) -> bool {
        self.k > 0.0
            && self.k <= 1.0
            && self.increment > 0.0
            && self.increment <= 1000.0
            && self.cut_every > 0
    }
}
