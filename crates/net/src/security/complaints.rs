use starhop_proto::security::SealStats;
use starhop_proto::time::{Duration, Instant};

/// Between two complaints, at least.
const NEWS: Duration = Duration::from_secs(10);

/// Datagrams that a seal refused, for the operator: each is told of once, and at most every ten seconds, because a flood must not
/// fill the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complaints {
    /// Refusals that the operator was told of.
    told: SealStats,
    /// The earliest time of the next message.
    next: Instant,
}

impl Complaints {
    /// Nothing was refused until `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { told: SealStats::default(), next: now }
    }

    /// A message about the refusals since the last one; `stats` counts those since the start, in this domain.
    pub(super) fn news(&mut self, now: Instant, stats: SealStats, domain: &str) -> Option<String> {
        if now < self.next {
            return None;
        }
        let told = std::mem::replace(&mut self.told, stats);
        let fresh = SealStats {
            foreign: stats.foreign - told.foreign,
            forged: stats.forged - told.forged,
            replayed: stats.replayed - told.replayed,
            untimely: stats.untimely - told.untimely,
            over_limit: stats.over_limit - told.over_limit,
            ..stats
        };
        let complaint = complain(fresh, domain);
        if complaint.is_some() {
            self.next = now + NEWS;
        }
        complaint
    }
}

/// A message about datagrams that were refused, if any were.
pub(super) fn complain(stats: SealStats, domain: &str) -> Option<String> {
    let count = |count: u64, what: String| (count > 0).then(|| format!("{count} {what}"));
    let seconds = stats.last_untimely_s;
    let parts = [
        count(stats.foreign, "were not sealed (does the other side run --insecure?)".to_owned()),
        count(
            stats.forged,
            format!(
                "no key of the domain `{domain}` opens (has the other side the same? \
             behind a NAT: --public)"
            ),
        ),
        count(stats.replayed, "had been taken before".to_owned()),
        count(stats.untimely, format!("were {seconds} s off: a clock is wrong, or they are a recording")),
        count(stats.over_limit, "came from more senders than there is room for".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("Datagrams refused: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn forged(forged: u64) -> SealStats {
        SealStats { forged, ..SealStats::default() }
    }

    #[test]
    fn what_was_refused_is_told_once_and_the_next_ten_seconds_later() {
        let mut complaints = Complaints::new(NOW);
        assert_eq!(complaints.news(NOW, SealStats::default(), "home"), None);
        let first = complaints.news(NOW, forged(3), "home").unwrap();
        assert!(first.contains("3 no key of the domain `home` opens"), "{first}");
        let later = NOW + NEWS;
        assert_eq!(complaints.news(later.before(Duration::from_nanos(1)), forged(5), "home"), None);
        assert!(complaints.news(later, forged(5), "home").unwrap().contains("2 no key"));
        assert_eq!(complaints.news(later + NEWS, forged(5), "home"), None);
    }

    #[test]
    fn every_kind_of_refusal_is_named() {
        let stats = SealStats {
            foreign: 1,
            forged: 2,
            replayed: 3,
            untimely: 4,
            last_untimely_s: 90,
            over_limit: 5,
            ..SealStats::default()
        };
        let told = complain(stats, "home").unwrap();
        for part in
            ["1 were not sealed", "2 no key", "3 had been taken", "4 were 90 s off", "5 came from more"]
        {
            assert!(told.contains(part), "{told}");
        }
    }
}
