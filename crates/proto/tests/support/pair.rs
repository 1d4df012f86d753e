//! A pair of gateways that know each other by numbers.

use starhop_proto::gateway::{Bond, PlainKey};
use starhop_proto::name::FlowId;
use starhop_proto::time::{Duration, Instant};

pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000);

/// Names and keys of a pair, by their numbers; `side` says which of the two this is.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) side: u8,
}

impl Bond for Pair {
    type Key = PlainKey;

    fn hello(&self, of_us: bool) -> [u8; 8] {
        [if of_us { self.side } else { 1 - self.side }; 8]
    }

    fn trunk(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, PlainKey) {
        let side = if ours { self.side } else { 1 - self.side };
        let mut id = [side; 16];
        id[..8].copy_from_slice(&(producer ^ asker.rotate_left(17)).to_be_bytes());
        (FlowId(id), PlainKey(producer ^ asker))
    }

    fn segments(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, PlainKey) {
        let (mut flow, key) = self.trunk(ours, producer, asker);
        flow.0[15] |= 0x40;
        (flow, key)
    }

    fn packets(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, PlainKey) {
        let (mut flow, key) = self.trunk(ours, producer, asker);
        flow.0[15] |= 0x80;
        (flow, key)
    }
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
