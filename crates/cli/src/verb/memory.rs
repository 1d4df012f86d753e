//! `--memory`: one budget for all state that a node keeps for others, and its division.

use crate::quantity;
use anyhow::bail;
use indicatif::HumanBytes;
use starhop_net::clock;
use starhop_net::operate::Memory;
use starhop_net::security::HopSuite;
use starhop_proto::config::{Config, Settings};

/// The default budget of a node.
const DEFAULT: u64 = 512 << 20;
/// Memory beside a cache whose size is given.
const BESIDE_CACHE: u64 = 256 << 20;
/// The replay windows of neighbours get one part in this many of the memory beside the cache.
const SEAL: u64 = 4;
/// The least memory for neighbours and their flows: it holds some hundred of each.
const LEAST_STATE: u64 = 4 << 20;
/// Outstanding bytes of one neighbour: one part in this many of the cache, whose room they take in transit, or of
/// the memory if there is no cache. They are at least the bytes that one flow may ask for ahead, as far as there is room for these.
const CREDIT: u64 = 4;

/// The memory of a node.
#[derive(clap::Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Memory for all that is kept for others: neighbours, their flows, and the cache; 512MiB unless given
    #[arg(long, value_parser = quantity::size, value_name = "SIZE")]
    memory: Option<u64>,
}

/// The division of a budget, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Division {
    /// All of it.
    pub(crate) all: u64,
    pub(crate) cache: u64,
    /// For neighbours and their flows.
    pub(crate) state: u64,
    /// Memory of the seal's state about neighbours.
    pub(crate) seal: u64,
}

impl MemoryArgs {
    /// Divides the memory of a node with a cache of `cache` bytes, if that is given, and `others` bytes of other
    /// uses.
    ///
    /// # Errors
    /// It does not fit into this host, or its parts do not fit into it.
    pub(crate) fn divide(&self, cache: Option<u64>, others: u64) -> anyhow::Result<Division> {
        let usual = cache.map_or(DEFAULT, |cache| cache + BESIDE_CACHE);
        let all = self.memory.unwrap_or(usual);
        let (host, told) = (clock::memory(), HumanBytes(all));
        if all > host / 10 * 9 {
            let whose = if self.memory.is_some() { "--memory" } else { "--cache and what comes with it:" };
            bail!(
                "{whose} {told} does not fit: this host, or this program's control group, has {} of memory",
                HumanBytes(host)
            );
        }
        let cache = cache.unwrap_or(all / 2);
        let fixed = Config::cache_bound(cache) + others;
        let rest = all.saturating_sub(fixed);
        if rest < LEAST_STATE {
            bail!(
                "--memory {told} has no room for neighbours and their flows: the cache and what does not change with it take {}",
                HumanBytes(fixed)
            );
        }
        let seal = rest / SEAL;
        Ok(Division { all, cache, state: rest - seal, seal })
    }
}

impl Division {
    /// Gives the node its parts.
    pub(crate) fn apply(&self, settings: &mut Settings) {
        settings.state_bytes = self.state;
        if self.cache > 0 {
            settings.cache_bytes = self.cache;
        }
        let room = if self.cache > 0 { self.cache } else { self.all };
        settings.credit_per_neighbour = (room / CREDIT).max(settings.receive_window.min(room));
    }

    /// Gives the suite its part.
    pub(crate) fn apply_to_suite(&self, suite: &mut HopSuite) {
        suite.set_memory(self.seal);
    }

    /// The division for the operator, with the part that is in use.
    pub(crate) fn status(&self, state_used_bytes: u64) -> Memory {
        Memory { limit_bytes: self.all, state_used_bytes, state_limit_bytes: self.state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(memory: u64, cache: Option<u64>) -> anyhow::Result<Division> {
        MemoryArgs { memory: Some(memory) }.divide(cache, 0)
    }

    #[test]
    fn the_parts_are_within_the_whole() {
        for (memory, cache) in [(64 << 20, None), (100 << 20, Some(64 << 20)), (64 << 20, Some(0))] {
            let Division { all, cache, state, seal } = divide(memory, cache).unwrap();
            assert!(
                Config::cache_bound(cache) + state + seal <= all && all == memory,
                "{cache} {state} {seal}"
            );
        }
    }

    #[test]
    fn a_cache_that_leaves_no_room_is_refused_with_what_it_takes() {
        let problem = divide(64 << 20, Some(64 << 20)).unwrap_err().to_string();
        assert!(problem.contains("--memory 64.00 MiB") && problem.contains("66.00 MiB"), "{problem}");
    }

    #[test]
    fn more_than_the_host_has_is_refused() {
        assert!(divide(1 << 60, None).unwrap_err().to_string().contains("does not fit"));
    }
}
