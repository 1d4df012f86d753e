use super::in_order::{InOrder, Waits};
use super::target::Target;
use super::writer::{Chunk, Ending, Writer};
use super::{FetchError, Watched};
use crate::trace::Trace;
use starhop_proto::consumer::Sink;
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::time::Instant;
use std::path::{Path, PathBuf};

/// Hands received bytes in large chunks to the thread that writes them.
#[derive(Debug)]
pub(super) struct FileSink {
    flow: FlowId,
    writer: Option<Writer>,
    chunk: Chunk,
    order: InOrder,
    /// Written when the sink goes, however the download ended.
    trace: Option<(Trace, PathBuf)>,
}

impl FileSink {
    /// Without a target, the bytes are thrown away.
    pub(super) fn new(
        flow: FlowId,
        target: Option<Target>,
        hash: blake3::Hash,
        have: &RangeSet,
        trace: Option<&Path>,
    ) -> Result<Self, FetchError> {
        let writer = target.map(|target| Writer::start(target, hash)).transpose()?;
        let trace = trace.map(|path| (Trace::default(), path.to_owned()));
        Ok(Self { flow, writer, chunk: Chunk::default(), order: InOrder::new(have), trace })
    }

    pub(super) fn waits(&self) -> Waits {
        self.order.waits()
    }

    pub(super) fn write_trace(&mut self) -> Result<(), FetchError> {
        let Some((trace, path)) = self.trace.take() else { return Ok(()) };
        trace.write(&path).map_err(|source| FetchError::disk("write the trace", &path, source))
    }

    /// Begins to verify and rename.
    pub(super) fn end(mut self, length: u64) -> Ending {
        self.flush();
        Ending::new(self.writer.take(), length)
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        // The trace of an unfinished download; the download's own error matters more than the trace's.
        let _ = self.write_trace();
    }
}

impl FileSink {
    /// Notes that bytes arrived, right or wrong.
    pub(super) fn note(&mut self, now: Instant, range: ByteRange) {
        self.order.arrived(now, range);
        if let Some((trace, _)) = &mut self.trace {
            trace.note(now, self.flow, range);
        }
    }

    /// Keeps bytes.
    pub(super) fn store(&mut self, range: ByteRange, bytes: &[u8]) {
        if self.writer.is_some() {
            self.chunk.add(range, bytes);
            if self.chunk.is_full() {
                self.flush();
            }
        }
    }
}

impl Sink for FileSink {
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]) {
        self.note(now, range);
        self.store(range, bytes);
    }
}

impl Watched for FileSink {
    fn flush(&mut self) {
        if let Some(writer) = self.writer.as_mut().filter(|_| !self.chunk.is_empty()) {
            let empty = writer.spare();
            writer.write(std::mem::replace(&mut self.chunk, empty));
        }
    }

    fn failure(&mut self) -> Option<FetchError> {
        self.writer.as_mut().and_then(Writer::failure)
    }
}
