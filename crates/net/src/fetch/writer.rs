//! The thread that writes, hashes and syncs, so that a slow disk does not make the receiver miss packets.

use super::FetchError;
use super::target::Target;
use starhop_proto::name::{ByteRange, RangeSet};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of one chunk, and so of one write.
const CHUNK: usize = 256 * 1024;
/// Chunks on their way to a slow disk, 64 MiB; a faster network waits.
const QUEUE: usize = 256;
/// Ranges are made durable this often, or less often if syncing takes long.
const SYNC: Duration = Duration::from_secs(1);
/// Hashed between two looks at the queue, where bytes have to be read back.
const READ_BACK: usize = 1 << 20;

/// Received bytes, not necessarily in order.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pieces: Vec<ByteRange>,
    bytes: Vec<u8>,
}

impl Chunk {
    pub(super) fn add(&mut self, range: ByteRange, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push(range),
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.bytes.clear();
    }
}

enum Order {
    Write(Chunk),
    /// All bytes were handed over; the object has this length.
    End(u64),
}

/// The receiving side's handle.
#[derive(Debug)]
pub(super) struct Writer {
    orders: SyncSender<Order>,
    spares: Receiver<Chunk>,
    thread: Option<JoinHandle<Result<bool, FetchError>>>,
    stop: Arc<AtomicBool>,
    /// The thread may wait for others, and is not waited for.
    may_block: bool,
}

impl Writer {
    pub(super) fn start(target: Target, hash: blake3::Hash) -> Result<Self, FetchError> {
        let (orders, inbox) = mpsc::sync_channel(QUEUE);
        let (outbox, spares) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let may_block = target.may_block();
        let worker = Worker::new(target, hash, stop.clone());
        let thread = std::thread::Builder::new()
            .name("starhop-disk".to_owned())
            .spawn(move || worker.run(&inbox, &outbox))?;
        Ok(Self { orders, spares, thread: Some(thread), stop, may_block })
    }

    pub(super) fn spare(&mut self) -> Chunk {
        self.spares.try_recv().unwrap_or_default()
    }

    pub(super) fn write(&mut self, chunk: Chunk) {
        // Refused only after a failure, which `failure` reports.
        let _ = self.orders.send(Order::Write(chunk));
    }

    pub(super) fn failure(&mut self) -> Option<FetchError> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        match thread.join() {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(FetchError::Socket(io::Error::other("the writing thread panicked"))),
        }
    }
}

