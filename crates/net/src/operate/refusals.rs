//! Packets that the kernel refused to send, for the operator: a node whose packets do not fit its path looks idle
//! otherwise.

use crate::DriverStats;

/// Number of refusals that the operator was told of.
#[derive(Debug, Default)]
pub struct Refusals {
    told: u64,
}

impl Refusals {
    /// A message to the operator if the socket's counters show a refusal since the last call.
    pub fn news(&mut self, socket: DriverStats) -> Option<String> {
        let fresh = socket.tx_refused.saturating_sub(std::mem::replace(&mut self.told, socket.tx_refused));
        let errno = socket.last_errno.filter(|_| fresh > 0)?;
        let cure = match errno {
            libc::EMSGSIZE => {
                "they are larger than the path takes: this node finds the length that passes by itself, within \
                 seconds of each new path; --options payload=1100 spares that"
            }
            libc::EPERM | libc::EACCES => "the firewall of this host forbids them",
            libc::ENETUNREACH | libc::EHOSTUNREACH => "this host has no route to a neighbour",
            _ => "see `starhop doctor NEIGHBOUR:PORT`",
        };
        let said = std::io::Error::from_raw_os_error(errno);
        Some(format!("the kernel refused to send {fresh} packets ({said}): {cure}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_told_once_with_what_to_do() {
        let mut refusals = Refusals::default();
        let socket =
            |tx_refused, errno| DriverStats { tx_refused, last_errno: Some(errno), ..DriverStats::default() };
        assert_eq!(refusals.news(socket(0, libc::ECONNREFUSED)), None);
        let told = refusals.news(socket(7, libc::EMSGSIZE)).unwrap();
        assert!(told.contains("7 packets") && told.contains("payload=1100"), "{told}");
        assert_eq!(refusals.news(socket(7, libc::EMSGSIZE)), None);
        assert!(refusals.news(socket(8, libc::EPERM)).unwrap().contains("1 packets"));
    }
}
