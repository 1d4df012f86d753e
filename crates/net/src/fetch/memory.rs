use super::{FetchError, Watched};
use starhop_proto::consumer::Sink;
use starhop_proto::name::{ByteRange, RangeSet};
use starhop_proto::time::Instant;

/// Keeps a small object in memory.
#[derive(Debug)]
pub(super) struct MemorySink {
    bytes: Vec<u8>,
    have: RangeSet,
    limit: u64,
    is_too_long: bool,
}

impl MemorySink {
    pub(super) fn new(limit: u64) -> Self {
        Self { bytes: Vec::new(), have: RangeSet::new(), limit, is_too_long: false }
    }

    /// The object, when all `length` bytes are here.
    pub(super) fn into_bytes(self, length: u64) -> Result<Vec<u8>, String> {
        if self.is_too_long || length > self.limit {
            return Err(format!("it is longer than {} bytes", self.limit));
        }
        let is_whole = self.have.contains(ByteRange::new(0, length)) && self.bytes.len() as u64 == length;
        if is_whole { Ok(self.bytes) } else { Err("it is incomplete".to_owned()) }
    }
}

impl Sink for MemorySink {
    fn write(&mut self, _now: Instant, range: ByteRange, bytes: &[u8]) {
        if range.end > self.limit {
            self.is_too_long = true;
            return;
        }
        let (start, end) = (range.start as usize, range.end as usize);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        self.have.insert(range);
    }
}

impl Watched for MemorySink {
    fn failure(&mut self) -> Option<FetchError> {
        let problem = format!("what describes the object is longer than {} bytes", self.limit);
        self.is_too_long.then(|| FetchError::Socket(std::io::Error::other(problem)))
    }
}
