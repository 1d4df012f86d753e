//! Copies of this process's packets, opened, while an operator captures them.
//!
//! There is one tap in a process, like its log: the code that seals and opens packets knows nothing of the
//! captures. Without a capture, a packet costs one look at a flag.

use crate::clock;
use crate::pcapng::Way;
use starhop_proto::name::FlowId;
use starhop_proto::peer::Face;
use starhop_proto::wire::Packet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// Packets that may wait to be written; further packets are missed, and counted.
const ROOM: usize = 4096;

static IS_OPEN: AtomicBool = AtomicBool::new(false);
static TAP: Mutex<Option<Tap>> = Mutex::new(None);
static PASSES: Mutex<Option<Vec<blake3::Hash>>> = Mutex::new(None);

/// A packet of this node.
#[derive(Clone, Debug)]
pub(crate) struct Tapped {
    pub(crate) way: Way,
    /// Time, nanoseconds since 1970.
    pub(crate) unix: u64,
    pub(crate) face: Face,
    /// The packet, opened; without its payload if the operator has not shown the key.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the whole packet.
    pub(crate) len: usize,
}

struct Tap {
    /// Beginning of the flows' ids, hexadecimal.
    flow: String,
    has_payload: bool,
    packets: mpsc::Sender<Tapped>,
    missed: u64,
}

/// An open tap; it closes when this is dropped.
pub(crate) struct Open(pub(crate) mpsc::Receiver<Tapped>);

impl Open {
    /// Packets that came too fast.
    pub(crate) fn missed() -> u64 {
        lock(&TAP).as_ref().map_or(0, |tap| tap.missed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        IS_OPEN.store(false, Ordering::Relaxed);
        *lock(&TAP) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The proofs by which a client shows that it has a key of this node; none if packets are plain anyway.
pub(crate) fn set_passes(passes: Option<Vec<blake3::Hash>>) {
    *lock(&PASSES) = passes;
}

/// Opens the tap for flows whose id begins with `flow`, payload included if `pass` is right or packets are plain.
/// `None` while another capture has it open.
pub(crate) fn open(flow: &str, pass: Option<blake3::Hash>) -> Option<Open> {
    let has_payload = match &*lock(&PASSES) {
        None => true,
        // The comparison of hashes takes the same time wherever the two differ.
        Some(passes) => pass.is_some_and(|pass| passes.contains(&pass)),
    };
    let mut tap = lock(&TAP);
    if tap.is_some() {
        return None;
    }
    let (packets, receiver) = mpsc::channel(ROOM);
    *tap = Some(Tap { flow: flow.to_lowercase(), has_payload, packets, missed: 0 });
    IS_OPEN.store(true, Ordering::Relaxed);
    Some(Open(receiver))
}

/// Notes a packet that was opened, or is about to be sealed.
#[inline]
pub(crate) fn note(way: Way, face: Face, packet: &[u8]) {
    if IS_OPEN.load(Ordering::Relaxed) {
        note_open(way, face, packet);
    }
}

#[cold]
fn note_open(way: Way, face: Face, packet: &[u8]) {
    let Ok(parsed) = Packet::parse(packet) else { return };
    let (flow, payload): (Option<FlowId>, usize) = match &parsed {
        Packet::Interest(interest) => (Some(interest.flow), 0),
        Packet::Data(header, payload) => (Some(header.flow), payload.len()),
        Packet::Notice(notice) => (Some(notice.flow), 0),
        // Parity is of no one flow.
        Packet::Parity(_, sum) => (None, sum.len()),
        Packet::Segment(header, sealed) => (Some(header.flow), sealed.len()),
    };
    let mut tap = lock(&TAP);
    let flow = flow.map(|flow| flow.to_string()).unwrap_or_default();
    let Some(tap) = tap.as_mut().filter(|tap| flow.starts_with(&tap.flow)) else { return };
    let kept = packet.len() - if tap.has_payload { 0 } else { payload };
    let (bytes, len, unix) = (packet[..kept].to_vec(), packet.len(), clock::unix_nanos());
    if tap.packets.try_send(Tapped { way, unix, face, bytes, len }).is_err() {
        tap.missed += 1;
    }
}