impl Drop for Writer {
    /// Waits until all bytes that were handed over are on the disk, with the state that says so.
    fn drop(&mut self) {
        let (closed, _) = mpsc::sync_channel(0);
        drop(std::mem::replace(&mut self.orders, closed));
        if let Some(thread) = self.thread.take_if(|thread| !self.may_block || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

/// A download whose bytes are all received.
#[derive(Debug)]
pub(super) struct Ending {
    writer: Option<Writer>,
}

impl Ending {
    pub(super) fn new(writer: Option<Writer>, length: u64) -> Self {
        if let Some(writer) = &writer {
            let _ = writer.orders.send(Order::End(length));
        }
        Self { writer }
    }

    pub(super) fn is_done(&self) -> bool {
        let thread = self.writer.as_ref().and_then(|writer| writer.thread.as_ref());
        thread.is_none_or(JoinHandle::is_finished)
    }

    /// Stops hashing; the partial file stays.
    pub(super) fn abandon(&mut self) {
        if let Some(writer) = &self.writer {
            writer.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the bytes were verified; false when there was nothing to verify them with.
    pub(super) fn result(mut self) -> Result<bool, FetchError> {
        let Some(mut writer) = self.writer.take() else { return Ok(false) };
        match writer.failure() {
            Some(error) => Err(error),
            None => Ok(true),
        }
    }
}

struct Worker {
    target: Target,
    have: RangeSet,
    expected: blake3::Hash,
    hasher: blake3::Hasher,
    hashed: u64,
    buffer: Vec<u8>,
    is_dirty: bool,
    next_sync: Instant,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn new(target: Target, expected: blake3::Hash, stop: Arc<AtomicBool>) -> Self {
        Self {
            have: target.have.clone(),
            target,
            expected,
            hasher: blake3::Hasher::new(),
            hashed: 0,
            buffer: Vec::new(),
            is_dirty: false,
            next_sync: Instant::now() + SYNC,
            stop,
        }
    }

    fn run(mut self, inbox: &Receiver<Order>, outbox: &Sender<Chunk>) -> Result<bool, FetchError> {
        loop {
            match inbox.recv_timeout(if self.can_read_back() { Duration::ZERO } else { SYNC }) {
                Ok(Order::Write(mut chunk)) => {
                    self.write(&chunk)?;
                    chunk.clear();
                    // The receiver may have ended already.
                    let _ = outbox.send(chunk);
                }
                Ok(Order::End(length)) => return self.end(length),
                Err(RecvTimeoutError::Timeout) => drop(self.read_back()?),
                Err(RecvTimeoutError::Disconnected) => return self.keep().map(|()| false),
            }
            self.sync()?;
        }
    }

    fn write(&mut self, chunk: &Chunk) -> Result<(), FetchError> {
        let mut at = 0;
        for &piece in &chunk.pieces {
            let bytes = &chunk.bytes[at..at + piece.len() as usize];
            at += bytes.len();
            if let Err(source) = self.target.file.write_all_at(bytes, piece.start) {
                let error = FetchError::disk("write to", self.target.path(), source);
                // A later run can still resume from the bytes written before, if the state fits on the disk.
                let _ = self.keep();
                return Err(error);
            }
            self.have.insert(piece);
            if piece.start == self.hashed {
                self.hasher.update(bytes);
                self.hashed = piece.end;
                self.target.on_order(piece.start, bytes)?;
            }
        }
        self.is_dirty = true;
        Ok(())
    }

    fn can_read_back(&self) -> bool {
        self.have.contains(ByteRange::at(self.hashed, 1))
    }

    /// Hashes some bytes that arrived before their predecessors; false if there are no such bytes.
    fn read_back(&mut self) -> Result<bool, FetchError> {
        let rest = ByteRange::at(self.hashed, READ_BACK as u64);
        let Some(piece) = self.have.intersect(rest).next().filter(|piece| piece.start == self.hashed) else {
            return Ok(false);
        };
        self.buffer.resize(piece.len() as usize, 0);
        let read = self.target.file.read_exact_at(&mut self.buffer, piece.start);
        read.map_err(|source| FetchError::disk("read back", self.target.path(), source))?;
        self.hasher.update(&self.buffer);
        self.hashed = piece.end;
        self.target.on_order(piece.start, &self.buffer)?;
        Ok(true)
    }

    fn sync(&mut self) -> Result<(), FetchError> {
        let start = Instant::now();
        if self.is_dirty && start >= self.next_sync {
            self.target.save(&self.have)?;
            self.is_dirty = false;
            self.next_sync = Instant::now() + SYNC.max(start.elapsed() * 10);
        }
        Ok(())
    }

    /// Keeps the bytes that are there for another attempt, if there are any.
    fn keep(&mut self) -> Result<(), FetchError> {
        if self.have.is_empty() {
            self.target.remove();
            return Ok(());
        }
        self.target.save(&self.have)
    }

    fn end(mut self, length: u64) -> Result<bool, FetchError> {
        let name = self.target.name.clone();
        if let Some(expected) = self.target.length.filter(|&expected| expected != length) {
            self.target.remove();
            return Err(FetchError::Length { name, expected, found: length });
        }
        while self.read_back()? {
            if self.stop.load(Ordering::Relaxed) {
                return self.keep().map(|()| false);
            }
        }
        let found = self.hasher.finalize();
        if self.hashed != length || found != self.expected {
            self.target.remove();
            return Err(FetchError::Verification { name, expected: self.expected, found });
        }
        self.target.complete(length)?;
        Ok(true)
    }
}
